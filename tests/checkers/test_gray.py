# SPDX-License-Identifier: Apache-2.0
"""The judge of gray releases: every promise broken by hand, and what only looks like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.base.schema import BadOp
from checkers.messages.gray import Gray
from results.deployment import DeploymentRecord
from results.op import OpType
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
G, B = "t:a:0", "t:a:1"
"""A gray and a base queue."""


class Story(TimedStory):
    """Writes a history, in seconds; a call takes 10 ms. `m0` is gray and reads `G`, `m1` is base and reads `B`, unless
    the story is `bare`.
    """

    def __init__(self, bare: bool = False) -> None:
        super().__init__()
        self.ids = 0
        if not bare:
            for member, gray, key in (("m0", True, G), ("m1", False, B)):
                self.join(0.1, member, gray)
                self.assign(0.2, member, [key])
                self.begin(0.3, member, key, 0)

    def call(self, at: float, f: str, value: Any = None, got: Any = None, type_: OpType = "ok", **more: Any) -> None:
        key, process, after = more.pop("key", None), more.pop("process"), more.pop("after", {})
        super().call(at, f, key, value, got, type_, ask=more, process=process, **after)

    def of(self, member: str, at: float, f: str, value: Any = None, got: Any = None, **more: Any) -> None:
        """An op of a member; its process is its number."""
        self.call(at, f, value, got, process=int(member[1:]), group="g", member=member, **more)

    def join(self, at: float, member: str, gray: bool) -> None:
        self.of(member, at, "join", after={"gray": gray})

    def assign(self, at: float, member: str, keys: Sequence[str]) -> None:
        self.of(member, at, "assign", list(keys), list(keys))

    def begin(self, at: float, member: str, key: str, offset: int, **more: Any) -> None:
        self.of(member, at, "committed", None, offset, key=key, after={"node": "n1"}, **more)

    def rebalances(self, *times: float, members: Sequence[str] = ("m0", "m1")) -> None:
        value = {"queues": [], "gray": [G], "base": [B]}
        for n, member in enumerate(members):
            for at in times:
                self.of(member, at + n * 0.02, "rebalance", None, value)

    def send(self, at: float, key: str = G, colour: str = "gray", offset: int = 0, **more: Any) -> int:
        self.ids += 1
        who = {"producer": "p0", "ordering": 0} | more
        self.call(
            at, "send", self.ids, [offset, self.ids], process=8 + (colour == "gray"), key=key, colour=colour, **who
        )
        return self.ids

    def receive(self, at: float, member: str, key: str, *messages: Sequence[int]) -> None:
        self.of(member, at, "consume", messages[0][0], [list(m) for m in messages], key=key)

    def commit(self, at: float, member: str, key: str, offset: int, node: str = "n1") -> None:
        self.of(member, at, "commit", offset, offset, key=key, after={"node": node})

    def flag(self, at: float, member: str, gray: bool, type_: OpType = "ok") -> None:
        value = {"member": member, "gray": gray}
        self.call(at, "flag", value, value, type_, process=6)

    def drain(self, at: float, *found: tuple[str, Sequence[Sequence[int]]]) -> None:
        for n, (key, messages) in enumerate(found):
            self.call(at + n * 0.1, "consume", 0, [list(m) for m in messages], process=7, key=key, group="g")

    def fault(self, start: float, end: float) -> None:
        super().fault(start, end, "n1", impairs={"n1": ["n1"]})

    def judge(self, environment: Mapping[str, Any] | None = None) -> CheckResult:
        self.drain(100, (G, ()))
        deployment = DeploymentRecord("toy", groups={"a": ("n1", "n2")})
        return Gray(15).check(self.run(deployment=deployment, environment=environment or {}))


def good() -> Story:
    story = Story()
    story.rebalances(1, 3, 5)
    for colour, key, member, offset in (("gray", G, "m0", 0), ("base", B, "m1", 0)):
        story.receive(3.5, member, key, [offset, story.send(2, key, colour, offset)])
    return story


def test_a_good_story_is_valid() -> None:
    result = good().judge()
    assert (result.verdict, names([result])) == (Verdict.VALID, set())
    assert result.stats["received"] == {"gray": 1, "base": 1}


def test_nothing_received_or_not_drained_is_unknown() -> None:
    assert Story().judge().verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("turned", "rebalances", "expected"),
    [
        (6.0, (6.5, 7.5), {"wrong-colour"}),
        (6.0, (6.5,), set()),
        (6.0, (5.5, 5.8), set()),
        (9.0, (6.5, 7.5), set()),
    ],
)
def test_a_message_for_the_other_colour(turned: float, rebalances: Sequence[float], expected: set[str]) -> None:
    """G1: m0 is switched off, and receives a gray message at 8 s."""
    story = good()
    story.join(0.4, "m2", True)
    story.flag(turned, "m0", False)
    story.rebalances(*rebalances, members=["m0"])
    story.receive(8, "m0", G, [1, story.send(7.8, offset=1)])
    assert names([story.judge()]) == expected


def test_an_uncertain_flag_accuses_nobody() -> None:
    story = good()
    story.join(0.4, "m2", True)
    story.flag(6, "m0", False, "info")
    story.rebalances(6.5, 7.5, members=["m0"])
    story.receive(8, "m0", G, [1, story.send(7.8, offset=1)])
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(("flagged", "expected"), [(6.0, set()), (5.9, {"wrong-colour"})])
def test_a_join_and_a_flag_at_one_time_leave_the_colour_open(flagged: float, expected: set[str]) -> None:
    """m0 joins again as base while the operator makes it gray: which of the two was written last?"""
    story = good()
    story.join(0.4, "m2", True)
    story.flag(flagged, "m0", True)
    story.join(6.005, "m0", False)
    story.assign(6.1, "m0", [G])
    story.begin(6.2, "m0", G, 1)
    story.rebalances(6.5, 7.5, members=["m0"])
    story.receive(8, "m0", G, [1, story.send(7.8, offset=1)])
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(
    ("there", "end", "verdict"),
    [(True, 2, Verdict.INVALID), (False, 2, Verdict.VALID), (False, 1, None), (True, 1, Verdict.INVALID)],
)
def test_what_no_member_received(there: bool, end: int, verdict: Verdict | None) -> None:
    """G2. What the drain did not find may be lost; where that is permitted, this is."""
    story = good()
    message = story.send(6, offset=1)
    story.drain(90, (G, [[1, message]] if there else []))
    output = {"committed": end, "max": end, "consumed_to": end}
    story.call(91, "drain", None, output, process=7, key=G, group="g")
    result = story.judge({"permits": {"lost": "it may lose"}})
    assert names([result]) == ({"never-received"} if verdict is not None else set())
    assert result.verdict == (verdict or Verdict.VALID)
    assert [a.limit_s for a in result.anomalies] == ([5.0 if there else None] if verdict is not None else [])


@pytest.mark.parametrize(
    ("sent", "read", "on", "expected"),
    [
        (7.0, None, None, {"stranded"}),  # the producer ended after the flag
        (5.5, None, None, {"stranded"}),  # it had not been read when the flag was set
        (5.5, 5.8, None, set()),
        (5.5, 8.0, None, set()),  # its reader finished a little later
        (7.0, 31.0, 30.0, {"stranded"}),
        (31.0, 32.0, 30.0, set()),
        (7.0, 9.5, 9.0, set()),  # for less than 5 s nobody was gray
    ],
)
def test_gray_messages_when_the_last_gray_member_is_off(
    sent: float, read: float | None, on: float | None, expected: set[str]
) -> None:
    """G3."""
    story = good()
    story.flag(6, "m0", False)
    message = story.send(sent, offset=1)
    if read is not None:
        story.receive(read, "m0", G, [1, message])
    if on is not None:
        story.flag(on, "m0", True)
    assert names([story.judge()]) == expected


def test_another_gray_member_is_enough() -> None:
    story = good()
    story.join(0.4, "m2", True)
    story.flag(6, "m0", False)
    story.receive(20, "m2", G, [1, story.send(7, offset=1)])
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(
    ("times", "more", "expected"),
    [
        ((8, 9), {}, set()),
        ((9, 8), {}, {"received-out-of-order"}),
        ((9, 8), {"ordering": 1}, set()),
        ((9, 8), {"producer": "p1"}, set()),
        ((9, 8), {"key": "t:a:5"}, set()),
    ],
)
def test_the_order_of_one_ordering_key(times: Sequence[float], more: Mapping[str, Any], expected: set[str]) -> None:
    """G4: the second message differs in `more`."""
    story = good()
    first, second = story.send(6, offset=1), story.send(7, offset=2, **more)
    story.receive(times[0], "m0", G, [1, first])
    story.receive(times[1], "m0", more.get("key", G), [2, second])
    assert names([story.judge()]) == expected


def take_over(committed: int, begins: int, *, fault: float | None = None, later: int | None = None) -> Story:
    """m0 has received offset 1 and committed; m2 takes the queue at 20 s, gets an offset, and receives it."""
    story = good()
    message = story.send(6, offset=1)
    story.receive(7, "m0", G, [1, message])
    story.commit(8, "m0", G, committed)
    if later is not None:
        story.commit(9, "m0", G, later)
    if fault is not None:
        story.fault(fault, fault + 1)
    story.assign(19, "m0", [])
    story.join(19.5, "m2", True)
    story.assign(20, "m2", [G])
    story.begin(20.1, "m2", G, begins)
    story.receive(21, "m2", G, [1, message])
    return story


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (take_over(1, 1), set()),  # it was not committed
        (take_over(2, 1), {"received-again"}),
        (take_over(2, 1, fault=10), set()),  # a new master may not know it
        (take_over(2, 1, fault=60), {"received-again"}),
        (take_over(2, 1, later=1), set()),  # a smaller one came last
    ],
)
def test_what_a_take_over_may_repeat(story: Story, expected: set[str]) -> None:
    """G5."""
    assert names([story.judge()]) == expected


def test_one_session_receives_nothing_twice() -> None:
    story = good()
    message = story.send(6, offset=1)
    story.receive(7, "m0", G, [1, message])
    story.receive(8, "m0", G, [1, message])
    assert names([story.judge()]) == {"received-again"}


@pytest.mark.parametrize(
    ("rebalances", "comes", "expected"),
    [
        ((11, 13, 15), None, {"owned-by-two"}),
        ((11, 13), None, set()),
        ((11, 13, 15), 14.0, set()),  # a member came meanwhile
        ((7, 8, 9), None, set()),
    ],
)
def test_two_owners(rebalances: Sequence[float], comes: float | None, expected: set[str]) -> None:
    """G6: m2 takes G at 10 s, and m0 does not give it up."""
    story = good()
    story.join(6, "m2", True)
    story.assign(10, "m2", [G])
    story.rebalances(*rebalances, members=["m0", "m2"])
    if comes is not None:
        story.join(comes, "m3", False)
    story.of("m2", 17, "leave")
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(
    ("rebalances", "members", "expected"),
    [
        ((11, 13, 15), ["m0", "m1"], {"ownerless"}),
        ((11, 13), ["m0", "m1"], set()),
        ((11, 13, 15), ["m1"], set()),  # m0 had no chance to take it
    ],
)
def test_no_owner(rebalances: Sequence[float], members: Sequence[str], expected: set[str]) -> None:
    """G6: m0 gives G up at 10 s."""
    story = good()
    story.assign(10, "m0", [])
    story.rebalances(*rebalances, members=members)
    story.assign(17, "m0", [G])
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(("asked", "expected"), [(G, set()), (B, {"ownerless"})])
def test_a_lock_that_was_not_given_is_not_the_fault_of_the_scheme(asked: str, expected: set[str]) -> None:
    """Its broker does not answer, say."""
    story = good()
    story.assign(10, "m0", [])
    story.rebalances(11, 13, 15)
    story.of("m0", 13.1, "assign", [asked], [])
    story.assign(17, "m0", [G])
    assert names([story.judge()]) == expected


def test_gray_queues_need_no_owner_without_a_gray_member() -> None:
    story = good()
    story.flag(9, "m0", False)
    story.assign(10, "m0", [])
    story.rebalances(11, 13, 15, 17)
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(("expands", "expected"), [(8.0, "recoloured"), (20.0, "wrong-colour"), (None, "wrong-colour")])
def test_an_expansion_that_changes_colours(expands: float | None, expected: str) -> None:
    """G7: m1, base, receives a gray message at 12 s."""
    story = good()
    message = story.send(7, offset=1)
    if expands is not None:
        story.call(expands, "expand", 2, 2, process=6)
    story.assign(10, "m0", [])
    story.assign(10.5, "m1", [B, G])
    story.begin(10.6, "m1", G, 1)
    story.receive(12, "m1", G, [1, message])
    assert names([story.judge()]) == {expected}


def test_a_retry_in_the_other_colour_is_none_of_an_expansion() -> None:
    story = good()
    message = story.send(7, offset=1)
    story.call(8, "expand", 2, 2, process=6)
    story.assign(10.5, "m1", [B])
    story.receive(12, "m1", B, [9, message])
    assert names([story.judge()]) == {"wrong-colour"}


ODD = (None, 7, -1, 2**70, "x", [], [1], [1, "x"], [[1]], {}, {"member": 5}, {"queues": 5}, True)
OPS = (
    *("send", "send-back", "consume", "pop", "ack", "assign", "rebalance", "flag"),
    *("join", "leave", "crash", "expand", "committed", "commit", "drain"),
)


@pytest.mark.parametrize("f", OPS)
@pytest.mark.parametrize("place", ["argument", "result", "extra"])
def test_odd_values_are_told_by_their_op(f: str, place: str) -> None:
    """A stored run with a value that no client writes: the error names the op (`BadOp`), and is no other one."""
    for odd in ODD:
        for kind in ("ok", "info"):
            story = Story()
            story.send(1)
            more = dict.fromkeys(("colour", "producer", "gray", "ordering"), odd) if place == "extra" else {}
            value, got = (odd if place == where else [0, 1] for where in ("argument", "result"))
            about = {"process": 0, "member": "m0", "group": "g", "key": G, **more}
            story.call(2, f, value, got, kind, **about)  # type: ignore[arg-type]
            with suppress(BadOp):
                story.judge()
