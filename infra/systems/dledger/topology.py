# SPDX-License-Identifier: Apache-2.0
"""One DLedger group: a register server (`infra/systems/dledger/server/`) on every node, all in one Raft group."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from infra.machines.api import Cluster, InfraError, Node, SettingsError, Share
from infra.options import NoOptions
from infra.systems import class_data
from infra.systems.api import REPLICATION, Launch, Server, ServerSettings, Status
from infra.systems.builds import Build
from infra.systems.dledger import server as dledger
from infra.systems.dledger.client import GROUP, RegisterClient, ask_status
from infra.systems.dledger.layouts import DAMAGED, DLEDGER_FILES, WIPED
from infra.systems.java import (
    DATA,
    LIB,
    LOG,
    LOGGING,
    SERVER_LIB,
    TMP,
    JavaServer,
    Program,
    describe_builds,
    describe_mends,
    java_version,
    launch_for,
    launches,
    mend_shares,
    options,
    own_builds,
    require_unchanged,
    user_shares,
)
from infra.systems.maven import compile_jar, fetch_jars, read_lock
from infra.systems.mends.apply import require_applied
from infra.systems.remoting.connection import RemotingError
from infra.systems.settings import Default, chosen, jar_folder, properties, values
from infra.systems.starting import Stage, start_in_stages
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.permission import Permissions
from results.strikes import EffectKind

PORT: Final = 20911
SERVER: Final = "server"
"""The only kind of server on a node."""
_PORTS: Final = {SERVER: PORT, REPLICATION: PORT}
"""DLedger has one port for requests and for Raft."""

_PREFIX: Final = "dledger"
_SETTINGS_FILE: Final = f"{LOG}/server.properties"
_EFFECTIVE_FILE: Final = f"{LOG}/effective.properties"

_JAR: Final = "register-server"

_AT_ONCE: Final = 2
"""JVMs started at one time: five at once slow one another down on a small machine and are not ready sooner."""

_READY_KEY: Final = "__ready__"
"""A register that is only read: probes of readiness do not touch a workload's keys."""

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
"""The settings that the topology itself decides."""


