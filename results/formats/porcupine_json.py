# SPDX-License-Identifier: Apache-2.0
"""Porcupine's operations and events as JSON, as Go encodes `porcupine.Operation` and `porcupine.Event`.

    {"ClientId":0,"Input":{"Op":"put","Key":"a","Value":"x"},"Call":1,"Output":{"Value":""},"Return":5}
    {"ClientId":0,"Kind":false,"Value":{"Op":"put","Key":"a","Value":"x"},"Id":0}

Input and output are the user's own types. These are read: names of operations, with `Key`, `Value`, `From` and `To`;
the numbers of Porcupine's own examples (a `Key` and 0, 1, 2: get, put, append; `Arg1`, `Arg2` and 0, 1, 2: read, write,
cas; false, true: write and read of a register that begins with 0). Any other field is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from results.formats.foreign import OLD_AND_NEW, READS, ForeignHistory, ReadOptions
from results.formats.json_objects import Objects, Place
from results.formats.records import Notes, Record, answered, assembled, client_of, plain_name, taken
from results.formats.signs import NAMES, SPELLED, is_event
from results.formats.times import moment
from results.op import INFO, OK, OpType

_BY_KEY: Final = ("get", "put", "append")
_BY_ARGUMENTS: Final = ("read", "write", "cas")
_NUMBERED: Final = "Op 0, 1, 2 is get, put, append, as in Porcupine's key-value example"


class Meaning(NamedTuple):
    """An operation by its input and output."""

    f: str
    key: Any
    argument: Any
    result: Any
    outcome: OpType


def _spelled(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by Porcupine's own names."""
    found = {SPELLED.get(name.lower(), name): value for name, value in data.items()}
    if len(found) < len(data):
        raise ValueError("two fields mean the same")
    return found


