# SPDX-License-Identifier: Apache-2.0
"""The workloads `log` and `queue` in virtual time: their generators against brokers in memory, judged by their judges.

What generators know, they know from answers, so the contract between them and the judges is only seen where both meet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played

from checkers.base.api import judge
from checkers.messages.queue import Deliveries, Leases
from checkers.messages.topics import KnownTopics
from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.log import LogWorkload
from workloads.messages import PHASE, read_rounds
from workloads.places import Queue, TopicLayout, queue_of
from workloads.queue import QueueWorkload, _escape_readers

NODES = ("n1", "n2", "n3")
JUDGES = {"log", "linearizability", "replicas", "deliveries", "offsets", "leases", "well-formed"}


def places() -> TopicLayout:
    return layout(NODES, {"a": NODES}, 4)


class Brokers:
    """One right group, with a moment for every answer. Some answers are lost; what was asked has happened, or not.

    `forgetful`: every now and then the committed offsets are gone, as at a new master that never got them.
    """

    def __init__(self, rng: Random, trouble: float, forgetful: bool) -> None:
        self.rng, self.trouble, self.forgetful = rng, trouble, forgetful
        self.queues: dict[str, list[Any]] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.popped: dict[str, int] = {}
        self.leased: dict[str, tuple[float, list[Any]]] = {}
        self.bug = ""
        """The fate of one message in ten that is popped."""
        self.silent_reads = 0
        """So many of the final reads are never answered."""
        self.wiped: tuple[str, float] = ("", 0.0)
        """A node that does not know the readers' group for so long (s) after the first final read."""
        self._asked: float | None = None
        self.knows_readers: bool | None = True
        """True if the master has the readers' group at the end; None: it gives no answer to that."""

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if op.f in ("assign", "crash"):
            return Completion("ok", op.value)
        if op.f == "remake":
            return self.remake(op)
        if op.f == "replica-read" and self.knows_readers is False:
            return Completion("fail", None, "26 SUBSCRIPTION_GROUP_NOT_EXIST", {"node": "n1", "code": 26})
        if op.f == "replica-read" and self.silent_reads:
            self.silent_reads -= 1
            await asyncio.sleep(3600)
        if op.f == "replica-read" and op.extra["node"] == self.wiped[0]:
            now = asyncio.get_running_loop().time()
            self._asked = now if self._asked is None else self._asked
            if now < self._asked + self.wiped[1]:
                return Completion("fail", None, "26 SUBSCRIPTION_GROUP_NOT_EXIST", {"node": "n1", "code": 26})
        luck = self.rng.random()
        change = op.f in ("send", "commit", "pop", "ack", "extend")
        if luck < self.trouble / 2:
            return Completion("fail", op.value, "refused", {"node": "n1"})
        if luck < self.trouble and change:
            if self.rng.random() < 0.5:
                self.do(op)
            return Completion("info", op.value, "no answer", {"node": "n1"})
        done = self.do(op)
        if op.f == "pop" and not done.value:
            await asyncio.sleep(op.extra["wait_s"])
        return done

    def remake(self, op: Op) -> Completion:
        if self.knows_readers is None:
            return Completion("fail", op.value, "timed out", {"node": "n1"})
        missing, self.knows_readers = [] if self.knows_readers else ["readers"], True
        return Completion("ok", {"topics": [], "groups": missing}, extra={"node": "n1", "group": "a"})

    def do(self, op: Op) -> Completion:
        now = asyncio.get_running_loop().time()
        extra = {"node": op.extra.get("node", "n1"), "group": op.extra.get("group"), "code": 0}
        queue = self.queues.setdefault(op.key or "", [])
        place = (op.extra.get("group", ""), op.key or "")
        if self.forgetful and self.rng.random() < 0.003:
            self.committed.clear()
        match op.f:
            case "send":
                queue.append(op.value)
                return Completion("ok", [len(queue) - 1, op.value], extra=extra)
            case "poll" | "consume" | "replica-read":
                shown = [[at, queue[at]] for at in range(op.value, min(op.value + 20, len(queue)))]
                output = {"min": 0, "max": len(queue), "next": op.value + len(shown)}
                done = {"done": op.value + len(shown) >= len(queue)} if op.f == "replica-read" else {}
                return Completion("ok", shown, extra=extra | output | done)
            case "commit":
                self.committed[place] = op.value
                return Completion("ok", op.value, extra=extra)
            case "committed":
                return Completion("ok", self.committed.get(place), extra=extra)
            case "drain":
                committed = self.popped.get(op.key or "", 0) if op.value is None else self.committed.get(place)
                reached = committed if op.value is None else op.value
                return Completion(
                    "ok", {"committed": committed, "max": len(queue), "consumed_to": reached}, extra=extra
                )
            case "pop":
                return Completion("ok", self.pop(queue_of(op.key), now, op.extra["invisible_ms"]), extra=extra)
            case "ack":
                if not (self.bug == "acked-redelivered" and self.is_strange(op.extra["id"])):
                    self.leased.pop(op.value[0], None)
                return Completion("ok", op.value, extra=extra)
            case "extend":
                handle, more_ms = op.value
                entry = self.leased.pop(handle, None)
                if entry is None:
                    return Completion("fail", op.value, "spent", extra)
                renewed = f"{handle}+"
                self.leased[renewed] = (now + more_ms / 1000, entry[1])
                return Completion("ok", [renewed], extra=extra)
        raise ValueError(op.f)

    def pop(self, source: Queue, now: float, invisible_ms: int) -> list[Any]:
        """Messages whose lease is over first, as retries; then new ones."""
        found: list[list[Any]] = []
        for handle, (until, entry) in list(self.leased.items()):
            strange = self.is_strange(entry[2])
            if strange and self.bug == "never-returned":
                continue
            if (until < now or (strange and self.bug == "leased-twice")) and len(found) < 8:
                del self.leased[handle]
                found.append(["%RETRY%g_t:a:0", entry[1] + 1000, entry[2], handle + "'", 1])
        for key in (queue.key for queue in places().queues):
            queue = self.queues.get(key, [])
            while self.popped.get(key, 0) < len(queue) and len(found) < 8:
                at = self.popped.get(key, 0)
                self.popped[key] = at + 1
                if self.bug == "lost-to-group" and self.is_strange(queue[at]):
                    continue
                found.append([key, at, queue[at], f"{key}/{at}", 0])
        until = now + invisible_ms / 1000
        self.leased |= {entry[3]: (until, entry) for entry in found}
        return found

    @staticmethod
    def is_strange(identity: int) -> bool:
        return identity % 10 == 7

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


