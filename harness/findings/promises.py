"""In how many stored runs each promise of a document held: a table of Markdown, made from the runs themselves.

    python -m harness.findings.promises rip-32 results/store results/nightly

The promises of a document stand in `harness/findings/promises/NAME.toml`: what is promised, which workload tries it,
and the anomalies that break it. `k of n` means that a promise held in k of the n runs that could judge it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.check.judging import judge_stored
from harness.plan.table import Table
from infra.options import OptionError
from results.errors import ExpectedError
from results.reading import read_toml
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Judgement, Verdict

FOLDER: Final = Path(__file__).with_name("promises")

_NEEDED: Final = ("stats", "faults", "complete", "well-formed")
"""A run about which one of these checkers is not `valid` tried too little to speak for a promise."""


@dataclass(frozen=True)
class Promise:
    """id  as the document or the design calls it. workload: whose runs try it.
    anomalies  names; each of them breaks it, unless the configuration permits it.
    needs  kinds of ops: a run without an `ok` one did not try it.
    """

    id: str
    text: str
    workload: str
    anomalies: Sequence[str]
    needs: Sequence[str] = ()


@dataclass
class Tally:
    """Of one promise in runs of one version and fault."""

    held: int = 0
    runs: int = 0
    broken_by: dict[str, int] = field(default_factory=dict)

    def add(self, broken: Iterable[str]) -> None:
        """Count one run."""
        names = set(broken)
        self.runs += 1
        self.held += not names
        for name in names:
            self.broken_by[name] = self.broken_by.get(name, 0) + 1


def read_promises(path: Path) -> list[Promise]:
    """Raises PlanError where the file is wrong, OSError where it cannot be read."""
    table = Table(read_toml(path), str(path), "")
    found = []
    for entry in table.tables("promise"):
        name, text, workload = (entry.get(key, str, "") for key in ("id", "text", "workload"))
        found.append(Promise(name, text, workload, entry.strings("anomalies"), entry.strings("needs")))
        entry.reject_unknown()
    table.reject_unknown()
    return found


def column(record: RunRecord) -> str:
    """Version, topology and faults of a run: what its column is called."""
    server = record.plan.get("server", {})
    faults = [str(n.get("fault")) for n in record.plan.get("nemesis", [])]
    faults = faults or sorted({str(s.get("fault")) for s in record.plan.get("strike", [])}) or ["quiet"]
    return " ".join([record.version or str(server.get("version", "")), str(server.get("topology", "")), *faults])


def broken(promise: Promise, record: RunRecord, judgement: Judgement) -> set[str] | None:
    """Which anomalies of a run break a promise; None where the run cannot speak for it. An anomaly in doubt (a machine
    that was too small) says nothing.
    """
    named = [a for a in judgement.anomalies if a.name in promise.anomalies and a.legal is None]
    certain = {a.name for a in named if a.doubt is None}
    if certain:
        return certain
    untried = any(r.checker in _NEEDED and r.verdict != Verdict.VALID for r in judgement.results)
    done = {op.f for op in record.history if op.type == "ok"} if promise.needs else set()
    return None if untried or named or not done.issuperset(promise.needs) else set()


def tallies(promises: Sequence[Promise], runs: Iterable[tuple[RunRecord, Judgement]]) -> dict[str, dict[str, Tally]]:
    """Id -> column -> tally."""
    found: dict[str, dict[str, Tally]] = {promise.id: {} for promise in promises}
    for record, judgement in runs:
        for promise in promises:
            if record.plan.get("workload") == promise.workload:
                names = broken(promise, record, judgement)
                if names is not None:
                    found[promise.id].setdefault(column(record), Tally()).add(names)
    return found


def stored(stores: Iterable[Path]) -> Iterator[tuple[RunRecord, Judgement]]:
    """All runs below these folders, judged now. One that cannot be judged is named on stderr."""
    for store in stores:
        for plan in sorted(store.rglob("plan.toml")):
            if plan.parent.is_symlink() or plan.parent.name == "latest":
                continue
            try:
                yield judge_stored(RunDir(plan.parent))
            except ExpectedError as problem:
                print(f"left out: {problem}", file=sys.stderr)


def table(promises: Sequence[Promise], found: dict[str, dict[str, Tally]]) -> Iterator[str]:
    """Lines of Markdown."""
    columns = sorted({name for row in found.values() for name in row})
    yield "| promise | anomaly | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 2) + "|"
    for promise in promises:
        cells = [_cell(found[promise.id].get(name)) for name in columns]
        names = ", ".join(f"[`{name}`](anomalies.md#{name})" for name in promise.anomalies)
        yield f"| {promise.id} {promise.text} | {names} | " + " | ".join(cells) + " |"


def _cell(tally: Tally | None) -> str:
    if tally is None:
        return ""
    why = ", ".join(f"{name} in {n}" for name, n in sorted(tally.broken_by.items()))
    return f"{tally.held} of {tally.runs}" + (f" ({why})" if len(tally.broken_by) > 1 else "")


def main(arguments: Sequence[str]) -> int:
    """Print the table of a document. The first argument is its name or its file, the others are stores."""
    if len(arguments) < 2:
        print(f"promises: NAME STORE... is right; names: {', '.join(sorted(p.stem for p in FOLDER.glob('*.toml')))}")
        return 2
    name, *stores = arguments
    path = FOLDER / f"{name}.toml"
    try:
        promises = read_promises(path if path.exists() else Path(name))
    except (OSError, ValueError, OptionError) as problem:
        print(f"promises: {problem}", file=sys.stderr)
        return 2
    print("\n".join(table(promises, tallies(promises, stored(map(Path, stores))))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
