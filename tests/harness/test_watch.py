# SPDX-License-Identifier: Apache-2.0
"""A server that ends by itself is reported once; one that a fault ended, or that is restarted on purpose, is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.observe import process_monitor as watch
from harness.observe.process_monitor import ProcessMonitor
from infra.machines.api import InfraError, Node, ProcessId


class Machine:
    """One node with two servers. `ended` blocks, as the command on a real node does, until something changed."""

    def __init__(self) -> None:
        self.node: Any = SimpleNamespace(name="n1")
        self.running: dict[str, ProcessId] = {"namesrv": ProcessId(1, 1), "broker": ProcessId(2, 1)}
        self.changed = threading.Condition()
        self.looks = 0
        self.unreachable = False

    @property
    def nodes(self) -> list[Any]:
        return [self.node]

    def servers(self, node: str) -> Sequence[Any]:
        return [self.server(node, kind) for kind in ("namesrv", "broker")]

    def server(self, node: str, kind: str) -> Any:
        return SimpleNamespace(kind=kind, process=lambda: self.process(kind), last_words=lambda: f"the last of {kind}")

    def process(self, kind: str) -> ProcessId | None:
        if self.unreachable:
            raise InfraError("n1: no answer")
        return self.running.get(kind)

    def await_end(self, node: Node, processes: Sequence[ProcessId], within_s: float) -> list[ProcessId]:
        def ended() -> list[ProcessId]:
            return [p for p in processes if p not in self.running.values()]

        with self.changed:
            self.looks += 1
            self.changed.notify_all()
            self.changed.wait_for(ended, 0.05)
            return ended()

    def change(self, **running: ProcessId | None) -> None:
        with self.changed:
            for kind, process in running.items():
                self.running.pop(kind, None)
                if process is not None:
                    self.running[kind] = process
            self.changed.notify_all()


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = Machine()
        monkeypatch.setattr(watch, "await_end", self.machine.await_end)
        monkeypatch.setattr(watch, "_PAUSE_S", 0.01)
        self.told: list[dict[str, Any]] = []
        self.excused = False
        deployment: Any = self.machine
        self.watch = ProcessMonitor(deployment, lambda node, kind, since: self.excused, self.told.append)

    async def looked(self, times: int = 2) -> None:
        """Until the watch has looked so often again: what was there before was seen."""
        goal = self.machine.looks + times
        await until(lambda: self.machine.looks >= goal)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


def play(rig: Rig, story: Callable[[], Any]) -> None:
    async def scene() -> None:
        watching = asyncio.create_task(rig.watch.watch())
        try:
            await rig.looked()
            await story()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scene())


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_a_death_is_told_once_with_the_last_words(rig: Rig) -> None:
    async def story() -> None:
        rig.machine.change(broker=None)
        await until(lambda: bool(rig.told))
        await rig.looked(4)
        assert rig.told == [{"node": "n1", "server": "broker", "pid": 2, "last": "the last of broker"}]
        rig.machine.change(broker=ProcessId(3, 9))
        await rig.looked(4)
        rig.machine.change(broker=None)
        await until(lambda: len(rig.told) == 2)
        assert rig.told[1]["pid"] == 3

    play(rig, story)


def test_under_a_fault_it_is_no_death_but_not_to_return_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETURN_S", 0.05)

    async def story() -> None:
        rig.excused = True
        rig.machine.change(broker=None)
        await rig.looked(20)
        assert rig.told == []
        rig.excused = False
        await until(lambda: bool(rig.told))
        await rig.looked(4)
        assert rig.told == [{"node": "n1", "server": "broker", "pid": None, "last": "the last of broker"}]

    play(rig, story)


@pytest.mark.parametrize("started_again", [True, False])
def test_a_server_that_ends_again_soon_after_its_return_has_not_returned(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, started_again: bool
) -> None:
    """A proxy ends if it finds no broker, and is started again: seen after the power of all nodes had failed."""
    monkeypatch.setattr(watch, "STARTED_AGAIN", {"broker"} if started_again else set())
    heal = 0.0
    rig.watch._excused = lambda node, kind, since: heal == 0 or since <= heal  # as the nemesis: a fault until the heal

    async def story() -> None:
        nonlocal heal
        rig.machine.change(broker=None)
        await rig.looked(4)
        heal = time.monotonic()
        for pid in (3, 4):
            rig.machine.change(broker=ProcessId(pid, 9))
            await rig.looked(4)
            rig.machine.change(broker=None)
            await rig.looked(4)
        if not started_again:
            assert [one["pid"] for one in rig.told] == [3, 4]
            return
        assert rig.told == []
        heal -= 100
        rig.machine.change(broker=ProcessId(5, 9))
        await rig.looked(4)
        rig.machine.change(broker=None)
        await until(lambda: bool(rig.told))
        assert rig.told[0]["pid"] == 5, "no fault was there since it was missing"

    play(rig, story)


def test_a_restart_of_everything_is_no_death(rig: Rig) -> None:
    async def story() -> None:
        rig.watch.pause()
        rig.machine.change(broker=None, namesrv=None)
        await asyncio.sleep(0.1)
        rig.machine.change(broker=ProcessId(8, 8), namesrv=ProcessId(9, 9))
        rig.watch.resume()
        await rig.looked(4)
        assert rig.told == []
        rig.machine.change(namesrv=None)
        await until(lambda: bool(rig.told))
        assert rig.told[0]["pid"] == 9

    play(rig, story)


def test_a_node_that_does_not_answer_is_no_death(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        rig.machine.unreachable = True
        rig.machine.change(broker=None)
        await until(lambda: bool(rig.told))
        assert rig.told[0]["pid"] == 2
        await rig.looked(4)
        rig.machine.unreachable = False
        await rig.looked(4)
        assert len(rig.told) == 1

    play(rig, story)
