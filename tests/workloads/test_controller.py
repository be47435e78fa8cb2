# SPDX-License-Identifier: Apache-2.0
"""The workload `controller` in virtual time, its real client before controllers in memory."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from sim.controllers import BUGS, CONTROLLERS, Link, World

import harness.generator as gen
from checkers.base.api import judge
from checkers.controllers.answers import Controllers
from checkers.run.wellformed import WellFormed
from harness.plan.plan import ClusterPlan, Plan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.controller import ControllerWorkload
from workloads.controller_client import ControllerOps
from workloads.fake_brokers import FakeBrokers


def play(seed: int, bug: str | None = None, trouble: float = 0.0, seconds: float = 12) -> tuple[Judgement, RunRecord]:
    """Load while leaders change, a restart of all, and the final reads of two leaders."""
    plan = Plan(workload="controller", seed=seed, cluster=ClusterPlan(nodes=3), options={"ops_per_group": 60})
    workload = ControllerWorkload(plan)
    workload.controllers = CONTROLLERS
    world, brokers = World(Random(seed), bug, trouble), FakeBrokers({})
    ops: list[Op] = []

    def client(thread: int) -> ControllerOps:
        home = None if thread % 2 == 0 else list(CONTROLLERS)[thread // 2 % 3]
        ours = ControllerOps(CONTROLLERS, brokers, home, 1.0)
        ours._links = {node: Link(world, node) for node in CONTROLLERS}  # type: ignore[misc]
        ours._asking = ours._links
        return ours

    async def change_leaders() -> None:
        while True:
            await asyncio.sleep(world.rng.uniform(0.5, 3))
            world.depose()

    async def phases() -> None:
        interpreter = Interpreter(concurrency=6, client=client, journal=ops.append, deadline_s=2)
        rng = plan.rng("main")
        changes = asyncio.create_task(change_leaders())
        load = gen.rate(workload.default_rate, workload.generator(rng, "main"), rng=rng)
        await interpreter.run(gen.clients(gen.time_limit(seconds, load)), "main")
        changes.cancel()
        await asyncio.sleep(5)
        world.trouble = 0
        world.restart()
        keys = list(dict.fromkeys(o.key for o in ops if o.key))
        for _ in range(4):
            await interpreter.run(workload.final(keys, []), "final")
            world.depose()
        await interpreter.close()

    virtual_time.run(phases())
    record = RunRecord(History(ops), deployment=DeploymentRecord("toy"))
    return judge(record, [WellFormed(), Controllers()]), record


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.slow
def test_right_controllers_are_right_whatever_is_lost(seed: int) -> None:
    judgement, _ = play(seed, trouble=0.03 * (seed % 3))
    assert judgement.verdict == Verdict.VALID, judgement.reason
    assert judgement.results[1].stats["changes"] > 200
    assert judgement.results[1].stats["groups"] > 5


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.slow
def test_each_bug_is_found(bug: str) -> None:
    found = set()
    for seed in range(3):
        judgement, _ = play(seed, bug, trouble=0.02)
        found |= {a.name for a in judgement.anomalies}
    assert BUGS[bug] in found, found


def test_nobody_asked_in_the_end_is_no_verdict() -> None:
    _, record = play(1)
    cut = record.history.where(lambda op: op.extra.get("phase") != "final" and op.f != "leader")
    result = Controllers().check(RunRecord(cut))
    assert result.verdict == Verdict.UNKNOWN
    assert "final" in result.reason
