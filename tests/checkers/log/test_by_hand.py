# SPDX-License-Identifier: Apache-2.0
"""The judges of logs on single histories that no simulation produces: readings that are missing, damage, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from sim.rocketmq import names
from stories import Story

from checkers.base.api import judge
from checkers.base.legality import applied
from checkers.controllers.sync_state import SyncState
from checkers.linearizability import Log, check
from checkers.linearizability.monitors.logs import log_order
from checkers.linearizability.monitors.refusal import Contradiction
from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from checkers.messages.log.columns import INFO, OK
from checkers.messages.log.linear import queue_ops
from checkers.messages.log.outcomes import study
from checkers.servers.deaths import ServersDied
from infra.systems.dledger.layouts import DAMAGED
from results.history import History
from results.op import NEMESIS, Op, OpType
from results.record import Observation, RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

S = 1_000_000_000


def log(story: Story) -> CheckResult:
    return LogAnomalies().check(story.record)


def test_what_nobody_could_read_is_not_called_lost() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    story.poll(0, 1)
    assert log(story).verdict == Verdict.UNKNOWN
    story.final(1, node="n2")
    story.unread("n3")
    result = log(story)
    assert (result.verdict, names([result])) == (Verdict.UNKNOWN, set()), "n3 may have it"
    assert "1 acknowledged message" in result.reason


@pytest.mark.parametrize(
    ("permitted", "expected"),
    [({}, {"inconsistent-offsets", "realtime-inversion", "nonlinearizable"}), ({"lost": "asynchronous"}, set())],
)
def test_offsets_that_are_assigned_again_are_a_loss_where_it_is_permitted_and_nobody_could_read(
    permitted: dict[str, str], expected: set[str]
) -> None:
    story = Story()
    for message, offset, process in ((1, 0, 0), (2, 1, 0), (3, 2, 0), (4, 1, 1), (5, 2, 1)):
        story.send(message, offset, process=process)
    story.unread("n1")
    record = replace(story.record, environment={"permits": permitted})
    results = [LogAnomalies().check(record), LogLinearizable().check(record)]
    assert names(results) == expected
    assert (results[0].verdict == Verdict.UNKNOWN) == bool(permitted)


def test_a_message_that_a_reader_saw_and_that_vanished_stands_nowhere() -> None:
    """It was sent after the one that now stands behind its offset: what is wrong is the read alone."""
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    story.send(3, None, "info", process=1)
    story.poll(0, 3)
    story.final(1, 2)
    assert names([log(story)]) == {"dirty-read"}


@pytest.mark.parametrize("master", [False, True])
def test_a_loss_is_proven_by_all_replicas_or_by_the_master(master: bool) -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    if master:
        story.final(1, node="n1", role="master")
        story.unread("n2")
    else:
        story.final(1, node="n1")
        story.final(1, node="n2")
    result = log(story)
    assert names([result]) == {"lost"}
    assert "every replica that was read ends at or before offset 1" in result.anomalies[0].summary
    assert names([LogLinearizable().check(story.record)]) == {"nonlinearizable"}


def test_a_read_that_went_past_an_acknowledged_message_proves_its_loss_without_final_reads() -> None:
    story = Story()
    story.send(1, 0)
    story.poll(0, 1, None, None)
    story.send(2, 1)
    story.send(3, 2)
    assert names([log(story)]) == set()
    story.poll(0, 1, None, 3)
    assert names([log(story)]) == {"lost", "hole"}


def test_a_final_reading_may_come_in_pieces_and_be_begun_again() -> None:
    story = Story()
    for n in range(5):
        story.send(n + 1, n)
    story.final(1, 2, done=False)
    story.unread("n1")
    story.final(1, 2, done=False)
    story.final(3, 4, begin=2, done=False)
    story.final(5, begin=4)
    assert log(story).verdict == Verdict.VALID
    assert Replicas().check(story.record).verdict == Verdict.VALID
    cut = Story()
    cut.ops = story.ops[:-2]
    assert log(cut).verdict == Verdict.UNKNOWN
    assert Replicas().check(cut.record).verdict == Verdict.UNKNOWN


def test_unknown_sends_may_appear_late_once_and_may_be_dropped() -> None:
    story = Story()
    story.send(1, None, "info", process=1)
    story.send(2, 0)
    story.send(3, None, "info", process=2)
    story.final(2, 1)
    story.final(2, 1, node="n2")
    assert [c.check(story.record).verdict for c in (LogAnomalies(), LogLinearizable(), Replicas())] == [
        Verdict.VALID
    ] * 3
    story.final(2, 1, 1, node="n2")
    assert "duplicated" in names([log(story)])


def test_refused_unsent_and_damaged_messages_are_told_apart() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, None, "fail")
    story.final(1, 2, 77, "?68616c6c6f")
    result = log(story)
    assert names([result]) == {"aborted-read", "never-sent"}
    assert "?68616c6c6f" in str([a.details for a in result.anomalies])


def test_a_message_read_before_it_was_sent() -> None:
    story = Story()
    story.poll(0, 1)
    story.send(1, 0)
    story.final(1)
    assert names([log(story)]) == {"read-before-send"}
    assert names([LogLinearizable().check(story.record)]) == {"nonlinearizable"}


def test_an_offset_that_was_given_to_two_messages() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 0, process=1, node="n2")
    assert "inconsistent-offsets" in names([log(story)])
    story.final(2)
    story.final(2, node="n2")
    assert names([log(story)]) == {"lost"}, "the loss explains it"


def test_answers_that_run_backwards_or_begin_too_low() -> None:
    story = Story()
    for n in range(4):
        story.send(n + 1, n)
    story.call("poll", 2, [[1, 2], [2, 3]], process=7, node="n2")
    story.call("poll", 0, [[1, 2], [0, 1]], process=7, node="n2")
    story.final(1, 2, 3, 4)
    result = log(story)
    assert names([result]) == {"nonmonotonic-poll"}
    assert sum(a.details["count"] for a in result.anomalies) == 2


@pytest.mark.parametrize(("minimum", "expected"), [(0, {"poll-skip"}), (3, set())])
def test_a_reader_is_not_taken_past_messages_unless_they_have_expired(minimum: int, expected: set[str]) -> None:
    story = Story()
    for n in range(5):
        story.send(n + 1, n)
    story.call("poll", 0, [], process=7, node="n1", min=minimum, max=5, next=3)
    story.final(1, 2, 3, 4, 5)
    assert names([log(story)]) == expected


def test_replicas_that_differ_are_named_and_one_that_is_behind_is_counted() -> None:
    story = Story()
    for n in range(3):
        story.send(n + 1, n)
    story.final(1, 2, 3, node="n1")
    story.final(1, 2, 3, node="n2")
    story.final(1, 2, node="n3")
    behind = Replicas().check(story.record)
    assert (behind.verdict, behind.stats["behind"]) == (Verdict.VALID, {"n3": 1})
    story.final(1, 3, 2, node="n3")
    result = Replicas().check(story.record)
    assert names([result]) == {"divergent-replicas"}
    assert "at the end n3 differs at 2 offsets" in result.anomalies[0].summary


def test_nothing_done_is_nothing_shown() -> None:
    story = Story()
    assert {c.check(story.record).verdict for c in (LogAnomalies(), LogLinearizable(), Replicas())} == {Verdict.UNKNOWN}
    story.send(1, None, "info")
    assert log(story).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (("send", "x", [0, "x"]), "a send has a positive number as its id"),
        (("send", 1, 0), "a send is acknowledged as"),
        (("poll", 0, None), "a poll shows a list of messages"),
    ],
)
def test_histories_that_make_no_sense_are_unknown_with_the_op(op: tuple[str, Any, Any], message: str) -> None:
    story = Story()
    story.call(*op)
    result = judge(story.record, [LogAnomalies()]).results[0]
    assert result.verdict == Verdict.UNKNOWN
    assert message in result.reason
    assert "op " in result.reason


def test_columns_and_search_agree_on_small_logs() -> None:
    """The engine's search on one call per sighting, against the monitor on the columns of the judge."""
    verdicts = {Verdict.VALID: 0, Verdict.INVALID: 0}
    for seed in range(150):
        record = small_log(seed)
        outcomes = study(record)
        try:
            log_order(queue_ops(outcomes, 0))
            output = Verdict.VALID
        except Contradiction:
            output = Verdict.INVALID
        first = int(outcomes.facts.origins[0])
        each = one_by_one(record.history)
        if not any(call.outcome == "ok" for call in each.calls):
            continue  # nothing is known to have happened, and nothing can be wrong
        assert output == check(each, Log(first)).verdict, f"seed {seed}"
        verdicts[output] += 1
    assert min(verdicts.values()) > 20


