"""One run, end to end (design.md, section 1).

plan -> cluster up -> topology deployed -> main phase -> recovery phase -> restart -> final phase -> logs collected ->
history sealed -> verdict -> report -> teardown. Nothing after the main phase may lose what came before it: the journal
is on disk while the run goes, logs are fetched and the verdict is written before anything is torn down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import harness.generator as gen
from harness.api import Completion, Context, Fault, Workload
from harness.check.judging import BEGUN, COMPLETE, judge_run, write_results
from harness.cli import signals
from harness.generator import Generator, Invocation
from harness.nemesis.runner import FaultRunner, refuse_if_not_disposable
from harness.nemesis.runner import generator as fault_generator
from harness.nemesis.schedule import strikes
from harness.nemesis.targets import ROLES
from harness.nemesis.view import Scene
from harness.observe.observer import Observer
from harness.observe.own_machine import watch_own_machine
from harness.observe.process_monitor import Watch
from harness.plan import registry
from harness.plan import resolve as choices
from harness.plan import reuse as reusing
from harness.plan.plan import Plan, PlanError
from harness.run import environment
from harness.run.interpreter import Interpreter
from harness.run.live import Live
from harness.run.servers import READY_TIMEOUT_S, collect, restart_all, stop_all
from infra.machines.api import Backend, Cluster, ClusterSpec, InfraError
from infra.machines.cpu_share import Priority
from infra.machines.pressure import start_probes
from infra.systems.api import Topology
from results.durable import write_text
from results.journal import Journal
from results.observations import ObservationLog
from results.op import SERVER_DIED, Op
from results.store import RunDir, Store
from results.verdict import Judgement

log = logging.getLogger("harness")

SETTLE_S = 5.0
"""Load goes on at least this long after the last heal: what returns may do harm only then."""

FINAL_LIMIT_S = 120.0

_GOES_ON: Final = "interrupted: the logs are fetched and the run is judged all the same; once more ends that"


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    folder: RunDir
    judgement: Judgement
    seconds: float
    unhealed: bool = False
    """Whether a fault is left on the cluster."""


@dataclass(frozen=True)
class Prepared:
    """Everything that can be wrong in a plan was looked at; nothing has been started yet."""

    plan: Plan
    workload: Workload
    faults: dict[str, Fault]
    backend: Backend
    topology: Topology
    keep: bool = False
    """Leave the cluster running at the end."""
    reuse: str | None = None
    """The run id of a kept cluster to run on; it stays kept."""


def prepare(plan: Plan, *, keep: bool = False, reuse: str | None = None) -> Prepared:
    """Resolve the plan's names and check what can be checked without a machine. Raises PlanError or InfraError."""
    plan = choices.decided(plan)
    workload, faults, topology = check(plan, keep=keep, reuse=reuse)
    backend = registry.backend(plan.cluster.backend)
    can = registry.probe(backend)
    if not can.ok:
        raise InfraError(f"cluster {backend.name}: {registry.told(can)}")
    return Prepared(plan, workload, faults, backend, topology, keep, reuse)


def check(plan: Plan, *, keep: bool = False, reuse: str | None = None) -> tuple[Workload, dict[str, Fault], Topology]:
    """What a decided plan names, or why it cannot be: PlanError, SettingsError. Looks at no machine, starts nothing.

    Settings of the user's are put to the servers' own code, which fetches it (InfraError) where it is not here yet.
    """
    workload = registry.workload(plan)
    faults = {n.fault: registry.fault(n.fault) for n in plan.nemeses}
    strikes(plan, faults)  # a wrong target is told now, not after the cluster is up
    if keep or reuse:
        reusing.check(plan, workload)
    registry.insist_on_backend(plan.cluster.backend)
    refuse_if_not_disposable(plan, faults, plan.cluster.backend)
    _check_machines(plan)
    topology = choices.make_topology(plan, workload)
    topology.fits([f"n{i}" for i in range(1, plan.cluster.nodes + 1)])
    if plan.server.settings:
        topology.shares()
    return workload, faults, topology


