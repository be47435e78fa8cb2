# SPDX-License-Identifier: Apache-2.0
"""Topics that an administrator makes, changes, deletes and makes again: the life of each topic, and its messages.

A *life* of a topic begins with an acknowledged creation and ends with a deletion. `mqadmin` promises "Update or create
topic" and "Delete topic from broker and NameServer" (`UpdateTopicSubCommand`, `DeleteTopicSubCommand`, 5.3.3).
RocketMQ has no promise for what follows. A user must expect:

* The master of each broker group knows a topic whose creation was acknowledged and that was not deleted, with all its
  queues, and serves them: also another master, after a failover.
* No master knows a topic whose deletion was acknowledged.
* A topic that was made again shows no message of an earlier life, and no committed offset.
* In each life, the promises of a log hold (`checkers.messages.log`). No broker reports a minimum offset above its
  maximum, or above an acknowledged message that it has.

A request without an answer may have had an effect, or have one later. So nothing is expected of a topic after an
unanswered deletion. Reads that overlap the end or the beginning of a life are left out; sends that overlap a deletion
count as unanswered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from checkers.messages.log.anomalies import Findings
from checkers.messages.log.expiry import Expiry
from checkers.messages.ops import explained, of_messages
from results.fault_intervals import fault_intervals
from results.figures import many
from results.history import Call, History
from results.op import FAIL, INFO, OK, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse

UPDATE: Final = "update-topic"
DELETE: Final = "delete-topic"
DESCRIBE: Final = "topic"

_READS: Final = ("poll", "replica-read")
_TAKEN: Final = ("data-lost", "data-damaged")
"""Effects after which a disk may lack synced data."""
_NEVER: Final = 2**62
_ASKED_S: Final = 3.0
"""The longest time between two reports of a node's role, on a slow machine."""

_OF_MASTERS: Final = ("forgotten-creation", "forgotten-queues", "deleted-topic-returns")
"""Anomalies that the answer of a master at the end shows."""

_KEPT_ON_DISK: Final = ("forgotten-creation", "forgotten-queues")


@dataclass
class Life:
    """One life of a topic. Moments are indices of ops.

    since    its first request. made: the acknowledgement of its creation, or `_NEVER`.
    queues   the number of its queues on each broker group, as last acknowledged. open: the lowest one of a change that
             was never answered, or `_NEVER`: such a change may be executed at any time.
    ends     the request of its deletion, or `_NEVER`. ended: the acknowledgement of that, or `_NEVER`.
    update   the last change that was acknowledged. delete: its deletion.
    doubtful something of an earlier life may still be executed.
    """

    topic: str
    number: int
    since: int
    made: int = _NEVER
    queues: int = 0
    ends: int = _NEVER
    ended: int = _NEVER
    update: Call | None = None
    delete: Call | None = None
    open: int = _NEVER
    doubtful: bool = False

    @property
    def unsure(self) -> bool:
        """True if a change was never answered."""
        return self.open != _NEVER

    @property
    def living(self) -> bool:
        """True if it was made and not deleted."""
        return self.made != _NEVER and self.ends == _NEVER and not self.doubtful

    def holds(self, begin: int, end: int) -> bool:
        """True if the topic certainly existed between two moments."""
        return self.made <= begin and end < self.ends and not self.doubtful


@dataclass
class Lives:
    """The ops on messages, with the life in the name of the topic: `t@2:a:0`.

    living    those of lives that last to the end, and of topics that nobody changed. ended: of all other lives.
    all       both. `returned`: reads that show messages of an earlier life, as (call, offset, id, its
              acknowledged send, or the read that showed it in that life).
    places    (call, life) of the reads that certainly are in a life, or in a topic that nobody changed (None).
    strays    id -> the send of such a message, as one in the life that shows it at the end.
    left_out  reads across the end or the beginning of a life.
    crossing  sends across a deletion.
    """

    of: Mapping[str, Sequence[Life]]
    living: History
    ended: History
    all: History
    returned: list[tuple[Call, int, Any, Call]] = field(default_factory=list)
    places: list[tuple[Call, Life | None]] = field(default_factory=list)
    strays: dict[Any, Op] = field(default_factory=dict)
    left_out: int = 0
    crossing: int = 0


