# SPDX-License-Identifier: Apache-2.0
"""The histories of the benchmark: real logs, and a real register or key-value store at work, simulated.

Every op takes effect at one moment within its call; unknown ops at any later moment, or never. `broken` histories end
in a few ops, one after the other, that cannot be: all that came before has to be gone through to see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from checkers.linearizability import CasRegister, Model, Transition
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.packed import Packed, pack
from checkers.linearizability.history.table import Table
from results.formats import read_history
from results.history import Call, History
from results.op import Op


@dataclass(frozen=True)
class Shape:
    """ops: of the whole history. values: how many different ones (None: each is written once). unknown: how many ops
    have no outcome. late: they may take effect much later than they were called.
    """

    ops: int
    clients: int
    values: int | None = 5
    unknown: int = 0
    late: bool = False
    broken: bool = False

    def __str__(self) -> str:
        parts = [f"{self.ops:,} ops", f"{self.clients} clients"]
        parts.append("unique values" if self.values is None else f"{self.values} values")
        parts += [f"{self.unknown} unknown{' and late' * self.late}"] * bool(self.unknown)
        return ", ".join([*parts, "broken" if self.broken else "valid"])


@dataclass(frozen=True)
class Row:
    """One op: its transition, and the times of its begin and end (NEVER: unknown)."""

    kind: Transition
    call: float
    ret: float


def register(rng: Random, shape: Shape, cas: bool = True) -> list[Row]:
    """The calls of one register's clients: half reads, three in ten writes, two cas of any value to any; a call takes 1
    to 10, a pause up to 3. (A cas that finds another value fails, and is not part of the history.)
    """
    moments = np.random.default_rng(rng.getrandbits(64))
    per_client = -(-shape.ops // shape.clients)
    length = moments.uniform(1, 10, (shape.clients, per_client))
    start = np.cumsum(length + moments.uniform(0, 3, length.shape), axis=1) - length
    point = start + length * moments.random(length.shape)
    chosen = np.argsort(start, axis=None)[: shape.ops]
    starts, points, ends = (times.ravel()[chosen] for times in (start, point, start + length))
    fs = rng.choices(("read", "write", "cas" if cas else "write"), (5, 3, 2), k=shape.ops)
    lost = set(rng.sample([op for op, f in enumerate(fs) if f != "read"], shape.unknown))
    for op in lost:
        if shape.late:
            points[op] = starts[op] + rng.uniform(0, 200)
    fresh = count(1)
    rows: list[Row] = []
    state: int | None = None
    for op in np.argsort(points).tolist():
        f, unknown = fs[op], op in lost
        if f == "read":
            rows.append(Row(Transition("read", state), starts[op], ends[op]))
            continue
        new = next(fresh) if shape.values is None else rng.randrange(shape.values)
        expected = None if shape.values is None else rng.randrange(shape.values)
        happens = (f == "write" or expected == state) and (not unknown or rng.random() < 0.5)
        kind = Transition("write", new) if f == "write" else Transition("cas", (expected, new))
        if happens:
            state = new
        if happens or unknown:
            rows.append(Row(kind, starts[op], NEVER if unknown else ends[op]))
    return [*rows, *_impossible(rows)] if shape.broken else rows


def _impossible(rows: Sequence[Row]) -> Iterator[Row]:
    """One write, then a read of something else, again and again, until no unknown op is left that could explain it."""
    at = 1.0 + max((row.call if row.ret == NEVER else row.ret for row in rows), default=0.0)
    written = [row.kind.value for row in rows if row.kind.f == "write" and row.ret != NEVER] or [1]
    one, other = written[0], written[-1] if written[-1] != written[0] else None
    unique = len(set(written)) == len(written)
    for i in range(1 if unique else 1 + sum(row.ret == NEVER for row in rows)):
        # (Where values are unique, a last write of a new one makes the reads of all before it impossible.)
        last = max(w for w in written) + 1 if unique else one
        yield Row(Transition("write", last), at + 4 * i, at + 4 * i + 1)
        yield Row(Transition("read", other), at + 4 * i + 2, at + 4 * i + 3)


def packed(model: Model[Any], histories: Sequence[Sequence[Row]]) -> Packed:
    """Rows as the columns of a batch."""
    table = Table(model)
    rows = [row for history in histories for row in history]
    kinds = np.array([table.kind(row.kind) for row in rows], np.int32)
    table.seal_kinds()
    first = np.cumsum([0, *map(len, histories)])
    call, ret = np.zeros(len(rows), np.int64), np.full(len(rows), NEVER, np.int64)
    for begin, end in pairwise(first.tolist()):
        part = rows[begin:end]
        times = np.array([[row.call for row in part], [row.ret for row in part]])
        rank = np.argsort(np.argsort(times, axis=None)).reshape(times.shape)
        call[begin:end] = rank[0]
        ret[begin:end] = np.where(times[1] == NEVER, NEVER, rank[1])
    return Packed(table, kinds, call, ret, first.astype(np.int64), np.arange(len(rows), dtype=np.int64))


def store(rng: Random, clients: int, ops: int, keys: int, broken: bool) -> History:
    """Clients of a key-value store, as in Porcupine's own test: get, put and append of a token of their own."""
    free = [0.0] * clients
    begun: list[tuple[float, float, float, int]] = []
    for _ in range(ops):
        client = min(range(clients), key=free.__getitem__)
        start = free[client] + rng.random() * 0.1
        free[client] = start + rng.expovariate(1)
        begun.append((start + (free[client] - start) * rng.random(), start, free[client], client))
    texts: dict[str, str] = {}
    events: list[tuple[float, Op]] = []

    def add(op: tuple[float, float, int], f: str, key: str, argument: str | None, result: str | None) -> None:
        start, end, client = op
        events.append((start, Op(0, 0, client, "invoke", f, key, argument)))
        events.append((end, Op(0, 0, client, "ok", f, key, result)))

    for number, (_, start, end, client) in enumerate(sorted(begun)):
        key = str(rng.randrange(keys))
        f = rng.choices(("get", "append", "put"), (0.44, 0.5, 0.06))[0]
        token = f"x {client} {number} y"
        if f != "get":
            texts[key] = token if f == "put" else texts.get(key, "") + token
        add((start, end, client), f, key, None if f == "get" else token, texts.get(key, "") if f == "get" else token)
    if broken:
        last = max(when for when, _ in events)
        for i, key in enumerate(sorted(texts)[:3]):
            # The last append is gone again when it is read.
            add((last + 4 * i + 1, last + 4 * i + 2, 0), "append", key, "x lost y", "x lost y")
            add((last + 4 * i + 3, last + 4 * i + 4, 0), "get", key, None, texts[key])
    ordered = [op for _, op in sorted(events, key=lambda event: event[0])]
    return History(Op(i, i, op.process, op.type, op.f, op.key, op.value) for i, op in enumerate(ordered))


