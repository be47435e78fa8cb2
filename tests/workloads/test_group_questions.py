# SPDX-License-Identifier: Apache-2.0
"""Questions of the client of `consume` about a group: they go to the master of now; and the answers."""

from __future__ import annotations

from typing import Any

from toy_servers import LONG, ToyServer, run, serving

from results.op import Op
from workloads.brokers import Beliefs
from workloads.consume.client import ConsumeOps
from workloads.places import Queue, TopicLayout

STATS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":1,"topic":"t"}:'
    b'{"brokerOffset":9,"consumerOffset":7}}}'
)


class Masters:
    """Two masters, one after the other: a lookup that trusts the cache still finds the first one."""

    silence = "nobody"

    def __init__(self) -> None:
        self.now: str | None = "n2"

    def known(self, group: str) -> str:
        return "n1"

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        return self.now if refused_by == "n1" else "n1"


def ask(f: str) -> Op:
    return Op(0, 0, 0, "invoke", f, "t:a:0", None, extra={"group": "g"})


def test_questions_about_a_group_go_to_the_master_of_now() -> None:
    """Seen on real servers: the former master answered that the group has no offset, and a judge believed it."""

    async def test() -> None:
        former, now = ToyServer(body=b'{"consumerIdList":["old"]}'), ToyServer(body=b'{"consumerIdList":["c@m1-1"]}')
        async with serving(former) as first, serving(now) as second:
            nodes = {"n1": first, "n2": second}
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": list(nodes)}, nodes, [], [])
            masters: Any = Masters()
            client = ConsumeOps(places, masters, Beliefs({"a": "n1"}), LONG, True)
            named = await client.invoke(ask("named-members"))
            assert (named.type, named.value, named.extra["node"]) == ("ok", ["c@m1-1"], "n2")
            now.body = STATS
            assert (await client.invoke(ask("consume-stats"))).value == [["t:a:1", 9, 7]]
            now.ext = {"offset": "7"}
            client._beliefs.believe("a", "n1")
            assert (await client.invoke(ask("committed"))).value == 7
            assert not former.requests
            now.code, now.remark = 1, "no consumer for this group, g"
            assert (await client.invoke(ask("named-members"))).value == [], "nobody is no failure"
            now.remark = "out of order"
            assert (await client.invoke(ask("named-members"))).type == "fail"
            masters.now = None
            assert (await client.invoke(ask("named-members"))).type == "fail"
            for link in client._links.values():
                await link.close()

    run(test)


def test_the_members_of_a_proxy_are_requested_from_it() -> None:
    """No master knows them, and each proxy has a list of its own. One that is gone is no proof of anything."""

    async def test() -> None:
        broker, proxy = ToyServer(), ToyServer(body=b'{"consumerIdList":["c@m1-1"]}')
        async with serving(broker) as first, serving(proxy) as second:
            nodes = {"n1": first}
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": list(nodes)}, nodes, [], [])
            masters: Any = Masters()
            client = ConsumeOps(places, masters, Beliefs({"a": "n1"}), LONG, True)
            client.proxies = {"n2": second}
            op = Op(0, 0, 0, "invoke", "named-members", None, None, extra={"group": "g", "proxy": "n2"})
            named = await client.invoke(op)
            assert (named.type, named.value, named.extra["node"]) == ("ok", ["c@m1-1"], "n2")
            assert named.extra["proxy"] == "n2"
            proxy.code, proxy.remark = 1, "out of order"
            assert (await client.invoke(op)).type == "fail"
            assert not broker.requests
        assert (await client.invoke(op)).type == "fail"

    run(test)
