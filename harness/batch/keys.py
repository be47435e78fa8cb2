# SPDX-License-Identifier: Apache-2.0
"""A history that is too long for one worker, judged key by key (`checkers.spark.keys`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from checkers.linearizability.compiled.jit import plain
from checkers.linearizability.history.arrow import coded
from checkers.linearizability.history.encode import first_unknown, unknown
from checkers.run.wellformed import WellFormed
from checkers.spark.job import Done, Receipt
from checkers.spark.keys import Division, Judged, first_break, judged
from checkers.spark.units import Unit
from harness.batch.rows import Clock, key_rows
from harness.check.decision import NOTHING_THERE
from harness.check.examine import examine_columns
from harness.check.report import CheckOptions
from results.bulk import making_many
from results.errors import HistoryError
from results.history import History
from results.sealed import ops_of
from results.verdict import Verdict, worst
from results.verdict_table import VerdictRow, to_table

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class KeyJudge:
    """The judge of some keys, as it is sent to the workers: the functions of `harness check`."""

    name: str
    source: str
    model: str
    check_options: CheckOptions

    def __call__(self, table: pa.Table) -> pa.Table:
        with nullcontext() if self.check_options.jit else plain():
            return to_table(self._rows(table))

    def _rows(self, table: pa.Table) -> Iterator[VerdictRow]:
        clock = Clock()
        dense = table.set_column(0, "index", pa.array(np.arange(len(table))))
        found = examine_columns(dense, self.model, self.check_options)
        keys = {} if found is None else {k: r for k, r in found.keys.items() if r.verdict == Verdict.VALID}
        yield from key_rows(self.name, self.model, keys, clock.read()[0])
        if found is not None and len(keys) == len(found.keys):
            return
        # One by one, with their own indices: these have reasons, and a core.
        codes, names = coded(table["key"])
        left = np.array([name not in keys for name in [*names.to_pylist(), None]])[codes]
        clock = Clock()
        with making_many():
            history = History(ops_of(Path(self.source), table.filter(pa.array(left))))
        made, ignore = self.check_options.model(self.model), self.check_options.ignore
        other = first_unknown(history, made, ignore)
        if other is not None:
            raise HistoryError(self.source, None, f"{unknown(other, made)}; --ignore {other.f} leaves it out")
        _, results = self.check_options.checker(self.model).examine(history)
        yield from key_rows(self.name, self.model, results, clock.read()[0])


def judge_long(
    context: SparkContext, units: Iterable[Unit], check_options: CheckOptions, version: str, checked: int, question: str
) -> Iterator[Done]:
    """One history after the other: each spreads over all executors."""
    for unit in units:
        assert unit.model is not None
        try:
            judge = KeyJudge(unit.name, unit.source, unit.model, check_options)
            rows = _rows(unit, judged(context, Division.of(Path(unit.source)), judge))
        except Exception as problem:
            rows = to_table([VerdictRow(unit.name, "reader", Verdict.UNKNOWN, f"{unit.source}: {_reason(problem)}")])
        yield _done(unit, rows, version, checked, question)


def _rows(unit: Unit, found: Judged) -> pa.Table:
    """The rows of a history: that of its form, and those of its keys if it has the right one."""
    total = sum(one.rows for one in found.segments)
    broken = first_break(found.segments) or found.unpaired
    if broken is not None:
        return to_table([VerdictRow(unit.name, WellFormed.name, Verdict.HARNESS_FAILURE, broken, ops=total)])
    formed = VerdictRow(unit.name, WellFormed.name, Verdict.VALID, f"{total} ops", ops=total)
    if not any(one.ok for one in found.segments):
        nothing = VerdictRow(unit.name, "linearizability", Verdict.UNKNOWN, NOTHING_THERE, model=unit.model)
        return to_table([formed, nothing])
    return pa.concat_tables([to_table([formed]), found.rows]).unify_dictionaries()


def _done(unit: Unit, rows: pa.Table, version: str, checked: int, question: str) -> Done:
    verdicts = Counter(rows["verdict"].to_pylist())
    verdict = worst(Verdict(word) for word in verdicts)
    examples = []
    if verdict != Verdict.VALID:
        at = rows["verdict"].to_pylist().index(verdict.value)
        count = verdicts[verdict.value]
        more = f" ({count:,} of {len(rows) - 1:,} keys)" if count > 1 else ""
        examples = [(unit.name, verdict.value, rows["reason"][at].as_py() + more)]
    constants = {"source": unit.source, "unit": "", "checker_version": version}
    for name, text in constants.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(
            place, rows.schema.field(name), pa.array([text] * len(rows), rows.schema.field(name).type)
        )
    place = rows.schema.get_field_index("checked")
    rows = rows.set_column(place, rows.schema.field("checked"), pa.array(np.full(len(rows), checked)))
    receipt = Receipt(unit.fingerprint(question), unit.name, unit.source, {verdict.value: 1}, examples)
    return Done.of(rows, [receipt])


def _reason(problem: Exception) -> str:
    """One line. Spark repeats the error of a worker within its own: the last line of the worker's traceback is it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    own = [line for line in lines if "HistoryError: " in line]
    return (
        own[0].partition("HistoryError: ")[2] if own else f"Spark failed on it: {(lines or [repr(problem)])[0][:300]}"
    )
