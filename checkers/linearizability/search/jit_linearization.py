# SPDX-License-Identifier: Apache-2.0
"""Just-in-time linearization, complete: walks the events, and keeps every configuration that could be true.

A configuration is a state, the set of *open* ops already linearized, and the number of unknown ops used. Its size
follows the concurrency, never the length of the history. An op is linearized only when its return forces a decision:

* at a call, the op gets a slot (a bit that is reused later);
* at the return of p, configurations that hold p drop its bit and pass; the others are continued by every sequence of
  open ops that ends in p. If none is left, no order exists, and this return is the earliest proof of it.

Five reductions keep the set small. Each is sound because the configuration it drops is no better than one it keeps:

1. *Absorption.* A pure op that is legal in the current state is linearized at once: that forbids nothing later.
2. *Tokens.* Unknown mutators of one kind are interchangeable: a configuration counts how many it used (fields of one
   packed integer), and uses one only on the way to a p that needs it.
3. *Hiding.* A blind write that was open when a later one took effect can be put right in front of that one, so that no
   op sees it: no decision is needed for it, and two blind writes in a row are never tried if no op between them saw the
   first.
4. *Symmetry.* Among the open mutators of one kind, the one that returns first goes first.
5. *Dominance.* Same state and same mutators: fewer tokens used, more pure ops done, more to hide is at least as good.

Source: Lowe, "Testing for linearizability" (2017); Horn and Kroening (2015); Knossos' `linear`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from checkers.linearizability.budget import Meter, Spent
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import ILLEGAL, NEVER, NONE
from checkers.linearizability.outcome import SHOWN, Outcome
from checkers.linearizability.search.cegar import FREE, Groups, Use
from checkers.linearizability.search.portfolio import CEGAR, JIT
from results.verdict import Verdict

_SCAN: Final = 128
"""The number of rivals compared for dominance. A missed one costs work, but the verdict stays right."""

_CONFIGURATION: Final = 320
"""Bytes of a configuration in CPython without its masks: dict key, list, tuples, path node."""

Path = tuple["Path | None", int, int]
"""The ops linearized so far, last first, as (before, step, absorbed).

