# SPDX-License-Identifier: Apache-2.0
"""Consumer groups of RocketMQ's own clients on real servers: what they promise holds, and the judges see it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cluster.real_runs import run

from checkers.messages.consuming.takes import dead_letters, takes

pytestmark = [pytest.mark.cluster]

CONSUME = ("--workload", "consume", "--seed", "1")
JUDGES = ("log", "replicas", "delivered")


def test_a_push_consumer_group_through_kills_of_the_master(tmp_path: Path) -> None:
    """The whole way: processes on nodes of their own that crash, leave and come back, a new master, and a verdict."""
    kills = ("--nemesis", "kill-random-processes", "--target", "master", "--interval", "8", "--duration", "5")
    ended = run(*CONSUME, *kills, "--nodes", "3", "--listener", "orderly", "--time-limit", "20", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    results = ended.results()
    for name in (*JUDGES, "ordered", "groups", "lag"):
        assert results[name]["verdict"] == "valid", ended.out
    lives = {delivery.life for delivery in takes(ended.dir.load().history).deliveries}
    assert len(lives) > 3, "no member came back after a crash"
    done = Counter(op.f for op in ended.ops if op.type == "ok")
    for f in ("send", "join", "take", "crash", "committed", "named-members", "consume-stats"):
        assert done[f], f


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["tag", "sql"])
def test_filters_and_retries(tmp_path: Path, how: str) -> None:
    """Retries and dead letters of a group that filters: on real servers these need the better part of a minute."""
    quiet = ("--topology", "master-slave", "--nodes", "1", "--nemesis", "none", "--time-limit", "12")
    ended = run(*CONSUME, *quiet, "--filter", how, "--failing", "5", "--fails", "2", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    history = ended.dir.load().history
    assert dead_letters(history), ended.out
    assert {d.tag for d in takes(history).deliveries} == {"a", "b"}


@pytest.mark.nightly
def test_a_broadcast_group(tmp_path: Path) -> None:
    quiet = ("--topology", "master-slave", "--nodes", "1", "--nemesis", "none", "--time-limit", "10")
    ended = run(*CONSUME, *quiet, "--listener", "broadcast", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    assert ended.results()["broadcast"]["reason"].startswith("3 members got"), ended.out


@pytest.mark.nightly
def test_members_that_poll_and_a_java_producer(tmp_path: Path) -> None:
    """Both talk to the brokers in their own way: through kills of the master, what they promise holds, too."""
    kills = ("--nemesis", "kill-random-processes", "--target", "master", "--interval", "12", "--duration", "4")
    how = ("--library", "lite-pull", "--producer", "java", "--large", "1", "--concurrency", "12")
    ended = run(*CONSUME, *kills, *how, "--nodes", "3", "--time-limit", "20", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    results = ended.results()
    for name in (*JUDGES, "groups", "lag"):
        assert results[name]["verdict"] == "valid", ended.out
    one_way = [op for op in ended.ops if op.type == "info" and "one-way" in (op.error or "")]
    assert one_way, "the Java producer sent nothing one-way"


@pytest.mark.nightly
@pytest.mark.parametrize(("listener", "failing"), [("concurrently", "0"), ("concurrently", "3"), ("orderly", "0")])
def test_members_of_librocketmq(tmp_path: Path, listener: str, failing: str) -> None:
    """The C++ client on nodes of their own: it gets messages, and each one names its broker group."""
    quiet = ("--topology", "master-slave", "--nodes", "3", "--nemesis", "none", "--time-limit", "20")
    how = ("--library", "native", "--listener", listener, "--failing", failing)
    ended = run(*CONSUME, *quiet, *how, store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    assert ended.results()["delivered"]["verdict"] == "valid", ended.out
    deliveries = takes(ended.dir.load().history).deliveries
    assert not [delivery for delivery in deliveries if ":?:" in delivery.key]
    assert any(delivery.again for delivery in deliveries) == (failing != "0"), ended.out


@pytest.mark.nightly
def test_requests_and_replies(tmp_path: Path) -> None:
    """Members reply through a broker to a producer in another process, on another node."""
    quiet = ("--topology", "master-slave", "--nodes", "3", "--nemesis", "none", "--time-limit", "15")
    ended = run(*CONSUME, *quiet, "--producer", "java", "--requests", "10", "--concurrency", "12", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    stats = ended.stats("replies")
    assert stats["answered"] > stats["unanswered"], ended.out
    assert stats["replies"] >= stats["answered"], ended.out


@pytest.mark.nightly
@pytest.mark.parametrize("at", ["all", "masters"])
def test_a_group_that_an_administrator_changes(tmp_path: Path, at: str) -> None:
    """The members get nothing while it is off, and everything in the end; its masters have what was acknowledged."""
    quiet = ("--topology", "master-slave", "--nodes", "3", "--nemesis", "none", "--time-limit", "60")
    how = ("--group-changes-every", "5", "--group-changes", "all", "--group-changes-at", at)
    ended = run(*CONSUME, *quiet, *how, "--failing", "2", "--concurrency", "8", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    stats = ended.stats("group-settings")
    assert stats["changes"] > 3
    assert stats["answers"], ended.out
    done = Counter(op.f for op in ended.ops if op.type == "ok")
    assert done["update-group"], ended.out
    assert done["group-settings"], ended.out
    if at == "all":
        assert stats["sent_off"], "no message was sent while the group was off"


@pytest.mark.nightly
@pytest.mark.parametrize(("library", "failing"), [("grpc-push", "2"), ("grpc-simple", "0.3")])
def test_message_groups_in_order_through_a_proxy(tmp_path: Path, library: str, failing: str) -> None:
    """A proxy pops in order only for a group that is made so; a message that fails holds the others up."""
    quiet = ("--topology", "master-slave", "--nodes", "3", "--nemesis", "none", "--time-limit", "20")
    how = ("--library", library, "--listener", "orderly", "--failing", failing)
    ended = run(*CONSUME, *quiet, *how, store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    assert ended.stats("ordered")["sequences"] == 3 * ended.stats("ordered")["queues"], ended.out
    assert ended.stats("retried")["attempts"], ended.out
