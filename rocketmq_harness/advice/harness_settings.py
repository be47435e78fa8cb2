# SPDX-License-Identifier: Apache-2.0
"""The tables of `docs/settings.md`: the harness's own settings of RocketMQ, from the code that writes servers' files.

    python -m rocketmq_harness.advice.harness_settings docs # writes the page
    python -m rocketmq_harness.advice.harness_settings own  # writes the servers' own values, from the pinned jars

A test fails if the page is out of date, if a setting has no reason, or if it has no `Scope`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from harness.findings.pages import replaced
from infra.systems.rocketmq.servers import artifacts, settings
from infra.systems.settings import Default
from results.durable import write_text
from results.reading import read_toml

PAGE: Final = "settings.md"
VERSION: Final = "5.5.0"
"""The version whose own values the page shows."""

OWN: Final = Path(__file__).with_name("own_values.toml")


class Scope(Enum):
    """The kinds of settings, by what they do to a rate."""

    TIME = "time"
    PROMISE = "promise"
    MODE = "mode"
    SIZE = "size"
    THREADS = "threads"
    CHECK = "check"


GROUPS: Final[Mapping[str, tuple[str, Mapping[str, Default]]]] = {
    "Name servers": ("namesrv", settings.NAMESRV),
    "Brokers": ("broker", settings.BROKER),
    "Brokers that wait for replicas": ("broker", settings.REPLICATED),
    "Brokers under controllers": (
        "broker",
        {name: d for name, d in settings.CONTROLLED.items() if name not in settings.REPLICATED},
    ),
    "The same, profile `strict`": ("broker", settings.STRICT_CONTROLLED),
    "Controllers": ("controller", settings.CONTROLLER),
    "JRaft controllers": ("controller", settings.JRAFT),
    "Masters of `master-slave`, profile `strict`": (
        "broker",
        {name: d for name, d in settings.SYNC_GROUP.items() if name not in settings.REPLICATED},
    ),
    "Name servers of `slave-acting-master`": ("namesrv", settings.ACTING_NAMESRV),
    "Brokers of `slave-acting-master`": (
        "broker",
        {name: d for name, d in settings.ACTING.items() if name not in settings.REPLICATED},
    ),
    "The same group, profile `strict`": ("broker", settings.STRICT_ACTING),
    "Brokers of `dledger-commitlog`": ("broker", settings.DLEDGER),
    "Proxies": ("proxy", settings.PROXY),
}
"""Heading -> the kind of server, and its settings. Together they are all settings of the harness."""

_NAMES: Final[Mapping[Scope, tuple[str, ...]]] = {
    Scope.TIME: (
        *("scanNotActiveBrokerInterval", "registerNameServerPeriod", "brokerHeartbeatInterval"),
        *("brokerNotActiveTimeoutMillis", "osPageCacheBusyTimeOutMills", "waitTimeMillsInSendQueue", "slaveTimeout"),
        *("controllerHeartBeatTimeoutMills", "syncBrokerMetadataPeriod", "syncControllerMetadataPeriod"),
        *("checkSyncStateSetPeriod", "haMaxTimeSlaveNotCatchup", "haSendHeartbeatInterval", "haHousekeepingInterval"),
        *("jRaftElectionTimeoutMs", "jRaftScanWaitTimeoutMs", "scanInactiveMasterInterval"),
        *("jRaftSnapshotIntervalSecs", "transactionTimeOut", "transactionCheckInterval"),
        *("transactionOpBatchInterval", "loadBalancePollNameServerInterval", "transactionMetricFlushInterval"),
        "timerFlushIntervalMs",
    ),
    Scope.PROMISE: (
        *("allAckInSyncStateSet", "inSyncReplicas", "minInSyncReplicas", "brokerRole", "enableAutoInSyncReplicas"),
        *("lockInStrictMode", "skipPreOnline"),
    ),
    Scope.MODE: (
        *("enableControllerMode", "supportActingMaster", "enableSlaveActingMaster", "enableDLegerCommitLog"),
        *("enableRemoteEscape", "notifyMinBrokerIdChanged", "notifyBrokerRoleChanged", "compatibleWithOldNameSrv"),
    ),
    Scope.SIZE: (
        *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeTimerLog", "mappedFileSize"),
        *("maxMessageSize", "messageIndexEnable", "enableCompaction"),
    ),
    Scope.CHECK: (
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "slaveReadEnable", "fileReservedTime"),
        "diskMaxUsedSpaceRatio",
    ),
}
_THREADS: Final = ("PoolNums", "Threads", "LoopNum")


def scope(name: str) -> Scope | None:
    """The kind of a setting, or None if nobody has said it."""
    if name.endswith(_THREADS):
        return Scope.THREADS
    return next((kind for kind, names in _NAMES.items() if name in names), None)


def own_values() -> Mapping[str, Mapping[str, str]]:
    """Kind of server -> setting -> the value of `VERSION` without any file."""
    return {kind: {str(k): str(v) for k, v in values.items()} for kind, values in _read().items()}


@cache
def _read() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = read_toml(OWN)
    return found


def page(docs: Path) -> str:
    """The whole text of the page as it should be. Raises OSError, ValueError."""
    return replaced((docs / PAGE).read_text(encoding="utf-8"), "\n".join(tables()))


def tables() -> Iterator[str]:
    """The lines of all tables, and the options that restore the servers' own time limits."""
    own = own_values()
    for heading, (kind, group) in GROUPS.items():
        yield f"**{heading}**"
        yield ""
        yield f"| setting | here | RocketMQ's own ({VERSION}) | reason | kind | always |"
        yield "|---|---|---|---|---|---|"
        for name, default in group.items():
            kind_of = scope(name)
            yield (
                f"| `{name}` | {_value(default.value)} | {_value(own[kind][name])} | {default.why} | "
                f"{kind_of.value if kind_of else ''} | {'yes' if default.needed else ''} |"
            )
        yield ""
    yield f"These options restore the time limits of {VERSION} in a run with controllers:"
    yield ""
    yield "```sh"
    yield from " \\\n    ".join(restoring()).splitlines()
    yield "```"


