# SPDX-License-Identifier: Apache-2.0
"""One client of `log` and `queue` against toy servers: what it makes of answers, and whom it believes afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import AsyncExitStack
from typing import Any

from stored_messages import stored
from toy_servers import LONG, ToyServer, free_port, hang_up, run, serving

from harness.api import Completion
from infra.systems.remoting.frame import Frame, encode
from results.op import Op
from workloads.asked import AskedProducer
from workloads.brokers import Beliefs
from workloads.log import LogOps
from workloads.masters import Masters
from workloads.places import Queue, TopicLayout
from workloads.queue import ROUTE_S, QueueOps
from workloads.transaction_clients import TransactionOps

KEY = "t:a:0"


class Named(Masters):
    """Returns the given answers, and counts the requests."""

    def __init__(self, *answers: str | None) -> None:
        self.answers, self.asked, self.silence = list(answers), 0, "no node reports one"

    def known(self, group: str) -> str | None:
        return self.answers[0]

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Told(Masters):
    """Remembers the cluster's last answer, as the real one does; the cluster gives these answers."""

    def __init__(self, where: TopicLayout, answers: list[str]) -> None:
        super().__init__(where)
        self.answers = answers

    async def _ask(self, group: str) -> str | None:
        return self.answers.pop(0)


def places(endpoints: dict[str, tuple[str, int]], controllers: list[tuple[str, int]] | None = None) -> TopicLayout:
    return TopicLayout(
        "controller", "t", "readers", [Queue("t", "a", 0)], {"a": list(endpoints)}, endpoints, [], controllers or []
    )


def op(f: str = "send", value: Any = 7, **extra: Any) -> Op:
    return Op(0, 0, 0, "invoke", f, KEY, value, extra=extra)


def sending(answer: Any, *, sticky_master: bool, times: int = 2) -> tuple[list[Completion], Named]:
    """Sends to n1, which answers so, by a client whom n2 is named afterwards; n2 takes everything."""
    done: list[Completion] = []
    masters = Named("n1", "n2")

    async def test() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(serving(answer))
            second = await stack.enter_async_context(serving(ToyServer(queueOffset="9", queueId="0")))
            client = LogOps(places({"n1": first, "n2": second}), masters, Beliefs(), LONG, sticky_master)
            for _ in range(times):
                done.append(await client.invoke(op()))
            await client.close()

    run(test)
    return done, masters


def test_an_acknowledged_send() -> None:
    done, masters = sending(ToyServer(queueOffset="4", queueId="0"), sticky_master=False)
    assert [c.type for c in done] == ["ok", "ok"]
    assert done[0].value == [4, 7]
    assert done[0].extra == {"node": "n1", "code": 0}
    assert masters.asked == 1, "looked up once"


def test_less_sure_than_asked_is_info_with_its_offset() -> None:
    (done, *_), _ = sending(ToyServer(code=12, queueOffset="4", queueId="0"), sticky_master=False, times=1)
    assert (done.type, done.value) == ("info", 7)
    assert (done.extra["status"], done.extra["offset"]) == ("FLUSH_SLAVE_TIMEOUT", 4)


def test_whoever_follows_looks_again_after_an_uncertain_answer() -> None:
    done, masters = sending(ToyServer(code=12, queueOffset="4", queueId="0"), sticky_master=False)
    assert [c.extra["node"] for c in done] == ["n1", "n2"]
    assert masters.asked == 2


def test_the_steadfast_stay_after_an_uncertain_answer() -> None:
    done, masters = sending(ToyServer(code=12, queueOffset="4", queueId="0"), sticky_master=True, times=3)
    assert {c.extra["node"] for c in done} == {"n1"}
    assert masters.asked == 1


def test_the_steadfast_stay_when_the_connection_breaks() -> None:
    done, _ = sending(hang_up, sticky_master=True)
    assert [(c.type, c.extra["node"]) for c in done] == [("info", "n1"), ("info", "n1")]


def test_the_steadfast_go_when_they_are_refused() -> None:
    done, masters = sending(ToyServer(code=2, remark="[REJECTREQUEST]system busy"), sticky_master=True)
    assert [(c.type, c.extra["node"]) for c in done] == [("fail", "n1"), ("ok", "n2")]
    assert masters.asked == 2


