# SPDX-License-Identifier: Apache-2.0
"""Java producers of transactions: what their reports mean, their processes, with a made-up program on a pipe, and whole
runs in virtual time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played

from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from infra.machines.api import Completed
from infra.machines.remote.process import ProcessRemote
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.transaction import INTERVAL_S, TIMEOUT_S, TransactionWorkload, half_of
from workloads.transaction_producers import Producers, half_sent

REFUSED = {"queue": "t:a:0", "address": "x", "error": "MQBrokerException", "code": 14, "why": "service not available"}
TIMED_OUT = {"queue": "t:a:1", "address": "x", "error": "RemotingTimeoutException", "why": "wait response"}
UNCONNECTED = {"queue": "t:a:1", "address": "x", "error": "RemotingConnectException", "why": "connect to x failed"}


@pytest.mark.parametrize(
    ("fields", "type_", "why"),
    [
        ({"status": "SEND_OK", "offset": 3, "attempts": [{"stored": "id"}]}, "ok", ""),
        ({"status": "FLUSH_SLAVE_TIMEOUT", "offset": 3, "attempts": [{}]}, "info", "12 FLUSH_SLAVE_TIMEOUT"),
        ({"error": "MQClientException", "why": "No route info", "attempts": []}, "fail", "nothing was sent"),
        ({"error": "MQClientException", "why": "Send [1] times", "attempts": [REFUSED]}, "fail", "14 "),
        ({"error": "MQClientException", "why": "Send [1] times", "attempts": [UNCONNECTED]}, "fail", "no connection"),
        ({"error": "MQClientException", "why": "Send [1] times", "attempts": [TIMED_OUT]}, "info", "wait response"),
        ({"error": "MQClientException", "why": "twice", "attempts": [TIMED_OUT, REFUSED]}, "info", "wait response"),
        ({"error": "OutOfMemoryError", "why": "heap", "attempts": [{"queue": "t:a:1"}]}, "info", "None"),
        ({"error": "IllegalArgumentException", "why": "nothing here is called"}, "info", "nothing here"),
    ],
)
def test_a_half_message_fails_only_if_no_attempt_can_have_stored_it(
    fields: dict[str, Any], type_: str, why: str
) -> None:
    """`fail` is a promise that no broker has it; the library's own exception says nothing about that."""
    event = {"event": "sent" if "status" in fields else "failed", "n": 1, **fields}
    sent = half_sent(event, raft_log=False)
    assert sent.outcome.type == type_
    assert why in sent.outcome.why
    if "offset" in fields:
        assert sent.offset == 3


def test_the_library_is_told_what_becomes_of_a_message() -> None:
    plans = {(op.extra["local"], op.extra["checked"]) for op in (half_of("t", n, 4) for n in range(1, 200))}
    assert plans == {
        ("commit", "commit"),
        ("rollback", "rollback"),
        (None, "commit"),
        (None, "rollback"),
        (None, None),
    }


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(PlanError, match="needs 5 clients: 3 producers"):
        TransactionWorkload(
            Plan(workload="transaction", concurrency=4, options={"producer": "java", "producers": 3})
        )  # fmt: skip


@pytest.mark.parametrize("options", [{"producers": 3}, {"producer_goes_every": 3.0}])
def test_options_of_java_producers_are_refused_without_them(options: dict[str, Any]) -> None:
    """They had no effect, without a word about it."""
    name = next(iter(options))
    with pytest.raises(PlanError, match=f"{name} is 3.*; it needs --producer java"):
        TransactionWorkload(Plan(workload="transaction", concurrency=8, options=options))
    TransactionWorkload(Plan(workload="transaction", concurrency=8, options={**options, "producer": "java"}))


PROGRAM = """
import json, os, sys
def report(**event): print(json.dumps(event), flush=True)
report(event="hello", pid=os.getpid())
tick = 0
for line in sys.stdin:
    command = json.loads(line)
    what, n = command["do"], command.get("n")
    if what == "produce":
        assert command["transactional"]
        report(event="started", name=command["name"], client=command["instance"])
    elif what == "tick":
        tick = n
    elif what == "stop":
        report(event="stopped", name=command["name"])
    elif n == 4:
        sys.exit()
    elif n != 5:
        attempt = dict(queue="t:a:1", address="198.18.0.0:10911", stored="id")
        report(event="decided", name="producer", body=command["body"], state=command["properties"]["local"],
               address=attempt["address"], asked=False, tick=tick)
        report(event="sent", name="producer", n=n, status="SEND_OK", offset=n * 10, attempts=[attempt], transaction="X")
"""


