# SPDX-License-Identifier: Apache-2.0
"""Objects at work on unique values: what the monitors are made for. (`models_at_work` repeats its few values.)

Each family is a model with a `Work`: elements are numbered by their op, so no two are alike, and an answer that is
falsified names any of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from models_at_work import WORK, Work, _fifo, _kv, _lie_lock, _log, _mutex, _register, _set, falsified, lived

from checkers.linearizability import MODELS, Model
from results.history import Call

MOST = 8
"""Ops of a history."""


def _ask_log(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("append", "append", "append", "read", "read", "min-offset", "max-offset"))
    return f, f"m{op}" if f == "append" else rng.randrange(-1, 4) if f == "read" else None


def _append(obj: dict[str, Any], f: str, arg: Any) -> Any:
    """As the log, but one in three acknowledgements does not report the offset."""
    result = _log(obj, f, arg)
    obj["answers"] = obj.get("answers", 0) + 1
    return None if f == "append" and obj["answers"] % 3 == 0 else result


def _lie_log(rng: Random, f: str, result: Any) -> Any:
    if f == "read":
        return rng.choice((None, *(f"m{op}" for op in range(MOST))))
    return rng.choice((None, 0, 1, 2, 3)) if f == "append" else rng.choice((0, 0, 1, 2, 3))


def _ask_new(*fs: str, makes: Sequence[str]) -> Any:
    """Those in `makes` have the op's number as their argument, the others none."""

    def ask(rng: Random, op: int) -> tuple[str, Any]:
        f = rng.choice(fs)
        return f, op + 1 if f in makes else None

    return ask


def _ask_swap(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("read", "read", "write", "cas"))
    old = rng.choice((None, *range(1, op + 1)))
    return f, None if f == "read" else op + 1 if f == "write" else [old, op + 1]


def _any_value(*fs: str) -> Any:
    return lambda rng, f, result: rng.choice((None, *range(1, MOST + 1))) if f in fs else result


def _lie_element(rng: Random, f: str, result: Any) -> Any:
    if f == "drain":
        return rng.choice((result[1:], result[::-1], [*result, rng.randrange(1, MOST + 1)]))
    return rng.choice((None, *range(1, MOST + 1))) if f == "dequeue" else result


def _ask_token(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("get", "get", "put", "append", "append"))
    return f, None if f == "get" else f"{op};"


def _ask_deleted(rng: Random, op: int) -> tuple[str, Any]:
    return ("delete", None) if rng.random() < 0.15 else _ask_token(rng, op)


def _ask_lock(rng: Random, op: int) -> tuple[str, Any]:
    return rng.choice((*["acquire", "lock", "release", "unlock"] * 3, "try-acquire")), None


def _lie_tokens(rng: Random, f: str, result: Any) -> Any:
    """A token less, or more, or two in the other order."""
    if f != "get":
        return result
    tokens = [token + ";" for token in result.split(";")[:-1]]
    how = rng.randrange(4)
    if how == 0 and tokens:
        tokens.pop(rng.randrange(len(tokens)))
    elif how == 1:
        tokens.insert(rng.randint(0, len(tokens)), f"{rng.randrange(MOST)};")
    elif how == 2:
        rng.shuffle(tokens)
    else:
        tokens = tokens[: rng.randint(0, len(tokens))]
    return "".join(tokens)


def _ask_whole(*fs: str) -> Any:
    """Few elements, which are added again and again; `read` shows all of them."""

    def ask(rng: Random, op: int) -> tuple[str, Any]:
        f = rng.choice(fs)
        return f, None if f == "read" else rng.randrange(4)

    return ask


def _lie_whole(rng: Random, f: str, result: Any) -> Any:
    """A read that lists another element, one less, or one twice."""
    if f == "contains":
        return not result
    if f != "read" or not result:
        return result
    return rng.choice((result[:-1], result[1:], [*result, result[0]], sorted({*result, rng.randrange(4)})))


def _ask_element(rng: Random, op: int) -> tuple[str, Any]:
    return rng.choice(("add", "remove", "contains")), rng.randrange(2)


def _lie_subset(rng: Random, f: str, result: Any) -> Any:
    return (
        rng.sample(range(1, MOST + 1), rng.randint(0, 3))
        if f == "read" and rng.random() < 0.5
        else (result[:-1] if f == "read" else result)
    )


UNIQUE: dict[str, tuple[str, Work]] = {
    "register": (
        "register",
        Work(dict, _ask_new("read", "read", "write", makes=["write"]), _register, _any_value("read")),
    ),
    "cas-register": ("cas-register", Work(dict, _ask_swap, _register, _any_value("read"))),
    "fifo-queue": (
        "fifo-queue",
        Work(deque, _ask_new("enqueue", "enqueue", "dequeue", makes=["enqueue"]), _fifo, _any_value("dequeue")),
    ),
    "fifo-queue, drained": (
        "fifo-queue",
        Work(deque, _ask_new(*["enqueue"] * 4, "dequeue", "drain", makes=["enqueue"]), _fifo, _lie_element),
    ),
    "grow-only-set": ("grow-only-set", Work(set, _ask_new("add", "read", makes=["add"]), _set, _lie_subset)),
    "grow-only-set, again": ("grow-only-set", Work(set, _ask_whole("add", "add", "read"), _set, _lie_whole)),
    "set, read as a whole": ("set", Work(set, _ask_whole("add", "add", "read", "contains"), _set, _lie_whole)),
    "set, some removed": (
        "set",
        Work(set, _ask_whole(*["add", "read"] * 4, "contains", "remove"), _set, _lie_whole),
    ),
    "set": ("set", Work(set, _ask_element, _set, lambda rng, f, r: rng.random() < 0.5 if f == "contains" else r)),
    "kv": ("kv", Work(list, _ask_token, _kv, _lie_tokens)),
    "kv, deleted": ("kv", Work(list, _ask_deleted, _kv, _lie_tokens)),
    "mutex": ("mutex", Work(list, _ask_lock, _mutex, _lie_lock)),
    "mutex, tried": ("mutex", WORK["mutex"]),
    "log": ("log", Work(dict, _ask_log, _append, _lie_log)),
}
"""By the name of the family: the name of the model, and the object at work."""

RARE: frozenset[str] = frozenset({"fifo-queue, drained", "kv, deleted", "mutex, tried"})
"""Families with ops for which a monitor has no rule: it has to notice."""


def model_of(family: str) -> Model[Any]:
    return MODELS[UNIQUE[family][0]]()


def histories(family: str, rng: Random, other: Work | None = None) -> list[list[Call]]:
    """The calls of a real object, and the same with one answer falsified. `other`: another object than the usual."""
    name, work = UNIQUE[family]
    work = other or work
    calls = lived(rng, name, rng.choice((0, 0.1, 0.3, 0.6)), MOST, work)
    return [calls, falsified(rng, name, calls, work)]
