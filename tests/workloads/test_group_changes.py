# SPDX-License-Identifier: Apache-2.0
"""The administrator who switches a consumer group off, changes, deletes and makes it (`--group-changes-every`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Self

import pytest
from sim.plays import layout, play

import harness.generator as gen
from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from infra.systems.remoting.connection import Refused, TimedOut
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.codes import Request
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.consume import group_changes
from workloads.consume.group_changes import MOST_QUEUES, USUAL, change_group, shown
from workloads.consume.workload import ConsumeWorkload

NODES = ("n1", "n2")
NONE = Refused("no connection")
LATE = TimedOut("no answer")
BAD = AdminError("n1", Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 1, "no disk")


class Brokers:
    """Brokers, by their addresses: each answers with its next problem, or takes the change."""

    problems: dict[str, list[Exception]]
    taken: list[tuple[str, str, dict[str, Any]]]

    def __init__(self, host: str, port: int, **_: Any) -> None:
        self.host = host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def create_group(self, group: str, **settings: Any) -> None:
        self._take(group, settings)

    async def delete_group(self, group: str, **how: Any) -> None:
        self._take(group, how)

    def _take(self, group: str, what: dict[str, Any]) -> None:
        if problems := self.problems.get(self.host):
            raise problems.pop(0)
        self.taken.append((self.host, group, what))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> type[Brokers]:
    Brokers.problems, Brokers.taken = {}, []
    monkeypatch.setattr(group_changes, "BrokerAdmin", Brokers)
    return Brokers


def change(f: str, value: Any, nodes: Sequence[str] = NODES) -> Completion:
    op = Op(0, 0, 0, "invoke", f, None, value, None, {"group": "g"})
    return asyncio.run(change_group(layout(NODES, {"a": NODES}, 2), op, nodes, 4))


@pytest.mark.parametrize(
    ("problems", "expected", "acked", "unsure"),
    [
        ([None, None], "ok", ["n1", "n2"], []),
        ([NONE, NONE], "fail", [], []),
        ([NONE, None], "info", ["n2"], []),
        ([LATE, NONE], "info", [], ["n1"]),
        ([BAD, NONE], "info", [], ["n1"]),
        ([None, BAD], "info", ["n1"], ["n2"]),
    ],
)
def test_a_change_failed_only_if_no_broker_can_have_taken_it(
    brokers: type[Brokers], problems: Sequence[Exception | None], expected: str, acked: list[str], unsure: list[str]
) -> None:
    for n, problem in enumerate(problems):
        brokers.problems[f"198.18.0.{n}"] = [] if problem is None else [problem]
    done = change("update-group", USUAL)
    assert (done.type, done.value, dict(done.extra)) == (
        expected,
        USUAL,
        {"group": "g", "acked": acked, "unsure": unsure},
    )
    assert (done.error is None) == (expected == "ok")


def test_the_requests_of_an_administrator(brokers: type[Brokers]) -> None:
    off = {**USUAL, "consumeEnable": False, "retryMaxTimes": 3}
    change("update-group", off)
    change("delete-group", "clean", ["n2"])
    change("delete-group", "delete", ["n1"])
    sent = {"orderly": False, "enabled": False, "broadcast": True, "retries": 3, "retry_queues": 1}
    assert brokers.taken == [
        ("198.18.0.0", "g", sent),
        ("198.18.0.1", "g", sent),
        ("198.18.0.1", "g", {"clean_offsets": True}),
        ("198.18.0.0", "g", {"clean_offsets": False}),
    ]


def test_the_settings_that_are_compared() -> None:
    assert shown({**USUAL, "groupName": "g", "brokerId": 0}) == USUAL
    assert shown(None) is None


class Pretended:
    """Answers each op with success, but `trouble` to the n-th request of an administrator."""

    def __init__(self, trouble: Mapping[int, str]) -> None:
        self.trouble, self.requests = trouble, 0

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(0.01)
        if op.f in ("update-group", "delete-group"):
            self.requests += 1
            if (kind := self.trouble.get(self.requests)) is not None:
                return Completion(kind, op.value, "trouble", op.extra)  # type: ignore[arg-type]
        return Completion("ok", op.value, extra={**op.extra, "behind": 0, "astray": 0})

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def workload(**options: Any) -> ConsumeWorkload:
    options = {"group_changes_every": "5s", "member_goes_every": "0s", **options}
    made = ConsumeWorkload(Plan(workload="consume", rate=10, concurrency=6, options=options))
    made._places, made.group = layout(NODES, {"a": NODES}, 2), "g"
    return made


def load(client: Pretended, only: str | None = None, **options: Any) -> list[Op]:
    """The ops of two minutes. only: the kind of change; None: those of the options."""
    ops: list[Op] = []
    made = workload(**options)
    made.changes = [only] if only is not None else made.changes  # type: ignore[list-item]

    async def run() -> None:
        interpreter = Interpreter(concurrency=6, client=lambda _: client, journal=ops.append, deadline_s=4)
        generator = made.generator(Random(1), "main")
        await interpreter.run(gen.clients(gen.time_limit(120, generator)), "main")
        await interpreter.close()

    virtual_time.run(run())
    return ops


def changes_in(ops: Sequence[Op]) -> list[Op]:
    return [op for op in ops if op.type == "invoke" and op.f in ("update-group", "delete-group")]


def test_a_group_is_switched_off_for_some_seconds() -> None:
    changes = changes_in(load(Pretended({}), "off"))
    assert changes[0].value == USUAL, "a phase begins with the usual settings: the one before may have ended anywhere"
    assert [op.value["consumeEnable"] for op in changes[1:]][:6] == [False, True] * 3
    for off, on in zip(changes[1::2], changes[2::2], strict=False):
        assert 3e9 <= on.time - off.time <= 8.1e9
    copied = changes_in(load(Pretended({}), "off", group_changes_at="masters"))
    assert copied[2].time - copied[1].time >= 20e9, "slaves copy it within 15 s"


def test_the_limits_change_and_last() -> None:
    changes = changes_in(load(Pretended({}), "retries"))
    assert {op.value["consumeEnable"] for op in changes} == {True}
    assert len({op.value["retryMaxTimes"] for op in changes}) > 5
    assert {op.value["consumeBroadcastEnable"] for op in changes} == {True, False}
    queues = [op.value["retryQueueNums"] for op in changes_in(load(Pretended({}), group_changes="queues", failing=5.0))]
    assert queues[:6] == [1, 2, 3, 4, 1, 2]
    assert max(queues) == MOST_QUEUES
    broadcast = changes_in(load(Pretended({}), "retries", listener="broadcast"))
    assert {op.value["consumeBroadcastEnable"] for op in broadcast} == {True}, "its members need it"


def test_a_group_is_deleted_and_made_again() -> None:
    """The offsets are read before it, while it is gone, and when it is there again."""
    ops = load(Pretended({}), group_changes="deletions")
    of_admin = [op for op in ops if op.type == "invoke" and op.f in ("update-group", "delete-group", "committed")]
    assert [op.f for op in of_admin[:9]] == [
        "update-group", "committed", "committed", "delete-group", "committed", "committed", "update-group",
        "committed", "committed",
    ]  # fmt: skip
    assert {op.value for op in of_admin if op.f == "delete-group"} == {"delete", "clean"}
    assert {op.value["consumeEnable"] for op in of_admin if op.f == "update-group"} == {True}


def test_a_queue_in_order_keeps_its_offset() -> None:
    """Without it, it may begin again: no order is promised then."""
    kinds = {op.value for op in changes_in(load(Pretended({}), group_changes="deletions", listener="orderly"))[1:]
             if op.f == "delete-group"}  # fmt: skip
    assert kinds == {"delete"}


def test_a_change_is_repeated_until_all_brokers_took_it() -> None:
    """Otherwise a group that a fault kept off would stay off, or nobody would know its settings."""
    changes = changes_in(load(Pretended({2: "info", 3: "fail", 5: "info"}), "off"))
    assert [op.value["consumeEnable"] for op in changes[:7]] == [True, False, False, False, True, True, False]
    assert all(later.time - first.time >= 1e9 for first, later in pairwise(changes))


def test_masters_are_asked_for_the_settings_meanwhile() -> None:
    asked = [op for op in load(Pretended({})) if op.f == "group-settings" and op.type == "invoke"]
    assert len(asked) > 40
    assert {op.key for op in asked} == {"t:a:0"}


def test_the_group_is_as_usual_before_the_rest_comes() -> None:
    """First what the masters have is read; what a master has forgotten is looked for only when nothing is deleted."""
    made = workload(group_changes="deletions")
    ops = play(made, lambda _: Pretended({}), 20, NODES, phases=("main",), final_s=60)
    final = ops[max(n for n, op in enumerate(ops) if op.f == "send") + 1 :]
    order = [op.f for op in final if op.type == "invoke" and op.f in ("group-settings", "update-group", "remake")]
    assert order == ["group-settings", "update-group", "remake"]
    assert next(op.value for op in final if op.f == "update-group") == USUAL


def test_the_judges() -> None:
    def judges(**options: Any) -> dict[str, Any]:
        made = ConsumeWorkload(Plan(workload="consume", concurrency=6, options=options))
        return {one.name: one for one in made.judged(DeploymentRecord("toy", {}))}

    plain = judges()
    changed = judges(group_changes_every="15s")
    assert set(changed) - set(plain) == {"group-settings"}
    assert not changed["group-settings"].masters_only
    assert judges(group_changes_every="15s", group_changes_at="masters")["group-settings"].masters_only


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_changes_every": "1s"}, "at least 5 s is right"),
        ({"group_changes_at": "masters"}, "needs --group-changes-every"),
        ({"group_changes_every": "15s", "resets": "20s"}, "resets is 20"),
        ({"group_changes_every": "15s", "group_changes": "deletions", "library": "grpc-push"}, "deletions need"),
        ({"group_changes_every": "15s", "group_changes": "queues"}, "needs --failing"),
        ({"group_changes_every": "15s", "group_changes": "all", "mode": "pop"}, "deletions need"),
    ],
)
def test_options_that_do_not_go_together(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ConsumeWorkload(Plan(workload="consume", concurrency=6, options=options))


def test_an_administrator_needs_a_client_of_its_own() -> None:
    with pytest.raises(PlanError, match="3 members, an administrator and two producers"):
        ConsumeWorkload(Plan(workload="consume", concurrency=5, options={"group_changes_every": "15s"}))
