# SPDX-License-Identifier: Apache-2.0
"""The client of a broker: what it asks, what it makes of the answers, and of answers that make no sense."""

from __future__ import annotations

import asyncio
import json

import pytest
from stored_messages import PULLED, stored
from toy_servers import LONG, ToyServer, run, serving

from infra.systems.remoting.frame import Frame, encode
from infra.systems.rocketmq.protocol.client import Broker, Half, Handle, check_of
from infra.systems.rocketmq.protocol.messages import MessageError
from infra.systems.rocketmq.protocol.popping import retry_topic

PLACE = {"msgId": "7F0000010000559700000000006A778D", "queueId": "2", "queueOffset": "7"}


def test_a_send_carries_its_message_and_brings_its_place() -> None:
    async def test() -> None:
        server = ToyServer(**PLACE, transactionId="U", recallHandle="H")
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            sent = await broker.send("t", -1, b"17 ..", properties={"TAGS": "a"})
            await broker.send("t", -1, b"18")
            await broker.close()
        assert (sent.outcome.type, sent.offset, sent.queue, sent.code) == ("ok", 7, 2, 0)
        assert (sent.message_id, sent.unique_id, sent.recall) == (PLACE["msgId"], "U", "H")
        first, second = server.requests
        assert (first.code, first.body, first.version) == (310, b"17 ..", 453)
        assert (first.ext["b"], first.ext["e"], first.ext["m"]) == ("t", "-1", "false")
        assert "TAGS\x01a\x02" in first.ext["i"]
        keys = [request.ext["i"].partition("UNIQ_KEY\x01")[2][:32] for request in (first, second)]
        assert all(len(bytes.fromhex(key)) == 16 for key in keys)
        assert keys[0] != keys[1]

    run(test)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_accepted_less_surely_than_asked_is_unknown_and_has_a_place(code: int) -> None:
    async def test() -> None:
        async with serving(ToyServer(code, **PLACE)) as address:
            broker = Broker(*address, deadline_s=LONG, raft_log=False)
            sent = await broker.send("t", 2, b"1")
            await broker.close()
        assert (sent.outcome.type, sent.offset, sent.code) == ("info", 7, code)

    run(test)


@pytest.mark.parametrize("ext", [{}, {"queueOffset": "seven"}, {"queueOffset": "7", "queueId": ""}])
def test_an_acknowledgement_without_sense_is_unknown(ext: dict[str, str]) -> None:
    async def test() -> None:
        async with serving(ToyServer(**ext)) as address:
            broker = Broker(*address, deadline_s=LONG)
            assert (await broker.send("t", 0, b"1")).outcome.type == "info"
            await broker.close()

    run(test)


def test_a_pull_reads_from_an_offset_on() -> None:
    async def test() -> None:
        server = ToyServer(body=PULLED, nextBeginOffset="2", minOffset="0", maxOffset="9")
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            pulled = await broker.pull("t", 0, 5, group="g", max_messages=8)
            assert server.last.ext["sysFlag"] == "4"
            await broker.pull("t", 0, 5, group="g", suspend_s=1.5)
            await broker.close()
        assert [message.offset for message in pulled.messages] == [0, 1]
        assert (pulled.next, pulled.min, pulled.max, pulled.code) == (2, 0, 9, 0)
        requested = server.requests[0].ext
        assert (requested["queueOffset"], requested["maxMsgNums"], requested["consumerGroup"]) == ("5", "8", "g")
        assert (server.last.ext["sysFlag"], server.last.ext["suspendTimeoutMillis"]) == ("6", "1500")

    run(test)


def test_a_pull_without_messages_tells_where_the_queue_is() -> None:
    async def test() -> None:
        async with serving(ToyServer(21, nextBeginOffset="9", minOffset="3", maxOffset="9")) as address:
            broker = Broker(*address, deadline_s=LONG)
            pulled = await broker.pull("t", 0, 99, group="g")
            await broker.close()
        assert (pulled.outcome.type, list(pulled.messages)) == ("ok", [])
        assert (pulled.next, pulled.min, pulled.max, pulled.code) == (9, 3, 9, 21)

    run(test)


@pytest.mark.parametrize("body", [PULLED[:-1], b"nonsense that is long enough for a header of a message" * 2])
def test_messages_without_sense_fail_the_pull(body: bytes) -> None:
    async def test() -> None:
        async with serving(ToyServer(body=body, nextBeginOffset="2")) as address:
            broker = Broker(*address, deadline_s=LONG)
            pulled = await broker.pull("t", 0, 0, group="g")
            await broker.close()
        assert (pulled.outcome.type, list(pulled.messages)) == ("fail", [])

    run(test)


