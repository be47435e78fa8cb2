# SPDX-License-Identifier: Apache-2.0
"""Topics that a broker forgets while it runs are found; those that a fault took with its process are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fault_stories import S, Story

from checkers.messages.topics import KnownTopics
from results.op import NEMESIS, SERVER_DIED, OpType
from results.strikes import Effect, EffectKind
from results.verdict import Verdict

REFUSED = "17 TOPIC_NOT_EXIST: this replica does not know the topic: refused (topic[{}] not exist, apply first please!)"


def pull(
    story: Story, at: float, node: str = "n2", *, refused: str | None = None, topic: str = "t", f: str = "poll"
) -> None:
    key = f"{topic}:a:1"
    story.add(at, 0, "invoke", f, key=key, extra={"node": node})
    error = None if refused is None else REFUSED.format(refused)
    extra = {"node": node, "code": 0 if refused is None else 17}
    story.add(at + 0.01, 0, "ok" if refused is None else "fail", f, key=key, error=error, extra=extra)


def forgetful(*, node: str = "n2", f: str = "poll") -> Story:
    """It serves the topic up to 2 s, refuses it at 3 s and 3.5 s, and serves it again at 4 s and 6 s."""
    story = Story()
    for at in (1, 2, 4, 6):
        pull(story, at, node, f=f)
    for at in (3, 3.5):
        pull(story, at, node, refused="t", f=f)
    return story


def asked_at_the_end(
    story: Story, topics: Sequence[str] = (), groups: Sequence[str] = (), type_: OpType = "ok"
) -> Story:
    extra = {"group": "a", "node": "n2"}
    story.add(50, 0, "invoke", "remake", value="a", extra=extra)
    found = {"topics": list(topics), "groups": list(groups)} if type_ == "ok" else "a"
    story.add(50.01, 0, type_, "remake", value=found, extra=extra)
    return story


@pytest.mark.parametrize("ended", [None, "down", "unsynced-lost", "disk-dead"])
def test_a_master_that_lost_a_topic_or_a_group_is_told(ended: EffectKind | None) -> None:
    """They were read back before the load, so a failure of power is no excuse."""
    story = Story()
    if ended is not None:
        story.strike(1, 2, 3, {}, effects=[Effect(ended, "n2")])
    result = KnownTopics().check(asked_at_the_end(story, ["t"], ["readers", "consumers"]).record())
    topic, group = result.anomalies
    assert (result.verdict, topic.name, group.name) == (Verdict.INVALID, "lost-topic", "lost-group")
    assert topic.summary.startswith("n2, the master of a at the end, did not know the topic t, which was made")
    assert "did not know the consumer group readers, consumers, which" in group.summary


@pytest.mark.parametrize("taken", ["data-lost", "data-damaged"])
def test_a_master_may_lose_them_with_its_disk(taken: EffectKind) -> None:
    for node, verdict in (("n2", Verdict.VALID), ("n3", Verdict.INVALID)):
        story = Story()
        story.strike(1, 2, 3, {}, effects=[Effect(taken, node)])
        assert KnownTopics().check(asked_at_the_end(story, ["t"], ["g"]).record()).verdict == verdict


@pytest.mark.parametrize("type_", ["ok", "fail", "info"])
def test_a_master_that_knows_everything_or_gives_no_answer_has_lost_nothing(type_: OpType) -> None:
    result = KnownTopics().check(asked_at_the_end(Story(), type_=type_).record())
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])


@pytest.mark.parametrize("f", ["poll", "send"])
def test_a_topic_that_a_broker_forgets_is_told_once_for_a_broker(f: str) -> None:
    story = forgetful(f=f)
    pull(story, 7, refused="t", f=f)
    result = KnownTopics().check(story.record())
    (found,) = result.anomalies
    assert result.verdict == Verdict.INVALID
    assert found.name == "forgotten-topic"
    assert found.summary.startswith(
        "n2: 2 times it did not know the topic t that it had served before, for up to 0.5 s"
    )
    assert found.window == (3 * S, int(7.01 * S))
    assert result.stats == {"forgotten": {"n2": 2}, "longest_s": 0.51, "lost": {}}
    assert result.reason == "1 forgotten-topic", "nothing else is known to hold, and no separator is left behind"


def test_it_is_silent_where_nothing_was_forgotten() -> None:
    story = Story()
    pull(story, 1, refused="t")  # not known yet
    pull(story, 2)
    pull(story, 3, "n3", refused="t")  # another broker, which never served it
    pull(story, 4, refused="%RETRY%g")  # another topic, in the answer
    pull(story, 5, topic="u", refused="u")  # another topic
    pull(story, 6)
    result = KnownTopics().check(story.record())
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])


@pytest.mark.parametrize("kind", ["down", "unsynced-lost", "disk-dead", "data-lost"])
def test_a_broker_that_a_fault_has_ended_may_have_to_learn_its_topics_again(kind: EffectKind) -> None:
    for node, verdict in (("n2", Verdict.VALID), ("n3", Verdict.INVALID)):
        story = forgetful()
        story.strike(1, 2.2, 2.8, {}, effects=[Effect(kind, node)])
        assert KnownTopics().check(story.record()).verdict == verdict


def test_a_broker_that_is_cut_off_does_not_forget_and_one_that_died_may() -> None:
    story = forgetful()
    story.strike(1, 2.2, 2.8, {"n2": ["n1"]}, effects=[Effect("cut-off", "n2", peers=("n1",))])
    assert KnownTopics().check(story.record()).verdict == Verdict.INVALID
    story.add(2.5, NEMESIS, "info", SERVER_DIED, value={"node": "n2", "server": "broker"})
    assert KnownTopics().check(story.record()).verdict == Verdict.VALID


@pytest.mark.parametrize(("served", "forgotten"), [(1.0, 0), (31.0, 0), (33.0, 1)])
def test_a_topic_that_was_deleted_is_not_forgotten(served: float, forgotten: int) -> None:
    """Deleted at 2 s. A slave that still serves it has 30 s to copy that."""
    story = Story()
    pull(story, served)
    story.add(2, 1, "invoke", "delete-topic", key="t")
    story.add(2.01, 1, "ok", "delete-topic", key="t")
    pull(story, served + 2, refused="t")
    result = KnownTopics().check(story.record())
    assert len(result.anomalies) == forgotten
    assert [(e.rule, e.bound_s) for e in result.excuses] == ([("after-deletion", 30)] if served == 31 else [])


@pytest.mark.parametrize(("type_", "forgotten"), [("fail", 1), ("info", 0)])
def test_an_unanswered_deletion_may_take_a_topic_at_any_time_later(type_: OpType, forgotten: int) -> None:
    story = Story()
    story.add(0, 1, "invoke", "delete-topic", key="t")
    story.add(0.01, 1, type_, "delete-topic", key="t")
    pull(story, 100)
    pull(story, 102, refused="t")
    assert len(KnownTopics().check(story.record()).anomalies) == forgotten
