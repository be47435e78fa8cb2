"""The nemesis: carries out the strikes of the schedule, and sees to it that all of them end.

A strike is injected on its nodes in parallel, under leases that end it whatever becomes of this program. Then a probe
looks for the effect, and only then is the op done. A heal ends the leases, probes again, tries again, and says
loudly what it could not undo. No failure here ends a run: it becomes the `error` of the nemesis' op.

Node work blocks, so it happens in threads, every part of it with a deadline: a node that does not answer delays a
strike and is told of; it does not hang the run. What such a node does late is undone as soon as it is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Lock
from types import MappingProxyType
from typing import Any, TypeVar

import harness.generator as gen
from harness.api import Completion, Evidence, Fault, NoTarget, Nothing, Site
from harness.generator import Generator, Invocation
from harness.nemesis.schedule import Strike
from harness.nemesis.targets import ROLES
from harness.nemesis.view import Scene
from harness.plan.plan import Plan, PlanError
from infra.machines.api import Cluster, InfraError, Lease
from infra.systems.api import Topology
from results.op import INFO, Op

log = logging.getLogger("harness.faults")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds. An inject (with its probe, and its undoing when it failed) stays below two minutes."""

    inject_s: float = 30.0
    probe_s: float = 20.0
    heal_s: float = 50.0
    """For a heal with all its attempts."""
    pause_s: float = 1.0
    """Between two attempts to heal."""
    lease_slack_s: float = 60.0
    """A lease lasts so much longer than its strike: the schedule ends a strike, the lease only if nobody else does."""
    role_s: float = 8.0
    """How long a strike at a role waits for somebody to have it."""


@dataclass(eq=False)
class _Hold:
    """A strike's hold on one node."""

    site: Site
    detail: Any
    lease: Lease | None = None
    given_up: bool = False
    """Its injection missed the deadline: should it succeed after all, it is undone at once."""
    lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        return self.site.node.name


@dataclass(eq=False)
class _Force:
    """A strike in force."""

    id: int
    fault: Fault
    told: str
    holds: list[_Hold]
    downs: Mapping[str, Collection[str]]
    healing_failed: bool = False


