# SPDX-License-Identifier: Apache-2.0
"""Monitors the server processes: if one ends without a fault, the history gets an event.

One command per node waits *on the node* until a process ends. The harness therefore learns about the end within a
second or two, and the control node has no work meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.machines.api import InfraError, Node, ProcessId
from infra.machines.primitives.process import await_end
from infra.systems.api import STARTED_AGAIN, Deployment

log = logging.getLogger("harness.observe")

T = TypeVar("T")

ROUND_S = 5.0
"""The time that one command waits; also the longest time that the end of a run may wait for it."""

RETURN_S = 15.0
"""A server that a fault ended is back within this after the heal, or it counts as dead."""

_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process that was seen to run at `since`. missed: since when its server had been missing before; None: it had
    not.
    """

    process: ProcessId
    since: float
    missed: float | None = None

    def since_missed(self, kind: str, now: float) -> float | None:
        """`missed`, if it ended soon after its return, and is of a kind that is then started again; or None."""
        return self.missed if kind in STARTED_AGAIN and now - self.since <= RETURN_S else None


@dataclass(frozen=True, slots=True)
class _Missing:
    """A server without a process since `last`; before, it may have come back and ended again, since `first`."""

    first: float
    last: float


class ProcessMonitor:
    """`excused(node, server, since)`: whether a fault that was active at or after `since` (of `time.monotonic`) ends
    or stops that server. `report` gets each death that is not excused: `{"node", "server", "pid", "last"}`; pid None:
    it was to be started again and does not run.
    """

    def __init__(
        self,
        deployment: Deployment,
        excused: Callable[[str, str, float], bool],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._deployment, self._nodes, self._excused, self._report = deployment, deployment.nodes, excused, report
        self._pool = ThreadPoolExecutor(max(1, len(self._nodes)), thread_name_prefix="watch")
        self._paused = False
        self._restarts = 0

    def pause(self) -> None:
        """Pauses the monitor, before all servers are stopped on purpose."""
        self._paused = True
        self._restarts += 1

    def resume(self) -> None:
        """Resumes after all servers were started again: it watches the processes that run now."""
        self._paused = False

    async def watch(self) -> None:
        """Monitors until cancelled."""
        try:
            await asyncio.gather(*(self._watch(node) for node in self._nodes))
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _watch(self, node: Node) -> None:
        alive: dict[str, _Seen] = {}
        missing: dict[str, _Missing] = {}
        reported: set[str] = set()
        restarts = -1
        while alive or missing or restarts < 0:
            if restarts != self._restarts:
                while self._paused:
                    await asyncio.sleep(_PAUSE_S)
                restarts = self._restarts
                missing.clear()
                reported.clear()
                now = time.monotonic()
                while not (found := await self._processes(node)) and self._deployment.servers(node.name):
                    await asyncio.sleep(_PAUSE_S)
                alive = {kind: _Seen(process, now) for kind, process in found.items() if process is not None}
            ended = await self._ended(node, [seen.process for seen in alive.values()])
            if restarts != self._restarts:
                continue
            for kind in [kind for kind, seen in alive.items() if seen.process in ended]:
                gone = alive.pop(kind)
                now = time.monotonic()
                missed = gone.since_missed(kind, now)
                missing[kind] = _Missing(now if missed is None else missed, now)
                if not self._excused(node.name, kind, gone.since if missed is None else missed):
                    reported.add(kind)
                    await self._tell(node, kind, gone.process.pid)
            await self._look_for(node, alive, missing, reported)

    async def _look_for(
        self, node: Node, alive: dict[str, _Seen], missing: dict[str, _Missing], text: set[str]
    ) -> None:
        """Reports a missing server that is not back in time, and takes one that is back as alive."""
        if not missing:
            return
        now = time.monotonic()
        for kind, found in (await self._processes(node)).items():
            if kind not in missing:
                continue
            if found is not None:
                alive[kind] = _Seen(found, now, missing.pop(kind).first)
                text.discard(kind)
            elif self._excused(node.name, kind, now):
                missing[kind] = _Missing(now, now)
            elif kind not in text and now - missing[kind].last > RETURN_S:
                text.add(kind)
                await self._tell(node, kind, None)
        await asyncio.sleep(_PAUSE_S)

    async def _tell(self, node: Node, kind: str, pid: int | None) -> None:
        last = await self._in_thread(lambda: self._deployment.server(node.name, kind).last_words())
        log.error("%s: the %s (process %s) ended without a fault: %s", node.name, kind, pid, last)
        self._report({"node": node.name, "server": kind, "pid": pid, "last": last})

    async def _processes(self, node: Node) -> dict[str, ProcessId | None]:
        """Kind of server -> its process; {} while the node does not answer."""

        def ask() -> dict[str, ProcessId | None]:
            return {server.kind: server.process() for server in self._deployment.servers(node.name)}

        try:
            return await self._in_thread(ask)
        except InfraError as problem:
            log.warning("%s: its processes cannot be seen: %s", node.name, problem)
            return {}

    async def _ended(self, node: Node, processes: Sequence[ProcessId]) -> list[ProcessId]:
        if not processes:
            return []
        try:
            return await self._in_thread(lambda: await_end(node, processes, ROUND_S))
        except InfraError as problem:
            log.warning("%s: its processes cannot be monitored: %s", node.name, problem)
            await asyncio.sleep(_PAUSE_S)
            return []

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
