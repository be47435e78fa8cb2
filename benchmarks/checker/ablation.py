# SPDX-License-Identifier: Apache-2.0
"""The value of each search of the portfolio: hard histories, decided by all searches, and by all but one.

    python -m benchmarks.checker.ablation [--plain] [--count 8] [--histories FOLDER]

A line a search: the number of histories that stay undecided without it, the cost of the others then (steps and
milliseconds of all histories that are decided both ways, as ratios to the whole portfolio), and the lost histories. A
search whose absence changes neither has no value. The histories are

* those of `benchmarks.checker.nasty`;
* random ones of 30 to 300 ops of every model (`--count` of each as a real object did them, and as many with a change);
* with `--histories`, each key of each history in FOLDER, whose `verdicts.csv` has their verdicts.

Histories that a monitor decides are left out. A history of a real object is valid; a changed one has the verdict of the
search without reductions (`tests.fuzz.middle.by_the_book`). If that is too slow for an answer, all runs must give the
same verdict. A wrong verdict ends the program.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[2] / "tests")]

from fuzz.middle import FAMILIES, by_the_book, rounds  # noqa: E402 - the tests' own modules

from benchmarks.checker.nasty import corpus  # noqa: E402
from checkers.linearizability import MODELS, encode  # noqa: E402
from checkers.linearizability.budget import Budget  # noqa: E402
from checkers.linearizability.compiled import jit  # noqa: E402
from checkers.linearizability.decide import decide  # noqa: E402
from checkers.linearizability.fast import monitor, partition  # noqa: E402
from checkers.linearizability.history.encode import Problem  # noqa: E402
from checkers.linearizability.search.portfolio import PORTFOLIO, Stage  # noqa: E402
from results.formats import read_history  # noqa: E402
from results.verdict import Verdict  # noqa: E402

_STEPS = 300_000
"""The limit of steps for a random history: most of those that take more are undecided with any budget."""


class Case(NamedTuple):
    """A history that no monitor decides. valid: its known verdict, or None. steps: the limit for a decision."""

    name: str
    problem: Problem
    valid: bool | None
    steps: int


class Run(NamedTuple):
    """By case: the verdict, the steps, and the seconds of the processor."""

    verdict: Sequence[Verdict]
    work: Sequence[int]
    seconds: Sequence[float]

    def decided(self, case: int) -> bool:
        return self.verdict[case] != Verdict.UNKNOWN


def cases(count: int, folder: Path | None) -> Iterator[Case]:
    for nasty in corpus():
        yield Case(nasty.name, nasty.problem(), nasty.valid, nasty.steps)
    for family in FAMILIES:
        yield from random_cases(family, count)
    if folder is not None:
        yield from stored_cases(folder)


def random_cases(family: str, count: int) -> Iterator[Case]:
    """`count` histories of a real object, each of them also with a change."""
    model = MODELS[FAMILIES[family][0]]()
    some, _ = next(rounds(family, 0, 4 * count))
    for number, (calls, lived_so) in enumerate(some):
        if lived_so or number % 4 == 1:
            problem = encode(calls, model)
            book = (True, 0) if lived_so else by_the_book(problem)
            name = f"{family} {number}, {'lived' if lived_so else 'changed'}"
            yield Case(name, problem, None if book is None else book[0], _STEPS)


def stored_cases(folder: Path) -> Iterator[Case]:
    with (folder / "verdicts.csv").open() as lines:
        for row in csv.DictReader(lines):
            model = MODELS[row["model"]]()
            for key, calls in read_history(folder / row["file"]).history.by_key.items():
                problem = encode([call for call in calls if call.invoke.f in model.fs], model)
                # (One key of an invalid history is invalid, but it is unknown which one.)
                yield Case(f"{row['file']} {key}", problem, True if row["verdict"] == "valid" else None, 4_000_000)


def run(chosen: Sequence[Case], portfolio: Sequence[Stage]) -> Run:
    """Raises AssertionError if a verdict is wrong."""
    verdict, work, seconds = [], [], []
    for case in chosen:
        began = time.process_time()
        outcome = decide(case.problem, Budget(steps=case.steps), portfolio)
        seconds.append(time.process_time() - began)
        wrong = {True: Verdict.INVALID, False: Verdict.VALID, None: None}[case.valid]
        if outcome.verdict == wrong:
            raise AssertionError(f"{case.name}: {outcome.algorithm} says {outcome.verdict.value}")
        verdict.append(outcome.verdict)
        work.append(outcome.work)
    return Run(verdict, work, seconds)


def describe(name: str, chosen: Sequence[Case], whole: Run, other: Run) -> str:
    """A row of the table. Raises AssertionError if the two runs contradict each other."""
    both = [i for i in range(len(chosen)) if whole.decided(i) and other.decided(i)]
    for i in both:
        if whole.verdict[i] != other.verdict[i]:
            raise AssertionError(f"{chosen[i].name}: {other.verdict[i].value} with {name}")
    lost = [chosen[i].name for i in range(len(chosen)) if whole.decided(i) and not other.decided(i)]
    gained = sum(other.decided(i) and not whole.decided(i) for i in range(len(chosen)))
    steps = sum(other.work[i] for i in both) / max(sum(whole.work[i] for i in both), 1)
    seconds = sum(other.seconds[i] for i in both) / max(sum(whole.seconds[i] for i in both), 1e-9)
    which = "; ".join(lost[:2]) + (" ..." if len(lost) > 2 else "")
    return f"| {name} | {len(lost)} | {gained} | {steps:.2f} | {seconds:.2f} | {which} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="the edition in plain Python")
    parser.add_argument("--count", type=int, default=8, help="random histories a model, and as many changed ones")
    parser.add_argument("--histories", type=Path, help="a folder with a verdicts.csv: file, model, verdict")
    options = parser.parse_args()
    with jit.plain() if options.plain else nullcontext():
        chosen = [
            case
            for case in cases(options.count, options.histories)
            if case.problem.completed and monitor(case.problem) is None and not partition(case.problem)
        ]
        run(chosen[:2], PORTFOLIO)  # so that nothing is compiled while it is measured
        whole = run(chosen, PORTFOLIO)
        ms, decided = 1000 * sum(whole.seconds), sum(map(whole.decided, range(len(chosen))))
        print(f"{len(chosen)} histories, {decided} decided, {sum(whole.work):,} steps, {ms:,.0f} ms\n")
        print("| without | lost | gained | steps | ms | which |\n|---|---|---|---|---|---|")
        for search in dict.fromkeys(stage.search for stage in PORTFOLIO):
            rest = [stage for stage in PORTFOLIO if stage.search != search]
            print(describe(search, chosen, whole, run(chosen, rest)), flush=True)
        for number, stage in enumerate(PORTFOLIO):
            rest = [*PORTFOLIO[:number], *PORTFOLIO[number + 1 :]]
            print(describe(f"row {number + 1} ({stage.search})", chosen, whole, run(chosen, rest)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
