# SPDX-License-Identifier: Apache-2.0
"""One JSON record for each operation, with the times of its call and its return.

    {"client":0,"op":"write","key":"x","value":1,"start":10,"end":20}
    {"client":1,"op":"read","key":"x","output":1,"start":12,"end":25,"type":"ok"}

A table (CSV) with these names in its first line is read, too. The times order the events. At equal times calls come
first, so that two such operations overlap. An operation without an end, or with an error, is of unknown outcome. If two
operations of one client overlap, its later one gets a process of its own, which is right where only the order in time
counts; locks, and positions of consumers, need the client.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import IO, Any, Final

from results.errors import with_article
from results.formats.csv_rows import Rows
from results.formats.foreign import NEEDING, OLD_AND_NEW, Assembler, ForeignHistory, ReadOptions
from results.formats.implied import FINAL
from results.formats.json_objects import Objects, Place
from results.formats.order import in_time_order
from results.formats.outcomes import (
    ERRORS,
    GOOD,
    OUTCOME_OF,
    OUTCOMES,
    SHOWING,
    TAKING,
    VAGUE,
    insist_on_result,
    insist_on_success,
)
from results.formats.signs import NAMES, Ends, OtherObjects, ends_of, other_key, plain_field
from results.formats.times import MIXED, Instant, in_ns, kind, moment
from results.op import FAIL, INFO, INVOKE, NEMESIS, NO_EXTRA, OK, Op, OpType, make_op

CLIENTS: Final = (
    "process", "client", "client_id", "clientid", "thread", "thread_id", "process_id", "worker", "worker_id",
)  # fmt: skip
ARGUMENTS: Final = ("input", "argument", "arg", "args")
RESULTS: Final = ("output", "result", "response", "ret")
_BAD: Final = ("timeout", "timed_out", "timedout", "failed")

_PERSONAL: Final = frozenset(
    [
        "acquire",
        "release",
        "lock",
        "unlock",
        "try-acquire",
        "try-lock",
        "poll",
        "seek",
        "assign",
        "crash",
        "consume",
        "commit",
        "pop",
        "ack",
        "extend",
    ]
)
"""Ops that depend on which process they belong to."""


MESSAGES: Final = frozenset({"send", "replica-read"})
"""Ops of messages that are not personal."""

_KNOWN: Final = SHOWING | TAKING | _PERSONAL | {
    "append", "contains", "increment", "decrement", "add-and-get", "get-and-add", "txn", *MESSAGES,
}  # fmt: skip
_SYNONYMS: Final = {
    "set": "put", "del": "delete", "compare-and-set": "cas", "compare-and-swap": "cas", "incr": "increment",
    "inc": "increment", "decr": "decrement", "dec": "decrement", "increment-and-get": "increment",
    "decrement-and-get": "decrement", "enq": "enqueue", "deq": "dequeue",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One operation. `end`: None if it never returned. `place`: of its record in the file."""

    place: Place
    client: int | str
    f: str
    key: Any
    argument: Any
    result: Any
    outcome: OpType
    start: float
    end: float | None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: NO_EXTRA)

    @property
    def times(self) -> Sequence[float]:
        """Its start, and its end if it has one."""
        return (self.start,) if self.end is None else (self.start, self.end)


_NEMESIS: Final = "nemesis"
"""The client whose records are faults, each from its start to its end."""


