# SPDX-License-Identifier: Apache-2.0
"""Brings a foreign history of messages into the form of docs/histories.md.

In this order: micro-operations become sends and polls (`results.formats.micro_ops`); ids that are texts, or 0, become
numbers; sparse offsets become dense ones; if no replica was read, the last polls of a queue become its final read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from results.formats.final_polls import with_final_reads
from results.formats.micro_ops import has_micro_ops, split
from results.history import History
from results.op import INFO, INVOKE, OK, Op

_SHOWING: Final = frozenset({"poll", "replica-read", "consume"})
_ASKING: Final = _SHOWING | {"seek", "commit", "direct"}
"""Ops whose invocation has an offset."""
_ANSWERING: Final = frozenset({"max-offset", "min-offset", "committed"})
_BOUNDS: Final = ("min", "max", "next")
_DRAINED: Final = ("committed", "max", "consumed_to")


@dataclass(frozen=True)
class Messages:
    """A history of messages in our form. names: id of a message -> its own id, if that is another. changed: it is not
    the history of the file op for op.
    """

    history: History
    names: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    changed: bool = False


def in_our_form(history: History, offsets: Literal["dense", "sparse"] | None) -> Messages:
    """The history, converted. `offsets`: None is sparse for micro-operations, and else dense. Raises BadMicroOp."""
    micro = has_micro_ops(history)
    notes: list[str] = []
    names: Mapping[int, str] = {}
    lost_sight = False
    if micro:
        history, names, lost_sight, notes = split(history)
        notes = ["micro-operations are split: a send or poll of a queue each, and not judged as a transaction", *notes]
    found = history if micro else _numbered(history)
    if found is not history:
        history, names = found, _named(history, found)
        notes = [*notes, f"{len(names):,} ids are no positive numbers; they get numbers"]
    if offsets == "sparse" or (offsets is None and micro):
        history = _dense(history)
        notes = [*notes, "offsets are sparse: those below are places among the known messages of their queue"]
    after, more = with_final_reads(history, any_poll=micro, lost_sight=lost_sight)
    notes += more
    return Messages(after, names, notes, micro or after is not history)


def _numbered(history: History) -> History:
    """The history with a number for each id of a send that is no positive number; the same one if all are."""
    sends = [op.value for op in history if op.is_client and op.f == "send" and op.type == INVOKE]
    odd = [value for value in sends if isinstance(value, str) or value == 0]
    if not odd or any(isinstance(value, (list, dict, float)) for value in sends):
        return history
    fresh = max((value for value in sends if isinstance(value, int)), default=0)
    numbers: dict[Any, int] = {}
    for value in odd:
        if value in numbers and not isinstance(value, bool):
            return history  # (The check refuses a value that is sent twice, and names it.)
        numbers[value] = fresh = fresh + 1
    return History([_with_ids(op, numbers) if op.is_client else op for op in history])


def _with_ids(op: Op, numbers: Mapping[Any, int]) -> Op:
    def number(value: Any) -> Any:
        return numbers.get(value, value) if isinstance(value, (str, int)) and not isinstance(value, bool) else value

    if op.f in ("ack", "extend") and "id" in op.extra:
        return replace(op, extra={**op.extra, "id": number(op.extra["id"])})
    if not isinstance(op.value, list):
        return replace(op, value=number(op.value)) if op.f == "send" else op
    if op.f == "send" and len(op.value) == 2:
        return replace(op, value=[op.value[0], number(op.value[1])])
    if op.f in _SHOWING and op.type == OK and all(isinstance(m, list) and len(m) == 2 for m in op.value):
        return replace(op, value=[[offset, number(identity)] for offset, identity in op.value])
    if op.f == "pop" and op.type == OK and all(isinstance(m, list) and len(m) >= 5 for m in op.value):
        return replace(op, value=[[*m[:2], number(m[2]), *m[3:]] for m in op.value])
    return op


def _named(before: History, after: History) -> dict[int, str]:
    return {
        new.value: str(old.value)
        for old, new in zip(before, after, strict=True)
        if old.f == "send" and old.type == INVOKE and old.value != new.value
    }


def has_gaps(history: History) -> bool:
    """True if an offset of some queue holds no known message, and ones below and above it do."""
    return any(max(offsets) - min(offsets) >= len(offsets) for offsets in _known_offsets(history).values())


def _known_offsets(history: History) -> dict[str | None, set[int]]:
    """Queue -> the offsets of its messages that were acknowledged or read."""
    known: dict[str | None, set[int]] = {}
    for op in history.clients:
        for queue, offset in _offsets_of_messages(op):
            if type(offset) is int:
                known.setdefault(queue, set()).add(offset)
    return known


def _dense(history: History) -> History:
    """The history with the place of each message among those of its queue as its offset."""
    places = {queue: sorted(offsets) for queue, offsets in _known_offsets(history).items()}
    return History([_placed(op, places) if op.is_client else op for op in history])


def _offsets_of_messages(op: Op) -> Iterable[tuple[str | None, Any]]:
    value = op.value
    if op.f == "send":
        if op.type == OK and isinstance(value, list) and value:
            yield op.key, value[0]
        elif op.type == INFO:
            yield op.key, op.extra.get("offset")
    elif op.type == OK and isinstance(value, list):
        if op.f in _SHOWING:
            yield from ((op.key, m[0]) for m in value if isinstance(m, list) and m)
        elif op.f == "pop":
            yield from ((m[0], m[1]) for m in value if isinstance(m, list) and len(m) > 1 and isinstance(m[0], str))


def _placed(op: Op, places: Mapping[str | None, Sequence[int]]) -> Op:
    mine = places.get(op.key, ())

    def place(offset: Any, where: Sequence[int] = mine) -> Any:
        return bisect_left(where, offset) if type(offset) is int and offset >= 0 else offset

    value = op.value
    if op.f == "send" and isinstance(value, list) and len(value) == 2:
        value = [place(value[0]), value[1]]
    elif not isinstance(value, (list, dict)) and (
        (op.f in _ASKING and op.type == INVOKE) or (op.f in _ANSWERING and op.type == OK) or op.f in ("commit", "seek")
    ):
        value = place(value)
    elif op.f in _SHOWING and op.type == OK and isinstance(value, list):
        value = [[place(m[0]), *m[1:]] if isinstance(m, list) and m else m for m in value]
    elif op.f == "pop" and op.type == OK and isinstance(value, list):
        value = [
            [m[0], place(m[1], places.get(m[0], ())), *m[2:]]
            if isinstance(m, list) and len(m) > 1 and isinstance(m[0], str)
            else m
            for m in value
        ]
    elif op.f == "drain" and isinstance(value, dict):
        value = {**value, **{name: place(value[name]) for name in _DRAINED if name in value}}
    extra = op.extra
    if any(name in extra for name in (*_BOUNDS, "offset")):
        extra = {**extra, **{name: place(extra[name]) for name in (*_BOUNDS, "offset") if name in extra}}
    return replace(op, value=value, extra=extra)
