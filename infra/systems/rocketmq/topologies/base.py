"""What all topologies of RocketMQ have in common: several servers on a node, how they are configured, started, watched.

A topology of its own says what stands where (`_layout`), what its mode and profile add to the configuration (`_mode`),
and what only it can know about a server (`_own`).
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import ClassVar, Final

from infra.machines.api import Cluster, InfraError, Node, ProcessId, ServerSettings, SettingsError, Share, Status
from infra.machines.node import spawn_argv
from infra.systems.java import DATA, LIB, LOG, TMP, USER_LIB, Launch, end, java, java_version, last_lines, options
from infra.systems.maven import checksum_of
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, MAIN_CLASSES, NAMESRV, PROXY, artifacts, jvm, settings
from infra.systems.rocketmq.topologies.layout import (
    BROKER_PORT,
    CLUSTER,
    NAMESRV_PORT,
    PROXY_GRPC_PORT,
    PROXY_REMOTING_PORT,
    SEATS,
    Layout,
    Place,
    groups,
)
from infra.systems.rocketmq.topologies.space import check_space
from infra.systems.rocketmq.topologies.state import Addresses, answers, effective, look, missing
from infra.systems.settings import Default, chosen, jar_folder, properties, values

_RUN: Final = "/var/lib/harness"
_LOGBACK: Final = f"{LOG}/logback.xml"
_LOG_LIMIT: Final = 64 << 20
"""Bytes of each log that are collected."""

_AT_ONCE: Final = 4
"""Small servers that start at one time; the next one follows as soon as one of them answers."""

_POLL_S: Final = 0.25
_ASK_S: Final = 2.0

_STAGES: Final = ((NAMESRV, CONTROLLER), (BROKER,), (PROXY,))
"""Brokers ask name servers and controllers at their start, and again only seconds later."""

_OURS: Final[Mapping[str, Collection[str]]] = {
    NAMESRV: ("listenPort", "rocketmqHome", "kvConfigPath", "configStorePath", "enableControllerInNamesrv"),
    CONTROLLER: (
        *("controllerType", "controllerStorePath", "controllerDLegerGroup", "controllerDLegerPeers"),
        *("controllerDLegerSelfId", "jRaftGroupId", "jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr"),
        *("rocketmqHome", "configStorePath"),
    ),
    BROKER: (
        *("brokerClusterName", "brokerName", "brokerId", "namesrvAddr", "brokerIP1", "brokerIP2", "listenPort"),
        *("haListenPort", "storePathRootDir", "storePathCommitLog", "rocketmqHome", "controllerAddr"),
        *("enableControllerMode", "enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId"),
        "enableSlaveActingMaster",
    ),
    PROXY: ("rocketMQClusterName", "proxyClusterName", "namesrvAddr", "grpcServerPort", "remotingListenPort"),
}
"""What the topology itself decides, by kind of server."""


class RocketmqTopology(ABC):
    """See `infra.machines.api.Topology`. Settings: `KIND.NAME`, KIND being a kind of server, NAME any of its settings.

    Options: `proxy` (`true`): proxies for clients that speak gRPC.
    """

    name: str
    summary: ClassVar[str]
    profiles: ClassVar[Sequence[str]] = ("strict", "default")
    roles: Mapping[str, str] = MappingProxyType({"leader": "master", "follower": "slave"})
    known_options: ClassVar[Collection[str]] = ("proxy",)
    changing: ClassVar[Collection[str]] = ()
    """A broker's settings that the cluster changes by itself: not compared with what was asked for."""

    def __init__(self, server_settings: ServerSettings, launch: Launch | None = None) -> None:
        """Raises InfraError where the settings cannot be meant; whether the servers have them is asked in `shares`."""
        given = server_settings
        self.version = artifacts.known_version(given.version)
        self.profile = given.profile or self.profiles[0]
        if self.profile not in self.profiles:
            raise SettingsError(f"--profile {given.profile}: the topology {self.name} has {', '.join(self.profiles)}")
        if unknown := sorted(given.options.keys() - set(self.known_options)):
            raise SettingsError(f"{unknown[0]} is no option of the topology {self.name}")
        self._launch = launch or Launch()
        self._options = given.options
        self._jvm_options = list(given.jvm_options)
        self._user_jars = jar_folder(given.jars) if given.jars is not None else None
        self._chosen = chosen(given.settings, list(MAIN_CLASSES), _OURS, "the server's own configuration has them")
        self._checked = not given.settings
        self._nodes: list[Node] = []
        self._places: Layout = {}
        self._java_version = ""

    # What a topology of its own says.

    @abstractmethod
    def _layout(self, nodes: Sequence[str]) -> Layout:
        """What stands on which node. Raises InfraError where there are too few."""

    @abstractmethod
    def _mode(self, kind: str, place: Place) -> Mapping[str, Default]:
        """What the mode and the profile add to, or change in, the configuration of a kind of server at a place."""

    def _own(self, kind: str, node: Node) -> Mapping[str, str]:
        """What only the topology knows of a server: addresses, names, paths."""
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

    @abstractmethod
    def permits(self) -> Mapping[str, str]: ...

    # The contract.

    def shares(self) -> Sequence[Share]:
        """The jars, fetched when missing, and a user's own. Raises InfraError, also for settings the servers refuse."""
        jars = artifacts.fetch(self.version)
        shares = [Share(jars, LIB)]
        if self._user_jars is not None:
            shares.append(Share(self._user_jars, USER_LIB))
        if not self._checked:
            artifacts.check_settings(self._chosen, [share.source for share in reversed(shares)])
            self._checked = True
        return shares

    def fits(self, nodes: Sequence[str]) -> None:
        """See `infra.machines.api.Topology`."""
        self._layout(nodes)

    def attach(self, cluster: Cluster) -> None:
        """Write every server's configuration; nothing is started. Raises InfraError for too few nodes, or too small."""
        self._nodes = list(cluster.nodes)
        self._places = self._layout([node.name for node in self._nodes])
        logback = (artifacts.FOLDER / "logback.xml").read_bytes()

        def furnish(node: Node) -> None:
            kinds = self.servers(node)
            node.run(["mkdir", "-p", LOG, TMP, *(f"{DATA}/{kind}" for kind in kinds)])
            node.write(_LOGBACK, logback)
            for kind in kinds:
                node.write(_settings_file(kind), _rendered(kind, self.settings_of(kind, node)))

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(furnish, self._nodes))
        check_space(self._nodes, self.servers)
        self._java_version = java_version(self._nodes[0])

    def servers(self, node: Node) -> Sequence[str]:
        return self._places[node.name].kinds

    def main(self, node: Node) -> str | None:
        return BROKER if BROKER in self.servers(node) else None

    def groups(self) -> Mapping[str, Sequence[str]]:
        return groups(self._places)

    def nameservers(self) -> Sequence[tuple[str, int]]:
        return [(node.address, NAMESRV_PORT) for node in self._nodes if NAMESRV in self.servers(node)]

    def controllers(self) -> Sequence[tuple[str, int]]:
        return []

    def proxies(self) -> Sequence[tuple[str, int]]:
        """Where clients that speak gRPC go; empty without the option `proxy`."""
        return [(node.address, PROXY_GRPC_PORT) for node in self._nodes if PROXY in self.servers(node)]

    def settings_of(self, kind: str, node: Node) -> dict[str, str]:
        """A server's configuration file: what is configured, and what is not to be chosen."""
        return self.configured(kind, self._places[node.name]) | dict(self._own(kind, node))

    def configured(self, kind: str, place: Place) -> dict[str, str]:
        """Our settings, the mode's, the profile's, and the user's, the later ones over the earlier."""
        base = {NAMESRV: settings.NAMESRV, BROKER: settings.BROKER, PROXY: settings.PROXY}.get(kind, {})
        return values({**base, **self._mode(kind, place)}) | self._chosen[kind]

    def start(self, node: Node, server: str | None = None) -> None:
        for kind in self.servers(node) if server is None else [self.carrier(server)]:
            node.run(self.start_command(node, kind))

    def start_command(self, node: Node, server: str | None = None) -> Sequence[str]:
        """Whoever runs it twice at once gets one server all the same: `flock -o` keeps the lock from the server."""
        kind = self._kind(node, server)
        home = f"{DATA}/{kind}"
        argv = java(
            MAIN_CLASSES[kind],
            ["-pm", "cluster", "-pc", _settings_file(kind)] if kind == PROXY else ["-c", _settings_file(kind)],
            class_path=[*([USER_LIB] if self._user_jars is not None else []), LIB],
            options=[
                *self._heap(kind),
                *jvm.COMMON,
                *options(f"gc-{kind}.log"),
                f"-Duser.home={home}",
                f"-Drocketmq.home.dir={home}",
                f"-Drmq.logback.configurationFile={_LOGBACK}",
                *self._jvm_options,
            ],
            launch=self._launch,
        )
        spawn = spawn_argv(argv, env=self._launch.env, log=log_file(kind), pidfile=_pidfile(kind))
        return ["flock", "-o", f"{_RUN}/{kind}.lock", *spawn]

    def start_all(self, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        for stage in _STAGES:
            servers = [(node, kind) for kind in stage for node in self._nodes if kind in self.servers(node)]
            given_up = Event()

            def bring_up(server: tuple[Node, str], given_up: Event = given_up) -> None:
                if given_up.is_set():
                    return
                try:
                    self.start(*server)
                    self._await_answer(*server, deadline, timeout_s, given_up)
                except BaseException:
                    given_up.set()
                    raise

            # All brokers at once: after a restart one may wait for another, the only one that may become master.
            with ThreadPoolExecutor(len(self._nodes) if BROKER in stage else _AT_ONCE) as pool:
                try:
                    list(pool.map(bring_up, servers))
                except BaseException:  # a Ctrl-C here must not wait until every server has answered
                    given_up.set()
                    raise
        self.await_serving(max(1.0, deadline - time.monotonic()))
        self._read_back()

    def await_serving(self, timeout_s: float) -> None:
        """Until every replica has joined its group, name servers know them all, and every master has stored a message.
        Raises InfraError that says what is missing, and with the end of the log of a server that has ended.
        """
        deadline = time.monotonic() + timeout_s
        while (what := asyncio.run(missing(self._addresses(), _ASK_S))) is not None:
            for node in self._nodes:
                for kind in self.servers(node):
                    self._refuse_dead(node, kind)
            if time.monotonic() > deadline:
                raise InfraError(f"the cluster did not serve within {timeout_s:.0f} s: {what}")
            time.sleep(_POLL_S)

    def stop(self, node: Node, timeout_s: float = 20, server: str | None = None) -> None:
        """In the reverse order of their start; the time is each server's."""
        for kind in reversed(self.servers(node)) if server is None else [self.carrier(server)]:
            end(node, _pidfile(kind), timeout_s, f"its {kind}")

    def process(self, node: Node, server: str | None = None) -> ProcessId | None:
        kind = self.main(node) if server is None else self.carrier(server)
        return None if kind is None else node.process(_pidfile(kind))

    def data_dirs(self, node: Node, server: str | None = None) -> Sequence[str]:
        return [DATA] if server is None else [f"{DATA}/{self.carrier(server)}"]

    def last_words(self, node: Node, server: str) -> str:
        return last_lines(node, log_file(self.carrier(server)))

    def endpoint(self, node: Node, server: str | None = None) -> tuple[str, int]:
        """A name server's, broker's, controller's or proxy's (gRPC) own port."""
        ports = {NAMESRV: NAMESRV_PORT, BROKER: BROKER_PORT, PROXY: PROXY_GRPC_PORT, CONTROLLER: self.controller_port}
        return node.address, ports[server or BROKER]

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """See `_state.look`."""
        return await look(self._addresses(), node.name, timeout_s, thorough=thorough)

    def collect(self, node: Node, into: Path) -> list[Path]:
        """Server logs, GC logs, crash reports, settings as given and in force; of each file at most its last 64 MiB."""
        return node.fetch(LOG, into, _LOG_LIMIT)

    def versions(self) -> Mapping[str, str]:
        out = {
            self.name: f"{self.profile}, RocketMQ {self.version}",
            "rocketmq": self.version,
            "rocketmq_jars": artifacts.fetch(self.version).name,
            "profile": self.profile,
            "java": self._java_version,
            "jvm_options": " ".join([*jvm.COMMON, *self._jvm_options]),
            "server_settings": " ".join(
                f"{kind}.{name}={value}"
                for kind, named in self._chosen.items()
                for name, value in sorted(named.items())
            ),
        }
        if self._user_jars is not None:
            jars = sorted(self._user_jars.glob("*.jar"))
            out["rocketmq"] += f" behind {len(jars)} jars of {self._user_jars}"
            out["user_jars"] = " ".join(f"{jar.name}:{checksum_of(jar)}" for jar in jars)
        return out

    # The rest is for the topologies.

    controller_port: int = 0

    def carrier(self, server: str) -> str:
        """The kind of process that a server runs in: its own."""
        return server

    def _kind(self, node: Node, server: str | None) -> str:
        kind = self.main(node) if server is None else self.carrier(server)
        if kind is None or kind not in self.servers(node):
            raise InfraError(f"{node.name}: the topology {self.name} has no {server or BROKER} there")
        return kind

    def _heap(self, kind: str) -> Sequence[str]:
        return list(jvm.HEAP[kind])

    def _kinds(
        self, nodes: Sequence[str], at: int, seats: Sequence[str] = (NAMESRV,), broker: bool = True
    ) -> Sequence[str]:
        """The servers of `nodes[at]`, in the order of their start. `seats`: those that only the first nodes have."""
        return (
            *(seats if at < SEATS else ()),
            *((BROKER,) if broker else ()),
            *((PROXY,) if nodes[at] in self._proxy_places(nodes) else ()),
        )

    def _proxy_places(self, nodes: Sequence[str]) -> Collection[str]:
        """The last two nodes, where neither name servers nor controllers stand: what strikes those leaves a proxy its
        node, and what strikes one proxy leaves the other.
        """
        return nodes[-2:] if self._options.get("proxy") == "true" else ()

    def _addresses(self) -> Addresses:
        return Addresses(
            mode=self.name,
            nodes={node.name: node.address for node in self._nodes},
            places=self._places,
            nameservers=self.nameservers(),
            controllers=self.controllers(),
        )

    def _await_answer(self, node: Node, kind: str, deadline: float, timeout_s: float, given_up: Event) -> None:
        """Until the server answers at all, or another was given up. Raises InfraError with the end of its log."""
        host, port = self.endpoint(node, kind)
        while not asyncio.run(answers(kind, host, port, _ASK_S)) and not given_up.is_set():
            self._refuse_dead(node, kind)
            if time.monotonic() > deadline:
                log = last_lines(node, log_file(kind))
                raise InfraError(f"{node.name}: the {kind} did not answer within {timeout_s:.0f} s; its log: {log}")
            time.sleep(_POLL_S)

    def _refuse_dead(self, node: Node, kind: str) -> None:
        if node.process(_pidfile(kind)) is None:
            raise InfraError(f"{node.name}: the {kind} has ended; its log: {last_lines(node, log_file(kind))}")

    def _read_back(self) -> None:
        """Ask every server for its effective configuration, keep it on the node for `collect`, and compare it with what
        was asked for. Raises InfraError for the first setting that did not take.
        """

        def one(node: Node) -> None:
            for kind in self.servers(node):
                if kind == PROXY:
                    continue  # tells nobody
                host, port = self.endpoint(node, kind)
                said = asyncio.run(effective(kind, host, port, 5 * _ASK_S))
                node.write(f"{LOG}/effective-{kind}.properties", properties(said))
                if told := not_taken(self.settings_of(kind, node), said, self._chosen[kind], self.changing):
                    raise InfraError(f"{node.name}: {kind}.{told}")

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(one, self._nodes))


