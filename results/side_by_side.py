# SPDX-License-Identifier: Apache-2.0
"""Two stored runs side by side: plans, builds, verdicts, anomalies, and the service that clients got."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from results.errors import HistoryError
from results.impact import impacts
from results.reading import read_json, read_toml
from results.report.words import text
from results.store import RunDir
from results.verdict import Judgement
from results.verdict_file import read_verdict

Section: TypeAlias = tuple[str, Sequence[tuple[str, str, str]]]
"""(title, rows of (name, text of the first run, text of the second one))."""

_MOST: Final = 300
"""Characters of a text."""

_FACTS: Final = ("build", "changed_classes", "mends", "ready_s")
"""Facts of the environment that are shown, if one of the runs has them."""


def side_by_side(one: RunDir, other: RunDir) -> list[Section]:
    """The sections of the comparison. Raises HistoryError for a run without a verdict."""
    judged = read_verdict(one.verdict), read_verdict(other.verdict)
    sections = [
        ("Verdicts", _rows(*map(_verdicts, judged))),
        ("Anomalies", _rows(*map(_anomalies, judged))),
        ("Service", _rows(_service(one), _service(other))),
        ("Plans", _rows(_plan(one), _plan(other))),
    ]
    return [(title, rows) for title, rows in sections if rows]


def _rows(one: Mapping[str, str], other: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [(text(name, 120), one.get(name, ""), other.get(name, "")) for name in dict.fromkeys([*one, *other])]


def _verdicts(judgement: Judgement) -> dict[str, str]:
    found = {"verdict": judgement.verdict.value}
    if judgement.new is not None:
        found["known"] = ", ".join(str(finding.id) for finding in judgement.known)
        found["new"] = text(", ".join(judgement.new), _MOST)
    return found | {
        result.checker: text(f"{result.verdict.value}: {result.reason}", _MOST) for result in judgement.results
    }


def _anomalies(judgement: Judgement) -> dict[str, str]:
    counts: dict[str, int] = {}
    for anomaly in judgement.anomalies:
        kind = "" if anomaly.counts else " (permitted)" if anomaly.legal is not None else " (in doubt)"
        counts[anomaly.name + kind] = counts.get(anomaly.name + kind, 0) + anomaly.cases
    return {name: f"{count:,}" for name, count in counts.items()}


def _service(run: RunDir) -> dict[str, str]:
    """The impact of each fault on clients; empty if the history cannot be read."""
    try:
        felt = impacts(run.load().history)
    except HistoryError:
        return {}
    found = {}
    for one in felt:
        name = text(one.fault, 60)
        rate = f"{one.ok / one.seconds:,.0f} acknowledged a second" if one.seconds else ""
        found[f"{name}: throughput"] = rate
        found[f"{name}: latency"] = "" if one.p50_ms is None else f"{one.p50_ms} ms, 99 % {one.p99_ms} ms"
        found[f"{name}: longest silence"] = f"{one.silence_s} s"
    return found


def _plan(run: RunDir) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, read in ((run.plan, read_toml), (run.environment, read_json)):
        try:
            data = read(path)
        except (OSError, ValueError):
            continue
        if path == run.plan:
            found |= dict(_flat(data))
        elif isinstance(data, dict):
            found |= {name: text(str(data[name]), _MOST) for name in _FACTS if name in data}
    return found


def _flat(data: Any, name: str = "", depth: int = 0) -> Iterable[tuple[str, str]]:
    """(path, value) of each value of a plan."""
    if isinstance(data, dict) and data and depth < 6:
        for key, value in data.items():
            yield from _flat(value, f"{name}.{key}".lstrip("."), depth + 1)
    elif isinstance(data, list) and data and isinstance(data[0], dict) and depth < 6:
        for number, value in enumerate(data, start=1):
            yield from _flat(value, f"{name} {number}", depth + 1)
    else:
        yield name, text(str(data), _MOST)