def restoring() -> Iterator[str]:
    """Yields the options for the servers' own time limits, under DLedger controllers."""
    own = own_values()
    for heading in (
        "Name servers",
        "Controllers",
        "Brokers",
        "Brokers that wait for replicas",
        "Brokers under controllers",
    ):
        kind, group = GROUPS[heading]
        for name, default in group.items():
            # What a small machine cannot do without limits no fault.
            if scope(name) == Scope.TIME and not default.needed and own[kind][name] != default.value:
                yield f"--set {kind}.{name}={own[kind][name]}"


def _value(text: str) -> str:
    return f"{int(text):,}" if text.isdigit() and len(text) > 4 else text


_JAVA: Final = """
import java.util.*;
import org.apache.rocketmq.common.MixAll;
public class Own {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Properties found = MixAll.object2Properties(Class.forName(name).getDeclaredConstructor().newInstance());
            for (String key : new TreeSet<>(found.stringPropertyNames())) {
                System.out.println(key + "\\t" + found.getProperty(key));
            }
        }
    }
}
"""


def made() -> str:
    """The text of the file of own values, from the pinned jars, which are fetched where they are missing."""
    jars = artifacts.fetch(VERSION)
    lines = ["# SPDX-License-Identifier: Apache-2.0"]
    lines.append("# Made by `python -m rocketmq_harness.advice.harness_settings own`: what RocketMQ's own classes of")
    lines.append(f"# {VERSION} have without any file, for the settings of the harness.")
    for kind, classes in artifacts.CONFIGS.items():
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "Own.java"
            source.write_text(_JAVA)
            argv = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(source), *classes]
            done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300)
        found: dict[str, str] = {}
        for line in done.stdout.splitlines():
            name, _, value = line.partition("\t")
            found.setdefault(name[:1].lower() + name[1:], value)
        wanted = sorted({name for of, group in GROUPS.values() if of == kind for name in group})
        lines += ["", f"[{kind}]", *(f'{name} = "{found[name]}"' for name in wanted)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["own"]:
        write_text(OWN, made(), "the servers' own values")
    else:
        folder = Path(sys.argv[1])
        write_text(folder / PAGE, page(folder), "the page of settings")
