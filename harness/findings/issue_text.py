# SPDX-License-Identifier: Apache-2.0
"""The text of an issue for the project whose servers have the defect, ready to file (`harness reproduce N --issue`).

It has the fields of RocketMQ's bug report (`.github/ISSUE_TEMPLATE/bug_report.yml` of apache/rocketmq); DLedger has no
template, and gets the same. Its readers do not know this harness: so it describes the events in the servers, and
the command comes with the repository that it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from harness.findings.rates import describe, interval
from harness.findings.record import Finding, Issue
from infra.systems.mends.catalog import mend_of

_PROJECTS: Final = {
    "rocketmq-client-cpp": "apache/rocketmq-client-cpp",
    "RocketMQ": "apache/rocketmq",
    "DLedger": "openmessaging/dledger",
}
_SERVERS: Final = re.compile(rf"({'|'.join(_PROJECTS)}) ([^,:]*)[,:]? *(.*)")
"""`system` of a finding: the servers, their versions, and their set-up."""

_PLATFORM: Final = "Debian 12, Linux, nodes in containers or network namespaces of one machine"
_JDK: Final = "OpenJDK 17"


def project(finding: Finding) -> str:
    """`owner/name` of the repository where the issue belongs."""
    return _PROJECTS[_servers(finding)[0]]


def _servers(finding: Finding) -> Sequence[str]:
    found = _SERVERS.search(finding.system)
    if found is None:
        raise ValueError(f"{finding.file}: system names none of {', '.join(_PROJECTS)}: {finding.system}")
    return found.groups()


def issue_text(finding: Finding, issue: Issue) -> str:
    """Markdown: the title, and a section for each field of the form."""
    server, versions, rest = _servers(finding)
    configuration = issue.configuration or rest
    return "\n\n".join(
        (
            f"**[Bug] {finding.title[0].upper()}{finding.title[1:]}**",
            f"### Runtime platform environment\n{_PLATFORM}",
            f"### {server} version\n{versions}" + (f"\n\nConfiguration: {configuration}" if configuration else ""),
            f"### JDK Version\n{_JDK}",
            f"### Describe the Bug\n{issue.happens}\n\n{issue.why}",
            f"### Steps to Reproduce\n{_steps(finding)}",
            f"### What Did You Expect to See?\n{issue.promised}",
            f"### What Did You See Instead?\n{_seen(finding)}",
            "### Additional Context\n" + "\n".join(_context(finding)),
        )
    )


def _steps(finding: Finding) -> str:
    if not finding.command:
        return _unlinked(finding.by_hand)
    return f"With a checkout of the test harness that found it:\n\n    make setup\n    harness run {finding.command}"


def _seen(finding: Finding) -> str:
    shown, runs = finding.rates().get("", (0, 0))
    low, high = interval(shown, runs)
    rate = f"It showed in {shown} of {runs} runs (95 % interval of the rate: {low:.2f} to {high:.2f})."
    unmeasured = "How often these steps show it is not measured yet."
    return "\n\n".join(filter(None, (rate if runs else unmeasured, _unlinked(finding.remark))))


def _context(finding: Finding) -> Iterator[str]:
    if finding.cause:
        yield f"* In the code: `{finding.cause}`"
    if finding.signature is not None and finding.signature.log is not None:
        yield f"* In the log of a server: {finding.signature.describe_log()}"
    for change, (shown, runs) in finding.rates().items():
        if change:
            yield f"* With `{change}`: {describe(shown, runs)}"
    mend = mend_of(finding.id)
    if mend is not None:
        yield f"* A change under which it should not show: {mend.reason}"
    if finding.upstream:
        yield f"* See also: {finding.upstream}"


def _unlinked(text: str) -> str:
    """Removes links to this project's pages, which lead nowhere in another project."""
    return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
