# SPDX-License-Identifier: Apache-2.0
"""Stored runs, judged again, and the record of those that tables on pages are made of.

A record is a JSON file beside the promises: `runs`, a list with an object for each run, whose `began` is the time of
its start. A run that is added again replaces the older one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.check.judging import judge_stored
from harness.findings.known import explain
from results.durable import write_text
from results.errors import ExpectedError
from results.reading import read_json, read_toml
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Judgement


def judged_runs(
    stores: Iterable[Path], wanted: Callable[[Mapping[str, Any]], bool]
) -> Iterator[tuple[RunRecord, Judgement]]:
    """All runs below these folders whose plan is wanted, judged by the present code and explained by the record of
    findings. A run that cannot be judged is named on standard error.
    """
    for store in stores:
        for path in sorted(store.rglob("plan.toml")):
            if path.parent.is_symlink() or path.parent.name == "latest":
                continue
            try:
                if wanted(read_toml(path)):
                    record, judgement = judge_stored(RunDir(path.parent))
                    yield record, explain(record, judgement)
            except (ExpectedError, OSError, ValueError) as problem:
                sys.stderr.write(f"{path.parent}: left out: {problem}\n")


def start_of(record: RunRecord) -> str:
    """The time of a run's start, by which records know it."""
    return str(record.environment.get("started_at"))


def planned_faults(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The faults of a plan, drawn or written out."""
    return [*plan.get("nemesis", ()), *plan.get("strike", ())]


def read_runs(path: Path) -> dict[str, dict[str, Any]]:
    """The runs of a record, by their start; none without a file. Raises OSError, and ValueError for a wrong file."""
    if not path.exists():
        return {}
    try:
        return {one["began"]: one for one in read_json(path)["runs"]}
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{path}: runs, each with its start (began), are right") from None


def write_runs(path: Path, runs: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
    """Writes a record. more: what else stands in it. Raises OSError."""
    data = {"runs": [runs[began] for began in sorted(runs)], **more}
    write_text(path, json.dumps(data, indent=1, sort_keys=True) + "\n", "the record")
