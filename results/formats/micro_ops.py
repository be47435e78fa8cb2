# SPDX-License-Identifier: Apache-2.0
"""Splits the micro-operations of jepsen.tests.kafka, and of Maelstrom's kafka, into sends and polls of single queues.

    {:process 0, :type :invoke, :f :txn, :value [[:send 1 10] [:poll]]}
    {:process 0, :type :ok, :f :txn, :value [[:send 1 [0 10]] [:poll {1 [[0 10]]}]]}

Each send has the times of its whole operation, and a process of its own if it is not alone in it. What a poll returned
is a poll of each of its queues, at the moment of the completion: what it shows was there by then. `subscribe` lets the
database move a consumer at any time; so each poll after it begins a session of its own, and positions are not judged.
Values are unique within a key only, and become the ids of messages with their key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from results.formats.records import Notes
from results.history import Call, History
from results.op import INVOKE, NO_EXTRA, OK, Op

FROM_START: Final = "from_start"
"""In the `extra` of a `seek` without a key: the process goes to the start of all its queues."""

_OF_MICRO_OPS: Final = frozenset({"send", "poll", "txn"})
_MOVES: Final = frozenset({"assign", "subscribe", "crash"})
_LEFT_OUT: Final = frozenset({"debug-topic-partitions"})


class BadMicroOp(ValueError):
    """An error in an op, which has this index."""

    def __init__(self, op: int, what: str) -> None:
        super().__init__(what)
        self.op = op


class Split(NamedTuple):
    """names: id of a message -> its key and value as text. lost_sight: a poll of unknown outcome is there, which may
    have shown anything.
    """

    history: History
    names: dict[int, str]
    lost_sight: bool
    notes: list[str]


def has_micro_ops(history: History) -> bool:
    return any(is_micro_ops(op.value) for op in history if op.is_client and op.f in _OF_MICRO_OPS)


def is_micro_ops(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(step, list) and step[:1] in (["send"], ["poll"]) for step in value
    )


def split(history: History) -> Split:
    """Raises BadMicroOp."""
    return _Splitter(history).split()


class _Splitter:
    def __init__(self, history: History) -> None:
        self._history = history
        self._ids: dict[tuple[str, str], int] = {}
        self._ops: list[Op] = []
        self._fresh = max((op.process for op in history), default=0) + 1
        self._subscribed: set[int] = set()
        self._seeking: set[int] = set()
        self._notes = Notes()
        self._lost_sight = False

    def split(self) -> Split:
        calls = {op.index: call for call in self._history.clients.calls for op in _events(call)}
        sends: dict[int, list[tuple[int, str, int]]] = {}
        for op in self._history:
            if not op.is_client:
                self._write(op)
            elif op.f in _OF_MICRO_OPS:
                call = calls[op.index]
                if op.type == INVOKE:
                    sends[op.index] = self._invoked(call)
                else:
                    self._completed(call, op, sends[call.invoke.index])
            elif op.f in _MOVES:
                self._move(op)
            elif op.f in _LEFT_OUT:
                self._notes.count("{} events of debug-topic-partitions are not read", 1)
            else:
                raise BadMicroOp(op.index, f"the operation {op.f!r} is none of jepsen.tests.kafka")
        names = {number: f"{value} of {key}" for (key, value), number in self._ids.items()}
        return Split(History(self._ops), names, self._lost_sight, self._notes.lines())

    def _write(self, op: Op, **changes: Any) -> None:
        self._ops.append(replace(op, index=len(self._ops), **changes))

    def _invoked(self, call: Call) -> list[tuple[int, str, int]]:
        """Writes the invocations of the sends. Returns process, key and id of each."""
        steps = _steps(call.invoke)
        polls = any(step[0] == "poll" for step in steps)
        if polls and call.outcome not in (OK, "fail"):
            self._lost_sight = True
        found = []
        for step in steps:
            if step[0] != "send":
                continue
            if len(step) != 3:
                raise BadMicroOp(call.invoke.index, f"a send is [send, key, value], not {json.dumps(step)[:80]}")
            process = call.invoke.process
            if len(steps) > 1:
                process, self._fresh = self._fresh, self._fresh + 1
            key = _name(step[1])
            number = self._id(key, step[2])
            self._write(call.invoke, process=process, f="send", key=key, value=number, extra=NO_EXTRA)
            found.append((process, key, number))
        return found

    def _completed(self, call: Call, done: Op, sends: list[tuple[int, str, int]]) -> None:
        steps = _steps(done) if done.value is not None else _steps(call.invoke)
        sent = [step for step in steps if step[0] == "send"]
        if len(sent) != len(sends):
            raise BadMicroOp(done.index, f"{len(sends)} sends were invoked, and {len(sent)} are completed")
        for (process, key, number), step in zip(sends, sent, strict=True):
            offset, value = _acknowledged(done, step)
            if _name(step[1]) != key or (number != self._id(key, value)):
                raise BadMicroOp(done.index, f"{json.dumps(step)[:80]} is not the send that was invoked")
            extra = NO_EXTRA if offset is None or done.type == OK else {"offset": offset}
            shown = [offset, number] if done.type == OK else number
            self._write(done, process=process, f="send", key=key, value=shown, extra=extra)
        if done.type == OK:
            for step in steps:
                if step[0] == "poll":
                    self._poll(call, done, step)

    def _poll(self, call: Call, done: Op, step: list[Any]) -> None:
        answer = {} if len(step) == 1 or step[1] is None else step[1]
        if not isinstance(answer, dict):
            raise BadMicroOp(done.index, f"a poll shows a map of keys, not {json.dumps(answer)[:80]}")
        extra = {"start": True} if done.process in self._subscribed else NO_EXTRA
        for key, messages in answer.items():
            shown = []
            for message in messages if isinstance(messages, list) else [None]:
                if not isinstance(message, list) or len(message) != 2 or type(message[0]) is not int or message[0] < 0:
                    raise BadMicroOp(done.index, f"a poll shows [offset value], not {json.dumps(message)[:80]}")
                shown.append([message[0], self._id(_name(key), message[1])])
            self._write(done, type=INVOKE, f="poll", key=_name(key), value=None, error=None, extra=extra)
            self._write(done, f="poll", key=_name(key), value=shown, extra=NO_EXTRA)

    def _move(self, op: Op) -> None:
        keys = [_name(key) for key in op.value] if isinstance(op.value, list) else None
        self._subscribed.discard(op.process)
        if op.f == "subscribe":
            self._subscribed.add(op.process)
            if op.type == INVOKE:
                self._notes.count("{} times a consumer subscribed: its positions are not judged from there on")
        f = "crash" if op.f == "crash" else "assign"
        if op.type == INVOKE and op.extra.get("seek-to-beginning?") is True:
            self._seeking.add(op.process)
        self._write(op, f=f, value=keys, extra=NO_EXTRA)
        if op.type != INVOKE and op.process in self._seeking:
            self._seeking.discard(op.process)
            if op.type == OK:
                for type_ in (INVOKE, OK):
                    self._write(op, type=type_, f="seek", key=None, value=None, extra={FROM_START: True})

    def _id(self, key: str, value: Any) -> int:
        return self._ids.setdefault((key, _name(value)), len(self._ids) + 1)


def _events(call: Call) -> Iterator[Op]:
    yield call.invoke
    if call.completion is not None:
        yield call.completion


def _steps(op: Op) -> list[list[Any]]:
    value = op.value
    if not isinstance(value, list) or not all(
        isinstance(step, list) and step[:1] in (["send"], ["poll"]) for step in value
    ):
        raise BadMicroOp(
            op.index, f"the value is a list of [send, key, value] and [poll], not {json.dumps(value)[:80]}"
        )
    return value


def _acknowledged(done: Op, step: list[Any]) -> tuple[int | None, Any]:
    """Offset and value of a completed send, which has its argument if the offset is not known."""
    if len(step) != 3:
        raise BadMicroOp(done.index, f"a send is [send, key, [offset, value]], not {json.dumps(step)[:80]}")
    what = step[2]
    if not isinstance(what, list):
        return None, what
    if len(what) != 2 or not (what[0] is None or (type(what[0]) is int and what[0] >= 0)):
        raise BadMicroOp(done.index, f"a send is acknowledged as [offset value], not {json.dumps(what)[:80]}")
    return what[0], what[1]


def _name(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
