# SPDX-License-Identifier: Apache-2.0
"""A queue may stand still only for so long while messages wait: each excuse is looked up, and has its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkers.messages.consuming.stalled import Progress
from results.record import Observation
from results.verdict import CheckResult, Verdict
from tests.sim.consumers import USUAL
from tests.stories import S, TimedStory

KEY = "t:a:0"
END_S = 200.0


class Told:
    """Message 1 comes at 2 s. Message 2 is acknowledged at 10 s and comes at `came`; m0 and m1 are members since 0.2 s.
    What else happens is added to `events` (member -> time in s, event) and to `story`.
    """

    def __init__(self, came: float | None, *, tag: str = "a", stored: bool = True, worked: float = 2.1) -> None:
        self.came, self.tag, self.stored = came, tag, stored
        self.story = TimedStory()
        self.events: dict[str, list[tuple[float, list[Any]]]] = {}
        self.masters = {0: "n1"}
        self.lives = {"m0": 1, "m1": 1}
        self.gone: set[str] = set()
        for member in self.lives:
            self.join(0.1, member, 1)
        self.events["m0"] += [(2, ["delivered", 1, KEY, 0, 1, 0, "a"]), (worked, ["done", 1, True])]

    def join(self, at: float, member: str, life: int) -> None:
        self.story.call(at, "join", None, None, f"{member}-{life}", group="g", member=member)
        self.lives[member] = life
        self.gone.discard(member)
        self.events.setdefault(member, []).append((at + 0.1, ["started", f"{member}-{life}"]))
        self.events[member].append((at + 0.1, ["queues", [KEY]]))

    def end(self, at: float, member: str) -> None:
        """Its process is killed; its events until then are shown."""
        self._show(at, "crash", member)
        self.gone.add(member)

    def _show(self, at: float, f: str, member: str) -> None:
        events = sorted(self.events.pop(member, []), key=lambda event: event[0])
        shown = [[kind, int((at + 0.01 - when) * S), self.lives[member], *rest] for when, (kind, *rest) in events]
        self.story.call(at, f, None, None, shown, group="g", member=member)

    def judge(self, within_s: float = 20, **how: Any) -> CheckResult:
        """The verdict, by a limit of 20 s."""
        for n, (at, tag) in enumerate(((1, "a"), (9.99, self.tag))):
            asked = {"properties": {"TAGS": tag}}
            self.story.call(at, "send", KEY, n + 1, [n, n + 1], node="n1", ask=asked)
        if self.came is not None:
            self.events["m0"] += [(self.came, ["delivered", 9, KEY, 1, 2, 0, self.tag])]
            self.events["m0"] += [(self.came + 0.01, ["done", 9, True])]
        for member in self.lives:
            if member not in self.gone:
                self._show(END_S, "take", member)
        shown = [[0, 1], [1, 2]][: 1 + self.stored]
        about = {"min": 0, "max": len(shown), "next": len(shown), "done": True, "phase": "final", "node": "n1"}
        self.story.call(END_S + 1, "replica-read", KEY, 0, shown, **about)
        masters = [
            Observation(s * S, next(n for at, n in sorted(self.masters.items(), reverse=True) if at <= s), "leader",
                        term=1, extra={"broker_name": "a"})
            for s in range(int(END_S))
        ]  # fmt: skip
        return Progress(within_s, **how).check(self.story.run(observations=masters))


def names(result: CheckResult) -> list[str]:
    return [anomaly.name for anomaly in result.anomalies]


def test_a_queue_that_stands_still_for_too_long() -> None:
    """Just within the limit is silent, and its time is in the statistics; just beyond it is found, also at the end."""
    within = Told(29.9).judge()
    assert (within.verdict, within.stats) == (Verdict.VALID, {"queues": 1, "longest_s": 19.9})
    for came in (30.1, None):
        beyond = Told(came).judge()
        assert (beyond.verdict, names(beyond)) == (Verdict.INVALID, ["queue-stalled"])
        assert beyond.excuses == []
        assert "1 message waited, the first 2 at offset 1" in beyond.anomalies[0].summary
        assert "m0 (process 1), m1 (process 1)" in beyond.anomalies[0].summary


def test_only_messages_for_the_group_that_are_stored_wait() -> None:
    assert Told(None, tag="c").judge(wanted=frozenset("ab")).verdict == Verdict.VALID
    assert Told(None, stored=False).judge().verdict == Verdict.VALID, "lost: another judge reports it"


def fault(told: Told) -> None:
    told.story.fault(12, 15, "n1")


def failover(told: Told) -> None:
    told.masters[15] = "n2"


def killed(told: Told) -> None:
    told.end(15, "m1")


def joined(told: Told) -> None:
    told.join(14.9, "m2", 1)


def absent(told: Told) -> None:
    told.end(11, "m1")
    told.end(12, "m0")
    told.join(24.9, "m0", 2)


def reset(told: Told) -> None:
    told.story.call(14.99, "reset", KEY, 0, {KEY: 0}, node="n1", group="g", to="offset")


def mode(told: Told) -> None:
    told.story.call(14.99, "mode", None, "POP", "POP", group="g")


def settings(told: Told, at: float, f: str, value: Any) -> None:
    told.story.call(at, f, None, value, value, group="g", acked=["n1"], unsure=[])


def off(told: Told) -> None:
    settings(told, 12, "update-group", {**USUAL, "consumeEnable": False})
    settings(told, 14.99, "update-group", USUAL)


def deleted(told: Told) -> None:
    settings(told, 12, "delete-group", "delete")
    settings(told, 14.99, "update-group", USUAL)


@pytest.mark.parametrize(
    ("what", "since", "why"),
    [
        (fault, 45, "a fault or a change of the master"),
        (failover, 45, "a fault or a change of the master"),
        (killed, 15, "a member came or went"),
        (joined, 15, "a member came or went"),
        (absent, 25, "no member was there"),
        (reset, 15, "an administrator reset the queue"),
        (mode, 75, "a change of the mode"),
        (off, 20, "the group may have been off"),
        (deleted, 50, "the group may have been off"),
    ],
)
def test_after_a_disturbance_the_time_begins_again(what: Callable[[Told], None], since: float, why: str) -> None:
    """Each excuse holds until the limit after its end, is counted, and covers nothing that lasts longer."""
    excused, wrong = Told(since + 19.8), Told(since + 20.2)
    for told in (excused, wrong):
        what(told)
    result = excused.judge()
    assert (result.verdict, names(result)) == (Verdict.VALID, []), [a.summary for a in result.anomalies]
    reasons = {excuse.why: excuse for excuse in result.excuses}
    found = next(excuse for reason, excuse in reasons.items() if reason.startswith(why))
    assert (found.rule, found.used, found.bound_s) == ("queue-stalled", 1, 20)
    assert found.nearest_s == pytest.approx(19.8, abs=0.11)
    assert names(wrong.judge()) == ["queue-stalled"]


def test_work_on_one_message_may_hold_up_the_queue() -> None:
    """A member that works on a message for longer than 5 s, and no other work."""
    assert [e.used for e in Told(49.8, worked=30).judge().excuses] == [1]
    assert names(Told(50.2, worked=30).judge()) == ["queue-stalled"]
    assert names(Told(30.1, worked=6).judge()) == ["queue-stalled"], "it was over when message 2 came"
    assert [e.used for e in Told(49.8, worked=30).judge(holds=False, in_order=True).excuses] == [1]
    assert names(Told(49.8, worked=30).judge(holds=False)) == ["queue-stalled"], "pops in any order do not wait for it"


def test_a_reset_may_pass_over_what_waits() -> None:
    """Only one that goes beyond the message does, and it is counted."""
    passed, not_passed = Told(None), Told(None)
    for told, to in ((passed, 2), (not_passed, 1)):
        told.story.call(11, "reset", KEY, to, {KEY: to}, node="n1", group="g", to="offset")
    result = passed.judge()
    assert result.verdict == Verdict.VALID
    assert "an administrator had reset the offset above the message" in [excuse.why for excuse in result.excuses]
    assert names(not_passed.judge()) == ["queue-stalled"]


def test_a_member_that_comes_takes_nothing_from_one_that_pops() -> None:
    """A member that pops needs no queue. One that is killed may have popped messages, which come again later."""
    more, fewer = Told(34.8), Told(34.8)
    joined(more)
    killed(fewer)
    assert names(more.judge(holds=False)) == ["queue-stalled"]
    result = fewer.judge(holds=False)
    assert (names(result), [excuse.used for excuse in result.excuses]) == ([], [1])


@pytest.mark.parametrize(("in_order", "wrong"), [(False, True), (True, False)])
def test_a_message_that_comes_again_is_from_a_retry_topic(in_order: bool, wrong: bool) -> None:
    """With pops in order it is from its queue, which so goes on."""
    told = Told(35)
    told.events["m1"] += [(20, ["delivered", 7, KEY, 0, 1, 1, "a"]), (20.1, ["done", 7, True])]
    assert names(told.judge(holds=False, in_order=in_order)) == (["queue-stalled"] if wrong else [])
