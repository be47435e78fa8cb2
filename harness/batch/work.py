# SPDX-License-Identifier: Apache-2.0
"""The work of a Spark worker on a portion of a batch.

It reads the histories, checks them with the functions of `harness check`, and returns rows of the verdict table. The
checkers of its workload check a stored run; a model checks any other history.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.base.api import Checker, judge
from checkers.converging import CONVERGING
from checkers.linearizability import Linearizable
from checkers.linearizability.batch import VALID, check_batch
from checkers.linearizability.compiled.jit import plain
from checkers.linearizability.direct import MANY
from checkers.linearizability.history.encode import first_unknown, unknown
from checkers.linearizability.models import MODELS
from checkers.linearizability.models.registers import CasRegister
from checkers.linearizability.models.specification import Model
from checkers.run.wellformed import WellFormed
from checkers.spark.columns import applies, pack_part, runs_with
from checkers.spark.job import Done, Portion, Receipt
from checkers.spark.units import Unit
from harness.batch.judge import PendingHistory, decide_all, failed_row
from harness.batch.rows import Clock, ColumnarResults, TimedChecker, key_rows, rows_of
from harness.check.decision import NOTHING_THERE
from harness.check.examine import examine_columns, why_no_model
from harness.check.judging import judge_by
from harness.check.report import CheckOptions
from harness.parts import registry
from harness.plan.plan import Plan, PlanError
from results.bulk import making_many
from results.errors import HistoryError
from results.formats import limited, open_history
from results.formats.implied import implied_model
from results.history import History
from results.impact import impacts
from results.op import OK
from results.op_table import is_op_table, read_part, row_groups, runs_of
from results.reading import exists
from results.record import RunRecord
from results.sealed import ops_of, sealed_keys
from results.store import RunDir
from results.trends import IMPACT
from results.verdict import CheckResult, Verdict, worst
from results.verdict_table import VerdictRow, to_table


@dataclass(frozen=True)
class BatchWork:
    """The task that is sent to the workers. `version`: of the checkers. `checked`: start of the job, ns since 1970."""

    check_options: CheckOptions
    version: str
    question: str
    checked: int

    def __call__(self, portion: Portion, places: Mapping[str, Path]) -> Done:
        _forget_peak()
        with nullcontext() if self.check_options.jit else plain():
            looks = [self._look(unit, places[unit.source]) for unit in portion]
            decide_all([history for look in looks for history in look.open], self.check_options)
        peak = _peak_mb()
        return self._done(looks, peak)

    def lost(self, unit: Unit, reason: str) -> Done:
        look = UnitResult(unit)
        look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, f"{unit.source}: {reason}"))
        return self._done([look], 0.0)

    def runs_in(self, unit: Unit, place: Path) -> int:
        assert unit.groups is not None
        return len(runs_of(read_part(place, unit.groups, ["run"])))

    def _look(self, unit: Unit, place: Path) -> UnitResult:
        """Reads a unit, and judges the histories that are judged one by one. Never raises for its content."""
        look = UnitResult(unit)
        try:
            if unit.keys is not None:
                _some_keys(look, place, self.check_options)
            elif unit.kind == "run":
                _stored(look, place, self.check_options)
            elif unit.kind == "table" or (place.suffix == ".parquet" and is_op_table(place)):
                _table(look, place, self.check_options)
            else:
                _foreign(look, place, self.check_options)
        except HistoryError as problem:
            reason = str(problem).replace(str(place), unit.source)
            look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, reason, line=problem.line))
        except PlanError as problem:
            look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, f"{unit.source}: {problem}"))
        except Exception as problem:
            look.failed(unit.name, problem)
        return look

    def _done(self, looks: Sequence[UnitResult], peak: float) -> Done:
        for look in looks:
            for history in look.open:
                for row in history.rows:
                    if row.checker == "reader":
                        row.reason = f"{look.unit.source}: {row.reason}"
                look.rows += history.rows
            for row in look.rows:
                row.source, row.unit, row.peak_mb = look.unit.source, look.unit.part, peak
                row.checker_version, row.checked = self.version, self.checked
        tables = [to_table(row for look in looks for row in look.rows)]
        about = {"checker_version": self.version, "checked": self.checked, "peak_mb": peak}
        for look in looks:
            constant = {**about, "source": look.unit.source, "unit": look.unit.part}
            tables += [table for quick in look.quick for table in quick.tables(constant)]
        table = pa.concat_tables(tables)
        return Done.of(table, [look.receipt(look.unit.fingerprint(self.question)) for look in looks])


ENDS = ("reader", "well-formed")
"""Checkers after whose objection a history is not judged further."""


@dataclass
class UnitResult:
    """The result of a unit: `rows` that are final, histories that are `open`, and many `quick` ones; `empty`
    are those in which no client did anything.
    """

    unit: Unit
    rows: list[VerdictRow] = field(default_factory=list)
    open: list[PendingHistory] = field(default_factory=list)
    quick: list[ColumnarResults] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)

    def add(self, row: VerdictRow) -> None:
        self.rows.append(row)

    def failed(self, run: str, problem: Exception) -> None:
        row = failed_row(run, problem)
        row.reason = f"{self.unit.source}: {row.reason}"
        self.add(row)

    def receipt(self, fingerprint: str) -> Receipt:
        by_run: dict[str, list[VerdictRow]] = {}
        for row in self.rows:
            by_run.setdefault(row.run, []).append(row)
        quick = sum(int(one.good.sum()) for one in self.quick)
        counts: dict[str, int] = {Verdict.VALID.value: quick} if quick else {}
        examples: list[tuple[str, str, str]] = []
        for run, rows in by_run.items():
            verdict = worst(Verdict(row.verdict) for row in rows)
            counts[verdict.value] = counts.get(verdict.value, 0) + 1
            if verdict != Verdict.VALID and len(examples) < 5:
                examples.append((run, verdict.value, next(row.reason for row in rows if row.verdict == verdict)))
        ended = any(row.checker in ENDS and row.verdict != Verdict.VALID for row in self.rows)
        of = self.unit
        empty = not quick and bool(by_run) and by_run.keys() <= self.empty
        return Receipt(fingerprint, of.name, of.source, counts, examples, of.part or None, ended, empty)


def _stored(look: UnitResult, place: Path, check_options: CheckOptions) -> None:
    """Judges a stored run, by its own plan and with all its workload's checkers."""
    folder = RunDir(place)
    evidence = folder.history if exists(folder.history) else folder.journal
    with limited(evidence, check_options.memory, place):
        record = folder.load()
    plan = Plan.from_dict(record.plan, str(folder.plan))
    checkers = registry.workload(plan).checkers(record.deployment)
    if look.unit.rest:
        checkers = [c for c in checkers if not isinstance(c, Linearizable)]
    watched = [TimedChecker(c) if isinstance(c, Linearizable) else c for c in checkers]
    began = time.process_time(), time.perf_counter()
    judgement = judge_by(record, watched)
    cpu_share = (time.process_time() - began[0]) / max(time.perf_counter() - began[1], 1e-9)
    about = {
        "workload": plan.workload,
        "nemesis": ",".join(n.fault for n in plan.nemeses or plan.strikes) or "none",
        "version": record.build or plan.server.version,
        "began": look.unit.source.rstrip("/").rpartition("/")[2],
    }
    for result in judgement.results:
        checker: Checker | None = next((c for c in watched if c.name == result.checker), None)
        for row in rows_of(look.unit.name, result, checker):
            row.cpu_ms = row.wall_ms * cpu_share
            row.ops = row.ops or len(record.history.clients)
            look.add(row)
    if not look.unit.keys:
        felt = json.dumps([one.to_json() for one in impacts(record.history)])
        reason = "no checker: the effect of the faults on clients, for trends"
        look.add(VerdictRow(look.unit.name, IMPACT, Verdict.VALID, reason, figures=felt))
    for row in look.rows:
        for name, value in about.items():
            setattr(row, name, value)


