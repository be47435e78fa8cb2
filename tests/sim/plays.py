# SPDX-License-Identifier: Apache-2.0
"""Runs of a workload in virtual time, against servers that a test pretends: load in phases, final reads, verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkers.base.api import judge
from checkers.run.wellformed import WellFormed
from harness import generator as gen
from harness.api import Workload
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from results.deployment import DeploymentRecord
from results.history import History
from results.op import INFO, INVOKE, NEMESIS, Op
from results.record import RunRecord
from results.verdict import Judgement
from workloads.places import Queue, TopicLayout

S = 1_000_000_000


def layout(nodes: Sequence[str], groups: Mapping[str, Sequence[str]], queues: int | Sequence[Queue]) -> TopicLayout:
    """The topic `t` at these nodes, with some queues in each group."""
    endpoints = {node: (f"198.18.0.{i}", 10911) for i, node in enumerate(nodes)}
    made = [Queue("t", group, n) for group in groups for n in range(queues)] if isinstance(queues, int) else queues
    return TopicLayout(False, "t", "readers", list(made), groups, endpoints, [], [])


def play(
    workload: Workload,
    client: Callable[[int], Any],
    seconds: float,
    nodes: Sequence[str],
    *,
    phases: Sequence[str] = ("main", "recovery"),
    final_s: float | None = None,
    before_final: Callable[[], None] = lambda: None,
) -> list[Op]:
    """The ops of these phases, each so long, and of the final one."""
    plan, ops = workload.plan, list[Op]()

    async def run() -> None:
        interpreter = Interpreter(concurrency=plan.concurrency, client=client, journal=ops.append, deadline_s=4)
        for phase in phases:
            rng = plan.rng(phase)
            load = gen.rate(plan.rate or 1, workload.generator(rng, phase), rng=rng)
            await interpreter.run(gen.clients(gen.time_limit(seconds, load)), phase)
        before_final()
        final = workload.final([], nodes)
        await interpreter.run(final if final_s is None else gen.time_limit(final_s, final), "final")
        await interpreter.close()

    virtual_time.run(run())
    return ops


def struck(ops: Sequence[Op], fault: str, node: str, start: float, end: float) -> History:
    """The history of these ops with a fault that stopped a node from `start` to `end` (s)."""
    what = {"fault": fault, "id": 1, "nodes": {node: None}, "impairs": {node: [node]}, "seen": True}
    times = ((start, "inject"), (end, "heal"))
    faults = [Op(0, int(at * S), NEMESIS, t, f, None, what) for at, f in times for t in (INVOKE, INFO)]
    return History(
        Op(i, op.time, op.process, op.type, op.f, op.key, op.value, op.error, op.extra)
        for i, op in enumerate(sorted([*ops, *faults], key=lambda op: op.time))
    )


def judged(workload: Workload, record: RunRecord, deployment: DeploymentRecord, *names: str) -> Judgement:
    """The verdict of the workload's judges with these names, the well-formedness check first."""
    mine = [checker for checker in workload.checkers(deployment) if checker.name in names]
    return judge(record, [WellFormed(), *mine])