def lives_of(history: History) -> Mapping[str, Sequence[Life]]:
    """Topic -> its lives, in order."""
    found: dict[str, list[Life]] = {}
    for call in history.clients.calls:
        topic, done = call.invoke.key, call.completion
        if call.invoke.f not in (UPDATE, DELETE) or topic is None or call.outcome == FAIL:
            continue
        lives = found.setdefault(topic, [])
        if call.invoke.f == UPDATE:
            if not lives or lives[-1].ends != _NEVER:
                last = lives[-1] if lives else None
                doubtful = last is not None and (last.ended == _NEVER or last.unsure or last.doubtful)
                lives.append(Life(topic, len(lives) + 1, call.invoke.index, doubtful=doubtful))
            life = lives[-1]
            if call.outcome == OK and done is not None:
                life.made, life.queues, life.update = min(life.made, done.index), int(done.value), call
            else:
                life.open = min(life.open, int(call.invoke.value))
        elif lives:
            life = lives[-1]
            life.ends, life.delete = min(life.ends, call.invoke.index), call
            if call.outcome == OK and done is not None:
                life.ended = done.index
    return found


def split(history: History) -> Lives:
    """The ops on messages by life. Raises BadOp for a value that differs from docs/histories.md."""
    found = _known.get(history)
    if found is None:
        with explained(history):
            found = _known[history] = _Splitter(history).split()
    return found


_known: WeakKeyDictionary[History, Lives] = WeakKeyDictionary()


class _Splitter:
    def __init__(self, history: History) -> None:
        self.history, self.of = history, lives_of(history)
        self.found = Lives(self.of, History(()), History(()), History(()))
        self.ops: dict[int, tuple[Op, bool]] = {}
        """Index -> the op as it is kept, and True if it is of a living topic."""
        self.home: dict[Any, tuple[Life, Call]] = {}
        """Id -> the life that the message is of, and its send or the first read that showed it."""
        self.sends: dict[Any, Call] = {}
        self.misled: set[tuple[int, str | None, int]] = set()
        """(process, queue, life) of readers that got a message of an earlier life."""

    def split(self) -> Lives:
        calls = [c for c in self.history.clients.calls if c.invoke.f in ("send", *_READS) and c.invoke.key is not None]
        sends = [call for call in calls if call.invoke.f == "send"]
        for call in sends:
            self.sends[call.invoke.value] = call
            life = self._life_of_send(call)
            if life is not None and call.outcome == OK:
                self.home[call.invoke.value] = life, call
        for call in calls:
            if call.invoke.f in _READS:
                self._read(call)
        for call in sends:
            self._send(call)
        for op in self.history:
            if not op.is_client:
                self.ops[op.index] = op, True
        kept = [self.ops[index] for index in sorted(self.ops)]
        strays = {op.index: op for op in self.found.strays.values()}
        now = {op.index: op for op, living in kept if living} | strays
        self.found.living = History(now[index] for index in sorted(now))
        self.found.ended = History(op for op, living in kept if not living or not op.is_client)
        self.found.all = History(op for op, _ in kept)
        return self.found

    def _keep(self, call: Call, life: Life | None) -> None:
        for op in (call.invoke, call.completion):
            if op is not None:
                self.ops[op.index] = (op, True) if life is None else (_renamed(op, life), life.living)

    def _read(self, call: Call) -> None:
        lives = self.of.get(_topic(call), ())
        end = _NEVER if call.completion is None else call.completion.index
        life = next((life for life in lives if life.holds(call.invoke.index, end)), None)
        if life is None and lives:
            self.found.left_out += 1
            return
        done = call.completion
        self.found.places.append((call, life))
        if life is None or done is None or done.type != OK:
            self._keep(call, life)
            return
        old = [(offset, identity) for offset, identity in done.value if self._is_older(identity, life)]
        for _, identity in done.value:
            self.home.setdefault(identity, (life, call))
        for offset, identity in old:
            self.found.returned.append((call, offset, identity, self.home[identity][1]))
        session = call.invoke.process, call.invoke.key, life.number
        if call.invoke.f == "poll" and old:
            # The following polls continue behind these messages, so they are no part of this life's log either.
            self.misled.add(session)
        elif call.invoke.f == "replica-read" or session not in self.misled:
            self._keep(call, life)
        for _, identity in old if call.invoke.f == "replica-read" else ():
            # Its place is taken: for the log of this life it is a message of unknown outcome.
            send = self.sends.get(identity)
            if send is not None and life.living:
                self.found.strays[identity] = _renamed(send.invoke, life, call.invoke.key)

    def _is_older(self, identity: Any, life: Life) -> bool:
        home = self.home.get(identity)
        return home is not None and home[0].topic == life.topic and home[0].number < life.number

    def _life_of_send(self, call: Call) -> Life | None:
        """The life in which a send certainly began and ended."""
        end = _NEVER if call.completion is None or call.outcome == INFO else call.completion.index
        for life in self.of.get(_topic(call), ()):
            if life.since <= call.invoke.index and end < life.ends and not life.doubtful:
                return life
        return None

    def _send(self, call: Call) -> None:
        lives = self.of.get(_topic(call), ())
        life = self._life_of_send(call)
        if not lives or (life is not None and call.outcome != INFO):
            self._keep(call, life)
            return
        began = [life for life in lives if life.since <= call.invoke.index and not life.doubtful]
        if not began:
            return
        # Its message may be in the life in which it began, or in a later one.
        life = self.home.get(call.invoke.value, (began[-1], call))[0]
        done = call.completion
        if call.outcome == OK and done is not None:
            self.found.crossing += 1
            extra = {name: value for name, value in done.extra.items() if name != "offset"}
            done = replace(done, type=INFO, value=call.invoke.value, error="across a deletion", extra=extra)
        self._keep(Call(call.invoke, done), life)


