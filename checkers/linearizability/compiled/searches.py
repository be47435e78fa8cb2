# SPDX-License-Identifier: Apache-2.0
"""The compiled searches with the interface of the plain ones: from a problem and a meter to an `Outcome`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from checkers.linearizability.budget import Meter
from checkers.linearizability.closed_table import enumerate_states, worth
from checkers.linearizability.compiled import kernel, wgl_kernel
from checkers.linearizability.compiled.code_cache import Part
from checkers.linearizability.compiled.configurations import COUNT
from checkers.linearizability.compiled.replay import replay_tree
from checkers.linearizability.compiled.workspace import workspace
from checkers.linearizability.history.arrays import LOW_HALF, Dense
from checkers.linearizability.history.columns import Columns, columns
from checkers.linearizability.history.encode import Problem, encode
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.models.registers import CasRegister
from checkers.linearizability.outcome import SHOWN, Outcome
from checkers.linearizability.search.cegar import FREE, Groups, Use, by_target, refine
from checkers.linearizability.search.portfolio import CEGAR, JIT, STATE_FLOW, WGL
from checkers.linearizability.search.state_flow import state_flow
from results.history import Call
from results.op import Op
from results.verdict import Verdict


class Compiled:
    """The searches for one problem with a closed table. Each method is a stage of the portfolio."""

    def __init__(self, problem: Problem, dense: Dense, history: Columns) -> None:
        self.problem, self.dense, self.history = problem, dense, history
        self.group = by_target(dense, dense.step.shape[1])

    @classmethod
    def of(cls, problem: Problem) -> Compiled | None:
        """The searches for a problem; None if its table cannot be closed."""
        dense = enumerate_states(problem.table, max_cells=worth(len(problem.events)))
        return None if dense is None else cls(problem, dense, columns(problem, dense))

    def just_in_time(self, meter: Meter) -> Outcome:
        """Complete: valid with a witness, invalid with the earliest proof, or unknown with the event reached."""
        return self._walk(JIT, meter)

    def cegar(self, meter: Meter) -> Outcome:
        """Complete as well, see `search.cegar`; if it ends early, its progress means nothing."""
        return refine(self._counted, self.called, self.group, meter)

    def _counted(self, groups: Groups, meter: Meter) -> tuple[Outcome, Sequence[Use]]:
        outcome = self._walk(CEGAR, meter, groups)
        if outcome.verdict != Verdict.VALID:
            # (An order that uses too many unknown ops is of no interest.)
            position = outcome.position if outcome.verdict == Verdict.INVALID else NONE
            # (A survivor has a last op if its unknown ops could be named: it used none too often.)
            passed = position if any(last != NONE for _, last in outcome.survivors) else NONE
            return replace(outcome, position=position, passed=passed, survivors=()), ()
        uses: list[Use] = []
        space = workspace()
        node = space.node(0)
        while node >= 0:
            node, step, position = space.tree[3 * node : 3 * node + 3].tolist()
            if step < 0:
                uses.append((~step, position))
        return outcome, uses[::-1]

    def wgl(self, meter: Meter) -> Outcome:
        """The depth-first search. It never answers `invalid`."""
        entries = min(meter.steps, meter.memory // wgl_kernel.BYTES_A_STEP)
        order = np.zeros(len(self.problem.kind), np.int32)
        code, steps, reached = wgl_kernel.search(self.history, self.dense, entries, order)
        meter.work += steps
        if code == kernel.VALID:
            return Outcome(Verdict.VALID, WGL, meter.work, witness=order[:reached].tolist())
        told = "every order tried, none found" if code == kernel.INVALID else f"its {entries:,} steps are used up"
        return Outcome(Verdict.UNKNOWN, WGL, meter.work, ran_out=told, passed=self._original(reached))

    def refuters(self) -> Sequence[Callable[[Meter], Outcome]]:
        """Searches that can answer `invalid`, without an explanation. Cheap ones first."""
        free = [FREE] * len(self.group)
        counting: Sequence[Groups | None] = (free, self.group, None) if self.called else (None,)
        return [partial(self._refute, groups) for groups in counting]

    def _refute(self, groups: Groups | None, meter: Meter) -> Outcome:
        space = workspace()
        code = space.walk(self.history, self.dense, 0, meter.steps, meter.memory, groups)
        meter.work += int(space.told[kernel.WORK])
        verdict = Verdict.INVALID if code == kernel.INVALID else Verdict.UNKNOWN
        return Outcome(verdict, JIT, meter.work)

    def _walk(self, name: str, meter: Meter, groups: Groups | None = None) -> Outcome:
        """`groups`: with them, a witness may use unknown ops too often."""
        space = workspace()
        code = space.walk(self.history, self.dense, kernel.RECORD, meter.steps - meter.work, meter.memory, groups)
        meter.work += int(space.told[kernel.WORK])
        position = int(space.told[kernel.POSITION])
        if code == kernel.INVALID:
            states, survivors = self._evidence(position, meter, groups)
            return Outcome(Verdict.INVALID, name, meter.work, self._original(position), states, survivors)
        if code == kernel.VALID:
            witness = self._path(space.node(0), len(self.history.events))
            return Outcome(Verdict.VALID, name, meter.work, witness=witness)
        memory = f"it needs more than {meter.memory / 2**20:,.0f} MiB"
        limit = f"its {meter.steps:,} steps are used up" if code == kernel.SPENT else memory
        return Outcome(Verdict.UNKNOWN, name, meter.work, self._original(position), ran_out=limit)

    def _evidence(self, position: int, meter: Meter, groups: Groups | None) -> tuple[list[int], list[tuple[int, int]]]:
        """The states possible before the event that proves the violation, and the ends of a few orders.

        With `groups`, perhaps more states, and orders that need not be possible.
        """
        space = workspace()
        before = Columns(self.history.events[: position + 1], self.history.kind, self.history.ret)
        mode = kernel.RECORD | kernel.EVERY_STATE
        if space.walk(before, self.dense, mode, meter.steps, meter.memory, groups) != kernel.INVALID:
            return [], []
        meter.work += int(space.told[kernel.WORK])
        width = space.width
        states = {int(word & LOW_HALF) for word in space.todo.words[: int(space.todo.links[COUNT]) * width : width]}
        survivors = []
        for row in range(min(SHOWN, int(space.front.links[COUNT]))):
            path = self._path(int(space.node(row)), position)
            survivors.append((int(space.front.words[row * width]), path[-1] if path else NONE))
        return sorted(states), survivors

    def _path(self, node: int, until: int) -> Sequence[int]:
        order = np.zeros(len(self.problem.kind), np.int32)
        count = replay_tree(self.history, self.dense, workspace().tree, node, until - 1, order)
        return order[: max(count, 0)].tolist()  # type: ignore[no-any-return]

    def _original(self, position: int) -> int:
        """A position of the columns as one of the problem, which may have more ops that constrain nothing."""
        if len(self.history.events) == len(self.problem.events) or position >= len(self.history.events):
            return min(position, len(self.problem.events))
        event = int(self.history.events[position])
        return (self.problem.ret if event & 1 else self.problem.call)[event >> 1]

    @property
    def searches(self) -> Mapping[str, Callable[[Meter], Outcome]]:
        """The compiled edition of each search."""
        flow = partial(state_flow, self.problem)
        return {WGL: self.wgl, JIT: self.just_in_time, CEGAR: self.cegar, STATE_FLOW: flow}

    @cached_property
    def called(self) -> Mapping[int, Sequence[int]]:
        """Per kind, the positions at which unknown ops of it are called that may change something."""
        op = self.history.events >> 1
        found: dict[int, list[int]] = {}
        for position in np.nonzero(self.history.ret[op] == NEVER)[0].tolist():
            found.setdefault(int(self.history.kind[op[position]]), []).append(position)
        return found


def small_history() -> list[Call]:
    """A small history, to compile the searches of a register with it."""
    return [
        Call(Op(0, 0, 0, "invoke", "write", "k", 1), Op(4, 4, 0, "ok", "write", "k", 1)),
        Call(Op(1, 1, 1, "invoke", "cas", "k", [1, 2]), None),
        Call(Op(2, 2, 2, "invoke", "read", "k"), Op(3, 3, 2, "ok", "read", "k", 1)),
    ]


def _run_searches() -> None:
    compiled = Compiled.of(encode(small_history(), CasRegister()))
    if compiled is None:
        raise AssertionError("a register of two values has a closed table")
    for run in (compiled.wgl, compiled.just_in_time, compiled.cegar):
        run(Meter(1_000, 1 << 24))


SEARCH: Final = Part("search", _run_searches, 15)
