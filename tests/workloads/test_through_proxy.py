# SPDX-License-Identifier: Apache-2.0
"""The workloads `delay` and `transaction` with `--client grpc`, in virtual time: their real clients against proxies and
brokers in memory, judged by their judges.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, cast

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout, play

from harness.api import Client, Completion
from harness.nightly.matrix import read_matrix
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, PlanError, ServerPlan
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.clients.proxy import ProxyError, ProxyHalf, ProxyListener, ProxyQuestion
from infra.systems.rocketmq.message_body import body_of, id_of
from infra.systems.rocketmq.protocol.client import Pulled, Sent
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.messages import Message
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.asked import ProxyAsked
from workloads.brokers import Beliefs, BrokerClient
from workloads.clients import Foreign, Producers, TypedProducer
from workloads.delay import DelayOps, DelayWorkload
from workloads.masters import Masters
from workloads.messages import HANDING_NOTHING_OVER, MessageWorkload
from workloads.places import Queue
from workloads.transaction import INTERVAL_S, TIMEOUT_S, Decision, TransactionWorkload
from workloads.transaction_clients import ProxyTransactionOps

GROUPS: Final = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES: Final = [node for nodes in GROUPS.values() for node in nodes]
QUEUES: Final = [Queue(f"t-{group}{n}", group, 0) for group in GROUPS for n in range(2)]
GROUP_OF: Final = {queue.topic: queue.group for queue in QUEUES}
PROXIES: Final = ("n4", "n5")
_OK: Final = Outcome("ok", "")


@dataclass
class Open:
    """A half message without a decision."""

    topic: str
    message: int
    since: float


@dataclass
class Proxied:
    """Two broker groups behind two proxies, or ones with a `bug`, which concerns a few messages. trouble: the share of
    requests without an answer, and half as many are refused.
    """

    rng: Random
    trouble: float = 0.0
    bug: str | None = None
    queues: dict[str, list[int]] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)
    known: dict[str, set[str]] = field(default_factory=lambda: {proxy: set() for proxy in PROXIES})
    """Proxy -> the transactions whose place it knows."""
    asked: dict[str, list[ProxyQuestion]] = field(default_factory=lambda: {proxy: [] for proxy in PROXIES})
    recalled: set[int] = field(default_factory=set)
    down: str | None = None
    asking: asyncio.Task[None] | None = None
    ends: list[tuple[int, str, bool]] = field(default_factory=list)
    """Message, outcome, and whether a broker asked for it."""

    def is_strange(self, message: int) -> bool:
        """True if the bug concerns a message."""
        return self.bug is not None and message % 8 == 5

    def deliver(self, topic: str, message: int) -> None:
        if message not in self.recalled or self.bug == "recalled":
            self.queues.setdefault(topic, []).append(message)

    def delayed(self, topic: str, message: int, wait_s: float) -> None:
        times = [wait_s + self.rng.uniform(0.05, 1)]
        if self.is_strange(message) and self.bug in ("lost", "early", "late", "again"):
            times = {"lost": [], "early": [0.2], "late": [wait_s + 15], "again": [wait_s, wait_s + 0.5]}[self.bug]
        for at in times:
            asyncio.get_running_loop().call_later(at, self.deliver, topic, message)

    def end(self, half: ProxyHalf, how: str) -> Outcome:
        """A proxy ends a transaction whose place it knows, one-way."""
        if half.transaction_id not in self.known[half.proxy]:
            return Outcome("fail", "cannot found transaction data")
        self.known[half.proxy].discard(half.transaction_id)
        found = self.open.get(half.transaction_id)
        arrives = self.rng.random() >= self.trouble / 2
        if found is not None and arrives:
            strange = self.is_strange(found.message)
            if not (strange and self.bug == "again" and how == "commit"):
                del self.open[half.transaction_id]
            if (how == "commit") != (strange and self.bug == ("lost" if how == "commit" else "rolled-back")):
                self.deliver(found.topic, found.message)
        return Outcome("info", "sent one-way")

    async def ask(self) -> None:
        """The brokers' questions about open transactions, through one of the proxies that are there."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(INTERVAL_S)
            there = [proxy for proxy in PROXIES if proxy != self.down]
            for transaction, one in list(self.open.items()):
                if loop.time() <= one.since + TIMEOUT_S:
                    continue
                strange = self.is_strange(one.message)
                if strange and self.bug == "uncommitted" and Decision.of(one.message, 4).answer == "rollback":
                    del self.open[transaction]
                    self.deliver(one.topic, one.message)
                if strange and self.bug == "silent":
                    continue
                proxy = self.rng.choice(there)
                self.known[proxy].add(transaction)
                half = ProxyHalf(proxy, one.topic, f"M{transaction}", transaction, checked=True)
                self.asked[proxy].append(ProxyQuestion(half, body_of(one.message)))


