# SPDX-License-Identifier: Apache-2.0
"""The schedule: the faults, their targets and their times, as a pure function of the plan.

Strikes in the plan are used unchanged. If the plan names nemeses, their strikes are drawn. Only roles (`leader`,
`slaves`) are resolved when a fault strikes. All other data (the time, the nodes, the seed of a grudge) comes from the
plan's seed, with one random stream per strike. A longer time limit or an additional nemesis therefore does not change
the existing strikes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from harness.api import Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.targets import RANDOM, is_role, resolve
from harness.plan.plan import NemesisPlan, Plan, PlanError
from results.strikes import Strike

FIRST_S = 5.0
"""The time of the first fault: before it, clients work undisturbed. In a run below 20 s, after a quarter of it."""

LAST_S = 2.0
"""No fault strikes in this last part of the time limit: it is too short to show an effect."""

_JITTER_S = 1.0


def strikes(plan: Plan, faults: Sequence[Fault]) -> list[Strike]:
    """The strikes of a run, in order of `at_s` or, if the plan lists them, of the plan.

    faults  those of the plan, in its order: of `plan.strikes`, or of `plan.nemeses`.

    A nemesis strikes every `every_s` (give or take a jitter), for `for_s` or until the time limit. Several nemeses of
    a plan start a part of their interval apart, so that they take turns, and overlap if their times are long.

    Raises PlanError for a wrong target, and for a fault that has nothing to do on this many nodes.
    """
    nodes = plan.nodes
    if plan.strikes:
        return [_written(plan, strike, fault) for strike, fault in zip(plan.strikes, faults, strict=True)]
    found: list[Strike] = []
    met: dict[str, int] = {}
    for place, (nemesis, fault) in enumerate(zip(plan.nemeses, faults, strict=True)):
        met[fault.name] = met.get(fault.name, 0) + 1
        # A fault that is in the plan twice has two streams.
        stream = fault.name if met[fault.name] == 1 else f"{fault.name}#{met[fault.name]}"
        _check(_expression(nemesis, fault), nemesis.fault, fault, nodes, nemesis.target)
        found += _of_one(plan, nemesis, fault, nodes, place, stream)
    found.sort(key=lambda strike: strike.at_s or 0.0)
    return [replace(strike, id=number) for number, strike in enumerate(found, start=1)]


def _written(plan: Plan, strike: Strike, fault: Fault) -> Strike:
    """A strike of the plan, with the nodes that `one`, `minority` and so on mean, and a seed."""
    what = f"strike {strike.id} ({fault.name})"
    expression = strike.target or fault.default_target
    _check(expression, what, fault, plan.nodes)
    rng = plan.rng(f"strikes/{strike.id}")
    hit = resolve(expression, plan.nodes, rng, where=f"target of {what}")
    seed = strike.seed or rng.getrandbits(32)
    return replace(strike, fault=fault.name, target=",".join(hit) or expression, seed=seed)


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
        expression = _expression(nemesis, fault)
        hit = resolve(expression, nodes, rng, where=f"target of {nemesis.fault}")
        length = round(round(min(start + nemesis.for_s, limit), 3) - start, 3)
        target = ",".join(hit) or expression
        seed = rng.getrandbits(32)
        found.append(Strike(0, fault.name, target, length, seed, at_s=start, options=nemesis.options))
        number += 1
    return found


def _expression(nemesis: NemesisPlan, fault: Fault) -> str:
    return (nemesis.target or fault.default_target).strip()


def _check(expression: str, what: str, fault: Fault, nodes: Sequence[str], requested: str | None = None) -> None:
    """Raises PlanError if the fault would have no effect with any draw. (`random` may hit all nodes, or one.)"""
    rng = Random(0)
    hit = resolve(expression, nodes, rng, where=f"target of {what}")
    if fault.aims_late:
        return
    if expression == RANDOM or is_role(expression):
        hit = list(nodes[:1])
    try:
        aimed: Mapping[str, Injection] = fault.aim(ClusterView.assumed(nodes, hit[0]), Target(hit), rng)
        why = ""
    except NoTarget as problem:
        aimed, why = {}, f" ({problem})"
    if not aimed:
        with_target = f" with target {requested!r}" if requested else ""
        raise PlanError(
            f"{what} cannot act on {len(nodes)} node{'s' * (len(nodes) != 1)}{with_target}; "
            f"more nodes (--nodes), or another target (--target) is right{why}"
        )