def play(workload: LogWorkload, brokers: Brokers, seconds: float = 8) -> RunRecord:
    """Load, recovery, final phase."""
    workload._places = places()
    if isinstance(workload, QueueWorkload):
        workload.group = "g"

    def calm() -> None:
        brokers.trouble, brokers.forgetful = 0, False

    return RunRecord(History(played(workload, lambda thread: brokers, seconds, NODES, final_s=60, before_final=calm)))


def judged(workload: LogWorkload, record: RunRecord) -> Judgement:
    return judged_by(workload, record, DeploymentRecord("toy", dict.fromkeys(NODES, "")), *JUDGES)


def plan(seed: int, **more: Any) -> Plan:
    dice = Random(seed)
    return Plan(seed=seed, rate=dice.uniform(80, 200), concurrency=dice.randint(2, 9), **more)


Make = Callable[[int], LogWorkload]
WORKLOADS: dict[str, Make] = {
    "log": lambda seed: LogWorkload(plan(seed, workload="log")),
    "pull": lambda seed: QueueWorkload(plan(seed, workload="queue")),
    "pop": lambda seed: QueueWorkload(plan(seed, workload="queue", options={"consume": "pop"})),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.slow
def test_good_brokers_raise_no_alarm(name: str) -> None:
    for seed in range(6):
        workload = WORKLOADS[name](seed)
        record = play(workload, Brokers(Random(seed), trouble=0.03 * (seed % 3), forgetful=False))
        judgement = judged(workload, record)
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)


