# SPDX-License-Identifier: Apache-2.0
"""The excuses of the judges of logs: each is used within its limit, counted, and refused just beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sim.rocketmq import names
from stories import Q, Story

from checkers.base.api import judge
from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from checkers.messages.log.expiry import Expiry
from infra.systems.rocketmq.topologies.bounds import flushed_bytes, flushed_within_s, lag_within_s
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.history import History
from results.op import NEMESIS, Op
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Excuse, Verdict

S = 1_000_000_000
NODES = ("n1", "n2")
LIMIT_S = 15.5
FLUSH = {"permits_after": {"unsynced-lost": {"lost": {"why": "ASYNC_FLUSH", "within_s": LIMIT_S}}}}
BUSY = {"why": "ASYNC_FLUSH", "within_s": LIMIT_S, "bytes": 20_480, "bytes_s": 5.5}
CHANGE = {"permits": {"lost": {"why": "not replicated", "within_s": 5.0}}}


def deployed(record: RunRecord, **traits: Any) -> RunRecord:
    """The record as that of a run of the harness on two brokers of a group."""
    servers = [ServerRecord(node, "broker", group="a") for node in NODES]
    about = DeploymentRecord("toy", dict.fromkeys(NODES, ""), servers, {"a": list(NODES)}, traits=Traits(**traits))
    return replace(record, deployment=about)


def beheaded() -> Story:
    """n1 and n2 acknowledged three messages; at the end both begin behind the second."""
    story = Story()
    for n in range(3):
        story.send(n + 1, n)
    story.final(3, node="n1", begin=2, role="master", min=2)
    story.final(3, node="n2", begin=2, role="slave", min=2)
    return story


def struck(record: RunRecord, kind: str, start: int, end: int, nodes: Sequence[str] = NODES) -> RunRecord:
    """The record with a fault of one effect on these nodes, put in by time (ns)."""
    effects = [{"kind": kind, "node": node} for node in nodes]
    value = {"fault": "toy", "id": 1, "effects": effects, "nodes": dict.fromkeys(nodes), "seen": True}
    more = [(start, "invoke", "inject"), (start, "info", "inject"), (end, "invoke", "heal"), (end, "info", "heal")]
    ops = [*record.history, *(Op(0, t, NEMESIS, type_, f, None, value) for t, type_, f in more)]  # type: ignore[arg-type]
    ops.sort(key=lambda op: op.time)
    return replace(record, history=History([replace(op, index=i) for i, op in enumerate(ops)]))


def results(record: RunRecord) -> list[CheckResult]:
    """Judged as a run is: with its permissions, and the excuses that were used."""
    return list(judge(record, [LogAnomalies(), LogLinearizable(), Replicas()]).results)


def excused(found: Sequence[CheckResult]) -> dict[str, int]:
    return {excuse.rule: excuse.used for result in found for excuse in result.excuses}


def test_a_queue_that_begins_behind_its_first_message_has_lost_it() -> None:
    """DLedger's consume queues of 5.2.0 (finding 70): nothing had expired, and the verdict was `valid`."""
    found = results(deployed(beheaded().record))
    assert names(found) == {"lost", "nonlinearizable"}
    assert found[0].verdict == Verdict.INVALID
    assert "2 acknowledged messages lost" in found[0].anomalies[0].summary
    assert not excused(found)


def test_replicas_that_begin_at_different_offsets_differ() -> None:
    story = Story()
    for n in range(3):
        story.send(n + 1, n)
    story.final(1, 2, 3, node="n1", role="master")
    story.final(3, node="n2", begin=2, role="slave", min=2)
    found = results(deployed(story.record))
    assert names(found) == {"divergent-replicas"}
    assert "n2 holds nothing" in found[2].anomalies[0].summary


def test_a_history_of_unknown_settings_may_have_expired_messages_and_the_verdict_counts_them() -> None:
    found = results(beheaded().record)
    assert names(found) == set()
    assert excused(found) == {"expired": 2, "undecided": 2}
    assert found[0].verdict == Verdict.UNKNOWN


