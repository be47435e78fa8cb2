# SPDX-License-Identifier: Apache-2.0
"""The signs by which an object of JSON, or a line of text, shows its format. Kept apart from the readers, of which only
one is needed for a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from results.op import FAIL, INFO, INVOKE, OK

NAMES: Final = ("f", "op", "operation")
ENDS: Final = (
    ("start", "end"), ("call", "return"), ("invoke", "return"), ("begin", "end"), ("start_time", "end_time"),
    ("start_ns", "end_ns"), ("call_time", "return_time"),
)  # fmt: skip
"""The names of both times of an operation."""

REQUESTS: Final = frozenset({"range", "txn", "leaseGrant", "leaseRevoke", "defragment", "compact"})
"""The requests of etcd."""

_FIELDS: Final = ("ClientId", "Input", "Call", "Output", "Return", "Kind", "Value", "Id")
SPELLED: Final = {name.lower(): name for name in _FIELDS} | {"client_id": "ClientId", "client": "ClientId"}
"""Field of one of Porcupine's, in small letters -> its own name."""

EVENT: Final = r":?[\w-]+\s+:(?:invoke|ok|fail|info)\s+:\S"
"""The beginning of an event: process, type and name."""

CONSOLE_EVENT: Final = r"(?:.*?[\s\]])?jepsen\.util(?::|\s+-)?\s+(?=:?[\w-]+\s+:\S)"
"""A line of a console up to its event."""


def is_record(data: Mapping[str, Any]) -> bool:
    """True for an object that has both times of an operation."""
    lower = {name.lower() for name in data}
    if data.get("type") == INVOKE:
        return False
    return any(start in lower and end in lower for start, end in ENDS) or (
        # (One that never returned may have no field for it.)
        data.get("type") not in (INVOKE, OK, FAIL, INFO) and "start" in lower and not lower.isdisjoint(NAMES)
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


def is_event(data: Mapping[str, Any]) -> bool:
    return {"Kind", "Value", "Id"} <= {SPELLED.get(name.lower()) for name in data}