@pytest.mark.parametrize("bug", ["leased-twice", "acked-redelivered", "never-returned", "lost-to-group"])
@pytest.mark.slow
def test_brokers_that_forget_what_was_popped_are_found(bug: str) -> None:
    workload, brokers = WORKLOADS["pop"](1), Brokers(Random(1), trouble=0, forgetful=False)
    brokers.bug = bug
    judgement = judge(play(workload, brokers, seconds=15), [Leases(limit_s=10), Deliveries()])
    found = {anomaly.name for anomaly in judgement.anomalies if anomaly.legal is None}
    assert bug in found
    also = {"never-returned"}  # what nobody gets does not return, either
    if bug == "leased-twice":
        also.add("acked-redelivered")  # one of the two acknowledges it, and the other's lease hands it out again
    assert found <= {bug, *also}


def test_brokers_that_read_for_others_need_a_group_of_their_own() -> None:
    assert _escape_readers({"a": ("n1", "n2", "n3")}) == []
    assert _escape_readers({"a": ("n1", "n2", "n3"), "b": ("n4",)}) == [
        "InnerConsumerGroup_a_0",
        "InnerConsumerGroup_a_1",
        "InnerConsumerGroup_a_2",
        "InnerConsumerGroup_b_0",
    ]


def test_lost_committed_offsets_are_found() -> None:
    workload = WORKLOADS["pull"](1)
    judgement = judged(workload, play(workload, Brokers(Random(1), trouble=0, forgetful=True)))
    assert "committed-offset-regression" in {anomaly.name for anomaly in judgement.anomalies}, judgement.reason


