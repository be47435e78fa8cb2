# SPDX-License-Identifier: Apache-2.0
"""The client of the workload `gray` against toy servers: what it asks, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from toy_servers import LONG, run, serving

from harness.api import Completion
from infra.systems.remoting.frame import Frame, encode
from results.op import Op
from workloads.brokers import Beliefs
from workloads.gray.centre import Centre
from workloads.gray.client import GrayOps
from workloads.gray.split import Split
from workloads.masters import Masters
from workloads.places import Queue, TopicLayout


class Servers:
    """A broker and a name server in one: a group's members, a table, and the routes of a topic with six queues."""

    def __init__(self) -> None:
        self.members: list[str] = []
        self.table: dict[str, str] = {}
        self.codes: list[int] = []
        self.created: list[str] = []
        self.beats: Any = None

    async def __call__(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        self.codes.append(frame.code)
        code, body = 0, b""
        match frame.code:
            case 34:
                self.beats = writer
                name = json.loads(frame.body)["clientID"]
                self.members += [] if name in self.members else [name]
            case 35:
                self.members.remove(frame.ext["clientID"])
            case 38:
                body = json.dumps({"consumerIdList": self.members}).encode()
            case 100:
                self.table[frame.ext["key"]] = frame.ext["value"]
            case 219:
                code, body = (0, json.dumps({"table": self.table}).encode()) if self.table else (22, b"")
            case 105:
                body = b'{"queueDatas":[{"brokerName":"a","readQueueNums":6},{"brokerName":"x","readQueueNums":9}]}'
            case 17:
                self.created.append(frame.ext["readQueueNums"])
        writer.write(encode(Frame(code, frame.opaque, 1, None, {}, body)))


class Known(Masters):
    """n1 is the master."""

    def __init__(self) -> None:
        self.silence = ""

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        return "n1"


def op(f: str, value: Any = None, key: str | None = None, **extra: Any) -> Op:
    return Op(0, 0, 0, "invoke", f, key, value, extra={"group": "g", **extra})


def test_a_member_joins_rebalances_hears_and_leaves() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            servers = Servers()
            at = {"n1": await stack.enter_async_context(serving(servers))}
            places = TopicLayout(False, "t", "r", [Queue("t", "a", n) for n in range(6)], {"a": ["n1"]}, at, [], [])
            centre = Centre.of(2, 1)
            clients = [GrayOps(places, Known(), Beliefs(), LONG, False) for _ in range(2)]
            for n, client in enumerate(clients):
                client.furnish(centre, Split(6), "g", "cured", at, "gray", n)
            one, other = clients

            async def ask(client: GrayOps, f: str, value: Any = None, **extra: Any) -> Completion:
                done = await client.invoke(op(f, value, **extra))
                assert done.type == "ok", done
                return done

            gray = await ask(one, "join", member="m0")
            assert (gray.value, gray.extra["gray"]) == ("m0-0001", True)
            assert (await ask(other, "join", member="m1")).extra["gray"] is False
            assert servers.table == {"m0-0001": "1:true", "m1-0001": "2:false"}
            shares = [(await ask(c, "rebalance", member=f"m{n}")).value for n, c in enumerate(clients)]
            assert [s["queues"] for s in shares] == [["t:a:0", "t:a:5"], ["t:a:1", "t:a:2", "t:a:3", "t:a:4"]]
            assert shares[0]["of"] == {"a": 6}, "another group's queues are not the topic's"

            # Off and on again, with a version of its own each time; the member hears of it with its next message.
            await ask(other, "flag", {"member": "m0", "gray": False})
            assert servers.table["m0-0001"] == "3:false"
            assert (await ask(one, "rebalance", member="m0")).value["queues"] == ["t:a:1", "t:a:2"]
            assert "m0" in centre.turned

            # A broker's notice comes over the connection of the heartbeats.
            servers.beats.write(encode(Frame(40, 99, 2, None, {"consumerGroup": "g"})))
            while not other._changed:
                await asyncio.sleep(0.01)
            await ask(other, "leave", member="m1")
            assert servers.members == ["m0-0001"]
            assert (await ask(other, "join", member="m1")).value == "m1-0002"
            await ask(one, "crash", member="m0")
            assert "m0" not in centre.clients

            await ask(one, "expand", 2)
            assert servers.created == ["8"]
            for client in clients:
                await client.close()

    run(test)


def test_gray_producers_that_must_not_send_send_nothing() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            servers = Servers()
            at = {"n1": await stack.enter_async_context(serving(servers))}
            places = TopicLayout(False, "t", "r", [Queue("t", "a", 0)], {"a": ["n1"]}, at, [], [])
            client, centre = GrayOps(places, Known(), Beliefs(), LONG, False), Centre.of(2, 1)
            client.furnish(centre, Split(6), "g", "cured", at, "gray", 0)
            assert (await client.invoke(op("look"))).value == {"a": 6}
            assert (await client.invoke(op("sending", False))).type == "ok"
            sent = await client.invoke(op("send", 7, "t:a:0", colour="gray"))
            assert (sent.type, sent.error) == ("fail", "gray producers do not send now; nothing was sent")
            assert 310 not in servers.codes
            centre.open = 1
            client.deadline_s = 0.1
            assert (await client.invoke(op("sending", False))).type == "fail", "a gray send is under way"
            await client.close()

    run(test)
