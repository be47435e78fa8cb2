# SPDX-License-Identifier: Apache-2.0
"""The workload `transaction` in virtual time: its generators against brokers in memory, judged by its judge; and the
producer that brokers ask, against a toy server.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played
from stored_messages import stored

from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from harness.run import virtual_time
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.messages import Message, decode_all, encode_properties
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.asked import AskedProducer
from workloads.messages import PHASE
from workloads.places import TopicLayout
from workloads.questions import SAME_ROUND_S
from workloads.transaction import (
    INTERVAL_S,
    TIMEOUT_S,
    Decision,
    Immune,
    Transacting,
    TransactionWorkload,
    immunity_of,
)
from workloads.transaction_clients import GIVEN_UP, TransactionOps

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
NODES = [node for nodes in GROUPS.values() for node in nodes]


def places() -> TopicLayout:
    return layout(NODES, GROUPS, 2)


class Brokers:
    """Two right groups, or ones with a `bug`. Some answers are lost; what was asked has happened, or not."""

    def __init__(self, rng: Random, trouble: float, bug: str | None = None, check_max: int | None = None) -> None:
        self.rng, self.trouble, self.bug, self.check_max = rng, trouble, bug, check_max
        self.counts: Counter[int] = Counter()
        self.immune: dict[int, float] = {}
        self.homes: dict[int, str] = {}
        self.given_up: list[tuple[int, float, int]] = []
        self.queues: dict[str, list[int]] = {}
        self.open: dict[int, tuple[str, float]] = {}
        """id -> queue, and since when it is there: half messages without a decision."""
        self.questions: deque[int] = deque()
        self.strange: set[int] = set()
        self.asking = False

    async def invoke(self, op: Op) -> Completion:
        loop = asyncio.get_running_loop()
        if not self.asking:
            self.asking = True
            loop.call_later(INTERVAL_S, self.ask)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if op.f == "check":
            until = loop.time() + 1
            while not self.questions and loop.time() < until:
                await asyncio.sleep(0.05)
            if not self.questions:
                return Completion("ok", None)
            identity = self.questions.popleft()
            group = "a" if self.check_max is None else self.homes[identity]
            node = GROUPS[group][0]
            extra = {"node": node, "group": group, "half": [identity, identity, "x"], "waited_ms": 0}
            return Completion("ok", identity, extra=extra)
        extra = {"node": op.extra.get("node", "n1")}
        if op.f == "remake":
            return Completion("ok", {"topics": [], "groups": []}, extra={"node": "n1"})
        if op.f == "given-up":
            group = str(op.key).split(":")[1]
            mine = [each for each in self.given_up if self.homes[each[0]] == group]
            shown = [[n, i, int((loop.time() - at) * 1000), c] for n, (i, at, c) in enumerate(mine)]
            return Completion(
                "ok", shown[op.value : op.value + 5], extra={"node": "n1", "done": op.value + 5 >= len(shown)}
            )
        if op.f in ("half", "end"):
            luck = self.rng.random()
            if luck < self.trouble / 2:
                return Completion("fail", op.value, "refused", extra)
            if luck > self.trouble or self.rng.random() < 0.5:
                self.change(op)
            if luck < self.trouble:
                return Completion("info", op.value, "no answer", extra)
            if op.f == "end":
                return Completion("ok", op.value, extra=extra)
            return Completion("ok", [3, op.value], extra=extra | {"half": [op.value, op.value, "x"]})
        queue = self.queues.get(op.key or "", [])
        shown = [[at, queue[at]] for at in range(op.value, min(op.value + 20, len(queue)))]
        output = {"min": 0, "max": len(queue), "next": op.value + len(shown)}
        done = {"done": op.value + len(shown) >= len(queue)} if op.f == "replica-read" else {}
        return Completion("ok", shown, extra=extra | output | done)

    def change(self, op: Op) -> None:
        assert op.key is not None
        if op.f == "half":
            self.open[op.value] = op.key, asyncio.get_running_loop().time()
            self.immune[op.value], self.homes[op.value] = op.extra.get("immunity_s", 0), op.key.split(":")[1]
            if self.rng.random() < 0.1:
                self.strange.add(op.value)
            return
        assert op.extra["half"][0] == op.value, "it is ended where it is"
        strange, commit = op.value in self.strange, op.extra["as"] == "commit"
        if not (strange and self.bug == "again"):
            self.open.pop(op.value, None)
        if commit != (strange and self.bug == ("lost" if commit else "rolled-back")):
            self.queues.setdefault(op.key, []).append(op.value)

    def ask(self) -> None:
        loop = asyncio.get_running_loop()
        for identity, (key, since) in list(self.open.items()):
            strange = identity in self.strange
            if self.is_given_up(identity, since):
                continue
            if loop.time() > since + max(TIMEOUT_S, self.immune[identity]) and identity not in self.questions:
                if not (strange and self.bug == "silent"):
                    self.questions.append(identity)
                if strange and self.bug == "uncommitted" and Decision.of(identity, 4).answer is None:
                    self.strange.remove(identity)
                    self.queues.setdefault(key, []).append(identity)
        loop.call_later(INTERVAL_S, self.ask)

    def is_given_up(self, identity: int, since: float) -> bool:
        """One round of questions; as in RocketMQ, `counted` counts those within the immunity time."""
        if self.check_max is None:
            return False
        now = asyncio.get_running_loop().time()
        if self.counts[identity] >= self.check_max + 2 * (self.bug == "asks on"):
            del self.open[identity]
            if self.bug != "dropped":
                self.given_up.append((identity, now, self.check_max))
            return True
        if self.bug == "early":
            self.immune[identity] = 0
        asks = now > since + max(TIMEOUT_S, self.immune[identity])
        self.counts[identity] += asks or (self.bug == "counted" and now > since + TIMEOUT_S)
        return False

    async def open_(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


class Connected:
    """A client's view of the brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self.invoke, self.open, self.close = brokers.invoke, brokers.open_, brokers.close