class Notes:
    """Counts the cases of each note. `lines`: one for each that occurred, with its number in place of `{}`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.objects = OtherObjects()

    def count(self, note: str, by: int = 1) -> None:
        self._counts[note] += by

    def lines(self) -> list[str]:
        return [note.replace("{}", f"{number:,}", 1) for note, number in self._counts.items()]


def read_records(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """The history in a file. Raises HistoryError with the line."""
    front = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    file.seek(0)
    objects = Objects(path, file) if front in (b"{", b"[") else Rows(path, file)
    notes, records = Notes(), []
    for place, data in objects:
        try:
            records.append(_record(place, data, notes))
        except ValueError as problem:
            raise place.error(path, f"{problem} ({json.dumps(data)[:200]})") from None
    return assembled(path, records, options, "records", notes.lines(), torn=objects.torn)


def _record(place: Place, data: Mapping[str, Any], notes: Notes) -> Record:
    rest = _plain(data)
    _unfold(rest)
    client = taken(rest, CLIENTS)
    f = taken(rest, NAMES)
    if f is None and isinstance(rest.get("type"), str) and rest["type"].lower() not in OUTCOME_OF:
        f = rest.pop("type")
    if not isinstance(f, str):
        raise ValueError(f"a record needs the name of its operation ({', '.join(NAMES)}), not {json.dumps(f)}")
    f, key = plain_name(f), _key(rest, notes)
    client = client_of(client) if client is not None or f in _PERSONAL or f in MESSAGES else _own(place, notes)
    if isinstance(rest.get("args"), list) and (parts := spread(f, key, rest["args"])) is not None:
        key, rest["args"] = parts
        notes.count("{} records have a list of arguments (`args`): of two, the first is the key")
    ends = ends_of(rest)
    start, done = _times(ends, rest)
    if ends is not None and ends.end is None:
        notes.count("{} records have no time of their return (such as `end`): their outcome is unknown")
    error = error_of(rest)
    outcome = outcome_of(rest, error, notes)
    pair = next((pair for pair in OLD_AND_NEW if f == "cas" and all(field in rest for field in pair)), None)
    if pair is not None:
        rest["input"] = [rest.pop(field) for field in pair]
    if f in NEEDING and all(name not in rest for name in (*ARGUMENTS, "value")):
        raise ValueError(f"{with_article(f)} needs its value")
    if f in SHOWING and outcome == OK and done is not None and rest.keys().isdisjoint((*RESULTS, "value")):
        raise ValueError(f"{with_article(f)} needs its output; null says that there was nothing")
    argument, result = _values(f, rest, outcome)
    if result != argument:
        insist_on_result(f, result)
    outcome = answered(f, result, outcome, notes)
    extra = rest.pop("extra", None) or {}
    if not isinstance(extra, Mapping):
        raise ValueError(f"extra is {json.dumps(extra)}, not an object")
    if outcome == OK and done is not None:
        insist_on_success(f, rest, result, all_suspects=True)
    for name in rest:
        if name in FINAL:
            continue
        notes.count(f"{{}} fields {name!r} of records are not read")
    text = None if error is None else error if isinstance(error, str) else json.dumps(error)
    return Record(place, client, f, key, argument, result, outcome, start, done, text, {**rest, **extra})


def _own(place: Place, notes: Notes) -> str:
    """The client of a record that names none: only the order in time counts for its operation."""
    notes.count("{} records name no client (such as `client`): each is a client of its own")
    return f"record {place.number}"


def _key(rest: dict[str, Any], notes: Notes) -> Any:
    if "key" in rest:
        return rest.pop("key")
    other = other_key(rest)
    if other is None:
        notes.objects.see(rest)
        return None
    notes.count(f"{{}} records have their key in the field {other!r}")
    return rest.pop(other)


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {plain_field(name): value for name, value in data.items()}
    if len(found) < len(data):
        raise ValueError("two fields differ only in upper and lower case")
    return found


def _unfold(rest: dict[str, Any]) -> None:
    """Puts the fields of a request, and of its response, beside the others if the request has the operation's name."""
    asked = next((name for name in ("request", "input") if isinstance(rest.get(name), Mapping)), None)
    if asked is None or any(name in rest for name in NAMES) or rest[asked].keys().isdisjoint(NAMES):
        return
    answer = next((name for name in ("response", "output", "result") if isinstance(rest.get(name), Mapping)), None)
    for outer, plain in ((asked, "input"), (answer, "output")):
        if outer is None:
            continue
        for name, value in _plain(rest.pop(outer)).items():
            right = plain if name == "value" else name
            if right in rest:
                raise ValueError(f"the field {name!r} is there twice, also in {outer!r}")
            rest[right] = value


def spread(f: str, key: Any, arguments: list[Any]) -> tuple[Any, Any] | None:
    """Key and argument of an operation whose arguments are a list, as of a function; None: the list is one value."""
    most = 0 if f in SHOWING or f == "delete" else 2 if f == "cas" else 1 if f in NEEDING | {"contains"} else None
    if most is None or not most <= len(arguments) <= most + (key is None):
        return None
    if len(arguments) > most:
        key = arguments[0]
    own = arguments[len(arguments) - most :]
    return key, own if f == "cas" else own[0] if own else None


def _times(ends: Ends | None, rest: dict[str, Any]) -> tuple[float, float | None]:
    """Start and end of a record, whose fields are removed. None: it never returned."""
    if ends is None:
        raise ValueError("a record needs the times of its call and its return (start and end)")
    start, end = moment(rest.pop(ends.start.name), ends.start.name), None
    if ends.end is None:
        return _in_ns(start, ends.start.unit), None
    end, unit = rest.pop(ends.end.name), ends.end.unit
    if end is None or end == math.inf:
        return _in_ns(start, ends.start.unit), None
    done = moment(end, ends.end.name)
    if not ends.duration:
        if ends.start.unit != unit:
            raise ValueError(f"{ends.start.name} and {ends.end.name} have different units")
        return _in_ns(start, ends.start.unit), _in_ns(done, unit)
    if isinstance(start, Instant):
        if unit is None or isinstance(done, Instant):
            raise ValueError(f"{ends.end.name} needs a unit in its name, such as duration_ms")
        return start, type(start)(start + int(_in_ns(done, unit)))
    if isinstance(done, Instant) or unit != ends.start.unit:
        raise ValueError(f"{ends.start.name} and {ends.end.name} have different units")
    return _in_ns(start, unit), _in_ns(start, unit) + _in_ns(done, unit)


