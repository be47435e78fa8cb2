# SPDX-License-Identifier: Apache-2.0
"""Requests of administrators: the requests as they are sent, the answers as a 5.5.0 sends them, and refusals."""

from __future__ import annotations

import json

import pytest
from toy_servers import LONG, ToyServer, free_port, hang_up, run, serving

from infra.systems.remoting.connection import Broken, Malformed, Refused
from infra.systems.rocketmq.protocol.admin import (
    AdminError,
    BrokerAdmin,
    Controller,
    ControllerMetadata,
    NameServer,
    ReplicaInfo,
)


def test_name_servers() -> None:
    async def test() -> None:
        route = {"queueDatas": [{"brokerName": "a", "perm": 6}], "brokerDatas": []}
        server = ToyServer(body=json.dumps(route).encode())
        async with serving(server) as address, NameServer(*address, deadline_s=LONG) as names:
            assert await names.route("t") == route
            assert server.last.ext == {"topic": "t", "acceptStandardJsonOnly": "true"}
            server.body = b'{"brokerAddrTable":{},"clusterAddrTable":{"c":["a"]}}'
            assert (await names.cluster())["clusterAddrTable"] == {"c": ["a"]}
            server.body = b'{"brokerMemberGroup":{"brokerAddrs":{0:"x:1",2:"y:2"},"brokerName":"a","cluster":"c"}}'
            assert await names.member_group("c", "a") == {0: "x:1", 2: "y:2"}
            server.body = b'{"brokerMemberGroup":{"brokerAddrs":{}}}'
            assert await names.member_group("c", "nobody") == {}
            server.body = b"#c\nlistenPort=9876\nempty=\nkvConfigPath=/a=b\n"
            assert await names.config() == {"listenPort": "9876", "empty": "", "kvConfigPath": "/a=b"}
            server.body = b'{"table":{"k":"v","n":7}}'
            assert await names.kv_table("s") == {"k": "v", "n": "7"}
            await names.put_kv("s", "k", "w")
            assert server.last.ext == {"namespace": "s", "key": "k", "value": "w"}
            server.code = 17
            assert await names.route("t") is None
            with pytest.raises(AdminError, match="GET_KVLIST_BY_NAMESPACE"):
                await names.kv_table("s")
            server.code = 22
            assert await names.kv_table("s") == {}
        codes = [105, 106, 901, 901, 319, 219, 100, 105, 219, 219]
        assert [request.code for request in server.requests] == codes

    run(test)


