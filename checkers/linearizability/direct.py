# SPDX-License-Identifier: Apache-2.0
"""Long histories without an object for every op: from plain columns to an order that explains them, or to the few ops
that contradict each other.

Only histories of plain values (`history.op_columns`) go this way, of models with a monitor on columns (`fast`). `check`
handles all others, and reports their errors; both ways give the same verdicts (a test compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkers.linearizability.fast import fast
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.refusal import Contradiction, Undecided

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Longs
    from checkers.linearizability.history.op_columns import OpColumns
    from checkers.linearizability.monitors.registers import Few

MANY: Final = 20_000
"""The number of ops of one object from which on this way is faster."""


class FoundOrder(NamedTuple):
    """The order that a monitor found for an object.

    order      names of ops (`OpColumns.source`).
    wrong      the error of its replay, or None: then it explains the object.
    algorithm  the monitor's name.
    """

    order: Longs
    wrong: str | None
    algorithm: str


def applies(model: Model[Any]) -> bool:
    """True if a monitor on columns exists for the model and its start value."""
    return fast(model).columns is not None


def find_witness(ops: OpColumns, model: Model[Any]) -> FoundOrder | None:
    """An order that explains the object; None: it is not valid, or this way cannot decide it."""
    load = fast(model).columns
    if load is None or not (ops.ret < NEVER).any():
        return None
    # Imported here, with the monitor: most histories are not long enough for this way.
    from checkers.linearizability.witness_columns import out_of_time

    monitor = load()
    columns = monitor.columns(ops, model)
    if columns is None:
        return None
    try:
        order = monitor.order(columns)
    except (Contradiction, Undecided):
        return None
    wrong = out_of_time(columns.call, columns.ret, order) or monitor.replay(columns, order)
    return FoundOrder(columns.source[order], wrong, monitor.name)


def find_contradiction(ops: OpColumns, model: Model[Any]) -> Few | None:
    """A few ops that contradict each other. None: the object is not refuted, or this way cannot decide it."""
    refute = fast(model).refute_columns
    return None if refute is None else refute(ops, model)
