# SPDX-License-Identifier: Apache-2.0
"""Episodes: rows of the covering array as strikes, and some of them as the plan of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from harness.hunt.array import Axes, Row
from harness.parts.named import named_faults
from harness.plan.plan import Plan
from infra.options import seconds
from results.reading import read_toml
from results.strikes import Strike

DATA: Final = Path(__file__).with_name("axes.toml")
NONE: Final = "none"

LEAD_S: Final = 4.0
"""Load before the first strike."""
TAIL_S: Final = 6.0
"""Load after the last heal."""
LOAD_S: Final = 60.0
"""The longest load of a run, as it is estimated: with more of it, fewer runs would pay for their start and end."""
MOST: Final = 4
"""Episodes of a run, at most."""
WITHIN_S: Final[Mapping[str, float]] = {"healed": 25.0, "calm": 20.0}
"""The longest wait for an event of a kind; for others 12 s."""
_EVENT_S: Final = 4.0
"""The usual wait for an event, for the estimate."""


def read_axes() -> dict[str, dict[str, float]]:
    """The axes, with all faults."""
    found: Mapping[str, Mapping[str, float]] = read_toml(DATA)
    return {axis: dict(values) for axis, values in found.items()}


def possible(axes: Axes, may: Collection[str]) -> dict[str, dict[str, float]]:
    """The axes with those faults that a cluster may have."""
    kept = {NONE, *may}
    return {
        axis: {v: w for v, w in values.items() if axis not in ("first", "second") or v in kept}
        for axis, values in axes.items()
    }


def idle(row: Row) -> set[str]:
    """The axes that mean nothing in a row."""
    return {"when", "second_for"} if row.get("second") == NONE else set()


def axes_run(row: Row, ids: Sequence[int], struck: Collection[int], healed: Collection[int]) -> set[str]:
    """The axes that came about in the episode in which a load ended early: a duration only if it was over, and the gap
    behind the episode never.
    """
    found = set()
    if ids[0] in struck:
        found |= {"first"} | ({"first_for"} if ids[0] in healed else set())
    if row["second"] == NONE:
        found |= {"second"} if ids[0] in struck and ids[0] in healed else set()
    elif ids[-1] in struck:
        found |= {"second", "when"} | ({"second_for"} if ids[-1] in healed else set())
    return found


def length_s(row: Row) -> float:
    """The usual length of an episode."""
    first = seconds(row["first_for"], "for")
    if row["second"] == NONE:
        return first + _EVENT_S
    return first + _EVENT_S + seconds(row["second_for"], "for") + _EVENT_S


def of_rows(rows: Sequence[Row]) -> tuple[Plan, list[set[int]]]:
    """The plan of these episodes, one after the other, and the ids of the strikes of each."""
    strikes: list[Strike] = []
    ids: list[set[int]] = []
    for number, row in enumerate(rows):
        first = _strike(len(strikes) + 1, row["first"], row["first_for"])
        own = [replace(first, at_s=LEAD_S) if not strikes else _waits(first, rows[number - 1]["gap"], strikes[-1].id)]
        if row["second"] != NONE:
            second = _strike(first.id + 1, row["second"], row["second_for"])
            own.append(_waits(second, row["when"], first.id))
        strikes += own
        ids.append({strike.id for strike in own})
    limit = LEAD_S + sum(map(length_s, rows)) + TAIL_S
    return Plan(nemeses=(), strikes=tuple(strikes), time_limit_s=round(limit, 1)), ids


def _strike(number: int, fault: str, length: str) -> Strike:
    (named,) = named_faults(fault)
    return Strike(number, named.fault, named.target or "", seconds(length, "for"), options=named.options)


def _waits(strike: Strike, when: str, before: int) -> Strike:
    """The strike at an event, `KIND[:TEXT] [DELAY]`; a heal or an effect is that of the strike before it."""
    event, _, delay = when.rpartition(" ")
    if not event or not delay[:1].isdigit():
        event, delay = when, "0s"
    within = WITHIN_S.get(event, 12.0)
    if event in ("injected", "healed"):
        event = f"{event}:{before} "
    return replace(strike, at_s=None, after=event, delay_s=seconds(delay, "the wait"), within_s=within)


def uniform(axes: Axes, rng: Random) -> Plan:
    """The control: as many strikes as some episodes have, drawn uniformly, at times drawn uniformly."""
    faults = sorted({fault for axis in ("first", "second") for fault in axes[axis]} - {NONE})
    lengths = sorted({length for axis in ("first_for", "second_for") for length in axes[axis]})
    times = sorted(round(rng.uniform(LEAD_S, LOAD_S - TAIL_S - 2), 1) for _ in range(rng.randint(3, 5)))
    strikes = [
        replace(_strike(number, rng.choice(faults), rng.choice(lengths)), at_s=at) for number, at in enumerate(times, 1)
    ]
    return Plan(nemeses=(), strikes=tuple(strikes), time_limit_s=LOAD_S)


def mutated(plans: Sequence[Plan], axes: Axes, rng: Random) -> Plan:
    """A change of a plan that found something: a strike at another event, longer or shorter, another fault in its
    place, one more behind it; or two plans, one behind the other.
    """
    strikes = list(rng.choice(plans).strikes[-MOST:])
    at = rng.randrange(len(strikes))
    strike = strikes[at]
    match rng.choice(("event", "length", "fault", "again", "splice")):
        case "event" if at:
            when = rng.choice(sorted(axes["when"]))
            strikes[at] = _waits(strike, when, at)
        case "length":
            strikes[at] = replace(strike, for_s=seconds(rng.choice(sorted(axes["first_for"])), "for"))
        case "fault":
            other = _strike(0, rng.choice(sorted(set(axes["first"]) - {NONE})), "2s")
            strikes[at] = replace(strike, fault=other.fault, target=other.target, options=other.options)
        case "splice":
            strikes += rng.choice(plans).strikes[-2:]
        case _:
            strikes.append(strike)
    made = [replace(strikes[0], id=1, at_s=LEAD_S, after=None, delay_s=0.0, within_s=None)]
    for number, one in enumerate(strikes[1:], 2):
        ready = replace(one, id=number, at_s=None, within_s=one.within_s or LOAD_S)
        made.append(ready if one.after else _waits(ready, rng.choice(sorted(axes["gap"])), number - 1))
    return Plan(nemeses=(), strikes=tuple(made), time_limit_s=LOAD_S)