class Producer:
    """The client of the proxies, for one thread."""

    def __init__(self, cluster: Proxied, thread: int) -> None:
        self.cluster, self._at = cluster, thread

    @property
    def proxy(self) -> str:
        return PROXIES[self._at % len(PROXIES)]

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        kind: str = "NORMAL",
        deliver_ms: int | None = None,
        deadline_s: float | None = None,
    ) -> Sent:
        outcome, done = await self._attempt()
        message = id_of(body)
        assert isinstance(message, int)
        if done and kind == "DELAY":
            assert deliver_ms is not None
            self.cluster.delayed(topic, message, self._waits[message])
        if done and kind == "TRANSACTION":
            self.cluster.open[f"T{message}"] = Open(topic, message, asyncio.get_running_loop().time())
            if outcome.type == "ok":
                self.cluster.known[self.proxy].add(f"T{message}")
        if outcome.type != "ok":
            self._at += 1
            return Sent(outcome)
        recall = f"handle-{message}" if kind == "DELAY" else None
        return Sent(outcome, 3, f"M{message}", 0, unique_id=f"T{message}", recall=recall)

    _waits: dict[int, float]

    async def send_half(
        self, topic: str, body: bytes, *, deadline_s: float | None = None
    ) -> tuple[Sent, ProxyHalf | None]:
        proxy = self.proxy
        sent = await self.send(topic, body, kind="TRANSACTION")
        if sent.message_id is None or sent.unique_id is None:
            return sent, None
        return sent, ProxyHalf(proxy, topic, sent.message_id, sent.unique_id)

    async def end_transaction(
        self, half: ProxyHalf, end: Literal["commit", "rollback"], *, deadline_s: float | None = None
    ) -> Answer:
        await asyncio.sleep(0.01)
        if half.proxy == self.cluster.down:
            answer = Answer(Outcome("fail", "no connection to the proxy"))
        else:
            answer = Answer(self.cluster.end(half, end), code=20000)
        self.cluster.ends.append((int(half.transaction_id[1:]), answer.outcome.type, half.checked))
        return answer

    async def recall(self, topic: str, handle: str, *, deadline_s: float | None = None) -> Answer:
        outcome, done = await self._attempt()
        if done:
            self.cluster.recalled.add(int(handle.removeprefix("handle-")))
        return Answer(outcome, code=20000)

    async def _attempt(self) -> tuple[Outcome, bool]:
        """The outcome of a request, and True if it had its effect."""
        await asyncio.sleep(self.cluster.rng.uniform(0.001, 0.02))
        if self.proxy == self.cluster.down:
            return Outcome("fail", "no connection to the proxy"), False
        luck = self.cluster.rng.random()
        if luck < self.cluster.trouble / 2:
            return Outcome("fail", "refused"), False
        if luck < self.cluster.trouble:
            return Outcome("info", "no answer"), self.cluster.rng.random() < 0.5
        return _OK, True


