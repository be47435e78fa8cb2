# SPDX-License-Identifier: Apache-2.0
"""The handle of an application's process: its events, its commands, and its end, with a real process on a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from infra.machines.api import Completed, SettingsError
from infra.machines.remote.api import Stream
from infra.machines.remote.process import ProcessRemote
from infra.systems.rocketmq.applications.own import OwnProgram
from infra.systems.rocketmq.applications.process import Application, ApplicationError, Clock, Event

PROGRAM = """
import json, os, sys
def report(**event): print(json.dumps(event), flush=True)
report(event="hello", pid=os.getpid())
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "consume":
        for n in range(3):
            report(event="delivered", n=n)
        print("no JSON", flush=True)
        report(event="started", name=command["name"])
    elif command["do"] == "send":
        held = [*globals().get("held", []), command["n"]]
        if len(held) == 3:
            report(event="sent", name=command["name"], n=3)
            report(event="failed", name=command["name"], n=1, error="Refused", why="a reason")
    elif command["do"] == "stop":
        report(event="stopped", name=command["name"])
    else:
        report(event="failed", name=command["name"], error="Refused", why="a reason")
"""


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Here:
    """A node that is this machine; only what an application needs."""

    name = "c1"

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.remote = ProcessRemote("c1")

    def run(self, argv: Sequence[str], *, check: bool = True, **how: object) -> Completed:
        if argv[0] == "kill":
            os.kill(int(argv[3]), getattr(signal, f"SIG{argv[2]}"))
        text = b"last words" if argv[0] == "tail" else b""
        return Completed(argv, 0, text, b"", 1.0)

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        log = str(self.folder / "application.log")
        return self.remote.open([*argv[:4], log, *argv[5:]], timeout_s)


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return made(tmp_path, PROGRAM)


def made(folder: Path, program: str) -> Application:
    return Application(Here(folder, program), "application-m0", [sys.executable, "-c", program])  # type: ignore[arg-type]


async def taken(application: Application, count: int) -> list[Event]:
    """Takes until there are so many events."""
    found: list[Event] = []
    while len(found) < count:
        found += await application.take(5)
    return found


@in_loop
async def test_no_take_gets_what_somebody_waits_for(application: Application) -> None:
    """A take beside the start got the hello, and the member never began to consume: seen in the first real runs."""
    start = asyncio.create_task(application.start(10))
    early = [application.take(0.05) for _ in range(3)]
    assert await asyncio.gather(*early) == [[], [], []]
    assert (await start).kind == "hello"
    await application.ask({"do": "consume", "name": "c"}, "started", 10)
    kinds = [event.kind for event in await taken(application, 4)]
    assert kinds == ["delivered", "delivered", "delivered", "nonsense"]
    times = [event.at for event in await taken_after_stop(application)]
    assert times == sorted(times)


async def taken_after_stop(application: Application) -> list[Event]:
    await application.ask({"do": "stop", "name": "c"}, "stopped", 10)
    await application.kill()
    return await application.take(0)


@in_loop
async def test_a_failure_is_the_answer(application: Application) -> None:
    await application.start(10)
    with pytest.raises(ApplicationError, match="application-m0: Refused: a reason"):
        await application.ask({"do": "fly", "name": "c"}, "started", 10)
    await application.kill()


@in_loop
async def test_a_call_gets_the_answer_with_its_number(application: Application) -> None:
    """Also a failure is an answer; one that does not come is none of the others'."""
    await application.start(10)

    async def send(n: int) -> Event:
        return await application.call({"do": "send", "name": "p", "n": n}, "sent", 2)

    first, second, third = await asyncio.gather(*map(send, (1, 2, 3)), return_exceptions=True)
    assert isinstance(first, Event)
    assert (first.kind, first.fields["why"]) == ("failed", "a reason")
    assert isinstance(third, Event)
    assert (third.kind, third.fields["n"]) == ("sent", 3)
    assert str(second) == "application-m0: no 'sent' within 2 s"
    await application.kill()


