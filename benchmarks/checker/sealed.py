# SPDX-License-Identifier: Apache-2.0
"""A million ops of one object as the sealed history that a run leaves: made with arrays, as the check reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from results.sealed import FORMAT, ROW_GROUP, SCHEMA

Longs = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CLIENTS = 10


def sealed_register(path: Path, ops: int, unknown: int, seed: int = 1, late: bool = False) -> None:
    """Reads and writes of values that are all different, one op in two each; `unknown` writes have no outcome, and half
    of these took effect. After an unknown op its client continues as a new process. `late`: the last read is stale.
    """
    rng = np.random.default_rng(seed)
    length = rng.uniform(1, 10, (CLIENTS, ops // CLIENTS))
    start = np.cumsum(length + rng.uniform(0, 3, length.shape), axis=1) - length
    client = np.repeat(np.arange(CLIENTS), ops // CLIENTS)
    start, length = start.ravel(), length.ravel()
    point = start + length * rng.random(len(start))
    write = rng.random(len(start)) < 0.5
    lost = np.zeros(len(start), np.bool_)
    lost[rng.choice(np.nonzero(write)[0], unknown, replace=False)] = True
    happens = write & (~lost | (rng.random(len(start)) < 0.5))
    own = np.arange(1, len(start) + 1)
    order = np.argsort(point)
    last = np.maximum.accumulate(np.where(happens[order], np.arange(len(order)), -1))
    value = np.empty(len(start), np.int64)
    value[order] = np.where(last < 0, 0, own[order][last])
    if late:
        reads = order[~write[order]]
        value[reads[-1]] = value[reads[len(reads) // 2]]
    before = np.cumsum(lost) - lost
    process = client + CLIENTS * (before - before[client * (ops // CLIENTS)])
    write_events(path, start, start + length, process, write, np.where(write, own, value), lost)


def write_events(
    path: Path, call: Times, ret: Times, process: Longs, write: Flags, value: Longs, lost: Flags
) -> None:  # fmt: skip
    """The calls' two events each, in order of time. A read of 0 found nothing."""
    count = len(call)
    order = np.argsort(np.concatenate((call, ret)), kind="stable")
    op, returned = order % count, order >= count
    shown = pa.array(value).cast(pa.string())
    absent = (value[op] == 0) | (~write[op] & ~returned)
    texts = pa.compute.if_else(pa.array(absent), pa.scalar(None, pa.string()), shown.take(pa.array(op)))
    kind = np.where(returned, np.where(lost[op], 2, 1), 0)
    columns = [
        np.arange(2 * count), np.arange(2 * count), process[op],
        pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), ["invoke", "ok", "info"]),
        pa.DictionaryArray.from_arrays(pa.array(write[op].astype(np.int32)), ["read", "write"]),
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(2 * count, np.int32)), ["k"]),
        texts, pa.nulls(2 * count, pa.string()), pa.nulls(2 * count, pa.string()),
    ]  # fmt: skip
    schema = SCHEMA.with_metadata({"harness.format": FORMAT})
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd", row_group_size=ROW_GROUP)
