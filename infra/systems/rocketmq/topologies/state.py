# SPDX-License-Identifier: Apache-2.0
"""The state that the servers of a RocketMQ cluster report, and the conditions that are missing until they serve.

All queries go over the network, from outside: a node with stopped processes does not answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.systems.api import Status
from infra.systems.remoting.connection import RemotingError, connect
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin, Controller, NameServer
from infra.systems.rocketmq.protocol.client import Broker
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV
from infra.systems.rocketmq.topologies.layout import BROKER_PORT, CLUSTER, DLEDGER_PORT, NAMESRV_PORT, Layout, groups

READY_TOPIC: Final = "harness-ready"
"""The topic of one message at every master before clients start: a cluster that takes it serves. No workload reads
it.
"""

_DLEDGER_METADATA: Final = 50000
"""DLedgerRequestCode.METADATA: every member answers it with the leader and the term it knows."""

_NO_TOPIC: Final = 17


@dataclass(frozen=True)
class Addresses:
    """The addresses of all servers. `raft_log`: whether the CommitLog is a Raft log. `nodes`: name -> IPv4 address."""

    raft_log: bool
    nodes: Mapping[str, str]
    places: Layout
    nameservers: Sequence[tuple[str, int]]
    controllers: Sequence[tuple[str, int]]

    def node_at(self, address: str | None) -> str | None:
        """The node of `host:port`, or None if no node has this address."""
        host = (address or "").rpartition(":")[0]
        return next((name for name, ours in self.nodes.items() if ours == host), None)


async def answers(kind: str, host: str, port: int, timeout_s: float) -> bool:
    """True if a server answers at all: the first sign of life, which does not mean that it serves."""
    try:
        match kind:
            case "namesrv":
                async with NameServer(host, port, deadline_s=timeout_s) as server:
                    await server.config()
            case "broker":
                async with BrokerAdmin(host, port, deadline_s=timeout_s) as broker:
                    await broker.config()
            case "controller":
                async with Controller(host, port, deadline_s=timeout_s) as controller:
                    await controller.metadata()
            case _:
                (await connect(host, port, timeout_s)).close()
    except (RemotingError, AdminError):
        return False
    return True


async def effective(kind: str, host: str, port: int, timeout_s: float) -> dict[str, str]:
    """A server's effective configuration. Raises RemotingError or AdminError."""
    kinds: Mapping[str, type[NameServer | BrokerAdmin | Controller]] = {
        NAMESRV: NameServer,
        BROKER: BrokerAdmin,
        CONTROLLER: Controller,
    }
    async with kinds[kind](host, port, deadline_s=timeout_s) as server:
        return await server.config()


async def look(where: Addresses, node: str, timeout_s: float, *, thorough: bool = False) -> Status:
    """The present report of the servers of one node; `silent` if its broker does not answer in time.

    A node without a broker counts as a follower. `committed` is the position that a master knows to be on all replicas
    in sync with it; slaves do not report theirs.

    `begin` and `applied`, and in DLedger mode all offsets, need a thorough query: they are in the broker's
    runtime info, for which `TimerMessageStore.getAllCongestNum` walks the whole timer wheel (1.2 million slots, 0.1 to
    0.2 s of CPU). Five brokers that are queried once a second spend a whole core on it.
    """
    place = where.places[node]
    extra: dict[str, Any] = {}
    parts: list[Awaitable[Status | None]] = [_controller(where, node, timeout_s, extra)]
    if NAMESRV in place.kinds:
        parts.append(_namesrv(where, node, timeout_s, extra))
    broker = _broker(where, node, timeout_s, extra, thorough) if place.group is not None else _nothing(extra)
    status, *_ = await asyncio.gather(broker, *parts)
    assert status is not None
    return Status(
        role=status.role,
        term=status.term,
        leader=status.leader,
        begin=status.begin,
        end=status.end,
        committed=status.committed,
        applied=status.applied,
        extra=extra,
    )


