# SPDX-License-Identifier: Apache-2.0
"""Values with a key, `[key value]`, as `jepsen.independent` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from results.formats.foreign import READS

_KEYED: Final = (
    "each value has a key (a cas of three parts, or a read of [key nil]): every value is taken for [key value]"
)
_NAMES: Final = frozenset({"key", "value"})
"""The fields of a value with its key, where it is an object."""


def keyed(f: Any, value: Any) -> tuple[Any, Any]:
    """Key and value of a `[key value]`, or of the `[key from to]` of a cas. Raises ValueError."""
    if f == "cas" and isinstance(value, list) and len(value) == 3:
        return value[0], value[1:]
    if isinstance(value, dict) and value.keys() == _NAMES:
        return value["key"], value["value"]
    if not (isinstance(value, list) and len(value) == 2):
        raise ValueError("an independent value is [key value]")
    return value[0], value[1]


def keyed_for_certain(events: Iterable[tuple[Any, Any, Any]]) -> bool:
    """True if all values have a key, by (process, f, value) of each event: some cas is [key from to], or some read is
    invoked as [key nil], and no event has a value of another form.
    """
    found = False
    for process, f, value in events:
        if process == "nemesis":
            continue
        if isinstance(value, dict) and value.keys() == _NAMES:
            found |= f in READS and value["value"] is None
            continue
        if not isinstance(value, list) or isinstance(value[0] if value else [], (list, dict)):
            return False
        if f == "cas":
            parts = len(value) if len(value) != 2 else 2 if isinstance(value[1], list) and len(value[1]) == 2 else 0
        else:
            parts = len(value) if len(value) == 2 else 0
        if parts not in (2, 3):
            return False
        found |= parts == 3 or (f in READS and value[1] is None)
    return found


def keyed_note(certain: bool) -> list[str]:
    return [_KEYED] if certain else []
