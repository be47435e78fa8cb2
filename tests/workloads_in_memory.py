# SPDX-License-Identifier: Apache-2.0
"""A broker group in memory for the workloads `log` and `queue` in virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from sim.plays import layout

from harness.api import Completion
from results.op import Op
from workloads.places import Queue, TopicLayout, queue_of

NODES = ("n1", "n2", "n3")
JUDGES = {"log", "linearizability", "replicas", "deliveries", "offsets", "leases", "well-formed"}


def places() -> TopicLayout:
    return layout(NODES, {"a": NODES}, 4)


class Brokers:
    """One right group, with a moment for every answer. Some answers are lost; what was asked has happened, or not.

    `forgetful`: every now and then the committed offsets are gone, as at a new master that never got them.
    """

    def __init__(self, rng: Random, trouble: float, forgetful: bool) -> None:
        self.rng, self.trouble, self.forgetful = rng, trouble, forgetful
        self.queues: dict[str, list[Any]] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.popped: dict[str, int] = {}
        self.leased: dict[str, tuple[float, list[Any]]] = {}
        self.bug = ""
        """The fate of one message in ten that is popped."""
        self.silent_reads = 0
        """So many of the final reads are never answered."""
        self.wiped: tuple[str, float] = ("", 0.0)
        """A node that does not know the readers' group for so long (s) after the first final read."""
        self._asked: float | None = None
        self.knows_readers: bool | None = True
        """True if the master has the readers' group at the end; None: it gives no answer to that."""

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if op.f in ("assign", "crash"):
            return Completion("ok", op.value)
        if op.f == "remake":
            return self.remake(op)
        if op.f == "replica-read" and self.knows_readers is False:
            return Completion("fail", None, "26 SUBSCRIPTION_GROUP_NOT_EXIST", {"node": "n1", "code": 26})
        if op.f == "replica-read" and self.silent_reads:
            self.silent_reads -= 1
            await asyncio.sleep(3600)
        if op.f == "replica-read" and op.extra["node"] == self.wiped[0]:
            now = asyncio.get_running_loop().time()
            self._asked = now if self._asked is None else self._asked
            if now < self._asked + self.wiped[1]:
                return Completion("fail", None, "26 SUBSCRIPTION_GROUP_NOT_EXIST", {"node": "n1", "code": 26})
        luck = self.rng.random()
        change = op.f in ("send", "commit", "pop", "ack", "extend")
        if luck < self.trouble / 2:
            return Completion("fail", op.value, "refused", {"node": "n1"})
        if luck < self.trouble and change:
            if self.rng.random() < 0.5:
                self.do(op)
            return Completion("info", op.value, "no answer", {"node": "n1"})
        done = self.do(op)
        if op.f == "pop" and not done.value:
            await asyncio.sleep(op.extra["wait_s"])
        return done

    def remake(self, op: Op) -> Completion:
        if self.knows_readers is None:
            return Completion("fail", op.value, "timed out", {"node": "n1"})
        missing, self.knows_readers = [] if self.knows_readers else ["readers"], True
        return Completion("ok", {"topics": [], "groups": missing}, extra={"node": "n1", "group": "a"})

    def do(self, op: Op) -> Completion:
        now = asyncio.get_running_loop().time()
        extra = {"node": op.extra.get("node", "n1"), "group": op.extra.get("group"), "code": 0}
        queue = self.queues.setdefault(op.key or "", [])
        place = (op.extra.get("group", ""), op.key or "")
        if self.forgetful and self.rng.random() < 0.003:
            self.committed.clear()
        match op.f:
            case "send":
                queue.append(op.value)
                return Completion("ok", [len(queue) - 1, op.value], extra=extra)
            case "poll" | "consume" | "replica-read":
                shown = [[at, queue[at]] for at in range(op.value, min(op.value + 20, len(queue)))]
                output = {"min": 0, "max": len(queue), "next": op.value + len(shown)}
                done = {"done": op.value + len(shown) >= len(queue)} if op.f == "replica-read" else {}
                return Completion("ok", shown, extra=extra | output | done)
            case "commit":
                self.committed[place] = op.value
                return Completion("ok", op.value, extra=extra)
            case "committed":
                return Completion("ok", self.committed.get(place), extra=extra)
            case "drain":
                committed = self.popped.get(op.key or "", 0) if op.value is None else self.committed.get(place)
                reached = committed if op.value is None else op.value
                return Completion(
                    "ok", {"committed": committed, "max": len(queue), "consumed_to": reached}, extra=extra
                )
            case "pop":
                return Completion("ok", self.pop(queue_of(op.key), now, op.extra["invisible_ms"]), extra=extra)
            case "ack":
                if not (self.bug == "acked-redelivered" and self.is_strange(op.extra["id"])):
                    self.leased.pop(op.value[0], None)
                return Completion("ok", op.value, extra=extra)
            case "extend":
                handle, more_ms = op.value
                entry = self.leased.pop(handle, None)
                if entry is None:
                    return Completion("fail", op.value, "spent", extra)
                renewed = f"{handle}+"
                self.leased[renewed] = (now + more_ms / 1000, entry[1])
                return Completion("ok", [renewed], extra=extra)
        raise ValueError(op.f)

    def pop(self, source: Queue, now: float, invisible_ms: int) -> list[Any]:
        """Messages whose lease is over first, as retries; then new ones."""
        found: list[list[Any]] = []
        for handle, (until, entry) in list(self.leased.items()):
            strange = self.is_strange(entry[2])
            if strange and self.bug == "never-returned":
                continue
            if (until < now or (strange and self.bug == "leased-twice")) and len(found) < 8:
                del self.leased[handle]
                found.append(["%RETRY%g_t:a:0", entry[1] + 1000, entry[2], handle + "'", 1])
        for key in (queue.key for queue in places().queues):
            queue = self.queues.get(key, [])
            while self.popped.get(key, 0) < len(queue) and len(found) < 8:
                at = self.popped.get(key, 0)
                self.popped[key] = at + 1
                if self.bug == "lost-to-group" and self.is_strange(queue[at]):
                    continue
                found.append([key, at, queue[at], f"{key}/{at}", 0])
        until = now + invisible_ms / 1000
        self.leased |= {entry[3]: (until, entry) for entry in found}
        return found

    @staticmethod
    def is_strange(identity: int) -> bool:
        return identity % 10 == 7

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""