@dataclass(frozen=True)
class Family:
    """Histories of one object each, as columns. `bounded`: Porcupine ends on them in seconds and gigabytes."""

    name: str
    packed: Packed
    bounded: bool = True


@dataclass(frozen=True)
class Stores:
    """Histories of many keys each, as parsed calls by key."""

    name: str
    histories: Sequence[dict[str | None, tuple[Call, ...]]]


def logs(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))


def stores(folder: Path | None) -> Iterator[Stores]:
    for path in [] if folder is None else logs(folder, "c*-*.txt"):
        yield Stores(f"kv {path.stem}, from Porcupine", [read_history(path).history.by_key])
    for broken in (False, True):
        made = [store(Random(f"store/{i}"), 50, 1_700, 10, broken).by_key for i in range(3)]
        yield Stores(f"3 x kv, 1,700 ops, 50 clients, 10 keys, {'broken' if broken else 'valid'}", made)


def shapes() -> Iterator[tuple[int, Shape]]:
    """Yields (number of histories, shape)."""
    for broken in (False, True):
        for clients in (5, 10, 20, 50):
            yield 100 if clients < 20 else 3, Shape(100, clients, broken=broken)
            yield 3, Shape(1_000, clients, broken=broken)
        for unknown in (5, 20, 40):
            yield 3, Shape(250, 10, unknown=unknown, broken=broken)
            yield 3, Shape(830, 10, unknown=unknown, broken=broken)
            yield 3, Shape(250, 10, unknown=unknown, late=True, broken=broken)
            yield 3, Shape(250, 10, values=None, unknown=unknown, late=True, broken=broken)
        yield 3, Shape(1_000, 10, values=None, broken=broken)
        yield 1, Shape(10_000, 10, broken=broken)
        yield 1, Shape(10_000, 10, values=None, broken=broken)


def large() -> Iterator[tuple[int, Shape]]:
    """Nothing that Porcupine would end on: its memory grows with the square of the length."""
    for broken in (False, True):
        yield 1, Shape(100_000, 50, broken=broken)
        yield 1, Shape(1_000_000, 10, broken=broken)
        yield 1, Shape(1_000_000, 10, values=None, unknown=40, broken=broken)


def families(folder: Path | None, whole: bool, only: str = "") -> Iterator[Family]:
    """The real ones and the generated, those with `only` in their name; `whole`: also those of up to a million ops."""
    real = [] if folder is None else logs(folder, "etcd_*.log")
    name = f"{len(real)} etcd logs"
    if real and only in name:
        yield Family(name, pack([read_history(log).history for log in real], CasRegister()))
    for bounded, some in ((True, shapes()), (False, large() if whole else ())):
        for many, shape in some:
            name = f"{many} x {shape}"
            if only in name:
                cas = shape.values is not None
                made = [register(Random(f"{shape}/{i}"), shape, cas) for i in range(many)]
                yield Family(name, packed(CasRegister(), made), bounded)
