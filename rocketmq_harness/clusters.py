# SPDX-License-Identifier: Apache-2.0
"""A cluster of RocketMQ for a user's own clients, with the faults of the harness (docs/recording.md).

    with start_cluster(cluster="docker", nodes=3) as cluster, record("h.jsonl") as recorder:
        with cluster.fault("kill-random-processes", target="broker", recorder=recorder):
            my_test(cluster.name_servers, recorder)

Machines, servers, leases and probes are those of `harness run`. Only the clients and the judgement are the user's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from harness.api import Completion, Fault
from harness.nemesis.runner import Limits, Nemesis, require_disposable
from harness.nemesis.targets import resolve as nodes_of
from harness.observe.observer import Observer
from harness.parts.resolve import ResolvedPlan, resolve
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, ServerPlan
from harness.run import lifecycle
from harness.run.parts import Prepared
from harness.run.servers import READY_TIMEOUT_S
from infra.machines.api import ClusterSpec, InfraError
from infra.options import NoOptions, NotAvailable
from infra.systems import class_data
from infra.systems.api import Deployment, ServersRun
from results.op import INVOKE, NEMESIS, Op
from results.strikes import Strike
from rocketmq_harness.recording import Recorder

T = TypeVar("T")

LIMITS: Final = Limits()
"""Deadlines of injections and heals."""

_LIMIT_S: Final = 600.0
"""The longest fault: after that, its lease on the node ends it, whatever has become of this process."""


@contextmanager
def start_cluster(
    *,
    cluster: str = "auto",
    nodes: int = 3,
    topology: str | None = None,
    version: str | None = None,
    settings: Mapping[str, str] | None = None,
    faults: Sequence[str] = (),
) -> Iterator[RunningCluster]:
    """Starts machines and servers for the time of a block, and removes them.

    cluster   the backend: `docker`, `local`, ...; `auto`: the first that works here.
    topology  of the servers, version: of RocketMQ; None: the defaults of `harness run`.
    settings  of the servers: `{"broker.minInSyncReplicas": "2"}`.
    faults    names of faults that the block may inject. Some must be prepared before the servers start.

    Raises PlanError, SettingsError, NotAvailable or InfraError, each one line.
    """
    plan = planned(cluster, nodes, topology, version, settings or {}, faults)
    with on_machines(lifecycle.prepare(plan)) as found:
        yield found


def planned(
    cluster: str,
    nodes: int,
    topology: str | None,
    version: str | None,
    settings: Mapping[str, str],
    faults: Sequence[str],
) -> ResolvedPlan:
    """The plan of `harness run` whose servers and faults these are. Raises PlanError or SettingsError."""
    return resolve(
        Plan(
            seed=time.time_ns() % 2**31,
            cluster=ClusterPlan(cluster, nodes),
            server=ServerPlan(topology=topology, version=version, settings=settings),
            nemeses=tuple(map(NemesisPlan, faults)),
        )
    )


@contextmanager
def on_machines(prepared: Prepared) -> Iterator[RunningCluster]:
    """`start_cluster` for a plan that passed all checks."""
    backend, topology = prepared.backend, prepared.parts.topology
    options = prepared.parts.backend_options or getattr(backend, "Options", NoOptions)()
    shares = [*topology.shares(), *class_data.shares(backend, options, topology, lambda line: None)]
    spec = ClusterSpec(f"h{time.time_ns():x}", len(prepared.plan.nodes), shares, options=options)
    machines = backend.provision(spec)
    try:
        topology.attach(machines)
        found = RunningCluster(prepared, Deployment(machines, topology))
        for fault in prepared.parts.faults:
            found.make_ready(fault)
        topology.start_all(READY_TIMEOUT_S)
        with found:
            yield found
    finally:
        machines.destroy()


class RunningCluster:
    """A cluster whose servers run. Its methods may be called from any thread; faults are injected one after the other.

    deployment  its nodes and servers.
    """

    def __init__(self, prepared: Prepared, deployment: Deployment) -> None:
        self.deployment = deployment
        self._plan, self._faults = prepared.plan, prepared.parts.faults
        self._ready: list[Fault] = []
        self._striking: dict[int, Fault] = {}
        self._ids = count(1)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="cluster", daemon=True)
        began = time.monotonic_ns()
        self._observer = Observer(deployment, lambda: time.monotonic_ns() - began, lambda observation: None)
        self._nemesis = Nemesis(
            deployment,
            lambda strike: self._striking[strike.id],
            lambda: self._observer.view,
            LIMITS,
            words=deployment.topology.roles,
        )

    @property
    def name_servers(self) -> str:
        """The addresses for a client of RocketMQ: `198.18.0.2:9876;198.18.0.3:9876`."""
        return ";".join(f"{server.node.address}:{server.ports['namesrv']}" for server in self._having("namesrv"))

    @property
    def proxies(self) -> str:
        """The addresses for a client that speaks gRPC; empty without proxies."""
        return ";".join(f"{host}:{port}" for host, port in (server.endpoint for server in self._having("proxy")))

    @contextmanager
    def fault(
        self,
        name: str,
        *,
        target: str | None = None,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
        limit_s: float = _LIMIT_S,
    ) -> Iterator[Mapping[str, Any]]:
        """Injects a fault, and ends it with the block. The value names the nodes, and the evidence of the effect.

        name, target, options  as in `harness run --nemesis NAME --target TARGET` (docs/faults.md).
        recorder  its history shows the fault.
        limit_s   a lease on the node ends the fault after this time, whatever becomes of this process.

        Raises InfraError if no probe saw the effect, or if something is left of it at the end.
        """
        strike = self._strike(name, target, options or {}, limit_s)
        shown: AbstractContextManager[None] = nullcontext()
        if recorder is not None:
            shown = recorder.fault(name, strike.target)
        with shown:
            injected = self._invoke("inject", strike.to_inject())
            try:
                if not injected.value.get("seen"):
                    raise InfraError(f"{name}: no effect was seen: {injected.error or injected.value.get('evidence')}")
                yield injected.value
            finally:
                healed = self._invoke("heal", strike.to_heal())
        if healed.error:
            raise InfraError(f"{name} did not end: {healed.error}")

    @contextmanager
    def repeated(
        self,
        name: str,
        *,
        target: str | None = None,
        first_s: float = 1.0,
        every_s: float = 20.0,
        for_s: float = 10.0,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
    ) -> Iterator[None]:
        """Injects a fault again and again during the block: after `first_s`, then every `every_s`, each time for
        `for_s`. Raises InfraError at the end if it never had an effect, or if something is left of it.
        """
        over, problems, effects = threading.Event(), list[str](), 0

        def strike() -> None:
            nonlocal effects
            pause = first_s
            while not over.wait(pause):
                try:
                    with self.fault(name, target=target, options=options, recorder=recorder, limit_s=for_s):
                        effects += 1
                        over.wait(for_s)
                except Exception as problem:
                    problems.append(str(problem))
                pause = max(0.0, every_s - for_s)

        thread = threading.Thread(target=strike, name=f"nemesis {name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        left = next((problem for problem in problems if "did not end" in problem), None)
        if left is not None or not effects:
            raise InfraError(
                left or (problems or [f"{name}: the block ended before the first strike ({first_s:g} s)"])[0]
            )

    def make_ready(self, fault: Fault) -> Fault:
        """Prepares a fault. Returns the one that strikes: of equal ones, the first.

        Raises NotAvailable or InfraError.
        """
        for one in self._ready:
            if one.name == fault.name and one.options == fault.options:
                return one
        if not self.deployment.cluster.destructive:
            require_disposable([fault])
        why = fault.available(self.deployment)
        if why is not None:
            raise NotAvailable(f"the nemesis {fault.name!r} is not available here: {why}")
        try:
            fault.prepare(self.deployment)
        except ServersRun as problem:
            text = f"{fault.name} must be prepared before the servers start: name it in `faults` ({problem})"
            raise InfraError(text) from None
        self._ready.append(fault)
        return fault

    def _having(self, kind: str) -> list[Any]:
        return self.deployment.servers(kind=kind)

    def _strike(self, name: str, target: str | None, options: Mapping[str, Any], for_s: float) -> Strike:
        """A strike with nodes or a role as its target. Raises PlanError."""
        fault = self.make_ready(self._faults.of(name, options))
        number = next(self._ids)
        self._striking[number] = fault
        rng = Random(f"{self._plan.seed}/{number}")
        expression = (target or fault.default_target).strip()
        hit = nodes_of(expression, self._plan.nodes, rng, where=f"target of {name}")
        return Strike(number, fault.name, ",".join(hit) or expression, for_s, rng.getrandbits(32))

    def _invoke(self, f: str, value: Mapping[str, Any]) -> Completion:
        return self._call(self._nemesis.invoke(Op(0, 0, NEMESIS, INVOKE, f, value=value)))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _serve(self) -> None:
        asyncio.run(self._until_closed())

    async def _until_closed(self) -> None:
        """Observes the roles of the servers until the end of the block."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        watch = asyncio.create_task(self._observer.watch())
        await self._closing.wait()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    def __enter__(self) -> RunningCluster:
        self._thread.start()
        self._started.wait()
        self._call(self._observer.look())
        return self

    def __exit__(self, *_: object) -> None:
        left = self._call(self._nemesis.heal_all())
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        if left:
            raise InfraError(f"could not heal: {'; '.join(left)}")