OF_THE_LOG = "delete file[REF:-1000] /d/store/commitlog/00000000000000000000 OK, W:1 M:1"
OF_AN_INDEX = "delete file[REF:-1000] /d/store/consumequeue/t/0/00000000000000000000 OK, W:1 M:1"


@pytest.mark.parametrize(
    ("effect", "traits", "line", "allowed"),
    [
        (None, {}, None, False),
        (None, {}, OF_THE_LOG, False),
        (None, {"expires_after_s": 0.0}, None, False),
        (None, {"expires_after_s": 0.0}, OF_THE_LOG, True),
        (None, {"expires_after_s": 0.0}, OF_AN_INDEX, False),
        ("disk-full", {}, OF_THE_LOG, True),
        ("disk-full", {}, None, False),
        ("data-lost", {"copies_last_file": True}, None, True),
        ("data-lost", {"copies_last_file": False}, None, False),
        ("down", {"copies_last_file": True}, None, False),
    ],
)
def test_expiry_needs_a_setting_and_a_deletion_that_a_log_shows(
    tmp_path: Path, effect: str | None, traits: Mapping[str, Any], line: str | None, allowed: bool
) -> None:
    record = deployed(beheaded().record, **traits)
    if effect is not None:
        record = struck(record, effect, 0, 1)
    if line is not None:
        log = tmp_path / "broker.log"
        log.write_text(f"2026-11-28 20:00:00.000 INFO t Store - {line}\n")
        record = replace(record, logs={node: [log] for node in NODES})
    assert Expiry(record).allows("n1") == allowed
    found = results(record)
    assert ("lost" in names(found)) != allowed
    assert ("expired" in excused(found)) == allowed


def lost_with_the_power(age_s: float, extra: Mapping[str, Any] = FLUSH) -> RunRecord:
    """One message acknowledged `age_s` before the power of both nodes fails; at the end it is gone."""
    acked, cut = 100 * S, int((100 + age_s) * S)
    ops = [
        Op(0, 1 * S, 0, "invoke", "send", Q, 1, None, {"node": "n1"}),
        Op(1, 1 * S, 0, "ok", "send", Q, [0, 1], None, {"node": "n1"}),
        Op(2, acked, 0, "invoke", "send", Q, 2, None, {"node": "n1"}),
        Op(3, acked, 0, "ok", "send", Q, [1, 2], None, {"node": "n1"}),
    ]
    story = Story()
    story.final(1, node="n1", role="master")
    story.final(1, node="n2", role="slave")
    ops += [replace(op, index=4 + i, time=cut + 60 * S + i) for i, op in enumerate(story.ops)]
    record = deployed(RunRecord(History(ops), environment=dict(extra)))
    return struck(record, "unsynced-lost", cut, cut + 5 * S)


@pytest.mark.parametrize(("age_s", "legal"), [(0.0, True), (15.4, True), (15.6, False), (60.0, False)])
def test_async_flush_excuses_the_last_seconds_before_a_power_failure_and_nothing_older(
    age_s: float, legal: bool
) -> None:
    found = results(lost_with_the_power(age_s))
    assert [a.name for a in found[0].anomalies] == ["lost"]
    assert (found[0].anomalies[0].legal is not None) == legal
    assert found[0].verdict == (Verdict.VALID if legal else Verdict.INVALID)
    assert (found[1].verdict == Verdict.VALID) == legal, "the log without what may be lost is one log"
    if legal:
        assert found[0].excuses == [Excuse("lost", 1, "ASYNC_FLUSH", LIMIT_S, age_s)]