def play(workload: TransactionWorkload, brokers: Brokers, seconds: float = 20) -> RunRecord:
    """Load, recovery, final phase."""
    workload._places = places()
    ops = played(workload, lambda thread: Connected(brokers), seconds, NODES, final_s=120)
    return RunRecord(History(ops), deployment=DeploymentRecord("toy", groups=GROUPS))


def plan(seed: int, **more: Any) -> Plan:
    dice = Random(seed)
    return Plan(workload="transaction", seed=seed, rate=dice.uniform(80, 160), concurrency=dice.randint(4, 9), **more)


def judged(workload: TransactionWorkload, record: RunRecord) -> Judgement:
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups=GROUPS)
    return judged_by(workload, record, deployment, "transactions", "stats", "availability")


@pytest.mark.slow
def test_good_brokers_raise_no_alarm() -> None:
    for seed in range(3):
        workload = TransactionWorkload(plan(seed))
        judgement = judged(workload, play(workload, Brokers(Random(seed), trouble=0.03 * seed)))
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "transactions")
        assert figures["committed"] > 200
        assert figures["rolled_back"] > 60
        assert figures["asked"] > 60
        assert figures["most_copies"] == 1


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("lost", "committed-lost"),
        ("rolled-back", "rolled-back-read"),
        ("uncommitted", "uncommitted-read"),
        ("silent", "never-asked"),
        ("again", "delivered-again"),
    ],
)
@pytest.mark.slow
def test_bad_brokers_are_found(bug: str, name: str) -> None:
    workload = TransactionWorkload(plan(5))
    judgement = judged(workload, play(workload, Brokers(Random(5), 0, bug)))
    assert {a.name for a in judgement.anomalies if a.legal is None} == {name}


LIMITS = {"check_max": 3, "check_interval": INTERVAL_S, "immune": 20, "immunity": 25}


def limited(seed: int, bug: str | None = None) -> Judgement:
    workload = TransactionWorkload(plan(seed, options=LIMITS))
    brokers = Brokers(Random(seed), 0, bug, check_max=3)
    workload._places = places()
    ops = played(workload, lambda thread: Connected(brokers), 20, NODES, final_s=240)
    return judged(workload, RunRecord(History(ops), deployment=DeploymentRecord("toy", groups=GROUPS)))


@pytest.mark.slow
def test_good_brokers_with_limits_raise_no_alarm() -> None:
    for seed in range(3):
        judgement = limited(seed)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        figures = next(r.stats for r in judgement.results if r.checker == "transactions")
        assert figures["given_up"] > 10
        assert figures["immune"] > 50
        assert figures["given_up_ended"] == 0


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("counted", "given-up-unasked"),
        ("early", "asked-early"),
        ("dropped", "not-given-up"),
        ("asks on", "not-given-up"),
    ],
)
@pytest.mark.slow
def test_brokers_with_other_limits_are_found(bug: str, name: str) -> None:
    assert {a.name for a in limited(5, bug).anomalies if a.legal is None} == {name}


