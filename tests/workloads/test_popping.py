# SPDX-License-Identifier: Apache-2.0
"""The final phase of `queue --consume pop` in virtual time: a broker in memory whose answers take their time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

import harness.generator as gen
from checkers.messages.queue import Deliveries
from harness.api import Completion
from harness.plan.plan import Plan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult
from workloads.places import Queue, TopicLayout
from workloads.queue import POP_BATCH, QueueWorkload

ANSWER_S = 0.003
"""Seen: 37,376 acknowledgements and 4,672 pops took one consumer 115 s."""


class Popped:
    """One queue with messages. A popped message that is not acknowledged comes back after its time."""

    def __init__(self, messages: int) -> None:
        self.waiting = deque(range(messages))
        self.messages = messages
        self.handles = count()
        self.held: dict[str, int] = {}

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(ANSWER_S)
        extra: dict[str, Any] = {"node": "n1", **{k: v for k, v in op.extra.items() if k != "handle"}}
        match op.f:
            case "remake":
                return Completion("ok", {"topics": [], "groups": []}, extra=extra)
            case "pop":
                if not self.waiting:
                    await asyncio.sleep(op.extra["wait_s"])
                return Completion("ok", [self._take(op) for _ in range(min(POP_BATCH, len(self.waiting)))], extra=extra)
            case "ack":
                self.held.pop(op.value[0], None)
                return Completion("ok", op.value, extra=extra)
            case "drain":
                ends = {"committed": self.messages, "max": self.messages, "consumed_to": self.messages}
                return Completion("ok", ends, extra=extra)
        return Completion("ok", [], extra=extra | {"done": True, "min": 0, "max": self.messages, "next": self.messages})

    def _take(self, op: Op) -> Sequence[Any]:
        offset, handle = self.waiting.popleft(), f"h{next(self.handles)}"
        self.held[handle] = offset
        asyncio.get_running_loop().call_later(op.extra["invisible_ms"] / 1000, self._return, handle)
        return ["t:a:0", offset, offset + 1, handle, 0, 0]

    def _return(self, handle: str) -> None:
        if (offset := self.held.pop(handle, None)) is not None:
            self.waiting.append(offset)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def final_phase(broker: Popped, concurrency: int) -> tuple[History, CheckResult]:
    workload = QueueWorkload(Plan(workload="queue", concurrency=concurrency, options={"consume": "pop"}))
    workload.group = "g"
    queues = [Queue("t", "a", 0)]
    workload._places = TopicLayout(False, "t", "readers", queues, {"a": ("n1",)}, {"n1": ("198.18.0.1", 1)}, [], [])
    ops: list[Op] = []

    async def run() -> None:
        interpreter = Interpreter(concurrency=concurrency, client=lambda _: broker, journal=ops.append, deadline_s=4)
        await interpreter.run(gen.time_limit(workload.final_limit_s, workload.final([], ["n1"])), "final")
        await interpreter.close()

    virtual_time.run(run())
    history = History(ops)
    return history, Deliveries().check(RunRecord(history))


@pytest.mark.parametrize(("messages", "concurrency"), [(0, 2), (37_376, 10)])
@pytest.mark.slow
def test_what_a_run_left_is_consumed_within_the_final_phase(messages: int, concurrency: int) -> None:
    """One consumer alone took longer than the final phase, and so nothing was proven."""
    broker = Popped(messages)
    history, result = final_phase(broker, concurrency)
    assert (broker.waiting, broker.held) == (deque(), {})
    assert sum(op.f == "ack" and op.type == "ok" for op in history) == messages
    assert "no complete drain" not in result.reason
    assert [op.f for op in history if op.f in ("pop", "drain")][-1] == "drain"


def test_a_message_that_comes_back_late_is_consumed_before_the_end_is_proven() -> None:
    """The consumer that proves the end waits for what others popped before and did not acknowledge."""
    broker = Popped(1)
    broker.waiting.clear()
    broker.held["of a consumer that is gone"] = 0

    async def later() -> None:
        asyncio.get_running_loop().call_later(12, broker._return, "of a consumer that is gone")

    broker.open = later  # type: ignore[method-assign]
    history, _ = final_phase(broker, 4)
    assert [op.extra["offset"] for op in history if op.f == "ack" and op.type == "ok"] == [0]
