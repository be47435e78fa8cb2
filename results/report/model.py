# SPDX-License-Identifier: Apache-2.0
"""The content of the report, collected from a run's record and its judgement. The template only formats it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from results.errors import in_bytes
from results.fault_intervals import FaultInterval, fault_intervals
from results.history import Call
from results.op import FAIL, INFO, OK
from results.record import RunRecord
from results.report import bands, course, plots
from results.report.story import Told, tell
from results.report.tables import Change, ErrorRow, FaultRow, StatsRow, errors, fault_rows, leader_changes, stats
from results.report.words import Pair, count, duration, flat, lines, number, shown_path, text
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

FILES = 300
"""The largest number of linked files of the run's folder."""


@dataclass(frozen=True)
class Checked:
    """One checker's line, with its figures and its excuses (`results.verdict.Excuse`), one line each."""

    name: str
    verdict: str
    reason: str
    took: str
    stats: Sequence[Pair]
    traceback: str
    excuses: Sequence[str] = ()


@dataclass(frozen=True)
class KnownLine:
    """A known finding that explains anomalies of the run."""

    id: str
    text: str
    page: str


@dataclass(frozen=True)
class Chart:
    """A plot with its description in words, and the address of its data (CSV)."""

    id: str
    heading: str
    caption: str
    picture: Markup
    csv: str


@dataclass(frozen=True)
class Link:
    """A file of the run, relative to the report."""

    name: str
    href: str
    size: str


@dataclass(frozen=True)
class Page:
    """Everything on the page, in the order of the page."""

    name: str
    verdict: str
    headline: str
    reasons: Sequence[str]
    known: Sequence[KnownLine]
    new: str
    facts: Sequence[Pair]
    notes: Sequence[str]
    commands: Sequence[Pair]
    checkers: Sequence[Checked]
    judges: str
    told: Told
    course: Sequence[Chart]
    marks: Markup | None
    patterns: Markup
    legend: Sequence[tuple[Markup, str]]
    strikes: Sequence[bands.StrikeLine]
    charts: Sequence[Chart]
    changes: Sequence[Change]
    faults: Sequence[FaultRow]
    stats: Sequence[StatsRow]
    errors: Sequence[ErrorRow]
    logs: Sequence[tuple[str, Sequence[Link]]]
    files: Sequence[Link]
    environment: Sequence[Pair]
    plan: Sequence[Pair]


def page(record: RunRecord, judgement: Judgement, report: Path) -> Page:
    """The page of a run whose report will lie at `report` (links are relative to its folder)."""
    faults = fault_intervals(record.history)
    calls = record.history.clients.calls
    last = max([record.history[-1].time if len(record.history) else 0, *(o.time for o in record.observations[-1:])])
    on = plots.stage(faults, last)
    told = tell(record, judgement, faults)
    charts = {chart.id: chart for chart in _charts(record, calls, on)}
    return Page(
        name=_name(record),
        verdict=judgement.verdict.value,
        headline=_HEADLINES[judgement.verdict],
        reasons=_reasons(judgement),
        known=[KnownLine(str(f.id), text(f.describe(), 400), text(f.page, 200)) for f in judgement.known],
        new=_new(judgement),
        facts=list(_facts(record, calls, last)),
        notes=list(_notes(record, calls, faults)),
        commands=list(_commands(record)),
        checkers=[_checked(r) for r in judgement.results],
        judges=_judges(judgement),
        told=told,
        course=[charts.pop(id_) for id_ in _COURSE if id_ in charts],
        marks=course.marked(record.history, _first_of_each_name(judgement), on),
        patterns=bands.definitions(),
        legend=[(bands.swatch(kind), bands.KINDS[kind]) for kind in bands.shown(faults)],
        strikes=[bands.strike_line(fault, last) for fault in faults],
        charts=list(charts.values()),
        changes=leader_changes(record.observations),
        faults=fault_rows(faults, calls, judgement, last),
        stats=stats(calls),
        errors=errors(calls),
        logs=_logs(record, report.parent),
        files=_files(record.path, report),
        environment=list(flat(record.environment)),
        plan=list(_plan(record.plan)),
    )


_HEADLINES = {
    Verdict.VALID: "All checks passed.",
    Verdict.INVALID: "A guarantee was broken.",
    Verdict.UNKNOWN: "The run does not show whether the guarantees hold.",
    Verdict.HARNESS_FAILURE: "The harness itself failed; this makes no statement about the servers.",
}


def _first_of_each_name(judgement: Judgement) -> list[Anomaly]:
    """The anomalies that fail the run, one for each name."""
    return list({a.name: a for a in reversed(judgement.anomalies) if a.counts}.values())[::-1]


