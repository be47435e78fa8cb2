# SPDX-License-Identifier: Apache-2.0
"""Creates cases of anomalies from rows of the columns, and their text: acknowledging broker, time, message at the
offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from checkers.base.timeline import RunTimeline
from checkers.messages.log.columns import NONE, OK, Ints
from checkers.messages.log.groups import AnomalyGroups, Case
from checkers.messages.log.order import Gap, final_offsets
from checkers.messages.log.outcomes import MessageOutcomes
from checkers.messages.log.positions import Step
from results.record import RunRecord


class AnomalyWriter:
    """Makes the cases of a run's messages, and the words for their sentences."""

    def __init__(self, run: RunRecord, outcomes: MessageOutcomes) -> None:
        self.run, self.facts, self.readings, self.outcomes = run, outcomes.facts, outcomes.readings, outcomes
        self.scene = RunTimeline(run)
        self.final_offsets = final_offsets(outcomes.facts, outcomes)

    # Cases.

    def cases(self, cases: Any) -> AnomalyGroups:
        return AnomalyGroups(self.facts, self.scene, cases)

    def send_case(self, row: int, also: int | None = None, stand: bool = False) -> Case:
        sends = self.facts.sends
        ops = (int(sends.start[row]),) if also is None else (int(sends.start[row]), int(sends.start[also]))
        offset = self.final_offsets[row] if stand else sends.offset[row]
        where, who = int(sends.queue[row]), int(sends.node[row])
        return Case(where, int(offset), int(sends.id[row]), who, int(sends.t1[row]), int(sends.t1[row]), ops)

    def place_case(self, row: int, also: int | None = None) -> Case:
        """A place, by the first read that showed it, and the send it came from."""
        facts, places = self.facts, self.facts.places
        read, send = int(places.first[row]), int(self.outcomes.sender[row])
        ops = [int(facts.reads.start[read])]
        if send != NONE:
            ops.append(int(facts.sends.start[send]))
        if also is not None:
            ops.append(int(facts.reads.start[places.first[also]]))
        at = (int(places.queue[row]), int(places.offset[row]), int(places.id[row]), int(facts.reads.node[read]))
        return Case(*at, int(facts.reads.t1[read]), int(facts.reads.t1[read]), tuple(ops))

    def spread_case(self, rows: Ints, send: int | None = None) -> Case:
        """Several places of one message."""
        cases = [self.place_case(int(row)) for row in rows]
        latest = max(cases, key=lambda c: c.end)
        ops = tuple(sorted({op for case in cases for op in case.ops}))
        return latest._replace(ops=ops, offset=latest.offset if send is None else cases[0].offset)

    def step_case(self, step: Step) -> Case:
        return self.read_case(step.read, step.position, (int(self.facts.reads.start[step.before]),))

    def gap_case(self, gap: Gap) -> Case:
        return self.read_case(gap.read, gap.begin, ())

    def read_case(self, row: int, offset: int, more: tuple[int, ...]) -> Case:
        reads = self.facts.reads
        at = (int(reads.queue[row]), offset, NONE, int(reads.node[row]))
        return Case(*at, int(reads.t0[row]), int(reads.t1[row]), (int(reads.start[row]), *more))

    # Words.

    def name_of(self, case: Case) -> str:
        return self.facts.name(case.id)

    def acked(self, row: int) -> str:
        sends = self.facts.sends
        by = f", acknowledged by {self.facts.node(int(sends.node[row]))}" if sends.outcome[row] == OK else ""
        return f"message {sends.id[row]}{by}"

    def last_shown(self, read: int) -> int:
        reads = self.facts.reads
        return int(self.facts.sightings.offset[reads.first[read] + reads.count[read] - 1])

    def send_op(self, identity: int) -> Any:
        row = int(self.outcomes.send_of(np.array([identity]))[0])
        return None if row == NONE else self.run.history[int(self.facts.sends.end[row])]

    def rows_at(self, queue: int, offset: int) -> Ints:
        places = self.facts.places
        a, b = np.searchsorted(places.queue, [queue, queue + 1])
        low, high = np.searchsorted(places.offset[a:b], [offset, offset + 1])
        return np.arange(a + low, a + high)

    def final_at(self, queue: int, offset: int) -> Ints:
        rows = self.rows_at(queue, offset)
        final_offsets: Ints = rows[self.facts.places.final[rows] != 0]
        return final_offsets

    def names_at(self, queue: int, offset: int) -> list[str]:
        return [self.facts.name(int(i)) for i in self.facts.places.id[self.rows_at(queue, offset)]]

    def places_of(self, identity: int) -> str:
        places = self.facts.places
        rows = np.nonzero(places.id == identity)[0]
        return " and at ".join(f"{self.facts.queues[places.queue[r]]} offset {places.offset[r]}" for r in rows[:4])

    def instead(self, case: Case) -> str:
        """The message that is now at a case's offset, as a clause."""
        rows = self.final_at(case.queue, case.offset)
        if len(rows):
            send = int(self.outcomes.sender[rows[0]])
            what = self.facts.name(int(self.facts.places.id[rows[0]])) if send == NONE else self.acked(send)
            return f"at its offset is {what if send != NONE else f'message {what}'}"
        readings = self.readings.of(case.queue)
        if readings and max(r.end for r in readings) <= case.offset:
            return f"every replica that was read ends at or before offset {max(r.end for r in readings)}"
        return "there is nothing at its offset" if readings else "no replica was read at the end"

    def replicas(self, queue: int) -> dict[str, str]:
        """Node -> the messages that its final reading of a queue covers, or `could not be read`."""
        covered = {
            self.facts.node(r.node): f"{len(r.id)} messages, offsets {r.begin} to {r.end - 1}"
            for r in self.readings.of(queue)
        }
        return covered | {self.facts.node(n): "could not be read" for q, n in self.readings.missing if q == queue}
