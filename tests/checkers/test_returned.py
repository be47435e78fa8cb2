# SPDX-License-Identifier: Apache-2.0
"""Messages that no member has come in time to a group without work: each excuse is looked up, and has its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkers.messages.consuming.returned import Returned
from results.record import Observation
from results.verdict import CheckResult, Verdict
from tests.sim.consumers import USUAL
from tests.stories import S, TimedStory

KEY = "t:a:0"
END_S = 200.0


class Hidden:
    """Message 1 is acknowledged at 4 s. m0, which may have it, is killed at 5 s; m1 gets the message at `came` (None:
    never). Both are members since 0.2 s. What else happens is added to `events` (member -> time in s, event) and to
    `story`.

    had   what m0 reports about the message before its end.
    """

    def __init__(self, came: float | None, had: str = "") -> None:
        self.story = TimedStory()
        self.events: dict[str, list[tuple[float, list[Any]]]] = {}
        self.masters = {0: "n1"}
        self.lives = {"m0": 0, "m1": 0, "m2": 0}
        self.there: set[str] = set()
        self.join(0.1, "m0")
        self.join(0.1, "m1")
        self.story.call(3.99, "send", KEY, 1, [0, 1], node="n1", ask={"properties": {"TAGS": "a"}})
        if had:
            self.events["m0"].append((4.5, ["delivered", 1, KEY, 0, 1, 0, "a"]))
        if had == "acking":
            self.events["m0"].append((4.6, ["acking", 1]))
        if had in ("failed", "done"):
            self.events["m0"].append((4.6, ["done", 1, had == "done"]))
        self.end(5, "m0")
        if came is not None:
            self.works("m1", came, 0.01, 1)

    def join(self, at: float, member: str) -> None:
        self.lives[member] += 1
        self.there.add(member)
        self.story.call(at, "join", None, None, f"{member}-{self.lives[member]}", group="g", member=member)
        self.events[member] = [(at + 0.1, ["started", f"{member}-{self.lives[member]}"])]

    def works(self, member: str, at: float, seconds: float, identity: int = 7) -> None:
        n = 10 + len(self.events[member])
        self.events[member].append((at, ["delivered", n, KEY, identity - 1, identity, 0, "a"]))
        self.events[member].append((at + seconds, ["done", n, True]))

    def end(self, at: float, member: str, f: str = "crash") -> None:
        """Its process is killed; its events until then are shown."""
        events = sorted(self.events.pop(member), key=lambda event: event[0])
        shown = [[kind, int((at + 0.01 - when) * S), self.lives[member], *rest] for when, (kind, *rest) in events]
        self.story.call(at, f, None, None, shown, group="g", member=member)
        self.there.discard(member)

    def judge(self, within_s: float = 20) -> CheckResult:
        """The verdict, by a limit of 20 s."""
        for member in sorted(self.there):
            self.end(END_S, member, "take")
        about = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
        self.story.call(END_S + 1, "replica-read", KEY, 0, [[0, 1]], **about)
        masters = [
            Observation(s * S, next(n for at, n in sorted(self.masters.items(), reverse=True) if at <= s), "leader",
                        term=1, extra={"broker_name": "a"})
            for s in range(int(END_S))
        ]  # fmt: skip
        return Returned(within_s).check(self.story.run(observations=masters))


def names(result: CheckResult) -> list[str]:
    return [anomaly.name for anomaly in result.anomalies]


@pytest.mark.parametrize("had", ["", "working"])
def test_what_a_killed_member_had_comes_in_time(had: str) -> None:
    """Just within the limit after its end is silent, and its time is in the statistics; just beyond it is found."""
    within = Hidden(25.9, had).judge(21)
    assert (within.verdict, within.stats["longest_s"]) == (Verdict.VALID, 0 if had else 20.9)
    beyond = Hidden(25.9, had).judge()
    assert (beyond.verdict, names(beyond), beyond.stats["waits"]) == (Verdict.INVALID, ["returned-late"], 1)
    text = "which m0 (process 1) had at its end, at 00:05.0" if had else "acknowledged at 00:04.0"
    assert f"message 1, {text}, came to m1 (process 1) at 00:25.9; from 00:05.0 to" in beyond.anomalies[0].summary
    assert beyond.excuses == []


@pytest.mark.parametrize(("came", "had"), [(None, "working"), (99, "acking"), (99, "failed"), (99, "done")])
def test_only_what_no_member_has_and_what_comes_is_judged(came: float | None, had: str) -> None:
    """A message that never comes, one that may be acknowledged, one that failed and has a delay: others judge them."""
    result = Hidden(came, had).judge()
    assert (result.verdict, result.stats["waits"], result.excuses) == (Verdict.VALID, 0, [])


def fault(told: Hidden) -> None:
    told.story.fault(12, 15, "n1")


def failover(told: Hidden) -> None:
    told.masters[15] = "n2"


def killed(told: Hidden) -> None:
    told.join(0.3, "m2")
    told.end(15, "m2")


def absent(told: Hidden) -> None:
    later, told.events["m1"] = told.events["m1"][-2:], told.events["m1"][:-2]
    told.end(6, "m1")
    told.join(14.9, "m1")
    told.events["m1"] += later


def reset(told: Hidden) -> None:
    told.story.call(14.99, "reset", KEY, 0, {KEY: 0}, node="n1", group="g", to="offset")


def off(told: Hidden) -> None:
    for at, value in ((12, {**USUAL, "consumeEnable": False}), (14.99, USUAL)):
        told.story.call(at, "update-group", None, value, value, group="g", acked=["n1"], unsure=[])


def busy(told: Hidden) -> None:
    told.works("m1", 14.5, 0.5)


@pytest.mark.parametrize(
    ("what", "since", "why"),
    [
        (fault, 45, "a fault or a change of the master"),
        (failover, 45, "a fault or a change of the master"),
        (killed, 15, "a member was ended"),
        (absent, 15, "no member was there"),
        (reset, 15, "an administrator reset the queue"),
        (off, 20, "the group may have been off"),
        (busy, 15, "the group got or worked on other messages"),
    ],
)
def test_after_a_disturbance_the_time_begins_again(what: Callable[[Hidden], None], since: float, why: str) -> None:
    """Each excuse holds until the limit after its end, is counted, and covers nothing that lasts longer."""
    excused, wrong = Hidden(since + 19.8), Hidden(since + 20.2)
    for told in (excused, wrong):
        what(told)
    result = excused.judge()
    assert (result.verdict, names(result)) == (Verdict.VALID, []), [a.summary for a in result.anomalies]
    found = next(excuse for excuse in result.excuses if excuse.why.startswith(why))
    assert (found.rule, found.used, found.bound_s) == ("returned-late", 1, 20)
    assert found.nearest_s == pytest.approx(19.8, abs=0.11)
    assert names(wrong.judge()) == ["returned-late"]