def test_a_belief_outlives_its_process() -> None:
    """The thread's next process goes on with the same master."""

    async def test() -> None:
        async with serving(ToyServer(queueOffset="4", queueId="0")) as at:
            masters, beliefs = Named("n1"), Beliefs()
            for _ in range(2):
                client = LogOps(places({"n1": at}), masters, beliefs, LONG, True)
                assert (await client.invoke(op())).type == "ok"
                await client.close()
            assert masters.asked == 1

    run(test)


def test_a_doubt_outlives_its_process() -> None:
    """An uncertain answer ends the client; the thread's next one does not take the same master from what is known."""

    async def test() -> None:
        async with serving(hang_up) as first, serving(ToyServer(queueOffset="9", queueId="0")) as second:
            where = places({"n1": first, "n2": second})
            masters, beliefs, done = Told(where, ["n1", "n2"]), Beliefs(), []
            for _ in range(2):
                client = LogOps(where, masters, beliefs, LONG, False)
                done.append(await client.invoke(op()))
                await client.close()
            assert [(c.type, c.extra["node"]) for c in done] == [("info", "n1"), ("ok", "n2")]

    run(test)


def test_a_node_that_was_replaced_is_asked_at_its_new_address() -> None:
    async def test() -> None:
        async with (
            serving(ToyServer(queueOffset="4", queueId="0")) as old,
            serving(ToyServer(queueOffset="9", queueId="0")) as new,
        ):
            endpoints = {"n1": old}
            client = LogOps(places(endpoints), Named("n1"), Beliefs(), LONG, True)
            assert (await client.invoke(op())).value == [4, 7]
            endpoints["n1"] = new
            assert (await client.invoke(op())).value == [9, 7]
            await client.close()

    run(test)


def test_without_a_master_nothing_is_sent() -> None:
    async def test() -> None:
        client = LogOps(places({"n1": await free_port()}), Named(None), Beliefs(), LONG, False)
        done = await client.invoke(op())
        assert done.type == "fail"
        assert done.error is not None
        assert "nothing was sent" in done.error

    run(test)


def test_a_poll_tells_whom_it_asked_and_what_was_said() -> None:
    async def test() -> None:
        server = ToyServer(code=19, nextBeginOffset="3", minOffset="0", maxOffset="3")
        async with serving(server) as at:
            client = LogOps(places({"n1": at}), Named("n2"), Beliefs(), LONG, False)
            done = await client.invoke(op("poll", 3, node="n1"))
            assert (done.type, done.value) == ("ok", [])
            assert done.extra == {"node": "n1", "role": "slave", "min": 0, "max": 3, "next": 3, "code": 19}
            read = await client.invoke(op("replica-read", 3, node="n1"))
            assert read.extra["done"] is True
            await client.close()

    run(test)


def test_a_slave_that_ends_before_the_offset_does_not_make_a_final_read_endless() -> None:
    """Slaves answer 20 there and leave the next offset where it was."""

    async def test() -> None:
        server = ToyServer(code=20, nextBeginOffset="30", minOffset="0", maxOffset="3")
        async with serving(server) as at:
            client = LogOps(places({"n1": at}), Named("n1"), Beliefs(), LONG, False)
            done = await client.invoke(op("replica-read", 30, node="n1"))
            assert (done.type, done.value, done.extra["done"]) == ("ok", [], True)
            await client.close()

    run(test)


def test_a_final_read_goes_on_where_the_broker_says_if_a_message_is_in_front_of_its_offset() -> None:
    """Entries of a queue are missing: the message of offset 5 is at position 2, and the next one at 3."""

    async def test() -> None:
        server = ToyServer(body=stored(b"7"), nextBeginOffset="3", minOffset="0", maxOffset="4")
        async with serving(server) as at:
            client = LogOps(places({"n1": at}), Named("n1"), Beliefs(), LONG, False)
            done = await client.invoke(op("replica-read", 2, node="n1"))
            assert [frame.ext["queueOffset"] for frame in server.requests] == ["2", "3"]
            assert (done.value, done.extra["next"], done.extra["done"]) == ([[5, 7], [5, 7]], 4, True)
            await client.close()

    run(test)


