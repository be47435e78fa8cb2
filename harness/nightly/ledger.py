# SPDX-License-Identifier: Apache-2.0
"""The ledger of earlier nights: one line of JSON a run, appended when it ends; and the choice of the next cell."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import harness
from harness.nightly.matrix import Cell
from results.durable import append_text, locked, write_text
from results.errors import cannot_write
from results.reading import opened

FILE: Final = "nightly.jsonl"
_LARGEST: Final = 1 << 30
_WHAT: Final = "the ledger of the nights"

NOT_AVAILABLE: Final = "not-available"
"""The verdict of a cell for which this machine, or the cluster, lacks what its fault needs."""

BATCH: Final = 6
"""Cells of one shape in a row: one start of a cluster for all of them."""

_AGAIN: Final = 3
"""One of so many cells of a batch is one that ran before, while others never ran."""


@dataclass(frozen=True)
class Entry:
    """One run. at: when it ended (ISO, local time). new: anomalies that no finding explains. known: ids of findings.
    code: of the harness (`code_digest`). folder: "" without a run.
    """

    cell: str
    at: str
    verdict: str
    why: str
    seconds: float
    folder: str = ""
    new: Sequence[str] = ()
    known: Sequence[int] = ()
    code: str = ""

    @property
    def failed(self) -> bool:
        """True if the cell should run again soon."""
        return bool(self.new) or self.verdict in ("harness-failure", "unknown")


def read_ledger(store: Path) -> list[Entry]:
    """Returns the entries in the order of the runs; a line that is torn, or that no night wrote, is left out."""
    found = []
    try:
        with opened(store / FILE, _LARGEST) as file:
            for line in file.read().splitlines():
                try:
                    data = json.loads(line)
                    entry = Entry(**{key: data[key] for key in Entry.__dataclass_fields__ if key in data})
                    if _is_right(entry):
                        found.append(entry)
                except (ValueError, TypeError, KeyError, RecursionError):
                    continue
    except FileNotFoundError:
        return []
    return found


def _is_right(entry: Entry) -> bool:
    """False for an entry that a night did not write."""
    texts = (entry.cell, entry.at, entry.verdict, entry.why, entry.folder, entry.code, *_items(entry.new))
    numbers = (entry.seconds, *_items(entry.known))
    return all(isinstance(text, str) for text in texts) and all(type(number) in (int, float) for number in numbers)


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [None]


def append(store: Path, entry: Entry) -> None:
    """Appends an entry to the ledger. Raises StoreError."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise cannot_write(store / FILE, _WHAT, problem) from None
    append_text(store / FILE, _line(entry), _WHAT)


def replace_entries(store: Path, changed: Sequence[tuple[Entry, Entry]]) -> list[Entry]:
    """Replaces some entries, and keeps all that nights have added meanwhile. Returns the new ledger. Raises StoreError;
    then the old ledger is still there.
    """
    try:
        with locked(store / FILE):
            news = {_line(old): new for old, new in changed}
            entries = [news.get(_line(entry), entry) for entry in read_ledger(store)]
            write_text(store / FILE, "".join(map(_line, entries)), _WHAT)
    except OSError as problem:
        raise cannot_write(store / FILE, _WHAT, problem) from None
    return entries


def _line(entry: Entry) -> str:
    return json.dumps(asdict(entry), ensure_ascii=False) + "\n"


@cache
def code_digest() -> str:
    """The digest of all modules of the harness: a cell that ran with other code is run again."""
    root = Path(harness.__file__).parents[1]
    digest = hashlib.sha256()
    for package in ("harness", "nemesis", "checkers", "workloads", "infra", "results"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def next_batch(cells: Iterable[Cell], ledger: Sequence[Entry], rng: Random, now: datetime) -> list[Cell]:
    """The next cells, all of one shape, the most urgent first.

    Never run comes first: the cell whose pairs of properties ran least (so that all pairs are covered long before all
    cells are). Between these, what failed last, then what ran with other code, then what ran longest ago.
    """
    last: dict[str, Entry] = {entry.cell: entry for entry in ledger}
    everything = list(cells)
    rng.shuffle(everything)  # of cells that are equally urgent
    seen = Counter(pair for cell in everything if cell.name in last for pair in cell.pairs)
    never = sorted((c for c in everything if c.name not in last), key=lambda cell: -_novelty(cell, seen))
    again = sorted((c for c in everything if c.name in last), key=lambda cell: _urgency(last[cell.name], now))
    first = never[0] if never else again[0]
    never = [cell for cell in never if cell.shape == first.shape]
    again = [cell for cell in again if cell.shape == first.shape]
    chosen: list[Cell] = []
    while len(chosen) < BATCH and (never or again):
        turn = again if again and (not never or len(chosen) % _AGAIN == _AGAIN - 1) else never
        chosen.append(turn.pop(0))
    return chosen


def by_shape(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """All cells, those of one shape together, in their order."""
    shapes: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        shapes.setdefault(cell.shape, []).append(cell)
    yield from shapes.values()


def in_order(cells: Sequence[Cell], ledger: Sequence[Entry], rng: Random) -> Iterator[str]:
    """The names of all cells, in the order in which nights would run them."""
    seen, now = list(ledger), datetime.now()
    left = {cell.name for cell in cells}
    while left:
        for cell in next_batch(cells, seen, rng, now):
            seen.append(Entry(cell.name, now.isoformat(), "valid", "", 0.0, code=code_digest()))
            if cell.name in left:
                left.remove(cell.name)
                yield cell.name


def _novelty(cell: Cell, seen: Mapping[Any, int]) -> float:
    return sum(1 / (1 + seen.get(pair, 0)) for pair in cell.pairs)


def _urgency(entry: Entry, now: datetime) -> tuple[bool, bool, float]:
    """The sort key: failed cells, then cells that ran with other code, then old ones."""
    try:
        age = (now - datetime.fromisoformat(entry.at)).total_seconds()
    except (ValueError, TypeError):
        age = float("inf")
    return not entry.failed, entry.code == code_digest(), -age
