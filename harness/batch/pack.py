# SPDX-License-Identifier: Apache-2.0
"""`harness batch --pack FILE`: writes histories of any format as one op table, one row per op (`results.op_table`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from checkers.spark.files import SharedFiles, as_path, is_shared
from checkers.spark.units import Unit
from harness.batch.input import units_in
from harness.boundary import report_unexpected
from harness.plan.plan import PlanError
from results.errors import HistoryError
from results.formats import ReadOptions, limited, open_history
from results.op import Op
from results.op_table import is_op_table, read_part, row_groups, runs_of, write_op_table
from results.reading import exists
from results.sealed import ops_of
from results.store import RunDir
from results.verdict import Verdict


def pack(
    inputs: Sequence[str],
    target: Path,
    format_: str,
    options: ReadOptions,
    say: Callable[[str], None],
    memory: int | None = None,
) -> int:
    """Writes the table, on this machine and without Spark, a history at a time. Returns the exit code: that of
    `unknown` if a history could not be read (a line each; the others are in the table).

    Raises PlanError for an input that is not a path, HistoryError for one without histories, StoreError as
    `write_op_table`.
    """
    broken: list[str] = []
    histories = _named(inputs, target, format_, options, broken, memory)
    count = write_op_table(histories, target, refused=lambda problem: broken.append(str(problem)))
    for line in broken:
        say(line)
    say(f"{target}: {count:,} histories" + (f"; {len(broken):,} could not be read" if broken else ""))
    return Verdict.UNKNOWN.exit_code if broken else 0


def _named(
    inputs: Sequence[str], target: Path, format_: str, options: ReadOptions, broken: list[str], memory: int | None
) -> Iterator[tuple[str, list[Op]]]:
    taken: set[str] = set()
    for uri in inputs:
        if not is_shared(uri):
            raise PlanError(f"{uri}: --pack reads paths of this machine")
        root = os.path.abspath(as_path(uri))
        for unit in units_in(root, SharedFiles(), None, None, os.path.abspath(target), lambda line: None):
            if unit.keys is not None:
                continue  # A long history is listed in parts; one of them stands for it here.
            try:
                for name, ops in _histories(unit, format_, options, memory):
                    unique = name if name not in taken else f"{unit.source}: {name}"
                    taken.add(unique)
                    yield unique, ops
            except HistoryError as problem:
                broken.append(str(problem))
            except Exception as problem:
                # A bug in a reader must not keep the other histories out.
                broken.append(f"{unit.source}: {report_unexpected(problem)}")


def _histories(unit: Unit, format_: str, options: ReadOptions, memory: int | None) -> Iterator[tuple[str, list[Op]]]:
    path = Path(unit.source)
    if unit.kind == "run":
        folder = RunDir(path)
        evidence = folder.history if exists(folder.history) else folder.journal
        with limited(evidence, memory, path):
            ops = list(folder.load().history)
        yield unit.name, ops
    elif path.suffix == ".parquet" and is_op_table(path):
        begin, end = unit.groups or (0, len(row_groups(path)))
        for group in range(begin, end):
            with limited(path, memory):
                table = read_part(path, (group, group + 1))
            for run, first, last in runs_of(table):
                with limited(path, memory):
                    ops = list(ops_of(path, table.slice(first, last - first)))
                yield run, ops
    else:
        with open_history(path, format_) as history, history.limited(memory):
            ops = list(history.read(options).history)
        yield unit.name, ops
