# SPDX-License-Identifier: Apache-2.0
"""This checker beside Porcupine: same histories, same machine, interleaved, warm, one thread each.

    python -m benchmarks.checker [--histories FOLDER] [--whole] [--rounds 5] [--limit-s 5] [--only WORD]

Needs Go (the product does not): Porcupine comes as a Go module. `FOLDER` may hold Porcupine's own logs (`etcd_*.log`,
`c10-ok.txt`), which then make separate families. All times are of the processor, so that another load on the machine
does less harm. A line a family: milliseconds of all its histories together (fastest round), the ratio of the two per
round as minimum, median and maximum, the peak memory of each process, and the number of histories on which Porcupine
ended without a verdict (its time then counts as the limit).

columns      both begin with columns in memory, neither parses, and both put the events in order
parsed ops   both begin with parsed operations of many keys; this checker encodes and partitions, and stops at the first
             bad key
raw text     this checker begins with the files, Porcupine with columns

`--whole` adds histories that are too large for Porcupine: up to a million ops. After them come lines without a rival
(`alone`), each with its time limit, and its ratios to that. At the end is the number of histories that Porcupine solves
in over a millisecond, with those on which this checker is slower. Verdicts that differ are listed, and end it with 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.checker.alone import describe, lines
from benchmarks.checker.families import Family, Stores, families, logs, stores
from benchmarks.checker.memory import forget_peak, peak_mib
from benchmarks.checker.yardstick import Yardstick, build, of_register, of_store
from checkers.linearizability import KV, CasRegister
from checkers.linearizability.batch import INVALID, VALID, check_batch
from checkers.linearizability.history.packed import Packed, pack
from results.formats import read_history
from results.history import Call

TOLD = {"ok": VALID, "illegal": INVALID}
WORTH_S = 0.001
BRIEF_S = 0.01
"""A family that takes less is run twice in each round, on both sides, and the second run counts: the first one finds
the caches full of the other side's data.
"""
FIRST = 3
"""Keys of a store that are checked before all others: a bad one may be among them."""
HEAD = (
    f"{'family':62} {'ours ms':>9} {'Porcupine':>10} {'min':>8} {'median':>8} {'max':>8} {'MiB':>6} {'its':>6} gave up"
)


class Table:
    """Prints the lines, and keeps the figures of the last ones."""

    def __init__(self) -> None:
        self.agreed = True
        self.worth = 0
        self.slower: list[str] = []

    def line(self, name: str, ours: Sequence[float], theirs: Sequence[float], mib: int, its: int, gave_up: int) -> None:
        ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
        told = f"{ratios[0]:8.4f} {median(ratios):8.4f} {ratios[-1]:8.4f}"
        print(
            f"{name:62} {min(ours) * 1e3:9.2f} {min(theirs) * 1e3:10.2f} {told} {mib:6} {its:6} {gave_up or '':>7}",
            flush=True,
        )

    def history(self, name: str, ours: float, theirs: float) -> None:
        """Counts a history that Porcupine solved."""
        if theirs > WORTH_S:
            self.worth += 1
            if ours > theirs:
                self.slower.append(f"  {name}: {ours * 1e3:.2f} ms, Porcupine {theirs * 1e3:.2f} ms")

    def verdict(self, name: str, word: str, verdict: int) -> None:
        if word in TOLD and verdict != TOLD[word]:
            self.agreed = False
            print(f"  {name}: Porcupine says {word}, we say {verdict}")


def timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def alone(packed: Packed, history: int) -> Packed:
    """A batch of one."""
    begin, end = int(packed.first[history]), int(packed.first[history + 1])
    part = slice(begin, end)
    first = np.array([0, end - begin], np.int64)
    return Packed(packed.table, packed.kind[part], packed.call[part], packed.ret[part], first, packed.source[part])


class Compared:
    """Both sides on the histories of one family."""

    def __init__(self, histories: Sequence[Mapping[str, object]], given: argparse.Namespace, program: Path) -> None:
        self.rounds, self.limit_ms, self.count = given.rounds, int(given.limit_s * 1000), len(histories)
        self.folder = tempfile.TemporaryDirectory()
        self.yardstick = Yardstick(program, histories, Path(self.folder.name))

    def __enter__(self) -> Compared:
        self.first = [self.yardstick.check(h, self.limit_ms, memory=True) for h in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        self.yardstick.close()
        self.folder.cleanup()

    def theirs(self) -> list[float]:
        """Seconds for each history; histories without a verdict are not tried again."""
        return [
            self._again(h, answer.seconds) if answer.word in TOLD else answer.seconds
            for h, answer in enumerate(self.first)
        ]

    def _again(self, history: int, before: float) -> float:
        if before < BRIEF_S:
            self.yardstick.check(history, self.limit_ms)
        return self.yardstick.check(history, self.limit_ms).seconds

    def _warm(self, run: Callable[[], object]) -> float:
        took = timed(run)
        return timed(run) if took < BRIEF_S * self.count else took

    def run(self, table: Table, name: str, ours: Callable[[], object]) -> list[list[float]]:
        """A line of the table. Returns Porcupine's seconds, by round and history."""
        ours()
        forget_peak()
        ours()
        mib = peak_mib()
        pairs = [(self._warm(ours), self.theirs()) for _ in range(self.rounds)]
        gave_up = sum(answer.word not in TOLD for answer in self.first)
        its = max((answer.mib for answer in self.first), default=0)
        table.line(name, [one for one, _ in pairs], [sum(other) for _, other in pairs], mib, its, gave_up)
        return [other for _, other in pairs]


