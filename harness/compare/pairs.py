# SPDX-License-Identifier: Apache-2.0
"""The runs of a comparison, pair by pair, and its ledger: a later call goes on where an earlier one ended.

Each run has a new cluster. On kept clusters a run that found something would leave its build with a new cluster and the
other build with an old one, and the difference between them would no longer be that of the builds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

from harness.boundary import UNAVAILABLE
from harness.check.judging import judge_stored
from harness.compare.choice import Chosen
from harness.compare.evidence import TOO_MANY, UNDECIDED, CellEvidence, next_cell
from harness.findings.known import explain
from harness.findings.record import Finding
from harness.findings.signature import not_tried
from harness.plan.plan import PlanError
from harness.series.child import ChildRun, run_child
from harness.signals import Stopped
from results.durable import append_text, write_text
from results.errors import ExpectedError, cannot_write
from results.figures import SECOND, quantile
from results.history import History
from results.op import OK
from results.reading import opened
from results.record import RunRecord
from results.verdict import Judgement, Verdict

NEW: Final = "new"
OLD: Final = "old"
SIDES: Final = (NEW, OLD)

FAILED: Final = "no verdict"
"""The thing that a run shows which came to no verdict, while the other run of its pair did."""

_USAGE: Final = 64
_FORMAT: Final = 1
_LARGEST: Final = 1 << 28
_WHAT: Final = "the ledger of the comparison"


@dataclass(frozen=True)
class Figures:
    """The service that clients got in a run, its main phase alone.

    rate       acknowledged operations a second.
    p50_ms, p99_ms  latency of acknowledged operations.
    silence_s  the longest time without an acknowledgement, as the judge `availability` reports it.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    silence_s: float


@dataclass(frozen=True)
class Sample:
    """One run of a pair.

    verdict   its verdict; "": there was no run.
    names     anomalies that count. findings: ids, whatever classes the build has changed.
    doubtful  things that it may have shown: the machine was too small to decide.
    undecided a judge of it decided nothing: what it did not show may be there.
    failed    it came to no verdict. untried: the reason why it proves nothing; "": it was tried.
    """

    verdict: str = ""
    why: str = ""
    names: Sequence[str] = ()
    findings: Sequence[int] = ()
    doubtful: Sequence[str] = ()
    undecided: bool = False
    failed: bool = False
    untried: str = ""
    figures: Figures | None = None
    folder: str = ""
    seconds: float = 0.0

    @property
    def things(self) -> list[str]:
        return [*(f"finding {number}" for number in self.findings), *self.names, *([UNDECIDED] * self.undecided)]


@dataclass(frozen=True)
class PairOfRuns:
    """cell: its index. first: the side that ran first."""

    cell: int
    seed: int
    first: str
    new: Sample
    old: Sample

    @property
    def untried(self) -> str:
        """The reason why the pair proves nothing; "": it counts."""
        for side, sample in ((NEW, self.new), (OLD, self.old)):
            if sample.untried:
                return f"{side}: {sample.untried}"
        return f"both runs came to no verdict: {self.new.why}" if self.new.failed and self.old.failed else ""

    def add_to(self, cell: CellEvidence) -> None:
        """Adds the pair to the evidence of its cell."""
        if self.untried:
            cell.wasted += 1
        elif self.new.failed or self.old.failed:
            cell.add_part(FAILED, (self.new.failed, self.old.failed))
        else:
            doubtful = [*self.new.doubtful, *self.old.doubtful]
            cell.add(self.new.things, self.old.things, doubtful, (self.new.undecided, self.old.undecided))


@dataclass(frozen=True)
class Comparison:
    """The builds, the cells and the seeds, fixed before the first run.

    new, old   options of `harness run` for each side: the version, and its own jars.
    builds     side -> its name for people. jars: side -> the digest of its jars; "": none of its own.
    differ     classes that differ, for people.
    """

    new: Sequence[str]
    old: Sequence[str]
    builds: Mapping[str, str]
    jars: Mapping[str, str]
    version: str
    differ: str
    suite: str
    seed: int
    cells: Sequence[Chosen]
    options: Sequence[str] = ()

    def args(self, cell: int, side: str, seed: int) -> list[str]:
        """The options of `harness run` for one run."""
        own = self.new if side == NEW else self.old
        return [*self.cells[cell].args, *self.options, *own, "--seed", str(seed)]

    def drawn(self, cell: int, number: int) -> tuple[int, str]:
        """(seed, side that runs first) of a pair. The sides alternate within a cell, from a drawn one on."""
        name = self.cells[cell].name
        seed = Random(f"{self.seed} {name} {number}").getrandbits(24)
        return seed, SIDES[(Random(f"{self.seed} {name}").getrandbits(1) + number) % 2]