def small_log(seed: int) -> RunRecord:
    """Up to five appends, some at once, some unknown; offsets and reads that are sometimes wrong."""
    rng, story = Random(seed), Story()
    total = rng.randint(2, 5)
    order = list(range(total))
    rng.shuffle(order)
    open_: list[tuple[int, int]] = []
    for n in range(total):
        story.put(n, "invoke", "send", n + 1)
        open_.append((n, n + 1))
        while open_ and rng.random() < 0.6:
            process, identity = open_.pop(rng.randrange(len(open_)))
            if rng.random() < 0.2:
                story.put(process, "info", "send", identity)
            else:
                place = identity - 1 if rng.random() < 0.6 else order[identity - 1]
                story.put(process, "ok", "send", [place, identity])
        if rng.random() < 0.4:
            at = rng.randrange(n + 1)
            identity = at + 1 if rng.random() < 0.8 else rng.randint(1, total)
            story.call("poll", at, [[at, identity]], process=50, node="n1")
    return story.record


def one_by_one(history: History) -> History:
    """Sends as appends, polls of one message as reads."""
    text = []
    for op in history:
        value = op.value
        if op.f == "send" and op.type == "ok":
            value = op.value[0]
        if op.f == "poll" and op.type == "ok":
            value = op.value[0][1]
        f = "append" if op.f == "send" else "read"
        text.append(Op(op.index, op.time, op.process, op.type, f, op.key, value))
    return History(text)


