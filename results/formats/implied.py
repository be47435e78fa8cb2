# SPDX-License-Identifier: Apache-2.0
"""The model that the names of a history's operations imply, where the file names none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import Any, Final

from results.history import History
from results.op import OK, Op

_ALIASES: Final = {"r": "read", "w": "write", "lock": "acquire", "unlock": "release", "try-lock": "try-acquire"}
FINAL: Final = ("final?", "final")
"""The fields that mark a final read: Maelstrom's, and the one of other programs."""

_LOCKS: Final = frozenset({"acquire", "release", "try-acquire"})
_NUMBERED: Final = frozenset({"add-and-get", "get-and-add", "increment", "decrement"})


def implied_model(history: History, ignore: Collection[str] = ()) -> str | None:
    """The model with these operations (`implied_by`), or None: no model, or several, have them. Ops whose name is in
    `ignore` do not count.

    A history without operations implies `cas-register`: every model accepts it.
    """
    requested = {op.f for op in history if op.process >= 0}.difference(ignore)
    if requested == {"txn"}:
        values = [op.value for op in history if op.is_client and op.f == "txn"]
        return "multi-register" if all(map(is_register_txn, values)) and not _reads_lists(values) else None
    if requested & {"add", "broadcast"} and requested <= {"add", "broadcast", "read"}:
        return _converging(history, requested)
    found = implied_by(requested)
    if found == "kv" and requested <= {"get", "put"} and any(_is_no_text(op) for op in history.clients):
        return "cas-register"
    return None if found == "mutex" and _another_lock(history) else found


def _converging(history: History, requested: Set[str]) -> str | None:
    """The object that converges: only Maelstrom has an op `broadcast`, and only such objects have final reads."""
    if "broadcast" in requested:
        return "converging-set"
    reads = [call for call in history.clients.calls if call.invoke.f == "read"]
    if not any(is_final(op) for call in reads for op in (call.invoke, call.completion) if op is not None):
        return None
    shown = [call.completion.value for call in reads if call.outcome == OK and call.completion is not None]
    if shown and all(isinstance(value, list) for value in shown):
        return "converging-set"
    return "converging-counter" if shown and not any(isinstance(value, list) for value in shown) else None


def is_final(op: Op) -> bool:
    """True for an event of a read that its file calls a final one."""
    return bool(op.extra) and any(op.extra.get(mark) is True for mark in FINAL)


def implied_by(requested: Set[str]) -> str | None:
    """`implied_model` by the operations' names, if these are enough. Reads alone imply nothing: many objects can be
    read, and the initial value of this one is unknown.
    """
    names = {_ALIASES.get(f, f) for f in requested}
    if names <= {"read", "write", "cas", "cas-refused"}:
        return "cas-register" if names != {"read"} else None
    if "cas" in names and names <= {"get", "put", "cas", "cas-refused"}:
        return "cas-register"
    if names <= {"get", "put", "append", "delete"} and names != {"append"}:
        return "kv" if names != {"get"} else None
    if names <= _LOCKS:
        return "mutex"
    if names <= {"push", "pop"}:
        return "stack" if "push" in names else None
    if names <= {"add", "remove", "contains", "read"} and names & {"remove", "contains"}:
        return "set" if names & {"add", "remove"} else None
    if names <= {"add", "read"} | _NUMBERED and names & _NUMBERED:
        return "counter"
    if names <= {"append", "read", "min-offset", "max-offset", "trim"} and names & {"append", "trim"}:
        return "log" if names != {"append"} else None
    return None


def _is_no_text(op: Op) -> bool:
    """True for a value that no key of the model `kv` holds: that is a text."""
    return op.value is not None and not isinstance(op.value, str)


def _another_lock(history: History) -> bool:
    """True if these can be ops of a lock whose grants have fences, or of one that its holder may acquire again."""
    held: set[Any] = set()
    for call in history.clients.calls:
        invoke, done = call.invoke, call.completion
        if call.outcome != OK or done is None:
            continue
        f = _ALIASES.get(invoke.f, invoke.f)
        owner = str(invoke.process if invoke.value is None else invoke.value)
        if f == "release":
            held.discard(owner)
            continue
        if type(done.value) is int and done.value != invoke.value:
            return True
        if f == "acquire" and owner in held:
            return True
        if f == "acquire" or done.value is True:
            held.add(owner)
    return False


def is_register_txn(value: Any) -> bool:
    """True for a list of `[read|write, name, value]`, or `[read, name]`."""

    def is_step(step: Any) -> bool:
        if not isinstance(step, list) or len(step) not in (2, 3):
            return False
        return step[0] in (("read", "r") if len(step) == 2 else ("read", "r", "write", "w"))

    return isinstance(value, list) and all(map(is_step, value))


def _reads_lists(values: Iterable[Any]) -> bool:
    """True if no step of these transactions writes, and some read shows a list: nothing says what that is."""
    steps = [step for value in values for step in value]
    return all(step[0] in ("read", "r") for step in steps) and any(isinstance(step[-1], list) for step in steps)


def appends(history: History) -> bool:
    """True for Elle's list-append: transactions whose steps append, or only read lists."""
    values = [op.value for op in history if op.is_client and op.f == "txn" and isinstance(op.value, list)]
    if any(isinstance(step, list) and step[:1] == ["append"] for value in values for step in value):
        return True
    return bool(values) and all(map(is_register_txn, values)) and _reads_lists(values)