def _some_keys(look: UnitResult, place: Path, check_options: CheckOptions) -> None:
    """Judges some keys of a long history; its other units judge the rest, and if it is well-formed."""
    unit = look.unit
    assert unit.keys is not None
    if unit.kind == "run":
        folder = RunDir(place)
        plan = Plan.read(folder.plan)
        checkers = registry.workload(plan).checkers(folder.load_deployment())
        judges = [c for c in checkers if isinstance(c, Linearizable)]
        with limited(folder.history, check_options.memory):
            history = History(sealed_keys(folder.history, *unit.keys))
    else:
        with limited(place, check_options.memory):
            history = History(sealed_keys(place, *unit.keys))
        judges = [check_options.checker(unit.model or implied_model(history, check_options.ignore) or "")]
    for judge_ in judges:
        clock = Clock()
        _, keys = judge_.examine(history)
        wall, cpu = clock.read()
        for row in key_rows(unit.name, judge_.model.name, keys, wall):
            row.cpu_ms = row.wall_ms * cpu / max(wall, 1e-9)
            look.add(row)


def _foreign(look: UnitResult, place: Path, check_options: CheckOptions) -> None:
    clock = Clock()
    with open_history(place, check_options.format) as history:
        if (history.rows or 0) >= MANY:
            with history.limited(check_options.memory):
                columns = history.columns()
            if _by_columns(look, look.unit.name, columns, check_options, clock):
                return
            del columns
        with history.limited(check_options.memory):
            foreign = history.read(check_options.options)
    _begin(look, look.unit.name, foreign.history, look.unit.model, clock, check_options, foreign.start)


