# SPDX-License-Identifier: Apache-2.0
"""The workloads `log` and `queue` in virtual time: their generators against brokers in memory, judged by their judges.

What generators know, they know from answers, so the contract between them and the judges is only seen where both meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import play as played
from workloads_in_memory import JUDGES, NODES, Brokers, places

from checkers.base.api import judge
from checkers.messages.queue import Deliveries, Leases
from checkers.messages.topics import KnownTopics
from harness.plan.plan import Plan, PlanError
from results.deployment import DeploymentRecord
from results.history import History
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.log import LogWorkload
from workloads.messages import PHASE, read_rounds
from workloads.places import Queue, queue_of
from workloads.queue import QueueWorkload, _escape_readers


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