class Here:
    """A node that is this machine; only what a producer needs."""

    name = "c1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = ProcessRemote("c1")

    def run(self, argv: Sequence[str], **how: object) -> Completed:
        if argv[0] == "kill":
            os.kill(int(argv[3]), getattr(signal, f"SIG{argv[2]}"))
        return Completed(argv, 0, b"", b"", 1.0)

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Any:
        return self.remote.open([*argv[:4], str(self.folder / "producer.log"), *argv[5:]], timeout_s)


class Made:
    """The program above."""

    argv = (sys.executable, "-c", PROGRAM)

    def prepare(self) -> None: ...

    def install(self, node: object) -> None: ...


def test_a_group_of_producers(tmp_path: Path) -> None:
    """Half messages go to those that are there; a process that ends leaves the outcome of its last one unknown."""

    async def taken(group: Producers, member: str, kind: str) -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(20):
            while not any(event[0] == kind for event in found):
                found += await group.take(member, 0.05)
        return found

    async def run() -> None:
        places = layout(["n1"], {"a": ("n1",)}, 2)
        nodes: Any = [Here(tmp_path), Here(tmp_path)]
        group = Producers(nodes, Made(), {"group": "g"}, places.node_at, raft_log=False)  # type: ignore[arg-type]
        group.use()
        await group.install()
        nobody = await group.half("t", 1, "commit", "commit", 1)
        assert (nobody.sent.outcome.type, nobody.member) == ("fail", None)
        assert group.join("m0") == "m0-1"
        assert [event[3] for event in await taken(group, "m0", "started")] == ["m0-1"]
        assert group.facts("m0") == {}
        await group.take("m0", 0.05)
        assert group.facts("m0") == {"tick": 1}
        one = await group.half("t", 1, None, "commit", 10)
        assert (one.sent.outcome.type, one.sent.offset, one.sent.message_id) == ("ok", 10, "id")
        assert (one.member, one.queue, one.node, one.transaction) == ("m0", "t:a:1", "n1", "X")
        ((_, _, life, *decided),) = await taken(group, "m0", "decided")
        assert (life, decided) == (1, [1, None, "n1", False, 1])
        assert (await group.half("t", 5, None, "commit", 0.3)).sent.outcome.type == "info"
        group.join("m1")
        await taken(group, "m1", "started")
        last = await group.half("t", 4, "commit", "commit", 10)
        assert (last.sent.outcome.type, last.member) == ("info", "m0")
        assert (await taken(group, "m0", "ended"))[-1][0] == "ended"
        two, three = await asyncio.gather(*(group.half("t", n, "rollback", None, 10) for n in (2, 3)))
        assert {two.member, three.member} == {"m1"}
        ended = await group.end("m1", orderly=True)
        assert sorted(event[3:6] for event in ended) == [[2, "rollback", "n1"], [3, "rollback", "n1"]]
        assert group.join("m1") == "m1-2"
        await group.leave()

    asyncio.run(run())


GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
MASTERS = {"t:a:0": "n1", "t:a:1": "n1", "t:b:0": "n4", "t:b:1": "n4"}
NODES = [node for nodes in GROUPS.values() for node in nodes]


