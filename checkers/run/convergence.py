# SPDX-License-Identifier: Apache-2.0
"""Judges that all replicas hold the same values at the end. The harness reads each replica alone, after heals and
restart."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.base.evidence import nodes_at
from checkers.base.legality import conclude, summary_of
from results.figures import SECOND
from results.history import Call
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_SHOWN = 20


class Convergence:
    """Compares, per key, the last `replica-read` of every node with the last quorum `read` of the final phase.

    `divergent-replicas` if they differ; `replica-left-behind` for a node that by its own report had not applied the
    leader's committed entries (its values are old ones, and are not compared); `unknown` if a node did not answer or
    nothing was read. A replica is read only after the group had its time to catch up.
    """

    name = "convergence"

    def __init__(
        self, nodes: Sequence[str], limit_s: float, read: str = "read", replica_read: str = "replica-read"
    ) -> None:
        """`limit_s`: the longest time until a replica has applied committed entries."""
        self.nodes, self.limit = tuple(nodes), int(limit_s * SECOND)
        self.read, self.replica_read = read, replica_read

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `keys` compared, `silent` nodes, and `behind`: node -> entries it lacks."""
        behind = _behind(run, self.limit)
        leader: dict[str, Call] = {}
        replica: dict[str, dict[str, Call]] = {}
        requested: set[str] = set()
        for call in run.history.clients.calls:
            key, node = call.invoke.key, call.invoke.extra.get("node")
            if key is None or call.invoke.extra.get("phase") != "final":
                continue
            if call.invoke.f == self.read and call.outcome == "ok":
                leader[key] = call
            elif call.invoke.f == self.replica_read and node is not None:
                requested.add(key)
                if call.outcome == "ok":
                    replica.setdefault(key, {})[node] = call
        silent = sorted({n for n in self.nodes for key in requested if n not in replica.get(key, {})})
        unread = sorted(requested - leader.keys())
        lacks = {node: goal - applied for node, (applied, goal) in behind.items()}
        stats = {"keys": len(requested), "silent": silent, "keys_without_quorum_read": len(unread), "behind": lacks}
        for held in replica.values():
            for node in behind:
                held.pop(node, None)
        found = [_left_behind(run, node, *positions, self.limit) for node, positions in sorted(behind.items())]
        found += [a for key in sorted(requested) if (a := _differs(key, leader.get(key), replica.get(key, {})))]
        unknown = None
        if not requested:
            unknown = "no replica was read"
        elif silent:
            unknown = f"{', '.join(silent)} did not answer every read"
        elif unread:
            unknown = f"{len(unread)} keys had no quorum read"
        reason = f"{len(requested)} keys identical on {len(self.nodes)} nodes"
        return conclude(self.name, run, found[:_SHOWN], stats, reason, unknown, invalid=summary_of(found))


def _behind(run: RunRecord, limit: int) -> dict[str, tuple[int, int]]:
    """node -> (its applied index, the index committed `limit` ns before its report), for the nodes that lack entries.

    Entries committed within the limit may still be on their way.
    """
    latest = {seen.node: seen for seen in run.observations}
    led = [o for o in run.observations if o.role == "leader" and o.committed is not None]
    behind = {}
    for node, last in latest.items():
        goal = max((o.committed or 0 for o in led if o.time <= last.time - limit), default=-1)
        if last.applied is not None and last.applied < goal:
            behind[node] = (last.applied, goal)
    return behind


def _left_behind(run: RunRecord, node: str, applied: int, goal: int, limit: int) -> Anomaly:
    since = next((o.time for o in run.observations if o.node == node and o.applied == applied), 0)
    until = max(o.time for o in run.observations if o.node == node)
    return Anomaly(
        "replica-left-behind",
        f"{node} had applied its log only up to {applied} of {goal} committed entries at the end of the run, although "
        "everything was healed and restarted and the group served: it is up and connected, but does not catch up",
        window=(since, until),
        details={"node": node, "nodes": nodes_at(run, until, sorted({o.node for o in run.observations}))},
        limit_s=limit / SECOND,
    )


def _differs(key: str, leader: Call | None, replicas: dict[str, Call]) -> Anomaly | None:
    held = {node: call.completion.value for node, call in sorted(replicas.items()) if call.completion is not None}
    through_leader = leader.completion.value if leader is not None and leader.completion is not None else None
    wanted = [through_leader] if leader is not None else []
    if len({repr(v) for v in [*held.values(), *wanted]}) <= 1:
        return None
    values = ", ".join(f"{node} {value}" for node, value in held.items())
    by_leader = f"; a quorum read gave {through_leader}" if leader is not None else ""
    calls = [*replicas.values(), *([leader] if leader is not None else [])]
    return Anomaly(
        "divergent-replicas",
        f"after everything was healed and restarted the replicas hold different values of {key}: {values}{by_leader}",
        key=key,
        ops=sorted(c.completion.index for c in calls if c.completion is not None),
        window=(min(c.start for c in calls), max(c.end or c.start for c in calls)),
        details={"held": held, "quorum_read": through_leader},
    )
