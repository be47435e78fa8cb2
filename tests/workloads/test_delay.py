# SPDX-License-Identifier: Apache-2.0
"""The workload `delay` in virtual time: its generators against brokers in memory, judged by its judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played

import workloads.delay
from checkers.messages.delays import Delays
from harness.api import Completion
from harness.plan.plan import Plan, ServerPlan
from results.deployment import DeploymentRecord, Traits
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.delay import LONGEST_S, Delay, DelayWorkload
from workloads.places import TopicLayout

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES = [node for nodes in GROUPS.values() for node in nodes]


def places() -> TopicLayout:
    return layout(NODES, GROUPS, 2)


class Brokers:
    """Two right groups, or ones with a `bug`. Some answers are lost; what was asked has happened, or not."""

    def __init__(self, rng: Random, trouble: float, bug: str | None = None) -> None:
        self.rng, self.trouble, self.bug = rng, trouble, bug
        self.queues: dict[str, list[int]] = {}
        self.recalled: set[int] = set()

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        extra: dict[str, Any] = {"node": op.extra.get("node", "n1")}
        if op.f == "remake":
            return Completion("ok", {"topics": [], "groups": []}, extra={"node": "n1"})
        if op.f in ("delay", "recall"):
            luck = self.rng.random()
            if luck < self.trouble / 2:
                return Completion("fail", op.value, "refused", extra)
            if luck > self.trouble or self.rng.random() < 0.5:
                self.change(op)
            if luck < self.trouble:
                return Completion("info", op.value, "no answer", extra)
            if op.f == "recall":
                return Completion("ok", op.value, extra=extra)
            handle = {} if "level" in op.extra else {"recall": f"h{op.value}"}
            return Completion("ok", [3, op.value], extra=extra | handle)
        queue = self.queues.get(op.key or "", [])
        shown = [[at, queue[at]] for at in range(op.value, min(op.value + 20, len(queue)))]
        output = {"min": 0, "max": len(queue), "next": op.value + len(shown)}
        done = {"done": op.value + len(shown) >= len(queue)} if op.f == "replica-read" else {}
        return Completion("ok", shown, extra=extra | output | done)

    def change(self, op: Op) -> None:
        if op.f == "recall":
            assert op.extra["handle"] == f"h{op.value}"
            self.recalled.add(op.value)
            return
        wait = op.extra["wait_ms"] / 1000 + self.rng.uniform(0.05, 1)
        strange = self.bug is not None and self.rng.random() < 0.02
        times = [wait]
        if strange:
            times = {"lost": [], "early": [0.2], "late": [wait + 15], "again": [wait, wait + 0.5]}.get(
                self.bug or "", [wait]
            )
        for at in times:
            asyncio.get_running_loop().call_later(at, self.deliver, op)

    def deliver(self, op: Op) -> None:
        if op.value not in self.recalled or self.bug == "recalled":
            self.queues.setdefault(op.key or "", []).append(op.value)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(workload: DelayWorkload, brokers: Brokers, seconds: float = 12) -> RunRecord:
    """Load, recovery, final phase."""
    workload._places = places()
    ops = played(workload, lambda thread: brokers, seconds, NODES, final_s=90)
    return RunRecord(History(ops), deployment=DeploymentRecord("toy", groups=GROUPS))


def plan(seed: int, **more: Any) -> Plan:
    dice = Random(seed)
    return Plan(workload="delay", seed=seed, rate=dice.uniform(80, 160), concurrency=dice.randint(2, 9), **more)


def judged(workload: DelayWorkload, record: RunRecord) -> Judgement:
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    return judged_by(workload, record, deployment, "delays", "stats", "availability")


@pytest.mark.slow
def test_good_brokers_raise_no_alarm() -> None:
    for seed in range(3):
        workload = DelayWorkload(plan(seed))
        record = play(workload, Brokers(Random(seed), trouble=0.03 * seed))
        judgement = judged(workload, record)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "delays")
        assert figures["delivered"] > 300
        assert figures["recalled"] > 5
        assert figures["copies"] == 0


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("lost", "delayed-lost"),
        ("early", "delivered-early"),
        ("late", "delivered-late"),
        ("again", "delivered-again"),
        ("recalled", "recalled-delivered"),
    ],
)
@pytest.mark.slow
def test_bad_brokers_are_found(bug: str, name: str) -> None:
    workload = DelayWorkload(plan(5))
    judgement = judged(workload, play(workload, Brokers(Random(5), 0.02, bug)))
    assert {a.name for a in judgement.anomalies} == {name}


@pytest.mark.parametrize(
    ("traits", "within_s"),
    [
        (Traits(offsets_copied_s=60.0), 75),
        (Traits(offsets_copied_s=60.0, stands_in=False), 15),  # the same broker goes on
        (Traits(offsets_copied_s=10.0, raft_log=True), 15),
    ],
)
def test_the_age_of_a_progress_depends_on_who_goes_on(traits: Traits, within_s: float) -> None:
    (judge,) = DelayWorkload(plan(1)).judged(DeploymentRecord("toy", groups=GROUPS, traits=traits))
    assert isinstance(judge, Delays)
    assert judge.slack == within_s * 10**9


def test_messages_have_levels_and_times_and_all_are_due_before_the_final_reads() -> None:
    delays = [Delay.of(turn) for turn in range(160)]
    assert Counter(d.level for d in delays) == {2: 40, 3: 40, None: 80}
    assert {d.wait_s for d in delays if d.level is None} == set(range(2, LONGEST_S + 1))
    assert max(d.wait_s for d in delays) == LONGEST_S
    assert 4 < sum(d.recalled for d in delays) < 20
    assert all(d.level is None and d.wait_s >= 5 for d in delays if d.recalled)


def test_a_plan_may_name_a_longer_delay() -> None:
    """Each whole second up to it is used, so that many slots of a timer's wheel are in use at once."""
    assert {d.wait_s for d in (Delay.of(turn, 60) for turn in range(240)) if d.level is None} == set(range(2, 61))
    workload = DelayWorkload(Plan(workload="delay", rate=50, options={"longest": 30.0}))
    workload._places = places()
    record = play(workload, Brokers(Random(5), trouble=0))
    sent = [op.extra["wait_ms"] for op in record.history if op.f == "delay" and op.type == "invoke"]
    assert max(sent) == 30_000
    assert judged(workload, record).verdict == Verdict.VALID