@dataclass
class Course:
    """A comparison under way. seconds: of all calls so far. stopped: the signal that ended the last one."""

    comparison: Comparison
    pairs: list[PairOfRuns] = field(default_factory=list)
    seconds: float = 0.0
    stopped: Stopped | None = None
    ended: str = ""

    def evidence(self) -> list[CellEvidence]:
        """The evidence of each cell."""
        cells = [CellEvidence() for _ in self.comparison.cells]
        for pair in self.pairs:
            pair.add_to(cells[pair.cell])
        return cells

    def pair_s(self, cell: int) -> float:
        """Seconds that the next pair of a cell will take, as an estimate."""
        took = [pair.new.seconds + pair.old.seconds for pair in self.pairs if pair.cell == cell]
        return sum(took) / len(took) if took else 2 * self.comparison.cells[cell].estimate


def run_pairs(
    course: Course,
    ledger: Path,
    store: Path,
    findings: Sequence[Finding],
    say: Callable[[str], None],
    until: float,
) -> None:
    """Runs pairs until everything is decided, the next one would end after a time (`time.monotonic`), or a stop signal
    comes. The first pair of a comparison runs in any case. Raises PlanError for options that `harness run` rejects.
    """
    began, earlier = time.monotonic(), course.seconds
    try:
        while True:
            cells = course.evidence()
            number = next_cell(cells)
            if number is None:
                given_up = [course.comparison.cells[n].name for n, one in enumerate(cells) if one.wasted >= TOO_MANY]
                course.ended = f"nothing was tried any more: {'; '.join(given_up)}" if given_up else "all is decided"
                return
            if course.pairs and time.monotonic() + course.pair_s(number) > until:
                course.ended = "the time is up"
                return
            pair = _pair(course, number, store, findings, say)
            course.pairs.append(pair)
            course.seconds = earlier + time.monotonic() - began
            append_text(ledger, _line({"pair": asdict(pair), "seconds": round(course.seconds, 1)}), _WHAT)
    except Stopped as stopped:
        course.stopped, course.ended = stopped, "interrupted"
    finally:
        course.seconds = earlier + time.monotonic() - began


def _pair(
    course: Course, cell: int, store: Path, findings: Sequence[Finding], say: Callable[[str], None]
) -> PairOfRuns:
    """Runs a pair. Raises Stopped, and then no part of it counts."""
    number = sum(pair.cell == cell for pair in course.pairs)
    seed, first = course.comparison.drawn(cell, number)
    found: dict[str, Sample] = {}
    say(f"pair {len(course.pairs) + 1}  {course.comparison.cells[cell].name}, seed {seed}")
    for side in (first, *(side for side in SIDES if side != first)):
        began = time.monotonic()
        run = run_child(course.comparison.args(cell, side, seed), store)
        if run.stopped is not None:
            raise run.stopped
        sample = replace(judge(run, findings), seconds=round(time.monotonic() - began, 1))
        found[side] = sample
        say(f"  {side}  {sample.verdict or FAILED:<15}  {sample.seconds:4.0f} s  {describe(sample)}")
    return PairOfRuns(cell, seed, first, found[NEW], found[OLD])


def describe(sample: Sample) -> str:
    """The anomalies and findings of a run, or the reason why it has none, in a few words."""
    if sample.untried:
        return f"not tried: {sample.untried}"
    return sample.why if sample.failed else ", ".join(sample.things) or "nothing"


def judge(run: ChildRun, findings: Sequence[Finding]) -> Sample:
    """The sample of a run. Raises PlanError for options that `harness run` does not take."""
    if run.code == _USAGE:
        raise PlanError(run.problem.removeprefix("harness: "))
    if run.folder is None:
        if run.code == UNAVAILABLE:
            return Sample(why=run.problem, untried=run.problem)
        return Sample(why=run.problem, failed=True)
    folder = str(run.folder.path)
    try:
        record, judgement = judge_stored(run.folder)
    except ExpectedError as problem:
        return Sample(why=str(problem), failed=True, folder=folder)
    found = Sample(judgement.verdict.value, judgement.reason, folder=folder)
    if judgement.verdict == Verdict.HARNESS_FAILURE:
        return replace(found, failed=True)
    if why := not_tried(record, judgement):
        return replace(found, untried=why)
    known = explain(_as_published(record), judgement, findings)
    names = sorted({anomaly.name for anomaly in judgement.anomalies if anomaly.counts})
    ids = sorted(finding.id for finding in known.known)
    unsure = {a.name for a in judgement.anomalies if a.doubt is not None and a.legal is None} - set(names)
    doubtful = [f"finding {one.id}" for one in findings if one.id not in ids and _names(one) & unsure] + sorted(unsure)
    service = _as_judged(figures(record.history), judgement)
    undecided = any(result.verdict == Verdict.UNKNOWN for result in judgement.results)
    return replace(found, names=names, findings=ids, doubtful=doubtful, undecided=undecided, figures=service)


