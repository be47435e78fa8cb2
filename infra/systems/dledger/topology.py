"""One DLedger group: a register server (`infra/systems/dledger/server/`) on every node, all in one Raft group."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from infra.machines.api import Cluster, InfraError, Node, ProcessId, ServerSettings, SettingsError, Share, Status
from infra.machines.node import spawn_argv
from infra.systems.dledger import server as dledger
from infra.systems.dledger.client import GROUP, RegisterClient, ask_status
from infra.systems.java import (
    DATA,
    LIB,
    LOG,
    LOGGING,
    SERVER_LIB,
    TMP,
    USER_LIB,
    Launch,
    end,
    java,
    java_version,
    last_lines,
    options,
)
from infra.systems.maven import checksum_of, compile_jar, fetch_jars
from infra.systems.remoting.connection import RemotingError
from infra.systems.settings import Default, chosen, jar_folder, properties, values

PORT: Final = 20911
SERVER: Final = "server"
"""The only kind of server on a node."""

_PREFIX: Final = "dledger"
_SETTINGS_FILE: Final = f"{LOG}/server.properties"
_EFFECTIVE_FILE: Final = f"{LOG}/effective.properties"
_SERVER_LOG: Final = f"{LOG}/server.log"
_PIDFILE: Final = "/var/lib/harness/dledger.pid"
_LOCK: Final = "/var/lib/harness/dledger.lock"

_AT_ONCE: Final = 2
"""JVMs started at one time: five at once starve one another on a small machine and are not ready sooner."""

_READY_KEY: Final = "__ready__"
"""A register that is only ever read: readiness is asked for without touching a workload's keys."""

_STATUS_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.2
_LOG_LIMIT: Final = 64 << 20
"""Bytes of each log that are collected: a group that loops writes some 35 MB a minute."""


OPTIONS: Final[Mapping[str, str]] = {
    "-Xmx160m": "enough for a small group's server; five fit into 1 GiB (93-104 MB resident each)",
    **options("gc.log"),
}
"""The options of every server's JVM, each with its reason. A user's own come after them."""

DEFAULTS: Final[Mapping[str, Default]] = {
    "heartBeatTimeIntervalMs": Default("500", "the library's 2 s means elections of 7-12 s: longer than most faults"),
    "mappedFileSizeForEntryData": Default(
        str(16 << 20), "1 GiB files: dropping a prefix allocates a heap array as large as the prefix inside one file"
    ),
    "mappedFileSizeForEntryIndex": Default(str(4 << 20), "131,072 entries of 32 bytes; 160 MiB otherwise"),
    "snapshotThreshold": Default(
        "200", "applied entries between snapshots, where these are enabled: taken and installed in every run"
    ),
}

_OURS: Final = ("group", "selfId", "peers", "storeBaseDir", "dataStorePath")
"""What the topology itself decides."""


