# SPDX-License-Identifier: Apache-2.0
"""The workload `quorum-ack` in virtual time, against a group in memory; its client against toy servers."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout, struck
from sim.plays import play as played
from stored_messages import stored
from toy_servers import LONG, ToyServer, free_port, run, serving

from harness.api import Completion
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, PlanError, ServerPlan
from infra.machines.api import Completed, InfraError
from infra.systems.rocketmq.message_body import body_of
from infra.systems.rocketmq.protocol.messages import offset_message_id
from infra.systems.rocketmq.store.remote import record_at
from results.deployment import DeploymentRecord, Traits
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.brokers import Beliefs
from workloads.masters import Masters
from workloads.places import Queue, TopicLayout
from workloads.quorum_ack import QuorumAckOps, QuorumAckWorkload

NODES = ["n1", "n2", "n3"]
QUEUES = [Queue("t", "a", n) for n in range(4)]
STOPPED, CONTINUED = 15.0, 32.0
S = 1_000_000_000


class Group:
    """Three replicas, of which the last is stopped for a while. It does what RIP-34 promises, or has a `bug`."""

    def __init__(self, rng: Random, bug: str | None = None) -> None:
        self.rng, self.bug = rng, bug
        self.queues: dict[str, list[int]] = {queue.key: [] for queue in QUEUES}
        self.held: dict[int, set[str]] = {}
        self.acked: deque[int] = deque(maxlen=1)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def stopped(self) -> bool:
        return STOPPED <= self.now < CONTINUED

    @property
    def in_sync(self) -> int:
        return 2 if STOPPED + 4 <= self.now < CONTINUED + 1 else 3

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.01))
        node = str(op.extra.get("node"))
        if op.f in ("in-sync", "settings") and node == "n3" and self.stopped:
            return Completion("fail", None, "timed out", {"node": node})
        match op.f:
            case "send":
                return await self._send(op)
            case "remake":
                return Completion("ok", {"topics": [], "groups": []}, extra={"node": "n1"})
            case "held":
                if not self.acked:
                    return Completion("fail", None, "nothing")
                message = self.acked.pop()
                return Completion("ok", {"id": message, "held": {n: n in self.held[message] for n in NODES}})
            case "members":
                there = {str(i): n for i, n in enumerate(NODES[: self.in_sync])}
                return Completion("ok", there, extra={"name_server": op.extra["name_server"]})
            case "in-sync":
                counted = {"master": node == "n1", "in_sync": self.in_sync if node == "n1" else 1, "behind": {}}
                return Completion("ok", counted, extra={"node": node})
            case "settings":
                told = {"inSyncReplicas": "3", "minInSyncReplicas": "2", "enableAutoInSyncReplicas": "true"}
                return Completion("ok", {**told, "slaveTimeout": "2000"}, extra={"node": node})
        queue = self.queues[str(op.key)]
        return Completion("ok", [[n, m] for n, m in enumerate(queue)], extra={"node": node, "done": True})

    async def _send(self, op: Op) -> Completion:
        queue, here = self.queues[str(op.key)], set(NODES[: 2 if self.stopped else 3])
        queue.append(op.value)
        self.held[op.value] = {"n1"} if self.bug else here
        at = len(queue) - 1
        if len(here) < self.in_sync and not self.bug:
            await asyncio.sleep(2)
            return Completion("info", op.value, "12", {"node": "n1", "code": 12, "offset": at})
        self.acked.append(op.value)
        return Completion("ok", [at, op.value], extra={"node": "n1", "code": 0})

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(seed: int, bug: str | None = None) -> tuple[Judgement, RunRecord]:
    """A minute of load, judged."""
    workload = QuorumAckWorkload(
        resolve(Plan(workload="quorum-ack", seed=seed, concurrency=Random(seed).randint(6, 12)))
    )
    workload._places = layout(NODES, {"a": NODES}, QUEUES)
    workload.servers = dict.fromkeys(NODES, ("", 0))
    workload._brokers = dict.fromkeys(NODES)  # type: ignore[arg-type]
    group = Group(Random(seed), bug)
    ops = played(workload, lambda thread: group, 55, NODES, phases=["main"])
    history = struck(ops, "stop", "n3", STOPPED, CONTINUED)
    traits = Traits(acting_master=True)
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups={"a": NODES}, traits=traits)
    record = RunRecord(history, deployment=deployment)
    return judged_by(workload, record, deployment, "quorum", "log", "replicas", "stats"), RunRecord(history)


@pytest.mark.slow
def test_a_good_group_raises_no_alarm() -> None:
    for seed in range(2):
        judgement, record = play(seed)
        assert judgement.anomalies == [], (seed, judgement.reason)
        assert judgement.verdict == Verdict.VALID
        figures = next(r.stats for r in judgement.results if r.checker == "quorum")
        assert figures["survives"] == 1
        assert set(figures["copies"]) == {"2", "3"}
        assert 2 <= figures["downgrades"][0] <= 7
        done = Counter(op.f for op in record.history if op.type == "ok")
        assert min(done[f] for f in ("send", "held", "members", "in-sync", "settings", "replica-read")) > 10


def test_a_bad_group_is_found() -> None:
    judgement, _ = play(1, "waits for nobody")
    assert judgement.verdict == Verdict.INVALID
    assert "too-few-hold" in {a.name for a in judgement.anomalies}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 4}, "needs 5 clients at least"),
        ({"options": {"min_in_sync_replicas": 4}}, "min_in_sync_replicas is 4; 1 to 3"),
        ({"options": {"slave_timeout": "4s"}}, "less than the deadline of an operation"),
        ({"options": {"in_sync_replicas": 4}}, "in_sync_replicas is 4, and the group has 3 replicas"),
        ({"server": ServerPlan(options={"replicas": 2})}, "in_sync_replicas is 3, and the group has 2 replicas"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        QuorumAckWorkload(resolve(Plan(workload="quorum-ack", **options)))


@pytest.mark.parametrize("topology", QuorumAckWorkload.topologies)
def test_it_runs_on_one_group(topology: str) -> None:
    plan = resolve(Plan(workload="quorum-ack", server=ServerPlan(topology=topology)))
    assert 3 in (plan.server.options.get("replicas"), plan.server.options.get("brokers"))
    given = QuorumAckWorkload(plan).server_settings()
    assert (given["broker.inSyncReplicas"], given["broker.enableAutoInSyncReplicas"]) == ("3", "true")
    chosen = ServerPlan(
        topology=topology, options={name: 5 for name in plan.server.options if name in ("replicas", "brokers")}
    )
    assert 5 in resolve(Plan(workload="quorum-ack", server=chosen)).server.options.values()


class Kept:
    """A cluster that somebody made for another run: two groups."""

    def __init__(self) -> None:
        self.record = DeploymentRecord("toy", groups={"a": NODES, "b": ["n4", "n5"]})
        self.deployment = self

    def servers(self) -> list[Any]:
        return []


def test_a_kept_cluster_must_have_groups_that_are_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = QuorumAckWorkload(resolve(Plan(workload="quorum-ack")))

    async def make(*_: Any) -> None:
        workload._places = TopicLayout(False, "t", "readers", QUEUES, Kept().record.groups, {}, [], [])

    monkeypatch.setattr(workload, "make", make)
    with pytest.raises(InfraError, match="in_sync_replicas is 3, and the group b has 2 replicas"):
        asyncio.run(workload.setup(Kept()))  # type: ignore[arg-type]


class Named(Masters):
    """There is one master."""

    def __init__(self) -> None:
        self.silence = ""

    def known(self, group: str) -> str | None:
        return "n1"

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        return "n1"


class Broker(ToyServer):
    """Answers each request by its code."""

    def __init__(self, answers: Mapping[int, ToyServer]) -> None:
        super().__init__()
        self.answers = answers

    async def __call__(self, frame: Any, writer: Any) -> None:
        await self.answers[frame.code](frame, writer)


class Disk:
    """A broker's node: `text` is what reading its commit log brings; None: it cannot be read."""

    def __init__(self, text: str | None) -> None:
        self.node, self.name, self.data_dirs, self.text = self, "n2", ["/data"], text

    def run(self, argv: list[str], **_: Any) -> Completed:
        assert argv[3:] == ["/data/store", "77"]
        if self.text is None:
            raise InfraError("n2: not reachable")
        return Completed(argv, 0, self.text.encode(), b"", 0.0)


