# SPDX-License-Identifier: Apache-2.0
"""The simulated service: a replicated register map on five nodes, right unless a bug is planted.

It is no Raft: one authority decides in one step at a moment between invocation and completion (so it is linearizable
by construction), and replicas follow a little later. That is all a client can see of a right service, and each bug
below breaks it in a way that a client can see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from harness.api import Completion
from results.op import Op


class Bug(Enum):
    """The bugs that can be planted."""

    STALE_READ = "quorum reads are answered from a replica that lags"
    LOST_WRITE = "now and then an acknowledged write is dropped"
    DOUBLE_APPLY = "now and then a write is applied a second time, a while later"
    SPLIT_BRAIN = "the cut-off side of a partition goes on serving, and is overwritten at the heal"
    LOST_AFTER_RESTART = "a restart forgets the acknowledged writes of the last second"
    DIVERGENT_REPLICA = "one replica skips some writes permanently"
    NEVER_RECOVERS = "after the first heal nothing is served any more"


@dataclass
class Service:
    """All nodes at once. `cut`: the nodes on the minority side of a partition; `down`: nodes stopped or killed."""

    nodes: Sequence[str]
    rng: Random
    bug: Bug | None = None
    state: dict[str, int] = field(default_factory=dict)
    shadow: dict[str, int] | None = None
    """Split brain: the cut-off side's own state."""
    replicas: dict[str, dict[str, int]] = field(default_factory=dict)
    recent: list[tuple[float, str, int | None]] = field(default_factory=list)
    cut: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()
    heals: int = 0
    term: int = 1
    _leader: str | None = None

    def __post_init__(self) -> None:
        self.replicas = {node: {} for node in self.nodes}
        self._elect()

    @property
    def leader(self) -> str | None:
        return self._leader

    def _elect(self) -> None:
        able = [n for n in self.nodes if n not in self.down and n not in self.cut]
        has_majority = len(able) * 2 > len(self.nodes)
        chosen = None if not has_majority else self._leader if self._leader in able else able[0]
        if chosen != self._leader:
            self.term += chosen is not None
            self._leader = chosen

    def impair(self, cut: frozenset[str], down: frozenset[str]) -> None:
        """Put a fault in force, or heal everything with two empty sets."""
        healed = bool(self.cut or self.down) and not (cut or down)
        self.cut, self.down = cut, down
        if self.bug is Bug.SPLIT_BRAIN:
            self.shadow = dict(self.state) if cut else None
        self.heals += healed
        self._elect()

    def restart(self) -> None:
        """Every node stops and starts."""
        if self.bug is Bug.LOST_AFTER_RESTART:
            now = asyncio.get_running_loop().time()
            for _, key, before in reversed([r for r in self.recent if r[0] > now - 10.0][-8:]):
                if before is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = before
        if self.bug is not Bug.DIVERGENT_REPLICA:
            self.replicas = {node: dict(self.state) for node in self.nodes}

    async def serve(self, op: Op, home: str | None) -> Completion:
        """One request as a client sees it: travel, decision, travel. `home`: the node whose leader it believes in."""
        await asyncio.sleep(self.rng.uniform(0.0005, 0.004))
        if self.bug is Bug.NEVER_RECOVERS and self.heals:
            await asyncio.sleep(3600)
        if op.f == "replica-read":
            where = str(op.extra["node"])
            return Completion("ok", self.replicas[where].get(str(op.key)), extra={"node": where})
        if home in self.down:
            await asyncio.sleep(3600)
        state = self.state
        if home in self.cut and self.shadow is not None:
            state = self.shadow
        elif self._leader is None or home in self.cut:
            await asyncio.sleep(1.0)
            return Completion("fail", error="no leader known, nothing sent")
        if self.rng.random() < 0.02:
            # The request or its answer is lost: the client must not know which.
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.uniform(0, 2.0))
                self._apply(op, self.state)
            await asyncio.sleep(3600)
        answer = self._apply(op, state)
        await asyncio.sleep(self.rng.uniform(0.0005, 0.004))
        return answer

    def _apply(self, op: Op, state: dict[str, int]) -> Completion:
        key = str(op.key)
        if op.f == "read":
            if self.bug is Bug.STALE_READ and self.rng.random() < 0.05:
                return Completion("ok", self.replicas[self.nodes[-1]].get(key))
            return Completion("ok", state.get(key))
        if op.f == "cas":
            expected, new = op.value
            if state.get(key) != expected:
                return Completion("fail", error="not the expected value", extra={"applied": False})
        else:
            new = op.value
        if not (self.bug is Bug.LOST_WRITE and self.rng.random() < 0.02):
            self._store(key, new, state)
        if self.bug is Bug.DOUBLE_APPLY and self.rng.random() < 0.02:
            asyncio.get_running_loop().call_later(self.rng.uniform(0.2, 1.0), self._store, key, new, state)
        return Completion("ok", op.value)

    def _store(self, key: str, value: int, state: dict[str, int]) -> None:
        loop = asyncio.get_running_loop()
        if state is self.state:
            self.recent.append((loop.time(), key, state.get(key)))
        state[key] = value
        for node, replica in self.replicas.items():
            if self.bug is Bug.DIVERGENT_REPLICA and node == self.nodes[1] and self.rng.random() < 0.3:
                continue
            loop.call_later(0.3, replica.__setitem__, key, value)
