"""What a worker does with a portion of a batch: the very functions of `harness check`, and rows of the verdict table.

Histories without a plan are judged in one call of the engine for the whole portion; one that is not found valid there
is judged once more by itself, for its reason and its core. A stored run is judged by its own workload's checkers.
"""

from __future__ import annotations

import json
import resource
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.api import Checker, judge
from checkers.linearizability import Linearizable, LinearResult
from checkers.linearizability.batch import VALID, check_batch
from checkers.linearizability.models import MODELS, CasRegister, Model
from checkers.spark.columns import applies, foreign_runs, pack_part
from checkers.spark.job import Done, Portion, Receipt
from checkers.spark.units import Unit
from checkers.wellformed import WellFormed
from harness import registry
from harness.examined import Asked, algorithms, plain_python
from harness.judging import judge_by
from harness.plan import Plan, PlanError
from results.errors import HistoryError
from results.formats import read_history
from results.formats.foreign import implied_model
from results.history import Call, History
from results.op import Op
from results.op_table import histories_of, is_op_table, read_part, row_groups, runs_of
from results.record import RunRecord
from results.store import RunDir
from results.verdict import CheckResult, Verdict, worst
from results.verdict_file import plain
from results.verdict_table import VerdictRow, from_columns, to_table


@dataclass(frozen=True)
class BatchWork:
    """It is sent to the workers. `version`: of the checkers. `checked`: when the job began, ns since 1970."""

    asked: Asked
    version: str
    question: str
    checked: int

    def __call__(self, portion: Portion, places: Mapping[str, Path]) -> Done:
        _forget_peak()
        looks = [self._look(unit, places[unit.source]) for unit in portion]
        with nullcontext() if self.asked.jit else plain_python():
            _decide([history for look in looks for history in look.open], self.asked)
        peak = _peak_mb()
        return self._done(looks, peak)

    def lost(self, unit: Unit, reason: str) -> Done:
        look = Look(unit)
        look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, f"{unit.source}: {reason}"))
        return self._done([look], 0.0)

    def runs_in(self, unit: Unit, place: Path) -> int:
        assert unit.groups is not None
        return len(runs_of(read_part(place, unit.groups, ["run"])))

    def _look(self, unit: Unit, place: Path) -> Look:
        """Reads a unit, and judges what is judged history by history. Never raises for what is in it."""
        look = Look(unit)
        try:
            if unit.kind == "run":
                _stored(look, place)
            elif unit.kind == "table" or (place.suffix == ".parquet" and is_op_table(place)):
                _table(look, place, self.asked)
            else:
                _foreign(look, place, self.asked)
        except HistoryError as problem:
            told = str(problem).replace(str(place), unit.source)
            look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, told, line=problem.line))
        except PlanError as problem:
            look.add(VerdictRow(unit.name, "reader", Verdict.UNKNOWN, f"{unit.source}: {problem}"))
        except Exception as problem:
            look.failed(unit.name, problem)
        return look

    def _done(self, looks: Sequence[Look], peak: float) -> Done:
        for look in looks:
            for history in look.open:
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


@dataclass
class Open:
    """A history that still has to be judged against a model."""

    run: str
    record: RunRecord
    model: str
    ops: int
    read_ms: tuple[float, float]
    rows: list[VerdictRow] = field(default_factory=list)
    keys: list[tuple[str | None, list[Call]]] = field(default_factory=list)
    sure: bool = True
    """All its keys were found valid in the common call."""

    def group(self) -> None:
        fs = MODELS[self.model].fs
        by_key = self.record.history.by_key
        self.keys = [(key, own) for key, calls in by_key.items() if (own := [c for c in calls if c.invoke.f in fs])]


