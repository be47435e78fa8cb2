# SPDX-License-Identifier: Apache-2.0
"""Requests of administrators to name servers, brokers and controllers.

>>> async with BrokerAdmin("198.18.20.11", 10911, deadline_s=2) as broker:  # doctest: +SKIP
...     info = await broker.runtime_info()

Each object is one connection to one server. Without an answer, RemotingError is raised; for a
refusal, AdminError. Answers are plain JSON values as the servers name them; `docs/design.md` lists the requests.

Source: `AdminBrokerProcessor`, `DefaultRequestProcessor` (name server) and `ControllerRequestProcessor` of 5.3.3; seen
with 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from infra.systems.remoting.connection import Malformed
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol import fastjson
from infra.systems.rocketmq.protocol.codes import Request, name_of
from infra.systems.rocketmq.protocol.link import Link

Json = dict[str, Any]

_TOPIC_MISSING: Final = 17
_GROUP_MISSING: Final = 26
_SYSTEM_ERROR: Final = 1
_MISSING_BEFORE_5_3: Final = ("No group in this broker",)
"""Remarks of brokers of 5.1 and 5.2 for a missing group; their code is not specific."""
_NOT_FOUND: Final = 22
_TIMER_CHECKPOINT: Final = 32
"""The least bytes of a timer's checkpoint; since 5.0 the version of the table follows them."""
READ_WRITE: Final = 6
"""Permission bits of a topic: 4 read, 2 write."""


class AdminError(Exception):
    """The server answered, and refused. One line: the server, the request, the code and its text."""

    def __init__(self, address: str, request: Request, code: int, remark: str | None) -> None:
        self.code, self.remark = code, remark
        words = (remark or "no remark").strip().splitlines()[0][:200]
        super().__init__(f"{address}: {request.name} was answered with {name_of(code)} ({words})")


class Server(Link):
    """The base of all servers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(self, code: Request, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Frame:
        """The answer, if it is success. Raises AdminError and RemotingError."""
        frame = await self.ask(code, ext or {}, body)
        if frame.code != 0:
            raise AdminError(self.address, code, frame.code, frame.remark)
        return frame

    async def json(self, code: Request, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Json:
        """The answer's body, an object."""
        frame = await self.request(code, ext, body)
        try:
            value = fastjson.loads(frame.body)
        except fastjson.FastjsonError as e:
            raise Malformed(f"{self.address}: {code.name}: {e}") from None
        if not isinstance(value, dict):
            raise Malformed(f"{self.address}: {code.name}: a JSON {type(value).__name__}, not an object")
        return value

    async def properties(self, code: Request) -> dict[str, str]:
        """The answer's body, lines of key=value (configuration)."""
        text = (await self.request(code)).body.decode(errors="replace")
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
        return {key.strip(): value for key, _, value in pairs}


