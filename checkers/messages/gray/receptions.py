# SPDX-License-Identifier: Apache-2.0
"""Judges the receptions by members: messages of the other colour (G1, G7), messages that no member received (G2, G3),
order (G4), and repeated receptions (G5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from checkers.base.cases import Case
from checkers.messages.gray.facts import FOREVER, GRAY, Facts, Reception, Send
from checkers.messages.gray.owners import Double
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call
from results.op import OK

CHANCES: Final = 2
"""Rebalances after which a member must act on its colour."""

READ_NS: Final = 5 * SECOND
"""A message that was unread at a switch-off may be received so long after it."""


def other_colour(facts: Facts, expanded: bool) -> Iterator[Case]:
    """Yields messages that a member of the other colour received, after it had time to act on its own colour.
    `expanded`: those in their own queue after an expansion of the topic; else those before it, and retries.
    """
    since = facts.expanded.start if facts.expanded is not None else None
    for reception in facts.receptions:
        send = facts.sends.get(reception.id)
        if send is None:
            continue
        moved = since is not None and reception.end > since and reception.key == send.key
        if moved != expanded:
            continue
        known = facts.colour(reception.session.member, reception.start, reception.end)
        if known is None or known[0] == (send.colour == GRAY):
            continue
        gray, turned = known
        if reception.session.rebalanced(turned, reception.start) >= CHANCES:
            colour = GRAY if gray else "base"
            text = (
                f"{send.colour} message {send.id} of {reception.key} by {reception.session.member}, {colour} since "
                f"{clock(turned)}, at {clock(reception.end)}"
            )
            ops = [send.call.invoke.index, reception.call.invoke.index]
            yield Case(send.call.start, reception.end, ops, text, key=reception.key)


def stranded(facts: Facts) -> Iterator[Case]:
    """Yields acknowledged gray messages that no member received between a switch-off after which no member was gray,
    and the next switch-on.
    """
    for off, until, flag in facts.without_gray():
        if until - off < READ_NS:
            continue
        for send in facts.sends.values():
            if send.colour != GRAY or send.call.start >= until or send.acked > until:
                continue
            first = facts.first.get(send.id)
            if first is None or first.end > until:
                text = (
                    f"message {send.id} of {send.key}, acknowledged at {clock(send.acked)}, was unread until "
                    f"{clock(until)}; no member was gray since {clock(off)}"
                )
                yield Case(off, until, [flag, send.call.invoke.index], text, key=send.key)


def never_received(facts: Facts, there: bool) -> Iterator[Case]:
    """Yields acknowledged messages that no member ever received: those that the drain at the end found (`there`), or
    those that it did not find below the end of their queue: they are lost, or were left out. Gray ones without a gray
    member do not count.
    """
    if not facts.drained:
        return
    no_reader = any(until >= facts.cut for _, until, _ in facts.without_gray())
    locked = {key for key in facts.ends if any(free > facts.cut - READ_NS for _, free in facts.locked(key))}
    for send in facts.sends.values():
        if send.id in facts.first or (no_reader and send.colour == GRAY):
            continue
        found, below = send.id in facts.drained_ids, (send.offset or 0) < facts.ends.get(send.key, 0)
        if found != there or not (found or below) or (there and send.key in locked):
            continue
        text = f"{send.colour} message {send.id} of {send.key}, acknowledged at {clock(send.acked)}"
        yield Case(send.acked, facts.cut, [send.call.invoke.index], text, key=send.key)


def not_again(facts: Facts) -> Iterator[Case]:
    """Yields messages that a member sent back, and that members received from one place only."""
    if not facts.drained:
        return
    no_reader = any(until >= facts.cut for _, until, _ in facts.without_gray())
    places: dict[Any, set[tuple[str, int]]] = {}
    for reception in facts.receptions:
        places.setdefault(reception.id, set()).add((reception.key, reception.offset))
    for message, call in facts.returned.items():
        send = facts.sends.get(message)
        if call.outcome != OK or call.end is None or call.end > facts.cut - READ_NS or send is None:
            continue
        if (no_reader and send.colour == GRAY) or len(places.get(message, ())) > 1:
            continue
        text = f"{send.colour} message {message} of {send.key}, sent back at {clock(call.end)}"
        yield Case(call.start, facts.cut, [send.call.invoke.index, call.invoke.index], text, key=send.key)


def out_of_order(facts: Facts) -> Iterator[Case]:
    """Yields messages that were first received after a later one of their producer, ordering key and queue."""
    series: dict[tuple[str, int, str], list[Send]] = {}
    for send in facts.sends.values():
        series.setdefault((send.producer, send.ordering, send.key), []).append(send)
    for (producer, ordering, key), sends in series.items():
        later: Reception | None = None
        for send in sorted(sends, key=lambda s: s.call.start, reverse=True):
            first = facts.first.get(send.id)
            if first is None:
                continue
            if later is not None and later.end < first.start:
                text = (
                    f"{key}: message {send.id} of {producer} with ordering key {ordering} at {clock(first.end)}, after "
                    f"its message {later.id} at {clock(later.end)}"
                )
                yield Case(later.end, first.end, [later.call.invoke.index, first.call.invoke.index], text, key=key)
            if later is None or first.end < later.end:
                later = first


def received_again(
    facts: Facts, both: Sequence[Double], faults: Sequence[FaultInterval], copied: int
) -> Iterator[Case]:
    """Yields messages that were received again although a commit covered them when the receiver began, or by one of two
    members that `both` held the queue. `copied`: the largest age (ns) of a new master's offsets.
    """
    pairs: dict[tuple[str, frozenset[int]], list[Double]] = {}
    for double in both:
        pairs.setdefault((double.key, frozenset((id(double.one), id(double.other)))), []).append(double)
    for reception in facts.receptions:
        first = facts.first[reception.id]
        if first.call is reception.call or first.key != reception.key:
            continue
        if reception.id in facts.returned and first.offset != reception.offset:
            continue  # a copy
        text = f"{reception.key}: message {reception.id} by {first.session.member} at {clock(first.end)}, and by "
        text += f"{reception.session.member} at {clock(reception.end)}"
        ops = [first.call.invoke.index, reception.call.invoke.index]
        asked = [c for c in reception.session.positions.get(reception.key, ()) if (c.end or 0) <= reception.start]
        began = _began(reception, asked)
        if began is None or began.end is None:
            continue
        if first.session is reception.session and first.start >= began.end:
            yield Case(first.end, reception.end, ops, f"{text}, in one session", key=reception.key)
        elif first.end > began.end:
            two = pairs.get((reception.key, frozenset((id(first.session), id(reception.session)))), ())
            if any(double.start <= first.start and reception.start <= double.end for double in two):
                yield Case(first.end, reception.end, ops, f"{text}, who both read the queue", key=reception.key)
        elif (commit := _covered(facts, reception, began, faults, copied)) is not None:
            ops = [*ops, commit.invoke.index, began.invoke.index]
            done = began.completion.value if began.completion is not None else None
            why = f"{commit.invoke.value} had been committed at {clock(commit.end or 0)}, and it answered {done}"
            yield Case(commit.end or 0, reception.end, ops, f"{text}; {why}", key=reception.key)


def _began(reception: Reception, asked: Sequence[Call]) -> Call | None:
    """The query whose answer was the start of a session's reads of the queue: the first of its latest assignment."""
    starts = [s.may_start for s in reception.session.spans if s.key == reception.key and s.may_start <= reception.start]
    return next((c for c in asked if c.start >= max(starts, default=0)), None)


def _covered(
    facts: Facts, reception: Reception, began: Call, faults: Sequence[FaultInterval], copied: int
) -> Call | None:
    """A commit beyond the message that the broker had to remember when the receiver queried the committed offset."""
    commits = [c for c in facts.commits.get(reception.key, ()) if c.start < (began.end or 0)]
    for commit in reversed(commits):
        if commit.invoke.value <= reception.offset:
            return None  # a smaller one came later, or may have: consumers overlap for a moment at a take-over
        if commit.outcome != OK or commit.end is None or commit.end > began.start:
            continue
        disturbed = any(i.covers(commit.end - copied, min(commit.end + copied, began.end or 0)) for i in faults)
        moved = _node(commit) != _node(began) and not any(i.covers(commit.end, began.end) for i in faults)
        # Consumers overlap for a moment at a take-over: a smaller one that was under way may have come last.
        late = any(c.invoke.value <= reception.offset and (c.end or FOREVER) > commit.start for c in commits)
        if not disturbed and not moved and not late:
            return commit
    return None


def _node(call: Call) -> object:
    return call.completion.extra.get("node") if call.completion is not None else None
