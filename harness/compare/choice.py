# SPDX-License-Identifier: Apache-2.0
"""The cells of a comparison: those whose classes differ between the two builds, else a fixed core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.findings.rates import interval
from harness.findings.record import Finding
from harness.nightly.matrix import Cell, Matrix
from harness.plan.plan import Plan
from harness.shipped import shipped
from harness.values import duration
from infra.systems.builds import Build

SUITE: Final = "pr"
"""The name of the suite that is chosen by classes."""

FILE: Final = Path("examples/suites/pr.toml")

MOST: Final = 4
"""The most cells of the suite `pr`: two pairs of each take 15 minutes."""

CERTAIN: Final = 0.4
"""The command of a finding joins the suite `pr` if its rate is this or more (the lower end of the interval)."""

_AROUND_S: Final = 40.0
"""Seconds of a run besides its main phase, as an estimate until the first one has ended."""


@dataclass(frozen=True)
class Chosen:
    """A cell of a comparison.

    args     options of `harness run`, without those that the comparison sets (version, jars, seed, store).
    why      the reason for the choice.
    estimate seconds of one run.
    """

    name: str
    args: Sequence[str]
    why: str = ""
    estimate: float = 60.0


def all_of(matrix: Matrix) -> list[Chosen]:
    """Every cell of a suite, once: the comparison gives the version."""
    found = {(one := _chosen(cell, matrix, "in the suite")).name: one for cell in matrix.cells}
    return list(found.values())


def by_classes(matrix: Matrix, build: Build, findings: Sequence[Finding], version: str) -> list[Chosen]:
    """The cells of the suite `pr` for the classes that differ: those that have most of them, and the command of the
    finding that names most of them; the core fills up.
    """
    classes = [*build.changed, *build.added]
    fitting = sorted(
        ((cell, found) for cell in matrix.cells if (found := [c for c in classes if _about(cell, c)])),
        key=lambda one: (-len(one[1]), -max(_about(one[0], name) for name in one[1])),
    )
    cells = [_chosen(cell, matrix, f"classes: {_names(found)}") for cell, found in fitting[:MOST]]
    shown = {number for cell, _ in fitting[:MOST] for number in cell.shows}
    own = _of_findings(findings, classes, version, shown)
    cells = [*own, *cells][:MOST]
    for cell in matrix.cells:
        one = _chosen(cell, matrix, "core")
        if cell.core and len(cells) < MOST and one.name not in {other.name for other in cells}:
            cells.append(one)
    return cells


def of_finding(finding: Finding, why: str = "named") -> Chosen:
    """A finding's own command."""
    words = without(finding.args(), "--version")
    limit = next((words[n + 1] for n, word in enumerate(words[:-1]) if word == "--time-limit"), "")
    plan = next((words[n + 1] for n, word in enumerate(words[:-1]) if word == "--plan"), "")
    return Chosen(f"finding {finding.id}", words, f"{why}: {finding.title}", _estimate(limit, plan))


def without(words: Sequence[str], flag: str) -> list[str]:
    """The words without an option and its value."""
    found: list[str] = []
    skip = False
    for word in words:
        if not skip and word != flag and not word.startswith(f"{flag}="):
            found.append(word)
        skip = not skip and word == flag
    return found


def _about(cell: Cell, name: str) -> int:
    """The length of the longest prefix of the cell that the class has; 0: none. A prefix may end within a name."""
    return max((len(prefix) for prefix in cell.classes if name.startswith(prefix)), default=0)


def _of_findings(findings: Sequence[Finding], classes: Sequence[str], version: str, shown: set[int]) -> list[Chosen]:
    """The command of at most one finding, all of whose classes differ: the one with most of them, then the one that
    shows most certainly. None if a cell of the suite shows such a finding.
    """
    names = {name.rpartition(".")[2] for name in classes}
    fitting = [one for one in findings if one.touches and one.touches <= names and _on(one, version)]
    if any(finding.id in shown for finding in fitting):
        return []
    fitting = [one for one in fitting if one.command and _certain(one) >= CERTAIN]
    fitting.sort(key=lambda one: (-len(one.touches), -_certain(one), one.id))
    return [of_finding(one, f"classes: {_names(sorted(one.touches))}") for one in fitting[:1]]


def _on(finding: Finding, version: str) -> bool:
    """True if its own command showed it on this version."""
    return any(one.shown and not one.change and version in one.version.split("+") for one in finding.measured)


def _certain(finding: Finding) -> float:
    return interval(*finding.rates().get("", (0, 0)))[0]


def _chosen(cell: Cell, matrix: Matrix, why: str) -> Chosen:
    limit = next(iter(matrix.limit(cell)[1:]), "")
    args = [*without(cell.args(), "--version"), *matrix.limit(cell)]
    words = [cell.workload, cell.topology, cell.nemesis, cell.options, Path(cell.plan).stem]
    return Chosen(", ".join(word for word in words if word), args, why, _estimate(limit, cell.plan))


def _estimate(limit: str, plan: str) -> float:
    read = Plan.read(shipped(Path(plan))) if plan else Plan()
    return _AROUND_S + (duration(limit) if limit else read.time_limit_s)


def _names(classes: Sequence[str], most: int = 4) -> str:
    short = [name.rpartition(".")[2] for name in classes]
    more = f" and {len(short) - most} more" if len(short) > most else ""
    return ", ".join(short[:most]) + more


def minutes_of(cells: Sequence[Chosen]) -> int:
    """Minutes of two pairs of each cell, as an estimate."""
    return math.ceil(sum(4 * cell.estimate for cell in cells) / 60)


def with_version(matrix: Matrix, version: str) -> Matrix:
    """The matrix with all cells on one version."""
    return replace(matrix, cells=[replace(cell, version=version) for cell in matrix.cells])
