# SPDX-License-Identifier: Apache-2.0
"""From a record to a verdict and its files: the same functions for a new run, `harness check`, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checkers.base.api import Checker, judge
from checkers.base.starvation import describe, unforced
from checkers.run.wellformed import WellFormed
from harness.api import Workload
from harness.check.run_judges import judges_of
from harness.parts import registry
from harness.plan.plan import Plan
from results.alarm import EarlyEnd
from results.errors import HistoryError
from results.evidence import changes, digests
from results.evidence import describe as describe_changes
from results.formats import limited
from results.junit import write_junit
from results.reading import exists
from results.record import BEGUN, NODES_GONE, RunRecord
from results.report import write_report
from results.store import RunDir
from results.verdict import CheckResult, Judgement, Verdict
from results.verdict_file import read_verdict, write_verdict


def judge_run(record: RunRecord, workload: Workload) -> Judgement:
    """Judges a run by the workload's checkers, the well-formedness check first."""
    return judge_by(record, workload.checkers(record.deployment))


def judge_by(record: RunRecord, checkers: Sequence[Checker]) -> Judgement:
    """Judges a run: the well-formedness check first, then these checkers, the judges of every run that concerns them
    (`harness.check.run_judges`), and at last its machines and its end.

    A malformed history is a failure of the harness, as is one whose nodes were lost: it is not judged further. A run
    that was interrupted, that an alarm ended early, or whose end is missing, is never `valid`; one that left a fault
    behind is a failure of the harness.
    """
    first = judge(record, [WellFormed()])
    if first.verdict != Verdict.VALID:
        return first
    if NODES_GONE in record.environment:
        # What servers without a machine did not answer says nothing about servers, and their logs are gone too.
        why = f"the nodes went away during the run: {record.environment[NODES_GONE]}"
        return Judgement([*first.results, CheckResult("nodes", Verdict.HARNESS_FAILURE, why)])
    found = judge(record, [*checkers, *judges_of(record)]).results
    return Judgement([*first.results, *found, *_machine(record), *_early_end(record, found), *_ending(record)])


def _early_end(record: RunRecord, found: Sequence[CheckResult]) -> list[CheckResult]:
    """The line about a load that an alarm ended early. It is `unknown`: the rest of the plan was not run, so such a run
    is never `valid`, whatever the judges found of the alarm.
    """
    early = EarlyEnd.of(record.environment)
    if early is None:
        return []
    confirmed = any(a.counts and a.name in early.names for result in found for a in result.anomalies)
    reason = early.describe() if confirmed else f"{early.describe()}; no judge reported this"
    stats = {
        "op": early.op,
        "at_s": round(early.at_s, 1),
        "names": list(early.names),
        "not_run_s": early.not_run_s,
        "strikes_left": early.strikes_left,
        "confirmed": confirmed,
    }
    return [CheckResult("early-end", Verdict.UNKNOWN, reason, stats=stats)]


def _machine(record: RunRecord) -> list[CheckResult]:
    """The line about the resources of the machines; it is never a finding. Empty if they were not measured."""
    if not record.machine:
        return []
    return [CheckResult("machine", Verdict.VALID, describe(unforced(record)))]


def _ending(record: RunRecord) -> list[CheckResult]:
    """Returns a result for each fault in the run's end; none if it ended well."""
    about = record.environment
    results = []
    if "interrupted" in about:
        results.append(CheckResult("complete", Verdict.UNKNOWN, "the run was interrupted before its end"))
    elif about.get("phases") == BEGUN or not any(op.extra.get("phase") == "final" for op in record.history):
        results.append(CheckResult("complete", Verdict.UNKNOWN, "the run has no complete final phase: it ended early"))
    if "lost_nodes" in about:
        why = f"at the end the harness could not reach every node: {about['lost_nodes']}"
        results.append(CheckResult("nodes", Verdict.HARNESS_FAILURE, why))
    if "unhealed" in about:
        results.append(CheckResult("healed", Verdict.HARNESS_FAILURE, f"could not heal: {about['unhealed']}"))
    return results


def judge_stored(folder: RunDir, memory: int | None = None) -> tuple[RunRecord, Judgement]:
    """Judges a stored run again, by its own plan. `memory`: bytes for reading it (`results.reading.memory_limit`).

    Raises PlanError when its workload is not installed here, HistoryError when it cannot be read.
    """
    evidence = folder.history if exists(folder.history) else folder.journal
    with limited(evidence, memory, folder.path):
        record = folder.load()
    plan = Plan.from_dict(record.plan, str(folder.plan))
    return record, judge_run(record, registry.workload(plan))


def with_evidence(folder: RunDir, judgement: Judgement) -> Judgement:
    """Adds the digests of its sources to a judgement. A stored run keeps those of its first judgement; a change since
    then leaves the verdict open. A verdict of an earlier version has none, and gets none: its
    sources are unknown. Raises HistoryError.
    """
    now = digests(folder.path)
    try:
        before = read_verdict(folder.verdict).evidence
    except HistoryError:  # not written yet, or damaged
        return replace(judgement, evidence=now)
    changed = changes(before, now) if before is not None else []
    results = judgement.results
    if changed:
        results = [*results, CheckResult("evidence", Verdict.UNKNOWN, describe_changes(changed))]
    return replace(judgement, results=results, evidence=before)


def write_results(folder: RunDir, record: RunRecord, judgement: Judgement, seconds: float) -> None:
    """Writes verdict.json first, then the files that follow from it."""
    write_verdict(judgement, folder.verdict)
    write_junit(judgement, folder.junit, suite=folder.path.resolve().parent.name, seconds=seconds)
    write_report(record, judgement, folder.report)
