# SPDX-License-Identifier: Apache-2.0
"""The checker of the `log` workload: all anomalies of messages in queues, each with its name.

docs/anomalies.md explains each name; `outcomes` and `order` contain the rules. This module converts the cases to
sentences. They name the acknowledging broker, the time, the active faults, the masters, and the message now at that
offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.base.legality import Permit, conclude, permission
from checkers.messages.log.columns import CONSUME, INFO, NONE, OK, Bools, Ints
from checkers.messages.log.groups import AnomalyText, Case, times
from checkers.messages.log.order import Gap, OffsetIndex, Skip, backward_reads, holes, inversions, skips
from checkers.messages.log.outcomes import MessageOutcomes, study
from checkers.messages.log.positions import Step, missteps
from checkers.messages.log.teller import AnomalyWriter
from checkers.messages.ops import of_messages
from checkers.messages.resets import resets_of
from results.figures import many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse, merged

NAMES = (
    "lost", "aborted-read", "never-sent", "duplicated", "inconsistent-offsets", "dirty-read", "hole", "reordered",
    "realtime-inversion", "read-before-send", "nonmonotonic-poll", "poll-skip", "position-regression", "position-jump",
)  # fmt: skip
"""The gravest first."""


class Findings(NamedTuple):
    """The results for a part of a history. Its `stats` add up, and so do its excuses of one rule and reason."""

    anomalies: Sequence[Anomaly]
    stats: Mapping[str, int]
    excuses: Sequence[Excuse] = ()


class LogAnomalies:
    """Messages lost, duplicated, out of nowhere, in the wrong place, in the wrong order; readers misled.

    Works on `send`, `poll`, `replica-read`, `consume` and `pop` ops (docs/histories.md). Anomalies that the
    configuration permits are shown with their count (`checkers.base.legality`). `unknown` if nothing was acknowledged,
    if nothing was read at all, or if final readings (`replica-read`) do not decide an acknowledged message. A reader's
    sighting does not prove that it was kept to the end, only that it was there before it was deleted for its age.
    """

    name = "log"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `sends`, `acked`, `unknown_outcome`, and the number of those that `appeared`; `queues`,
        `messages_seen`; `undecided`: acknowledged messages of which the run does not prove that they are kept.
        """
        return self.conclude(run, [self.examine(run)])

    def examine(self, run: RunRecord) -> Findings:
        """The findings in a history, or in a part of one: some queues with all that any op shows of their messages."""
        outcomes = study(run)
        found = outcomes.facts
        stats = {
            "sends": len(found.sends.id),
            "acked": int(np.count_nonzero(found.sends.outcome == OK)),
            "unknown_outcome": int(np.count_nonzero(found.sends.outcome == INFO)),
            "appeared": outcomes.appeared,
            "queues": len(found.queues),
            "messages_seen": len(np.unique(found.places.id)),
            "sightings": len(found.sightings.id),
            "undecided": outcomes.undecided,
        }
        judge = _Judge(run, outcomes)
        moved = len(judge.by_reset)
        excuses = [*_excuses(outcomes), *([Excuse("moved-by-reset", moved, _MOVED)] if moved else [])]
        return Findings(judge.anomalies(), stats, excuses)

    def conclude(self, run: RunRecord, parts: Sequence[Findings]) -> CheckResult:
        """The result for the run that these parts make up. Of `run`, only the permissions are read."""
        stats: Counter[str] = Counter()
        for part in parts:
            stats.update(part.stats)
        acked, sends, sightings, undecided = (stats[name] for name in ("acked", "sends", "sightings", "undecided"))
        unknown = None
        if not acked:
            unknown = "no message was sent" if not sends else "no message was acknowledged"
        elif not sightings:
            unknown = f"{acked:,} messages were acknowledged, and none was ever read"
        elif undecided:
            unknown = f"the run does not show whether {undecided:,} acknowledged messages were kept"
        reason = f"{acked:,} acknowledged messages in {stats['queues']} queues"
        # (Those of one part are in this order already.)
        anomalies = sorted((a for part in parts for a in part.anomalies), key=lambda a: NAMES.index(a.name))
        result = conclude(self.name, run, anomalies, dict(stats), reason, unknown)
        return replace(result, excuses=merged(e for part in parts for e in part.excuses))


