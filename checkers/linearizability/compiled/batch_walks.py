"""From a batch to the compiled loops over it. Imported only where compiled code may be used."""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.closed_table import MAX_STATES, enumerate_states
from checkers.linearizability.compiled import searches
from checkers.linearizability.compiled.batch_kernel import walk_many
from checkers.linearizability.compiled.code_cache import Part, ensure
from checkers.linearizability.compiled.kv_batch import Keys, portions
from checkers.linearizability.compiled.kv_kernel import walk_stores
from checkers.linearizability.compiled.workspace import workspace
from checkers.linearizability.history.events import NONE, Bytes, Longs
from checkers.linearizability.history.packed import Packed, pack
from checkers.linearizability.history.table import Dense
from checkers.linearizability.models.registers import CasRegister
from results.history import Call
from results.op import Op

_MEMORY: Final = 1 << 26
"""Bytes for the small histories with which code is compiled."""


def walk_packed(packed: Packed, dense: Dense, memory: int, verdict: Bytes, failing: Longs) -> int:
    """Fills what it decides and returns the work. `memory`: bytes. Raises ValueError for what cannot be a batch."""
    if len(packed.kind) and not 0 <= int(packed.kind.min()) <= int(packed.kind.max()) < dense.step.shape[1]:
        raise ValueError("a packed op has a kind that its table does not know")
    if (packed.ret < packed.call).any():
        raise ValueError("a packed op ended before it began")
    ensure(BATCH)
    space, rows = workspace().prepare(dense.step.shape[0], memory)
    ops = packed.kind, packed.call, packed.ret, packed.first, packed.source
    return int(walk_many(*ops, dense, space, rows, verdict, failing))


def walk_keys(keys: Keys, memory: int, verdict: Bytes, failing: Longs) -> int:
    """The same for keys of a store, each with a table of its own: hardly two of them ever hold the same."""
    ensure(KV_BATCH)
    work = 0
    for portion in portions(keys.histories):
        if not portion.ops:
            continue
        part = slice(portion.begin, portion.begin + len(portion.first) - 1)
        ops, first, texts = (np.frombuffer(column, np.int64) for column in (portion.ops, portion.first, portion.texts))
        lengths = np.fromiter(map(len, portion.strings), np.int64, len(portion.strings))
        characters = np.frombuffer(bytearray("".join([*portion.strings, "."]), "utf-32-le", "surrogatepass"), np.uint32)
        space, rows = workspace().prepare(MAX_STATES, memory)
        work += walk_stores(ops, first, characters, lengths, texts, space, rows, verdict[part], failing[part])
    return work


def _one() -> tuple[Bytes, Longs]:
    return np.zeros(1, np.uint8), np.full(1, NONE, np.int64)


def _run_batch() -> None:
    packed = pack([searches.small_history()], CasRegister())
    dense = enumerate_states(packed.table)
    if dense is None:
        raise AssertionError("a register of two values has a closed table")
    walk_packed(packed, dense, _MEMORY, *_one())


def _run_keys() -> None:
    store = [
        Call(Op(0, 0, 0, "invoke", "put", "k", "a"), Op(3, 3, 0, "ok", "put", "k", "a")),
        Call(Op(1, 1, 1, "invoke", "append", "k", "b"), None),
        Call(Op(2, 2, 2, "invoke", "get", "k"), Op(4, 4, 2, "ok", "get", "k", "ab")),
    ]
    walk_keys(Keys([store]), _MEMORY, *_one())


BATCH: Final = Part("batch", _run_batch, 20, searches.SEARCH)
KV_BATCH: Final = Part("kv-batch", _run_keys, 15, BATCH)
