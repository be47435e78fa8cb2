"""Long histories without an object for every op: from columns to an order that explains them.

The monitors work on columns. `encode` makes them from a `Problem`, for which each op has been a `Transition` in a table
first; with a million different values that costs far more than the answer. Here they come from the calls, or from the
columns of a sealed history (`arrow`), at once.

Only what is plain goes this way: whole numbers, short texts and nothing at all as values, and models with a monitor on
columns. `explained` finds an order, which is replayed; `refuted` the few ops of a register that contradict each other.
All else is left to `check`, which says what is wrong with it; both ways give the same verdicts (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.linearizability.evidence import witness
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.registry import CasRegister, FifoQueue, Model, Register
from checkers.linearizability.monitors import logs, queues, registers
from checkers.linearizability.monitors.base import (
    LATE,
    Bools,
    Contradiction,
    Longs,
    Times,
    Undecided,
    first_proof,
    until,
)
from results.bulk import making_many
from results.history import Call
from results.op import FAIL, OK

NOTHING: Final = -1
"""The number of `None`."""

MANY: Final = 20_000
"""Ops of one object from which on this way is worth while."""

_LARGEST: Final = 10**18

_FEW: Final = 5_000
"""Ops that are worth explaining by themselves."""


class PlainOps(NamedTuple):
    """Ops of one object, in order of call. Values are numbers: equal ones are equal values, NOTHING is None.

    f            place in `fs`.
    asked, got   the argument; the result, where the op is acknowledged.
    ok           is it acknowledged? Otherwise nobody knows whether it happened (there are none that failed).
    call, ret    places of its events in the order of time; `ret` is LATE where there is none.
    source       index of its invocation in the history.
    whole        by number of a value: the whole number that it is.
    is_whole     and whether it is one. (The last row of both is of NOTHING.)
    """

    fs: Sequence[str]
    f: Longs
    asked: Longs
    got: Longs
    ok: Bools
    call: Longs
    ret: Longs
    source: Longs
    whole: Longs
    is_whole: Bools

    def of(self, *names: str) -> Bools:
        """Which ops are one of these."""
        return np.array([f in names for f in self.fs], np.bool_)[self.f]

    def kept(self, rows: Bools | Longs | slice) -> PlainOps:
        return self._replace(
            f=self.f[rows], asked=self.asked[rows], got=self.got[rows], ok=self.ok[rows],
            call=self.call[rows], ret=self.ret[rows], source=self.source[rows],
        )  # fmt: skip

    @property
    def when(self) -> Times:
        return Times(np.arange(len(self.f)), self.call, self.ret)


class Explained(NamedTuple):
    """A valid object. order: indices of invocations in an order that explains it, replayed. completed: acknowledged
    ops. algorithm: the monitor's name. work: events looked at.
    """

    order: Longs
    completed: int
    algorithm: str
    work: int


def explained(ops: PlainOps, model: Model[Any]) -> Explained | None:
    """None: not valid, or not for this way to say."""
    for kinds, name, decide in _WAYS:
        if type(model) in kinds:
            try:
                order = decide(ops, model)
            except (Contradiction, Undecided):
                return None
            completed = int(ops.ok.sum())
            if order is None or not completed:
                return None
            return Explained(order, completed, name, len(ops.f) + completed)
    return None


class Refuted(NamedTuple):
    """source: indices of the invocations of a few ops that contradict each other, and of all that have to do with them.
    returned: which of them had returned by the earliest proof; of the others nobody knows what became.
    completed: acknowledged ops of the whole object. work: events looked at.
    """

    source: Longs
    returned: Bools
    completed: int
    work: int


def refuted(ops: PlainOps, model: Model[Any]) -> Refuted | None:
    """All ops of a few values of a register that contradict each other already. None: not refuted, or not this way.

    A history of a register that has an order has one without all ops of any value, too, if each was written once: no
    read loses the write in front of it. So these few ops prove that the whole has none.
    """
    if type(model) not in (Register, CasRegister) or model.initial is not None or not ops.of("read", "write").all():
        return None
    completed = int(ops.ok.sum())
    ops = ops.kept(ops.of("write") | ops.ok)
    columns = register_columns(ops)
    blamed: Sequence[int] = ()

    def wrong(keep: Bools, when: Times) -> bool:
        nonlocal blamed
        try:
            registers.check_register(columns.chosen(keep, when))
        except Undecided:
            return False
        except Contradiction as contradiction:
            blamed = contradiction.rows
            return True
        return False

    everything = np.ones(len(ops.f), np.bool_)
    if not wrong(everything, columns.when):
        return None
    position = first_proof(columns.when, ~columns.write, wrong)
    keep, when = until(columns.when, ~columns.write, position)
    if not wrong(keep, when):
        return None
    concerned = keep & np.isin(columns.value, columns.value[keep][list(blamed)])
    if concerned.sum() > _FEW:
        return None
    return Refuted(ops.source[concerned], ops.ret[concerned] <= position, completed, len(ops.f) + completed)


def applies(model: Model[Any]) -> bool:
    return any(type(model) in kinds for kinds, _, _ in _WAYS)


def from_calls(calls: Sequence[Call]) -> PlainOps | None:
    """The calls of one object that may have happened. None where a value is not plain."""
    numbers: dict[Any, int] = {None: NOTHING}
    fs: dict[str, int] = {}
    columns: list[tuple[int, int, int, bool, int, int]] = []
    with making_many():
        for call in calls:
            invoke, completion = call.invoke, call.completion
            if completion is not None:
                if completion.f != invoke.f:
                    return None
                if completion.type == FAIL:
                    continue
            ok, got, ret = False, None, LATE
            if completion is not None and completion.type == OK:
                ok, got, ret = True, completion.value, completion.index
            asked = invoke.value
            for value in (asked, got):
                if type(value) is not int and type(value) is not str and value is not None:
                    return None
            columns.append((
                fs.setdefault(invoke.f, len(fs)), numbers.setdefault(asked, len(numbers) - 1),
                numbers.setdefault(got, len(numbers) - 1), ok, invoke.index, ret,
            ))  # fmt: skip
    f, asked_, got_, ok_, called, returned = np.array(columns, np.int64).reshape(-1, 6).T.copy()
    if not _in_order(called, returned):
        return None
    values = list(numbers)[1:]
    whole = [value if type(value) is int and abs(value) < _LARGEST else LATE for value in values]
    known = np.array([*whole, LATE], np.int64)
    return PlainOps(list(fs), f, asked_, got_, ok_ == 1, called, returned, called, known, known != LATE)


def _in_order(call: Longs, ret: Longs) -> bool:
    """Calls one after the other, each before its own return, and no two events at one place."""
    events = np.concatenate((call, ret[ret < LATE]))
    return bool((np.diff(call) > 0).all() and (ret > call).all() and len(np.unique(events)) == len(events))


def register_columns(ops: PlainOps) -> registers.RegisterOps:
    """Reads and writes, for the monitor; a read whose outcome is unknown constrains nothing, and must not be there."""
    write = ops.of("write")
    return registers.RegisterOps(write, np.where(write, ops.asked, ops.got) + 1, ops.when)


def _register(ops: PlainOps, model: Model[Any]) -> Longs | None:
    write = ops.of("write")
    if model.initial is not None or not (write | ops.of("read")).all():
        return None
    ops = ops.kept(write | ops.ok)
    columns = register_columns(ops)
    order = registers.register_order(columns)
    right = witness.register_holds(columns.write[order], columns.value[order])
    return ops.source[order] if right and witness.respects_time(ops.when, order) else None


def _queue(ops: PlainOps, model: Model[Any]) -> Longs | None:
    put = ops.of("enqueue")
    if not (put | ops.of("dequeue")).all() or (ops.asked[put] == NOTHING).any():
        return None
    took = np.where(ops.ok, np.where(ops.got == NOTHING, queues.EMPTY, queues.DEQUEUE), queues.LOST)
    f = np.where(put, queues.ENQUEUE, took).astype(np.uint8)
    element = np.where(put, ops.asked, np.maximum(ops.got, 0))
    order = queues.queue_order(queues.QueueOps(f, element, ops.when))
    placed, what = f[order], element[order]
    right = witness.queue_holds(
        placed == queues.ENQUEUE, placed == queues.EMPTY, np.where(placed == queues.LOST, NOTHING, what)
    )
    return ops.source[order] if right and witness.respects_time(ops.when, order) else None


def _log(ops: PlainOps, model: Model[Any]) -> Longs | None:
    f = np.select([ops.of(name) for name in _LOG_FS], list(_LOG_FS.values()), 255).astype(np.uint8)
    append, read = f == logs.APPEND, f == logs.READ
    number = np.where(read, ops.asked, ops.got)
    unsaid = (append & (number == NOTHING)) | ~(read | ops.ok)
    if (f == 255).any() or (append & (ops.asked == NOTHING)).any() or not (ops.is_whole[number] | unsaid).all():
        return None
    offset = ops.whole[number] - model.initial.first
    offset = np.where(unsaid, logs.NONE, np.where(offset < 0, logs.NONE - 1, offset))
    entry = np.where(append, ops.asked, np.where(read, ops.got, logs.NONE))
    # What is unknown and could only look constrains nothing.
    kept = append | ops.ok
    ops, f, entry, offset = ops.kept(kept), f[kept], entry[kept], offset[kept]
    order = logs.log_order(logs.LogOps(f, entry, offset, ops.when))
    placed = f[order]
    right = witness.log_holds(
        placed == logs.APPEND, placed == logs.READ, placed == logs.MAX, entry[order], offset[order]
    )
    return ops.source[order] if right and witness.respects_time(ops.when, order) else None


_LOG_FS: Final = {"append": logs.APPEND, "read": logs.READ, "min-offset": logs.MIN, "max-offset": logs.MAX}

_Way = Callable[[PlainOps, Model[Any]], "Longs | None"]
_WAYS: Final[Sequence[tuple[tuple[type[Model[Any]], ...], str, _Way]]] = (
    ((Register, CasRegister), registers.NAME, _register),
    ((FifoQueue,), queues.NAME, _queue),
    ((Log,), logs.NAME, _log),
)
"""By the very class: a subclass may mean something else."""
