# SPDX-License-Identifier: Apache-2.0
"""Finds the final reads of an object: those that begin a while after all additions are over, and all faults are healed.

A read is final if the file marks it (`final?` in Maelstrom's histories; `final`, or the phase `final`). If no read of
the file has a mark, those count that begin `QUIET` after the last event of an add or of the nemesis. (Maelstrom waits
10 s before it reads, and marks the reads of some workloads only.) A mark is a claim: a marked read that began before an
add was over is not final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from results.figures import SECOND
from results.formats.implied import is_final
from results.history import Call, History
from results.op import INFO, OK, Op

QUIET: Final = 5 * SECOND
"""Time (ns) after which nodes have exchanged what they have, if the file does not say which reads are final."""


class Calm(NamedTuple):
    """The facts of a whole history by which its final reads are found. marked: some read has a mark. last_fault: time
    (ns) of the last event of the nemesis, or 0.
    """

    marked: bool
    last_fault: int

    @classmethod
    def of(cls, history: History) -> Calm:
        marked = any(op.f == "read" and _is_marked(op) for op in history.clients)
        return cls(marked, max((op.time for op in history.nemesis), default=0))


class FinalReads(NamedTuple):
    """The final reads of one object. begin: index of the first invocation of one of them. missing: the reason why no
    final read is there; "" if one is. unanswered: final reads without a result. early: marked reads that are not final.
    """

    reads: Sequence[Call] = ()
    begin: int = 0
    missing: str = ""
    unanswered: int = 0
    early: int = 0


def final_reads(calls: Sequence[Call], calm: Calm) -> FinalReads:
    """The final reads among the calls of one object."""
    adds = [call for call in calls if call.invoke.f != "read"]
    over = max((_over(call) for call in adds), default=-1)
    if calm.marked:
        called = [call for call in calls if call.invoke.f == "read" and _is_final(call)]
        late = [call for call in called if call.invoke.index > over]
        missing = "no final read of it" if not called else f"its final reads began before an add was over (op {over})"
    else:
        quiet = max([calm.last_fault, *(op.time for call in adds for op in _events(call))]) + QUIET
        called = late = [call for call in calls if call.invoke.f == "read" and call.start >= quiet]
        missing = (
            "no final reads: no read is marked (`final?`, or `final` in JSON and tables), or begins "
            f"{QUIET // SECOND} s after the last add and the last fault"
        )
    answered = [call for call in late if call.outcome == OK]
    if not answered:
        return FinalReads(missing="no final read was answered" if late else missing, early=len(called) - len(late))
    begin = min(call.invoke.index for call in late)
    return FinalReads(answered, begin, "", len(late) - len(answered), len(called) - len(late))


def _is_final(call: Call) -> bool:
    return any(map(_is_marked, _events(call)))


def _is_marked(op: Op) -> bool:
    return is_final(op) or op.extra.get("phase") == "final"


def _over(call: Call) -> int:
    """The index of the event after which an add does not change the object any more. One of unknown outcome may change
    it at any later time, whatever a reader waits for; so its invocation counts. One that failed never changes it.
    """
    done = call.completion
    if done is None or call.outcome == INFO:
        return call.invoke.index
    return done.index if call.outcome == OK else -1


def _events(call: Call) -> Sequence[Op]:
    return (call.invoke,) if call.completion is None else (call.invoke, call.completion)
