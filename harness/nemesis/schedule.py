"""The fault schedule: which fault strikes whom and when, as a pure function of the plan.

Only one thing is left open until a fault strikes: who has a role then (`leader`, `slaves`). All else - the moment, the
nodes, the seed from which a grudge is drawn - comes from the plan's seed, one stream per strike, so that a longer time
limit or another nemesis beside it changes neither whom the strikes hit that were there before, nor how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from harness.api import Fault, NoTarget
from harness.nemesis.targets import RANDOM, ROLES, resolve
from harness.plan.plan import NemesisPlan, Plan, PlanError, suggest

FIRST_S = 5.0
"""When the first fault strikes: clients have had their way before. In a run below 20 s, after a quarter of it."""

LAST_S = 2.0
"""No fault strikes in this last stretch of the time limit: too short to show anything."""

_JITTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault at one time. Seconds since the main phase began; `target` is a role or names the nodes: `n1,n4`.

    id      from 1, in order of `start_s`.
    fault   the fault's own name (`Fault.name`, whatever alias the plan used).
    seed    of the random numbers with which the fault aims (`Fault.aim`).
    """

    id: int
    fault: str
    start_s: float
    end_s: float
    target: str
    seed: int


def strikes(plan: Plan, faults: Mapping[str, Fault]) -> list[Strike]:
    """The schedule, in order of `start_s`. `faults` maps the plan's names to faults.

    A nemesis strikes every `every_s` (give or take a jitter), for `for_s` or until the time limit. Several nemeses of
    a plan start a part of their interval apart, so that they take turns, and overlap where their times are long.

    Raises PlanError for a wrong target, and for a fault that has nothing to do on this many nodes.
    """
    nodes = [f"n{i}" for i in range(1, plan.cluster.nodes + 1)]
    found: list[Strike] = []
    met: dict[str, int] = {}
    for place, nemesis in enumerate(plan.nemeses):
        if nemesis.fault not in faults:
            raise PlanError(f"no nemesis {nemesis.fault!r}{suggest(nemesis.fault, faults)}")
        fault = faults[nemesis.fault]
        met[fault.name] = met.get(fault.name, 0) + 1
        # A fault that stands in the plan twice has two streams.
        stream = fault.name if met[fault.name] == 1 else f"{fault.name}#{met[fault.name]}"
        _check(nemesis, fault, nodes)
        found += _of_one(plan, nemesis, fault, nodes, place, stream)
    found.sort(key=lambda strike: strike.start_s)
    return [replace(strike, id=number) for number, strike in enumerate(found, start=1)]


def _of_one(
    plan: Plan, nemesis: NemesisPlan, fault: Fault, nodes: Sequence[str], place: int, stream: str
) -> list[Strike]:
    limit = plan.time_limit_s
    start_of_all = min(FIRST_S, limit / 4)
    latest = max(limit - LAST_S, limit / 2)
    first = start_of_all + place / len(plan.nemeses) * min(nemesis.every_s, latest - start_of_all)
    # However the jitter falls, a heal comes before the next strike of the same nemesis.
    jitter = min(_JITTER_S, (nemesis.every_s - nemesis.for_s) / 2)
    found = []
    number = 0
    while first + number * nemesis.every_s <= latest:
        rng = plan.rng(f"faults/{stream}/{number}")
        start = round(min(first + number * nemesis.every_s + rng.uniform(0, jitter), latest), 3)
        hit = _target(nemesis, fault, nodes, rng)
        end = round(min(start + nemesis.for_s, limit), 3)
        target = ",".join(hit) or _expression(nemesis, fault)
        found.append(Strike(0, fault.name, start, end, target, rng.getrandbits(32)))
        number += 1
    return found


def _target(nemesis: NemesisPlan, fault: Fault, nodes: Sequence[str], rng: Random) -> list[str]:
    return resolve(_expression(nemesis, fault), nodes, rng, where=f"target of {nemesis.fault}")


def _expression(nemesis: NemesisPlan, fault: Fault) -> str:
    return (nemesis.target or fault.default_target).strip()


def _check(nemesis: NemesisPlan, fault: Fault, nodes: Sequence[str]) -> None:
    """Raise PlanError when the fault would do nothing, however the dice fall. (`random` may hit all nodes, or one.)"""
    rng = Random(0)
    hit = _target(nemesis, fault, nodes, rng)
    if _expression(nemesis, fault) in (*ROLES, RANDOM):
        hit = list(nodes[:1])
    try:
        aimed: Mapping[str, Any] = fault.aim(nodes, hit, rng)
    except NoTarget:
        aimed = {}
    if not aimed:
        asked = f" with target {nemesis.target!r}" if nemesis.target else ""
        raise PlanError(
            f"{nemesis.fault} has nothing to do on {len(nodes)} node{'s' * (len(nodes) != 1)}{asked}; "
            "more nodes (--nodes), or another target (--target) is right"
        )
