# SPDX-License-Identifier: Apache-2.0
"""The part of a run in which clients talk to servers: its participants, and the common work of all phases."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from harness import signals
from harness.api import Completion, Phase, RunContext
from harness.generator import Generator, until
from harness.nemesis import events
from harness.nemesis.runner import Nemesis
from harness.observe.node_watch import NodeWatch, let_go
from harness.observe.observer import Observer
from harness.observe.own_machine import watch_own_machine
from harness.observe.process_monitor import ProcessMonitor
from harness.run.interpreter import Interpreter
from harness.run.live import ProgressLine
from harness.run.lookout import make_lookout
from harness.run.parts import Run
from harness.run.servers import restart_all, start_one, stop_all
from infra.machines.api import InfraError
from results.alarm import ENDED_EARLY
from results.journal import Journal
from results.observations import ObservationLog
from results.op import SERVER_DIED, Op
from results.record import BEGUN, COMPLETE, NODES_GONE
from results.strikes import AT_DISKS

log = logging.getLogger("harness")

RESTART: Final = "restart-all"
"""The nemesis' op that restarts every server."""

RESTART_LEADING: Final = "restart-leading"
"""The nemesis' op that restarts the server of a kind (`value["kind"]`) that leads the others."""

_LED_S: Final = 30.0


