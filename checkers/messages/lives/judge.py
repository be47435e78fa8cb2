# SPDX-License-Identifier: Apache-2.0
"""The judge of what masters know of topics at the end, and of what they show after a deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.lives.split import DELETE, NEVER, UPDATE, Life, Lives, renamed, split, topic_of
from checkers.messages.log.expiry import Expiry
from checkers.messages.ops import of_messages
from results.fault_intervals import fault_intervals
from results.figures import many
from results.history import Call, History
from results.op import FAIL, INFO, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse

DESCRIBE: Final = "topic"

_TAKEN: Final = ("data-lost", "data-damaged")
"""Effects after which a disk may lack synced data."""
_KEPT_ON_DISK: Final = ("forgotten-creation", "forgotten-queues")


class TopicLives:
    """Judges what the masters know of the topics at the end, and what they show after a deletion.

    `forgotten-creation`, `forgotten-queues`, `deleted-topic-returns`: the answers of the masters at the end (`topic`).
    A master whose disk was replaced or damaged may have forgotten a topic (`disk-taken`). `deleted-message-returns`,
    `deleted-offset-returns` and `wrong-minimum`: the reads. `unserved-queue`: the sends at the end (`probe`), if
    another queue of the broker group is served.
    """

    name = "lives"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `topics`, `lives`, those that were `deleted`, `made_again`, `unanswered` requests, and the `asked`
        (topic, broker group) pairs at the end.
        """
        found, scene = split(run.history), RunTimeline(run)
        lives = [life for some in found.of.values() for life in some]
        answers = dict(_answers(run.history))
        taken = {e.node for strike in fault_intervals(run.history) for e in strike.effects if e.kind in _TAKEN}
        cases = [
            *_at_the_end(lives, answers),
            *_returned(found),
            *_offsets(run.history, found.of),
            *_minimums(run, found),
            *_unserved(run.history),
        ]
        excused = [case for case in cases if case.details.get("node") in taken and case.name in _KEPT_ON_DISK]
        cases = [case for case in cases if case not in excused]
        stats = {
            "topics": len(found.of),
            "lives": len(lives),
            "deleted": sum(life.ended != NEVER for life in lives),
            "made_again": sum(life.number > 1 and life.made != NEVER for life in lives),
            "unanswered": sum(c.outcome == INFO for c in run.history.clients.calls if c.invoke.f in (UPDATE, DELETE)),
            "asked": len(answers),
        }
        groups = sorted(run.deployment.groups)
        silent = [
            f"{life.topic} of {g}" for life in lives if life.living for g in groups if (life.topic, g) not in answers
        ]
        unknown = None
        if not any(life.made != NEVER for life in lives):
            unknown = "no creation of a topic was acknowledged"
        elif silent:
            unknown = f"no master answered at the end for {many(len(silent), 'topic')}, the first: {silent[0]}"
        violations = [
            *_of_kind(scene, "forgotten-creation", cases, "{n} times a master did not know a topic that had been made"),
            *_of_kind(scene, "forgotten-queues", cases, "{n} times a master had fewer queues than acknowledged"),
            *_of_kind(scene, "deleted-topic-returns", cases, "{n} times a master knew a topic that had been deleted"),
            *_of_kind(scene, "deleted-message-returns", cases, "{n} messages of deleted topics read in a later life"),
            *_of_kind(scene, "deleted-offset-returns", cases, "{n} answers with a committed offset of a deleted topic"),
            *_of_kind(
                scene, "wrong-minimum", cases, "{n} answers with a minimum offset above the messages of the queue"
            ),
            *_of_kind(scene, "unserved-queue", cases, "{n} queues of acknowledged topics took no message at the end"),
        ]
        reason = f"{many(stats['lives'], 'life')} of {many(stats['topics'], 'topic')}".replace("lifes", "lives")
        excuses = []
        if excused:
            excuses.append(Excuse("disk-taken", len(excused), "a fault replaced or damaged the disk of the master"))
        return conclude(self.name, run, violations, stats, reason, unknown, excuses=excuses)


def _of_kind(scene: RunTimeline, name: str, cases: Sequence[Case], what: str) -> Iterator[Anomaly]:
    return anomalies(scene, name, [case for case in cases if case.name == name], what)


def _answers(history: History) -> Iterator[tuple[tuple[str, str], Call]]:
    """Yields (topic, broker group) and the answer of its master at the end."""
    for call in history.clients.calls:
        if call.invoke.f == DESCRIBE and call.outcome == OK and call.completion is not None:
            yield (str(call.invoke.key), str(call.completion.extra.get("group"))), call


def _at_the_end(lives: Sequence[Life], answers: Mapping[tuple[str, str], Call]) -> Iterator[Case]:
    last = {life.topic: life for life in lives}
    for (topic, group), call in answers.items():
        life, done = last.get(topic), call.completion
        if life is None or done is None or life.doubtful or life.made == NEVER:
            continue
        node, queues = str(done.extra.get("node")), done.value
        if life.living and life.update is not None:
            by = _by(life.update)
            if queues is None:
                text = f"{node}, the master of {group} at the end, did not know {topic}, which {by} had acknowledged"
                yield _case("forgotten-creation", life.update, call, text, topic, group, node)
            elif queues < min(life.queues, life.open):
                text = f"{node}, the master of {group} at the end, had {queues} queues of {topic}, and {by} had "
                text += f"acknowledged {life.queues}"
                yield _case("forgotten-queues", life.update, call, text, topic, group, node)
        elif life.ended != NEVER and life.delete is not None and not life.unsure and queues is not None:
            text = f"{node}, the master of {group} at the end, knew {topic}, whose deletion {_by(life.delete)} had "
            yield _case("deleted-topic-returns", life.delete, call, f"{text}acknowledged", topic, group, node)


