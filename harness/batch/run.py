# SPDX-License-Identifier: Apache-2.0
"""`harness batch`, from the first listing to the exit code (docs/batch.md)."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from checkers.converging import CONVERGING
from checkers.linearizability.models import MODELS
from checkers.spark.files import Files, as_path, files_for, is_shared, join, reject_secrets
from checkers.spark.job import Job, Receipt, Work, receipts_in
from checkers.spark.session import Session
from checkers.spark.units import PORTION_S, Unit, portions
from harness import terminal
from harness.batch.input import checker_version, units_in
from harness.batch.keys import judge_long
from harness.batch.logs import BY_QUEUE, Source, judge_logs, log_sources
from harness.batch.work import BatchWork
from harness.check.expected import ExpectedVerdicts, Row
from harness.check.report import CheckOptions
from harness.plan.plan import PlanError
from infra.options import suggest
from results.figures import many
from results.verdict import Verdict, worst

if TYPE_CHECKING:
    from pyspark import SparkContext

_SHOWN = 20
_EVERY_S = 10.0
"""Seconds between two lines of progress without a terminal."""


Wrap = Callable[[BatchWork], Work]


@dataclass(frozen=True)
class BatchPlan:
    """The request of the command line. `conf`: settings that override Spark's own. `portion_s`: work for one task."""

    inputs: Sequence[str]
    output: str
    check_options: CheckOptions = field(default_factory=CheckOptions)
    model: str | None = None
    models: Path | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    portion_s: float = PORTION_S
    logs: bool = False


def run_batch(plan: BatchPlan, say: Callable[[str], None]) -> int:
    """Checks everything. Returns the exit code of the worst verdict, over all that was checked now and before.

    Raises PlanError, HistoryError and StoreError for faults of the whole batch, never for a single history.
    """
    if plan.model in CONVERGING:
        raise PlanError(f"a batch does not judge {plan.model!r}; harness check --model {plan.model} does")
    if plan.model is not None and plan.model not in MODELS:
        known = ", ".join(sorted(MODELS))
        raise PlanError(f"no model {plan.model!r}{suggest(plan.model, MODELS)}  (there are {known})")
    for uri in (*plan.inputs, plan.output):
        reject_secrets(uri)
    with Session(plan.master, plan.conf, "harness batch") as session:
        return check_on(session.context, plan, say)


