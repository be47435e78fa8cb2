# SPDX-License-Identifier: Apache-2.0
"""Facts for all judges of resets: the messages that exist, resets to a wrong time, and the faults that excuse.

Brokers keep a reset as they keep a commit: in memory, copied to slaves and written to a file periodically. So a fault,
or a change of master, soon after the last commit or reset that the group's position followed from may undo it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.base.cases import Case, of_parts
from checkers.base.legality import Part
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.log.columns import OK, Ints
from checkers.messages.log.order import final_offsets
from checkers.messages.log.outcomes import MessageOutcomes
from checkers.messages.resets import Reset
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.verdict import Anomaly

_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_CLOCKS_NS: Final = SECOND
"""The largest difference between the clocks of the machines."""

CLOCK_FAULT: Final = "a fault changed the clocks of brokers, by which they find the offset of a time"

FORGOTTEN: Final = "a broker that was restarted, or became master, may have forgotten the last resets and commits"


@dataclass(frozen=True, slots=True)
class Owed:
    """Messages of a queue that exist at the end: their offsets in order, the rows of their sends, and the indices of
    their acknowledgements.
    """

    offsets: Ints
    rows: Ints
    acked: Ints
    ids: Ints


def forgotten(
    scene: RunTimeline, queue: str, reset: Reset, until: int, positions: Iterable[int], slack: int
) -> float | None:
    """The time, in seconds, from the last commit or reset before a fault or a change of master to this, if it may have
    undone a reset before `until` (ns); None: no such event.

    positions: the times (ns) of commits of the group there. slack: the longest time (ns) until a broker has copied one.
    """
    brokers = group_of(queue)
    nodes = set(scene.run.deployment.groups.get(brokers or "", ()))
    changes = [
        (i.start_ns, i.end_ns)
        for i in scene.fault_intervals
        if (not nodes or nodes & {*i.nodes, *i.impairs} or not (i.nodes or i.impairs)) and not _harmless(i)
    ]
    changes += [(r.since, r.since) for r in scene.masters_of(brokers) if r.since > _START_NS]
    kept = [reset.acked, *(at for at in positions if at > reset.acked)]
    ages = []
    for start, end in changes:
        if start > until or (end is not None and end < reset.begun):
            continue
        last = max((at for at in kept if at <= start), default=start)
        if start - last <= slack:
            ages.append(max(0, start - last) / SECOND)
    return min(ages, default=None)


def clock_was_set(scene: RunTimeline, case: Case) -> bool:
    """True if a fault had changed the clock of a broker of the group by the end of a case: a broker finds the offset of
    a time by the times that its group's masters stored.
    """
    nodes = set(scene.run.deployment.groups.get(case.broker_group or "", ()))
    faults = (i for i in scene.fault_intervals if "clock" in i.fault and i.start_ns <= case.end)
    return any(not nodes or nodes & {*i.nodes, *i.impairs} for i in faults)


def wrong_times(scene: RunTimeline, late: Sequence[Case]) -> list[Anomaly]:
    """The anomalies `wrong-reset-time` of the cases of `left_out`."""
    what = "{n} resets to a time set the group's offset above messages that were sent later"
    excused = [case for case in late if clock_was_set(scene, case)]
    wrong = [case for case in late if case not in excused]
    parts = [Part(some, why) for some, why in ((wrong, None), (excused, CLOCK_FAULT)) if some]
    return list(of_parts(scene, "wrong-reset-time", parts, what, whole=True))


def _harmless(fault: FaultInterval) -> bool:
    """True if a fault only slowed servers down, so that they forget nothing."""
    return bool(fault.effects) and all(effect.kind == "slow" for effect in fault.effects)


def left_out(outcomes: MessageOutcomes, group: str, queue: str, owed: Owed, reset: Reset) -> Iterator[Case]:
    """Yields a case if a message below the target was sent after the time of a reset."""
    if reset.since is None:
        return
    sends = outcomes.facts.sends
    below = owed.rows[(owed.offsets < reset.high) & (owed.acked < reset.start)]
    after = below[sends.t0[below] > reset.since + _CLOCKS_NS]
    if len(after):
        row = int(after[0])
        text = (
            f"the reset of group {group} on {queue} to a time not after {clock(reset.since)} went to offset "
            f"{reset.high}, acknowledged by {reset.node} at {clock(reset.acked)}; message {sends.id[row]} below it was "
            f"sent at {clock(int(sends.t0[row]))} ({len(after):,} such messages)"
        )
        yield Case(reset.begun, reset.acked, [reset.start, int(sends.start[row])], text, key=queue)


def owed_messages(outcomes: MessageOutcomes, queue: str) -> Owed:
    facts = outcomes.facts
    if queue not in facts.queues:
        none = np.zeros(0, dtype=np.int64)
        return Owed(none, none, none, none)
    sends, place = facts.sends, final_offsets(facts, outcomes)
    code = facts.queues.index(queue)
    lowest = (outcomes.lowest(int(read)) for read in np.nonzero(facts.reads.queue == code)[0])
    oldest = max((int(facts.origins[code]), *lowest))
    rows = np.nonzero((sends.queue == code) & (sends.outcome == OK) & outcomes.kept & (place >= oldest))[0]
    rows = rows[np.argsort(place[rows], kind="stable")]
    return Owed(place[rows], rows, sends.end[rows], sends.id[rows])
