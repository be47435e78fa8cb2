# SPDX-License-Identifier: Apache-2.0
"""The judges of topics that are deleted and made again: by hand-made histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fault_stories import Story

from checkers.base.api import judge
from checkers.base.schema import BadOp
from checkers.messages.lives import LogOfLives, MembersOfLives, TopicLives, lives_of, split
from results.deployment import DeploymentRecord, ServerRecord
from results.op import OpType
from results.record import RunRecord
from results.strikes import Effect
from results.verdict import CheckResult, Verdict

GROUPS = {"a": ("n1", "n2", "n3")}


class Told(Story):
    """Ops one second apart, each of a process of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.process = 0.0, 0

    def op(self, f: str, key: str, argument: Any, result: Any, type_: OpType = "ok", **extra: Any) -> None:
        self.at, self.process = self.at + 1, self.process + 1
        self.add(self.at, self.process, "invoke", f, key=key, value=argument, extra=extra)
        self.add(self.at + 0.5, self.process, type_, f, key=key, value=result, extra=extra)

    def make(self, queues: int = 1, type_: OpType = "ok") -> None:
        self.op("update-topic", "t", queues, queues, type_, nodes=["n1"])

    def delete(self, type_: OpType = "ok") -> None:
        self.op("delete-topic", "t", None, None, type_, nodes=["n1"])

    def send(self, message: int, offset: int, type_: OpType = "ok", **extra: Any) -> None:
        self.op("send", "t:a:0", message, [offset, message] if type_ == "ok" else message, type_, node="n1", **extra)

    def read(self, *messages: Sequence[Any], f: str = "poll", low: int = 0, high: int = 9, **extra: Any) -> None:
        found = [list(message) for message in messages]
        end = {"done": True, "max": len(messages)} if f == "replica-read" else {"max": high}
        self.op(f, "t:a:0", 0, found, node="n1", min=low, next=len(messages), **{**end, **extra})

    def ask(self, queues: int | None, type_: OpType = "ok", node: str = "n1") -> None:
        self.op("topic", "t", None, queues, type_, group="a", node=node)

    def whole(self) -> RunRecord:
        servers = [ServerRecord(node, "broker", group="a") for node in GROUPS["a"]]
        deployment = DeploymentRecord("toy", groups=GROUPS, servers=servers)
        return RunRecord(self.record().history, deployment=deployment)

    def lives(self) -> CheckResult:
        return TopicLives().check(self.whole())


def names(result: CheckResult) -> list[str]:
    return [anomaly.name for anomaly in result.anomalies]


def test_a_topic_that_lives_twice_and_shows_its_own_messages() -> None:
    told = Told()
    told.make()
    told.send(1, 0)
    told.read((0, 1))
    told.delete()
    told.make()
    told.send(2, 0)
    told.ask(1)
    told.read((0, 2), f="replica-read")
    result = told.lives()
    assert (result.verdict, names(result)) == (Verdict.VALID, [])
    assert (result.stats["lives"], result.stats["deleted"], result.stats["made_again"]) == (2, 1, 1)
    log = LogOfLives().check(told.whole())
    assert (log.verdict, names(log)) == (Verdict.VALID, [])


@pytest.mark.parametrize("answered", ["ok", "info"])
def test_a_deleted_message_that_returns(answered: OpType) -> None:
    """Also one that was never acknowledged, but read in its life."""
    told = Told()
    told.make()
    told.send(1, 0, answered)
    told.read((0, 1))
    told.delete()
    told.make()
    told.ask(1)
    told.read((0, 1), f="replica-read")
    result = told.lives()
    assert names(result) == ["deleted-message-returns"]
    had = "acknowledged" if answered == "ok" else "shown"
    assert f"which n1 had {had} before the topic was deleted" in result.anomalies[0].summary
    assert "t@2:a:0" in split(told.whole().history).living[-1].key  # type: ignore[operator]


