# SPDX-License-Identifier: Apache-2.0
"""A history of sends and reads as columns: the input of all checkers of logs.

A history may have a million ops, and each read may return dozens of messages. So there is no object per message:
`Sends`, `Reads` and `Sightings` are numpy arrays of equal length, with one row per call or per returned message.
Queues, nodes and ids that are not numbers are interned (`LogColumns.queues`, `LogColumns.nodes`,
`LogColumns.strangers`).

Times are indices of ops, which are the order of time. `t0` and `t1` are the same times in ns, for texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checkers.messages.ops import explained
from results.history import Call, History

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER: Final = 2**62
"""Instead of the moment of a completion that is missing, or is `info`: the send may still take effect."""

NONE: Final = -1
"""Instead of an offset, a node or a code that no op names."""

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
_OUTCOMES: Final = {"ok": OK, "fail": FAIL, "info": INFO}

POLL: Final = 0
REPLICA_READ: Final = 1
CONSUME: Final = 2
POP: Final = 3
_READS: Final = {"poll": POLL, "replica-read": REPLICA_READ, "consume": CONSUME, "pop": POP}

MOVES: Final = frozenset({"assign", "crash", "seek"})
"""Ops that change the position of a process: it gets other queues, forgets its position, or selects one."""


@dataclass(frozen=True)
class Sends:
    """One row per `send`. `end`: NEVER unless it was acknowledged or refused; `offset`: the broker's (an `info` may
    have one, too); `node`: the one that answered, or else the one that got the request.
    """

    start: Ints
    end: Ints
    t0: Ints
    t1: Ints
    outcome: Ints
    id: Ints
    queue: Ints
    offset: Ints
    node: Ints
    process: Ints


@dataclass(frozen=True)
class Reads:
    """One row per read that succeeded. Its messages are the sightings `first` to `first + count`.

    f       POLL, REPLICA_READ, CONSUME or POP.
    requested  the requested offset, NONE: the client gave none; a `replica-read` without one begins at the start.
    min, max, next   as the server reported them.
    master  1: read as the master, 0: as a slave, NONE: not recorded.
    done    1: the read reached the end of the queue.
    session polls of one process and queue with the same number continue one another: no seek, assignment or crash
            came between them.
    """

    start: Ints
    end: Ints
    t0: Ints
    t1: Ints
    f: Ints
    queue: Ints
    node: Ints
    process: Ints
    requested: Ints
    min: Ints
    max: Ints
    next: Ints
    master: Ints
    done: Ints
    session: Ints
    first: Ints
    count: Ints


@dataclass(frozen=True)
class Sightings:
    """One row per message that a read showed, in the order of the answer. `read` is a row of `Reads`."""

    read: Ints
    queue: Ints
    offset: Ints
    id: Ints


@dataclass(frozen=True)
class Places:
    """Every (queue, offset, id) that a read showed, once; sorted by queue, offset, id.

    first   the row of `Reads` with the earliest answer; `last`: the one with the latest invocation.
    final   bit n + 1: the final read-through of node n showed it; bit 0: one that names no node.
    """

    queue: Ints
    offset: Ints
    id: Ints
    first: Ints
    last: Ints
    final: Ints


@dataclass(frozen=True)
class LogColumns:
    """All columns of a history.

    origins   queue -> its first offset: the result of a `max-offset` that was answered before the queue's first send;
              else the lowest offset that any op names: the `min` of an answer, or the offset of a message that was sent
              or read. 0: no op names one.
    tried     (queue, node) of every final read-through that was attempted.
    """

    queues: Sequence[str]
    nodes: Sequence[str]
    strangers: Sequence[str]
    sends: Sends
    reads: Reads
    sightings: Sightings
    places: Places
    origins: Ints
    tried: frozenset[tuple[int, int]]

    def node(self, code: int) -> str:
        """A node's readable name."""
        return self.nodes[code] if code >= 0 else "an unknown node"

    def name(self, identity: int) -> str:
        """A message's readable id: its number, or the bytes of a body that no client of the run wrote."""
        if identity == NONE:
            return "none"
        return str(identity) if identity >= 0 else self.strangers[-2 - identity]


def facts(history: History) -> LogColumns:
    """The facts of a history.

    Raises BadOp (one line, with the op) if a value differs from the definition in docs/histories.md.
    """
    with explained(history):
        return _Gatherer().gather(history)