def _names(finding: Finding) -> set[str]:
    """The anomalies of a finding's signatures."""
    return set(finding.signature.names) if finding.signature is not None else set()


def _as_judged(found: Figures | None, judgement: Judgement) -> Figures | None:
    """The figures with the longest silence of the judge `availability`, which knows the operations that matter."""
    told = [result.stats.get("longest_silence_s") for result in judgement.results if result.checker == "availability"]
    known = [float(value) for value in told if isinstance(value, int | float)]
    return replace(found, silence_s=max(known)) if found is not None and known else found


def _as_published(record: RunRecord) -> RunRecord:
    """The record of a run of own jars as if no class differed. A finding that both builds show is then the same thing
    for both, also where it names a class that one of them has changed.
    """
    return replace(record, environment={k: v for k, v in record.environment.items() if k != "changed_classes"})


def figures(history: History) -> Figures | None:
    """The figures of a run; None if nothing was acknowledged."""
    calls = [call for call in history.clients.calls if call.invoke.extra.get("phase", "main") == "main"]
    acks = sorted(call.end for call in calls if call.outcome == OK and call.end is not None)
    if not acks:
        return None
    began = min(call.start for call in calls)
    end = max(call.end or call.start for call in calls)
    took = sorted((call.end - call.start) / 1e6 for call in calls if call.outcome == OK and call.end is not None)
    times = [began, *acks, end]
    silence = max(later - earlier for earlier, later in pairwise(times))
    rate = len(acks) / ((end - began) / SECOND) if end > began else 0.0
    return Figures(
        round(rate, 1), round(quantile(took, 0.5), 2), round(quantile(took, 0.99), 2), round(silence / SECOND, 2)
    )


def begin(ledger: Path, comparison: Comparison) -> None:
    """Writes the head of a new ledger. Raises StoreError."""
    try:
        ledger.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise cannot_write(ledger, _WHAT, problem) from None
    write_text(ledger, _line({"format": _FORMAT, "comparison": asdict(comparison)}), _WHAT)


def read_course(ledger: Path) -> Course:
    """A comparison, as far as it came. A line that is torn is left out. Raises PlanError."""
    try:
        with opened(ledger, _LARGEST) as file:
            lines = file.read().splitlines()
        head = json.loads(lines[0])
        if head["format"] != _FORMAT:
            raise ValueError(f"format {head['format']}")
        told = head["comparison"]
        course = Course(Comparison(**{**told, "cells": [Chosen(**cell) for cell in told["cells"]]}))
        _require_words(course.comparison)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise PlanError(f"{ledger}: not a ledger of harness compare ({problem})") from None
    for line in lines[1:]:
        try:
            entry = json.loads(line)
            pair = entry["pair"]
            made = PairOfRuns(**{**pair, **{side: _sample(pair[side]) for side in SIDES}})
            course.seconds = float(entry["seconds"])
            if made.cell in range(len(course.comparison.cells)):
                course.pairs.append(made)
        except (ValueError, KeyError, TypeError):
            continue
    return course


def _require_words(comparison: Comparison) -> None:
    """Raises TypeError unless all options are texts, and ValueError without a cell."""
    lists = [comparison.new, comparison.old, comparison.options, *(cell.args for cell in comparison.cells)]
    if not all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in lists):
        raise TypeError("its options are no lists of texts")
    sides = [comparison.builds[side] + comparison.jars[side] for side in SIDES]
    if not comparison.cells or not all(isinstance(text, str) for text in sides):
        raise ValueError("it has no cell")


def _sample(data: Mapping[str, Any]) -> Sample:
    shown = data["figures"]
    lists = {key: tuple(data.get(key, ())) for key in ("names", "findings", "doubtful")}
    return Sample(**{**data, **lists, "figures": None if shown is None else Figures(**shown)})


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"