def _topic(call: Call) -> str:
    return str(call.invoke.key).rsplit(":", 2)[0]


def _renamed(op: Op, life: Life, key: str | None = None) -> Op:
    topic, group, number = str(key or op.key).rsplit(":", 2)
    return replace(op, key=f"{topic}@{life.number}:{group}:{number}")


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
        slaves = [case for case in cases if case.name in _OF_MASTERS and _was_slave(scene, case)]
        cases = [case for case in cases if case not in slaves]
        stats = {
            "topics": len(found.of),
            "lives": len(lives),
            "deleted": sum(life.ended != _NEVER for life in lives),
            "made_again": sum(life.number > 1 and life.made != _NEVER for life in lives),
            "unanswered": sum(c.outcome == INFO for c in run.history.clients.calls if c.invoke.f in (UPDATE, DELETE)),
            "asked": len(answers),
        }
        groups = sorted(run.deployment.groups)
        silent = [
            f"{life.topic} of {g}" for life in lives if life.living for g in groups if (life.topic, g) not in answers
        ]
        unknown = None
        if not any(life.made != _NEVER for life in lives):
            unknown = "no creation of a topic was acknowledged"
        elif silent:
            unknown = f"no master answered at the end for {many(len(silent), 'topic')}, the first: {silent[0]}"
        told = [
            *_told(scene, "forgotten-creation", cases, "{n} times a master did not know a topic that had been made"),
            *_told(scene, "forgotten-queues", cases, "{n} times a master had fewer queues than acknowledged"),
            *_told(scene, "deleted-topic-returns", cases, "{n} times a master knew a topic that had been deleted"),
            *_told(scene, "deleted-message-returns", cases, "{n} messages of deleted topics read in a later life"),
            *_told(scene, "deleted-offset-returns", cases, "{n} answers with a committed offset of a deleted topic"),
            *_told(scene, "wrong-minimum", cases, "{n} answers with a minimum offset above the messages of the queue"),
            *_told(scene, "unserved-queue", cases, "{n} queues of acknowledged topics took no message at the end"),
        ]
        reason = f"{many(stats['lives'], 'life')} of {many(stats['topics'], 'topic')}".replace("lifes", "lives")
        excuses = []
        if excused:
            excuses.append(Excuse("disk-taken", len(excused), "a fault replaced or damaged the disk of the master"))
        if slaves:
            why = "another broker of the group reported to be master when this one was asked as the master"
            excuses.append(Excuse("asked-a-slave", len(slaves), why))
        return conclude(self.name, run, told, stats, reason, unknown, excuses=excuses)


def _told(scene: RunTimeline, name: str, cases: Sequence[Case], what: str) -> Iterator[Anomaly]:
    return anomalies(scene, name, [case for case in cases if case.name == name], what)


