# SPDX-License-Identifier: Apache-2.0
"""One run from start to end (design.md, section 1).

plan -> cluster up -> servers deployed -> phases (`harness.run.phases`) -> logs collected -> history sealed -> verdict
-> report -> teardown. Each step is a resource inside the previous one. No step after the main phase may lose earlier
results: the journal is on disk during the run, and the logs are fetched and the verdict is written before the teardown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from harness import signals
from harness.api import Workload
from harness.check.summary import Outcome
from harness.nemesis.effective import write_effective
from harness.nemesis.runner import require_disposable
from harness.nemesis.schedule import strikes
from harness.parts import registry, resolve
from harness.parts import reuse as reusing
from harness.parts.resolve import ResolvedPlan
from harness.plan.plan import Plan, PlanError
from harness.run.environment import Environment, describe
from harness.run.parts import Parts, Prepared, Run, Say
from harness.run.phases import usual_phases
from harness.run.servers import READY_TIMEOUT_S, collect, stop_all
from harness.run.session import Session
from infra.machines.api import Backend, Cluster, ClusterSpec, InfraError, Share
from infra.machines.cpu_share import Priority
from infra.machines.pressure import start_probes
from infra.options import NoOptions, NotAvailable
from infra.systems import class_data
from infra.systems.api import Deployment, ServersRun, Topology
from results.deployment import to_text
from results.durable import write_text
from results.permission import to_json
from results.store import RunDir, Store

log = logging.getLogger("harness")

_GOES_ON: Final = "interrupted: fetching the logs and checking the history; interrupt again to stop that"

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def prepare(
    plan: ResolvedPlan,
    *,
    keep: bool = False,
    reuse: str | None = None,
    keep_journal: bool = False,
    end_early: Set[str] | None = None,
) -> Prepared:
    """Makes all checks that need no machine, and finds the backend. Raises PlanError or InfraError."""
    parts = check(plan, keep=keep, reuse=reuse)
    backend = registry.backend(plan.cluster.backend)
    can = registry.probe(backend)
    if not can.ok:
        raise InfraError(f"cluster {backend.name}: {registry.describe(can)}")
    return Prepared(plan, parts, backend, keep, reuse, keep_journal, end_early)


def check(plan: ResolvedPlan, *, keep: bool = False, reuse: str | None = None) -> Parts:
    """Returns the parts of a plan, or raises PlanError or SettingsError. Looks at no machine, starts nothing.

    The user's settings are checked by the servers' own code, which is fetched (InfraError) if it is not here yet.
    """
    chosen = plan.chosen
    workload: Workload = chosen.workload.cls(plan)
    faults = registry.FaultSet()
    named = [faults.add(fault.make(), one.options) for fault, one in zip(chosen.faults, plan.planned, strict=True)]
    found = strikes(plan, named)  # a wrong target is reported now, not after the cluster is up
    resolve.check_targets(plan, named)
    vain = next((fault.name for fault in faults if fault.at_applications and not workload.client_nodes), None)
    if vain is not None:
        raise PlanError(f"{vain} strikes programs of applications; the workload {plan.workload!r} has none with these "
                        "options; --workload consume is right")  # fmt: skip
    if keep or reuse:
        reusing.check(plan, workload)
    if chosen.backend is not None:
        backend: Backend = chosen.backend.plugin.cls()
        backend.check(chosen.backend.options, len(plan.nodes), any(fault.destructive for fault in faults))
        if workload.client_nodes and not backend.makes_clients:
            raise PlanError(
                f"workload {plan.workload!r} needs machines for its clients, and --cluster {backend.name} makes none; "
                "--cluster docker or local is right"
            )
    versions = [version for fault in faults for version in fault.versions()]
    topology = resolve.make_topology(plan, workload, versions)
    topology.fits(plan.nodes)
    if plan.server.settings or (plan.server.jars and plan.server.mends):
        topology.shares()
    return Parts(workload, faults, found, topology, chosen.backend.options if chosen.backend is not None else None)


def run(prepared: Prepared, store: Store, say: Say, loop_factory: LoopFactory | None = None) -> Outcome:
    """Runs the plan. Raises InfraError or StoreError for a failure before any history exists to judge.

    `loop_factory` makes the event loop with the clock of the run (tests: `harness.run.virtual_time`).
    """
    began = time.monotonic()
    plan, parts = prepared.plan, prepared.parts
    folder = store.create(plan.label, plan.to_toml(), datetime.now())
    priority = Priority()
    with folder.held(), _log_into(folder.log), contextlib.closing(priority):
        priority.take()
        log.info("plan %s, seed %d, folder %s", plan.digest, plan.seed, folder.path)
        # (Not `versions`: for these, a topology fetches its servers.)
        system = f"{parts.topology.name} {plan.server.version or ''}".strip()
        say(f"starting  {_names(plan.nodes)} ({prepared.backend.name}) for {system}")
        with _cluster(prepared, folder, say) as held:
            parts.topology.attach(held.cluster)
            deployment = Deployment(held.cluster, parts.topology)
            environment = Environment(folder.environment, _about(plan, deployment))
            held.outcome = _on_cluster(
                Run(
                    plan,
                    parts,
                    deployment,
                    folder,
                    environment,
                    say,
                    began,
                    prepared.keep_journal,
                    prepared.end_early,
                ),
                priority,
                loop_factory,
            )
        return held.outcome


def _names(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}"


def _system(topology: Topology) -> str:
    return f"{topology.name} {topology.versions().get(topology.name, '')}".strip()


def _about(plan: Plan, deployment: Deployment) -> dict[str, str]:
    """The facts about a run before its servers start."""
    cluster, topology, client = deployment.cluster, deployment.topology, resolve.make_client(plan)
    return describe(
        plan=plan.digest,
        run_id=cluster.run_id,
        **cluster.facts,
        **topology.versions(),
        permits=json.dumps({**to_json(topology.permits()), **(client.permits if client is not None else {})}),
        permits_after=json.dumps({kind: to_json(named) for kind, named in topology.permits_after().items()}),
    )


@dataclass
class _Held:
    """A cluster of this run, and the run's outcome."""

    cluster: Cluster
    outcome: Outcome | None = None


