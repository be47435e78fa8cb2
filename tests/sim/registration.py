# SPDX-License-Identifier: Apache-2.0
"""Controllers and brokers that register, in memory and in virtual time: right ones, or ones with a `bug`.

It takes the ops of the workload `broker-identity`. A right broker does what the document *Persistent unique BrokerId*
promises: what it has not heard an answer to, it asks again with the same register code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.api import Completion
from results.op import Op

CONTROLLERS = {f"n{n}": (f"198.18.0.{n}", 9878) for n in (1, 2, 3)}
BUGS = {
    "rereads": "identity-changed",
    "gives-twice": "identity-shared",
    "gives-up": "never-registered",
    "no-master": "never-running",
    "burns": "burnt-id",
    "lists-ghosts": "ghost-replica",
    "keeps-address": "stale-address",
    "set-of-strangers": "stranger-in-sync",
    "forgets": "forgotten-registration",
    "goes-back": "controllers-disagree",
    "starts-over": "reused-id",
}
"""Bug -> the anomaly that it causes."""


class Lost(Exception):
    """No answer came."""


@dataclass
class Group:
    """The controllers' data about a name. replicas: id -> [address, register code]."""

    next: int = 1
    replicas: dict[int, list[str]] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)
    master: int | None = None


@dataclass
class Broker:
    """A member: its files, and its process (`task`)."""

    node: str
    port: int
    temp: tuple[int, str] | None = None
    identity: int | None = None
    state: str = "INITIAL"
    task: asyncio.Task[None] | None = None
    rule: Mapping[str, Any] | None = None
    fired: int = 0
    starts: int = 0

    @property
    def up(self) -> bool:
        return self.task is not None

    @property
    def address(self) -> str:
        return f"{self.node}:{self.port}"


