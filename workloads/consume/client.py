# SPDX-License-Identifier: Apache-2.0
"""The client of the workload `consume`: sends by our own client, and the ops of the members of the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from harness.api import Completion
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from results.op import Op
from workloads.brokers import READ_DEADLINE_S, sent_completion
from workloads.consume.crew import Consumers
from workloads.consume.group_changes import SETTINGS, change_group, shown
from workloads.consume.modes import change_mode
from workloads.consume.sender import Sender
from workloads.places import Queue, queue_of
from workloads.queue import QueueOps

NO_TOPIC: Final = 17
"""The code of an answer: TOPIC_NOT_EXIST."""

NAMED: Final = "named-members"
"""The op that requests the members of the group from a master, or from the proxy that it names."""

NO_MEMBER: Final = (1, "no consumer for this group")
"""The code and the remark of an answer: the broker has got no heartbeat of any member."""


class ConsumeOps(QueueOps):
    """One process: a member or a producer; at the end, a reader."""

    crew: Consumers
    wanted: frozenset[str] | None
    sender: Sender | None
    proxies: Mapping[str, tuple[str, int]]
    masters_only: bool

    def furnish(
        self,
        crew: Consumers,
        wanted: frozenset[str] | None,
        sender: Sender | None,
        proxies: Mapping[str, tuple[str, int]] = MappingProxyType({}),
        *,
        masters_only: bool = False,
    ) -> None:
        """Sets the processes of the members, the tags that they want (None: all), the producer's process (None: our
        own client sends), node -> (address, port) of the proxies that members talk to, and whether changes of the group
        go to the masters only.
        """
        self.crew, self.wanted, self.sender, self.masters_only = crew, wanted, sender, masters_only
        self.proxies = proxies
        crew.use()
        if sender is not None:
            sender.use()

    async def close(self) -> None:
        await self.crew.leave()
        if self.sender is not None:
            await self.sender.leave()
        await super().close()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                sent = await self._send(op)
                if sent.type == "ok" and (self.wanted is None or op.extra["properties"].get("TAGS") in self.wanted):
                    self.crew.owe(op.value)
                return sent
            case "join" | "take" | "crash" | "leave":
                return await self.crew.invoke(op)
            case "dead-letters":
                return await self._dead_letters(op)
            case "mode":
                return await change_mode(self.places, op, self.deadline_s)
            case "update-group" | "delete-group":
                return await self._change(op)
            case "named-members" if "proxy" in op.extra:
                return await self._named_by_proxy(op)
            case "named-members" | "consume-stats" | "group-settings":
                return await self._as_administrator(op)
            case "committed":
                await self._learn_master(queue_of(op.key).group)
        return await super().invoke(op)

    async def _change(self, op: Op) -> Completion:
        """A change of the consumer group, at all brokers or at the master of each broker group."""
        nodes = [node for nodes in self.places.groups.values() for node in nodes]
        if self.masters_only:
            found = [await self._learn_master(group) for group in self.places.groups]
            nodes = [node for node in found if node is not None]
            if len(nodes) < len(found):
                extra = {"group": op.extra["group"], "acked": [], "unsure": []}
                return Completion("fail", op.value, f"no-master: {self.masters.silence}; no request was sent", extra)
        return await change_group(self.places, op, nodes, self.deadline_s)

    async def _send(self, op: Op) -> Completion:
        if self.sender is None:
            return await self.send(op, op.extra["properties"])
        await self.pause()
        sent, extra = await self.sender.send(queue_of(op.key), op.value, op.extra["properties"], self.deadline_s)
        self._refused = sent.outcome.type == "fail"
        return sent_completion(sent, op.value, extra)

    async def _dead_letters(self, op: Op) -> Completion:
        """Reads the dead letters of the group at a master, from an offset on. A broker has no topic for them until the
        first one: then the result is empty.
        """
        node = await self.master(queue_of(op.key).group)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent")
        read = await self.replica_read(replace(op, extra={**op.extra, "node": node}))
        if read.type == "fail" and read.extra.get("code") == NO_TOPIC:
            return Completion("ok", [], extra={"node": node, "done": True})
        return read

    async def _learn_master(self, group: str) -> str | None:
        """Looks up the master of a broker group now, and returns it. A broker that is master no more answers questions
        about groups, too, from what it copied long ago.
        """
        node = await self.masters.find(group, refused_by=self.masters.known(group))
        if node is not None:
            self._beliefs.believe(group, node)
        return node

    async def _named_by_proxy(self, op: Op) -> Completion:
        """Requests the members of the consumer group from the proxy of a node."""
        extra: dict[str, Any] = {**op.extra, "node": op.extra["proxy"]}
        try:
            async with BrokerAdmin(
                *self.proxies[op.extra["proxy"]], deadline_s=min(READ_DEADLINE_S, self.deadline_s)
            ) as proxy:
                return Completion("ok", sorted(await proxy.consumers(op.extra["group"])), extra=extra)
        except (RemotingError, AdminError) as problem:
            return Completion("fail", op.value, str(problem), extra)

    async def _as_administrator(self, op: Op) -> Completion:
        """Requests the members of the consumer group from the master of a broker group, its settings (None: the broker
        does not know it), or its offsets: a list of queue, end of the queue, offset.
        """
        queue, group = queue_of(op.key), op.extra["group"]
        extra: dict[str, Any] = {"group": group}
        node = await self._learn_master(queue.group)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; no request was sent", extra)
        extra["node"] = node
        try:
            async with BrokerAdmin(
                *self.places.endpoints[node], deadline_s=min(READ_DEADLINE_S, self.deadline_s)
            ) as broker:
                if op.f == "named-members":
                    return Completion("ok", sorted(await broker.consumers(group)), extra=extra)
                if op.f == SETTINGS:
                    return Completion("ok", shown(await broker.group_settings(group)), extra=extra)
                stats = await broker.consume_stats(group, queue.topic)
        except (RemotingError, AdminError) as problem:
            if isinstance(problem, AdminError) and problem.code == NO_MEMBER[0] and NO_MEMBER[1] in str(problem):
                return Completion("ok", [], extra=extra)
            self.learn(queue.group, node, Outcome("fail", ""))
            return Completion("fail", op.value, str(problem), extra)
        figures = [[Queue(queue.topic, queue.group, n).key, *figure] for n, figure in sorted(stats.items())]
        return Completion("ok", figures, extra=extra)