def test_time_in_which_another_fault_had_stopped_the_broker_does_not_count() -> None:
    """A stopped broker syncs nothing: what it acknowledged before it was stopped is as old as its running time."""
    record = lost_with_the_power(40.0)
    ops = list(record.history)
    value = {"fault": "stop", "id": 2, "effects": [{"kind": "down", "node": n} for n in NODES], "seen": True}
    more = [(105 * S, "inject"), (135 * S, "heal")]
    ops += [Op(0, t, NEMESIS, type_, f, None, value) for t, f in more for type_ in ("invoke", "info")]  # type: ignore[arg-type]
    ops.sort(key=lambda op: op.time)
    stopped = replace(record, history=History([replace(op, index=i) for i, op in enumerate(ops)]))
    assert results(stopped)[0].verdict == Verdict.VALID
    assert results(record)[0].verdict == Verdict.INVALID


@pytest.mark.parametrize(
    ("behind", "age_s", "legal"),
    [
        pytest.param(20_480, 9.0, False, id="four pages were dirty behind it for long"),
        pytest.param(20_480, 4.0, True, id="not for long enough"),
        pytest.param(20_000, 9.0, True, id="less than four pages"),
        pytest.param(None, 9.0, True, id="nobody saw the log"),
    ],
)
def test_a_busy_broker_syncs_sooner_than_an_idle_one(behind: int | None, age_s: float, legal: bool) -> None:
    """A broker that never forced a page, power cut each 12 s: 9,567 of 11,441 messages were `legal here`."""
    record = lost_with_the_power(age_s, {"permits_after": {"unsynced-lost": {"lost": BUSY}}})
    if behind is not None:
        seen = [(100.5, 1000), (101.0, 1000 + behind), (105.0, 1000 + behind)]
        record = replace(record, observations=[Observation(int(t * S), "n1", "leader", end=end) for t, end in seen])
    assert (results(record)[0].verdict == Verdict.VALID) == legal


@pytest.mark.parametrize(("before", "legal"), [("unsynced-lost", False), ("down", True)])
def test_what_was_read_from_the_disk_after_one_power_failure_cannot_go_with_the_next(before: str, legal: bool) -> None:
    """A cut soon after another one excused what only the first could have taken. A kill leaves what the kernel has."""
    record = lost_with_the_power(12.5, {"permits_after": {"unsynced-lost": {"lost": BUSY}}})
    seen = [(100.5, 1000), (101.0, 1000 + 20_480), (108.0, 1000 + 20_480)]
    record = replace(record, observations=[Observation(int(t * S), "n1", "leader", end=end) for t, end in seen])
    ops = list(record.history)
    value = {"fault": "first", "id": 2, "effects": [{"kind": before, "node": n} for n in NODES], "seen": True}
    more = [(109 * S, "inject"), (112 * S, "heal")]
    ops += [Op(0, t, NEMESIS, type_, f, None, value) for t, f in more for type_ in ("invoke", "info")]  # type: ignore[arg-type]
    ops.sort(key=lambda op: op.time)
    record = replace(record, history=History([replace(op, index=i) for i, op in enumerate(ops)]))
    assert (results(record)[0].verdict == Verdict.VALID) == legal


def test_a_power_failure_elsewhere_excuses_nothing() -> None:
    record = lost_with_the_power(1.0)
    ops = [op for op in record.history if op.process != NEMESIS]
    bare = replace(record, history=History([replace(op, index=i) for i, op in enumerate(ops)]))
    assert results(struck(bare, "unsynced-lost", 101 * S, 106 * S, ["n9"]))[0].verdict == Verdict.INVALID


