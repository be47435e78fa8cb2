# SPDX-License-Identifier: Apache-2.0
"""Upgrades and the way back: a table of what was lost and for how long nobody was served, made from stored runs.

    python -m rocketmq_harness.upgrades results/nightly            # prints the table
    python -m rocketmq_harness.upgrades results/nightly docs       # writes it into docs/upgrades.md

The second form also writes the counts for the tables of `docs/operators.md`. Several stores: `results/a:results/b`.
Only runs with a `rolling-upgrade` count; of several runs of one pair and topology, each has a line of its own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.check.judging import judge_stored
from harness.findings.known import explain
from harness.findings.pages import write_table
from harness.findings.promises import FOLDER
from results.durable import write_text
from results.errors import ExpectedError
from results.fault_intervals import fault_intervals
from results.record import RunRecord
from results.store import RunDir, Store
from rocketmq_harness.certify.sheet import Run, judged_run
from rocketmq_harness.certify.suite import promises

FAULT: Final = "rolling-upgrade"
_COUNTS: Final = FOLDER / "upgrades.json"
_COUNTED: Final = ("kept", "true", "copies")
"""Promises of a certification that an upgrade can break. (What it owes is never due while it goes on.)"""
_SERVED_S: Final = 30.0
_SERVED: Final = "silence of at most 30 s"
_TURNS: Final = re.compile(r"\d+ of \d+(?= restarted)")
PAGE: Final = "upgrades.md"


@dataclass(frozen=True)
class Upgrade:
    """One run. way: the versions in their order, from that of the start. turns: the restarts (`18 of 18`), or ""."""

    topology: str
    way: Sequence[str]
    verdict: str
    run: Run
    turns: str = ""


def upgrades(stores: Iterable[Path]) -> Iterator[Upgrade]:
    """The upgrades of some stores, judged again by the present code. Runs that cannot be read are left out, with a line
    on standard error.
    """
    for store in stores:
        for summary in Store(store).runs():
            if FAULT not in summary.path.parent.name:
                continue
            try:
                record, judgement = judge_stored(RunDir(summary.path))
            except ExpectedError as problem:
                sys.stderr.write(f"{summary.path}: left out: {problem}\n")
                continue
            judgement = explain(record, judgement)
            found = judged_run(summary.path, record, judgement)
            verdict = judgement.verdict.value
            yield Upgrade(record.deployment.topology, _way(record), verdict, found, _turns(record))


def _way(record: RunRecord) -> Sequence[str]:
    """The versions of a run's plan: that of its start, and those of its upgrade."""
    plan = record.plan
    planned: Sequence[Any] = [*plan.get("nemesis", ()), *plan.get("strike", ())]
    to: Sequence[Any] = next((one["to"] for one in planned if one.get("fault") == FAULT), [])
    return [str(plan.get("server", {}).get("version", "")), *map(str, to)]


def _turns(record: RunRecord) -> str:
    """The restarts of the upgrade, by its heal: `18 of 18`."""
    for fault in fault_intervals(record.history):
        for evidence in fault.after_heal.values() if fault.fault == FAULT else ():
            if told := _TURNS.match(evidence):
                return told[0]
    return ""


def table(found: Iterable[Upgrade]) -> list[str]:
    """Lines of Markdown, by topology and versions."""
    heads = "topology", "versions", "restarts", "verdict", "lost of acknowledged", "longest silence", "known", "new"
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in sorted(found, key=lambda one: (one.topology, _numbers(one.way), one.run.folder)):
        run = one.run
        silence = "-" if run.silence_s is None else f"{run.silence_s:.1f} s"
        lost = f"{run.lost:,} of {run.acknowledged:,}" if not run.why else run.why
        known = ", ".join(map(str, run.known)) or "-"
        new = ", ".join(run.new) or "-"
        cells = [one.topology, " -> ".join(one.way), one.turns or "-", one.verdict, lost, silence, known, new]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def counts(found: Iterable[Upgrade]) -> dict[str, dict[str, dict[str, int]]]:
    """Promise -> versions, topology and fault -> `held` and `runs`, as `rocketmq_harness.advice.measured` reads them. A
    run counts for each of its versions.
    """
    tallies: dict[str, dict[str, dict[str, int]]] = {}
    for one in found:
        if one.run.why:
            continue
        held = {promise.name: promise.name not in one.run.broken for promise in promises() if promise.name in _COUNTED}
        held[_SERVED] = one.run.silence_s is not None and one.run.silence_s <= _SERVED_S
        for promise, good in held.items():
            for version in dict.fromkeys(one.way):
                kind = f"{version} {one.topology} {FAULT}"
                tally = tallies.setdefault(promise, {}).setdefault(kind, {"held": 0, "runs": 0})
                tally["runs"] += 1
                tally["held"] += good
    return tallies


def _numbers(way: Sequence[str]) -> list[list[int]]:
    return [[int(part) for part in version.split(".") if part.isdecimal()] for version in way]


def main(argv: Sequence[str]) -> None:
    """Prints the table, or writes it into the page of a folder."""
    stores, *docs = argv
    found = list(upgrades(map(Path, stores.split(":"))))
    write_table(table(found), Path(docs[0]) / PAGE if docs else None)
    if docs:
        write_text(_COUNTS, json.dumps({"tallies": counts(found)}, indent=1, sort_keys=True) + "\n", "the counts")


if __name__ == "__main__":
    main(sys.argv[1:])