class LogOfLives:
    """`checkers.messages.log.LogAnomalies`, for each life of a topic."""

    name = "log"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """Messages of lives that ended have no final read: those that no reader got are left out (`deleted-topic`)."""
        found, log = split(run.history), LogAnomalies()
        parts = [log.examine(replace(run, history=found.living))]
        ended = log.examine(replace(run, history=found.ended))
        undecided = ended.stats["undecided"]
        rest = [excuse for excuse in ended.excuses if excuse.rule != "undecided"]
        parts.append(Findings(ended.anomalies, {**ended.stats, "undecided": 0}, rest))
        result = log.conclude(run, parts)
        excuses = [
            *result.excuses,
            Excuse("deleted-topic", undecided, "their topic was deleted, and no final read shows them"),
            Excuse("across-deletion", found.crossing, "the deletion of the topic began before the send was answered"),
            Excuse("across-lives", found.left_out, "these reads overlap the end or the beginning of a topic"),
        ]
        return replace(result, excuses=[excuse for excuse in excuses if excuse.used])


class QueuesOfLives:
    """`checkers.messages.log.LogLinearizable`, for the topics that exist at the end: in the queues of others, a send of
    an earlier life without an answer may have taken an offset, and no final read shows that.
    """

    name = "linearizability"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """As that judge."""
        return LogLinearizable().check(replace(run, history=split(run.history).living))


class ReplicasOfLives:
    """`checkers.messages.log.Replicas`, for the topics that exist at the end."""

    name = "replicas"

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = limit_s

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """As that judge."""
        return Replicas(self.limit_s).check(replace(run, history=split(run.history).living))


def _answers(history: History) -> Iterator[tuple[tuple[str, str], Call]]:
    """Yields (topic, broker group) and the answer of its master at the end."""
    for call in history.clients.calls:
        if call.invoke.f == DESCRIBE and call.outcome == OK and call.completion is not None:
            yield (str(call.invoke.key), str(call.completion.extra.get("group"))), call


def _at_the_end(lives: Sequence[Life], answers: Mapping[tuple[str, str], Call]) -> Iterator[Case]:
    last = {life.topic: life for life in lives}
    for (topic, group), call in answers.items():
        life, done = last.get(topic), call.completion
        if life is None or done is None or life.doubtful or life.made == _NEVER:
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
        elif life.ended != _NEVER and life.delete is not None and not life.unsure and queues is not None:
            text = f"{node}, the master of {group} at the end, knew {topic}, whose deletion {_by(life.delete)} had "
            yield _case("deleted-topic-returns", life.delete, call, f"{text}acknowledged", topic, group, node)


def _case(name: str, change: Call, call: Call, text: str, topic: str, group: str, node: str) -> Case:
    assert change.completion is not None
    assert call.completion is not None
    ops = [change.completion.index, call.completion.index]
    times = change.completion.time, call.completion.time
    return Case(*times, ops, text, topic, group, name, details={"node": node})


def _was_slave(scene: RunTimeline, case: Case) -> bool:
    """True if another node of the group reported to be master when the answer came, and this one did not."""
    masters = {period.node for period in scene.masters(case.end, case.end, case.group, margin_s=_ASKED_S)}
    return bool(masters) and case.details.get("node") not in masters


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
        lives = of.get(_topic(call), ())
        life = next((life for life in lives if life.holds(call.invoke.index, done.index)), None)
        sources = commits.get((str(call.invoke.key), done.value), [])
        # A commit without an answer may be executed in a later life.
        ends = [_NEVER if c.completion is None or c.outcome == INFO else c.completion.index for c in sources]
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
        node, key = str(done.extra.get("node")), call.invoke.key if life is None else _renamed(call.invoke, life).key
        at, offset = first.get(str(key), (_NEVER, 0))
        text = f"{node} reported the minimum {low} and the maximum {high} of {call.invoke.key}"
        if low <= high and (at > call.invoke.index or low <= offset or high <= offset or expiry.allows(node)):
            continue
        if low <= high:
            text += f", and offset {offset} had been acknowledged"
        ops = [call.invoke.index, done.index, *([at] if at != _NEVER else [])]
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