class _Admin:
    """See `infra.systems.api.Admin`. The register server answers its clients, and has nothing for administrators."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def answers(self, timeout_s: float) -> bool:
        try:
            asyncio.run(ask_status(self._node.name, (self._node.address, PORT), timeout_s))
        except RemotingError:
            return False
        return True

    def version(self, timeout_s: float) -> str:
        raise self._error("does not report its version")

    def settings(self, timeout_s: float) -> Mapping[str, str]:
        raise self._error("does not report its settings while it runs")

    def change_command(self, settings: Mapping[str, str]) -> Sequence[str]:
        raise self._error("takes no changes while it runs")

    def _error(self, why: str) -> InfraError:
        return InfraError(f"{self._node.name}: the register server {why}")


def _pinned(given: ServerSettings) -> ServerSettings:
    """Settings in which servers with own jars have the version that is pinned."""
    own = given.launch.jars is not None
    if own and given.launch.version is not None:
        given = replace(given, launch=replace(given.launch, version=dledger.VERSION))
    rules = [
        replace(rule, launch=replace(rule.launch, version=dledger.VERSION))
        if rule.launch.version is not None and (own or rule.launch.jars is not None)
        else rule
        for rule in given.rules
    ]
    return replace(given, rules=rules)


class DledgerTopology:
    """See `infra.systems.api.Topology`. Settings: `dledger.NAME`, NAME: any option of DLedger's `DLedgerConfig`."""

    name = "dledger"
    summary: ClassVar[str] = "one Raft group of a small register server, to test DLedger itself"
    Options: ClassVar[type] = NoOptions
    profiles: ClassVar[Sequence[str]] = ()
    roles: Mapping[str, str] = MappingProxyType({"leader": "leader", "follower": "follower"})
    default_version: ClassVar[str] = dledger.VERSION
    kinds: ClassVar[Sequence[str]] = (SERVER,)

    def __init__(self, settings: ServerSettings, options: NoOptions | None = None) -> None:
        """Raises InfraError if the settings are not possible for this topology. `shares` checks with DLedger itself if
        it has them, and takes their values.
        """
        self._asked = settings.launch.version
        settings = _pinned(settings)
        self.settings, self.options = settings, options or NoOptions()
        own = chosen(settings.settings, [_PREFIX], {_PREFIX: _OURS}, "DLedgerConfig's")
        self._named = values(DEFAULTS) | own[_PREFIX]
        self._checked = not settings.settings
        self._mends: list[Share] | None = None
        self._compared: list[Build] | None = None
        for launch in [*launches(settings), *map(Launch, settings.versions)]:
            jars = launch.jars or settings.launch.jars
            if launch.version not in (None, dledger.VERSION) and jars is None:
                raise SettingsError(
                    f"DLedger {launch.version} is not pinned here, only {dledger.VERSION}; "
                    "a build of your own needs --server-jars DIR"
                )
            if launch.jars is not None:
                jar_folder(launch.jars)
        if settings.profile is not None:
            raise SettingsError(f"--profile {settings.profile}: the topology {self.name} has no profiles")
        if settings.kinds:
            raise SettingsError(f"the topology {self.name} has no {sorted(settings.kinds)[0]}")
        self._servers: dict[str, JavaServer] = {}
        self._nodes: list[Node] = []
        self._java_version = ""
        self._archives: Collection[str] = ()

    @classmethod
    def known_versions(cls) -> Mapping[str, str]:
        return {f"dledger {dledger.VERSION}": f"the topology {cls.name}"}

    def shares(self) -> Sequence[Share]:
        """The jars, fetched and compiled (15 s when cold, then a tenth of a second), and a user's own.

        Raises InfraError, also for settings that DLedger does not know.
        """
        jars = fetch_jars(dledger.POM, dledger.LOCK)
        server = compile_jar(dledger.SOURCES, jars, _JAR)
        shares = [Share(jars, LIB), Share(server, SERVER_LIB), *user_shares(self.settings)]
        if not self._checked:
            own = self.settings.launch.jars
            self._check([*([own] if own else []), server, jars])
            self._checked = True
        if self._mends is None:
            require_unchanged(self.settings.launch.mends, self._builds())
            self._mends = mend_shares(self.settings, {dledger.VERSION: jars})
        return [*shares, *self._mends]

    def rehearsals(self) -> Sequence[class_data.Rehearsal]:
        """See `infra.systems.class_data.Rehearsed`."""
        own = self.settings.launch.jars is not None
        return [] if own else [class_data.Rehearsal(self.name, dledger.VERSION, ServerSettings())]

    def fits(self, nodes: Sequence[str]) -> None:
        """See `infra.systems.api.Topology`: any number fits."""

    def attach(self, cluster: Cluster) -> None:
        """Writes every node's settings; starts nothing."""
        self._nodes = list(cluster.nodes)
        peers = ";".join(f"{node.name}-{node.address}:{PORT}" for node in self._nodes)
        self._archives = class_data.archives_on(self._nodes[0])
        for node in self._nodes:
            own = {"group": GROUP, "selfId": node.name, "peers": peers, "storeBaseDir": DATA}
            node.run(["mkdir", "-p", DATA, LOG, TMP])
            node.write(_SETTINGS_FILE, properties(self._named | own))
            self._servers[node.name] = self._server(node)
        self._java_version = java_version(self._nodes[0])

    def servers(self, node: Node) -> Sequence[Server]:
        return [self._servers[node.name]]

    def further(self, node: Node, name: str, group: str, slot: int) -> Server:
        raise InfraError(f"the topology {self.name} has one group of servers, and no further ones")

    def record(self) -> DeploymentRecord:
        names = [node.name for node in self._nodes]
        return DeploymentRecord(
            topology=self.name,
            nodes={node.name: node.address for node in self._nodes},
            servers=[
                ServerRecord(
                    node.name,
                    SERVER,
                    node.address,
                    _PORTS,
                    GROUP,
                    dledger.VERSION,
                    tuple(self._servers[node.name].mends),
                )
                for node in self._nodes
            ],
            groups={GROUP: names},
            quorums={SERVER: names},
            traits=Traits(raft_log=True, durable=("currterm",)),
        )

    def forget(self, node: Node, timeout_s: float) -> str:
        """Raises InfraError: the configuration fixes the members."""
        raise InfraError(f"{node.name}: {self.keeps_address(node.name)}")

    def keeps_address(self, node: str) -> str | None:
        return "the members of the group have one another's addresses in their configuration"

    def readdress(self, node: Node) -> None:
        """Raises SettingsError: see `keeps_address`."""
        raise SettingsError(f"{node.name}: {self.keeps_address(node.name)}")

    def permits(self) -> Permissions:
        return {}

    def permits_after(self) -> Mapping[EffectKind, Permissions]:
        """The permissions after faults. A member with an empty disk forgets. Committed entries of a Raft group survive
        every failure after which a majority returns.
        """
        return {"data-lost": WIPED, "data-damaged": DAMAGED}

    def _server(self, node: Node) -> JavaServer:
        def program(launch: Launch) -> Program:
            archive = class_data.archive(dledger.VERSION, SERVER)
            return Program(
                dledger.MAIN_CLASS,
                [_SETTINGS_FILE, _EFFECTIVE_FILE],
                class_path=[f"{SERVER_LIB}/{_JAR}.jar", *(f"{LIB}/{jar}" for jar in sorted(read_lock(dledger.LOCK)))],
                options=[*OPTIONS, *LOGGING],
                archive=archive if archive in self._archives else None,
            )

        launch = replace(launch_for(self.settings, node.name, SERVER), version=dledger.VERSION)
        return JavaServer(
            node,
            SERVER,
            program,
            ports=_PORTS,
            data_dirs=[DATA],
            files=DLEDGER_FILES,
            launch=launch,
            admin=_Admin(node),
            group=GROUP,
        )

    def start_all(self, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        servers = [self._servers[node.name] for node in self._nodes]
        start_in_stages([Stage(servers, _AT_ONCE)], deadline, timeout_s)
        for server in servers:
            require_applied(server)
        self.await_serving(max(1.0, deadline - time.monotonic()))

    def await_serving(self, timeout_s: float) -> None:
        """Waits until the leader has answered a read through the log, which takes a quorum. Raises InfraError with the
        state of each node.
        """
        if not asyncio.run(self._serves(timeout_s)):
            raise InfraError(f"the group did not serve within {timeout_s:.0f} s: {asyncio.run(self._describe())}")

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """`begin` is the first index that the node's log may hold; `leader` may be a node that no longer leads."""
        try:
            reply = await ask_status(node.name, (node.address, PORT), timeout_s)
        except RemotingError:
            return Status("silent")
        return Status(
            role=reply.role,
            term=reply.term,
            leader=reply.leader,
            begin=reply.before_begin + 1,
            end=reply.end,
            committed=reply.committed,
            applied=reply.applied,
        )

    def collect(self, node: Node, into: Path) -> list[Path]:
        """Server log, GC logs, crash reports, settings, given and effective; of each file at most 64 MiB."""
        return node.fetch(LOG, into, _LOG_LIMIT)

    def versions(self) -> Mapping[str, str]:
        builds = self._builds()
        build = "; ".join(one.describe() for one in builds)
        out = {
            "dledger": (build or dledger.VERSION) + describe_mends(self.settings),
            "dledger_jars": fetch_jars(dledger.POM, dledger.LOCK).name,
            "java": self._java_version,
            "jvm_options": " ".join([*OPTIONS, *LOGGING, *self.settings.launch.jvm_options]),
            "server_settings": " ".join(f"{k}={v}" for k, v in sorted(self._named.items())),
        }
        return out | describe_builds(self.settings, builds)

    def _builds(self) -> Sequence[Build]:
        """The users' own jars, compared with the published ones."""
        if self._compared is None:
            found = own_builds(self.settings, dledger.VERSION, lambda _: fetch_jars(dledger.POM, dledger.LOCK))
            asked = self._asked if self._asked not in (None, dledger.VERSION) else ""
            self._compared = [replace(build, asked=asked or "") for build in found]
        return self._compared

    def _check(self, class_path: Sequence[Path]) -> None:
        """Makes the server itself check the settings, here, before anything is provisioned."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.properties"
            file.write_bytes(properties(self._named))
            jars = ":".join(f"{path}/*" for path in class_path)
            argv = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, dledger.MAIN_CLASS, "--check", str(file)]
            try:
                done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
            except FileNotFoundError:
                raise InfraError("java is not on the path; install a JDK (Debian: openjdk-17-jdk-headless)") from None
            except subprocess.TimeoutExpired:
                raise InfraError(
                    "java took more than 300 s to check the settings: this machine is overloaded"
                ) from None
        if done.returncode != 0:
            reply = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
            raise SettingsError(f"server settings: {reply[-1].removeprefix('RegisterServer: ')}")

    async def _serves(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        endpoints = {node.name: (node.address, PORT) for node in self._nodes}
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

    async def _describe(self) -> str:
        statuses = await asyncio.gather(*(self.observe(node, _STATUS_TIMEOUT_S) for node in self._nodes))
        return "; ".join(
            f"{node.name} {s.role}" + ("" if s.term is None else f", term {s.term}, log to {s.end}")
            for node, s in zip(self._nodes, statuses, strict=True)
        )
