# SPDX-License-Identifier: Apache-2.0
"""The brokers that the workload `broker-identity` adds, and the ops on them, which block and so run in threads.

A member is a further broker of a trial's group: on one node, at one address, with its own files. Each op on it is one
method here, which returns the JSON value of the op's completion, and raises InfraError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, Final

from infra.machines.api import InfraError, Lease
from infra.machines.primitives import frames
from infra.machines.primitives.frames import Link
from infra.machines.primitives.process import kill_noted_argv
from infra.systems import guests
from infra.systems.api import Deployment, Server
from infra.systems.rocketmq.registration import identity_file, log_size, look

CONTROLLER: Final = "controller"

HELD_S: Final = 600.0
"""The duration (s) of a member's lease: a trial ends long before that."""


@dataclass
class Member:
    """One member. log_from: the place in its log of its last start. rules: names of its armed frame rules."""

    server: Server
    lease: Lease
    log_from: int = 0
    rules: dict[str, Lease] = field(default_factory=dict)


class Members:
    """The members of all trials of a run. Thread-safe; ops on one member are executed one after the other."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._members: dict[tuple[str, int], Member] = {}
        self._slots, self._names = count(), count()
        self._locks: dict[tuple[str, int], Lock] = {}
        self._guard = Lock()
        record = deployment.record
        busy: Counter[str] = Counter()
        for server in record.servers:
            busy[server.node] += 1 if server.group is None else 10
        idle_first = sorted(deployment.nodes, key=lambda node: busy[node.name])
        self.places: Sequence[str] = [node.name for node in idle_first]
        """Nodes, those with the fewest other servers first."""

    @property
    def present(self) -> list[tuple[str, int]]:
        """Group and number of each member that has entered and not left."""
        return list(self._members)

    def prepare(self) -> None:
        """Starts a proxy for frames between brokers and controllers on every node. Raises InfraError."""
        nodes = self._deployment.nodes
        guests.forget(nodes)
        at = {(s.host, s.ports[CONTROLLER]) for s in self._deployment.record.having(CONTROLLER)}
        links = [Link(host, (port,), True) for host, port in sorted(at)]
        for node in nodes:
            if self._deployment.cluster.host(node.name).pid is None:
                raise InfraError(
                    f"{node.name}: the proxy for frames ends with its node, and this machine stays; "
                    "--cluster docker or local is right"
                )
            why = frames.unavailable(node)
            if why is not None:
                raise InfraError(why)
            frames.start(node, links)

    def do(self, f: str, group: str, member: int, value: Any) -> Any:
        """Executes one op on a member. Raises InfraError."""
        with self._guard:
            lock = self._locks.setdefault((group, member), Lock())
        with lock:
            if f == "enter":
                return self._enter(group, member, value)
            if (group, member) not in self._members:
                if f == "leave":
                    return None
                raise InfraError(f"{group} has no member {member}")
            does: Mapping[str, Callable[[Member, Any], Any]] = {
                "leave": lambda one, _: self._leave(group, member, one),
                "start": self._start,
                "kill": self._kill,
                "look": self._look,
                "arm": lambda one, rule: self._arm(one, rule, group),
                "fired": self._fired,
                "disarm": self._disarm,
                "rm-temp": lambda one, _: self._remove(one, f"{identity_file(one.server)}-temp"),
                "rm-identity": lambda one, _: self._remove(one, identity_file(one.server)),
                "wipe": self._wipe,
                "clone": lambda one, source: self._clone(one, self._members[group, source]),
                "readdress": lambda one, _: self._readdress(group, member, one),
            }
            return does[f](self._members[group, member], value)

    def _enter(self, group: str, member: int, where: str | int) -> Any:
        """Adds a member. where: a node, or the number of a place."""
        node = where if isinstance(where, str) else self.places[where % len(self.places)]
        server = self._further(group, member, node)
        self._members[group, member] = Member(server, guests.hold(server, HELD_S))
        return _whereabouts(server)

    def _further(self, group: str, member: int, node: str) -> Server:
        name = f"{guests.PREFIX}{group}-{member}"
        return self._deployment.topology.further(self._deployment.node(node), name, group, next(self._slots))

    def _leave(self, group: str, member: int, one: Member) -> Any:
        self._disarm(one, None)
        one.lease.heal()
        del self._members[group, member]

    def _start(self, one: Member, value: Any) -> Any:
        one.log_from = log_size(one.server)
        one.server.start()
        return _whereabouts(one.server)

    def _kill(self, one: Member, value: Any) -> Any:
        one.server.node.run(kill_noted_argv(one.server.pidfile))

    def _look(self, one: Member, value: Any) -> Any:
        """The fields up, temp and identity (an id, or None), torn, state."""
        found = look(one.server, one.log_from)
        return {
            "up": found.up,
            "temp": None if found.temp is None else found.temp.broker_id,
            "identity": None if found.identity is None else found.identity.broker_id,
            "state": found.state,
            **({"torn": True} if found.torn else {}),
        }

    def _arm(self, one: Member, value: Mapping[str, Any], group: str) -> Any:
        """Arms a rule. value: fields of `infra.machines.scripts.frames.Rule`, and `victim`: the kind of server that
        `kill` kills.
        """
        node, name = one.server.node, f"{group}-{next(self._names)}"
        rule: dict[str, object] = {"which": 1, **{k: v for k, v in value.items() if k not in ("victim", "passes")}}
        then: list[Sequence[str]] = []
        victim = one.server
        if value["act"] == "kill":
            if value["victim"] == CONTROLLER:
                victim = self._deployment.server(node.name, CONTROLLER)
            rule |= {"pidfile": victim.pidfile, "passes": str(value.get("passes", False)).lower()}
            if victim is not one.server:
                then.append(victim.start_command())
        one.rules[name] = frames.arm(node, name, rule, then, ttl_s=HELD_S)
        return {**value, "ends": [node.name, victim.kind]} if then else value

    def _fired(self, one: Member, value: Any) -> Any:
        """The number of times that its rules acted on a frame."""
        return sum(name in one.rules for name, _, _ in frames.report(one.server.node).fired)

    def _disarm(self, one: Member, value: Any) -> Any:
        """Removes its rules. A server that a rule killed, and that is no member, is started again."""
        for lease in one.rules.values():
            lease.heal()
        one.rules.clear()

    def _remove(self, one: Member, path: str) -> Any:
        one.server.node.run(["rm", "-f", "--", path])

    def _wipe(self, one: Member, value: Any) -> Any:
        (data,) = one.server.data_dirs
        one.server.node.run(["find", data, "-mindepth", "1", "-delete"])

    def _clone(self, one: Member, source: Member) -> Any:
        """Copies another member's identity file."""
        text = source.server.node.read(identity_file(source.server), 1000)
        one.server.node.write(identity_file(one.server), text)

    def _readdress(self, group: str, member: int, one: Member) -> Any:
        """Moves it to another port, with the same files: controllers compare an address (host and port) as a text."""
        one.server = self._further(group, member, one.server.node.name)
        return _whereabouts(one.server)


def _whereabouts(server: Server) -> dict[str, str]:
    host, port = server.endpoint
    return {"node": server.node.name, "address": f"{host}:{port}"}