def registers(table: Table, family: Family, given: argparse.Namespace, program: Path, files: Sequence[Path]) -> None:
    packed = family.packed
    if not family.bounded:
        table_line_alone(family)
        return
    with Compared([of_register(packed, h) for h in range(len(packed))], given, program) as compared:
        theirs = compared.run(table, f"{family.name}, columns", lambda: check_batch(packed))
        if files:
            compared.run(table, f"{family.name}, raw text", lambda: from_text(files))
        found = check_batch(packed)
        for h, answer in enumerate(compared.first):
            if packed.first[h] == packed.first[h + 1]:
                continue
            table.verdict(f"{family.name}, {h}", answer.word, int(found.verdict[h]))
            if answer.word in TOLD:
                one = alone(packed, h)
                ours = min(timed(lambda one=one: check_batch(one)) for _ in range(given.rounds))  # type: ignore[misc]
                table.history(f"{family.name}, {h}", ours, min(seconds[h] for seconds in theirs))


def table_line_alone(family: Family) -> None:
    """Ours alone: milliseconds, memory and verdict."""
    forget_peak()
    found = check_batch(family.packed)
    took = min(timed(lambda: check_batch(family.packed)) for _ in range(3))
    told = f"{'skipped':>10}  {found[0].value}"
    print(f"{family.name + ', columns':62} {took * 1e3:9.2f} {told:37} {peak_mib():6}", flush=True)


def from_text(files: Sequence[Path]) -> object:
    return check_batch(pack([read_history(file).history for file in files], CasRegister()))


def many_keys(table: Table, family: Stores, given: argparse.Namespace, program: Path) -> None:
    with Compared([of_store(keys) for keys in family.histories], given, program) as compared:
        ours = lambda: [all_keys(keys) for keys in family.histories]  # noqa: E731
        theirs = compared.run(table, f"{family.name}, parsed ops", ours)
        for h, (keys, answer) in enumerate(zip(family.histories, compared.first, strict=True)):
            table.verdict(f"{family.name}, {h}", answer.word, VALID if all_keys(keys) else INVALID)
            took = min(timed(lambda keys=keys: all_keys(keys)) for _ in range(given.rounds))  # type: ignore[misc]
            table.history(f"{family.name}, {h}", took, min(seconds[h] for seconds in theirs))


def all_keys(keys: Mapping[str | None, Sequence[Call]]) -> bool:
    """Short keys first, a few and then all others, until one is bad."""
    calls = sorted(keys.values(), key=len)
    return all((check_batch(some, KV()).verdict == VALID).all() for some in (calls[:FIRST], calls[FIRST:]) if some)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--histories", type=Path, help="a folder with Porcupine's logs")
    parser.add_argument("--whole", action="store_true", help="also up to a million ops, without Porcupine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=5.0, help="for Porcupine, a history (default 5)")
    parser.add_argument("--only", default="", help="families with this in their name")
    given = parser.parse_args()
    if shutil.which("go") is None:
        print("this benchmark needs Go, to build Porcupine", file=sys.stderr)
        return 64
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "yardstick"
        build(program)
        print(f"ours begins with {peak_mib()} MiB\n{HEAD}")
        for family in families(given.histories, given.whole, given.only):
            text = logs(given.histories, "etcd_*.log") if "etcd" in family.name else []
            registers(table, family, given, program, text)
        for store in stores(given.histories):
            if given.only in store.name:
                many_keys(table, store, given, program)
        print(f"{'alone':62} {'ours ms':>9} {'bar':>10} {'min':>8} {'median':>8} {'max':>8} {'MiB':>6} {'wall ms':>9}")
        real = [] if given.histories is None else logs(given.histories, "etcd_*.log")
        for line in lines(given.whole, Path(folder), real, given.only):
            print(describe(line), flush=True)
    print(f"{table.worth} histories took Porcupine over a millisecond; on {len(table.slower)} of them we are slower")
    print("\n".join(table.slower))
    return 0 if table.agreed else 1


if __name__ == "__main__":
    sys.exit(main())
