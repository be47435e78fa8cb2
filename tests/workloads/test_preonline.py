# SPDX-License-Identifier: Apache-2.0
"""The workload `preonline` in virtual time, against a group in memory; and its client against toy servers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout, struck
from sim.plays import play as played
from toy_servers import LONG, ToyServer, free_port, run, serving

from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from results.deployment import DeploymentRecord
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.brokers import Beliefs
from workloads.masters import Masters
from workloads.name_servers import NameServerClient
from workloads.places import Queue, TopicLayout
from workloads.preonline import SETTLE_S, PreonlineOps, PreonlineWorkload

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES = [node for nodes in GROUPS.values() for node in nodes]
DOWN, UP, ONLINE = 20.0, 30.0, 34.0
S = 1_000_000_000


class Cluster:
    """Two groups; the master of the first is killed and returns, and takes over what it should, or has a `bug`."""

    def __init__(self, rng: Random, bug: str | None = None) -> None:
        self.rng, self.bug = rng, bug
        self.offsets: dict[str, dict[str, int]] = {node: {} for node in NODES}
        self.back = False

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def listed(self, node: str) -> bool:
        return node != "n1" or not DOWN <= self.now < ONLINE

    def first(self, group: str) -> str:
        return next(node for node in GROUPS[group] if self.listed(node))

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if not self.back and self.now >= ONLINE - 0.5:
            self.back = True
            ours, theirs = self.offsets["n1"], self.offsets["n2"]
            if self.bug != "dropped":
                self.offsets["n1"] = {k: max(ours.get(k, 0), theirs.get(k, 0)) for k in ours | theirs}
        if op.f == "members":
            there = {str(n): node for n, node in enumerate(GROUPS[str(op.key)]) if self.listed(node)}
            return Completion("ok", there, extra={"name_server": op.extra["name_server"]})
        group = str(op.key).split(":")[1] if op.key is not None else ""
        node = op.extra["node"] if "node" in op.extra else self.first(group)
        extra: dict[str, Any] = {"node": node, **({"group": op.extra["group"]} if "group" in op.extra else {})}
        settling = DOWN <= self.now < DOWN + SETTLE_S or ONLINE - 1 <= self.now < ONLINE + SETTLE_S
        if op.f == "commit" and (settling or op.extra.get("only") not in (None, node)):
            return Completion("fail", op.value, "waits", extra)
        if node == "n1" and DOWN <= self.now < UP:
            return Completion("fail", op.value, "nothing was sent", extra)
        match op.f:
            case "commit" | "direct":
                if op.f == "commit":
                    self.offsets[node][str(op.key)] = op.value
            case "committed":
                return Completion("ok", self.offsets[node].get(str(op.key)), extra=extra)
            case "progress":
                return Completion("ok", {"counter": 0, "delay": {"1": int(self.now)}, "timer": 5}, extra=extra)
            case "delay":
                return Completion("ok", [0, op.value], extra=extra)
            case "poll":
                return Completion("ok", [], extra=extra)
        return Completion("ok", op.value, extra=extra)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(seed: int, bug: str | None = None) -> tuple[Judgement, RunRecord]:
    """50 s of load, judged."""
    workload = PreonlineWorkload(
        Plan(workload="preonline", seed=seed, rate=100, concurrency=Random(seed).randint(4, 10))
    )
    workload._places = layout(NODES, GROUPS, 4)
    workload.group, workload.servers = "g", dict.fromkeys(NODES[:3], ("", 0))
    cluster = Cluster(Random(seed), bug)
    ops = played(workload, lambda thread: cluster, 50, NODES, phases=["main"])
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    record = RunRecord(struck(ops, "kill", "n1", DOWN, UP), deployment=deployment)
    return judged_by(workload, record, deployment, "preonline", "stats", "availability"), record


@pytest.mark.slow
def test_a_good_cluster_raises_no_alarm() -> None:
    for seed in range(3):
        judgement, record = play(seed)
        unpermitted = [a for a in judgement.anomalies if a.name != "served-unlisted"]
        assert unpermitted == [], (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "preonline")
        assert (figures["returns"], figures["direct_unlisted"] > 0) == (1, True)
        f = Counter(op.f for op in record.history if op.type == "ok")
        assert min(f[name] for name in ("commit", "committed", "progress", "members", "direct", "delay")) > 20


def test_a_bad_cluster_is_found() -> None:
    judgement, _ = play(1, "dropped")
    assert "offset-dropped" in {a.name for a in judgement.anomalies}
    assert judgement.verdict == Verdict.INVALID


def test_half_of_the_queues_are_committed_only_at_the_master() -> None:
    _, record = play(2)
    commits = [op for op in record.history if op.f == "commit" and op.type == "invoke"]
    assert {(op.key, op.extra.get("only")) for op in commits} == {
        ("t:a:0", "n1"), ("t:a:1", None), ("t:b:0", "n4"), ("t:b:1", None)
    }  # fmt: skip
    for key in {op.key for op in commits}:
        offsets = [op.value for op in commits if op.key == key]
        assert offsets == sorted(set(offsets))


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(PlanError, match="needs 3 clients"):
        PreonlineWorkload(Plan(workload="preonline", concurrency=2))


class Named(Masters):
    """Names the given node as master."""

    def __init__(self, node: str) -> None:
        self.node, self.silence = node, "no node reports one"

    def known(self, group: str) -> str | None:
        return self.node

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        return self.node


def client_of(masters: Masters, brokers: dict[str, tuple[str, int]], servers: dict[str, Any]) -> PreonlineOps:
    places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": list(brokers)}, brokers, [], [])
    client = PreonlineOps(places, masters, Beliefs(), LONG, False)
    client.name_servers, client.named = NameServerClient(places, servers), {}
    return client


def op(f: str, key: str | None = "t:a:0", value: Any = None, **extra: Any) -> Op:
    return Op(0, 0, 0, "invoke", f, key, value, extra=extra)


def test_who_commits_follows_the_routes_and_waits_after_a_change() -> None:
    async def test() -> None:
        async with serving(ToyServer()) as first, serving(ToyServer()) as second:
            masters = Named("n1")
            client = client_of(masters, {"n1": first, "n2": second}, {})
            done = [await client.invoke(op("commit", value=1, group="g", only="n1"))]
            masters.node = "n2"
            client.named["a"].looked = -1e9
            done += [await client.invoke(op("commit", value=n, group="g")) for n in (2, 3)]
            client.named["a"].since = -1e9
            done += [await client.invoke(op("commit", value=4, group="g"))]
            done += [await client.invoke(op("commit", value=5, group="g", only="n1"))]
            assert [(c.type, c.extra.get("node")) for c in done] == [
                ("ok", "n1"), ("fail", None), ("fail", None), ("ok", "n2"), ("fail", None)
            ]  # fmt: skip
            await client.close()

    run(test)


def test_members_and_progress() -> None:
    members = b'{"brokerMemberGroup":{"brokerAddrs":{0:"%s",2:"198.18.9.9:10911"}}}'

    async def test() -> None:
        async with serving(ToyServer(body=b'{"offsetTable":{}}')) as broker:
            address = f"{broker[0]}:{broker[1]}".encode()
            async with serving(ToyServer(body=members % address)) as server:
                client = client_of(Named("n1"), {"n1": broker}, {"n3": server, "n2": await free_port()})
                there = await client.invoke(op("members", "a", name_server="n3"))
                assert (there.type, there.value) == ("ok", {"0": "n1", "2": "198.18.9.9:10911"})
                assert (await client.invoke(op("members", "a", name_server="n2"))).type == "fail"
                strange = await client.invoke(op("progress", None, node="n1"))
                assert strange.type == "fail"
                assert "without the counter" in str(strange.error)
                await client.close()

    run(test)


def test_progress_in_full() -> None:
    bodies = {
        43: json.dumps({"dataVersion": {"counter": 3}, "offsetTable": {}}).encode(),
        45: b'{"offsetTable":{2:17}}',
        60: (1_700_000_000_000).to_bytes(8, "big") + bytes(48),
    }

    class Broker(ToyServer):
        async def __call__(self, frame: Any, writer: Any) -> None:
            self.body = bodies[frame.code]
            await super().__call__(frame, writer)

    async def test() -> None:
        async with serving(Broker()) as broker:
            client = client_of(Named("n1"), {"n1": broker}, {})
            done = await client.invoke(op("progress", None, node="n1"))
            assert done.value == {"counter": 3, "delay": {"2": 17}, "timer": 1_700_000_000_000}
            await client.close()

    run(test)