@in_loop
async def test_a_killed_process_has_reported_all_that_it_did(application: Application) -> None:
    """Evidence: a delivery that was reported before the kill may not be lost, and nothing is sent to a dead process."""
    await application.start(10)
    await application.ask({"do": "consume", "name": "c"}, "started", 10)
    await application.kill()
    assert application.ended
    assert [event.kind for event in await application.take(0)] == [*(["delivered"] * 3), "nonsense"]
    with pytest.raises(ApplicationError):
        await application.ask({"do": "stop", "name": "c"}, "stopped", 1)


@in_loop
async def test_a_process_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    application = made(tmp_path, "raise SystemExit(3)")
    with pytest.raises(ApplicationError, match="the process has ended; its log: last words"):
        await application.start(10)


@in_loop
async def test_one_that_says_nothing_does_not_hold_up_the_run(tmp_path: Path) -> None:
    """A member that is not up yet ends by the end of its stdin."""
    application = made(tmp_path, "import sys; sys.stdin.read()")
    with pytest.raises(ApplicationError, match=r"no 'hello' within 0\.2 s"):
        await application.start(0.2)
    await application.kill()
    for _ in range(100):
        if application.ended:
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not end with its stdin")


def test_a_folder_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a folder with an executable file 'run' is right"):
        OwnProgram.shares(tmp_path)
    (tmp_path / "run").touch(mode=0o755)
    (share,) = OwnProgram.shares(tmp_path)
    assert share.source == tmp_path.resolve()


def test_the_time_of_an_event_is_that_of_its_process() -> None:
    """One that waited in the pipe is put back; a faster one than all before corrects the difference; none is later than
    its arrival.
    """
    clock = Clock()
    assert clock.time(1_000, 500_003_000_000) == 500_003_000_000, "the first one shows nothing"
    assert clock.time(2_000, 500_003_600_000) == 500_003_600_000, "it was faster, by 0.4 ms"
    assert clock.time(5_000, 500_900_000_000) == 500_006_600_000, "it waited for 0.9 s"
    assert clock.time(6_000, 500_900_000_001) == 500_007_600_000


def test_a_faster_event_does_not_turn_two_of_one_thread_around() -> None:
    """A thread finishes a message, gets the next, and takes the time of that; another thread, which took its own time
    later, writes first, and shows that all before came late: by 0.24 ms.
    """
    clock = Clock()
    assert clock.time(1_000, 1_300_000) == 1_300_000
    finished = clock.time(2_000, 2_300_000)
    assert finished == 2_300_000
    assert clock.time(2_250, 2_310_000) == 2_310_000, "of another thread, and fast"
    assert clock.time(2_100, 2_320_000) == finished, "at 2.16 ms, by the new difference"
    assert clock.time(2_400, 2_900_000) == 2_460_000
    assert clock.time(2_380, 2_910_000) == 2_440_000, "a thread that took the time first, and wrote last"


@in_loop
async def test_events_that_name_their_time_arrive_with_it(tmp_path: Path) -> None:
    """Two events are a millisecond apart, as their process says, also if the pipe stood still between them."""
    application = made(tmp_path, LATE)
    await application.start(20)
    found = await taken(application, 2)
    application.close()
    assert [event.fields for event in found] == [{"event": "delivered", "n": 0}, {"event": "delivered", "n": 1}]
    assert found[1].at - found[0].at <= 1_000_000, "it was written 0.6 s later"


LATE = """
import json, os, sys, time
at = time.monotonic_ns() // 1000
def report(after, **event): print(json.dumps({"clock": at + after, **event}), flush=True)
report(0, event="hello", pid=os.getpid())
report(1000, event="delivered", n=0)
time.sleep(0.6)
report(2000, event="delivered", n=1)
sys.stdin.read()
"""