@contextlib.contextmanager
def _cluster(prepared: Prepared, folder: RunDir, say: Say) -> Iterator[_Held]:
    """Machines for the run. At the end they are kept, if requested and no fault is left on them, or removed."""
    plan, topology = prepared.plan, prepared.parts.topology
    options = prepared.parts.backend_options or getattr(prepared.backend, "Options", NoOptions)()
    shares = [*topology.shares(), *prepared.parts.workload.shares()]
    if not prepared.reuse:
        shares += class_data.shares(prepared.backend, options, topology, say)
    spec = ClusterSpec(
        run_id=prepared.reuse or f"h{time.time_ns():x}",
        nodes=len(plan.nodes),
        clients=prepared.parts.workload.client_nodes,
        shares=shares,
        control_log=folder.control,
        options=options,
    )
    held = _Held(prepared.backend.reuse(spec) if prepared.reuse else prepared.backend.provision(spec))
    try:
        if len(held.cluster.clients) < spec.clients:
            raise InfraError(
                f"the kept cluster {spec.run_id} has {len(held.cluster.clients)} nodes for clients, and workload "
                f"{plan.workload!r} needs {spec.clients}: use one that such a run has kept"
            )
        if prepared.reuse:
            _insist_on(shares, held.cluster)
        yield held
    finally:
        # A second Ctrl-C must not leave half a cluster behind.
        with signals.ignored():
            if prepared.keep and held.outcome is not None and not held.outcome.unhealed:
                held.cluster.keep(plan.to_toml())
                say(reusing.describe(held.cluster.run_id))
            else:
                _tear_down(held.cluster, held.outcome)


def _insist_on(shares: Sequence[Share], cluster: Cluster) -> None:
    """Raises InfraError if a kept cluster lacks programs of the plan, such as the version that an upgrade installs.

    Nodes get their programs when they are made.
    """
    paths = [share.path for share in shares]
    script = 'for path; do [ -e "$path" ] || echo "$path"; done'
    absent = cluster.nodes[0].run(["sh", "-c", script, "absent", *paths]).text.split()
    if absent:
        raise InfraError(
            f"the nodes of the kept cluster {cluster.run_id} have no {', '.join(absent)}: they were made for a plan "
            "with other versions or programs; leave --reuse out"
        )


def _tear_down(cluster: Cluster, outcome: Outcome | None) -> None:
    """Removes the cluster. Raises InfraError, which also reports the result of the run."""
    try:
        cluster.destroy()
    except InfraError as problem:
        if outcome is None:
            raise
        verdict, report = outcome.judgement.verdict.value, outcome.folder.report
        raise InfraError(f"the run ended {verdict} ({report}), but its machines: {problem}") from problem


