# SPDX-License-Identifier: Apache-2.0
"""Watches: cheap judges of messages that see the events of a run one by one (`harness.api.Watch`).

An alarm says that the judges will report an anomaly whatever follows. So a watch uses only rules that a prefix of the
history decides, without final reads, and without the excuses of the judges:

* Two messages at one offset, one message at two places, an offset at or below one that was known before the send was
  requested: no order of appends explains it (`checkers.messages.log.linear`).
* An answer with a gap, or one that begins beyond the requested offset: `hole` or `poll-skip`
  (`checkers.messages.log.order`).
* A message that was returned although its send failed, or that nobody had sent.
* A delayed message before its time or after its recall; a transaction without a commit (`checkers.messages.delays`,
  `checkers.messages.transactions`).

A watch keeps a few numbers for each message, and does a few dictionary operations for each message that an event shows.
`work` counts the messages that it looked at, for tests of its cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from results.alarm import Alarm
from results.figures import SECOND
from results.op import FAIL, INVOKE, OK, Op

EARLY_NS: Final = SECOND
TOO_LATE_NS: Final = 2 * SECOND
"""Those of `checkers.messages.delays`; a test compares them."""

_MS: Final = 1_000_000
_GONE: Final = frozenset({"lost", "dirty-read", "nonlinearizable"})
"""If one of these is permitted, the judges leave out messages that are gone at the end."""
_ORDER: Final = ("nonlinearizable", "lost", "dirty-read", "inconsistent-offsets", "realtime-inversion", "reordered")
_PLACES: Final = ("nonlinearizable", "duplicated", "inconsistent-offsets", "lost")
_GAP: Final = ("hole", "poll-skip")
_UNSENT: Final = ("never-sent", "read-before-send")
_ABORTED: Final = ("aborted-read",)
_READS: Final = frozenset({"poll", "consume"})
_NEVER: Final = 2**62


@dataclass(slots=True)
class _Queue:
    """One queue, as the events so far show it.

    entries  offset -> the message there. high: the highest of these offsets. low: the lowest offset that any op named.
    origin   its first offset of the run, by an answer before its first send; None: no such answer. begun: a send was
             requested.
    """

    key: str
    entries: dict[int, Any] = field(default_factory=dict)
    high: int = -1
    low: int = _NEVER
    origin: int | None = None
    begun: bool = False


@dataclass(slots=True)
class _Sent:
    """A message whose send was requested. high: the highest known offset of its queue before. at: where it is known to
    be; None: not known.
    """

    queue: _Queue
    high: int
    at: int | None = None
    where: _Queue | None = None
    failed: bool = False


class LogWatch:
    """Watches `send`, `poll`, `consume` and `pop`. After a message that was sent twice it sees nothing any more."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._sent: dict[Any, _Sent] = {}
        self._requested: dict[int, Any] = {}
        self._off = False
        self.work = 0

    def see(self, op: Op) -> Alarm | None:
        """Takes one event of a client. Returns the first alarm that it proves."""
        f = op.f
        if self._off:
            return None
        if f == "send":
            return self._send(op)
        if f in _READS:
            return self._read(op)
        if f == "pop" and op.type == OK:
            return self._pop(op)
        if f == "max-offset" and op.type == OK and type(op.value) is int:
            queue = self._queue(op.key)
            if not queue.begun:
                queue.origin = op.value
        return None

    def _queue(self, key: str | None) -> _Queue:
        queue = self._queues.get(key or "")
        if queue is None:
            queue = self._queues[key or ""] = _Queue(key or "")
        return queue

    def _send(self, op: Op) -> Alarm | None:
        if op.type == INVOKE:
            if op.value in self._sent:
                self._off = True
                return None
            queue = self._queue(op.key)
            queue.begun = True
            self._sent[op.value] = _Sent(queue, queue.high)
            return None
        if op.type == OK:
            offset, identity = op.value
            sent = self._sent[identity]
            if offset is None:
                return None
            sent.queue.low = min(sent.queue.low, offset)
            return self._place(op, sent.queue, offset, identity, sent, f"acknowledged by {op.extra.get('node')}")
        identity = op.value
        sent = self._sent[identity]
        if op.type == FAIL:
            sent.failed = True
            if sent.where is not None:
                return _aborted(op, identity, sent.where.key, sent.at)
        elif type(offset := op.extra.get("offset")) is int:
            sent.queue.low = min(sent.queue.low, offset)
        return None

    def _read(self, op: Op) -> Alarm | None:
        if op.type == INVOKE:
            self._requested[op.process] = op.value
            return None
        requested = self._requested.pop(op.process, None)
        if op.type != OK:
            return None
        queue, shown = self._queue(op.key), op.value
        low = op.extra.get("min")
        if type(low) is int:
            queue.low = min(queue.low, low)
        if not shown:
            return None
        alarm = self._shown(op, queue, shown)
        return alarm or self._gap(op, queue, shown, requested, low if type(low) is int else -1)

    def _pop(self, op: Op) -> Alarm | None:
        alarm = None
        for key, offset, identity, _, retried, *_ in op.value:
            if not retried:
                alarm = self._shown(op, self._queue(key), ((offset, identity),)) or alarm
        return alarm

    def _shown(self, op: Op, queue: _Queue, shown: Sequence[Sequence[Any]]) -> Alarm | None:
        """Takes the messages that a read returned."""
        entries, alarm = queue.entries, None
        self.work += len(shown)
        for offset, identity in shown:
            if entries.get(offset) == identity:
                continue
            queue.low = min(queue.low, offset)
            sent = self._sent.get(identity)
            if sent is None:
                # Messages in front of the origin are older than the run. Without a send there is no queue yet.
                if queue.begun and (queue.origin is None or offset >= queue.origin):
                    text = f"message {identity} at {queue.key}:{offset}, which nobody had sent"
                    alarm = alarm or Alarm(_UNSENT, op.index, text, frozenset(_UNSENT))
                continue
            alarm = alarm or self._place(op, queue, offset, identity, sent, f"returned by {op.extra.get('node')}")
        return alarm

    def _place(self, op: Op, queue: _Queue, offset: int, identity: Any, sent: _Sent, how: str) -> Alarm | None:
        """Notes that a message is at an offset."""
        if sent.failed:
            sent.where, sent.at = queue, offset
            return _aborted(op, identity, queue.key, offset)
        before = queue.entries.setdefault(offset, identity)
        if before != identity:
            text = f"messages {before} and {identity} at {queue.key}:{offset}, the latter {how}"
            return Alarm(_ORDER, op.index, text, _GONE)
        if sent.where is not None and (sent.where is not queue or sent.at != offset):
            text = f"message {identity} at {sent.where.key}:{sent.at} and, {how}, at {queue.key}:{offset}"
            return Alarm(_PLACES, op.index, text, _GONE | {"duplicated"})
        sent.where, sent.at = queue, offset
        queue.high = max(queue.high, offset)
        if sent.queue is not queue:
            text = f"message {identity}, sent to {sent.queue.key}, at {queue.key}:{offset}, {how}"
            return Alarm(_PLACES, op.index, text, _GONE)
        if offset <= sent.high:
            text = f"message {identity} at {queue.key}:{offset}, {how}; offset {sent.high} was known before its send"
            return Alarm(_ORDER, op.index, text, _GONE)
        return None

    def _gap(self, op: Op, queue: _Queue, shown: Sequence[Sequence[Any]], requested: Any, low: int) -> Alarm | None:
        """Looks for offsets that an answer leaves out: offsets are dense."""
        first, last = shown[0][0], shown[-1][0]
        missing = frozenset(_GAP)
        if last - first >= len(shown):
            text = f"{op.extra.get('node')} returned {len(shown)} messages from {queue.key}:{first} to {last}"
            return Alarm(_GAP, op.index, text, missing)
        if type(requested) is not int or not queue.begun:
            return None
        first = min(offset for offset, _ in shown) if last < first else first
        begin = max(requested, low, queue.low if queue.origin is None else queue.origin)
        if first > begin:
            text = f"{op.extra.get('node')} was asked for {queue.key}:{begin}, and continued at {first}"
            return Alarm(_GAP, op.index, text, missing)
        return None