def test_a_reader_that_an_old_message_misled_does_not_jump() -> None:
    told = Told()
    told.make()
    told.send(1, 0)
    told.delete()
    told.make()
    for message, offset in ((2, 1), (3, 2)):
        told.send(message, offset)
    for at, message in ((0, 1), (1, 2), (2, 3)):
        told.at += 1
        extra = {"node": "n1", "min": 0, "max": 3, "next": at + 1}
        told.add(told.at, 99, "invoke", "poll", key="t:a:0", value=at, extra={"node": "n1", "start": at == 0})
        told.add(told.at + 0.5, 99, "ok", "poll", key="t:a:0", value=[[at, message]], extra=extra)
    assert names(told.lives()) == ["deleted-message-returns"]
    assert names(LogOfLives().check(told.whole())) == []


def test_an_unanswered_send_may_be_of_the_next_life() -> None:
    told = Told()
    told.make()
    told.send(1, 0, "info")
    told.delete()
    told.make()
    told.ask(1)
    told.read((0, 1), f="replica-read")
    assert names(told.lives()) == []
    assert "never-sent" not in names(LogOfLives().check(told.whole()))


def test_a_message_of_the_new_life_that_the_old_one_hides_is_lost() -> None:
    told = Told()
    told.make()
    told.send(1, 0)
    told.delete()
    told.make()
    told.send(2, 0)
    told.ask(1)
    told.read((0, 1), f="replica-read")
    assert "lost" in names(LogOfLives().check(told.whole()))
    assert "hole" not in names(LogOfLives().check(told.whole()))


def test_a_message_of_a_deleted_life_need_not_be_kept_and_is_counted() -> None:
    told = Told()
    told.make()
    told.send(1, 0)
    told.delete()
    told.make()
    told.send(2, 0)
    told.read((0, 2), f="replica-read")
    result = LogOfLives().check(told.whole())
    assert [(e.rule, e.used) for e in result.excuses] == [("deleted-topic", 1)]


@pytest.mark.parametrize(("known", "found"), [(2, []), (None, ["forgotten-creation"]), (1, ["forgotten-queues"])])
def test_what_the_master_knows_at_the_end(known: int | None, found: list[str]) -> None:
    told = Told()
    told.make(1)
    told.make(2)
    told.ask(known, node="n2")
    result = told.lives()
    assert names(result) == found
    assert all("n2, the master of a at the end" in anomaly.summary for anomaly in result.anomalies)


@pytest.mark.parametrize(
    ("deletion", "known", "found"),
    [("ok", None, []), ("ok", 1, ["deleted-topic-returns"]), ("info", 1, []), ("info", None, [])],
)
def test_a_deleted_topic_must_stay_deleted(deletion: OpType, known: int | None, found: list[str]) -> None:
    """Nothing is expected after an unanswered deletion."""
    told = Told()
    told.make()
    told.delete(deletion)
    told.ask(known)
    assert names(told.lives()) == found


def test_an_unanswered_change_may_bring_a_deleted_topic_back() -> None:
    told = Told()
    told.make()
    told.make(2, "info")
    told.delete()
    told.ask(2)
    assert names(told.lives()) == []


def test_nothing_is_expected_of_a_life_that_a_late_deletion_may_end() -> None:
    told = Told()
    told.make()
    told.delete("info")
    told.make()
    told.send(1, 0)
    told.ask(None)
    assert names(told.lives()) == []
    assert [life.doubtful for life in lives_of(told.whole().history)["t"]] == [False, True]


@pytest.mark.parametrize(("known", "found"), [(2, []), (1, ["forgotten-queues"])])
def test_an_unanswered_change_may_still_take_queues_away(known: int, found: list[str]) -> None:
    told = Told()
    told.make(1)
    told.make(2, "info")
    told.make(4)
    told.ask(known)
    assert names(told.lives()) == found


