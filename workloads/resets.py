# SPDX-License-Identifier: Apache-2.0
"""The administrator who resets the offsets of a consumer group during the load, and the requests for that.

Three kinds, each as `mqadmin` requests it: one queue to an offset (`resetOffsetByTime -q -o`), all queues of a broker
group to the messages of a time (`resetOffsetByTime -s`), and all of them to their end (`skipAccumulatedMessage`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness.api import Completion
from harness.generator import PENDING, Generator, Invocation, Step
from harness.generator.context import Context, members
from harness.generator.dice import unit
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.protocol.client import Broker
from results.figures import SECOND
from results.op import INVOKE, OK, Op, OpType
from workloads.places import Queue

RESET: Final = "reset"

TO_TIME: Final = 0.25
TO_END: Final = 0.25
"""The shares of resets to a time and to the end; the others are to an offset."""

FAR_S: Final = 10.0
"""A reset to a time goes back by at most so much."""

SOON: Final = 0.3
SOON_NS: Final = SECOND // 20
"""The share of resets that come so soon after the one before, while the group is still behind."""

NOT_ONLINE: Final = 206
"""The code of an answer: CONSUMER_NOT_ONLINE."""

_DRAWS: Final = 4
"""The draws for one reset."""


@dataclass(frozen=True, slots=True, eq=False)
class Resets(Generator):
    """Resets of a group's offsets by the first thread, about one in `every_ns`, for ever. It hears all threads' sends.
    `n` counts the resets; `seed` and n determine each one.

    keys      the queues. sources: the broker groups, as `TOPIC:BROKER GROUP:-1`: all queues there.
    ends      queue -> the offset behind the highest acknowledged message.
    due       the time (ns) of the next one.
    whole     True: only resets of all queues, and never soon after another: those that members execute.
    """

    group: str
    keys: Sequence[str]
    sources: Sequence[str]
    every_ns: int
    seed: int
    n: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    due: int = 0
    whole: bool = False

    def op(self, ctx: Context) -> Step:
        due = self.due or ctx.time + self.every_ns
        if ctx.time < due:
            return PENDING.or_at(due), replace(self, due=due)
        process = ctx.process(next(members(ctx.takers)))
        if not ctx.is_free(process):
            return PENDING, self
        soon = unit(self.seed, self.n * _DRAWS) < SOON and not self.whole
        gap = SOON_NS if soon else self.every_ns
        after = replace(self, n=self.n + 1, due=ctx.time + gap)
        return self._next().by(process), after

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type == INVOKE or event.type != OK or event.f != "send" or event.key is None:
            return self
        offset = event.value[0]
        if offset is None or offset < self.ends.get(event.key, 0):
            return self
        return replace(self, ends={**self.ends, event.key: offset + 1})

    def _next(self) -> Invocation:
        kind, which, how = (unit(self.seed, self.n * _DRAWS + i) for i in (1, 2, 3))
        extra: dict[str, Any] = {"group": self.group}
        if self.whole:
            kind *= TO_TIME + TO_END
        if kind < TO_TIME + TO_END:
            source = self.sources[int(which * len(self.sources))]
            if kind < TO_TIME:
                return Invocation(RESET, source, None, {**extra, "to": "time", "ago_ms": int(how * FAR_S * 1000)})
            return Invocation(RESET, source, None, {**extra, "to": "end"})
        key = self.keys[int(which * len(self.keys))]
        return Invocation(RESET, key, int(how * (self.ends.get(key, 0) + 1)), {**extra, "to": "offset"})


async def reset(broker: Broker, op: Op, queue: Queue, extra: dict[str, Any], queues: int) -> tuple[Outcome, Completion]:
    """One reset at a broker. The completion of an `ok` has the new offset of each queue (key). queues: the number of
    queues of the topic there.
    """
    extra |= {name: op.extra[name] for name in ("to", "ago_ms") if name in op.extra}
    time_ms = -1
    if op.extra["to"] == "time":
        time_ms = extra["time_ms"] = time.time_ns() // 1_000_000 - op.extra["ago_ms"]
    elif op.extra["to"] == "offset":
        time_ms = 0
    done = await broker.reset_offsets(
        queue.topic, op.extra["group"], queue=queue.number, offset=op.value, time_ms=time_ms
    )
    if done.code is not None:
        extra["code"] = done.code
    if done.code == NOT_ONLINE and op.extra["to"] != "offset":
        return await _commit(broker, op, queue, time_ms, extra, queues)
    if done.outcome.type != "ok":
        return done.outcome, Completion(done.outcome.type, op.value, done.outcome.why, extra)
    offsets = {replace(queue, number=number).key: offset for number, offset in done.offsets.items()}
    return done.outcome, Completion("ok", offsets, extra=extra)


async def _commit(
    broker: Broker, op: Op, queue: Queue, time_ms: int, extra: dict[str, Any], queues: int
) -> tuple[Outcome, Completion]:
    """Commits the offsets of a time, or the ends (-1), for the group: `mqadmin` does so if no member is connected to
    the broker (`DefaultMQAdminExtImpl.resetOffsetByTimestampOld`).
    """
    extra["by"] = "commit"
    group, found = op.extra["group"], dict[str, int]()
    for number in range(queues):
        where = queue.topic, number
        at = await (broker.max_offset(*where) if time_ms < 0 else broker.offset_at(*where, time_ms))
        if at.outcome.type != "ok" or at.value is None:
            kind: OpType = "info" if found else "fail"
            return at.outcome, Completion(kind, op.value, at.outcome.why, extra)
        done = await broker.commit_offset(*where, group, at.value)
        if done.outcome.type != "ok":
            kind = "info" if found else done.outcome.type
            return done.outcome, Completion(kind, op.value, done.outcome.why, extra)
        found[replace(queue, number=number).key] = at.value
    return Outcome("ok", ""), Completion("ok", found, extra=extra)