def _aborted(op: Op, identity: Any, key: str | None, offset: int | None) -> Alarm:
    text = f"message {identity} at {key}:{offset}, and its send failed"
    return Alarm(_ABORTED, op.index, text, frozenset(_ABORTED))


class _Followed:
    """The common part of the watches that follow a message by its id alone. `first`: what its first sighting proves."""

    def __init__(self, send: str) -> None:
        self._send, self._known, self._seen, self._failed = send, set[Any](), set[Any](), set[Any]()
        self.work = 0

    def see(self, op: Op) -> Alarm | None:
        """Takes one event of a client. Returns the first alarm that it proves."""
        if op.f == "poll":
            return self._poll(op) if op.type == OK else None
        if op.f == self._send:
            if op.type == INVOKE:
                self._known.add(op.value)
                self.sent(op)
            elif op.type == FAIL:
                self._failed.add(op.value)
                if op.value in self._seen:
                    return _aborted(op, op.value, op.key, None)
            return None
        return self.other(op)

    def _poll(self, op: Op) -> Alarm | None:
        alarm, seen = None, self._seen
        self.work += len(op.value)
        for offset, identity in op.value:
            if identity in seen:
                continue
            seen.add(identity)
            if identity in self._failed:
                alarm = alarm or _aborted(op, identity, op.key, offset)
            else:
                alarm = alarm or self.first(op, offset, identity)
        return alarm

    def sent(self, op: Op) -> None:
        """Takes the request of a send."""

    def other(self, op: Op) -> Alarm | None:
        """Takes an event of another kind."""
        return None

    def first(self, op: Op, offset: int, identity: Any) -> Alarm | None:
        """Takes the first sighting of a message whose send has not failed so far."""
        return None


