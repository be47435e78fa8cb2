# SPDX-License-Identifier: Apache-2.0
"""JSON lines: the harness' journal, and similar files of other programs.

    {"process":0,"type":"invoke","f":"write","key":"x","value":3}
    {"process":0,"type":"ok","f":"write","key":"x","value":3}

A file whose first line carries a CRC is a journal: every line must then match its own, and a torn end is cut. In
others `index` and `time` (ns) default to the line's place, and only a last line without its newline is torn. These may
name the process `client`, give it a name instead of a number, or be one array of all events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from results.durable import replacing
from results.errors import HistoryError, with_article
from results.formats.foreign import NEEDING, OLD_AND_NEW, READS, Assembler, BadEvent, ForeignHistory, ReadOptions
from results.formats.implied import FINAL
from results.formats.independent import keyed, keyed_for_certain, keyed_note
from results.formats.signs import CALLED, RETURNED, OtherObjects, other_key, plain_field
from results.formats.times import MIXED, Instant, in_ns, kind, moment
from results.journal import has_crc, line, scan
from results.op import INFO, INVOKE, OK, OP_TYPES, Op, OpType
from results.reading import LINE, TwiceNamed, json_of, lines

if TYPE_CHECKING:
    from results.formats.records import Notes


def read_jsonl(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """The history in a file. Raises HistoryError with the line."""
    first = next((text for text in iter(lambda: file.readline(LINE), b"") if not text.isspace()), b"")
    file.seek(0)
    assembler = Assembler(options, nil_reads="unset")
    others = _OtherNames(assembler)
    front = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    whole, table = front == b"[", front not in (b"[", b"{", b"")
    if table:
        ops, torn = _table(path, file, others), None
    elif whole:
        ops, torn = _array(path, file, others), None
    else:
        ops, torn = scan(path, lines(file), need_crc=has_crc(first), adapt=others)
    del first

    def refused(place: int, problem: ValueError) -> HistoryError:
        if whole or table:
            return HistoryError(path, None, f"event {place}: {problem}")
        file.seek(0)
        number, text = _line_of(file, place)
        backwards = options.order is None and len(ops) > 1 and ops[0].time > ops[-1].time
        hint = "; the times run backwards, and --order time sorts the events" if backwards else ""
        return HistoryError(path, number, f"{problem}{hint} ({text[:200]!r})")

    certain = not options.independent and _keyed(ops)
    for place, op in enumerate(ops):
        try:
            if (certain or options.independent) and op.is_client:
                key, value = keyed(op.f, op.value)
                assembler.take(replace(op, key=key, value=value))
            else:
                assembler.take(op)
        except ValueError as problem:
            raise refused(place, problem) from None
    try:
        return assembler.finish("jsonl", [*others.notes(), *keyed_note(certain)], torn)
    except BadEvent as problem:
        raise refused(problem.place, problem) from None


def _keyed(ops: Sequence[Op]) -> bool:
    """True if no event has a key, and each value has one."""
    shown = ((None if op.is_client else "nemesis", op.f, op.value) for op in ops)
    return keyed_for_certain(shown) and all(op.key is None for op in ops)


def _array(path: Path, file: IO[bytes], others: _OtherNames) -> list[Op]:
    """The events of one JSON array."""
    try:
        events = json_of(file.read())
    except RecursionError:
        raise HistoryError(path, None, "a value in it is nested too deeply") from None
    except ValueError as problem:
        what = "" if isinstance(problem, TwiceNamed) else "not a JSON array of events: "
        raise HistoryError(path, None, f"{what}{problem}") from None
    ops = []
    for place, data in enumerate(events):
        try:
            if not isinstance(data, dict):
                raise ValueError(f"not a JSON object but {type(data).__name__}")
            others(data)
            data.setdefault("index", place)
            data.setdefault("time", data["index"])
            ops.append(Op.from_json(data))
        except ValueError as problem:
            raise HistoryError(path, None, f"event {place}: {problem}") from None
    return ops


def _table(path: Path, file: IO[bytes], others: _OtherNames) -> list[Op]:
    """The events of a table (CSV)."""
    # Imported here: few files are tables.
    from results.formats.csv_rows import Rows

    ops = []
    for place, row in Rows(path, file):
        data = {plain_field(name): value for name, value in row.items()}
        try:
            others(data)
            data.setdefault("index", place.number)
            data.setdefault("time", data["index"])
            ops.append(Op.from_json(data))
        except ValueError as problem:
            raise place.error(path, str(problem)) from None
    return ops


_OTHERS: Final = {
    "process": ("client", "client_id", "thread", "worker"),
    "f": ("op", "operation"),
    "type": ("event", "phase"),
    "time": ("ts", "timestamp"),
}
"""Field of an event -> names that others give it."""
_ARGUMENTS: Final = ("input", "argument", "args", "arg")
_RESULTS: Final = ("output", "result", "response", "ret")
_RETURNED: Final = frozenset(RETURNED)
_TYPES: Final = {**dict.fromkeys(CALLED, INVOKE), "timeout": INFO, "unknown": INFO}
_OUTCOMES: Final = (
    "status", "outcome", "ok", "success", "succeeded", "err", "exception", "timeout", "timed_out", "failed",
)  # fmt: skip
"""Fields by which an event that is called a return may say that the operation did not succeed."""


class _OtherNames:
    """Converts an event of another program to one of the harness, in place. Raises ValueError if that is impossible."""

    def __init__(self, assembler: Assembler) -> None:
        self._number_of = assembler.number_of
        self._renamed: dict[str, str] = {}
        self._outcomes: Notes | None = None
        self._kinds: set[type[float] | None] = set()
        self._unread: dict[str, None] = {}
        self._empty = 0
        self._objects = OtherObjects()

    def __call__(self, data: dict[str, Any]) -> None:
        for right, others in _OTHERS.items():
            if right not in data:
                other = next((name for name in others if name in data), None)
                if other is not None:
                    data[right] = data.pop(other)
                    self._renamed[other] = right
        missing = next((name for name in ("process", "type", "f") if name not in data), None)
        if missing is not None:
            raise ValueError(_lacking(missing, data))
        for name in ("type", "f", "process"):
            if isinstance(data[name], str) and data[name][:1] == ":":
                data[name] = data[name][1:]
        if not isinstance(data["f"], str):
            raise ValueError(f"f is {json.dumps(data['f'])[:80]}, not the name of an operation")
        if not data["f"].islower():
            data["f"] = _plain_name(data["f"])
        returned_only = False
        if isinstance(data["type"], str):
            lower = data["type"].lower()
            returned_only = lower in _RETURNED
            returned = self._returned(data) if returned_only else OK
            known = _TYPES.get(lower, returned if returned_only else data["type"])
            data["type"] = lower if lower in OP_TYPES else known
        if "value" not in data:
            names = _ARGUMENTS if data["type"] == INVOKE else _RESULTS
            found = next((name for name in names if name in data), None)
            if found is not None:
                data["value"] = data.pop(found)
                self._renamed[found] = "value"
                if data["type"] == OK and not isinstance(data["value"], bool):
                    _insist_on_result(data["f"], data["value"])
                if found == "args" and isinstance(data["value"], list):
                    self._spread(data)
        if "key" not in data:
            other = other_key(data)
            if other is not None:
                data["key"] = data.pop(other)
                self._renamed[other] = "key"
            elif data["type"] == INVOKE and data["process"] != "nemesis" and len(data) > _LEAST:
                self._objects.see(data)
        if "value" not in data:
            pair = next((pair for pair in OLD_AND_NEW if data["f"] == "cas" and data.keys() >= {*pair}), None)
            if pair is not None and data["type"] == INVOKE:
                data["value"] = [data.pop(name) for name in pair]
            elif data["type"] == INVOKE and data["f"] in NEEDING and data["process"] != "nemesis":
                raise ValueError(f"{with_article(data['f'])} needs its value; this event has {_named(data)}")
            self._empty += data["type"] == OK and data["f"] in _SHOWING
        for mark in FINAL:
            if mark in data:
                data["extra"] = {**(data.get("extra") or {}), mark: data.pop(mark)}
        if isinstance(data["process"], (str, float)) or (type(data["process"]) is int and data["process"] > _LARGEST):
            data["process"] = self._number_of(data["process"])
        if "time" in data:
            time = moment(data["time"], "time") if type(data["time"]) in (str, float, dict) else data["time"]
            self._kinds.add(float if isinstance(time, float) else kind(time))
            if len(self._kinds) > 1:
                raise ValueError(_SECONDS if float in self._kinds else MIXED)
            data["time"] = in_ns(time) if isinstance(time, float) else int(time) if isinstance(time, Instant) else time
        error = data.get("error") if data["type"] == OK else None
        if error and str(error).strip().lower() not in _NO_ERROR:
            raise ValueError("its type is ok, and yet it has an error")
        if not data.keys() <= _FIELDS:
            if data["type"] == OK:
                _insist_on_success(data, all_suspects=returned_only)
            self._unread.update(dict.fromkeys(data.keys() - _FIELDS))

    def _returned(self, data: dict[str, Any]) -> OpType:
        """The outcome of an event that only says that its operation returned."""
        if not data.get("error") and not any(name in data for name in _OUTCOMES):
            return OK
        # Imported here: few files need it.
        from results.formats.outcomes import ERRORS
        from results.formats.records import Notes, error_of, outcome_of

        rest: dict[str, Any] = {name: data.pop(name) for name in (*_OUTCOMES, *ERRORS) if name in data}
        error = error_of(rest)
        if error:
            data["error"] = error
        if self._outcomes is None:
            self._outcomes = Notes()
        return outcome_of(rest, error, self._outcomes)

    def _spread(self, data: dict[str, Any]) -> None:
        # Imported here: few files need it.
        from results.formats.records import plain_name, spread

        parts = spread(plain_name(str(data["f"])), data.get("key"), data["value"])
        if parts is not None:
            data["key"], data["value"] = parts
            self._renamed["args"] = "list of arguments (of two, the first is the key)"

    def notes(self) -> list[str]:
        outcomes = [] if self._outcomes is None else self._outcomes.lines()
        if self._empty:
            outcomes = [*outcomes, f"{self._empty:,} {_EMPTY}"]
        if self._unread:
            outcomes = [*outcomes, f"fields of events that are not read: {', '.join(sorted(self._unread))}"]
        return outcomes + [
            f"the field `{other}` is the {right} of the events" for other, right in self._renamed.items()
        ]


_NO_ERROR: Final = ("nil", "<nil>", "null", "none", "ok")
_SHOWING: Final = READS | {"dequeue", "pop", "drain"}
_EMPTY: Final = (
    "operations ended in ok without a value, which counts as null: they found nothing (of reads, --nil-reads "
    "unrecorded says that the value was not recorded)"
)
_SECONDS: Final = "some times are seconds with a fraction, and others are not; all with one, or all in ns is right"
_FIELDS: Final = frozenset({"index", "time", "process", "type", "f", "key", "value", "error", "extra", "crc"})

_LEAST: Final = 4
"""The number of fields that an event has at least: process, type, f and value."""

_LARGEST: Final = 2**40
"""Larger numbers of processes are names, such as the addresses of threads."""

_ENDS: Final = (("start", "end"), ("call", "return"), ("invoke", "return"), ("begin", "end"))


def _plain_name(f: str) -> str:
    # Imported here: few files need it.
    from results.formats.records import plain_name

    return plain_name(f)


_LINES: Final = ("log", "line", "MESSAGE", "message", "msg")
"""Fields in which logs keep the line that a program wrote."""
_PICTURE: Final = (
    "this is the data of Porcupine's picture: its descriptions are free texts, which do not say what is of unknown "
    "outcome; porcupine.Operation as JSON is right"
)
_PRINTED_BY: Final = {
    frozenset({"History", "PartialLinearizations"}): _PICTURE,
    frozenset({"Partitions", "Annotations"}): _PICTURE,
}
"""Fields of what other tools print -> why it is no history."""


def _insist_on_result(f: str, result: Any) -> None:
    # Imported here: few files need it.
    from results.formats.outcomes import insist_on_result

    insist_on_result(f, result)


def _insist_on_success(data: Mapping[str, Any], *, all_suspects: bool) -> None:
    """Raises ValueError for a field that is not read and may deny the success of this event."""
    # Imported here: few files need it.
    from results.formats.outcomes import insist_on_success

    rest = {name: value for name, value in data.items() if name not in _FIELDS}
    insist_on_success(data["f"], rest, data.get("value"), all_suspects=all_suspects)


def _named(data: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, data)) or "none"


def _lacking(missing: str, data: Mapping[str, Any]) -> str:
    if not data.keys().isdisjoint(("traceId", "trace_id", "resourceSpans")):
        return (
            "a span of OpenTelemetry does not say which client did what; a record for each operation is right: "
            '{"client", "op", "key", "input", "output", "start", "end"}'
        )
    other = next((text for names, text in _PRINTED_BY.items() if names <= data.keys()), None)
    if other is not None:
        return other
    inside = next((name for name in _LINES if isinstance(data.get(name), str) and data[name][:1] == "{"), None)
    if inside is not None:
        return f"the event is a text in the field {inside!r}; take it out, such as with: jq -r .{inside} FILE"
    lower = {name.lower(): name for name in data}
    for ends in _ENDS:
        if missing != "f" and all(name in lower for name in ends) and "type" not in data:
            first, last = (lower[name] for name in ends)
            return (
                f"one record for a whole operation ({first!r} and {last!r}); two events are right: "
                '{"process", "type": "invoke", "f", "value", "time"}, and one with the type of its outcome'
            )
    whole = "; a record of a whole operation has a 'start' and an 'end'" if missing == "type" else ""
    return f"an operation needs the field {missing!r}; this one has {_named(data)}{whole}"


def write_jsonl(ops: Iterable[Op], path: Path) -> None:
    """Writes a journal, CRCs included, whole or not at all. StoreError if it cannot be written."""
    with replacing(path, "the history") as file:
        file.writelines(line(op) for op in ops)


def _line_of(file: IO[bytes], place: int) -> tuple[int, str]:
    """Number and text of the op at a place, blank lines not counted."""
    seen = -1
    for number, text in enumerate(lines(file), 1):
        seen += not text.isspace()
        if seen == place:
            return number, json.dumps(json.loads(text)) if not has_crc(text) else text.decode().strip()
    raise AssertionError(f"no op at {place}")
