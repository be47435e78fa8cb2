# SPDX-License-Identifier: Apache-2.0
"""The sealed history: one Parquet file with a fixed schema, for years and for clusters (design.md, section 4).

| column  | type                | holds                                                         |
|---------|---------------------|---------------------------------------------------------------|
| index   | int64               | dense, from 0                                                 |
| time    | int64               | ns since the start of the run                                 |
| process | int64               | -1 is the nemesis                                             |
| type    | dictionary<string>  | invoke, ok, fail, info                                        |
| f       | dictionary<string>  |                                                               |
| key     | dictionary<string>  | null: none                                                    |
| value   | string              | JSON; null: None                                              |
| error   | string              | null: none                                                    |
| extra   | string              | JSON object; null: nothing                                    |

Compressed with zstd, in row groups of `ROW_GROUP` ops, so that a reader in Spark may split a long history and skip the
columns that it does not need. Facts about the run are in the schema's key-value metadata, all as text.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from sys import intern
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results.bulk import json_values, making_many
from results.durable import replacing
from results.errors import HistoryError
from results.op import NO_EXTRA, OP_TYPES, Op, OpType, make_op
from results.reading import require_regular_file

FORMAT: Final = "1"
"""The version of this schema, stored as the metadata `harness.format`."""

RUN: Final = "run"
"""The column that only an op table has: the name of each op's history (`results.op_table`)."""

ROW_GROUP: Final = 65_536
"""Ops held as columns at a time; a history of a million ops is never in memory a second time."""

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("type", _TEXT, nullable=False),
        pa.field("f", _TEXT, nullable=False),
        pa.field("key", _TEXT),
        pa.field("value", pa.string()),
        pa.field("error", pa.string()),
        pa.field("extra", pa.string()),
    ]
)
_PREFIX: Final = "harness."
_dumps: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def seal(ops: Iterable[Op], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes the ops to `path`, whole or not at all. `metadata` keys are stored with the prefix `harness.`.

    Text with lone surrogates (bytes that were no UTF-8), which Parquet cannot hold, is stored as `\\udc80`.
    Raises StoreError if the file cannot be written.
    """
    about = {f"{_PREFIX}format": FORMAT}
    about |= {_PREFIX + key: _utf8(text) for key, text in (metadata or {}).items()}
    schema = SCHEMA.with_metadata(about)
    rest = iter(ops)
    with (
        replacing(path, "the sealed history") as draft,
        pq.ParquetWriter(draft, schema, compression="zstd") as writer,
    ):
        while chunk := list(islice(rest, ROW_GROUP)):
            writer.write_batch(pa.RecordBatch.from_arrays(to_columns(chunk), schema=schema), row_group_size=ROW_GROUP)


def read_sealed(path: Path) -> list[Op]:
    """The ops of a sealed history. Raises HistoryError for any other file, or a damaged one."""
    with making_many():
        return list(iterate_sealed(path))


@contextmanager
def parquet_file(path: Path, what: str = "a sealed history") -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file. Raises HistoryError for any other file, or if the block finds damage."""
    try:
        require_regular_file(path)
        with pq.ParquetFile(path) as file:
            yield file
    except MemoryError:  # Arrow's own as well
        raise
    except (OSError, KeyError, pa.ArrowException) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        raise HistoryError(path, None, f"not {what}, or damaged: {why}") from None


def iterate_sealed(path: Path) -> Iterator[Op]:
    """`read_sealed` one op at a time."""
    with parquet_file(path) as file:
        _require_one_history(path, file)
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=SCHEMA.names, use_threads=False):
            yield from ops_of(path, batch)


def read_columns(path: Path) -> pa.Table:
    """The columns of a sealed history that define an op: `SCHEMA` without `error` and `extra`.

    Raises HistoryError as `iterate_sealed` does.
    """
    with parquet_file(path) as file:
        _require_one_history(path, file)
        return file.read(SCHEMA.names[:7], use_threads=False)


def sealed_keys(path: Path, share: int, of: int) -> Iterator[Op]:
    """Yields the clients' ops of some of the keys, with their indices in the whole: the keys of share `share` (from 0)
    of all keys divided into `of` shares. Raises HistoryError as `iterate_sealed` does.
    """
    with parquet_file(path) as file:
        require_schema(path, file.schema_arrow)
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=SCHEMA.names, use_threads=False):
            keys = batch.column("key")
            keys = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
            mine = [zlib.crc32((key or "").encode()) % of == share for key in keys.dictionary.to_pylist()]
            chosen = pa.array([*mine, zlib.crc32(b"") % of == share]).take(keys.indices.fill_null(len(mine)))
            kept = pc.and_(chosen, pc.greater_equal(batch.column("process"), 0))
            yield from ops_of(path, batch.filter(kept))