class Registration:
    """One cluster; implements `harness.api.Client` for all processes."""

    def __init__(self, rng: Random, bug: str | None = None, trouble: float = 0.0) -> None:
        self.rng, self.bug, self.trouble = rng, bug, trouble
        self.groups: dict[str, Group] = {}
        self.brokers: dict[tuple[str, int], Broker] = {}
        self.leader, self.ports, self.sent = "n1", 12911, 0

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.002, 0.05))
        extra = {name: op.extra[name] for name in ("row", "member", "controller") if name in op.extra}
        if op.f == "send":
            self.sent += 1
            return Completion("ok", [self.sent, op.value])
        if self.rng.random() < self.trouble and op.f not in ("leave", "fired"):
            return Completion("info", op.value, "no answer", extra)
        if op.f in ("next", "view"):
            if op.extra["controller"] != self.leader:
                return Completion("fail", None, "2007 CONTROLLER_NOT_LEADER", extra)
            return Completion("ok", self._told(op.f, str(op.key)), extra=extra)
        found = getattr(self, op.f.replace("-", "_"))(str(op.key), op.extra.get("member", 0), op.value)
        await asyncio.sleep(self.rng.uniform(0.002, 0.05))
        return Completion("ok", op.value if found is None else found, extra=extra)

    def _told(self, f: str, name: str) -> Any:
        group = self.groups.get(name)
        if f == "next":
            return 1 if group is None or self.bug == "gives-twice" else group.next
        if group is None:
            return None
        in_sync = sorted(group.in_sync | ({99} if self.bug == "set-of-strangers" and group.in_sync else set()))
        return {
            "replicas": {str(number): about[0] for number, about in group.replicas.items()},
            "in_sync": in_sync,
            "alive": [],
            "master": group.master,
        }

    # Ops on members.

    def enter(self, group: str, member: int, value: Any) -> Any:
        self.ports += 10
        one = self.brokers[group, member] = Broker(f"198.18.0.{5 - member}", self.ports)
        return {"node": one.node, "address": one.address}

    def leave(self, group: str, member: int, value: Any) -> Any:
        if (group, member) in self.brokers:
            self.kill(group, member, None)
            del self.brokers[group, member]

    def start(self, group: str, member: int, value: Any) -> Any:
        one = self.brokers[group, member]
        if one.task is None:
            one.state = "INITIAL"
            one.starts += 1
            one.task = asyncio.create_task(self._boot(group, one))
        return {"node": one.node, "address": one.address}

    def kill(self, group: str, member: int, value: Any) -> Any:
        self._end(self.brokers[group, member])

    def _end(self, one: Broker) -> None:
        task, one.task = one.task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def look(self, group: str, member: int, value: Any) -> Any:
        one = self.brokers[group, member]
        temp = None if one.temp is None else one.temp[0]
        return {"up": one.up, "temp": temp, "identity": one.identity, "state": one.state}

    def arm(self, group: str, member: int, value: Any) -> Any:
        self.brokers[group, member].rule = value

    def fired(self, group: str, member: int, value: Any) -> Any:
        return self.brokers[group, member].fired

    def disarm(self, group: str, member: int, value: Any) -> Any:
        self.brokers[group, member].rule = None

    def rm_temp(self, group: str, member: int, value: Any) -> Any:
        self.brokers[group, member].temp = None

    def rm_identity(self, group: str, member: int, value: Any) -> Any:
        self.brokers[group, member].identity = None
        if self.bug == "starts-over":
            self.groups.pop(group, None)

    def wipe(self, group: str, member: int, value: Any) -> Any:
        self.rm_temp(group, member, value)
        self.rm_identity(group, member, value)

    def clone(self, group: str, member: int, value: Any) -> Any:
        self.brokers[group, member].identity = self.brokers[group, value].identity

    def readdress(self, group: str, member: int, value: Any) -> Any:
        self.ports += 10
        one = self.brokers[group, member]
        one.port = self.ports
        return {"node": one.node, "address": one.address}

    def clean(self, group: str, member: int, value: Any) -> Any:
        known = self.groups[group]
        known.replicas.pop(value, None)
        known.in_sync.discard(value)

    # What brokers do.

    async def _boot(self, name: str, one: Broker) -> None:
        await asyncio.sleep(self.rng.uniform(2, 6))
        while one.state == "INITIAL":
            try:
                await self._register(name, one)
            except Lost:
                if self.bug == "gives-up":
                    return
                await asyncio.sleep(self.rng.uniform(0.2, 5))
        while not self._elected(name, one):
            await asyncio.sleep(5)
        await asyncio.sleep(0.1)
        one.state = "RUNNING"

    async def _register(self, name: str, one: Broker) -> None:
        if self.bug == "rereads" and one.identity is not None and one.starts > 1:
            one.identity += 1
        if one.identity is None and one.temp is None:
            number = await self._exchange(one, 1012, lambda: self._told("next", name))
            one.temp = number, f"{one.address};{self.rng.random()}"
        if one.identity is None:
            assert one.temp is not None
            number, code = one.temp
            try:
                taken = await self._exchange(one, 1013, lambda: self._apply(name, number, code))
            except Lost:
                if self.bug == "burns":
                    one.temp = None
                raise
            if not taken:
                one.temp = None
                raise Lost
            one.identity, one.temp = number, None
        known = await self._exchange(one, 1003, lambda: self._note(name, one))
        if not known:
            raise Lost
        one.state = "REGISTERED"

    def _apply(self, name: str, number: int, code: str) -> bool:
        group = self.groups.setdefault(name, Group())
        if number in group.replicas:
            return group.replicas[number][1] == code or self.bug == "gives-twice"
        group.replicas[number] = [code.partition(";")[0], code]
        group.next = number + 1
        if self.bug == "lists-ghosts":
            group.replicas[number + 50] = ["nowhere", ""]
        return True

    def _note(self, name: str, one: Broker) -> bool:
        group = self.groups.setdefault(name, Group())
        assert one.identity is not None
        if one.identity not in group.replicas and self.bug is None:
            return False
        if self.bug != "keeps-address" or one.starts == 1:
            group.replicas.setdefault(one.identity, ["", ""])[0] = one.address
        return True

    def _elected(self, name: str, one: Broker) -> bool:
        group = self.groups[name]
        assert one.identity is not None
        if self.bug == "no-master" and one.starts > 1:
            return False
        alive = {b.identity for (g, _), b in self.brokers.items() if g == name and b.up and b is not one}
        if not group.in_sync or one.identity in group.in_sync:
            group.master = one.identity
            group.in_sync.add(one.identity)
            return True
        if group.master in alive:
            group.in_sync.add(one.identity)
            return True
        return False

    async def _exchange(self, one: Broker, code: int, act: Callable[[], Any]) -> Any:
        """A request and its answer, with the rule that is armed. Raises Lost."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.03))
        rule = one.rule
        if rule is None or rule["code"] != code or one.fired:
            return act()
        one.fired = 1
        does, answer = rule["act"], rule["frame"] == "response"
        if does == "kill":
            return await self._killed(one, rule, answer, act)
        if does == "drop" and not answer:
            await asyncio.sleep(3)
            raise Lost
        found = act()
        if does == "repeat":
            found = act()
        if does in ("drop", "delay"):
            await asyncio.sleep(3)
            raise Lost
        return found

    async def _killed(self, one: Broker, rule: Mapping[str, Any], answer: bool, act: Callable[[], Any]) -> Any:
        found = act() if answer or rule.get("passes") else None
        if rule["victim"] == "controller":
            self._change_leader()
            await asyncio.sleep(3)
            raise Lost
        self._end(one)
        if answer and rule.get("passes") and self.rng.random() < 0.5:
            return found  # it writes its file while it is being killed
        raise asyncio.CancelledError

    def _change_leader(self) -> None:
        self.leader = "n2" if self.leader == "n1" else "n1"
        for group in self.groups.values():
            if self.bug == "forgets" and group.replicas:
                del group.replicas[max(group.replicas)]
            if self.bug == "goes-back" and group.next > 1:
                group.next -= 1