class Listener:
    """The stream of questions of one proxy."""

    def __init__(self, cluster: Proxied, name: str) -> None:
        self.cluster, self.name = cluster, name

    async def listen(self, wait_s: float) -> list[ProxyQuestion]:
        if self.cluster.asking is None:
            self.cluster.asking = asyncio.create_task(self.cluster.ask())
        if self.name == self.cluster.down:
            raise ProxyError("UNAVAILABLE")
        await asyncio.sleep(min(wait_s, 0.1))
        questions, self.cluster.asked[self.name] = self.cluster.asked[self.name], []
        return questions

    async def close(self) -> None:
        if self.cluster.asking is not None:
            self.cluster.asking.cancel()


class InMemory(BrokerClient):
    """Reads of the queues in memory."""

    cluster: Proxied

    async def pull(
        self, queue: Queue, node: str, offset: int, group: str | None = None, deadline_s: float = 1
    ) -> Pulled:
        await asyncio.sleep(0.005)
        stored = self.cluster.queues.get(queue.topic, [])
        shown = [
            Message(queue.topic, 0, at, at, body_of(stored[at]), {}, 0, 0, "", "", 0, 0, 0, 0, intact=True)
            for at in range(offset, min(offset + 20, len(stored)))
        ]
        return Pulled(_OK, shown, offset + len(shown), 0, len(stored))

    async def remake(self, op: Op) -> Completion:
        return Completion("ok", {"topics": [], "groups": []}, extra={"node": "n1"})


class Delaying(InMemory, DelayOps):
    """The real client of `delay`; its producer knows the waiting times, because the wall clock is not virtual."""

    async def invoke(self, op: Op) -> Completion:
        if op.f == "delay":
            assert self.foreign is not None
            assert "level" not in op.extra
            cast(Producer, self.foreign.typed)._waits = {op.value: op.extra["wait_ms"] / 1000}
        return await super().invoke(op)


class Transacting(InMemory, ProxyTransactionOps):
    """The real client of `transaction` through proxies."""


def run(workload: MessageWorkload, cluster: Proxied, seconds: float = 15) -> RunRecord:
    """Load, recovery, final phase."""
    places = layout(NODES, GROUPS, QUEUES)
    workload._places = places
    producers = Producers(lambda thread: Producer(cluster, thread))
    asked = ProxyAsked([cast(ProxyListener, Listener(cluster, proxy)) for proxy in PROXIES])

    def client(thread: int) -> Client:
        kind: type[InMemory] = Delaying if isinstance(workload, DelayWorkload) else Transacting
        made = kind(places, Masters(places), Beliefs(), 4, False, Foreign(producers, thread))
        made.cluster = cluster
        if isinstance(made, Transacting):
            made.furnish_proxied(asked)
        return cast(Client, made)

    ops = play(workload, client, seconds, NODES, final_s=150)
    return RunRecord(History(ops), deployment=DeploymentRecord("toy", groups=GROUPS))


def plan(workload: str, seed: int, **more: Any) -> Plan:
    dice = Random(seed)
    rate, concurrency = dice.uniform(80, 160), dice.randint(4, 9)
    return Plan(workload=workload, client="grpc", seed=seed, rate=rate, concurrency=concurrency, **more)


def judged(workload: MessageWorkload, record: RunRecord) -> Judgement:
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    return judged_by(workload, record, deployment, "delays", "transactions", "stats", "availability")


def figures(judgement: Judgement, checker: str) -> dict[str, Any]:
    return dict(next(r.stats for r in judgement.results if r.checker == checker))


