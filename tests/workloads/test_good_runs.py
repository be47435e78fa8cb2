# SPDX-License-Identifier: Apache-2.0
"""A thousand good random runs, in virtual time: the judges and the watch stay silent on every one.

Short runs under random plans - clients, rates, keys, one or two faults at a time - through the real generator,
schedule, fault runner, interpreter and checkers. What is known to be right here: no op may be called nonlinearizable,
no replica divergent, no service unavailable.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from sim.rig import SimCluster, SimFaults, SimRegister, SimTopology

import harness.generator as gen
from checkers.base.api import judge
from checkers.run.wellformed import WellFormed
from harness.api import Completion, RunContext
from harness.cluster_view import ClusterView
from harness.generator import Invocation
from harness.nemesis import events
from harness.nemesis.runner import Nemesis
from harness.nemesis.schedule import strikes
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from infra.systems.api import Deployment
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict

RUNS = 1000
CATCHES_BUGS = {"availability", "linearizability", "convergence"}


def random_plan(seed: int) -> Plan:
    dice = Random(seed)
    names = dice.choice([["sim-partition"], ["sim-pause"], ["sim-partition", "sim-pause"], []])
    targets = ("one", "minority", "leader", "random")
    return Plan(
        seed=seed,
        time_limit_s=dice.uniform(6, 9),
        rate=dice.uniform(6, 14),
        concurrency=dice.randint(2, 8),
        options={"ops_per_key": dice.randint(5, 60)},
        op_deadline_s=dice.uniform(0.3, 2),
        cluster=ClusterPlan(backend="sim", nodes=dice.choice([3, 5, 7])),
        nemeses=tuple(NemesisPlan(name, 4, dice.uniform(0.5, 3), dice.choice(targets)) for name in names),
    )


async def play(plan: Plan) -> RunRecord:
    """The phases of a run without a store: load under faults, heal, restart, final reads."""
    workload, cluster, topology = SimRegister(plan), SimCluster(len(plan.nodes)), SimTopology(plan, None)
    topology.attach(cluster)
    deployment = Deployment(cluster, topology)  # type: ignore[arg-type]
    context = RunContext(deployment)
    stage = ClusterView.of(deployment.record)
    faults = SimFaults()

    def view() -> ClusterView:
        leader = topology.service.leader
        return replace(stage, leaders={"sim": leader} if leader else {})

    runner = Nemesis(deployment, lambda strike: faults.of(strike.fault, {}), view)
    ops: list[Op] = []
    keys: dict[str, None] = {}

    def note(op: Op) -> None:
        if op.is_client and op.key is not None:
            keys[op.key] = None

    class Hands:
        async def invoke(self, op: Op) -> Completion:
            if op.f != "restart-all":
                return await runner.invoke(op)
            topology.service.restart()
            return Completion("info")

    interpreter = Interpreter(
        concurrency=plan.concurrency,
        client=lambda thread: workload.client(context, thread),
        nemesis=Hands(),
        journal=ops.append,
        deadline_s=plan.op_deadline_s,
        on_event=note,
    )
    load = gen.rate(100, workload.generator(plan.rng("generator"), "main"), rng=plan.rng("rate"))
    drawn = strikes(plan, [faults.of(nemesis.fault, {}) for nemesis in plan.nemeses])
    main = gen.any_(gen.clients(gen.time_limit(plan.time_limit_s, load)), events.generator(drawn))
    await interpreter.run(main, "main")
    assert await runner.heal_all() == []
    await interpreter.run(gen.nemesis(Invocation("restart-all")), "final")
    await asyncio.sleep(1)
    await interpreter.run(workload.final(list(keys), topology.service.nodes), "final")
    await interpreter.close()
    return RunRecord(History(ops), deployment=deployment.record)


def judged(plan: Plan) -> Judgement:
    record = virtual_time.run(play(plan))
    watch = SimRegister(plan).watch()
    assert watch is not None
    assert not [op.index for op in record.history.clients if watch.see(op) is not None], plan.seed
    checkers = [c for c in SimRegister(plan).checkers(record.deployment) if c.name in CATCHES_BUGS]
    assert len(checkers) == len(CATCHES_BUGS)
    return judge(record, [WellFormed(), *checkers])


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_good_runs() -> None:
    alarms = {}
    for seed in range(RUNS):
        judgement = judged(random_plan(seed))
        bad = [r for r in judgement.results if r.verdict in (Verdict.INVALID, Verdict.HARNESS_FAILURE)]
        if bad:
            alarms[seed] = [f"{r.checker}: {r.reason}" for r in bad]
    assert alarms == {}