def in_sync(*sets: Sequence[str], every_s: int = 1) -> list[Observation]:
    """The answers of a controller, second after second, about three brokers."""
    seen = []
    for n, names_ in enumerate(sets):
        for node in ("n1", "n2", "n3"):
            extra: dict[str, Any] = {"broker_name": "a"}
            if node == "n1":
                extra |= {"in_sync": list(names_), "in_sync_epoch": n}
            seen.append(Observation(n * every_s * S, node, "follower", extra=extra))
    return seen


def test_a_replica_outside_of_the_sync_state_set() -> None:
    whole, short = ["n1", "n2", "n3"], ["n1", "n2"]
    back = RunRecord(History([]), observations=in_sync(whole, *[short] * 9, whole))
    assert SyncState(10).check(back).verdict == Verdict.VALID
    left = SyncState(10).check(RunRecord(History([]), observations=in_sync(whole, *[short] * 13)))
    assert names([left]) == {"replica-left-behind"}
    assert "n3 stayed outside the SyncStateSet (n1, n2, epoch 1) for 12 s, up to the end" in left.anomalies[0].summary
    watched = SyncState(10).check(RunRecord(History([]), observations=in_sync(whole, short, short)))
    assert watched.verdict == Verdict.UNKNOWN
    what = {"fault": "kill", "id": 1, "impairs": {"n3": ["n3"]}, "seen": True}
    fault = [Op(0, 0, NEMESIS, "invoke", "inject", None, what), Op(1, 0, NEMESIS, "info", "inject", None, what)]
    excused = RunRecord(History(fault), observations=in_sync(whole, *[short] * 13))
    assert SyncState(10).check(excused).verdict == Verdict.VALID
    assert SyncState(10).check(RunRecord(History([]))).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(("changes", "reported"), [(2, False), (3, True)])
