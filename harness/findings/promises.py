# SPDX-License-Identifier: Apache-2.0
"""The number of runs in which each promise of a document held: a table of Markdown, made from the runs themselves.

    python -m harness.findings.promises rip-32 results/store results/nightly     # of these runs
    python -m harness.findings.promises rip-32 --add results/store               # of all that were ever counted

The promises of a document stand in `harness/findings/promises/NAME.toml`: what is promised, which workload tries it,
and the anomalies that break it. `k of n` means that a promise held in k of the n runs that could judge it. With
`--add`, runs are counted permanently: `NAME.json` has the counts, and the table in `docs/NAME.md` is rewritten.
A run that is counted already is left out. A document with columns has each run in `NAME.json`
(`harness.findings.run_by_run`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.findings import run_by_run
from harness.findings.documents import DOCS, FOLDER, Document, Promise, broken, linked, read_promises
from harness.findings.judged_runs import judged_runs, start_of
from harness.findings.pages import write_table
from infra.options import OptionError
from results.durable import write_text
from results.record import RunRecord
from results.verdict import Judgement


@dataclass
class Tally:
    """The counts of one promise in runs of one version and fault."""

    held: int = 0
    runs: int = 0
    broken_by: dict[str, int] = field(default_factory=dict)

    def add(self, broken: Iterable[str]) -> None:
        """Counts one run."""
        names = set(broken)
        self.runs += 1
        self.held += not names
        for name in names:
            self.broken_by[name] = self.broken_by.get(name, 0) + 1


Tallies = dict[str, dict[str, Tally]]
"""Id of a promise -> kind of runs -> tally."""


@dataclass
class Counted:
    """The runs that were counted (by the time of their start), and their results."""

    runs: list[str] = field(default_factory=list)
    tallies: Tallies = field(default_factory=dict)

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", "the counts")


def read_counted(path: Path) -> Counted:
    """Reads the counts; empty without a file. Raises ValueError for a wrong file, OSError."""
    if not path.exists():
        return Counted()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = {
            name: {column: Tally(**tally) for column, tally in row.items()} for name, row in data["tallies"].items()
        }
        return Counted([str(run) for run in data["runs"]], found)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise ValueError(f"{path}: runs and tallies are right: {problem}") from None


def count(document: Document, runs: Iterable[tuple[RunRecord, Judgement]], counted: Counted) -> int:
    """Adds the runs that are not counted yet, and returns their number."""
    added = 0
    for record, judgement in runs:
        identity = start_of(record)
        if identity in counted.runs:
            continue
        added += 1
        counted.runs.append(identity)
        for promise in document.promises:
            if record.plan.get("workload") == promise.workload:
                names = broken(promise, record, judgement)
                if names is not None:
                    row = counted.tallies.setdefault(promise.id, {})
                    row.setdefault(document.kind(record), Tally()).add(names)
    return added


def table(promises: Sequence[Promise], found: Tallies) -> Iterator[str]:
    """Lines of Markdown: a row for each promise, or for each kind of runs if there are more of these."""
    kinds = sorted({name for row in found.values() for name in row})
    if len(kinds) > len(promises):
        yield from _by_kind(promises, kinds, found)
        return
    yield "| promise | anomaly | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 2) + "|"
    for promise in promises:
        cells = [_cell(found.get(promise.id, {}).get(name)) for name in kinds]
        yield f"| {promise.id} {promise.text} | {linked(*promise.anomalies)} | " + " | ".join(cells) + " |"


def _by_kind(promises: Sequence[Promise], kinds: Sequence[str], found: Tallies) -> Iterator[str]:
    for promise in promises:
        yield f"* {promise.id} {promise.text}: {linked(*promise.anomalies)}"
    yield ""
    yield "| runs | " + " | ".join(promise.id for promise in promises) + " |"
    yield "|---" * (len(promises) + 1) + "|"
    for kind in kinds:
        cells = [_cell(found.get(promise.id, {}).get(kind)) for promise in promises]
        yield f"| {kind} | " + " | ".join(cells) + " |"


def _cell(tally: Tally | None) -> str:
    if tally is None:
        return ""
    why = ", ".join(f"{name} in {n}" for name, n in sorted(tally.broken_by.items()))
    return f"{tally.held} of {tally.runs}" + (f" ({why})" if len(tally.broken_by) > 1 else "")


def main(arguments: Sequence[str], docs: Path = DOCS) -> int:
    """Prints the table of a document. The first argument is its name or its file, the others are stores."""
    add = "--add" in arguments
    words = [word for word in arguments if word != "--add"]
    if not words or (add and not words[1:]):
        print(f"promises: NAME [--add] [STORE...] is right; names: {', '.join(_names())}")
        return 2
    name, *stores = words
    path = FOLDER / f"{name}.toml"
    path = path if path.exists() else Path(name)
    try:
        document, record = read_promises(path), path.with_suffix(".json")
        page = docs / f"{document.page or path.stem}.md"
        runs = judged_runs(map(Path, stores), document.tries)
        if document.columns:
            added, lines = run_by_run.tables(document, runs, record, kept=add or not stores, add=add)
        else:
            counted = read_counted(record) if add or not stores else Counted()
            added = count(document, runs, counted)
            lines = list(table(document.promises, counted.tallies))
            if add:
                counted.write(record)
        write_table(lines, page if add else None)
        if add:
            print(f"{added} runs were added to {record}; their table is in {page}")
    except (OSError, ValueError, OptionError) as problem:
        print(f"promises: {problem}", file=sys.stderr)
        return 2
    return 0


def _names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
