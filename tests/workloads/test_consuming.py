# SPDX-License-Identifier: Apache-2.0
"""Consumers of a group on several broker groups: each group has a master of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import harness.generator as gen
from harness.generator.context import Context
from results.op import Op
from workloads.consuming import Consumers, Session, after

KEYS = ("t:a:0", "t:b:0", "t:b:1")


def answer(f: str, key: str, value: Any, node: str) -> Op:
    return Op(0, 0, 0, "ok", f, key, value, extra={"group": "g", "node": node})


def test_a_change_of_one_groups_master_asks_for_that_groups_offsets() -> None:
    session = Session(held=KEYS)
    for key, node in zip(KEYS, ("n1", "n3", "n3"), strict=True):
        session = after(session, answer("committed", key, 5, node), 0)
    assert session.probes == frozenset()
    session = after(session, answer("consume", KEYS[1], [[5, 9]], "n4"), 0)
    assert session.probes == {"t:b:0", "t:b:1"}
    assert after(session, answer("committed", KEYS[2], 5, "n4"), 0).probes == {"t:b:0"}
    assert after(session, answer("consume", KEYS[0], [], "n1"), 0).probes == session.probes


def test_a_consumer_of_two_groups_consumes() -> None:
    """It asked for committed offsets for ever: each answer came from another master than the one before."""
    source = gen.limit(60, Consumers("g", KEYS, seed=1))
    ctx, done = Context.start(1, nemesis=False), Counter[str]()
    generator: Any = source
    while (step := generator.op(ctx)) is not None:
        what, generator = step
        done[what.f] += 1
        value = what.value if what.f == "assign" else [] if what.f == "consume" else 0
        node = "n1" if what.key == KEYS[0] else "n3"
        event = Op(0, ctx.time, 0, "ok", what.f, what.key, value, extra={"group": "g", "node": node})
        generator = generator.update(ctx._replace(turn=ctx.turn + 1), event)
        ctx = ctx._replace(turn=ctx.turn + 1, time=ctx.time + 10**9)
    assert done["committed"] <= 9
    assert done["consume"] > 40
