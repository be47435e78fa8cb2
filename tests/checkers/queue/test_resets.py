# SPDX-License-Identifier: Apache-2.0
"""Resets of a group's offsets, by hand: what must come again, what may, and what a reset does not excuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.base.schema import BadOp
from checkers.messages.log import LogAnomalies
from checkers.messages.queue import Deliveries, Leases, Offsets, Replays
from results.deployment import DeploymentRecord
from results.op import OpType
from results.record import Observation, RunRecord
from results.verdict import Verdict

Q = "t:a:0"
S = 1_000_000_000


class Story(TimedStory):
    """Group `g` has consumed and committed six messages of a queue by 4 s; message n is at offset n - 1."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [Observation(s * S, "n1", "leader", term=1, extra={"broker_name": "a"}) for s in range(40)]
        for n in range(6):
            self.call(0.1 * n, "send", Q, n + 1, [n, n + 1], node="n1")
        self.consume(1, 0, 3)
        self.consume(2, 3, 6)
        self.commit(3, 6)

    def consume(self, at: float, begin: int, end: int, **more: Any) -> None:
        shown = [[n, n + 1] for n in range(begin, end)]
        self.call(at, "consume", Q, begin, shown, process=0, group="g", node="n1", **more)

    def moved(self, at: float, requested: int, to: int, queue: str = Q) -> None:
        answer: dict[str, Any] = {"node": "n1", "code": 21, "min": 0, "max": 6, "next": to}
        self.call(at, "consume", queue, requested, [], process=0, group="g", **answer)

    def commit(self, at: float, offset: int) -> None:
        self.call(at, "commit", Q, offset, offset, process=0, group="g", node="n1")

    def reset(self, at: float, to: int | None, type_: OpType = "ok", queue: str = Q, group: str = "g") -> None:
        got: Any = {queue: to} if type_ == "ok" else to
        self.call(at, "reset", queue, to, got, type_, process=9, group=group, node="n1", to="offset")

    def query(self, at: float, offset: int) -> None:
        self.call(at, "committed", Q, None, offset, process=0, group="g", node="n1")

    def finish(self, count: int = 6) -> RunRecord:
        """The run, with this number of messages in the end."""
        shown = [[n, n + 1] for n in range(count)]
        about: dict[str, Any] = {"min": 0, "max": count, "next": count, "done": True, "phase": "final"}
        self.call(20, "replica-read", Q, 0, shown, node="n1", **about)
        drained = {"committed": count, "max": count, "consumed_to": count}
        self.call(19, "drain", Q, None, drained, process=0, group="g", node="n1")
        return self.run(observations=self.seen)


def found(story: Story) -> set[str]:
    record = story.finish()
    results = [judge.check(record) for judge in (Replays(), Deliveries(), LogAnomalies(), Offsets())]
    return {a.name for result in results for a in result.anomalies if a.legal is None}


def test_what_a_reset_goes_back_to_comes_again() -> None:
    story = Story()
    story.reset(5, 2)
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)
    story.commit(8, 6)
    record = story.finish()
    replays, deliveries = Replays().check(record), Deliveries().check(record)
    assert (replays.verdict, replays.stats["replayed"], replays.stats["back"]) == (Verdict.VALID, 4, 1)
    assert deliveries.verdict == Verdict.VALID
    assert {e.rule: e.used for e in deliveries.excuses} == {}
    assert [(a.name, a.details["count"]) for a in deliveries.anomalies if a.legal] == [("redelivered", 4)]


def test_a_reset_without_effect() -> None:
    story = Story()
    story.reset(5, 2)
    record = story.finish()
    result = Replays().check(record)
    assert (result.verdict, names([result])) == (Verdict.INVALID, {"not-replayed"})
    assert "4 of 4 did not come again to group g after the reset to offset 2 of t:a:0" in result.anomalies[0].summary


@pytest.mark.parametrize(
    ("at", "error", "named"),
    [(6, "timed out: n1", True), (6, "nothing was sent: refused", False), (4, "timed out: n1", False)],
)
def test_a_pull_without_an_answer_is_named(at: float, error: str, named: bool) -> None:
    story = Story()
    story.reset(5, 2)
    story.call(at, "consume", Q, 6, None, "fail", process=0, group="g", node="n1", error=error)
    (found,) = Replays().check(story.finish()).anomalies
    assert ("a pull at 00:06.0 that got no answer may have taken the reset" in found.summary) == named
    assert found.legal is None


def test_a_reset_that_brings_back_too_little() -> None:
    story = Story()
    story.reset(5, 2)
    story.moved(6, 6, 2)
    story.consume(7, 4, 6)
    story.reset(10, 0)
    story.consume(11, 0, 6)
    assert found(story) == {"not-replayed"}


@pytest.mark.parametrize(("type_", "wrong"), [("ok", set()), ("info", set()), ("fail", {"not-replayed"})])
def test_a_later_reset_passes_over(type_: OpType, wrong: set[str]) -> None:
    story = Story()
    story.reset(5, 2)
    story.reset(6, 6, type_)
    assert found(story) == wrong


