# SPDX-License-Identifier: Apache-2.0
"""Histories of a register by the million, with known verdicts, as an op table.

    python -m benchmarks.batch.generate FOLDER --histories 10000 --ops 200 1000 --invalid 0.05

A real register is simulated for many histories at once: each op takes effect at one moment within its call, unknown ops
half of the time. In front of the last op of an invalid history an acknowledged write is overwritten by another one, and
then read: no outcome of the unknown ops explains that in any order.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from results.op_table import OP_TABLE, WHOLE
from results.sealed import ROW_GROUP

VALUES: Final = 5
CLIENTS: Final = 5
LOST, LATER = VALUES, VALUES + 1
"""Two values that only the end of an invalid history writes."""

READ, WRITE, CAS = range(3)
INVOKE, OK, FAIL, INFO = range(4)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lot:
    """Histories of one size. ops: calls in each. unknown: share of calls with an unknown outcome."""

    histories: int
    ops: int
    unknown: float
    invalid: float


def events(lot: Lot, rng: np.random.Generator) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """The columns of a lot, one history behind the other, and which of them are invalid.

    `value` is a number: 0 null, 1 + v a value, 1 + n + n * a + b a pair [a, b] (n values in all).
    """
    n, ops = lot.histories, lot.ops - lot.ops % CLIENTS
    per_client = ops // CLIENTS
    shape = (n, CLIENTS, per_client)
    gaps, lengths = rng.random(shape) * 0.2, rng.exponential(size=shape)
    ends = np.cumsum(gaps + lengths, axis=2)
    starts = ends - lengths
    effects = (starts + lengths * rng.random(shape)).reshape(n, ops)
    flat = (n, ops)
    f = rng.choice([READ, READ, WRITE, WRITE, CAS], size=flat)
    new, old = rng.integers(0, VALUES, flat), rng.integers(0, VALUES, flat)
    unknown = rng.random(flat) < lot.unknown
    silent = unknown & (rng.random(flat) < 0.5)
    seen, refused = _take_effect(np.argsort(effects, axis=1), f, new, old, silent)
    invalid = rng.random(n) < lot.invalid
    total = max(LATER + 1, VALUES)
    pair = 1 + total + total * old + new
    argument = np.where(f == READ, 0, np.where(f == WRITE, 1 + new, pair))
    result = np.where(f == READ, 1 + seen, argument)
    outcome = np.where(unknown, INFO, np.where(refused, FAIL, OK))
    # A process that ended in `info` never acts again: its client continues as another one.
    client = np.repeat(np.arange(CLIENTS), per_client)[None, :]
    died = np.cumsum(unknown.reshape(shape), axis=2) - unknown.reshape(shape)
    process = (client.reshape(1, CLIENTS, per_client) + CLIENTS * died).reshape(flat)
    result = np.where(outcome == INFO, argument, result)
    time = np.concatenate((starts.reshape(flat), ends.reshape(flat)), axis=1)
    columns = {
        "process": np.concatenate((process, process), axis=1),
        "type": np.concatenate((np.zeros(flat, np.int64), outcome), axis=1),
        "f": np.concatenate((f, f), axis=1),
        "value": np.concatenate((argument, result), axis=1),
        "time": (time * 1e6).astype(np.int64),
    }
    order = np.argsort(time, axis=1, kind="stable")
    columns = {name: np.take_along_axis(column, order, axis=1) for name, column in columns.items()}
    return _with_ends(columns, invalid), invalid


def _take_effect(order: Ints, f: Ints, new: Ints, old: Ints, silent: npt.NDArray[np.bool_]) -> tuple[Ints, Any]:
    """The values that reads saw (-1: none yet), and the refused compare-and-sets: op by op, all histories at a time."""
    state = np.full(len(f), -1, np.int64)
    seen = np.full(f.shape, -1, np.int64)
    refused = np.zeros(f.shape, np.bool_)
    every = np.arange(len(f))
    for step in range(f.shape[1]):
        op = order[:, step]
        kind = f[every, op]
        seen[every, op] = state
        fits = (kind == WRITE) | ((kind == CAS) & (old[every, op] == state))
        refused[every, op] = (kind == CAS) & ~fits
        state = np.where(fits & ~silent[every, op], new[every, op], state)
    return seen, refused


def _with_ends(columns: dict[str, npt.NDArray[Any]], invalid: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    """The histories one behind the other; `run` and `index` are added. Invalid ones end in a read of a lost write."""
    n, size = columns["time"].shape
    length = size + 6 * invalid
    run = np.repeat(np.arange(n), length)
    first = np.concatenate(([0], np.cumsum(length)[:-1]))
    index = np.arange(len(run)) - first[run]
    out: dict[str, npt.NDArray[Any]] = {"run": run, "index": index}
    plain = index < size
    last = columns["time"][:, -1]
    fixed = {
        "process": [10**6] * 6,
        "type": [INVOKE, OK] * 3,
        "f": [WRITE, WRITE, WRITE, WRITE, READ, READ],
        "value": [1 + LOST, 1 + LOST, 1 + LATER, 1 + LATER, 0, 1 + LOST],
    }
    for name, column in columns.items():
        whole = np.zeros(len(run), np.int64)
        whole[plain] = column.reshape(-1)
        added = last[run[~plain]] + 1 + index[~plain] - size
        whole[~plain] = added if name == "time" else np.array(fixed[name])[index[~plain] - size]
        out[name] = whole
    return out


def _texts() -> list[str | None]:
    total = LATER + 1
    singles = [json.dumps(v) for v in range(total)]
    return [None, *singles, *(f"[{a},{b}]" for a in range(total) for b in range(total))]


def as_batch(columns: dict[str, npt.NDArray[Any]], names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    """Columns of numbers as rows of an op table."""
    texts = pa.array(_texts(), pa.string())
    rows = len(columns["run"])
    words = {"type": ["invoke", "ok", "fail", "info"], "f": ["read", "write", "cas"], "run": names}
    arrays = []
    for field in schema:
        if field.name in words:
            codes = pa.array(columns[field.name].astype(np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(codes, pa.array(words[field.name], pa.string())))
        elif field.name == "value":
            arrays.append(texts.take(pa.array(columns["value"])))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name]))
        else:
            arrays.append(pa.nulls(rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def generate(folder: Path, histories: int, ops: tuple[int, int], invalid: float, seed: int, files: int = 8) -> int:
    """Writes op tables `part-N.parquet` to `folder`, and beside them their true verdicts. Returns the number of ops.

    Every tenth lot has some 25 ops of unknown outcome in each history.
    """
    rng = np.random.default_rng(seed)
    (folder / "ops").mkdir(parents=True, exist_ok=True)
    schema = OP_TABLE.with_metadata({WHOLE: b"1"})
    names: list[str] = []
    truth: list[npt.NDArray[np.bool_]] = []
    count = total = number = 0
    writers = [
        pq.ParquetWriter(folder / "ops" / f"part-{i:03}.parquet", schema, compression="zstd") for i in range(files)
    ]
    while count < histories:
        size = int(rng.integers(ops[0], ops[1] + 1))
        lot = Lot(min(max(1, ROW_GROUP // (2 * size)), histories - count), size, 0.005, invalid)
        if number % 10 == 9:
            lot = Lot(lot.histories, size, min(0.05, 25 / size), invalid)
        columns, bad = events(lot, rng)
        names = [f"h{count + i:07}" for i in range(lot.histories)]
        writers[number % files].write_batch(as_batch(columns, names, schema), row_group_size=10**9)
        truth.append(bad)
        count += lot.histories
        total += lot.histories * lot.ops
        number += 1
    for writer in writers:
        writer.close()
    np.save(folder / "invalid.npy", np.concatenate(truth))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--ops", type=int, nargs=2, default=(200, 1_000), metavar=("FROM", "TO"))
    parser.add_argument("--invalid", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    total = generate(given.folder, given.histories, tuple(given.ops), given.invalid, given.seed)
    print(f"{given.histories:,} histories, {total:,} ops in {given.folder}")


if __name__ == "__main__":
    main()
