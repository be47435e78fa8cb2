# SPDX-License-Identifier: Apache-2.0
"""Controllers in memory and in virtual time: right ones, or ones with a `bug`. They stand behind the real client of the
workload `controller` (`workloads.controller_client`), in place of its connections.

Requests and answers are lost, and changes come late. Leaders change. A right leader returns the newest state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from infra.systems.remoting.connection import TimedOut
from infra.systems.rocketmq.protocol.admin import AdminError, ControllerMetadata, ReplicaInfo
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.metadata import Elected

CONTROLLERS: Final = {f"n{n}": (f"198.18.0.{n}", 9878) for n in (1, 2, 3)}

BUGS: Final = {
    "alters-twice": "epoch-reused",
    "elects-two": "epoch-reused",
    "deposed-answers": "stale-metadata",
    "keeps-old-address": "stale-metadata",
    "restart-forgets": "lost-metadata",
    "restart-forgets-ids": "lost-metadata",
    "forgotten-returns": "lost-metadata",
    "invents-a-set": "unasked-metadata",
    "invents-an-address": "unasked-metadata",
    "gives-ids-twice": "id-given-twice",
    "next-goes-back": "id-given-twice",
    "one-differs": "controllers-differ",
}
"""Bug -> the anomaly that it causes."""


@dataclass
class Group:
    """replicas: id -> [address, code]. The epochs as `SyncStateInfo` counts them."""

    next: int = 1
    replicas: dict[int, list[str]] = field(default_factory=dict)
    master: int | None = None
    master_epoch: int = 0
    in_sync: list[int] = field(default_factory=list)
    epoch: int = 0


class World:
    """Three controllers with one state. old: what a leader knew when it was deposed."""

    def __init__(self, rng: Random, bug: str | None = None, trouble: float = 0.0) -> None:
        self.rng, self.bug, self.trouble = rng, bug, trouble
        self.groups: dict[str, Group] = {}
        self.forgotten: dict[str, Group] = {}
        self.leader = "n1"
        self.old: dict[str, dict[str, Group]] = {}
        self.late: set[asyncio.Task[None]] = set()

    def depose(self) -> None:
        """Another one leads."""
        self.old = {self.leader: deepcopy(self.groups)}
        self.leader = self.rng.choice([n for n in CONTROLLERS if n != self.leader])

    def restart(self) -> None:
        """All of them."""
        for name, group in self.groups.items():
            if self.bug == "restart-forgets" and group.epoch > 2:
                group.epoch -= 2
            if self.bug == "restart-forgets-ids" and group.replicas:
                group.replicas.pop(max(group.replicas))
            self.groups[name] = group
        if self.bug == "forgotten-returns":
            self.groups |= self.forgotten
        self.depose()

    async def call(self, node: str, request: Request, do: Callable[[dict[str, Group]], Any], change: bool) -> Any:
        """One request to one controller."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        dice = self.rng.random()
        if dice < self.trouble:
            if change and dice < self.trouble / 2:
                task = asyncio.create_task(self._later(do))
                self.late.add(task)
                task.add_done_callback(self.late.discard)
            await asyncio.sleep(0.3)
            raise TimedOut(f"{node}: no answer")
        if node != self.leader:
            if self.bug != "deposed-answers" or change or node not in self.old:
                raise AdminError(node, request, 2007, "not the leader")
            return do(self.old[node])
        found = do(self.groups)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if self.rng.random() < self.trouble:
            raise TimedOut(f"{node}: the answer is lost")
        return found

    async def _later(self, do: Callable[[dict[str, Group]], Any]) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, 2))
        try:
            do(self.groups)
        except AdminError:
            return


