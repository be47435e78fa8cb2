# SPDX-License-Identifier: Apache-2.0
"""Whole commands for small histories: `harness check FILE` beside Porcupine in a program of its own.

    python -m benchmarks.checker.command FOLDER [--rounds 3] [--limit-s 60]

FOLDER has histories of registers, such as Porcupine's own logs (`etcd_*.log`). Each side is a new process for each
file: start, reading, decision, one line. This checker reads the log as it is. Porcupine reads a JSON file with the same
operations: as a compiled program, and as its users run it, who write their model in Go (`go run .`, compiled before).
Seconds of the processor, the fastest round, and our ratio to both; then of all files together. The start of Python
alone (`python -c pass`) and that of numpy are listed below. Verdicts that differ end it with code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.checker.families import logs
from benchmarks.checker.yardstick import SOURCE, build, of_register
from checkers.linearizability import CasRegister
from checkers.linearizability.history.packed import pack
from results.formats import read_history

WORDS = {"ok": 0, "illegal": 1}
"""Porcupine's verdicts, as exit codes of `harness check`."""


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With compiled modules, as pip leaves them."""


def cpu_s(argv: Sequence[str], given: str = "", cwd: Path | None = None) -> tuple[float, str, int]:
    """Seconds of the processor of a process and its children; what it printed; its exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, input=given, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout, done.returncode


def _sides(seconds: Sequence[float]) -> str:
    ours, compiled, run = seconds
    return (
        f"ours {ours:7.3f} s  compiled {compiled:7.3f} s, ratio {ours / compiled:7.2f}  "
        f"go run {run:7.3f} s, ratio {ours / run:5.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pattern", default="etcd_*.log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=int, default=60, help="for Porcupine, a history")
    given = parser.parse_args()
    harness = str(Path(sys.executable).with_name("harness"))
    differ = 0
    fastest: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as scratch:
        program, prepared = Path(scratch) / "porcupine", Path(scratch) / "history.json"
        build(program)
        request = f"0 {given.limit_s * 1000} 0\n"
        for file in logs(given.folder, given.pattern):
            prepared.write_text(json.dumps([of_register(pack([read_history(file).history], CasRegister()), 0)]))
            rounds = []
            for _ in range(given.rounds):
                ours, _, code = cpu_s([harness, "check", str(file), "--model", "cas-register"])
                compiled, answer, _ = cpu_s([str(program), str(prepared)], request)
                run, _, _ = cpu_s(["go", "run", ".", str(prepared)], request, SOURCE)
                rounds.append((ours, compiled, run))
            word = answer.split()[0]
            differ += word in WORDS and WORDS[word] != code
            fastest.append(tuple(min(side) for side in zip(*rounds, strict=True)))
            print(f"{file.name:24} {_sides(fastest[-1])}  {word}", flush=True)
    print(f"{f'{len(fastest)} files':24} {_sides([sum(side) for side in zip(*fastest, strict=True)])}")
    within = [sum(one[0] <= 1.5 * one[side] for one in fastest) for side in (1, 2)]
    print(f"within 1.5 of the compiled program: {within[0]} of {len(fastest)}; of go run: {within[1]}")
    for what in ("pass", "import numpy"):
        print(f"python -c {what!r}: {min(cpu_s([sys.executable, '-c', what])[0] for _ in range(given.rounds)):.3f} s")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
