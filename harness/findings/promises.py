# SPDX-License-Identifier: Apache-2.0
"""The number of runs in which each promise of a document held: a table of Markdown, made from the runs themselves.

    python -m harness.findings.promises rip-32 results/store results/nightly     # of these runs
    python -m harness.findings.promises rip-32 --add results/store               # of all that were ever counted

The promises of a document stand in `harness/findings/promises/NAME.toml`: what is promised, which workload tries it,
and the anomalies that break it. `k of n` means that a promise held in k of the n runs that could judge it. With
`--add`, runs are counted permanently: `NAME.json` has the counts, and the table in `docs/NAME.md` is rewritten.
A run that is counted already is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from harness.check.judging import judge_stored
from harness.findings.pages import replaced
from harness.plan.table import Table
from infra.options import OptionError
from results.durable import write_text
from results.errors import ExpectedError
from results.reading import read_toml
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Judgement, Verdict

FOLDER: Final = Path(__file__).with_name("promises")
DOCS: Final = Path(__file__).parents[2] / "docs"

_NEEDED: Final = ("stats", "faults", "complete", "well-formed")
"""If one of these checkers is not `valid`, the run tried too little to judge a promise."""


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


@dataclass(frozen=True)
class Document:
    """The promises of a document. `topology` is not in the names of kinds of runs; `faults` have shorter names there.
    `options` of the workload, or of the topology, are part of these names.
    """

    promises: Sequence[Promise]
    topology: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()

    def kind(self, record: RunRecord) -> str:
        """The name of a run's kind: version, topology, options, mends and faults."""
        server = record.plan.get("server", {})
        names = [str(n.get("fault")) for n in record.plan.get("nemesis", [])]
        names = names or sorted({str(s.get("fault")) for s in record.plan.get("strike", [])}) or ["quiet"]
        topology = str(server.get("topology", ""))
        words = [record.version or str(server.get("version", "")), "" if topology == self.topology else topology]
        words += [_word(name, record.plan.get(name, server.get(name))) for name in self.options]
        words += ["mended " + ",".join(map(str, server["mends"]))] if server.get("mends") else []
        return " ".join(word for word in (*words, *(self.faults.get(name, name) for name in names)) if word)


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


def read_promises(path: Path) -> Document:
    """Reads a document's promises. Raises PlanError for a wrong file, OSError for an unreadable one."""
    table = Table(read_toml(path), str(path), "")
    found = []
    for entry in table.tables("promise"):
        name, text, workload = (entry.get(key, str, "") for key in ("id", "text", "workload"))
        found.append(Promise(name, text, workload, entry.strings("anomalies"), entry.strings("needs")))
        entry.reject_unknown()
    topology = table.get("topology", str, "")
    faults = {str(word): str(short) for word, short in table.get("faults", dict, {}).items()}
    options = table.strings("options")
    table.reject_unknown()
    return Document(found, topology, faults, options)


def broken(promise: Promise, record: RunRecord, judgement: Judgement) -> set[str] | None:
    """Anomalies of a run that break a promise; None if the run cannot judge it. An anomaly in doubt (a machine that
    was too small) is not counted.
    """
    named = [a for a in judgement.anomalies if a.name in promise.anomalies and a.legal is None]
    certain = {a.name for a in named if a.doubt is None}
    if certain:
        return certain
    untried = any(r.checker in _NEEDED and r.verdict != Verdict.VALID for r in judgement.results)
    done = {op.f for op in record.history if op.type == "ok"} if promise.needs else set()
    return None if untried or named or not done.issuperset(promise.needs) else set()


def count(document: Document, runs: Iterable[tuple[RunRecord, Judgement]], counted: Counted) -> int:
    """Adds the runs that are not counted yet, and returns their number."""
    added = 0
    for record, judgement in runs:
        identity = str(record.environment.get("started_at"))
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
        yield f"| {promise.id} {promise.text} | {_linked(promise)} | " + " | ".join(cells) + " |"


def _by_kind(promises: Sequence[Promise], kinds: Sequence[str], found: Tallies) -> Iterator[str]:
    for promise in promises:
        yield f"* {promise.id} {promise.text}: {_linked(promise)}"
    yield ""
    yield "| runs | " + " | ".join(promise.id for promise in promises) + " |"
    yield "|---" * (len(promises) + 1) + "|"
    for kind in kinds:
        cells = [_cell(found.get(promise.id, {}).get(kind)) for promise in promises]
        yield f"| {kind} | " + " | ".join(cells) + " |"


def _linked(promise: Promise) -> str:
    return ", ".join(f"[`{name}`](anomalies.md#{name})" for name in promise.anomalies)


def _word(option: str, value: object) -> str:
    """An option as a word: its value, or its name if it is a switch."""
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return "" if value is None else str(value)


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
        document, counts = read_promises(path), path.with_suffix(".json")
        counted = read_counted(counts) if add or not stores else Counted()
        added = count(document, stored(map(Path, stores)), counted)
        lines = "\n".join(table(document.promises, counted.tallies))
        if add:
            page = docs / f"{path.stem}.md"
            text = replaced(page.read_text(encoding="utf-8"), lines)
            counted.write(counts)
            write_text(page, text, "the page")
            print(f"{added} runs were added to {counts}; their table is in {page}")
        else:
            print(lines)
    except (OSError, ValueError, OptionError) as problem:
        print(f"promises: {problem}", file=sys.stderr)
        return 2
    return 0


def _names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
