"""Watches the nodes while a run goes: roles, terms and log positions about once a second, written down as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from infra.api import Node, Status, Topology
from results.record import Observation

INTERVAL_S = 1.0

_FOLLOW_ROUNDS = 4
"""A follower may be this many rounds behind its leader, less one, and still follow."""


class Observer:
    """Polls every node; `leader` and `term` say who is believed to lead now: the leader with the highest term."""

    def __init__(
        self, topology: Topology, nodes: Sequence[Node], now: Callable[[], int], keep: Callable[[Observation], None]
    ) -> None:
        self._topology, self._nodes, self._now, self._keep = topology, nodes, now, keep
        self.leader: str | None = None
        self.term: int | None = None
        self.latest: dict[str, Observation] = {}
        self._committed: deque[int] = deque(maxlen=_FOLLOW_ROUNDS)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            await self.look()
            await asyncio.sleep(max(0.05, INTERVAL_S - (asyncio.get_running_loop().time() - began)))

    async def look(self) -> None:
        """One round over all nodes at once; a node that does not answer costs no more than the interval."""
        await asyncio.gather(*(self._ask(node) for node in self._nodes))
        leading = [o for o in self.latest.values() if o.role == "leader"]
        best = max(leading, key=lambda o: o.term or 0, default=None)
        self.leader, self.term = (best.node, best.term) if best else (None, None)
        if best is not None and best.committed is not None:
            self._committed.append(best.committed)

    async def _ask(self, node: Node) -> None:
        said: Status = await self._topology.observe(node, INTERVAL_S * 0.8)
        seen = Observation(
            time=self._now(),
            node=node.name,
            role=said.role,
            term=said.term,
            leader=said.leader,
            begin=said.begin,
            end=said.end,
            committed=said.committed,
            applied=said.applied,
        )
        self.latest[node.name] = seen
        self._keep(seen)

    @property
    def all_follow(self) -> bool:
        """Whether every node now holds what the leader had committed a few seconds ago: nobody is left behind."""
        goal = self._committed[0] if len(self._committed) == _FOLLOW_ROUNDS else None
        return goal is not None and all((o.end if o.end is not None else -1) >= goal for o in self.latest.values())

    async def caught_up(self, timeout_s: float) -> bool:
        """Wait until every node has applied what the leader had committed when asked; False when the time is up."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            await self.look()
            goal = self.latest[self.leader].committed if self.leader else None
            if goal is not None and all(
                (o.applied if o.applied is not None else -1) >= goal for o in self.latest.values()
            ):
                return True
            await asyncio.sleep(0.3)
        return False