def test_brokers() -> None:
    async def test() -> None:
        server = ToyServer(body=b'{"table":{"commitLogMaxOffset":"77","brokerVersion":485}}')
        async with serving(server) as address, BrokerAdmin(*address, deadline_s=LONG) as broker:
            assert await broker.runtime_info() == {"commitLogMaxOffset": "77", "brokerVersion": "485"}
            await broker.create_topic("t", 4, message_type="FIFO")
            requested = server.last.ext
            assert (requested["topic"], requested["writeQueueNums"], requested["perm"]) == ("t", "4", "6")
            assert requested["attributes"] == "+message.type=FIFO"
            await broker.create_group("g", orderly=True)
            assert json.loads(server.last.body)["groupName"] == "g"
            assert json.loads(server.last.body)["consumeMessageOrderly"] is True
            await broker.create_group("g", enabled=False, broadcast=False, retries=3, retry_queues=4)
            body = json.loads(server.last.body)
            assert (body["consumeEnable"], body["consumeBroadcastEnable"]) == (False, False)
            assert (body["retryMaxTimes"], body["retryQueueNums"]) == (3, 4)
            await broker.delete_group("g", clean_offsets=True)
            assert (server.last.code, server.last.ext) == (207, {"groupName": "g", "cleanOffset": "true"})
            await broker.set_request_mode("t", "g", "POP")
            assert server.last.code == 401
            asked = json.loads(server.last.body)
            assert asked == {"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
            await broker.delete_topic("t")
            server.body = b'{"groupName":"g","retryMaxTimes":3}'
            assert await broker.group_settings("g") == {"groupName": "g", "retryMaxTimes": 3}
            assert server.last.ext == {"group": "g"}
            server.body = b'{"offsetTable":{2:9}}'
            assert await broker.delay_offsets() == {2: 9}
            server.body = b'{"consumerIdList":["c"]}'
            assert await broker.consumers("g") == ["c"]
            offsets = b'{"brokerOffset":9,"consumerOffset":7,"lastTimestamp":1,"pullOffset":7}'
            queue = b'{"brokerName":"a","queueId":1,"topic":"t"}'
            server.body = b'{"consumeTps":0.0,"offsetTable":{' + queue + b":" + offsets + b"}}"
            assert await broker.consume_stats("g", "t") == {1: (9, 7)}
            assert server.last.ext == {"consumerGroup": "g", "topic": "t"}
            server.body = b'{"offsetTable":{"nonsense":{}}}'
            with pytest.raises(Malformed, match="invalid figures of a group"):
                await broker.consume_stats("g", "t")
            server.body = b'{"master":true,"inSyncSlaveNums":2}'
            assert (await broker.ha_status())["inSyncSlaveNums"] == 2
            assert await broker.topic_exists("t") is True
            server.code = 17
            assert await broker.topic_exists("t") is False
            server.code = 26
            assert await broker.group_exists("g") is False
            assert await broker.group_settings("g") is None
            server.code = 0
            assert await broker.group_exists("g") is True
            server.code, server.remark = 1, "No group in this broker"  # 5.1 and 5.2
            assert await broker.group_exists("g") is False
            server.remark = None
            with pytest.raises(AdminError, match="GET_TOPIC_CONFIG was answered with 1 SYSTEM_ERROR"):
                await broker.topic_exists("t")

    run(test)


def test_controllers() -> None:
    async def test() -> None:
        leader = {"group": "g1", "controllerLeaderId": "n0", "controllerLeaderAddress": "x:9878", "isLeader": "false"}
        server = ToyServer(**leader, peers="n0:x:9878")
        async with serving(server) as address, Controller(*address, deadline_s=LONG) as controller:
            assert await controller.metadata() == ControllerMetadata("g1", "n0", "x:9878", False, "n0:x:9878")
            server.ext = {"masterBrokerId": "2", "masterAddress": "y:10911", "masterEpoch": "4"}
            server.body = b'{"syncStateSet":[3,2],"syncStateSetEpoch":6}'
            assert await controller.replica_info("a") == ReplicaInfo(2, "y:10911", 4, [2, 3], 6)
            server.ext, server.body = {}, b""
            assert await controller.replica_info("a") == ReplicaInfo(None, "", -1, [], -1)
            server.ext = {"masterAddress": "y:10911", "masterEpoch": "2", "brokerId": "-1"}
            server.body = b'{"syncStateSet":["z:10911","y:10911"],"syncStateSetEpoch":8}'
            of_5_1_0 = ReplicaInfo(None, "y:10911", 2, ["y:10911", "z:10911"], 8)
            assert await controller.replica_info("a") == of_5_1_0
            server.body = b'{"syncStateSet":["x"]}'
            with pytest.raises(Broken, match="invalid replica info"):
                await controller.replica_info("a")
            server.body = b'{"replicasInfoTable":{"a":{"masterEpoch":4}}}'
            assert await controller.sync_state(["a", "b"]) == {"a": {"masterEpoch": 4}}
            assert json.loads(server.last.body) == ["a", "b"]
            await controller.clean_broker_data("c", "a", [1, 3])
            assert server.last.ext["brokerControllerIdsToClean"] == "1;3"
            with pytest.raises(Broken, match="without the next broker id"):
                await controller.next_broker_id("c", "a")
            server.ext = {"clusterName": "c", "brokerName": "a", "nextBrokerId": "4"}
            assert await controller.next_broker_id("c", "a") == 4
            server.code, server.remark = 2007, "the controller is not in leader state"
            with pytest.raises(AdminError, match="2007 CONTROLLER_NOT_LEADER") as refusal:
                await controller.sync_state(["a"])
            assert refusal.value.code == 2007

    run(test)


@pytest.mark.parametrize("body", [b"", b"[]", b"{0:", b"\xff"])
def test_a_body_without_sense(body: bytes) -> None:
    async def test() -> None:
        async with serving(ToyServer(body=body)) as address, BrokerAdmin(*address, deadline_s=LONG) as broker:
            with pytest.raises(Broken, match=r"127\.0\.0\.1:\d+: GET_BROKER_HA_STATUS: "):
                await broker.ha_status()

    run(test)


def test_no_answer() -> None:
    async def test() -> None:
        with pytest.raises(Refused):
            await BrokerAdmin(*await free_port(), deadline_s=LONG).runtime_info()
        async with serving(hang_up) as address:
            with pytest.raises(Broken):
                await BrokerAdmin(*address, deadline_s=LONG).runtime_info()

    run(test)
