# SPDX-License-Identifier: Apache-2.0
"""The nemesis: injects the strikes of the schedule and ensures that all of them end.

A strike is injected on its nodes in parallel, under leases that end it even if this program ends. Then a probe looks
for the effect. Only then is the op done. A heal ends the leases, probes again, retries, and reports what it could not
undo. A failure here never ends a run: it becomes the `error` of the nemesis' op.

Work on nodes blocks, so it runs in threads, each part with a deadline. A node that does not answer delays a strike and
is reported; it does not block the run. Work that such a node does late is undone when it is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Lock
from types import MappingProxyType
from typing import Any, Final, TypeVar

from harness.api import Completion, Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.targets import is_role, nodes_with_role
from harness.plan.plan import PlanError
from infra.machines.api import InfraError, Lease
from infra.systems.api import Deployment
from results.op import INFO, Op
from results.strikes import LASTING, Effect, Strike, impairs

log = logging.getLogger("harness.nemesis")

_DEADLY: Final = ("down", "unsynced-lost")
"""Effects that end servers."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds. An inject (with its probe, and its undoing when it failed) stays below two minutes."""

    inject_s: float = 30.0
    probe_s: float = 20.0
    heal_s: float = 50.0
    """The time for a heal with all its attempts."""
    pause_s: float = 1.0
    """The pause between two attempts to heal."""
    lease_slack_s: float = 60.0
    """A lease lasts so much longer than its strike: the schedule ends a strike, the lease only if that fails."""
    role_s: float = 8.0
    """The time that a strike at a role waits for a server to have this role."""


@dataclass(eq=False)
class _Hold:
    """One injection of a strike. done: whether it was tried; lease: None after that, if there was nothing to do."""

    place: str
    injection: Injection
    lease: Lease | None = None
    done: bool = False
    given_up: bool = False
    """Its injection missed the deadline: should it succeed after all, it is undone at once."""
    lock: Lock = field(default_factory=Lock)

    @property
    def idle(self) -> bool:
        """True if nothing was injected here, as there was nothing to do."""
        return self.done and self.lease is None


@dataclass(eq=False)
class ActiveStrike:
    """An active strike."""

    strike: Strike
    fault: Fault
    described: str
    holds: list[_Hold]
    healing_failed: bool = False

    @property
    def effects(self) -> list[Effect]:
        """The effects at all places where something was done or may have been done."""
        return [effect for hold in self.holds if not hold.idle for effect in hold.injection.effects]


