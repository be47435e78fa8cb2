# SPDX-License-Identifier: Apache-2.0
"""Acknowledged messages that, by looks at the replicas, too few hold; or that too few can have confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from checkers.base.cases import Case
from checkers.base.impairment import hears
from checkers.base.timeline import group_of
from checkers.messages.quorum.facts import Facts, node_of
from results.figures import SECOND, clock
from results.op import OK

LOOK_BACK_NS: Final = 3 * SECOND
"""A master uses a list of live brokers that it requests every second, and that name servers correct every second."""


def too_few(facts: Facts) -> Iterator[Case]:
    """Yields looks that found an acknowledged message on certainly too few replicas, or not on a required one."""
    for look in facts.looks:
        assert look.completion is not None
        send = facts.by_id.get(look.completion.value["id"])
        if send is None or send.outcome != OK or send.completion is None or send.end is None:
            continue
        held = facts.held(look)
        nodes, master = list(held), node_of(send)
        lacking = [n for n, has in held.items() if has is False]
        if not lacking:
            continue
        group = group_of(str(send.invoke.key)) or ""
        alive = facts.in_sync(master, group, send.start - LOOK_BACK_NS, send.end)
        need, setting = facts.needs(master, len(nodes), alive, send.start, send.end)
        text = (
            f"message {send.invoke.value}, acknowledged by {master} at {clock(send.end)}, was not in the log of "
            f"{', '.join(lacking)} at {clock(look.end or look.start)}"
        )
        ops = [send.invoke.index, look.invoke.index]
        when = send.start, look.end or look.start
        if len(nodes) - len(lacking) < need:
            text += f"; {need} of {len(nodes)} replicas must have it"
            yield Case(*when, ops, text, details={"master": master})
        elif facts.rule.by_set and setting.all_ack and (owed := facts.in_set(send.start, send.end) & {*lacking}):
            yield Case(
                *when,
                ops,
                f"{text}; {', '.join(sorted(owed))} is in the controllers' SyncStateSet",
                details={"master": master},
            )


def below_quorum(facts: Facts) -> Iterator[tuple[Case, bool]]:
    """Yields acknowledgements that too few replicas can have confirmed; True with one if the minimum was required."""
    for send in facts.sends:
        nodes = facts.nodes(send)
        if send.outcome != OK or send.end is None or not nodes:
            continue
        active = [i for start, end, i in facts.certain if start <= send.start and send.end <= end]
        if not active:
            continue
        master = node_of(send)
        out = [n for n in nodes if n != master and not hears(master, n, active)]
        need, setting = facts.needs(master, len(nodes), 1, send.start, send.end)
        if len(nodes) - len(out) >= need:
            continue
        least = (facts.rule.auto and setting.auto) or (facts.rule.by_set and setting.all_ack)
        text = (
            f"message {send.invoke.value} by {master} at {clock(send.end)}, while {', '.join(out)} could not hear "
            f"it; {need} of {len(nodes)} replicas must have it"
        )
        yield Case(send.start, send.end, [send.invoke.index], text, details={"master": master}), least
