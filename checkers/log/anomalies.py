"""The judge of the `log` workload: everything that can go wrong with messages in queues, each by its name.

docs/anomalies.md tells what each name means; `fates` and `order` hold the rules. Here the cases become sentences that
name who acknowledged what and when, under which fault, who was master, and what stands there now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from checkers.legality import settled
from checkers.log.cases import Case, Cases, Told, times
from checkers.log.facts import INFO, NONE, OK, REPLICA_READ, Facts, Ints
from checkers.log.fates import Fates, study
from checkers.log.order import Gap, holes, inversions, leading_gaps, skipped, standing, thrown_back
from checkers.log.readings import Readings
from checkers.log.scene import Scene
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


class LogAnomalies:
    """Messages lost, duplicated, out of nowhere, in the wrong place, in the wrong order; readers misled.

    Works on `send`, `poll`, `replica-read`, `consume` and `pop` ops. What the configuration permits is shown with its
    count (`checkers.legality`). `unknown` where nothing was acknowledged, or where neither a final reading nor a reader
    shows what became of an acknowledged message.
    """

    name = "log"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `sends`, `acked`, `unknown_outcome` and how many of those `appeared`; `queues`, `messages_seen`;
        `undecided`: acknowledged messages of which the run does not prove that they are kept.
        """
        fates = study(run.history)
        found, readings = fates.facts, fates.readings
        acked = int(np.count_nonzero(found.sends.outcome == OK))
        if not acked:
            told = "no message was sent" if not len(found.sends.id) else "no message was acknowledged"
            return CheckResult(self.name, Verdict.UNKNOWN, told)
        decided = readings.decided(found.sends.queue, found.sends.offset)
        undecided = int(np.count_nonzero((found.sends.outcome == OK) & ~fates.kept & ~decided & ~fates.is_lost))
        teller = _Teller(run, found, readings, fates)
        stats = {
            "sends": len(found.sends.id),
            "acked": acked,
            "unknown_outcome": int(np.count_nonzero(found.sends.outcome == INFO)),
            "appeared": fates.appeared,
            "queues": len(found.queues),
            "messages_seen": len(np.unique(found.places.id)),
            "sightings": len(found.sightings.id),
            "undecided": undecided,
        }
        unknown = None
        if not len(found.sightings.id):
            unknown = f"{acked:,} messages were acknowledged, and none was ever read"
        elif undecided:
            unknown = f"of {undecided:,} acknowledged messages the run does not show whether they were kept"
        told = f"{acked:,} acknowledged messages in {len(found.queues)} queues"
        return settled(self.name, run, teller.anomalies(), stats, told, unknown)


