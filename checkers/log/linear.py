"""Is every queue linearizable as an append-only log? Decided in near-linear time from what was acknowledged and seen.

Real time and the order of offsets are all there is to it. Each entry is appended at some moment between the invocation
of its send and its *deadline*: the first answer - the acknowledgement, or a read that shows it - that needs it to be
there. Moments must grow with offsets. So a queue is linearizable iff

* no offset holds two messages, and no message stands at two offsets;
* no entry's send is invoked after the deadline of an entry at its own or a higher offset (a running maximum);
* every offset that nothing is known of can be filled by a send of unknown outcome, each by another one, that is invoked
  before the deadlines of all entries behind it (deadlines grow, so counting from the front is enough).

That is `checkers.linearizability.Log` for appends and reads of entries, and tests compare the two. Answers that show
*nothing* are left out: RocketMQ builds the index that readers see behind the log, and lets slaves lag, so that an
acknowledged message may be invisible for a moment without any promise being broken. Only the final readings say that
something is not there. Theory: Herlihy and Wing 1990; intervals as in Gibbons and Korach 1997.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from checkers.legality import permits, settled
from checkers.log.facts import INFO, NONE, OK, Facts, Ints
from checkers.log.fates import Fates, study
from checkers.log.scene import Scene
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_SHOWN = 20


@dataclass(frozen=True)
class _Entries:
    """What is known to stand in queues, sorted by queue, offset, id. `begun`: the invocation of its send (NONE where
    nobody sent it), `due`: its deadline, `proof`: the invocation of the op that sets the deadline.
    """

    queue: Ints
    offset: Ints
    id: Ints
    begun: Ints
    due: Ints
    proof: Ints


@dataclass(frozen=True)
class _Breach:
    """Why a queue cannot be a log, and the ops that prove it."""

    told: str
    ops: tuple[int, ...]


class LogLinearizable:
    """Is each queue of the run a linearizable append-only log?

    Where the configuration permits messages to be lost or read before they are safe, those that are gone in the end
    count as sends that failed: what is left must still be one log.
    """

    name = "linearizability"

    def check(self, run: RunRecord) -> CheckResult:
        """An anomaly `nonlinearizable` per bad queue. `stats`: `queues`, `entries` and `invalid_queues`."""
        fates = study(run.history)
        found = fates.facts
        allowed = permits(run)
        entries = _entries(found, fates, "lost" in allowed, "dirty-read" in allowed)
        if not len(entries.id):
            told = "nothing checked: no message was acknowledged or read"
            return CheckResult(self.name, Verdict.UNKNOWN, told)
        breaches = _breaches(found, fates, entries, "lost" in allowed)
        scene = Scene(run)
        stats = {"queues": len(found.queues), "entries": len(entries.id), "invalid_queues": len(breaches)}
        anomalies = [_anomaly(run, found, scene, queue, b) for queue, b in list(breaches.items())[:_SHOWN]]
        return settled(self.name, run, anomalies, stats, f"{len(found.queues):,} queues, {len(entries.id):,} entries")


def _entries(found: Facts, fates: Fates, may_lose: bool, may_be_dirty: bool) -> _Entries:
    """Acknowledgements and sightings as one table, each entry with its earliest deadline."""
    sends, places, reads = found.sends, found.places, found.reads
    keep = (sends.outcome == OK) & (sends.offset != NONE)
    if may_lose:
        keep &= ~fates.is_lost
    gone = np.zeros(len(places.id), dtype=bool)
    if len(sends.id):
        gone |= may_lose & (fates.sender != NONE) & fates.is_lost[fates.sender]
    if may_be_dirty:
        gone |= fates.is_dirty
    seen = np.nonzero(~gone)[0]
    begun = np.full(len(seen), NONE, dtype=np.int64)
    known = fates.sender[seen] != NONE
    begun[known] = sends.start[fates.sender[seen][known]]
    queue = np.concatenate([sends.queue[keep], places.queue[seen]])
    offset = np.concatenate([sends.offset[keep], places.offset[seen]])
    identity = np.concatenate([sends.id[keep], places.id[seen]])
    start = np.concatenate([sends.start[keep], begun])
    due = np.concatenate([sends.end[keep], reads.end[places.first[seen]]])
    proof = np.concatenate([sends.start[keep], reads.start[places.first[seen]]])
    order = np.lexsort((due, identity, offset, queue))
    queue, offset, identity = queue[order], offset[order], identity[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(queue) != 0) | (np.diff(offset) != 0) | (np.diff(identity) != 0)
    rows = order[fresh]
    return _Entries(queue[fresh], offset[fresh], identity[fresh], start[rows], due[rows], proof[rows])


def _breaches(found: Facts, fates: Fates, entries: _Entries, may_lose: bool) -> dict[int, _Breach]:
    """queue -> the first breach that was found, for the queues that have one."""
    breaches: dict[int, _Breach] = {}
    spare = _fillers(found, fates, entries, may_lose)
    twice = _twice(entries)
    edges = np.concatenate([[0], np.nonzero(np.diff(entries.queue))[0] + 1, [len(entries.id)]])
    for a, b in pairwise(edges):
        queue = int(entries.queue[a])
        part = _Entries(*(column[a:b] for column in vars(entries).values()))
        breach = _clash(found, part) or twice.get(queue) or _late(found, part) or _unfilled(part, spare.get(queue))
        if breach is not None:
            breaches[queue] = breach
    if not may_lose:
        for row in fates.lost:
            queue = int(found.sends.queue[row])
            if queue not in breaches:
                told = (
                    f"message {found.sends.id[row]} was acknowledged at offset {found.sends.offset[row]}, and is gone"
                )
                breaches[queue] = _Breach(told, (int(found.sends.start[row]),))
    return dict(sorted(breaches.items()))


def _clash(found: Facts, part: _Entries) -> _Breach | None:
    """Two messages at one offset."""
    at = np.nonzero(np.diff(part.offset) == 0)[0]
    if not len(at):
        return None
    i, j = int(at[0]), int(at[0]) + 1
    names = f"{found.name(int(part.id[i]))} and {found.name(int(part.id[j]))}"
    return _Breach(f"offset {part.offset[i]} is that of messages {names}", (int(part.proof[i]), int(part.proof[j])))


def _twice(entries: _Entries) -> dict[int, _Breach]:
    """queue -> a message at two offsets, or in two queues."""
    order = np.lexsort((entries.offset, entries.queue, entries.id))
    again = np.nonzero(np.diff(entries.id[order]) == 0)[0]
    breaches: dict[int, _Breach] = {}
    for k in again:
        i, j = int(order[k]), int(order[k + 1])
        if entries.id[i] > 0:  # bodies that are none of ours may well be alike
            told = f"message {entries.id[i]} stands at offset {entries.offset[i]} and at {entries.offset[j]}"
            breaches.setdefault(int(entries.queue[i]), _Breach(told, (int(entries.proof[i]), int(entries.proof[j]))))
    return breaches


def _late(found: Facts, part: _Entries) -> _Breach | None:
    """An entry whose send is invoked after something at its own or a higher offset had to be there."""
    latest = np.maximum.accumulate(part.begun)
    bad = np.nonzero(latest > part.due)[0]
    if not len(bad):
        return None
    i = int(bad[0])
    j = int(np.argmax(part.begun[: i + 1]))
    name, other = found.name(int(part.id[i])), found.name(int(part.id[j]))
    if i == j:
        return _Breach(f"message {name} was read before it was sent", (int(part.proof[i]), int(part.begun[i])))
    told = (
        f"message {other} stands at offset {part.offset[j]}, in front of message {name} at {part.offset[i]}, which was "
        f"there before message {other} was sent"
    )
    return _Breach(told, (int(part.proof[i]), int(part.begun[j])))


def _fillers(found: Facts, fates: Fates, entries: _Entries, may_lose: bool) -> dict[int, Ints]:
    """queue -> invocations of the sends that may fill an unknown offset, in order."""
    sends = found.sends
    placed = np.isin(sends.id, entries.id)
    free = (sends.outcome == INFO) | ((sends.outcome == OK) & (sends.offset == NONE))
    rows = np.nonzero(free & ~placed)[0]
    starts: dict[int, Ints] = {}
    for queue in np.unique(sends.queue[rows]):
        starts[int(queue)] = np.sort(sends.start[rows[sends.queue[rows] == queue]])
    return starts


def _unfilled(part: _Entries, spare: Ints | None) -> _Breach | None:
    """An offset below a known one that no send can have filled."""
    gaps = np.diff(part.offset) - 1
    at = np.nonzero(gaps > 0)[0]
    if not len(at):
        return None
    due = np.minimum.accumulate(part.due[::-1])[::-1]
    needed = np.cumsum(gaps[at])
    there = np.zeros(len(at), dtype=np.int64) if spare is None else np.searchsorted(spare, due[at + 1], side="left")
    short = np.nonzero(there < needed)[0]
    if not len(short):
        return None
    i = int(at[short[0]])
    behind = i + 1 + int(np.argmin(part.due[i + 1 :]))
    told = f"offset {part.offset[i] + 1} lies in front of one that was there, and no send can have filled it"
    return _Breach(told, (int(part.proof[i]), int(part.proof[behind])))


def _anomaly(run: RunRecord, found: Facts, scene: Scene, queue: int, breach: _Breach) -> Anomaly:
    ops = sorted(set(breach.ops))
    times = [run.history[i].time for i in ops]
    name = found.queues[queue]
    summary = f"queue {name} cannot be an append-only log: {breach.told}.{scene.told(min(times), max(times))}"
    return Anomaly("nonlinearizable", summary, name, ops, (min(times), max(times)), {"model": "log"})