@pytest.mark.slow
def test_good_delays_raise_no_alarm() -> None:
    for seed in range(3):
        workload = DelayWorkload(plan("delay", seed))
        record = run(workload, Proxied(Random(seed), trouble=0.03 * seed))
        judgement = judged(workload, record)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        found = figures(judgement, "delays")
        assert found["delivered"] > 300
        assert found["recalled"] > 5
        sends = [op for op in record.history if op.f == "delay" and op.type == "ok"]
        assert {op.extra["by"] for op in record.history if op.f == "delay" and op.type == "invoke"} == {"time"}
        assert {op.extra["proxy"] for op in sends} == set(PROXIES)


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
def test_bad_delays_are_found(bug: str, name: str) -> None:
    workload = DelayWorkload(plan("delay", 5))
    judgement = judged(workload, run(workload, Proxied(Random(5), 0.02, bug)))
    assert {a.name for a in judgement.anomalies} == {name}


@pytest.mark.slow
def test_good_transactions_raise_no_alarm() -> None:
    for seed in range(3):
        workload = TransactionWorkload(plan("transaction", seed))
        cluster = Proxied(Random(seed), trouble=0.03 * seed)
        record = run(workload, cluster)
        judgement = judged(workload, record)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        found = figures(judgement, "transactions")
        assert found["committed"] == found["rolled_back"] == 0, "no broker acknowledges an end"
        assert found["one_way"] > 300
        assert found["delivered"] > 200
        assert found["asked"] > 60
        assert found["most_copies"] == 1
        assert {type_ for _, type_, _ in cluster.ends} == {"info"}
        assert {checked for _, _, checked in cluster.ends} == {True, False}


@pytest.mark.slow
def test_what_a_proxy_forgot_is_asked_again_through_the_other_one() -> None:
    """Ends of its half messages certainly fail, and the brokers ask."""
    workload = TransactionWorkload(plan("transaction", 3))
    cluster = Proxied(Random(3))

    class Failing(Producer):
        async def send_half(
            self, topic: str, body: bytes, *, deadline_s: float | None = None
        ) -> tuple[Sent, ProxyHalf | None]:
            sent, half = await super().send_half(topic, body, deadline_s=deadline_s)
            if half is not None and half.proxy == "n5":
                self.cluster.known["n5"].discard(half.transaction_id)  # as by its restart
            return sent, half

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "Producer", Failing)
        record = run(workload, cluster)
    judgement = judged(workload, record)
    assert judgement.verdict == Verdict.VALID, judgement.reason
    failed = {message for message, type_, _ in cluster.ends if type_ == "fail"}
    later = {message for message, type_, checked in cluster.ends if type_ == "info" and checked}
    assert len(failed) > 50
    assert failed <= later


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("lost", "commit-forgotten"),
        ("rolled-back", "uncommitted-read"),
        ("uncommitted", "uncommitted-read"),
        ("silent", "never-asked"),
        ("again", "delivered-again"),
    ],
)
@pytest.mark.slow
def test_bad_transactions_are_found(bug: str, name: str) -> None:
    workload = TransactionWorkload(plan("transaction", 5))
    judgement = judged(workload, run(workload, Proxied(Random(5), 0, bug), seconds=25))
    assert {a.name for a in judgement.anomalies if a.legal is None} == {name}


def test_a_proxy_without_a_stream_is_asked_again() -> None:
    async def test() -> None:
        cluster = Proxied(Random(1), down="n4")
        asked = ProxyAsked([cast(ProxyListener, Listener(cluster, proxy)) for proxy in PROXIES])
        asked.join()
        half = ProxyHalf("n5", "t-a0", "M7", "T7", checked=True)
        cluster.asked["n5"].append(ProxyQuestion(half, b"7 ..."))
        question = await asked.take(2)
        assert question is not None
        assert (question.source, question.half, question.message, question.replaces) == ("n5", half, 7, 0)
        assert (asked.broken, asked.deaf) == ({"n4": "UNAVAILABLE"}, None)
        asked.broken["n5"] = "CANCELLED"
        assert asked.deaf == "n4: UNAVAILABLE; n5: CANCELLED"
        cluster.down = None
        cluster.asked["n4"].append(ProxyQuestion(half, b"no number"))
        question = await asked.take(2)
        assert question is not None
        assert question.message == "?6e6f206e756d626572"
        assert (asked.broken, asked.deaf) == ({}, None)
        await asked.leave()

    asyncio.run(test())


