# SPDX-License-Identifier: Apache-2.0
"""A violation as one self-contained HTML page: clients as lanes, ops as bars, the longest partial explanations, and the
contradiction that ends them.

The horizontal axis is the order of calls and returns, one step each: a verdict depends on that order alone (times are
shown on hovering). The page shows the faults, the core in colour, and over it the *longest partial linearizations*:
orders of ops that explain everything up to the return that cannot be explained, with the state after each op. The idea
of such a page is Porcupine's (`visualization.go`).

The page draws only the visible part on a canvas, so that it stays usable with tens of thousands of ops.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from checkers.linearizability.budget import Budget
from checkers.linearizability.decide import decide
from checkers.linearizability.evidence.fault_windows import FaultWindow, fault_windows
from checkers.linearizability.history.encode import Problem, encode
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.models.specification import INCONSISTENT, Model
from checkers.linearizability.result import LinearResult
from checkers.linearizability.unloaded import plainly
from results.errors import with_article
from results.history import Call
from results.verdict import Verdict

MOST_OPS: Final = 20_000
"""The largest number of ops on a page; of a longer history it shows those around the error."""

_PATHS: Final = 6
"""Partial linearizations that are shown, each ending in another state."""

_TAIL: Final = 12
"""Ops at the end of the first one whose other orders are tried for the others."""

_TRIALS: Final = 20_000
"""The largest number of steps for these other orders."""

_CORE_ROWS: Final = 20
"""Ops of the core that are listed; the last ones, the error among them. All of them are drawn."""

_FAULTS: Final = 500
"""Faults that are drawn."""

_TEMPLATE: Final = Path(__file__).parent / "picture.html.j2"


class PartialLinearization(NamedTuple):
    """order: op numbers of the problem. states: the state after each of them, as readable text."""

    order: Sequence[int]
    states: Sequence[str]


def picture(
    calls: Sequence[Call], model: Model[Any], result: LinearResult, name: str, nemesis: Sequence[Call] = ()
) -> str:
    """The page for an invalid `result` of `check(calls, model)`. `name`: the history's name. `nemesis`: the calls of
    its nemesis.

    Raises ValueError for a result that is not invalid: there is no error to be shown.
    """
    if result.verdict != Verdict.INVALID or result.failing_op is None:
        raise ValueError(f"{with_article(result.verdict)} history has no error to be shown")
    known = [call for call in calls if call.invoke.is_client and call.invoke.f in model.fs]
    problem = encode(known, model)
    failing = problem.source.index(result.failing_op)
    paths = partial_linearizations(problem, problem.ret[failing])
    data = _data(known, problem, result, paths)
    faults = fault_windows(nemesis)
    data["faults"], data["rows"] = _fault_bars(faults[:_FAULTS], known)
    by_index = {call.invoke.index: call for call in known}
    # The last ones to be called, and the error.
    listed = sorted({*sorted(result.core)[-_CORE_ROWS:], result.failing_op})
    core = [(by_index[index], model.describe(problem.what(problem.source.index(index)))) for index in listed]
    # Imported here: a run without a picture need not wait for it.
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(
        name=name,
        model=model,
        result=result,
        core=core,
        core_hidden=len(result.core) - len(core),
        count=len(known),
        timed=data["timed"],
        faults=faults[:_FAULTS],
        faults_hidden=max(len(faults) - _FAULTS, 0),
        left_out=len(known) - len(data["ops"]),
        # As in any script element: no text of a history may end it.
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _fault_bars(faults: Sequence[FaultWindow], calls: Sequence[Call]) -> tuple[list[list[Any]], int]:
    """[label, place of its begin, place of its end, row] of each fault, and the number of rows. Places lie between
    those of the ops' events.
    """
    events = sorted(e.index for call in calls for e in (call.invoke, call.completion) if e is not None)
    bars: list[list[Any]] = []
    ends: list[float] = []  # of the last bar in each row
    for label, began, ended in faults:
        first = bisect_left(events, began.invoke.index) - 0.5
        last_event = None if ended is None else ended.completion or ended.invoke
        last = len(events) if last_event is None else max(bisect_left(events, last_event.index) - 0.5, first + 0.4)
        row = next((row for row, end in enumerate(ends) if end < first), len(ends))
        ends[row : row + 1] = [last]
        bars.append([label, first, last, row])
    return bars, len(ends)


def partial_linearizations(problem: Problem, position: int) -> list[PartialLinearization]:
    """Some orders that explain all ops returned before the event at `position`, each ending in another state.

    The first is a witness of that prefix; the others differ in its last ops only. Empty if the prefix is too hard.
    """
    prefix = problem.before(position)
    outcome = plainly(
        len(prefix.events), Budget(), partial(decide, prefix), lambda found: found.verdict != Verdict.UNKNOWN
    )
    if outcome.verdict != Verdict.VALID or outcome.witness is None:
        return []
    first = list(outcome.witness)
    found = {_replayed(prefix, first)[-1]: first}
    kept = first[: max(0, len(first) - _TAIL)]
    for order, state in _completions(prefix, kept):
        if len(found) >= _PATHS:
            break
        found.setdefault(state, order)
    return [
        PartialLinearization(order, list(map(prefix.table.narrowed.tell, _replayed(prefix, order)[1:])))
        for order in found.values()
    ]


def _replayed(problem: Problem, order: Sequence[int]) -> list[Any]:
    """The initial state, and the one after each op; of the original model, with no states merged."""
    model = problem.table.model
    first: list[Any] = [model.initial]  # (`accumulate(..., initial=None)` would have no first state.)
    return list(accumulate(first + list(order), lambda state, op: model.step(state, problem.what(op))))


def _completions(problem: Problem, kept: list[int]) -> Iterator[tuple[list[int], Any]]:
    """Yields orders that begin with `kept` and hold all completed ops, with their last state; each set of ops and state
    once.
    """
    model = problem.table.model
    rest = [op for op in problem.ops if op not in set(kept)]
    todo: list[tuple[list[int], Any]] = [([], _replayed(problem, kept)[-1])]
    seen: set[tuple[frozenset[int], Any]] = set()
    for _ in range(_TRIALS):
        if not todo:
            return
        placed, state = todo.pop()
        left = [op for op in rest if op not in placed]
        limit = min((problem.ret[op] for op in left), default=NEVER)
        if limit == NEVER:
            yield [*kept, *placed], state
        for op in reversed(left):
            if problem.call[op] > limit:
                continue
            after = model.step(state, problem.what(op))
            entry = (frozenset((*placed, op)), after)
            if after is not INCONSISTENT and entry not in seen and not (limit == NEVER and after == state):
                seen.add(entry)
                todo.append(([*placed, op], after))


def _data(
    calls: Sequence[Call], problem: Problem, result: LinearResult, paths: Sequence[PartialLinearization]
) -> dict[str, Any]:
    """The data that the page draws. Places are positions of events in the order of the history.

    ops    [index, lane, place of the call, place of the return or -1, outcome, label, 0 | 1 in the core | 2 the error,
           process, start ns, end ns or -1], by call.
    paths  {same: n, rest: [[row of the op, place, state], ...]}: its first n ops are those of the first path.
    """
    indices = {event.index for call in calls for event in (call.invoke, call.completion) if event is not None}
    place = {index: at for at, index in enumerate(sorted(indices))}
    end = {call.invoke.index: place[call.completion.index] for call in calls if call.completion is not None}
    until = len(place) if result.failing_op is None else end.get(result.failing_op, len(place))
    spans = [
        (place[index], until if problem.ret[op] == NEVER else min(end[index], until))
        for op, index in enumerate(problem.source)
    ]
    shown = _chosen(calls, result)
    lanes = _lanes(shown)
    core = set(result.core)
    number = {index: op for op, index in enumerate(problem.source)}
    model = problem.table.model
    rows: list[list[Any]] = []
    row_of: dict[int, int] = {}
    for call in shown:
        index, op = call.invoke.index, number.get(call.invoke.index)
        if op is not None:
            row_of[op] = len(rows)
        what = model.describe(problem.what(op) if op is not None else model.kind(call))
        mark = 2 if index == result.failing_op else int(index in core)
        row = [index, lanes[index], place[index], end.get(index, -1), call.outcome, what, mark, call.invoke.process]
        rows.append([*row, call.start, -1 if call.end is None else call.end])
    return {
        "ops": rows,
        "lanes": max(lanes.values(), default=0) + 1,
        "events": len(place),
        "paths": _shared([_drawn(path, spans, row_of) for path in paths]),
        "noun": model.noun,
        # Readers of formats without times put the place in the file there.
        "timed": any(call.start != call.invoke.index for call in calls),
    }


def _chosen(calls: Sequence[Call], result: LinearResult) -> list[Call]:
    """All calls, or those around the error and those of the core."""
    if len(calls) <= MOST_OPS:
        return list(calls)
    at = next(i for i, call in enumerate(calls) if call.invoke.index == result.failing_op)
    low = min(max(0, at - MOST_OPS // 2), len(calls) - MOST_OPS)
    core = set(result.core)
    return [call for i, call in enumerate(calls) if low <= i < low + MOST_OPS or call.invoke.index in core]


def _drawn(path: PartialLinearization, spans: Sequence[tuple[int, int]], row_of: dict[int, int]) -> list[list[Any]]:
    """Each op of the path at its own place within its call, in order: the middle of its possible places.

    Both ends of the possible range rise along the path, and so does the middle between them.
    """
    early = list(accumulate((spans[op][0] for op in path.order), max))
    late = list(accumulate((spans[op][1] for op in reversed(path.order)), min))[::-1]
    drawn: list[list[Any]] = []
    for middle, group in groupby(range(len(early)), key=lambda i: (early[i] + late[i]) / 2):
        same = list(group)
        for i, at in enumerate(same):
            row = row_of.get(path.order[at])
            if row is not None:
                drawn.append([row, round(middle + 0.4 * i / len(same), 3), path.states[at]])
    return drawn


def _shared(drawn: Sequence[list[list[Any]]]) -> list[dict[str, Any]]:
    """The paths; the part that one shares with the first is stored only once."""
    pairs = [zip(path, drawn[0] if i else (), strict=False) for i, path in enumerate(drawn)]
    same = [sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both)) for both in pairs]
    return [{"same": n, "rest": path[n:]} for n, path in zip(same, drawn, strict=True)]


def _lanes(calls: Sequence[Call]) -> dict[int, int]:
    """Invocation index -> lane: one a process; a process that ended in an unknown op leaves its lane to another."""
    lane_of: dict[int, int] = {}
    last: dict[int, Call] = {call.invoke.process: call for call in calls}
    free: list[tuple[int, int]] = []
    found: dict[int, int] = {}
    for call in calls:
        process = call.invoke.process
        lane = lane_of.get(process)
        if lane is None:
            at = next((i for i, (until, _) in enumerate(free) if until < call.invoke.index), None)
            lane = free.pop(at)[1] if at is not None else len(set(lane_of.values()) | {lane for _, lane in free})
            lane_of[process] = lane
        found[call.invoke.index] = lane
        if last[process] is call and call.completion is not None:
            free.append((call.completion.index, lane))
    return found