class Leader(ToyServer):
    """A controller that names a master with an epoch."""

    def __init__(self, master: str, epoch: int) -> None:
        super().__init__(
            body=json.dumps({"syncStateSet": [1], "syncStateSetEpoch": 1}).encode(),
            masterAddress=master,
            masterEpoch=str(epoch),
            masterBrokerId="1",
        )


def test_the_highest_epoch_counts_and_one_look_serves_all() -> None:
    async def test() -> None:
        brokers = {"n1": ("198.18.0.1", 10911), "n2": ("198.18.0.2", 10911)}
        deposed, leading = Leader("198.18.0.1:10911", 3), Leader("198.18.0.2:10911", 4)
        async with serving(deposed) as one, serving(leading) as other:
            masters = Masters(places(brokers, [one, other, await free_port()]))
            found = await asyncio.gather(*(masters.find("a") for _ in range(20)))
            assert set(found) == {"n2"}
            assert len(leading.requests) == 1
            assert masters.known("a") == "n2"
            assert await masters.find("a", refused_by="n1") == "n2"
            assert len(leading.requests) == 1, "nobody doubted n2"
            assert await masters.find("a", refused_by="n2") == "n2"
            assert len(leading.requests) == 2

    run(test)


def test_two_groups_are_looked_up_at_one_time() -> None:
    """A connection carries one call at a time, so the look-ups of two groups must not share one."""
    body = json.dumps({"brokerDatas": [{"brokerName": g, "brokerAddrs": {"0": f"{g}:1"}} for g in ("a", "b")]}).encode()

    toy, second = ToyServer(body=body), asyncio.Event()

    async def answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
        """The first one only when the second look-up has begun."""
        if not toy.requests:
            toy.requests.append(frame)
            asyncio.get_running_loop().call_later(0.05, second.set)
            await second.wait()
        await toy(frame, writer)

    async def test() -> None:
        async with serving(answer) as at:
            queues, groups = [Queue("t", "a", 0), Queue("t", "b", 0)], {"a": ["n1"], "b": ["n2"]}
            where = TopicLayout(False, "t", "readers", queues, groups, {"n1": ("a", 1), "n2": ("b", 1)}, [at], [])
            masters = Masters(where)
            first = asyncio.create_task(masters.find("a"))
            while not toy.requests:
                await asyncio.sleep(0.001)
            assert await masters.find("b") == "n2"
            assert await first == "n1"

    run(test)


def test_nobody_who_knows_is_no_master() -> None:
    async def test() -> None:
        async with serving(ToyServer(code=2007, remark="not leader")) as at:
            masters = Masters(places({"n1": ("198.18.0.1", 10911)}, [at, await free_port()]))
            assert await masters.find("a") is None
            assert masters.silence == "no node reports one"

    run(test)


def test_an_answer_that_makes_no_sense_is_not_taken_for_silence() -> None:
    async def test() -> None:
        async with serving(ToyServer(body=b'{"syncStateSet":[{}]}', masterAddress="198.18.0.1:10911")) as at:
            where = places({"n1": ("198.18.0.1", 10911)}, [at, await free_port()])
            client = LogOps(where, Masters(where), Beliefs(), LONG, False)
            done = await client.invoke(op())
            await client.close()
        assert done.type == "fail"
        assert done.error is not None
        assert re.fullmatch(r"no-master: .*: invalid replica info: .*; nothing was sent", done.error)

    run(test)


