# SPDX-License-Identifier: Apache-2.0
"""The runs of a hunt on real servers, its ledger, and the search for smaller plans behind it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.findings.reproduce import of_path
from harness.hunt.hunting import Arm, Entry, Outcome
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun, run_plan
from harness.series.shared import SharedCluster
from harness.shrink.running import Runner, write_results
from harness.shrink.shrinking import Account, shrink
from results.alarm import EarlyEnd
from results.durable import append_text
from results.errors import ExpectedError, HistoryError
from results.op import INVOKE
from results.reading import opened
from results.record import RunRecord
from results.store import Store
from results.verdict import Judgement, Verdict
from results.verdict_file import read_verdict

LEDGER: Final = "hunt.jsonl"
_LARGEST: Final = 1 << 28
_WHAT: Final = "the ledger of the hunt"


class Runs:
    """Runs plans one after the other (`harness.hunt.hunting.Trial`). Runs of one arm in a row share a kept cluster.

    The first anomaly that the operations of an arm prove ends the load of its run early. The runs that follow on this
    arm are whole: what would come after the same anomaly is new. whole: all runs are. ended: arms with an early end in
    an earlier call.
    """

    def __init__(self, store: Path, whole: bool = False, ended: Iterable[str] = ()) -> None:
        self.store, self.whole, self._ended = store, whole, set(ended)
        self._shared = SharedCluster()
        self._last = ""

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *problem: object) -> None:
        self._shared.remove()

    def __call__(self, plan: Plan, arm: Arm) -> Outcome:
        """Raises Stopped for a stop signal."""
        if arm.name != self._last:
            self._shared.remove()
        self._last = arm.name
        seed = str(int.from_bytes(os.urandom(3), "big"))

        early = [] if self.whole or arm.name in self._ended else ["--end-early"]

        def start(own: Sequence[str]) -> ChildRun:
            return run_plan(plan, [*arm.words, "--seed", seed, *early, *own], self.store)

        run = self._shared.run(start) if arm.kept else start([])
        if run.stopped is not None:
            raise run.stopped
        found = outcome_of(run)
        if found.early:
            self._ended.add(arm.name)
        if arm.kept:
            self._shared.after(sound=found.verdict == Verdict.VALID.value)
        return found


def outcome_of(run: ChildRun) -> Outcome:
    """The result of a run, by its own verdict."""
    if run.folder is None:
        return Outcome("", problem=run.problem)
    folder = str(run.folder.path)
    try:
        judgement = read_verdict(run.folder.verdict)
        record = run.folder.load()
        early = EarlyEnd.of(record.environment)
        struck, healed = _struck(record, early)
    except ExpectedError as problem:
        return Outcome(Verdict.HARNESS_FAILURE.value, folder=folder, problem=str(problem))
    known = [finding.id for finding in judgement.known]
    why = judgement.reason if judgement.verdict in (Verdict.HARNESS_FAILURE, Verdict.UNKNOWN) else ""
    ended, not_run_s = ("", 0.0) if early is None else (early.describe(), early.not_run_s)
    return Outcome(
        judgement.verdict.value, unexplained(judgement), known, struck, folder, why, healed, ended, not_run_s
    )


def unexplained(judgement: Judgement) -> list[str]:
    """The anomalies that count, are not in doubt, and that no finding explains; each name once."""
    sure = {anomaly.name for anomaly in judgement.anomalies if anomaly.counts and anomaly.doubt is None}
    return [name for name in dict.fromkeys(judgement.new or ()) if name in sure]


def _struck(record: RunRecord, early: EarlyEnd | None) -> tuple[list[int], list[int]]:
    """The ids of the strikes that took effect, and of those whose time was over: the heal after an early end is not
    their own.
    """
    struck, healed = set[int](), set[int]()
    for op in record.history.nemesis:
        if not isinstance(op.value, Mapping):
            continue
        if op.f == "inject" and op.type != INVOKE and op.value.get("seen"):
            struck.add(int(op.value["id"]))
        elif op.f == "heal" and op.type == INVOKE and (early is None or op.index < early.op):
            healed.add(int(op.value["id"]))
    return sorted(struck), sorted(healed)


def read_entries(folder: Path) -> list[Entry]:
    """The runs of a hunt that goes on; a line that is torn is left out."""
    found = []
    try:
        with opened(folder / LEDGER, _LARGEST) as file:
            for line in file.read().splitlines():
                try:
                    found.append(Entry.from_json(json.loads(line)))
                except (ValueError, TypeError, KeyError):
                    continue
    except FileNotFoundError:
        return []
    return found


def keep(folder: Path, entry: Entry) -> None:
    """Appends a run to the ledger. Raises StoreError."""
    append_text(folder / LEDGER, json.dumps(entry.to_json(), ensure_ascii=False) + "\n", _WHAT)


def seeds_of(stores: Iterable[Path]) -> list[Plan]:
    """The plans with strikes of all runs of these stores that had an anomaly. Raises PlanError if no run had one."""
    found = []
    named = list(stores)
    for store in named:
        for summary in Store(store).runs():
            plan = summary.path / "effective.toml"
            if summary.verdict == Verdict.INVALID and plan.exists():
                try:
                    made = Plan.read(plan)
                except PlanError:
                    continue
                found += [made] if made.strikes else []
    if named and not found:
        raise PlanError(f"--seed-store {named[0]}: no invalid run with strikes is there; a store is right")
    return found


def smaller(
    entry: Entry,
    folder: Path,
    store: Path,
    most: int,
    until: float,
    say: Callable[[str], None],
    whole: bool = False,
) -> tuple[Account, Path] | None:
    """Shrinks the plan of a run that showed something new. None: it cannot be read any more. whole: see `Runs`."""
    try:
        subject = of_path(Path(entry.outcome.folder), entry.first)
        plan = Plan.read(Path(entry.outcome.folder) / "effective.toml")
    except (PlanError, HistoryError) as problem:
        say(f"  not shrunk: {problem}")
        return None
    place = folder / "-".join(("shrunk", *entry.first))[:80]
    with Runner(subject, place, store, most, until, say, whole=whole) as runner:
        account = shrink(plan, runner)
    write_results(account, subject, place, runner.early.count)
    return account, place


def commands(entry: Entry) -> list[str]:
    """Commands that a person calls next, for a run that showed something new."""
    run = entry.outcome.folder
    names = " ".join(f"--anomaly {name}" for name in entry.first)
    return [
        f"harness run --plan {run}/effective.toml",
        f"harness reproduce {run} --runs 10",
        f"harness shrink {run} {names}",
    ]