def test_versions_without_recalls_get_neither_the_setting_nor_the_ops() -> None:
    old = DelayWorkload(Plan(workload="delay", server=ServerPlan(version="5.2.0")))
    new = DelayWorkload(Plan(workload="delay", server=ServerPlan(version="5.3.3")))
    assert "broker.recallMessageEnable" not in old.server_settings()
    assert new.server_settings()["broker.recallMessageEnable"] == "true"
    assert (old.needed, new.needed) == (["delay", "poll"], ["delay", "poll", "recall"])
    record = play(DelayWorkload(plan(2, server=ServerPlan(version="5.2.0"))), Brokers(Random(2), 0))
    assert "recall" not in {op.f for op in record.history}


@contextmanager
def clock_at(monkeypatch: pytest.MonkeyPatch, ns: int) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(workloads.delay.time, "time_ns", lambda: ns)
        yield


def test_brokers_are_told_a_level_or_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    level = Op(0, 0, 0, "invoke", "delay", "t:a:0", 1, None, {"level": 3, "wait_ms": 10_000})
    at = Op(0, 0, 0, "invoke", "delay", "t:a:0", 2, None, {"wait_ms": 4_000})
    with clock_at(monkeypatch, 7_000_000_000):
        assert workloads.delay.properties_of(level) == {"DELAY": "3"}
        assert workloads.delay.properties_of(at) == {"TIMER_DELIVER_MS": "11000"}
