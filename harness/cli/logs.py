# SPDX-License-Identifier: Apache-2.0
"""The command `harness logs`: the log lines of the findings in an operator's own logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import terminal
from harness.boundary import end
from harness.plan.plan import PlanError
from harness.values import FilePath
from results.verdict import Verdict

if TYPE_CHECKING:
    from harness.findings.operator_logs import Place, Searched, Sighted
    from harness.findings.record import Finding

_WIDTH = 10


@click.command()
@click.argument("folder", type=FilePath(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of the text.")
def logs(folder: Path, as_json: bool) -> None:
    """Search your own logs for the lines of known findings: where each may have happened, and what to look at.

    DIR has logs of brokers, controllers, name servers or DLedger, also compressed ones (gzip, bzip2, xz), in any
    folders below it; no servers are needed. A line means that a finding may have happened. No line means nothing for
    the findings that have no line in a log; the command names these. The exit code is 1 if a line was found, 0 if none
    was, 2 if none was and there was nothing to read, or a file could not be read.

    \b
    harness logs /var/log/rocketmq
    harness logs n3/broker.log --json
    """
    from harness.findings.operator_logs import has_line, search
    from harness.findings.record import read_findings

    findings = read_findings()
    try:
        found = search(folder, findings)
    except OSError as problem:
        raise PlanError(f"{folder}: cannot be read: {problem.strerror or problem}") from None
    unseen = [finding for finding in findings if not has_line(finding)]
    if as_json:
        terminal.put(json.dumps(_json(folder, found, unseen), indent=1) + "\n", sys.stdout)
    else:
        terminal.say_all(_report(folder, found, unseen, len(findings)))
    complete = found.stamped and not found.unread
    code = Verdict.INVALID if found.sighted else Verdict.VALID if complete else Verdict.UNKNOWN
    end(code.exit_code)


def _report(folder: Path, found: Searched, unseen: Sequence[Finding], findings: int) -> Iterator[str]:
    from harness.findings.ordinary import ORDINARY

    sighted = [found.sighted[number] for number in sorted(found.sighted)]
    for one in (one for one in sighted if one.finding.id not in ORDINARY):
        yield from _of_finding(one)
        yield ""
    weak = [one for one in sighted if one.finding.id in ORDINARY]
    if weak:
        yield "Lines that servers also write without the defect. They matter beside a symptom of their finding:"
        yield ""
    for one in weak:
        yield from _of_finding(one)
        yield _row("but", ORDINARY[one.finding.id])
        yield ""
    for name, why in found.skipped[:20]:
        yield f"not read: {name}: {why}"
    more = len(found.skipped[20:]) + found.more_skipped
    if more:
        yield f"not read: {more} more files; --json names {len(found.skipped)}"
    yield f"read: {found.lines:,} lines in {found.files:,} files of {folder}"
    if not found.stamped:
        yield "no line has a time such as 2026-11-03 12:01:02: these are no logs of RocketMQ, or they are empty"
    yield f"not visible in any log, so not searched for: the findings {', '.join(str(one.id) for one in unseen)}"
    seen = f"{len(sighted)} of the {findings - len(unseen)} findings that have a line in a log"
    yield (
        f"{seen} may have happened here"
        if sighted
        else f"none of the {findings - len(unseen)} findings with a line was seen"
    )


def _of_finding(one: Sighted) -> Iterator[str]:
    finding, first = one.finding, one.places[0]
    issue, signature = finding.issue, finding.signature
    yield f"finding {finding.id} may have happened here: {_at(first)}; {finding.title}"
    yield _row("line", first.text)
    for place in one.places[1:]:
        yield _row("also", _at(place))
    if one.last is not None and one.last not in one.places:
        yield _row("last", f"{_at(one.last)}; {one.count:,} lines in all")
    yield _row("seen in", finding.system)
    if signature is not None and signature.after:
        yield _row("needs", f"a fault before it: {', '.join(signature.after)}")
    if issue is not None:
        yield _row("look at", issue.happens)
        yield _row("meanwhile", issue.meanwhile or "nothing is known")
    yield _row("page", f"{finding.page}, or harness reproduce {finding.id} --page")


def _row(name: str, text: str) -> str:
    return f"  {name:<{_WIDTH}}{text}"


def _at(place: Place) -> str:
    """`2026-11-03 12:01, n3/broker.log, line 8812`."""
    more = f" and {place.more:,} more in this minute" if place.more else ""
    note = f" ({place.note})" if place.note else ""
    return f"{place.time[:16] or 'at an unknown time'}, {place.file}, line {place.line}{more}{note}"


def _json(folder: Path, found: Searched, unseen: Sequence[Finding]) -> dict[str, Any]:
    from harness.findings.ordinary import ORDINARY

    return {
        "folder": str(folder),
        "files": found.files,
        "lines": found.lines,
        "times": found.stamped,
        "findings": [
            {
                "id": one.finding.id,
                "title": one.finding.title,
                "system": one.finding.system,
                "also_without_the_defect": ORDINARY.get(one.finding.id),
                "lines": one.count,
                "places": [vars(place) for place in one.places],
                "last": None if one.last is None else vars(one.last),
                "happens": one.finding.issue.happens if one.finding.issue else "",
                "meanwhile": one.finding.issue.meanwhile if one.finding.issue else "",
                "page": one.finding.page,
            }
            for _, one in sorted(found.sighted.items())
        ],
        "not_visible_in_logs": [{"id": one.id, "title": one.title} for one in unseen],
        "not_read": [{"file": name, "why": why} for name, why in found.skipped],
        "more_not_read": found.more_skipped,
        "not_read_and_maybe_logs": found.unread,
    }