class Nemesis:
    """The nemesis of a run, as the interpreter's client: it takes `inject` and `heal` ops and returns their
    completions.

        inject  `results.strikes.Strike.to_inject`      heal  `Strike.to_heal`
        skip    a strike whose event did not come

    Completions are `info`. Their value repeats `fault` and `id` and adds `nodes` (place -> what was done there) and
    `evidence` (place -> text); those of an inject also `effects` and `impairs` (`results.strikes`) and `seen`: whether
    the effect was there at one place at least. `error` names the places where it was not, or the failure.
    """

    def __init__(
        self,
        deployment: Deployment,
        fault: Callable[[Strike], Fault],
        view: Callable[[], ClusterView],
        limits: Limits = Limits(),
        words: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`fault` returns the fault of a strike, with its options, or raises PlanError. `view` returns the roles, when
        a fault strikes. `words`: `infra.systems.api.Topology.roles`, for people.
        """
        self._deployment, self._fault, self._view, self._limits, self._words = deployment, fault, view, limits, words
        self._serving = deployment.record.serving
        self._active: dict[int, ActiveStrike] = {}
        self._past: list[tuple[list[Effect], float]] = []
        self._stragglers: list[tuple[Future[Any], str]] = []
        self._late: list[str] = []
        self._one_at_a_time = Lock()
        self._conductor = ThreadPoolExecutor(2, thread_name_prefix="nemesis")
        # A thread that hangs on a dead node must not keep the others from being healed.
        self._hands = ThreadPoolExecutor(4 * max(1, len(deployment.nodes)), thread_name_prefix="fault")

    @property
    def active(self) -> list[str]:
        """The active strikes, for the live line: `hammer-time n4 (leader)`."""
        return [
            f"{one.fault.name} {one.described}{' (not healed)' * one.healing_failed}"
            for one in list(self._active.values())
        ]

    def explains_death(self, node: str, server: str, since: float) -> bool:
        """True if a strike that was active at or after `since` (of `time.monotonic`) ends or stops this server. No
        server has a reason to die of a link that is cut or slow, or of a slow disk.
        """
        past = [effects for effects, end in list(self._past) if end >= since]
        now = [[e for hold in one.holds for e in hold.injection.effects] for one in list(self._active.values())]
        return any(
            effect.node == node and effect.kind in _DEADLY and (not effect.servers or server in effect.servers)
            for effects in (*past, *now)
            for effect in effects
        )

    async def invoke(self, op: Op) -> Completion:
        """Executes an `inject`, `heal` or `skip` op. Raises only if it is cancelled."""
        try:
            strike = Strike.from_op(op.value)
            # A heal repeats no options: it ends what its strike has begun.
            fault = self._fault(strike) if op.f == "inject" else None
        except (ValueError, PlanError) as problem:
            return Completion(INFO, op.value, error=f"the nemesis does not know {op.f} of {op.value!r}: {problem}")
        given_up = Event()
        try:
            match op.f:
                case "heal":
                    return await self._conduct(lambda: self._heal(strike))
                case "inject" if fault is not None:
                    view = await self._known(strike)
                    return await self._conduct(lambda: self._inject(strike, fault, view, given_up))
                case "skip":
                    waited = isinstance(op.value, Mapping) and "after" in op.value
                    why = "its event did not occur" if waited else "its time was over before it could begin"
                    return Completion(INFO, op.value, error=f"{why}, so nothing was injected")
            return Completion(INFO, op.value, error=f"the nemesis does not know {op.f}")
        except asyncio.CancelledError:
            given_up.set()
            raise
        except Exception as problem:
            log.exception("the nemesis failed at %s", op.value)
            return Completion(INFO, op.value, error=_one_line(problem))

    async def heal_all(self) -> list[str]:
        """Ends all active strikes, the last one first. Returns those that it could not end, one line each. Idempotent.

        Waits for an injection that is under way.
        """
        return await self._conduct(self._heal_everything)

    async def _conduct(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._one_at_a_time:
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._conductor, alone)

    async def _known(self, strike: Strike) -> ClusterView:
        """Returns the present roles; for a strike at a role, waits at most `Limits.role_s` for a server to have it."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._limits.role_s
        role = is_role(strike.target)
        while (
            (view := self._view())
            and role
            and not nodes_with_role(strike.target, view, Random(0)).nodes
            and now() < deadline
        ):
            await asyncio.sleep(0.2)
        return view

    # What follows runs in the conductor's thread, one op at a time.

    def _inject(self, strike: Strike, fault: Fault, view: ClusterView, given_up: Event) -> Completion:
        value = strike.to_heal()
        nothing = {**value, "nodes": {}, "evidence": {}, "effects": [], "impairs": {}, "seen": False}
        if given_up.is_set():
            return Completion(INFO, nothing, error="interrupted before the injection")
        if strike.id in self._active:
            return Completion(INFO, nothing, error=f"strike {strike.id} is already active; nothing was injected")
        nodes = [node.name for node in (*self._deployment.nodes, *self._deployment.clients)]
        rng = Random(strike.seed)
        target = (
            nodes_with_role(strike.target, view, rng) if is_role(strike.target) else Target(strike.target.split(","))
        )
        if not target.nodes:
            return Completion(INFO, nothing, error=f"no {strike.target} is known, so nothing was injected")
        try:
            aimed = dict(fault.aim(view, target, rng))
        except NoTarget as why:
            return Completion(INFO, nothing, error=f"{why}, so nothing was injected")
        strangers = sorted({injection.node for injection in aimed.values()} - set(nodes))
        if strangers:
            return Completion(INFO, nothing, error=f"{fault.name} targets {', '.join(strangers)}: no such node")
        holds = [_Hold(place, injection) for place, injection in aimed.items()]
        described = fault.describe(list(aimed.values()), view.labels(self._words))
        active = ActiveStrike(strike, fault, described, holds)
        self._active[strike.id] = active
        ttl_s = strike.for_s + self._limits.lease_slack_s

        failed = self._everywhere(holds, lambda hold: self._take(fault, hold, ttl_s), self._limits.inject_s)[1]
        if failed:
            return self._take_back(active, failed)
        probed = self._probe(holds, lambda injection: injection.seen(self._deployment))
        unseen = [h.place for h in holds if not probed[h.place].seen and not h.idle]
        effects = active.effects
        value |= {
            "nodes": {hold.place: hold.injection.detail for hold in holds},
            "evidence": {place: evidence.what for place, evidence in probed.items()},
            "effects": [effect.to_json() for effect in effects],
            "impairs": impairs(effects, self._serving),
            "seen": any(evidence.seen for evidence in probed.values()),
        }
        error = "; ".join(f"no effect seen on {place}: {probed[place].what}" for place in unseen)
        return Completion(INFO, value, error=error or None)

    def _take_back(self, active: ActiveStrike, failed: Mapping[str, str]) -> Completion:
        """Undoes a strike that could not be injected everywhere: half a fault is not the planned fault."""
        for hold in active.holds:
            with hold.lock:
                hold.given_up = not hold.done
        evidence, problems = self._end(active)
        evidence |= {place: f"injection failed: {problem}" for place, problem in failed.items()}
        effects = [e for hold in active.holds for e in hold.injection.effects]
        if not problems and not any(effect.kind in LASTING for effect in effects):
            effects = []  # all of it is as it was; power that was cut stays cut, however the strike ended
        value = {
            **active.strike.to_heal(),
            "nodes": {hold.place: hold.injection.detail for hold in active.holds},
            "evidence": evidence,
            "effects": [effect.to_json() for effect in effects],
            "impairs": impairs(effects, self._serving),
            "seen": False,
        }
        where = "; ".join(f"{place}: {problem}" for place, problem in failed.items())
        left = f"and not all of it could be undone: {'; '.join(problems)}" if problems else "all of it was undone"
        return Completion(INFO, value, error=f"injection failed on {where}; {left}")

    def _heal(self, strike: Strike) -> Completion:
        value = strike.to_heal()
        active = self._active.get(strike.id)
        if active is None:
            return Completion(INFO, {**value, "nodes": {}, "evidence": {}, "note": "it was not in force"})
        value |= {"nodes": {hold.place: hold.injection.detail for hold in active.holds}}
        evidence, problems = self._end(active)
        value |= {"evidence": evidence, **_spells(active.holds)}
        return Completion(INFO, value, error="; ".join(problems) or None)

    def _heal_everything(self) -> list[str]:
        problems = [p for active in reversed(list(self._active.values())) for p in self._end(active)[1]]
        running = wait([future for future, _ in self._stragglers], self._limits.heal_s).not_done
        self._stragglers = [(future, text) for future, text in self._stragglers if future in running]
        late, self._late = self._late, []
        return problems + late + [f"{text} is still running; its lease will end it" for _, text in self._stragglers]

    def _end(self, active: ActiveStrike) -> tuple[dict[str, str], list[str]]:
        """Heals a strike. Returns place -> evidence, and the problems left after all attempts; without any it ends."""
        name = f"{active.fault.name} {active.strike.id}"
        evidence = {hold.place: "nothing was injected here" for hold in active.holds if hold.idle}
        deadline = time.monotonic() + self._limits.heal_s
        bad = [hold for hold in active.holds if hold.lease is not None]
        while True:
            left = max(0.1, deadline - time.monotonic())
            failed = self._everywhere(bad, partial(_let_go, timeout_s=left), left)[1]
            probed = self._probe(
                bad, lambda injection: injection.healed(self._deployment), max(0.1, deadline - time.monotonic())
            )
            evidence |= {place: found.what for place, found in probed.items()}
            bad = [hold for hold in bad if hold.place in failed or not probed[hold.place].seen]
            if not bad or time.monotonic() + self._limits.pause_s >= deadline:
                break
            time.sleep(self._limits.pause_s)
        problems = [f"{name} on {hold.place}: {failed.get(hold.place) or probed[hold.place].what}" for hold in bad]
        active.healing_failed = bool(problems)
        if not problems:
            self._past.append(([e for hold in active.holds for e in hold.injection.effects], time.monotonic()))
            self._active.pop(active.strike.id, None)
        for problem in problems:
            log.error("not healed: %s", problem)
        return evidence, problems

    def _take(self, fault: Fault, hold: _Hold, ttl_s: float) -> None:
        """Injects at one place, in its own thread; undoes it at once if it succeeds only after the deadline."""
        if hold.given_up:
            return
        lease = hold.injection.inject(self._deployment, ttl_s)
        with hold.lock:
            if not hold.given_up:
                hold.lease, hold.done = lease, True
                return
        if lease is None:
            return
        late = f"{fault.name}, injected too late on {hold.place}"
        try:
            lease.heal()
            healed = hold.injection.healed(self._deployment)
        except Exception as problem:
            self._late.append(f"{late}: {_one_line(problem)}")
        else:
            if not healed.seen:
                self._late.append(f"{late}: {healed.what}")

    def _probe(
        self, holds: Sequence[_Hold], probe: Callable[[Injection], Evidence], limit_s: float | None = None
    ) -> dict[str, Evidence]:
        """Place -> evidence; a probe that fails has seen nothing."""
        found, failed = self._everywhere(holds, lambda hold: probe(hold.injection), limit_s or self._limits.probe_s)
        return {h.place: found.get(h.place) or Evidence(False, f"the probe failed: {failed[h.place]}") for h in holds}

    def _everywhere(
        self, holds: Sequence[_Hold], work: Callable[[_Hold], T], limit_s: float
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Calls `work` at all places at the same time. Returns place -> result, and place -> problem for the others."""
        running: dict[str, Future[T]] = {hold.place: self._hands.submit(work, hold) for hold in holds}
        wait(running.values(), timeout=limit_s)
        found: dict[str, T] = {}
        failed: dict[str, str] = {}
        for name, future in running.items():
            if not future.done():
                if not future.cancel():
                    self._stragglers.append((future, f"work on {name} that had to end within {limit_s:.3g} s"))
                failed[name] = f"no answer within {limit_s:.3g} s"
            elif (problem := future.exception()) is not None:
                failed[name] = _one_line(problem)
            else:
                found[name] = future.result()
        return found, failed


def require_disposable(faults: Iterable[Fault]) -> None:
    """Raises PlanError if one of the faults is destructive: for machines that are not marked disposable."""
    names = sorted({fault.name for fault in faults if fault.destructive})
    if names:
        raise PlanError(
            f"{', '.join(names)} would stop servers or cut networks of machines that are not marked disposable; "
            "mark them with --disposable, or run with --nemesis none"
        )


def _let_go(hold: _Hold, timeout_s: float) -> None:
    if hold.lease is not None:
        hold.lease.heal(timeout_s)


def _spells(holds: Sequence[_Hold]) -> dict[str, Any]:
    """`spells` of a heal, if each place has reported some: an effect, and its begin and end in seconds before now."""
    told = [hold.injection.spells for hold in holds if not hold.idle]
    if not told or any(spells is None for spells in told):
        return {}
    now = time.monotonic()
    return {
        "spells": [
            {
                "effect": spell.effect.to_json(),
                "began_s": round(now - spell.begin_s, 3),
                "ended_s": 0.0 if spell.end_s is None else round(now - spell.end_s, 3),
            }
            for spells in told
            for spell in spells or ()
        ]
    }


def _one_line(problem: BaseException) -> str:
    """An error's text, in one line; preceded by its class unless it is an InfraError."""
    text = " ".join(str(problem).split())
    return text if isinstance(problem, InfraError) and text else f"{type(problem).__name__}: {text}".rstrip(": ")
