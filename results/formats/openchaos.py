# SPDX-License-Identifier: Apache-2.0
"""OpenChaos' history of a queue: lines with tabs, ten columns in its last version and fewer before.

    0	enqueue	REQUEST	1	null	1700000000000	null
    0	enqueue	RESPONSE	SUCCESS	1	null	1700000000010	10	null	0
    1	dequeue	RESPONSE	SUCCESS	1	null	1700000000020	5	null	12
    fault	minor-kill	start	1700000000021

The order of the lines is the order of the events: OpenChaos writes them under one lock. An enqueue that ended in
FAILURE or UNKNOWN is of unknown outcome. Each message that a client received is a `dequeue` of its own, at the moment
of its line, since one request may bring many messages and a push consumer makes none; a dequeue that brought nothing is
a `fail`. Such a history is judged by `checkers.messages.exchange`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from results.errors import HistoryError
from results.formats.foreign import Assembler, BadEvent, ForeignHistory, ReadOptions
from results.op import FAIL, INFO, INVOKE, OK

_NS: Final = 1_000_000
"""The unit of its times, ms, in ns."""

_REQUEST: Final = {5: (3, None, 4), 6: (3, 4, 5), 7: (3, 4, 5)}
"""Number of columns -> the columns of value, sharding key and time."""
_RESPONSE: Final = {7: (4, None, 5), 8: (4, 5, 6), 9: (4, 5, 6), 10: (4, 5, 6)}
_RESULTS: Final = frozenset({"SUCCESS", "FAILURE", "UNKNOWN"})


class _Event(NamedTuple):
    client: int
    f: str
    value: str | None
    key: str | None
    time: int
    result: str | None
    """None: a request."""


def read_openchaos(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads a whole history. Raises HistoryError with the line."""
    reader = _Reader(options)
    number = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            reader.add(line)
        except ValueError as problem:
            raise HistoryError(path, number, f"{problem} ({line[:200]!r})") from None
    try:
        return reader.assembler.finish("openchaos", [])
    except BadEvent as problem:
        raise HistoryError(path, None, str(problem)) from None


class _Reader:
    def __init__(self, options: ReadOptions) -> None:
        self.assembler = Assembler(options)
        self._now = 0

    def add(self, line: str) -> None:
        """Raises ValueError."""
        columns = line.split("\t")
        if columns[0] == "fault":
            self._fault(columns)
            return
        event = _event(columns)
        self._now = max(self._now, event.time)
        if event.f == "dequeue":
            if event.result is not None:
                self._dequeue(event)
        elif event.result is None:
            self._write(event.client, INVOKE, event)
        else:
            self._write(event.client, OK if event.result == "SUCCESS" else INFO, event)

    def _dequeue(self, event: _Event) -> None:
        consumer = f"consumer {event.client}"
        self._write(consumer, INVOKE, event._replace(value=None))
        if event.result == "SUCCESS" and event.value is None:
            raise ValueError("a dequeue that brought a message has no value")
        self._write(consumer, OK if event.result == "SUCCESS" else FAIL, event)

    def _fault(self, columns: list[str]) -> None:
        if len(columns) != 4 or columns[2] not in ("start", "end"):
            raise ValueError("a fault is: fault, its name, start or end, its time")
        self._now = max(self._now, _time(columns[3]))
        f = f"{'start' if columns[2] == 'start' else 'stop'}-{columns[1]}"
        for type_ in (INVOKE, INFO):
            self.assembler.add("nemesis", type_, f, None, time=self._now * _NS)

    def _write(self, process: int | str, type_: str, event: _Event) -> None:
        error = event.result if type_ in (FAIL, INFO) else None
        extra: dict[str, Any] = {} if event.key is None else {"sharding_key": event.key}
        self.assembler.add(process, type_, event.f, event.value, error=error, time=self._now * _NS, extra=extra)


def _event(columns: list[str]) -> _Event:
    if len(columns) < 3 or not columns[0].isdecimal() or columns[2] not in ("REQUEST", "RESPONSE"):
        raise ValueError("not a line of OpenChaos: client, operation, REQUEST or RESPONSE, ...")
    client, f = int(columns[0]), columns[1]
    if f not in ("enqueue", "dequeue"):
        raise ValueError(f"the operation is {f!r}; of OpenChaos, only queues are read (enqueue and dequeue)")
    response = columns[2] == "RESPONSE"
    where = (_RESPONSE if response else _REQUEST).get(len(columns))
    if where is None:
        raise ValueError(f"a {columns[2]} of {len(columns)} columns; no version of OpenChaos writes this")
    if response and columns[3] not in _RESULTS:
        raise ValueError(f"the result is {columns[3]!r}, none of {', '.join(sorted(_RESULTS))}")
    value, key, time = where
    named = None if key is None or columns[key] in ("", "null") else columns[key]
    shown = None if columns[value] in ("", "null") else columns[value]
    if f == "enqueue" and shown is None:
        raise ValueError("an enqueue has no value")
    return _Event(client, f, shown, named, _time(columns[time]), columns[3] if response else None)


def _time(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"the time is {text!r}, not milliseconds")
    return int(text)
