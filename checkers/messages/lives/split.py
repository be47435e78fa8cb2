# SPDX-License-Identifier: Apache-2.0
"""The lives of topics, and the ops on messages of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from checkers.messages.ops import explained
from results.history import Call, History
from results.op import FAIL, INFO, OK, Op

UPDATE: Final = "update-topic"
DELETE: Final = "delete-topic"

READS: Final = ("poll", "replica-read")
NEVER: Final = 2**62


@dataclass
class Life:
    """One life of a topic. Moments are indices of ops.

    since    its first request. made: the acknowledgement of its creation, or `NEVER`.
    queues   the number of its queues on each broker group, as last acknowledged. open: the lowest one of a change that
             was never answered, or `NEVER`: such a change may be executed at any time.
    ends     the request of its deletion, or `NEVER`. ended: the acknowledgement of that, or `NEVER`.
    update   the last change that was acknowledged. delete: its deletion.
    doubtful something of an earlier life may still be executed.
    """

    topic: str
    number: int
    since: int
    made: int = NEVER
    queues: int = 0
    ends: int = NEVER
    ended: int = NEVER
    update: Call | None = None
    delete: Call | None = None
    open: int = NEVER
    doubtful: bool = False

    @property
    def unsure(self) -> bool:
        """True if a change was never answered."""
        return self.open != NEVER

    @property
    def living(self) -> bool:
        """True if it was made and not deleted."""
        return self.made != NEVER and self.ends == NEVER and not self.doubtful

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
            if not lives or lives[-1].ends != NEVER:
                last = lives[-1] if lives else None
                doubtful = last is not None and (last.ended == NEVER or last.unsure or last.doubtful)
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
        calls = [c for c in self.history.clients.calls if c.invoke.f in ("send", *READS) and c.invoke.key is not None]
        sends = [call for call in calls if call.invoke.f == "send"]
        for call in sends:
            self.sends[call.invoke.value] = call
            life = self._life_of_send(call)
            if life is not None and call.outcome == OK:
                self.home[call.invoke.value] = life, call
        for call in calls:
            if call.invoke.f in READS:
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
                self.ops[op.index] = (op, True) if life is None else (renamed(op, life), life.living)

    def _read(self, call: Call) -> None:
        lives = self.of.get(topic_of(call), ())
        end = NEVER if call.completion is None else call.completion.index
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
                self.found.strays[identity] = renamed(send.invoke, life, call.invoke.key)

    def _is_older(self, identity: Any, life: Life) -> bool:
        home = self.home.get(identity)
        return home is not None and home[0].topic == life.topic and home[0].number < life.number

    def _life_of_send(self, call: Call) -> Life | None:
        """The life in which a send certainly began and ended."""
        end = NEVER if call.completion is None or call.outcome == INFO else call.completion.index
        for life in self.of.get(topic_of(call), ()):
            if life.since <= call.invoke.index and end < life.ends and not life.doubtful:
                return life
        return None

    def _send(self, call: Call) -> None:
        lives = self.of.get(topic_of(call), ())
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


def topic_of(call: Call) -> str:
    """The topic of an op's queue."""
    return str(call.invoke.key).rsplit(":", 2)[0]


def renamed(op: Op, life: Life, key: str | None = None) -> Op:
    """The op with the life in the name of its topic. key: the queue; None: that of the op."""
    topic, group, number = str(key or op.key).rsplit(":", 2)
    return replace(op, key=f"{topic}@{life.number}:{group}:{number}")
