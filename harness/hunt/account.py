# SPDX-License-Identifier: Apache-2.0
"""The account of a hunt in Markdown: what is new, what each mode found and when, and what could not be tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.hunt.array import GIVEN_UP
from harness.hunt.hunting import Entry, Hunt, first_sights
from harness.hunt.running import commands
from harness.plan.plan import Plan, PlanError
from results.errors import HistoryError
from results.figures import many
from results.verdict_file import read_verdict

MODES: Final = ("array", "seeds", "control")
_GAPS: Final = 20


def account_lines(hunt: Hunt, left_out: Mapping[str, Sequence[str]], shrunk: Mapping[str, str]) -> Iterator[str]:
    """left_out: arm -> faults that it cannot have, with the reasons. shrunk: folder of a run -> what became of it."""
    entries = hunt.entries
    new = first_sights(entries)
    yield f"# Hunt, seed {hunt.seed}"
    yield ""
    names = ", ".join(name for entry in new for name in entry.first) or "nothing"
    early = [entry.outcome for entry in entries if entry.outcome.early]
    not_run = sum(one.not_run_s for one in early) / 60
    ended = f" {many(len(early), 'load')} ended early: {not_run:.1f} min of planned load were not run." if early else ""
    yield f"{many(len(entries), 'run')} in {_minutes(entries)}; new: {names}.{ended}"
    for entry in new:
        yield from _sight(entry, [one for one in entries if set(entry.first) & set(one.outcome.new)], shrunk)
    yield ""
    yield "## By mode"
    yield ""
    yield "| mode | runs | time | runs that showed something new | first after |"
    yield "|---|---|---|---|---|"
    for mode in MODES:
        mine = [entry for entry in entries if entry.mode == mode]
        showed = [entry for entry in mine if entry.outcome.new]
        first = f"{_minutes(mine[: mine.index(showed[0]) + 1])} of its own" if showed else "-"
        yield f"| {mode} | {len(mine)} | {_minutes(mine)} | {len(showed)} | {first} |"
    yield ""
    yield "## By arm"
    yield ""
    yield "| arm | runs | verdicts | known findings | pairs that came about | pairs given up | triples |"
    yield "|---|---|---|---|---|---|---|"
    for arm in hunt.arms:
        mine = [entry for entry in entries if entry.arm == arm.name]
        verdicts = sorted({entry.outcome.verdict or "no run" for entry in mine})
        counts = ", ".join(f"{sum((e.outcome.verdict or 'no run') == v for e in mine)} {v}" for v in verdicts)
        known = sorted({number for entry in mine for number in entry.outcome.known})
        array, triples = hunt.pairs[arm.name], hunt.triples[arm.name]
        yield (
            f"| {arm.name} | {len(mine)} | {counts} | {', '.join(map(str, known)) or '-'} | "
            f"{array.covered} of {array.total} | {len(array.gaps)} | {triples.covered} of {triples.total} |"
        )
    yield from _never(hunt, left_out)


def _sight(entry: Entry, showing: Sequence[Entry], shrunk: Mapping[str, str]) -> Iterator[str]:
    yield ""
    yield f"## {', '.join(entry.first)}"
    yield ""
    yield f"{entry.arm}, after {entry.at_s / 60:.0f} min, mode {entry.mode}; {many(len(showing), 'run')} showed it."
    if entry.outcome.early:
        yield ""
        yield f"{entry.outcome.early[0].upper()}{entry.outcome.early[1:]}."
    yield ""
    try:
        judgement = read_verdict(Path(entry.outcome.folder) / "verdict.json")
        for name in entry.first:
            shown = [anomaly for anomaly in judgement.anomalies if anomaly.name == name and anomaly.counts]
            more = f" ({len(shown) - 1} more in the report)" if len(shown) > 1 else ""
            yield f"* `{name}`: {shown[0].summary}{more}" if shown else f"* `{name}`"
        plan = Plan.read(Path(entry.outcome.folder) / "effective.toml")
        yield ""
        yield "The strikes of the run:"
        yield ""
        for strike in plan.strikes:
            event = f", {strike.delay_s:g} s after {strike.after}" if strike.after else ""
            when = f"at {strike.at_s or 0:.1f} s{event}"
            yield f"* `{strike.fault}` at `{strike.target or 'its default'}`, {when}, for {strike.for_s:g} s"
    except (HistoryError, PlanError) as problem:
        yield f"* {problem}"
    yield ""
    yield f"Report: `{entry.outcome.folder}/report.html`. {shrunk.get(entry.outcome.folder, 'Not shrunk.')}"
    yield ""
    yield "```console"
    yield from (f"$ {command}" for command in commands(entry))
    yield "```"


def _minutes(entries: Sequence[Entry]) -> str:
    return f"{sum(entry.seconds for entry in entries) / 60:.1f} min"


def _never(hunt: Hunt, left_out: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields what was not tried: impossible faults, and pairs whose event did not come three times."""
    yield ""
    yield "## What was not tried"
    yield ""
    for arm in hunt.arms:
        for reason in left_out.get(arm.name, ()):
            yield f"* {arm.name}: {reason}"
        found = hunt.pairs[arm.name].gaps
        gaps = sorted(" + ".join(f"{axis} = {value}" for axis, value in sorted(pair)) for pair in found)
        if gaps:
            more = f"; and {len(gaps) - _GAPS} more" if len(gaps) > _GAPS else ""
            yield f"* {arm.name}: did not come about in {GIVEN_UP} tries: {'; '.join(gaps[:_GAPS])}{more}"
    yield "* Pairs that are still open: see the table; a longer hunt with the same `--output` goes on with them."