@dataclass(frozen=True)
class Quick:
    """Histories of an op table that were found valid from their columns.

    names, good, events   of every history of the part: its name, whether it is one of these, and its rows.
    owner, keys, completed, calls   of every object: its history's number, its key, its acknowledged and all its calls.
    """

    model: str
    names: Sequence[str]
    good: npt.NDArray[np.bool_]
    events: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    keys: Sequence[str | None]
    completed: npt.NDArray[np.int64]
    calls: npt.NDArray[np.int64]
    wall_ms: float
    cpu_ms: float

    def tables(self, constant: Mapping[str, Any]) -> list[pa.Table]:
        """Their rows: one a history (well-formed), and one an object."""
        which = np.nonzero(self.good)[0]
        events = self.events[which]
        share = self.calls / max(int(self.calls.sum()), 1)
        names = pa.array(self.names, pa.string())
        formed = {
            "run": names.take(pa.array(which)),
            "reason": [f"{count} ops" for count in events.tolist()],
            "ops": events,
        }
        judged = {
            "run": names.take(pa.array(self.owner)),
            "key": self.keys,
            "reason": [f"an order that explains all {count} completed ops exists" for count in self.completed.tolist()],
            "ops": 2 * self.calls,
            "wall_ms": self.wall_ms * share,
            "cpu_ms": self.cpu_ms * share,
        }
        valid = {**constant, "verdict": "valid"}
        linear = {**valid, "checker": "linearizability", "model": self.model, "algorithm": "batch"}
        return [
            from_columns(len(which), formed, {**valid, "checker": "well-formed"}),
            from_columns(len(self.owner), judged, linear),
        ]


@dataclass
class Look:
    """A unit and what was found in it: `rows` that are final, histories that are `open`, and many `quick` ones."""

    unit: Unit
    rows: list[VerdictRow] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    quick: list[Quick] = field(default_factory=list)

    def add(self, row: VerdictRow) -> None:
        self.rows.append(row)

    def failed(self, run: str, problem: Exception) -> None:
        """A bug in a reader or a checker must not keep the others from being checked, nor pass for a verdict."""
        if isinstance(problem, MemoryError):
            told = "there is not enough memory for it"
        elif isinstance(problem, RecursionError):
            told = "a value in it is nested too deeply"
        else:
            told = f"the check itself failed ({type(problem).__name__}: {problem}): a bug, please report"
        row = VerdictRow(run, "reader", Verdict.UNKNOWN, " ".join(f"{self.unit.source}: {told}".split()))
        row.figures = json.dumps({"traceback": traceback.format_exc()})
        self.add(row)

    def receipt(self, fingerprint: str) -> Receipt:
        by_run: dict[str, list[VerdictRow]] = {}
        for row in self.rows:
            by_run.setdefault(row.run, []).append(row)
        quick = sum(int(one.good.sum()) for one in self.quick)
        counts: dict[str, int] = {Verdict.VALID.value: quick} if quick else {}
        told: list[tuple[str, str, str]] = []
        for run, rows in by_run.items():
            verdict = worst(Verdict(row.verdict) for row in rows)
            counts[verdict.value] = counts.get(verdict.value, 0) + 1
            if verdict != Verdict.VALID and len(told) < 5:
                told.append((run, verdict.value, next(row.reason for row in rows if row.verdict == verdict)))
        return Receipt(fingerprint, self.unit.name, self.unit.source, counts, told, self.unit.part or None)


class _Watched:
    """A linearizability checker that keeps what it found for each key."""

    def __init__(self, checker: Linearizable) -> None:
        self.checker = checker
        self.name = checker.name
        self.keys: Mapping[str | None, LinearResult] = {}

    def check(self, run: RunRecord) -> CheckResult:
        result, self.keys = self.checker.examine(run)
        return result


def _stored(look: Look, place: Path) -> None:
    """A stored run, by its own plan and with all its workload's checkers."""
    folder = RunDir(place)
    record = folder.load()
    plan = Plan.from_dict(record.plan, str(folder.plan))
    watched = [_Watched(c) if isinstance(c, Linearizable) else c for c in registry.workload(plan).checkers()]
    began = time.process_time(), time.perf_counter()
    judgement = judge_by(record, watched)
    cpu_share = (time.process_time() - began[0]) / max(time.perf_counter() - began[1], 1e-9)
    about = {
        "workload": plan.workload,
        "nemesis": ",".join(n.fault for n in plan.nemeses) or "none",
        "version": str(record.environment.get("version") or plan.server.version or "") or None,
        "began": look.unit.source.rstrip("/").rpartition("/")[2],
    }
    for result in judgement.results:
        checker: Checker | None = next((c for c in watched if c.name == result.checker), None)
        for row in _rows_of(look.unit.name, result, checker):
            row.cpu_ms = row.wall_ms * cpu_share
            row.ops = row.ops or len(record.history.clients)
            for name, value in about.items():
                setattr(row, name, value)
            look.add(row)


