# SPDX-License-Identifier: Apache-2.0
"""The program on a node with librocketmq's push consumer. The process is real; the package in it is a stand-in, because
the real one needs servers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.machines.api import Completed, InfraError
from infra.systems.rocketmq.applications import native_consumer
from infra.systems.rocketmq.applications.native import NativeProgram

CLIENT = """
import enum, json, pathlib, time

ConsumeStatus = enum.IntEnum("ConsumeStatus", "CONSUME_SUCCESS RECONSUME_LATER", start=0)
HERE = pathlib.Path(__file__).parent

class Message:
    def __init__(self, of): self.__dict__.update(of)
    topic, queue_id, queue_offset, reconsume_times, id = "T", 1, 41, 0, "M"
    tags, keys, body, properties = "", "", "7", {}
    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        return found.encode() if name in ("tags", "keys", "body") and found is not None else found
    def get_property(self, name): return self.properties.get(name, "").encode()

class PushConsumer:
    def __init__(self, group, orderly=False): self.seen = {"group": group, "orderly": orderly}
    def set_name_server_address(self, address): self.seen["nameservers"] = address
    def set_instance_name(self, name): self.seen["instance"] = name
    def set_thread_count(self, count): self.seen["threads"] = count
    def subscribe(self, topic, callback, expression="*"):
        self.seen |= {"topic": topic, "expression": expression}
        self.callback = callback
    def start(self):
        print("noise on standard output")
        if self.seen["nameservers"] == "refused": raise OSError("start failed")
        if self.seen["nameservers"] == "hanging": time.sleep(1000)
        results = [self.callback(Message(of)) for of in json.loads((HERE / "messages.json").read_text())]
        (HERE / "seen.json").write_text(json.dumps({**self.seen, "results": results}))
    def shutdown(self): (HERE / "ended").touch()