class _Teller:
    def __init__(self, run: RunRecord, found: Facts, readings: Readings, fates: Fates) -> None:
        self.run, self.facts, self.readings, self.fates = run, found, readings, fates
        self.scene = Scene(run)
        self.standing = standing(found, fates)

    def anomalies(self) -> list[Anomaly]:
        """All of them, the gravest names first."""
        return [
            *self.lost(),
            *self.phantom(),
            *self.stray(),
            *self.duplicated(),
            *self.inconsistent(),
            *self.dirty(),
            *self.holes(),
            *self.disorder(),
            *self.premature(),
            *self.thrown_back(),
            *self.skipped(),
        ]

    def lost(self) -> list[Anomaly]:
        cases = self._cases(self._send_case(int(row)) for row in self.fates.lost)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            rivals = sum(bool(len(self._final_at(c.queue, c.offset))) for c in group)
            proof = "is on no replica in the end" if self.readings.of(first.queue) else "was never seen by any reader"
            instead = self._instead(first)
            taken = f" Other messages stand at {rivals} of these offsets." if len(group) > 1 and rivals else ""
            return (
                f"{_many(group, 'acknowledged message')} lost: {self.facts.node(first.node)} acknowledged "
                f"{_them(group)} {times(group)} ({where}). Message {self._name(first)}, acknowledged at offset "
                f"{first.offset}, {proof}; {instead}.{taken}",
                {"replicas": self._replicas(first.queue), "offsets_taken_by_others": rivals},
            )

        return [_anomaly("lost", t) for t in cases.told(say)]

    def phantom(self) -> list[Anomaly]:
        cases = self._cases(self._place_case(int(row)) for row in self.fates.phantom)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            send = self._send_op(group[0].id)
            return (
                f"{_many(group, 'message')} that certainly had not been sent can be read all the same ({where}): the "
                f"send of message {self._name(group[0])} failed ({send.error if send else 'no error told'})",
                {},
            )

        return [_anomaly("phantom", t) for t in cases.told(say)]

    def stray(self) -> list[Anomaly]:
        cases = self._cases(self._place_case(int(row)) for row in self.fates.stray)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return f"{_many(group, 'message')} that nobody sent ({where}), the first: {self._name(group[0])}", {}

        return [_anomaly("never-sent", t) for t in cases.told(say)]

    def duplicated(self) -> list[Anomaly]:
        cases = self._cases(self._spread_case(rows) for rows in self.fates.duplicated)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'message')} stored twice ({where}), each sent once: message {self._name(group[0])} "
                f"stands at {self._places_of(group[0].id)}",
                {},
            )

        return [_anomaly("duplicated", t) for t in cases.told(say)]

    def inconsistent(self) -> list[Anomaly]:
        fates, sends = self.fates, self.facts.sends
        moved = self._cases(self._spread_case(rows, send) for send, rows in fates.moved)
        rivals = self._cases(self._send_case(later, also=earlier) for earlier, later in fates.rivals)
        clashes = self._cases(self._place_case(b, also=a) for a, b in fates.clashes)

        def say_moved(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            row = int(fates.send_of(np.array([first.id]))[0])
            acked = (
                f"was acknowledged at offset {sends.offset[row]} of {self.facts.queues[sends.queue[row]]}"
                if sends.offset[row] != NONE
                else "was sent once"
            )
            return (
                f"{_many(group, 'message')} not where the broker said ({where}): message {self._name(first)} {acked}, "
                f"and was read at {self._places_of(first.id)}",
                {},
            )

        def say_rivals(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            others = [int(e) for e, later in fates.rivals if sends.id[later] == first.id]
            other = self._acked(others[0]) if others else "another one"
            return (
                f"{_many(group, 'offset')} given away twice ({where}): offset {first.offset} to message "
                f"{self._name(first)}, acknowledged by {self.facts.node(first.node)}, and to {other}",
                {},
            )

        def say_clash(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'offset')} at which readers saw different messages ({where}): at {group[0].offset} "
                f"messages {' and '.join(self._names_at(group[0].queue, group[0].offset))}",
                {},
            )

        return [
            *(_anomaly("inconsistent-offsets", t) for t in moved.told(say_moved)),
            *(_anomaly("inconsistent-offsets", t) for t in rivals.told(say_rivals)),
            *(_anomaly("inconsistent-offsets", t) for t in clashes.told(say_clash)),
        ]

    def dirty(self) -> list[Anomaly]:
        cases = self._cases(self._place_case(int(row)) for row in self.fates.dirty)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            return (
                f"{_many(group, 'message')} shown to readers by {self.facts.node(first.node)}, never acknowledged to a "
                f"producer, and gone in the end ({where}): message {self._name(first)} was "
                f"read at offset {first.offset}; {self._instead(first)}",
                {"replicas": self._replicas(first.queue)},
            )

        return [_anomaly("dirty-read", t) for t in cases.told(say)]

    def holes(self) -> list[Anomaly]:
        reads = self.facts.reads
        final = [gap for gap in leading_gaps(self.facts) if reads.f[gap.read] == REPLICA_READ]
        gaps = {(int(reads.queue[g.read]), g.begin, g.end, int(reads.node[g.read])): g for g in holes(self.facts)}
        gaps |= {(int(reads.queue[g.read]), g.begin, g.end, int(reads.node[g.read])): g for g in final}
        ends = {(queue, begin, node): end for queue, begin, end, node in gaps}
        cases = self._cases(self._gap_case(gap) for gap in gaps.values())

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            end = ends[first.queue, first.offset, first.node]
            held = self._names_at(first.queue, first.offset)
            elsewhere = (
                f"; others saw message {' and '.join(held)} there" if held else "; nobody ever saw a message there"
            )
            missing = sum(ends[c.queue, c.offset, c.node] - c.offset for c in group)
            return (
                f"{self.facts.node(first.node)} shows holes in queues ({where}): no message at "
                f"{_span(first.offset, end)}, and messages behind it{elsewhere}. Offsets are dense, and a hole never "
                "fills",
                {"offsets_missing": missing},
            )

        return [_anomaly("hole", t) for t in cases.told(say)]

    def disorder(self) -> list[Anomaly]:
        found = list(inversions(self.facts, self.fates))
        partner = {int(self.facts.sends.id[i.later]): i.earlier for i in found}

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first, earlier = group[0], partner[group[0].id]
            return (
                f"{_many(group, 'message')} in front of one that was acknowledged before they were sent ({where}): "
                f"message {self._name(first)} stands at {first.offset}, {self._acked(earlier)}, stands at "
                f"{self.standing[earlier]}",
                {},
            )

        own = self._cases(self._send_case(i.later, also=i.earlier, stand=True) for i in found if i.one_sender)
        others = self._cases(self._send_case(i.later, also=i.earlier, stand=True) for i in found if not i.one_sender)
        return [
            *(_anomaly("reordered", t) for t in own.told(say)),
            *(_anomaly("realtime-inversion", t) for t in others.told(say)),
        ]

    def premature(self) -> list[Anomaly]:
        cases = self._cases(self._place_case(int(row)) for row in self.fates.premature)

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            return (
                f"{_many(group, 'message')} read before it was sent ({where}): message {self._name(group[0])} at "
                f"offset {group[0].offset}",
                {},
            )

        return [_anomaly("premature", t) for t in cases.told(say)]

    def thrown_back(self) -> list[Anomaly]:
        reads = self.facts.reads

        def reigned(node: int, before: int, after: int) -> bool:
            name = self.facts.node(node)
            return self.scene.reigned(name, int(reads.t0[before]), int(reads.t1[after]))

        found = {b.read: b for b in thrown_back(self.facts, reigned)}
        by_op = {int(reads.start[row]): back for row, back in found.items()}
        cases = self._cases(
            self._read_case(b.read, b.offset, () if b.before == b.read else (int(reads.start[b.before]),))
            for b in found.values()
        )

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            first = group[0]
            back = by_op[first.ops[0]]
            how = (
                f"the answer to a read from offset {reads.asked[back.read]} shows {back.offset}, or is in disorder"
                if back.before == back.read
                else f"it said that the queue ends at {back.offset}, after it had shown offset "
                f"{self._last(back.before)}; it was the same master, and had no fault in between"
            )
            return f"{_many(group, 'answer')} of {self.facts.node(first.node)} took readers back ({where}): {how}", {}

        return [_anomaly("nonmonotonic-poll", t) for t in cases.told(say)]

    def skipped(self) -> list[Anomaly]:
        reads, sends = self.facts.reads, self.facts.sends
        found: dict[int, tuple[Gap, Ints]] = {}
        for gap in leading_gaps(self.facts):
            if reads.f[gap.read] != REPLICA_READ:
                passed = skipped(self.facts, gap, self.standing, self.fates.is_lost)
                if len(passed):
                    found[int(reads.start[gap.read])] = (gap, passed)
        cases = self._cases(
            self._read_case(gap.read, gap.begin, tuple(int(sends.start[row]) for row in passed[:3]))
            for gap, passed in found.values()
        )

        def say(group: Sequence[Case], where: str) -> tuple[str, dict[str, Any]]:
            gap, passed = found[group[0].ops[0]]
            return (
                f"{_many(group, 'reader')} taken past messages by {self.facts.node(group[0].node)} ({where}): asked "
                f"for offset {gap.begin}, it went on at {gap.end}, past {len(passed)} messages that had been "
                f"acknowledged before, the first: {self._acked(int(passed[0]))}",
                {"messages_passed": sum(len(found[c.ops[0]][1]) for c in group)},
            )

        return [_anomaly("poll-skip", t) for t in cases.told(say)]

    # Cases.

    def _cases(self, cases: Any) -> Cases:
        return Cases(self.facts, self.scene, cases)

    def _send_case(self, row: int, also: int | None = None, stand: bool = False) -> Case:
        sends = self.facts.sends
        ops = (int(sends.start[row]),) if also is None else (int(sends.start[row]), int(sends.start[also]))
        offset = self.standing[row] if stand else sends.offset[row]
        where, who = int(sends.queue[row]), int(sends.node[row])
        return Case(where, int(offset), int(sends.id[row]), who, int(sends.t1[row]), int(sends.t1[row]), ops)

    def _place_case(self, row: int, also: int | None = None) -> Case:
        """A place, by the first read that showed it, and the send it came from."""
        facts, places = self.facts, self.facts.places
        read, send = int(places.first[row]), int(self.fates.sender[row])
        ops = [int(facts.reads.start[read])]
        if send != NONE:
            ops.append(int(facts.sends.start[send]))
        if also is not None:
            ops.append(int(facts.reads.start[places.first[also]]))
        at = (int(places.queue[row]), int(places.offset[row]), int(places.id[row]), int(facts.reads.node[read]))
        return Case(*at, int(facts.reads.t1[read]), int(facts.reads.t1[read]), tuple(ops))

    def _spread_case(self, rows: Ints, send: int | None = None) -> Case:
        """Several places of one message."""
        cases = [self._place_case(int(row)) for row in rows]
        latest = max(cases, key=lambda c: c.end)
        ops = tuple(sorted({op for case in cases for op in case.ops}))
        return latest._replace(ops=ops, offset=latest.offset if send is None else cases[0].offset)

    def _gap_case(self, gap: Gap) -> Case:
        return self._read_case(gap.read, gap.begin, ())

    def _read_case(self, row: int, offset: int, more: tuple[int, ...]) -> Case:
        reads = self.facts.reads
        at = (int(reads.queue[row]), offset, NONE, int(reads.node[row]))
        return Case(*at, int(reads.t0[row]), int(reads.t1[row]), (int(reads.start[row]), *more))

    # Words.

    def _name(self, case: Case) -> str:
        return self.facts.name(case.id)

    def _acked(self, row: int) -> str:
        sends = self.facts.sends
        by = f", acknowledged by {self.facts.node(int(sends.node[row]))}" if sends.outcome[row] == OK else ""
        return f"message {sends.id[row]}{by}"

    def _last(self, read: int) -> int:
        reads = self.facts.reads
        return int(self.facts.sightings.offset[reads.first[read] + reads.count[read] - 1])

    def _send_op(self, identity: int) -> Any:
        row = int(self.fates.send_of(np.array([identity]))[0])
        return None if row == NONE else self.run.history[int(self.facts.sends.end[row])]

    def _rows_at(self, queue: int, offset: int) -> Ints:
        places = self.facts.places
        a, b = np.searchsorted(places.queue, [queue, queue + 1])
        low, high = np.searchsorted(places.offset[a:b], [offset, offset + 1])
        return np.arange(a + low, a + high)

    def _final_at(self, queue: int, offset: int) -> Ints:
        rows = self._rows_at(queue, offset)
        standing: Ints = rows[self.facts.places.final[rows] != 0]
        return standing

    def _names_at(self, queue: int, offset: int) -> list[str]:
        return [self.facts.name(int(i)) for i in self.facts.places.id[self._rows_at(queue, offset)]]

    def _places_of(self, identity: int) -> str:
        places = self.facts.places
        rows = np.nonzero(places.id == identity)[0]
        return " and at ".join(f"{self.facts.queues[places.queue[r]]} offset {places.offset[r]}" for r in rows[:4])

    def _instead(self, case: Case) -> str:
        """What stands there now."""
        rows = self._final_at(case.queue, case.offset)
        if len(rows):
            send = int(self.fates.sender[rows[0]])
            what = self.facts.name(int(self.facts.places.id[rows[0]])) if send == NONE else self._acked(send)
            return f"in its place stands {what if send != NONE else f'message {what}'}"
        readings = self.readings.of(case.queue)
        if readings and max(r.end for r in readings) <= case.offset:
            return f"every replica that was read ends at or before offset {max(r.end for r in readings)}"
        return "nothing stands in its place" if readings else "no replica was read in the end"

    def _replicas(self, queue: int) -> dict[str, str]:
        """What the final readings of a queue cover, and who could not be read."""
        said = {
            self.facts.node(r.node): f"{len(r.id)} messages, offsets {r.begin} to {r.end - 1}"
            for r in self.readings.of(queue)
        }
        return said | {self.facts.node(n): "could not be read" for q, n in self.readings.missing if q == queue}


def _anomaly(name: str, told: Told) -> Anomaly:
    return Anomaly(name, told.summary, told.key, told.ops, told.window, told.details)


def _many(group: Sequence[Case], what: str) -> str:
    return f"{len(group):,} {what}{'s' * (len(group) != 1)}"


def _them(group: Sequence[Case]) -> str:
    return "it" if len(group) == 1 else "them"


def _span(begin: int, end: int) -> str:
    return str(begin) if end == begin + 1 else f"{begin} to {end - 1}"