def _rows_of(run: str, result: CheckResult, checker: Checker | None) -> Iterator[VerdictRow]:
    """A row for each key that was judged by itself, else one for the run."""
    if isinstance(checker, _Watched) and checker.keys:
        yield from _key_rows(run, checker.checker.model.name, checker.keys, result.ms)
        if worst(r.verdict for r in checker.keys.values()) == result.verdict:
            return
    first = result.anomalies[0] if result.anomalies else None
    yield VerdictRow(
        run,
        result.checker,
        result.verdict,
        result.reason,
        key=first.key if first else None,
        anomaly=first.name if first else None,
        core=tuple(first.ops) if first else (),
        wall_ms=result.ms,
        anomalies=list(dict.fromkeys(a.name for a in result.anomalies)),
        figures=json.dumps(plain(result.stats)),
    )


def _key_rows(run: str, model: str, keys: Mapping[str | None, LinearResult], ms: float) -> Iterator[VerdictRow]:
    total = sum(r.checked for r in keys.values()) or 1
    for key, found in keys.items():
        bad = found.verdict == Verdict.INVALID
        yield VerdictRow(
            run,
            "linearizability",
            found.verdict,
            found.reason,
            key=key,
            model=model,
            anomaly="nonlinearizable" if bad else None,
            core=tuple(found.core),
            ops=2 * found.checked,
            wall_ms=ms * found.checked / total,
            algorithm=found.algorithm,
            anomalies=["nonlinearizable"] if bad else [],
        )


def _foreign(look: Look, place: Path, asked: Asked) -> None:
    clock = _Clock()
    foreign = read_history(place, asked.format, asked.options)
    _begin(look, look.unit.name, foreign.history, look.unit.model or foreign.model, clock)


def _table(look: Look, place: Path, asked: Asked) -> None:
    """Some runs of an op table. One that is broken does not keep the others from being checked."""
    unit = look.unit
    parts = row_groups(place)
    begin, end = unit.groups or (0, len(parts))
    for group in range(begin, end):
        table = read_part(place, (group, group + 1))
        if unit.slice is not None:
            table = _share(table, *unit.slice)
        model = MODELS[unit.model]() if unit.model else CasRegister()
        if asked.jit and applies(model):
            table = _plain_ones(look, table, model, asked)
        _singly(look, place, histories_of(place, table))


def _share(table: pa.Table, number: int, count: int) -> pa.Table:
    """Of the runs in the table one of `count` shares."""
    spans = runs_of(table)
    begin, end = len(spans) * number // count, len(spans) * (number + 1) // count
    first = spans[begin][1] if begin < end else 0
    return table.slice(first, spans[end - 1][2] - first if begin < end else 0)


def _plain_ones(look: Look, table: pa.Table, model: Model[Any], asked: Asked) -> pa.Table:
    """Judges the histories that can be judged from their columns alone, all in one call, and takes the valid ones out.

    Where no model was named, a register is what their ops must imply.
    """
    clock = _Clock()
    part = pack_part(table, model)
    if part.packed is None:
        return table
    found = check_batch(part.packed, budget=asked.checker(model.name).budget)
    left = np.zeros(len(part.spans), np.bool_)
    left[list(part.odd)] = True
    left[part.owner[found.verdict != VALID]] = True
    if look.unit.model is None:
        left |= foreign_runs(table, part.spans, model.fs)
    sure = ~left[part.owner]
    owner = part.owner[sure]
    if len(owner):
        keys = [key for key, good in zip(part.key, sure.tolist(), strict=True) if good]
        events = np.array([end - start for _, start, end in part.spans])
        names = [name for name, _, _ in part.spans]
        wall, cpu = clock.read()
        look.quick.append(
            Quick(model.name, names, ~left, events, owner, keys, part.completed[sure], part.calls[sure], wall, cpu)
        )
    if not left.any():
        return table.slice(0, 0)
    return table.filter(pa.array(np.repeat(left, [end - start for _, start, end in part.spans])))