_COURSE = ("rate", "leaders")
"""The charts in the first picture of the report."""

REASONS = 6
"""The largest number of reasons in the head of the report."""


def _reasons(judgement: Judgement) -> list[str]:
    """The reasons of the verdict, except those of checkers whose anomalies the report describes."""
    found = [r for r in judgement.results if r.verdict == judgement.verdict]
    untold = [r for r in found if not any(a.counts for a in r.anomalies)]
    reasons = [text(f"{r.checker}: {r.reason}", 240) for r in untold[:REASONS]]
    if len(untold) > REASONS:
        reasons.append(f"and {count(len(untold) - REASONS, 'further checker')} below")
    return reasons or ([] if found else [text(judgement.reason, 240)])


def _judges(judgement: Judgement) -> str:
    """`20 checkers: 3 invalid (log, linearizability, deliveries), 17 valid`."""
    groups: dict[Verdict, list[str]] = {}
    for result in judgement.results:
        groups.setdefault(result.verdict, []).append(text(result.checker, 40))
    parts = [
        f"{number(len(names))} {verdict.value}" + ("" if verdict == Verdict.VALID else f" ({', '.join(names)})")
        for verdict in (Verdict.INVALID, Verdict.HARNESS_FAILURE, Verdict.UNKNOWN, Verdict.VALID)
        if (names := groups.get(verdict))
    ]
    return text(f"{count(len(judgement.results), 'checker')}: {', '.join(parts)}", 400)


def _new(judgement: Judgement) -> str:
    """The anomalies that no finding explains; empty if nothing needs an explanation, or no findings were compared."""
    if judgement.new is None or not (judgement.known or judgement.new):
        return ""
    return text(", ".join(judgement.new) or "nothing", 800)


def _name(record: RunRecord) -> str:
    if not record.plan:
        return text(record.path.name, 80) if record.path else "a history from elsewhere"
    return " under ".join(
        [text(record.plan.get("workload", "a workload"), 60), ", ".join(_nemeses(record.plan)) or "no faults"]
    )


def _nemeses(plan: Mapping[str, Any]) -> list[str]:
    tables = plan.get("nemesis") or plan.get("nemeses") or []
    return [text(t.get("fault", "?") if isinstance(t, Mapping) else t, 60) for t in tables]


def _facts(record: RunRecord, calls: Sequence[Call], last: int) -> Iterator[Pair]:
    plan, environment = record.plan, record.environment
    if plan:
        yield "workload", text(plan.get("workload", "?"), 80)
        yield "nemesis", ", ".join(_nemeses(plan)) or "none"
        yield "seed", text(plan.get("seed", "?"), 40)
        cluster = plan.get("cluster") or {}
        backend = environment.get("backend") or cluster.get("backend")
        yield "cluster", text(f"{cluster.get('nodes', '?')} nodes" + (f", {backend}" if backend else ""), 80)
    versions = [(k, v) for k, v in flat(environment) if "version" in k.lower() or k.lower() in {"dledger", "rocketmq"}]
    yield from ((k.replace("_", " "), v) for k, v in versions[:3])
    if environment.get("started_at"):
        yield "started", _moment(environment["started_at"])
    yield "length", duration(last)
    tally = Counter(c.outcome if c.completion else "open" for c in calls)
    label = ", ".join(f"{number(tally[o])} {o}" for o in (OK, FAIL, INFO, "open") if tally[o])
    yield "operations", f"{number(len(calls))} ({label})" if calls else "none"


def _moment(iso: object) -> str:
    """`2026-11-21 06:12:44 UTC`; a text that is no ISO 8601 stays unchanged."""
    try:
        at = datetime.fromisoformat(str(iso))
    except ValueError:
        return text(iso, 60)
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname() or ''}".rstrip()


def _notes(record: RunRecord, calls: Sequence[Call], faults: Sequence[FaultInterval]) -> Iterator[str]:
    """Yields the facts that a reader must know before the figures."""
    opened = sum(1 for c in calls if c.completion is None)
    unhealed = [b for b in faults if b.end_ns is None]
    if record.environment.get("history"):
        yield f"The history: {text(record.environment['history'])}."
    if opened:
        yield (
            f"{count(opened, 'operation')} {'has' if opened == 1 else 'have'} no completion: the run or its "
            "history was cut short. Their outcome is unknown; they count as info."
        )
    if unhealed:
        yield f"The history has no heal of {', '.join(text(b.label, 80) for b in unhealed[:5])}."
    if not calls:
        yield "The history has no client operation."
    if record.plan and not record.observations:
        yield "The nodes were not observed, so there are no leaders and log positions."