@pytest.mark.parametrize(
    ("server", "type_", "there"),
    [
        (ToyServer(body=stored(b"5")), "ok", True),
        (ToyServer(1, "can not find message by the offset, 77"), "ok", False),
        (ToyServer(1, "java.lang.IllegalArgumentException"), "fail", False),
        (ToyServer(body=b"\0\0\0\1"), "fail", False),
    ],
)
def test_a_message_is_found_by_its_place_in_the_log(server: ToyServer, type_: str, there: bool) -> None:
    async def test() -> None:
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            viewed = await broker.message_at("t", 77)
            await broker.close()
        assert (viewed.outcome.type, viewed.message is not None) == (type_, there)
        (request,) = server.requests
        assert (request.code, request.ext) == (33, {"topic": "t", "offset": "77"})

    run(test)


def test_offsets() -> None:
    async def test() -> None:
        server = ToyServer(offset="7")
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            assert (await broker.max_offset("t", 1)).value == 7
            assert (await broker.min_offset("t", 1)).value == 7
            assert (await broker.committed_offset("t", 1, "g")).value == 7
            assert (await broker.commit_offset("t", 1, "g", 6)).outcome.type == "ok"
            server.code = 22
            none = await broker.committed_offset("t", 1, "g")
            assert (none.outcome.type, none.value, none.code) == ("ok", None, 22)
            server.code, server.ext = 0, {}
            assert (await broker.max_offset("t", 1)).outcome.type == "fail"
            await broker.close()
        assert [request.code for request in server.requests] == [30, 31, 14, 15, 14, 30]
        assert server.requests[2].ext["setZeroIfNotFound"] == "false"
        assert server.requests[3].ext["commitOffset"] == "6"

    run(test)


def test_popped_messages_have_handles() -> None:
    async def test() -> None:
        own = stored(b"2", topic="t", properties=b"POP_CK\x010 111 222 3 1 a 0 1\x02")
        body = stored(b"1", topic="t") + own + stored(b"3", topic="%RETRY%g+t")
        fields = {"popTime": "100", "invisibleTime": "200", "reviveQid": "4", "restNum": "6"}
        server = ToyServer(body=body, **fields, startOffsetInfo="0 3 2;2 3 1", msgOffsetInfo="0 3 5;2 3 5")
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            popped = await broker.pop("t", -1, group="g", broker_name="a", invisible_ms=9000, poll_s=2, orderly=True)
            server.ext = {**fields, "startOffsetInfo": "0 3"}
            confused = await broker.pop("t", -1, group="g", broker_name="a", invisible_ms=9000)
            server.ext = {"popTime": "100"}
            assert (await broker.pop("t", -1, group="g", broker_name="a", invisible_ms=1)).outcome.type == "info"
            await broker.close()
        assert (popped.outcome.type, popped.rest, confused.outcome.type) == ("ok", 6, "info")
        assert [handle.text for _, handle in popped.messages] == [
            "2 100 200 4 0 a 3 5",
            "0 111 222 3 1 a 0 1",
            "1 100 200 4 2 a 3 5",
        ]
        requested = server.requests[0].ext
        assert (requested["invisibleTime"], requested["pollTime"], requested["order"]) == ("9000", "2000", "true")

    run(test)


def test_handles_name_the_topic_that_holds_the_delivery() -> None:
    async def test() -> None:
        server = ToyServer(popTime="300", invisibleTime="400", reviveQid="5")
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            await broker.ack("t", "2 100 200 4 0 a 3 7", group="g")
            assert server.last.ext == {
                "consumerGroup": "g",
                "topic": "t",
                "queueId": "3",
                "extraInfo": "2 100 200 4 0 a 3 7",
                "offset": "7",
            }
            await broker.ack("t", "2 100 200 4 1 a 3 7", group="g")
            assert server.last.ext["topic"] == "%RETRY%g_t" == retry_topic("t", "g")
            extended = await broker.change_invisible_time("t", "2 100 200 4 2 a 3 7", 400, group="g")
            assert (server.last.ext["topic"], server.last.ext["invisibleTime"]) == ("%RETRY%g+t", "400")
            assert extended.handle == Handle(7, 300, 400, 5, 2, "a", 3, 7)
            server.ext = {}
            assert (await broker.change_invisible_time("t", extended.handle, 400, group="g")).outcome.type == "info"
            await broker.close()

    run(test)


@pytest.mark.parametrize("text", ["", "1 2 3", "1 2 3 4 9 a 0 0", "x 2 3 4 0 a 0 0"])
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(ValueError):
        Handle.parse(text)


