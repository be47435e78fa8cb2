# SPDX-License-Identifier: Apache-2.0
"""The phases of a run, as data: a rolling upgrade or a soak test is another list."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import harness.generator as gen
from harness.api import Phase, PhaseSession, Workload
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan
from harness.run.session import RESTART, RESTART_LEADING

log = logging.getLogger("harness")

SETTLE_S: Final = 5.0
"""Load continues at least this long after the last heal: a returning server may do harm only then."""


def usual_phases(plan: Plan, workload: Workload) -> list[Phase]:
    """Load under faults; load after the last heal, until it is served and every follower has caught up (one that has
    not by the limit is judged for it); a restart of all servers, or a wait for all replicas; the final reads.
    """
    before_final: list[Phase] = [Restart()] if workload.restart_before_final else []
    text = "" if workload.restart_before_final else " waiting until every replica has caught up, then final reads"
    return [
        Load("main", plan.time_limit_s, strikes=True),
        Heal(),
        Load("recovery", SETTLE_S),
        Recovery(plan.recovery_limit_s),
        *before_final,
        CaughtUp(plan.recovery_limit_s, f"{text}, also from each replica" if text else ""),
        FinalReads(),
    ]


@dataclass(frozen=True)
class Load:
    """The workload's ops for so long. strikes: with the faults of the plan; an alarm may end it early."""

    name: str
    seconds: float
    strikes: bool = False
    part: int = 1

    async def run(self, session: PhaseSession) -> None:
        ops = load(session, self.name, self.seconds, self.part)
        if self.strikes:
            ops = gen.any_(session.until_alarm(ops), session.strikes())
        await session.execute(ops, self.name)


@dataclass(frozen=True)
class Heal:
    """Ends all active faults."""

    name: str = "heal"

    async def run(self, session: PhaseSession) -> None:
        await session.heal()


@dataclass(frozen=True)
class Recovery:
    """Load that continues until it is served and every follower has caught up, at most so long."""

    seconds: float
    name: str = "recovery"

    async def run(self, session: PhaseSession) -> None:
        until = gen.until(session.recovered, load(session, self.name, self.seconds, part=2))
        await session.execute(until, self.name)


@dataclass(frozen=True)
class Restart:
    """Stops every server in an orderly way and starts it again, so that the final reads show what outlives it."""

    name: str = "final"

    async def run(self, session: PhaseSession) -> None:
        session.announce(" restarting all servers, then final reads, also from each replica")
        await session.execute(gen.nemesis(Invocation(RESTART)), self.name)


@dataclass(frozen=True)
class AnotherLeads:
    """Restarts the server that leads its kind in an orderly way, waits for another leader, and reads the same again.
    Once no server leads, the next rounds do nothing.
    """

    kind: str
    name: str = "final"

    async def run(self, session: PhaseSession) -> None:
        if self.kind in session.leaderless:
            return
        session.announce(f" restarting the {self.kind} that leads, then the same reads")
        await session.execute(gen.nemesis(Invocation(RESTART_LEADING, value={"kind": self.kind})), self.name)
        await FinalReads(self.name).run(session)


@dataclass(frozen=True)
class CaughtUp:
    """A wait until every replica holds all that its leader does, at most so long."""

    seconds: float
    line: str = ""
    name: str = "final"

    async def run(self, session: PhaseSession) -> None:
        if self.line:
            session.announce(self.line)
        if not await session.caught_up(self.seconds):
            log.warning("not every replica caught up within %g s; starting the final reads", self.seconds)


@dataclass(frozen=True)
class FinalReads:
    """The quiescent reads, which show the real content."""

    name: str = "final"

    async def run(self, session: PhaseSession) -> None:
        reads = session.workload.final(list(session.keys), session.plan.nodes)
        await session.execute(gen.time_limit(session.workload.final_limit_s, reads), self.name)


@dataclass(frozen=True)
class Pause:
    """No ops for a while; active faults stay active. For soaks, and between steps of an upgrade."""

    seconds: float
    name: str = "pause"

    async def run(self, session: PhaseSession) -> None:
        await asyncio.sleep(self.seconds)


def load(session: PhaseSession, phase: str, seconds: float, part: int = 1) -> Generator:
    """The workload's ops of a phase: rate and time limit around its generator."""
    plan, workload = session.plan, session.workload
    rng = plan.rng(f"generator/{phase}/{part}")
    ops = workload.generator(rng, phase if part == 1 else f"{phase}-{part}")
    return gen.clients(gen.time_limit(seconds, gen.rate(plan.rate or workload.default_rate, ops, rng=rng)))
