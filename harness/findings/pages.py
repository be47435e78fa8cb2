# SPDX-License-Identifier: Apache-2.0
"""Documents made from the record: the table of `docs/track-record.md`, and the head and end of each finding's page.

Text that people write stays: only the part between `<!-- record -->` and `<!-- end of record -->` is replaced, and the
part behind `<!-- issue -->`.
`python -m harness.findings.pages DOCS` writes them; a test fails when they are out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.findings.issue_text import project
from harness.findings.pictures import picture_of
from harness.findings.rates import ERROR, describe
from harness.findings.record import Finding, read_findings
from harness.findings.signature import Signature
from infra.systems.mends.catalog import mend_of
from results.durable import write_text

BEGIN: Final = "<!-- record -->"
END: Final = "<!-- end of record -->"

ISSUE: Final = "<!-- issue -->"

TABLE: Final = "track-record.md"
FOLDER: Final = "findings"


def documents(findings: Sequence[Finding], docs: Path) -> Mapping[Path, str]:
    """Path -> its whole text as it should be. A page that does not exist yet gets its head and nothing else."""
    found = {docs / TABLE: replaced((docs / TABLE).read_text(encoding="utf-8"), "\n".join(_table(findings)))}
    for finding in findings:
        path = docs / FOLDER / f"{finding.file}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
        text = replaced(old, "\n".join([*_head(finding), *_picture(finding, docs)])).partition(ISSUE)[0].rstrip("\n")
        found[path] = "\n".join([text, "", *_end(finding)]) + "\n"
    return found


def replaced(text: str, made: str) -> str:
    """A page with other text between the two marks of the record. Raises ValueError if they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no {BEGIN} followed by {END}")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def write_table(lines: Sequence[str], page: Path | None) -> None:
    """Writes lines of Markdown between the two marks of a page, or prints them. Raises OSError, ValueError."""
    if page is None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    else:
        write_text(page, replaced(page.read_text(encoding="utf-8"), "\n".join(lines)), "the table")


def _table(findings: Sequence[Finding]) -> Iterator[str]:
    yield "| # | bug | where | command | rate |"
    yield "|---|---|---|---|---|"
    for finding in findings:
        link = f"[{finding.title}]({FOLDER}/{finding.file}.md)"
        shown = "; ".join([*rates(finding), *([finding.remark] if finding.remark else [])])
        yield f"| {finding.id} | {link} | {finding.system} | {finding.shows()} | {shown} |"


def rates(finding: Finding) -> Iterator[str]:
    """Rates of its command, on other versions, and with its control; those of other changes are on its page."""
    for change, rate in finding.rates().items():
        option, _, version = change.partition(" ")
        if not change:
            yield describe(*rate)
        elif option == "--version" and " " not in version:
            yield f"{version}: {describe(*rate)}"
    if finding.mended()[1]:
        yield f"{'control' if finding.control else 'mended'}: {describe(*finding.mended())}"


def _head(finding: Finding) -> Iterator[str]:
    yield f"# {finding.id}. {finding.title[0].upper()}{finding.title[1:]}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| where | {finding.system} |"
    yield f"| command | {finding.shows()} |"
    if finding.command:
        yield f"| again, with a rate | `harness reproduce {finding.id}` |"
    if finding.signature is not None:
        yield from _signature(finding.signature)
    if finding.cause:
        yield f"| cause | `{finding.cause}` |"
    mend = mend_of(finding.id)
    if mend is not None:
        where = " and ".join(mend.versions)
        yield f"| mend | `--mend {mend.id}` on {where}: {mend.reason} ([mends](../mends.md)) |"
    if finding.control:
        yield f"| control | `{finding.control}` |"
    if finding.upstream:
        yield f"| upstream | {finding.upstream} |"
    for change, (shown, runs) in finding.rates().items():
        yield f"| {f'rate with `{change}`' if change else 'rate'} | {describe(shown, runs)} |"
    if finding.mended()[1]:
        chance = finding.chance()
        means = "explained: this excludes the rate above" if chance <= ERROR else "too few runs to separate the rates"
        name = "control" if finding.control else "mend"
        yield f"| with the {name} | {describe(*finding.mended())}; {means} ({chance:.3f}) |"


def _picture(finding: Finding, docs: Path) -> Iterator[str]:
    """A picture of a real run that shows it, if one was drawn."""
    picture = picture_of(finding)
    if (docs / FOLDER / picture).exists():
        yield ""
        yield f"![The course of a run that shows finding {finding.id}: what clients got, who led]({picture})"


def _end(finding: Finding) -> Iterator[str]:
    if finding.issue is None:
        return
    yield ISSUE
    yield f"**What is promised.** {finding.issue.promised}"
    yield ""
    if finding.issue.meanwhile:
        yield f"**Meanwhile.** {finding.issue.meanwhile}"
        yield ""
    yield f"**An issue**, ready to file for {project(finding)}: `harness reproduce {finding.id} --issue`"


def _signature(signature: Signature) -> Iterator[str]:
    names = ", ".join(f"[`{name}`](../anomalies.md#{name})" for name in signature.anomalies)
    yield f"| seen as | {names} |"
    if signature.says is not None:
        yield f"| which says | `{signature.says.pattern}` |"
    if signature.after:
        yield f"| after a fault of effect | {', '.join(signature.after)} |"
    if signature.log is not None:
        when = " in that time" if signature.during else ""
        yield f"| with the log line{when} | {signature.describe_log().replace('|', chr(92) + '|')} |"
    if signature.other is not None:
        yield "| or | |"
        yield from _signature(signature.other)


def main(argv: Sequence[str]) -> None:
    """Writes all documents below the named folder."""
    docs = Path(argv[0] if argv else "docs")
    for path, text in documents(read_findings(), docs).items():
        path.parent.mkdir(exist_ok=True)
        write_text(path, text, "the page")


if __name__ == "__main__":
    main(sys.argv[1:])
