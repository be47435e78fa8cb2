"""What each stage of the portfolio earns: nasty histories, decided by all stages, and by all but one search.

    python -m benchmarks.checker.ablation [--plain]

A line a search: how many histories stay undecided without it, which ones, and what the others cost then (steps and
milliseconds of all histories that are decided both ways, as ratios to the whole portfolio). A search of which the
absence shows in neither does not earn its place. The histories are those of `benchmarks.checker.nasty`, and random ones
of every model that is searched (`--count` of each), with a verdict that is known by how they were made.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from benchmarks.checker.nasty import corpus
from checkers.linearizability.budget import Budget
from checkers.linearizability.compiled import jit
from checkers.linearizability.decide import decide
from checkers.linearizability.fast import monitor
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.search.portfolio import PORTFOLIO, Stage
from results.verdict import Verdict


class Case(NamedTuple):
    """A history that no monitor decides. valid: what it is by its making. steps: what deciding it may cost."""

    name: str
    problem: Problem
    valid: bool
    steps: int


class Run(NamedTuple):
    """By case: was it decided, and with how many steps and seconds of the processor?"""

    decided: Sequence[bool]
    work: Sequence[int]
    seconds: Sequence[float]


def cases() -> Iterator[Case]:
    for nasty in corpus():
        problem = nasty.problem()
        if monitor(problem) is None:
            yield Case(nasty.name, problem, nasty.valid, nasty.steps)


def run(chosen: Sequence[Case], portfolio: Sequence[Stage]) -> Run:
    """Raises AssertionError where a verdict is wrong."""
    decided, work, seconds = [], [], []
    for case in chosen:
        began = time.process_time()
        outcome = decide(case.problem, Budget(steps=case.steps), portfolio)
        seconds.append(time.process_time() - began)
        if outcome.verdict == (Verdict.INVALID if case.valid else Verdict.VALID):
            raise AssertionError(f"{case.name}: {outcome.algorithm} says {outcome.verdict.value}")
        decided.append(outcome.verdict != Verdict.UNKNOWN)
        work.append(outcome.work)
    return Run(decided, work, seconds)


def told(name: str, chosen: Sequence[Case], whole: Run, other: Run) -> str:
    both = [i for i in range(len(chosen)) if whole.decided[i] and other.decided[i]]
    lost = [chosen[i].name for i in range(len(chosen)) if whole.decided[i] and not other.decided[i]]
    steps = sum(other.work[i] for i in both) / max(sum(whole.work[i] for i in both), 1)
    seconds = sum(other.seconds[i] for i in both) / max(sum(whole.seconds[i] for i in both), 1e-9)
    which = f"  ({'; '.join(lost[:3])}{' ...' if len(lost) > 3 else ''})" if lost else ""
    return f"{name:36} {len(lost):5} {steps:8.2f} {seconds:8.2f}{which}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="the edition in plain Python")
    options = parser.parse_args()
    with jit.plain() if options.plain else nullcontext():
        chosen = list(cases())
        run(chosen[:2], PORTFOLIO)  # so that nothing is compiled while it is measured
        whole = run(chosen, PORTFOLIO)
        ms = 1000 * sum(whole.seconds)
        print(f"{len(chosen)} histories, {sum(whole.decided)} decided, {sum(whole.work):,} steps, {ms:,.0f} ms")
        print(f"{'without':36} {'lost':>5} {'steps':>8} {'ms':>8}")
        for search in dict.fromkeys(stage.search for stage in PORTFOLIO):
            rest = [stage for stage in PORTFOLIO if stage.search != search]
            print(told(search, chosen, whole, run(chosen, rest)), flush=True)
        for number, stage in enumerate(PORTFOLIO):
            rest = [*PORTFOLIO[:number], *PORTFOLIO[number + 1 :]]
            print(told(f"row {number + 1} ({stage.search})", chosen, whole, run(chosen, rest)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
