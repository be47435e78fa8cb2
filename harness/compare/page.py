# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: one HTML file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from harness.compare.evidence import ERROR, MISS
from harness.compare.outcome import FIGURES, Outcome
from harness.compare.pairs import NEW, OLD, Course, Sample
from harness.compare.pairs import describe as describe_run
from harness.findings.rates import describe
from harness.findings.record import Finding
from results.report.layout import render_template

TEST: Final = (
    f"The test was fixed before the first run: two equal builds are called different with a probability of {ERROR:.0%} "
    "at most, over all anomalies and cells; a difference between nearly never and nearly always is called as before "
    f"with a probability of {MISS:.0%} at most. The intervals are those of Clopper and Pearson, 95 %. Evidence is "
    "the likelihood ratio that was reached, and the one that decides."
)


def compare_page(course: Course, found: Outcome, findings: Sequence[Finding], page: Path) -> str:
    """The page as HTML. page: its later place (links to the runs' reports are relative to it)."""
    comparison = course.comparison
    titles = {f"finding {finding.id}": finding.title for finding in findings}
    return render_template(
        "compare.html.j2",
        verdict=found.verdict,
        line=found.line(course.seconds).partition("   ")[2].replace("   ", "; "),
        head=[
            ("new build", comparison.builds[NEW]),
            ("old build", comparison.builds[OLD]),
            ("classes that differ", comparison.differ),
            ("suite", comparison.suite),
            ("seed", str(comparison.seed)),
            ("pairs", f"{found.pairs} in {course.seconds / 60:.0f} minutes; {course.ended or 'under way'}"),
        ],
        cells_shown=[
            (
                cell,
                [
                    (
                        row,
                        row.state.value.split()[0],
                        titles.get(row.thing, ""),
                        describe(row.new, row.pairs),
                        describe(row.old, row.pairs),
                    )
                    for row in found.rows
                    if row.cell == cell
                ],
                [(one, FIGURES[one.figure]) for one in found.figures if one.cell == cell],
            )
            for cell in found.cells
        ],
        short=found.short,
        test=TEST,
        cells=[
            {"name": cell.name, "why": cell.why, "command": shlex.join([*cell.args, *comparison.options])}
            for cell in comparison.cells
        ],
        pairs=[
            (number, comparison.cells[pair.cell].name, pair, [_run(one, page) for one in (pair.new, pair.old)])
            for number, pair in enumerate(course.pairs, start=1)
        ],
    )


def _run(sample: Sample, page: Path) -> tuple[Sample, str, str]:
    """(the run, what it showed, the link to its report)."""
    report = Path(sample.folder) / "report.html" if sample.folder else None
    there = report is not None and report.is_file()
    return sample, describe_run(sample), quote(os.path.relpath(report, page.parent)) if report and there else ""