def _excuses(outcomes: MessageOutcomes) -> Iterator[Excuse]:
    """The acknowledged messages that were left out, by rule."""
    facts = outcomes.facts
    late = Counter[str]()
    for row in outcomes.expired:
        nodes = [facts.node(r.node) for r in outcomes.readings.of(int(facts.sends.queue[row])) if r.floor > 0]
        whys = (outcomes.expiry.why(node) for node in nodes) if outcomes.expiry is not None else ()
        late[next((why for why in whys if why is not None), "the settings of the brokers are not known")] += 1
    for why, used in late.items():
        yield Excuse("expired", used, why)
    if outcomes.undecided:
        yield Excuse("undecided", outcomes.undecided, "no complete final read covers their offset")


_STRETCHES: Final = 100
_MOVED: Final = "an administrator reset the group's offset there"


class _Judge(AnomalyWriter):
    def anomalies(self) -> list[Anomaly]:
        """All of them, the gravest names first."""
        return [
            *self.lost(),
            *self.aborted_read(),
            *self.unsent(),
            *self.duplicated(),
            *self.inconsistent(),
            *self.dirty(),
            *self.holes(),
            *self.disorder(),
            *self.read_before_send(),
            *self.backward_reads(),
            *self.skipped(),
            *self.regressions(),
            *self.jumps(),
        ]

    def lost(self) -> list[Anomaly]:
        rows = self.outcomes.lost

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            rivals = sum(bool(len(self.final_at(c.queue, c.offset))) for c in group)
            proof = "is on no replica at the end" if self.readings.of(first.queue) else "was never returned to a reader"
            instead = self.instead(first)
            taken = f" There are other messages at {rivals} of these offsets." if len(group) > 1 and rivals else ""
            return (
                f"{_many(group, 'acknowledged message')} lost: {self.facts.node(first.node)} acknowledged "
                f"{_them(group)} {times(group)} ({where}). Message {self.name_of(first)}, acknowledged at offset "
                f"{first.offset}, {proof}; {instead}.{taken}",
                {
                    "replicas": self.replicas(first.queue),
                    "offsets_taken_by_others": rivals,
                    "offsets": self._offsets(group),
                },
            )

        permit = permission(self.run, "lost")
        return [
            _anomaly("lost", t, legal)
            for t, legal in self._by_permission(permit, rows, self.outcomes.may_lose[rows], self.send_case, say)
        ]

    def _offsets(self, group: Sequence[Case]) -> dict[str, list[list[int]]]:
        """Queue -> its offsets among the cases, as `[first, last]` of each stretch; at most `_STRETCHES` of a queue."""
        places: dict[str, list[list[int]]] = {}
        for queue, offset in sorted({(int(case.queue), int(case.offset)) for case in group}):
            stretches = places.setdefault(self.facts.queues[queue], [])
            if stretches and stretches[-1][1] == offset - 1:
                stretches[-1][1] = offset
            elif len(stretches) < _STRETCHES:
                stretches.append([offset, offset])
        return places

    def _by_permission(
        self,
        permit: Permit | None,
        rows: Ints,
        allowed: Bools,
        case: Callable[[int], Case],
        say: Callable[[Sequence[Case], str], tuple[str, dict[str, Any]]],
    ) -> Iterator[tuple[AnomalyText, str | None]]:
        """The texts of the cases that a permission does not cover (None), then of those that it does (the reason)."""
        yield from ((text, None) for text in self.cases(case(int(row)) for row in rows[~allowed]).describe(say))
        for text in self.cases(case(int(row)) for row in rows[allowed]).describe(say) if permit is not None else ():
            if permit is not None and permit.windows is not None:
                near = permit.nearest_s(text.times)
                text.details.update(bound_s=permit.within_s, nearest_s=None if near is None else round(near, 3))
            yield text, None if permit is None else permit.why

    def aborted_read(self) -> list[Anomaly]:
        cases = self.cases(self.place_case(int(row)) for row in self.outcomes.aborted_read)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            send = self.send_op(group[0].id)
            return (
                f"{_many(group, 'message')} that certainly had not been sent can be read ({where}): the "
                f"send of message {self.name_of(group[0])} failed ({(send and send.error) or 'without an error'})",
                {},
            )

        return [_anomaly("aborted-read", t) for t in cases.describe(say)]

    def unsent(self) -> list[Anomaly]:
        cases = self.cases(self.place_case(int(row)) for row in self.outcomes.unsent)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return f"{_many(group, 'message')} that no client sent ({where}), the first: {self.name_of(group[0])}", {}

        return [_anomaly("never-sent", t) for t in cases.describe(say)]

    def duplicated(self) -> list[Anomaly]:
        cases = self.cases(self.spread_case(rows) for rows in self.outcomes.duplicated)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'message')} stored twice ({where}), each sent once: message {self.name_of(group[0])} "
                f"is at {self.places_of(group[0].id)}",
                {},
            )

        return [_anomaly("duplicated", t) for t in cases.describe(say)]

    def inconsistent(self) -> list[Anomaly]:
        outcomes, sends = self.outcomes, self.facts.sends
        moved = self.cases(self.spread_case(rows, send) for send, rows in outcomes.moved)
        rivals = self.cases(self.send_case(later, also=earlier) for earlier, later in outcomes.rivals)
        clashes = self.cases(self.place_case(b, also=a) for a, b in outcomes.clashes)

        def say_moved(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            row = int(outcomes.send_of(np.array([first.id]))[0])
            answered = "was acknowledged" if sends.outcome[row] == OK else "of unknown outcome, was put"
            acked = (
                f"{answered} at offset {sends.offset[row]} of {self.facts.queues[sends.queue[row]]}"
                if sends.offset[row] != NONE
                else "was sent once"
            )
            return (
                f"{_many(group, 'message')} not at the offset that the broker returned ({where}): message "
                f"{self.name_of(first)} {acked}, and was read at {self.places_of(first.id)}",
                {},
            )

        def say_rivals(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            others = [int(e) for e, later in outcomes.rivals if sends.id[later] == first.id]
            other = self.acked(others[0]) if others else "another one"
            return (
                f"{_many(group, 'offset')} assigned twice ({where}): offset {first.offset} to message "
                f"{self.name_of(first)}, acknowledged by {self.facts.node(first.node)}, and to {other}",
                {},
            )

        def say_clash(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'offset')} at which readers saw different messages ({where}): at {group[0].offset} "
                f"messages {' and '.join(self.names_at(group[0].queue, group[0].offset))}",
                {},
            )

        return [
            *(_anomaly("inconsistent-offsets", t) for t in moved.describe(say_moved)),
            *(_anomaly("inconsistent-offsets", t) for t in rivals.describe(say_rivals)),
            *(_anomaly("inconsistent-offsets", t) for t in clashes.describe(say_clash)),
        ]

    def dirty(self) -> list[Anomaly]:
        rows = self.outcomes.dirty

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            return (
                f"{_many(group, 'message')} returned to readers by {self.facts.node(first.node)}, never acknowledged "
                f"to a producer, and on no replica at the end ({where}): message {self.name_of(first)} was "
                f"read at offset {first.offset}; {self.instead(first)}",
                {"replicas": self.replicas(first.queue)},
            )

        permit = permission(self.run, "dirty-read")
        return [
            _anomaly("dirty-read", t, legal)
            for t, legal in self._by_permission(permit, rows, self.outcomes.may_be_dirty[rows], self.place_case, say)
        ]

    def holes(self) -> list[Anomaly]:
        reads = self.facts.reads
        found = [*holes(self.facts), *self.skips[1]]
        gaps = {(int(reads.queue[g.read]), g.begin, g.end, int(reads.node[g.read])): g for g in found}
        ends = {(queue, begin, node): end for queue, begin, end, node in gaps}
        cases = self.cases(self.gap_case(gap) for gap in gaps.values())

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            end = ends[first.queue, first.offset, first.node]
            held = self.names_at(first.queue, first.offset)
            elsewhere = (
                f"; other readers got message {' and '.join(held)} there"
                if held
                else "; no reader ever got a message there"
            )
            missing = sum(ends[c.queue, c.offset, c.node] - c.offset for c in group)
            return (
                f"{self.facts.node(first.node)} returned holes in queues ({where}): no message at "
                f"{_span(first.offset, end)}, and messages after it{elsewhere}. Offsets are dense, and a hole is never "
                "filled",
                {"offsets_missing": missing},
            )

        return [_anomaly("hole", t) for t in cases.describe(say)]

    def disorder(self) -> list[Anomaly]:
        found = list(inversions(self.facts, self.outcomes))
        partner = {int(self.facts.sends.id[i.later]): i.earlier for i in found}

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first, earlier = group[0], partner[group[0].id]
            return (
                f"{_many(group, 'message')} with a lower offset than one acknowledged before their send ({where}): "
                f"message {self.name_of(first)} is at {first.offset}, {self.acked(earlier)}, is at "
                f"{self.final_offsets[earlier]}",
                {},
            )

        own = self.cases(self.send_case(i.later, also=i.earlier, stand=True) for i in found if i.one_sender)
        others = self.cases(self.send_case(i.later, also=i.earlier, stand=True) for i in found if not i.one_sender)
        return [
            *(_anomaly("reordered", t) for t in own.describe(say)),
            *(_anomaly("realtime-inversion", t) for t in others.describe(say)),
        ]

    def read_before_send(self) -> list[Anomaly]:
        cases = self.cases(self.place_case(int(row)) for row in self.outcomes.read_before_send)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'message')} read before it was sent ({where}): message {self.name_of(group[0])} at "
                f"offset {group[0].offset}",
                {},
            )

        return [_anomaly("read-before-send", t) for t in cases.describe(say)]

    def backward_reads(self) -> list[Anomaly]:
        reads = self.facts.reads

        def stayed_master(node: int, before: int, after: int) -> bool:
            name = self.facts.node(node)
            return self.scene.stayed_master(name, int(reads.t0[before]), int(reads.t1[after]))

        found = {b.read: b for b in backward_reads(self.facts, stayed_master)}
        by_op = {int(reads.start[row]): back for row, back in found.items()}
        cases = self.cases(
            self.read_case(b.read, b.offset, () if b.before == b.read else (int(reads.start[b.before]),))
            for b in found.values()
        )

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            back = by_op[first.ops[0]]
            how = (
                f"the answer to a read from offset {reads.requested[back.read]} shows {back.offset}, or is out of order"
                if back.before == back.read
                else f"it reported that the queue ends at {back.offset}, after it had returned offset "
                f"{self.last_shown(back.before)}; the master was the same, without a fault in between"
            )
            return f"{_many(group, 'answer')} of {self.facts.node(first.node)} went backwards ({where}): {how}", {}

        return [_anomaly("nonmonotonic-poll", t) for t in cases.describe(say)]

    @cached_property
    def skips(self) -> tuple[list[Skip], list[Gap]]:
        skipped, gaps = skips(self.facts, self.outcomes, self.final_offsets)
        return [s for s in skipped if s.gap.read not in self.by_reset], [g for g in gaps if g.read not in self.by_reset]

    @cached_property
    def by_reset(self) -> Set[int]:
        """The empty answers to consumers that pointed to an offset because a reset had set it."""
        reads, resets = self.facts.reads, resets_of(self.run.history)
        if not resets:
            return frozenset()
        rows = np.nonzero((reads.f == CONSUME) & (reads.count == 0) & (reads.next > reads.requested))[0]
        found = set()
        for row in rows.tolist():
            group = self.run.history[int(reads.start[row])].extra.get("group")
            queue, to, end = self.facts.queues[int(reads.queue[row])], int(reads.next[row]), int(reads.end[row])
            if any(r.low <= to <= r.high and r.start < end for r in resets.of(str(group), queue)):
                found.add(row)
        return found

    def skipped(self) -> list[Anomaly]:
        sends = self.facts.sends
        found = {int(self.facts.reads.start[passed.gap.read]): passed for passed in self.skips[0]}
        cases = self.cases(
            self.read_case(gap.read, gap.begin, tuple(int(sends.start[row]) for row in rows[:3]))
            for gap, rows in found.values()
        )

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            gap, passed = found[group[0].ops[0]]
            return (
                f"{_many(group, 'reader')} skipped messages at {self.facts.node(group[0].node)} ({where}): asked "
                f"for offset {gap.begin}, it continued at {gap.end}, past {len(passed)} existing messages, the "
                f"first: {self.acked(int(passed[0]))}",
                {"messages_passed": sum(len(found[c.ops[0]].sends) for c in group)},
            )

        return [_anomaly("poll-skip", t) for t in cases.describe(say)]

    @cached_property
    def missteps(self) -> list[Step]:
        return list(missteps(self.facts))

    def regressions(self) -> list[Anomaly]:
        """Anomalies of polls that went back. If a message between the two positions is gone, its loss is the cause, and
        the anomaly is legal if that loss is.
        """
        reads, permit = self.facts.reads, permission(self.run, "lost", "dirty-read")
        found = {int(reads.start[step.read]): step for step in self.missteps if step.back}
        why = None if permit is None else permit.why
        cause = {op: why if why and self._gone_between(step) else None for op, step in found.items()}

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            step = found[group[0].ops[0]]
            return (
                f"{_many(group, 'poll')} went back before the position of the process ({where}): process "
                f"{reads.process[step.read]} was at offset {step.position}, and continued at {step.begin}, without a "
                "seek, assignment or crash in between",
                {},
            )

        anomalies = []
        for legal in dict.fromkeys(cause.values()):
            some = [step for op, step in found.items() if cause[op] == legal]
            cases = self.cases(self.step_case(step) for step in some)
            anomalies += [_anomaly("position-regression", t, legal) for t in cases.describe(say)]
        return anomalies

    def jumps(self) -> list[Anomaly]:
        reads = self.facts.reads
        found: dict[int, tuple[Step, Ints]] = {}
        there = OffsetIndex(self.facts, self.final_offsets, self.outcomes.is_gone)
        for step in self.missteps:
            if not step.back:
                passed = there.between(int(reads.queue[step.read]), step.position, step.begin)
                # A client that does not record its requested offset got the messages after it: offsets are dense.
                if len(passed) or reads.requested[step.read] == NONE:
                    found[int(reads.start[step.read])] = (step, passed)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            step, passed = found[group[0].ops[0]]
            first = f", past {self.acked(int(passed[0]))}" if len(passed) else ""
            return (
                f"{_many(group, 'poll')} jumped beyond the position of the process ({where}): process "
                f"{reads.process[step.read]} was at offset {step.position}, and continued at {step.begin}{first}, "
                "without a seek, assignment or crash in between",
                {"offsets_passed": sum(found[c.ops[0]][0].begin - found[c.ops[0]][0].position for c in group)},
            )

        cases = self.cases(self.step_case(step) for step, _ in found.values())
        return [_anomaly("position-jump", t) for t in cases.describe(say)]

    @cached_property
    def _gone(self) -> Ints:
        """Sightings of messages that are gone."""
        sends = self.outcomes.send_of(self.facts.sightings.id)
        known = np.nonzero(sends != NONE)[0]
        return known[self.outcomes.is_gone[sends[known]]]

    def _gone_between(self, step: Step) -> bool:
        """True if a message is gone that the process had received between the new position and the old one."""
        reads, seen, rows = self.facts.reads, self.facts.sightings, self._gone
        mine = (reads.process[seen.read[rows]] == reads.process[step.read]) & (
            seen.queue[rows] == reads.queue[step.read]
        )
        return bool((mine & (seen.offset[rows] >= step.begin) & (seen.offset[rows] < step.position)).any())


def _anomaly(name: str, reason: AnomalyText, legal: str | None = None) -> Anomaly:
    return Anomaly(name, reason.summary, reason.key, reason.ops, reason.window, reason.details, legal)


def _many(group: Sequence[Case], what: str) -> str:
    return many(len(group), what)


def _them(group: Sequence[Case]) -> str:
    return "it" if len(group) == 1 else "them"


def _span(begin: int, end: int) -> str:
    return str(begin) if end == begin + 1 else f"{begin} to {end - 1}"