def row_count(path: Path) -> int:
    """The number of ops, from the file's own directory. Raises HistoryError if that cannot be read."""
    with parquet_file(path) as file:
        rows: int = file.metadata.num_rows
        return rows


def distinct(path: Path, column: str) -> list[str]:
    """The different texts in a column, such as `key`. Raises HistoryError if that cannot be read."""
    with parquet_file(path) as file:
        require_schema(path, file.schema_arrow)
        found: dict[str, None] = {}
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=[column], use_threads=False):
            found |= dict.fromkeys(batch.column(0).unique().drop_null().to_pylist())
        return list(found)


def sealed_metadata(path: Path) -> dict[str, str]:
    """The metadata that `seal` stored about the run, and `format`."""
    with parquet_file(path) as file:
        found = file.schema_arrow.metadata or {}
    text = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}
    return {key.removeprefix(_PREFIX): value for key, value in text.items() if key.startswith(_PREFIX)}


def to_columns(ops: Sequence[Op]) -> list[pa.Array]:
    """The columns of `SCHEMA`, in its order."""
    columns = [
        [op.index for op in ops],
        [op.time for op in ops],
        [op.process for op in ops],
        [op.type for op in ops],
        [_utf8(op.f) for op in ops],
        [None if op.key is None else _utf8(op.key) for op in ops],
        [None if op.value is None else _dumps(op.value) for op in ops],
        [None if op.error is None else _utf8(op.error) for op in ops],
        [_dumps(dict(op.extra)) if op.extra else None for op in ops],
    ]
    return [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]


def ops_of(path: Path, batch: pa.RecordBatch | pa.Table) -> Iterator[Op]:
    """Yields the rows as ops. `path` is for the HistoryError about a malformed row."""
    for field in SCHEMA:
        if not field.nullable and batch.column(field.name).null_count:
            raise HistoryError(path, None, f"column {field.name!r} has rows without a value; every op has one")
    columns = {name: batch.column(name).to_pylist() for name in SCHEMA.names}
    values = _parsed(path, columns, "value", "null")
    extras = _parsed(path, columns, "extra", "{}")
    rows = zip(*(columns[name] for name in SCHEMA.names[:6]), values, columns["error"], extras, strict=True)
    for index, time, process, type_, f, key, value, error, extra in rows:
        if type_ not in OP_TYPES:
            raise HistoryError(path, None, f"op {index}: type is {type_!r}, not one of {', '.join(OP_TYPES)}")
        kind: OpType = intern(type_)  # type: ignore[assignment]
        name = key if key is None else intern(key)
        yield make_op(index, time, process, kind, intern(f), name, value, error, extra or NO_EXTRA)


def _parsed(path: Path, columns: Mapping[str, list[Any]], name: str, absent: str) -> list[Any]:
    """A column of JSON texts, parsed as one array: faster than one by one, and field names are shared."""
    texts = [absent if text is None else text for text in columns[name]]
    try:
        return json_values(texts)
    except ValueError as wrong:
        problem = str(wrong)
    except RecursionError:
        problem = "it is nested too deeply"
    first, last = columns["index"][0], columns["index"][-1]
    raise HistoryError(path, None, f"ops {first} to {last}: column {name!r} is not JSON: {problem}")


def require_schema(path: Path, found: pa.Schema) -> None:
    """Raises HistoryError unless the columns have the right names and kinds; Spark may return plain strings."""
    for field in SCHEMA:
        if field.name not in found.names:
            raise HistoryError(path, None, f"no column {field.name!r}; a sealed history has {', '.join(SCHEMA.names)}")
        kind = found.field(field.name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        text = pa.types.is_string(plain) or pa.types.is_large_string(plain)
        if not (pa.types.is_integer(plain) if field.type == pa.int64() else text or pa.types.is_null(plain)):
            raise HistoryError(path, None, f"column {field.name!r} is {kind}, not {field.type}")


def _require_one_history(path: Path, file: pq.ParquetFile) -> None:
    """Raises HistoryError for wrong columns (`require_schema`), and for an op table of several histories."""
    require_schema(path, file.schema_arrow)
    if RUN not in file.schema_arrow.names:
        return
    runs: set[str | None] = set()
    for batch in file.iter_batches(batch_size=ROW_GROUP, columns=[RUN], use_threads=False):
        runs.update(batch.column(0).unique().to_pylist())
        if len(runs) > 1:
            raise HistoryError(path, None, "an op table of several histories; harness batch --input checks it")


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode("utf-8")
