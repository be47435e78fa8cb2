# SPDX-License-Identifier: Apache-2.0
"""Every line of RocketMQ's outcome table, copied a second time as a broker's answer and its meaning.

Each case is played: a broker of one's own gives the answer, the client's operation is called, its outcome counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from stored_messages import stored
from toy_servers import LONG, ToyServer, free_port, hang_up, run, serving, silence

from infra.systems.outcome import Outcome, OutcomeType
from infra.systems.remoting.connection import Broken, Refused, RemotingError, TimedOut
from infra.systems.rocketmq.protocol.client import Broker, Half, Handle
from infra.systems.rocketmq.protocol.messages import INNER_BATCH
from infra.systems.rocketmq.protocol.outcomes import OUTCOMES, Operation, line_of, outcome_of_error

HANDLE = Handle(0, 1, 2, 3, 0, "a", 0, 0)
HALF = Half("t", 1, 2, "x")


async def send(broker: Broker) -> Outcome:
    return (await broker.send("t", 0, b"1")).outcome


async def read(broker: Broker) -> Outcome:
    return (await broker.pull("t", 0, 0, group="g")).outcome


async def pop(broker: Broker) -> Outcome:
    return (await broker.pop("t", 0, group="g", broker_name="a", invisible_ms=1000)).outcome


async def commit(broker: Broker) -> Outcome:
    return (await broker.commit_offset("t", 0, "g", 1)).outcome


async def ack(broker: Broker) -> Outcome:
    return (await broker.ack("t", HANDLE, group="g")).outcome


async def extend(broker: Broker) -> Outcome:
    return (await broker.change_invisible_time("t", HANDLE, 1000, group="g")).outcome


async def lock(broker: Broker) -> Outcome:
    return (await broker.lock_queues("c", [("t", "a", 0)], group="g")).outcome


async def end(broker: Broker) -> Outcome:
    return (await broker.end_transaction(HALF, "commit")).outcome


async def recall(broker: Broker) -> Outcome:
    return (await broker.recall("t", "handle")).outcome


async def group(broker: Broker) -> Outcome:
    return (await broker.heartbeat("c", producers=["p"])).outcome


async def reset(broker: Broker) -> Outcome:
    return (await broker.reset_offsets("t", "g")).outcome


CALLS: dict[Operation, Callable[[Broker], Awaitable[Outcome]]] = {
    "send": send,
    "read": read,
    "pop": pop,
    "commit": commit,
    "ack": ack,
    "extend": extend,
    "lock": lock,
    "end": end,
    "recall": recall,
    "group": group,
    "reset": reset,
}
CHANGES = [operation for operation in CALLS if operation != "read"]

REPLICAS = "in-sync replicas not enough"
BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
TIMER = "accurate timer message is not enabled, timerWheelEnable is false"
THROTTLED = "timer message is under flow control, max num limit is 20"

# operation, code, remark, whether the CommitLog is a Raft log, what it means
CASES: list[tuple[Operation, int, str | None, bool | None, OutcomeType]] = [
    ("send", 10, None, False, "info"),
    ("send", 11, None, False, "info"),
    ("send", 12, None, False, "info"),
    ("recall", 12, None, False, "info"),
    ("end", 11, None, False, "fail"),
    ("recall", 11, "recall failed, broker service not available", False, "fail"),
    ("send", 1, REPLICAS, False, "fail"),
    ("send", 1, REPLICAS, True, "info"),
    ("send", 1, REPLICAS, None, "info"),
    ("send", 1, "create mapped file failed, server is busy or broken.", False, "fail"),
    ("send", 1, THROTTLED, False, "fail"),
    ("send", 1, TIMER, False, "fail"),
    ("pop", 1, "the broker[x] pop message is forbidden because timerWheelEnable is false", False, "fail"),
    ("send", 1, "UNKNOWN_ERROR", False, "info"),
    ("send", 1, "UNKNOWN_ERROR DEFAULT", True, "info"),
    ("send", 1, "java.lang.NullPointerException", None, "info"),
    ("extend", 1, None, None, "info"),
    ("reset", 1, "Can not reset offset in slave broker", None, "fail"),
    ("reset", 1, "Target offset 9 not in consume queue range [0-4]", None, "fail"),
    ("reset", 1, "No queues to reset.", None, "fail"),
    ("reset", 1, "java.lang.NullPointerException", None, "info"),
    ("reset", 206, "Consumer not online, so can not reset offset", None, "fail"),
    ("reset", 17, "Topic t does not exist", None, "fail"),
    ("end", 1, REPLICAS, False, "fail"),
    ("end", 1, REPLICAS, True, "info"),
    ("end", 1, "The transaction state table offset wrong", None, "info"),
    ("read", 1, "java.lang.NullPointerException", None, "fail"),
    *((operation, 2, "[REJECTREQUEST]system busy, start flow control", None, "fail") for operation in CALLS),
    *((operation, 2, "[OVERLOAD]system busy, start flow control", None, "fail") for operation in CALLS),
    ("send", 2, "[TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: 3001ms", None, "fail"),
    ("send", 2, "[PCBUSY_CLEAN_QUEUE]broker busy, period in queue: 20ms", None, "fail"),
    ("send", 2, BUSY, False, "fail"),
    ("send", 2, BUSY, True, "info"),
    ("send", 2, BUSY, None, "info"),
    ("send", 2, "something new", None, "info"),
    *((operation, 3, "request type 4711 not supported", None, "fail") for operation in CALLS),
    ("send", 13, "the message is illegal", None, "fail"),
    ("ack", 13, "queueId[9] is illegal", None, "fail"),
    ("send", 14, "service not available now", False, "fail"),
    ("send", 14, "service not available now", True, "fail"),
    ("recall", 14, "recall failed, broker service not available", None, "fail"),
    ("read", 15, None, None, "fail"),
    ("send", 16, "the topic[t] sending message is forbidden", None, "fail"),
    ("recall", 16, "recall failed, operation is forbidden", None, "fail"),
    ("send", 17, "topic[t] not exist, apply first please!", None, "fail"),
    ("pop", 17, "topic[t] not exist", None, "fail"),
    ("read", 17, "topic[t] not exist", None, "fail"),
    ("read", 19, None, None, "ok"),
    ("read", 20, None, None, "ok"),
    ("read", 21, None, None, "ok"),
    ("read", 22, None, None, "ok"),
    ("pop", 19, None, None, "ok"),
    ("pop", 209, None, None, "ok"),
    ("pop", 210, None, None, "ok"),
    ("pop", 20, None, None, "info"),
    ("read", 209, None, None, "fail"),
    ("read", 23, None, None, "fail"),
    ("read", 24, None, None, "fail"),
    ("read", 25, None, None, "fail"),
    ("read", 26, "subscription group [g] does not exist", None, "fail"),
    ("commit", 26, "Group g not exist!", None, "fail"),
    ("commit", 29, "Offset is null", None, "fail"),
    ("pop", 29, "pop message's num is greater than 32", None, "fail"),
    ("send", 29, "request queueId[9] is illegal", None, "fail"),
    ("ack", 208, "offset is illegal", None, "fail"),
    ("extend", 208, None, None, "fail"),
    ("commit", 208, None, None, "info"),
    ("end", 604, None, None, "fail"),
    ("recall", 604, "recall failed, topic not match", None, "fail"),
    ("send", 1500, "please go away", None, "fail"),
    ("read", 4711, "something new", None, "fail"),
    *((operation, 4711, "something new", None, "info") for operation in CHANGES),
]


@pytest.mark.parametrize(("operation", "code", "remark", "raft_log", "expected"), CASES)
def test_what_an_answer_means(
    operation: Operation, code: int, remark: str | None, raft_log: bool | None, expected: OutcomeType
) -> None:
    async def test() -> None:
        server = ToyServer(code, remark)
        async with serving(server) as (host, port):
            broker = Broker(host, port, deadline_s=LONG, raft_log=raft_log)
            outcome = await CALLS[operation](broker)
            await broker.close()
        assert outcome.type == expected
        assert len(server.requests) == 1
        if expected != "ok":
            assert str(code) in outcome.why
            assert "\n" not in outcome.why
            assert (remark or "") in outcome.why

    run(test)


SUCCESS: dict[Operation, ToyServer] = {
    "send": ToyServer(msgId="7F0000010000559700000000006A778D", queueId="0", queueOffset="7"),
    "pop": ToyServer(popTime="1", invisibleTime="2", reviveQid="0", restNum="0"),
    "extend": ToyServer(popTime="1", invisibleTime="2", reviveQid="0"),
    "lock": ToyServer(body=b'{"lockOKMQSet":[]}'),
    "reset": ToyServer(body=b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}'),
}


@pytest.mark.parametrize("operation", CALLS)
def test_success(operation: Operation) -> None:
    async def test() -> None:
        async with serving(SUCCESS.get(operation, ToyServer())) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            assert await CALLS[operation](broker) == Outcome("ok", "")
            await broker.close()

    run(test)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"offsetTable":{{"queueId":0,"topic":"t"}:"x"}}', b'{"offsetTable":{7:7}}']
)
def test_a_reset_with_an_unreadable_answer_is_not_known(body: bytes) -> None:
    async def test() -> None:
        async with serving(ToyServer(body=body)) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            done = await broker.reset_offsets("t", "g")
            await broker.close()
        assert (done.outcome.type, done.offsets) == ("info", {})
        assert "invalid" in done.outcome.why

    run(test)


def test_a_reset_names_the_new_offset_of_each_queue() -> None:
    table = (
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5,{"brokerName":"a","queueId":3,"topic":"t"}:0,'
        b'{"brokerName":"a","queueId":4,"topic":"t"}:-1}}'
    )
    server = ToyServer(body=table)

    async def test() -> None:
        async with serving(server) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            done = await broker.reset_offsets("t", "g", queue=3, offset=0, time_ms=0)
            await broker.close()
        assert done.offsets == {0: 5, 3: 0}

    run(test)
    (request,) = server.requests
    asked = {"topic": "t", "group": "g", "queueId": "3", "timestamp": "0", "isForce": "true", "offset": "0"}
    assert (request.code, dict(request.ext)) == (222, asked)


def test_every_line_has_a_case_that_it_decides() -> None:
    decided = {line_of(operation, code, remark, raft_log) for operation, code, remark, raft_log, _ in CASES}
    decided |= {line_of(operation, 0, None) for operation in CALLS}
    assert [line for line in OUTCOMES if line not in decided] == []
    assert all(line.source for line in OUTCOMES)
    assert all(line.why for line in OUTCOMES if line.type != "ok")


@pytest.mark.parametrize("operation", CALLS)
def test_without_an_answer_a_read_fails_and_a_change_is_unknown_once_it_was_sent(operation: Operation) -> None:
    async def test() -> None:
        expected = "fail" if operation == "read" else "info"
        async with serving(hang_up) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            broken = await CALLS[operation](broker)
            assert not broker.connected
        assert broken.type == expected
        assert "the connection broke" in broken.why
        host, port = await free_port()
        nobody = await CALLS[operation](Broker(host, port, deadline_s=LONG))
        assert nobody.type == "fail"
        assert "nothing was sent" in nobody.why

    run(test)


@pytest.mark.parametrize(
    ("body", "unreadable"),
    [
        (b"", False),
        (stored(), False),
        (stored()[4:], True),
        (stored()[:-1], True),
        (stored(system_flag=INNER_BATCH), False),
    ],
    ids=["none", "one", "without its size", "cut off", "an inner batch"],
)
def test_an_answer_whose_bytes_are_no_messages_is_told_apart_from_silence(body: bytes, unreadable: bool) -> None:
    """A judge counts such answers; a message of a kind that is not decoded here is none of them."""

    async def test() -> None:
        async with serving(ToyServer(body=body, popTime="1", invisibleTime="2", reviveQid="0", restNum="0")) as (
            host,
            port,
        ):
            broker = Broker(host, port, deadline_s=LONG)
            pulled = await broker.pull("t", 0, 0, group="g")
            popped = await broker.pop("t", 0, group="g", broker_name="a", invisible_ms=1000)
        assert (pulled.unreadable, popped.unreadable) == (unreadable, unreadable)
        if unreadable:
            assert (pulled.outcome.type, popped.outcome.type) == ("fail", "info")
            assert pulled.outcome.why.startswith("the answer is invalid: ")

    run(test)


def test_a_deadline_is_kept_and_the_late_answer_never_taken_for_another() -> None:
    async def test() -> None:
        async with serving(silence) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            sent = await broker.send("t", 0, b"1", deadline_s=0.05)
            assert (sent.outcome.type, sent.code) == ("info", None)
            assert "no answer within 0.0" in sent.outcome.why
            assert not broker.connected

    run(test)


@pytest.mark.parametrize(
    ("error", "change", "read"),
    [(Refused("x: y"), "fail", "fail"), (Broken("x: y"), "info", "fail"), (TimedOut("x: y"), "info", "fail")],
)
def test_errors(error: RemotingError, change: str, read: str) -> None:
    assert {outcome_of_error(operation, error).type for operation in CHANGES} == {change}
    assert outcome_of_error("read", error).type == read


def test_a_cancelled_operation_closes_the_connection() -> None:
    async def test() -> None:
        async with serving(silence) as (host, port):
            broker = Broker(host, port, deadline_s=LONG)
            call = asyncio.create_task(send(broker))
            while not broker.connected:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not broker.connected

    run(test)
