# SPDX-License-Identifier: Apache-2.0
"""The harness' own application in Java (`Application.java` beside this file), with RocketMQ's client of any version."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from infra.machines.api import InfraError, Node, Share
from infra.systems import class_data
from infra.systems.java import LOG, NO_PERF_FILE
from infra.systems.maven import compile_jar, fetch_jars
from infra.systems.mends.apply import client_options
from infra.systems.rocketmq.applications.library import GrpcClient, Library
from infra.systems.rocketmq.servers import artifacts

GRPC_VERSION: Final[GrpcClient] = "5.1.0"

log = logging.getLogger("infra")

_SOURCES: Final = Path(__file__).parent
_MAIN: Final = "harness.client.Application"
_JAR: Final = "/var/lib/harness/client/application-{version}.jar"
_GRPC: Final = "/opt/harness/grpc-client"
_NOWHERE: Final = "127.0.0.1:1"

_OPTIONS: Final = (
    *("-Xms24m", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_PERF_FILE),
    f"-Duser.home={LOG}",
    "-Drocketmq.client.logLevel=WARN",
    "-Drocketmq.log.level=WARN",
)
"""A small heap, for four processes beside five brokers; the client's own log is in the folder of logs."""


@functools.cache
def grpc_jars(version: GrpcClient = GRPC_VERSION) -> Path:
    """The folder with the gRPC client (28 MB), fetched if missing. Raises InfraError."""
    folder = _SOURCES / "grpc"
    return fetch_jars(folder / "pom.xml", folder / f"jars-{version}.toml", {"client.version": version})


class JavaProgram:
    """The application with the client of one version; implements `applications.process.Program`.

    grpc   the version of the gRPC client.
    mends  ids of the run's mends: those of clients are for the remoting client.
    """

    def __init__(
        self, version: str, library: Library, grpc: GrpcClient = GRPC_VERSION, mends: Sequence[int] = ()
    ) -> None:
        self._version, self._library, self._grpc, self._mends = version, library, grpc, mends
        self._jar = _JAR.format(version=version)
        self._content = b""
        self._archive: str | None = None

    @staticmethod
    def shares(library: Library, grpc: GrpcClient = GRPC_VERSION) -> Sequence[Share]:
        """The folders that a node needs besides the servers' jars. Raises InfraError."""
        return [Share(grpc_jars(grpc), _GRPC)] if library.startswith("grpc") else []

    def prepare(self) -> None:
        """Compiles it."""
        folder = compile_jar(_SOURCES, artifacts.fetch(self._version), "application", more=[grpc_jars(self._grpc)])
        self._content = (folder / "application.jar").read_bytes()

    def install(self, node: Node) -> None:
        """Puts the jar on a node, and the archive of its classes: half the processor time of a start is for them."""
        node.write(self._jar, self._content)
        node.run(["touch", "-d", "@0", "--", self._jar])  # part of the archive's key
        name = f"application-{self._version}-{self._library}"
        try:
            self._archive = class_data.of_program(node, name, _OPTIONS, self._path, _MAIN, self._rehearsal)
        except InfraError as problem:
            log.warning("%s: its applications start without an archive of class data: %s", node.name, problem)

    @property
    def argv(self) -> Sequence[str]:
        archived = [] if self._archive is None else class_data.use(self._archive)
        mended = () if self._library.startswith("grpc") else client_options(self._mends, self._version)
        return ["java", *archived, *_OPTIONS, *mended, "-cp", ":".join(self._path), _MAIN]

    @property
    def _path(self) -> Sequence[str]:
        """The gRPC client has other classes of the same names as the servers' jars, so it comes first."""
        first = [f"{_GRPC}/rocketmq-client-java-{self._grpc}.jar"] if self._library.startswith("grpc") else []
        return [self._jar, *first, *artifacts.class_path(self._version)]

    @property
    def _rehearsal(self) -> str:
        """Commands that load the classes of a member and of a producer. Nobody listens at these addresses."""
        part = {"group": "rehearsal", "instance": "rehearsal", "nameservers": _NOWHERE, "proxies": _NOWHERE}
        consume: dict[str, Any] = {"do": "consume", "name": "consumer", "library": self._library}
        consume |= {"topics": ["rehearsal"], "orderly": False, "invisible_ms": 20_000}
        produce = {"do": "produce", "name": "producer"}
        return "".join(json.dumps({**each, **part}) + "\n" for each in (consume, produce))
