# SPDX-License-Identifier: Apache-2.0
"""Clients in processes of their own: what becomes of an operation when the process answers, refuses, hangs, or dies.

The processes are real; the packages in them are stand-ins, because the real ones need servers (tests/cluster/).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
from pathlib import Path

import pytest
from toy_servers import LONG, run

from infra.machines.api import InfraError
from infra.systems.outcome import OutcomeType
from infra.systems.rocketmq.clients import missing_functions
from infra.systems.rocketmq.clients.native import NativeProducer, native_library
from infra.systems.rocketmq.clients.proxy import OUTCOMES, ProxyProducer, _line, _sent, outcome_of_code
from infra.systems.rocketmq.clients.worker import NotStarted, Worker, WorkerError
from infra.systems.rocketmq.protocol.outcomes import Operation

CLIENT = """
import enum, os, signal, sys, time
from collections import namedtuple

SendStatus = enum.IntEnum("SendStatus", "OK FLUSH_DISK_TIMEOUT FLUSH_SLAVE_TIMEOUT SLAVE_NOT_AVAILABLE", start=0)
Result = namedtuple("Result", "status msg_id offset")

class Message:
    def __init__(self, topic): self.topic = topic
    def set_body(self, body): self.body = body

class Producer:
    def __init__(self, group, timeout): print("noise on standard output"); self.timeout = timeout
    def set_name_server_address(self, address): self.address = address
    def start(self):
        if self.address == "127.0.0.1:9": raise OSError("start failed")
    def send_sync(self, message):
        match message.topic:
            case "hang": time.sleep(1000)
            case "abort": print("terminate called", file=sys.stderr); os.kill(os.getpid(), signal.SIGABRT)
            case "refuse": raise ValueError("No route info of this topic: refuse\\nmore")
            case "slave": return Result(SendStatus.FLUSH_SLAVE_TIMEOUT, "M", 5)
        return Result(SendStatus.OK, f"{os.getpid()} {self.address} {self.timeout} {os.environ['HOME']}", 7)
"""
FFI = """
_DYLIB_PATH = "/lib/librocketmq.so"
class dll:
    DestroyMessage = staticmethod(lambda message: 0)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A stand-in for rocketmq-client-python."""
    package = tmp_path / "rocketmq"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "client.py").write_text(CLIENT)
    (package / "ffi.py").write_text(FFI)
    return tmp_path


def test_a_send_goes_through_the_process_and_comes_back(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 1), ("127.0.0.1", 2)], deadline_s=9)
        await producer.open()
        first, second = [await producer.send("t", b"1") for _ in range(2)]
        assert (first.outcome.type, first.offset, first.code) == ("ok", 7, 0)
        assert first.message_id == second.message_id
        pid, address, timeout_ms, home = (first.message_id or "").split()
        assert (address, timeout_ms) == ("127.0.0.1:1;127.0.0.1:2", "2700")
        assert int(pid) != os.getpid()
        slave = await producer.send("slave", b"1")
        assert (slave.outcome.type, slave.offset, slave.code) == ("info", 5, 12)
        await producer.close()
        assert not Path(home).exists()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)

    run(test)


def test_whatever_the_native_client_raises_is_unknown(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 1)], deadline_s=LONG)
        refused = await producer.send("refuse", b"1")
        assert refused.outcome.type == "info"
        assert refused.outcome.why == "ValueError: No route info of this topic: refuse"
        await producer.close()

    run(test)


def test_a_process_that_dies_leaves_the_send_unknown_and_the_next_one_gets_another(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 1)], deadline_s=LONG)
        died = await producer.send("abort", b"1")
        assert died.outcome.type == "info"
        assert died.outcome.why == f"the client's process was killed by signal {signal.SIGABRT}: terminate called"
        assert (await producer.send("t", b"1")).outcome.type == "ok"
        await producer.close()

    run(test)


def test_a_process_that_hangs_is_killed_at_the_deadline(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 1)], deadline_s=LONG)
        await producer.open()
        hung = await producer.send("hang", b"1", deadline_s=0.2)
        assert hung.outcome.type == "info"
        assert "no answer within" in hung.outcome.why
        assert (await producer.send("t", b"1")).outcome.type == "ok"
        await producer.close()

    run(test)


def test_a_send_that_is_given_up_does_not_have_the_process_start_anew(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 1)], deadline_s=LONG)
        early = await producer.send("t", b"1", deadline_s=0.001)
        assert (early.outcome.type, early.outcome.why) == (
            "fail",
            "nothing was sent: the client's process is still starting",
        )
        starting = producer._standby._starting
        assert starting is not None
        given_up = asyncio.create_task(producer.send("t", b"1"))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await producer.send("t", b"1")).outcome.type == "ok"
        assert producer._standby._worker is starting.result()
        given_up = asyncio.create_task(producer.send("hang", b"1"))
        await asyncio.sleep(0)
        behind = asyncio.create_task(producer.send("t", b"2"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await behind).outcome.type == "ok"
        await producer.close()
        unused = NativeProducer(packages, [("127.0.0.1", 1)], deadline_s=LONG)
        assert (await unused.send("t", b"1", deadline_s=0.001)).outcome.type == "fail"
        await unused.close()

    run(test)


def test_nothing_was_sent_where_the_client_does_not_start(packages: Path) -> None:
    async def test() -> None:
        producer = NativeProducer(packages, [("127.0.0.1", 9)], deadline_s=LONG)
        await producer.open()
        sent = await producer.send("t", b"1")
        assert (sent.outcome.type, sent.outcome.why) == ("fail", "nothing was sent: OSError: start failed")
        empty = NativeProducer(packages / "nowhere", [("127.0.0.1", 1)], deadline_s=LONG)
        sent = await empty.send("t", b"1")
        assert sent.outcome.type == "fail"
        assert "No module named 'rocketmq'" in sent.outcome.why
        with pytest.raises(InfraError, match="cannot be used here: ModuleNotFoundError"):
            await native_library(packages / "nowhere")

    run(test)


def test_a_body_that_would_arrive_cut_off_is_not_sent() -> None:
    with pytest.raises(ValueError, match="NUL"):
        asyncio.run(NativeProducer(Path(), [], deadline_s=1).send("t", b"a\0b"))


def _some_library() -> str:
    """The file of the C library's mathematics, which every interpreter has loaded."""
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    return next(path for path in mapped if "/libm.so" in path or "/libm-" in path)