def test_a_half_message_is_ended_where_it_lies() -> None:
    async def test() -> None:
        server = ToyServer(**PLACE)
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            sent, half = await broker.send_half("t", 1, b"1", group="p")
            assert half == Half("t", 7, 0x6A778D, sent.unique_id or "")
            assert (server.last.ext["f"], "TRAN_MSG\x01true\x02" in server.last.ext["i"]) == ("4", True)
            assert "PGROUP\x01p\x02" in server.last.ext["i"]
            assert (await broker.end_transaction(half, "rollback", group="p")).outcome.type == "ok"
            text = server.last
            assert (text.code, text.is_one_way, text.ext["commitOrRollback"]) == (37, False, "12")
            assert (text.ext["tranStateTableOffset"], text.ext["commitLogOffset"]) == ("7", str(0x6A778D))
            assert (await broker.end_transaction(half, "unknown", group="p")).outcome.type == "info"
            await broker.max_offset("t", 0)
            assert (server.requests[-2].is_one_way, server.requests[-2].ext["commitOrRollback"]) == (True, "0")
            server.ext = {**PLACE, "msgId": "nonsense"}
            sent, half = await broker.send_half("t", 1, b"1")
            assert (sent.outcome.type, half) == ("info", None)
            server.code, server.ext = 17, {}
            sent, half = await broker.send_half("t", 1, b"1")
            assert (sent.outcome.type, half) == ("fail", None)
            await broker.close()

    run(test)


def test_the_brokers_question_about_a_transaction_is_understood() -> None:
    async def test() -> None:
        pushed: list[Frame] = []
        question = {"tranStateTableOffset": "3", "commitLogOffset": "44", "transactionId": "X"}

        async def ask(frame: Frame, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(Frame(40, 1, flag=2, ext={"consumerGroup": "g"})))
            writer.write(encode(Frame(39, 2, flag=2, ext=question, body=stored(b"1", topic="t"))))
            writer.write(encode(frame.reply(0)))

        async with serving(ask) as address:
            broker = Broker(*address, deadline_s=LONG, on_request=pushed.append)
            assert (await broker.heartbeat("c", producers=["p"])).outcome.type == "ok"
            await broker.close()
        assert check_of(pushed[0]) is None
        check = check_of(pushed[1])
        assert check is not None
        assert check.half == Half("t", 3, 44, "X", checked=True)
        assert check.message.body == b"1"
        with pytest.raises(MessageError, match="commitLogOffset"):
            check_of(Frame(39, 2, ext={"tranStateTableOffset": "3"}, body=stored()))
        with pytest.raises(MessageError, match="cut off"):
            check_of(Frame(39, 2))

    run(test)


def test_members_and_locks() -> None:
    async def test() -> None:
        server = ToyServer(body=b'{"lockOKMQSet":[{"brokerName":"a","queueId":1,"topic":"t"}]}')
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            await broker.heartbeat("c", producers=["p"], consumers=["g"], topics=["t"], consuming="CONSUME_POP")
            output = json.loads(server.last.body)
            assert (output["clientID"], output["producerDataSet"]) == ("c", [{"groupName": "p"}])
            (member,) = output["consumerDataSet"]
            assert (member["consumeType"], member["subscriptionDataSet"][0]["topic"]) == ("CONSUME_POP", "t")
            await broker.leave("c", consumer="g")
            assert server.last.ext == {"clientID": "c", "consumerGroup": "g"}
            await broker.leave("c", producer="p")
            assert server.last.ext == {"clientID": "c", "producerGroup": "p"}
            locked = await broker.lock_queues("c", [("t", "a", 0), ("t", "a", 1)], group="g")
            assert (locked.outcome.type, locked.queues) == ("ok", {("t", "a", 1)})
            assert len(json.loads(server.last.body)["mqSet"]) == 2
            assert (await broker.unlock_queues("c", locked.queues, group="g")).outcome.type == "ok"
            server.body = b"{}"
            assert (await broker.lock_queues("c", [("t", "a", 0)], group="g")).outcome.type == "info"
            await broker.close()

    run(test)


def test_a_link_connects_again_after_it_was_cut() -> None:
    async def test() -> None:
        server = ToyServer(**PLACE)
        async with serving(server) as address:
            broker = Broker(*address, deadline_s=LONG)
            for _ in range(2):
                assert (await broker.send("t", 0, b"1")).outcome.type == "ok"
                await broker.close()
                assert not broker.connected
        assert len(server.requests) == 2

    run(test)
