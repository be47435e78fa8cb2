# SPDX-License-Identifier: Apache-2.0
"""Frames, the connection and the register client, against toy servers that misbehave in known ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_servers import LONG, SHORT, Handler, free_port, garbage, hang_up, run, serving, silence

from infra.systems.dledger.client import RegisterClient, ask_status
from infra.systems.remoting.connection import Broken, Refused, RemotingError, TimedOut, connect
from infra.systems.remoting.frame import MAX_FRAME, Decoder, Frame, FrameError, encode

# Frames

frames = st.builds(
    Frame,
    code=st.integers(-(1 << 31), (1 << 31) - 1),
    opaque=st.integers(0, (1 << 31) - 1),
    flag=st.integers(0, 3),
    remark=st.none() | st.text(),
    ext=st.dictionaries(st.text(min_size=1), st.text()),
    body=st.binary(),
    version=st.integers(0, 999),
)


@given(st.lists(frames, max_size=4), st.integers(1, 50))
def test_frames_survive_the_wire_however_it_cuts_them(sent: list[Frame], piece: int) -> None:
    data = b"".join(map(encode, sent))
    decoder = Decoder()
    got = [frame for at in range(0, len(data), piece) for frame in decoder.feed(data[at : at + piece])]
    assert got == sent


def raw(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    head = (4 + len(header) + len(body)).to_bytes(4, "big") + bytes([kind]) + len(header).to_bytes(3, "big")
    return head + header + body


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "not RocketMQ remoting"),
        ((MAX_FRAME + 1).to_bytes(4, "big"), "frame length"),
        (b"\0\0\0\1", "frame length 1"),
        (raw(b"{}", kind=1), "ROCKETMQ"),
        (raw(b"nonsense"), "not JSON"),
        (raw(b"\xff\xfe"), "not JSON"),
        (raw(b"[1]"), "list"),
        (raw(b'{"opaque":1,"flag":1}'), "code is None"),
        (raw(b'{"code":true,"opaque":1,"flag":1}'), "code is True"),
        (raw(b'{"code":1,"opaque":"7","flag":1}'), "opaque is '7'"),
        (raw(b'{"code":1,"opaque":1,"flag":1,"remark":5}'), "remark"),
        (raw(b'{"code":1,"opaque":1,"flag":1,"extFields":[]}'[:-3] + b"[1]}"), "extFields"),
        (b"\0\0\0\6\0\0\0\x09{}", "header of 9 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=said):
        Decoder().feed(data)


def test_a_frame_too_long_for_servers_is_not_sent() -> None:
    with pytest.raises(FrameError, match="longer"):
        encode(Frame(1, 1, body=bytes(MAX_FRAME)))


# Connections


async def echo(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(frame.reply(200, frame.body)))


async def wrong_opaque(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(Frame(200, frame.opaque + 1, flag=1, body=frame.body)))


def test_requests_and_answers_pair_up() -> None:
    async def test() -> None:
        async with serving(echo) as address:
            connection = await connect(*address, LONG)
            for i in range(20):
                answer = await connection.call(1, b"%d" % i, LONG, ext={"a": "b"})
                assert (answer.body, answer.code, answer.is_response) == (b"%d" % i, 200, True)
            connection.close()

    run(test)


def test_nobody_listens() -> None:
    async def test() -> None:
        with pytest.raises(Refused, match="Connection refused"):
            await connect(*await free_port(), LONG)

    run(test)


@pytest.mark.parametrize(
    ("handle", "error", "said", "timeout_s"),
    [
        (silence, TimedOut, "no answer within", SHORT),
        (hang_up, Broken, "closed the connection", LONG),
        (garbage, Broken, "not RocketMQ remoting", LONG),
        (wrong_opaque, Broken, "nobody waits for", LONG),
    ],
)
def test_after_any_error_the_connection_is_closed(
    handle: Handler, error: type[RemotingError], said: str, timeout_s: float
) -> None:
    async def test() -> None:
        async with serving(handle) as address:
            connection = await connect(*address, LONG)
            with pytest.raises(error, match=said):
                await connection.call(1, b"x", timeout_s)
            assert connection.closed
            with pytest.raises(Refused):
                await connection.call(1, b"y", LONG)

    run(test)


def test_nothing_is_sent_when_no_time_is_left() -> None:
    async def test() -> None:
        seen: list[Frame] = []

        async def note(frame: Frame, writer: asyncio.StreamWriter) -> None:
            seen.append(frame)
            await echo(frame, writer)

        async with serving(note) as address:
            connection = await connect(*address, LONG)
            with pytest.raises(Refused, match="no time left"):
                await connection.call(1, b"late", 0)
            await connection.call(1, b"in time", LONG)
            connection.close()
        assert [frame.body for frame in seen] == [b"in time"]

    run(test)


def test_a_cancelled_call_closes_the_connection() -> None:
    async def test() -> None:
        async with serving(silence) as address:
            connection = await connect(*address, LONG)
            call = asyncio.create_task(connection.call(1, b"x", LONG))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert connection.closed

    run(test)


def test_what_the_server_asks_goes_to_its_own_handler() -> None:
    async def test() -> None:
        requested: list[int] = []

        async def ask_then_answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(Frame(39, 1)) + encode(frame.reply(200, b"done")))

        async with serving(ask_then_answer) as address:
            connection = await connect(*address, LONG, on_request=lambda f: requested.append(f.code))
            assert (await connection.call(1, b"", LONG)).body == b"done"
            connection.close()
        assert requested == [39]

    run(test)


def test_a_request_without_an_answer_may_be_sent_while_a_call_waits() -> None:
    async def test() -> None:
        seen: list[Frame] = []

        async def answer_the_first_after_the_second(frame: Frame, writer: asyncio.StreamWriter) -> None:
            seen.append(frame)
            if len(seen) == 2:
                writer.write(encode(seen[0].reply(200)))

        async with serving(answer_the_first_after_the_second) as address:
            connection = await connect(*address, LONG, version=453)
            call = asyncio.create_task(connection.call(1, b"", LONG))
            await asyncio.sleep(0)
            connection.post(37, b"", ext={"a": "b"})
            assert (await call).code == 200
            connection.close()
            with pytest.raises(Refused, match="closed"):
                connection.post(37, b"")
        assert [(frame.code, frame.is_one_way, frame.version) for frame in seen] == [(1, False, 453), (37, True, 453)]

    run(test)


# The register client


class ToyGroup:
    """Register servers whose answers the test decides; `requests` notes every operation that arrived."""

    def __init__(self, leader: str | None, term: int = 1) -> None:
        self.leader, self.term = leader, term
        self.claims: dict[str, int] = {}
        """node -> the term in which it says it leads, whatever `leader` is."""
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.answer: Mapping[str, Any] = {"code": 200, "value": 5, "index": 9, "applied": True}
        self.lose = False

    @asynccontextmanager
    async def up(self, *names: str) -> AsyncIterator[dict[str, tuple[str, int]]]:
        if not names:
            yield {}
            return
        async with serving(lambda f, w: self.handle(names[0], f, w)) as address, self.up(*names[1:]) as rest:
            yield {names[0]: address, **rest}

    async def handle(self, node: str, frame: Frame, writer: asyncio.StreamWriter) -> None:
        requested = json.loads(frame.body)
        assert requested["remoteId"] == node
        if frame.ext["requestTypeCode"] == "3":
            writer.write(encode(frame.reply(200, json.dumps(self.status(node)).encode())))
            return
        self.requests.append((node, requested))
        if self.lose:
            writer.close()
        elif node == self.leader or requested.get("readMode") == "UNSAFE_READ":
            writer.write(encode(frame.reply(200, json.dumps({"term": self.term, **self.answer}).encode())))
        else:
            refusal = {"code": 404, "leaderId": self.leader, "term": self.term}
            writer.write(encode(frame.reply(200, json.dumps(refusal).encode())))

    def status(self, node: str) -> Mapping[str, Any]:
        leads = node == self.leader or node in self.claims
        return {
            "code": 200,
            "role": "leader" if leads else "follower",
            "term": self.claims.get(node, self.term),
            "leaderId": node if leads else self.leader,
            **{"beforeBegin": -1, "end": 3, "committed": 3, "appliedIndex": 2, "registers": 1, "savingSnapshot": False},
        }


def test_it_finds_the_leader_and_stays_with_it() -> None:
    async def test() -> None:
        group = ToyGroup("n2")
        async with group.up("n1", "n2", "n3") as endpoints:
            client = RegisterClient(endpoints, deadline_s=LONG)
            answer = await client.write("k", 5)
            assert (answer.outcome.type, answer.node, answer.term, answer.index) == ("ok", "n2", 1, 9)
            assert (await client.read("k")).value == 5
            assert (await client.cas("k", None, -7)).applied is True
            await client.close()
        assert [node for node, _ in group.requests] == ["n2", "n2", "n2"]
        write, read, cas = (requested for _, requested in group.requests)
        assert (write["key"], write["value"]) == ("k", 5)
        assert read["readMode"] == "RAFT_LOG_READ"
        assert cas["value"] == -7
        assert "expect" not in cas

    run(test)


def test_of_two_that_claim_to_lead_the_higher_term_counts() -> None:
    async def test() -> None:
        group = ToyGroup("n1", term=4)
        group.claims["n3"] = 3
        async with group.up("n1", "n2", "n3") as endpoints:
            client = RegisterClient(endpoints, deadline_s=LONG)
            assert (await client.write("k", 5)).node == "n1"
            await client.close()

    run(test)


def test_a_refusal_is_not_retried_and_its_hint_is_followed_by_the_next_operation() -> None:
    async def test() -> None:
        group = ToyGroup("n1")
        async with group.up("n1", "n2", "n3") as endpoints:
            client = RegisterClient(endpoints, deadline_s=LONG)
            assert (await client.write("k", 1)).outcome.type == "ok"
            group.leader = "n3"
            refused = await client.write("k", 2)
            assert (refused.outcome.type, refused.code, refused.node) == ("fail", 404, "n1")
            assert (await client.write("k", 3)).outcome.type == "ok"
            await client.close()
        assert [(node, requested["value"]) for node, requested in group.requests] == [("n1", 1), ("n1", 2), ("n3", 3)]

    run(test)


def test_a_broken_connection_is_unknown_and_not_retried() -> None:
    async def test() -> None:
        group = ToyGroup("n1")
        group.lose = True
        async with group.up("n1") as endpoints:
            client = RegisterClient(endpoints, deadline_s=LONG)
            assert (await client.write("k", 1)).outcome.type == "info"
            assert (await client.cas("k", 1, 2)).outcome.type == "info"
            assert (await client.read("k")).outcome.type == "fail"
            assert len(group.requests) == 3
            group.lose = False
            assert (await client.write("k", 4)).outcome.type == "ok"
            await client.close()
        assert len(group.requests) == 4

    run(test)


def test_no_leader_means_nothing_was_sent() -> None:
    async def test() -> None:
        group = ToyGroup(None)
        async with group.up("n1", "n2") as endpoints:
            answer = await RegisterClient(endpoints, deadline_s=2 * SHORT).write("k", 1)
            assert (answer.outcome.type, answer.node) == ("fail", None)
            assert "nothing was sent" in answer.outcome.why
        assert group.requests == []

    run(test)


def test_nobody_there_means_nothing_was_sent() -> None:
    async def test() -> None:
        endpoints = {"n1": await free_port()}
        found = await RegisterClient(endpoints, deadline_s=SHORT).write("k", 1)
        pinned = await RegisterClient(endpoints, pinned="n1", deadline_s=LONG).write("k", 1)
        assert (found.outcome.type, pinned.outcome.type) == ("fail", "fail")
        assert "Connection refused" in pinned.outcome.why

    run(test)


def test_a_pinned_client_never_asks_anyone_else() -> None:
    async def test() -> None:
        group = ToyGroup("n1")
        async with group.up("n1", "n2") as endpoints:
            client = RegisterClient(endpoints, pinned="n2", deadline_s=LONG)
            for _ in range(2):
                assert (await client.write("k", 1)).code == 404
            assert (await client.read("k", mode="unsafe")).value == 5
            await client.close()
        assert {node for node, _ in group.requests} == {"n2"}

    run(test)


def test_a_cas_that_is_acknowledged_without_a_result_is_unknown() -> None:
    async def test() -> None:
        group = ToyGroup("n1")
        async with group.up("n1") as endpoints:
            client = RegisterClient(endpoints, deadline_s=LONG)
            group.answer = {"code": 200}
            assert (await client.cas("k", 1, 2)).outcome.type == "info"
            assert (await client.write("k", 2)).outcome.type == "ok"
            group.answer = {"code": 200, "applied": False, "value": 3}
            refused = await client.cas("k", 1, 2)
            assert (refused.outcome.type, refused.applied, refused.value) == ("ok", False, 3)
            await client.close()

    run(test)


@pytest.mark.parametrize("answer", [{"code": "200"}, {}, {"code": 200, "value": "5"}, {"code": 200, "index": 1.5}])
def test_an_answer_that_makes_no_sense_leaves_a_write_unknown(answer: Mapping[str, Any]) -> None:
    async def test() -> None:
        group = ToyGroup("n1")
        group.answer = answer
        async with group.up("n1") as endpoints:
            assert (await RegisterClient(endpoints, deadline_s=LONG).write("k", 1)).outcome.type == "info"

    run(test)


def test_status_is_read_whole_or_not_at_all() -> None:
    async def test() -> None:
        group = ToyGroup("n1", term=6)
        async with group.up("n1") as endpoints:
            status = await ask_status("n1", endpoints["n1"], LONG)
            assert (status.role, status.term, status.leader, status.before_begin) == ("leader", 6, "n1", -1)
            assert (status.end, status.committed, status.applied, status.snapshots) == (3, 3, 2, None)
        async with serving(echo) as address:
            with pytest.raises(Broken, match="status answered with code None"):
                await ask_status("n1", address, LONG)

    run(test)


def test_bad_arguments_are_told_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="bound to 'n9'"):
        RegisterClient({"n1": ("127.0.0.1", 1)}, pinned="n9", deadline_s=1)
    with pytest.raises(ValueError, match="64 bits"):
        asyncio.run(RegisterClient({"n1": ("127.0.0.1", 1)}, pinned="n1", deadline_s=1).write("k", 1 << 63))
