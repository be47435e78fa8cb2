# SPDX-License-Identifier: Apache-2.0
"""A watch of registers (`harness.api.Watch`): reads that are stale by the intervals of the ops so far.

Every value of a key is written at most once (else the watch leaves the key out), so a register has each value for one
interval of time. An op that reads or writes a value proves that the register had it at some moment between the op's
invocation and its completion. Three such moments decide: the value v, after it another value, and v again. So a read is
stale if an earlier op had shown v, then an op that was invoked later had shown another value, and the read was invoked
after that one's completion. For each key, only the two latest invocations among completed ops of different values are
needed. A read of a value that nobody had written, or whose write failed, proves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from results.alarm import Alarm
from results.op import FAIL, INVOKE, OK, Op

_NAMES: Final = ("nonlinearizable",)
_UNLESS: Final = frozenset(_NAMES)
_BEFORE: Final = -1

Latest = tuple[int, Any, int]
"""The latest invocation among completed ops, its value, and the latest of another value (-1: none)."""


@dataclass(slots=True)
class _Key:
    """One register. known: value -> the completion that first showed it. written, failed: values of requested writes,
    and of those that failed.
    """

    known: dict[Any, int] = field(default_factory=lambda: {None: _BEFORE})
    written: set[Any] = field(default_factory=set)
    failed: set[Any] = field(default_factory=set)
    latest: Latest = (_BEFORE, None, _BEFORE)
    off: bool = False


class RegisterWatch:
    """Watches `read`, `write` and `cas` of registers that begin with null. `work` counts its steps."""

    def __init__(self) -> None:
        self._keys: dict[str | None, _Key] = {}
        self._open: dict[int, tuple[int, Latest, Any]] = {}
        self.work = 0

    def see(self, op: Op) -> Alarm | None:
        """Takes one event of a client. Returns an alarm for a read that no order explains."""
        if op.f not in ("read", "write", "cas"):
            return None
        key = self._keys.get(op.key)
        if key is None:
            key = self._keys[op.key] = _Key()
        self.work += 1
        if op.type == INVOKE:
            written = None
            if op.f != "read":
                written = op.value[1] if op.f == "cas" else op.value
                key.off = key.off or written is None or written in key.written
                key.written.add(written)
            self._open[op.process] = op.index, key.latest, written
            return None
        opened = self._open.pop(op.process, None)
        if key.off or opened is None:
            return None
        begun, latest, written = opened
        if op.type == FAIL and op.f != "read":
            return self._failed(op, key, written)
        if op.type != OK:
            return None
        if op.f == "write":
            self._shown(op, key, op.value, begun)
            return None
        value = op.value[0] if op.f == "cas" else op.value
        alarm = self._read(op, key, value, latest)
        self._shown(op, key, value, begun)
        if op.f == "cas":
            self._shown(op, key, op.value[1], begun)
        return alarm

    @staticmethod
    def _failed(op: Op, key: _Key, value: Any) -> Alarm | None:
        key.failed.add(value)
        if value not in key.known:
            return None
        return Alarm(_NAMES, op.index, f"key {op.key}: {value} was read, and its write failed", _UNLESS)

    @staticmethod
    def _read(op: Op, key: _Key, value: Any, latest: Latest) -> Alarm | None:
        if value is not None and value not in key.written:
            return Alarm(_NAMES, op.index, f"key {op.key}: read {value}, which nobody had written", _UNLESS)
        if value in key.failed:
            return Alarm(_NAMES, op.index, f"key {op.key}: read {value}, whose write had failed", _UNLESS)
        since, newest, other = latest
        known = key.known.get(value)
        after = other if newest == value else since
        if known is None or after <= known:
            return None
        text = f"key {op.key}: read {value} (known at op {known}) after another value (of op {after})"
        return Alarm(_NAMES, op.index, text, _UNLESS)

    @staticmethod
    def _shown(op: Op, key: _Key, value: Any, begun: int) -> None:
        key.known.setdefault(value, op.index)
        since, newest, other = key.latest
        if value == newest:
            if begun > since:
                key.latest = begun, newest, other
        elif begun > since:
            key.latest = begun, value, since
        elif begun > other:
            key.latest = since, newest, begun
