# SPDX-License-Identifier: Apache-2.0
"""From calls to integers: the input of the searches.

A history becomes a list of events (`2 * op` a call, `2 * op + 1` its return, in order of index) over ops that are only
a *kind* number; kinds and states are interned in a `Table`. No search ever reads an `Op` again, so that it can be
compiled without being rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.specification import Model, Transition
from checkers.linearizability.models.values import freeze
from results.bulk import making_many
from results.errors import with_article
from results.history import Call, History
from results.op import FAIL, OK, Op


class Problem:
    """One object's history as integers. Immutable; `relaxed` and `before` share its columns.

    kind       kind number of every op.
    source     index of every op's invocation in the history.
    events     calls and returns, in order. An event that is not here does not exist for a search.
    call, ret  position of every op's events in `events`, or NEVER.
    """

    __slots__ = ("call", "events", "kind", "ret", "source", "table")

    def __init__(self, table: Table, kind: Sequence[int], source: Sequence[int], events: Sequence[int]) -> None:
        self.table, self.kind, self.source, self.events = table, kind, source, events
        self.call = [NEVER] * len(kind)
        self.ret = [NEVER] * len(kind)
        for position, event in enumerate(events):
            (self.ret if event & 1 else self.call)[event >> 1] = position

    @property
    def ops(self) -> list[int]:
        """The ops that are called, in order of call."""
        return [event >> 1 for event in self.events if not event & 1]

    @property
    def completed(self) -> list[int]:
        """The ops that return, in order of return."""
        return [event >> 1 for event in self.events if event & 1]

    @property
    def unknown(self) -> dict[int, list[int]]:
        """By kind, the ops that never return, in order of call."""
        found: dict[int, list[int]] = {}
        for op in self.ops:
            if self.ret[op] == NEVER:
                found.setdefault(self.kind[op], []).append(op)
        return found

    def pure(self, op: int) -> bool:
        return self.table.pure[self.kind[op]]

    def what(self, op: int) -> Transition:
        return self.table.kinds[self.kind[op]]

    def describe(self, op: int) -> str:
        """`write 4 (op 80)`."""
        return f"{self.table.model.describe(self.what(op))} (op {self.source[op]})"

    def before(self, position: int) -> Problem:
        """The problem as known just before the event at `position`: open ops are unknown, pure ones of them removed.

        Sound: if this is not linearizable, neither is the whole.
        """
        returned = {event >> 1 for event in self.events[:position] if event & 1}
        return self._with(e for e in self.events[:position] if e >> 1 in returned or not self.pure(e >> 1))

    def relaxed(self, ops: Iterable[int]) -> Problem:
        """The same problem with `ops` uncertain: mutators become unknown, pure ones are removed. Sound as `before`.

        Mutators are never removed: their effect may make the rest possible.
        """
        loose = set(ops)
        return self._with(e for e in self.events if e >> 1 not in loose or not (e & 1 or self.pure(e >> 1)))

    def without(self, op: int) -> Problem:
        """The same problem as if `op` had never been invoked. Not a relaxation."""
        return self._with(e for e in self.events if e >> 1 != op)

    def then(self, kind: int) -> Problem:
        """The same problem with one more op of that kind, called and answered after everything else."""
        op = len(self.kind)
        return Problem(self.table, [*self.kind, kind], [*self.source, NONE], [*self.events, 2 * op, 2 * op + 1])

    def _with(self, events: Iterable[int]) -> Problem:
        return Problem(self.table, self.kind, self.source, list(events))


def encode(calls: Sequence[Call], model: Model[Any], shared: Table | None = None) -> Problem:
    """The clients' calls, as integers; the order of indices is the order of time.

    `fail` is dropped (certainly no effect); an unknown pure op is dropped (it constrains nothing); any other unknown op
    is called and never returns. Raises ValueError, naming the op, on malformed input, and for an op that the model does
    not know: its effect may explain the results of the others.

    `shared`: the table of several histories of the same model; the caller that made it closes it after the last one.
    """
    table = Table(model) if shared is None else shared
    kind: list[int] = []
    source: list[int] = []
    event_at: dict[int, int] = {}
    count = 0
    fs, kind_of, number_of, pure = model.fs, model.kind, table.kind, table.pure
    with making_many():
        for call in calls:
            invoke, completion = call.invoke, call.completion
            if invoke.process < 0:
                continue
            if invoke.f not in fs:
                raise ValueError(unknown(invoke, model))
            if completion is not None and completion.f != invoke.f:
                raise ValueError(
                    f"op {invoke.index}: {with_article(invoke.f)} is completed by {with_article(completion.f)}"
                )
            known = completion is not None and completion.type == OK
            if not known and completion is not None and completion.type == FAIL:
                continue
            what = kind_of(call)
            try:
                frozen = freeze(what.value)
                number = number_of(what if frozen is what.value else Transition(what.f, frozen, what.known))
            except ValueError as problem:
                raise ValueError(f"op {invoke.index}: {problem}") from None
            except RecursionError:
                raise ValueError(f"op {invoke.index}: its value is nested too deeply, or holds itself") from None
            if not known and pure[number]:
                continue
            op = len(kind)
            kind.append(number)
            source.append(invoke.index)
            event_at[invoke.index] = 2 * op
            count += 1
            if known and completion is not None:
                if completion.index <= invoke.index:
                    raise ValueError(f"op {invoke.index}: completed at index {completion.index}, before it was invoked")
                event_at[completion.index] = 2 * op + 1
                count += 1
    if shared is None:
        table.seal_kinds()
    if len(event_at) != count:
        indices = Counter(
            event.index for call in calls for event in (call.invoke, call.completion) if event is not None
        )
        twice = next(index for index, times in indices.items() if times > 1)
        raise ValueError(f"two events have the index {twice}; indices are the order of time and must differ")
    return Problem(table, kind, source, [event_at[index] for index in sorted(event_at)])


class Vocabulary(Protocol):
    """The name of a model, and its operations."""

    @property
    def name(self) -> str: ...

    @property
    def fs(self) -> frozenset[str]: ...


def unknown(op: Op, model: Vocabulary) -> str:
    """The message for an op that a model does not know."""
    # Imported here: only for the message.
    from difflib import get_close_matches

    from results.formats.records import plain_name

    plain = plain_name(op.f)
    near = [plain] if plain in model.fs else get_close_matches(op.f, model.fs, 1)
    meant = f"; is it a `{near[0]}`?" if near else ""
    return f"the model {model.name} has no `{op.f}` (op {op.index}){meant}"


def first_unknown(ops: Iterable[Op], model: Vocabulary, ignore: Collection[str] = ()) -> Op | None:
    """The first op of a client that the model does not know, and that is not to be ignored."""
    return next((op for op in ops if op.process >= 0 and op.f not in model.fs and op.f not in ignore), None)


def calls_of(history: Sequence[Call] | History) -> Sequence[Call]:
    """The calls of a history. Raises ValueError as `insist_on_pairs` does."""
    if not isinstance(history, History):
        return history
    insist_on_pairs(history)
    return history.calls


def insist_on_pairs(history: History) -> None:
    """Raises ValueError if a client's op does not fit the one before it: the calls would lack it."""
    wrong = next((told for op, told in history.mispaired if op.is_client), None)
    if wrong is not None:
        raise ValueError(f"the history is not well-formed: {wrong}")