def log_file(kind: str) -> str:
    """Where a server's log lies on its node."""
    return f"{LOG}/{kind}.log"


def _pidfile(kind: str) -> str:
    return f"{_RUN}/{kind}.pid"


def _settings_file(kind: str) -> str:
    return f"{LOG}/{kind}.{'json' if kind == PROXY else 'properties'}"


def _rendered(kind: str, named: Mapping[str, str]) -> bytes:
    """A configuration file: JSON for the proxy, properties for the others."""
    if kind != PROXY:
        return properties(named)
    return json.dumps({name: _typed(value) for name, value in sorted(named.items())}, indent=1).encode()


def _typed(value: str) -> bool | int | str:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isascii() and value.isdigit() else value


def not_taken(
    asked: Mapping[str, str], said: Mapping[str, str], wanted: Collection[str], changing: Collection[str]
) -> str | None:
    """The first setting that a server has otherwise than asked for, in words; None when all are as they should be.

    A setting of ours that the server does not have is one of later versions; the user's own (`wanted`) must be there.
    """
    for name, value in asked.items():
        got = said.get(name)
        if name in changing or (got is None and name not in wanted):
            continue
        if not _same(value, got):
            return f"{name}={value} did not take: in force is {got}"
    return None


def _same(asked: str, got: str | None) -> bool:
    if got is None:
        return False
    if asked.strip().lower() == got.strip().lower():
        return True
    try:
        return float(asked) == float(got)
    except ValueError:
        return False
