"""DLedger's endless snapshot installation, detected in the leader's own log.

A leader's dispatcher for a peer goes COMPARE -> INSTALL_SNAPSHOT -> APPEND if the peer lacks compacted entries. In
0.4.0 the peer may never answer the installation (it handles one per process). The dispatcher then repeats COMPARE ->
INSTALL_SNAPSHOT -> COMPARE, each with a time-out, as long as it leads. Meanwhile it appends nothing to this peer
(DLedgerEntryPusher.EntryDispatcher.changeState logs each step).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from checkers.base.evidence import stamped_lines
from results.fault_intervals import FaultInterval
from results.figures import SECOND
from results.record import RunRecord
from results.verdict import Anomaly

_STEP = re.compile(r"\[Push-(?P<peer>\w+)\]Change state from (?P<old>\w+) to (?P<new>\w+)")
_ROUNDS = 5
"""The number of installations in a row, none followed by an append, that make a loop. One that times out takes 3 s."""
_LOOP_S: Final = 12.0
"""The shortest time of a loop. While a follower is busy with one installation it refuses others at once, hundreds in a
second (DLedger 0.4.0 with finding 1 mended).
"""


@dataclass
class _Rounds:
    count: int = 0
    first: int = 0
    last: int = 0
    lines: list[str] = field(default_factory=list)


def install_loops(run: RunRecord, node: str, path: Path, found: Sequence[FaultInterval]) -> Iterator[Anomaly]:
    """One anomaly per stretch in which `node` continued installing a snapshot on peers without ever appending to them.

    Rounds while the peer or the node was under a fault do not count.
    """
    open_rounds: dict[str, _Rounds] = {}
    loops: dict[str, _Rounds] = {}
    for at, line in stamped_lines(path, run.environment):
        step = _STEP.search(line)
        if step is None or at is None:
            continue
        peer = step["peer"]
        if step["new"] == "INSTALL_SNAPSHOT" and not _impaired(found, at, node, peer):
            rounds = open_rounds.setdefault(peer, _Rounds(first=at))
            rounds.count, rounds.last = rounds.count + 1, at
            if len(rounds.lines) < 3:
                rounds.lines.append(line[:300])
            if rounds.count >= _ROUNDS and rounds.last - rounds.first >= _LOOP_S * SECOND:
                loops[peer] = rounds
        elif step["new"] == "APPEND":
            open_rounds.pop(peer, None)
            if peer in loops:
                yield _tell(node, {peer: loops.pop(peer)})
    if loops:
        yield _tell(node, loops)


def _impaired(found: Sequence[FaultInterval], at: int, node: str, peer: str) -> bool:
    return any(s.covers(at, at) and (node in s.impairs or peer in s.impairs) for s in found)


def _tell(node: str, loops: Mapping[str, _Rounds]) -> Anomaly:
    first, last = min(r.first for r in loops.values()), max(r.last for r in loops.values())
    reason = ", ".join(f"{peer} {r.count} times" for peer, r in sorted(loops.items()))
    return Anomaly(
        "snapshot-install-loop",
        f"{node} was leader and repeatedly tried to install a snapshot ({reason} in {(last - first) / 1e9:.0f} s) on "
        "peers that were up and connected, without ever appending to them: COMPARE -> INSTALL_SNAPSHOT -> COMPARE",
        window=(max(0, first), max(0, last)),
        limit_s=_LOOP_S,
        details={"node": node, "log": [line for r in loops.values() for line in r.lines]},
    )
