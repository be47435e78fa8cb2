# SPDX-License-Identifier: Apache-2.0
"""Upgrades and the way back: a table of what was lost and for how long nobody was served, made from stored runs.

    python -m rocketmq_harness.upgrades results/nightly            # prints the table of these runs
    python -m rocketmq_harness.upgrades --add results/nightly      # adds them to the record

The record is `upgrades.json` beside the promises, with the runs and the counts for the tables of `docs/operators.md`;
`--add` also writes the table of all its runs into `docs/upgrades.md`. Only runs with a `rolling-upgrade` count; of
several runs of one pair and topology, each has a line of its own. A run that is added again is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.findings.documents import DOCS, FOLDER
from harness.findings.judged_runs import judged_runs, planned_faults, read_runs, start_of, write_runs
from harness.findings.pages import write_table
from results.fault_intervals import fault_intervals
from results.record import RunRecord
from rocketmq_harness.certify.sheet import Run, judged_run
from rocketmq_harness.certify.suite import promises

FAULT: Final = "rolling-upgrade"
RECORD: Final = FOLDER / "upgrades.json"
_COUNTED: Final = ("kept", "true", "copies")
"""Promises of a certification that are counted. (Service is counted by its silence: runs of an older harness do not
show when each server was down, so their judge excused every outage.)"""
_SERVED_S: Final = 30.0
_SERVED: Final = "silence of at most 30 s"
_TURNS: Final = re.compile(r"\d+ of \d+(?= restarted)")
PAGE: Final = "upgrades.md"


@dataclass(frozen=True)
class Upgrade:
    """One run.

    began  the time of its start. way: the versions in their order, from that of the start. turns: the restarts (`18 of
           18`), or "". mends: those of the servers.
    """

    began: str
    topology: str
    way: Sequence[str]
    verdict: str
    run: Run
    turns: str = ""
    mends: Sequence[str] = ()


def upgrades(stores: Iterable[Path]) -> Iterator[Upgrade]:
    """The upgrades of some stores, judged again by the present code. Runs that cannot be read are left out, with a line
    on standard error.
    """
    for record, judgement in judged_runs(stores, _upgrades):
        run = replace(judged_run(Path(), record, judgement), folder="")
        began, topology = start_of(record), record.deployment.topology
        yield Upgrade(began, topology, _way(record), judgement.verdict.value, run, _turns(record), _mends(record))


def _upgrades(plan: Mapping[str, Any]) -> bool:
    return any(one.get("fault") == FAULT for one in planned_faults(plan))


def _way(record: RunRecord) -> Sequence[str]:
    """The versions of a run's plan: that of its start, and those of its upgrade."""
    to: Sequence[Any] = next((one["to"] for one in planned_faults(record.plan) if one.get("fault") == FAULT), [])
    return [str(record.plan.get("server", {}).get("version", "")), *map(str, to)]


def _mends(record: RunRecord) -> Sequence[str]:
    return [str(mend) for mend in record.plan.get("server", {}).get("mends", ())]


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
    for one in sorted(found, key=lambda one: (one.topology, _numbers(one.way), one.began)):
        run = one.run
        silence = "-" if run.silence_s is None else f"{run.silence_s:.1f} s"
        lost = f"{run.lost:,} of {run.acknowledged:,}" if not run.why else run.why
        known = ", ".join(map(str, run.known)) or "-"
        new = ", ".join(run.new) or "-"
        way = " -> ".join(one.way) + (f" with `--mend {','.join(one.mends)}`" if one.mends else "")
        cells = [one.topology, way, one.turns or "-", one.verdict, lost, silence, known, new]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def counts(found: Iterable[Upgrade]) -> dict[str, dict[str, dict[str, int]]]:
    """Promise -> versions, topology and fault -> `held` and `runs`, as `rocketmq_harness.advice.measured` reads them. A
    run counts for each of its versions, and none with mends: no operator has those servers.
    """
    tallies: dict[str, dict[str, dict[str, int]]] = {}
    for one in found:
        if one.run.why or one.mends:
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


def read_added() -> dict[str, Upgrade]:
    """The runs of the record, by their start. Raises OSError, ValueError."""
    return {began: Upgrade(**{**one, "run": Run(**one["run"])}) for began, one in read_runs(RECORD).items()}


def main(argv: Sequence[str]) -> None:
    """Prints the table of some stores, or adds their runs to the record and writes its table."""
    found = {one.began: one for one in upgrades(Path(word) for word in argv if word != "--add")}
    if "--add" not in argv:
        write_table(table(found.values()), None)
        return
    known = read_added() | found
    write_runs(RECORD, {began: asdict(one) for began, one in known.items()}, tallies=counts(known.values()))
    write_table(table(known.values()), DOCS / PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
