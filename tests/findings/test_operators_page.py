# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md: what was measured, and above all what was not."""

from __future__ import annotations

import re
from pathlib import Path

from harness.findings.record import read_findings
from infra.systems.rocketmq.servers.artifacts import VERSIONS
from rocketmq_harness.advice import pages
from rocketmq_harness.advice.measured import COLUMNS, OTHER, Held, Series, promises_held, series_of
from rocketmq_harness.advice.setup import TOPOLOGIES

DOCS = Path(__file__).parents[2] / "docs"
FINDINGS = read_findings()
FILES = {finding.id: finding.file for finding in FINDINGS}


def series(finding: int, shown: int, runs: int, *, mended: bool = False) -> Series:
    return Series(finding, "5.5.0", "controller", frozenset({"cut"}), shown, runs, mended)


def held(promise: str, kept: int, runs: int) -> Held:
    return Held("quorum-ack", "Q", promise, "5.5.0", "controller", frozenset({"cut"}), kept, runs)


def test_the_page_is_made_from_the_record() -> None:
    made = pages.page(FINDINGS, DOCS)
    assert (DOCS / pages.PAGE).read_text() == made, "make it: rocketmq_harness.advice.pages docs"


def test_a_cell_without_a_run_says_so() -> None:
    assert pages.cell([], [], FILES) == "not measured"
    assert pages.cell([series(5, 0, 0)], [], FILES) == "not measured"


def test_a_cell_has_findings_those_that_did_not_show_and_promises() -> None:
    runs = [series(5, 2, 3), series(5, 1, 2), series(8, 4, 10, mended=True), series(31, 0, 2)]
    kept = [held("Q1", 1, 1), held("Q2", 3, 3), held("Q7", 1, 2)]
    assert pages.cell(runs, kept, FILES) == (
        "[5](findings/05-cut-off-master.md) 3 of 5; [8](findings/08-follows-the-deposed-master.md)\\* 4 of 10; "
        "not seen: [31](findings/31-keeps-the-deposed-tail.md) 0 of 2; "
        "promises [Q](quorum-ack.md): Q7 held in 1 of 2, 2 others held, in 1 to 3 runs each"
    )


def test_every_version_topology_and_fault_has_its_cell() -> None:
    rows = [line for line in pages.tables(FINDINGS, promises_held()) if re.match(r"\| \d", line)]
    assert len(rows) == len(VERSIONS) * len(TOPOLOGIES) + 1
    for row in rows:
        cells = [text.strip() for text in row.strip("|").split("|")]
        assert len(cells) == len(COLUMNS) + 2
        assert all(cells)


def test_every_series_is_in_a_cell() -> None:
    """A version, topology or fault that the page does not know would be passed over in silence."""
    places = {(topology, version) for topology, versions in pages._TABLES for version in versions}
    for one in series_of(FINDINGS):
        assert one.faults <= {*COLUMNS, OTHER}
        for version in one.version.split("+"):
            assert (one.topology, version) in places, one
    for kept in promises_held():
        assert (kept.topology, kept.version) in places, kept