def _in_ns(time: float, unit: int | None) -> float:
    """A time in ns, if its unit is known; a whole number if it had one."""
    if unit is None or isinstance(time, Instant):
        return time
    return time * unit if isinstance(time, int) else in_ns(time) * unit // 10**9


def client_of(value: Any) -> int | str:
    """The client of a record: a whole number from 0, or a name. Raises ValueError."""
    if value is None:
        raise ValueError(f"a record needs its client ({', '.join(CLIENTS[:2])})")
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, float) and value.is_integer() and value >= 0:
        return int(value)
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"the client is {json.dumps(value)}, neither a whole number from 0 nor a name")


def taken(rest: dict[str, Any], names: Sequence[str]) -> Any:
    """Removes and returns the value of the field that has one of these names; None if no field has a value."""
    found = [name for name in names if rest.get(name) is not None]
    if len(found) > 1:
        raise ValueError(f"the fields {found[0]!r} and {found[1]!r} mean the same")
    values = [rest.pop(name, None) for name in names]
    return next((value for value in values if value is not None), None)


def error_of(rest: dict[str, Any]) -> Any:
    """Removes and returns the error; None also for a text that says that there was no error, such as Go's `<nil>`."""
    error = taken(rest, ERRORS)
    return None if isinstance(error, str) and error.strip().lower() in _NO_ERROR else error


_NO_ERROR: Final = frozenset({"", "nil", "<nil>", "null", "none"})


def plain_name(f: str) -> str:
    """`GET` and `Get` as `get`, `tryLock` and `try_lock` as `try-lock`, `compareAndSet` as `cas`; others unchanged."""
    plain = plain_field(f).replace("_", "-")
    plain = _SYNONYMS.get(plain, plain)
    return plain if plain in _KNOWN else f


def outcome_of(rest: dict[str, Any], error: Any, notes: Notes) -> OpType:
    """The outcome by the fields that say it, which are removed. Raises ValueError if they contradict each other."""
    found = taken(rest, OUTCOMES)
    ok = taken(rest, GOOD)
    bad = [name for name in _BAD if rest.get(name) is not None]
    for name in bad:
        if not isinstance(rest[name], bool):
            raise ValueError(f"{name!r} is {json.dumps(rest[name])}, neither true nor false")
    flags = [rest.pop(name) for name in bad]
    if any(flags):
        notes.count("{} records failed or timed out, which does not say that nothing happened: unknown outcome")
        return INFO
    if ok is not None and found is not None:
        raise ValueError("the outcome is there twice, as a truth value and as a name")
    if isinstance(ok, bool):
        if not ok:
            notes.count("{} records are not ok, which does not say that nothing happened: their outcome is unknown")
        return OK if ok and not error else INFO
    if found is None and ok is None:
        if error:
            notes.count("{} records have an error, which does not say that nothing happened: unknown outcome")
        return INFO if error else OK
    known = OUTCOME_OF.get(found.lower()) if isinstance(found, str) else None
    if known is None:
        raise ValueError(f"the outcome is {json.dumps(found if ok is None else ok)}, not ok, fail or info")
    if isinstance(found, str) and found.lower() in VAGUE:
        notes.count("{} records failed, which does not promise that nothing happened: their outcome is unknown")
    if known == OK and error:
        raise ValueError("the outcome is ok, and yet it has an error")
    return known


def _values(f: str, rest: dict[str, Any], outcome: OpType) -> tuple[Any, Any]:
    """Argument and result."""
    has = {name for name in (*ARGUMENTS, *RESULTS) if name in rest}
    argument, result = taken(rest, ARGUMENTS), taken(rest, RESULTS)
    if "value" not in rest:
        return argument, result
    value = rest.pop("value")
    if value is None:
        return argument, result
    if f in SHOWING and has.isdisjoint(RESULTS):
        return argument, value
    if f in TAKING | {"append"} and has.isdisjoint(ARGUMENTS):
        return value, result
    if f == "txn" and not has:
        return value, value if outcome == OK else None
    raise ValueError(f"'value' of {with_article(f)} may be its argument or its result; 'input' and 'output' say which")


