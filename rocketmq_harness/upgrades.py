# SPDX-License-Identifier: Apache-2.0
"""Upgrades and the way back: a table of what was lost and for how long nobody was served, made from stored runs.

    python -m rocketmq_harness.upgrades results/nightly            # prints the table
    python -m rocketmq_harness.upgrades results/nightly docs       # writes it into docs/upgrades.md

Only runs with a `rolling-upgrade` count; of several runs of one pair and topology, each has a line of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.check.judging import judge_stored
from harness.findings.known import explain
from harness.findings.pages import write_table
from results.errors import ExpectedError
from results.fault_intervals import fault_intervals
from results.record import RunRecord
from results.store import RunDir, Store
from rocketmq_harness.certify.sheet import Run, judged_run

FAULT: Final = "rolling-upgrade"
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


def _numbers(way: Sequence[str]) -> list[list[int]]:
    return [[int(part) for part in version.split(".") if part.isdecimal()] for version in way]


def main(argv: Sequence[str]) -> None:
    """Prints the table, or writes it into the page of a folder."""
    store, *docs = map(Path, argv)
    lines = table(upgrades([store]))
    write_table(lines, docs[0] / PAGE if docs else None)


if __name__ == "__main__":
    main(sys.argv[1:])
