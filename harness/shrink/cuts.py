# SPDX-License-Identifier: Apache-2.0
"""Cuts: plans that are a little smaller than a given one, in the order in which they are worth a try.

Strikes first, because each is a cause that a person has to understand; then what a person has to set up: nodes,
clients, settings; then time and load. A cut changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.plan.plan import Plan
from results.strikes import Strike

LEAD_S: Final = 4.0
"""Load before the first strike of a plan that was moved to its begin."""
TAIL_S: Final = 6.0
"""Load after the last heal."""
FEWEST_NODES: Final = 3
FEW_CLIENTS: Final = 3
"""With so many nearly every workload runs; one that needs more refuses the cut."""
SHORT_S: Final = 2.0
"""The shortest strike."""
GAP_S: Final = 1.0
"""The shortest time between a heal and the next strike."""
LOWEST_RATE: Final = 50.0


@dataclass(frozen=True)
class Cut:
    """A smaller plan. name: the change, for the account. kind: the group that it belongs to."""

    name: str
    kind: str
    plan: Plan


def size(plan: Plan) -> tuple[int, int, float]:
    """The size for a reader: strikes, things that are set, and seconds."""
    things = len(plan.options) + len(plan.server.settings) + len(plan.server.options) + len(plan.server.mends)
    return len(plan.strikes), things + plan.concurrency + len(plan.nodes), plan.time_limit_s


def suffixes(plan: Plan) -> Iterator[Cut]:
    """The last 1, 2, 4, ... strikes. An anomaly seldom needs what was healed long before it."""
    count = len(plan.strikes)
    keep = 1
    while keep < count:
        kept = _with(plan, plan.strikes[count - keep :])
        yield Cut(f"the last {keep} of {count} strikes", "strikes", moved(kept))
        keep *= 2


def without_one(plan: Plan) -> Iterator[Cut]:
    """Without one strike, the last one first."""
    for number in reversed(range(len(plan.strikes))):
        left = [*plan.strikes[:number], *plan.strikes[number + 1 :]]
        if left:
            strike = plan.strikes[number]
            yield Cut(f"without strike {number + 1}, {strike.fault}", "strikes", _with(plan, left))


def simpler(plan: Plan) -> Iterator[Cut]:
    """Fewer nodes and clients, and no settings: all that a reader would have to set up. All at once comes first."""
    singly = list(_simpler(plan))
    if len(singly) > 2:
        bare = replace(plan, options={}, concurrency=min(FEW_CLIENTS, plan.concurrency))
        bare = replace(bare, cluster=replace(plan.cluster, nodes=FEWEST_NODES))
        bare = replace(bare, server=replace(plan.server, settings={}))
        bare = _with(bare, [replace(strike, options={}) for strike in plan.strikes])
        yield Cut(f"{FEWEST_NODES} nodes, {FEW_CLIENTS} clients, no options and settings", "all that is set", bare)
    yield from singly


def _simpler(plan: Plan) -> Iterator[Cut]:
    if plan.cluster.nodes is None or plan.cluster.nodes > FEWEST_NODES:
        cluster = replace(plan.cluster, nodes=FEWEST_NODES)
        yield Cut(f"{FEWEST_NODES} nodes", "nodes", replace(plan, cluster=cluster))
    for clients in range(1, min(FEW_CLIENTS + 1, plan.concurrency)):
        yield Cut(f"{clients} client{'s' if clients > 1 else ''}", "clients", replace(plan, concurrency=clients))
    for name in plan.options:
        left = {key: value for key, value in plan.options.items() if key != name}
        yield Cut(f"without the option {name}", "settings", replace(plan, options=left))
    for name in plan.server.settings:
        settings = {key: value for key, value in plan.server.settings.items() if key != name}
        yield Cut(f"without {name}", "settings", replace(plan, server=replace(plan.server, settings=settings)))
    for number, strike in enumerate(plan.strikes):
        for name in strike.options:
            options = {key: value for key, value in strike.options.items() if key != name}
            changed = _at(plan, number, replace(strike, options=options))
            yield Cut(f"strike {number + 1} without {name}", "settings", changed)


def shorter(plan: Plan) -> Iterator[Cut]:
    """Less time and load: from the last heal on, before the first strike, within strikes and between them. All at once
    comes first, then each: to its least, then by half.
    """
    singly = list(_shorter(plan))
    if len(singly) > 2:
        yield Cut("all as short as can be", "seconds", _shortest(plan))
    yield from singly


def _shortest(plan: Plan) -> Plan:
    strikes: list[Strike] = []
    for strike in plan.strikes:
        short = replace(strike, for_s=min(strike.for_s, SHORT_S))
        before = strikes[-1].end_s if strikes else LEAD_S - GAP_S
        if short.at_s is not None and before is not None:
            short = replace(short, at_s=round(min(short.at_s, before + GAP_S), 3))
        strikes.append(short)
    ends = [strike.end_s for strike in strikes]
    least = max((end for end in ends if end is not None), default=plan.time_limit_s) + TAIL_S
    limit = plan.time_limit_s if None in ends else round(min(plan.time_limit_s, least), 1)
    rate = None if plan.rate is None else min(plan.rate, LOWEST_RATE)
    return replace(_with(plan, strikes), time_limit_s=limit, rate=rate)


def _shorter(plan: Plan) -> Iterator[Cut]:
    ends = [strike.end_s for strike in plan.strikes]
    last = max((end for end in ends if end is not None), default=None)
    if last is not None and None not in ends and plan.time_limit_s > last + TAIL_S + 1:
        yield Cut("no load long after the last heal", "seconds", replace(plan, time_limit_s=round(last + TAIL_S, 1)))
    start = moved(plan)
    if start != plan:
        yield Cut("the first strike at once", "seconds", start)
    for number, strike in enumerate(plan.strikes):
        for seconds in dict.fromkeys((SHORT_S, round(strike.for_s / 2, 1))):
            if SHORT_S <= seconds < strike.for_s - 1:
                cut = _at(plan, number, replace(strike, for_s=seconds))
                yield Cut(f"strike {number + 1} for {seconds:g} s", "seconds", cut)
    for number in range(1, len(plan.strikes)):
        gap = _gap(plan.strikes[number - 1], plan.strikes[number])
        if gap is not None and gap > GAP_S + 1:
            closer = _moved_by(plan.strikes[number:], GAP_S - gap)
            moved_ = _with(plan, [*plan.strikes[:number], *closer])
            yield Cut(f"strike {number + 1} {gap - GAP_S:.1f} s earlier", "seconds", moved_)
    if plan.rate is not None and plan.rate > LOWEST_RATE:
        yield Cut(f"{LOWEST_RATE:g} operations a second", "rate", replace(plan, rate=LOWEST_RATE))


def moved(plan: Plan) -> Plan:
    """The plan with its first strike after `LEAD_S`, and so much shorter. Unchanged if its first one has no time."""
    begins = [strike.at_s for strike in plan.strikes]
    first = min((at for at in begins if at is not None), default=None)
    if first is None or first <= LEAD_S + 1 or (plan.strikes[0].at_s is None):
        return plan
    earlier = first - LEAD_S
    return replace(
        plan,
        strikes=tuple(_moved_by(plan.strikes, -earlier)),
        time_limit_s=round(max(plan.time_limit_s - earlier, LEAD_S + TAIL_S), 1),
    )


def amplified(plan: Plan) -> Plan:
    """All strikes twice, the second time behind the first: what shows seldom shows more often."""
    ends = [strike.end_s for strike in plan.strikes if strike.end_s is not None]
    length = max(ends, default=plan.time_limit_s) + 2.0
    again = [replace(strike, seed=strike.seed + 1) for strike in _moved_by(plan.strikes, length)]
    return replace(_with(plan, [*plan.strikes, *again]), time_limit_s=plan.time_limit_s + length)


def _gap(before: Strike, after: Strike) -> float | None:
    if before.end_s is None or after.at_s is None:
        return None
    return after.at_s - before.end_s


def _moved_by(strikes: Sequence[Strike], seconds: float) -> list[Strike]:
    return [
        strike if strike.at_s is None else replace(strike, at_s=round(max(0.0, strike.at_s + seconds), 3))
        for strike in strikes
    ]


def _at(plan: Plan, number: int, strike: Strike) -> Plan:
    return _with(plan, [*plan.strikes[:number], strike, *plan.strikes[number + 1 :]])


def _with(plan: Plan, strikes: Sequence[Strike]) -> Plan:
    return replace(plan, strikes=tuple(replace(strike, id=number) for number, strike in enumerate(strikes, 1)))
