"""From plain ops (`history.plain_ops`) to the columns of a monitor, to an order, and to its replay.

Each function returns None where the monitor has no rule for these ops, and raises Contradiction or Undecided as the
monitor does. Which model goes with which function stands in `fast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.linearizability import witness
from checkers.linearizability.history.events import Bools, Longs, Times
from checkers.linearizability.history.plain_ops import NOTHING, PlainOps
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors import logs, queues, registers
from checkers.linearizability.monitors.base import Contradiction, Undecided, first_proof, until

_FEW: Final = 5_000
"""Ops that are worth explaining by themselves."""


class PlainOrder(NamedTuple):
    """source: indices of invocations, in an order. wrong: what the replay of that order did not accept, or None.
    algorithm: the monitor's name.
    """

    source: Longs
    wrong: str | None
    algorithm: str


def _replayed(algorithm: str, ops: PlainOps, order: Longs, wrong: str | None) -> PlainOrder:
    return PlainOrder(ops.source[order], wrong or witness.out_of_time(ops.when, order), algorithm)


class Refuted(NamedTuple):
    """source: indices of the invocations of a few ops that contradict each other, and of all that have to do with them.
    returned: which of them had returned by the earliest proof; of the others nobody knows what became.
    completed: acknowledged ops of the whole object. work: events looked at.
    """

    source: Longs
    returned: Bools
    completed: int
    work: int


def register_columns(ops: PlainOps) -> registers.RegisterOps:
    """Reads and writes, for the monitor; a read whose outcome is unknown constrains nothing, and must not be there."""
    write = ops.of("write")
    return registers.RegisterOps(write, np.where(write, ops.asked, ops.got) + 1, ops.when)


def order_register(ops: PlainOps, model: Model[Any]) -> PlainOrder | None:
    write = ops.of("write")
    if model.initial is not None or not (write | ops.of("read")).all():
        return None
    ops = ops.kept(write | ops.ok)
    columns = register_columns(ops)
    order = registers.register_order(columns)
    wrong = witness.register_wrong(columns.write[order], columns.value[order])
    return _replayed(registers.NAME, ops, order, wrong)


def order_queue(ops: PlainOps, model: Model[Any]) -> PlainOrder | None:
    put = ops.of("enqueue")
    if not (put | ops.of("dequeue")).all() or (ops.asked[put] == NOTHING).any():
        return None
    took = np.where(ops.ok, np.where(ops.got == NOTHING, queues.EMPTY, queues.DEQUEUE), queues.LOST)
    f = np.where(put, queues.ENQUEUE, took).astype(np.uint8)
    element = np.where(put, ops.asked, np.maximum(ops.got, 0))
    order = queues.queue_order(queues.QueueOps(f, element, ops.when))
    placed, what = f[order], element[order]
    taken = np.where(placed == queues.LOST, NOTHING, what)
    wrong = witness.queue_wrong(placed == queues.ENQUEUE, placed == queues.EMPTY, taken)
    return _replayed(queues.NAME, ops, order, wrong)


def order_log(ops: PlainOps, model: Model[Any]) -> PlainOrder | None:
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
    wrong = witness.log_wrong(
        placed == logs.APPEND, placed == logs.READ, placed == logs.MAX, entry[order], offset[order]
    )
    return _replayed(logs.NAME, ops, order, wrong)


_LOG_FS: Final = {"append": logs.APPEND, "read": logs.READ, "min-offset": logs.MIN, "max-offset": logs.MAX}


def refute_register(ops: PlainOps, model: Model[Any]) -> Refuted | None:
    """All ops of a few values that contradict each other already.

    A history of a register that has an order has one without all ops of any value, too, if each was written once: no
    read loses the write in front of it. So these few ops prove that the whole has none.
    """
    if model.initial is not None or not ops.of("read", "write").all():
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
