# SPDX-License-Identifier: Apache-2.0
"""One history of any length, key by key: Spark sends the ops of each key to one worker, which judges them as columns.

The file is read once. Each task reads some row groups and divides them twice, by key and by process: what is judged key
by key, and the pairing of invocations and completions, which is a matter of one process. A worker holds the ops of one
share of the keys, so its memory depends on the size of a share (and of the largest key), not of the history.

The rules are those of `checkers.linearizability` and of `checkers.run.wellformed`; this module has none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from checkers.linearizability.history.arrow import Rows, coded
from checkers.run.wellformed import breaches
from results.errors import HistoryError
from results.history import History
from results.op import OK, Op
from results.sealed import SCHEMA, parquet_file, require_schema

if TYPE_CHECKING:
    from pyspark import SparkContext

ROWS: Final = 400_000
"""Rows of a share of the keys: some 100 MB of a worker."""
PROCESS_ROWS: Final = 2_000_000
"""Rows of a share of the processes, of which only five columns are sent."""
GROUPS: Final = 16
"""Row groups that a task reads at a time."""

KEYS, PROCESSES, SEGMENTS = "keys", "processes", "segments"

_PAIRED: Final = ("index", "process", "type", "f", "key")
_PLAIN: Final = pa.schema([pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA])

Judge = Callable[[pa.Table], pa.Table]
"""Judges the ops of whole keys, in order of index: returns rows of the verdict table."""


@dataclass(frozen=True)
class Segment:
    """Facts about adjacent rows of the file. first, last: (index, time). clients, ok: rows of clients, and those that
    were acknowledged. broken: the first breach within, in words.
    """

    first: tuple[int, int]
    last: tuple[int, int]
    rows: int
    clients: int
    ok: int
    broken: str | None


@dataclass(frozen=True)
class Division:
    """The division of a file. tasks: ranges of its row groups."""

    path: str
    tasks: Sequence[tuple[int, int]]
    shares: int
    processes: int

    @staticmethod
    def of(path: Path) -> Division:
        with parquet_file(path) as file:
            require_schema(path, file.schema_arrow)
            rows, groups = file.metadata.num_rows, file.metadata.num_row_groups
        tasks = [(begin, min(begin + GROUPS, groups)) for begin in range(0, groups, GROUPS)]
        return Division(str(path), tasks, -(-rows // ROWS), -(-rows // PROCESS_ROWS))

    def split(self, task: int) -> Iterator[tuple[tuple[str, int], tuple[int, Any]]]:
        """Yields ((kind, share), (task, part)): the parts are Arrow streams, and one segment."""
        path, (begin, end) = Path(self.path), self.tasks[task]
        with parquet_file(path) as file:
            table = file.read_row_groups(range(begin, end), columns=SCHEMA.names, use_threads=False)
        for field in SCHEMA:
            if not field.nullable and table[field.name].null_count:
                raise HistoryError(path, None, f"column {field.name!r} has rows without a value; every op has one")
        yield (SEGMENTS, 0), (task, segment(table))
        process = table["process"].to_numpy()
        for share, part in _divided(table.select(_PAIRED), process % self.processes):
            yield (PROCESSES, share), (task, part)
        clients = table.filter(pa.array(process >= 0))
        codes, names = coded(clients["key"])
        hashes = [zlib.crc32(name.encode()) % self.shares for name in names.to_pylist()]
        mine = np.array([*hashes, zlib.crc32(b"") % self.shares], np.int64)[codes]
        for share, part in _divided(clients, mine):
            yield (KEYS, share), (task, part)


def segment(table: pa.Table) -> Segment:
    """The facts about some adjacent rows."""
    index, time = table["index"].to_numpy(), table["time"].to_numpy()
    clients = table["process"].to_numpy() >= 0
    kinds, names = coded(table["type"])
    ok = np.array([name == OK for name in names.to_pylist()] + [False])[kinds]
    broken = None
    gaps, back = np.nonzero(np.diff(index) != 1)[0], np.nonzero(np.diff(time) < 0)[0]
    if len(gaps):
        broken = f"op {index[gaps[0]]} is followed by op {index[gaps[0] + 1]}"
    elif len(back):
        broken = f"op {index[back[0] + 1]} is earlier than the op before it"
    ends = [(int(index[at]), int(time[at])) for at in (0, -1)]
    return Segment(ends[0], ends[1], len(table), int(clients.sum()), int((clients & ok).sum()), broken)


def first_break(segments: Sequence[Segment]) -> str | None:
    """The first breach of the order of all rows, or None. `segments`: in the order of the file."""
    expected, before = 0, None
    for one in segments:
        if one.first[0] != expected:
            return f"op {one.first[0]} is where op {expected} belongs"
        if before is not None and one.first[1] < before:
            return f"op {one.first[0]} is earlier than the op before it"
        if one.broken is not None:
            return one.broken
        expected, before = one.last[0] + 1, one.last[1]
    return None


def mispaired(table: pa.Table) -> str | None:
    """The first op of some processes that does not fit the one before it, in words; None: all do."""
    if not _odd(table):
        return None
    process = table["process"].to_numpy()
    for number in np.unique(process).tolist():
        own = table.filter(pa.array(process == number))
        if _odd(own):
            columns = own.to_pydict()
            ops = [
                Op(place, 0, number, type_, f, key)
                for place, (type_, f, key) in enumerate(zip(columns["type"], columns["f"], columns["key"], strict=True))
            ]
            # (The columns also notice events of the nemesis, which answer nothing, and need no invocation.)
            found = next(breaches(History(ops)), None)
            if found is not None:
                return f"op {columns['index'][found.ops[0]]} of process {number} does not match the one before it"
    return None


def _odd(table: pa.Table) -> bool:
    """True if ops do not pair. The rows are numbered as if they were a history: nothing else can be wrong with them."""
    place = pa.array(np.arange(len(table)))
    whole = {"index": place, "time": place, "value": pa.nulls(len(table), pa.string())}
    found = Rows(pa.table({**{name: table[name] for name in _PAIRED}, **whole}), [("", 0, len(table))])
    return bool(found.malformed_runs().any())


@dataclass(frozen=True)
class Judged:
    """The result. segments: of the whole file. rows: of the verdict table. unpaired: the first such op, or None."""

    segments: Sequence[Segment]
    rows: pa.Table
    unpaired: str | None


def judged(context: SparkContext, division: Division, judge: Judge) -> Judged:
    """Judges the keys of a history on all executors. Raises what Spark raises if a task fails."""

    def look(
        one: tuple[tuple[str, int], Iterable[tuple[int, Any]]],
    ) -> list[tuple[str, Any]]:
        (kind, _), parts = one
        ordered = [part for _, part in sorted(parts, key=lambda part: part[0])]
        if kind == SEGMENTS:
            return [(kind, ordered)]
        table = pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in ordered)
        if kind == PROCESSES:
            return [(kind, mispaired(table))]
        return [(kind, _stream(judge(table)))]

    tasks = context.parallelize(range(len(division.tasks)), len(division.tasks))
    groups = division.shares + division.processes + 1
    found = tasks.flatMap(division.split).groupByKey(groups).flatMap(look)
    segments: Sequence[Segment] = []
    tables: list[pa.Table] = []
    unpaired: str | None = None
    for kind, result in found.toLocalIterator(prefetchPartitions=True):
        if kind == SEGMENTS:
            segments = result
        elif kind == PROCESSES:
            unpaired = unpaired or result
        else:
            tables.append(pa.ipc.open_stream(result).read_all())
    return Judged(segments, pa.concat_tables(tables).unify_dictionaries(), unpaired)


def _divided(table: pa.Table, share: Any) -> Iterator[tuple[int, bytes]]:
    """Yields (share, its rows in their order)."""
    order = np.argsort(share, kind="stable")
    # (Without dictionaries: each part would have the whole one.)
    schema = pa.schema([_PLAIN.field(name) for name in table.column_names])
    table = table.cast(schema).take(pa.array(order))
    names, first = np.unique(share[order], return_index=True)
    for name, begin, end in zip(names.tolist(), first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        yield name, _stream(table.slice(begin, end - begin))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table.unify_dictionaries().combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found
