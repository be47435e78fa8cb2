# SPDX-License-Identifier: Apache-2.0
"""The client of the workload `controller`: single attempts at one of the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from harness.api import Completion
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.metadata import NOT_LEADER, UNKNOWN_GROUP, Metadata, outcome
from infra.systems.rocketmq.topologies.layout import CLUSTER
from results.op import Op
from workloads.fake_brokers import LIVING, FakeBrokers

READS: Final = ("read", "view", "next", "leader")
"""Ops that change nothing: without an answer they fail."""

_ASK_S: Final = 0.7


class ControllerOps:
    """One logical process. home: the node of the controller that it trusts to name the leader; it then stays with a
    leader until that one refuses. None: it asks all controllers, after everything that is not `ok`.
    """

    def __init__(
        self,
        controllers: Mapping[str, tuple[str, int]],
        brokers: FakeBrokers,
        home: str | None,
        deadline_s: float,
    ) -> None:
        self.controllers, self.brokers = controllers, brokers
        self.home, self.deadline_s = home, deadline_s
        self.leader: str | None = None
        self._links = {node: Metadata(*at, deadline_s=deadline_s) for node, at in controllers.items()}
        self._asking = {node: Metadata(*at, deadline_s=_ASK_S) for node, at in controllers.items()}

    async def open(self) -> None:
        """Does nothing: the first op that needs a connection makes it."""

    async def close(self) -> None:
        for link in (*self._links.values(), *self._asking.values()):
            await link.close()

    async def invoke(self, op: Op) -> Completion:
        """The outcome of one attempt; `extra["controller"]`: the node that got the request."""
        if op.f == "leader":
            return await self._who(op)
        if op.f == "serving":
            return await self._serving()
        node = op.extra.get("controller") or self.leader or await self._find()
        if node is None:
            return Completion("fail", None, "no controller says who leads; nothing was sent")
        extra = {"controller": node}
        value: dict[str, Any] = {}
        try:
            async with asyncio.timeout(self.deadline_s):
                found = await self._do(op, self._links[node], value)
        except _Nothing as problem:
            return Completion("fail", None, f"{problem}; nothing was sent", extra)
        except TimeoutError:
            await self._links[node].close()
            self._doubt(node, refused=False)
            return Completion("fail" if op.f in READS else "info", value or None, "timed out", extra)
        except (RemotingError, AdminError) as problem:
            came = outcome(problem)
            code = {"code": problem.code} if isinstance(problem, AdminError) else {}
            if code.get("code", NOT_LEADER) == NOT_LEADER:
                self._doubt(node, refused=bool(code))
            return Completion("fail" if op.f in READS else came.type, value or None, came.why, extra | code)
        if "controller" not in op.extra:
            self.leader = node
        return Completion("ok", found, extra=extra)

    async def _do(self, op: Op, link: Metadata, value: dict[str, Any]) -> Any:
        """Executes an op. value: filled with the request's arguments before it is sent."""
        name = str(op.key)
        group, dice = self.brokers.group(name), Random(f"{name}/{op.extra.get('n', 0)}")
        match op.f:
            case "read":
                return await self._read(link, name)
            case "view":
                return view_of((await link.sync_state([name])).get(name))
            case "next":
                return await link.next_broker_id(CLUSTER, name)
            case "apply":
                address = self.brokers.new_address()
                number = await link.next_broker_id(CLUSTER, name)
                value |= {"id": number, "address": address}
                await link.apply_id(CLUSTER, name, number, f"{address};{op.extra.get('n', 0)}")
                group.ids[number] = address
            case "register":
                number, address = _one(dice, group.ids), self.brokers.new_address()
                value |= {"id": number, "address": address}
                await link.register(CLUSTER, name, number, address)
                group.ids[number] = address
            case "elect":
                known = group.known
                others = [n for n in known.in_sync or group.ids if n != known.master]
                value["id"] = _one(dice, [n for n in others if n <= LIVING])
                done = await link.elect(CLUSTER, name, value["id"])
                self.brokers.heard(name, done)
                value |= {"master": done.master, "master_epoch": done.master_epoch}
                value |= {"in_sync": list(done.in_sync), "epoch": done.in_sync_epoch}
            case "alter":
                known = group.known
                if not known.master:
                    raise _Nothing("no master is known")
                others = [n for n in sorted(group.ids) if n <= LIVING and n != known.master]
                sets = [{known.master, *s} for s in _subsets(others) if {known.master, *s} != set(known.in_sync)]
                in_sync = tuple(sorted(_one(dice, sets)))
                value |= {"master": known.master, "master_epoch": known.master_epoch}
                value |= {"in_sync": list(in_sync), "expected": known.epoch}
                value["epoch"] = await link.alter(name, known.master, known.master_epoch, in_sync, known.epoch)
                self.brokers.altered(name, in_sync, value["epoch"])
            case "clean":
                if not group.known.in_sync:
                    raise _Nothing("without a SyncStateSet, the rest of the group would go, too (finding 33)")
                value["id"] = _one(dice, [n for n in group.ids if n > LIVING])
                await link.clean_broker_data(CLUSTER, name, [value["id"]])
                group.ids.pop(value["id"], None)
            case "forget":
                await link.forget(CLUSTER, name)
            case _:
                raise ValueError(f"the controller workload does not know {op.f!r}")
        return value or None

    async def _read(self, link: Metadata, name: str) -> dict[str, Any] | None:
        try:
            told = await link.replica_info(name)
        except AdminError as problem:
            if problem.code == UNKNOWN_GROUP:
                return None
            raise
        self.brokers.heard(name, told)
        return {
            "master": told.master_id,
            "master_epoch": told.master_epoch,
            "in_sync": list(told.in_sync),
            "epoch": told.in_sync_epoch,
        }

    def _doubt(self, node: str, refused: bool) -> None:
        if self.leader == node and (refused or self.home is None):
            self.leader = None

    async def _find(self) -> str | None:
        """The node for the next request: the controller that reports to lead, or the leader by the own home."""
        if self.home is not None:
            told = await self._says(self.home)
            hosts = {f"{host}:{port}": node for node, (host, port) in self.controllers.items()}
            return self.home if told is None else hosts.get(told[1], self.home)
        said = await asyncio.gather(*map(self._says, self.controllers))
        leading = [node for node, told in zip(self.controllers, said, strict=True) if told and told[0]]
        return leading[-1] if leading else None

    async def _says(self, node: str) -> tuple[bool, str] | None:
        """A controller's report: True if it leads, and the leader's address. None: no answer."""
        try:
            told = await self._asking[node].metadata()
        except (RemotingError, AdminError):
            return None
        return told.is_leader, told.leader_address

    async def _serving(self) -> Completion:
        """Waits for a controller that leads and answers: a new leader first has to apply its log."""
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.8 * self.deadline_s
        while loop.time() < end:
            for node in self.controllers:
                told = await self._says(node)
                if told is None or not told[0]:
                    continue
                with suppress(RemotingError, AdminError):
                    await self._asking[node].next_broker_id(CLUSTER, "nobody")
                    return Completion("ok", {"leader": node})
            await asyncio.sleep(0.2)
        return Completion("fail", None, "no controller that leads answers")

    async def _who(self, op: Op) -> Completion:
        node = op.extra["controller"]
        told = await self._says(node)
        extra = {"controller": node}
        if told is None:
            return Completion("fail", None, "no answer", extra)
        return Completion("ok", {"leads": told[0], "leader": told[1]}, extra=extra)


class _Nothing(Exception):
    """The op has nothing to request."""


def view_of(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The answer to 1006 about a group: `read`'s fields, and `replicas`: id -> address."""
    if told is None:
        return None
    in_sync, others = told.get("inSyncReplicas") or [], told.get("notInSyncReplicas") or []
    return {
        "master": told.get("masterBrokerId"),
        "master_epoch": told.get("masterEpoch"),
        "in_sync": sorted(r["brokerId"] for r in in_sync),
        "epoch": told.get("syncStateSetEpoch"),
        "replicas": {str(r["brokerId"]): r["brokerAddress"] for r in (*in_sync, *others)},
    }


def _one(dice: Random, choices: Any) -> Any:
    """One of the choices. Raises _Nothing if they are empty."""
    some = list(choices)
    if not some:
        raise _Nothing("no id or set to choose is known")
    return dice.choice(some)


def _subsets(some: list[int]) -> list[set[int]]:
    found: list[set[int]] = [set()]
    for number in some:
        found += [{*one, number} for one in found]
    return found
