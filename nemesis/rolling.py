# SPDX-License-Identifier: Apache-2.0
"""Rolling restarts and upgrades: one server after another is stopped in an orderly way and started again.

This takes longer than an injection may. So the injection starts a thread that goes from server to server until all had
their turn, or the heal stops it between two of them. A server that is down is held by a lease of its own on its node:
if the control program ends, the node starts it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from threading import Event, Thread
from typing import Any, ClassVar, Final, Literal

from harness.api import Evidence, Fault, Injection, Spell, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import process
from infra.options import Seconds, option
from infra.systems.api import Deployment, Launch, Server
from nemesis.meant import Claims, kinds_meant, missing_kind, servers_of
from nemesis.patience import eventually
from nemesis.process import GONE
from results.strikes import Effect

_GRACE_S: Final = 20
"""The time that a server gets between SIGTERM and SIGKILL."""
_SLACK_S: Final = 60.0
"""The time that the lease of one server lasts longer than the server is meant to be down."""
_ASK_S: Final = 2.0
_POLL_S: Final = 0.2

Order = Literal["nodes", "reverse", "random", "leaders-last"]


@dataclass(frozen=True, kw_only=True)
class RollOptions:
    """The options of a rolling restart."""

    kind: tuple[str, ...] = option((), "Kinds of servers, such as broker or namesrv; none named: all of the nodes.")
    order: Order = option("nodes", "Order of the nodes. leaders-last: those that follow come before those that lead.")
    pause: Seconds = option(Seconds(1.0), "Between the return of a server and the stop of the next.", high=600)
    down: Seconds = option(Seconds(0.0), "How long each server stays down.", high=600)
    limit: Seconds = option(
        Seconds(30.0), "How long a server may take to answer again; then it is the next one's turn.", low=1, high=600
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions(RollOptions):
    """The options of a rolling upgrade."""

    to: tuple[str, ...] = option(help="The version; of several all servers take the first, then all the second.")
    back: bool = option(True, "Whether the heal starts the servers with the version from before, all at once.")

    def __post_init__(self) -> None:
        if not self.to:
            raise ValueError("to is empty; a version is right, such as 5.1.1")


@dataclass
class Turn:
    """The restart of one server. before: its process; ended_s: how long that took to end. began: on `time.monotonic()`.

    after    the process that was seen afterwards. answered_s: time from the end to its answer. version: as it reports.
    problem  the failure; empty: none.
    """

    server: Server
    before: ProcessId
    ended_s: float
    after: ProcessId | None = None
    answered_s: float | None = None
    version: str = ""
    problem: str = ""
    began: float = 0.0
    up: float | None = None
    """The time of its answer, on `time.monotonic()`; None: none was seen."""

    @property
    def spell(self) -> Spell:
        """The time in which the server was down."""
        return Spell(Effect("down", self.server.node.name, (self.server.kind,)), self.began, self.up)

    def __str__(self) -> str:
        came = f", {self.after.pid} runs" if self.after is not None else ""
        answered = f" and answered after {self.answered_s:.1f} s" if self.answered_s is not None else ""
        version = f" as {self.version}" if self.version else ""
        problem = f" ({self.problem})" if self.problem else ""
        name = f"{self.server.node.name} {self.server.kind}"
        return f"{name} {self.before.pid} ended in {self.ended_s:.1f} s{came}{answered}{version}{problem}"


class Roll(Lease):
    """The thread that goes from server to server; its heal ends it. `first`: the first server is down."""

    def __init__(self, steps: Sequence[tuple[Server, str | None]], options: RollOptions, ttl_s: float) -> None:
        """`steps`: the servers in order, each with the version it is to have, if that changes."""
        self.steps, self._options = steps, options
        self.turns: list[Turn] = []
        self.back: list[Turn] = []
        """The restarts on the way back, after the heal."""
        self.skipped: list[str] = []
        """Servers that had no turn, and the reason."""
        self.first = Event()
        self._ended = Event()
        self._halt = Event()
        self._held: list[Lease] = []
        """The leases of servers that are down."""
        self._deadline = time.monotonic() + ttl_s
        # As a daemon, it keeps no program alive that has ended in another way than by a heal.
        self._thread = Thread(target=self._roll, name="roll", daemon=True)

    def start(self, within_s: float) -> bool:
        """Begins, and waits until the first server is down. Returns whether any server was there to stop."""
        self._thread.start()
        deadline = time.monotonic() + within_s
        while not self.first.wait(_POLL_S) and not self._ended.is_set() and time.monotonic() < deadline:
            pass
        return self.first.is_set() or not self._ended.is_set()

    def heal(self, timeout_s: float = 30) -> None:
        """Stops no further server, and starts the one that is down. Raises InfraError while that goes on."""
        deadline = time.monotonic() + timeout_s
        self._halt.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise InfraError(f"the roll is still busy with server {len(self.turns)} of {len(self.steps)}")
        while self._held:  # what could not be started before
            self._held[0].heal(max(1.0, deadline - time.monotonic()))
            del self._held[0]

    def _roll(self) -> None:
        for server, version in self.steps:
            if self._halt.is_set() or time.monotonic() > self._deadline:
                break
            try:
                self._turn(server, version)
            except Exception as problem:
                # One server that cannot be stopped, or a node that does not answer, keeps the others from nothing.
                self.skipped.append(f"{server.node.name} {server.kind}: {problem}")
            self._halt.wait(self._options.pause)
        self._ended.set()

    def _turn(self, server: Server, version: str | None) -> None:
        running = server.process()
        if running is None:
            self.skipped.append(f"{server.node.name} {server.kind} was not running")
            return
        if version is not None:
            server.launch = replace(server.launch, version=version)
        turn = self.restart(server, running, self.turns, self._options.down)
        self._await_answer(turn, version, self._options.limit)

    def restart(self, server: Server, running: ProcessId, noted: list[Turn], down_s: float) -> Turn:
        """Stops a server, and starts it after a while, or at the heal; calls `noted` once it is down."""
        began = time.monotonic()
        lease = process.end_and_restart(server.node, running, _GRACE_S, server.start_command(), ttl_s=down_s + _SLACK_S)
        turn = Turn(server, running, time.monotonic() - began, began=began)
        self._held.append(lease)
        noted.append(turn)
        self.first.set()
        self._halt.wait(down_s)
        lease.heal()
        self._held.remove(lease)
        return turn

    def _await_answer(self, turn: Turn, version: str | None, limit_s: float) -> None:
        """Waits until the server answers (with the expected version), the limit has passed, or the heal has come."""
        began = time.monotonic()
        while True:
            turn.after = turn.server.process() or turn.after
            if turn.after is not None and turn.server.admin.answers(_ASK_S):
                turn.up = time.monotonic()
                turn.answered_s = turn.up - began
                break
            if self._halt.is_set():
                return
            if time.monotonic() - began > limit_s:
                turn.problem = f"no answer within {limit_s:g} s"
                return
            time.sleep(_POLL_S)
        if version is not None:
            turn.version = turn.server.admin.version(_ASK_S)
            turn.problem = "" if turn.version == version else f"it was started as {version}"


class Rolling(Injection):
    """Servers of several nodes, one after another. Its place is the first node; it names all."""

    first_s: float = 15.0
    """The time that the injection waits until the first server is down."""
    return_s: float = 10.0
    """The time that a restarted server's process may take to appear."""

    def __init__(self, servers: Sequence[tuple[str, str]], options: RollOptions) -> None:
        """`servers`: (node, kind), in order."""
        self.node, self.servers, self.options = servers[0][0], servers, options
        self.roll: Roll | None = None

    @property
    def detail(self) -> Any:
        kinds = dict.fromkeys(kind for _, kind in self.servers)
        return {kind: [node for node, of in self.servers if of == kind] for kind in kinds}

    @property
    def effects(self) -> Sequence[Effect]:
        """The effects: each server is down for a while, at a time that is not known before."""
        met = self.servers if self.roll is None else [(s.node.name, s.kind) for s, _ in self.roll.steps]
        kinds = {node: tuple(dict.fromkeys(kind for at, kind in met if at == node)) for node, _ in met}
        return [Effect("down", node, of) for node, of in kinds.items()]

    @property
    def spells(self) -> Sequence[Spell]:
        """One for each restart."""
        return [] if self.roll is None else [turn.spell for turn in (*self.roll.turns, *self.roll.back)]

    def describe(self, labels: Mapping[str, str]) -> str:
        nodes = dict.fromkeys(node for node, _ in self.servers)
        return f"{' '.join(labelled(node, labels) for node in nodes)} [{' '.join(self.detail)}]"

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        self.roll = self.make_roll(self._servers(deployment), ttl_s)
        if self.roll.start(self.first_s):
            return self.roll
        self.roll.heal()
        return None

    def make_roll(self, servers: Sequence[Server], ttl_s: float) -> Roll:
        """Returns the thread that goes from server to server; not started yet."""
        return Roll([(server, None) for server in servers], self.options, ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the first server's process is gone. (The others follow; the heal reports them.)"""
        assert self.roll is not None
        self.roll.first.wait(self.first_s)
        if not self.roll.turns:
            return Evidence(False, "; ".join(self.roll.skipped) or "no server was stopped yet")
        first = self.roll.turns[0]
        gone = process.process_state(first.server.node, first.before) in GONE
        return Evidence(gone, f"1 of {len(self.roll.steps)}: {first}")

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if each stopped server has another process, or had one since."""
        assert self.roll is not None
        turns, down = self.roll.turns, [*self.roll.turns, *self.roll.back]

        def returned() -> bool:
            for turn in down:
                turn.after = turn.after or turn.server.process()
            return all(turn.after is not None for turn in down)

        back = eventually(returned, self.return_s)
        lines = [f"{len(turns)} of {len(self.roll.steps)} restarted", *map(str, turns), *self.roll.skipped]
        return Evidence(back, "; ".join(lines))

    def _servers(self, deployment: Deployment) -> list[Server]:
        """Each server once: a controller may be inside a name server."""
        found = (server for node, kind in self.servers for server in servers_of(deployment, node, [kind]))
        return list(dict.fromkeys(found))


_UPGRADED = Claims()
"""Servers whose version a strike has changed."""


class UpgradeRoll(Roll):
    """The roll of an upgrade. With `back` its heal starts the servers with the versions from before."""

    def __init__(self, servers: Sequence[Server], options: UpgradeOptions, ttl_s: float) -> None:
        taken = _UPGRADED.take(servers)
        mine = [server for server in servers if server in taken]
        super().__init__([(server, version) for version in options.to for server in mine], options, ttl_s)
        self.skipped += [f"{s.node.name} {s.kind} belongs to another upgrade" for s in servers if s not in taken]
        self.before: dict[Server, Launch] = {server: server.launch for server in mine}
        self._back = options.back

    def heal(self, timeout_s: float = 30) -> None:
        """As `Roll.heal`. On the way back, kinds of servers follow one another; those of one kind restart together."""
        super().heal(timeout_s)
        if self._back:
            changed = [server for server, launch in self.before.items() if server.launch != launch]
            for kind in dict.fromkeys(server.kind for server in changed):
                some = [server for server in changed if server.kind == kind]
                with ThreadPoolExecutor(len(some)) as pool:
                    list(pool.map(self._return, some))
        _UPGRADED.release(self.before)

    def _return(self, server: Server) -> None:
        upgraded, server.launch = server.launch, self.before[server]
        try:
            running = server.process()
            if running is not None:
                self.restart(server, running, self.back, down_s=0.0)
        except BaseException:
            server.launch = upgraded  # the next attempt at the heal finds it
            raise


class Upgrading(Rolling):
    """Servers of several nodes, one after another, with another version."""

    options: UpgradeOptions
    version_s: float = 8.0
    """The time that the heal's probe waits for all servers to report their version. (A judge checks if they serve.)"""

    @property
    def detail(self) -> Any:
        return {**super().detail, "to": list(self.options.to)}

    def make_roll(self, servers: Sequence[Server], ttl_s: float) -> Roll:
        return UpgradeRoll(servers, self.options, ttl_s)

    def healed(self, deployment: Deployment) -> Evidence:
        """As for a restart; also probes that each server that was started with its former version reports that one."""
        restarted = super().healed(deployment)
        assert isinstance(self.roll, UpgradeRoll)
        restarted_back = {turn.server for turn in self.roll.back}
        returning = [server for server in self.roll.before if server in restarted_back]
        told: dict[Server, str] = {}

        def all_tell() -> bool:
            for server in returning:
                if server not in told and server.process() is not None and server.admin.answers(_ASK_S):
                    told[server] = server.admin.version(_ASK_S)
            return len(told) == len(returning)

        eventually(all_tell, self.version_s)
        wrong = [server for server, version in told.items() if version != server.launch.version]
        back = [f"{s.node.name} {s.kind} is back at {told.get(s, '?, as it does not answer yet')}" for s in returning]
        return Evidence(restarted.seen and not wrong, "; ".join([restarted.what, *back]))


class RollingRestart(Fault):
    """Servers are stopped and started again, one after another."""

    name = "rolling-restart"
    summary = "stops servers in an orderly way and starts them again, one after another"
    Options: ClassVar[type] = RollOptions
    default_target: ClassVar[str] = "all"
    injection: ClassVar[type[Rolling]] = Rolling

    def kinds_needed(self) -> Sequence[str]:
        kinds: Sequence[str] = self.options.kind
        return kinds

    def available(self, deployment: Deployment) -> str | None:
        return missing_kind(deployment, self.options.kind)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Returns the servers kind by kind in the order of their start, as in upgrades; of each kind node by node."""
        meant = kinds_meant(view, target, self.options.kind)
        nodes = self._ordered(view, list(meant), rng)
        kinds = self.options.kind or view.kinds()
        servers = [(node, kind) for kind in kinds for node in nodes if kind in meant[node]]
        return {servers[0][0]: type(self).injection(servers, self.options)}

    def _ordered(self, view: ClusterView, nodes: list[str], rng: Random) -> list[str]:
        match self.options.order:
            case "reverse":
                return nodes[::-1]
            case "random":
                rng.shuffle(nodes)
            case "leaders-last":
                leading = {*view.leaders.values(), *view.leading.values()}
                nodes.sort(key=lambda node: node in leading)
        return nodes


class RollingUpgrade(RollingRestart):
    """Servers are stopped and started with another version, up or down, one after another."""

    name = "rolling-upgrade"
    summary = "stops servers and starts them with another version, one after another"
    Options: ClassVar[type] = UpgradeOptions
    injection: ClassVar[type[Rolling]] = Upgrading

    def versions(self) -> Sequence[str]:
        versions: Sequence[str] = self.options.to
        return versions
