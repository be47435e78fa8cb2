# SPDX-License-Identifier: Apache-2.0
"""One operation: the element of every history (design.md, section 3; Jepsen's `history.clj`).

An operation appears twice in a history: as an *invocation* (`invoke`) and, usually, as a *completion* (`ok`, `fail` or
`info`). Both are `Op` values. They are paired by process (`results.history`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, cast

OpType = Literal["invoke", "ok", "fail", "info"]

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"
OP_TYPES: Final[tuple[OpType, ...]] = ("invoke", "ok", "fail", "info")

NEMESIS: Final = -1
"""The process number of the nemesis. Clients are 0, 1, 2, ... (written `"nemesis"` in JSON)."""

SERVER_DIED: Final = "server-died"
ROLE_CHANGED: Final = "role-changed"
CALM: Final = "calm"
LOG_LINE: Final = "log-line"
EVENTS: Final = frozenset({SERVER_DIED, ROLE_CHANGED, CALM, LOG_LINE})
"""Events without an invocation, such as a server that ended by itself. Type `info`, process `NEMESIS`, `value` of
`SERVER_DIED` with `node`, `server` (its kind), `pid` (None: it never came back) and `last` (the end of its log). An
event may be between any two others, those of a strike included.
"""

UNREADABLE: Final = "unreadable"

NO_EXTRA: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Op:
    """One event of a history.

    index    dense position in the history, from 0.
    time     nanoseconds since the start of the run, monotonic clock of the control node.
    process  logical client (a new number after every `info`), or `NEMESIS`.
    type     `invoke`; `ok`: certainly happened; `fail`: certainly did not, and never will; `info`: unknown.
    f        the kind of operation, e.g. `read`, `write`, `cas`, or `inject`, `heal` for the nemesis.
    key      the independent object it touches, or None.
    value    argument of an invocation; result of a completion (JSON values only).
             A completion repeats the argument if the op has no result (`write` -> the written value,
             `cas` -> `[from, to]`), and carries the value seen by a `read`.
    error    the reason why it is not `ok`, one line in plain words, or None.
    extra    anything else, JSON values only. Known keys: `node` (the node that got the request), `scheduled` (ns: the
             time that the generator planned; `time` of the invocation is its real start), `phase`
             (`main`, `recovery`, `final`), `code` (the protocol's answer code), `term`, `log_index`, `unreadable`
             (True: the answer came, and its bytes are no messages).
    """

    index: int
    time: int
    process: int
    type: OpType
    f: str
    key: str | None = None
    value: Any = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: NO_EXTRA)

    @property
    def is_client(self) -> bool:
        return self.process >= 0

    @property
    def is_event(self) -> bool:
        """True for an event (`EVENTS`), which completes no invocation."""
        return self.f in EVENTS and self.process < 0

    def to_json(self) -> dict[str, Any]:
        """The op as a JSON object; `error` and `extra` only if not empty."""
        out: dict[str, Any] = {
            "index": self.index,
            "time": self.time,
            "process": "nemesis" if self.process == NEMESIS else self.process,
            "type": self.type,
            "f": self.f,
            "key": self.key,
            "value": self.value,
        }
        if self.error is not None:
            out["error"] = self.error
        if self.extra:
            out["extra"] = dict(self.extra)
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Op:
        """The inverse of `to_json`. Raises ValueError that names the missing or wrong field."""
        error, extra = data.get("error"), data.get("extra")
        if error is not None and type(error) is not str:
            error = json.dumps(error)
        if extra and not isinstance(extra, Mapping):
            raise ValueError(f"extra is {extra!r}, not an object")
        try:
            process = data["process"]
            op = make_op(
                data["index"],
                data["time"],
                NEMESIS if process == "nemesis" else process,
                data["type"],
                data["f"],
                data.get("key"),
                data.get("value"),
                error,
                extra or NO_EXTRA,
            )
        except KeyError as missing:
            raise ValueError(f"an operation needs the field {missing.args[0]!r}") from None
        if op.type not in OP_TYPES:
            raise ValueError(f"type is {op.type!r}, not one of {', '.join(OP_TYPES)}")
        if not (type(op.index) is type(op.time) is type(op.process) is int):
            name = next(name for name in ("index", "time", "process") if type(getattr(op, name)) is not int)
            raise ValueError(f"{name} is {getattr(op, name)!r}, not a whole number")
        if type(op.f) is not str:
            raise ValueError(f"f is {op.f!r}, not a string")
        return op


@dataclass(slots=True)
class _Draft:
    """An op that is being made: the same slots in the same order, but not frozen."""

    index: int
    time: int
    process: int
    type: OpType
    f: str
    key: str | None
    value: Any
    error: str | None
    extra: Mapping[str, Any]


def make_op(
    index: int,
    time: int,
    process: int,
    type: OpType,
    f: str,
    key: str | None,
    value: Any,
    error: str | None,
    extra: Mapping[str, Any],
) -> Op:
    """`Op(...)`, but two to three times as fast: for readers, which make millions of them.

    A frozen dataclass sets each field through `object.__setattr__`. This one is frozen when it is complete.
    """
    draft: Any = _Draft(index, time, process, type, f, key, value, error, extra)
    draft.__class__ = Op
    return cast(Op, draft)
