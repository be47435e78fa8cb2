# SPDX-License-Identifier: Apache-2.0
"""Judges that replicas of a state machine agree while they run, by a hash of the state after each applied entry
(DLedger).

A state machine is deterministic: two replicas that have applied the entries up to the same index have the same state
(Raft, State Machine Safety). Comparing values at the end misses a difference that later writes have covered. So the
register server logs a hash of its state after each entry, and after each snapshot that it loads
(`infra/systems/dledger/server/StateHash.java`), and every index is compared over all nodes and lives; etcd does the
same with HashKV.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude, summary_of
from results.figures import clock, many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

LINE: Final = re.compile(r"\[HASH\] (?P<how>from|loaded)=(?P<index>\d+)(?P<hashes>(?: [0-9a-f]{8})+)")
_LISTED: Final = 20


class Hash(NamedTuple):
    """The hash of a node's state after the entry `of`. `at`: the time (ns) in the log. `loaded`: from a snapshot."""

    of: int
    value: str
    node: str
    at: int
    loaded: bool


class StateHashes:
    """`states-differ` for each node whose state differs from that of the others after the same entry."""

    name = "state-hashes"
    order = 70

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if a server logged hashes."""
        return any(True for _ in _hashes(run))

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `hashes` read, `compared`: indices with more than one hash, `loaded` from snapshots."""
        by_index: dict[int, dict[str, list[Hash]]] = {}
        read = loaded = 0
        for one in _hashes(run):
            read += 1
            loaded += one.loaded
            by_index.setdefault(one.of, {}).setdefault(one.value, []).append(one)
        compared = sum(sum(map(len, found.values())) > 1 for found in by_index.values())
        stats = {"hashes": read, "compared": compared, "loaded": loaded}
        differ = {index: found for index, found in by_index.items() if len(found) > 1}
        odd: dict[str, list[tuple[Hash, Hash]]] = {}
        for _, found in sorted(differ.items()):
            # The state of most nodes counts as the right one; with a tie, the one that was seen first.
            right = max(found.values(), key=lambda some: (len({h.node for h in some}), -min(h.at for h in some)))
            for some in found.values():
                if some is not right:
                    odd.setdefault(some[0].node, []).append((some[0], right[0]))
        anomalies = [_tell(node, cases) for node, cases in sorted(odd.items())]
        unknown = None if compared else "no two replicas logged a state after the same entry"
        reason = f"{compared:,} states compared, {loaded:,} of them loaded from snapshots"
        return conclude(self.name, run, anomalies, stats, reason, unknown, invalid=summary_of(anomalies))


def _hashes(run: RunRecord) -> Iterator[Hash]:
    for node, paths in run.logs.items():
        for path in paths:
            if path.name != "server.log":
                continue
            for at, line in stamped_lines(path, run.environment):
                if "[HASH]" in line and (found := LINE.search(line)):
                    first, loaded = int(found["index"]), found["how"] == "loaded"
                    for i, value in enumerate(found["hashes"].split()):
                        yield Hash(first + i, value, node, at or 0, loaded)


def _tell(node: str, cases: list[tuple[Hash, Hash]]) -> Anomaly:
    wrong, right = cases[0]
    how = "after it had loaded a snapshot up to that entry" if wrong.loaded else "after it had applied that entry"
    return Anomaly(
        "states-differ",
        f"{node} had another state than {right.node} after {many(len(cases), 'entry', 'entries')}, the first with "
        f"index {wrong.of} at {clock(wrong.at)}, {how}: hash {wrong.value}, not {right.value}",
        window=(min(right.at, wrong.at), max(w.at for w, _ in cases)),
        details={
            "node": node,
            "count": len(cases),
            "first": [
                {"index": w.of, "hash": w.value, "right": r.value, "loaded": w.loaded} for w, r in cases[:_LISTED]
            ],
        },
    )