@pytest.mark.parametrize("type_", ["ok", "info"])
def test_a_reset_permits_redelivery_also_without_an_answer(type_: OpType) -> None:
    story = Story()
    story.reset(5, 2, type_)
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)
    result = Deliveries().check(story.finish())
    assert [(a.name, a.legal is None, a.details["count"]) for a in result.anomalies] == [("redelivered", False, 4)]


def below_its_target(story: Story) -> None:
    story.reset(5, 4)
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)


def of_another_queue(story: Story) -> None:
    story.reset(5, 2, queue="t:a:1")
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)


def of_another_group(story: Story) -> None:
    story.reset(5, 2, group="h")
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)


def that_was_refused(story: Story) -> None:
    story.reset(5, 2, "fail")
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)


def that_had_its_effect(story: Story) -> None:
    story.reset(5, 2)
    story.moved(6, 6, 2)
    story.consume(7, 2, 6)
    story.commit(8, 6)
    story.moved(9, 6, 2)
    story.consume(10, 2, 6)


@pytest.mark.parametrize(
    "case", [below_its_target, of_another_queue, of_another_group, that_was_refused, that_had_its_effect]
)
def test_no_redelivery_is_excused_by_a_reset(case: Callable[[Story], None]) -> None:
    story = Story()
    case(story)
    result = Deliveries().check(story.finish())
    assert "redelivered" in {a.name for a in result.anomalies if a.legal is None}


def late(story: Story, to: int | None, type_: OpType = "ok") -> None:
    """Two more messages; the group gets only the second one, after a reset."""
    for n in (6, 7):
        story.call(4 + n / 10, "send", Q, n + 1, [n, n + 1], node="n1")
    if to is not None:
        story.reset(5, to, type_)
        story.moved(6, 6, 7)
    story.consume(7, 7, 8)
    story.commit(8, 8)


@pytest.mark.parametrize(
    ("to", "type_", "expected"),
    [
        pytest.param(None, "ok", {"lost-to-group"}, id="no reset"),
        pytest.param(7, "ok", set(), id="passed over"),
        pytest.param(7, "info", set(), id="perhaps passed over"),
        pytest.param(7, "fail", {"lost-to-group"}, id="refused"),
        pytest.param(6, "ok", {"skipped-by-reset"}, id="skipped"),
    ],
)
def test_a_message_between_the_offset_and_the_target(to: int | None, type_: OpType, expected: set[str]) -> None:
    story = Story()
    late(story, to, type_)
    result = Deliveries().check(story.finish(8))
    assert names([result]) == expected
    assert {e.rule: e.used for e in result.excuses} == ({} if expected else {"passed-over": 1})


def test_a_message_that_a_later_reset_went_back_to_was_not_passed_over() -> None:
    story = Story()
    late(story, 7)
    story.reset(9, 6)
    assert names([Deliveries().check(story.finish(8))]) == {"lost-to-group"}


@pytest.mark.parametrize(
    ("killed_at", "node", "legal"),
    [
        pytest.param(10, "n1", True, id="soon"),
        pytest.param(15.5, "n1", False, id="later than a copy takes"),
        pytest.param(10, "n7", False, id="elsewhere"),
        pytest.param(4, "n1", False, id="before the reset"),
    ],
)
def test_a_fault_may_undo_a_reset(killed_at: float, node: str, legal: bool) -> None:
    story = Story()
    story.reset(5, 2)
    story.fault(killed_at, killed_at + 0.5, node, impairs={node: [node]})
    record = replace(story.finish(), deployment=DeploymentRecord("toy", {"n1": ""}, groups={"a": ["n1"]}))
    result = Replays(copied_within_s=10).check(record)
    assert [(a.name, a.legal is not None) for a in result.anomalies] == [("not-replayed", legal)]


def test_a_slow_disk_undoes_no_reset() -> None:
    story = Story()
    story.reset(5, 2)
    story.fault(6, 7, "n1", effects=[{"kind": "slow", "node": "n1"}])
    assert found(story) == {"not-replayed"}


def test_a_reset_is_what_the_broker_knows_until_a_pull() -> None:
    story = Story()
    story.reset(5, 2)
    story.query(6, 2)
    story.commit(7, 6)  # ignored
    story.query(8, 2)
    story.moved(9, 6, 2)
    story.consume(10, 2, 5)
    story.commit(11, 5)
    story.query(12, 5)
    assert Offsets().check(story.finish()).verdict == Verdict.VALID


@pytest.mark.parametrize(
    ("said", "name"), [(6, "committed-offset-jump"), (0, "committed-offset-regression"), (2, None)]
)
def test_a_broker_that_does_not_know_a_reset(said: int, name: str | None) -> None:
    story = Story()
    story.reset(5, 2)
    story.query(6, said)
    assert names([Offsets().check(story.finish())]) == ({name} if name else set())


def test_from_the_pull_on_commits_count_again() -> None:
    story = Story()
    story.reset(5, 2)
    story.moved(6, 6, 2)
    story.consume(7, 2, 5)
    story.commit(8, 5)
    story.query(9, 2)
    assert names([Offsets().check(story.finish())]) == {"committed-offset-regression"}