def _table(look: UnitResult, place: Path, check_options: CheckOptions) -> None:
    """Checks some runs of an op table. A broken run does not stop the check of the others."""
    unit = look.unit
    parts = row_groups(place)
    begin, end = unit.groups or (0, len(parts))
    for group in range(begin, end):
        with limited(place, check_options.memory):
            table = read_part(place, (group, group + 1))
        if unit.slice is not None:
            table = _share(table, *unit.slice)
        model = _model(unit.model or CasRegister.name, check_options)
        if check_options.jit and model is not None and applies(model):
            table = _plain_ones(look, table, model, check_options)
        _singly(look, place, table, check_options)


def _model(name: str, check_options: CheckOptions) -> Model[Any] | None:
    """None if the model cannot begin with the requested value: each history's row then reports that."""
    try:
        return check_options.model(name)
    except ValueError:
        return None


def _share(table: pa.Table, number: int, count: int) -> pa.Table:
    """Returns share `number` of `count` shares of the runs in the table."""
    spans = runs_of(table)
    begin, end = len(spans) * number // count, len(spans) * (number + 1) // count
    first = spans[begin][1] if begin < end else 0
    return table.slice(first, spans[end - 1][2] - first if begin < end else 0)


def _plain_ones(look: UnitResult, table: pa.Table, model: Model[Any], check_options: CheckOptions) -> pa.Table:
    """Judges the histories that can be judged from their columns alone, all in one call, and takes the valid ones out.

    Without a named model, only histories whose ops imply a register are judged.
    """
    clock = Clock()
    part = pack_part(table, model, check_options.ignore)
    if part.packed is None:
        return table
    found = check_batch(part.packed, budget=check_options.checker(model.name).budget)
    left = np.zeros(len(part.spans), np.bool_)
    left[list(part.odd)] = True
    left[part.owner[found.verdict != VALID]] = True
    if look.unit.model is None:
        # What only reads implies no register.
        left |= ~runs_with(table, part.spans, model.fs - {"read", "r"}, check_options.ignore)
    sure = ~left[part.owner]
    owner = part.owner[sure]
    if len(owner):
        keys = [key for key, good in zip(part.key, sure.tolist(), strict=True) if good]
        events = np.array([end - start for _, start, end in part.spans])
        names = [name for name, _, _ in part.spans]
        wall, cpu = clock.read()
        look.quick.append(
            ColumnarResults(
                model.name, names, ~left, events, owner, keys, part.completed[sure], part.calls[sure], wall, cpu
            )
        )
    if not left.any():
        return table.slice(0, 0)
    return table.filter(pa.array(np.repeat(left, [end - start for _, start, end in part.spans])))