def test_a_transaction_is_opened_asked_about_and_ended() -> None:
    """The half message at n1; n2 asks about it; the commit goes to n2, with the place that n2 named."""
    place = {"queueOffset": "7", "queueId": "0", "msgId": "0A0000010000276900000000006A778D"}
    question = {"tranStateTableOffset": "3", "commitLogOffset": "44", "transactionId": "X"}
    done: list[Completion] = []
    heard: list[Frame] = []

    async def asking(frame: Frame, writer: asyncio.StreamWriter) -> None:
        heard.append(frame)
        if frame.code == 34 and len([f for f in heard if f.code == 34]) == 1:
            writer.write(encode(Frame(39, 2, flag=2, ext=question, body=stored(b"7 ...", topic="t"))))
        writer.write(encode(frame.reply(0)))

    async def test() -> None:
        async with AsyncExitStack() as stack:
            first = ToyServer(**place)
            at = {"n1": await stack.enter_async_context(serving(first))}
            at["n2"] = await stack.enter_async_context(serving(asking))
            client = TransactionOps(places(at), Named("n1"), Beliefs(), LONG, False)
            client.furnish(AskedProducer(at, "p"), None)
            await client.open()
            done.append(await client.invoke(op("half")))
            done.append(await client.invoke(op("end", half=done[0].extra["half"], **{"as": "rollback"})))
            done.append(await client.invoke(op("check", None)))
            done.append(await client.invoke(op("end", half=done[2].extra["half"], asked_by="n2", **{"as": "commit"})))
            first.code = 11
            done.append(await client.invoke(op("end", half=done[0].extra["half"], **{"as": "commit"})))
            assert {frame.code for frame in first.requests} == {34, 310, 37}, "heartbeats reach everybody"
            await client.close()
            assert client.asked._heartbeats is None

    run(test)
    assert [(c.type, c.value, c.extra.get("node")) for c in done] == [
        ("ok", [7, 7], "n1"),
        ("ok", 7, "n1"),
        ("ok", 7, "n2"),
        ("ok", 7, "n2"),
        ("fail", 7, "n1"),
    ]
    assert done[0].extra["half"][:2] == [7, 0x6A778D]
    assert (done[2].extra["half"], done[2].extra["group"]) == ([3, 44, "X"], "a")
    (end,) = (frame for frame in heard if frame.code == 37)
    assert (end.ext["commitOrRollback"], end.ext["fromTransactionCheck"]) == ("8", "true")
    assert (end.ext["tranStateTableOffset"], end.ext["commitLogOffset"], end.ext["producerGroup"]) == ("3", "44", "p")


def test_who_pops_looks_for_the_master_again() -> None:
    """n1, a slave that acted, answers all the same; after a while the routes name n2."""
    nodes: list[Any] = []
    masters = Named("n1", "n2")

    async def test() -> None:
        async with AsyncExitStack() as stack:
            server = ToyServer(code=210)
            at = {name: await stack.enter_async_context(serving(server)) for name in ("n1", "n2")}
            client = QueueOps(places(at), masters, Beliefs(), LONG, True)
            for since in (0, 0, ROUTE_S):
                client._looked = {group: looked - since for group, looked in client._looked.items()}
                pop = op("pop", None, group="g", invisible_ms=1000, wait_s=0)
                nodes.append((await client.invoke(pop)).extra["node"])
            await client.close()

    run(test)
    assert (nodes, masters.asked) == (["n1", "n1", "n2"], 2)


def resets(extra: dict[str, Any], key: str = KEY, value: int | None = None) -> tuple[Completion, Frame]:
    """A reset with these extras, and the request that a broker got."""
    server = ToyServer(body=b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}')
    done: list[Completion] = []

    async def test() -> None:
        async with serving(server) as where:
            client = QueueOps(places({"n1": where}), Named("n1"), Beliefs(), LONG, False)
            done.append(await client.invoke(Op(0, 0, 0, "invoke", "reset", key, value, extra={"group": "g", **extra})))
            await client.close()

    run(test)
    return done[0], server.requests[0]


def test_a_reset_to_an_offset_names_one_queue() -> None:
    done, request = resets({"to": "offset"}, value=5)
    assert (done.type, done.value) == ("ok", {KEY: 5})
    assert (request.ext["queueId"], request.ext["offset"], request.ext["timestamp"]) == ("0", "5", "0")


def test_a_reset_to_the_end_names_all_queues() -> None:
    done, request = resets({"to": "end"}, key="t:a:-1")
    assert (done.type, done.value) == ("ok", {KEY: 5})
    assert (request.ext["queueId"], request.ext["timestamp"], "offset" in request.ext) == ("-1", "-1", False)


def test_a_reset_to_a_time_sends_the_time() -> None:
    done, request = resets({"to": "time", "ago_ms": 5000}, key="t:a:-1")
    assert done.extra is not None
    assert done.extra["time_ms"] == int(request.ext["timestamp"])
    assert -1000 < int(request.ext["timestamp"]) - (time.time() * 1000 - 5000) <= 0
    assert done.extra["ago_ms"] == 5000
