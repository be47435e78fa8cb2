# SPDX-License-Identifier: Apache-2.0
"""Faults at a step of a protocol: one frame between two servers is late, lost, repeated, or the last.

Every node has a proxy in the link (`infra.machines.primitives.frames`), from before the servers start.
It counts the frames by code, and a strike sets the action for some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, Literal

from harness.api import Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, Node, ProcessId
from infra.machines.primitives import frames
from infra.machines.primitives.frames import Link, Report
from infra.machines.primitives.network import control_address
from infra.options import Seconds, dump, option
from infra.systems.api import REPLICATION, Deployment, ServersRun
from nemesis.links import ports
from nemesis.patience import eventually
from results.strikes import CLIENTS, Effect

_RETURN_S: Final = 10.0
"""The time that the process of a killed server may take to appear again."""

Act = Literal["delay", "hold", "drop", "close", "repeat", "kill"]


_SECOND_PORT: Final = "proxy-remoting"
"""The port of a proxy for clients of the remoting protocol."""


@dataclass(frozen=True)
class FrameOptions:
    """The options of the fault."""

    link: str = option(
        "controller",
        "Connections that the target opens to servers of this kind, or clients: those that clients open to the target.",
    )
    port: int = option(0, "Only connections to this port; 0: the port of such servers.", low=0, high=65535)
    code: int = option(0, "Request code (`RequestCode`, or DLedger's).", low=0, high=1 << 20)
    frame: Literal["request", "response"] = option("request", "The request with this code, or the answer to it.")
    which: int = option(1, "The n-th such frame from the beginning of the strike; 0: every one.", low=0, high=1 << 20)
    act: Act = option(
        "drop",
        "delay; hold (to the end of the strike); drop; close (the connection); repeat (pass it on twice); or kill (a "
        "server of the target).",
    )
    by: Seconds = option(Seconds(1.0), "With delay: how long the frame is late.", low=0.001, high=300)
    kill: str = option("", "With kill: the kind of the server; none: the one that holds the node's data.")
    passes: bool = option(False, "With kill: whether the frame is passed on first.")
    wait: Seconds = option(Seconds(12.0), "How long the first such frame is waited for.", low=0.1, high=18)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.code == 0:
            raise ValueError("code is not given; the code of a request, such as 1013, is right")
        if not self.link.strip():
            raise ValueError("link is empty; a kind of server, such as controller, or clients is right")


class AtFrame(Injection):
    """The action of one node's proxy."""

    def __init__(self, node: str, kind: str, port: int, options: FrameOptions, name: str) -> None:
        self.node, self.kind, self.port, self.options, self.name = node, kind, port, options, name
        self.before: Report | None = None
        self.running: ProcessId | None = None

    @property
    def detail(self) -> Any:
        return {name: value for name, value in dump(self.options).items() if value not in ("", 0, False)}

    @property
    def effects(self) -> Sequence[Effect]:
        if self.options.act == "kill":
            return [Effect("down", self.node, (self.kind,))]
        return [Effect("slow", self.node)]

    def describe(self, labels: Mapping[str, str]) -> str:
        what = f"{self.options.act} {self.options.frame} {self.options.code}"
        return f"{super().describe(labels)}: {what}"

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        node, given = deployment.node(self.node), self.options
        self.before = frames.report(node)
        rule: dict[str, object] = {
            "port": self.port,
            "code": given.code,
            "frame": given.frame,
            "which": given.which,
            "act": given.act,
        }
        then: list[Sequence[str]] = []
        if given.act == "delay":
            rule["delay"] = given.by
        if given.act == "kill":
            server = deployment.server(self.node, self.kind)
            self.running = server.process()
            rule |= {"pidfile": server.pidfile, "passes": str(given.passes).lower()}
            then.append(server.start_command())
        return frames.arm(node, self.name, rule, then, ttl_s=ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the proxy has struck a frame."""
        node = deployment.node(self.node)
        hit = eventually(lambda: self._fired(frames.report(node)) > 0, self.options.wait)
        return Evidence(hit, self._describe(frames.report(node)))

    def healed(self, deployment: Deployment) -> Evidence:
        """Reports the number of frames at the end, and if a killed server has a new process."""
        node = deployment.node(self.node)
        now = frames.report(node)
        told = self._describe(now)
        if self.options.act != "kill" or not self._fired(now):
            return Evidence(True, told)
        server = deployment.server(self.node, self.kind)
        back = eventually(lambda: server.process() not in (None, self.running), _RETURN_S)
        return Evidence(back, f"{told}; the {self.kind} {'has a new process' if back else 'did not return'}")

    def _fired(self, now: Report) -> int:
        return sum(name == self.name for name, _, _ in now.fired)

    def _describe(self, now: Report) -> str:
        """Describes the number of frames that were struck, and all requests that passed meanwhile, by code."""
        given = self.options
        before = {(c.port, c.kind, c.code, c.towards): c.number for c in (self.before.counts if self.before else ())}
        passed: dict[str, int] = {}
        for count in now.counts:
            number = count.number - before.get((count.port, count.kind, count.code, count.towards), 0)
            if number and count.kind == "request":
                passed[str(count.code)] = passed.get(str(count.code), 0) + number
        every = ", ".join(f"{code} x {number}" for code, number in sorted(passed.items(), key=lambda p: -p[1]))
        return (
            f"{given.act} {given.frame} {given.code}: {self._fired(now)} times; requests meanwhile: {every or 'none'}"
        )


class FrameFault(Fault):
    """One frame of a protocol is late, lost, repeated, or the last that a server sends or gets."""

    name = "frame-fault"
    summary = "delays, drops or repeats a chosen frame of the protocol, or kills a server when it comes"
    Options: ClassVar[type] = FrameOptions
    default_target: ClassVar[str] = "leader"

    def kinds_needed(self) -> Sequence[str]:
        """The servers at the other end. Two links name a port of a server, not a kind."""
        given: FrameOptions = self.options
        named = [] if given.link in (CLIENTS, REPLICATION, _SECOND_PORT) else [given.link]
        return [*named, *([given.kill] if given.kill else [])]

    def available(self, deployment: Deployment) -> str | None:
        try:
            if any(deployment.cluster.host(node.name).pid is None for node in deployment.nodes):
                return "the proxy ends with its node, and these machines stay; docker and local are right"
            if not any(list(self._links(deployment, node)) for node in deployment.nodes):
                return f"no server here is a {self.options.link}"
        except InfraError as problem:
            return str(problem)
        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            return next(filter(None, pool.map(frames.unavailable, deployment.nodes)), None)

    def prepare(self, deployment: Deployment) -> None:
        """Starts a proxy on each node, with all connections of the link through it. Raises InfraError or ServersRun."""

        def one(node: Node) -> None:
            wanted = list(self._links(deployment, node))
            running = [server.kind for server in deployment.servers(node.name) if server.process() is not None]
            if running and not frames.redirects(node, wanted):
                raise ServersRun(f"{node.name}: its {running[0]} runs, and its connections do not pass the proxy")
            frames.start(node, wanted)

        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            list(pool.map(one, deployment.nodes))

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        found: dict[str, Injection] = {}
        for node in target.nodes:
            kind = self.options.kill or view.main.get(node) or next(iter(view.servers.get(node, ())), "")
            if kind and kind in view.servers.get(node, ()):
                found[node] = AtFrame(node, kind, self.options.port, self.options, f"f{rng.getrandbits(32):08x}")
        if not found:
            raise NoTarget(f"{', '.join(target.nodes)}: no {self.options.kill or 'server'} is there")
        return found

    def _links(self, deployment: Deployment, node: Node) -> Iterator[Link]:
        """The connections of a node that pass its proxy. Raises InfraError."""
        given: FrameOptions = self.options
        if given.link == CLIENTS:
            address = control_address(node)
            if not address:
                raise InfraError(f"{node.name}: the node does not report the address of the control program")
            yield Link(address, (given.port,) if given.port else ports(deployment, CLIENTS, [node.name]), False)
            return
        for other in deployment.nodes:
            numbers = {
                given.port or server.ports[given.link]
                for server in deployment.servers(other.name)
                if given.link in server.ports
            }
            if numbers:
                yield Link(other.address, tuple(sorted(numbers)), True)
