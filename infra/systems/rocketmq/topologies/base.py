# SPDX-License-Identifier: Apache-2.0
"""The common part of all RocketMQ topologies: several servers per node, their configuration, start and observation.

Each topology defines the servers of each node (`_layout`), the settings of its mode and profile (`_mode`), and the data
of a server that only the topology knows (`_own`).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from infra.machines.api import Cluster, InfraError, Node, SettingsError, Share
from infra.machines.primitives.bits import FileKind
from infra.options import NoOptions
from infra.systems import class_data
from infra.systems.api import REPLICATION, Launch, Server, ServerSettings, Status
from infra.systems.builds import Build
from infra.systems.dledger.layouts import DAMAGED, DLEDGER_FILES, WIPED
from infra.systems.java import (
    DATA,
    LOG,
    TMP,
    JavaServer,
    Looks,
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
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, MAIN_CLASSES, NAMESRV, PROXY, artifacts, jvm, settings
from infra.systems.rocketmq.store.layouts import BROKER_FILES, RAFT_BROKER_FILES
from infra.systems.rocketmq.topologies.administration import RocketmqAdmin
from infra.systems.rocketmq.topologies.bounds import (
    expires_after_s,
    flushed_bytes,
    flushed_within_s,
    offsets_written_s,
)
from infra.systems.rocketmq.topologies.files import OURS, rendered, settings_file
from infra.systems.rocketmq.topologies.layout import (
    BROKER_PORT,
    CLUSTER,
    HA_PORT,
    NAMESRV_PORT,
    PROXY_GRPC_PORT,
    PROXY_REMOTING,
    PROXY_REMOTING_PORT,
    QUORUM_SIZE,
    Layout,
    NodeRoles,
    groups,
    proxies_inside,
)
from infra.systems.rocketmq.topologies.members import further_ports, further_settings
from infra.systems.rocketmq.topologies.starting import check_space, make_group_of_proxies, read_back, stages_of
from infra.systems.rocketmq.topologies.state import Addresses, look, missing
from infra.systems.settings import Default, chosen, jar_folder, values
from infra.systems.starting import start_in_stages
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.permission import Permission, Permissions
from results.strikes import EffectKind

_LOGBACK: Final = f"{LOG}/logback.xml"
_LOG_LIMIT: Final = 64 << 20
"""Bytes of each log that are collected."""

_POLL_S: Final = 0.25
_ASK_S: Final = 2.0

GIVEN: Final = "given"
"""The profile with the servers' own defaults, except what a small machine needs: for an operator's settings."""

ALONE: Final = "a broker locks queues without asking the others of its group, and keeps the locks in memory"
"""The reason why queues may have two holders after a change of master, or a restart."""


class RocketmqTopology(ABC):
    """See `infra.systems.api.Topology`. Settings: `KIND.NAME`, NAME being any setting of that kind of server."""

    name: str
    summary: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    default_version: ClassVar[str] = artifacts.DEFAULT_VERSION
    kinds: ClassVar[Sequence[str]] = (NAMESRV, BROKER, PROXY)
    profiles: ClassVar[Sequence[str]] = ("strict", "default", GIVEN)
    roles: Mapping[str, str] = MappingProxyType({"leader": "master", "follower": "slave"})
    changing: ClassVar[Collection[str]] = ()
    """A broker's settings that the cluster changes by itself: not compared with the requested ones."""
    traits: ClassVar[Traits] = Traits(offsets_copied_s=10.0)
    """Slaves copy the committed offsets every 10 s if masters are elected (`SlaveSynchronize`, 5.1.0 to 5.5.0)."""

    def __init__(self, server_settings: ServerSettings, options: Any = None) -> None:
        """Raises InfraError if the settings are not possible; `shares` checks if the servers have them."""
        given = artifacts.pinned(server_settings)
        self.options = options if options is not None else self.Options()
        self.version = artifacts.known_version(given.launch.version)
        self._asked = server_settings.launch.version
        self.profile = given.profile or self.profiles[0]
        if self.profile not in self.profiles:
            raise SettingsError(f"--profile {given.profile}: the topology {self.name} has {', '.join(self.profiles)}")
        if unknown := sorted(set(given.kinds) - {PROXY}):
            raise SettingsError(f"the topology {self.name} has no {unknown[0]}")
        for version in given.versions:
            artifacts.known_version(version)
        for launch in launches(given):
            artifacts.known_version(launch.version)
            if launch.jars is not None:
                jar_folder(launch.jars)
        self.settings = given
        self._compared: list[Build] | None = None
        self._chosen = chosen(given.settings, list(MAIN_CLASSES), OURS, "the server's own configuration has them")
        self._local = proxies_inside(self._chosen[PROXY], given.kinds)
        """True if each broker's process has a proxy inside, and no other proxies are there."""
        self._checked = not given.settings
        self._mends: list[Share] | None = None
        self._nodes: list[Node] = []
        self._places: Layout = {}
        self._servers: dict[str, list[JavaServer]] = {}
        self._java_version = ""
        self._archives: Collection[str] = ()

    @classmethod
    def known_versions(cls) -> Mapping[str, str]:
        return artifacts.describe_versions()

    # Each topology defines these.

    @abstractmethod
    def _layout(self, nodes: Sequence[str]) -> Layout:
        """The servers of each node. Raises InfraError for too few nodes."""

    @abstractmethod
    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        """Settings of the mode and the profile that change the configuration of a kind of server at a place."""

    def _own(self, kind: str, node: Node) -> Mapping[str, str]:
        """Settings of a server that only the topology knows: addresses, names, paths."""
        namesrv = ";".join(f"{host}:{port}" for host, port in self.nameservers())
        place = self._places[node.name]
        home = f"{DATA}/{kind}"
        match kind:
            case "namesrv":
                return {"listenPort": str(NAMESRV_PORT)}
            case "broker":
                number = place.broker_id
                assert place.group is not None
                return ({"brokerRole": "SLAVE"} if number else {}) | {
                    "brokerClusterName": CLUSTER,
                    "brokerName": place.group,
                    "brokerId": str(-1 if number is None else number),
                    "namesrvAddr": namesrv,
                    "brokerIP1": node.address,
                    "brokerIP2": node.address,
                    "listenPort": str(BROKER_PORT),
                    "storePathRootDir": f"{home}/store",
                    "storePathCommitLog": f"{home}/store/commitlog",
                }
            case "proxy":
                return {
                    "rocketMQClusterName": CLUSTER,
                    "proxyClusterName": CLUSTER,
                    "namesrvAddr": namesrv,
                    "grpcServerPort": str(PROXY_GRPC_PORT),
                    "remotingListenPort": str(PROXY_REMOTING_PORT),
                }
        return {}

    def permits(self) -> Permissions:
        """The anomalies that the topology, with this profile and these settings, permits."""
        return dict.fromkeys(("locked-by-two", "minority-grant"), ALONE)

    def permits_after(self) -> Mapping[EffectKind, Permissions]:
        """Brokers that do not sync before they acknowledge lose with their power the messages of the last seconds; a
        Raft log promises that a majority has them. A member of a Raft group with an empty disk forgets.
        """
        broker = self._broker_settings()
        flush = broker.get("flushDiskType", "ASYNC_FLUSH") if broker is not None else None
        permitted: dict[EffectKind, Permissions] = {"data-damaged": DAMAGED}
        if self.traits.raft_log or self.controllers():
            permitted["data-lost"] = WIPED
        if broker is not None and not self.traits.raft_log and flush == "ASYNC_FLUSH":
            why = "flushDiskType=ASYNC_FLUSH: what was not on the disk yet goes with a broker's power"
            size, size_s = flushed_bytes(broker) or (None, None)
            permission = Permission(why, flushed_within_s(broker), size, size_s)
            permitted["unsynced-lost"] = dict.fromkeys(("lost", "dirty-read"), permission)
        return permitted

    def _broker_settings(self) -> Mapping[str, str] | None:
        """The settings of a broker with data, or None where the layout has no such broker."""
        place = next((place for place in self._places.values() if place.group is not None), None)
        return None if place is None else self.configured(BROKER, place)

    def _facts(self) -> Traits:
        """The topology's traits, with what follows from the settings."""
        broker = self._broker_settings()
        if broker is None:
            return self.traits
        return replace(
            self.traits, expires_after_s=expires_after_s(broker), offsets_written_s=offsets_written_s(broker)
        )

    def quorums(self) -> Mapping[str, Sequence[str]]:
        """See `results.deployment.DeploymentRecord`."""
        return {BROKER: [name for name, place in self._places.items() if place.group is not None]}

    # The contract.

    def shares(self) -> Sequence[Share]:
        """The jars, fetched when missing, and a user's own. Raises InfraError, also for settings the servers refuse."""
        versions = self._all_versions()
        shares = [Share(artifacts.fetch(version), artifacts.lib(version)) for version in versions]
        shares += user_shares(self.settings)
        if self._mends is None:
            require_unchanged(self.settings.launch.mends, self._builds())
            self._mends = mend_shares(self.settings, {version: artifacts.fetch(version) for version in versions})
        shares += self._mends
        if not self._checked:
            own = self.settings.launch.jars
            for version in versions:
                artifacts.check_settings(self._chosen, [*([own] if own else []), artifacts.fetch(version)])
            self._checked = True
        return shares

    def _builds(self) -> Sequence[Build]:
        """The users' own jars, compared with the published ones."""
        if self._compared is None:
            found = own_builds(self.settings, self.version, artifacts.fetch)
            asked = self._asked if self._asked not in (None, self.version) else ""
            self._compared = [replace(build, asked=asked or "") for build in found]
        return self._compared

    def rehearsals(self) -> Sequence[class_data.Rehearsal]:
        """See `infra.systems.class_data.Rehearsed`. One topology has all kinds of servers; others load little more."""
        if self.settings.launch.jars is not None:
            return []
        alone = ServerSettings(profile="default", kinds=[PROXY])
        return [
            class_data.Rehearsal("controller", version, replace(alone, launch=Launch(version)))
            for version in self._all_versions()
        ]

    def _all_versions(self) -> list[str]:
        """The main version first, then all others that a server may be started with."""
        others = [launch.version for launch in launches(self.settings) if launch.version is not None]
        return list(dict.fromkeys([self.version, *others, *self.settings.versions]))

    def fits(self, nodes: Sequence[str]) -> None:
        """See `infra.systems.api.Topology`."""
        self._layout(nodes)

    def attach(self, cluster: Cluster) -> None:
        """Writes every server's configuration; starts nothing. Raises InfraError for too few or too small nodes."""
        self._nodes = list(cluster.nodes)
        self._places = self._layout([node.name for node in self._nodes])
        self._servers = {node.name: [self._server(node, kind) for kind in self._kinds_at(node)] for node in self._nodes}
        logback = (artifacts.FOLDER / "logback.xml").read_bytes()

        def furnish(node: Node) -> None:
            homes = [f"{DATA}/{kind}" for kind in self._kinds_at(node)]
            # The proxy of 5.1.1 writes a file into `conf`, and ends if that folder does not exist.
            node.run(["mkdir", "-p", DATA, LOG, TMP, *homes, f"{DATA}/{BROKER if self._local else PROXY}/conf"])
            node.write(_LOGBACK, logback)
            self.readdress(node)

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(furnish, self._nodes))
        check_space(self._nodes, lambda node: self._configured_at(node.name))
        self._archives = class_data.archives_on(self._nodes[0])
        self._java_version = java_version(self._nodes[0])

    def forget(self, node: Node, timeout_s: float) -> str:
        raise InfraError(f"{node.name}: the configuration says who is a member of a group; nobody keeps a list")

    def keeps_address(self, node: str) -> str | None:
        """The reason why a node keeps its address. Brokers register theirs; the peers' configuration has all others."""
        if self.traits.raft_log:
            return "the members of the Raft log have one another's addresses in their configuration"
        fixed = [kind for kind in self._configured_at(node) if kind != BROKER]
        return (
            f"the configuration of other servers, or of clients, has the address of its {fixed[0]}" if fixed else None
        )

    def readdress(self, node: Node) -> None:
        for kind in self._configured_at(node.name):
            node.write(settings_file(kind), rendered(kind, self.settings_of(kind, node)))

    def servers(self, node: Node) -> Sequence[Server]:
        return self._servers[node.name]

    def further(self, node: Node, name: str, group: str, slot: int) -> Server:
        """A broker that is configured like the first one of the layout, except its names, paths and addresses."""
        first = next(node for node in self._nodes if BROKER in self._kinds_at(node))
        server = self._server(node, BROKER, label=name, group=group, ports=further_ports(slot))
        own = further_settings(server)
        node.run(["mkdir", "-p", LOG, TMP, *server.data_dirs])
        node.write(settings_file(name), rendered(BROKER, self.settings_of(BROKER, first) | dict(own)))
        return server

    def record(self) -> DeploymentRecord:
        return DeploymentRecord(
            topology=self.name,
            nodes={node.name: node.address for node in self._nodes},
            servers=[
                ServerRecord(
                    s.node.name, s.kind, s.node.address, dict(s.ports), s.group, s.launch.version, tuple(s.mends)
                )
                for s in self._all()
            ],
            groups=groups(self._places),
            quorums=self.quorums(),
            traits=self._facts(),
        )

    def _kinds_at(self, node: Node) -> Sequence[str]:
        return self._places[node.name].kinds

    def _configured_at(self, node: str) -> Sequence[str]:
        """The kinds of servers of a node, and `proxy` if its broker has one inside."""
        kinds = self._places[node].kinds
        return [*kinds, PROXY] if self._local and BROKER in kinds else kinds

    def _server(
        self,
        node: Node,
        kind: str,
        *,
        label: str | None = None,
        group: str | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> JavaServer:
        """The server of a kind that the layout has on a node; or one more, with its own label, group and ports."""
        launch = replace(launch_for(self.settings, node.name, kind))
        launch = replace(launch, version=launch.version or self.version)
        name = label or kind
        home, file = f"{DATA}/{name}", settings_file(name)
        local = self._local and kind == BROKER and label is None
        arguments = ["-pm", "cluster", "-pc", file] if kind == PROXY else ["-c", file]
        if local:
            arguments = ["-pm", "local", "-pc", settings_file(PROXY), "-bc", file]

        def program(launch: Launch) -> Program:
            version = launch.version or self.version
            archive = class_data.archive(version, kind)
            return Program(
                MAIN_CLASSES[PROXY if local else kind],
                arguments,
                class_path=artifacts.class_path(version),
                archive=archive if archive in self._archives else None,
                options=[
                    *(jvm.WITH_LOCAL_PROXY if local else self._heap(kind)),
                    *jvm.COMMON,
                    *options(f"gc-{name}.log"),
                    f"-Duser.home={home}",
                    f"-Drocketmq.home.dir={home}",
                    f"-Drmq.logback.configurationFile={_LOGBACK}",
                ],
            )

        if ports is None:
            group = self._places[node.name].group if kind == BROKER else None
            ports = self._ports(kind)
        # A controller inside a name server has its own folder.
        inside = [f"{DATA}/{each}" for each in ports if each in MAIN_CLASSES and not (local and each == PROXY)]
        return JavaServer(
            node,
            kind,
            program,
            ports=ports,
            data_dirs=inside if label is None else [home],
            files=self._files(kind),
            launch=launch,
            admin=RocketmqAdmin(node, kind, ports[kind], file),
            group=group,
            label=name,
        )

    def _files(self, kind: str) -> Mapping[str, FileKind]:
        """See `infra.systems.api.Server`."""
        if kind == BROKER:
            return RAFT_BROKER_FILES if self.traits.raft_log else BROKER_FILES
        return DLEDGER_FILES if CONTROLLER in self._ports(kind) else {}

    def _ports(self, kind: str) -> Mapping[str, int]:
        """See `infra.systems.api.Server`."""
        ports = {NAMESRV: NAMESRV_PORT, BROKER: BROKER_PORT, PROXY: PROXY_GRPC_PORT, CONTROLLER: self.controller_port}
        inside = {PROXY: PROXY_GRPC_PORT, PROXY_REMOTING: PROXY_REMOTING_PORT} if self._local else {}
        more = {PROXY: {PROXY_REMOTING: PROXY_REMOTING_PORT}, BROKER: {REPLICATION: HA_PORT, **inside}}
        return {kind: ports[kind], **more.get(kind, {})}

    def nameservers(self) -> Sequence[tuple[str, int]]:
        return [(node.address, NAMESRV_PORT) for node in self._nodes if NAMESRV in self._kinds_at(node)]

    def controllers(self) -> Sequence[tuple[str, int]]:
        return []

    def settings_of(self, kind: str, node: Node) -> dict[str, str]:
        """A server's configuration file: the configured settings, and those that the topology decides."""
        return self.configured(kind, self._places[node.name]) | dict(self._own(kind, node))

    def configured(self, kind: str, place: NodeRoles) -> dict[str, str]:
        """The settings of the harness, the mode, the profile, and the user; later ones override earlier ones."""
        base = {NAMESRV: settings.NAMESRV, BROKER: settings.BROKER, PROXY: settings.PROXY}.get(kind, {})
        ours = {**base, **self._mode(kind, place)}
        if self.profile == GIVEN:
            ours = {name: default for name, default in ours.items() if default.needed}
        return values(ours) | self._chosen[kind]

    def start_all(self, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        *before, proxies = stages_of(self._all())
        start_in_stages(before, deadline, timeout_s)
        started = [server for stage in before for server in stage.servers]
        self._await_serving(started, max(1.0, deadline - time.monotonic()))
        if proxies.servers:
            nodes = [node for node in self._nodes if BROKER in self._places[node.name].kinds]
            brokers = [(node.address, BROKER_PORT) for node in nodes]
            asyncio.run(make_group_of_proxies(brokers, max(1.0, deadline - time.monotonic())))
            start_in_stages([proxies], deadline, timeout_s)
        read_back(self._all(), self.settings_of, self._chosen, self.changing)

    def await_serving(self, timeout_s: float) -> None:
        """Waits until every replica has joined its group, name servers know them all, and every master has stored a
        message. Raises InfraError that names the missing part, and the end of the log of a server that has ended.
        """
        self._await_serving(self._all(), timeout_s)

    def _await_serving(self, started: Sequence[JavaServer], timeout_s: float) -> None:
        """As `await_serving`, while only some servers were started: the others do not run yet."""
        deadline = time.monotonic() + timeout_s
        looks = Looks(started, deadline)
        while (what := asyncio.run(missing(self._addresses(), _ASK_S))) is not None:
            looks.must_run()
            if time.monotonic() > deadline:
                raise InfraError(f"the cluster did not serve within {timeout_s:.0f} s: {what}")
            time.sleep(_POLL_S)

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """See `_state.look`."""
        return await look(self._addresses(), node.name, timeout_s, thorough=thorough)

    def collect(self, node: Node, into: Path) -> list[Path]:
        """Server logs, GC logs, crash reports, settings, given and effective; of each file at most 64 MiB."""
        return node.fetch(LOG, into, _LOG_LIMIT)

    def versions(self) -> Mapping[str, str]:
        versions, builds = self._all_versions(), self._builds()
        build = "; ".join(one.describe() for one in builds)
        out = {
            self.name: f"{self.profile}, RocketMQ {build or self.version}{describe_mends(self.settings)}",
            "rocketmq": build or ", ".join(versions),
            "rocketmq_jars": " ".join(artifacts.fetch(version).name for version in versions),
            "profile": self.profile,
            "java": self._java_version,
            "jvm_options": " ".join([*jvm.COMMON, *self.settings.launch.jvm_options]),
            "server_settings": " ".join(
                f"{kind}.{name}={value}"
                for kind, named in self._chosen.items()
                for name, value in sorted(named.items())
            ),
        }
        return out | describe_builds(self.settings, builds)

    # The rest is for the topologies.

    controller_port: int = 0

    def _all(self) -> list[JavaServer]:
        return [server for node in self._nodes for server in self._servers[node.name]]

    def _heap(self, kind: str) -> Sequence[str]:
        return list(jvm.HEAP[kind])

    def _kinds(
        self, nodes: Sequence[str], at: int, first_kinds: Sequence[str] = (NAMESRV,), broker: bool = True
    ) -> Sequence[str]:
        """The servers of `nodes[at]` in start order. `first_kinds`: the kinds that only the first nodes run."""
        return (
            *(first_kinds if at < QUORUM_SIZE else ()),
            *((BROKER,) if broker else ()),
            *((PROXY,) if nodes[at] in self._proxy_places(nodes) else ()),
        )

    def _proxy_places(self, nodes: Sequence[str]) -> Collection[str]:
        """The last two nodes, which have neither name servers nor controllers: a fault at those leaves the proxies'
        nodes alone, and a fault at one proxy leaves the other one. None if brokers have proxies inside.
        """
        return nodes[-2:] if PROXY in self.settings.kinds and not self._local else ()

    def _addresses(self) -> Addresses:
        return Addresses(
            raft_log=self.traits.raft_log,
            nodes={node.name: node.address for node in self._nodes},
            places=self._places,
            nameservers=self.nameservers(),
            controllers=self.controllers(),
        )
