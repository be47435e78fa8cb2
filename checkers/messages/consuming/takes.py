# SPDX-License-Identifier: Apache-2.0
"""The reports of the members of a group: deliveries, results, queues (`checkers.messages.reports`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from checkers.messages.reports import Life, reports
from results.figures import SECOND
from results.history import History
from results.op import OK

RETRY: Final = "%RETRY%"
"""The prefix of the topic of messages that come again."""

_ANSWER_S: Final = 5.0
"""A request reaches its broker within this time, or never."""

UNSURE: Final = "an acknowledgement was sent, and its outcome is not known"
"""The reason why nobody knows if a message comes again."""


@dataclass
class Delivery:
    """A message at a listener. Times in ns.

    end    the time at which the listener returned, or the process was ended; None: not until the end of the history.
    done   True: success, False: failure, None: it did not return.
    op     the index of the op that shows it.
    hides  with pops: the times, each from and until, for which brokers must hide it from all others.
    over   the latest time at which a broker may hide it; None: unknown.
    first_over   the same by its first duration alone.
    acking   the time at which an acknowledgement was sent; None: none was.
    replied  of a request: the time at which its member reported its reply, and True if a broker acknowledged that.
    acked_again   the result of a second acknowledgement; None: none was sent.
    refused   the time of the broker's refusal of the acknowledgement, and its code; None: nobody saw one.
    """

    life: Life
    start: int
    key: str
    offset: int
    id: Any
    attempt: int
    tag: str | None
    op: int
    end: int | None = None
    done: bool | None = None
    hides: list[tuple[int, int]] = field(default_factory=list)
    over: int | None = None
    first_over: int | None = None
    acking: int | None = None
    acked_again: bool | None = None
    refused: tuple[int, int] | None = None
    replied: tuple[int, bool] | None = None

    @property
    def unsure(self) -> bool:
        """True if an acknowledgement was sent, and its result is unknown."""
        return self.acking is not None and self.done is None

    @property
    def worked(self) -> int | None:
        """The time (ns) at which the work on it ended; an acknowledgement comes after it."""
        return self.end if self.acking is None else self.acking

    @property
    def again(self) -> bool:
        """True if it is from the topic of messages that come again."""
        return self.key.startswith(RETRY)


class Hold(NamedTuple):
    """A time (ns) in which a life had a queue, by its own reports."""

    life: Life
    since: int
    until: int


@dataclass
class Takes:
    """All of it, in order of time.

    queues  life -> (time, its queues from then on). ends: life -> the time of its end.
    started life -> (the time from which its consumer runs, the id by which brokers know it).
    quiet   the time (ns) from the last delivery to the last op of a member that was there.
    problems   exceptions of members, and processes that ended by themselves: (time, life, text).
    left    messages that a member received, and left alone.
    commits life -> (time, queue -> offset) of its commits by hand.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    queues: dict[Life, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    ends: dict[Life, int] = field(default_factory=dict)
    started: dict[Life, tuple[int, str]] = field(default_factory=dict)
    problems: list[tuple[int, Life, str]] = field(default_factory=list)
    left: list[Delivery] = field(default_factory=list)
    commits: dict[Life, list[tuple[int, Mapping[str, int]]]] = field(default_factory=dict)
    until: int = 0

    @property
    def quiet(self) -> int:
        return self.until - max((delivery.start for delivery in self.deliveries), default=0)

    def begun(self, key: str) -> list[int]:
        """The times (ns) at which a life reported a queue that it had not had before."""
        return [hold.since for hold in self.holds.get(key, ())]

    @cached_property
    def holds(self) -> Mapping[str, Sequence[Hold]]:
        """Queue -> the times in which a life had it, in order of their begins."""
        found: dict[str, list[Hold]] = {}
        for life, changes in self.queues.items():
            end = self.ends.get(life, self.until)
            since: dict[str, int] = {}
            for at, queues in [*changes, (end, frozenset[str]())]:
                for key in [key for key in since if key not in queues]:
                    found.setdefault(key, []).append(Hold(life, since.pop(key), min(at, end)))
                for key in queues - set(since):
                    since[key] = at
        return {key: sorted(of, key=lambda hold: hold.since) for key, of in found.items()}

    def hold(self, life: Life, key: str, at: int, near: int = 0) -> Hold | None:
        """The last time in which a life had a queue that began until a time (ns), or less than `near` (ns) after it;
        None: it never had it.
        """
        until = [hold for hold in self.holds.get(key, ()) if hold.life == life and hold.since <= at + near]
        return until[-1] if until else None

    def has(self, life: Life, key: str, at: int, near: int) -> bool:
        """True if a life had a queue at a time (ns), or less than `near` (ns) before or after it."""
        return any(h.life == life and h.since - near <= at <= h.until + near for h in self.holds.get(key, ()))

    def committed(self, life: Life, key: str, offset: int) -> int | None:
        """The time (ns) at which a life had committed an offset of a queue by hand, or a higher one; None: never."""
        return next((at for at, offsets in self.commits.get(life, ()) if offsets.get(key, -1) >= offset), None)

    def moved(self, life: Life, key: str, start: int, end: int) -> bool:
        """True if a life's queues show that it did not keep a queue all the time between two times (ns)."""
        held = [(at, key in queues) for at, queues in self.queues.get(life, ())]
        before = [has for at, has in held if at <= start][-1:]
        return not all(before or [False]) or not all(has for at, has in held if start < at <= end)


def may_be_acknowledged(deliveries: Sequence[Delivery]) -> bool:
    """True if an acknowledgement of unknown outcome may have consumed a message, by its deliveries in order of time.
    One that was sent well before the last delivery did not: brokers delivered the message after it, and a delivery is
    acknowledged by its own handle.
    """
    last = deliveries[-1]
    return any(
        each.unsure and each.acking is not None and (each is last or each.acking > last.start - int(_ANSWER_S * SECOND))
        for each in deliveries
    )


def takes(history: History, popped: bool = False) -> Takes:
    """The events of all members.

    popped: members pop. Then the queue of a message is the one to which it was sent, and its offset that of its
    acknowledgement, if it has one: the gRPC client reports the queue that it asked (`MessageViewImpl.getMessageQueue`),
    and a proxy pops from any queue.
    """
    told = reports(history)
    found = Takes(ends=told.ends, until=told.until)
    open_: dict[tuple[Life, int], Delivery] = {}
    every: dict[tuple[Life, int], Delivery] = {}
    for at, life, op, kind, rest in told.all:
        match kind:
            case "delivered" | "left":
                n, key, offset, identity, attempt, tag, *hidden = rest
                delivery = Delivery(life, at, key, offset, identity, attempt, tag, op)
                _hide(delivery, at, hidden[0] if hidden else None)
                if kind == "left":
                    found.left.append(delivery)
                else:
                    open_[life, n] = every[life, n] = delivery
                    found.deliveries.append(delivery)
            case "done" if (life, rest[0]) in open_:
                delivery = open_.pop((life, rest[0]))
                delivery.end, delivery.done = at, bool(rest[1])
            case "renewed" if (life, rest[0]) in every:
                _renew(every[life, rest[0]], at, rest[2], granted=bool(rest[1]))
            case "acking" if (life, rest[0]) in every:
                every[life, rest[0]].acking = at
            case "ack-refused" if (life, rest[0]) in every:
                every[life, rest[0]].refused = at, rest[1]
            case "acked-again" if (life, rest[0]) in every:
                every[life, rest[0]].acked_again = bool(rest[1])
            case "replied" if (life, rest[0]) in every:
                every[life, rest[0]].replied = at, bool(rest[1])
            case "started":
                found.started.setdefault(life, (at, str(rest[0])))
            case "queues":
                found.queues.setdefault(life, []).append((at, frozenset(rest[0])))
            case "committed":
                found.commits.setdefault(life, []).append((at, rest[0]))
            case "failed" | "ended":
                found.problems.append((at, life, str(rest[0])))
    for (life, _), delivery in open_.items():
        delivery.end = found.ends.get(life)
    if popped:
        _put_in_place([*found.deliveries, *found.left], history)
    return found


def _put_in_place(deliveries: list[Delivery], history: History) -> None:
    places: dict[Any, tuple[str, int | None]] = {}
    for call in history.clients.calls:
        done, key = call.completion, call.invoke.key
        if call.invoke.f == "send" and key is not None:
            places[call.invoke.value] = key, done.value[0] if done is not None and done.type == OK else None
    for delivery in deliveries:
        if delivery.id in places and not delivery.again:
            delivery.key, offset = places[delivery.id]
            delivery.offset = delivery.offset if offset is None else offset


def _hide(delivery: Delivery, at: int, hidden_ms: int | None) -> None:
    """Notes the time (ms) from now on for which brokers hide a message."""
    if hidden_ms is not None:
        delivery.first_over = delivery.over = at + hidden_ms * 1_000_000
        delivery.hides.append((at, delivery.over))


def _renew(delivery: Delivery, at: int, hidden_ms: int, *, granted: bool) -> None:
    """Notes another time (ms) from now on; not granted: nobody knows which of both counts."""
    until = at + hidden_ms * 1_000_000
    if granted:
        delivery.hides = [(since, min(end, at)) for since, end in delivery.hides] + [(at, until)]
        delivery.over = until
    else:
        delivery.hides = [(since, min(end, until)) for since, end in delivery.hides]
        delivery.over = max(delivery.over or 0, until)


def dead_letters(history: History) -> Mapping[Any, list[int]] | None:
    """Id of a message -> the indices of the ops that show it as a dead letter; None: not all of them were read."""
    found: dict[Any, list[int]] = {}
    calls = [call for call in history.clients.calls if call.invoke.f == "dead-letters"]
    for call in calls:
        done = call.completion
        if done is None or done.type != OK or not done.extra.get("done"):
            return None
        for _, identity in done.value or ():
            found.setdefault(identity, []).append(done.index)
    return found if calls else None


def subscribed(tag: str | None, wanted: frozenset[str] | None) -> bool:
    """True if a message with this tag is for a group that wants some tags; None: it wants all."""
    return wanted is None or tag in wanted


def properties_of(history: History) -> Mapping[Any, Mapping[str, str]]:
    """Id of a message -> the properties with which it was sent."""
    return {
        op.value: op.extra.get("properties") or {}
        for op in (call.invoke for call in history.clients.calls)
        if op.f == "send"
    }