def read_porcupine(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """The history in a file. Raises HistoryError with the line."""
    objects, notes = Objects(path, file), Notes()
    first = next((data for _, data in objects), {})
    file.seek(0)
    objects = Objects(path, file)
    meanings = Meanings(notes)
    read = _events if is_event(first) else _operations
    records = list(read(path, objects, meanings))
    return assembled(
        path, records, options, "porcupine", notes.lines(), torn=objects.torn, start=0 if meanings.from_0 else None
    )


def _operations(path: Path, objects: Objects, meanings: Meanings) -> Iterable[Record]:
    for place, written in objects:
        data: Mapping[str, Any] = written
        try:
            data = _spelled(written)
            _insist_on(data, {"ClientId", "Input", "Call", "Output", "Return"})
            start = moment(data.get("Call"), "Call")
            end = None if data.get("Return") is None else moment(data["Return"], "Return")
            found = meanings.of(data.get("Input"), data.get("Output"))
            client = client_of(data.get("ClientId", 0))
        except ValueError as problem:
            raise place.error(path, f"{problem} ({json.dumps(data)[:200]})") from None
        yield Record(place, client, *found, start, end)


class _Call(NamedTuple):
    place: Place
    client: int | str
    input: Any
    start: int


def _events(path: Path, objects: Objects, meanings: Meanings) -> Iterable[Record]:
    """The calls, each with its return, which has the same id. Their places are their times."""
    calls: dict[Any, _Call] = {}
    met: set[Any] = set()
    for place, written in objects:
        data: Mapping[str, Any] = written
        try:
            data = _spelled(written)
            _insist_on(data, {"ClientId", "Kind", "Value", "Id"})
            returns = _kind(data.get("Kind"))
            number = data.get("Id")
            if type(number) is not int:
                raise ValueError(f"Id is {json.dumps(number)}, not a whole number")
            if not returns:
                if number in met:
                    raise ValueError(f"the second call with the Id {number}")
                met.add(number)
                calls[number] = _Call(place, client_of(data.get("ClientId", 0)), data.get("Value"), place.number)
                continue
            call = calls.pop(number, None)
            if call is None:
                raise ValueError(f"the return of {number}, which was not called")
            found = meanings.of(call.input, data.get("Value"))
        except ValueError as problem:
            raise place.error(path, f"{problem} ({json.dumps(data)[:200]})") from None
        yield Record(call.place, call.client, *found, call.start, place.number)
    for call in calls.values():
        try:
            found = meanings.of(call.input, None, returned=False)
        except ValueError as problem:
            raise call.place.error(path, f"{problem} ({json.dumps(call.input)[:200]})") from None
        yield Record(call.place, call.client, *found, call.start, None)


def _insist_on(data: Mapping[str, Any], fields: set[str]) -> None:
    other = sorted(data.keys() - fields - {"Metadata"})
    if other:
        raise ValueError(f"the field {other[0]!r} is none of Porcupine's ({', '.join(sorted(fields))})")


def _kind(value: Any) -> bool:
    """True for a return."""
    known = {"false": False, "true": True, "call": False, "return": True, "callevent": False, "returnevent": True}
    found = known.get(str(value).lower()) if isinstance(value, (bool, str)) else None
    if found is None:
        raise ValueError(f"Kind is {json.dumps(value)}, neither false (a call) nor true (a return)")
    return found


class Meanings:
    """Finds the operation that an input and an output stand for. `from_0`: a register that begins with 0 was met."""

    def __init__(self, notes: Notes) -> None:
        self.from_0 = False
        self._notes = notes

    def of(self, given: Any, output: Any, *, returned: bool = True) -> Meaning:
        """Raises ValueError for fields and values whose meaning is not known."""
        if not isinstance(given, Mapping):
            raise ValueError(f"Input is {json.dumps(given)[:80]}, not an object with the operation's name (Op)")
        rest = _lower(given)
        name, key = taken(rest, (*NAMES, "type")), rest.pop("key", None)
        f, argument = self._asked(name, key, rest)
        extra = [field for field, value in rest.items() if value not in (None, "", 0, False, [], {})]
        if extra:
            raise ValueError(f"the field {extra[0]!r} of Input is not known")
        if not returned:
            return Meaning(f, key, argument, None, INFO)
        result, outcome = self._answer(f, output)
        return Meaning(f, key, argument, result, answered(f, result, outcome, self._notes))

    def _asked(self, name: Any, key: Any, rest: dict[str, Any]) -> tuple[str, Any]:
        """Name and argument of the operation, whose fields are removed from `rest`."""
        if isinstance(name, bool):
            self.from_0 = True
            self._notes.count("Op false and true is write and read of a register, as in Porcupine's example", 0)
            value = rest.pop("value", None)
            return ("read", None) if name else ("write", value)
        if isinstance(name, int):
            return self._numbered(name, key, rest)
        if not isinstance(name, str) or not name:
            raise ValueError(f"Input has no name of an operation (Op), but {json.dumps(name)}")
        f = plain_name(name)
        pair = next((pair for pair in OLD_AND_NEW if f == "cas" and all(field in rest for field in pair)), None)
        if pair is not None:
            return f, [rest.pop(field) for field in pair]
        value = rest.pop("value", None)
        if f in READS:
            if value not in (None, "", 0):
                raise ValueError(f"the Input of a {f} has the value {json.dumps(value)}")
            value = None
        return f, value

    def _numbered(self, number: int, key: Any, rest: dict[str, Any]) -> tuple[str, Any]:
        if number not in (0, 1, 2):
            raise ValueError(f"Op is {number}; only 0, 1 and 2 have a meaning here, write its name")
        if "arg1" in rest or "arg2" in rest:
            self._notes.count("Op 0, 1, 2 is read, write, cas, as in Porcupine's etcd example", 0)
            one, two = rest.pop("arg1", 0), rest.pop("arg2", 0)
            return _BY_ARGUMENTS[number], (None, one, [one, two])[number]
        if not isinstance(key, str):
            raise ValueError(
                f"Op is the number {number}, and Input has neither Key nor Arg1; write the operation's name"
            )
        self._notes.count(_NUMBERED, 0)
        value = rest.pop("value", None)
        if number == 0 and value not in (None, ""):
            raise ValueError(f"Op 0 is a get here, and its Input has the value {json.dumps(value)}; write the name")
        return _BY_KEY[number], None if number == 0 else value if value is not None else ""

    def _answer(self, f: str, output: Any) -> tuple[Any, OpType]:
        """Result and outcome."""
        if not isinstance(output, Mapping):
            return None if f in ("put", "write", "append") else output, OK
        rest = _lower(output)
        error = taken(rest, ("error", "err"))
        if error == "OK":  # (As in the labs of MIT 6.5840.)
            error = None
        unknown, exists = rest.pop("unknown", False), rest.pop("exists", rest.pop("found", None))
        ok, value = rest.pop("ok", None), rest.pop("value", None)
        if rest:
            raise ValueError(f"the field {next(iter(rest))!r} of Output is not known")
        for name, flag in (("unknown", unknown), ("exists", exists), ("ok", ok)):
            if flag is not None and not isinstance(flag, bool):
                raise ValueError(f"{name!r} of Output is {json.dumps(flag)}, neither true nor false")
        if unknown or error:
            self._notes.count("{} operations have an error or no answer: their outcome is unknown")
            return None, INFO
        if f in READS:
            if exists is not None:
                return (value if exists else None), OK
            if ok is False:
                self._notes.count("{} operations are not ok: their outcome is unknown")
                return None, INFO
            return value, OK
        if f == "cas":
            if ok is None:
                raise ValueError("the Output of a cas needs 'ok'")
            return ok, OK
        if f in ("put", "write", "append"):
            if value not in (None, "", 0) or (ok is False and exists is None):
                raise ValueError(f"the Output of a {f} is {json.dumps(output)}, and a {f} has no result")
            return None, OK
        return value if value is not None else ok, OK


def _lower(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {name.lower(): value for name, value in data.items()}
    if len(found) < len(data):
        raise ValueError("two fields differ only in upper and lower case")
    return found