class Session:
    """`run` executes all phases. The journal is complete and closed in any case; the environment has the run's end.

    stopping  the run is to end.
    complete  the journal has all events, and the environment the run's end.
    unhealed  strikes that could not be healed, one line each.
    gone      the reason why no node is left; empty: the nodes exist.
    """

    interpreter: Interpreter
    observer: Observer
    live: ProgressLine

    def __init__(self, run: Run, ready: Callable[[], None]) -> None:
        """`ready` is called when the workload is set up: the first operation comes next."""
        self.plan, self.workload, self.deployment = run.plan, run.parts.workload, run.deployment
        self.folder, self.environment, self.say = run.folder, run.environment, run.say
        self._ready = ready
        self.context = RunContext(run.deployment, format(time.time_ns() // 1_000_000, "x"))
        self.keys: dict[str, None] = {}
        self.stopping = False
        self.complete = False
        self.unhealed: list[str] = []
        self.gone = ""
        self.leaderless: set[str] = set()
        self._strikes = run.parts.strikes
        self._effects: set[str] = set()
        self._serving: set[str] = set()
        words = run.deployment.topology.roles
        self.lookout = make_lookout(run)
        self.nemesis = Nemesis(run.deployment, run.parts.fault, lambda: self.observer.view, words=words)

    async def run(self, phases: Sequence[Phase]) -> None:
        """Runs all phases."""
        await self.workload.setup(self.context)
        self._ready()
        journal = Journal(self.folder.journal)
        observations = ObservationLog(self.folder.observations)
        interpreter = self.interpreter = Interpreter(
            concurrency=self.plan.concurrency,
            client=lambda thread: self.workload.client(self.context, thread),
            nemesis=self,
            journal=journal.append,
            # A client ends its own op at the deadline; the interpreter ends only one that does not.
            deadline_s=self.plan.op_deadline_s + 0.5,
            on_event=self._on_event,
        )
        self.observer = Observer(self.deployment, interpreter.now, observations.append, interpreter.event)
        words = self.deployment.topology.roles
        self.live = ProgressLine(
            interpreter.now,
            lambda: self.nemesis.active,
            lambda: (self.observer.leaders, self.observer.term),
            words.get("leader", "leader"),
        )
        self._monitor = ProcessMonitor(
            self.deployment, self.nemesis.explains_death, lambda found: interpreter.event(SERVER_DIED, found)
        )
        self.environment.note(phases=BEGUN, started_at=datetime.now(UTC).isoformat(timespec="microseconds"))
        watching = (
            self.observer.watch(),
            self.live.show(),
            self._monitor.watch(),
            watch_own_machine(self.folder.machine),
            self.observer.follow_logs(events.watched_lines(self._strikes)),
            NodeWatch(self.deployment.nodes, self._lose).watch(),
        )
        watchers = [asyncio.create_task(w) for w in watching]
        with signals.forwarded(asyncio.get_running_loop(), self._interrupt):
            try:
                for phase in phases:
                    if not self.stopping:
                        await phase.run(self)
                if not self.stopping:
                    self.environment.facts["phases"] = COMPLETE
            finally:
                await self.heal()
                for watcher in watchers:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)
                await interpreter.close()
                journal.close()
                observations.close()
                self._note_end()
        self.complete = True

    async def execute(self, ops: Generator, phase: str) -> None:
        """Runs the ops of a phase to their end, or until the run is stopped."""
        await self.interpreter.run(ops, phase)

    async def caught_up(self, limit_s: float) -> bool:
        """Waits until every replica holds all that its leader does. False if the limit comes first."""
        return await self.observer.caught_up(limit_s, lambda: self.stopping)

    def announce(self, line: str) -> None:
        """Prints a line in place of the live one."""
        self.live.wipe()
        self.say(line)

    def strikes(self) -> Generator:
        """The nemesis' ops of the plan. An alarm ends them, as it ends the load."""
        return events.generator(self._strikes, lambda: self.lookout.early is not None)

    def until_alarm(self, ops: Generator) -> Generator:
        """`ops`, which have no more once an alarm ends the load early."""
        return until(lambda op: self.lookout.early is not None, ops) if self.lookout.watching else ops

    async def heal(self) -> None:
        """Ends every active fault, and with the faults the watch. On lost nodes nothing is left to end."""
        self.lookout.stop()
        self._serving.clear()
        if self.gone:
            return
        self.unhealed = await self.nemesis.heal_all()
        for problem in self.unhealed:
            log.error("heal: %s", problem)
            self.say(f"could not heal: {problem}")

    def recovered(self, op: Op) -> bool:
        """True if this completion shows that every group serves again since the heal, and all nodes have caught up."""
        if not self.workload.acknowledges(op):
            return False
        group = self.workload.group_of(op)
        if group is not None:
            self._serving.add(group)
        return (group is None or self._serving.issuperset(self.workload.groups)) and self.observer.all_follow

    @property
    def disks_struck(self) -> bool:
        """True if the workload can read the servers' files, and a fault makes them worth reading."""
        return self.workload.reads_files and not self._effects.isdisjoint(AT_DISKS)

    def read_files(self) -> None:
        """Stops every server in an orderly way and lets the workload read their files. The environment records a
        failure: no ground truth is no verdict.
        """
        self.say(" stopping all servers, then reading their files")
        try:
            stop_all(self.deployment)
            self.workload.after_stop(self.context, self.folder.path)
        except (InfraError, OSError) as problem:
            log.error("ground truth: %s", problem)
            self.say(f"no ground truth: {problem}")
            self.environment.note(ground_truth=f"not read: {problem}")

    async def invoke(self, op: Op) -> Completion:
        """Executes the nemesis' ops: faults, the restart of all servers before the final reads, and of a leader."""
        if op.f == RESTART_LEADING:
            return await self._restart_leading(str(op.value["kind"]))
        if op.f != RESTART:
            return await self.nemesis.invoke(op)
        self._monitor.pause()
        try:
            await asyncio.to_thread(restart_all, self.deployment)
        except InfraError as problem:
            return Completion("info", op.value, error=str(problem))
        finally:
            self._monitor.resume()
        return Completion("info", op.value)

    async def _restart_leading(self, kind: str) -> Completion:
        """Restarts the leading server of a kind. The value: `kind`, and the leaders before and after; None: unknown."""
        old = await self._leading(kind, None)
        if old is None:
            self.leaderless.add(kind)
            return Completion("info", {"kind": kind, "from": None, "to": None}, f"no {kind} is known to lead")
        server = self.deployment.server(old, kind)
        self._monitor.pause()
        new = None
        try:
            await asyncio.to_thread(server.stop)
            new = await self._leading(kind, old)
            await asyncio.to_thread(start_one, server)
        except InfraError as problem:
            return Completion("info", {"kind": kind, "from": old, "to": new}, error=str(problem))
        finally:
            self._monitor.resume()
        return Completion("info", {"kind": kind, "from": old, "to": new})

    async def _leading(self, kind: str, other_than: str | None) -> str | None:
        """Waits for a node that leads a kind of servers, other than `other_than`; None if none does within `_LED_S`."""
        end = time.monotonic() + _LED_S
        while time.monotonic() < end and not self.stopping:
            found = self.observer.view.leading.get(kind)
            if found is not None and found != other_than:
                return found
            await asyncio.sleep(0.2)
        return None

    def _note_end(self) -> None:
        """Records how the run ended, for a later judgement."""
        if self.gone:
            self.environment.facts[NODES_GONE] = self.gone
        elif self.stopping:
            self.environment.facts["interrupted"] = "interrupted by the user"
        if self.unhealed:
            self.environment.facts["unhealed"] = "; ".join(self.unhealed)
        self.environment.note()

    def _on_event(self, op: Op) -> None:
        self.live.on_event(op)
        if self.lookout.watching and (early := self.lookout.see(op)) is not None:
            self.environment.note(**{ENDED_EARLY: early.to_text()})
            self.announce(f"healing, then the final reads: {early.describe()}")
        if op.is_client and op.key is not None and op.type == "invoke":
            self.keys[op.key] = None
        elif op.process < 0:
            if isinstance(op.value, Mapping):
                self._effects.update(effect["kind"] for effect in op.value.get("effects", ()))
            log.info("nemesis %s %s %s %s", op.type, op.f, op.value, op.error or "")

    def _lose(self, why: str) -> None:
        """Handles lost nodes: stops all queries, and ends the commands that still wait for them."""
        if self.stopping:
            return
        self.gone, self.stopping = why, True
        log.error("nodes: %s", why)
        self.announce(f"the nodes are gone: {why}; the run ends here (the journal is on disk)")
        self.interpreter.stop()
        threading.Thread(target=let_go, args=(self.deployment.nodes,), daemon=True).start()

    def _interrupt(self) -> None:
        """Handles a stop signal: invokes nothing more, heals, keeps the evidence, judges the history so far."""
        if self.stopping:
            return
        self.stopping = True
        self.announce("interrupted: healing, collecting logs and checking the history (the journal is on disk)")
        self.interpreter.stop()
