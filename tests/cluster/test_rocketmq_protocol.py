# SPDX-License-Identifier: Apache-2.0
"""Every request of the client once against real servers of 5.5.0: a name server with the controller in it, a master and
a slave, on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster.loopback_servers import BROKER, DEADLINE_S, HOST, eventually, free_ports, start

from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin, Controller, NameServer
from infra.systems.rocketmq.protocol.client import Broker, Check, check_of
from infra.systems.rocketmq.servers.artifacts import fetch

pytestmark = pytest.mark.cluster

CONTROLLED = {
    **BROKER,
    "brokerId": "-1",
    "brokerRole": "SLAVE",
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "controllerHeartBeatTimeoutMills": "12000",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "haSendHeartbeatInterval": "1000",
}


@dataclass(frozen=True)
class Servers:
    """The ports of the servers."""

    names: int
    controller: int
    brokers: tuple[int, int]

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Cluster]:
        """Connections to all of them; the master is the one that the controller names."""
        async with (
            NameServer(HOST, self.names, deadline_s=DEADLINE_S) as names,
            Controller(HOST, self.controller, deadline_s=DEADLINE_S) as controller,
        ):
            master = int((await controller.replica_info("a")).master_address.rpartition(":")[2])
            (slave,) = set(self.brokers) - {master}
            async with (
                BrokerAdmin(HOST, master, deadline_s=DEADLINE_S) as admin,
                BrokerAdmin(HOST, slave, deadline_s=DEADLINE_S) as slave_admin,
            ):
                yield Cluster(
                    names,
                    controller,
                    admin,
                    slave_admin,
                    Broker(HOST, master, deadline_s=DEADLINE_S, raft_log=False),
                    Broker(HOST, slave, deadline_s=DEADLINE_S, raft_log=False),
                )


@dataclass(frozen=True)
class Cluster:
    names: NameServer
    controller: Controller
    admin: BrokerAdmin
    slave_admin: BrokerAdmin
    master: Broker
    slave: Broker

    async def topic(self, topic: str, group: str, queues: int = 2) -> None:
        """A topic and a group of this test, on both replicas."""
        for admin in (self.admin, self.slave_admin):
            await admin.create_topic(topic, queues)
            await admin.create_group(group)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("rocketmq")
    jars = fetch("5.5.0")
    found = Servers(free_ports(), free_ports(), (free_ports(), free_ports()))
    names = {
        "listenPort": str(found.names),
        "scanNotActiveBrokerInterval": "1000",
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "g1",
        "controllerDLegerPeers": f"n0-{HOST}:{found.controller}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(folder / "names" / "controller"),
        "mappedFileSize": "16777216",
    }
    processes = []
    try:
        processes.append(start("namesrv", folder / "names", jars, names))
        addresses = {"namesrvAddr": f"{HOST}:{found.names}", "controllerAddr": f"{HOST}:{found.controller}"}
        for number, port in enumerate(found.brokers):
            settings = {**CONTROLLED, **addresses, "listenPort": str(port)}
            processes.append(start("broker", folder / f"broker{number}", jars, settings))
        asyncio.run(_ready(found))
        yield found
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


async def _ready(found: Servers) -> None:
    """Both replicas in sync, and the master serves."""
    async with Controller(HOST, found.controller, deadline_s=DEADLINE_S) as controller:

        async def in_sync() -> bool:
            return len((await controller.replica_info("a")).in_sync) == 2

        await eventually(in_sync)


def on(servers: Servers, test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with servers.open() as cluster:
            await test(cluster)
            await cluster.master.close()
            await cluster.slave.close()

    asyncio.run(play())


def test_name_server_and_controller(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        assert (await c.names.config())["listenPort"] == str(servers.names)
        assert (await c.controller.config())["controllerDLegerSelfId"] == "n0"
        metadata = await c.controller.metadata()
        assert (metadata.is_leader, metadata.leader_address) == (True, f"{HOST}:{servers.controller}")
        info = await c.controller.replica_info("a")
        assert info.in_sync == [1, 2]
        assert info.master_id in info.in_sync
        state = (await c.controller.sync_state(["a", "nobody"]))["a"]
        assert {replica["brokerId"] for replica in state["inSyncReplicas"]} == {1, 2}
        assert all(replica["alive"] for replica in state["inSyncReplicas"])
        assert (state["masterAddress"], state["masterEpoch"]) == (info.master_address, info.master_epoch)
        with pytest.raises(AdminError) as refusal:
            await c.controller.replica_info("nobody")
        assert refusal.value.code == 2008

        assert await c.names.member_group("harness", "nobody") == {}
        await eventually(lambda: _has_both(c))
        assert (await c.names.cluster())["clusterAddrTable"] == {"harness": ["a"]}

    on(servers, test)


async def _has_both(c: Cluster) -> bool:
    members = await c.names.member_group("harness", "a")
    return 0 in members and len(members) == 2


def test_what_a_broker_tells_of_itself(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        info = await c.admin.runtime_info()
        assert info["brokerVersionDesc"] == "V5_5_0"
        assert {"commitLogMaxOffset", "commitLogMinOffset", "dispatchBehindBytes"} <= info.keys()
        status = await c.admin.ha_status()
        assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
        assert (await c.slave_admin.ha_status())["master"] is False
        epochs = [await admin.epochs() for admin in (c.admin, c.slave_admin)]
        assert [e["epochList"][-1]["epoch"] for e in epochs] == [
            (await c.controller.replica_info("a")).master_epoch
        ] * 2
        assert epochs[0]["brokerId"] == 0
        assert (await c.admin.config())["mappedFileSizeConsumeQueue"] == "40000"
        assert await c.admin.delay_offsets() is not None

    on(servers, test)


def test_topics_and_groups(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        assert await c.admin.topic_exists("topics") is False
        assert await c.names.route("topics") is None
        await c.topic("topics", "topics-g")
        assert await c.admin.topic_exists("topics") is True
        assert await c.slave_admin.topic_exists("topics") is True
        route = await eventually(lambda: c.names.route("topics"))
        assert [(queue["brokerName"], queue["writeQueueNums"]) for queue in route["queueDatas"]] == [("a", 2)]
        assert await c.admin.topic_queues("topics") == 2
        await c.admin.create_topic("topics", 4)
        assert await c.admin.topic_queues("topics") == 4
        await c.admin.delete_topic("topics")
        assert await c.admin.topic_exists("topics") is False
        assert await c.admin.topic_queues("topics") is None
        await c.names.delete_topic("topics", "harness")
        assert await c.names.route("topics") is None
        sent = await c.master.send("topics", 0, b"1")
        assert (sent.outcome.type, sent.code) == ("fail", 17)

    on(servers, test)


def test_send_and_pull(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("log", "log-g")
        sent = await c.master.send("log", 0, b"1", properties={"TAGS": "a"})
        assert (sent.outcome.type, sent.offset, sent.code) == ("ok", 0, 0)
        assert [(await c.master.send("log", 0, body)).offset for body in (b"2", b"3")] == [1, 2]
        chosen = await c.master.send("log", -1, b"4")
        assert chosen.outcome.type == "ok"
        assert chosen.queue in (0, 1)
        for reader in (c.master, c.slave):

            async def replicated(reader: Broker = reader) -> bool:
                return ((await reader.max_offset("log", 0)).value or 0) >= 3

            await eventually(replicated)
            pulled = await reader.pull("log", 0, 0, group="log-g")
            assert [(m.offset, m.body) for m in pulled.messages][:3] == [(0, b"1"), (1, b"2"), (2, b"3")]
            assert pulled.messages[0].message_id == sent.message_id
            assert (pulled.messages[0].properties["TAGS"], pulled.messages[0].intact) == ("a", True)
            assert (pulled.next, pulled.min) == (len(pulled.messages), 0)
        assert (await c.master.min_offset("log", 0)).value == 0
        assert (await c.master.max_offset("nobody", 0)).value == 0
        moved = await c.master.pull("log", 0, 99, group="log-g")
        assert (moved.code, moved.next) == (21, moved.max)
        unmoved = await c.slave.pull("log", 0, 99, group="log-g")
        assert (unmoved.code, unmoved.next) == (20, 99)
        assert (await c.master.pull("log", 0, moved.max or 0, group="log-g", suspend_s=1)).code == 19
        refusals = [
            await c.slave.send("log", 0, b"5"),
            await c.master.send("log", 9, b"5"),
            await c.master.send("log", 0, bytes(128 << 10)),
            await c.master.pull("log", 0, 0, group="nobody"),
            await c.master.pull("nobody", 0, 0, group="log-g"),
        ]
        assert [(r.outcome.type, r.code) for r in refusals] == [
            ("fail", 2),
            ("fail", 29),
            ("fail", 13),
            ("fail", 26),
            ("fail", 17),
        ]

    on(servers, test)


def test_committed_offsets(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("offsets", "offsets-g")
        none = await c.master.committed_offset("offsets", 1, "offsets-g")
        assert (none.outcome.type, none.value, none.code) == ("ok", None, 22)
        await c.master.send("offsets", 1, b"1")
        assert (await c.master.commit_offset("offsets", 1, "offsets-g", 1)).outcome.type == "ok"
        assert (await c.master.committed_offset("offsets", 1, "offsets-g")).value == 1
        refused = await c.master.commit_offset("offsets", 1, "nobody", 1)
        assert (refused.outcome.type, refused.code) == ("fail", 26)

    on(servers, test)


def test_pop_ack_and_more_time(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("pop", "pop-g", queues=1)
        for body in (b"1", b"2", b"3"):
            await c.master.send("pop", 0, body)

        async def pop(invisible_ms: int = 60_000, poll_s: float = 1) -> Any:
            popped = await c.master.pop(
                "pop", -1, group="pop-g", broker_name="a", invisible_ms=invisible_ms, poll_s=poll_s
            )
            assert popped.outcome.type == "ok"
            return popped.messages

        first = await pop(3000)
        assert [message.body for message, _ in first] == [b"1", b"2", b"3"]
        assert (await c.master.ack("pop", first[0][1], group="pop-g")).outcome.type == "ok"
        longer = await c.master.change_invisible_time("pop", first[1][1], 600_000, group="pop-g")
        assert longer.outcome.type == "ok"
        again = await eventually(pop)
        assert [(message.body, handle.retry) for message, handle in again] == [(b"3", 1)]
        assert (await c.master.ack("pop", again[0][1].text, group="pop-g")).outcome.type == "ok"
        assert longer.handle is not None
        assert (await c.master.ack("pop", longer.handle, group="pop-g")).outcome.type == "ok"
        assert await pop() == []
        too_many = await c.master.pop("pop", 0, group="pop-g", broker_name="a", invisible_ms=1, max_messages=33)
        assert (too_many.outcome.type, too_many.code) == ("fail", 29)

    on(servers, test)


def test_a_transaction_is_committed_rolled_back_and_asked_for(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("transactions", "transactions-g", queues=1)
        checks: list[Check] = []

        def pushed(frame: Frame) -> None:
            if (check := check_of(frame)) is not None:
                checks.append(check)

        member = Broker(HOST, c.master.port, deadline_s=DEADLINE_S, raft_log=False, on_request=pushed)
        assert (await member.heartbeat("c1", producers=["transactions-p"])).outcome.type == "ok"
        halves = []
        for body in (b"1", b"2", b"3"):
            sent, half = await c.master.send_half("transactions", 0, body, group="transactions-p")
            assert sent.outcome.type == "ok"
            assert half is not None
            halves.append(half)
        assert (await c.master.end_transaction(halves[0], "commit", group="transactions-p")).outcome.type == "ok"
        assert (await c.master.end_transaction(halves[1], "rollback", group="transactions-p")).outcome.type == "ok"
        unknown = await c.master.end_transaction(halves[2], "unknown", group="transactions-p")
        assert unknown.outcome.type == "info"
        refused = await c.slave.end_transaction(halves[2], "commit", group="transactions-p")
        assert (refused.outcome.type, refused.code) == ("fail", 11)

        async def requested() -> list[Check]:
            return checks

        await eventually(requested)
        assert {check.message.body for check in checks} == {b"3"}
        newest = checks[-1].half
        assert newest.transaction_id == halves[2].transaction_id
        assert newest.physical > halves[2].physical
        await member.end_transaction(newest, "commit", group="transactions-p")

        async def both() -> bool:
            pulled = await c.master.pull("transactions", 0, 0, group="transactions-g")
            return {message.body for message in pulled.messages} == {b"1", b"3"}

        await eventually(both)
        await member.close()

    on(servers, test)


def test_delays_and_recall(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("delays", "delays-g", queues=1)
        timer = await c.master.send("delays", 0, b"1", properties={"TIMER_DELAY_MS": "2000"})
        level = await c.master.send("delays", 0, b"2", properties={"DELAY": "1"})
        late = await c.master.send("delays", 0, b"3", properties={"TIMER_DELAY_SEC": "20"})
        assert [sent.outcome.type for sent in (timer, level, late)] == ["ok"] * 3
        assert late.recall is not None
        assert (await c.master.recall("delays", late.recall)).outcome.type == "ok"
        nonsense = await c.master.recall("delays", "nonsense")
        assert (nonsense.outcome.type, nonsense.code) == ("fail", 604)
        refused = await c.slave.recall("delays", late.recall)
        assert (refused.outcome.type, refused.code) == ("fail", 11)

        async def delivered() -> bool:
            pulled = await c.master.pull("delays", 0, 0, group="delays-g")
            return {message.body for message in pulled.messages} == {b"1", b"2"}

        await eventually(delivered)

    on(servers, test)


def test_members_and_locks(servers: Servers) -> None:
    async def test(c: Cluster) -> None:
        await c.topic("locks", "locks-g")
        with pytest.raises(AdminError, match="no consumer"):
            await c.admin.consumers("locks-g")
        member = Broker(HOST, c.master.port, deadline_s=DEADLINE_S)
        await member.heartbeat("c1", consumers=["locks-g"], topics=["locks"])
        assert await c.admin.consumers("locks-g") == ["c1"]
        queues = [("locks", "a", 0), ("locks", "a", 1)]
        assert (await c.master.lock_queues("c1", queues, group="locks-g")).queues == set(queues)
        assert (await c.master.lock_queues("c2", queues, group="locks-g")).queues == set()
        assert (await c.master.unlock_queues("c1", queues[:1], group="locks-g")).outcome.type == "ok"
        assert (await c.master.lock_queues("c2", queues, group="locks-g")).queues == {queues[0]}
        assert (await member.leave("c1", consumer="locks-g")).outcome.type == "ok"
        with pytest.raises(AdminError, match="no consumer"):
            await c.admin.consumers("locks-g")
        await member.close()

    on(servers, test)
