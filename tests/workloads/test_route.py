# SPDX-License-Identifier: Apache-2.0
"""The workload `route` in virtual time, against name servers in memory; and its client against toy servers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played
from toy_servers import LONG, ToyServer, free_port, run, serving

from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from results.deployment import DeploymentRecord, Traits
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.brokers import Beliefs
from workloads.masters import Masters
from workloads.name_servers import NameServerClient
from workloads.places import Queue, TopicLayout
from workloads.route import RouteOps, RouteWorkload

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES = [node for nodes in GROUPS.values() for node in nodes]


class Cluster:
    """The master of `a` is away from 10 to 20 s; a slave acts for it, as it should, or with a `bug`."""

    def __init__(self, rng: Random, bug: str | None) -> None:
        self.rng, self.bug = rng, bug

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.01))
        now = asyncio.get_running_loop().time()
        server = str(op.extra.get("name_server"))
        until = 34 if self.bug == "disagree" and server == "n3" else 20
        there = list(GROUPS[str(op.key).split(":")[-2] if ":" in str(op.key) else str(op.key)])
        if 10 <= now < until and "n1" in there:
            there.remove("n1")
        group = GROUPS["a"] if "n2" in there else GROUPS["b"]
        match op.f:
            case "members":
                return Completion("ok", {str(group.index(n)): n for n in there}, extra={"name_server": server})
            case "route":
                permission = 6 if there[0] == group[0] or self.bug == "writable" else 4
                value = {"addresses": {"0": there[0]}, "permission": permission}
                return Completion("ok", value, extra={"name_server": server})
            case "routed-read":
                if self.bug == "unread" and "n2" in there and now > 25:
                    return Completion("fail", None, "no", {"node": there[0]})
                return Completion("ok", [[0, 1]], extra={"node": there[0]})
        return Completion("ok", [0, op.value], extra={"node": there[0]})

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(seed: int, bug: str | None = None) -> tuple[Judgement, RunRecord]:
    """40 s of load, judged."""
    workload = RouteWorkload(Plan(workload="route", seed=seed, rate=100, concurrency=Random(seed).randint(3, 10)))
    workload._places = layout(NODES, GROUPS, 4)
    workload.servers = dict.fromkeys(NODES[:3], ("", 0))
    cluster = Cluster(Random(seed), bug)
    ops = played(workload, lambda thread: cluster, 40, NODES, phases=["main"])
    traits = Traits(60.0, acting_master=True)
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS, traits=traits)
    record = RunRecord(History(ops), deployment=deployment)
    return judged_by(workload, record, deployment, "routes", "stats", "availability"), record


@pytest.mark.slow
def test_a_good_cluster_raises_no_alarm() -> None:
    for seed in range(3):
        judgement, record = play(seed)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "routes")
        assert (figures["changes"], figures["acting"] > 5) == (2, True)
        f = Counter((op.f, op.key) for op in record.history if op.type == "ok")
        assert {key for name, key in f if name == "members"} == {"a", "b"}
        assert {key for name, key in f if name == "routed-read"} == {f"t:{g}:{n}" for g in GROUPS for n in range(4)}


@pytest.mark.parametrize(
    ("bug", "name"),
    [("disagree", "routes-disagree"), ("writable", "acting-writable"), ("unread", "reads-interrupted")],
)
@pytest.mark.slow
def test_a_bad_cluster_is_found(bug: str, name: str) -> None:
    judgement, _ = play(1, bug)
    assert {a.name for a in judgement.anomalies} == {name}


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(PlanError, match="needs 3 clients"):
        RouteWorkload(Plan(workload="route", concurrency=2))


class Named(Masters):
    """Names n1, then n2."""

    def __init__(self) -> None:
        self.asked, self.silence = 0, "no node reports one"

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        self.asked += 1
        return "n1" if self.asked == 1 else "n2"


def test_a_reader_whose_read_fails_looks_up_the_route() -> None:
    done: list[Completion] = []

    async def test() -> None:
        async with serving(ToyServer(code=19, minOffset="0", maxOffset="0", nextBeginOffset="0")) as at:
            brokers = {"n1": await free_port(), "n2": at}
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": list(brokers)}, brokers, [], [])
            client = RouteOps(places, Named(), Beliefs(), LONG, False)
            client.name_servers = NameServerClient(places, {})
            for _ in range(3):
                done.append(await client.invoke(Op(0, 0, 0, "invoke", "routed-read", "t:a:0", 0)))
            await client.close()

    run(test)
    assert [(c.type, c.extra["node"]) for c in done] == [("fail", "n1"), ("ok", "n2"), ("ok", "n2")]


ROUTE: dict[str, Any] = {
    "queueDatas": [{"brokerName": "b", "perm": 6}, {"brokerName": "a", "perm": 4}],
    "brokerDatas": [{"brokerName": "b", "brokerAddrs": {"0": "x:1"}}, {"brokerName": "a", "brokerAddrs": {"0": "A"}}],
}


def test_a_route_as_it_is_told() -> None:
    async def test() -> None:
        async with serving(ToyServer()) as broker:
            address = f"{broker[0]}:{broker[1]}"
            body = json.dumps(ROUTE).replace('"A"', f'"{address}"').encode()
            async with serving(ToyServer(body=body)) as server, serving(ToyServer(code=17)) as other:
                brokers = {"n1": broker}
                places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": ["n1"]}, brokers, [], [])
                client = NameServerClient(places, {"n1": server, "n2": other})
                ops = [Op(0, 0, 0, "invoke", "route", "a", None, extra={"name_server": n}) for n in ("n1", "n2")]
                told = [await client.ask(op) for op in ops]
                assert told[0].value == {"addresses": {"0": "n1"}, "permission": 4}
                assert told[1].value == {"addresses": {}, "permission": None}, "it knows no such topic"
                await client.close()

    run(test)