class DledgerTopology:
    """See `infra.systems.api.Topology`. Settings: `dledger.NAME`, NAME: any option of DLedger's `DLedgerConfig`."""

    name = "dledger"
    summary: ClassVar[str] = "one Raft group of our small register server, for DLedger itself"
    profiles: ClassVar[Sequence[str]] = ()
    roles: Mapping[str, str] = MappingProxyType({"leader": "leader", "follower": "follower"})

    def __init__(self, settings: ServerSettings, launch: Launch | None = None) -> None:
        """Raises InfraError where the settings cannot be meant for this topology; whether DLedger has them, and takes
        their values, is asked of DLedger itself in `shares`.
        """
        self._launch = launch or Launch()
        self._options = list(settings.jvm_options)
        self._user_jars = jar_folder(settings.jars) if settings.jars is not None else None
        own = chosen(settings.settings, [_PREFIX], {_PREFIX: _OURS}, "DLedgerConfig's")
        self._settings = values(DEFAULTS) | own[_PREFIX]
        self._checked = not settings.settings
        if settings.version not in (None, dledger.VERSION):
            raise SettingsError(
                f"DLedger {settings.version} is not pinned here, only {dledger.VERSION}; "
                "run another build with --server-jars DIR"
            )
        if settings.profile is not None:
            raise SettingsError(f"--profile {settings.profile}: the topology {self.name} has no profiles")
        if settings.options:
            raise SettingsError(f"{', '.join(sorted(settings.options))}: the topology {self.name} has no such options")
        self._nodes: list[Node] = []
        self._java_version = ""

    def shares(self) -> Sequence[Share]:
        """The jars, fetched and compiled (15 s when cold, then a tenth of a second), and a user's own.

        Raises InfraError, also for settings that DLedger does not know.
        """
        jars = fetch_jars(dledger.POM, dledger.LOCK)
        server = compile_jar(dledger.SOURCES, jars, "register-server")
        shares = [Share(jars, LIB), Share(server, SERVER_LIB)]
        if self._user_jars is not None:
            shares.append(Share(self._user_jars, USER_LIB))
        if not self._checked:
            self._check([share.source for share in reversed(shares)])
            self._checked = True
        return shares

    def fits(self, nodes: Sequence[str]) -> None:
        """See `infra.machines.api.Topology`: any number does."""

    def attach(self, cluster: Cluster) -> None:
        """Write every node's settings; nothing is started."""
        self._nodes = list(cluster.nodes)
        peers = ";".join(f"{node.name}-{node.address}:{PORT}" for node in self._nodes)
        for node in self._nodes:
            own = {"group": GROUP, "selfId": node.name, "peers": peers, "storeBaseDir": DATA}
            node.run(["mkdir", "-p", DATA, LOG, TMP])
            node.write(_SETTINGS_FILE, properties(self._settings | own))
        self._java_version = java_version(self._nodes[0])

    def servers(self, node: Node) -> Sequence[str]:
        return [SERVER]

    def main(self, node: Node) -> str:
        return SERVER

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {GROUP: [node.name for node in self._nodes]}

    def nameservers(self) -> Sequence[tuple[str, int]]:
        return []

    def proxies(self) -> Sequence[tuple[str, int]]:
        return []

    def controllers(self) -> Sequence[tuple[str, int]]:
        return []

    def permits(self) -> Mapping[str, str]:
        return {}

    def start(self, node: Node, server: str | None = None) -> None:
        node.run(self.start_command(node, server))

    def start_command(self, node: Node, server: str | None = None) -> Sequence[str]:
        """Whoever runs it twice at once gets one server all the same: `flock -o` keeps the lock from the server."""
        class_path = [USER_LIB] if self._user_jars is not None else []
        argv = java(
            dledger.MAIN_CLASS,
            [_SETTINGS_FILE, _EFFECTIVE_FILE],
            class_path=[*class_path, SERVER_LIB, LIB],
            options=[*OPTIONS, *LOGGING, *self._options],
            launch=self._launch,
        )
        spawn = spawn_argv(argv, env=self._launch.env, log=_SERVER_LOG, pidfile=_PIDFILE)
        return ["flock", "-o", _LOCK, *spawn]

    def start_all(self, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        for first in range(0, len(self._nodes), _AT_ONCE):
            batch = self._nodes[first : first + _AT_ONCE]
            for node in batch:
                self.start(node)
            for node in batch:
                self._await_answer(node, deadline, timeout_s)
        self.await_serving(max(1.0, deadline - time.monotonic()))

    def await_serving(self, timeout_s: float) -> None:
        """Until the leader has answered a read through the log, which takes a quorum. Raises InfraError that says what
        each node was doing.
        """
        if not asyncio.run(self._serves(timeout_s)):
            raise InfraError(f"the group did not serve within {timeout_s:.0f} s: {asyncio.run(self._told())}")

    def stop(self, node: Node, timeout_s: float = 20, server: str | None = None) -> None:
        end(node, _PIDFILE, timeout_s, "the server")

    def process(self, node: Node, server: str | None = None) -> ProcessId | None:
        return node.process(_PIDFILE)

    def data_dirs(self, node: Node, server: str | None = None) -> Sequence[str]:
        return [DATA]

    def last_words(self, node: Node, server: str) -> str:
        return last_lines(node, _SERVER_LOG)

    def endpoint(self, node: Node, server: str | None = None) -> tuple[str, int]:
        return node.address, PORT

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """`begin` is the first index the node's log may hold; `leader` may be a node that is none any more."""
        try:
            said = await ask_status(node.name, self.endpoint(node), timeout_s)
        except RemotingError:
            return Status("silent")
        return Status(
            role=said.role,
            term=said.term,
            leader=said.leader,
            begin=said.before_begin + 1,
            end=said.end,
            committed=said.committed,
            applied=said.applied,
        )

    def collect(self, node: Node, into: Path) -> list[Path]:
        """Server log, GC logs, crash reports, settings as given and in force; of each file at most the last 64 MiB."""
        return node.fetch(LOG, into, _LOG_LIMIT)

    def versions(self) -> Mapping[str, str]:
        out = {
            "dledger": dledger.VERSION,
            "dledger_jars": fetch_jars(dledger.POM, dledger.LOCK).name,
            "java": self._java_version,
            "jvm_options": " ".join([*OPTIONS, *LOGGING, *self._options]),
            "server_settings": " ".join(f"{k}={v}" for k, v in sorted(self._settings.items())),
        }
        if self._user_jars is not None:
            jars = sorted(self._user_jars.glob("*.jar"))
            out["dledger"] += f" behind {len(jars)} jars of {self._user_jars}"
            out["user_jars"] = " ".join(f"{jar.name}:{checksum_of(jar)}" for jar in jars)
        return out

    def _check(self, class_path: Sequence[Path]) -> None:
        """Let the server itself look at the settings, here, before anything is provisioned."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.properties"
            file.write_bytes(properties(self._settings))
            jars = ":".join(f"{path}/*" for path in class_path)
            argv = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, dledger.MAIN_CLASS, "--check", str(file)]
            try:
                done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
            except FileNotFoundError:
                raise InfraError("java is not on the path; install a JDK (Debian: openjdk-17-jdk-headless)") from None
            except subprocess.TimeoutExpired:
                raise InfraError(
                    "java took more than 300 s to look at the settings: this machine is overloaded"
                ) from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
            raise SettingsError(f"server settings: {said[-1].removeprefix('RegisterServer: ')}")

    def _await_answer(self, node: Node, deadline: float, timeout_s: float) -> None:
        """Until the node's server answers at all. Raises InfraError with the end of its log."""
        while asyncio.run(self.observe(node, _STATUS_TIMEOUT_S)).role == "silent":
            if self.process(node) is None:
                raise InfraError(f"{node.name}: the server ended at once; its log: {last_lines(node, _SERVER_LOG)}")
            if time.monotonic() > deadline:
                log = last_lines(node, _SERVER_LOG)
                raise InfraError(f"{node.name}: the server did not answer within {timeout_s:.0f} s; its log: {log}")
            time.sleep(_POLL_S)

    async def _serves(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        endpoints = {node.name: self.endpoint(node) for node in self._nodes}
        while (left := deadline - time.monotonic()) > 0:
            client = RegisterClient(endpoints, deadline_s=min(left, 5.0))
            try:
                answer = await client.read(_READY_KEY)
            finally:
                await client.close()
            if answer.outcome.type == "ok":
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _told(self) -> str:
        statuses = await asyncio.gather(*(self.observe(node, _STATUS_TIMEOUT_S) for node in self._nodes))
        return "; ".join(
            f"{node.name} {s.role}" + ("" if s.term is None else f", term {s.term}, log to {s.end}")
            for node, s in zip(self._nodes, statuses, strict=True)
        )
