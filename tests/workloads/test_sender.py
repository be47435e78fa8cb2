# SPDX-License-Identifier: Apache-2.0
"""Sends by the Java producer: its reports as outcomes, and its process, with a made-up program on a pipe."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.machines.api import Completed
from infra.machines.remote.process import ProcessRemote
from workloads.applications.library import sent_of
from workloads.consume.sender import LARGE, LARGEST, Sender, size_of, way_of
from workloads.places import Queue

PROGRAM = """
import json, os, sys, time
def report(**event): print(json.dumps(event), flush=True)
report(event="hello", pid=os.getpid())
held = []
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "produce":
        report(event="started", name=command["name"], client=command["instance"])
        continue
    n = command["n"]
    if n == 3:
        report(event="failed", name="producer", n=n, error="MQBrokerException", code=16, why="no permission")
    elif n == 4:
        sys.exit()
    elif n == 8:
        assert command["how"] in ("request", "request-async"), command
        result = dict(event="sent", name="producer", n=n, status="SEND_OK", offset=80, reply="8", own=True)
        report(**result)
        report(**result)
    elif n == 9:
        report(event="failed", name="producer", n=n, error="RequestTimeoutException",
               unanswered="RequestTimeoutException", code=10006, why="no reply")
    elif n in (10, 11):
        time.sleep(0.6)
        result = dict(reply=str(n), own=True) if n == 10 else dict(unanswered="RequestTimeoutException")
        report(event="sent", name="producer", n=n, status="SEND_OK", offset=n, **result)
    elif n != 5:
        held.append(n)
        if len(held) == 2:
            for each in reversed(held):
                report(event="sent", name="producer", n=each, status="SEND_OK", offset=each * 10, stored="id%d" % each)
            held.clear()