def check_on(
    session: Callable[[], SparkContext], plan: BatchPlan, say: Callable[[str], None], wrap: Wrap | None = None
) -> int:
    """`run_batch` in a session, which may still start. `wrap`: a function around the work, for tests of failures."""
    listed = None if plan.models is None else ExpectedVerdicts(plan.models)
    began = time.perf_counter()
    output = os.path.abspath(as_path(plan.output)) if is_shared(plan.output) else plan.output
    outputs = files_for(output, session)
    version = checker_version()
    work = BatchWork(plan.check_options, version, _question(plan, version), time.time_ns())
    does: Work = work if wrap is None else wrap(work)
    todo: list[tuple[Files, list[Unit]]] = []
    logs: list[tuple[Files, list[Source]]] = []
    score = Score(listed)
    done = {} if plan.again else {receipt.unit: receipt for receipt in receipts_in(output, outputs)}
    before = 0
    for uri in plan.inputs:
        files = files_for(uri, session)
        root = os.path.abspath(as_path(uri)) if files.shared else uri
        units = units_in(root, files, plan.model, listed, output, say)
        left = []
        if plan.logs:
            logs.append((files, log_sources(units)))
        for unit in units:
            receipt = done.get(unit.fingerprint(work.question))
            if receipt is None:
                left.append(unit)
            else:
                score.add([receipt])
                before += 1
        todo.append((files, left))
    score.add(done[key] for _, found in logs for one in found if (key := one.fingerprint(work.question)) in done)
    logs = [(files, [one for one in found if one.fingerprint(work.question) not in done]) for files, found in logs]
    done.clear()
    todo = [(files, [unit for unit in units if not score.has_ended(unit)]) for files, units in todo]
    count = sum(len(units) for _, units in todo)
    cost = sum(unit.cost for _, units in todo for unit in units)
    say(f"input     {many(before + count, 'unit')}; {before:,} done before, {count:,} to check (about {cost:.0f} s)")
    context = session()
    cores = context.defaultParallelism
    say(f"spark     {context.version} on {context.master}, ready after {time.perf_counter() - began:.1f} s")
    progress = Progress(say, count, score)
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}"
    for number, (files, units) in enumerate(todo):
        # What stops a history stops it whole: its keys are asked after once the rest of it has been looked at.
        parts = ("whole", [u for u in units if u.keys is None and not u.huge]), ("keys", [u for u in units if u.keys])
        for now, what in parts:
            job = Job(context, files, output, outputs, does, f"{name}-{number}-{now}")
            due = portions((u for u in what if not score.has_ended(u)), cores, plan.portion_s)
            for receipts in job.run(due):
                score.add(receipts)
                progress.step(len(receipts))
        job = Job(context, files, output, outputs, does, f"{name}-{number}-huge")
        huge = [unit for unit in units if unit.huge]
        for done_now in judge_long(context, huge, plan.check_options, version, work.checked, work.question):
            score.add(job.write([done_now]))
            progress.step(1)
    progress.end()
    for number, (files, sources) in enumerate(logs):
        job = Job(context, files, output, outputs, does, f"{name}-{number}-{BY_QUEUE}")
        for found in judge_logs(context, files, sources, version, work.checked, work.question):
            score.add(job.write([found]))
    score.whole()
    score.print_summary(say)
    say(f"table     {join(plan.output, 'verdicts')}   {time.perf_counter() - began:.1f} s")
    return score.exit_code()


def _question(plan: BatchPlan, version: str) -> str:
    """Returns all that decides a verdict besides the history. A unit is done if its stored text is equal to this."""
    requested = plan.check_options
    meaning = [asdict(requested.options), sorted(requested.ignore), repr(requested.initial)]
    return json.dumps([requested.format, *meaning, requested.steps, requested.memory, version])