class Link:
    """In place of `infra.systems.rocketmq.protocol.metadata.Metadata`."""

    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node

    async def close(self) -> None:
        """Nothing is open."""

    async def metadata(self) -> ControllerMetadata:
        leader = self.world.leader
        return ControllerMetadata("g", leader, ":".join(map(str, CONTROLLERS[leader])), leader == self.node, "")

    async def next_broker_id(self, cluster: str, name: str) -> int:
        def do(groups: dict[str, Group]) -> int:
            group = groups.get(name)
            if group is None:
                return 1
            back = self.world.bug == "next-goes-back" and self.world.rng.random() < 0.1 and group.next > 3
            return group.next - 2 if back else group.next

        return int(await self._ask(Request.CONTROLLER_GET_NEXT_BROKER_ID, do))

    async def replica_info(self, name: str) -> ReplicaInfo:
        def do(groups: dict[str, Group]) -> ReplicaInfo:
            group = self._known(groups, name, 2008)
            in_sync = list(group.in_sync)
            if self.world.bug == "invents-a-set" and len(in_sync) > 1 and self.world.rng.random() < 0.2:
                in_sync = [*in_sync, 9]
            return ReplicaInfo(group.master, "", group.master_epoch, in_sync, group.epoch)

        found: ReplicaInfo = await self._ask(Request.CONTROLLER_GET_REPLICA_INFO, do)
        return found

    async def sync_state(self, names: Collection[str]) -> dict[str, Any]:
        (name,) = names

        def do(groups: dict[str, Group]) -> dict[str, Any]:
            group = groups.get(name)
            if group is None:
                return {}
            replicas = [{"brokerId": n, "brokerAddress": self._address(n, at[0])} for n, at in group.replicas.items()]
            return {
                name: {
                    "masterBrokerId": group.master,
                    "masterEpoch": group.master_epoch,
                    "syncStateSetEpoch": group.epoch,
                    "inSyncReplicas": [r for r in replicas if r["brokerId"] in group.in_sync],
                    "notInSyncReplicas": [r for r in replicas if r["brokerId"] not in group.in_sync],
                }
            }

        found: dict[str, Any] = await self._ask(Request.CONTROLLER_GET_SYNC_STATE_DATA, do)
        return found

    def _address(self, number: int, address: str) -> str:
        if self.world.bug == "invents-an-address" and self.world.rng.random() < 0.02:
            return "10.0.0.1:1"
        if self.world.bug == "one-differs" and self.node == "n2" and number == 2:
            return f"{address}9"
        return address

    async def apply_id(self, cluster: str, name: str, number: int, code: str) -> None:
        def do(groups: dict[str, Group]) -> None:
            group = groups.get(name)
            if group is None:
                if number != 1:
                    raise self._refused(Request.CONTROLLER_APPLY_BROKER_ID, 2014)
                group = groups[name] = Group()
            owner = group.replicas.get(number)
            if owner is not None and owner[1] != code and self.world.bug != "gives-ids-twice":
                raise self._refused(Request.CONTROLLER_APPLY_BROKER_ID, 2014)
            if owner is None:
                group.replicas[number] = [code.partition(";")[0], code]
                group.next += 1

        await self._change(Request.CONTROLLER_APPLY_BROKER_ID, do)

    async def register(self, cluster: str, name: str, number: int, address: str) -> None:
        def do(groups: dict[str, Group]) -> None:
            group = self._known(groups, name, 2010)
            if number not in group.replicas:
                raise self._refused(Request.CONTROLLER_REGISTER_BROKER, 2010)
            if self.world.bug != "keeps-old-address" or self.world.rng.random() > 0.1:
                group.replicas[number][0] = address

        await self._change(Request.CONTROLLER_REGISTER_BROKER, do)

    async def elect(self, cluster: str, name: str, number: int) -> Elected:
        def do(groups: dict[str, Group]) -> Elected:
            group = self._known(groups, name, 2010)
            if group.master_epoch and number not in group.in_sync:
                raise self._refused(Request.CONTROLLER_ELECT_MASTER, 2012)
            if group.master == number:
                raise self._refused(Request.CONTROLLER_ELECT_MASTER, 2011)
            same = self.world.bug == "elects-two" and group.master_epoch > 1
            group.master, group.in_sync = number, [number]
            group.master_epoch += not same
            group.epoch += 1
            return Elected(number, group.master_epoch, group.epoch, (number,))

        found: Elected = await self._change(Request.CONTROLLER_ELECT_MASTER, do)
        return found

    async def alter(self, name: str, master: int, master_epoch: int, in_sync: Collection[int], epoch: int) -> int:
        def do(groups: dict[str, Group]) -> int:
            group = self._known(groups, name, 2013)
            if (group.master, group.master_epoch) != (master, master_epoch):
                raise self._refused(Request.CONTROLLER_ALTER_SYNC_STATE_SET, 2000)
            if group.epoch != epoch and not (self.world.bug == "alters-twice" and group.epoch == epoch + 1):
                raise self._refused(Request.CONTROLLER_ALTER_SYNC_STATE_SET, 2001)
            group.in_sync, group.epoch = sorted(in_sync), epoch + 1
            return group.epoch

        return int(await self._change(Request.CONTROLLER_ALTER_SYNC_STATE_SET, do))

    async def clean_broker_data(self, cluster: str, name: str, numbers: Collection[int]) -> None:
        def do(groups: dict[str, Group]) -> None:
            group = self._known(groups, name, 2009)
            for number in numbers:
                group.replicas.pop(number, None)

        await self._change(Request.CLEAN_BROKER_DATA, do)

    async def forget(self, cluster: str, name: str) -> None:
        def do(groups: dict[str, Group]) -> None:
            self._known(groups, name, 2009)
            self.world.forgotten[name] = groups.pop(name)

        await self._change(Request.CLEAN_BROKER_DATA, do)

    def _known(self, groups: dict[str, Group], name: str, code: int) -> Group:
        if name not in groups:
            raise self._refused(Request.CONTROLLER_GET_REPLICA_INFO, code)
        return groups[name]

    def _refused(self, request: Request, code: int) -> AdminError:
        return AdminError(self.node, request, code, "refused")

    async def _ask(self, request: Request, do: Callable[[dict[str, Group]], Any]) -> Any:
        return await self.world.call(self.node, request, do, change=False)

    async def _change(self, request: Request, do: Callable[[dict[str, Group]], Any]) -> Any:
        return await self.world.call(self.node, request, do, change=True)
