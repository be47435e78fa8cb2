"""Long histories without an object for every op: from plain columns to an order that explains them, or to the few ops
that contradict each other.

Only histories of plain values (`history.plain_ops`) go this way, of models with a monitor on columns (`fast`). All else
is left to `check`, which says what is wrong with it; both ways give the same verdicts (a test compares them).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from checkers.linearizability.fast import fast
from checkers.linearizability.history.events import Longs
from checkers.linearizability.history.plain_ops import PlainOps
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.base import Contradiction, Undecided
from checkers.linearizability.monitors.plain import Refuted

MANY: Final = 20_000
"""Ops of one object from which on this way is worth while."""


class Explained(NamedTuple):
    """An object with an order that its monitor found.

    order      indices of invocations.
    wrong      what its replay did not accept, or None: then it explains the object.
    completed  acknowledged ops. algorithm: the monitor's name. work: events looked at.
    """

    order: Longs
    wrong: str | None
    completed: int
    algorithm: str
    work: int


def applies(model: Model[Any]) -> bool:
    """Is there a monitor on columns for it?"""
    return fast(model).order_plain is not None


def explained(ops: PlainOps, model: Model[Any]) -> Explained | None:
    """None: not valid, or not for this way to say."""
    order_plain, completed = fast(model).order_plain, int(ops.ok.sum())
    if order_plain is None or not completed:
        return None
    try:
        found = order_plain(ops, model)
    except (Contradiction, Undecided):
        return None
    if found is None:
        return None
    return Explained(found.source, found.wrong, completed, found.algorithm, len(ops.f) + completed)


def refuted(ops: PlainOps, model: Model[Any]) -> Refuted | None:
    """A few ops that contradict each other already. None: not refuted, or not for this way to say."""
    refute_plain = fast(model).refute_plain
    return None if refute_plain is None else refute_plain(ops, model)
