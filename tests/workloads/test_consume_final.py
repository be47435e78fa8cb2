# SPDX-License-Identifier: Apache-2.0
"""The final phase of `consume`: every replica is read, also behind a group that is never done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sim.plays import play
from workloads_in_memory import NODES, places

from harness.api import Completion
from harness.plan.plan import Plan
from results.op import Op
from workloads.consume.workload import ConsumeWorkload


class _Busy:
    """A client whose members get a message in each take, and are behind with more."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(0.2)
        extra: dict[str, Any] = dict(op.extra)
        match op.f:
            case "join":
                return Completion("ok", f"{op.extra['member']}-1", extra=extra)
            case "take":
                return Completion("ok", [["delivered", 0, 1, 1, "t:a:0", 0, 1, 0, "a"]], extra={**extra, "behind": 9})
            case "leave":
                return Completion("ok", [], extra=extra)
        return Completion("ok", [], extra={**extra, "node": "n1", "done": True, "min": 0, "max": 0, "next": 0})


@pytest.mark.parametrize("library", ["remoting", "grpc-push", "grpc-simple"])
def test_a_group_that_is_never_done_takes_no_time_from_the_final_reads(library: str) -> None:
    """Seen with a group that had got a fifth of its messages after two minutes: no replica was read, nothing judged."""
    workload = ConsumeWorkload(Plan(seed=1, rate=50, concurrency=8, workload="consume", options={"library": library}))
    workload._places, workload.group = places(), "g"
    ops = play(workload, lambda thread: _Busy(), 1, NODES, phases=(), final_s=workload.final_limit_s)
    assert {op.f for op in ops if op.type == "ok"} >= {"take", "leave", "committed", "replica-read"}
    read = {op.key for op in ops if op.f == "replica-read" and op.type == "ok"}
    assert read == set(workload.places.keys)