`absorbed == 0`: `step` is an op, or `~kind` for an unknown one (which one of its kind is decided at the end).
`absorbed == _HIDDEN`: `step` is an op that goes in front of the last blind one. Otherwise `absorbed` are the bits of
pure ops taken together, and `step` is the position of the event at which they were taken.
"""

_HIDDEN: Final = -1

Entry = tuple[int, int, int, Path | None]
"""One of the configurations of a (state, mutators): pure ops done, ops that can hide, tokens used, path."""

Configurations = dict[tuple[int, int], list[Entry]]
"""(state, mask of open mutators already linearized) -> entries, none dominated by another."""


class JustInTime:
    """One walk over one problem. `groups`: the counter of each kind of unknown ops, shared or FREE (`cegar`).

    Groups allow more orders than really exist: `invalid` still holds, `valid` only if that order does not use too many
    unknown ops (`uses`).
    """

    def __init__(self, problem: Problem, meter: Meter, groups: Groups | None = None) -> None:
        self.problem, self.meter = problem, meter
        self.groups = range(len(problem.table.kinds)) if groups is None else groups
        self.exact, self.name = groups is None, JIT if groups is None else CEGAR
        self.uses: Sequence[Use] = ()
        self.step = problem.table.step
        self.configurations: Configurations = {(0, 0): [(0, 0, 0, None)]}
        self.slot: dict[int, int] = {}  # open completed op -> its bit
        self.free_bits: list[int] = []
        self.width = 0
        self.position = NONE
        self.occupants: dict[int, list[tuple[int, int]]] = {}  # bit number -> (since position, op), for absorbed ones
        self.open_pure: dict[int, int] = {}  # kind -> bits
        self.open_mutators: dict[int, list[tuple[int, int, int]]] = {}  # kind -> (return, bit, op), by return
        self.open_blind = 0
        self.absorbable_in: dict[int, int] = {}  # state -> bits of open pure ops legal there
        self._lay_out_tokens()

    def _lay_out_tokens(self) -> None:
        """Lays out a field per group of unknown ops, wide enough for all of them, with a guard bit on top."""
        counts = Counter[int]()
        for kind, ops in self.problem.unknown.items():
            if self.groups[kind] != FREE:
                counts[self.groups[kind]] += len(ops)
        self.token_shift: dict[int, int] = {}
        self.token_field: dict[int, int] = {}
        self.available: dict[int, int] = {}  # group -> called so far
        self.known: dict[int, None] = {}  # kinds of unknown ops called so far, in order
        self.guards = 0
        shift = 0
        for group, count in counts.items():
            bits = count.bit_length()
            self.token_shift[group], self.token_field[group] = shift, (1 << bits) - 1
            self.guards |= 1 << (shift + bits)
            shift += bits + 1

    def run(self) -> Outcome:
        """Valid with a witness, invalid with the earliest proof, or unknown with the event reached."""
        try:
            for position, event in enumerate(self.problem.events):
                self.position = position
                op = event >> 1
                if not event & 1:
                    self._call(op)
                elif not self._return(op):
                    return self._stuck()
        except Spent as limit:
            reached = self.position if self.exact else NONE
            return Outcome(Verdict.UNKNOWN, self.name, self.meter.work, reached, ran_out=str(limit))
        path = next(iter(self.configurations.values()))[0][3]
        return Outcome(Verdict.VALID, self.name, self.meter.work, witness=self._witness(path))

    def _call(self, op: int) -> None:
        kind, ret = self.problem.kind[op], self.problem.ret[op]
        if ret == NEVER:
            self.known[kind] = None
            self.available[self.groups[kind]] = self.available.get(self.groups[kind], 0) + 1
            return
        if not self.free_bits:
            self.free_bits.append(1 << self.width)
            self.width += 1
        bit = self.free_bits.pop()
        self.slot[op] = bit
        if self.problem.pure(op):
            self.occupants.setdefault(bit.bit_length() - 1, []).append((self.position, op))
            self.open_pure[kind] = self.open_pure.get(kind, 0) | bit
            self.absorbable_in.clear()
        else:
            insort(self.open_mutators.setdefault(kind, []), (ret, bit, op))
            if self.problem.table.blind[kind]:
                self.open_blind |= bit

    def _return(self, op: int) -> bool:
        """True if a configuration is left. If not, `self.seen` holds all that were possible before."""
        bit, kind = self.slot[op], self.problem.kind[op]
        pure = self.problem.pure(op)
        self.seen: Configurations = {}
        self.passed: Configurations = {}
        self.todo: list[tuple[int, int, Entry, bool]] = []
        self.entries = 0
        for (state, mutators), entries in self.configurations.items():
            for entry in entries:
                self._settle(state, mutators, entry, False, op, bit, pure)
        # Stack of tries without new tokens first: later ones are then often dominated.
        while self.todo:
            frugal, costly = self.todo, []
            self.todo = []
            while frugal:
                self._hold()
                state, mutators, (done, hidden, used, path), unseen = frugal.pop()
                for after, with_op, token_cost, step, blind in self._moves(state, mutators, hidden, used, unseen):
                    hides = hidden | self.open_blind if blind else hidden
                    following = (after, with_op, (done, hides & ~with_op, used + token_cost, (path, step, 0)), blind)
                    if token_cost:
                        costly.append(following)
                    else:
                        self._settle(*following, op, bit, pure)
                frugal.extend(self.todo)
                self.todo = []
            for following in costly:
                self._settle(*following, op, bit, pure)
        self._hold()
        if not self.passed:
            return False
        self.configurations = self.passed
        del self.slot[op]
        self.free_bits.append(bit)
        if pure:
            self.open_pure[kind] &= ~bit
            if not self.open_pure[kind]:
                del self.open_pure[kind]
            self.absorbable_in.clear()
        else:
            rivals = self.open_mutators[kind]
            rivals.pop(0)
            self.open_blind &= ~bit
            if not rivals:
                del self.open_mutators[kind]
        return True

    def _settle(self, state: int, mutators: int, entry: Entry, blind: bool, op: int, bit: int, pure: bool) -> None:
        """Absorbs, then sorts a configuration: it has p (`op`, `bit`) and passes, or must still place p (todo).

        `blind`: it was reached by a blind write just now.
        """
        done, hidden, used, path = entry
        if self.width > 64:
            self.meter.spend(self.width // 64)
        gained = self._absorbable(state) & ~done
        if gained:
            done |= gained
            path = (path, self.position, gained)
            blind = False
        if pure:
            if done & bit:
                self._admit(self.passed, state, mutators, (done & ~bit, hidden, used, path))
                return
        elif mutators & bit:
            self._admit(self.passed, state, mutators & ~bit, (done, hidden & ~bit, used, path))
            return
        elif hidden & bit:
            self._admit(self.passed, state, mutators, (done, hidden & ~bit, used, (path, op, _HIDDEN)))
        entry = (done, hidden, used, path)
        if self._admit(self.seen, state, mutators, entry):
            self.todo.append((state, mutators, entry, blind))

    def _moves(
        self, state: int, mutators: int, hidden: int, used: int, unseen: bool
    ) -> Iterator[tuple[int, int, int, int, bool]]:
        """Yields the steps possible now: (state after, mutators after, tokens spent, op or ~kind for the path, blind).

        `unseen`: a blind write left the state, and no op saw it; to overwrite it would only be a detour.
        """
        step, blind, spent = self.step, self.problem.table.blind, 0
        hides_more = self.open_blind & ~mutators & ~hidden
        for kind, rivals in self.open_mutators.items():
            if unseen and blind[kind]:
                continue
            for rank, (_, bit, op) in enumerate(rivals):
                if not mutators & bit:
                    spent += 1 + rank // 8
                    after = step(state, kind)
                    if after != ILLEGAL:
                        yield after, mutators | bit, 0, op, blind[kind]
                    break
            else:
                spent += 1 + len(rivals) // 8
        for kind in self.known:
            if unseen and blind[kind]:
                continue
            spent += 1
            group, cost = self.groups[kind], 0
            if group != FREE:
                shift = self.token_shift[group]
                if (used >> shift) & self.token_field[group] >= self.available[group]:
                    continue
                cost = 1 << shift
            after = step(state, kind)
            # An unknown op that changes nothing is needed only if a blind one of another value goes in front of it.
            if after != ILLEGAL and (after != state or (blind[kind] and hides_more)):
                yield after, mutators, cost, ~kind, blind[kind]
        self.meter.spend(spent)

    def _absorbable(self, state: int) -> int:
        found = self.absorbable_in.get(state)
        if found is None:
            self.meter.spend(len(self.open_pure))
            found = sum(bits for kind, bits in self.open_pure.items() if self.step(state, kind) != ILLEGAL)
            self.absorbable_in[state] = found
        return found

    def _admit(self, where: Configurations, state: int, mutators: int, entry: Entry) -> bool:
        """Adds an entry unless one there is at least as good; drops those that are now no better than this one."""
        found = where.get((state, mutators))
        if found is None:
            where[state, mutators] = [entry]
            self.entries += 1
            self.meter.spend(1)
            return True
        done, hidden, used, _ = entry
        guards = self.guards
        self.meter.spend(1 + min(len(found), _SCAN) // 4)
        for better, more, fewer, _ in found[:_SCAN]:
            if not (done & ~better or hidden & ~more) and ((used | guards) - fewer) & guards == guards:
                return False
        if len(found) <= _SCAN:
            self.entries -= len(found)
            found[:] = [
                (d, h, u, p)
                for d, h, u, p in found
                if d & ~done or h & ~hidden or ((u | guards) - used) & guards != guards
            ]
            self.entries += len(found)
        found.append(entry)
        self.entries += 1
        self.meter.spend(1)
        return True

    def _hold(self) -> None:
        """Counts the memory. Each configuration leads to a few others, so that once for each is often enough."""
        masks = (2 * self.width + self.guards.bit_length()) // 8
        self.meter.hold(self.entries * (_CONFIGURATION + masks) + self.problem.table.held)

    def _stuck(self) -> Outcome:
        states = sorted({state for state, _ in self.seen})
        survivors = []
        # (An order that uses too many unknown ops is of no interest.)
        for (state, _), entries in islice(self.configurations.items(), SHOWN if self.exact else 0):
            path = entries[0][3]
            survivors.append((state, NONE if path is None else self._witness(path)[-1]))
        return Outcome(Verdict.INVALID, self.name, self.meter.work, self.position, states, survivors)

    def _occupants(self, position: int, bits: int) -> Iterator[int]:
        """Yields the pure ops that held these slots at that event."""
        for number, digit in enumerate(reversed(f"{bits:b}")):
            if digit == "1":
                held = self.occupants[number]
                yield held[bisect_right(held, position, key=lambda since: since[0]) - 1][1]

    def _witness(self, path: Path | None) -> list[int]:
        """The order of ops, unknown ones taken in the order of their calls within their kind."""
        taken: list[tuple[int, int]] = []
        while path is not None:
            path, step, absorbed = path
            taken.append((step, absorbed))
        stretches: list[list[int]] = [[]]  # each but the first begins with a blind op
        for step, absorbed in reversed(taken):
            if absorbed == _HIDDEN:
                stretches[-2].append(step)
            elif absorbed:
                stretches[-1].extend(self._occupants(step, absorbed))
            elif self.problem.table.blind[self.problem.kind[step] if step >= 0 else ~step]:
                stretches.append([step])
            else:
                stretches[-1].append(step)
        steps = [step for stretch in stretches for step in stretch]
        unknown = {kind: iter(ops) for kind, ops in self.problem.unknown.items()}
        if not self.exact:
            self.uses = self._used(steps)
        # (With groups, the order ends where it runs out of unknown ops.)
        order = (step if step >= 0 else next(unknown[~step], NONE) for step in steps)
        return [op for op in order if op != NONE]

    def _used(self, steps: Sequence[int]) -> Sequence[Use]:
        """The unknown ops among the steps. The event at which they were used is unknown; so a kind that is not counted,
        or not alone, counts as overdrawn.
        """
        late = len(self.problem.events)
        sharing = Counter(group for group in self.groups if group != FREE)
        return [(~step, late if sharing[self.groups[~step]] == 1 else NONE) for step in steps if step < 0]