class NameServer(Server):
    """The routes that brokers reported to this name server. Name servers do not talk to one another; query each."""

    async def route(self, topic: str) -> Json | None:
        """`queueDatas` and `brokerDatas` (`brokerAddrs`: id -> address) of a topic; None: not known here.

        A slave that acts as the master has the id "0" here; for real ids call `member_group`.
        """
        try:
            return await self.json(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        except AdminError as e:
            if e.code == _TOPIC_MISSING:
                return None
            raise

    async def delete_topic(self, topic: str, cluster: str) -> None:
        """Deletes the routes of a topic here. A broker that still has the topic registers them again."""
        await self.request(Request.DELETE_TOPIC_IN_NAMESRV, {"topic": topic, "clusterName": cluster})

    async def cluster(self) -> Json:
        """`brokerAddrTable` and `clusterAddrTable`: every broker that is registered."""
        return await self.json(Request.GET_BROKER_CLUSTER_INFO)

    async def member_group(self, cluster: str, broker_name: str) -> dict[int, str]:
        """Broker id -> address of a group's living members; empty for an unknown group."""
        ext = {"clusterName": cluster, "brokerName": broker_name}
        reply = await self.json(Request.GET_BROKER_MEMBER_GROUP, ext)
        members = (reply.get("brokerMemberGroup") or {}).get("brokerAddrs") or {}
        return {int(number): address for number, address in members.items()}

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Stores a value here, also over a restart. No other name server gets it."""
        await self.request(Request.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})

    async def kv_table(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace here; empty for an unknown one."""
        try:
            reply = await self.json(Request.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        except AdminError as e:
            if e.code == _NOT_FOUND:
                return {}
            raise
        return {key: str(value) for key, value in (reply.get("table") or {}).items()}

    async def config(self) -> dict[str, str]:
        """The effective configuration."""
        return await self.properties(Request.GET_NAMESRV_CONFIG)


class BrokerAdmin(Server):
    """Topics, groups, configuration and state of one broker. Since 5.2.0 slaves accept topics and groups, too; before,
    they refuse them, and copy their master's every 10 s or so.
    """

    async def create_topic(
        self,
        topic: str,
        queues: int,
        *,
        message_type: str | None = None,
        permission: int = READ_WRITE,
        order: bool = False,
    ) -> None:
        """Creates or changes a topic here. `message_type`: NORMAL, FIFO, DELAY or TRANSACTION, for brokers that
        check it.
        """
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(permission),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": str(order).lower(),
            "force": "false",
        }
        if message_type is not None:
            ext["attributes"] = f"+message.type={message_type}"
        await self.request(Request.UPDATE_AND_CREATE_TOPIC, ext)

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic and its queues here; the other replicas do not get it. An unknown topic is no error."""
        await self.request(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    async def topic_queues(self, topic: str) -> int | None:
        """The number of queues of a topic here, for sends; None: this replica does not know the topic."""
        try:
            config = await self.json(Request.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
            return int(config["writeQueueNums"])
        except AdminError as e:
            if e.code == _TOPIC_MISSING:
                return None
            raise
        except (KeyError, TypeError, ValueError):
            raise Malformed(f"{self.address}: a topic without the number of its queues") from None

    async def topic_exists(self, topic: str) -> bool:
        """True if this replica knows the topic. Offsets do not show it: they are 0 for unknown topics, too."""
        return await self._exists(Request.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"}, _TOPIC_MISSING)

    async def group_exists(self, group: str) -> bool:
        """True if this replica knows the consumer group."""
        return await self._exists(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group}, _GROUP_MISSING)

    async def _exists(self, request: Request, ext: dict[str, str], missing: int) -> bool:
        try:
            await self.request(request, ext)
        except AdminError as e:
            if _is_missing(e, missing):
                return False
            raise
        return True

    async def create_group(
        self,
        group: str,
        *,
        orderly: bool = False,
        retries: int = 16,
        enabled: bool = True,
        broadcast: bool = True,
        retry_queues: int = 1,
    ) -> None:
        """Creates or changes a consumer group here, as `mqadmin updateSubGroup` does, and writes it to disk. enabled:
        members get messages (`consumeEnable`). retries: `retryMaxTimes`; a remoting client names a limit of its own.
        retry_queues: `retryQueueNums`; the topic of the retries keeps the number of queues that it was made with.
        """
        body = {
            "groupName": group,
            "consumeEnable": enabled,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": broadcast,
            "consumeMessageOrderly": orderly,
            "retryQueueNums": retry_queues,
            "retryMaxTimes": retries,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        await self.request(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(body).encode())

    async def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """Deletes a consumer group here, as `mqadmin deleteSubGroup -b` does; with its offsets or without them. The
        topics of its retries and dead letters stay. An unknown group is no error.
        """
        ext = {"groupName": group, "cleanOffset": str(clean_offsets).lower()}
        await self.request(Request.DELETE_SUBSCRIPTIONGROUP, ext)

    async def group_settings(self, group: str) -> Json | None:
        """The settings of a consumer group here, as the broker names them; None: this replica does not know it. A
        broker with `autoCreateSubscriptionGroup` makes it.
        """
        try:
            return await self.json(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
        except AdminError as e:
            if _is_missing(e, _GROUP_MISSING):
                return None
            raise

    async def set_request_mode(self, topic: str, group: str, mode: Literal["PULL", "POP"]) -> None:
        """Sets how the push consumers of a group get messages of a topic, and writes it to disk here. With POP, each
        member pops from all queues (`popShareQueueNum` 0). Members without a rebalance of their own
        (`clientRebalance`) follow with their next one, every 20 s. Any role takes it; a slave copies its master's.
        """
        body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": 0}
        await self.request(Request.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())

    async def runtime_info(self) -> dict[str, str]:
        """Counters by name: commitLogMaxOffset, commitLogMinOffset, dispatchBehindBytes, brokerVersionDesc, ..."""
        table = (await self.json(Request.GET_BROKER_RUNTIME_INFO)).get("table") or {}
        return {name: str(value) for name, value in table.items()}

    async def ha_status(self) -> Json:
        """`master`; on one `masterCommitLogMaxOffset`, `inSyncSlaveNums`, `haConnectionInfo` (addr, slaveAckOffset,
        diff, inSync); on a slave `haClientRuntimeInfo` (masterAddr, maxOffset, ...).
        """
        return await self.json(Request.GET_BROKER_HA_STATUS)

    async def epochs(self) -> Json:
        """`brokerId` (0: master), `maxOffset`, `epochList` (epoch, startOffset, endOffset; the last's is 2^63-1 on the
        master). Only with a controller, else AdminError 1.
        """
        return await self.json(Request.GET_BROKER_EPOCH_CACHE)

    async def config(self) -> dict[str, str]:
        """The effective configuration."""
        return await self.properties(Request.GET_BROKER_CONFIG)

    async def delay_offsets(self) -> dict[int, int]:
        """Delay level -> the offset up to which its queue has been delivered."""
        table = (await self.json(Request.GET_ALL_DELAY_OFFSET)).get("offsetTable") or {}
        return {int(level): int(at) for level, at in table.items()}

    async def consumer_offset_counter(self) -> int:
        """The version of this replica's table of committed offsets (`DataVersion.counter`). It rises by default with
        each 500th commit, whatever the group. A slave takes over its master's with the table.
        """
        version = (await self.json(Request.GET_ALL_CONSUMER_OFFSET)).get("dataVersion") or {}
        try:
            return int(version["counter"])
        except (KeyError, TypeError, ValueError):
            raise Malformed(f"{self.address}: a table of offsets without the counter of its version") from None

    async def timer_read_ms(self) -> int:
        """The time (ms since 1970, by its own clock) up to which this replica has delivered the messages of its timer
        (`TimerCheckpoint.lastReadTimeMs`, the first of seven 8-byte numbers).
        """
        body = (await self.request(Request.GET_TIMER_CHECK_POINT)).body
        if len(body) < _TIMER_CHECKPOINT:
            raise Malformed(f"{self.address}: a timer checkpoint of {len(body)} bytes")
        return int.from_bytes(body[:8], "big", signed=True)

    async def consumers(self, group: str) -> list[str]:
        """Client ids of the group whose heartbeats reach this broker. None: AdminError 1."""
        reply = await self.json(Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return list(reply.get("consumerIdList") or [])

    async def consume_stats(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        """Queue -> its end and the group's offset, as `mqadmin consumerProgress` shows them. No offset is 0 here. A
        group that is online and does not subscribe to the topic has no queues.
        """
        ext = {"consumerGroup": group, "topic": topic}
        table = (await self.json(Request.GET_CONSUME_STATS, ext)).get("offsetTable") or {}
        try:
            queues = [(json.loads(key), value) for key, value in table.items()]
            return {
                int(queue["queueId"]): (int(value["brokerOffset"]), int(value["consumerOffset"]))
                for queue, value in queues
                if queue["topic"] == topic
            }
        except (ValueError, TypeError, KeyError) as e:
            raise Malformed(f"{self.address}: invalid figures of a group: {type(e).__name__}: {e}") from None


def _is_missing(refusal: AdminError, code: int) -> bool:
    return refusal.code == code or (refusal.code == _SYSTEM_ERROR and refusal.remark in _MISSING_BEFORE_5_3)


@dataclass(frozen=True, slots=True)
class ControllerMetadata:
    """The leader of the controllers, as one of them reports it. `leader_address` is empty while no leader exists."""

    group: str
    leader_id: str
    leader_address: str
    is_leader: bool
    peers: str


def _member(text: Any) -> int | str:
    """A member of a SyncStateSet. Raises TypeError if it is neither an id nor an address."""
    if type(text) is int or (type(text) is str and ":" in text):
        return text
    raise TypeError(f"{text!r} in the SyncStateSet")


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A broker group as the leading controller sees it; `in_sync` are broker ids, or addresses in 5.1.0, which has no
    ids that last.
    """

    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: Sequence[int | str]
    in_sync_epoch: int


class Controller(Server):
    """One controller. All but `metadata` and `config` are answered by the leader alone (AdminError 2007), which does
    not query the others first: a deposed one may return an outdated state.
    """

    async def metadata(self) -> ControllerMetadata:
        """Returns the leader of the controllers."""
        reply = (await self.request(Request.CONTROLLER_GET_METADATA_INFO)).ext
        return ControllerMetadata(
            group=reply.get("group", ""),
            leader_id=reply.get("controllerLeaderId", ""),
            leader_address=reply.get("controllerLeaderAddress", ""),
            is_leader=reply.get("isLeader") == "true",
            peers=reply.get("peers", ""),
        )

    async def replica_info(self, broker_name: str) -> ReplicaInfo:
        """Master and SyncStateSet of a group; unknown: AdminError 2008."""
        frame = await self.request(Request.CONTROLLER_GET_REPLICA_INFO, {"brokerName": broker_name})
        try:
            body = fastjson.loads(frame.body) if frame.body else {}
            master = frame.ext.get("masterBrokerId")
            return ReplicaInfo(
                master_id=None if master is None else int(master),
                master_address=frame.ext.get("masterAddress", ""),
                master_epoch=int(frame.ext.get("masterEpoch", -1)),
                in_sync=sorted(_member(text) for text in body.get("syncStateSet") or []),
                in_sync_epoch=int(body.get("syncStateSetEpoch", -1)),
            )
        except (ValueError, AttributeError, TypeError) as e:
            raise Malformed(f"{self.address}: invalid replica info: {e}") from None

    async def sync_state(self, broker_names: Sequence[str]) -> Json:
        """Group -> `masterBrokerId`, `masterAddress`, `masterEpoch`, `syncStateSetEpoch`, `inSyncReplicas` and
        `notInSyncReplicas` (brokerName, brokerId, brokerAddress, alive). An unknown group is not in it.
        """
        reply = await self.json(Request.CONTROLLER_GET_SYNC_STATE_DATA, {}, json.dumps(list(broker_names)).encode())
        table = reply.get("replicasInfoTable") or {}
        return dict(table)

    async def next_broker_id(self, cluster: str, broker_name: str) -> int:
        """The id that the next new broker of a group would apply for; 1 for an unknown group."""
        ext = {"clusterName": cluster, "brokerName": broker_name}
        reply = (await self.request(Request.CONTROLLER_GET_NEXT_BROKER_ID, ext)).ext
        try:
            return int(reply["nextBrokerId"])
        except (KeyError, ValueError):
            raise Malformed(f"{self.address}: an answer without the next broker id") from None

    async def clean_broker_data(self, cluster: str, broker_name: str, broker_ids: Sequence[int]) -> None:
        """Makes the controllers forget dead brokers (`mqadmin cleanBrokerMetadata`). A living one: AdminError 2009."""
        ext = {
            "clusterName": cluster,
            "brokerName": broker_name,
            "brokerControllerIdsToClean": ";".join(map(str, broker_ids)),
            "isCleanLivingBroker": "false",
            "cleanLivingBroker": "false",
        }
        await self.request(Request.CLEAN_BROKER_DATA, ext)

    async def config(self) -> dict[str, str]:
        """The effective configuration."""
        return await self.properties(Request.GET_CONTROLLER_CONFIG)
