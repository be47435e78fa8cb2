# SPDX-License-Identifier: Apache-2.0
"""The tables of `docs/operators.md`, made from the record: for each version, topology and fault, what was measured.

`python -m rocketmq_harness.advice.pages DOCS` writes them; a test fails when they are out of date. The text around them
stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.findings.pages import FOLDER, replaced
from harness.findings.record import Finding, read_findings
from infra.systems.rocketmq.servers.artifacts import VERSIONS
from results.durable import write_text
from rocketmq_harness.advice.measured import COLUMNS, OTHER, Held, Series, promises_held, series_of
from rocketmq_harness.advice.setup import TOPOLOGIES

PAGE: Final = "operators.md"
NOT_MEASURED: Final = "not measured"

_TABLES: Final = (*((topology, VERSIONS) for topology in TOPOLOGIES), ("dledger", ("0.4.0",)))
"""Topology -> its rows."""


def page(findings: Sequence[Finding], docs: Path) -> str:
    """The whole text of the page as it should be. Raises OSError, ValueError."""
    return replaced((docs / PAGE).read_text(encoding="utf-8"), "\n".join(tables(findings, promises_held())))


def tables(findings: Sequence[Finding], held: Sequence[Held]) -> Iterator[str]:
    """The lines of all tables: a table for each topology, a row for each version, a column for each kind of fault."""
    files = {finding.id: finding.file for finding in findings}
    series = series_of(findings)
    for place, (topology, versions) in enumerate(_TABLES):
        if place:
            yield ""
        yield f"**`{topology}`**{' (DLedger alone, no RocketMQ)' if topology == 'dledger' else ''}"
        yield ""
        columns = (*COLUMNS, OTHER)
        yield f"| version | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for version in versions:
            cells = []
            for column in columns:
                runs = [s for s in series if s.of(version) and s.topology == topology and column in s.faults]
                kept = [h for h in held if (h.version, h.topology) == (version, topology) and column in h.faults]
                cells.append(cell(runs, kept, files))
            yield f"| {version} | {' | '.join(cells)} |"


def cell(series: Iterable[Series], held: Iterable[Held], files: dict[int, str]) -> str:
    """One cell: findings with their rates, those that did not show, and promises; `NOT_MEASURED` without any run."""
    counts: dict[int, list[Series]] = {}
    for one in series:
        counts.setdefault(one.finding, []).append(one)
    seen: list[str] = []
    unseen: list[str] = []
    for number, runs in sorted(counts.items()):
        shown, of = sum(one.shown for one in runs), sum(one.runs for one in runs)
        mended = "\\*" if any(one.mended for one in runs) else ""
        text = f"[{number}]({FOLDER}/{files[number]}.md){mended} {shown} of {of}"
        if of:
            (seen if shown else unseen).append(text)
    parts = seen + ([f"not seen: {', '.join(unseen)}"] if unseen else []) + list(_promises(held))
    return "; ".join(parts) or NOT_MEASURED


def _promises(held: Iterable[Held]) -> Iterator[str]:
    """`promises Q: 7 held, in 1 run each`; the broken ones by name."""
    documents: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for one in held:
        row = documents.setdefault((one.short, one.document), {})
        kept, runs = row.get(one.promise, (0, 0))
        row[one.promise] = kept + one.held, runs + one.runs
    for (short, document), row in documents.items():
        broken = [f"{name} held in {kept} of {runs}" for name, (kept, runs) in sorted(row.items()) if kept < runs]
        whole = [runs for kept, runs in row.values() if kept == runs]
        parts = broken
        if whole:
            least, most = min(whole), max(whole)
            number = f"{least}" if least == most else f"{least} to {most}"
            others = "others " if broken else ""
            parts = [*broken, f"{len(whole)} {others}held, in {number} run{'s' if most > 1 else ''} each"]
        yield f"promises [{short}]({document}.md): {', '.join(parts)}"


def main(argv: Sequence[str]) -> None:
    """Writes the page below the named folder."""
    docs = Path(argv[0] if argv else "docs")
    write_text(docs / PAGE, page(read_findings(), docs), "the page")


if __name__ == "__main__":
    main(sys.argv[1:])
