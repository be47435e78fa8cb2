# SPDX-License-Identifier: Apache-2.0
"""The workload `queue` with `--consume pop --client grpc`, in virtual time: its real client against a proxy in memory,
judged by its judges. (The client's own process: tests/infra/test_proxy_client.py.)
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout, play
from workloads_in_memory import JUDGES, NODES, Brokers

from checkers.base.api import judge
from checkers.messages.queue import Deliveries, Leases
from harness.api import Client, Completion
from harness.plan.plan import Plan, ServerPlan
from infra.machines.api import InfraError
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.clients.proxy_popping import Prolonged, ProxyPopper, Received, Subscription, _delivery
from infra.systems.rocketmq.message_body import body_of, id_of
from infra.systems.rocketmq.protocol.client import Sent
from infra.systems.rocketmq.protocol.link import Answer
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Verdict
from workloads import proxy_pops
from workloads.brokers import Beliefs
from workloads.clients import Foreign, PoppingProducer, Producers
from workloads.masters import Masters
from workloads.places import Queue, queue_of
from workloads.queue import QueueOps, QueueWorkload

QUEUES = [Queue(f"t-a{n}", "a", 0) for n in range(3)]
PROXIES = ("n2", "n3")


class Proxied(Brokers):
    """One broker group behind proxies: handles are theirs, with a ninth word."""

    serial = count()

    def pop(self, source: Queue, now: float, invisible_ms: int) -> list[Any]:
        found: list[Any] = []

        def hand_out(queue: Queue, offset: int, message: int, retry: int) -> None:
            text = f"{offset} {int(now * 1000)} {invisible_ms} 3 {retry} a {queue.number} {offset} {next(self.serial)}"
            found.append([queue.key, offset, message, text, retry])

        for handle, (until, entry) in list(self.leased.items()):
            strange = self.is_strange(entry[2])
            if queue_of(entry[0]).topic != source.topic or (strange and self.bug == "never-returned"):
                continue
            if (until < now or (strange and self.bug == "leased-twice")) and len(found) < 8:
                del self.leased[handle]
                hand_out(queue_of(entry[0]), entry[1] + 1000, entry[2], 1)
        key = Queue(source.topic, "a", 0).key
        queue = self.queues.get(key, [])
        while self.popped.get(key, 0) < len(queue) and len(found) < 8:
            at = self.popped.get(key, 0)
            self.popped[key] = at + 1
            if not (self.bug == "lost-to-group" and self.is_strange(queue[at])):
                hand_out(queue_of(key), at, queue[at], 0)
        self.leased |= {entry[3]: (now + invisible_ms / 1000, entry) for entry in found}
        return found


class Popper:
    """The client of the proxies, for one thread. It goes to the other proxy after anything but success."""

    def __init__(self, cluster: Proxied, thread: int) -> None:
        self.cluster, self._at = cluster, thread

    @property
    def proxy(self) -> str:
        return PROXIES[self._at % len(PROXIES)]

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def _ask(self, f: str, topic: str, value: Any, **extra: Any) -> Completion:
        number = -1 if f == "pop" else 0
        done = await self.cluster.invoke(Op(0, 0, 0, "invoke", f, f"{topic}:a:{number}", value, None, extra))
        self._at += done.type != "ok"
        return done

    async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent:
        done = await self._ask("send", topic, id_of(body))
        return Sent(Outcome(done.type, done.error or ""), done.value[0] if done.type == "ok" else None, "M", 0)

    async def receive(
        self,
        topic: str,
        subscription: Subscription,
        *,
        invisible_ms: int,
        most: int,
        wait_s: float = 0,
        deadline_s: float | None = None,
    ) -> Received:
        assert list(subscription.topics) == [queue.topic for queue in QUEUES]
        done = await self._ask("pop", topic, None, group="g", invisible_ms=invisible_ms, wait_s=wait_s)
        if done.type != "ok":
            return Received(Outcome(done.type, "not done"))
        shown = [{"body": body_of(id_, 100).decode(), "handle": text} for _, _, id_, text, _ in done.value]
        return Received(Outcome("ok", ""), [_delivery(one) for one in shown], 20000)

    async def ack(
        self, topic: str, handle: str, subscription: Subscription, *, deadline_s: float | None = None
    ) -> Answer:
        identity = next((entry[2] for at, (_, entry) in self.cluster.leased.items() if at == handle), 0)
        done = await self._ask("ack", topic, [handle], group="g", id=identity)
        return Answer(Outcome(done.type, done.error or ""))

    async def change_invisible_time(
        self,
        topic: str,
        handle: str,
        invisible_ms: int,
        subscription: Subscription,
        *,
        deadline_s: float | None = None,
    ) -> Prolonged:
        done = await self._ask("extend", topic, [handle, invisible_ms], group="g")
        return Prolonged(Outcome(done.type, done.error or ""), done.value[0] if done.type == "ok" else None)


class Consumer(QueueOps):
    """The real client; only its reads, which go past the proxies, are from memory."""

    cluster: Proxied

    async def invoke(self, op: Op) -> Completion:
        if op.f in ("drain", "replica-read", "remake"):
            return await self.cluster.invoke(op)
        return await super().invoke(op)


def run(seed: int, cluster: Proxied, seconds: float = 8) -> tuple[QueueWorkload, RunRecord]:
    """Load, recovery, final phase."""
    dice = Random(seed)
    rate, concurrency = dice.uniform(80, 160), dice.randint(4, 9)
    options = {"consume": "pop"}
    workload = QueueWorkload(
        Plan(workload="queue", client="grpc", seed=seed, rate=rate, concurrency=concurrency, options=options)
    )
    workload._places, workload.group = layout(NODES, {"a": NODES}, QUEUES), "g"
    producers = Producers(lambda thread: Popper(cluster, thread))

    def client(thread: int) -> Client:
        made = Consumer(workload.places, Masters(workload.places), Beliefs(), 4, False, Foreign(producers, thread))
        made.cluster = cluster
        return cast(Client, made)

    def calm() -> None:
        cluster.trouble = 0

    ops = play(workload, client, seconds, NODES, final_s=100, before_final=calm)
    return workload, RunRecord(History(ops))


@pytest.mark.slow
def test_good_pops_raise_no_alarm() -> None:
    for seed in range(4):
        workload, record = run(seed, Proxied(Random(seed), trouble=0.03 * (seed % 3), forgetful=False))
        deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""))
        judgement = judged_by(workload, record, deployment, *JUDGES)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        done = [op for op in record.history if op.type == "ok" and op.f in ("pop", "ack", "extend")]
        assert {op.f for op in done} == {"pop", "ack", "extend"}
        assert {op.extra["proxy"] for op in done} == set(PROXIES)
        popped = [one for op in done if op.f == "pop" for one in op.value]
        assert {key for key, *_ in popped} == {queue.key for queue in QUEUES}
        assert {copy for _, _, _, _, copy, _ in popped} == {0, 1}
        leases = next(r.stats for r in judgement.results if r.checker == "leases")
        assert leases["acked"] > 300


@pytest.mark.parametrize("bug", ["leased-twice", "acked-redelivered", "never-returned", "lost-to-group"])
@pytest.mark.slow
def test_brokers_behind_a_proxy_that_forget_what_was_popped_are_found(bug: str) -> None:
    cluster = Proxied(Random(1), trouble=0, forgetful=False)
    cluster.bug = bug
    _, record = run(1, cluster, seconds=15)
    judgement = judge(record, [Leases(limit_s=10), Deliveries()])
    found = {anomaly.name for anomaly in judgement.anomalies if anomaly.legal is None}
    assert bug in found
    also = {"acked-redelivered"} if bug == "leased-twice" else set()  # one lease is acknowledged, the other one ends
    assert found <= {bug, "never-returned", *also}


def test_the_double_does_what_the_client_of_the_proxy_does() -> None:
    assert isinstance(Popper(Proxied(Random(1), 0, False), 0), PoppingProducer)
    assert isinstance(ProxyPopper(Path(), {"n2": ("a", 1)}, deadline_s=1), PoppingProducer)


@pytest.mark.parametrize(
    ("version", "name"),
    [("5.1.1", "topicRouteServiceCacheExpiredInSeconds"), (None, "topicRouteServiceCacheRefreshSeconds")],
)
def test_a_proxy_takes_short_invisible_durations_and_does_not_wait(version: str | None, name: str) -> None:
    def settings(**more: Any) -> dict[str, str]:
        plan = Plan(workload="queue", server=ServerPlan(version=version), options={"consume": "pop"}, **more)
        found = QueueWorkload(plan).server_settings()
        return {key: value for key, value in found.items() if key.startswith("proxy.")}

    assert settings() == {}
    assert settings(client="grpc") == {
        f"proxy.{name}": "5",
        "proxy.grpcClientConsumerMinLongPollingTimeoutMillis": "0",
        "proxy.minInvisibleTimeMillsForRecv": "1000",
    }


class Committing:
    """Brokers that note the offsets committed; the first answer of n2 is a refusal."""

    noted: list[tuple[str, str, int, str, int]]

    def __init__(self, host: str, port: int, **_: Any) -> None:
        self.host = host

    async def commit_offset(self, topic: str, queue: int, group: str, offset: int) -> Answer:
        first = not any(host == self.host for host, *_ in self.noted)
        self.noted.append((self.host, topic, queue, group, offset))
        return Answer(Outcome("fail", "no") if first and self.host.endswith(".1") else Outcome("ok", ""))

    async def close(self) -> None:
        """Nothing to close."""


def test_the_group_begins_at_the_start_of_every_queue_at_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    Committing.noted = []
    monkeypatch.setattr(proxy_pops, "Broker", Committing)
    asyncio.run(proxy_pops.start_at_zero(layout(NODES, {"a": NODES}, QUEUES), "g"))
    hosts = [f"198.18.0.{i}" for i in range(3)]
    assert set(Committing.noted) == {(host, queue.topic, 0, "g", 0) for host in hosts for queue in QUEUES}
    assert len(Committing.noted) == len(hosts) * len(QUEUES) + 1
    monkeypatch.setattr(proxy_pops, "SETUP_LIMIT_S", 0)
    with pytest.raises(InfraError, match="the brokers did not take the first offset of g within 0 s"):
        asyncio.run(proxy_pops.start_at_zero(layout(NODES, {"a": NODES}, QUEUES), "g"))