class DelayWatch(_Followed):
    """Watches `delay`, `recall` and `poll`: a message before its time, after its recall, without its send."""

    def __init__(self) -> None:
        super().__init__("delay")
        self._earliest: dict[Any, int] = {}
        self._recalled: set[Any] = set()

    def sent(self, op: Op) -> None:
        self._earliest[op.value] = op.time + op.extra["wait_ms"] * _MS

    def other(self, op: Op) -> Alarm | None:
        if op.f != "recall" or op.type != OK or op.time + TOO_LATE_NS > self._earliest.get(op.value, 0):
            return None
        self._recalled.add(op.value)
        return self._after_recall(op, op.value) if op.value in self._seen else None

    def first(self, op: Op, offset: int, identity: Any) -> Alarm | None:
        earliest = self._earliest.get(identity)
        if earliest is None:
            names = ("never-sent", "delivered-early")
            text = f"message {identity} at {op.key}:{offset}, which nobody had sent"
            return Alarm(names, op.index, text, frozenset(names))
        if op.time < earliest - EARLY_NS:
            text = f"message {identity} at {op.key}:{offset}, {(earliest - op.time) / SECOND:.1f} s before it was due"
            return Alarm(("delivered-early",), op.index, text, frozenset({"delivered-early"}))
        return self._after_recall(op, identity) if identity in self._recalled else None

    @staticmethod
    def _after_recall(op: Op, identity: Any) -> Alarm:
        names = ("recalled-delivered",)
        return Alarm(names, op.index, f"message {identity} was recalled in time, and read", frozenset({*names, "lost"}))


class TransactionWatch(_Followed):
    """Watches `half`, `end` and `poll`: a message that nobody had committed. ends: the clients report each end before
    they send it; else only messages whose half message failed are seen.
    """

    def __init__(self, ends: bool = True) -> None:
        super().__init__("half")
        self._ends = ends
        self._commits: set[Any] = set()

    def other(self, op: Op) -> Alarm | None:
        if op.f == "end" and op.type == INVOKE and op.extra.get("as") == "commit":
            self._commits.add(op.value)
        return None

    def first(self, op: Op, offset: int, identity: Any) -> Alarm | None:
        if identity in self._commits or not self._ends:
            return None
        names: tuple[str, ...] = ("uncommitted-read", "rolled-back-read", "aborted-read")
        names = names if identity in self._known else ("never-sent", *names)
        text = f"message {identity} at {op.key}:{offset}, and nobody had committed it"
        return Alarm(names, op.index, text, frozenset(names))