def test_a_refused_deletion_changes_nothing() -> None:
    told = Told()
    told.make()
    told.delete("fail")
    told.ask(None)
    assert names(told.lives()) == ["forgotten-creation"]


@pytest.mark.parametrize(("node", "found"), [("n1", []), ("n2", ["forgotten-creation"])])
def test_a_master_without_its_disk_may_forget_and_is_counted(node: str, found: list[str]) -> None:
    told = Told()
    told.make()
    told.strike(2, 3, 4, {}, effects=[Effect("data-lost", node)])
    told.at = 5
    told.ask(None)
    result = told.lives()
    assert names(result) == found
    assert [e.rule for e in result.excuses] == ([] if found else ["disk-taken"])


def test_without_an_answer_of_a_master_nothing_is_proven() -> None:
    told = Told()
    told.make()
    told.ask(None, "fail")
    result = told.lives()
    assert result.verdict == Verdict.UNKNOWN
    assert "no master answered at the end for 1 topic" in result.reason


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(0, 9, []), (5, 0, ["wrong-minimum"]), (3, 9, []), (4, 9, ["wrong-minimum"]), (4, 3, ["wrong-minimum"])],
)
def test_the_minimum_is_not_above_what_the_queue_has(low: int, high: int, found: list[str]) -> None:
    """apache/rocketmq#10417: the minimum of a queue that was cut back to nothing stays."""
    told = Told()
    told.make()
    told.send(1, 3)
    told.read(low=low, high=high)
    told.ask(1)
    assert names(told.lives()) == found


def test_a_replica_that_does_not_have_the_message_yet_reports_no_wrong_minimum() -> None:
    told = Told()
    told.make()
    told.send(1, 3)
    told.read(low=3, high=3)
    told.ask(1)
    assert names(told.lives()) == []


@pytest.mark.parametrize(("other", "found"), [("ok", ["unserved-queue"]), ("fail", [])])
def test_a_queue_that_takes_nothing_while_others_are_served(other: OpType, found: list[str]) -> None:
    told = Told()
    told.make()
    told.op("send", "steady:a:0", 1, [0, 1] if other == "ok" else 1, other, probe=True, node="n1")
    told.send(2, 0, "fail", probe=True)
    told.ask(1)
    assert names(told.lives()) == found


def test_a_read_across_a_deletion_is_left_out_and_counted() -> None:
    told = Told()
    told.make()
    told.send(1, 0)
    told.add(10, 90, "invoke", "poll", key="t:a:0", value=0, extra={"node": "n2"})
    told.at = 10
    told.delete()
    told.make()
    told.at = 20
    told.add(20, 90, "ok", "poll", key="t:a:0", value=[[0, 1]], extra={"node": "n2"})
    told.ask(1)
    assert names(told.lives()) == []
    assert ("across-lives", 1) in [(e.rule, e.used) for e in LogOfLives().check(told.whole()).excuses]


@pytest.mark.parametrize(
    ("answered", "again", "found"),
    [("ok", None, ["deleted-offset-returns"]), ("info", None, []), ("ok", 100, []), ("fail", None, [])],
)
def test_a_committed_offset_of_a_deleted_topic(answered: OpType, again: int | None, found: list[str]) -> None:
    """An unanswered commit may be executed in the next life, and the next life may commit the same."""
    told = Told()
    told.make()
    told.op("commit", "t:a:0", 100, 100, answered, group="g", node="n1")
    told.op("committed", "t:a:0", None, 100, group="g", node="n1")
    told.delete()
    told.make()
    if again is not None:
        told.op("commit", "t:a:0", again, again, group="g", node="n1")
    told.op("committed", "t:a:0", None, 100, group="g", node="n2")
    told.op("committed", "t:a:0", None, None, group="g", node="n1")
    told.ask(1)
    result = told.lives()
    assert names(result) == found
    assert all("n2 reported the committed offset 100" in anomaly.summary for anomaly in result.anomalies)


