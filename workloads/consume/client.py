# SPDX-License-Identifier: Apache-2.0
"""The client of the workload `consume`: sends by our own client, and the ops of the members of the group."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.api import Completion
from infra.machines.api import InfraError
from results.op import Op
from workloads.consume.crew import Crew
from workloads.places import queue_of
from workloads.queue import QueueOps

NO_TOPIC: Final = 17
"""The code of an answer: TOPIC_NOT_EXIST."""

TAKE_S: Final = 0.1
"""The time for which a take waits for a first event."""


class ConsumeOps(QueueOps):
    """One process: a member or a producer; at the end, a reader."""

    crew: Crew
    wanted: frozenset[str] | None

    def furnish(self, crew: Crew, wanted: frozenset[str] | None) -> None:
        """Sets the processes of the members, and the tags that they want (None: all)."""
        self.crew, self.wanted = crew, wanted
        crew.use()

    async def close(self) -> None:
        await self.crew.leave()
        await super().close()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                sent = await self.send(op, op.extra["properties"])
                if sent.type == "ok" and (self.wanted is None or op.extra["properties"].get("TAGS") in self.wanted):
                    self.crew.owe(op.value)
                return sent
            case "join" | "take" | "crash" | "leave":
                return await self._as_member(op)
            case "dead-letters":
                return await self._dead_letters(op)
        return await super().invoke(op)

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

    async def _as_member(self, op: Op) -> Completion:
        member = op.extra["member"]
        extra = {"group": op.extra["group"], "member": member}
        try:
            match op.f:
                case "join":
                    return Completion("ok", self.crew.join(member), extra=extra)
                case "take":
                    events = await self.crew.take(member, TAKE_S)
                    extra["behind"] = self.crew.behind
                    if any(event[0] == "ended" for event in events):
                        extra["ended"] = True
                    return Completion("ok", events, extra=extra)
            return Completion("ok", await self.crew.end(member, orderly=op.f == "leave"), extra=extra)
        except InfraError as problem:
            return Completion("info", None, str(problem), extra)