def test_a_check_reports_that_no_question_could_come() -> None:
    async def test() -> None:
        cluster = Proxied(Random(1), down="n4")
        asked = ProxyAsked([cast(ProxyListener, Listener(cluster, proxy)) for proxy in PROXIES])
        places = layout(NODES, GROUPS, QUEUES)
        producers = Producers(lambda thread: Producer(cluster, thread))
        client = Transacting(places, Masters(places), Beliefs(), 0.6, False, Foreign(producers, 0))
        client.furnish_proxied(asked)
        await client.open()
        check = Op(0, 0, 0, "invoke", "check", None, None)
        one = await client.invoke(check)
        assert (one.type, one.value, one.extra) == ("ok", None, {})
        asked.broken["n5"] = "CANCELLED"
        await client.close()
        none = await client.invoke(check)
        assert (none.type, none.value, none.extra["deaf"]) == ("ok", None, True)
        half = ProxyHalf("n5", "t-b1", "M7", "T7", checked=True)
        asked._questions.put("n5", half, 7)
        question = await client.invoke(check)
        assert (question.type, question.value) == ("ok", 7)
        found = {name: value for name, value in question.extra.items() if name != "waited_ms"}
        assert found == {"proxy": "n5", "group": "b", "half": ["n5", "M7", "T7"]}

    asyncio.run(test())


def test_only_a_producer_of_the_proxy_sends_typed_messages() -> None:
    class Plain:
        async def open(self) -> None: ...

        async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent:
            return Sent(_OK)

        async def close(self) -> None: ...

    assert isinstance(Producer(Proxied(Random(1)), 0), TypedProducer)
    with pytest.raises(TypeError, match="Plain sends neither delayed messages nor transactions"):
        _ = Foreign(Producers(lambda thread: Plain()), 0).typed


def test_combinations_that_cannot_work_are_refused() -> None:
    with pytest.raises(PlanError, match="client is 'grpc'; with --producer java only remoting is right"):
        TransactionWorkload(Plan(workload="transaction", client="grpc", options={"producer": "java"}))
    for workload in ("delay", "transaction"):
        acting = Plan(workload=workload, client="grpc", server=ServerPlan(topology="slave-acting-master"))
        with pytest.raises(PlanError, match="'slave-acting-master' with --client grpc; it does on controller, master-"):
            resolve(acting)
        assert resolve(replace(acting, client="remoting")).server.topology == "slave-acting-master"
        assert resolve(replace(acting, server=ServerPlan())).server.topology == "controller"
    assert resolve(Plan(workload="transaction")).server.topology == "slave-acting-master"


def test_the_matrix_has_no_cell_that_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text('[[cells]]\nworkload = ["delay"]\nnemesis = ["none"]\nversion = ["5.5.0"]\n')
    with_grpc = {cell.topology for cell in read_matrix(file).cells if cell.client == "grpc"}
    assert with_grpc == set(HANDING_NOTHING_OVER)
    assert "slave-acting-master" in {cell.topology for cell in read_matrix(file).cells}


@pytest.mark.parametrize(
    ("version", "name"),
    [("5.1.1", "topicRouteServiceCacheExpiredInSeconds"), ("5.2.0", "topicRouteServiceCacheRefreshSeconds")],
)
def test_proxies_look_for_masters_soon(version: str, name: str) -> None:
    server = ServerPlan(version=version)
    settings = TransactionWorkload(Plan(workload="transaction", client="grpc", server=server)).server_settings()
    assert settings[f"proxy.{name}"] == settings["proxy.transactionHeartbeatPeriodSecond"] == "5"
    own = TransactionWorkload(Plan(workload="transaction", server=server)).server_settings()
    assert not [setting for setting in own if setting.startswith("proxy.")]
