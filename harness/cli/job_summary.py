# SPDX-License-Identifier: Apache-2.0
"""The job summary and the annotations of GitHub Actions: `python -m harness.cli.job_summary`, called by action.yml.

    job_summary run CODE RUN.json          after `harness run --json RUN.json`, which ended with CODE
    job_summary compare CODE COMPARE.json  after `harness compare --json COMPARE.json`, which ended with CODE
    job_summary nightly CODE STORE BEGAN   after `harness nightly --store STORE`, which began at BEGAN (ISO, local time)

It appends Markdown to the file that `$GITHUB_STEP_SUMMARY` names. On stdout it prints an annotation for each thing that
a maintainer must look at: `::error` for what is new, `::notice` for what is known.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.nightly.ledger import Entry, read_ledger
from results.errors import HistoryError
from results.reading import read_json
from results.store import RunDir
from results.verdict import Judgement, Verdict
from results.verdict_file import read_verdict

_SHOWN = 10
"""Annotations of one kind. GitHub shows ten of a step."""


def of_run(code: int, facts: Path) -> tuple[list[str], list[str]]:
    """(lines of Markdown, annotations) after a run. Its summary is in the file `facts`, unless it wrote none."""
    try:
        run = RunDir(Path(read_json(facts)["folder"]))
        judgement = read_verdict(run.verdict)
    except (OSError, ValueError, KeyError, TypeError, HistoryError):
        why = f"the run ended with exit code {code} and has no verdict; the log of this step says why"
        return [f"**harness-failure**: {_cell(why)}"], [_command("error", "no verdict", why)]
    return list(_run_lines(run, judgement)), list(_run_annotations(judgement))


def _run_lines(run: RunDir, judgement: Judgement) -> Iterator[str]:
    yield f"### {judgement.verdict.value}: {_cell(run.path.parent.name)}"
    yield ""
    if judgement.new is not None and (judgement.known or judgement.new):
        yield "| | |"
        yield "|---|---|"
        for finding in judgement.known:
            page = f" (`{finding.page}`)" if finding.page else ""
            yield f"| known {finding.id} | {_cell(finding.describe())}{page} |"
        yield f"| new | {_cell(', '.join(judgement.new) or 'nothing')} |"
        yield ""
    yield "| checker | verdict | reason |"
    yield "|---|---|---|"
    for result in judgement.results:
        known = " (known)" if judgement.is_known(result) else ""
        yield f"| {_cell(result.checker)} | {result.verdict.value}{known} | {_cell(result.reason)} |"
    yield ""
    yield f"Again: `harness run --plan {shlex.quote(str(run.plan))}`"


def _run_annotations(judgement: Judgement) -> Iterator[str]:
    told: set[str] = set()
    for anomaly in judgement.anomalies:
        if anomaly.counts and not judgement.known_as(anomaly) and anomaly.name not in told:
            told.add(anomaly.name)
            yield _command("error", f"new: {anomaly.name}", anomaly.summary)
    for finding in judgement.known:
        yield _command("notice", f"known: finding {finding.id}", finding.describe())
    for result in judgement.results:
        if result.verdict == Verdict.HARNESS_FAILURE:
            yield _command("error", f"harness-failure: {result.checker}", result.reason)
        elif result.verdict == Verdict.UNKNOWN:
            yield _command("warning", f"unknown: {result.checker}", result.reason)


def of_comparison(code: int, facts: Path) -> tuple[list[str], list[str]]:
    """(lines of Markdown, annotations) after a comparison. Its outcome is in the file `facts`, unless it wrote none."""
    try:
        told = read_json(facts)
        return list(_comparison_lines(told)), list(_comparison_annotations(told))
    except (OSError, ValueError, KeyError, TypeError):
        why = f"the comparison ended with exit code {code} and has no outcome; the log of this step says why"
        return [f"**harness-failure**: {_cell(why)}"], [_command("error", "no outcome", why)]


def _comparison_lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {_cell(told['line'])}"
    yield ""
    yield f"{_cell(told['builds']['new'])} against {_cell(told['builds']['old'])}: {_cell(told['differ'])}"
    yield ""
    yield "| state | what | new build | old build | cell |"
    yield "|---|---|---|---|---|"
    for row in told["rows"]:
        counts = [f"{row[side]} of {row['pairs']}" for side in ("new", "old")]
        yield f"| {' | '.join(map(_cell, [row['state'], row['thing'], *counts, row['cell']]))} |"
    yield ""
    yield "| cell | figure | new build | old build |"
    yield "|---|---|---|---|"
    for one in told["figures"]:
        yield f"| {' | '.join(map(_cell, [one['cell'], one['figure'], str(one['new'][0]), str(one['old'][0])]))} |"


def _comparison_annotations(told: Mapping[str, Any]) -> Iterator[str]:
    kinds = {"new": "error", "more often": "error", "undecided": "warning", "gone": "notice", "less often": "notice"}
    for row in told["rows"]:
        if kind := kinds.get(row["state"]):
            counts = f"{row['new']} of {row['pairs']} against {row['old']} of {row['pairs']}"
            yield _command(kind, f"{row['state']}: {row['thing']}", f"{counts}, {row['cell']}")
    if told["exit_code"] == Verdict.HARNESS_FAILURE.exit_code:
        yield _command("error", "harness-failure", "; ".join(f"{cell}: {why}" for cell, why in told["short"]))


def of_night(code: int, store: Path, began: str) -> tuple[list[str], list[str]]:
    """(lines of Markdown, annotations) after a night."""
    entries = [entry for entry in read_ledger(store) if entry.at >= began]
    if not entries:
        why = f"no cell ran; the exit code is {code}, and the log of this step says why"
        return [f"**{_cell(why)}**"], [_command("error" if code else "notice", "no run", why)]
    return list(_night_lines(entries)), list(_night_annotations(entries))


def _night_lines(entries: Sequence[Entry]) -> Iterator[str]:
    counts = {verdict.value: sum(entry.verdict == verdict.value for entry in entries) for verdict in Verdict}
    yield f"### {len(entries)} runs: {', '.join(f'{count} {name}' for name, count in counts.items() if count)}"
    yield ""
    yield "| cell | verdict | known | new |"
    yield "|---|---|---|---|"
    for entry in entries:
        known = ", ".join(map(str, entry.known))
        yield f"| {_cell(entry.cell)} | {_cell(entry.verdict)} | {known} | {_cell(', '.join(entry.new))} |"


def _night_annotations(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.new:
            yield _command("error", f"new: {', '.join(entry.new)}", f"{entry.cell}: {entry.why}")
    for entry in entries:
        if entry.verdict == Verdict.HARNESS_FAILURE.value:
            yield _command("error", "harness-failure", f"{entry.cell}: {entry.why}")
    known = sorted({number for entry in entries for number in entry.known})
    if known:
        yield _command("notice", "known", f"findings {', '.join(map(str, known))}")


def _cell(text: str) -> str:
    """Text for a cell of a table in Markdown. Names and log lines are not trusted."""
    line = " ".join(text.split())[:600]
    return "".join(f"&#{ord(c)};" if c in "<>&|`[]*_\\" else c for c in line)


def _command(kind: str, title: str, text: str) -> str:
    """A workflow command: an annotation on the job."""
    return f"::{kind} title={_escaped(title, more=',:')}::{_escaped(text[:2000])}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)


def main(argv: Sequence[str]) -> int:
    """Writes the requested summary. Returns 2 for wrong arguments."""
    match list(argv):
        case ["run", code, facts] if code.isdecimal():
            lines, annotations = of_run(int(code), Path(facts))
        case ["compare", code, facts] if code.isdecimal():
            lines, annotations = of_comparison(int(code), Path(facts))
        case ["nightly", code, store, began] if code.isdecimal():
            lines, annotations = of_night(int(code), Path(store), began)
        case _:
            print(
                "job_summary: run CODE RUN.json, compare CODE COMPARE.json, or nightly CODE STORE BEGAN, is right",
                file=sys.stderr,
            )
            return 2
    for line in annotations[:_SHOWN]:
        print(line)
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if target:
        with open(target, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
