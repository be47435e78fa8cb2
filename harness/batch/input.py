# SPDX-License-Identifier: Apache-2.0
"""The input of a batch: converts folders, files and URIs to units of work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Final

from checkers.spark.files import Files, Found, as_path, join
from checkers.spark.units import SMALL_S, Unit, file_cost, rows_cost, unit_cost
from harness.batch.sources import sources_of
from harness.check.expected import ExpectedVerdicts, Row
from harness.check.offline import HISTORY
from harness.check.run_judges import registered
from harness.parts.registry import WORKLOADS
from results.errors import HistoryError
from results.formats.implied import implied_model
from results.history import History
from results.op import Op
from results.op_table import is_op_table, row_groups
from results.sealed import distinct, row_count

_JUDGING = ("harness.batch.work", "harness.batch.logs", "harness.batch.keys")
"""The modules that judge the units of a batch."""

_DERIVED = frozenset({"verdict.json", "report.html", "junit.xml"})
"""Files of a run that follow from the others, and are written again by every check."""


Tell = Callable[[str], None]


def checker_version() -> str:
    """`0.1.0+3f2a91c04b7d`: this package, and a digest of all sources that can change a verdict, the workloads' and
    those of other packages' workloads and judges included. Raises PlanError if the sources of one are not there.
    """
    digest = hashlib.sha256()
    plugged = {point.module for point in (*entry_points(group=WORKLOADS), *registered())}
    for source in sources_of({*_JUDGING, *plugged}):
        digest.update(source.read_bytes())
    return f"{version('rocketmq-harness')}+{digest.hexdigest()[:12]}"


def units_in(
    root: str,
    files: Files,
    model: str | None,
    listed: ExpectedVerdicts | None,
    output: str,
    tell: Tell,
) -> list[Unit]:
    """All units at `root`: stored runs (folders with a `plan.toml`), histories, and op tables in parts worth a task.

    Files below `output` are left out: the harness' own tables are no histories. Raises HistoryError if nothing is left.
    """
    root = as_path(root) if files.shared else root
    found = sorted(files.listing(root), key=lambda file: file.path)
    inside = _below(root, output)
    if inside is not None:
        found = [file for file in found if not file.path.startswith(inside)]
    runs = {file.path.rpartition("/")[0] for file in found if file.path.rpartition("/")[2] == "plan.toml"}
    runs = {run for run in runs if not any(_is_below(run, other) for other in runs if other != run)}
    of_run: dict[str, list[Found]] = {run: [] for run in runs}
    units: list[Unit] = []
    listed_here = set() if listed is None or not files.shared else {str(path) for path in listed.rows}
    for file in found:
        run = _run_of(file.path, runs)
        if run is not None:
            of_run[run].append(file)
        elif HISTORY.search(file.path or root) or (files.shared and str(_resolved(root, file)) in listed_here):
            units += _history_units(root, file, files, model, _row(listed, root, file, files), tell)
    for run, own in of_run.items():
        unit = _run_unit(root, run, own)
        units += spread(unit, Path(unit.source, "history.parquet"), tell) if files.shared else [unit]
    if not units:
        raise HistoryError(root, None, "there is neither a run nor a history here")
    return units


def _below(root: str, output: str) -> str | None:
    """`output` relative to `root`, if it is inside."""
    inner = output.removeprefix(root.rstrip("/") + "/") if output.startswith(root.rstrip("/") + "/") else None
    return None if inner is None else inner.rstrip("/") + "/"


def _is_below(run: str, other: str) -> bool:
    return other == "" or run.startswith(other + "/")


def _run_of(path: str, runs: set[str]) -> str | None:
    if "" in runs:
        return ""
    parts = path.split("/")
    return next((run for i in range(len(parts) - 1, 0, -1) if (run := "/".join(parts[:i])) in runs), None)


def _resolved(root: str, file: Found) -> Path:
    return Path(root, file.path).resolve()


def _row(listed: ExpectedVerdicts | None, root: str, file: Found, files: Files) -> Row | None:
    if listed is None:
        return None
    if files.shared:
        return listed.of(_resolved(root, file))
    return next((row for row in listed.rows.values() if row.file == file.path), None)


def _stamp(found: Iterable[Found]) -> str:
    facts = sorted((file.path, file.size, file.changed) for file in found)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _run_unit(root: str, run: str, own: list[Found]) -> Unit:
    inner = [Found(file.path[len(run) :].lstrip("/"), file.size, file.changed) for file in own]
    evidence = [file for file in inner if file.path not in _DERIVED and not file.path.startswith("plots/")]
    sizes = {file.path: file.size for file in evidence}
    history = next((name for name in ("history.parquet", "journal.jsonl") if name in sizes), "")
    reading = sum(file_cost(sizes[name], name) for name in [history] if name)
    reading += sum(size for name, size in sizes.items() if name.startswith("nodes/")) * 2e-8
    name = run or root.rstrip("/").rpartition("/")[2]
    return Unit(
        "run",
        join(root, run),
        name,
        _stamp(evidence),
        cost=unit_cost("run", reading),
        files=tuple(file.path for file in evidence),
    )


def _history_units(
    root: str, file: Found, files: Files, model: str | None, row: Row | None, tell: Tell
) -> Iterator[Unit]:
    source = join(root, file.path)
    name = file.path or root.rpartition("/")[2]
    chosen = row.model if row and row.model else model
    plain = Unit("history", source, name, _stamp([file]), chosen, cost=unit_cost("history", file_cost(file.size, name)))
    if not (files.shared and name.endswith(".parquet")):
        yield plain
        return
    if not is_op_table(Path(source)):
        yield from spread(plain, Path(source), tell)
        return
    try:
        parts = row_groups(Path(source))
    except HistoryError:
        yield plain  # The worker says in its row what is wrong with the file.
        return
    begin, rows = 0, 0
    for number, count in enumerate(parts):
        rows += count
        if rows_cost(rows) >= SMALL_S or number == len(parts) - 1:
            cost = unit_cost("table", rows_cost(rows))
            yield Unit("table", source, name, _stamp([file]), chosen, groups=(begin, number + 1), cost=cost)
            begin, rows = number + 1, 0


LONG: Final = 400_000
"""Rows from which on a history is spread over the executors, key by key."""
SHARE: Final = 150_000
"""Rows of such a history that are worth a task; the part that is not judged by keys is another task."""
HUGE: Final = 8_000_000
"""Rows from which on such a history is read once and sent on by key: each share of keys would read all of it."""
SMALL: Final = 1 << 20
"""A smaller Parquet file is not opened: so few bytes are no long history."""


def spread(unit: Unit, sealed: Path, tell: Tell) -> list[Unit]:
    """Splits a long history with several keys into shares of keys, and the rest. Returns any other unit unchanged."""
    try:
        if not sealed.is_file() or sealed.stat().st_size < SMALL:
            return [unit]
        rows = row_count(sealed)
        if rows < LONG:
            return [unit]
        model = unit.model or _implied(sealed)
        if rows >= HUGE and unit.kind == "history" and model is not None:
            return [replace(unit, model=model, huge=True, cost=unit_cost(unit.kind, rows * _ROW_OF_A_HUGE_S))]
        keys = len(distinct(sealed, "key"))
    except HistoryError:
        return [unit]  # The worker says in its row what is wrong with the file.
    unit = replace(unit, cost=unit_cost(unit.kind, rows * _ROW_OF_A_LONG_S))
    if keys < 2:
        tell(f"{unit.name}: {rows:,} rows without keys: one task")
    if keys < 2 or (unit.kind == "history" and model is None):
        return [unit]
    return replace(unit, model=model if unit.kind == "history" else None).by_keys(min(-(-rows // SHARE), keys))


def _implied(sealed: Path) -> str | None:
    """The model that the names of the ops imply, where these are enough."""
    return implied_model(History(Op(0, 0, 0, "invoke", f) for f in distinct(sealed, "f")))


_ROW_OF_A_LONG_S: Final = 1e-5
_ROW_OF_A_HUGE_S: Final = 3e-6
