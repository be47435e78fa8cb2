# SPDX-License-Identifier: Apache-2.0
"""`harness reproduce`: runs a finding, a plan or a stored run repeatedly, and reports the rate at which it shows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from harness.check.judging import judge_stored
from harness.findings.rates import StoppingRule, describe
from harness.findings.record import Finding, Measured, find, read_findings
from harness.findings.signature import Sight, Sighting, Signature
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun, run_child
from harness.series.shared import SharedCluster
from harness.shipped import shipped
from harness.signals import Stopped
from infra.machines.api import InfraError
from results.errors import HistoryError
from results.reading import exists
from results.store import RunDir
from results.verdict import Judgement, Verdict
from results.verdict_file import read_verdict

TOO_MANY: Final = 3
"""So many runs in a row that tried nothing end a series: the next one would try nothing, either."""

USAGE: Final = 64


@dataclass(frozen=True)
class Subject:
    """A finding, a plan or a stored run whose anomaly is to be reproduced.

    args       options of `harness run`, without those that a series sets. seeded: they name a seed, which each run
               replaces by its own.
    signature  None: any anomaly that is not permitted.
    kept       whether runs may share a cluster.
    finding    of the record, or None. others: findings that the same command shows; its runs count for them, too.
    """

    title: str
    args: Sequence[str]
    signature: Signature | None
    kept: bool = False
    seeded: bool = False
    finding: Finding | None = None
    others: Sequence[Finding] = ()

    def look(self, folder: RunDir) -> list[Sighting]:
        """Judges a stored run again, by the present code. Returns its sighting of this finding, then of the others."""
        record, judgement = judge_stored(folder)
        signatures = [self.signature or _anything(judgement), *(o.signature for o in self.others if o.signature)]
        return [signature.look(record, judgement) for signature in signatures]


def _anything(judgement: Judgement) -> Signature:
    return Signature(tuple({a.name for a in judgement.anomalies if a.legal is None}))


def of_finding(finding: Finding, findings: Sequence[Finding] = ()) -> Subject:
    """A finding of the record; `findings`: all of it. Raises PlanError if no command shows it."""
    if not finding.command or finding.signature is None:
        raise PlanError(f"finding {finding.id}: no command shows it; {finding.by_hand}")
    others = [one for one in findings if one.id != finding.id and one.command == finding.command]
    title = f"finding {finding.id}"
    return Subject(title, finding.args(), finding.signature, finding.kept, finding=finding, others=others)


def of_path(path: Path, anomalies: Sequence[str]) -> Subject:
    """A plan, or a stored run with its anomalies. Raises PlanError if it is neither, or had no anomaly."""
    signature = Signature(tuple(anomalies)) if anomalies else None
    if not path.is_dir():
        Plan.read(path)
        return Subject(str(path), ["--plan", str(path)], signature, seeded=True)
    run = RunDir(path)
    plan = path / "effective.toml"
    if not plan.exists():
        raise PlanError(f"{path}: there is no effective.toml; a folder of a finished run is right")
    if signature is None:
        try:
            signature = _anything(read_verdict(run.verdict))
        except HistoryError as problem:
            raise PlanError(str(problem)) from None
        if not signature.anomalies:
            raise PlanError(f"{path}: the run had no anomaly to look for; --anomaly NAME names one")
    return Subject(str(path), ["--plan", str(plan)], signature, seeded=True)


def named(text: str, findings: Sequence[Finding], anomalies: Sequence[str] = (), alone: bool = False) -> Subject:
    """The subject that a command line names: the id of a finding, a plan, or the folder of a run. alone: its runs count
    for no other finding. Raises PlanError for anything else.
    """
    finding = find(findings, text)
    if finding is not None:
        if anomalies:
            raise PlanError("--anomaly is for a plan or a run; a finding has its own signature")
        return of_finding(finding, [] if alone else findings)
    path = shipped(Path(text))
    if not exists(path):
        raise PlanError(f"{text!r} is no finding (there are 1 to {findings[-1].id}), no plan and no folder of a run")
    return of_path(path, anomalies)


def sought(text: str, finding: str | None, anomalies: Sequence[str]) -> Subject:
    """As `named`, alone, for a command that looks for one thing: the signature of a finding, or these anomalies. Raises
    PlanError as well if there is nothing to look for.
    """
    if finding is not None and anomalies:
        raise PlanError("--finding and --anomaly exclude each other: a finding has its own signature")
    findings = read_findings()
    found = None if finding is None else find(findings, finding)
    if finding is not None and (found is None or found.signature is None):
        raise PlanError(f"--finding {finding}: the record has no such finding, or no signature for it")
    known = found.signature.anomalies if found and found.signature else ()
    subject = named(text, findings, anomalies or known, alone=True)
    if found is not None:
        subject = replace(subject, signature=found.signature, title=f"{subject.title}, finding {found.id}")
    if subject.signature is None:
        raise PlanError(f"{text}: --anomaly or --finding says what to look for; a plan has no anomaly of its own")
    return subject


@dataclass
class Series:
    """Counts of a series, and the conclusions from them. wasted: runs since the last one that tried it; stopped: the
    signal that ended it; others: the same runs, by the subject's other findings.
    """

    shown: int = 0
    runs: int = 0
    not_tried: int = 0
    wasted: int = 0
    version: str = ""
    stopped: Stopped | None = None
    others: Sequence[Series] = ()

    def add(self, sight: Sight) -> None:
        """Counts one more run."""
        if sight == Sight.NOT_TRIED:
            self.not_tried += 1
            self.wasted += 1
            return
        self.wasted = 0
        self.runs += 1
        self.shown += sight == Sight.SHOWN

    def over(self, rule: StoppingRule) -> bool:
        """True if further runs add nothing: the rule is satisfied, or too many runs tried nothing."""
        return rule.decide(self.shown, self.runs) is not None or self.wasted >= TOO_MANY

    def describe(self) -> str:
        """One line."""
        apart = f"; {self.not_tried} more tried nothing" if self.not_tried else ""
        if not self.runs:
            return f"no run that tried it{apart}"
        return f"shown in {describe(self.shown, self.runs)}{apart}"

    def measured(self, change: str) -> Measured:
        """The series for the record."""
        cores = len(os.sched_getaffinity(0))
        where = f"{cores} core{'s' if cores > 1 else ''}"
        return Measured(self.shown, self.runs, self.not_tried, change, self.version, date.today(), where)


def reproduce(
    subject: Subject,
    rule: StoppingRule,
    extra: Sequence[str],
    store: Path,
    say: Callable[[str], None],
    until: float | None = None,
) -> Series:
    """Runs the subject until the rule is satisfied, or until a time (`time.monotonic`), or until a stop signal: the
    series has all counts before it.

    Raises PlanError for options that `harness run` does not take.
    """
    series = Series(others=[Series() for _ in subject.others])
    try:
        with ExitStack() as stack:
            shared = stack.enter_context(SharedCluster()) if subject.kept else None
            while not series.over(rule) and (until is None or time.monotonic() < until):
                began = time.monotonic()
                args = [*subject.args, *extra, *own_options(subject)]

                def start(own: Sequence[str], args: Sequence[str] = args) -> ChildRun:
                    return run_child([*args, *own], store)

                run = start([]) if shared is None else shared.run(start)
                if run.stopped is not None:
                    raise run.stopped
                seen, *more = judged(subject, run)
                version = run.folder.load().build if run.folder is not None else ""
                for one, sighting in zip((series, *series.others), (seen, *more), strict=True):
                    one.add(sighting.sight)
                    one.version = version or one.version
                if shared is not None:
                    shared.after(sound=seen.sight == Sight.NOT_SHOWN and run.code == Verdict.VALID.exit_code)
                where = f"  {run.folder.path}" if run.folder is not None else ""
                say(
                    f"  {series.runs + series.not_tried:>3}  {seen.sight.value:<9}  "
                    f"{time.monotonic() - began:4.0f} s  {seen.why}{where}"
                )
    except Stopped as stopped:
        series.stopped = stopped
    return series


def own_options(subject: Subject) -> list[str]:
    """Options that a series adds to each run, beside the cluster: a new seed."""
    return ["--seed", str(int.from_bytes(os.urandom(3), "big"))] if subject.seeded else []


def judged(subject: Subject, run: ChildRun) -> list[Sighting]:
    """Returns the sightings of `Subject.look`; NOT_TRIED for each if there was no run."""
    if run.code == USAGE:
        raise PlanError(run.problem.removeprefix("harness: "))
    try:
        if run.folder is not None:
            return subject.look(run.folder)
        why = f"there was no run: {run.problem}"
    except (HistoryError, InfraError) as problem:
        why = str(problem)
    return [Sighting(Sight.NOT_TRIED, why)] * (1 + len(subject.others))