PLACE = ToyServer(msgId=offset_message_id("127.0.0.1", 10911, 77), queueId="0", queueOffset="7")
THERE, OTHER = ToyServer(body=stored(body_of(5))), ToyServer(body=stored(body_of(6)))
MISSING = ToyServer(1, "can not find message by the offset, 77")
ERROR = ToyServer(1, "java.lang.IllegalArgumentException")


async def looked(answer: ToyServer | None, disk: str | None = "", sent: ToyServer = PLACE) -> Completion:
    """Message 5 is sent to n1, and looked for there and at n2, which answers so, or not at all."""
    async with (
        serving(Broker({310: sent, 33: THERE})) as first,
        serving(Broker({33: answer}) if answer is not None else ToyServer()) as second,
    ):
        brokers = {"n1": first, "n2": second if answer is not None else await free_port()}
        places = TopicLayout(False, "t", "readers", QUEUES[:1], {"a": list(brokers)}, brokers, [], [])
        client = QuorumAckOps(places, Named(), Beliefs(), LONG, False)
        client.acked, client.brokers = deque(maxlen=1), {"n1": Disk(None), "n2": Disk(disk)}  # type: ignore[dict-item]
        client.name_servers = None  # type: ignore[assignment]
        await client.invoke(Op(0, 0, 0, "invoke", "send", "t:a:0", 5))
        done = await client.invoke(Op(1, 0, 0, "invoke", "held"))
        again = await client.invoke(Op(2, 0, 0, "invoke", "held"))
        assert (again.type, again.error) == ("fail", "nothing was acknowledged since the last look")
        for link in client._links.values():
            await link.close()
        return done