def _singly(look: Look, place: Path, found: Iterator[tuple[str, list[Op]]]) -> None:
    unit = look.unit
    while True:
        clock = _Clock()
        following = next(found, None)
        if following is None:
            return
        run, ops = following
        try:
            history = History(ops)
            _begin(look, run, history, unit.model or implied_model(history), clock)
        except HistoryError as problem:
            look.add(VerdictRow(run, "reader", Verdict.UNKNOWN, str(problem).replace(str(place), unit.source)))
        except Exception as problem:
            look.failed(run, problem)


def _begin(look: Look, run: str, history: History, model: str | None, clock: _Clock) -> None:
    """Well-formed? Then it is open for its model."""
    source = look.unit.source
    if model is None:
        raise HistoryError(source, None, f"no model is implied; name one with --model ({', '.join(sorted(MODELS))})")
    ops = len(history.clients)
    if not ops:
        told = "nothing checked: no client did anything in this history"
        look.add(VerdictRow(run, "linearizability", Verdict.UNKNOWN, told, model=model))
        return
    record = RunRecord(history)
    formed = judge(record, [WellFormed()])
    for row in _rows_of(run, formed.results[0], None):
        row.ops = ops
        row.wall_ms, row.cpu_ms = clock.read()
        look.add(row)
    if formed.verdict == Verdict.VALID:
        one = Open(run, record, model, ops, clock.read())
        one.group()
        look.open.append(one)


def _decide(histories: Sequence[Open], asked: Asked) -> None:
    """The histories' rows: those of one model in one call, then each that is not valid by itself."""
    for model in dict.fromkeys(history.model for history in histories):
        own = [history for history in histories if history.model == model]
        _together([history for history in own if history.keys], model, asked)
        for history in own:
            if not history.sure or not history.keys:
                _by_itself(history, asked)


def _together(histories: Sequence[Open], model: str, asked: Asked) -> None:
    flat = [(history, key, calls) for history in histories for key, calls in history.keys]
    if not flat:
        return
    clock = _Clock()
    try:
        found = check_batch([calls for _, _, calls in flat], MODELS[model](), asked.checker(model).budget)
    except ValueError:
        # One of them makes no sense to the model; by themselves, it is the only one that suffers.
        for history in histories:
            history.sure = False
        return
    wall, cpu = clock.read()
    total = sum(len(calls) for _, _, calls in flat) or 1
    for number, (history, key, calls) in enumerate(flat):
        if found.verdict[number] != VALID:
            history.sure = False
            continue
        share = len(calls) / total
        completed = sum(call.outcome == "ok" for call in calls)
        history.rows.append(
            VerdictRow(
                history.run,
                "linearizability",
                Verdict.VALID,
                f"an order that explains all {completed} completed ops exists",
                key=key,
                model=model,
                ops=2 * len(calls),
                wall_ms=wall * share,
                cpu_ms=cpu * share,
                algorithm="batch",
            )
        )


def _by_itself(history: Open, asked: Asked) -> None:
    clock = _Clock()
    result, keys = asked.checker(history.model).examine(history.record)
    wall, cpu = clock.read()
    history.rows = list(_key_rows(history.run, history.model, keys, wall))
    for row in history.rows:
        row.cpu_ms = row.wall_ms * cpu / max(wall, 1e-9)
    if not keys or worst(r.verdict for r in keys.values()) != result.verdict:
        row = next(_rows_of(history.run, result, None))
        row.model, row.ops, row.algorithm, row.cpu_ms = history.model, history.ops, algorithms(result), cpu
        history.rows.append(row)


class _Clock:
    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Milliseconds of wall and of processor since it was made."""
        return (time.perf_counter() - self.wall) * 1e3, (time.process_time() - self.cpu) * 1e3


def _forget_peak() -> None:
    """From here on the peak is that of this portion (Linux, proc(5): clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
