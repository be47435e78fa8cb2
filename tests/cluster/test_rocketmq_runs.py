# SPDX-License-Identifier: Apache-2.0
"""The main job itself: `harness run` against RocketMQ, twice on one kept cluster, with faults aimed at roles.

What RocketMQ does is its own affair (docs/track-record.md): the judges may find what they know to find. What they may
not find is anything that only a mistake of the harness would show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.real_runs import Run, harness, is_inject, left_of, run

from results.observations import read_observations

pytestmark = pytest.mark.cluster

NODES = {"n1", "n2", "n3", "n4", "n5"}
SHORT = ("--time-limit", "14", "--interval", "6", "--duration", "5", "--rate", "200", "--seed", "1")
OURS = {"aborted-read", "never-sent", "malformed-history", "unhealed-fault"}
"""No fault of these runs, and no defect on record, makes a server do that: the harness would be wrong."""


@dataclass(frozen=True)
class Pair:
    """The runs on one cluster, and what was left of it after `clean --kept`."""

    log: Run
    queue: Run
    cleaned: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    store = tmp_path_factory.mktemp("store")
    # Kills first: 5.5.0 comes back from them whole. Partitions leave replicas behind (finding 8), and a cluster in that
    # state does not get ready for another run.
    killed = ("--nemesis", "kill-random-processes", "--target", "master")
    first = run("--topology", "controller", *killed, "--keep", *SHORT, store=store)
    kept = re.search(r"--reuse (\S+)", first.out)
    try:
        assert kept is not None, first.out + first.err
        second = run("--workload", "queue", "--nemesis", "partition-halves", "--reuse", kept[1], *SHORT, store=store)
    finally:
        cleaned = harness("clean", "--kept")
    return Pair(first, second, cleaned.stdout + cleaned.stderr)


@pytest.fixture(params=["log", "queue"])
def ended(request: pytest.FixtureRequest, pair: Pair) -> Run:
    one: Run = getattr(pair, request.param)
    return one


def test_there_is_a_verdict_of_every_judge(ended: Run) -> None:
    assert ended.code in (0, 1, 2), ended.err
    assert "Traceback" not in ended.err
    judges = {"well-formed", "log", "linearizability", "replicas", "availability", "sync-state", "servers", "faults"}
    assert judges <= ended.results().keys()
    assert ended.results()["well-formed"]["verdict"] == "valid"
    found = {a["name"] for result in ended.results().values() for a in result["anomalies"]}
    assert not found & OURS, ended.out


def test_messages_went_through_before_and_after_the_faults(ended: Run) -> None:
    sends = [op for op in ended.ops if op.f == "send" and op.type == "ok"]
    struck = [op.time for op in ended.ops if is_inject(op)]
    assert len(sends) > 100, ended.out
    assert min(op.time for op in sends) < min(struck)
    assert max(op.time for op in sends) > max(struck), ended.out
    assert {op.extra["node"] for op in ended.ops if op.f == "replica-read"} == NODES


def test_the_faults_struck_whom_they_were_aimed_at(pair: Pair) -> None:
    kills = [op for op in pair.log.ops if is_inject(op)]
    cuts = [op for op in pair.queue.ops if is_inject(op)]
    assert cuts
    assert kills
    for op in (*cuts, *kills):
        assert op.value["seen"], op
        assert op.error is None
    begun = [op for op in pair.log.ops if op.f == "inject" and op.type == "invoke"]
    for start, op in zip(begun, kills, strict=True):
        # By what the nodes said of themselves: a new master need not have acknowledged anything yet.
        (struck,) = op.value["nodes"]
        assert struck in {master_at(pair.log, start.time), master_at(pair.log, op.time)}


def master_at(ended: Run, time: int) -> str | None:
    """The node that was master of the highest epoch in the nodes' last answers before a moment (ns), or None."""
    output = {seen.node: seen for seen in read_observations(ended.dir.observations) if seen.time <= time}
    masters = {seen.term or 0: seen.node for seen in output.values() if seen.role == "leader"}
    return masters[max(masters)] if masters else None


def test_the_second_run_met_the_first_ones_servers_and_none_of_its_messages(pair: Pair) -> None:
    first, second = pair.log, pair.queue
    assert first.environment["run_id"] == second.environment["run_id"]
    assert first.dir.path != second.dir.path
    keys = [{str(op.key) for op in one.ops if op.f == "send"} for one in (first, second)]
    assert keys[0]
    assert keys[1]
    assert not keys[0] & keys[1]


def test_nothing_is_left_after_the_clean_up(pair: Pair) -> None:
    assert left_of(pair.log.environment) == [], pair.cleaned


@pytest.mark.nightly
def test_a_version_whose_slaves_refuse_topics(tmp_path: Path) -> None:
    """Before 5.2.0 a slave takes topics from its master alone."""
    old = ("--topology", "controller", "--version", "5.1.1")
    ended = run(*old, "--nemesis", "partition-halves", *SHORT, store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    assert sum(op.f == "send" and op.type == "ok" for op in ended.ops) > 100, ended.out
    assert {op.extra["node"] for op in ended.ops if op.f == "replica-read"} == NODES
    found = {a["name"] for result in ended.results().values() for a in result["anomalies"]}
    assert not found & OURS, ended.out