def test_the_brokers_get_the_limits() -> None:
    """By default nothing is set but what was set before, and nothing more is read."""
    usual = TransactionWorkload(plan(1))
    assert not usual.limited
    assert "broker.transactionCheckMax" not in usual.server_settings()
    assert usual.server_settings()["broker.transactionCheckInterval"] == "5000"
    settings = TransactionWorkload(plan(1, options={"check_max": 2, "check_interval": 3.0})).server_settings()
    assert settings["broker.transactionCheckMax"] == "2"
    assert settings["broker.transactionCheckInterval"] == "3000"


def test_a_share_of_the_half_messages_is_immune_whatever_their_decision() -> None:
    immune = [n for n in range(1, 3201) if immunity_of(PHASE + n, 4, Immune(20, 25)) == {"immunity_s": 25}]
    assert len(immune) == 640
    assert {Decision.of(n, 4) for n in immune} == {Decision.of(n, 4) for n in range(1, 3201)}
    assert immunity_of(1, 4, None) == {}


def test_an_immunity_without_immune_messages_is_refused() -> None:
    with pytest.raises(PlanError, match="it needs --immune"):
        TransactionWorkload(plan(1, options={"immunity": 40}))
    with pytest.raises(PlanError, match="only remoting is right"):
        TransactionWorkload(plan(1, client="grpc", options={"immune": 5}))


def test_only_the_given_up_half_messages_of_this_run_are_shown() -> None:
    def given_up(offset: int, topic: str) -> Message:
        properties = encode_properties({"REAL_TOPIC": topic, "TRANSACTION_CHECK_TIMES": "3"}).encode()
        message = decode_all(stored(b"%d" % (offset + 40), topic=GIVEN_UP, properties=properties))[0]
        return replace(message, offset=offset)

    client = object.__new__(TransactionOps)
    client.places = places()
    shown = client._show_given_up([given_up(0, "t"), given_up(1, "of-another-run")], {"next": 2})
    ((offset, identity, age_ms, counted),) = shown.value
    assert (offset, identity, counted, shown.extra) == (0, 40, 3, {"next": 2})
    assert age_ms > 0


def test_a_decision_depends_on_the_message_alone() -> None:
    decisions = Counter(Decision.of(PHASE * 2 + n, 4) for n in range(1, 32 * 4 + 1))
    assert decisions == {
        Decision("commit", True): 5 * 16 - 4,
        Decision("commit", False): 16,
        Decision("rollback", True): 16,
        Decision("rollback", False): 16,
        Decision(None, False): 4,
    }


def test_every_question_is_answered_where_it_came_from() -> None:
    asked = Op(0, 0, 0, "ok", "check", None, 4, None, {"node": "n4", "half": [7, 8, "x"]})
    ctx: Any = None
    transacting = Transacting(["t:a:0"], 1, None).update(ctx, asked).update(ctx, asked)
    assert isinstance(transacting, Transacting)
    (end, again) = transacting.due
    assert (end.f, end.key, end.value) == ("end", "t:a:0", 4)
    assert end.extra == {"as": "commit", "half": [7, 8, "x"], "asked_by": "n4"}
    assert again == end
    never = Transacting(["t:a:0"], 1, None).update(ctx, replace(asked, value=32))
    assert isinstance(never, Transacting)
    assert never.due == ()


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(PlanError, match="needs 3 clients"):
        TransactionWorkload(Plan(workload="transaction", concurrency=2))


def test_a_question_of_the_next_round_replaces_the_one_before() -> None:
    def question(place: int, transaction: str = "X") -> Frame:
        ext = {"tranStateTableOffset": str(place), "commitLogOffset": "44", "transactionId": transaction}
        return Frame(39, 2, flag=2, ext=ext, body=stored(b"1", topic="t"))

    async def test() -> None:
        producer = AskedProducer({}, "p")
        assert await producer.take(0.01) is None
        for frame in (question(3), question(5, "Y"), question(4), Frame(40, 1, flag=2), Frame(39, 2)):
            producer.hear("n1", frame)
        producer.hear("n4", question(3))
        await asyncio.sleep(SAME_ROUND_S + 1)
        producer.hear("n1", question(6))
        producer.hear("n1", question(7))
        taken = [await producer.take(0.01) for _ in range(5)]
        found = [(q.source, q.half.transaction_id, q.half.table_offset, q.replaces) for q in taken if q is not None]
        assert found == [("n1", "Y", 5, 0), ("n4", "X", 3, 0), ("n1", "X", 6, 2), ("n1", "X", 7, 0)]
        assert taken[4] is None
        assert producer.nonsense == 1
        waiting = asyncio.create_task(producer.take(5))
        await asyncio.sleep(0.01)
        producer.hear("n1", question(6))
        assert (await waiting) is not None

    virtual_time.run(test())
