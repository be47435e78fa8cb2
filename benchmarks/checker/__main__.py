"""This checker beside Porcupine: same histories, same machine, interleaved, warm, one thread each.

    python -m benchmarks.checker [--histories FOLDER] [--rounds 5] [--limit-s 5]

Needs Go (the product does not): Porcupine is taken through its module. `FOLDER` may hold Porcupine's etcd logs
(`etcd_*.log`), which then make a family of their own. Both sides begin with columns in memory: neither parses, and both
put the events in order. A line a family: milliseconds of all its histories together (fastest round), the ratio of the
two per round as minimum, median and maximum, what each used at most, and on how many histories Porcupine ended without
a verdict (its time then counts as the limit). Verdicts that differ are told, and end it with code 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import IO, Any, NamedTuple

from benchmarks.linearizability import Shape, merged, simulate
from checkers.linearizability import CasRegister
from checkers.linearizability.batch import INVALID, VALID, Packed, check_batch, pack
from checkers.linearizability.encode import NEVER
from results.formats import read_history
from results.history import Call, History

HERE = Path(__file__).parent
TOLD = {"ok": VALID, "illegal": INVALID}


class Family(NamedTuple):
    name: str
    packed: Packed


def families(folder: Path | None) -> Iterator[Family]:
    if folder is not None:
        logs = sorted(folder.rglob("etcd_*.log"))
        yield Family(f"{len(logs)} etcd logs", pack([read_history(log).history for log in logs], CasRegister()))
    for clients, ops, values, crash, stale, many in (
        (5, 100, 5, 0.0, 0.0, 200),
        (5, 100, 5, 0.03, 0.0, 200),
        (5, 100, 5, 0.0, 0.05, 200),
        (10, 1_000, 5, 0.0, 0.0, 10),
        (10, 800, 5, 0.05, 0.0, 10),
        (20, 500, 5, 0.0, 0.0, 10),
        (50, 250, 5, 0.0, 0.0, 3),
        (50, 250, 5, 0.0, 0.05, 3),
        (10, 1_000, None, 0.0, 0.0, 5),
    ):
        shape = Shape(ops, clients, values, crash, stale)
        rng = Random(str(shape))
        made: list[History | Sequence[Call]] = [merged(simulate(rng, shape, "k")) for _ in range(many)]
        told = f"{many} x {ops} ops, {clients} clients, {values or 'unique'} values"
        told += f", {crash:.0%} unknown" * (crash > 0) + f", {stale:.0%} stale" * (stale > 0)
        yield Family(told, pack(made, CasRegister()))


def for_go(packed: Packed, history: int) -> dict[str, Any]:
    """A history as the yardstick reads it: kinds by number, unknown ops end after everything else."""
    begin, end = int(packed.first[history]), int(packed.first[history + 1])
    kinds = []
    for kind in packed.table.kinds:
        a, b = kind.value if isinstance(kind.value, tuple) else (kind.value, None)
        a, b = (-1 if value is None else value for value in (a, b))
        kinds.append({"f": kind.f, "A": a, "B": b, "Seen": a})
    last = 1 + max((int(t) for t in (*packed.call[begin:end], *packed.ret[begin:end])), default=0)
    ops = [
        {
            "Kind": int(packed.kind[op]),
            "Call": int(packed.call[op]),
            "Ret": last if packed.ret[op] == NEVER else int(packed.ret[op]),
            "Unknown": bool(packed.ret[op] == NEVER),
        }
        for op in range(begin, end)
        if packed.ret[op] != NEVER or packed.table.kinds[packed.kind[op]].f != "read"
    ]
    return {"Model": "register", "Kinds": kinds, "Ops": ops}


class Yardstick:
    """The Go program, waiting for numbers of histories."""

    def __init__(self, program: Path, histories: Sequence[dict[str, Any]], folder: Path) -> None:
        path = folder / "histories.json"
        path.write_text(json.dumps(histories))
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def check(self, history: int, limit_ms: int) -> tuple[str, float, int]:
        """What Porcupine says, seconds, and bytes it allocated on the way."""
        asked, told = _pipes(self.process)
        print(history, limit_ms, file=asked, flush=True)
        word, nanoseconds, size = told.readline().split()
        return word, int(nanoseconds) / 1e9, int(size)

    def close(self) -> None:
        _pipes(self.process)[0].close()
        self.process.wait()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def compare(family: Family, program: Path, rounds: int, limit: float) -> bool:
    """Prints the family's line; whether all verdicts agree."""
    packed = family.packed
    ours: list[float] = []
    theirs: list[float] = []
    largest = undecided = 0
    agreed = True
    with tempfile.TemporaryDirectory() as folder:
        yardstick = Yardstick(program, [for_go(packed, h) for h in range(len(packed))], Path(folder))
        check_batch(packed)
        for number in range(rounds):
            began = time.perf_counter()
            found = check_batch(packed)
            ours.append(time.perf_counter() - began)
            total = 0.0
            for history in range(len(packed)):
                word, took, size = yardstick.check(history, int(limit * 1000))
                total += took
                largest = max(largest, size)
                undecided += word == "unknown" and number == 0
                ops = packed.first[history + 1] - packed.first[history]
                if ops and word in TOLD and found.verdict[history] != TOLD[word]:
                    agreed = False
                    print(f"  history {history}: Porcupine says {word}, we say {found[history].value}")
            theirs.append(total)
        yardstick.close()
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{ratios[0]:8.4f} {median(ratios):8.4f} {ratios[-1]:8.4f}"
    memory = f"{peak:6.0f} {largest / 2**20:8.0f}"
    print(
        f"{family.name:58} {min(ours) * 1e3:9.2f} {min(theirs) * 1e3:10.2f} {told} {memory} {undecided:5}", flush=True
    )
    return agreed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--histories", type=Path, help="a folder with Porcupine's etcd logs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=5.0, help="for Porcupine, a history (default 5)")
    given = parser.parse_args()
    if shutil.which("go") is None:
        print("this benchmark needs Go, to build Porcupine", file=sys.stderr)
        return 64
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "yardstick"
        subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "porcupine", check=True)
        ratios = f"{'min':>8} {'median':>8} {'max':>8}"
        print(f"{'family':58} {'ours ms':>9} {'Porcupine':>10} {ratios} {'MiB':>6} {'its MiB':>8} {'gave up'}")
        agreed = [compare(f, program, given.rounds, given.limit_s) for f in families(given.histories)]
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
