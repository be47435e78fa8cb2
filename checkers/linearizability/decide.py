# SPDX-License-Identifier: Apache-2.0
"""Decides one history by the portfolio (`search.portfolio`): a special case first, if it applies; else the searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from checkers.linearizability.budget import Budget, Meter
from checkers.linearizability.closed_table import enumerate_states, worth
from checkers.linearizability.compiled import jit
from checkers.linearizability.fast import first_refuted, monitor, partition
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NONE
from checkers.linearizability.history.partition import merged
from checkers.linearizability.history.table import Table
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.cegar import FREE, Groups, Use, by_target, refine
from checkers.linearizability.search.jit_linearization import JustInTime
from checkers.linearizability.search.portfolio import CEGAR, JIT, PORTFOLIO, STATE_FLOW, THOROUGH, WGL, Stage, schedule
from checkers.linearizability.search.state_flow import state_flow
from checkers.linearizability.search.wgl import wgl
from checkers.linearizability.witness import FAILED_REPLAY, verify_witness
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.compiled.searches import Compiled

_TRY_BYTES: Final = 1 << 24
_TRY_STEP_BYTES: Final = 64
"""With so much memory, and so much more for each of its steps, a try of a batch has the same result as here."""

_ILLUSTRATED: Final = 2_000
"""The longest history (events) that the plain search goes through again."""

_FEW_UNKNOWN: Final = 16
"""With no more unknown ops, the complete search is the cheaper one, too: without counts, most parts are not refuted."""

Search = Callable[[Meter], Outcome]
"""A search of some problem."""


def decide(
    problem: Problem, budget: Budget, portfolio: Sequence[Stage] = PORTFOLIO, tried: tuple[int, int] = (0, NONE)
) -> Outcome:
    """Valid (with a witness that was replayed), invalid, or unknown. `work` is the sum over all stages.

    tried  the steps of all small tries that found nothing, or 0; and their `Outcome.passed`.
    """
    special = monitor(problem)
    if special is not None:
        return _replayed(problem, special)
    several = partition(problem)
    if several:
        return _replayed(problem, _each(problem, several, budget, portfolio))
    allowed = budget.steps + budget.per_event * len(problem.events)
    # (With more steps, or with more memory, than is allowed here, they may have got further.)
    spent, passed = tried if 0 < tried[0] < min(allowed, (budget.memory - _TRY_BYTES) // _TRY_STEP_BYTES) else (0, NONE)
    furthest = Outcome(Verdict.UNKNOWN, "none", 0)
    for run, steps in _stages(problem, allowed, THOROUGH if spent else portfolio):
        meter = Meter(min(steps, allowed - spent), budget.memory)
        outcome = run(meter)
        spent += outcome.work
        if outcome.verdict != Verdict.UNKNOWN:
            return _replayed(problem, replace(outcome, work=spent, passed=max(passed, outcome.passed)))
        passed = max(passed, outcome.position, outcome.passed)
        # (CEGAR's progress means nothing, and it does not report it.)
        if outcome.position >= furthest.position:
            furthest = outcome
        if spent >= allowed:
            break
    return replace(furthest, work=spent)


def _each(problem: Problem, several: Sequence[Problem], budget: Budget, portfolio: Sequence[Stage]) -> Outcome:
    """Invalid as soon as a part is; valid when all are. All parts share `budget`."""
    left, work = budget.steps, 0
    orders: list[Sequence[int]] = []
    unknown: Outcome | None = None
    for part in several:
        outcome = decide(part, replace(budget, steps=max(left, 0)), portfolio)
        left, work = left - outcome.work, work + outcome.work
        if outcome.verdict == Verdict.INVALID:
            at = first_refuted(part) if outcome.position == NONE else outcome.position
            position = problem.ret[part.events[at] >> 1]
            return Outcome(Verdict.INVALID, outcome.algorithm, work, position, core=part.completed)
        if outcome.verdict == Verdict.UNKNOWN:
            unknown = unknown or outcome
        orders.append(outcome.witness or ())
    if unknown is not None:
        return replace(unknown, work=work, position=NONE)
    return Outcome(Verdict.VALID, "search of each element", work, witness=merged(problem, orders))


def illustrated(problem: Problem, outcome: Outcome, budget: Budget) -> Outcome:
    """A monitor's refutation in the terms of the search: the earliest event, and the states possible before it.

    Unchanged where that costs much: the monitor's result is proof enough.
    """
    if outcome.states or len(problem.events) > _ILLUSTRATED:
        return outcome
    told = just_in_time(problem, _brief(problem, budget))
    return replace(told, algorithm=outcome.algorithm, core=outcome.core) if told.verdict == Verdict.INVALID else outcome


def unmerged(problem: Problem, outcome: Outcome, budget: Budget) -> Outcome:
    """The same outcome with states of the original model, if some of its states stand for several (`Model.narrow`).
    Unchanged if that costs much: the description of such a state then names the states that it stands for.
    """
    table = problem.table
    if all(
        table.narrowed.tell(state) == table.model.tell(state) for state in map(table.states.__getitem__, outcome.states)
    ):
        return outcome
    plain = Table(table.model)
    for kind in table.kinds:
        plain.kind(kind)
    prefix = problem.before(outcome.position + 1)
    found = just_in_time(Problem(plain, problem.kind, problem.source, prefix.events), _brief(prefix, budget))
    if found.verdict != Verdict.INVALID or found.position != len(prefix.events) - 1:
        return outcome
    number = [table.intern(state) for state in plain.states]
    survivors = [(number[state], last) for state, last in found.survivors]
    return replace(outcome, states=[number[state] for state in found.states], survivors=survivors)


def _brief(problem: Problem, budget: Budget) -> Meter:
    return Meter(min(2_000 + 20 * len(problem.events), budget.explain), budget.memory)


def _stages(problem: Problem, allowed: int, portfolio: Sequence[Stage]) -> Iterator[tuple[Search, int]]:
    """Yields the searches to try, in order, each with its limit of steps. Compiled where that is possible."""
    fast = _compiled(problem)
    if fast is not None:
        events, unknown, searches = len(fast.history.events), fast.called, fast.searches
    else:
        events, unknown = len(problem.events), problem.unknown
        searches = {name: partial(search, problem) for name, search in _PLAIN.items()}
    for search, steps in schedule(portfolio, events, allowed, bool(unknown)):
        yield searches[search], steps


def refuters(problem: Problem) -> Sequence[Search]:
    """The searches that can answer `invalid`, cheap ones first. They need not give the reason."""
    fast = _compiled(problem)
    if fast is not None:
        return fast.refuters()
    both = partial(uncounted, problem), partial(just_in_time, problem)
    return both[::-1] if sum(map(len, problem.unknown.values())) <= _FEW_UNKNOWN else both


def compilable(problem: Problem) -> bool:
    """True if the compiled searches can take this problem: its table can be closed."""
    return enumerate_states(problem.table, max_cells=worth(len(problem.events))) is not None


def _compiled(problem: Problem) -> Compiled | None:
    if not jit.enabled() or not compilable(problem):
        return None
    with jit.setting_up():
        # Numba is imported here, and only where it may be used.
        from checkers.linearizability.compiled.code_cache import ensure
        from checkers.linearizability.compiled.searches import SEARCH, Compiled

        ensure(SEARCH)
    return Compiled.of(problem)


def just_in_time(problem: Problem, meter: Meter) -> Outcome:
    return JustInTime(problem, meter).run()


def uncounted(problem: Problem, meter: Meter) -> Outcome:
    """A search that may use unknown ops any number of times. It answers `invalid` or `unknown`, never `valid`."""
    found = JustInTime(problem, meter, [FREE] * len(problem.table.kinds)).run()
    return found if found.verdict == Verdict.INVALID else Outcome(Verdict.UNKNOWN, found.algorithm, found.work)


def cegar(problem: Problem, meter: Meter) -> Outcome:
    """The CEGAR search in plain Python."""
    called = {kind: [problem.call[op] for op in ops] for kind, ops in problem.unknown.items()}

    def search(groups: Groups, meter: Meter) -> tuple[Outcome, Sequence[Use]]:
        walk = JustInTime(problem, meter, groups)
        return walk.run(), walk.uses

    dense = enumerate_states(problem.table, max_cells=worth(len(problem.events)))
    return refine(search, called, by_target(dense, len(problem.table.kinds)), meter)


_PLAIN: Final[Mapping[str, Callable[[Problem, Meter], Outcome]]] = {
    WGL: wgl,
    JIT: just_in_time,
    CEGAR: cegar,
    STATE_FLOW: state_flow,
}
"""The plain edition of each search."""


def _replayed(problem: Problem, outcome: Outcome) -> Outcome:
    """Confirms a verdict: `valid` needs a witness that replays, `invalid` a model that respects unknown results."""
    if outcome.verdict == Verdict.INVALID:
        problem.table.insist_on_known()
    if outcome.verdict != Verdict.VALID:
        return outcome
    wrong = "no witness" if outcome.witness is None else verify_witness(problem, outcome.witness)
    if wrong is None:
        return outcome
    return replace(outcome, verdict=Verdict.UNKNOWN, witness=None, ran_out=FAILED_REPLAY.format(wrong))
