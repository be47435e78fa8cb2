# SPDX-License-Identifier: Apache-2.0
"""The client of RocketMQ's proxy with its real packages, against a program that pretends to be the proxy."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.machines.api import InfraError
from infra.systems.rocketmq.clients.packages import proxy_folder
from infra.systems.rocketmq.clients.proxy import ProxyError, ProxyListener, ProxyQuestion
from infra.systems.rocketmq.clients.proxy_popping import ProxyPopper, Subscription

pytestmark = pytest.mark.slow

BUSY = 60.0
"""For calls that must not run out of time, each of which may start a process."""

FAKE = Path(__file__).parent.parent / "fake_proxy.py"


@dataclass(frozen=True)
class Fake:
    """packages: those of the client. record: the file with the requests."""

    packages: Path
    port: int
    record: Path
    process: subprocess.Popen[str]

    async def producer(self) -> ProxyPopper:
        producer = ProxyPopper(self.packages, {"n1": ("127.0.0.1", self.port)}, deadline_s=BUSY)
        await producer.open()
        return producer

    async def listener(self, topic: str) -> ProxyListener:
        listener = ProxyListener(self.packages, "n1", ("127.0.0.1", self.port), [topic])
        await listener.open()
        return listener

    def requests(self, f: str) -> list[dict[str, Any]]:
        """The requests of a kind, without its name."""
        found = (json.loads(line) for line in self.record.read_text().splitlines())
        return [{name: value for name, value in one.items() if name != "f"} for one in found if one["f"] == f]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    try:
        packages = proxy_folder()
    except InfraError as problem:
        pytest.skip(f"the client's packages are not here: {problem}")
    record = tmp_path / "requests"
    record.touch()
    process = subprocess.Popen(
        [sys.executable, str(FAKE), str(packages), str(record)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield Fake(packages, int(process.stdout.readline()), record, process)
    process.kill()
    process.wait()
    process.stdout.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def heard(listener: ProxyListener, patient: bool = True) -> ProxyQuestion:
    """The next question. patient: a stream that broke is opened again; else raises ProxyError."""
    async with asyncio.timeout(BUSY):
        while True:
            try:
                if questions := await listener.listen(0.2):
                    (question,) = questions
                    return question
            except ProxyError:
                if not patient:
                    raise
                await asyncio.sleep(0.1)


def test_a_delayed_message_has_its_time_and_is_recalled_once(fake: Fake) -> None:
    async def test() -> None:
        producer = await fake.producer()
        sent = await producer.send("DELAY-1", b"7", kind="DELAY", deliver_ms=1_700_000_001_234)
        assert (sent.outcome.type, sent.offset, sent.code, sent.recall) == ("ok", 1, 0, "handle-1")
        again = [await producer.recall("DELAY-1", sent.recall or "") for _ in range(2)]
        assert [(a.outcome.type, a.code) for a in again] == [("ok", 20000), ("info", 50001)]
        plain = await producer.send("DELAY-1", b"8")
        assert plain.outcome.type == "fail"
        assert "40014 MESSAGE_PROPERTY_CONFLICT_WITH_TYPE" in plain.outcome.why
        await producer.close()

    run(test)
    delayed, plain = fake.requests("send")
    assert delayed == {"topic": "DELAY-1", "kind": "DELAY", "due": 1_700_000_001_234, "body": "7"}
    assert (plain["kind"], plain["due"]) == ("NORMAL", None)
    assert fake.requests("recall") == [{"topic": "DELAY-1", "handle": "handle-1"}] * 2


def test_a_transaction_is_ended_at_once_or_when_it_is_asked_about(fake: Fake) -> None:
    async def test() -> None:
        producer, listener = await fake.producer(), await fake.listener("TRANSACTION-1")
        assert await listener.listen(0.01) == []
        sent, half = await producer.send_half("TRANSACTION-1", b"7")
        assert (sent.outcome.type, sent.unique_id) == ("ok", "T1")
        assert half is not None
        assert (half.proxy, half.topic, half.transaction_id, half.checked) == ("n1", "TRANSACTION-1", "T1", False)
        end = await producer.end_transaction(half, "rollback")
        assert (end.outcome.type, end.code) == ("info", 20000)
        assert "one-way" in end.outcome.why
        late = await producer.end_transaction(half, "commit")
        assert (late.outcome.type, late.code) == ("fail", 50001)
        _, open_ = await producer.send_half("TRANSACTION-1", b"8 ...")
        question = await heard(listener)
        assert open_ is not None
        assert (question.body, question.half.transaction_id) == (b"8 ...", open_.transaction_id)
        assert (question.half.message_id, question.half.checked) == (open_.message_id, True)
        assert (await producer.end_transaction(question.half, "commit")).outcome.type == "info"
        await producer.close()
        await listener.close()

    run(test)
    ends = [(end["how"], end["source"]) for end in fake.requests("end")]
    assert ends == [("ROLLBACK", "SOURCE_CLIENT"), ("COMMIT", "SOURCE_CLIENT"), ("COMMIT", "SOURCE_SERVER_CHECK")]
    assert fake.requests("settings") == [{"topics": ["TRANSACTION-1"], "kind": "PRODUCER"}]


def test_a_stream_that_ends_is_opened_again(fake: Fake) -> None:
    async def test() -> None:
        producer, listener = await fake.producer(), await fake.listener("TRANSACTION-cuts")
        assert await listener.listen(0.01) == []
        for body in (b"7", b"8"):
            await producer.send_half("TRANSACTION-cuts", body)
            assert (await heard(listener)).body == body
        await producer.close()
        await listener.close()

    run(test)
    assert len(fake.requests("settings")) == 2


def test_settings_are_sent_again_and_must_be_answered(fake: Fake) -> None:
    async def listen_for(listener: ProxyListener, requests: int) -> None:
        async with asyncio.timeout(BUSY):
            while len(fake.requests("again")) < requests:
                await listener.listen(0.5)

    async def test() -> None:
        good, silent = await fake.listener("TRANSACTION-1"), await fake.listener("TRANSACTION-silent")
        await listen_for(good, 2)
        assert await silent.listen(0) == []
        with pytest.raises(ProxyError, match="did not answer the settings in time"):
            await listen_for(silent, 1000)
        assert await silent.listen(0) == []
        await good.close()
        await silent.close()

    run(test)
    assert [one["topics"] for one in fake.requests("settings")] == [["TRANSACTION-1"], *[["TRANSACTION-silent"]] * 2]


def test_a_proxy_that_takes_no_producer_or_is_not_there_is_reported(fake: Fake) -> None:
    async def test() -> None:
        deaf = await fake.listener("TRANSACTION-deaf")
        with pytest.raises(ProxyError, match="INVALID_ARGUMENT: no such producer"):
            await deaf.listen(0.01)
        await deaf.close()
        listener, producer = await fake.listener("TRANSACTION-1"), await fake.producer()
        assert await listener.listen(0.01) == []
        _, half = await producer.send_half("TRANSACTION-1", b"7")
        assert half is not None
        fake.process.kill()
        fake.process.wait()
        with pytest.raises(ProxyError, match="UNAVAILABLE"):
            await heard(listener, patient=False)
        end = await producer.end_transaction(half, "commit", deadline_s=1)
        assert (end.outcome.type, end.code) in {("fail", None), ("info", None)}
        refused = await producer.end_transaction(half, "commit", deadline_s=1)
        assert refused.outcome.type == "fail"
        assert "nothing was sent: no connection to the proxy" in refused.outcome.why
        await producer.close()
        await listener.close()

    run(test)


def test_a_simple_consumer_receives_extends_and_acknowledges(fake: Fake) -> None:
    group = Subscription("g", ["NORMAL-1", "NORMAL-forgets"])

    async def test() -> None:
        popper = await fake.producer()
        assert (await popper.receive("NORMAL-1", group, invisible_ms=6000, most=8)).messages == []
        for topic in group.topics:
            for body in (b"7", b"8 x"):
                assert (await popper.send(topic, body)).outcome.type == "ok"
        got = await popper.receive("NORMAL-1", group, invisible_ms=6000, most=8, wait_s=1)
        assert (got.outcome.type, got.code) == ("ok", 20000)
        assert [(one.body, one.handle.offset, one.handle.retry) for one in got.messages] == [
            (b"7", 0, 0),
            (b"8 x", 1, 1),
        ]
        first = got.messages[0]
        assert first.text == "0 1700000000000 6000 3 0 a 0 0 4711"
        longer = await popper.change_invisible_time("NORMAL-1", first.text, 9000, group)
        assert (longer.outcome.type, longer.text) == ("ok", f"{first.text}+")
        acked = await popper.ack("NORMAL-1", longer.text or "", group)
        assert (acked.outcome.type, acked.code) == ("ok", 20000)
        late = await popper.change_invisible_time("NORMAL-forgets", "x", 9000, group)
        assert (late.outcome.type, late.code) == ("fail", 40013)
        await popper.close()

    run(test)
    empty, full = fake.requests("receive")
    assert empty == {"topic": "NORMAL-1", "group": "g", "hidden": 6000, "wait": 0, "most": 8, "known": True}
    assert full == {**empty, "wait": 1000}
    assert [one["handle"][-5:] for one in fake.requests("ack")] == ["4711+"]
    assert fake.requests("settings") == [{"topics": list(group.topics), "kind": "SIMPLE_CONSUMER"}]


def test_a_receive_whose_outcome_is_unknown_is_no_failure(fake: Fake) -> None:
    """The messages are hidden then. Without a stream nothing was requested."""
    group = Subscription("g", ["NORMAL-half"])

    async def test() -> None:
        popper = await fake.producer()
        await popper.send("NORMAL-half", b"7")
        half = await popper.receive("NORMAL-half", group, invisible_ms=6000, most=8)
        assert half.outcome.type == "info"
        assert "the answer is not complete: 20000 OK, 50001 reset, 1 messages" in half.outcome.why
        other = Subscription("g-deaf", ["NORMAL-deaf"])
        refused = await popper.receive("NORMAL-deaf", other, invisible_ms=6000, most=8)
        assert refused.outcome.type == "fail"
        assert "nothing was sent" in refused.outcome.why
        assert "INVALID_ARGUMENT: no such producer" in refused.outcome.why
        fake.process.kill()
        fake.process.wait()
        gone = [await popper.receive("NORMAL-half", group, invisible_ms=6000, most=8, deadline_s=2) for _ in range(2)]
        assert gone[-1].outcome.type == "fail"
        await popper.close()

    run(test)
    assert [one["topic"] for one in fake.requests("receive")] == ["NORMAL-half"]
