# SPDX-License-Identifier: Apache-2.0
"""The hunt: which plan runs next, on which arm, and which result is new.

Most runs are episodes of two covering arrays in turn (each arm has its own), or, with seeds, changes of plans that
found something. All pairs come about within hours. All triples would take a night and more, but the worthiest of
them come at once. Some runs are the control: as many strikes, drawn uniformly. It runs by the same code, so what
the arrays find beside it can be compared. A run is new if it has an anomaly that no earlier one of the hunt had,
and that no finding of the record explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final, Literal

from harness.hunt import episodes
from harness.hunt.array import Axes, CoveringArray, Row
from harness.plan.plan import Plan

Mode = Literal["array", "seeds", "control"]

TURN: Final = 6
"""Runs of an arm in a row, which may share a cluster."""
_SEEDS: Final = 5
"""Every so many runs one is a change of a plan, if there are seeds."""
CONTROL: Final = 0.2
"""The share of the control."""
_GAVE_UP: Final = 4
"""So many runs of an arm without a history end it."""


@dataclass(frozen=True)
class Arm:
    """A workload on a topology: options of `harness run`, and the axes with what can strike there. kept: its runs can
    share a cluster.
    """

    name: str
    words: tuple[str, ...]
    axes: Axes
    kept: bool = True


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    verdict  "" without a run, whose reason is `problem`. new: anomalies that no finding explains and that are not in
             doubt. known: ids of findings. struck: ids of the strikes that took effect; healed: of those whose time
             was over.
    early    describes the early end of its load (`results.alarm.EarlyEnd`); "": it ran to its end. not_run_s: seconds
             of the planned load that were not run.
    """

    verdict: str
    new: Sequence[str] = ()
    known: Sequence[int] = ()
    struck: Sequence[int] = ()
    folder: str = ""
    problem: str = ""
    healed: Sequence[int] = ()
    early: str = ""
    not_run_s: float = 0.0


@dataclass(frozen=True)
class Entry:
    """One run, as the ledger keeps it. rows: of the array. at_s: its end, since the hunt began. first: anomalies that
    no earlier run had.
    """

    arm: str
    mode: Mode
    seconds: float
    at_s: float
    outcome: Outcome
    rows: Sequence[Row] = ()
    ids: Sequence[Sequence[int]] = ()
    first: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """As one object."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Entry:
        """The inverse of `to_json`. Raises KeyError or TypeError."""
        return Entry(**{**data, "outcome": Outcome(**data["outcome"])})


Trial = Callable[[Plan, Arm], Outcome]
"""Runs a plan on an arm, with a new seed."""


@dataclass
class Hunt:
    """The state of a hunt. entries: all runs, those of earlier calls included. pairs, triples: the arrays by arm."""

    arms: Sequence[Arm]
    seed: int
    seeds: Sequence[Plan] = ()
    control: float = CONTROL
    entries: list[Entry] = field(default_factory=list)
    pairs: dict[str, CoveringArray] = field(default_factory=dict)
    triples: dict[str, CoveringArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for arm in self.arms:
            self.pairs[arm.name] = CoveringArray(arm.axes, episodes.idle, self.seed)
            self.triples[arm.name] = CoveringArray(arm.axes, episodes.idle, self.seed, strength=3)
        for entry in self.entries:
            self._credit(entry)

    @property
    def seen(self) -> set[str]:
        """The anomalies that were new once."""
        return {name for entry in self.entries for name in entry.first}

    def run(
        self, trial: Trial, clock: Callable[[], float], over: Callable[[], bool], tell: Callable[[Entry], None]
    ) -> None:
        """Runs until `over`, or until no arm has runs any more. `clock`: seconds since the hunt began."""
        left = {arm.name: _GAVE_UP for arm in self.arms}
        while not over() and left:
            arm = self._next_arm([arm for arm in self.arms if arm.name in left])
            number = len(self.entries)
            mode, plan, rows, ids = self._choose(arm, Random(f"{self.seed}/{number}"), number)
            began = clock()
            outcome = trial(plan, arm)
            first = tuple(name for name in outcome.new if name not in self.seen)
            ended = clock()
            entry = Entry(arm.name, mode, round(ended - began, 1), round(ended, 1), outcome, rows, ids, first)
            self.entries.append(entry)
            self._credit(entry)
            left[arm.name] = _GAVE_UP if outcome.folder else left[arm.name] - 1
            if not left[arm.name]:
                del left[arm.name]
            tell(entry)

    def _next_arm(self, arms: Sequence[Arm]) -> Arm:
        """In turn, some runs each: the arm of the last run until its turn is over, then the one that ran least."""
        counts = {arm.name: sum(entry.arm == arm.name for entry in self.entries) for arm in arms}
        last = self.entries[-1].arm if self.entries else ""
        for arm in arms:
            if arm.name == last and counts[last] % TURN:
                return arm
        return min(arms, key=lambda arm: counts[arm.name])

    def _choose(self, arm: Arm, rng: Random, number: int) -> tuple[Mode, Plan, Sequence[Row], Sequence[Sequence[int]]]:
        if int((number + 1) * self.control + 1e-9) > int(number * self.control + 1e-9):
            return "control", episodes.uniform(arm.axes, rng), (), ()
        if self.seeds and number % _SEEDS == 1:
            return "seeds", episodes.mutated(self.seeds, arm.axes, rng), (), ()
        rows: list[Row] = []
        arrays = self.triples[arm.name], self.pairs[arm.name]
        while len(rows) < episodes.MOST:
            row = arrays[len(rows) % 2].next(rows)
            if rows and sum(map(episodes.length_s, [*rows, row])) > episodes.LOAD_S:
                break
            rows.append(row)
        plan, ids = episodes.of_rows(rows)
        return "array", plan, rows, [sorted(one) for one in ids]

    def _credit(self, entry: Entry) -> None:
        if entry.arm not in self.pairs or not entry.outcome.folder:
            return
        struck, healed = set(entry.outcome.struck), set(entry.outcome.healed)
        for array in (self.pairs[entry.arm], self.triples[entry.arm]):
            for number, (row, ids) in enumerate(zip(entry.rows, entry.ids, strict=True)):
                later = {strike for others in entry.ids[number + 1 :] for strike in others}
                if entry.outcome.early and struck.isdisjoint(later):
                    # The load ended in this episode, or before it: only what was run counts, and nothing was in vain.
                    array.came_about(row, episodes.axes_run(row, ids, struck, healed))
                else:
                    (array.came_about if struck.issuperset(ids) else array.did_not)(row)


def first_sights(entries: Iterable[Entry]) -> list[Entry]:
    """The runs that showed something new."""
    return [entry for entry in entries if entry.first]
