# SPDX-License-Identifier: Apache-2.0
"""The tables of `docs/analysis.md`, which has all findings by what a reader cares about, with their rates. Also the
number of findings in `docs/index.md`.

`python -m rocketmq_harness.advice.analysis DOCS` writes them; a test fails if they are out of date, or if a finding
is in no group. The text around them stays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.findings.pages import FOLDER, rates
from harness.findings.record import Finding, read_findings
from infra.systems.mends.catalog import mend_of
from results.durable import write_text

PAGE: Final = "analysis.md"

GROUPS: Final[Mapping[str, Sequence[int]]] = {
    "loss": (5, 12, 20, 24, 47, 51, 59, 70, 77, 79, 83, 93),
    "disks": (14, 15, 17, 18, 19, 22, 43, 48, 52, 55, 57),
    "reads": (2, 8, 31, 37, 65, 67, 69, 76, 78),
    "availability": (1, 4, 7, 10, 16, 21, 23, 25, 27, 28, 42, 49, 58, 61, 63, 64, 73, 74),
    "controllers": (13, 32, 33, 38, 39, 40, 60, 62, 66, 71),
    "consumers": (
        6,
        11,
        26,
        29,
        30,
        34,
        35,
        36,
        41,
        44,
        45,
        46,
        50,
        53,
        72,
        75,
        80,
        81,
        82,
        84,
        85,
        86,
        87,
        88,
        89,
        90,
        91,
        92,
        94,
        95,
    ),
    "cost": (3, 9, 54, 56, 68),
}
"""Name of a table on the page -> ids of its findings: what somebody notices first."""


def page(findings: Sequence[Finding], docs: Path) -> str:
    """The whole text of the page as it should be. Raises OSError, ValueError."""
    text = (docs / PAGE).read_text(encoding="utf-8")
    for name, ids in GROUPS.items():
        made = "\n".join(table([finding for finding in findings if finding.id in ids]))
        text = _between(text, f"<!-- {name} -->", f"<!-- end of {name} -->", f"\n{made}\n")
    mends = sum(mend_of(finding.id) is not None for finding in findings)
    return counted(_between(text, "<!-- mends -->", "<!-- end -->", str(mends)), findings)


def counted(text: str, findings: Sequence[Finding]) -> str:
    """A page with the number of findings. Raises ValueError."""
    return _between(text, "<!-- findings -->", "<!-- end -->", str(len(findings)))


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """The lines of a table."""
    yield "| # | finding | where | rate |"
    yield "|---|---|---|---|"
    for finding in findings:
        link = f"[{finding.title}]({FOLDER}/{finding.file}.md)"
        yield f"| {finding.id} | {link} | {finding.system} | {'; '.join(rates(finding))} |"


def _between(text: str, begin: str, end: str, made: str) -> str:
    found = re.subn(
        f"({re.escape(begin)}).*?({re.escape(end)})", lambda m: m[1] + made + m[2], text, count=1, flags=re.S
    )
    if not found[1]:
        raise ValueError(f"there is no {begin} followed by {end}")
    return found[0]


if __name__ == "__main__":
    folder, known = Path(sys.argv[1]), read_findings()
    write_text(folder / PAGE, page(known, folder), "the page of the analysis")
    first = folder / "index.md"
    write_text(first, counted(first.read_text(encoding="utf-8"), known), "the first page")
