# SPDX-License-Identifier: Apache-2.0
"""Millions of tiny histories against brute force: `python -m tests.fuzz.linearizability --model all --count 1000000`.

A model's real object does some work (`models_at_work`; `unique` for the monitors), one answer in two histories is
falsified, and each history is then bent in many ways: calls and returns move, outcomes get lost, ops become others of
the same model. What that leaves is valid or not as it comes; brute force knows. It has nothing in common with the
checkers: it tries all orders, on `model.step` of the model as it is, with nothing narrowed. Where the states are few it
does so compiled, on a table of all that so many ops can reach; else in plain Python.

Checked are the batch (compiled WGL and just-in-time linearization, then the portfolio), and with `--monitors` the
special cases. Prints a line a model, and the first history with a wrong verdict; ends with code 1 if there is one.
`--hours` goes on with new seeds for that long.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

sys.path[:0] = [str(Path(__file__).parents[1])]

from models_at_work import STARTED, WORK, falsified, lived  # noqa: E402
from tiny_histories import brute_force as plain_brute_force  # noqa: E402

from checkers.linearizability import INCONSISTENT, MODELS, Model, Transition, verify_witness  # noqa: E402
from checkers.linearizability.batch import INVALID, VALID, check_batch  # noqa: E402
from checkers.linearizability.budget import Budget  # noqa: E402
from checkers.linearizability.decide import decide  # noqa: E402
from checkers.linearizability.fast import fast  # noqa: E402
from checkers.linearizability.history.encode import Problem  # noqa: E402
from checkers.linearizability.history.events import NEVER  # noqa: E402
from checkers.linearizability.history.packed import Packed, pack  # noqa: E402
from checkers.linearizability.outcome import Outcome  # noqa: E402
from fuzz.unique import MOST, UNIQUE  # noqa: E402 - the tests' own modules
from results.history import Call  # noqa: E402
from results.verdict import Verdict  # noqa: E402

STARTED_WORK: Final = {family: work for family, (_, work) in STARTED.items()}

_ROUND: Final = 100_000
"""Histories that share a table, and a compiled call, if there are so many."""

_BENT: Final = 25
"""Histories that are made of each of them."""

_STATES: Final = 5_000
_CELLS: Final = 1 << 22
"""States of a table, and pairs of states and sets of ops, that compiled brute force may have to do with."""

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


def table(model: Model[Any], kinds: Sequence[Transition], most: int) -> Ints | None:
    """`model.step` of all states that `most` ops can reach (-1: not possible, or out of reach), or None: too many."""
    states: dict[Any, int] = {model.initial: 0}
    rows: list[list[int]] = []
    layer = [model.initial]
    for depth in range(most + 1):
        following = []
        for state in layer:
            row = []
            for kind in kinds:
                after = model.step(state, kind)
                if after is not INCONSISTENT and after not in states and depth < most:
                    states[after] = len(states)
                    following.append(after)
                row.append(-1 if after is INCONSISTENT else states.get(after, -1))
            rows.append(row)
        layer = following
        if len(states) > _STATES:
            return None
    return np.array(rows, np.int32)


def truth_of(packed: Packed, model: Model[Any]) -> npt.NDArray[np.bool_]:
    most = int(np.diff(packed.first).max())
    step = table(model, packed.table.kinds, most)
    if step is not None and step.shape[0] << most <= _CELLS:
        return brute_force(packed.kind, packed.call, packed.ret, packed.first, step)  # type: ignore[no-any-return]
    return np.array([plain_brute_force(packed.problem(history)) for history in range(len(packed))])


@numba.njit  # type: ignore[untyped-decorator]
def brute_force(kind: Ints, call: Longs, ret: Longs, first: Longs, step: Ints) -> npt.NDArray[np.bool_]:
    """Straight from the definition: is there an order of all that returned and of any that did not?"""
    found = np.zeros(len(first) - 1, np.bool_)
    tried = np.zeros((1 << np.max(np.diff(first)), step.shape[0]), np.int64)
    stack_set, stack_state = np.zeros(1 << 22, np.int64), np.zeros(1 << 22, np.int64)
    for h in range(len(first) - 1):
        begin, count = first[h], first[h + 1] - first[h]
        must = 0
        for op in range(count):
            if ret[begin + op] != NEVER:
                must |= 1 << op
        stack_set[0], stack_state[0] = 0, 0
        depth = 1
        while depth:
            depth -= 1
            placed, state = stack_set[depth], stack_state[depth]
            if tried[placed, state] == h + 1:
                continue
            tried[placed, state] = h + 1
            if placed & must == must:
                found[h] = True
                break
            soonest = np.int64(1) << 62
            for op in range(count):
                if must & ~placed & (1 << op):
                    soonest = min(soonest, ret[begin + op])
            for op in range(count):
                # Calls that touch a return are concurrent with it.
                if not placed & (1 << op) and call[begin + op] <= soonest:
                    after = step[state, kind[begin + op]]
                    if after >= 0:
                        stack_set[depth], stack_state[depth] = placed | (1 << op), after
                        depth += 1
    return found


def bent(packed: Packed, rng: np.random.Generator) -> Packed:
    """Every history `_BENT` times, each time with other times, outcomes and ops."""
    sizes = np.tile(np.diff(packed.first), _BENT)
    first = np.concatenate(([0], np.cumsum(sizes)))
    kind, call, ret = (np.tile(column, _BENT) for column in (packed.kind, packed.call, packed.ret))
    known = ret != NEVER
    call, ret = 1000 * call, 1000 * ret + 500
    width = rng.choice((0, 600, 2500, 5000), len(first) - 1).repeat(sizes)
    call = call + (rng.uniform(-1, 0.3, len(call)) * width).astype(np.int64)
    ret = np.maximum(call + 1, ret + (rng.uniform(-0.3, 1, len(call)) * width).astype(np.int64))
    lost = rng.random(len(call)) < rng.choice((0, 0.05, 0.2), len(first) - 1).repeat(sizes)
    other = rng.random(len(call)) < rng.choice((0, 0, 0.15), len(first) - 1).repeat(sizes)
    # Another op with the same outcome, so that no op returns that never can.
    for outcome in (True, False):
        those = np.nonzero(other & (known == outcome))[0]
        kind[those] = rng.permutation(kind[those])
    ret = np.where(known & ~lost, ret, NEVER)
    # Times that are equal stay so: calls that touch a return overlap it, in brute force as in the batch.
    return Packed(packed.table, kind, call, ret, first, np.arange(len(call)))


def base(family: str, monitors: bool, ops: int, rng: Random, count: int = _ROUND) -> tuple[Packed, Model[Any]]:
    """Histories of real objects, half of them with a lie; `family` of the monitors or a model. `bent` makes `count`."""
    name, work = UNIQUE[family] if monitors else (family.split(maxsplit=1)[0], (WORK | STARTED_WORK)[family])
    histories: list[list[Call]] = []
    while len(histories) * _BENT < min(count, _ROUND):
        calls = lived(rng, name, rng.choice((0, 0.1, 0.3, 0.6)), ops, work)
        histories += [calls, falsified(rng, name, calls, work)]
    model = STARTED[family][0]() if family in STARTED else MODELS[name]()
    return pack(histories, model), model


def told(packed: Packed, history: int) -> str:
    begin, end = int(packed.first[history]), int(packed.first[history + 1])
    kinds = packed.table.kinds
    return str([(kinds[packed.kind[op]], int(packed.call[op]), int(packed.ret[op])) for op in range(begin, end)])


def whole(problem: Problem) -> Outcome | None:
    """The portfolio, for a model whose special case is how it is divided (a set, by its elements)."""
    return decide(problem, Budget())


def by_monitor(packed: Packed, truth: npt.NDArray[np.bool_], wrong: list[str]) -> tuple[int, int]:
    """(decided, undecided) by the special case for this model; every witness is replayed."""
    monitor = fast(packed.table.model).monitor or whole
    decided = undecided = 0
    for history in range(len(packed)):
        problem = packed.problem(history)
        outcome = monitor(problem)
        if outcome is None:
            undecided += 1
            continue
        decided += 1
        if (outcome.verdict == Verdict.VALID) != truth[history]:
            wrong.append(f"{outcome.algorithm} says {outcome.verdict.value}: {told(packed, history)}")
        elif truth[history] and verify_witness(problem, outcome.witness or []) is not None:
            wrong.append(f"{outcome.algorithm} has a bad witness: {told(packed, history)}")
    return decided, undecided


def fuzz(family: str, monitors: bool, count: int, ops: int, seed: int) -> bool:
    """One line on `count` histories; whether all verdicts were right."""
    began = time.perf_counter()
    done = valid = undecided = 0
    wrong: list[str] = []
    number = 0
    while done < count and not wrong:
        rng = Random(f"{family}/{monitors}/{ops}/{seed}/{number}")
        number += 1
        packed, model = base(family, monitors, ops, rng, count - done)
        many = bent(packed, np.random.default_rng(rng.getrandbits(64)))
        truth = truth_of(many, model)
        # (Where nothing is known to have happened, there is nothing to decide.)
        returned = np.concatenate(([0], np.cumsum(many.ret != NEVER)))
        there = np.diff(returned[many.first]) > 0
        if monitors:
            some = by_monitor(many, truth, wrong)
            undecided += some[1]
        else:
            found = check_batch(many).verdict
            undecided += int(((found != VALID) & (found != INVALID) & there).sum())
            odd = np.nonzero(there & (found != np.where(truth, VALID, INVALID)) & (found <= VALID))[0]
            wrong += [f"the batch says {found[h]}: {told(many, int(h))}" for h in odd]
        done += int(there.sum())
        valid += int((truth & there).sum())
    what = "monitor" if monitors else "search"
    print(
        f"{family:27} {what:8} {done:>10,} histories  {valid:>10,} valid  {done - valid:>10,} invalid  "
        f"{undecided:>8,} undecided  {len(wrong)} wrong  {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    if wrong:
        print(wrong[0], flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="all", help=f"all, or one of {', '.join(WORK | STARTED)}")
    parser.add_argument("--count", type=int, default=1_000_000, help="histories a model (default 1,000,000)")
    parser.add_argument("--ops", type=int, default=MOST, help=f"at most, of a history (default {MOST}; 13 is fine too)")
    parser.add_argument("--monitors", action="store_true", help=f"the special cases: {', '.join(UNIQUE)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0.0, help="go on with further seeds for so long")
    given = parser.parse_args()
    there = list(UNIQUE) if given.monitors else [*WORK, *STARTED]
    names = there if given.model == "all" else [given.model]
    if not set(names) <= set(there):
        parser.error(f"no model {given.model}; there are {', '.join(there)}")
    until = time.monotonic() + 3600 * given.hours
    seed = given.seed
    good = True
    while True:
        for name in names:
            good = fuzz(name, given.monitors, given.count, given.ops, seed) and good
        seed += 1
        if time.monotonic() >= until or not good:
            return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