def _check_machines(plan: Plan) -> None:
    """Raise PlanError where the machines that are named do not fit the rest of the plan."""
    backend, named, nodes = plan.cluster.backend, len(plan.cluster.hosts), plan.cluster.nodes
    if named and backend in ("auto", *registry.OWN_MACHINES):
        raise PlanError(f"--cluster {backend} makes its own machines; --node names some, which is for --cluster ssh")
    if backend == "ssh" and not named:
        raise PlanError("--cluster ssh needs machines: name each with --node [user@]host[:port]")
    if backend == "ssh" and named != nodes:
        raise PlanError(f"nodes is {nodes}, but {named} machines are named; one --node for each is right")


def _check_roles(plan: Plan, scene: Scene) -> None:
    """Raise PlanError where a nemesis aims at a role that nobody here can have."""
    for nemesis in plan.nemeses:
        why = scene.lacks(nemesis.target) if nemesis.target in ROLES else None
        if why:
            raise PlanError(f"target of {nemesis.fault}: nobody is {nemesis.target!r} here; {why}")


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run(
    prepared: Prepared, store: Store, say: Callable[[str], None], loop_factory: LoopFactory | None = None
) -> Outcome:
    """Run the plan. Raises InfraError or StoreError for what broke before there was a history to judge.

    `loop_factory` makes the event loop whose clock the run goes by (tests: `harness.run.virtual_time`).
    """
    began = time.monotonic()
    plan = prepared.plan
    folder = store.create(plan.label, plan.to_toml(), datetime.now())
    priority = Priority()
    with _log_into(folder.log), contextlib.closing(priority):
        priority.take()
        log.info("plan %s, seed %d, folder %s", plan.digest, plan.seed, folder.path)
        shares = prepared.topology.shares()
        spec = ClusterSpec(
            run_id=prepared.reuse or f"h{time.time_ns():x}",
            nodes=plan.cluster.nodes,
            shares=shares,
            control_log=folder.control,
            hosts=plan.cluster.hosts,
            ssh_key=Path(plan.cluster.ssh_key) if plan.cluster.ssh_key else None,
            base_image=plan.cluster.base_image,
            install=plan.cluster.install,
            disposable=plan.cluster.disposable,
        )
        cluster = prepared.backend.reuse(spec) if prepared.reuse else prepared.backend.provision(spec)
        outcome: Outcome | None = None
        try:
            outcome = _on_cluster(prepared, cluster, folder, say, priority, began, loop_factory)
        finally:
            # A second Ctrl-C must not leave half a cluster behind.
            with signals.ignored():
                if prepared.keep and outcome is not None and not outcome.unhealed:
                    cluster.keep(plan.to_toml())
                    say(reusing.told(cluster.run_id))
                else:
                    _tear_down(cluster, outcome)
        return outcome


def _tear_down(cluster: Cluster, outcome: Outcome | None) -> None:
    """Raises InfraError, which says as well what the run had come to before."""
    try:
        cluster.destroy()
    except InfraError as problem:
        if outcome is None:
            raise
        verdict, report = outcome.judgement.verdict.value, outcome.folder.report
        raise InfraError(f"the run ended {verdict} ({report}), but its machines: {problem}") from problem


