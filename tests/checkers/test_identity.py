# SPDX-License-Identifier: Apache-2.0
"""The identity of brokers, by hand: what is permitted after what, and from when on a broker must run."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.controllers.identity import BrokerIdentity
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
HOME = {"node": "n4", "address": "h:1"}


class Story:
    """One trial; each op takes a tenth of a second."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def op(self, at: float, f: str, value: Any = None, member: int = 0, type_: Any = "ok", **extra: Any) -> Story:
        about = {"row": "r", "member": member, **extra}
        for time, type_of, said in ((at, "invoke", value if f in ("arm", "clean") else None), (at + 0.1, type_, value)):
            self.ops.append(Op(len(self.ops), int(time * S), 0, type_of, f, "t1", said, None, about))
        return self

    def start(self, at: float, member: int = 0, address: str = "h:1") -> Story:
        if not any(op.f == "enter" and op.extra["member"] == member for op in self.ops):
            self.op(at - 0.2, "enter", HOME, member)
        return self.op(at, "start", {"node": "n4", "address": address}, member)

    def look(self, at: float, identity: int | None, state: str = "RUNNING", member: int = 0, up: bool = True) -> Story:
        return self.op(at, "look", {"up": up, "temp": None, "identity": identity, "state": state}, member)

    def asked(self, at: float, next_id: int, **replicas: str) -> Story:
        listed = {number[1:]: address for number, address in replicas.items()}
        in_sync = [int(number) for number in listed]
        self.op(at, "next", next_id, controller="n1")
        view = {"replicas": listed, "in_sync": in_sync, "alive": [], "master": None}
        return self.op(at + 0.2, "view", view if listed else None, controller="n1")

    def judge(self, limit: float = 10) -> CheckResult:
        at = self.ops[-1].time / S + 0.1
        return BrokerIdentity(["r"], limit).check(RunRecord(History(self.op(at, "leave").ops)))


def wrong(result: CheckResult) -> set[str]:
    return {a.name for a in result.anomalies if a.legal is None}


def legal(result: CheckResult) -> set[str]:
    return {a.name for a in result.anomalies if a.legal is not None}


def test_a_registration_as_it_should_be() -> None:
    story = Story().start(1).look(3, None, "INITIAL").look(5, 1).asked(6, 2, _1="h:1")
    result = story.judge()
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
    assert result.stats["rows"] == {"r": "held in 1 of 1; member 0: identity 1, RUNNING; next 2; ran after 4.0 s"}


@pytest.mark.parametrize(("next_id", "expected"), [(3, set()), (4, {"burnt-id"})])
def test_a_deleted_note_burns_one_id_and_no_more(next_id: int, expected: set[str]) -> None:
    story = Story().start(1).look(3, None, "INITIAL").op(4, "rm-temp").start(5).look(7, 2)
    result = story.asked(8, next_id, _2="h:1").judge()
    assert wrong(result) == expected
    assert legal(result) == (set() if expected else {"burnt-id"})


def test_ids_are_counted_only_when_nobody_applies_for_one() -> None:
    story = Story().start(1).look(3, None, "INITIAL").asked(4, 2, _1="h:1")
    assert wrong(story.look(5, 1).asked(6, 2, _1="h:1").judge()) == set()
    story = Story().start(1).look(3, 2).asked(4, 3, _1="h:1", _2="h:1")
    assert wrong(story.judge()) == {"burnt-id", "ghost-replica", "stranger-in-sync"}


@pytest.mark.parametrize(
    ("cleaned", "left", "expected"),
    [(1, {"_2": "h:1"}, set()), (1, {}, {"forgotten-registration"}), (7, {"_2": "h:1"}, {"forgotten-registration"})],
)
def test_an_operator_has_one_id_forgotten_and_no_other(cleaned: int, left: dict[str, str], expected: set[str]) -> None:
    story = Story().start(1).look(3, 1).asked(4, 2, _1="h:1").op(5, "kill").op(6, "wipe").start(7).look(9, 2)
    story.asked(10, 3, _1="h:1", _2="h:1").op(11, "clean", cleaned)
    assert wrong(story.asked(12, 3, **left).judge()) == expected


def test_what_one_controller_told_the_next_one_tells() -> None:
    story = Story().start(1).look(3, 1).asked(4, 2, _1="h:1")
    assert wrong(story.asked(6, 1, _1="h:1").judge()) == {"controllers-disagree", "reused-id"}
    story = Story().start(1).look(3, 1).asked(4, 2, _1="h:1").op(5, "kill")
    assert wrong(story.asked(6, 2, _1="h:9").judge()) == {"controllers-disagree"}


def test_the_address_is_that_of_the_last_start() -> None:
    story = Story().start(1).look(3, 1).asked(4, 2, _1="h:1").op(5, "kill").start(6, address="h:2")
    story.look(8, 1, "INITIAL").asked(9, 2, _1="h:1")  # it has not registered yet
    story.look(10, 1, "REGISTERED").asked(11, 2, _1="h:1")
    assert wrong(story.look(12, 1).asked(13, 2, _1="h:2").judge()) == {"stale-address"}


@pytest.mark.parametrize(
    ("fired", "last", "state", "expected"),
    [
        (None, 9, "INITIAL", set()),
        (None, 12, "INITIAL", {"never-registered"}),
        (None, 12, "REGISTERED", {"never-running"}),
        (5, 12, "INITIAL", set()),
        (5, 16, "INITIAL", {"never-registered"}),
    ],
)
def test_from_when_on_a_broker_must_run(fired: float | None, last: float, state: str, expected: set[str]) -> None:
    story = Story()
    if fired is not None:
        story.op(0.2, "arm", {"code": 1013, "frame": "response", "act": "drop"})
    story.start(1)
    if fired is not None:
        story.op(fired, "fired", 1)
    result = story.look(last, None, state).asked(last + 1, 1).judge()
    assert wrong(result) == expected
    assert all(a.limit_s == 10 for a in result.anomalies)


def test_a_process_that_ends_by_itself_has_not_registered() -> None:
    story = Story().start(1).look(3, None, "INITIAL", up=False).asked(4, 1)
    assert wrong(story.judge()) == {"never-registered"}


def test_a_copy_of_the_file_may_share_its_id_and_a_new_broker_may_not() -> None:
    story = (
        Story().start(1).look(3, 1).op(4, "enter", HOME, 1).op(5, "clone", 0, 1).start(6, 1, "h:2").look(8, 1, member=1)
    )
    result = story.asked(9, 2, _1="h:2").judge()
    assert (wrong(result), legal(result)) == (set(), {"identity-shared", "stale-address"})
    story = Story().start(1).look(3, 1).start(6, 1, "h:1").look(8, 1, member=1)
    assert wrong(story.asked(9, 2, _1="h:1").judge()) == {"identity-shared"}


def test_a_trial_that_was_not_done_says_nothing() -> None:
    story = Story().start(1).look(3, 1).op(4, "kill", type_="info").asked(5, 2, _1="h:1")
    result = story.judge()
    assert result.verdict == Verdict.UNKNOWN
    assert result.reason == "0 of 1 trials were completed; r: kill: no answer"
    assert BrokerIdentity().check(RunRecord(History([]))).verdict == Verdict.UNKNOWN