"""


class Here:
    """A node that is this machine; only what a producer needs."""

    name = "c1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = ProcessRemote("c1")

    def run(self, argv: Sequence[str], **how: object) -> Completed:
        return Completed(argv, 0, b"", b"", 1.0)

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Any:
        return self.remote.open([*argv[:4], str(self.folder / "producer.log"), *argv[5:]], timeout_s)


class Made:
    """The program above."""

    argv = (sys.executable, "-c", PROGRAM)

    def prepare(self) -> None: ...

    def install(self, node: object) -> None: ...


def test_answers_reach_the_sends_that_they_belong_to(tmp_path: Path) -> None:
    """Answers come in another order than sends; one that does not come leaves the outcome unknown, and so does the end
    of the process, after which another one is started.
    """

    async def play() -> None:
        sender = Sender(Here(tmp_path), Made(), {}, large=0, usual=100, raft_log=False)  # type: ignore[arg-type]
        await sender.open()
        sender.use()
        queue = Queue("t", "a", 0)

        async def send(n: int, deadline_s: float = 10) -> Any:
            sent, extra = await sender.send(queue, n, {"TAGS": "a", "slow": "1"}, deadline_s)
            assert extra == {}
            return sent

        one, two, refused = await asyncio.gather(send(1), send(2), send(3))
        assert (one.outcome.type, one.offset, one.message_id) == ("ok", 10, "id1")
        assert (two.outcome.type, two.offset, two.message_id) == ("ok", 20, "id2")
        assert (refused.outcome.type, refused.code) == ("fail", 16)
        assert (await send(5, 0.3)).outcome.type == "info"
        assert (await send(4, 1)).outcome.type == "info"
        six, seven = await asyncio.gather(send(6), send(7))
        assert (six.offset, seven.offset) == (60, 70)
        await sender.leave()

    asyncio.run(play())


def test_a_request_has_the_result_of_its_message(tmp_path: Path) -> None:
    """Without a reply nobody knows of the message; a second result of a request is shown once."""

    async def play() -> None:
        sender = Sender(Here(tmp_path), Made(), {}, large=0, usual=100, raft_log=False)  # type: ignore[arg-type]
        await sender.open()
        sender.use()
        asked = {"TAGS": "a", "request": "1"}
        sent, extra = await sender.send(Queue("t", "a", 0), 8, asked, 10)
        assert (sent.outcome.type, sent.offset) == ("ok", 80)
        assert 8000 < extra.pop("within_ms") < 9000, "the library looks for late ones once a second"
        again = extra.pop("again", [])
        assert extra == {"reply": 8, "own": True}
        sent, extra = await sender.send(Queue("t", "a", 0), 9, asked, 10)
        assert sent.outcome.type == "info"
        assert extra["unanswered"] == "RequestTimeoutException"
        assert again + extra.get("again", []) == [[8, 8]]
        sent, extra = await sender.send(Queue("t", "a", 0), 5, asked, 0.3)
        assert (sent.outcome.type, list(extra)) == ("info", ["within_ms", "open"])
        await sender.leave()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("fields", "wraps", "type_", "why"),
    [
        ({"status": "SEND_OK", "offset": 3}, False, "ok", ""),
        ({"status": "FLUSH_SLAVE_TIMEOUT", "offset": 3}, False, "info", "12 FLUSH_SLAVE_TIMEOUT"),
        ({"status": "ONEWAY"}, False, "info", "one-way"),
        ({"error": "MQBrokerException", "code": 14, "why": "service not available now"}, False, None, "14 "),
        ({"error": "RemotingConnectException", "why": "connect to x failed"}, False, "fail", "nothing was sent"),
        ({"error": "RemotingTimeoutException", "why": "wait response"}, False, "info", "RemotingTimeoutException"),
        ({"error": "RemotingSendRequestException", "why": "x"}, False, "info", "RemotingSendRequestException"),
        ({"error": "MQClientException", "code": -1, "why": "The broker[a] not exist"}, False, "fail", "not exist"),
        ({"error": "MQClientException", "code": -1, "why": "wait response timeout"}, True, "info", "wait response"),
    ],
)
def test_only_what_certainly_sent_nothing_is_a_failure(
    fields: dict[str, Any], wraps: bool, type_: str | None, why: str
) -> None:
    """`fail` is a promise that the message never comes; an asynchronous send wraps time-outs in MQClientException."""
    event = {"event": "sent" if "status" in fields else "failed", "n": 1, **fields}
    sent = sent_of(json.loads(json.dumps(event)), wraps=wraps, raft_log=False)
    assert type_ is None or sent.outcome.type == type_
    assert why in sent.outcome.why
    if "offset" in fields:
        assert sent.offset == 3, "a message that is stored less surely has a place, too"


def test_ways_and_sizes_follow_from_the_id() -> None:
    ways = [way_of(n) for n in range(1, 2001)]
    assert ways == [way_of(n) for n in range(1, 2001)]
    count = Counter(ways)
    assert count["sync"] > count["async"] > 300
    assert count["batch"] > 300
    assert 10 < count["oneway"] < 90
    sizes = Counter(size_of(n, 5, 100) for n in range(1, 4001))
    assert sizes[LARGE] > 100
    assert 5 < sizes[LARGEST] < 50
    assert {size_of(n, 0, 100) for n in range(1, 100)} == {100}


def test_a_later_send_shows_what_became_of_a_request(tmp_path: Path) -> None:
    """A result that came too late, and the end of a process without one: silence alone is neither."""

    async def play() -> None:
        sender = Sender(Here(tmp_path), Made(), {}, large=0, usual=100, raft_log=False)  # type: ignore[arg-type]
        await sender.open()
        sender.use()

        async def send(n: int, deadline_s: float, **more: str) -> dict[str, Any]:
            _, extra = await sender.send(Queue("t", "a", 0), n, {"TAGS": "a", **more}, deadline_s)
            for name, shown in news.items():
                shown.extend(extra.pop(name, []))
            extra.pop("within_ms", None)
            return extra

        news: dict[str, list[Any]] = {"late": [], "ended": []}
        assert await send(10, 0.3, request="1") == {"open": True}
        assert await send(11, 0.3, request="1") == {"open": True}
        assert await send(3, 10) == {}
        assert await send(3, 10) == {}
        assert news == {"late": [[10, 10, True], [11, None, False]], "ended": []}, "each is shown once"
        assert await send(5, 0.3, request="1") == {"open": True}
        assert await send(4, 0.3, request="1") == {"open": True}
        while not news["ended"]:
            await send(3, 10)
        assert news["ended"] == [5, 4], "they were open when the process ended"
        await sender.leave()

    asyncio.run(play())
