# SPDX-License-Identifier: Apache-2.0
"""Answers whose bytes are no messages are found; a broker whose files a fault has damaged may give them."""

from __future__ import annotations

import pytest
from fault_stories import Story

from checkers.messages.answers import Answers
from results.op import UNREADABLE
from results.strikes import Effect
from results.verdict import Verdict

WHY = "the answer is invalid: 10.0.0.1:10911: byte 405: magic number 0x2e2e2e2e is not that of a message"


def poll(story: Story, at: float, node: str = "n2", *, unreadable: bool = False, f: str = "poll") -> None:
    key = "t:a:1"
    story.add(at, 0, "invoke", f, key=key, value=7, extra={"node": node})
    extra = {"node": node} | ({UNREADABLE: True} if unreadable else {})
    story.add(at + 0.01, 0, "fail" if unreadable else "ok", f, key=key, error=WHY if unreadable else None, extra=extra)


@pytest.mark.parametrize("f", ["poll", "replica-read", "pop"])
def test_a_broker_that_answers_with_other_bytes_is_told(f: str) -> None:
    """Such a read ends as `fail`, as one that nobody answered does; it must not pass for one."""
    story = Story()
    poll(story, 1, f=f)
    poll(story, 2, f=f, unreadable=True)
    poll(story, 3, "n3", f=f, unreadable=True)
    result = Answers().check(story.record())
    (found,) = result.anomalies
    assert (result.verdict, found.name, found.details["count"]) == (Verdict.INVALID, "unreadable-answer", 2)
    assert "n2, for a read of t:a:1 from offset 7: the answer is invalid: " in found.summary
    assert result.stats == {"unreadable": {"n2": 1, "n3": 1}}


@pytest.mark.parametrize("node", ["n2", "n3"])
@pytest.mark.parametrize("struck", [1, 5])
def test_only_damage_to_the_same_broker_before_it_excuses_it(node: str, struck: float) -> None:
    story = Story()
    if struck < 4:
        story.strike(struck, struck + 1, struck + 1.1, {}, effects=[Effect("data-damaged", node)])
    poll(story, 4, unreadable=True)
    if struck > 4:
        story.strike(struck, struck + 1, struck + 1.1, {}, effects=[Effect("data-damaged", node)])
    result = Answers().check(story.record())
    excused = node == "n2" and struck < 4
    assert result.verdict == (Verdict.VALID if excused else Verdict.INVALID)
    assert [bool(anomaly.legal) for anomaly in result.anomalies] == [excused]


@pytest.mark.parametrize("effect", ["down", "unsynced-lost", "disk-full", "cut-off"])
def test_no_other_fault_excuses_it(effect: str) -> None:
    story = Story()
    story.strike(1, 2, 2.1, {}, effects=[Effect(effect, "n2")])  # type: ignore[arg-type]
    poll(story, 4, unreadable=True)
    assert Answers().check(story.record()).verdict == Verdict.INVALID


def test_refusals_and_silence_are_no_such_answers() -> None:
    story = Story()
    story.add(1, 0, "invoke", "poll", key="t:a:1", value=0, extra={"node": "n1"})
    story.add(2, 0, "fail", "poll", key="t:a:1", error="timed out: 10.0.0.1:10911", extra={"node": "n1"})
    result = Answers().check(story.record())
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
