# SPDX-License-Identifier: Apache-2.0
"""The signs by which an object of JSON, or a line of text, shows its format. Kept apart from the readers, of which only
one is needed for a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from results.op import FAIL, INFO, INVOKE, OK

NAMES: Final = ("f", "op", "operation", "op_type", "method", "command", "kind", "action")
_KIND: Final = r"(?:_?(?:time|ts|timestamp|at))"
_UNIT: Final = r"(?:_?(ns|us|ms|s|nanos|micros|millis|sec|secs|seconds|nsec|usec|msec))"
_T: Final = r"(?:(?:t|ts|time)_)?"
_START: Final = re.compile(
    rf"{_T}(?:(?:start|begin|call|invoke){_KIND}?|(?:started|begun|called|invoked|invocation){_KIND}"
    rf"|request_(?:ts|timestamp)){_UNIT}?"
)
_END: Final = re.compile(
    rf"{_T}(?:(?:end|finish|stop|return|complete){_KIND}?"
    rf"|(?:ended|finished|stopped|returned|completed|completion){_KIND}|(?:response|resp|ret)_(?:ts|timestamp))"
    rf"{_UNIT}?|ret{_UNIT}"
)
_DURATION: Final = re.compile(rf"(?:duration|latency|elapsed|took){_UNIT}?")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN: Final = str.maketrans("- ", "__", "()[]")
_NS: Final = {"n": 1, "u": 1_000, "m": 1_000_000, "s": 1_000_000_000}
"""First letter of a unit -> ns (`micros` aside)."""


class TimeField(NamedTuple):
    """A field that has a time. `unit`: ns, or None if the name has no unit."""

    name: str
    unit: int | None


class Ends(NamedTuple):
    """The fields of both times of an operation. `duration`: the second one counts from the first."""

    start: TimeField
    end: TimeField | None
    duration: bool = False


def plain_field(name: str) -> str:
    """`startTime`, `Start-Time`, `Start Time` and `START_TIME` as `start_time`; `start (ms)` as `start_ms`."""
    plain = _CAMEL.sub("_", name) if not name.isupper() else name
    return plain.lower().translate(_PLAIN)


def ends_of(names: Iterable[str]) -> Ends | None:
    """The times of an operation, by the names of its fields (`plain_field`). None without the first one; `end` is None
    without the second one. Raises ValueError if two fields may be the same time.
    """
    known = list(names)
    start, end = _only(_START, known), _only(_END, known)
    if start is None:
        return None
    return Ends(start, end) if end is not None else Ends(start, _only(_DURATION, known), True)


def _only(what: re.Pattern[str], names: Iterable[str]) -> TimeField | None:
    found = [(name, matched[matched.lastindex or 1]) for name in names if (matched := what.fullmatch(name))]
    if len(found) > 1:
        raise ValueError(f"the fields {found[0][0]!r} and {found[1][0]!r} mean the same")
    for name, unit in found:
        return TimeField(name, None if unit is None else 1_000 if unit == "micros" else _NS[unit[0]])
    return None


REQUESTS: Final = frozenset({"range", "txn", "leaseGrant", "leaseRevoke", "defragment", "compact"})
"""The requests of etcd."""

_FIELDS: Final = ("ClientId", "Input", "Call", "Output", "Return", "Kind", "Value", "Id")
SPELLED: Final = {name.lower(): name for name in _FIELDS} | {"client_id": "ClientId", "client": "ClientId"}
"""Field of one of Porcupine's, in small letters -> its own name."""

LISTS: Final = ("history", "operations", "ops", "events", "records")
"""The names of a field that has all events, in an object around them."""

AROUND: Final = rf'"(?:{"|".join(LISTS)})"\s*:\s*\['
"""The beginning of such a field."""

EVENT: Final = r":?[\w-]+\s+:(?:invoke|ok|fail|info)\s+:\S"
"""The beginning of an event: process, type and name."""

CONSOLE_EVENT: Final = r"(?:.*?[\s\]])?jepsen\.util(?::|\s+-)?\s+(?=:?[\w-]+\s+:\S)"
"""A line of a console up to its event."""


_OBJECTS: Final = (
    "object", "register", "queue", "lock", "resource", "topic", "partition",
    "k", "key_id", "object_id", "register_id", "queue_id", "lock_id", "resource_id",
)  # fmt: skip