def test_an_answer_that_leads_on_by_a_reset_skips_nothing() -> None:
    story = Story()
    story.reset(1.5, 5)
    story.moved(1.6, 3, 5)
    result = LogAnomalies().check(story.finish())
    assert (names([result]), {e.rule: e.used for e in result.excuses}) == (set(), {"moved-by-reset": 1})
    story = Story()
    story.reset(1.5, 4)
    story.moved(1.6, 3, 5)
    assert names([LogAnomalies().check(story.finish())]) == {"poll-skip"}


class Pops(TimedStory):
    """Message 1 is popped and acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.pop(1, "h1")
        self.ack(2, "h1")

    def pop(self, at: float, handle: str, copy: bool = False) -> None:
        where = ["%RETRY%g_t:a:0", 3] if copy else [Q, 0]
        answer = {"node": "n1", "group": "g", "invisible_ms": 6000}
        self.call(at, "pop", "t:a:-1", None, [[*where, 1, handle, int(copy), 0]], process=0, **answer)

    def ack(self, at: float, handle: str) -> None:
        self.call(at, "ack", Q, [handle], [handle], process=0, group="g", id=1, node="n1")

    def reset(self, at: float, to: int, type_: OpType = "ok") -> None:
        got: Any = {Q: to} if type_ == "ok" else to
        self.call(at, "reset", Q, to, got, type_, process=9, group="g", node="n1", to="offset")

    def wrong(self) -> list[tuple[str, bool]]:
        return [(a.name, a.legal is None) for a in Leases().check(self.run()).anomalies]


@pytest.mark.parametrize(
    ("to", "type_", "wrong"), [(0, "ok", False), (0, "info", False), (1, "ok", True), (0, "fail", True)]
)
def test_a_reset_brings_an_acknowledged_message_once_more(to: int, type_: OpType, wrong: bool) -> None:
    story = Pops()
    story.reset(3, to, type_)
    story.pop(4, "h2")
    story.ack(5, "h2")
    assert story.wrong() == [("acked-redelivered", wrong)]


def test_one_reset_explains_one_delivery() -> None:
    story = Pops()
    story.reset(3, 0)
    story.pop(4, "h2")
    story.ack(5, "h2")
    story.pop(6, "h3")
    assert ("acked-redelivered", True) in story.wrong()


@pytest.mark.parametrize(("acked", "wrong"), [(False, False), (True, True)])
def test_what_came_by_a_reset_returns_if_it_is_not_acknowledged(acked: bool, wrong: bool) -> None:
    story = Pops()
    story.reset(3, 0)
    story.pop(4, "h2")
    if acked:
        story.ack(5, "h2")
    story.pop(11, "h3", copy=True)
    assert (("acked-redelivered", True) in story.wrong()) == wrong


@pytest.mark.parametrize(
    ("sent_at", "clock_set_at", "expected"), [(6.5, None, True), (5.5, None, False), (6.5, 2, False), (6.5, 9, True)]
)
def test_a_reset_to_a_time_leaves_out_nothing_later(sent_at: float, clock_set_at: float | None, expected: bool) -> None:
    """Only a clock that was set before the reset excuses it."""
    story = Story()
    story.call(sent_at, "send", Q, 7, [6, 7], node="n1")
    to_time: dict[str, Any] = {"group": "g", "node": "n1", "to": "time", "ago_ms": 3000}
    story.call(8, "reset", "t:a:-1", None, {Q: 7}, process=9, **to_time)
    if clock_set_at is not None:
        story.fault(clock_set_at, clock_set_at + 1, "n1", fault="clock-step")
    result = Replays().check(story.finish(7))
    assert [(a.name, a.legal is None) for a in result.anomalies] == (
        [("wrong-reset-time", True)] if expected else [("wrong-reset-time", False)] if clock_set_at is not None else []
    )


@pytest.mark.parametrize(("node", "counts"), [("n1", False), ("n2", True)])
def test_only_a_clock_of_the_group_excuses_a_reset_to_a_time(node: str, counts: bool) -> None:
    story = Story()
    story.call(6.5, "send", Q, 7, [6, 7], node="n1")
    story.call(8, "reset", "t:a:-1", None, {Q: 7}, process=9, group="g", node="n1", to="time", ago_ms=3000)
    story.fault(2, 3, node, fault="clock-step")
    record = replace(story.finish(7), deployment=DeploymentRecord("toy", groups={"a": ["n1"], "b": ["n2"]}))
    assert [anomaly.legal is None for anomaly in Replays().check(record).anomalies] == [counts]


def test_a_history_without_resets() -> None:
    assert Replays().check(Story().finish()).verdict == Verdict.VALID


def test_malformed_resets_are_named() -> None:
    story = Story()
    story.call(5, "reset", Q, 2, {Q: "2"}, group="g", node="n1")
    with pytest.raises(BadOp, match="a reset is answered with the new offset"):
        Replays().check(story.finish())
