# SPDX-License-Identifier: Apache-2.0
"""Strikes that are written out: timed ones, and those that wait for an event; and `effective.toml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.generator import Context, Invocation, Pending, any_, clients, script
from harness.nemesis.effective import FILE, by_times, effective, write_effective
from harness.nemesis.events import check_trigger, event_of, generator, meets
from harness.plan.plan import Plan, PlanError
from harness.run.simulate import simulate
from results.history import History
from results.op import CALM, NEMESIS, ROLE_CHANGED, Op
from results.strikes import Strike

S = 1_000_000_000
CHANGED = {"of": "a", "node": "n2"}


def nemesis(f: str, at_s: float, value: Any, index: int = 0, type_: Any = "info") -> Op:
    return Op(index, round(at_s * S), NEMESIS, type_, f, None, value)


def asked(strikes: list[Strike], events: list[Op], until_s: float = 60) -> list[tuple[float, str, int]]:
    """(second, op, id) of what the nemesis is asked, when these events happen; each op takes no time."""
    gen = generator(strikes)
    found: list[tuple[float, str, int]] = []
    now, left = 0, sorted(events, key=lambda op: op.time)
    while now <= until_s * S:
        ctx = Context.start(2)._replace(time=now)
        step = gen.op(ctx)
        if step is None:
            break
        what, gen = step
        if not isinstance(what, Pending):
            assert what.process == NEMESIS
            found.append((now / S, what.f, what.value["id"]))
            continue
        waits = [what.until] if what.until is not None else []
        waits += [left[0].time] if left else []
        if not waits:
            break
        now = max(now, min(waits))
        while left and left[0].time <= now:
            event = left.pop(0)
            gen = gen.update(ctx._replace(time=event.time), event)
    return found


def test_timed_strikes_overlap_and_end_when_the_plan_says() -> None:
    strikes = [Strike(1, "x", "n1", 10.0, at_s=2.0), Strike(2, "y", "n2", 3.0, at_s=5.0)]
    assert asked(strikes, []) == [(2, "inject", 1), (5, "inject", 2), (8, "heal", 2), (12, "heal", 1)]


def test_a_strike_follows_its_event() -> None:
    strikes = [Strike(1, "x", "master", 5.0, after="role-changed", delay_s=1.5)]
    events = [nemesis(ROLE_CHANGED, 7, CHANGED), nemesis(ROLE_CHANGED, 8, CHANGED)]
    assert asked(strikes, events) == [(8.5, "inject", 1), (13.5, "heal", 1)]


def test_events_from_before_the_strike_before_do_not_count() -> None:
    strikes = [
        Strike(1, "x", "n1", 1.0, at_s=5.0),
        Strike(2, "y", "n2", 1.0, after="role-changed:a"),
    ]
    events = [nemesis(ROLE_CHANGED, 2, CHANGED), nemesis(ROLE_CHANGED, 9, {"of": "b", "node": "n2"})]
    assert asked(strikes, events) == [(5, "inject", 1), (6, "heal", 1)]
    assert asked(strikes, [*events, nemesis(ROLE_CHANGED, 20, CHANGED)])[2:] == [(20, "inject", 2), (21, "heal", 2)]


def test_an_event_that_does_not_come_in_time_is_told() -> None:
    strikes = [Strike(1, "x", "n1", 1.0, after="died", within_s=10.0), Strike(2, "y", "n1", 1.0, at_s=12.0)]
    assert asked(strikes, []) == [(10, "skip", 1), (12, "inject", 2), (13, "heal", 2)]


def test_a_timed_strike_whose_time_is_over_is_told() -> None:
    """The one before waits for its event, and those behind it wait as well."""
    strikes = [
        Strike(1, "x", "n1", 1.0, after="died", within_s=10.0),
        Strike(2, "y", "n1", 3.0, at_s=4.0),
        Strike(3, "z", "n1", 5.0, at_s=8.0),
    ]
    assert asked(strikes, []) == [(10, "skip", 1), (10, "skip", 2), (10, "inject", 3), (13, "heal", 3)]


def test_an_answer_of_a_client_is_an_event() -> None:
    strikes = [Strike(1, "x", "n1", 1.0, after="answer:send info")]
    ok = Op(0, 3 * S, 0, "ok", "send", "q", [1, 1])
    info = Op(1, 4 * S, 0, "info", "send", "q", 2, "no answer within 4 s")
    assert asked(strikes, [ok, info])[0] == (4, "inject", 1)
    assert event_of(info) == ("answer", "send info no answer within 4 s")
    assert event_of(Op(0, 0, 0, "invoke", "send")) is None


def test_the_ops_go_to_the_nemesis_beside_a_load() -> None:
    load = clients(script([(second, Invocation("read", "k")) for second in range(1, 9)]))
    ops = list(simulate(any_(load, generator([Strike(1, "x", "n1", 3.0, at_s=2.0)]))))
    mine = [(op.time // S, op.f) for op in ops if op.type == "invoke" and op.process == NEMESIS]
    assert mine == [(2, "inject"), (5, "heal")]
    assert sum(op.f == "read" and op.type == "invoke" for op in ops) == 8


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("role-changd", "no event 'role-changd'; did you mean 'role-changed'?"),
        ("log", "needs a text"),
        ("", "no event"),
    ],
)
def test_an_event_that_there_is_not_is_said(after: str, said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        check_trigger(after, "strike 1")
    check_trigger("healed:3", "strike 1")


def test_a_run_is_written_out_as_it_struck(tmp_path: Path) -> None:
    plan = Plan(seed=4)
    drawn = Strike(1, "bridge", "n2", 4.0, 99, at_s=5.0, options={"a": 1})
    ops = [
        nemesis(CALM, 4.0, {}, 0),
        nemesis("inject", 5.0, drawn.to_inject(), 1, "invoke"),
        nemesis("inject", 5.5, {**drawn.to_heal(), "seen": True}, 2),
        nemesis(ROLE_CHANGED, 19.0, CHANGED, 3),
        nemesis("inject", 20.5, Strike(2, "bridge", "master", 3.0, 7).to_inject(), 4, "invoke"),
    ]
    made = effective(plan, History(ops))
    assert made.nemeses == ()
    assert made.strikes == (
        Strike(1, "bridge", "n2", 4.0, 99, at_s=5.0, options={"a": 1}),
        Strike(2, "bridge", "master", 3.0, 7, 20.5, "role-changed:a", 1.5, plan.time_limit_s),
    )
    write_effective(plan, History(ops), tmp_path)
    again = Plan.read(tmp_path / FILE)
    assert again == made
    assert [strike.after for strike in by_times(again).strikes] == [None, None]
    assert meets("role-changed:a", ("role-changed", "a n5"))