class _Names:
    """Texts as small numbers, in order of first use."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, text: Any) -> int:
        if text is None:
            return NONE
        return self.codes.setdefault(str(text), len(self.codes))


class _Gatherer:
    def __init__(self) -> None:
        self.queues, self.nodes, self.strangers = _Names(), _Names(), _Names()
        self.sends: list[tuple[int, ...]] = []
        self.reads: list[tuple[int, ...]] = []
        self.shown: list[Sequence[Any]] = []
        self.tried: set[tuple[int, int]] = set()
        self.begun: dict[int, int] = {}
        self.ends: list[tuple[int, int, int]] = []
        self.sessions: dict[int, dict[int, tuple[int, bool]]] = {}

    def gather(self, history: History) -> LogColumns:
        for call in history.clients.calls:
            f = call.invoke.f
            if f == "send":
                self._send(call)
            elif f in _READS:
                self._read(call, _READS[f])
            elif f == "max-offset":
                self._end(call)
            elif f in MOVES and call.outcome != "fail":
                self._move(call)
        sends = Sends(*_columns(self.sends, 10))
        reads = Reads(*_columns(self.reads, 17))
        sightings = self._sightings(reads)
        places = _places(reads, sightings)
        queues, nodes, strangers = (tuple(n.codes) for n in (self.queues, self.nodes, self.strangers))
        origins = self._origins(sends, reads, places)
        return LogColumns(queues, nodes, strangers, sends, reads, sightings, places, origins, frozenset(self.tried))

    def _send(self, call: Call) -> None:
        invoke, done = call.invoke, call.completion
        if type(invoke.value) is not int or invoke.value <= 0 or invoke.key is None:
            raise ValueError("not an id, or no queue")
        outcome = _OUTCOMES[call.outcome]
        extra = invoke.extra if done is None else done.extra
        offset: Any = extra.get("offset")
        if outcome == OK and done is not None:
            offset, _ = done.value
        self.begun.setdefault(self.queues.code(invoke.key), invoke.index)
        row = (
            invoke.index,
            NEVER if done is None or outcome == INFO else done.index,
            invoke.time,
            invoke.time if done is None else done.time,
            outcome,
            invoke.value,
            self.queues.code(invoke.key),
            _number(offset),
            self.nodes.code(extra.get("node") or invoke.extra.get("node")),
            invoke.process,
        )
        self.sends.append(row)

    def _read(self, call: Call, f: int) -> None:
        invoke, done = call.invoke, call.completion
        queue = self.queues.code(invoke.key) if f != POP else NONE
        extra: Mapping[str, Any] = {**invoke.extra, **done.extra} if done is not None else invoke.extra
        node = self.nodes.code(extra.get("node"))
        if f == REPLICA_READ:
            self.tried.add((queue, node))
        session = self._session(call, queue, extra) if f == POLL else NONE
        if done is None or done.type != "ok":
            return
        value = done.value
        if not isinstance(value, (list, tuple)):
            raise ValueError("not a list of messages")
        if f == POP:
            for held in value:
                queue, offset, identity = self.queues.code(held[0]), held[1], held[2]
                if not held[4]:
                    self._row(call, f, queue, node, NONE, extra, [(offset, identity)])
            return
        self._row(call, f, queue, node, session, extra, value)

    def _row(
        self,
        call: Call,
        f: int,
        queue: int,
        node: int,
        session: int,
        extra: Mapping[str, Any],
        value: Sequence[Any],
    ) -> None:
        invoke, done = call.invoke, call.completion
        assert done is not None
        role, most, after = extra.get("role"), _number(extra.get("max")), NONE if not value else value[-1][0] + 1
        finished = extra.get("done")
        row = (
            invoke.index,
            done.index,
            invoke.time,
            done.time,
            f,
            queue,
            node,
            invoke.process,
            0 if f == REPLICA_READ and invoke.value is None else _number(invoke.value),
            _number(extra.get("min")),
            most,
            _number(extra.get("next")),
            NONE if role is None else int(role == "master"),
            int(NONE < most <= max(after, _number(invoke.value)) if finished is None else bool(finished)),
            session,
            len(self.shown),
            len(value),
        )
        self.reads.append(row)
        self.shown.extend(value)

    def _move(self, call: Call) -> None:
        """The process continues elsewhere: in one queue, or in all but those that it keeps."""
        invoke, done = call.invoke, call.completion
        kept: Any = ()
        if invoke.f == "assign":
            kept = (done.value if done is not None else None) or invoke.value or ()
        keep = {self.queues.code(key) for key in kept}
        mine = self.sessions.get(invoke.process, {})
        if invoke.key is not None:
            mine.pop(self.queues.code(invoke.key), None)
        else:
            self.sessions[invoke.process] = {queue: at for queue, at in mine.items() if queue in keep}

    def _session(self, call: Call, queue: int, extra: Mapping[str, Any]) -> int:
        """The number of the session of a poll. A poll that names its offset begins a new session, as a seek does,
        unless a `start` opened its session: then it continues that. This depends on the request only, not the answer.
        """
        mine = self.sessions.setdefault(call.invoke.process, {})
        at, opened = mine.get(queue, (NONE, False))
        start = bool(extra.get("start"))
        if start or at == NONE or (call.invoke.value is not None and not opened):
            at = call.invoke.index
            mine[queue] = at, start
        return at

    def _end(self, call: Call) -> None:
        """Records the end of the queue. Before the first send, all messages below it are older than the run."""
        if call.completion is not None and call.completion.type == "ok":
            self.ends.append((self.queues.code(call.invoke.key), call.completion.index, _number(call.completion.value)))

    def _origins(self, sends: Sends, reads: Reads, places: Places) -> Ints:
        lowest = np.full(len(self.queues.codes), NEVER, dtype=np.int64)
        for queue, offset in (
            (sends.queue[sends.outcome != FAIL], sends.offset[sends.outcome != FAIL]),
            (reads.queue, reads.min),
            (places.queue, places.offset),
        ):
            known = (queue != NONE) & (offset != NONE)
            np.minimum.at(lowest, queue[known], offset[known])
        for code, answered, end in self.ends:
            if end != NONE and answered < self.begun.get(code, NEVER):
                lowest[code] = end
        return np.where(lowest == NEVER, 0, lowest)

    def _sightings(self, reads: Reads) -> Sightings:
        try:
            flat = np.fromiter(chain.from_iterable(self.shown), dtype=np.int64)
        except (ValueError, TypeError):
            flat = np.fromiter(self._plain(), dtype=np.int64)
        if len(flat) != 2 * len(self.shown):
            raise ValueError("a read shows messages as [offset, id] pairs")
        row = np.repeat(np.arange(len(reads.start)), reads.count)
        return Sightings(row, reads.queue[row], flat[0::2], flat[1::2])

    def _plain(self) -> Iterable[int]:
        """Yields offsets and ids. Ids that are texts (bodies of other origin) get numbers from -2 down."""
        for pair in self.shown:
            offset, identity = pair
            yield offset
            yield identity if isinstance(identity, int) else -2 - self.strangers.code(identity)


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else NONE


def _columns(rows: list[tuple[int, ...]], width: int) -> list[Ints]:
    if not rows:
        return [np.zeros(0, dtype=np.int64) for _ in range(width)]
    table = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(rows) * width).reshape(-1, width)
    return [np.ascontiguousarray(table[:, i]) for i in range(width)]


def _places(reads: Reads, sightings: Sightings) -> Places:
    empty = np.zeros(0, dtype=np.int64)
    if not len(sightings.id):
        return Places(empty, empty, empty, empty, empty, empty)
    order = np.lexsort((sightings.id, sightings.offset, sightings.queue))
    queue, offset, identity = sightings.queue[order], sightings.offset[order], sightings.id[order]
    read = sightings.read[order]
    fresh = np.empty(len(order), dtype=bool)
    fresh[0] = True
    fresh[1:] = (np.diff(queue) != 0) | (np.diff(offset) != 0) | (np.diff(identity) != 0)
    at = np.nonzero(fresh)[0]
    # Indices of ops are unique, so they determine the read with the earliest answer, or the latest invocation.
    by_end, by_start = _rank(reads.end), _rank(reads.start)
    first = np.argsort(by_end, kind="stable")[np.minimum.reduceat(by_end[read], at)]
    last = np.argsort(by_start, kind="stable")[np.maximum.reduceat(by_start[read], at)]
    bit = np.where(reads.f == REPLICA_READ, np.left_shift(1, np.clip(reads.node + 1, 0, 62)), 0)
    final = np.bitwise_or.reduceat(bit[read], at)
    return Places(queue[at], offset[at], identity[at], first, last, final)


def _rank(moments: Ints) -> Ints:
    """0, 1, 2, ... in order of time; ties (the messages of one pop) by row."""
    rank = np.empty(len(moments), dtype=np.int64)
    rank[np.argsort(moments, kind="stable")] = np.arange(len(moments))
    return rank