async def missing(where: Addresses, timeout_s: float) -> str | None:
    """The first thing that the cluster lacks for serving, in words; None when it serves.

    The conditions, in their order: controllers have a leader, groups a master that all members follow,
    every replica is in sync, name servers list them all, and each master stores a message.
    """
    names = [node for node, place in where.places.items() if place.kinds]
    reply = dict(zip(names, await asyncio.gather(*(look(where, node, timeout_s) for node in names)), strict=True))
    if where.controllers:
        leading = [node for node, status in reply.items() if status.extra.get("controller") == "leader"]
        if not leading:
            return "no controller leads"
        in_sync = reply[leading[0]].extra.get("in_sync", [])
    for group, members in groups(where.places).items():
        masters = [node for node in members if reply[node].role == "leader"]
        if len(masters) != 1:
            return f"group {group} has {'no master' if not masters else ' and '.join(masters) + ' as masters'}"
        (master,) = masters
        for node in members:
            if node != master and (reply[node].role != "follower" or reply[node].leader != master):
                text = f"{reply[node].role}" + (f", of {reply[node].leader}" if reply[node].leader else "")
                return f"{node} does not follow {master}, the master of group {group}: it is {text}"
            if where.controllers and node not in in_sync:
                return f"{node} is not in the SyncStateSet of group {group} ({', '.join(in_sync) or 'empty'})"
        problem = await _unlisted(where, group, members, master, timeout_s) or await _refused(where, master, timeout_s)
        if problem:
            return problem
    return None


async def _nothing(extra: Mapping[str, Any]) -> Status:
    return Status("follower")


async def _broker(where: Addresses, node: str, timeout_s: float, extra: dict[str, Any], thorough: bool) -> Status:
    try:
        async with (
            asyncio.timeout(timeout_s),
            BrokerAdmin(where.nodes[node], BROKER_PORT, deadline_s=timeout_s) as broker,
        ):
            info = await broker.runtime_info() if thorough else {}
            if where.raft_log:
                return await _dledger(where, node, timeout_s, info, extra)
            ha = await broker.ha_status()
            epochs = await broker.epochs() if where.controllers else {}
    except (RemotingError, TimeoutError):
        return Status("silent")
    except AdminError:
        return Status("starting")  # it answers, but has no report yet
    place = where.places[node]
    slave = ha.get("haClientRuntimeInfo") or {}
    master = node if ha.get("master") else where.node_at(slave.get("masterAddr"))
    term = (epochs.get("epochList") or [{}])[-1].get("epoch")
    end = ha.get("masterCommitLogMaxOffset") if master == node else slave.get("maxOffset")
    acks = [c.get("slaveAckOffset", 0) for c in ha.get("haConnectionInfo") or [] if c.get("inSync")]
    extra |= {"broker_name": place.group, "broker_id": epochs.get("brokerId", place.broker_id), "master": master}
    if term is not None:
        extra["epoch"] = term
    return Status(
        role="leader" if master == node else "follower",
        term=term,
        leader=master,
        begin=_number(info, "commitLogMinOffset"),
        end=end,
        committed=min([end, *acks]) if master == node and end is not None else None,
        applied=_applied(info),
    )


async def _dledger(
    where: Addresses, node: str, timeout_s: float, info: Mapping[str, str], extra: dict[str, Any]
) -> Status:
    """The role as DLedger has it, the offsets as the broker around it reports them: `end` is the position that a
    majority has. No server reports the term: DLedger's own answer leaves it out, and brokers do not pass it on.
    """
    place = where.places[node]
    connection = await connect(where.nodes[node], DLEDGER_PORT, timeout_s)
    try:
        requested = {"group": place.group, "remoteId": node, "localId": node}
        answer = json.loads((await connection.call(_DLEDGER_METADATA, json.dumps(requested).encode(), timeout_s)).body)
    except ValueError:
        return Status("starting")
    finally:
        connection.close()
    leader = answer.get("leaderId")
    extra |= {"broker_name": place.group, "master": leader}
    end = _number(info, "commitLogMaxOffset")
    return Status(
        role="leader" if leader == node else "follower" if leader else "candidate",
        leader=leader,
        begin=_number(info, "commitLogMinOffset"),
        end=end,
        committed=end,
        applied=_applied(info),
    )