def test_what_a_library_lacks_is_told_by_name(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.CDLL, "__getattr__", ctypes.CDLL.__getattr__)  # put back afterwards
    library = tmp_path / "librocketmq.so"
    shutil.copy(_some_library(), library)
    missing_functions.tolerate_missing_functions()
    loaded = ctypes.CDLL(str(library))
    assert loaded.CreateProducer() == -1
    loaded.cos.restype = ctypes.c_double
    assert loaded.cos(ctypes.c_double(0)) == 1.0
    assert missing_functions.MISSING == ["CreateProducer"]
    with pytest.raises(AttributeError):
        _ = ctypes.CDLL(None).CreateProducer

    async def test() -> None:
        with pytest.raises(InfraError, match=r"librocketmq\.so lacks CreateProducer: no librocketmq"):
            await native_library(packages)

    (packages / "rocketmq" / "ffi.py").write_text(
        f"import ctypes\n_DYLIB_PATH = {str(library)!r}\ndll = ctypes.CDLL(_DYLIB_PATH)\ndll.CreateProducer\n"
    )
    run(test)


def test_the_process_ends_with_us(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        worker = Worker("infra.systems.rocketmq.clients.native_child", str(packages))
        await worker.start()
        assert worker.alive
        process = worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
        with pytest.raises(WorkerError, match="ended with 0"):
            await worker.ask({"do": "library"}, LONG)
        await worker.close()
        with pytest.raises(NotStarted, match="ended with 1"):
            await Worker("infra.systems.rocketmq.clients.nowhere").start()

    run(test)


# The proxy's codes

PROXY_CASES: list[tuple[int, str, OutcomeType]] = [
    (20000, "OK", "ok"),
    (40002, "illegal topic", "fail"),
    (40300, "forbidden", "fail"),
    (40402, "topic not found", "fail"),
    (40800, "timeout", "info"),
    (41301, "too large", "fail"),
    (42800, "precondition", "fail"),
    (42900, "too many requests", "fail"),
    (42900, "[REJECTREQUEST]system busy", "fail"),
    (42900, "[PC_SYNCHRONIZED]broker busy", "info"),
    (43101, "properties", "fail"),
    (50000, "internal", "info"),
    (50001, "in-sync replicas not enough", "info"),
    (50002, "sendStatus=SLAVE_NOT_AVAILABLE", "info"),
    (50100, "not supported", "fail"),
    (50400, "wait response on the channel timeout", "info"),
    (50401, "sendStatus=FLUSH_DISK_TIMEOUT", "info"),
    (50402, "sendStatus=FLUSH_SLAVE_TIMEOUT", "info"),
    (60000, "something new", "info"),
]


OTHER_CASES: list[tuple[Operation, int, str, OutcomeType]] = [
    ("recall", 20000, "OK", "ok"),
    ("recall", 40014, "the topic is no topic of delayed messages", "fail"),
    ("recall", 42900, "[REJECTREQUEST]system busy", "fail"),
    ("recall", 50001, "recall failed, the message may be recalled", "info"),
    ("recall", 50100, "not supported", "fail"),
    ("recall", 50400, "timeout", "info"),
    ("pop", 20000, "OK", "ok"),
    ("pop", 40011, "the invisible time is too small", "fail"),
    ("pop", 40018, "the deadline time remaining is not enough for polling", "fail"),
    ("pop", 40401, "no new message", "ok"),
    ("pop", 40800, "timeout", "info"),
    ("pop", 42900, "polling full", "fail"),
    ("pop", 42900, "[TIMEOUT_CLEAN_QUEUE]broker busy", "fail"),
    ("pop", 42900, "[new words]", "info"),
    ("pop", 50001, "null. NullPointerException", "info"),
    ("pop", 50400, "wait response on the channel timeout", "info"),
    ("ack", 20000, "OK", "ok"),
    ("ack", 40013, "receipt handle is expired", "fail"),
    ("ack", 40401, "no message", "fail"),
    ("ack", 50001, "ack failed: status is abnormal", "info"),
    ("extend", 20000, "OK", "ok"),
    ("extend", 40013, "receipt handle is expired", "fail"),
    ("extend", 50001, "INTERNAL_SERVER_ERROR", "info"),
    ("end", 20000, "OK", "info"),
    ("end", 40008, "transaction id cannot be empty", "fail"),
    ("end", 42900, "flow limit", "fail"),
    ("end", 50001, "cannot found transaction data", "fail"),
    ("end", 50001, "connect to 127.0.0.1:10911 failed", "info"),
    ("end", 50400, "timeout", "info"),
]
SENDS_CASES: list[tuple[Operation, int, str, OutcomeType]] = [("send", *case) for case in PROXY_CASES]


@pytest.mark.parametrize(("operation", "code", "why", "expected"), [*SENDS_CASES, *OTHER_CASES])
def test_what_a_code_of_the_proxy_means(operation: Operation, code: int, why: str, expected: OutcomeType) -> None:
    outcome = outcome_of_code(code, "NAME", why, True, operation)
    assert outcome.type == expected
    assert expected == "ok" or why in outcome.why


def test_a_send_is_not_judged_by_what_is_said_of_an_end() -> None:
    assert outcome_of_code(50001, "NAME", "cannot found transaction data").type == "info"


def test_every_line_has_a_case() -> None:
    cases = [(operation, code, why) for operation, code, why, _ in [*SENDS_CASES, *OTHER_CASES]]
    assert {_line(code, why, operation) for operation, code, why in cases} - {None} == set(OUTCOMES)


def test_what_comes_from_the_proxys_process() -> None:
    ok = {"code": 20000, "name": "OK", "why": "OK", "offset": 0, "message_id": "M"}
    assert (_sent(ok, None).outcome.type, _sent(ok, None).offset) == ("ok", 0)
    assert _sent({"code": 20000, "name": "OK", "why": "OK"}, None).outcome.type == "info"
    assert _sent({"code": 50402, "name": "X", "why": "y"}, None).code == 12
    assert _sent({"refused": "no connection"}, None).outcome.type == "fail"
    assert _sent({"broken": "UNAVAILABLE: reset"}, None).outcome.type == "info"
    assert _sent({"error": "TypeError", "why": "y"}, None).outcome.type == "info"


def test_a_client_of_the_proxy_goes_to_the_next_one_after_anything_but_success(tmp_path: Path) -> None:
    async def test() -> None:
        producer = ProxyProducer(tmp_path, {"n1": ("a", 1), "n2": ("b", 2), "n3": ("c", 3)}, deadline_s=LONG, first=4)
        assert producer.proxy == "n2"
        sent = await producer.send("t", b"1")
        assert sent.outcome.type == "fail"
        assert "nothing was sent" in sent.outcome.why
        assert producer.proxy == "n3"
        await producer.close()

    run(test)
    with pytest.raises(ValueError, match="needs a proxy"):
        ProxyProducer(tmp_path, {}, deadline_s=1)
