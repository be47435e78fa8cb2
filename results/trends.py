# SPDX-License-Identifier: Apache-2.0
"""A summary of many runs, from the verdict table (docs/batch.md).

It shows verdicts by version, workload and nemesis, the effect of each fault on clients, and the first and last run with
each anomaly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.verdict import Verdict, worst
from results.verdict_table import read_verdicts

_COLUMNS: Final = (
    "run", "source", "checker", "verdict", "anomalies", "workload", "nemesis", "version", "began", "checked", "figures",
)  # fmt: skip

IMPACT: Final = "impact"
"""The rows whose figures are a list of `results.impact.Impact`."""


PERMITTED: Final = "permitted"
"""In a checker's figures: names of its anomalies that the run's configuration permits."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one version, workload and nemesis; histories from elsewhere have none of these."""

    version: str
    workload: str
    nemesis: str


@dataclass(frozen=True)
class RunTrend:
    """A run or history. when: its begin, or, if that is unknown, the time of its check; ISO 8601, to the second.
    permitted: the anomalies that its configuration permits.
    """

    run: str
    group: Group
    when: str
    verdict: Verdict
    anomalies: frozenset[str]
    permitted: frozenset[str]
    felt: Sequence[Mapping[str, Any]]


@dataclass
class FaultTrend:
    """A kind of fault over all runs of a version. silence_s: the worst run's; p99_ms: the median run's."""

    runs: int = 0
    times: int = 0
    ops: int = 0
    ok: int = 0
    silence_s: float = 0.0
    p50s: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)


@dataclass
class Seen:
    """An anomaly: the number of runs with it, of those that permit it, and the first and the last of them by time."""

    runs: int
    permitted: int
    first: RunTrend
    last: RunTrend


@dataclass(frozen=True)
class Trends:
    """Everything, with the runs in order of time."""

    runs: Sequence[RunTrend]

    @property
    def groups(self) -> dict[Group, Counter[Verdict]]:
        """The number of runs of each verdict, sorted by name."""
        found: dict[Group, Counter[Verdict]] = {}
        for run in self.runs:
            found.setdefault(run.group, Counter())[run.verdict] += 1
        return dict(sorted(found.items(), key=lambda item: (item[0].workload, item[0].nemesis, item[0].version)))

    @property
    def faults(self) -> dict[tuple[str, str], FaultTrend]:
        """The faults by (version, fault), sorted by fault."""
        found: dict[tuple[str, str], FaultTrend] = {}
        for run in self.runs:
            for felt in run.felt:
                one = found.setdefault((run.group.version, felt["fault"]), FaultTrend())
                one.runs += 1
                one.times += felt["times"]
                one.ops += felt["ops"]
                one.ok += felt["ok"]
                one.silence_s = max(one.silence_s, felt["silence_s"])
                one.p50s += [felt["p50_ms"]] * (felt["p50_ms"] is not None)
                one.p99s += [felt["p99_ms"]] * (felt["p99_ms"] is not None)
        return dict(sorted(found.items(), key=lambda item: (item[0][1], item[0][0])))

    @property
    def anomalies(self) -> dict[str, Seen]:
        """The anomalies by name."""
        found: dict[str, Seen] = {}
        for run in self.runs:
            for name in sorted(run.anomalies):
                seen = found.setdefault(name, Seen(0, 0, run, run))
                seen.runs += 1
                seen.permitted += name in run.permitted
                seen.last = run
        return dict(sorted(found.items()))


def read_trends(output: Path) -> Trends:
    """The trends from the verdict table below `output`. Raises HistoryError if no table exists."""
    table = read_verdicts(output, _COLUMNS)
    by_run: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(table):
        by_run.setdefault((row["source"], row["run"]), []).append(row)
    runs = []
    for (_, run), rows in by_run.items():
        try:
            runs.append(_trend(run, rows))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
            text = f"the rows of {run!r} are none of a verdict table: {type(problem).__name__}: {problem}"
            raise HistoryError(output, None, text) from None
    return Trends(sorted(runs, key=lambda run: (run.when, run.run)))


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.select(_COLUMNS).to_batches(max_chunksize=65_536):
        yield from batch.to_pylist()


def _trend(run: str, rows: Sequence[Mapping[str, Any]]) -> RunTrend:
    about = next((row for row in rows if row["workload"]), rows[0])
    group = Group(about["version"] or "-", about["workload"] or "-", about["nemesis"] or "-")
    felt: list[Mapping[str, Any]] = []
    forbidden: set[str] = set()
    for row in rows:
        if row["checker"] == IMPACT and row["figures"]:
            felt += map(_felt, json.loads(row["figures"]))
        elif row["anomalies"]:
            figures = json.loads(row["figures"] or "{}")
            forbidden |= set(row["anomalies"]) - set(figures.get(PERMITTED, ()))
    anomalies = frozenset(str(name) for row in rows for name in row["anomalies"])
    return RunTrend(
        run,
        group,
        about["began"] or datetime.fromtimestamp(about["checked"] / 1e9, UTC).strftime("%Y-%m-%dT%H-%M-%S"),
        worst(Verdict(row["verdict"]) for row in rows),
        anomalies,
        anomalies - forbidden,
        felt,
    )


def _felt(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures of `Impact.to_json`. Raises KeyError and TypeError for anything else."""
    for names, kinds in _FIGURES.items():
        for name in names:
            if not isinstance(figures[name], kinds):
                raise TypeError(f"{name} is {figures[name]!r}")
    return figures


_FIGURES: Final[Mapping[tuple[str, ...], tuple[type, ...]]] = {
    ("fault",): (str,),
    ("times", "ops", "ok"): (int,),
    ("silence_s",): (int, float),
    ("p50_ms", "p99_ms"): (int, float, type(None)),
}