def _case(name: str, change: Call, call: Call, text: str, topic: str, group: str, node: str) -> Case:
    assert change.completion is not None
    assert call.completion is not None
    ops = [change.completion.index, call.completion.index]
    times = change.completion.time, call.completion.time
    return Case(*times, ops, text, topic, group, name, details={"node": node})


def _by(call: Call) -> str:
    nodes = call.completion.extra.get("nodes") if call.completion is not None else None
    return " and ".join(map(str, nodes)) if nodes else "the brokers"


def _returned(found: Lives) -> Iterator[Case]:
    for call, offset, identity, send in found.returned:
        done, sent = call.completion, send.completion
        assert done is not None
        assert sent is not None
        node = done.extra.get("node")
        text = f"{node} showed message {identity} at offset {offset} of {call.invoke.key}, which "
        had = "acknowledged" if send.invoke.f == "send" else "shown"
        text += f"{sent.extra.get('node')} had {had} before the topic was deleted"
        ops = [sent.index, call.invoke.index, done.index]
        yield Case(
            sent.time, done.time, ops, text, call.invoke.key, name="deleted-message-returns", details={"node": node}
        )


def _offsets(history: History, of: Mapping[str, Sequence[Life]]) -> Iterator[Case]:
    """Committed offsets that only a commit of an earlier life explains."""
    commits: dict[tuple[str, int], list[Call]] = {}
    for call in history.clients.calls:
        if call.invoke.f == "commit" and call.outcome != FAIL:
            commits.setdefault((str(call.invoke.key), call.invoke.value), []).append(call)
    for call in history.clients.calls:
        done = call.completion
        if call.invoke.f != "committed" or done is None or done.type != OK or done.value is None:
            continue
        lives = of.get(topic_of(call), ())
        life = next((life for life in lives if life.holds(call.invoke.index, done.index)), None)
        sources = commits.get((str(call.invoke.key), done.value), [])
        # A commit without an answer may be executed in a later life.
        ends = [NEVER if c.completion is None or c.outcome == INFO else c.completion.index for c in sources]
        if life is None or not ends:
            continue
        if not any(max(ends) < other.ends for other in lives if other.number < life.number):
            continue
        node, commit = done.extra.get("node"), sources[-1]
        assert commit.completion is not None
        by = commit.completion.extra.get("node")
        text = f"{node} reported the committed offset {done.value} of {call.invoke.key}, which {by} had acknowledged "
        ops = [commit.completion.index, call.invoke.index, done.index]
        yield Case(
            commit.completion.time, done.time, ops, f"{text}before the topic was deleted", call.invoke.key,
            name="deleted-offset-returns", details={"node": node},
        )  # fmt: skip


def _minimums(run: RunRecord, found: Lives) -> Iterator[Case]:
    expiry = Expiry(run)
    acked: dict[str, list[tuple[int, int]]] = {}
    for call in found.all.clients.calls:
        done = call.completion
        if call.invoke.f == "send" and call.outcome == OK and done is not None and type(done.value[0]) is int:
            acked.setdefault(str(call.invoke.key), []).append((done.index, done.value[0]))
    first = {key: min(places, key=lambda place: place[1]) for key, places in acked.items()}
    for call, life in found.places:
        done = call.completion
        low, high = (None, None) if done is None else (done.extra.get("min"), done.extra.get("max"))
        if done is None or type(low) is not int or type(high) is not int:
            continue
        node, key = str(done.extra.get("node")), call.invoke.key if life is None else renamed(call.invoke, life).key
        at, offset = first.get(str(key), (NEVER, 0))
        text = f"{node} reported the minimum {low} and the maximum {high} of {call.invoke.key}"
        if low <= high and (at > call.invoke.index or low <= offset or high <= offset or expiry.allows(node)):
            continue
        if low <= high:
            text += f", and offset {offset} had been acknowledged"
        ops = [call.invoke.index, done.index, *([at] if at != NEVER else [])]
        yield Case(call.start, done.time, ops, text, call.invoke.key, name="wrong-minimum", details={"node": node})


def _unserved(history: History) -> Iterator[Case]:
    probes: dict[str, list[Call]] = {}
    for call in history.clients.calls:
        if call.invoke.f == "send" and call.invoke.extra.get("probe") and call.invoke.key is not None:
            probes.setdefault(call.invoke.key, []).append(call)
    served = Counter(key.rsplit(":", 2)[1] for key, calls in probes.items() if any(c.outcome == OK for c in calls))
    for key, calls in probes.items():
        last = calls[-1].completion
        if any(call.outcome == OK for call in calls) or not served[key.rsplit(":", 2)[1]] or last is None:
            continue
        text = f"none of {many(len(calls), 'send')} to {key} was acknowledged, the last: {last.error or last.type}"
        node = str(last.extra.get("node"))
        ops = [call.invoke.index for call in calls[-3:]]
        yield Case(calls[0].start, last.time, ops, text, key, name="unserved-queue", details={"node": node})
