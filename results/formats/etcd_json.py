# SPDX-License-Identifier: Apache-2.0
"""The operations of etcd's robustness tests (`client-N/operations.json`): Porcupine's operations of etcd requests.

    {"ClientID":1,"Input":{"Type":"range","Range":{"Start":"a","End":"","Limit":0,"Revision":0}},"Call":1,
     "Output":{"Range":{"KVs":[{"Key":"a","Value":{"Value":"1"},"ModRevision":2}],"Count":1},"Revision":2},"Return":5}

Keys are judged as objects of their own, with `get`, `put` and `delete`. This leaves out, and counts: reads of several
keys, of an old revision, or from a member (they change nothing); and every key that a request touches in a way that
these three cannot say (a condition, a lease, the same key twice). A transaction of several keys counts as one operation
for each, and its atomicity is not judged. Of revisions, nothing is judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from results.errors import HistoryError
from results.formats.foreign import ForeignHistory, ReadOptions
from results.formats.json_objects import Objects, Place
from results.formats.records import Notes, Record, assembled, client_of
from results.formats.signs import REQUESTS
from results.formats.times import moment
from results.op import INFO, OK, OpType

_SILENT: Final = frozenset({"leaseGrant", "leaseRevoke", "defragment", "compact"})
_FIELDS: Final = frozenset({"ClientId", "ClientID", "Input", "Call", "Output", "Return", "Metadata"})


class Step(NamedTuple):
    """A request of one key. `result`: what a get saw."""

    f: str
    key: str
    value: str | None = None
    result: str | None = None


def read_etcd_json(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """The history in a file. Raises HistoryError with the line; also if none of its keys can be judged."""
    objects, requests = Objects(path, file), Requests()
    records: list[Record] = []
    for place, data in objects:
        try:
            records += _of(place, data, requests)
        except ValueError as problem:
            raise place.error(path, f"{problem} ({json.dumps(data)[:200]})") from None
    judged = [record for record in records if record.key not in requests.unfit]
    lost = len(records) - len(judged)
    if not judged and records:
        key, why = next(iter(requests.unfit.items()))
        text = f"no key can be judged as get, put and delete: {len(requests.unfit)} keys, the first, {key}, for {why}"
        raise HistoryError(path, None, f"{text}; etcd's own model checks such a history")
    notes = requests.notes.lines()
    if requests.unfit:
        key, why = next(iter(requests.unfit.items()))
        notes.append(
            f"{len(requests.unfit):,} keys with {lost:,} operations are not judged; the first, {key}, for {why}"
        )
    return assembled(path, judged, options, "etcd", notes, torn=objects.torn)


def _of(place: Place, data: Mapping[str, Any], requests: Requests) -> Iterator[Record]:
    other = sorted(data.keys() - _FIELDS)
    if other:
        raise ValueError(f"the field {other[0]!r} is none of an operation's")
    client = client_of(data.get("ClientId", data.get("ClientID", 0)))
    start = moment(data.get("Call"), "Call")
    end = None if data.get("Return") is None else moment(data["Return"], "Return")
    given, output = _object(data.get("Input"), "Input"), _object(data.get("Output") or {}, "Output")
    error = output.get("Error") or output.get("ClientError")
    outcome: OpType = INFO if error or output.get("Persisted") else OK
    if outcome == INFO:
        requests.notes.count("{} requests have an error: their outcome is unknown")
    for step in requests.of(given, output if outcome == OK else None):
        yield Record(
            place, client, step.f, step.key, step.value, step.result, outcome, start, end if outcome == OK else None
        )


class Requests:
    """Divides requests into steps of single keys.

    unfit  key -> the first reason why it cannot be judged. notes: what is left out.
    """

    def __init__(self) -> None:
        self.unfit: dict[str, str] = {}
        self.notes = Notes()

    def of(self, given: Mapping[str, Any], output: Mapping[str, Any] | None) -> list[Step]:
        """The steps of a request; `output`: its answer, or None if it had none. Raises ValueError."""
        kind = given.get("Type")
        if kind in _SILENT:
            # (What a revoked lease deletes had been put with that lease.)
            self.notes.count(f"{{}} requests {kind} touch no key that is judged")
            return []
        if kind == "range":
            answer = None if output is None else _object(output.get("Range") or {}, "Range")
            stale = output is not None and output.get("Revision") == -1
            if stale or _object(given.get("Range"), "Range").get("Revision"):
                self.notes.count("{} reads of an old revision, or of one member, are not judged")
                return []
            return self._range(_object(given.get("Range"), "Range"), answer)
        if kind == "txn":
            return self._txn(_object(given.get("Txn"), "Txn"), output)
        raise ValueError(f"the Type is {json.dumps(kind)}, none of {', '.join(sorted(REQUESTS))}")

    def _range(self, what: Mapping[str, Any], answer: Mapping[str, Any] | None) -> list[Step]:
        key = what.get("Start", what.get("Key"))
        if not isinstance(key, str):
            raise ValueError(f"a range has no key, but {json.dumps(what)}")
        if what.get("End") or what.get("WithPrefix"):
            self.notes.count("{} reads of several keys are not judged")
            return []
        if answer is None:
            return [Step("get", key)]
        found = answer.get("KVs") or []
        if not isinstance(found, list) or len(found) > 1 or any(_object(kv, "KVs").get("Key") != key for kv in found):
            raise ValueError(f"the answer to a range of {key} shows {json.dumps(found)[:80]}")
        return [Step("get", key, result=_text(found[0].get("Value")) if found else None)]

    def _txn(self, what: Mapping[str, Any], output: Mapping[str, Any] | None) -> list[Step]:
        done, refused = _list(what.get("OperationsOnSuccess")), _list(what.get("OperationsOnFailure"))
        conditions = _list(what.get("Conditions"))
        keys = [_key(op) for op in (*done, *refused)]
        answer = None if output is None else _object(output.get("Txn"), "Txn")
        why = None
        if conditions or refused:
            why = "a transaction with a condition"
        elif answer is not None and answer.get("Failure"):
            why = "a transaction without a condition that failed"
        if why is not None:
            for key in (*keys, *(condition.get("Key") for condition in conditions)):
                self.unfit.setdefault(str(key), why)
            return []
        results = None if answer is None else _list(answer.get("Results"))
        if results is not None and len(results) != len(done):
            raise ValueError(f"{len(done)} operations of a transaction have {len(results)} results")
        if len(done) > 1:
            self.notes.count("{} transactions of several operations are judged key by key")
        steps: list[Step] = []
        for at, (op, key) in enumerate(zip(done, keys, strict=True)):
            steps += self._operation(op, key, None if results is None else results[at])
        for key in keys:
            if keys.count(key) > 1:
                self.unfit.setdefault(key, "a transaction that has it twice")
        return steps

    def _operation(self, op: Mapping[str, Any], key: str, result: Mapping[str, Any] | None) -> list[Step]:
        kind = str(op.get("Type")).removesuffix("-operation")
        if kind == "range":
            return self._range(op if "Key" in op else _object(op.get("Range"), "Range"), result)
        if kind == "delete":
            return [Step("delete", key)]
        if kind != "put":
            raise ValueError(f"the Type of an operation is {json.dumps(op.get('Type'))}, none of range, put and delete")
        what = op if "Key" in op else _object(op.get("Put"), "Put")
        if what.get("LeaseID"):
            self.unfit.setdefault(key, "a put with a lease, which deletes it when it ends")
        return [Step("put", key, _text(what.get("Value")))]


def _key(op: Mapping[str, Any]) -> str:
    kind = str(op.get("Type")).removesuffix("-operation")
    what = op if "Key" in op else _object(op.get(kind.capitalize()), kind)
    key = what.get("Key", what.get("Start"))
    if not isinstance(key, str):
        raise ValueError(f"an operation of a transaction has no key, but {json.dumps(op)[:80]}")
    return key


def _text(value: Any) -> str:
    """A value: its text, or its hash if it is long."""
    if isinstance(value, str):
        return value
    found = _object(value or {}, "Value")
    text, number = found.get("Value") or "", found.get("Hash") or 0
    if not isinstance(text, str) or type(number) is not int:
        raise ValueError(f"a value is {json.dumps(value)}, not Value and Hash")
    return f"hash {number}" if number and not text else text


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {json.dumps(value)}, not an object")
    return value


def _list(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value or [], list):
        raise ValueError(f"{json.dumps(value)[:80]} is not a list")
    return [_object(one, "one of them") for one in value or []]
