# SPDX-License-Identifier: Apache-2.0
"""The harness' own application in Java (`Application.java` beside this file), with the client of any version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import Node
from infra.systems.java import LOG, NO_PERF_FILE
from infra.systems.maven import compile_jar
from infra.systems.rocketmq.servers import artifacts

_SOURCES: Final = Path(__file__).parent
_MAIN: Final = "harness.client.Application"
_JAR: Final = "/var/lib/harness/client/application-{version}.jar"

_OPTIONS: Final = (
    *("-Xms24m", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_PERF_FILE),
    f"-Duser.home={LOG}",
    "-Drocketmq.client.logLevel=WARN",
)
"""A small heap, for four processes beside five brokers; the client's own log is in the folder of logs."""


def prepare(version: str) -> bytes:
    """The jar of the application, compiled for the client of this version. Raises InfraError."""
    folder = compile_jar(_SOURCES, artifacts.fetch(version), "application")
    return (folder / "application.jar").read_bytes()


def install(node: Node, version: str, jar: bytes) -> None:
    """Puts the jar on a node. Raises InfraError."""
    node.write(_JAR.format(version=version), jar)


def argv(version: str, options: Sequence[str] = ()) -> list[str]:
    """The command that starts it on a node that has it, and the servers' jars of this version."""
    path = ":".join([_JAR.format(version=version), *artifacts.class_path(version)])
    return ["java", *_OPTIONS, *options, "-cp", path, _MAIN]
