# SPDX-License-Identifier: Apache-2.0
"""Judges that the reply to a request belongs to it, and that its producer gets it.

Source: "Request-Reply" (docs of RocketMQ 4.6 and later; `DefaultMQProducer.request`): a producer waits for the reply to
a message, and a correlation id names that message. A broker acknowledges a reply only when the client of the request
has confirmed it (`ReplyMessageProcessor.pushReplyMessage`), and that client hands it to the waiting request first
(`ClientRemotingProcessor.receiveReplyMessage`). So a reply that was acknowledged within the request's time was in time.
A request without a reply says nothing about its message, which may be stored and delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.takes import Delivery, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.history import Call
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_FAULT: Final = "a fault or a change of master while the request waited"
_ENDED: Final = "the producer's process ended while the request waited"
_UNREAD: Final = "no later send could show what the producer reported"

_REPORT_S: Final = 2.0
"""The longest time from the end of a request's time until its producer reports that: the library looks for such
requests once a second (`RequestFutureHolder.startScheduledTask`)."""


class Replies:
    """`wrong-reply`, `reply-lost`."""

    name = "replies"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `requests`, `answered`; `unanswered`: those whose library gave up; `replies` that brokers
        acknowledged, and those that they `refused`, or may have.
        """
        told, scene = takes(run.history), RunTimeline(run)
        by_id: dict[Any, list[Delivery]] = {}
        for delivery in told.deliveries:
            by_id.setdefault(delivery.id, []).append(delivery)
        wrong: list[Case] = []
        lost: list[Case] = []
        calls = [call for call in run.history.clients.calls if call.invoke.f == "send"]
        got = {call.invoke.value for call in calls if call.completion is not None and "reply" in call.completion.extra}
        news = _News(calls)
        got |= {request for request, (reply, _) in news.late.items() if reply is not None}
        excused: Counter[str] = Counter()
        requests = answered = unanswered = 0
        for call in calls:
            done = call.completion
            if done is None:
                continue
            extra = news.of(call, done.extra)
            wrong += _wrong(call, extra, got)
            if "within_ms" not in extra:
                continue
            requests += 1
            if "reply" in extra:
                answered += 1
                continue
            unanswered += "unanswered" in extra
            case = _lost(call, extra, by_id.get(call.invoke.value, []))
            if case is None:
                continue
            known = "unanswered" in extra
            end = case.end + (0 if known else int(_REPORT_S * SECOND))
            why = _FAULT if _disturbed(scene, case, end) else None if known else news.excuse(call, extra, end)
            if why is None:
                lost.append(case)
            else:
                excused[why] += 1
        found = [
            *anomalies(scene, "wrong-reply", wrong, "{n} requests got the reply to another one, or a second result"),
            *anomalies(
                scene, "reply-lost", lost, "{n} requests got no reply, and a broker had acknowledged it in time"
            ),
        ]
        results = [delivery.replied[1] for delivery in told.deliveries if delivery.replied is not None]
        stats = {
            "requests": requests,
            "answered": answered,
            "unanswered": unanswered,
            "replies": sum(results),
            "refused": len(results) - sum(results),
        }
        excuses = [Excuse("reply-lost", n, why) for why, n in excused.items()]
        unknown = None if answered else "no request was answered"
        reason = f"{many(requests, 'request')}, {answered:,} answered, {unanswered:,} without a reply"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)


class _News:
    """The later reports of requests that had no result (`workloads.consume.sender.Sender.send`).

    late   request -> the message in its reply, or None, and True if the reply has the request's correlation id.
    ended  the requests whose process ended without a result. last: the time (ns) of the last send that could show one.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.late: dict[Any, tuple[Any, bool]] = {}
        self.ended: set[Any] = set()
        self.last = 0
        for call in calls:
            if call.completion is not None:
                self.late |= {request: (reply, own) for request, reply, own in call.completion.extra.get("late", ())}
                self.ended.update(call.completion.extra.get("ended", ()))
                self.last = max(self.last, call.completion.time)

    def of(self, call: Call, extra: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a send, with what came of it later."""
        if call.invoke.value not in self.late or "reply" in extra or "unanswered" in extra:
            return extra
        reply, own = self.late[call.invoke.value]
        return {**extra, "unanswered": "late"} if reply is None else {**extra, "reply": reply, "own": own}

    def excuse(self, call: Call, extra: Mapping[str, Any], due: int) -> str | None:
        """The reason why no result of a request is known that was due at a time (ns); None: its process lived on and
        reported none. A send without `open` is from a run whose sends show no news.
        """
        if call.invoke.value in self.ended:
            return _ENDED
        return _UNREAD if self.last <= due or not extra.get("open") else None


def _wrong(call: Call, extra: Mapping[str, Any], got: set[Any]) -> list[Case]:
    """The replies that a request must not get, and the further results of earlier requests that its completion shows.
    got: the requests that got a reply. A second exception without any reply is no answer.
    """
    end = call.end or call.start
    found = []
    own = call.invoke.value
    if "reply" in extra and (extra["reply"] != own or not extra["own"]):
        text = f"request {own} at {clock(call.start)} got the reply to message {extra['reply']}, "
        text += f"with {'its' if extra['own'] else 'another'} correlation id"
        found.append(Case(call.start, end, [call.invoke.index], text, call.invoke.key))
    for request, reply in extra.get("again", ()):
        if reply is None and request not in got:
            continue
        what = "no reply in time" if reply is None else f"the reply to message {reply}"
        text = f"request {request} had its result, and got another one until {clock(end)}: {what}"
        found.append(Case(call.start, end, [call.invoke.index], text))
    return found


def _lost(call: Call, extra: Mapping[str, Any], deliveries: list[Delivery]) -> Case | None:
    """The case of a request without a reply; None: no broker acknowledged one before its time was over."""
    over = call.start + extra["within_ms"] * 1_000_000
    for delivery in deliveries:
        if delivery.replied is not None and delivery.replied[1] and delivery.replied[0] < over:
            at = delivery.replied[0]
            text = (
                f"request {call.invoke.value} at {clock(call.start)}, whose reply by {delivery.life} was acknowledged "
            )
            text += f"at {clock(at)}, got none until {clock(over)}"
            return Case(call.start, over, [call.invoke.index, delivery.op], text, call.invoke.key)
    return None


def _disturbed(scene: RunTimeline, case: Case, end: int) -> bool:
    return scene.changed_master(group_of(case.key or ""), case.start, end) or bool(scene.in_force(case.start, end))