def answered(f: str, result: Any, outcome: OpType, notes: Notes) -> OpType:
    """The outcome of an operation that may say by a result `false` that it did nothing. Raises ValueError."""
    if f not in TAKING | {"append"} or outcome != OK or result is None:
        return outcome
    if f == "cas":
        if not isinstance(result, (bool, list)):
            raise ValueError(f"a cas is answered with true or false, not {json.dumps(result)}")
        return FAIL if result is False else OK
    if result is False:
        notes.count("{} operations were answered with false: their outcome is unknown")
        return INFO
    return outcome


def assembled(
    path: Path,
    records: Sequence[Record],
    options: ReadOptions,
    format_: str,
    notes: list[str],
    *,
    torn: str | None = None,
    start: int | None = None,
) -> ForeignHistory:
    """The history of these operations, in the order of their times (with a fraction: seconds). Raises HistoryError."""
    assembler = Assembler(replace(options, order="file"), nil_reads="unset")
    if odd := next((r for r in records for time in r.times if kind(time) != kind(records[0].start)), None):
        raise odd.place.error(path, MIXED)
    if any(isinstance(time, float) for r in records for time in (r.start, r.end)):
        records = [replace(r, start=in_ns(r.start), end=None if r.end is None else in_ns(r.end)) for r in records]
    events: list[Op] = []
    places: list[Place] = []
    lanes = Lanes([record for record in records if record.client != _NEMESIS])
    for time, f, record in sorted(_faults(records), key=lambda fault: fault[0]):
        events += [
            make_op(0, time, NEMESIS, type_, f, None, record.argument, None, NO_EXTRA) for type_ in (INVOKE, INFO)
        ]
        places += [record.place] * 2
    for lane, chosen in lanes.all.items():
        for record in chosen:
            try:
                process = assembler.number_of(lane)
                if record.end is not None and record.end < record.start:
                    when = f"it ends at {record.end}, before its start at {record.start}"
                    raise ValueError(f"{when}; one that never returned has no end, or null")
                events += _events(record, process)
            except ValueError as problem:
                raise record.place.error(path, str(problem)) from None
            places += [record.place] * (len(events) - len(places))
    personal = next((r for r in lanes.overlapping if r.f in _PERSONAL), None)
    if personal is not None:
        text = f"two operations of client {personal.client} overlap; {with_article(personal.f)} needs a client for each"
        raise personal.place.error(path, text)
    for at, place in enumerate(in_time_order(events)):
        try:
            assembler.take(replace(events[place], index=at))
        except ValueError as problem:
            raise places[place].error(path, str(problem)) from None
    if lanes.overlapping:
        notes = [*notes, f"{len(lanes.overlapping):,} operations overlap others of their client: own processes"]
    return assembler.finish(format_, notes, torn, start)


def _faults(records: Iterable[Record]) -> Iterator[tuple[int, str, Record]]:
    """Yields the begin and the end of each fault: the time, and the name that says so."""
    for record in records:
        if record.client == _NEMESIS:
            for verb, time in (("start", record.start), ("stop", record.end)):
                if time is not None:
                    assert isinstance(time, int)
                    yield time, f"{verb}-{record.f}", record


def _events(record: Record, process: int) -> Iterable[Op]:
    assert isinstance(record.start, int)
    yield make_op(0, record.start, process, INVOKE, record.f, record.key, record.argument, None, record.extra)
    if record.end is not None:
        assert isinstance(record.end, int)
        result = None if record.f == "cas" else record.result
        yield make_op(0, record.end, process, record.outcome, record.f, record.key, result, record.error, record.extra)


class Lanes:
    """Divides the operations of each client so that none in a lane overlaps another.

    all          name of the process -> its operations in the order of their starts. The first lane of a client has its
                 name.
    overlapping  operations that needed another lane, although the one before had an end.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.all: dict[int | str, list[Record]] = {}
        self.overlapping: list[Record] = []
        by_client: dict[int | str, list[Record]] = {}
        for record in records:
            by_client.setdefault(record.client, []).append(record)
        for client, mine in by_client.items():
            self._divide(client, sorted(mine, key=lambda r: (r.start, r.start if r.end is None else r.end)))

    def _divide(self, client: int | str, records: Sequence[Record]) -> None:
        free: list[tuple[float, int]] = []  # end and number of each lane that ends
        count = closed = 0
        for record in records:
            if free and free[0][0] <= record.start:
                lane = heappop(free)[1]
            else:
                lane, count = count, count + 1
                if lane > closed:
                    self.overlapping.append(record)
            name: int | str = client if not lane else f"{client}#{lane}"
            self.all.setdefault(name, []).append(record)
            if record.end is None:
                closed += 1
            else:
                heappush(free, (record.end, lane))
