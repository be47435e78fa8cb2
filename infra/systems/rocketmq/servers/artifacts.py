# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's published jars: pinned versions, each with a list of checksums; and the checks of settings by their code
before a run.

The binary zip is not needed: beyond the jars it has only scripts and sample configuration.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, SettingsError
from infra.systems.api import NOT_AVAILABLE, Launch, ServerSettings, nearest
from infra.systems.java import LIB
from infra.systems.maven import compile_jar, fetch_jars, read_lock
from infra.systems.passed import once

DEFAULT_VERSION: Final = "5.5.0"

VERSIONS: Final = ("5.1.0", "5.1.1", "5.2.0", "5.3.3", "5.4.0", "5.5.0")
"""All versions that are published whole; `jars-VERSION.toml` beside this file pins each."""

INCOMPLETE: Final[Mapping[str, str]] = {
    "5.1.2": "rocketmq-namesrv, -broker, -controller and -proxy",
    "5.1.4": "rocketmq-proxy and -container",
    "5.3.2": "rocketmq-namesrv, -controller and others",
    "5.3.4": "rocketmq-namesrv and others",
    "5.5.1": "rocketmq-namesrv, -tiered-store, -client, -srvutil and others",
}
"""Versions that repositories list although modules of them were never published -> what is missing."""

FOLDER: Final = Path(__file__).parent
POM: Final = FOLDER / "pom.xml"

CONFIGS: Final[Mapping[str, Sequence[str]]] = {
    "namesrv": (
        "org.apache.rocketmq.common.namesrv.NamesrvConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    ),
    "controller": (
        "org.apache.rocketmq.common.ControllerConfig",
        "org.apache.rocketmq.common.JraftConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    ),
    "broker": (
        "org.apache.rocketmq.common.BrokerConfig",
        "org.apache.rocketmq.store.config.MessageStoreConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
        "org.apache.rocketmq.auth.config.AuthConfig",
    ),
    "proxy": ("org.apache.rocketmq.proxy.config.ProxyConfig",),
}
"""The objects that a server's start-up class fills from its properties (`BrokerStartup.buildBrokerController`, ...)."""

_CHECKER: Final = "harness.rocketmq.CheckSettings"


def known_version(version: str | None, *, own: bool = False) -> str:
    """The version whose published jars and settings servers get. `own`: a user's own jars are in front of them; then it
    is the nearest one for a version that is not pinned.

    Raises SettingsError that names the missing parts of a version, or the versions that exist.
    """
    if version is None:
        return DEFAULT_VERSION
    if own:
        return nearest(version, VERSIONS)
    if version in INCOMPLETE:
        raise SettingsError(
            f"RocketMQ {version} is published incomplete: {INCOMPLETE[version]} are missing; "
            f"complete are {', '.join(VERSIONS)}"
        )
    if version not in VERSIONS:
        raise SettingsError(
            f"RocketMQ {version} is not pinned here, only {', '.join(VERSIONS)}; "
            "a build of your own needs --server-jars DIR"
        )
    return version


def pinned(given: ServerSettings) -> ServerSettings:
    """Settings in which every server with own jars has a version that is pinned."""
    own = given.launch.jars is not None
    return replace(
        given,
        launch=_pinned(given.launch, own),
        rules=[replace(rule, launch=_pinned(rule.launch, own or rule.launch.jars is not None)) for rule in given.rules],
    )


def _pinned(launch: Launch, own: bool) -> Launch:
    return launch if launch.version is None else replace(launch, version=known_version(launch.version, own=own))


def before(version: str, other: str) -> bool:
    """True if a version is older than another.

    >>> before("5.1.1", "5.2.0"), before("5.10.0", "5.2.0")
    (True, False)
    """
    first, second = (tuple(map(int, text.split("."))) for text in (version, other))
    return first < second


def describe_versions() -> Mapping[str, str]:
    """See `infra.systems.api.Topology.known_versions`."""
    whole = sorted(VERSIONS, key=lambda v: (v != DEFAULT_VERSION, v))
    found = {f"rocketmq {v}": "the default" if v == DEFAULT_VERSION else "" for v in whole}
    return found | {f"rocketmq {v}": f"{NOT_AVAILABLE}: {what} were never published" for v, what in INCOMPLETE.items()}


def lib(version: str) -> str:
    """The folder of a version's jars on the nodes."""
    return f"{LIB}/{version}"


@functools.cache
def class_path(version: str) -> Sequence[str]:
    """The jars of a version on the nodes, in the order of the servers' class path."""
    return [f"{lib(version)}/{jar}" for jar in sorted(read_lock(FOLDER / f"jars-{version}.toml"))]


@functools.cache
def fetch(version: str) -> Path:
    """The folder with all jars of a version (55-102 MB). Raises InfraError.

    10-30 s when cold; half a second in each process that calls it, for the checksums.
    """
    return fetch_jars(POM, FOLDER / f"jars-{version}.toml", {"rocketmq.version": version})


def check_settings(settings: Mapping[str, Mapping[str, str]], class_path: Sequence[Path]) -> None:
    """Makes RocketMQ's own code take each setting, and reads it back, once for the same settings and jars.

    settings    kind of server -> name -> value. class_path: folders of jars, the first wins; the last holds RocketMQ.
    Raises InfraError for the first setting that the server does not have, or whose value it does not take: servers
    themselves ignore both in silence (`MixAll.properties2Object`).
    """
    folders = [*class_path, compile_jar(FOLDER, class_path[-1], "check-settings")]
    lines = [
        "\t".join((kind, name, value.replace("\t", " "), *CONFIGS[kind]))
        for kind, named in settings.items()
        for name, value in named.items()
    ]
    once("settings", lines, folders, partial(_check, lines, folders))


def _check(lines: Sequence[str], class_path: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        requested = Path(folder) / "settings"
        requested.write_text("".join(f"{line}\n" for line in lines))
        jars = ":".join(f"{path}/*" for path in class_path)
        argv = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, _CHECKER, str(requested)]
        try:
            done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
        except FileNotFoundError:
            raise InfraError("java is not on the path; install a JDK (Debian: openjdk-17-jdk-headless)") from None
        except subprocess.TimeoutExpired:
            raise InfraError("java took more than 300 s to check the settings: this machine is overloaded") from None
    if done.returncode != 0:
        reply = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        raise SettingsError(f"server settings: {reply[-1].removeprefix('CheckSettings: ')}")
