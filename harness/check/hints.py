# SPDX-License-Identifier: Apache-2.0
"""Hints for a user whose history is not `valid`: the usual causes that lie in the file, and not in the system."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from results.formats.foreign import as_text
from results.formats.outcomes import TROUBLE
from results.history import History
from results.op import FAIL, INVOKE, OK, Op
from results.verdict import CheckResult, Verdict


def hints(history: History, result: CheckResult, starts: bool) -> Iterator[str]:
    """Yields the hints, one line each. `starts`: the model has a start value, and the user named none."""
    if result.verdict == Verdict.INVALID:
        bad = result.anomalies[0]
        both = _both(history, bad.key)
        if timed_out := sum(
            op.type == FAIL and bool(op.error and _TIME_OUT.search(op.error)) for op in history.clients
        ):
            yield (
                f"{timed_out:,} operations ended in fail after a time-out or a broken connection; that does not prove "
                "that they did not happen: info is right"
            )
        if _pairs(history):
            yield "each value has two parts; if the first of them is the key, --independent says so"
        if both is not None:
            yield (
                f"{both} is there as a number and as a text, which are different values; --values text reads all "
                "numbers as texts"
            )
        elif starts and (seen := _never_written(history, bad.key, bad.details.get("failing_op"))) is not None:
            if seen.strip('"<>()').lower() in _NOTHING:
                yield f"nobody wrote {seen}; if it says that nothing was there, null is right"
                return
            if TROUBLE.fullmatch(seen.strip('"')):
                yield f"nobody wrote {seen}; if it says that the read did not succeed, its type is fail or info"
                return
            yield f"nobody wrote {seen}; if it was there at the start, --initial {seen} (or any: nobody knows) says so"
    elif "is a string, not" in result.reason:
        yield "--values text reads all numbers as texts"
    elif "is a whole number, not '" in result.reason:
        yield "--values numbers reads texts that are numbers as numbers"


_TIME_OUT: Final = re.compile(r"time[ds]?[\s_-]*out|deadline|broken pipe|connection (?:reset|closed|lost)|EOF", re.I)
"""Errors after which an operation may have happened."""


def _pairs(history: History) -> bool:
    """True if no op has a key, and all values of more than one op are lists of two parts of which the first varies."""
    values = [op.value for op in history.clients if op.value is not None and op.f not in ("cas", "txn")]
    return (
        all(isinstance(value, list) and len(value) == 2 for value in values)
        and len({json.dumps(value[0]) for value in values}) > 1
        and all(op.key is None for op in history.clients)
    )


def words_for_nothing(history: History) -> str | None:
    """The reason why a queue or a stack cannot be judged, in one line: a result is a word that says that it was empty,
    and nobody added it; None: no such result exists.
    """
    added = {op.value for op in history.clients if op.f in ("enqueue", "push") and isinstance(op.value, str)}
    for op in history.clients:
        shown = op.value if op.f in ("dequeue", "pop") and op.type == OK else None
        if isinstance(shown, str) and shown.lower() in _EMPTY and shown not in added:
            return f"op {op.index}: nobody added {json.dumps(shown)}; if it says that it was empty, null is right"
    return None


_NOTHING: Final = frozenset({"nil", "null", "none", "na", "n/a", "nan", "undefined", "-", "absent", "not found"})
"""Texts that programs write for a value that is not there."""
_EMPTY: Final = _NOTHING | {"empty", "exhausted", "eof", "queue-empty", "emptyqueue", "no-message", "timeout"}


def other_elements(history: History) -> str | None:
    """The reason why the elements that were added cannot be those that were read, in one line; None: they may be.

    All adds of some sets are `[key value]`, and their reads show values.
    """
    added = [op.value for op in history.clients if op.f == "add"]
    shown = [one for op in history.clients if op.f == "read" and isinstance(op.value, list) for one in op.value]
    if not added or not shown or any(isinstance(one, list) for one in shown):
        return None
    if not all(isinstance(one, list) and len(one) == 2 for one in added):
        return None
    return "each add has two parts, and each read shows single values; an add of the value alone is right"


def other_values(history: History) -> str | None:
    """The reason why the values that were read cannot be those that were written, in one line; None: they may be."""
    ops = history.clients
    shown = [op.value for op in ops if op.f in _READS and op.type == OK and op.value is not None]
    written = [value for op in ops if op.type == INVOKE for value in _written(op) if value is not None]
    if not shown or not written:
        return None
    if all(map(_is_transaction, [*shown, *written])):
        return (
            "values of reads and writes are steps of transactions; an operation `txn` is right (model multi-register)"
        )
    for kind, name in ((dict, "an object"), (list, "a list")):
        if all(isinstance(one, kind) for one in shown) and not any(isinstance(one, kind) for one in written):
            return f"each read shows {name}, and no write has one; the value alone is right"
    return None


_READS: Final = ("read", "r", "get")


def _written(op: Op) -> list[Any]:
    if op.f == "cas":
        return op.value if isinstance(op.value, list) else []
    return [op.value] if op.f in ("write", "w", "put") else []


def _is_transaction(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(step, list) and len(step) == 3 and step[0] in ("r", "w", "read", "write") for step in value)
    )


def _never_written(history: History, key: str | None, failing: int | None) -> str | None:
    """The value that the failing op saw, as JSON, if no op of the key leaves it; else None."""
    call = next((call for call in history.clients.calls if call.invoke.index == failing), None)
    if call is None or call.completion is None:
        return None
    f, value = call.invoke.f, call.completion.value
    seen = value if f in ("read", "r", "get") else value[0] if f == "cas" and isinstance(value, list) else None
    if seen is None or isinstance(seen, (dict, list)):
        return None
    for op in history.clients:
        if op.key == key and op.f not in ("read", "r", "get", "add", "append"):
            left = op.value[-1] if op.f == "cas" and isinstance(op.value, list) and op.value else op.value
            if left == seen:
                return None
    return json.dumps(seen)


def _both(history: History, key: str | None) -> str | None:
    """A number that a client also wrote or read as a text."""
    numbers: set[str] = set()
    texts: set[str] = set()
    for op in history.clients:
        if op.key == key:
            _sort(op.value, numbers, texts)
    return min(numbers & texts, default=None)


def _sort(value: Any, numbers: set[str], texts: set[str]) -> None:
    if isinstance(value, list):
        for one in value:
            _sort(one, numbers, texts)
    elif isinstance(value, str):
        texts.add(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        numbers.add(as_text(value))
