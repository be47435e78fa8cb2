# SPDX-License-Identifier: Apache-2.0
"""Mutants of the compiled kernel: its own source, run by the interpreter, with one line changed.

A program of its own (`test_kernel_mutants` starts it): Numba must be switched off before anything compiled is imported.
Each mutant weakens one reduction that only the kernel has, or that it writes in its own way, and comes with a small
history on which it is wrong. A line `name: verdict` a mutant; the kernel as it is must be right on all the histories.

A history is written as calls (`c`, number, what: w write, r read, s cas, values) and returns (`r`, number); an op that
does not return is unknown. `--find NAME` looks for a history for a mutant that has none.
"""

from __future__ import annotations

import os
import sys

os.environ["NUMBA_DISABLE_JIT"] = "1"

import re
import signal
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from mutants_of_kernel import MUTANTS  # noqa: E402
from tiny_histories import brute_force  # noqa: E402

from checkers.linearizability import CasRegister, Problem, Transition  # noqa: E402
from checkers.linearizability.closed_table import enumerate_states  # noqa: E402
from checkers.linearizability.compiled import kernel as whole  # noqa: E402
from checkers.linearizability.history.columns import columns  # noqa: E402
from checkers.linearizability.history.table import Table  # noqa: E402

MODULES = ("open_ops", "configurations", "kernel")
_ENDLESS_S = 2.0
"""So many seconds of the processor no kernel takes for a history of a dozen ops."""

FS = {"w": "write", "r": "read", "s": "cas"}

warnings.simplefilter("ignore", RuntimeWarning)  # 64-bit words overflow, as they do in compiled code


def problem_of(history: str) -> Problem:
    table = Table(CasRegister())
    kinds: list[int] = []
    number: dict[str, int] = {}
    events: list[int] = []
    for word in history.split():
        if word[0] == "r":
            events.append(2 * number[word[1:]] + 1)
            continue
        found = re.fullmatch(r"c(\d+)([wrs])(\d+)", word)
        assert found is not None
        name, f, digits = found.groups()
        number[name] = len(kinds)
        events.append(2 * len(kinds))
        value: Any = tuple(map(int, digits)) if f == "s" else int(digits)
        kinds.append(table.kind(Transition(FS[f], value)))
    table.seal_kinds()
    return Problem(table, kinds, range(len(kinds)), events)


@dataclass(frozen=True)
class Kernel:
    """The modules of a kernel, perhaps a mutated one."""

    modules: dict[str, types.ModuleType]

    @classmethod
    def of(cls, changed: str = "", old: str = "", new: str = "") -> Kernel:
        """Raises ValueError where `old` does not stand just once in the module that is to be changed."""
        folder = Path(whole.__file__).parent
        made: dict[str, types.ModuleType] = {}
        for name in MODULES:
            text = (folder / f"{name}.py").read_text()
            if name == changed:
                if text.count(old) != 1:
                    raise ValueError(f"{name}.py has {text.count(old)} times: {old}")
                text = text.replace(old, new)
            for other in made:
                text = text.replace(f"checkers.linearizability.compiled.{other} import", f"mutated_{other} import")
            module = made[name] = types.ModuleType(f"mutated_{name}")
            sys.modules[module.__name__] = module
            exec(compile(text, f"{name}.py", "exec"), module.__dict__)
        return cls(made)

    def valid(self, problem: Problem) -> bool:
        open_ops, configurations, kernel = (self.modules[name] for name in MODULES)
        dense = enumerate_states(problem.table)
        assert dense is not None
        history = columns(problem, dense)
        layout = open_ops.lay_out(history, np.arange(dense.step.shape[1], dtype=np.int32))
        front, todo, passed = (configurations.new_rows(1024, 1024 * layout.width, 64) for _ in range(3))
        told = np.zeros(kernel.TOLD, np.int64)
        space = kernel.Space(front, todo, passed, np.zeros(0, np.int32), told)
        code = kernel.walk(history, dense, layout, 0, 10_000, space)
        assert code in (kernel.VALID, kernel.INVALID), code
        return bool(code == kernel.VALID)


def wrong(kernel: Kernel, problem: Problem) -> bool:
    """A mutant that breaks down, or does not come to an end, is found out as well."""
    truth = brute_force(problem)
    signal.setitimer(signal.ITIMER_VIRTUAL, _ENDLESS_S)
    try:
        return kernel.valid(problem) != truth
    except (AssertionError, IndexError, OverflowError, TimeoutError):
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _stop(*_: object) -> None:
    raise TimeoutError


signal.signal(signal.SIGVTALRM, _stop)


def random_history(rng: Random) -> str:
    """Few kinds of ops, so that many are alike."""
    count, values, crash = rng.randint(4, 10), rng.choice((2, 3, 3, 4)), rng.choice((0, 0, 0.2, 0.5))
    length = rng.choice((1, 3, 6))
    kinds = [f"w{rng.randrange(values)}" for _ in range(rng.randint(1, 3))]
    kinds += ["s{}{}".format(*rng.sample(range(values), 2)) for _ in range(rng.randint(0, 2))]
    stamped: list[tuple[float, str]] = []
    for op in range(count):
        what = rng.choice(kinds) if rng.random() < 0.6 else f"r{rng.randrange(values)}"
        begin = rng.random() * count
        stamped.append((begin, f"c{op}{what}"))
        if what[0] == "r" or rng.random() >= crash:
            stamped.append((begin + rng.random() * length, f"r{op}"))
    return " ".join(word for _, word in sorted(stamped))


def shrunk(kernel: Kernel, history: str) -> str:
    """Without the ops, and the returns, that are not needed to find the mutant out."""
    words, at = history.split(), 0
    while at < len(words):
        name = re.match(r"[cr](\d+)", words[at])
        assert name is not None
        fewer = [w for w in words if w != words[at] and not (words[at][0] == "c" and w == f"r{name[1]}")]
        if fewer and wrong(kernel, problem_of(" ".join(fewer))):
            words = fewer
        else:
            at += 1
    return " ".join(words)


def find(name: str, count: int) -> str | None:
    kernel, rng = Kernel.of(*MUTANTS[name][:3]), Random(name)
    for _ in range(count):
        history = random_history(rng)
        if "r" in history and wrong(kernel, problem_of(history)):
            return shrunk(kernel, history)
    return None


def main() -> int:
    if sys.argv[1:2] == ["--find"]:
        names = sys.argv[3:] or [name for name, mutant in MUTANTS.items() if not mutant[3]]
        for name in names:
            print(f"{name}: {find(name, int(sys.argv[2]))}", flush=True)
        return 0
    right = Kernel.of()
    for name, (module, old, new, history) in MUTANTS.items():
        problem = problem_of(history)
        assert not wrong(right, problem), name
        print(f"{name}: {'found out' if wrong(Kernel.of(module, old, new), problem) else 'survives'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
