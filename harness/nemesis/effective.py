# SPDX-License-Identifier: Apache-2.0
"""`effective.toml`: the plan of a run with its actual strikes. `harness run --plan` repeats them.

Each `[[strike]]` contains its time (`at`) and the event before it (`after`, `delay`). A replay waits for that event,
because roles change at another time in another run. A strike without an event shortly before it is timed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.nemesis.events import event_of
from harness.plan.plan import Plan
from results.durable import write_text
from results.figures import SECOND
from results.history import History
from results.op import INVOKE, Op
from results.strikes import Strike

FILE: Final = "effective.toml"

NEAR_S: Final = 3.0
"""An event at most so many seconds before a strike is taken as its trigger."""

_WAITED_FOR: Final = ("role-changed", "died", "calm")
"""Kinds of events that another run meets as well, at another time."""


def effective(plan: Plan, history: History) -> Plan:
    """The plan with the strikes that were injected, in their order."""
    struck: list[Strike] = []
    last: tuple[int, str] | None = None
    for op in history:
        if op.process < 0 and op.f == "inject" and op.type == INVOKE:
            struck.append(_struck(op, last, len(struck) + 1, plan))
            last = None
        found = event_of(op) if op.process < 0 else None
        # The first calm comes with the start, sooner or later: what struck after it had no event before it.
        if found is not None and found[0] in _WAITED_FOR and (struck or found[0] != "calm"):
            last = op.time, f"{found[0]}:{found[1]}" if found[1] else found[0]
    return replace(plan, nemeses=(), strikes=tuple(struck))


def _struck(op: Op, last: tuple[int, str] | None, number: int, plan: Plan) -> Strike:
    planned = Strike.from_op(op.value)
    at_s = round(op.time / SECOND, 3)
    known = {strike.id: strike for strike in plan.strikes}.get(planned.id)
    if planned.after is not None:
        return replace(planned, id=number, at_s=at_s, within_s=known.within_s if known else None)
    if last is not None and op.time - last[0] <= NEAR_S * SECOND:
        delay = round((op.time - last[0]) / SECOND, 3)
        return replace(
            planned, id=number, at_s=at_s, after=_general(last[1]), delay_s=delay, within_s=plan.time_limit_s
        )
    return replace(planned, id=number, at_s=at_s)


def _general(event: str) -> str:
    """The event without the node, since another run has the event on another node."""
    kind, _, text = event.partition(":")
    return f"{kind}:{text.split(' ')[0]}" if kind == "role-changed" and text else kind


def write_effective(plan: Plan, history: History, folder: Path) -> None:
    """Writes it beside the run's plan. Raises StoreError."""
    write_text(folder / FILE, effective(plan, history).to_toml(), "the effective plan")


def by_times(plan: Plan) -> Plan:
    """The plan with each strike at its time, whatever happens: `--replay times`."""
    return replace(plan, strikes=tuple(replace(s, after=None, delay_s=0.0, within_s=None) for s in plan.strikes))
