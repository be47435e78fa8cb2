# SPDX-License-Identifier: Apache-2.0
"""Histories written by hand: of calls at given times, and of messages, one call after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from results.history import History
from results.op import NEMESIS, Op, OpType
from results.record import RunRecord

Q = "t:a:0"


S = 1_000_000_000
"""ns of a second."""


class TimedStory:
    """Writes a history of calls at times in seconds, in any order. A call takes 10 ms."""

    def __init__(self) -> None:
        self.events: list[Op] = []

    def put(self, at: float, process: int, type_: OpType, f: str, key: str | None, value: Any, **extra: Any) -> None:
        error = extra.pop("error", None)
        self.events.append(Op(len(self.events), int(at * S), process, type_, f, key, value, error, extra))

    def call(
        self,
        at: float,
        f: str,
        key: str | None,
        requested: Any,
        got: Any,
        type_: OpType = "ok",
        *,
        ask: Mapping[str, Any] | None = None,
        took: float = 0.01,
        process: int | None = None,
        **extra: Any,
    ) -> None:
        """A call of a client of its own, or of `process`. `ask`: the extra of its invocation; None: that of both."""
        number = len(self.events) if process is None else process
        first = extra if ask is None else ask
        self.put(at, number, "invoke", f, key, requested, **first)
        self.put(at + took, number, type_, f, key, got, **{**first, **extra})

    def fault(self, start: float, end: float, *nodes: str, **more: Any) -> None:
        """A fault at some nodes that was seen. more: further fields of its value, such as `impairs` and `effects`."""
        what = {"fault": "kill", "id": len(self.events), "nodes": dict.fromkeys(nodes), "seen": True, **more}
        self.put(start, NEMESIS, "info", "inject", None, what)
        self.put(end, NEMESIS, "info", "heal", None, what)

    def run(self, **fields: Any) -> RunRecord:
        """The run, with these fields of `RunRecord`."""
        order = sorted(self.events, key=lambda op: op.time)
        return RunRecord(History(replace(op, index=index) for index, op in enumerate(order)), **fields)


class Story:
    """Writes a history; every call takes a millisecond unless it is left open."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def put(self, process: int, type_: OpType, f: str, value: Any, key: str | None = Q, **extra: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops) * 1_000_000, process, type_, f, key, value, None, extra))

    def call(self, f: str, requested: Any, got: Any, type_: OpType = "ok", process: int = 0, **extra: Any) -> None:
        self.put(process, "invoke", f, requested, **extra)
        self.put(process, type_, f, got, **extra)

    def send(self, identity: int, offset: int | None, type_: OpType = "ok", process: int = 0, node: str = "n1") -> None:
        got = [offset, identity] if type_ == "ok" else identity
        self.call("send", identity, got, type_, process, node=node)

    def poll(self, begin: int, *ids: Any, node: str = "n1", **output: Any) -> None:
        """From an offset on; None: nothing is shown there."""
        shown = [[begin + i, identity] for i, identity in enumerate(ids) if identity is not None]
        self.call("poll", begin, shown, process=7, node=node, **output)

    def next_poll(self, begin: int, *ids: Any, process: int = 8, **output: Any) -> None:
        """Messages for a consumer whose client keeps its position."""
        self.call("poll", None, [[begin + i, n] for i, n in enumerate(ids)], process=process, node="n1", **output)

    def final(self, *ids: Any, node: str = "n1", begin: int = 0, done: bool = True, **output: Any) -> None:
        shown = [[begin + i, identity] for i, identity in enumerate(ids) if identity is not None]
        end = begin + len(ids)
        more = {"min": 0, "max": end if done else end + 9, "next": end, "done": done, "phase": "final"} | output
        self.call("replica-read", begin, shown, process=9, node=node, **more)

    def unread(self, node: str) -> None:
        self.call("replica-read", 0, 0, "fail", 9, node=node, phase="final")

    @property
    def record(self) -> RunRecord:
        return RunRecord(History(self.ops))
