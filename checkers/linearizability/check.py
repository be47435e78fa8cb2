# SPDX-License-Identifier: Apache-2.0
"""Decides if one object's history is linearizable: `check`, the main function of this package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from checkers.linearizability import direct
from checkers.linearizability.budget import Budget
from checkers.linearizability.compiled import jit
from checkers.linearizability.decide import compilable, decide, illustrated, unmerged
from checkers.linearizability.history.encode import (
    Problem,
    calls_of,
    encode,
    first_unknown,
    insist_on_pairs,
    unknown,
)
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.models.specification import Model
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.result import LinearResult
from checkers.linearizability.unloaded import plainly
from checkers.linearizability.witness import FAILED_REPLAY
from results.errors import with_article
from results.history import Call, History
from results.op import OK
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.history.op_columns import OpColumns

NO_SEARCH: Final = "none"
"""Instead of an algorithm, if no decision was needed."""

_DEFAULT: Final = Budget()


def check(
    calls: Sequence[Call] | History, model: Model[Any], budget: Budget = _DEFAULT, ignore: Collection[str] = ()
) -> LinearResult:
    """Checks the calls of one object; the order of indices is the order of time.

    The nemesis' calls are left out, and ops whose name is in `ignore`. Raises ValueError (one line) if the calls belong
    to several keys - see `check_keys` - or are malformed, or the model does not know one of them. A history in which
    nothing certainly happened (no `ok`) is `unknown`: nothing was examined.

    >>> from results.op import Op
    >>> stale = History([Op(0, 0, 0, "invoke", "write", "k", 1), Op(1, 1, 0, "ok", "write", "k", 1),
    ...                  Op(2, 2, 0, "invoke", "read", "k"), Op(3, 3, 0, "ok", "read", "k", None)])
    >>> from checkers.linearizability.models.registers import Register
    >>> print(check(stale, Register()).reason)  # doctest: +ELLIPSIS
    op 2: read absent on key k cannot be placed: the register could only be 1 at that time; the initial value absent ...
    """
    insist_on_names(ignore)
    known = [call for call in calls_of(calls) if call.invoke.is_client and call.invoke.f not in ignore]
    _insist_on_known(known, model)
    keys = {call.invoke.key for call in known}
    if len(keys) > 1:
        raise ValueError(f"these are ops of {len(keys)} keys; each is an object of its own (use check_keys)")
    if len(known) >= direct.MANY and direct.applies(model):
        found = _by_columns(known, model, budget)
        if found is not None:
            return found
    problem = encode(known, model)
    completed = len(problem.completed)
    if not known:
        return LinearResult(Verdict.UNKNOWN, f"nothing checked: there is no op of {with_article(model.name)}")
    if not completed:
        return nothing_happened(len(known))
    key = known[0].invoke.key

    def whole(result: LinearResult) -> bool:
        """True if compiled searches would not find more."""
        if result.verdict != Verdict.INVALID:
            return result.verdict == Verdict.VALID
        return result.core_is_minimal or not compilable(problem)

    return plainly(len(problem.events), budget, lambda some: _decided(problem, some, known, key), whole)


def _decided(problem: Problem, budget: Budget, known: Sequence[Call], key: str | None) -> LinearResult:
    completed = len(problem.completed)
    outcome = decide(problem, budget)
    if outcome.verdict == Verdict.VALID:
        return _valid(completed, [problem.source[op] for op in outcome.witness or ()], outcome.algorithm, outcome.work)
    if outcome.verdict == Verdict.UNKNOWN:
        return _undecided(problem, outcome)
    return _violation(problem, outcome, illustrated(problem, outcome, budget), budget, known, key)


def _by_columns(known: Sequence[Call], model: Model[Any], budget: Budget) -> LinearResult | None:
    """`check_columns` of the calls of one object; None also if a value is not plain."""
    # Imported here: numpy takes longer to load than a small history takes to check.
    from checkers.linearizability.history.op_columns import from_calls

    plain = from_calls(known, model.aliases)
    if plain is None:
        return None
    by_index = {call.invoke.index: call for call in known}
    return check_columns(plain, model, known[0].invoke.key, budget, lambda some: [by_index[at] for at in some])


def check_columns(
    ops: OpColumns,
    model: Model[Any],
    key: str | None,
    budget: Budget,
    calls_at: Callable[[Sequence[int]], Sequence[Call]],
) -> LinearResult | None:
    """`check` of an object that comes as columns (`direct`); `calls_at` makes the calls of a few invocations.

    None if that way does not lead to a verdict. Raises nothing, whatever the ops are.
    """
    completed = int((ops.ret < NEVER).sum())
    work = len(ops.f) + completed
    found = direct.find_witness(ops, model)
    if found is not None and found.wrong is not None:
        reason = FAILED_REPLAY.format(found.wrong)
        return LinearResult(Verdict.UNKNOWN, reason, algorithm=found.algorithm, work=work)
    if found is not None:
        return _valid(completed, found.order.tolist(), found.algorithm, work)
    few = direct.find_contradiction(ops, model)
    if few is None:
        return None
    # The few ops are judged like any other history: their own contradiction is what is explained.
    calls = calls_at(few.source.tolist())
    pairs = zip(calls, few.returned.tolist(), strict=True)
    problem = encode([call if returned else Call(call.invoke, None) for call, returned in pairs], model)
    outcome = decide(problem, budget)
    if outcome.verdict != Verdict.INVALID:
        return None
    # (Only the whole history has the possible states. An explanation requests them if it knows the algorithm that left
    # them out.)
    bare = replace(outcome, algorithm="", states=(), survivors=())
    result = _violation(problem, outcome, bare, budget, calls, key)
    return replace(result, checked=completed, work=work + result.work)


def nothing_happened(ops: int) -> LinearResult:
    """The result for an object, or a whole history, of which no op is known to have happened."""
    count = f"none of its {ops:,} ops is" if ops > 1 else "its only op is not"
    return LinearResult(Verdict.UNKNOWN, f"nothing checked: {count} known to have happened")


def check_keys(
    history: History, model: Model[Any], budget: Budget = _DEFAULT, ignore: Collection[str] = ()
) -> Mapping[str | None, LinearResult]:
    """`check` of every key that has an op, short histories first. Raises ValueError as `check` does.

    A key of which nothing is known to have happened is `valid` beside others (every object may have done nothing). If
    that holds for all keys, they are `unknown`.
    """
    insist_on_names(ignore)
    insist_on_pairs(history)
    _insist_on_known((call for call in history.clients.calls if call.invoke.f not in ignore), model)
    groups = calls_by_key(history, model, ignore)
    return judged_together({key: check(calls, model, budget) for key, calls in groups}, dict(groups))


def judged_together(
    found: Mapping[str | None, LinearResult], groups: Mapping[str | None, Sequence[Call]]
) -> Mapping[str | None, LinearResult]:
    """The results of the keys of one history. Keys in which nothing happened get the verdict of `check_keys`."""
    idle = {key for key in found if not any(call.outcome == OK for call in groups[key])}
    if len(idle) == len(found):
        return found
    reason = "nothing contradicts it: none of {} ops is known to have happened"
    return {
        key: LinearResult(Verdict.VALID, reason.format(len(groups[key])), witness=(), algorithm=NO_SEARCH)
        if key in idle
        else result
        for key, result in found.items()
    }


def calls_by_key(
    history: History, model: Model[Any], ignore: Collection[str] = ()
) -> list[tuple[str | None, Sequence[Call]]]:
    """Keys with ops of the model, short histories first: they refute cheaply."""
    fs = model.fs.difference(ignore)
    found = [(key, [call for call in calls if call.invoke.f in fs]) for key, calls in history.by_key.items()]
    return sorted(((key, calls) for key, calls in found if calls), key=lambda group: len(group[1]))


def insist_on_names(ignore: Collection[str]) -> None:
    """Raises ValueError for a text in place of a set of names: each part of it would be such a name."""
    if isinstance(ignore, str):
        raise ValueError(f"ignore is {ignore!r}; a set of names is right, such as {{{ignore!r}}}")


def _insist_on_known(calls: Iterable[Call], model: Model[Any]) -> None:
    """Raises ValueError if the model does not know an op."""
    other = first_unknown((call.invoke for call in calls), model)
    if other is not None:
        raise ValueError(f"{unknown(other, model)}; ignore={{{other.f!r}}} leaves it out")


def _valid(completed: int, witness: Sequence[int], algorithm: str, work: int) -> LinearResult:
    reason = f"an order that explains all {completed} completed ops exists"
    return LinearResult(Verdict.VALID, reason, witness=witness, algorithm=algorithm, checked=completed, work=work)


def _undecided(problem: Problem, outcome: Outcome) -> LinearResult:
    """The unknown result, with the position of the search that got furthest."""
    total = len(problem.completed)
    reached = sum(event & 1 for event in problem.events[: max(outcome.position, 0)])
    steps = f"{outcome.work:,} steps" + ("" if jit.enabled() else " in plain Python (compiled code may get further)")
    if reached:
        reason = f"undecided after {steps}: linearizable up to {reached:,} of {total:,} completed ops, "
        reason += f"then the {outcome.algorithm} gave up ({outcome.ran_out})"
    else:
        reason = f"undecided after {steps}, {total:,} completed ops: {outcome.ran_out}"
    return LinearResult(Verdict.UNKNOWN, reason, algorithm=outcome.algorithm, checked=reached, work=outcome.work)


def _violation(
    problem: Problem, outcome: Outcome, shown: Outcome, budget: Budget, calls: Sequence[Call], key: str | None
) -> LinearResult:
    """The result of a violation. `shown`: the outcome to explain."""
    # Imported here: most histories are valid.
    from checkers.linearizability.evidence.explain import explain, sentence

    shown = unmerged(problem, shown, budget)
    found = explain(problem, shown, budget)
    by_index = {call.invoke.index: call for call in calls}
    core = [problem.source[op] for op in found.core.ops]
    failing = problem.source[found.op]
    ends = [by_index[index].end or 0 for index in (failing, *core)]
    start = min(by_index[index].start for index in (failing, *core))
    return LinearResult(
        Verdict.INVALID,
        sentence(problem, found, key),
        failing_op=failing,
        states=found.states,
        core=core,
        core_is_minimal=found.core.complete,
        core_starts_anywhere=found.core.anywhere,
        final_paths=[
            (problem.table.tell(state), None if last == NONE else problem.source[last])
            for state, last in shown.survivors
        ],
        window=(start, max(ends)),
        algorithm=outcome.algorithm,
        checked=len(problem.completed),
        work=shown.work,
    )
