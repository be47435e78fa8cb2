# SPDX-License-Identifier: Apache-2.0
"""A history: all operations of one run in order of index, with invocations and completions paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from results.errors import with_article
from results.op import INVOKE, OP_TYPES, Op, OpType


@dataclass(frozen=True, slots=True)
class Call:
    """An invocation and its outcome. No completion means unknown, exactly as `info` does."""

    invoke: Op
    completion: Op | None

    @property
    def outcome(self) -> OpType:
        """`ok`, `fail` or `info`."""
        return self.completion.type if self.completion is not None else "info"

    @property
    def start(self) -> int:
        """The time of its invocation, ns since the start of the run."""
        return self.invoke.time

    @property
    def end(self) -> int | None:
        """The time (ns) of its completion, or None without one."""
        return self.completion.time if self.completion is not None else None


class History(Sequence[Op]):
    """The ops of one run, by index. Immutable; views share the ops.

    >>> History([Op(0, 0, 0, "invoke", "read"), Op(1, 5, 0, "ok", "read", value=3)]).calls[0].outcome
    'ok'
    """

    def __init__(self, ops: Iterable[Op]) -> None:
        self._ops = tuple(ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        return self._ops[i]

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops)

    def where(self, keep: Callable[[Op], bool]) -> History:
        """The ops that `keep` accepts, with their original indices."""
        return History(op for op in self._ops if keep(op))

    @cached_property
    def clients(self) -> History:
        """The ops of the clients."""
        return self.where(lambda op: op.process >= 0)

    @cached_property
    def nemesis(self) -> History:
        """The ops of the nemesis."""
        return self.where(lambda op: op.process < 0)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every invocation with its completion, in order of invocation.

        A completion belongs to the open invocation of its process; a stray one is left out (`mispaired` names it).
        """
        return self._paired[0]

    @property
    def mispaired(self) -> Iterator[tuple[Op, str]]:
        """Yields each op that does not fit the one before it of the same process, in order, with its error in one line.
        A caller that draws a conclusion from `calls` must first verify that no such op exists.
        """
        return ((op, _misfit(op, before)) for op, before in self._paired[1])

    @cached_property
    def _paired(self) -> tuple[tuple[Call, ...], Sequence[tuple[Op, Op | None]]]:
        open_at: dict[int, int] = {}
        invoked: list[Op] = []
        completions: list[Op | None] = []
        wrong: list[tuple[Op, Op | None]] = []  # without a text: there may be millions
        for op in self._ops:
            if op.type == INVOKE:
                before = open_at.get(op.process)
                if before is not None:
                    wrong.append((op, invoked[before]))
                open_at[op.process] = len(invoked)
                invoked.append(op)
                completions.append(None)
            elif op.type not in OP_TYPES:
                wrong.append((op, None))
            elif not op.is_event:
                at = open_at.pop(op.process, None)
                if at is None:
                    wrong.append((op, None))
                    continue
                completions[at] = op
                if op.f != invoked[at].f or op.key != invoked[at].key:
                    wrong.append((op, invoked[at]))
        return tuple(map(Call, invoked, completions)), wrong

    @cached_property
    def by_key(self) -> dict[str | None, tuple[Call, ...]]:
        """The clients' calls, by key, each in order of invocation."""
        groups: dict[str | None, list[Call]] = {}
        for call in self.clients.calls:
            groups.setdefault(call.invoke.key, []).append(call)
        return {key: tuple(calls) for key, calls in groups.items()}


def _misfit(op: Op, before: Op | None) -> str:
    """The error of an op, in one line. `before`: the invocation of its process that was open."""
    if op.type not in OP_TYPES:
        return f"op {op.index} has type {op.type!r}, not one of {', '.join(OP_TYPES)}"
    if before is None:
        return f"process {op.process} completes {with_article(op.f)} that it never invoked (op {op.index})"
    if op.type == INVOKE:
        return f"process {op.process} invokes op {op.index} although its op {before.index} is still open"
    return (
        f"op {op.index} completes {op.f} {op.key} where process {op.process} had invoked "
        f"{before.f} {before.key} (op {before.index})"
    )