def _commands(record: RunRecord) -> Iterator[Pair]:
    if record.path is None:
        return
    if record.plan:
        yield "repeat the run", f"harness run --plan {shown_path(record.path / 'plan.toml')}"
    yield "check its history again", f"harness check {shown_path(record.path)}"


def _checked(result: CheckResult) -> Checked:
    figures = {k: v for k, v in result.stats.items() if k != "traceback"}
    traceback = result.stats.get("traceback")
    return Checked(
        text(result.checker, 80),
        result.verdict.value,
        text(result.reason, 800),
        duration(result.ms * 1e6),
        [(k, v[:600]) for k, v in flat(figures)][:80],
        lines(traceback) if traceback else "",
        [text(str(excuse), 400) for excuse in result.excuses],
    )


def charts_of_ops(calls: Sequence[Call], on: plots.Stage) -> Iterator[Chart]:
    """Yields the charts that a history alone can have."""
    drawn = [
        (
            "latency",
            "Latency",
            "Each operation at the time of its invocation. Colour is the outcome, shape the kind of operation; "
            "fail and info are larger. Shaded: faults, in the style of their effects, with their number in the table.",
            plots.latency(calls, on),
        ),
        (
            "quantiles",
            "Latency quantiles",
            "Acknowledged operations only. In a gap, no operation was acknowledged.",
            plots.quantiles(calls, on),
        ),
        ("rate", "Rate", "Operations completed per second, by outcome.", plots.rate(calls, on)),
    ]
    yield from _drawn(drawn)


def _charts(record: RunRecord, calls: Sequence[Call], on: plots.Stage) -> Iterator[Chart]:
    observations = record.observations
    yield from charts_of_ops(calls, on)
    drawn = [
        (
            "leaders",
            "Leaders and terms",
            "The status that each node reported, about once a second; the number is the leader's term.",
            plots.leaders(observations, on),
        ),
        (
            "positions",
            "Log positions",
            "Committed index of each node, and (thin) the last entry of its log. "
            "If a line falls, entries were truncated.",
            plots.positions(observations, on),
        ),
        (
            "lag",
            "Entries behind",
            "Distance between each node's committed index and the last entry that any node had reported.",
            plots.lag(observations, on),
        ),
        (
            "machine",
            "Resources of the machines",
            "Wait of a runnable server thread for a processor, average over two seconds; thin: delay of the latest "
            "timer; triangles: longest garbage-collection pause. Above 5 ms of waiting, verdicts about time may be "
            "unknown.",
            plots.machine(record.machine, on),
        ),
    ]
    yield from _drawn(drawn)


def _drawn(charts: Iterable[tuple[str, str, str, plots.Plot | None]]) -> Iterator[Chart]:
    for id_, heading, caption, plot in charts:
        if plot is not None:
            yield Chart(id_, heading, caption, plot.picture, plot.uri)


def _logs(record: RunRecord, base: Path) -> list[tuple[str, Sequence[Link]]]:
    nodes = record.path / "nodes" if record.path else None

    def name(node: str, path: Path) -> str:
        inside = nodes is not None and path.is_relative_to(nodes / node)
        return str(path.relative_to(nodes / node)) if nodes is not None and inside else path.name

    return [
        (text(node, 40), [_link(p, name(node, p), base) for p in paths])
        for node, paths in sorted(record.logs.items(), key=lambda entry: plots.natural(entry[0]))
    ]


def _files(folder: Path | None, report: Path) -> list[Link]:
    """The plain files of the run's folder, except the report itself; links are not followed."""
    if folder is None or not folder.is_dir():
        return []
    found: list[Path] = []
    for at, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(at, n) for n in sorted(names)]
        if len(found) > FILES:
            break
    plain = [p for p in found if p.is_file() and not p.is_symlink() and p.absolute() != report.absolute()]
    return [_link(p, str(p.relative_to(folder)), report.parent) for p in plain[:FILES]]


def _link(path: Path, name: str, base: Path) -> Link:
    href = quote(os.path.relpath(path.absolute(), base.absolute()), errors="surrogateescape")
    # A name such as `javascript:x` must stay a file's name.
    return Link(text(name, 120), f"./{href}", in_bytes(path.stat().st_size) if path.is_file() else "missing")


def _plan(plan: Mapping[str, Any]) -> Iterator[Pair]:
    for key, value in plan.items():
        if isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            for i, entry in enumerate(value, start=1):
                yield from flat(entry if isinstance(entry, Mapping) else {"": entry}, f"{key} {i}.")
        else:
            yield from flat({key: value})
