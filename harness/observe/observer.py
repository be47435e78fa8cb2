# SPDX-License-Identifier: Apache-2.0
"""Observes the nodes during a run: records roles, terms and log positions about once a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Node
from infra.systems.api import Deployment, Status
from infra.systems.java import new_lines
from results.op import CALM, LOG_LINE, ROLE_CHANGED
from results.record import Observation

INTERVAL_S = 1.0

ANSWER_S = 4.0
"""A node without an answer for so many seconds is silent. On a busy machine an answer may take seconds."""

THOROUGH_S = 5.0
"""The interval of queries for the end of a server's log, if this query is expensive for the server."""

LOG_S = 0.5
"""The interval of searches in the servers' logs, if a strike waits for a line."""

FOLLOW_S = 3.0
"""A follower may be so many seconds behind its leader and still follow."""


class Observer:
    """Polls every node. The leader of a replica group is the one that reports so with the highest term (a master: with
    the highest epoch); `term` is that of the first group.
    """

    def __init__(
        self,
        deployment: Deployment,
        now: Callable[[], int],
        keep: Callable[[Observation], None],
        report: Callable[[str, Any], None] = lambda f, value: None,
    ) -> None:
        """`keep` is given every observation; `report` the events that follow from them (`results.op.EVENTS`)."""
        self._topology, self._nodes, self._now, self._keep = deployment.topology, deployment.nodes, now, keep
        self._report = report
        self._kinds = sorted({kind for server in deployment.record.servers for kind in (server.kind, *server.ports)})
        self._stage = ClusterView.of(deployment.record, [node.name for node in deployment.clients])
        self._calm = False
        self._led_by: dict[str, str] = {}
        """Group, or kind of server -> the node that led it last."""
        self.view = self._stage
        """The roles of all servers, as of the last round."""
        self.term: int | None = None
        self.latest: dict[str, Observation] = {}
        """Node -> its last observation; offsets that were not queried keep their last value."""
        self._goals: dict[str, deque[tuple[int, int]]] = {group: deque() for group in self._stage.groups}
        """Group -> (time, position that its leader reported). The first is the newest that is older than `FOLLOW_S`."""

    async def watch(self) -> None:
        """Polls until cancelled. Each node has its own round, so that one that does not answer delays no other."""
        await asyncio.gather(*(self._watch(node) for node in self._nodes))

    async def _watch(self, node: Node) -> None:
        now = asyncio.get_running_loop().time
        thoroughly = now()
        while True:
            began = now()
            seen = await self._ask(node)
            if _kept_back(seen) and began - thoroughly >= THOROUGH_S:
                await self._ask(node, thorough=True)
                thoroughly = began
            self._conclude()
            await asyncio.sleep(max(0.05, INTERVAL_S - (now() - began)))

    async def follow_logs(self, texts: Sequence[str]) -> None:
        """Reports the lines of the servers' logs that contain one of these texts, until cancelled. Each line once,
        within a second; lines from before the call do not count.
        """
        if texts:
            await asyncio.gather(*(self._follow(node, texts) for node in self._nodes))

    async def _follow(self, node: Node, texts: Sequence[str]) -> None:
        seen: dict[str, int] = {}
        while True:
            try:
                found = await asyncio.to_thread(new_lines, node, texts, seen)
            except InfraError:
                found = []  # it does not answer; what it logs meanwhile is found later
            for line in found:
                self._report(LOG_LINE, {"node": node.name, "line": line[:500]})
            await asyncio.sleep(LOG_S)

    async def look(self, *, thorough: bool = False) -> Mapping[str, Observation]:
        """Polls all nodes once, at the same time: node -> its observation of this round."""
        reported = await asyncio.gather(*(self._ask(node, thorough) for node in self._nodes))
        self._conclude()
        return {seen.node: seen for seen in reported}

    def _conclude(self) -> None:
        """Derives all roles from the last observation of each node."""
        leaders = {}
        self.term = None
        for group in self._stage.groups:
            reported = [o for o in self._members(group) if o.role == "leader"]
            best = max(reported, key=lambda o: o.term or 0, default=None)
            if best is None:
                continue
            leaders[group] = best.node
            self.term = best.term if self.term is None else self.term
            self._aspire(group, best)
        self.view = replace(self._stage, leaders=leaders, **self._led())
        for of, node in {**self.view.leaders, **self.view.leading}.items():
            if self._led_by.setdefault(of, node) != node:
                self._led_by[of] = node
                self._report(ROLE_CHANGED, {"of": of, "node": node})
        calm = self.all_follow
        if calm and not self._calm:
            self._report(CALM, {})
        self._calm = calm

    def _led(self) -> dict[str, Any]:
        """Kind -> node that leads it (the controllers), and the nodes that one of these leaders reports as in sync."""
        leading: dict[str, str] = {}
        in_sync: list[str] | None = None
        for kind in self._kinds:
            reported = [o for o in self.latest.values() if o.extra.get(kind) == "leader"]
            if not reported:
                continue
            # One that was cut off may report for a while that it leads; its list of members in sync is older.
            best = max(reported, key=lambda o: o.extra.get("in_sync_epoch") or 0)
            leading[kind] = best.node
            if "in_sync" in best.extra:
                in_sync = [str(node) for node in best.extra.get("in_sync") or []]
        return {"leading": leading, "in_sync": in_sync}

    def _aspire(self, group: str, leader: Observation) -> None:
        goals, held = self._goals[group], _stored(leader)
        if held is not None and (not goals or goals[-1][0] != leader.time):
            goals.append((leader.time, held))
        before = self._now() - int(FOLLOW_S * 1e9)
        while len(goals) > 1 and goals[1][0] <= before:
            goals.popleft()

    async def _ask(self, node: Node, thorough: bool = False) -> Observation:
        status: Status = await self._topology.observe(node, ANSWER_S, thorough=thorough)
        seen = Observation(
            time=self._now(),
            node=node.name,
            role=status.role,
            term=status.term,
            leader=status.leader,
            begin=status.begin,
            end=status.end,
            committed=status.committed,
            applied=status.applied,
            extra=status.extra,
        )
        self._keep(seen)
        before = self.latest.get(node.name)
        self.latest[node.name] = seen
        if before is not None and _kept_back(seen):
            self.latest[node.name] = replace(seen, begin=before.begin, end=before.end, committed=before.committed)
        return seen

    @property
    def leaders(self) -> list[str]:
        """The leading node of each group that has a leader."""
        return list(self.view.leaders.values())

    @property
    def all_follow(self) -> bool:
        """True if every node now holds all that its leader had committed a few seconds ago, and is in sync, if a server
        reports who is.
        """
        for group, goals in self._goals.items():
            if not goals or goals[0][0] > self._now() - int(FOLLOW_S * 1e9):
                return False
            if any((o.end if o.end is not None else -1) < goals[0][1] for o in self._members(group)):
                return False
        return self._all_in_sync

    async def caught_up(self, timeout_s: float, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits until every node has applied all that its leader had committed when queried, and all are in sync. False
        if the time is up, or the caller stops waiting (`given_up`).
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline and not given_up():
            await self.look()
            if self._stored_everywhere and self._all_in_sync:
                reported = await self.look(thorough=True)
                if all(self._applied(group, reported) for group in self._goals) and self._all_in_sync:
                    return True
            await asyncio.sleep(0.3)
        return False

    @property
    def _stored_everywhere(self) -> bool:
        """True if every replica's log reaches as far as its leader's did a moment ago. It is cheap, so it is first."""
        return all(
            bool(goals) and all((o.end if o.end is not None else -1) >= goals[-1][1] for o in self._members(group))
            for group, goals in self._goals.items()
        )

    def _applied(self, group: str, reported: Mapping[str, Observation]) -> bool:
        leader = self.view.leaders.get(group)
        goal = _stored(reported[leader]) if leader else None
        held = [reported[node].applied for node in self._stage.groups[group] if node in self._stage.main]
        return goal is not None and all((applied if applied is not None else -1) >= goal for applied in held)

    @property
    def _all_in_sync(self) -> bool:
        """True if all members are in sync, or no server could report it. Without groups: if a controller leads."""
        if not self._speaks_of_sync:
            return True
        if not self._stage.main:
            return bool(self.view.leading)
        held = self.view.in_sync
        return held is not None and set(self._stage.main) <= set(held)

    @property
    def _speaks_of_sync(self) -> bool:
        """True if a server exists that may report who is in sync: one that leads its kind, or may be elected."""
        roles = ("leader", "follower", None)
        return any(kind in o.extra and o.extra[kind] in roles for o in self.latest.values() for kind in self._kinds)

    def _members(self, group: str) -> Iterator[Observation]:
        """The latest observations of the nodes of a group that hold data."""
        for node in self._stage.groups[group]:
            if node in self._stage.main and node in self.latest:
                yield self.latest[node]


def _kept_back(seen: Observation) -> bool:
    """True if a node that serves did not report the end of its log: that query is expensive, and was not made."""
    return seen.end is None and seen.role in ("leader", "follower")


def _stored(leader: Observation) -> int | None:
    """The leader's committed position; the end of its log if it reports none."""
    return leader.end if leader.committed is None else leader.committed
