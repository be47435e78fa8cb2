# SPDX-License-Identifier: Apache-2.0
"""The verdict table: the results of a batch of checks in Parquet, one row per (run, key, checker) (docs/batch.md).

    OUTPUT/verdicts/<job>-<number>.parquet    rows; never changed once they are there
    OUTPUT/receipts/<job>-<number>.jsonl      the units of work of those rows, and the result of each

Every file is written completely, under a name that no other job uses, and the receipts are written after their rows. A
killed job loses only rows that it had not written. Two jobs with one output do not conflict: if both checked the same
unit, the rows of the later check count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results.errors import HistoryError
from results.reading import require_regular_file

VERDICTS: Final = "verdicts"
RECEIPTS: Final = "receipts"

_WORD: Final = pa.dictionary(pa.int32(), pa.string())

VERDICT_TABLE: Final = pa.schema(
    [
        pa.field("run", _WORD, nullable=False),
        pa.field("key", _WORD),
        pa.field("model", _WORD),
        pa.field("checker", _WORD, nullable=False),
        pa.field("checker_version", _WORD, nullable=False),
        pa.field("verdict", _WORD, nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("anomaly", _WORD),
        pa.field("core", pa.list_(pa.int64()), nullable=False),
        pa.field("ops", pa.int64(), nullable=False),
        pa.field("wall_ms", pa.float64(), nullable=False),
        pa.field("cpu_ms", pa.float64(), nullable=False),
        pa.field("peak_mb", pa.float64(), nullable=False),
        pa.field("algorithm", _WORD),
        pa.field("anomalies", pa.list_(pa.string()), nullable=False),
        pa.field("workload", _WORD),
        pa.field("nemesis", _WORD),
        pa.field("version", _WORD),
        pa.field("began", _WORD),
        pa.field("figures", pa.string()),
        pa.field("source", _WORD, nullable=False),
        pa.field("line", pa.int64()),
        pa.field("unit", _WORD, nullable=False),
        pa.field("checked", pa.int64(), nullable=False),
    ]
)


@dataclass(slots=True)
class VerdictRow:
    """One row. The fields after `algorithm` are facts beyond the checker's result.

    run        the run's folder or the file, relative to the input; or its name in an op table.
    key        the key that was judged, or None: the whole run.
    checker    `linearizability`, `availability`, ...; `reader` if the history could not be read (`line`: the place).
    checker_version   version of this package and a digest of its sources that can change a verdict.
    core       indices of the ops that prove the anomaly.
    ops        checked ops of clients (invocation and completion are two).
    wall_ms, cpu_ms   those of this check; if many histories were checked in one call, a share by their ops.
    peak_mb    the process's peak of memory while the unit was checked.
    anomalies  names of all anomalies, `anomaly` being the first.
    workload, nemesis, version, began   those of a stored run.
    figures    JSON: the checker's own figures, for trends.
    unit       the part of the run, if it was checked in parts; else empty.
    checked    the begin of the job that checked it, ns since 1970.
    """

    run: str
    checker: str
    verdict: str
    reason: str
    key: str | None = None
    model: str | None = None
    checker_version: str = ""
    anomaly: str | None = None
    core: Sequence[int] = ()
    ops: int = 0
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    peak_mb: float = 0.0
    algorithm: str | None = None
    anomalies: Sequence[str] = ()
    workload: str | None = None
    nemesis: str | None = None
    version: str | None = None
    began: str | None = None
    figures: str | None = None
    source: str = ""
    line: int | None = None
    unit: str = ""
    checked: int = 0


def to_table(rows: Iterable[VerdictRow]) -> pa.Table:
    """The rows as columns of `VERDICT_TABLE`."""
    columns: dict[str, list[Any]] = {f.name: [] for f in fields(VerdictRow)}
    puts = [(columns[name].append, name) for name in columns]
    for row in rows:
        for put, name in puts:
            put(getattr(row, name))
    arrays = [_column(columns[field.name], field) for field in VERDICT_TABLE]
    return pa.Table.from_arrays(arrays, schema=VERDICT_TABLE)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except UnicodeEncodeError:  # bytes that were no UTF-8, as lone surrogates
        return pa.array(
            [v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for v in values], field.type
        )


def from_columns(rows: int, columns: Mapping[str, Any], constant: Mapping[str, Any]) -> pa.Table:
    """A table of whole columns, and of values that are the same in all rows. All other fields have the default of
    `VerdictRow`.
    """
    blank = VerdictRow("", "", "", "")
    arrays = []
    for field in VERDICT_TABLE:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name]).cast(field.type))
            continue
        value = constant.get(field.name, getattr(blank, field.name))
        if pa.types.is_dictionary(field.type):
            codes = pa.nulls(rows, pa.int32()) if value is None else pa.array(np.zeros(rows, np.int32))
            words = pa.array([] if value is None else [value], pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(codes, words))
        elif pa.types.is_list(field.type):
            arrays.append(pa.ListArray.from_arrays(np.zeros(rows + 1, np.int32), pa.array([], field.type.value_type)))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.Table.from_arrays(arrays, schema=VERDICT_TABLE)


def parquet_bytes(table: pa.Table) -> bytes:
    """The rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.unify_dictionaries(), sink, compression="zstd")
    found: bytes = sink.getvalue().to_pybytes()
    return found


def read_verdicts(output: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that count, of all files below `output`: those that were checked last (`latest`).

    Raises HistoryError if no verdict table exists, or a file of it is damaged.
    """
    try:
        folder = output / VERDICTS if (output / VERDICTS).is_dir() else output
        files = sorted(folder.glob("*.parquet"))
    except OSError as problem:
        raise HistoryError(output, None, f"cannot be read: {problem.strerror}") from None
    if not files:
        raise HistoryError(output, None, "there is no verdict table here; `harness batch --output` writes one")
    wanted = None if columns is None else list(dict.fromkeys([*columns, "source", "run", "unit", "checked"]))
    tables = [_read(file, wanted) for file in files]
    table = pa.concat_tables(tables).unify_dictionaries()
    return latest(table)


def _read(path: Path, columns: list[str] | None) -> pa.Table:
    try:
        require_regular_file(path)
        schema = VERDICT_TABLE if columns is None else pa.schema([VERDICT_TABLE.field(name) for name in columns])
        table = pq.read_table(path, columns=columns, partitioning=None)
        return table.select(schema.names).cast(schema)
    except (OSError, KeyError, pa.ArrowException) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        raise HistoryError(path, None, f"not a verdict table, or damaged: {why}") from None


def latest(table: pa.Table) -> pa.Table:
    """Only the rows of each (source, run, unit) that were checked last: a later check replaces an earlier one."""
    names = ["source", "run", "unit"]
    plain = table.select([*names, "checked"])
    for name in names:
        at = plain.column_names.index(name)
        plain = plain.set_column(at, name, pc.cast(table[name], pa.string()))
    newest = plain.group_by(names).aggregate([("checked", "max")])
    joined = plain.append_column("row", pa.array(range(len(plain)), pa.int64()))
    joined = joined.join(newest, names, join_type="inner")
    keep = joined.filter(pc.equal(joined["checked"], joined["checked_max"]))["row"]
    return table.take(keep.take(pc.array_sort_indices(keep)))