def other_key(data: dict[str, Any]) -> str | None:
    """The field that names the object if no field is called `key`; None: no such field. A `topic` and its `partition`
    become one field `topic-partition`, as Kafka names them (RocketMQ: `queue_id`). Raises ValueError for any other two.
    """
    for number in ("partition", "queue_id"):
        if isinstance(data.get("topic"), str) and type(data.get(number)) is int:
            data[f"topic-{number}"] = f"{data.pop('topic')}-{data.pop(number)}"
            return f"topic-{number}"
    found = [name for name in _OBJECTS if data.get(name) is not None]
    if len(found) > 1:
        raise ValueError(f"the fields {found[0]!r} and {found[1]!r} may both name the object; a field 'key' is right")
    return found[0] if found else None


class OtherObjects:
    """Insists that no field which may name the object has two values where no key is there."""

    def __init__(self) -> None:
        self._first: dict[str, Any] = {}

    def see(self, data: Mapping[str, Any]) -> None:
        """Raises ValueError for an operation without a key, one of whose fields names another object than before."""
        for name in sorted(_PERHAPS & data.keys()):
            if self._first.setdefault(name, data[name]) != data[name]:
                right = "if it names the object, `key` is its name; if not, leave it out"
                raise ValueError(f"there is no key, and the field {name!r} is not always the same; {right}")


_PERHAPS: Final = {
    "path", "url", "uri", "db", "database", "table", "row", "collection", "bucket", "document", "item", "entity",
    "account", "shard", "namespace", "tenant", "stream", "subject", "variable", "run", "run_id", "test",
}  # fmt: skip
"""Fields that may name the object, or a history of its own."""

CALLED: Final = ("call", "invocation", "invoked", "start", "started", "begin", "request")
RETURNED: Final = ("return", "returned", "response", "complete", "completed", "end", "ended", "finish", "finished")
"""Other types of events: of an invocation, and of a completion that says its outcome in another way."""

_PROCESSES: Final = ("process", "client", "client_id", "thread", "worker")
_TYPES: Final = frozenset({INVOKE, OK, FAIL, INFO, *CALLED, *RETURNED})


def is_plain_event(data: Mapping[str, Any]) -> bool:
    """True for an event, also in the names of other programs."""
    if {"type", "f"} <= data.keys():
        return True
    type_ = next((data[name] for name in ("type", "event", "phase") if name in data), None)
    named = any(name in data for name in ("f", "op", "operation")) and any(name in data for name in _PROCESSES)
    return named and isinstance(type_, str) and type_.lower() in _TYPES


def is_record(data: Mapping[str, Any]) -> bool:
    """True for an object that has both times of an operation."""
    names = {plain_field(name) for name in data}
    if data.get("type") == INVOKE or {"Input", "Kind"} & data.keys():
        return False
    try:
        ends = ends_of(names)
    except ValueError:
        return True  # (Its reader says which fields.)
    if ends is None:
        return False
    # (One that never returned may have no field for it.)
    return ends.end is not None or (
        data.get("type") not in (INVOKE, OK, FAIL, INFO) and not names.isdisjoint((*NAMES, "type"))
    )


def is_request(data: Mapping[str, Any]) -> bool:
    """True for the Input of an etcd operation."""
    return data.get("Type") in REQUESTS and not {"Txn", "Range", "LeaseGrant", "LeaseRevoke"}.isdisjoint(data)


def is_operation(data: Mapping[str, Any]) -> bool:
    """True for an operation of Porcupine, also in the names of another language (`client_id`, `input`)."""
    own = {SPELLED.get(name.lower()) for name in data}
    return {"Input", "Call", "Return"} <= own and any(
        isinstance(value, Mapping) for name, value in data.items() if name.lower() == "input"
    )


def is_of_kafka(data: Mapping[str, Any]) -> bool:
    """True for what Kafka's own tools print: an event of a verifiable producer or consumer, or a message."""
    if isinstance(data.get("name"), str) and "timestamp" in data and data["name"].endswith(_OF_KAFKA):
        return True
    return {"topic", "partition", "offset"} <= data.keys() and data.keys().isdisjoint(("type", "f", "op", "process"))


_OF_KAFKA: Final = (
    "startup_complete", "producer_send_success", "producer_send_error", "record_data", "records_consumed",
    "partitions_assigned",
)  # fmt: skip


def is_event(data: Mapping[str, Any]) -> bool:
    return {"Kind", "Value", "Id"} <= {SPELLED.get(name.lower()) for name in data}