def test_a_sync_state_set_that_does_not_settle(changes: int, reported: bool) -> None:
    """It has slave n2 and n3 in turn; some changes a second, each with an epoch."""
    turns = [["n1", "n2"], ["n1", "n3"]] * 20
    seen = []
    for o in in_sync(["n1", "n2", "n3"], *turns):
        extra = dict(o.extra)
        if "in_sync_epoch" in extra:
            extra["in_sync_epoch"] *= changes
        seen.append(replace(o, extra=extra))
    result = SyncState(10).check(RunRecord(History([]), observations=seen))
    assert names([result]) == ({"unsettled-sync-state-set"} if reported else set())
    assert result.stats["changes"] == 30 * changes
    if reported:
        assert "changed 120 times in 40 s (epoch 0 to 120), up to 90 times within 30 s" in result.anomalies[0].summary


def test_a_fault_while_nobody_reports_the_sync_state_set_ends_the_time_outside() -> None:
    """No controller leads from 4 to 16 s; n3 is killed at 8 s and comes back at 9 s."""
    what = {"fault": "kill", "id": 1, "impairs": {"n3": ["n3"]}, "seen": True}
    struck = [
        Op(2 * n + half, (8 + n) * S, NEMESIS, ("invoke", "info")[half], f, None, what)
        for n, f in enumerate(("inject", "heal"))
        for half in (0, 1)
    ]
    seen = [o for o in in_sync(["n1", "n2", "n3"], *[["n1", "n2"]] * 22) if not 4 * S < o.time < 16 * S]
    assert SyncState(10).check(RunRecord(History(struck), observations=seen)).verdict == Verdict.UNKNOWN
    assert names([SyncState(10).check(RunRecord(History([]), observations=seen))]) == {"replica-left-behind"}


@pytest.mark.parametrize(
    ("server", "node", "silent", "reported"),
    [
        ("broker", "n3", True, False),
        ("broker", "n3", False, True),  # it answered meanwhile
        ("controller", "n3", True, True),
        ("broker", "n2", True, True),
    ],
)
def test_a_broker_that_ended_by_itself_is_not_left_behind(server: str, node: str, silent: bool, reported: bool) -> None:
    died = Op(0, 9 * S, NEMESIS, "info", "server-died", None, {"node": node, "server": server, "pid": None, "last": ""})
    seen = in_sync(["n1", "n2", "n3"], *[["n1", "n2"]] * 13)
    if silent:
        seen = [Observation(o.time, o.node, "silent") if o.node == "n3" and o.time >= S else o for o in seen]
    result = SyncState(10).check(RunRecord(History([died]), observations=seen))
    assert names([result]) == ({"replica-left-behind"} if reported else set())


def test_a_server_that_died_is_told_with_its_last_line() -> None:
    value = {"node": "n2", "server": "broker", "pid": 7, "last": ["a", "java.lang.OutOfMemoryError"]}
    result = ServersDied().check(RunRecord(History([Op(0, 5, NEMESIS, "info", "server-died", None, value)])))
    assert names([result]) == {"server-died"}
    assert "the broker of n2 (pid 7) ended without a fault; its log: java.lang" in result.anomalies[0].summary
    assert ServersDied().check(RunRecord(History([]))).verdict == Verdict.VALID


EXHAUSTED = "Terminating due to java.lang.OutOfMemoryError"


