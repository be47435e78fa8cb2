# SPDX-License-Identifier: Apache-2.0
"""Changes of the mode of a group of push consumers (`consume --mode pop`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Self

import pytest
from sim.plays import layout

import harness.generator as gen
from harness.api import Completion
from harness.plan.plan import Plan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from infra.machines.api import InfraError
from infra.systems.remoting.connection import Refused, TimedOut
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.codes import Request
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.consume import modes
from workloads.consume.workload import ConsumeWorkload

NODES = ("n1", "n2")
NONE = Refused("no connection")
LATE = TimedOut("no answer")
BAD = AdminError("n1", Request.SET_MESSAGE_REQUEST_MODE, 1, "no disk")


class Brokers:
    """Brokers, by their addresses: each answers with its next problem, or takes the mode."""

    problems: dict[str, list[Exception]]
    taken: list[tuple[str, str, str, str]]

    def __init__(self, host: str, port: int, **_: Any) -> None:
        self.host = host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def set_request_mode(self, topic: str, group: str, mode: str) -> None:
        if problems := self.problems.get(self.host):
            raise problems.pop(0)
        self.taken.append((self.host, topic, group, mode))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> type[Brokers]:
    Brokers.problems, Brokers.taken = {}, []
    monkeypatch.setattr(modes, "BrokerAdmin", Brokers)
    monkeypatch.setattr(modes, "_PAUSE_S", 0.001)
    return Brokers


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ([None, None], "ok"),
        ([NONE, NONE], "fail"),
        ([NONE, None], "info"),
        ([LATE, NONE], "info"),
        ([BAD, NONE], "info"),
        ([None, BAD], "info"),
    ],
)
def test_a_change_failed_only_if_no_replica_can_have_taken_it(
    brokers: type[Brokers], problems: Sequence[Exception | None], expected: str
) -> None:
    for n, problem in enumerate(problems):
        brokers.problems[f"198.18.0.{n}"] = [] if problem is None else [problem]
    op = Op(0, 0, 0, "invoke", "mode", None, "POP", None, {"group": "g"})
    done = asyncio.run(modes.change_mode(layout(NODES, {"a": NODES}, 2), op, 4))
    assert (done.type, done.value, dict(done.extra)) == (expected, "POP", {"group": "g"})
    assert (done.error is None) == (expected == "ok")
    assert len(brokers.taken) == list(problems).count(None)


def test_every_replica_has_the_mode_before_the_first_member_joins(brokers: type[Brokers]) -> None:
    brokers.problems["198.18.0.1"] = [NONE, LATE]
    places = layout(NODES, {"a": NODES}, 2)
    asyncio.run(modes.start_with(places, "g", "POP"))
    assert {host for host, *_ in brokers.taken} == {"198.18.0.0", "198.18.0.1"}
    assert {tuple(rest) for _, *rest in brokers.taken} == {("t", "g", "POP")}


def test_a_replica_that_never_takes_the_mode_ends_the_run(
    brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.problems["198.18.0.1"] = [NONE] * 10_000
    monkeypatch.setattr(modes, "SETUP_LIMIT_S", 0.01)
    with pytest.raises(InfraError, match=r"the brokers did not take the mode POP of g within 0\.01 s"):
        asyncio.run(modes.start_with(layout(NODES, {"a": NODES}, 2), "g", "POP"))


def test_an_administrator_changes_the_mode_during_the_load() -> None:
    """The first change is to pull, because the group begins with pops."""
    options = {"mode": "pop", "mode_changes_every": "5s", "member_goes_every": "0s"}
    workload = ConsumeWorkload(Plan(workload="consume", rate=10, concurrency=6, options=options))
    workload._places, workload.group = layout(NODES, {"a": NODES}, 2), "g"
    ops: list[Op] = []

    class Client:
        async def invoke(self, op: Op) -> Completion:
            await asyncio.sleep(0.01)
            return Completion("ok", op.value, extra={**op.extra, "behind": 0, "astray": 0})

        async def open(self) -> None:
            """Nothing to open."""

        async def close(self) -> None:
            """Nothing to close."""

    async def run() -> None:
        interpreter = Interpreter(concurrency=6, client=lambda _: Client(), journal=ops.append, deadline_s=4)
        await interpreter.run(gen.clients(gen.time_limit(60, workload.generator(Random(1), "main"))), "main")
        await interpreter.close()

    virtual_time.run(run())
    changes = [op for op in ops if op.f == "mode" and op.type == "invoke"]
    assert len(changes) > 4
    assert [op.value for op in changes] == (["PULL", "POP"] * len(changes))[: len(changes)]
    assert {op.extra["group"] for op in changes} == {"g"}


def test_members_that_pop_have_no_queues_of_their_own() -> None:
    def judges(**options: Any) -> dict[str, Any]:
        workload = ConsumeWorkload(Plan(workload="consume", concurrency=6, options=options))
        return {one.name: one for one in workload.judged(DeploymentRecord("toy", {}))}

    pull, pop, changing = judges(), judges(mode="pop"), judges(mode="pop", mode_changes_every="30s")
    assert pull["delivered"].holds
    assert not pop["delivered"].holds
    assert set(pull) - set(pop) == {"groups", "lag"}
    assert set(pop) - set(changing) == {"prompt"}
