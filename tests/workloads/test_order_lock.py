# SPDX-License-Identifier: Apache-2.0
"""The workload `order-lock` in virtual time, against locks in memory; and its client against toy servers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played
from toy_servers import LONG, ToyServer, run, serving

from checkers.messages.locks import Locks
from harness.api import Completion
from harness.plan.plan import Plan, ServerPlan
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.brokers import Beliefs
from workloads.masters import Masters
from workloads.order_lock import OrderLockOps, OrderLockWorkload, lease_s
from workloads.places import Queue, TopicLayout

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES = [node for nodes in GROUPS.values() for node in nodes]


class Brokers:
    """Two right groups, or ones with a `bug`. Some answers are lost; what was asked has happened, or not."""

    def __init__(self, rng: Random, trouble: float, bug: str | None = None) -> None:
        self.rng, self.trouble, self.bug = rng, trouble, bug
        self.holders: dict[str, str] = {}
        self.queues: dict[str, list[int]] = {}
        self.committed: dict[str, int] = {}

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        extra: dict[str, Any] = {"node": "n1", **{k: op.extra[k] for k in ("client", "group") if k in op.extra}}
        luck = self.rng.random()
        if luck < self.trouble / 2:
            return Completion("fail", op.value, "nothing was sent", extra)
        lost = luck < self.trouble
        done = Completion("fail") if lost and self.rng.random() < 0.5 else self.change(op, extra)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        return Completion("info", op.value, "no answer", extra) if lost else done

    def change(self, op: Op, extra: dict[str, Any]) -> Completion:
        key, queue = op.key or "", self.queues.setdefault(op.key or "", [])
        match op.f:
            case "send":
                queue.append(op.value)
                return Completion("ok", [len(queue) - 1, op.value], extra=extra)
            case "lock":
                holder = self.holders.setdefault(key, op.extra["client"])
                if holder != op.extra["client"] and not (self.bug == "twice" and self.rng.random() < 0.1):
                    return Completion("fail", None, "refused", {**extra, "refused": True})
            case "unlock":
                if self.holders.get(key) == op.extra["client"] and self.bug != "stuck":
                    del self.holders[key]
                elif self.bug == "stuck":
                    self.holders[key] = "nobody"
            case "committed":
                return Completion("ok", 0 if self.bug == "order" else self.committed.get(key), extra=extra)
            case "commit":
                self.committed[key] = op.value
            case "consume":
                assert op.value is not None
                at = op.value + (self.bug == "order" and self.rng.random() < 0.1)
                shown = [[n, queue[n]] for n in range(at, min(at + 3, len(queue)))]
                return Completion("ok", shown, extra=extra)
        return Completion("ok", op.value, extra=extra)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(seed: int, trouble: float, bug: str | None = None, seconds: float = 30) -> tuple[Judgement, RunRecord]:
    """Load and recovery, judged."""
    dice = Random(seed)
    workload = OrderLockWorkload(Plan(workload="order-lock", seed=seed, rate=120, concurrency=dice.randint(4, 10)))
    workload._places = layout(NODES, GROUPS, 2)
    workload.group = "holders"
    brokers = Brokers(Random(seed), trouble, bug)
    ops = played(workload, lambda thread: brokers, seconds, NODES)
    record = RunRecord(History(ops), deployment=DeploymentRecord("toy", groups=GROUPS))
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    return judged_by(workload, record, deployment, "locks", "stats", "availability"), record


@pytest.mark.slow
def test_good_brokers_raise_no_alarm() -> None:
    for seed in range(4):
        judgement, record = play(seed, trouble=0.02 * seed)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "locks")
        assert figures["granted"] > 100
        assert figures["holders"] > 5
        f = Counter(op.f for op in record.history if op.type == "ok")
        assert min(f[name] for name in ("send", "lock", "unlock", "committed", "consume", "commit")) > 10


@pytest.mark.parametrize(
    ("bug", "name"), [("twice", "locked-twice"), ("stuck", "lock-stuck"), ("order", "consumed-out-of-order")]
)
@pytest.mark.slow
def test_bad_brokers_are_found(bug: str, name: str) -> None:
    judgement, _ = play(5, 0.0, bug)
    assert name in {a.name for a in judgement.anomalies}


def test_only_holders_consume() -> None:
    _, record = play(1, trouble=0)
    holds: dict[tuple[str, str | None], bool] = {}
    for op in record.history:
        who = str(op.extra.get("client")), op.key
        if op.f in ("lock", "unlock") and op.type != "invoke":
            holds[who] = op.f == "lock" and op.type == "ok"
        elif op.f == "consume" and op.type == "invoke":
            assert holds[who]


def test_the_lease_is_what_the_servers_are_told() -> None:
    option = "-Drocketmq.broker.rebalance.lockMaxLiveTime="
    assert lease_s(["-Xmx1g"]) == 60
    assert lease_s([f"{option}5000", f"{option}15000"]) == 15
    assert lease_s([f"{option}soon"]) == 60
    plan = Plan(workload="order-lock", server=ServerPlan(jvm_options=(f"{option}8000",)))
    (locks,) = (c for c in OrderLockWorkload(plan).checkers(DeploymentRecord("toy")) if isinstance(c, Locks))
    assert locks.lease == 8_000_000_000


class Named(Masters):
    """Names n1, then n2."""

    def __init__(self) -> None:
        self.asked, self.silence = 0, "no node reports one"

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        self.asked += 1
        return "n1" if self.asked == 1 else "n2"


def granted(*numbers: int) -> bytes:
    return json.dumps({"lockOKMQSet": [{"topic": "t", "brokerName": "a", "queueId": n} for n in numbers]}).encode()


@pytest.mark.parametrize(("sticky", "nodes"), [(True, ["n1", "n1", "n1"]), (False, ["n1", "n2", "n2"])])
def test_a_refusal_is_a_failure_and_sends_only_some_to_the_name_servers(sticky: bool, nodes: list[str]) -> None:
    done: list[Completion] = []

    async def test() -> None:
        async with AsyncExitStack() as stack:
            refusing = ToyServer(body=granted())
            at = {f"n{i}": await stack.enter_async_context(serving(refusing)) for i in (1, 2)}
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": list(at)}, at, [], [])
            client = OrderLockOps(places, Named(), Beliefs(), LONG, sticky)
            for _ in range(3):
                op = Op(0, 0, 0, "invoke", "lock", "t:a:0", None, extra={"client": "c", "group": "g"})
                done.append(await client.invoke(op))
            body = json.loads(refusing.last.body)
            assert (body["clientId"], body["consumerGroup"], body["onlyThisBroker"]) == ("c", "g", False)
            await client.close()

    run(test)
    assert [(c.type, c.extra["refused"]) for c in done] == [("fail", True)] * 3
    assert [c.extra["node"] for c in done] == nodes


def test_what_the_answer_names_is_granted() -> None:
    done: list[Completion] = []

    async def test() -> None:
        async with serving(ToyServer(body=granted(0, 7))) as at:
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": ["n1"]}, {"n1": at}, [], [])
            client = OrderLockOps(places, Named(), Beliefs(), LONG, True)
            for f, key in (("lock", "t:a:0"), ("lock", "t:a:1"), ("unlock", "t:a:0")):
                op = Op(0, 0, 0, "invoke", f, key, None, extra={"client": "c", "group": "g"})
                done.append(await client.invoke(op))
            await client.close()

    run(test)
    assert [c.type for c in done] == ["ok", "fail", "ok"]