class World:
    """Brokers, and producers of which some are away, or with a `bug`."""

    def __init__(self, rng: Random, bug: str | None = None) -> None:
        self.rng, self.bug = rng, bug
        self.queues: dict[str, list[int]] = {}
        self.open: dict[int, tuple[str, Any, float]] = {}
        """id -> queue, the answer to questions, and since when it is there."""
        self.there: dict[str, tuple[int, list[tuple[float, list[Any]]]]] = {}
        """Member -> number of its process, and what it has not reported."""
        self.lives: dict[str, int] = {}
        self.ticks: dict[str, int] = {}
        self.asking = False

    async def invoke(self, op: Op) -> Completion:
        loop = asyncio.get_running_loop()
        if not self.asking:
            self.asking = True
            loop.call_later(INTERVAL_S, self.ask)
        if op.f in ("join", "take", "crash", "leave"):
            return await self.as_member(op)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if op.f == "remake":
            return Completion("ok", {"topics": [], "groups": []}, extra={"node": "n1"})
        if op.f == "check":
            if self.bug == "elsewhere":
                return Completion("ok", 1_000_000_001, extra={"node": "n1", "group": "a", "stranger": "strangers"})
            return Completion("ok", None)
        if op.f == "half":
            return self.half(op)
        queue = self.queues.get(op.key or "", [])
        shown = [[at, queue[at]] for at in range(op.value, min(op.value + 20, len(queue)))]
        output = {"min": 0, "max": len(queue), "next": op.value + len(shown)}
        done = {"done": op.value + len(shown) >= len(queue)} if op.f == "replica-read" else {}
        return Completion("ok", shown, extra={"node": op.extra["node"], **output, **done})

    def half(self, op: Op) -> Completion:
        now = asyncio.get_running_loop().time()
        if not self.there:
            return Completion("fail", op.value, "no producer is there")
        member = self.rng.choice(list(self.there))
        queue = self.rng.choice(list(MASTERS))
        extra = {"member": member, "queue": queue, "node": MASTERS[queue]}
        self.open[op.value] = queue, op.extra["checked"], now
        if self.rng.random() < 0.02:  # the answer is lost, and so is what the library would have done
            return Completion("info", op.value, "no answer", extra)
        strange, lost = self.rng.random() < 0.1, self.rng.random() < 0.03 and self.bug is None
        self.report(member, op.value, op.extra["local"], asked=False, lost=lost, strange=strange)
        return Completion("ok", [3, op.value], extra=extra)

    def report(self, member: str, identity: int, answer: Any, *, asked: bool, lost: bool, strange: bool) -> None:
        """A producer ends a transaction, one-way."""
        now = asyncio.get_running_loop().time()
        queue, _, _ = self.open[identity]
        self.there[member][1].append((now, [identity, answer, MASTERS[queue], asked, self.ticks[member]]))
        if lost or answer is None:
            return
        if strange and self.bug == "forgotten" and answer == "commit":
            self.open.pop(identity)
            return
        if not (strange and self.bug == "again"):
            self.open.pop(identity)
        if answer == "commit" or (strange and self.bug == "rolled-back"):
            self.queues.setdefault(queue, []).append(identity)

    async def as_member(self, op: Op) -> Completion:
        loop, member = asyncio.get_running_loop(), op.extra["member"]
        extra: dict[str, Any] = {"group": op.extra["group"], "member": member}
        if op.f == "join":
            if member not in self.there:
                self.lives[member] = self.lives.get(member, 0) + 1
                self.there[member], self.ticks[member] = (self.lives[member], [(loop.time(), ["client"])]), 0
            return Completion("ok", f"{member}-{self.lives[member]}", extra=extra)
        if op.f == "take":
            self.ticks[member] += 1
            extra["tick"] = self.ticks[member]
            await asyncio.sleep(0.1)
        life, told = self.there[member]
        now = loop.time()
        kinds = {1: "started", 5: "decided"}
        events = [[kinds[len(rest)], int((now - at) * 1e9), life, *rest] for at, rest in told]
        told.clear()
        if op.f != "take":
            del self.there[member]
        return Completion("ok", events, extra=extra)

    def ask(self) -> None:
        """The broker asks any producer that is there."""
        loop = asyncio.get_running_loop()
        for identity, (_, answer, since) in list(self.open.items()):
            silent = self.bug == "silent" and identity % 7 == 0
            if loop.time() > since + TIMEOUT_S and self.there and not silent:
                member = self.rng.choice(list(self.there))
                self.report(member, identity, answer, asked=True, lost=self.rng.random() < 0.03, strange=False)
        loop.call_later(INTERVAL_S, self.ask)

    async def open_(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


class Connected:
    """A client's view of it."""

    def __init__(self, world: World) -> None:
        self.invoke, self.open, self.close = world.invoke, world.open_, world.close


def run_and_judge(seed: int, bug: str | None = None) -> Judgement:
    options = {"producer": "java", "producers": 2, "producer_goes_every": 6.0}
    workload = TransactionWorkload(Plan(workload="transaction", seed=seed, rate=120, concurrency=8, options=options))
    workload._places = layout(NODES, GROUPS, 2)
    workload._producers_group = "g"
    world = World(Random(seed), bug)
    ops = played(workload, lambda thread: Connected(world), 20, NODES, final_s=160)
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    record = RunRecord(History(ops), deployment=deployment)
    return judged_by(workload, record, deployment, "transactions", "stats", "availability")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_good_producers_and_brokers_raise_no_alarm(seed: int) -> None:
    judgement = run_and_judge(seed)
    assert judgement.verdict == Verdict.VALID, judgement.reason
    figures = next(r.stats for r in judgement.results if r.checker == "transactions")
    assert figures["delivered"] > 200
    assert figures["asked"] > 60
    assert figures["asked_of_others"] > 10
    assert figures["committed"] == 0, "no end is acknowledged"
    assert figures["one_way"] > 300


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("forgotten", "commit-forgotten"),
        ("rolled-back", "uncommitted-read"),
        ("silent", "never-asked"),
        ("again", "delivered-again"),
        ("elsewhere", "asked-elsewhere"),
    ],
)
@pytest.mark.slow
def test_bad_brokers_are_found(bug: str, name: str) -> None:
    judgement = run_and_judge(5, bug)
    assert {a.name for a in judgement.anomalies if a.legal is None} == {name}