@pytest.mark.parametrize("name", WORKLOADS)
def test_ids_are_unique_over_all_phases(name: str) -> None:
    record = play(WORKLOADS[name](3), Brokers(Random(3), trouble=0.02, forgetful=False))
    sent = [op.value for op in record.history if op.f == "send" and op.type == "invoke"]
    assert len(sent) == len(set(sent))
    assert {message // PHASE for message in sent} == {0, 1}, "each phase has ids of its own"


@pytest.mark.slow
def test_every_kind_of_op_takes_place() -> None:
    for name, kinds in {
        "log": {"send", "poll", "remake", "replica-read"},
        "pull": {"send", "assign", "committed", "consume", "commit", "crash", "drain", "remake", "replica-read"},
        "pop": {"send", "pop", "ack", "extend", "drain", "remake", "replica-read"},
    }.items():
        record = play(WORKLOADS[name](4), Brokers(Random(4), trouble=0, forgetful=False), seconds=15)
        assert {op.f for op in record.history} == kinds


def test_a_master_that_has_forgotten_the_readers_is_given_them_before_it_is_read() -> None:
    """Without the group it refuses all final reads, and acknowledged messages stay undecided."""
    for make in WORKLOADS.values():
        workload = make(4)
        brokers = Brokers(Random(4), trouble=0, forgetful=False)
        brokers.knows_readers = False
        record = play(workload, brokers, seconds=5)
        final = [op for op in record.history if op.f in ("remake", "replica-read", "drain")]
        assert [(op.f, op.type) for op in final[:2]] == [("remake", "invoke"), ("remake", "ok")]
        assert final[1].value == {"topics": [], "groups": ["readers"]}
        judgement = judged(workload, record)
        assert judgement.verdict == Verdict.VALID, judgement.reason
        assert [a.name for a in KnownTopics().check(record).anomalies] == ["lost-group"]


def test_a_master_that_gives_no_answer_is_asked_ten_times() -> None:
    workload = WORKLOADS["log"](4)
    brokers = Brokers(Random(4), trouble=0, forgetful=False)
    brokers.knows_readers = None
    record = play(workload, brokers, seconds=5)
    assert Counter(op.type for op in record.history if op.f == "remake") == {"invoke": 10, "fail": 10}
    assert judged(workload, record).verdict == Verdict.VALID


def test_a_poll_goes_on_where_its_process_stopped() -> None:
    record = play(WORKLOADS["log"](5), Brokers(Random(5), trouble=0.05, forgetful=False))
    at: dict[tuple[int, str], int] = {}
    polls = [op for op in record.history if op.f == "poll"]
    for op in polls:
        place = (op.process, str(op.key))
        if op.type == "invoke" and op.extra.get("start"):
            at[place] = op.value
        elif op.type == "invoke":
            assert op.value == at[place], op
        elif op.type == "ok" and op.value:
            at[place] = op.value[-1][0] + 1
    requested = Counter(op.extra["node"] for op in polls if op.type == "invoke")
    assert set(requested) == set(NODES), "masters and slaves alike"


@pytest.mark.slow
def test_a_queue_has_one_owner_at_a_time() -> None:
    record = play(WORKLOADS["pull"](6), Brokers(Random(6), trouble=0.04, forgetful=False), seconds=20)
    held: dict[int, set[str]] = {}
    main = [op for op in record.history if "phase" not in op.extra]
    for op in main:
        if op.f == "assign" and op.type == "ok":
            held[op.process] = set(op.value)
        elif op.type == "info" or (op.f == "crash" and op.type == "ok"):
            held.pop(op.process, None)
        owners = Counter(key for keys in held.values() for key in keys)
        assert not owners or max(owners.values()) == 1, op


def test_whoever_gives_a_queue_away_has_committed_it() -> None:
    record = play(WORKLOADS["pull"](7), Brokers(Random(7), trouble=0, forgetful=False), seconds=20)
    consumed: dict[tuple[int, str], int] = {}
    committed: dict[tuple[int, str], int] = {}
    held: dict[int, set[str]] = {}
    for op in (op for op in record.history if op.type == "ok"):
        if op.f == "consume" and op.value:
            consumed[op.process, str(op.key)] = op.value[-1][0] + 1
        elif op.f == "commit":
            committed[op.process, str(op.key)] = op.value
        elif op.f == "crash":
            held.pop(op.process, None)
            for place in [place for place in consumed if place[0] == op.process]:
                del consumed[place]
        elif op.f == "assign":
            for key in held.get(op.process, set()) - set(op.value):
                place = (op.process, key)
                assert place not in consumed or committed.get(place) == consumed[place], op
            held[op.process] = set(op.value)


def test_final_reads_that_are_never_answered_are_asked_again() -> None:
    brokers = Brokers(Random(8), trouble=0, forgetful=False)
    brokers.silent_reads = 5
    workload = WORKLOADS["log"](8)
    judgement = judged(workload, play(workload, brokers))
    assert judgement.verdict == Verdict.VALID, judgement.reason
    assert brokers.silent_reads == 0


@pytest.mark.parametrize(("seconds", "read"), [(10, "n1, n2, n3"), (45, "n1, n3")])
def test_final_reads_wait_for_a_replica_that_must_learn_the_group_again(seconds: float, read: str) -> None:
    """As a slave with an empty disk does; it is not waited for without end."""
    brokers = Brokers(Random(8), trouble=0, forgetful=False)
    brokers.wiped = ("n2", seconds)
    workload = WORKLOADS["log"](8)
    record = play(workload, brokers)
    judgement = judged(workload, record)
    assert judgement.reason.endswith(f"identical on {read}"), judgement.reason
    refused = [op.time for op in record.history if op.type == "fail" and op.extra.get("code") == 26]
    assert min(b - a for a, b in zip(refused[:4], refused[4:8], strict=True)) >= 400_000_000, "not in a busy loop"


def test_readers_share_the_nodes() -> None:
    for readers in (1, 2, 3, 5):
        shares = read_rounds(places(), readers)
        assert len(shares) == readers
        assert {stop for share in shares for stop in share} == {(q.key, n) for q in places().queues for n in NODES}


@pytest.mark.parametrize("name", ["log", "queue"])
def test_a_single_client_is_refused_in_one_line(name: str) -> None:
    workload = {"log": LogWorkload, "queue": QueueWorkload}[name]
    with pytest.raises(PlanError, match=f"{name} needs 2 clients"):
        workload(Plan(workload=name, concurrency=1))


def test_keys_name_topic_group_and_queue() -> None:
    assert queue_of("%RETRY%g_t:a:3") == Queue("%RETRY%g_t", "a", 3)
    assert queue_of(Queue("t", "b", -1).key) == Queue("t", "b", -1)


def test_an_address_leads_to_its_node() -> None:
    assert places().node_at("198.18.0.1:10911") == "n2"
    assert places().node_at("198.18.0.1:10912") is None
    assert places().node_at("") is None