@pytest.mark.parametrize(
    ("answer", "disk", "held", "by_file"),
    [
        (THERE, "", True, False),
        (OTHER, "", False, False),
        (MISSING, "", False, False),
        (ERROR, stored(body_of(5)).hex(), True, True),
        (None, stored(body_of(5)).hex(), True, True),
        (None, stored(body_of(6)).hex(), False, True),
        (None, stored(body_of(5)).hex()[:80], False, True),
        (None, "", False, True),
        (None, "no hex", None, True),
        (None, None, None, True),
    ],
)
def test_a_replica_that_does_not_answer_is_looked_at_on_its_disk(
    answer: ToyServer | None, disk: str | None, held: bool | None, by_file: bool
) -> None:
    async def test() -> None:
        done = await looked(answer, disk)
        assert done.value == {"id": 5, "held": {"n1": True, "n2": held}}
        assert done.extra == ({"by_file": ["n2"]} if by_file else {})

    run(test)


@pytest.mark.parametrize("sent", [ToyServer(12, msgId="AB", queueOffset="7"), ToyServer(msgId="AB", queueOffset="7")])
def test_only_what_was_acknowledged_at_a_place_is_looked_for(sent: ToyServer) -> None:
    async def test() -> None:
        assert (await looked(THERE, sent=sent)).type == "fail"

    run(test)


@pytest.mark.slow
def test_the_script_reads_the_log_of_either_kind(tmp_path: Path) -> None:
    class Here(Disk):
        def run(self, argv: list[str], **_: Any) -> Completed:
            done = subprocess.run(argv, capture_output=True, check=False)
            if done.returncode:
                raise InfraError("n2: no such folder")
            return Completed(argv, 0, done.stdout, done.stderr, 0.0)

    server: Any = Here(None)
    server.data_dirs = [str(tmp_path)]
    with pytest.raises(InfraError):
        record_at(server, 0)
    for folder in ("commitlog", "dledger-n1/data"):
        log = tmp_path / "store" / folder
        log.mkdir(parents=True)
        assert record_at(server, 1100) is None
        (log / f"{0:020}").write_bytes(bytes(1000))
        (log / f"{1000:020}").write_bytes(bytes(100) + stored(b"12 ...") + bytes(500))
        found = record_at(server, 1100)
        assert found is not None
        assert found.body == b"12 ..."
        assert [record_at(server, at) for at in (0, 999, 1099, 1101, 1300, 90000)] == [None] * 6


def test_what_brokers_tell_of_their_replicas_and_settings() -> None:
    status = (
        b'{"master":true,"inSyncSlaveNums":1,"haConnectionInfo":[{"addr":"127.0.0.1:4711","diff":7},'
        b'{"addr":"198.18.9.9:1","diff":9}]}'
    )
    config = ToyServer(body=b"inSyncReplicas=3\nother=1\nslaveTimeout=2000\n")

    async def test() -> None:
        async with serving(Broker({907: ToyServer(body=status), 26: config})) as first:
            brokers = {"n1": first, "n2": ("127.0.0.2", 1)}
            places = TopicLayout(False, "t", "readers", QUEUES[:1], {"a": list(brokers)}, brokers, [], [])
            client = QuorumAckOps(places, Named(), Beliefs(), LONG, False)
            asks = [Op(0, 0, 0, "invoke", f, extra={"node": n}) for f in ("in-sync", "settings") for n in brokers]
            done = [await client.invoke(op) for op in asks]
        assert [c.type for c in done] == ["ok", "fail", "ok", "fail"]
        assert done[0].value == {"master": True, "in_sync": 2, "behind": {"n1": 7, "?": 9}}
        assert done[2].value == {"inSyncReplicas": "3", "slaveTimeout": "2000"}

    run(test)