async def _controller(where: Addresses, node: str, timeout_s: float, extra: dict[str, Any]) -> None:
    """Adds to `extra` if the node's controller leads, and the in-sync members that a leader knows."""
    port = next((port for host, port in where.controllers if host == where.nodes[node]), None)
    if port is None:
        return
    try:
        async with asyncio.timeout(timeout_s), Controller(where.nodes[node], port, deadline_s=timeout_s) as controller:
            if not (await controller.metadata()).is_leader:
                extra["controller"] = "follower"
                return
            extra["controller"] = "leader"
            for reply in (await controller.sync_state(list(groups(where.places)))).values():
                replicas = reply.get("inSyncReplicas") or []
                # The field is `address` in 5.1.0, `brokerAddress` in its successors.
                extra["in_sync"] = [where.node_at(r.get("brokerAddress") or r.get("address")) for r in replicas]
                extra["in_sync_epoch"] = reply.get("syncStateSetEpoch")
                extra["master_epoch"] = reply.get("masterEpoch")
    except (RemotingError, AdminError, TimeoutError):
        extra.setdefault("controller", None)


async def _namesrv(where: Addresses, node: str, timeout_s: float, extra: dict[str, Any]) -> None:
    extra["namesrv"] = await _says(where, node, timeout_s) is not None


async def _says(where: Addresses, node: str, timeout_s: float) -> dict[str, dict[int, str]] | None:
    """Group -> broker id -> address as the node's name server lists them, or None if it does not answer."""
    try:
        async with (
            asyncio.timeout(timeout_s),
            NameServer(where.nodes[node], NAMESRV_PORT, deadline_s=timeout_s) as server,
        ):
            return {group: await server.member_group(CLUSTER, group) for group in groups(where.places)}
    except (RemotingError, AdminError, TimeoutError):
        return None


async def _unlisted(where: Addresses, group: str, members: Sequence[str], master: str, timeout_s: float) -> str | None:
    """The member that is missing in some name server's list of a group, in words; None if none is."""
    for node, place in where.places.items():
        if NAMESRV not in place.kinds:
            continue
        reply = await _says(where, node, timeout_s)
        if reply is None:
            return f"the name server of {node} does not answer"
        listed = {number: where.node_at(address) for number, address in reply[group].items()}
        if absent := [member for member in members if member not in listed.values()]:
            return f"the name server of {node} does not list {', '.join(absent)} in group {group}"
        if listed.get(0) != master:
            return f"the name server of {node} lists {listed.get(0)} as the master of group {group}, not {master}"
    return None


async def _refused(where: Addresses, master: str, timeout_s: float) -> str | None:
    """The reason why a master does not store a message; None if it does."""
    host = where.nodes[master]
    broker = Broker(host, BROKER_PORT, deadline_s=timeout_s, raft_log=where.raft_log)
    try:
        sent = await broker.send(READY_TOPIC, 0, b"ready")
        if sent.code == _NO_TOPIC:
            async with BrokerAdmin(host, BROKER_PORT, deadline_s=timeout_s) as admin:
                await admin.create_topic(READY_TOPIC, 1)
            sent = await broker.send(READY_TOPIC, 0, b"ready")
    except (RemotingError, AdminError) as e:
        return f"{master}: {e}"
    finally:
        await broker.close()
    return None if sent.code == 0 else f"{master} does not store a message: {sent.outcome.why}"


def _applied(info: Mapping[str, str]) -> int | None:
    """The position up to which the CommitLog is dispatched to the queues. Right after a truncation the distance is
    below zero.
    """
    end, behind = _number(info, "commitLogMaxOffset"), _number(info, "dispatchBehindBytes")
    return None if end is None else end - max(0, behind or 0)


def _number(reply: Mapping[str, str], name: str) -> int | None:
    text = reply.get(name, "")
    return int(text) if text.lstrip("-").isdigit() else None