class Score:
    """The verdicts so far: counts, and a few verdicts to show. It does not grow with the number of histories, except
    for histories that are listed with a verdict.
    """

    def __init__(self, listed: ExpectedVerdicts | None) -> None:
        self.listed = listed
        self.counts: Counter[Verdict] = Counter()
        self.shown: list[tuple[str, str, str]] = []
        self.agreed = 0
        self.disagreements: list[str] = []
        self.unlisted: Counter[Verdict] = Counter()
        self.beside: Counter[Verdict] = Counter()
        self._ended: set[str] = set()
        self._parts: dict[str, list[Receipt]] = {}
        self._expected: dict[str, Row] = {}
        if listed is not None:
            self._expected = {str(path): row for path, row in listed.rows.items() if row.verdict is not None}

    def has_ended(self, unit: Unit) -> bool:
        """True if the history is known to be malformed, so that its keys are not judged."""
        return unit.keys is not None and unit.source in self._ended

    def add(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            if receipt.part == BY_QUEUE:
                self.beside.update({Verdict(word): number for word, number in receipt.runs.items()})
                self.shown += [one for one in receipt.examples if len(self.shown) < _SHOWN]
            elif receipt.part is not None:
                self._parts.setdefault(receipt.source, []).append(receipt)
                if receipt.ended:
                    self._ended.add(receipt.source)
            else:
                self._take(receipt)

    def whole(self) -> None:
        """Counts histories that were judged in parts: each has the worst verdict of its parts."""
        for source, parts in self._parts.items():
            found = worst(Verdict(word) for part in parts for word, count in part.runs.items() if count)
            examples = [one for part in parts for one in part.examples if one[1] == found]
            empty = all(part.empty for part in parts)
            self._take(Receipt("", parts[0].name, source, {found.value: 1}, examples[:1], empty=empty))
        self._parts.clear()

    def _take(self, receipt: Receipt) -> None:
        counts = {Verdict(word): number for word, number in receipt.runs.items()}
        self.counts.update(counts)
        row = self._row(receipt)
        if row is None:
            self.unlisted.update(counts)
            self.shown += [one for one in receipt.examples if len(self.shown) < _SHOWN]
        else:
            self._compare(row, worst(counts), receipt)

    def _row(self, receipt: Receipt) -> Row | None:
        if not self._expected or not is_shared(receipt.source):
            return next((row for row in self._expected.values() if row.file == receipt.name), None)
        return self._expected.get(str(Path(as_path(receipt.source)).resolve()))

    def _compare(self, row: Row, found: Verdict, receipt: Receipt) -> None:
        reason = receipt.examples[0][2] if receipt.examples else ""
        if row.agrees(found, receipt.empty):
            self.agreed += 1
        else:
            self.disagreements.append(f"{receipt.name}: listed {row.verdict}, found {found}: {reason}")

    def print_summary(self, say: Callable[[str], None]) -> None:
        for run, verdict, reason in self.shown:
            say(f"{run}   {verdict}  {reason}")
        bad = sum(number for verdict, number in self.unlisted.items() if verdict != Verdict.VALID)
        if bad > len(self.shown):
            more = many(bad - len(self.shown), "history", "histories")
            say(f"... and {more} more that are not valid: see the table")
        if self.disagreements:
            say(f"{len(self.disagreements)} verdicts differ from the list:")
            for line in self.disagreements[:_SHOWN]:
                say(f"  {line}")
        for row in self._missing():
            say(f"{row.file}   unknown  it is listed, but there is no such file")
        compared = self.agreed + len(self.disagreements)
        total = many(sum(self.counts.values()), "history", "histories")
        counts = ", ".join(f"{self.counts[v]:,} {v.value}" for v in Verdict if self.counts[v])
        if self.beside:
            logs = ", ".join(f"{self.beside[v]:,} {v.value}" for v in Verdict if self.beside[v])
            say(f"logs, by SQL: {logs}")
        say(f"{total}: {counts}" + (f"; {self.agreed} of {compared} as listed" if compared else ""))

    def exit_code(self) -> int:
        judged = [verdict for verdict, number in (self.unlisted + self.beside).items() if number]
        judged += [Verdict.VALID] * bool(self.agreed) + [Verdict.INVALID] * bool(self.disagreements)
        judged += [Verdict.UNKNOWN] * bool(self._missing())
        return worst(judged).exit_code

    def _missing(self) -> Sequence[Row]:
        return [] if self.listed is None else self.listed.missing()


class Progress:
    """One line that changes, on a terminal; else a line now and then."""

    def __init__(self, say: Callable[[str], None], units: int, score: Score) -> None:
        self.say, self.units, self.score = say, units, score
        self.began = self.last = time.perf_counter()
        self.done, self.before = 0, sum(score.counts.values())
        self.terminal = sys.stderr.isatty()

    def step(self, units: int) -> None:
        self.done += units
        now = time.perf_counter()
        if self.terminal:
            terminal.put(f"\r\033[K{self._line(now)}", sys.stderr)
        elif now - self.last >= _EVERY_S and self.done < self.units:
            self.last = now
            self.say(self._line(now))

    def end(self) -> None:
        if self.terminal and self.done:
            terminal.put("\r\033[K", sys.stderr)

    def _line(self, now: float) -> str:
        took = max(now - self.began, 1e-9)
        counts = self.score.counts
        histories = sum(counts.values()) - self.before
        share = self.done / self.units if self.units else 1.0
        bar = "#" * round(20 * share)
        bad = counts[Verdict.INVALID]
        return (
            f" {int(took // 60):02}:{int(took % 60):02}  [{bar:<20}] {self.done:,} of {self.units:,} units  |  "
            f"{histories:,} histories, {histories / took:,.0f}/s  |  {bad:,} invalid"
        )
