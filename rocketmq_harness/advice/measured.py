# SPDX-License-Identifier: Apache-2.0
"""The runs behind the record, by version, topology and fault: series of findings, and counts of promises."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from harness.findings.record import DATA, Finding
from harness.shipped import shipped
from infra.systems.mends.catalog import ALL, ids, mend_of
from results.reading import read_json, read_toml

COLUMNS: Final = ("process", "cut", "power", "disk full", "dead disk", "clock", "upgrade")
OTHER: Final = "no fault, or another one"

_NAMES: Final = tomllib.loads((Path(__file__).parent / "measured.toml").read_text())

FAULTS: Final[Mapping[str, str]] = {name: column for column in COLUMNS for name in _NAMES["columns"][column]}
"""Nemesis -> its column; others are in `OTHER`."""

_SPOKEN: Final = {
    "stopped": "process",
    "stop": "process",
    "killed": "process",
    "kill": "process",
    "cut off": "cut",
    "cut": "cut",
    "split": "cut",
}
"""Names of faults in the counts of promises -> column."""

TOPOLOGY_OF: Final[Mapping[str, str]] = _NAMES["topologies"]
"""Workload -> the topology on which it runs if a command names none."""

_PROMISES: Final[Mapping[str, tuple[str, str]]] = {
    document: (topology, short) for document, (topology, short) in _NAMES["promises"].items()
}
"""Counted documents -> the topology of all their runs ("": the counts have it), and a short name."""

_DATA: Final = DATA.with_name("promises")


@dataclass(frozen=True)
class Series:
    """Runs of one finding on servers without its mend. faults: columns. mended: with mends of other findings."""

    finding: int
    version: str
    topology: str
    faults: frozenset[str]
    shown: int
    runs: int
    mended: bool

    def of(self, version: str) -> bool:
        """True if servers of this version took part."""
        return version in self.version.split("+")


@dataclass(frozen=True)
class Held:
    """Runs in which a promise of a document could be judged, of one version, topology and fault."""

    document: str
    short: str
    promise: str
    version: str
    topology: str
    faults: frozenset[str]
    held: int
    runs: int


def series_of(findings: Iterable[Finding]) -> list[Series]:
    """The series of findings, without those that try a remedy: with a finding's own mend or control, or with settings
    under which it did not show. Raises ValueError for a command whose words do not parse, OSError for its plan.
    """
    return [series for finding in findings for series in _of_finding(finding)]


def _of_finding(finding: Finding) -> Iterator[Series]:
    mend = mend_of(finding.id)
    own = {ALL, str(finding.id), *(map(str, mend.findings) if mend else ())}
    for one in finding.measured:
        words = [*finding.args(), *shlex.split(one.change)]
        options = dict(pair for pair in pairwise(words) if pair[0].startswith("--"))
        mends = set(ids(value for word, value in pairwise(words) if word == "--mend"))
        remedy = "--set" in shlex.split(one.change) and not one.shown
        if not one.version or remedy or mends & own or (finding.control and finding.control in one.change):
            continue
        topology, faults = _set_up(options, finding.topologies)
        if one.change and not one.change.startswith("--"):
            faults = frozenset({OTHER})
        yield Series(finding.id, one.version, topology, faults, one.shown, one.runs, bool(mends))


def _set_up(options: Mapping[str, str], seen_on: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The topology and the columns of the faults of a command. seen_on: where the finding was seen; empty: anywhere. A
    command without a topology ran on one of these, although the workload's first one may be another by now.
    """
    plan = _plan(options["--plan"]) if "--plan" in options else {}
    named = [str(one.get("fault")) for key in ("nemesis", "strike") for one in plan.get(key, ())]
    if "--nemesis" in options:
        named = [part.split()[0] for part in options["--nemesis"].split(",") if part.split()]
    workload = options.get("--workload") or str(plan.get("workload", "log"))
    topology = options.get("--topology") or plan.get("server", {}).get("topology")
    if not topology:
        topology = TOPOLOGY_OF.get(workload, "")
        topology = topology if not seen_on or topology in seen_on else seen_on[0]
    return str(topology), frozenset(FAULTS.get(name, OTHER) for name in named) or frozenset({OTHER})


@cache
def _plan(path: str) -> Mapping[str, Any]:
    return read_toml(shipped(Path(path)))


@cache
def promises_held() -> Sequence[Held]:
    """The counts of promises on published servers."""
    return [one for name in _PROMISES for one in _of_document(name)]


def _of_document(name: str) -> Iterator[Held]:
    fixed, short = _PROMISES[name]
    for promise, row in read_json(_DATA / f"{name}.json")["tallies"].items():
        for kind, tally in row.items():
            version, *words = kind.split()
            if "mended" in words:
                continue
            topology = fixed or words.pop(0)
            spoken = " ".join(words)
            columns = {column for word, column in _SPOKEN.items() if word == spoken}
            columns |= {FAULTS.get(word, OTHER) for word in words if word in FAULTS or "-" in word}
            yield Held(
                name, short, promise, version, topology, frozenset(columns or {OTHER}), tally["held"], tally["runs"]
            )