@pytest.mark.parametrize(("age_s", "legal"), [(4.9, True), (5.1, False)])
@pytest.mark.parametrize("cause", ["fault", "change of master", "change in a fault", "the same master"])
def test_a_change_of_master_excuses_the_last_seconds_before_it(age_s: float, legal: bool, cause: str) -> None:
    """Profile default: the limit is how far a replica of the SyncStateSet may lag. A fault alone excuses nothing: a
    full disk took 3,806 acknowledged messages from a master that stayed master, and they counted as permitted.
    """
    record = lost_with_the_power(age_s, CHANGE)
    struck_at = int((100 + age_s) * S)
    if cause == "change of master":
        ops = [op for op in record.history if op.process != NEMESIS]
        record = replace(record, history=History([replace(op, index=i) for i, op in enumerate(ops)]))
    cut = {
        "change of master": struck_at + 15 * S,
        "change in a fault": struck_at + 16 * S,
        "the same master": struck_at + S,
    }
    after = ("n1", 1) if cause == "the same master" else ("n2", 2)
    seen = [Observation(50 * S, "n1", "leader", 1)]
    seen += [Observation(cut[cause], after[0], "leader", after[1])] if cause in cut else []
    record = replace(record, observations=seen)
    allowed = legal and cause in ("change of master", "change in a fault")
    assert (results(record)[0].verdict == Verdict.VALID) == allowed


def test_a_run_that_was_stored_without_a_limit_gets_that_of_the_default_settings() -> None:
    old = {"permits_after": {"unsynced-lost": {"lost": "flushDiskType=ASYNC_FLUSH"}}}
    assert results(lost_with_the_power(15.0, old))[0].verdict == Verdict.VALID
    assert results(lost_with_the_power(16.0, old))[0].verdict == Verdict.INVALID


@pytest.mark.parametrize("bad", ['{"a":', "[1]", '{"lost": 7}', '{"lost": {"why": "w", "within_s": "x"}}', '"text"'])
def test_permissions_that_nobody_wrote_are_one_line_that_names_the_file(bad: str) -> None:
    record = replace(lost_with_the_power(1.0), environment={"permits": bad})
    found = results(record)
    assert found[0].verdict == Verdict.UNKNOWN
    assert "environment.json" in found[0].reason
    assert "the checker itself failed" not in found[0].reason


def test_the_limits_follow_from_the_settings() -> None:
    assert flushed_within_s({}) == LIMIT_S
    assert flushed_within_s({"flushCommitLogThoroughInterval": "2000", "flushIntervalCommitLog": "100"}) == 7.1
    assert flushed_within_s({"transientStorePoolEnable": "true"}) == 15.9
    assert flushed_bytes({}) == (5 * 4096, 5.5)
    assert flushed_bytes({"transientStorePoolEnable": "true"}) is None
    assert lag_within_s({"haMaxTimeSlaveNotCatchup": "4000", "checkSyncStateSetPeriod": "1000"}) == 10.0
    assert lag_within_s({}) == 25.0


@pytest.mark.parametrize(("waited_s", "late"), [(29, False), (31, True)])
@pytest.mark.parametrize("cause", ["acknowledged", "healed"])
def test_a_replica_that_is_merely_behind_has_a_limit_to_catch_up(waited_s: int, late: bool, cause: str) -> None:
    """`replicas` was `valid` for a slave without a SyncStateSet that never came back."""
    acked = 100 * S
    ops = [
        Op(0, 1 * S, 0, "invoke", "send", Q, 1, None, {"node": "n1"}),
        Op(1, 1 * S, 0, "ok", "send", Q, [0, 1], None, {"node": "n1"}),
        Op(2, acked, 0, "invoke", "send", Q, 2, None, {"node": "n1"}),
        Op(3, acked, 0, "ok", "send", Q, [1, 2], None, {"node": "n1"}),
    ]
    story = Story()
    story.final(1, 2, node="n1", role="master")
    story.final(1, node="n2", role="slave")
    healed = acked if cause == "acknowledged" else acked + 50 * S
    ops += [replace(op, index=4 + i, time=healed + waited_s * S + i) for i, op in enumerate(story.ops)]
    record = deployed(RunRecord(History(ops)))
    if cause == "healed":
        record = struck(record, "down", acked + S, healed, ["n2"])
    (result,) = judge(record, [Replicas(limit_s=30)]).results
    assert names([result]) == ({"replica-left-behind"} if late else set())
    assert [(e.rule, e.used) for e in result.excuses] == ([] if late else [("behind", 1)])
    assert names(judge(record, [Replicas()]).results) == set(), "nothing is known of the servers"