"""
CONSUME = {
    "do": "consume",
    "name": "consumer",
    "group": "g",
    "topics": ["T"],
    "nameservers": "127.0.0.1:9",
    "instance": "m0-1",
    "orderly": False,
    "broadcast": False,
    "set": {"consumeThreadMax": 4},
}


class Program:
    """The process."""

    def __init__(self, folder: Path, module_path: str | None = None) -> None:
        env = {**os.environ, "HOME": str(folder)} | ({"PYTHONPATH": module_path} if module_path else {})
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, *(["-S"] if module_path else []), "-m", native_consumer.__name__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("w"),
            text=True,
            env=env,
            cwd=folder if module_path else None,
        )
        self._guard = threading.Timer(30, self.process.kill)  # a test that hangs fails
        self._guard.start()

    def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> list[dict[str, Any]]:
        """The events until one of a kind, without their times."""
        assert self.process.stdout is not None
        found: list[dict[str, Any]] = []
        for line in self.process.stdout:
            found.append(json.loads(line))
            assert found[-1].pop("clock") > 0
            if found[-1]["event"] == kind:
                return found
        raise AssertionError(f"no {kind!r}: {found}; {(self.folder / 'stderr').read_text()}")

    def end(self) -> int:
        """Ends its input; the code with which it ends then."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(10)
        self._guard.cancel()
        return code

    def seen(self) -> Any:
        return json.loads((self.folder / "rocketmq" / "seen.json").read_text())


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A stand-in for rocketmq-client-python."""
    package = tmp_path / "rocketmq"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "client.py").write_text(CLIENT)
    return tmp_path


def started(packages: Path, messages: Sequence[dict[str, Any]]) -> Program:
    (packages / "rocketmq" / "messages.json").write_text(json.dumps(messages))
    program = Program(packages)
    (hello,) = program.until("hello")
    assert hello["pid"] == program.process.pid
    return program


@pytest.fixture
def idle(packages: Path) -> Iterator[Program]:
    program = started(packages, [])
    yield program
    assert program.end() == 0


def test_a_message_is_reported_before_and_after_the_work_on_it(packages: Path) -> None:
    program = started(packages, [{"tags": "a", "properties": {"broker": "group-1"}}, {"body": "8" * 5000}])
    program.tell(**CONSUME, tags="a || b")
    first, done, second, _, ready = program.until("started")
    assert first == {
        "event": "delivered", "name": "consumer", "n": 1, "topic": "T", "broker": "group-1", "queue": 1, "offset": 41,
        "attempt": 0, "id": "M", "tags": "a", "body": "7",
    }  # fmt: skip
    assert done == {"event": "done", "name": "consumer", "n": 1, "ok": True}
    assert (second["n"], second["broker"], second["body"], "tags" in second) == (2, "?", "8" * 64, False)
    assert ready == {"event": "started", "name": "consumer", "client": "m0-1"}
    program.tell(do="stop", name="consumer")
    assert program.until("stopped") == [{"event": "stopped", "name": "consumer"}]
    assert (packages / "rocketmq" / "ended").exists()
    assert program.end() == 0
    assert program.seen() == {
        "group": "g", "orderly": False, "nameservers": "127.0.0.1:9", "instance": "m0-1", "threads": 4, "topic": "T",
        "expression": "a || b", "results": [0, 0],
    }  # fmt: skip


def test_so_many_attempts_fail_as_the_message_says(packages: Path) -> None:
    """One that comes again is of the retry topic, though the library shows the topic to which it was sent."""
    fails = {"fails": "1", "broker": "x"}
    again = {"reconsume_times": 1, "properties": {**fails, "RETRY_TOPIC": "T"}}
    program = started(packages, [{"properties": fails}, again])
    program.tell(**{**CONSUME, "orderly": True})
    events = program.until("started")
    assert [event["ok"] for event in events if event["event"] == "done"] == [False, True]
    places = [(event["topic"], event["attempt"]) for event in events if event["event"] == "delivered"]
    assert places == [("T", 0), ("%RETRY%g", 1)]
    assert program.end() == 0
    assert program.seen()["results"] == [1, 0]
    assert program.seen()["orderly"] is True


def test_slow_work_takes_its_time(packages: Path) -> None:
    program = started(packages, [{"properties": {"slow": "300"}}])
    program.tell(**CONSUME)
    assert program.process.stdout is not None
    clocks = [json.loads(program.process.stdout.readline())["clock"] for _ in range(2)]
    assert clocks[1] - clocks[0] >= 300_000
    program.until("started")
    assert program.end() == 0


def test_an_exception_in_the_work_is_reported_and_the_message_comes_again(packages: Path) -> None:
    """ctypes would return 0 for it, the code of a success: the message would be lost."""
    program = started(packages, [{"properties": {"fails": "many"}}])
    program.tell(**CONSUME)
    failed = program.until("started")[-2]
    assert (failed["event"], failed["name"], failed["error"]) == ("failed", "consumer", "ValueError")
    assert program.end() == 0
    assert program.seen()["results"] == [1]


@pytest.mark.parametrize(
    ("command", "error", "why"),
    [
        ({**CONSUME, "nameservers": "refused"}, "OSError", "start failed"),
        ({**CONSUME, "broadcast": True}, "ValueError", "a native consumer has neither broadcast nor SQL92"),
        ({**CONSUME, "sql": "TAGS in ('a')"}, "ValueError", "a native consumer has neither broadcast nor SQL92"),
        ({"do": "suspend", "name": "consumer", "n": 3}, "ValueError", "nothing here is called 'consumer'"),
        ({"name": "consumer"}, "KeyError", "'do'"),
    ],
)
def test_a_command_that_fails_is_reported(idle: Program, command: dict[str, Any], error: str, why: str) -> None:
    idle.tell(**command)
    (failed,) = idle.until("failed")
    numbered = {"n": 3} if "n" in command else {}
    assert failed == {"event": "failed", "name": "consumer", **numbered, "error": error, "why": why}


def test_a_consumer_knows_no_other_commands(idle: Program) -> None:
    idle.tell(**CONSUME)
    idle.until("started")
    idle.tell(do="resume", name="consumer")
    assert idle.until("failed")[-1]["why"] == "a consumer cannot resume"
    idle.tell(do="stop", name="another")
    assert idle.until("stopped")[-1]["name"] == "another"


def test_it_ends_with_its_input_even_if_a_call_hangs(packages: Path) -> None:
    program = started(packages, [])
    program.tell(**{**CONSUME, "nameservers": "hanging"})
    assert program.end() == 0


def test_a_package_that_cannot_be_loaded_is_named(packages: Path) -> None:
    (packages / "rocketmq" / "client.py").write_text("raise ImportError('rocketmq dynamic library not found')")
    program = started(packages, [])
    program.tell(**CONSUME)
    (failed,) = program.until("failed")
    assert (failed["name"], failed["why"]) == ("consumer", "rocketmq dynamic library not found")
    assert program.end() == 0


class Node:
    """A node whose root is a folder."""

    name = "c1"

    def __init__(self, root: Path, code: int = 0) -> None:
        self.root, self.code = root, code

    def run(self, argv: Sequence[str], *, check: bool = True) -> Completed:
        return Completed(argv, self.code, b"", b"", 1.0)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def test_the_files_on_a_node_are_all_that_it_needs(packages: Path, tmp_path: Path) -> None:
    """It runs beside nothing else of this package (`-S`: without the site-packages of this machine)."""
    program = NativeProgram()
    program.prepare()
    program.install(Node(tmp_path))  # type: ignore[arg-type]
    (where,) = [word.partition("=")[2] for word in program.argv if word.startswith("PYTHONPATH=")]
    assert program.argv[-2] == native_consumer.__name__
    (packages / "rocketmq" / "messages.json").write_text("[]")
    process = Program(packages, str(tmp_path / where.lstrip("/")))
    process.until("hello")
    process.tell(**CONSUME)
    process.until("started")
    assert process.end() == 0


def test_a_node_without_the_modules_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"c1 has no python3 with ctypes and json: install it there \(Debian: python3"):
        NativeProgram().install(Node(tmp_path, code=1))  # type: ignore[arg-type]
