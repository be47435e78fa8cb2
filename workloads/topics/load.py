# SPDX-License-Identifier: Apache-2.0
"""The load: one administrator, readers, and producers, all of which follow the topics as they come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from harness.generator.dice import Dice
from results.op import INVOKE, Op
from workloads.places import Queue
from workloads.reading import Polls
from workloads.topics.lives import DELETE, UPDATE, Lives, after

MADE: Final = 2
"""Queues of a new topic on each broker group."""

MOST_QUEUES: Final = 6
_MORE: Final = 2
"""Queues that a change adds."""

_COMMITS: Final = 0.5
"""The share of commits among the ops with committed offsets."""

_REPEATED: Final = 0.7
"""The chance that the next op repeats a change without an answer, if there is one."""

AGAIN: Final = 0.6
"""The chance that a topic that was deleted is made again, rather than a new one, if no group subscribes to them."""

_CHANGED: Final = 0.3
"""The chance that a topic gets more queues, rather than its deletion."""

LIFE: Final = "life"
"""The extra of a poll with the number of the life that it is for."""


@dataclass(frozen=True)
class Frame:
    """The facts that stay the same in a phase.

    prefix    the names of topics begin with it.
    steady    queues that exist all the time.
    groups    broker group -> its nodes.
    readers   the number of clients that poll.
    at_once   the number of topics that exist at the same time.
    change_ns, poll_ns   the time between two ops of the administrator, and between two polls.
    offset_ns   the time between two ops with the committed offset of a queue.
    quiet_ns    nothing is sent to a topic for so long before its deletion.
    consumers   the group that commits.
    first     the id of the phase's first message. seed: of the administrator's choices. again: the chance that a topic
              that was deleted is made again, rather than a new one.
    """

    prefix: str
    steady: Sequence[str]
    groups: Mapping[str, Sequence[str]]
    readers: int
    at_once: int
    change_ns: int
    poll_ns: int
    offset_ns: int
    quiet_ns: int
    consumers: str
    first: int
    seed: int
    again: float = AGAIN


@dataclass(frozen=True, slots=True, eq=False)
class TopicLoad(Generator):
    """The first thread administrates, the next ones poll, the rest sends to all queues of the open topics in turn.

    keys        the queues that clients send to now. polls: the queues that they read, and their positions.
    closing     topic -> the time (ns) from which on it may be deleted: nothing is sent to it.
    changes     the number of the administrator's ops so far; sent: the number of sends; offsets: the number of ops with
                a committed offset.
    change_due, poll_due, offset_due   the time (ns) of the next one.
    """

    frame: Frame
    lives: Lives
    keys: Sequence[str]
    polls: Polls
    closing: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0
    sent: int = 0
    offsets: int = 0
    change_due: int = 0
    poll_due: int = 0
    offset_due: int = 0

    @staticmethod
    def begin(frame: Frame, lives: Lives) -> TopicLoad:
        """The load of a phase. lives: what earlier phases left."""
        return _placed(TopicLoad(frame, lives, (), Polls([])))

    def op(self, ctx: Context) -> Step:
        threads = list(members(ctx.takers))
        administrator, readers = threads[0], threads[1 : 1 + self.frame.readers]
        free, wait = ctx.free_takers, [self.poll_due, self.offset_due]
        if free >> administrator & 1:
            if ctx.time >= self.change_due:
                chosen = self._change(ctx.time)
                due = ctx.time + self.frame.change_ns
                following = replace(self, changes=self.changes + 1, change_due=due)
                if isinstance(chosen, Invocation):
                    return chosen.by(ctx.process(administrator)), following
                closing = {**self.closing, chosen: ctx.time + self.frame.quiet_ns}
                return _placed(replace(following, closing=closing)).op(ctx)
            else:
                wait.append(self.change_due)
        if self.keys and ctx.time >= self.poll_due:
            step = self.polls.op(ctx.narrowed(sum(1 << t for t in readers)))
            if step is not None and isinstance(poll := step[0], Invocation) and isinstance(polls := step[1], Polls):
                of_life = replace(poll, extra={**poll.extra, LIFE: self._life(poll.key)})
                return of_life, replace(self, polls=polls, poll_due=ctx.time + self.frame.poll_ns)
        senders = ctx.narrowed(sum(1 << t for t in threads[1 + self.frame.readers :]))
        if self.keys and senders.free and ctx.time >= self.offset_due:
            due = ctx.time + self.frame.offset_ns
            process = ctx.process(senders.pick())
            return self._offset().by(process), replace(self, offsets=self.offsets + 1, offset_due=due)
        if self.keys and senders.free:
            key = self.keys[self.sent % len(self.keys)]
            send = Invocation("send", key, self.frame.first + self.sent).by(ctx.process(senders.pick()))
            return send, replace(self, sent=self.sent + 1)
        later = [due for due in wait if due > ctx.time]
        return (Pending(min(later)) if later else PENDING), self

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f == "poll":
            if event.type == INVOKE or event.key is None or event.extra.get(LIFE) != self._life(event.key):
                return self  # of a former life, or without an answer: then another process continues
            polls = self.polls.update(ctx, event)
            return replace(self, polls=polls) if isinstance(polls, Polls) and polls is not self.polls else self
        lives = after(self.lives, event)
        if lives is self.lives or event.key is None:
            return self
        polls = self.polls
        if event.key in self.lives and lives[event.key].number != self.lives[event.key].number:
            # A new life begins: the positions in the former one mean nothing now.
            kept = {place: at for place, at in polls.at.items() if _topic(place[1]) != event.key}
            polls = replace(polls, at=kept)
        return _placed(replace(self, lives=lives, polls=polls))

    def _change(self, now: int) -> Invocation | str:
        """The administrator's next op; or a topic that is to be deleted: from now on nothing is sent to it."""
        dice = Dice().at(self.frame.seed, self.changes)
        open_ = [name for name, life in self.lives.items() if life.state == "open"]
        open_changes = [
            name for name, life in self.lives.items() if life.pending is not None and life.state in ("coming", "open")
        ]
        if open_changes and dice.random() < _REPEATED:
            name = open_changes[0]
            return Invocation(UPDATE, name, self.lives[name].pending)
        quiet = [name for name in open_ if now >= self.closing.get(name, now + 1)]
        if quiet:
            return Invocation(DELETE, quiet[0])
        used = [name for name in open_ if name not in self.closing]
        if len(used) < self.frame.at_once:
            gone = [name for name, life in self.lives.items() if life.state == "gone"]
            again = bool(gone) and dice.random() < self.frame.again
            return Invocation(UPDATE, dice.choice(gone) if again else self._new_name(), MADE)
        name = dice.choice(used)
        life = self.lives[name]
        # After an unanswered change, which may be executed late, another one would not last.
        if dice.random() < _CHANGED and life.queues < MOST_QUEUES and not life.unsure:
            return Invocation(UPDATE, name, life.queues + _MORE)
        return name if self.frame.quiet_ns else Invocation(DELETE, name)

    def _new_name(self) -> str:
        return f"{self.frame.prefix}-{len(self.lives) + 1}"

    def _offset(self) -> Invocation:
        """A commit, or a request for the committed offset. Each commit has a number of its own, so that it is known
        again; brokers take any.
        """
        n, extra = self.offsets, {"group": self.frame.consumers}
        key = self.keys[n * (len(self.keys) // 2 + 1) % len(self.keys)]
        if Dice().at(self.frame.seed, -1 - n).random() < _COMMITS:
            return Invocation("commit", key, self.frame.first + n, extra)
        return Invocation("committed", key, None, extra)

    def _life(self, key: str | None) -> int:
        life = self.lives.get(_topic(key))
        return 0 if life is None else life.number


def _placed(load: TopicLoad) -> TopicLoad:
    """The load with the queues of the topics that are open now."""
    frame, used = load.frame, open_queues(load.lives, list(load.frame.groups))
    closing = {name: due for name, due in load.closing.items() if load.lives[name].state == "open"}
    keys = [*frame.steady, *(queue.key for queue in used)]
    stops = [(key, node) for key in keys for node in frame.groups[key.rsplit(":", 2)[1]]]
    nodes = list(dict.fromkeys(node for _, node in stops))
    rounds = [[s for s in stops if nodes.index(s[1]) % frame.readers == r] or stops for r in range(frame.readers)]
    sent = [key for key in keys if _topic(key) not in closing]
    return replace(load, keys=sent, closing=closing, polls=replace(load.polls, rounds=rounds))


def open_queues(lives: Lives, groups: Sequence[str]) -> list[Queue]:
    """The queues of the topics that exist, as acknowledged to the administrator."""
    return [
        Queue(name, group, number)
        for name, life in lives.items()
        if life.state == "open"
        for group in groups
        for number in range(life.queues)
    ]


def _topic(key: str | None) -> str:
    return (key or "").rsplit(":", 2)[0]