def _on_cluster(
    prepared: Prepared,
    cluster: Cluster,
    folder: RunDir,
    say: Callable[[str], None],
    priority: Priority,
    began: float,
    loop_factory: LoopFactory | None,
) -> Outcome:
    topology = prepared.topology
    topology.attach(cluster)
    _check_roles(prepared.plan, Scene.of(topology, cluster.nodes))
    about = environment.describe(
        plan=prepared.plan.digest,
        run_id=cluster.run_id,
        **cluster.facts,
        **topology.versions(),
        permits=json.dumps({**topology.permits(), **prepared.workload.permits()}),
    )
    write_text(folder.environment, json.dumps(about, indent=2), "the environment")
    started = time.monotonic()
    try:
        topology.start_all(READY_TIMEOUT_S)
    except BaseException:
        collect(topology, cluster.nodes, folder)
        raise
    about["ready_s"] = f"{time.monotonic() - started:.1f}"
    start_probes(cluster.nodes)
    version = topology.versions().get(topology.name, "")
    names = f"{cluster.nodes[0].name}..{cluster.nodes[-1].name}"
    say(
        f"cluster   {cluster.backend}, {names}, {topology.name} {version}, servers ready in {about['ready_s']} s, "
        f"first op {time.monotonic() - began:.1f} s after the command    plan {prepared.plan.digest}"
    )
    session = _Session(prepared, cluster, folder, about, say)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(session.run())
    except BaseException as problem:
        if not (session.complete and isinstance(problem, signals.Stopped)):
            with signals.ignored():
                collect(topology, cluster.nodes, folder)
            raise
        session.stopping = True  # while the loop was closed
        say(_GOES_ON)
    # One Ctrl-C must not cost the evidence from here on; the next ends the judging, and the journal is there.
    with signals.deferred(lambda: say(_GOES_ON), announced=session.stopping):
        try:
            if prepared.plan.ground_truth and not session.stopping:
                session.read_ground_truth()
        finally:
            lost = collect(topology, cluster.nodes, folder)
        if lost:
            about["lost_nodes"] = "; ".join(lost.values())
            write_text(folder.environment, json.dumps(about, indent=2), "the environment")
        priority.close()  # nothing waits for the judging
        record = folder.load()
        folder.seal(record)
        judgement = judge_run(record, prepared.workload)
        seconds = time.monotonic() - began
        write_results(folder, record, judgement, seconds)
    return Outcome(folder, judgement, seconds, bool(session.unhealed))


