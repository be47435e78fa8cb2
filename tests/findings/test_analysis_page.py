# SPDX-License-Identifier: Apache-2.0
"""docs/analysis.md: every finding is in one table of it, with the rate of the record."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from harness.findings.record import read_findings
from rocketmq_harness.advice import analysis

DOCS = Path(__file__).parents[2] / "docs"
FINDINGS = read_findings()
TEXT = (DOCS / analysis.PAGE).read_text()


def test_the_tables_are_made_from_the_record() -> None:
    assert analysis.page(FINDINGS, DOCS) == TEXT, "make them: python -m rocketmq_harness.advice.analysis docs"
    first = (DOCS / "index.md").read_text()
    assert analysis.counted(first, FINDINGS) == first


def test_each_finding_is_in_one_group() -> None:
    counts = Counter(number for ids in analysis.GROUPS.values() for number in ids)
    assert {number for number, times in counts.items() if times > 1} == set()
    assert set(counts) == {finding.id for finding in FINDINGS}, "rocketmq_harness/advice/analysis.py: GROUPS"


def test_a_number_in_brackets_is_that_of_a_finding() -> None:
    known = {str(finding.id) for finding in FINDINGS}
    prose = re.sub(r"^\|.*$", "", TEXT, flags=re.MULTILINE)
    for numbers in re.findall(r"(?<!\])\((\d+(?:, \d+)*)\)", prose):
        assert set(numbers.split(", ")) <= known


def test_the_text_names_no_finding_by_a_wrong_page() -> None:
    files = {str(finding.id): finding.file for finding in FINDINGS}
    for number, file in re.findall(r"\[(?:finding )?(\d+)\]\(findings/([\w-]+)\.md\)", TEXT):
        assert files[number] == file