@pytest.mark.parametrize(
    ("last", "name", "end"),
    [
        # As the harness joins them: an earlier exception comes first, and the line with the reason of the end last.
        (
            f"NullPointerException: {'x' * 180} | PERF ticks | {EXHAUSTED}: Java heap space",
            "out-of-memory",
            f"{EXHAUSTED}: Java heap space",
        ),
        # A hook of the shutdown may write behind it.
        (f"{EXHAUSTED}: Metaspace | bye", "out-of-memory", f"{EXHAUSTED}: Metaspace"),
        (f"IOException: {'x' * 180} | the address is in use", "server-died", "the address is in use"),
        ("java.lang.OutOfMemoryError was caught | stopped", "server-died", "stopped"),
    ],
)
def test_the_summary_of_a_death_ends_with_the_line_that_tells_why(last: str, name: str, end: str) -> None:
    """The last line must not be cut off for what stands before it, and an exhausted heap has a name of its own."""
    value = {"node": "n1", "server": "broker", "pid": None, "last": last}
    result = ServersDied().check(RunRecord(History([Op(0, 5, NEMESIS, "info", "server-died", None, value)])))
    assert names([result]) == {name}
    assert result.anomalies[0].summary.endswith(end)
    assert "did not come back after a fault; its log: " in result.anomalies[0].summary


def test_a_server_that_a_client_ends_on_purpose_did_not_die() -> None:
    second = 1_000_000_000
    died = {"node": "n2", "server": "controller", "pid": 7, "last": ""}

    def judged(node: str, at: int, type_: OpType = "ok") -> Verdict:
        arm = Op(0, 0, 0, "invoke", "arm", "t1", {"act": "kill"})
        armed = Op(1, 5, 0, type_, "arm", "t1", {"act": "kill"}, None, {"ends": [node, "controller"]})
        death = Op(2, at * second, NEMESIS, "info", "server-died", None, died)
        return ServersDied(on_purpose=("arm",)).check(RunRecord(History([arm, armed, death]))).verdict

    assert judged("n2", 20) == Verdict.VALID
    assert judged("n1", 20) == judged("n2", 90) == judged("n2", 20, "fail") == Verdict.INVALID


def test_a_server_may_stop_where_a_fault_damaged_its_files() -> None:
    value: dict[str, Any] = {"fault": "cut-file", "id": 1}
    told: list[tuple[OpType, str, dict[str, Any]]]
    struck = {**value, "nodes": {"n2": None}, "seen": True, "effects": [{"kind": "data-damaged", "node": "n2"}]}
    for node, verdict in (("n2", Verdict.VALID), ("n1", Verdict.INVALID)):
        died = {"node": node, "server": "controller", "pid": 7, "last": ["Fail to init node"]}
        told = [("invoke", "inject", value), ("info", "inject", struck), ("info", "server-died", died)]
        history = History([Op(i, i, NEMESIS, type_, f, None, v) for i, (type_, f, v) in enumerate(told)])
        record = RunRecord(history, environment={"permits_after": {"data-damaged": dict(DAMAGED)}})
        assert ServersDied().check(record).verdict == verdict


@pytest.mark.parametrize("permits", [{"unavailable": "one master"}, '{"unavailable": "one master"}'])
def test_legality_is_for_every_checker(permits: Any) -> None:
    record = RunRecord(History([]), environment={"permits": permits})
    down, worse = Anomaly("unavailable", "silence"), Anomaly("never-recovered", "to the end")
    legal = applied(CheckResult("availability", Verdict.INVALID, "silence", [down]), record)
    assert (legal.verdict, legal.anomalies[0].legal) == (Verdict.VALID, "one master")
    assert legal.reason == "silence; legal here: 1 unavailable (one master)"
    both = applied(CheckResult("availability", Verdict.INVALID, "silence", [down, worse]), record)
    assert (both.verdict, [a.legal for a in both.anomalies]) == (Verdict.INVALID, ["one master", None])


def test_outcomes_are_columns() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, None, "info")
    facts = study(story.record).facts
    assert facts.sends.outcome.tolist() == [OK, INFO]
    assert facts.sends.offset.dtype == np.int64