class _Session:
    """The part of a run during which clients talk to servers."""

    def __init__(
        self, prepared: Prepared, cluster: Cluster, folder: RunDir, about: dict[str, str], say: Callable[[str], None]
    ) -> None:
        self.plan, self.workload, self.topology = prepared.plan, prepared.workload, prepared.topology
        self.cluster, self.folder, self.about, self.say = cluster, folder, about, say
        self.context = Context(cluster, self.topology, format(time.time_ns() // 1_000_000, "x"))
        self.keys: dict[str, None] = {}
        self.stopping = False
        self.complete = False
        """Whether the journal has all that happened, and the environment how the run ended."""
        self.unhealed: list[str] = []
        self.observer: Observer
        self.faults_by_name = prepared.faults

    async def run(self) -> None:
        """All phases. The journal is complete and closed in any case; the environment says how the run ended."""
        context = self.context
        await self.workload.setup(context)
        nodes = self.cluster.nodes
        words = self.topology.roles
        runner = FaultRunner(self.cluster, self.topology, self.faults_by_name, lambda: self.observer.scene, words=words)
        self.runner = runner
        journal = Journal(self.folder.journal)
        observations = ObservationLog(self.folder.observations)
        interpreter = Interpreter(
            concurrency=self.plan.concurrency,
            client=lambda thread: self.workload.client(context, thread),
            nemesis=self,
            journal=journal.append,
            # A client ends its own op at the deadline; the interpreter ends only one that does not.
            deadline_s=self.plan.op_deadline_s + 0.5,
            on_event=self._on_event,
        )
        self.interpreter = interpreter
        self.observer = Observer(self.topology, nodes, interpreter.now, observations.append)
        self.live = Live(
            interpreter.now,
            lambda: runner.active,
            lambda: (self.observer.leaders, self.observer.term),
            words.get("leader", "leader"),
        )
        self.watch = Watch(self.topology, nodes, runner.downed, lambda said: interpreter.event(SERVER_DIED, said))
        self.about["phases"] = BEGUN
        self.about["started_at"] = datetime.now(UTC).isoformat(timespec="microseconds")
        write_text(self.folder.environment, json.dumps(self.about, indent=2), "the environment")
        watching = self.observer.watch(), self.live.show(), self.watch.watch(), watch_own_machine(self.folder.machine)
        watchers = [asyncio.create_task(w) for w in watching]
        with signals.forwarded(asyncio.get_running_loop(), self._interrupt):
            try:
                await self._phases()
            finally:
                await self._heal()
                for watcher in watchers:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)
                await interpreter.close()
                journal.close()
                observations.close()
                self._write_end()
        self.complete = True

    def _write_end(self) -> None:
        """Whoever judges this run later must know how it ended."""
        if self.stopping:
            self.about["interrupted"] = "broken off by the user"
        if self.unhealed:
            self.about["unhealed"] = "; ".join(self.unhealed)
        write_text(self.folder.environment, json.dumps(self.about, indent=2), "the environment")

    def read_ground_truth(self) -> None:
        """Stop every server in an orderly way and let the workload read their files. What fails is told in the
        environment: no ground truth is no verdict.
        """
        self.say(" stop everything, then read the servers' files")
        try:
            stop_all(self.topology, self.cluster.nodes)
            self.workload.ground_truth(self.context, self.folder.path)
        except (InfraError, OSError) as problem:
            log.error("ground truth: %s", problem)
            self.say(f"no ground truth: {problem}")
            self.about["ground_truth"] = f"not read: {problem}"
            write_text(self.folder.environment, json.dumps(self.about, indent=2), "the environment")

    async def _heal(self) -> None:
        self.unhealed = await self.runner.heal_all()
        for problem in self.unhealed:
            log.error("heal: %s", problem)
            self.say(f"could not heal: {problem}")

    async def invoke(self, op: Op) -> Completion:
        """The nemesis: faults, and the restart of everything before the final reads."""
        if op.f != "restart-all":
            return await self.runner.invoke(op)
        self.watch.pause()
        try:
            await asyncio.to_thread(restart_all, self.topology, self.cluster.nodes)
        except InfraError as problem:
            return Completion("info", op.value, error=str(problem))
        finally:
            self.watch.resume()
        return Completion("info", op.value)

    async def _phases(self) -> None:
        plan, interpreter = self.plan, self.interpreter
        found = strikes(plan, self.faults_by_name)
        await interpreter.run(gen.any_(self._load("main", plan.time_limit_s), fault_generator(found)), "main")
        if self.stopping:
            return
        await self._heal()
        await interpreter.run(self._load("recovery", SETTLE_S), "recovery")
        # The load goes on until it is served and every follower is fed; who is not by the limit is judged for it.
        recovered = gen.until(self._recovered, self._load("recovery", plan.recovery_limit_s, part=2))
        if not self.stopping:
            await interpreter.run(recovered, "recovery")
        if self.stopping:
            return
        self.live.wipe()
        if self.workload.restart_before_final:
            self.say(" restart everything, then the final reads, also from each replica")
            await interpreter.run(gen.nemesis(Invocation("restart-all")), "final")
        else:
            self.say(" wait until every replica has caught up, then the final reads, also from each replica")
        if not await self.observer.caught_up(plan.recovery_limit_s, lambda: self.stopping):
            log.warning("not every replica caught up within %g s: the final reads begin", plan.recovery_limit_s)
        reads = self.workload.final(list(self.keys), [n.name for n in self.cluster.nodes])
        await interpreter.run(gen.time_limit(FINAL_LIMIT_S, reads), "final")
        self.about["phases"] = COMPLETE

    def _load(self, phase: str, seconds: float, part: int = 1) -> Generator:
        rng = self.plan.rng(f"generator/{phase}/{part}")
        ops = self.workload.generator(rng, phase if part == 1 else f"{phase}-{part}")
        return gen.clients(
            gen.time_limit(seconds, gen.rate(self.plan.rate or self.workload.default_rate, ops, rng=rng))
        )

    def _recovered(self, op: Op) -> bool:
        return self.workload.acknowledges(op) and self.observer.all_follow

    def _on_event(self, op: Op) -> None:
        self.live.on_event(op)
        if op.is_client and op.key is not None and op.type == "invoke":
            self.keys[op.key] = None
        elif op.process < 0:
            log.info("nemesis %s %s %s %s", op.type, op.f, op.value, op.error or "")

    def _interrupt(self) -> None:
        """A stop signal: stop asking, heal, keep the evidence, judge what there is."""
        if self.stopping:
            return
        self.stopping = True
        self.live.wipe()
        self.say("interrupted: healing, collecting and judging what there is (the journal is on disk)")
        self.interpreter.stop()


class _Log(logging.FileHandler):
    """A log that a full disk silences: that the disk is full is told by the journal, in one line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the line out; logging's own way is a traceback on stderr for each."""


@contextlib.contextmanager
def _log_into(path: Path) -> Iterator[None]:
    handler = _Log(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    logging.getLogger("paramiko").setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        with contextlib.suppress(OSError):  # the last lines found no room
            handler.close()


__all__ = ["Outcome", "Prepared", "prepare", "run"]
