# SPDX-License-Identifier: Apache-2.0
"""JUnit XML of a judgement, for CI systems: one test case per checker (the de-facto schema of Ant's junit task).

`valid` passes. `invalid` is a failure; if known findings explain every anomaly of the checker, it is skipped, and names
these findings. `unknown` and `harness-failure` are errors, because neither is a pass. The exit codes of `--fail-on new`
make the same distinction.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

from results.durable import replacing
from results.verdict import CheckResult, Judgement, Verdict

# What XML 1.0 (section 2.2, Char) cannot hold, not even escaped.
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN: Final = 20


def write_junit(judgement: Judgement, path: Path, suite: str, seconds: float = 0.0) -> None:
    """Writes the file, whole or not at all; StoreError if it cannot be written.

    suite    name of the test suite, `<workload>-<nemesis>`; also each case's class name.
    seconds  the time of the whole run; a case's own time is its check's.
    """
    results = judgement.results or [CheckResult("verdict", Verdict.UNKNOWN, judgement.reason)]
    kinds = [_kind(result, judgement) for result in results]
    root = ET.Element(
        "testsuite",
        name=clean(suite),
        tests=str(len(results)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{seconds:.3f}",
    )
    for result, kind in zip(results, kinds, strict=True):
        _case(root, result, suite, kind, _known_as(result, judgement))
    ET.indent(root)
    with replacing(path, "the JUnit file") as draft:
        ET.ElementTree(root).write(draft, encoding="utf-8", xml_declaration=True)


def clean(text: str) -> str:
    """`text` without the characters that XML 1.0 cannot hold; a server's log line may well carry an escape code."""
    return _NO_XML.sub("", text)


def _kind(result: CheckResult, judgement: Judgement) -> str | None:
    """The name of the element for a case that does not pass, or None: it passes."""
    match result.verdict:
        case Verdict.VALID:
            return None
        case Verdict.INVALID:
            return "skipped" if judgement.is_known(result) else "failure"
    return "error"


def _known_as(result: CheckResult, judgement: Judgement) -> str:
    """The findings that explain anomalies of a result, with their pages; empty without any."""
    found = {f.id: f for anomaly in result.anomalies for f in judgement.known_as(anomaly)}
    return "; ".join(f"known: finding {f.id}, {f.title}{f' ({f.page})' if f.page else ''}" for f in found.values())


def _case(root: ET.Element, result: CheckResult, suite: str, kind: str | None, known: str) -> None:
    case = ET.SubElement(
        root, "testcase", classname=clean(suite), name=clean(result.checker), time=f"{result.ms / 1000:.3f}"
    )
    text = _describe(result)
    if kind is None:
        if text:
            ET.SubElement(case, "system-out").text = text
        return
    if kind == "skipped":
        ET.SubElement(case, kind, message=clean(known)).text = clean(f"{result.reason}\n{text}")
        return
    problem = ET.SubElement(case, kind, type=result.verdict.value, message=clean(result.reason))
    problem.text = clean("\n".join(filter(None, (known, text))))


def _describe(result: CheckResult) -> str:
    """The anomalies, a line each, the first `_SHOWN`."""
    lines = [
        f"{anomaly.name}{'' if anomaly.key is None else f' (key {anomaly.key})'}: {anomaly.summary}"
        + (f" [legal here: {anomaly.legal}]" if anomaly.legal is not None else "")
        for anomaly in result.anomalies[:_SHOWN]
    ]
    if len(result.anomalies) > _SHOWN:
        lines.append(f"and {len(result.anomalies) - _SHOWN} more in verdict.json")
    return clean("\n".join(lines))
