# SPDX-License-Identifier: Apache-2.0
"""Each stage of the search by itself against brute force: `python -m tests.fuzz.stages --model all --count 100000`.

In a batch the first stages decide nearly everything, so that the others would hardly be tried. Here every one answers
every history: the complete ones must be right, the one-sided ones may not answer wrongly; each witness is replayed.
`--plain`: those in plain Python, too. The histories are those of `tests.fuzz.linearizability`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]

from models_at_work import WORK  # noqa: E402

from checkers.linearizability import Problem, verify_witness  # noqa: E402
from checkers.linearizability.budget import Meter  # noqa: E402
from checkers.linearizability.compiled.code_cache import ensure  # noqa: E402
from checkers.linearizability.compiled.searches import SEARCH, Compiled  # noqa: E402
from checkers.linearizability.decide import cegar, just_in_time, uncounted  # noqa: E402
from checkers.linearizability.outcome import Outcome  # noqa: E402
from checkers.linearizability.search.state_flow import state_flow  # noqa: E402
from checkers.linearizability.search.wgl import wgl  # noqa: E402
from fuzz.linearizability import base, bent, told, truth_of  # noqa: E402 - the tests' own modules
from fuzz.unique import MOST  # noqa: E402
from results.verdict import Verdict  # noqa: E402

COMPLETE: Final = ("just-in-time", "cegar", "plain just-in-time", "plain cegar")

_BRIEF: Final = 500
"""Steps for a search that may have no end."""

Stage = Callable[[Meter], Outcome]


def stages(problem: Problem, plain: bool) -> Iterator[tuple[str, Stage]]:
    yield "state flow", partial(state_flow, problem)
    fast = Compiled.of(problem)
    if fast is not None:
        yield "just-in-time", fast.just_in_time
        yield "cegar", fast.cegar
        yield "wgl", fast.wgl
        for number, refute in enumerate(fast.refuters()):
            yield f"refuter {number}", refute
    if plain or fast is None:
        yield "plain just-in-time", partial(just_in_time, problem)
        yield "plain wgl", partial(wgl, problem)
        if problem.table.dense is not None:
            yield "plain cegar", partial(cegar, problem)
            yield "plain uncounted", partial(uncounted, problem)
        else:
            # Ops that are not counted lead through endless states: what these say within few steps must be right.
            yield "brief cegar", lambda _: cegar(problem, Meter(_BRIEF, 10**8))
            yield "brief uncounted", lambda _: uncounted(problem, Meter(_BRIEF, 10**8))


def wrong(name: str, problem: Problem, outcome: Outcome, valid: bool) -> str | None:
    """The fault of a stage's answer, or None."""
    truth = Verdict.VALID if valid else Verdict.INVALID
    if outcome.verdict not in ((truth,) if name in COMPLETE else (truth, Verdict.UNKNOWN)):
        return f"says {outcome.verdict.value}, but it is {truth.value}"
    if outcome.verdict == Verdict.VALID:
        return "has no witness" if outcome.witness is None else verify_witness(problem, outcome.witness)
    return None


def fuzz(model: str, count: int, ops: int, seed: int, plain: bool) -> bool:
    """One line on `count` histories; whether every stage was right."""
    began, done, number = time.perf_counter(), 0, 0
    decided: dict[str, int] = {}
    while done < count:
        rng = Random(f"stages/{model}/{ops}/{seed}/{number}")
        number += 1
        packed, made = base(model, False, ops, rng)
        many = bent(packed, np.random.default_rng(rng.getrandbits(64)))
        truth = truth_of(many, made)
        for history in np.nonzero(np.diff(many.first) > 0)[0][: count - done].tolist():
            problem = many.problem(history)
            for name, run in stages(problem, plain):
                outcome = run(Meter(10**6, 10**8))
                bad = wrong(name, problem, outcome, bool(truth[history]))
                if bad is not None:
                    print(f"{model}: {name} {bad}: {told(many, history)}", flush=True)
                    return False
                decided[name] = decided.get(name, 0) + (outcome.verdict != Verdict.UNKNOWN)
            done += 1
    each = ", ".join(f"{name} {times:,}" for name, times in decided.items())
    print(
        f"{model:16} {done:>10,} histories, none wrong, {time.perf_counter() - began:.0f} s; decided: {each}",
        flush=True,
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="all", help=f"all, or one of {', '.join(WORK)}")
    parser.add_argument("--count", type=int, default=100_000, help="histories a model (default 100,000)")
    parser.add_argument("--ops", type=int, default=MOST, help=f"at most, of a history (default {MOST}; 13 is fine too)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="the stages in plain Python, too")
    given = parser.parse_args()
    names = list(WORK) if given.model == "all" else [given.model]
    if not set(names) <= set(WORK):
        parser.error(f"no model {given.model}; there are {', '.join(WORK)}")
    ensure(SEARCH)
    good = [fuzz(name, given.count, given.ops, given.seed, given.plain) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