@pytest.mark.parametrize(("end", "used"), [(3.0, 0), (20.0, 1)])
def test_a_send_across_a_deletion_counts_as_unanswered(end: float, used: int) -> None:
    """The topic is deleted from 4 s on. Its message may be in either life, or gone."""
    told = Told()
    told.make()
    told.add(2, 90, "invoke", "send", key="t:a:0", value=7)
    told.add(end, 90, "ok", "send", key="t:a:0", value=[0, 7], extra={"node": "n1"})
    told.at = 3
    told.delete()
    told.make()
    told.send(8, 0)
    told.read((0, 8), f="replica-read")
    result = LogOfLives().check(told.whole())
    assert (result.verdict, names(result)) == (Verdict.VALID, [])
    assert [e.used for e in result.excuses if e.rule == "across-deletion"] == [1] * used
    assert [e.used for e in result.excuses if e.rule == "deleted-topic"] == [1] * (1 - used)


def test_a_bad_op_is_named() -> None:
    told = Told()
    told.op("update-topic", "t", 1, "many")
    with pytest.raises(BadOp, match="has the number of a topic's queues"):
        told.lives()
    assert judge(told.whole(), [TopicLives()]).verdict == Verdict.UNKNOWN


class Joined(Told):
    """The same with one member of a group: it gets what the test says."""

    def __init__(self, topics: Sequence[str] = ("t",)) -> None:
        super().__init__()
        self.op("join", "", None, "m0-1", member="m0", topics=list(topics))
        self.take(["started", 0, 1, "id"])

    def take(self, *events: list[Any]) -> None:
        self.op("take", "", None, list(events), member="m0")

    def deliver(self, *messages: tuple[int, int]) -> None:
        """Offsets and ids of messages that it gets now."""
        self.take(*(["delivered", 0, 1, message, "t:a:0", offset, message, 0, None] for offset, message in messages))

    def members(self) -> CheckResult:
        self.take()
        self.read(*self.kept, f="replica-read")
        return MembersOfLives().check(self.whole())

    kept: Sequence[tuple[int, int]] = ()


def two_lives(story: Joined) -> Joined:
    story.make()
    story.send(1, 0)
    story.deliver((0, 1))
    story.delete()
    story.make()
    return story


def test_a_member_that_gets_the_messages_of_each_life() -> None:
    told = two_lives(Joined())
    told.send(2, 0)
    told.deliver((0, 2))
    told.kept = [(0, 2)]
    result = told.members()
    assert (result.verdict, names(result)) == (Verdict.VALID, [])
    assert (result.stats["messages"], result.stats["again"]) == (2, 1)


@pytest.mark.parametrize(("wait", "verdict"), [(50, Verdict.UNKNOWN), (60, Verdict.INVALID)])
def test_a_member_that_goes_on_at_its_old_offset(wait: int, verdict: Verdict) -> None:
    """The offset of the first life leads past the first message of the second one."""
    told = two_lives(Joined())
    told.send(2, 0)
    told.send(3, 1)
    told.deliver((1, 3))
    told.kept = [(0, 2), (1, 3)]
    told.at += wait
    result = told.members()
    assert (result.verdict, names(result)) == (verdict, ["missed-after-recreation"][: verdict == Verdict.INVALID])


@pytest.mark.parametrize(("lasts", "found", "short"), [(50, [], 1), (60, ["missed-after-recreation"], 0)])
def test_a_life_must_last_for_as_long_as_members_need(lasts: int, found: list[str], short: int) -> None:
    told = two_lives(Joined())
    told.send(2, 0)
    told.at += lasts
    told.delete()
    told.make()
    told.send(3, 0)
    told.deliver((0, 3))
    told.kept = [(0, 3)]
    result = told.members()
    assert (names(result), result.stats["short"]) == (found, short)


