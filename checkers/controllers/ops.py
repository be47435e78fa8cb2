# SPDX-License-Identifier: Apache-2.0
"""The schema of the ops of the workload `controller` (`workloads.controller_client`), for errors that name an op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from checkers.base.schema import BadOp
from results.history import History
from results.op import OK, Op

_LARGEST: Final = 2**62 - 1


def _whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_whole, value))


def _addresses(value: Any) -> bool:
    """True for a table id -> address, both as texts of JSON."""
    if not isinstance(value, Mapping):
        return False
    return all(type(k) is str and k.isdecimal() and len(k) < 20 and type(v) is str for k, v in value.items())


_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "id": ("a whole number", _whole),
    "address": ("a text", lambda value: type(value) is str),
    "master": ("a whole number, or null", lambda value: value is None or _whole(value)),
    "master_epoch": ("a whole number", _whole),
    "epoch": ("a whole number", _whole),
    "expected": ("a whole number", _whole),
    "in_sync": ("a list of whole numbers", _numbers),
    "replicas": ("a table, each id -> address", _addresses),
}

_VERSION: Final = ("master", "master_epoch", "in_sync", "epoch")
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "read": _VERSION,
    "view": (*_VERSION, "replicas"),
    "apply": ("id", "address"),
    "register": ("id", "address"),
    "elect": ("id", "master", "master_epoch", "epoch"),
    "alter": ("master", "master_epoch", "in_sync", "expected", "epoch"),
    "clean": ("id",),
}
"""f -> the fields of an answer. The answer about an unknown group is null, also by `read` and `view`."""


def problems(history: History) -> Iterator[BadOp]:
    """Yields the malformed ops, in order of index."""
    for call in history.clients.calls:
        f, done = call.invoke.f, call.completion
        if done is None:
            continue
        if f == "next" and done.type == OK and not _whole(done.value):
            yield BadOp(done.index, f"a next is answered with a whole number, not {_shown(done.value)}")
        if f in _NEEDED and done.value is not None:
            yield from _of_answer(f, done)
        if f in ("apply", "register", "elect", "alter", "clean") and done.type == OK and done.value is None:
            yield BadOp(done.index, f"the answer to {f} has {', '.join(_NEEDED[f])}, and is not null")
    for op in history:
        if op.process < 0 and op.f == "restart-leading" and op.type != "invoke":
            value = op.value
            if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str) or "to" not in value:
                yield BadOp(op.index, f"a restart-leading has kind, from and to, not {_shown(value)}")


def _of_answer(f: str, done: Op) -> Iterator[BadOp]:
    value = done.value
    if not isinstance(value, Mapping):
        yield BadOp(done.index, f"the answer to {f} is a table, not {_shown(value)}")
        return
    for name in _NEEDED[f]:
        if done.type == OK and name not in value:
            yield BadOp(done.index, f"the answer to {f} has no {name!r}; {', '.join(_NEEDED[f])} are right")
    if f == "alter" and "in_sync" in value and "expected" not in value:
        yield BadOp(done.index, "an alter that was sent has 'expected', the epoch that it replaces")
    for name, (wanted, right) in _FIELDS.items():
        if name in value and not right(value[name]):
            yield BadOp(done.index, f"{name!r} in the answer to {f} is {_shown(value[name])}; {wanted} is right")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
