# SPDX-License-Identifier: Apache-2.0
"""The workload `broker-identity` in virtual time: the whole crash table, against controllers and brokers in memory."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from sim.registration import BUGS, CONTROLLERS, Registration
from sim.rocketmq import names

import harness.generator as gen
from checkers.base.api import judge
from checkers.controllers.identity import BrokerIdentity
from checkers.run.wellformed import WellFormed
from harness.plan.plan import ClusterPlan, Plan, PlanError, ServerPlan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult, Judgement, Verdict
from workloads.broker_identity import BrokerIdentityWorkload
from workloads.crash_table import rows
from workloads.places import Queue, TopicLayout

TABLE = rows(30)
LEADER_CHANGES = ["leader-killed-at-1013", "leader-killed-after-1013"]


def play(
    seed: int, chosen: tuple[str, ...] = (), bug: str | None = None, trouble: float = 0.0, seconds: float = 3600
) -> tuple[Judgement, RunRecord]:
    """Main phase and final questions, judged."""
    plan = Plan(workload="broker-identity", seed=seed, concurrency=3, options={"rows": list(chosen)}, nemeses=())
    workload = BrokerIdentityWorkload(plan)
    endpoints = {"n1": ("198.18.0.1", 10911)}
    workload._places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": ["n1"]}, endpoints, [], [])
    workload.run, workload.controllers = "run", CONTROLLERS
    world = Registration(Random(seed), bug, trouble)
    workload.members = SimpleNamespace(present=[])  # type: ignore[assignment]
    ops: list[Op] = []

    async def phases() -> None:
        interpreter = Interpreter(
            concurrency=plan.concurrency, client=lambda thread: world, journal=ops.append, deadline_s=4
        )
        rng = plan.rng("main")
        load = gen.rate(workload.default_rate, workload.generator(rng, "main"), rng=rng)
        await interpreter.run(gen.clients(gen.time_limit(seconds, load)), "main")
        workload.members = SimpleNamespace(present=list(world.brokers))  # type: ignore[assignment]
        world._change_leader()  # a restart of all
        await interpreter.run(workload.final(list(dict.fromkeys(o.key for o in ops if o.key)), []), "final")
        await interpreter.close()

    virtual_time.run(phases())
    record = RunRecord(History(ops), deployment=DeploymentRecord("toy", groups={"a": ["n1"]}))
    mine = [c for c in workload.checkers(record.deployment) if c.name in ("broker-identity", "stats")]
    return judge(record, [WellFormed(), *mine]), record


def identity(judgement: Judgement) -> CheckResult:
    return next(r for r in judgement.results if r.checker == "broker-identity")


def wrong(judgement: Judgement) -> set[str]:
    return {a.name for a in judgement.anomalies if a.legal is None}


def test_right_brokers_keep_every_promise_in_every_row() -> None:
    judgement, _ = play(1)
    assert judgement.verdict == Verdict.VALID, judgement.reason
    told = identity(judgement).stats["rows"]
    assert set(told) == set(TABLE)
    assert all(text.startswith("held in 1 of 1") for text in told.values()), told
    permitted = {row for row, text in told.items() if "(permitted)" in text}
    assert permitted == {"rm-temp", "clone"}
    assert "files then: temp 1" in told["kill-at-answer-1013"]
    assert "files then: no file" in told["kill-at-answer-1012"]
    assert "next 3" in told["wipe"]


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 1000), marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_good_runs_raise_no_alarm(seeds: range) -> None:
    alarms = {}
    for seed in seeds:
        chosen = tuple(Random(seed).sample(sorted(TABLE), 6))
        judgement, _ = play(seed, chosen)
        if judgement.verdict != Verdict.VALID:
            alarms[seed] = judgement.reason
    assert alarms == {}


ROWS_OF = {
    "rereads": ("restart",),
    "gives-twice": ("two-at-once",),
    "gives-up": ("lost-answer-1013",),
    "no-master": ("restart",),
    "burns": ("lost-answer-1013",),
    "lists-ghosts": ("first-start",),
    "keeps-address": ("readdress",),
    "set-of-strangers": ("first-start",),
    "forgets": ("first-start",),
    "goes-back": ("first-start",),
    "starts-over": ("rm-identity",),
}
COMPANIONS = {
    "rereads": {"controllers-disagree", "forgotten-registration", "ghost-replica", "reused-id", "never-running"},
    "burns": {"ghost-replica"},
    "gives-twice": {"reused-id", "stale-address", "controllers-disagree"},
    "lists-ghosts": set(),
    "goes-back": {"reused-id"},
    "starts-over": {"controllers-disagree", "forgotten-registration"},
}
"""Bug -> the other anomalies that it causes."""


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.slow
def test_every_planted_violation_is_found(bug: str) -> None:
    for seed in range(6):
        judgement, _ = play(seed, ROWS_OF[bug], bug)
        found = wrong(judgement)
        assert BUGS[bug] in found, (seed, found)
        assert found <= {BUGS[bug]} | COMPANIONS.get(bug, set()), (seed, found)
        assert not identity(judgement).stats["rows"][ROWS_OF[bug][0]].startswith("held in 1")


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.startswith(("lost-answer-1013", "late", "leader-killed-a"))]
)
def test_a_burnt_id_shows_wherever_an_answer_is_lost(row: str) -> None:
    found = wrong(play(3, (row,), "burns")[0])
    assert found == ({"burnt-id", "ghost-replica"} if row != "leader-killed-at-1013" else set())


def test_a_trial_whose_op_is_not_answered_is_broken_off() -> None:
    judgement, record = play(5, ("first-start", "restart"), trouble=0.3)
    assert judgement.verdict == Verdict.UNKNOWN
    assert "trials were completed" in identity(judgement).reason
    assert wrong(judgement) == set()
    assert any(op.f == "leave" and op.type == "ok" for op in record.history)
    assert any(str(op.key).endswith("-again") for op in record.history)
    assert not any(str(op.key).endswith("-again-again") for op in record.history)


def test_rows_for_which_there_is_no_time_leave_the_verdict_open() -> None:
    judgement, _ = play(2, ("first-start", "restart", "wipe"), seconds=5)
    assert judgement.verdict == Verdict.UNKNOWN
    assert "1 of 3 trials were completed; restart: it did not come to its end" in identity(judgement).reason


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(workload="broker-identity"), "the rows of the crash table are the faults .* --nemesis none is right"),
        (Plan(workload="broker-identity", nemeses=(), concurrency=2), "needs 3 clients"),
        (Plan(workload="broker-identity", nemeses=(), server=ServerPlan(version="5.1.0")), "since 5.1.1"),
    ],
)
def test_plans_that_cannot_be(plan: Plan, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        BrokerIdentityWorkload(plan)


def test_trials_of_several_brokers_are_in_one_lane_and_what_hits_all_comes_last() -> None:
    workload = BrokerIdentityWorkload(Plan(workload="broker-identity", nemeses=(), options={"lanes": 3, "repeat": 2}))
    lanes, alone = workload.lanes()
    assert [trial.row for trial in alone] == [*LEADER_CHANGES] * 2
    assert sum(map(len, lanes)) + len(alone) == 2 * len(TABLE)
    places = [{s.value for t in lane for s in t.steps if s.f == "enter"} for lane in lanes]
    assert places == [{0, 3, 4}, {1}, {2}]
    small = Plan(workload="broker-identity", nemeses=(), cluster=ClusterPlan(nodes=3), options={"lanes": 2})
    assert len(BrokerIdentityWorkload(small).lanes()[0]) == 1


def test_a_row_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(PlanError, match="'kill-at-noon' is no row of the crash table; first-start,"):
        BrokerIdentityWorkload(Plan(workload="broker-identity", options={"rows": ["kill-at-noon"]}, nemeses=()))


def test_the_trials_ask_every_controller() -> None:
    _, record = play(1, ("first-start",))
    asked = {(op.f, op.extra["controller"]) for op in record.history if op.f in ("next", "view")}
    assert asked == {(f, node) for f in ("next", "view") for node in CONTROLLERS}
    assert names([BrokerIdentity().check(record)]) == set()
