# SPDX-License-Identifier: Apache-2.0
"""Histories of 30 to 300 ops, all ways to a verdict against one another: `python -m tests.fuzz.middle --model all`.

What tiny histories do not reach: slots that are used again, counters of many unknown ops, frontiers that grow, tables
of hundreds of states. Brute force cannot say what is true of them; but a true history is valid, and a changed one (an
answer falsified, two swapped, an op moved, an acknowledged one dropped) has one verdict only: every
stage by itself, the portfolio with any budget, plain and compiled, single and in a batch, from calls and from columns.
Where it can, `by_the_book` judges too: the search without any reduction, on `model.step` alone. Orders are replayed,
cores are refuted once more, and `failing_op` must be the first op that proves it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path[:0] = [str(Path(__file__).parents[1])]

from models_at_work import WORK, Refused, Work, assembled, falsified  # noqa: E402
from models_at_work import told as told_calls  # noqa: E402

from checkers.linearizability import (  # noqa: E402
    INCONSISTENT,
    MODELS,
    Model,
    Problem,
    check,
    direct,
    encode,
    verify_witness,
)
from checkers.linearizability.batch import VERDICTS, check_batch  # noqa: E402
from checkers.linearizability.budget import Budget, Meter  # noqa: E402
from checkers.linearizability.compiled.code_cache import ensure  # noqa: E402
from checkers.linearizability.compiled.jit import plain  # noqa: E402
from checkers.linearizability.compiled.searches import SEARCH  # noqa: E402
from checkers.linearizability.decide import decide  # noqa: E402
from checkers.linearizability.fast import monitor  # noqa: E402
from checkers.linearizability.history.events import NEVER  # noqa: E402
from checkers.linearizability.history.op_columns import from_calls  # noqa: E402
from fuzz.stages import stages  # noqa: E402 - the tests' own modules
from fuzz.unique import UNIQUE  # noqa: E402
from results.history import Call  # noqa: E402
from results.op import Op  # noqa: E402
from results.verdict import Verdict  # noqa: E402

FAMILIES: Final[dict[str, tuple[str, Work]]] = {name: (name, work) for name, work in WORK.items()} | {
    f"unique {family}": one for family, one in UNIQUE.items()
}

_BUDGET: Final = Budget(steps=100_000, per_event=50)
"""A small limit: a search that a million steps do not end is not ended by fewer."""

_BOOK: Final = 20_000
"""Steps of the search by the book."""

_ROUND: Final = 20
"""Histories that share a batch, if there are so many."""


@dataclass(frozen=True)
class Shape:
    """Of a history: how many ops, clients and values, which share of the ops ends unknown, how long they take."""

    ops: int
    clients: int
    values: int
    unknown: float
    length: float


def shape(rng: Random) -> Shape:
    return Shape(
        rng.choice((30, 30, 60, 60, 120, 300)), rng.randint(5, 12), rng.choice((2, 3, 5, 20, 1000)),
        rng.choice((0, 0, 0.03, 0.1, 0.4)), rng.choice((0.3, 1, 1, 3)),
    )  # fmt: skip


def lived(rng: Random, family: str, like: Shape) -> list[Call]:
    """The calls of a real object by clients that call one after the other. Unknown ops happen late, early or never."""
    name, work = FAMILIES[family]
    clock = [rng.random() for _ in range(like.clients)]
    asked: list[tuple[float, float, float, int, str, Any]] = []
    for op in range(like.ops):
        client = min(range(like.clients), key=lambda c: clock[c])
        begin = clock[client]
        end = begin + rng.expovariate(1) * like.length + 1e-6
        clock[client] = end + rng.expovariate(1)
        f, argument = work.ask(rng, op)
        # (The set at work there has two elements, of which hardly any answer of so many clients is wrong.)
        if not family.startswith("unique ") or name == "set":
            argument = _varied(rng, name, f, argument, like.values, op)
        moment = rng.uniform(begin, end)
        if rng.random() < like.unknown:
            moment = rng.choice((moment, begin + rng.expovariate(0.05), float("inf")))
            end = float("inf")
        asked.append((moment, begin, end, op, f, argument))
    obj = work.make()
    events: list[tuple[float, int, Any, str, Any]] = []
    for moment, begin, end, op, f, argument in sorted(asked, key=lambda one: one[0]):
        result, type_ = argument, "ok"
        if moment < float("inf"):
            try:
                result = work.do(obj, f, argument)
            except Refused:
                type_ = "fail"
        events.append((begin, op, "invoke", f, argument))
        if end < float("inf") or type_ == "fail":
            events.append((end if end < float("inf") else moment + 1e-9, op, type_, f, result))
    return assembled(events)


def _varied(rng: Random, name: str, f: str, argument: Any, values: int, op: int) -> Any:
    """The same question about one of `values` values."""
    if name == "log" and f in ("read", "trim"):
        return rng.randrange(1 + op // 3) if f == "read" or rng.random() < 0.1 else 0
    if type(argument) is int:
        return rng.randrange(values)
    if name == "cas-register" and isinstance(argument, list):
        return [rng.randrange(min(values, 8)), rng.randrange(values)]
    return argument


def changed(rng: Random, family: str, calls: Sequence[Call]) -> list[Call]:
    """The same with something that need not be true any more."""
    name, work = FAMILIES[family]
    known = [i for i, call in enumerate(calls) if call.outcome == "ok"]
    if len(known) < 2:
        return list(calls)
    made = list(calls)
    how = rng.randrange(4)
    late = rng.random() < 0.5  # near the end, where the search has come a long way
    first, second = sorted(rng.sample(known[-8:] if late else known, 2))
    if how == 0:
        return falsified(rng, name, calls, work)
    if how == 1:
        # Two ops of a sort answer as the other one did.
        alike = [i for i in known if made[i].invoke.f == made[second].invoke.f and i != second]
        if alike:
            other = rng.choice(alike)
            one, two = made[other].completion, made[second].completion
            assert one is not None and two is not None  # noqa: PT018
            made[other] = Call(made[other].invoke, replace(one, value=two.value))
            made[second] = Call(made[second].invoke, replace(two, value=one.value))
        return made
    if how == 2:
        return [call for i, call in enumerate(made) if i != first]
    # All of it earlier, or later: between two other events of the history.
    moved = made[second]
    assert moved.completion is not None
    span = moved.completion.index - moved.invoke.index
    at = max(0, moved.invoke.index + rng.randint(-30, 30))
    stamped: list[tuple[float, Op]] = []
    for call in (call for i, call in enumerate(made) if i != second):
        stamped += [(op.index, op) for op in (call.invoke, call.completion) if op is not None]
    stamped += [(at - 0.5, moved.invoke), (at + span - 0.4, moved.completion)]
    return assembled([(when, op.process, op.type, op.f, op.value) for when, op in stamped])


def by_the_book(problem: Problem, most: int = _BOOK) -> tuple[bool, int] | None:
    """(valid, event that proves it is not), or None: too much. No reduction but that alike unknown ops are alike."""
    model, kinds = problem.table.model, problem.table.kinds
    possible: set[tuple[Any, frozenset[int]]] = {(model.initial, frozenset())}
    open_: set[int] = set()
    unknown: list[int] = []
    work = 0
    for position, event in enumerate(problem.events):
        op = event >> 1
        if not event & 1:
            if problem.ret[op] == NEVER:
                unknown.append(op)
            else:
                open_.add(op)
            continue
        after: set[tuple[Any, frozenset[int]]] = set()
        todo, seen = list(possible), set(possible)
        while todo:
            state, done = todo.pop()
            if op in done:
                after.add((state, done - {op}))
                continue
            first: dict[int, int] = {}
            for other in unknown:
                if other not in done:
                    first.setdefault(problem.kind[other], other)
            for other in (*(open_ - done), *first.values()):
                work += 1
                then = model.step(state, kinds[problem.kind[other]])
                if then is INCONSISTENT:
                    continue
                reached = (then, done | {other})
                if reached not in seen:
                    seen.add(reached)
                    todo.append(reached)
            if work > most:
                return None
        open_.discard(op)
        if not after:
            return False, position
        possible = after
    return True, NEVER


@dataclass
class Tally:
    """Of one family. decided: by whom, how often."""

    family: str
    histories: int = 0
    valid: int = 0
    invalid: int = 0
    decided: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def says(self, who: str, verdict: Verdict, truth: Verdict, calls: Sequence[Call]) -> None:
        if verdict == Verdict.UNKNOWN:
            return
        self.decided[who] = self.decided.get(who, 0) + 1
        if verdict != truth:
            self.wrong.append(f"{who} says {verdict.value}, but it is {truth.value}: {told_calls(calls)}")


def one(tally: Tally, calls: Sequence[Call], model: Model[Any], rng: Random, lived_so: bool, slow: bool) -> Verdict:
    """Every way to a verdict; returns it."""
    problem = encode(calls, model)
    result = check(calls, model, _BUDGET)
    truth = Verdict.VALID if lived_so else result.verdict
    book = by_the_book(problem)
    if book is not None:
        truth = Verdict.VALID if book[0] else Verdict.INVALID
        tally.says("by the book", truth, Verdict.VALID if lived_so else truth, calls)
    if truth == Verdict.UNKNOWN or not problem.events:
        return truth
    says = partial(tally.says, truth=truth, calls=calls)
    says("check", result.verdict)
    special = monitor(problem)
    ways = [("monitor", special)] if special is not None else []
    for name, run in stages(problem, slow):
        most = 20_000 if name.startswith("plain") else 10**6
        ways.append((name, run(Meter(min(rng.choice((300, 10_000, 10**6)), most), 10**8))))
    steps = rng.choice((0, 100, 2_000, 10**6))
    ways.append(("decide, small budget", decide(problem, Budget(steps=steps, per_event=0, memory=10**7))))
    if slow:
        with plain():
            ways.append(("decide, plain", decide(problem, Budget(steps=50_000, per_event=0))))
    for name, outcome in ways:
        says(name, outcome.verdict)
        if outcome.verdict == Verdict.VALID:
            bad = verify_witness(problem, outcome.witness or [])
            if bad is not None:
                tally.wrong.append(f"{name} has a bad witness ({bad}): {told_calls(calls)}")
    _columns(tally, calls, model, truth)
    if result.verdict == Verdict.INVALID:
        _told(tally, problem, result.failing_op, result.core, result.core_starts_anywhere, book, calls)
    tally.histories += 1
    tally.valid += truth == Verdict.VALID
    tally.invalid += truth == Verdict.INVALID
    return truth


def _columns(tally: Tally, calls: Sequence[Call], model: Model[Any], truth: Verdict) -> None:
    ops = from_calls(calls) if direct.applies(model) else None
    if ops is None:
        return
    if direct.find_witness(ops, model) is not None:
        tally.says("columns", Verdict.VALID, truth, calls)
    if direct.find_contradiction(ops, model) is not None:
        tally.says("columns refute", Verdict.INVALID, truth, calls)


def _told(
    tally: Tally,
    problem: Problem,
    failing: int | None,
    core: Sequence[int],
    anywhere: bool,
    book: tuple[bool, int] | None,
    calls: Sequence[Call],
) -> None:
    """The op that fails is the first that proves it, and the core is refuted by itself."""
    number = {problem.source[op]: op for op in problem.ops}
    if failing is None or failing not in core:
        tally.wrong.append(f"the failing op {failing} is not in the core {core}: {told_calls(calls)}")
        return
    position = problem.ret[number[failing]]
    if book is not None:
        tally.decided["first proof"] = tally.decided.get("first proof", 0) + 1
        if position != book[1]:
            right = problem.source[problem.events[book[1]] >> 1]
            tally.wrong.append(f"op {failing} is called the failing one, but it is {right}: {told_calls(calls)}")
    if not anywhere:
        kept = {number[index] for index in core}
        alone = problem.before(position + 1).relaxed(op for op in problem.completed if op not in kept)
        again = by_the_book(alone)
        if again is not None:
            tally.decided["core"] = tally.decided.get("core", 0) + 1
            if again[0]:
                tally.wrong.append(f"the core {core} is no contradiction: {told_calls(calls)}")


def rounds(family: str, seed: int, size: int) -> Iterator[tuple[list[tuple[list[Call], bool]], Random]]:
    """(history, is it true?) for ever."""
    number = 0
    while True:
        rng = Random(f"middle/{family}/{seed}/{number}")
        number += 1
        some: list[tuple[list[Call], bool]] = []
        while len(some) < size:
            calls = lived(rng, family, shape(rng))
            some += [(calls, True), *((changed(rng, family, calls), False) for _ in range(3))]
        yield some, rng


def fuzz(family: str, count: int, seed: int, plain_every: int) -> Tally:
    """`count` histories; `plain_every`: so many share one that the plain stages look at, too."""
    tally, model = Tally(family), MODELS[FAMILIES[family][0]]()
    for some, rng in rounds(family, seed, min(count, _ROUND)):
        found = [
            one(tally, calls, model, rng, lived_so, plain_every > 0 and rng.randrange(plain_every) == 0)
            for calls, lived_so in some
        ]
        batch = check_batch([calls for calls, _ in some], model, _BUDGET)
        for number, (calls, _) in enumerate(some):
            if found[number] != Verdict.UNKNOWN:
                tally.says("batch", VERDICTS[batch.verdict[number]], found[number], calls)
        if tally.histories >= count or tally.wrong:
            break
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="all", help=f"all, or one of {', '.join(FAMILIES)}")
    parser.add_argument("--count", type=int, default=2_000, help="histories a model (default 2,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--plain-every", type=int, default=10, help="one in so many goes to plain Python, too (0: none)"
    )
    given = parser.parse_args()
    names = list(FAMILIES) if given.model == "all" else [given.model]
    if not set(names) <= set(FAMILIES):
        parser.error(f"no model {given.model}; there are {', '.join(FAMILIES)}")
    ensure(SEARCH)
    good = True
    for name in names:
        began = time.process_time()
        tally = fuzz(name, given.count, given.seed, given.plain_every)
        print(
            f"{name:22} {tally.histories:>8,} histories  {tally.valid:>7,} valid  {tally.invalid:>7,} invalid  "
            f"{len(tally.wrong)} wrong  {time.process_time() - began:.0f} s; decided by "
            + ", ".join(f"{who} {times:,}" for who, times in tally.decided.items()),
            flush=True,
        )
        for line in tally.wrong[:1]:
            print(line, flush=True)
        good = good and not tally.wrong
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
