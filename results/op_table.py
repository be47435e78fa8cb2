# SPDX-License-Identifier: Apache-2.0
"""The op table: the histories of many runs in few Parquet files, one row per op (docs/batch.md).

The columns are those of a sealed history (`results.sealed`) after an additional column `run`, which names the history.
The rows of a run are adjacent, in order of index, in one file. If the file's metadata has `harness.whole` = `1`, they
are also in one row group. Then any range of row groups can be read alone, and several workers can share a file.

A folder per run (Hive's `run=.../`) would be a file per history: a million files of four kilobytes. With a column that
has statistics, a reader can also skip rows that it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from results.durable import replacing
from results.errors import HistoryError
from results.op import Op
from results.sealed import FORMAT, ROW_GROUP, RUN, SCHEMA, parquet_file, require_schema, to_columns

OP_TABLE: Final = pa.schema([pa.field(RUN, pa.dictionary(pa.int32(), pa.string()), nullable=False), *SCHEMA])

WHOLE: Final = b"harness.whole"
_WHAT: Final = "an op table"
_ABOUT: Final = {b"harness.format": FORMAT.encode(), WHOLE: b"1"}


def write_op_table(
    histories: Iterable[tuple[str, Sequence[Op]]],
    path: Path,
    row_group: int = ROW_GROUP,
    refused: Callable[[HistoryError], None] | None = None,
) -> int:
    """Writes named histories to one file, whole or not at all; returns their number.

    refused   takes the error of a history whose ops no column can hold (a number of more than 63 bits); the history is
              left out. None: that error is raised.

    A row group ends with the run that fills it to `row_group` rows, so that it is the larger of the two.
    Raises StoreError if the file cannot be written.
    """
    schema = OP_TABLE.with_metadata(_ABOUT)
    count = 0
    with (
        replacing(path, "the op table") as draft,
        pq.ParquetWriter(draft, schema, compression="zstd") as writer,
    ):
        waiting: list[pa.RecordBatch] = []
        for name, ops in histories:
            try:
                waiting.append(_named(name, ops, schema))
            except HistoryError as problem:
                if refused is None:
                    raise
                refused(problem)
                continue
            count += 1
            if sum(len(batch) for batch in waiting) >= row_group:
                _flush(writer, waiting, schema)
                waiting = []
        if waiting:
            _flush(writer, waiting, schema)
    return count


def _named(name: str, ops: Sequence[Op], schema: pa.Schema) -> pa.RecordBatch:
    try:
        columns = to_columns(ops)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, pa.ArrowException) as problem:
        raise HistoryError(name, None, f"an op in it cannot be stored: {problem}") from None
    run = pa.DictionaryArray.from_arrays(pa.array([0] * len(ops), pa.int32()), pa.array([name], pa.string()))
    return pa.RecordBatch.from_arrays([run, *columns], schema=schema)


def _flush(writer: pq.ParquetWriter, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
    table = pa.Table.from_batches(batches, schema).unify_dictionaries()
    writer.write_table(table, row_group_size=max(len(table), 1))


def is_op_table(path: Path) -> bool:
    """True for a Parquet file with a column `run`. False for a damaged file: a reader of it shows the error."""
    try:
        with parquet_file(path) as file:
            return RUN in file.schema_arrow.names
    except HistoryError:
        return False


def row_groups(path: Path) -> list[int]:
    """The rows of each part of the file that can be read on its own: one part only if runs may cross row groups.

    Raises HistoryError for any other file.
    """
    with parquet_file(path, _WHAT) as file:
        _insist(path, file.schema_arrow)
        rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        whole = (file.schema_arrow.metadata or {}).get(WHOLE) == b"1"
    return rows if whole else [sum(rows)]


def read_part(path: Path, groups: tuple[int, int], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of parts `groups[0]` to `groups[1]` (exclusive) of `row_groups`, with these columns (None: all)."""
    with parquet_file(path, _WHAT) as file:
        _insist(path, file.schema_arrow)
        whole = (file.schema_arrow.metadata or {}).get(WHOLE) == b"1"
        chosen = range(*groups) if whole else range(file.num_row_groups)
        wanted = list(columns or OP_TABLE.names)
        found = file.read_row_groups(list(chosen), columns=wanted, use_threads=False)
        if RUN in wanted and found[RUN].null_count:
            raise HistoryError(path, None, f"column {RUN!r} has rows without a value; it names the history of each op")
        return found


def runs_of(table: pa.Table) -> list[tuple[str, int, int]]:
    """(name, first row, end) of each run in a table read by `read_part`, in order. A run that comes twice is listed
    twice: the checker of well-formedness then finds that its indices do not begin at 0.
    """
    column = table.column(RUN).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if len(column) == 0:
        return []
    ends = pa.compute.run_end_encode(column)
    stops = ends.run_ends.to_pylist()
    return [(name, start, stop) for name, start, stop in zip(ends.values.to_pylist(), [0, *stops], stops, strict=False)]


def _insist(path: Path, schema: pa.Schema) -> None:
    if RUN not in schema.names:
        raise HistoryError(path, None, f"no column {RUN!r}: a history, and not an op table")
    kind = schema.field(RUN).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(plain) or pa.types.is_large_string(plain)):
        raise HistoryError(path, None, f"column {RUN!r} is {kind}, not text")
    require_schema(path, schema)
