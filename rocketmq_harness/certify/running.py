# SPDX-License-Identifier: Apache-2.0
"""The runs of a certification, one after the other, each in its own process; the sheet is on the disk after each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.check.judging import judge_stored
from harness.findings.known import explain
from harness.parts.resolve import resolve
from harness.plan.plan import PlanError
from harness.run import lifecycle
from harness.series.child import ChildRun, run_plan
from harness.series.shared import SharedCluster
from harness.signals import Stopped
from infra.machines.api import InfraError
from results.durable import write_text
from results.errors import HistoryError
from results.verdict import Verdict
from rocketmq_harness.certify.files import Taken
from rocketmq_harness.certify.sheet import Row, Run, Sheet, judged_run
from rocketmq_harness.certify.suite import UPGRADE, Fault, faults, plan

USAGE: Final = 64


@dataclass(frozen=True)
class Order:
    """The runs to be made. taken: the settings. before: the version that an upgrade starts with. runs: of each fault.
    seed: of the first run of each. cluster: the backend. store: of the runs.
    """

    taken: Taken
    version: str
    before: str | None
    runs: int
    seed: int
    cluster: str
    store: Path


def run_all(sheet: Sheet, order: Order, place: Path, say: Callable[[str], None]) -> None:
    """Runs the rows of a sheet that are not left out; after each run the sheet is at `place`. No run begins if the
    harness refuses one of the plans.

    A stop signal ends it after the run that it reaches; the rows have what was judged before. Raises PlanError if the
    servers do not take a setting.
    """
    for row, fault in zip(sheet.rows, faults(), strict=True):
        if not row.left_out:
            made, _ = plan(fault, order.taken, order.version, order.before, order.cluster, order.seed)
            lifecycle.check(resolve(made))
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with SharedCluster() as shared:
            for row, fault in zip(sheet.rows, faults(), strict=True):
                for number in range(0 if row.left_out else order.runs):
                    _one(row, fault, order, order.seed + number, shared)
                    write_text(place, json.dumps(sheet.to_json(), indent=1) + "\n", "the sheet")
                    say(f"  {fault.name:<10} {_said(row.runs[-1])}")
    except Stopped as stopped:
        say(f"  stopped by {stopped}: the sheet has the runs before")
        raise


def _one(row: Row, fault: Fault, order: Order, seed: int, shared: SharedCluster) -> None:
    """One run. An upgrade leaves servers of another version, so it has a cluster of its own."""
    made, taken = plan(fault, order.taken, order.version, order.before, order.cluster, seed)
    alone = fault.name == UPGRADE
    done = run_plan(made, [], order.store) if alone else shared.run(lambda own: run_plan(made, own, order.store))
    if done.stopped is not None:
        raise done.stopped
    if done.code == USAGE:
        raise PlanError(done.problem.removeprefix("harness: "))
    if not alone:
        shared.after(sound=done.code == Verdict.VALID.exit_code)
    row.runs.append(_judged(done))
    for one in taken.changed[len(order.taken.changed) :]:
        if str(one) not in row.notes:
            row.notes.append(str(one))


def _judged(done: ChildRun) -> Run:
    if done.folder is None:
        return Run("", why=f"there was no run: {done.problem}")
    try:
        record, judgement = judge_stored(done.folder)
        return judged_run(done.folder.path, record, explain(record, judgement))
    except (HistoryError, InfraError) as problem:
        return Run(str(done.folder.path), why=str(problem))


def _said(run: Run) -> str:
    if run.why:
        return f"not judged: {run.why}"
    broken = ", ".join(f"{name} {count:,}" for found in run.broken.values() for name, count in found.items())
    silence = f"; longest silence {run.silence_s:.1f} s" if run.silence_s is not None else ""
    held = f"not decided: {run.undecided}" if run.undecided else "all held"
    return f"{broken or held}{silence}  {run.folder}"