def _on_cluster(run: Run, priority: Priority, loop_factory: LoopFactory | None) -> Outcome:
    """Starts the servers, runs the phases, and judges."""
    at_first = run.deployment.record
    write_text(run.folder.deployment, to_text(at_first), "the deployment")
    _prepare_faults(run.parts.faults, run.deployment, run.say)
    session = Session(run, _start(run, len(at_first.servers)))
    _talk(session, loop_factory)
    if run.deployment.record.nodes != at_first.nodes:  # a node was replaced
        write_text(run.folder.deployment, to_text(run.deployment.record), "the deployment")
    # One Ctrl-C must not cost the evidence from here on; the next ends the judging, and the journal is there.
    with signals.deferred(lambda: run.say(_GOES_ON), announced=session.stopping):
        _collect(run, session)
        priority.close()  # nothing waits for the judging
        return _judge(run, session)


def _start(run: Run, count: int) -> Callable[[], None]:
    """Starts all servers. Returns what reports, at the first op, how long that took."""
    cluster, topology = run.deployment.cluster, run.deployment.topology
    names, system = _names([node.name for node in cluster.nodes]), _system(topology)
    run.say(
        f"starting  {count} server{'s' * (count != 1)} on {names} ({cluster.backend}, {system}), "
        f"{run.seconds:.1f} s after the command"
    )
    ready_s = _await_servers(run.deployment, run.folder)
    run.environment.note(ready_s=f"{ready_s:.1f}")
    start_probes(cluster.nodes)

    def ready() -> None:
        run.say(
            f"cluster   {cluster.backend}, {names}, {system}, servers ready in {ready_s:.1f} s, "
            f"first op {run.seconds:.1f} s after the command    plan {run.plan.digest}"
        )

    return ready


def _collect(run: Run, session: Session) -> None:
    """Fetches the evidence from the nodes, if there are any."""
    lost: dict[str, str] = {}
    try:
        if not session.stopping and (run.parts.workload.stops_servers or session.disks_struck):
            session.read_files()  # a run that reuses the cluster starts them again
    finally:
        if not session.gone:
            run.say(f" fetching the logs, {run.seconds:.1f} s after the command")
            lost = collect(run.deployment, run.folder)
    if lost:
        run.environment.note(lost_nodes="; ".join(lost.values()))


def _judge(run: Run, session: Session) -> Outcome:
    """Seals the history, judges it, and writes verdict and report."""
    # Judges take a second to load, and no command that judges nothing should pay for it.
    from harness.check.judging import judge_run, with_evidence, write_results
    from harness.findings.known import explain

    written = run.folder.load()
    run.say(f" checking the history ({len(written.history)} events), {run.seconds:.1f} s after the command")
    write_effective(run.plan, written.history, run.folder.path)
    run.folder.seal(written)
    if not run.keep_journal:
        run.folder.drop_journal(written)
    judgement = with_evidence(run.folder, explain(written, judge_run(written, run.parts.workload)))
    seconds = run.seconds
    write_results(run.folder, written, judgement, seconds)
    unhealed = bool(session.unhealed or session.gone)
    return Outcome(run.folder, judgement, seconds, unhealed, run.deployment.cluster.run_id)


def _talk(session: Session, loop_factory: LoopFactory | None) -> None:
    """Runs all phases. A stop signal after their end stops only the steps that follow."""
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(session.run(session.workload.phases(usual_phases(session.plan, session.workload))))
    except BaseException as problem:
        if not (session.complete and isinstance(problem, signals.Stopped)):
            with signals.ignored():
                collect(session.deployment, session.folder)
            raise
        session.stopping = True  # while the loop was closed
        session.say(_GOES_ON)


def _await_servers(deployment: Deployment, folder: RunDir) -> float:
    """Starts all servers, and returns the time that it took (s). If that fails, their logs are fetched."""
    started = time.monotonic()
    try:
        deployment.topology.start_all(READY_TIMEOUT_S)
    except BaseException:
        collect(deployment, folder)
        raise
    return time.monotonic() - started


def _prepare_faults(faults: registry.FaultSet, deployment: Deployment, say: Say) -> None:
    """Raises NotAvailable for a fault that these machines do not support, InfraError if its preparation fails."""
    if not deployment.cluster.destructive:
        require_disposable(faults)
    for fault in faults:
        why = fault.available(deployment)
        if why is not None:
            raise NotAvailable(f"the nemesis {fault.name!r} is not available here: {why}")
    try:
        for fault in faults:
            fault.prepare(deployment)
    except ServersRun as why:
        say(f" stopping all servers of the kept cluster first: {why}")
        stop_all(deployment)
        for fault in faults:
            fault.prepare(deployment)


class _Log(logging.FileHandler):
    """A log that a full disk silences: the journal reports the full disk, in one line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leaves the line out; logging's own way is a traceback on stderr for each."""


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
