# SPDX-License-Identifier: Apache-2.0
"""The times in which brokers owed a question about an open transaction, or a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import Duty, unserved
from checkers.messages.transactions.facts import Facts, Transaction
from results.history import Call
from results.op import OK
from results.record import RunRecord

QUESTIONS: Final = 10
"""The number of questions about one half message that are judged if nobody reads those that were given up: brokers give
up after 15 (`transactionCheckMax`).
"""


class QuestionDuty(Duty):
    """The times in which the brokers owed a question, or a delivery. questions: the number of questions about one half
    message that are judged.
    """

    def __init__(
        self, run: RunRecord, scene: RunTimeline, facts: Facts, bound: int, questions: int = QUESTIONS
    ) -> None:
        everyone = facts.all
        super().__init__(run, scene, everyone, bound)
        self.questions = questions
        self.stand_in = run.deployment.traits.stands_in
        of: dict[str | None, list[Call]] = {}
        for t in everyone:
            of.setdefault(group_of(t.queue), []).append(t.send)
        # Java producers that got no answer do not know which group would have given it.
        nowhere = of.get(None, [])
        self._refused = {
            group: self._refusals(halves if group is None else [*halves, *nowhere]) for group, halves in of.items()
        }
        self._last_ack = {
            group: max((half.end or 0 for half in halves if half.outcome == OK), default=0)
            for group, halves in of.items()
        }
        self._there = None if facts.reports is None else facts.reports.there()
        """The times in which a Java producer ran; None: the harness was the producer."""
        checks = [c for c in run.history.clients.calls if c.invoke.f == "check" and c.end is not None]
        heard_until = max((c.end or 0 for c in checks if c.outcome == OK), default=0)
        self.deaf = sorted(c.end or 0 for c in checks if c.completion is not None and c.completion.extra.get("deaf"))
        """The times (ns) at which no proxy had a stream to the client, so that it could not pass a question on."""
        self.proxied = any(end.one_way for t in everyone for end in t.ends) and facts.reports is None
        self.heard_until = heard_until if facts.reports is None else facts.reports.until
        """The time (ns) of the last question that a client received, or could have."""

    def until(self, t: Transaction, interval: int) -> int:
        """The time (ns) until which brokers ask about a transaction. They give up after `transactionCheckMax` rounds,
        and count those in which no producer was there, and those whose question went to a proxy that was struck.
        """
        until = min([self.heard_until, *(given_up.at for given_up in t.given_up)])
        if self._there is None and not self.proxied:
            return until
        return min(until, (t.send.end or t.send.start) + t.immunity + self.questions * interval)

    def _refusals(self, halves: Sequence[Call]) -> list[int]:
        """The times when the group's master served no send, although no fault impaired it or no slave replaces it."""
        times, _ = unserved(halves)
        acks = sorted((c for c in halves if c.outcome == OK), key=lambda c: c.end or 0)
        found, at, master = [], 0, ""
        for time in times:
            while at < len(acks) and (acks[at].end or 0) <= time:
                master, at = node_of(acks[at]), at + 1
            if not self.stand_in or master not in self.impaired(time):
                found.append(time)
        return found

    def longest(self, start: int, end: int, group: str | None) -> tuple[int, int]:
        """The longest time between two moments in which a question was owed without a break."""
        refused = self._refused.get(group, [])
        if not self.served:
            end = min(end, self.unserved[-1])  # no broker serves after this
        elif refused and refused[-1] > self._last_ack.get(group, 0):
            end = min(end, refused[-1])
        ends = [t for span in self._there or () for t in span]
        breaks = (t for times in (self.edges, self.unserved, self.deaf, refused, ends) for t in times)
        points = sorted({start, end, *(t for t in breaks if start < t < end)})
        spans = [(a, b) for a, b in pairwise(points) if b <= end and self._owes(group, (a + b) // 2)]
        return max(spans, key=lambda span: span[1] - span[0], default=(start, start))

    def _owes(self, group: str | None, time: int) -> bool:
        """True if a node of the group is well, and somebody is there to be asked, at a time (ns)."""
        somebody = self._there is None or any(start <= time <= end for start, end in self._there)
        return somebody and not self.all_impaired(group, time)


def node_of(call: Call) -> str:
    """The node that answered, or the proxy that did so in its place."""
    done = call.completion.extra if call.completion is not None else {}
    return str(done.get("node") or (f"the proxy of {done['proxy']}" if "proxy" in done else "nobody"))