def _singly(look: UnitResult, place: Path, table: pa.Table, check_options: CheckOptions) -> None:
    unit = look.unit
    for run, start, end in runs_of(table):
        clock = Clock()
        try:
            if end - start >= MANY and _by_columns(look, run, table.slice(start, end - start), check_options, clock):
                continue
            with limited(place, check_options.memory), making_many():
                history = History(ops_of(place, table.slice(start, end - start)))
            _begin(look, run, history, unit.model, clock, check_options)
        except HistoryError as problem:
            look.add(VerdictRow(run, "reader", Verdict.UNKNOWN, str(problem).replace(str(place), unit.source)))
        except Exception as problem:
            look.failed(run, problem)


def _by_columns(look: UnitResult, run: str, table: pa.Table, check_options: CheckOptions, clock: Clock) -> bool:
    """True if the columns decided a long history, which is well-formed then. Adds the same rows as `_begin` would."""
    if look.unit.rest:
        return False
    found = examine_columns(table, look.unit.model, check_options)
    if found is None:
        return False
    wall, cpu = clock.read()
    formed = CheckResult(WellFormed.name, Verdict.VALID, f"{len(table)} ops", stats={"ops": len(table)})
    for row in (*rows_of(run, formed, None), *key_rows(run, found.model, found.keys, wall)):
        row.ops = row.ops or found.ops
        row.cpu_ms = row.wall_ms * cpu / max(wall, 1e-9)
        look.add(row)
    return True


def _begin(
    look: UnitResult,
    run: str,
    history: History,
    named: str | None,
    clock: Clock,
    check_options: CheckOptions,
    start: int | None = None,
) -> None:
    """Adds a well-formed history to the open ones. `named`: the model, if one was; `start` as in `ForeignHistory`."""
    source, ignore = look.unit.source, check_options.ignore
    model = named or implied_model(history, ignore)
    if model is None:
        raise HistoryError(source, None, why_no_model(history))
    if model in CONVERGING:
        raise HistoryError(source, None, f"a batch does not judge {model}; harness check --model {model} does")
    try:
        made = check_options.model(model, start)
    except ValueError as problem:
        raise HistoryError(source, None, str(problem)) from None
    ops = len(history.clients)
    if not ops:
        look.empty.add(run)
        look.add(VerdictRow(run, "linearizability", Verdict.UNKNOWN, NOTHING_THERE, model=model))
        return
    other = first_unknown(history.clients, made, ignore)
    if other is not None:
        raise HistoryError(source, None, f"{unknown(other, made)}; --ignore {other.f} leaves it out")
    if not any(op.type == OK for op in history.clients if op.f not in ignore):
        look.empty.add(run)
    record = RunRecord(history)
    formed = judge(record, [WellFormed()])
    for row in rows_of(run, formed.results[0], None):
        row.ops = ops
        row.wall_ms, row.cpu_ms = clock.read()
        look.add(row)
    if formed.verdict != Verdict.VALID:
        return
    if not look.unit.rest:
        one = PendingHistory(run, record, model, ops, clock.read(), start)
        one.group(made, ignore)
        look.open.append(one)
    elif not any(op.f in MODELS[model].fs for op in history.clients):
        look.add(
            VerdictRow(run, "linearizability", Verdict.UNKNOWN, "nothing checked: no op of the model", model=model)
        )


def _forget_peak() -> None:
    """Resets the peak of the memory, so that it is this portion's (Linux, proc(5): clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