class FaultRunner:
    """The nemesis of a run, as the interpreter's client: `inject` and `heal` ops in, what came of them out.

        inject  {"fault", "id", "target", "seed", "for_s"}     target: a role, or node names: `n1,n3`
        heal    {"fault", "id"}

    Completions are `info`. Their value repeats `fault` and `id` and adds `nodes` (node -> detail), `evidence`
    (node -> text); those of an inject also `impairs` (node -> peers not heard; itself: down) and `seen`: whether the
    effect was there on at least one node. `error` tells where it was not, or what failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        topology: Topology,
        faults: Mapping[str, Fault],
        scene: Callable[[], Scene],
        limits: Limits = Limits(),
        words: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`scene`: who is who, asked when a fault strikes; `words`: `infra.systems.api.Topology.roles`, for people.
        Raises PlanError where the cluster permits no such fault.
        """
        if not cluster.destructive:
            _refuse(faults.values())
        self._cluster, self._topology, self._scene, self._limits = cluster, topology, scene, limits
        self._words = words
        self._faults = {**faults, **{fault.name: fault for fault in faults.values()}}
        self._force: dict[int, _Force] = {}
        self._past: list[tuple[Mapping[str, Collection[str]], float]] = []
        self._stragglers: list[tuple[Future[Any], str]] = []
        self._late: list[str] = []
        self._one_at_a_time = Lock()
        self._conductor = ThreadPoolExecutor(2, thread_name_prefix="nemesis")
        # A thread that hangs on a dead node must not keep the others from being healed.
        self._hands = ThreadPoolExecutor(4 * max(1, len(cluster.nodes)), thread_name_prefix="fault")

    @property
    def active(self) -> list[str]:
        """What is in force now, for the live line: `hammer-time n4 (leader)`."""
        return [f"{f.fault.name} {f.told}{' (not healed)' * f.healing_failed}" for f in list(self._force.values())]

    def downed(self, node: str, server: str, since: float) -> bool:
        """Whether a strike that was in force at or after `since` (of `time.monotonic`) ends or stops this server."""
        past = [downs for downs, end in list(self._past) if end >= since]
        hit = [downs.get(node, ()) for downs in (*past, *(force.downs for force in list(self._force.values())))]
        return any(server in kinds or "*" in kinds for kinds in hit)

    async def invoke(self, op: Op) -> Completion:
        """Carry out an `inject` or a `heal` op. Never raises but when it is cancelled."""
        asked = op.value if isinstance(op.value, Mapping) else {}
        fault = self._faults.get(str(asked.get("fault")))
        if op.f not in ("inject", "heal") or fault is None or not isinstance(asked.get("id"), int):
            return Completion(INFO, op.value, error=f"the nemesis knows no {op.f} of {op.value!r}")
        given_up = Event()
        try:
            if op.f == "heal":
                return await self._conduct(lambda: self._heal(asked))
            scene = await self._known(asked)
            return await self._conduct(lambda: self._inject(asked, fault, scene, given_up))
        except asyncio.CancelledError:
            given_up.set()
            raise
        except Exception as problem:
            log.exception("the nemesis failed at %s", op.value)
            return Completion(INFO, op.value, error=_one_line(problem))

    async def heal_all(self) -> list[str]:
        """End everything in force, the last strike first; what could not be ended, one line each. Idempotent.

        Waits for an injection that is under way.
        """
        return await self._conduct(self._heal_everything)

    async def _conduct(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._one_at_a_time:
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._conductor, alone)

    async def _known(self, asked: Mapping[str, Any]) -> Scene:
        """Who is who now; a strike that aims at a role waits a moment for somebody to have it."""
        role = _role(asked)
        now = asyncio.get_running_loop().time
        deadline = now() + self._limits.role_s
        while (scene := self._scene()) and role and not scene.cast(role, Random(0)) and now() < deadline:
            await asyncio.sleep(0.2)
        return scene

    # What follows runs in the conductor's thread, one op at a time.

    def _inject(self, asked: Mapping[str, Any], fault: Fault, scene: Scene, given_up: Event) -> Completion:
        value = {"fault": fault.name, "id": asked["id"]}
        nothing = {**value, "nodes": {}, "evidence": {}, "impairs": {}, "seen": False}
        if given_up.is_set():
            return Completion(INFO, nothing, error="broken off before anything was injected")
        if asked["id"] in self._force:
            return Completion(INFO, nothing, error=f"strike {asked['id']} is in force already; nothing was injected")
        nodes = [node.name for node in self._cluster.nodes]
        role, rng = _role(asked), Random(asked.get("seed", 0))
        hit = scene.cast(role, rng) if role else str(asked.get("target", "")).split(",")
        if not hit:
            return Completion(INFO, nothing, error=f"no {role} is known, so nothing was struck")
        try:
            details = dict(fault.aim_at(scene, hit, role, rng))
        except NoTarget as why:
            return Completion(INFO, nothing, error=f"{why}, so nothing was struck")
        strangers = [name for name in details if name not in nodes]
        if strangers:
            return Completion(INFO, nothing, error=f"{fault.name} aims at {', '.join(strangers)}: no such node")
        sites = {n.name: Site(n, self._topology, self._cluster) for n in self._cluster.nodes if n.name in details}
        holds = [_Hold(sites[name], detail) for name, detail in details.items()]
        told = fault.told(details, scene.labels(self._words))
        force = _Force(asked["id"], fault, told, holds, fault.downs(nodes, details))
        self._force[force.id] = force
        ttl_s = float(asked.get("for_s", 0)) + self._limits.lease_slack_s

        failed = self._everywhere(holds, lambda hold: self._take(fault, hold, ttl_s), self._limits.inject_s)[1]
        if failed:
            return self._take_back(force, failed, nodes)
        probed = self._probe(holds, fault.seen)
        unseen = [h.name for h in holds if not probed[h.name].seen and not isinstance(h.lease, Nothing)]
        done = {h.name: h.detail for h in holds if not isinstance(h.lease, Nothing)}
        value |= {
            "nodes": details,
            "evidence": {name: evidence.what for name, evidence in probed.items()},
            "impairs": {node: list(peers) for node, peers in fault.impairs(nodes, done).items()},
            "seen": any(evidence.seen for evidence in probed.values()),
        }
        error = "; ".join(f"no effect seen on {name}: {probed[name].what}" for name in unseen)
        return Completion(INFO, value, error=error or None)

    def _take_back(self, force: _Force, failed: Mapping[str, str], nodes: Sequence[str]) -> Completion:
        """Undo a strike that could not be injected everywhere: half a fault is not the fault that was planned."""
        for hold in force.holds:
            with hold.lock:
                hold.given_up = hold.lease is None
        evidence, problems = self._end(force)
        evidence |= {name: f"injection failed: {problem}" for name, problem in failed.items()}
        details = {hold.name: hold.detail for hold in force.holds}
        value = {
            "fault": force.fault.name,
            "id": force.id,
            "nodes": details,
            "evidence": evidence,
            "impairs": force.fault.impairs(nodes, details) if problems else {},
            "seen": False,
        }
        told = "; ".join(f"{name}: {problem}" for name, problem in failed.items())
        left = f"and not all of it could be undone: {'; '.join(problems)}" if problems else "nothing is left of it"
        return Completion(INFO, value, error=f"injection failed on {told}; {left}")

    def _heal(self, asked: Mapping[str, Any]) -> Completion:
        value = {"fault": asked["fault"], "id": asked["id"]}
        force = self._force.get(asked["id"])
        if force is None:
            return Completion(INFO, {**value, "nodes": {}, "evidence": {}, "note": "it was not in force"})
        value |= {"nodes": {hold.name: hold.detail for hold in force.holds}}
        evidence, problems = self._end(force)
        return Completion(INFO, {**value, "evidence": evidence}, error="; ".join(problems) or None)

    def _heal_everything(self) -> list[str]:
        problems = [p for force in reversed(list(self._force.values())) for p in self._end(force)[1]]
        running = wait([future for future, _ in self._stragglers], self._limits.heal_s).not_done
        self._stragglers = [(future, told) for future, told in self._stragglers if future in running]
        late, self._late = self._late, []
        return problems + late + [f"{told} is still under way; its lease will end it" for _, told in self._stragglers]

    def _end(self, force: _Force) -> tuple[dict[str, str], list[str]]:
        """Heal a strike: node -> evidence, and the problems left after all attempts. Without any it is over."""
        evidence = {hold.name: "nothing was done here" for hold in force.holds if isinstance(hold.lease, Nothing)}
        deadline = time.monotonic() + self._limits.heal_s
        bad = [hold for hold in force.holds if hold.lease is not None and not isinstance(hold.lease, Nothing)]
        while True:
            left = max(0.1, deadline - time.monotonic())
            failed = self._everywhere(bad, partial(_let_go, timeout_s=left), left)[1]
            probed = self._probe(bad, force.fault.healed, max(0.1, deadline - time.monotonic()))
            evidence |= {name: found.what for name, found in probed.items()}
            bad = [hold for hold in bad if hold.name in failed or not probed[hold.name].seen]
            if not bad or time.monotonic() + self._limits.pause_s >= deadline:
                break
            time.sleep(self._limits.pause_s)
        problems = [
            f"{force.fault.name} {force.id} on {hold.name}: {failed.get(hold.name) or probed[hold.name].what}"
            for hold in bad
        ]
        force.healing_failed = bool(problems)
        if not problems:
            self._past.append((force.downs, time.monotonic()))
            self._force.pop(force.id, None)
        for problem in problems:
            log.error("not healed: %s", problem)
        return evidence, problems

    def _take(self, fault: Fault, hold: _Hold, ttl_s: float) -> None:
        """Inject on one node, in a thread of its own; undone at once when nobody waits for it any more."""
        if hold.given_up:
            return
        lease = fault.inject(hold.site, hold.detail, ttl_s)
        with hold.lock:
            if not hold.given_up:
                hold.lease = lease
                return
        told = f"{fault.name}, injected too late on {hold.name}"
        try:
            lease.heal()
            healed = fault.healed(hold.site, hold.detail)
        except Exception as problem:
            self._late.append(f"{told}: {_one_line(problem)}")
        else:
            if not healed.seen:
                self._late.append(f"{told}: {healed.what}")

    def _probe(
        self, holds: Sequence[_Hold], probe: Callable[[Site, Any], Evidence], limit_s: float | None = None
    ) -> dict[str, Evidence]:
        """Node -> evidence; a probe that fails has seen nothing."""
        found, failed = self._everywhere(
            holds, lambda hold: probe(hold.site, hold.detail), limit_s or self._limits.probe_s
        )
        return {h.name: found.get(h.name) or Evidence(False, f"the probe failed: {failed[h.name]}") for h in holds}

    def _everywhere(
        self, holds: Sequence[_Hold], work: Callable[[_Hold], T], limit_s: float
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Do it on all nodes at the same time: node -> result, and node -> problem for the others."""
        running: dict[str, Future[T]] = {hold.name: self._hands.submit(work, hold) for hold in holds}
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


def generator(found: Iterable[Strike]) -> Generator:
    """The schedule as the nemesis' ops, timed from the start of the phase. A heal goes before an inject of its time."""
    ops: list[tuple[float, int, Invocation]] = []
    for strike in found:
        value = {"fault": strike.fault, "id": strike.id}
        more = {"target": strike.target, "seed": strike.seed, "for_s": round(strike.end_s - strike.start_s, 3)}
        ops.append((strike.start_s, 1, Invocation("inject", value={**value, **more})))
        ops.append((strike.end_s, 0, Invocation("heal", value=value)))
    ops.sort(key=lambda entry: entry[:2])
    return gen.nemesis(gen.script([(at, invocation) for at, _, invocation in ops]))


def _role(asked: Mapping[str, Any]) -> str | None:
    target = asked.get("target")
    return target if target in ROLES else None


def refuse_if_not_disposable(plan: Plan, faults: Mapping[str, Fault], backend: str) -> None:
    """Raise PlanError for destructive faults on existing machines that are not marked disposable."""
    if backend == "ssh" and not plan.cluster.disposable:
        _refuse(faults.values())


def _refuse(faults: Iterable[Fault]) -> None:
    names = sorted({fault.name for fault in faults if fault.destructive})
    if names:
        raise PlanError(
            f"{', '.join(names)} would stop servers or cut networks of machines that are not marked disposable; "
            "mark them with --disposable, or run with --nemesis none"
        )


def _let_go(hold: _Hold, timeout_s: float) -> None:
    if hold.lease is not None:
        hold.lease.heal(timeout_s)


def _one_line(problem: BaseException) -> str:
    """What an error says, in one line; the kind of one that is not ours as well."""
    text = " ".join(str(problem).split())
    return text if isinstance(problem, InfraError) and text else f"{type(problem).__name__}: {text}".rstrip(": ")
