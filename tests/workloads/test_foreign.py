# SPDX-License-Identifier: Apache-2.0
"""Others' producers under the workloads `log` and `queue`: whose process sends, and what its answers become."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.api import RunContext
from harness.plan.plan import Plan, PlanError, ServerPlan
from infra.machines.api import InfraError
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.protocol.sending import Sent
from infra.systems.rocketmq.topologies.layout import GROUP_OF_PROXIES
from results.deployment import DeploymentRecord, ServerRecord
from results.op import Op
from workloads.brokers import Beliefs, BrokerClient
from workloads.clients import Foreign, Grpc, Native, Producer, Producers, Remoting
from workloads.log import LogWorkload
from workloads.masters import Masters
from workloads.places import topic_layout
from workloads.queue import QueueWorkload


class Noted:
    """A producer that records its calls, and returns `answer`."""

    def __init__(self) -> None:
        self.answer = Sent(Outcome("ok", ""), 7, "M", 0)
        self.said: list[Any] = []

    async def open(self) -> None:
        self.said.append("open")

    async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent:
        assert deadline_s is not None
        assert 0 < deadline_s <= 5
        self.said.append((topic, body.split()[0]))
        return self.answer

    async def close(self) -> None:
        self.said.append("close")


def context(*more: ServerRecord) -> RunContext:
    """Two groups on three nodes, of which only the record is asked."""
    groups = {"a": ["n1", "n2"], "b": ["n3"]}
    brokers = [ServerRecord(n, "broker", n, {"broker": 10911}, g) for g, nodes in groups.items() for n in nodes]
    servers = [ServerRecord("n1", "namesrv", "n1", {"namesrv": 9876}), *brokers, *more]
    record = DeploymentRecord("master-slave", {n: n for nodes in groups.values() for n in nodes}, servers, groups)
    return RunContext(cast(Any, SimpleNamespace(record=record, servers=list)), run="7f")


def op(f: str, key: str, value: int) -> Op:
    return Op(index=0, time=0, process=0, type="invoke", f=f, key=key, value=value)


def test_each_queue_is_a_topic_of_its_own_where_the_client_chooses_the_queue() -> None:
    together = topic_layout(context(), "log-7f", 2)
    assert together.keys == ["log-7f:a:0", "log-7f:a:1", "log-7f:b:0", "log-7f:b:1"]
    assert together.topics("a") == {"log-7f": 2}
    apart = topic_layout(context(), "log-7f", 2, apart=True)
    assert apart.keys == ["log-7f-a0:a:0", "log-7f-a1:a:0", "log-7f-b0:b:0", "log-7f-b1:b:0"]
    assert apart.topics("b") == {"log-7f-b0": 1, "log-7f-b1": 1}


def test_proxies_have_their_group() -> None:
    """Without it they never hear of one another's clients: seen in every run with proxies, once a second in a log."""
    assert topic_layout(context(), "log-7f", 2, ["g"]).consumer_groups == ("readers-7f", "g")
    proxy = ServerRecord("n2", "proxy", "n2", {"proxy": 8081})
    assert topic_layout(context(proxy), "log-7f", 2, ["g"]).consumer_groups == ("readers-7f", "g", GROUP_OF_PROXIES)


@pytest.mark.parametrize(
    ("answer", "type_", "value", "extra"),
    [
        (Sent(Outcome("ok", ""), 7, "M", 0), "ok", [7, 17], {"code": 0, "message_id": "M"}),
        (Sent(Outcome("info", "lost"), None), "info", 17, {}),
        (
            Sent(Outcome("info", "slow"), 7, "M", 12),
            "info",
            17,
            {"code": 12, "message_id": "M", "status": "FLUSH_SLAVE_TIMEOUT", "offset": 7},
        ),
        (Sent(Outcome("fail", "refused"), None), "fail", 17, {}),
    ],
)
def test_a_send_goes_through_the_producer_of_the_thread(
    answer: Sent, type_: str, value: Any, extra: dict[str, Any]
) -> None:
    async def test() -> None:
        noted = Noted()
        noted.answer = answer
        producers = Producers(lambda thread: noted)
        where = topic_layout(context(), "log-7f", 2, apart=True)
        client = BrokerClient(where, Masters(where), Beliefs(), 5, False, Foreign(producers, 3))
        done = await client.send(op("send", "log-7f-b1:b:0", 17))
        assert (done.type, done.value, dict(done.extra)) == (type_, value, extra)
        await client.close()
        await client.close()
        assert noted.said == [("log-7f-b1", b"17"), "close"]

    asyncio.run(test())


def test_a_producer_outlives_its_user_until_nobody_is_left() -> None:
    async def test() -> None:
        made: dict[int, Noted] = {}

        def make(thread: int) -> Producer:
            assert thread not in made
            made[thread] = Noted()
            return made[thread]

        producers = Producers(make)
        await producers.start(2)
        first, second = Foreign(producers, 0), Foreign(producers, 1)
        for user in (first, second):
            await user.send("t", b"1", 1)
        await first.close()
        again = Foreign(producers, 0)
        await again.send("t", b"2", 1)
        assert made[0].said == ["open", ("t", b"1"), ("t", b"2")]
        await second.close()
        assert "close" not in made[0].said + made[1].said
        await again.close()
        assert made[0].said[-1] == made[1].said[-1] == "close"

    asyncio.run(test())


def test_what_cannot_be_had_is_refused() -> None:
    with pytest.raises(PlanError, match=r"client is 'native'; with --consume pop only remoting and grpc are right"):
        QueueWorkload(Plan(workload="queue", client="native", options={"consume": "pop"}))
    acting = ServerPlan(topology="slave-acting-master")
    with pytest.raises(
        PlanError, match=r"topology is 'slave-acting-master'; with --consume pop and --client grpc only c"
    ):
        QueueWorkload(Plan(workload="queue", client="grpc", server=acting, options={"consume": "pop"}))
    QueueWorkload(Plan(workload="queue", client="grpc", server=acting))
    with pytest.raises(TypeError, match="Noted does not pop"):
        _ = Foreign(Producers(lambda thread: Noted()), 0).popping
    assert asyncio.run(Remoting().producers(context(), 5)) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workloads.clients.proxy_folder", lambda: None)
        with pytest.raises(InfraError, match="no proxy runs in this cluster"):
            asyncio.run(Grpc().producers(context(), 5))
        proxy = ServerRecord("n3", "proxy", "n3", {"proxy": 8081})
        assert asyncio.run(Grpc().producers(context(proxy), 5)) is not None


def test_hidden_copies_of_the_native_client_are_no_fault_of_the_servers() -> None:
    assert set(Native.permits) == {"duplicated", "nonlinearizable"}
    assert Remoting.permits == {}
    assert LogWorkload.clients == (Remoting.name, Native.name, Grpc.name)