@pytest.mark.parametrize(("topics", "found"), [(["t"], ["undelivered"]), (["u"], [])])
def test_a_first_life_that_no_member_gets(topics: list[str], found: list[str]) -> None:
    told = Joined(topics)
    told.make()
    told.send(1, 0)
    told.kept = [(0, 1)]
    told.at += 60
    assert names(told.members()) == found


def test_a_fault_in_a_life_that_ended_is_counted() -> None:
    told = two_lives(Joined())
    told.send(2, 0)
    told.strike(1, told.at + 2, told.at + 4, {"n1": ["n1"]}, effects=[Effect("down", "n1")])
    told.at += 60
    told.delete()
    told.make()
    result = told.members()
    assert names(result) == []
    assert [(e.rule, e.used) for e in result.excuses] == [("missed-after-recreation", 1)]


@pytest.mark.parametrize(("after", "found"), [(28.0, []), (32.0, ["deleted-message-returns"])])
def test_a_message_that_a_member_had_pulled_comes_soon(after: float, found: list[str]) -> None:
    told = two_lives(Joined())
    told.send(2, 0)
    deleted = told.at - 1.5  # the answer to the deletion
    told.at = deleted + after - 1.5  # the take is answered 1.5 s later
    told.deliver((0, 1), (0, 2))
    told.kept = [(0, 2)]
    result = told.members()
    assert names(result) == found
    assert [(e.rule, e.used, e.nearest_s) for e in result.excuses] == [
        ("deleted-message-returns", 1, after) for _ in [0] if not found
    ]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([["queues", 0, 1, ["t:a:0"]]], []),
        # It had lost the queue, so it has dropped what it had pulled; what comes now is from the new life's queue.
        ([["queues", 0, 1, ["t:a:0"]], ["queues", 0, 1, []], ["queues", 0, 1, ["t:a:0"]]], ["deleted-message-returns"]),
        ([["queues", 0, 1, ["t:a:1"]]], ["deleted-message-returns"]),  # the queue is another member's
    ],
)
def test_a_member_that_reports_its_queues_had_the_queue_since_the_deletion(
    events: list[list[Any]], found: list[str]
) -> None:
    told = Joined()
    first, *later = events
    told.take(first)
    two_lives(told)
    for event in later:
        told.take(event)
    told.send(2, 0)
    told.at += 5
    told.deliver((0, 1), (0, 2))
    told.kept = [(0, 2)]
    result = told.members()
    assert names(result) == found
    assert [e.used for e in result.excuses] == [1] * (not found)


@pytest.mark.parametrize(("before", "found"), [(True, ["deleted-message-returns"]), (False, [])])
def test_a_process_that_started_after_the_deletion_had_pulled_nothing(before: bool, found: list[str]) -> None:
    told = Joined()
    told.make()
    told.send(1, 0)
    told.deliver((0, 1))
    if before:
        told.delete()
    told.op("join", "", None, "m1-2", member="m1", topics=["t"])
    told.op("take", "", None, [["started", 0, 2, "id"]], member="m1")
    if not before:
        told.delete()
    told.make()
    told.send(2, 0)
    told.op("take", "", None, [["delivered", 0, 2, 1, "t:a:0", 0, 1, 0, None]], member="m1")
    told.deliver((0, 2))
    told.kept = [(0, 2)]
    assert names(told.members()) == found


@pytest.mark.parametrize(("got", "found"), [(True, []), (False, ["deleted-message-returns"])])
def test_a_retry_after_the_deletion_is_of_a_message_that_the_group_had(got: bool, found: list[str]) -> None:
    told = Joined()
    told.make()
    told.send(1, 0)
    if got:
        told.deliver((0, 1))
    told.delete()
    told.make()
    told.send(2, 0)
    told.take(["delivered", 0, 1, 9, "%RETRY%g:a:0", 0, 1, 1, None])
    told.deliver((0, 2))
    told.kept = [(0, 2)]
    assert names(told.members()) == found
