# SPDX-License-Identifier: Apache-2.0
"""The judge of the disks: silent on files of real brokers that agree with what was acknowledged, not on others."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.base.api import judge
from checkers.messages.log.storage import FILE, GroundTruth
from checkers.messages.replica_files import ReplicaFiles, committed
from infra.systems.rocketmq.store.summary import LINE, summarize
from results.deployment import DeploymentRecord, Traits
from results.history import History
from results.op import Op
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Verdict

STORES = Path(__file__).parent.parent / "data" / "rocketmq" / "stores-5.5.0.zip"
Lines = list[Any]


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The records of the topic on the disks of the two real brokers."""
    folder = tmp_path_factory.mktemp("stores")
    with zipfile.ZipFile(STORES) as archive:
        archive.extractall(folder)
    return {node: list(summarize(folder / "controller" / node, "a", {"log-fixture"})) for node in ("n1", "n2")}


def history(summary: list[str]) -> History:
    """Every message of a summary acknowledged, and read from both replicas in the end."""
    ops: list[Op] = []
    for line in summary:
        output = json.loads(line)
        if isinstance(output, list):
            topic, queue, offset, _, message = output[:5]
            key = f"{topic}:a:{queue}"
            ops.append(Op(len(ops), len(ops), 0, "invoke", "send", key, message))
            ops.append(Op(len(ops), len(ops), 0, "ok", "send", key, [offset, message], extra={"node": "n1"}))
    reads: dict[str, list[list[Any]]] = {}
    for op in ops:
        if op.type == "ok" and op.key is not None:
            reads.setdefault(op.key, []).append(op.value)
    for key, value in reads.items():
        for node in ("n1", "n2"):
            ops.append(Op(len(ops), len(ops), 1, "invoke", "replica-read", key, 0, extra={"node": node}))
            ops.append(Op(len(ops), len(ops), 1, "ok", "replica-read", key, value, extra={"node": node, "done": True}))
    return History(ops)


def judged(
    folder: Path,
    summaries: dict[str, list[str]],
    spoil: Callable[[str, Lines], Lines] | None = None,
    files: bool = False,
    **more: Any,
) -> CheckResult:
    """The verdict on disks that `spoil(node, lines)` has changed. files: of `ReplicaFiles`."""
    for node, summary in summaries.items():
        lines = [json.loads(line) for line in summary]
        lines = lines if spoil is None else spoil(node, lines)
        path = folder / "nodes" / node / FILE
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checker = ReplicaFiles() if files else GroundTruth()
    return checker.check(RunRecord(history(summaries["n1"]), path=folder, **more))


def names(result: CheckResult) -> list[str]:
    return [anomaly.name for anomaly in result.anomalies]


def column(name: str) -> int:
    return LINE.index(name)


def at_offset(lines: Lines, queue: int, offset: int) -> int:
    return next(n for n, line in enumerate(lines) if isinstance(line, list) and line[1:3] == [queue, offset])


def test_disks_that_agree(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    result = judged(tmp_path, summaries)
    assert result.verdict == Verdict.VALID, result
    assert result.stats["disks"]["n1"] == {"visible": 148, "hidden": 0}


def test_a_message_on_no_disk_is_lost(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def drop(node: str, lines: Lines) -> Lines:
        del lines[at_offset(lines, 0, 7)]
        return lines

    result = judged(tmp_path, summaries, drop)
    assert result.verdict == Verdict.INVALID
    assert names(result) == ["lost", "unstored-read", "unstored-read"]
    assert "message 16, which n1 acknowledged at offset 7 of log-fixture:a:0" in result.anomalies[0].summary


def test_a_loss_that_is_permitted(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def drop(node: str, lines: Lines) -> Lines:
        del lines[at_offset(lines, 0, 7)]
        return lines

    permits = json.dumps({"lost": "the master waits for nobody", "unstored-read": "a test"})
    result = judged(tmp_path, summaries, drop, environment={"permits": permits})
    assert result.verdict == Verdict.VALID
    assert "legal here: 1 lost" in result.reason


def test_a_message_on_one_disk_only_is_not_lost(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def drop(node: str, lines: Lines) -> Lines:
        if node == "n2":
            del lines[at_offset(lines, 0, 7)]
        return lines

    assert names(judged(tmp_path, summaries, drop)) == ["unstored-read"], "n2 showed it and does not have it"


def test_a_message_without_an_index_entry_is_told_apart(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def hide(node: str, lines: Lines) -> Lines:
        lines[at_offset(lines, 1, 3)][column("indexed")] = False
        return lines

    result = judged(tmp_path, summaries, hide)
    assert names(result) == ["lost-by-index", "unstored-read", "unstored-read"]
    assert "but in no index" in result.anomalies[0].summary


def test_different_messages_at_one_place(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def swap(node: str, lines: Lines) -> Lines:
        if node == "n2":
            a, b = at_offset(lines, 0, 4), at_offset(lines, 0, 5)
            lines[a][4], lines[b][4] = lines[b][4], lines[a][4]
        return lines

    result = judged(tmp_path, summaries, swap)
    assert names(result) == ["divergent-replicas", "unstored-read"]
    assert result.anomalies[0].details["count"] == 2


def test_replicas_of_different_groups_share_nothing(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def regroup(node: str, lines: Lines) -> Lines:
        if node == "n2":
            lines[0]["head"]["group"] = "b"
            for line in [line for line in lines if isinstance(line, list)]:
                line[4] += 5000
        return lines

    assert "divergent-replicas" not in names(judged(tmp_path, summaries, regroup))


def test_a_corrupt_record(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def corrupt(node: str, lines: Lines) -> Lines:
        if node == "n1":
            lines[at_offset(lines, 0, 4)][column("intact")] = False
        return lines

    assert names(judged(tmp_path, summaries, corrupt)) == ["corrupt-message", "unstored-read"]


def test_an_index_entry_that_leads_nowhere(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def dangle(node: str, lines: Lines) -> Lines:
        return [*lines, {"dangling": ["log-fixture", 0, 4, 99, 100]}] if node == "n1" else lines

    assert names(judged(tmp_path, summaries, dangle, files=True, **sight())) == ["broken-index"]


def test_old_entries_behind_the_end_are_what_a_truncation_leaves(
    tmp_path: Path, summaries: dict[str, list[str]]
) -> None:
    def leave(node: str, lines: Lines) -> Lines:
        return [*lines, {"dangling": ["log-fixture", 0, 5000, 99, 100]}]

    assert judged(tmp_path / "a", summaries, leave).verdict == Verdict.VALID
    assert judged(tmp_path / "b", summaries, leave, files=True, **sight()).verdict == Verdict.VALID


def sight(committed: int = 130_000, in_sync: Sequence[str] = ("n1", "n2")) -> dict[str, Any]:
    """The last observations: n1 is master, and the log is confirmed up to `committed`."""
    told = {"in_sync": list(in_sync)}
    seen = [
        Observation(1, "n1", "leader", term=2, end=140_000, committed=committed, extra=told),
        Observation(1, "n2", "follower", term=2, end=140_000),
    ]
    nodes = {"n1": "", "n2": ""}
    record = DeploymentRecord("controller", nodes, groups={"a": ["n1", "n2"]}, traits=Traits(in_sync=True))
    return {"observations": seen, "deployment": record}


def test_replicas_with_the_same_bytes(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    result = judged(tmp_path, summaries, files=True, **sight())
    assert result.verdict == Verdict.VALID, result
    assert result.stats["compared"] > 148, "records of other topics too"


@pytest.mark.parametrize(
    ("at", "more", "wrong"),
    [
        (5, {}, True),
        (5, {"in_sync": ["n1"]}, False),  # n2 may still have to truncate
        (5, {"committed": 100}, False),
    ],
)
def test_bytes_that_differ(
    tmp_path: Path, summaries: dict[str, list[str]], at: int, more: dict[str, Any], wrong: bool
) -> None:
    def flip(node: str, lines: Lines) -> Lines:
        if node == "n2":
            lines[at_offset(lines, 0, at)][column("crc")] ^= 1
        return lines

    result = judged(tmp_path, summaries, flip, files=True, **sight(**more))
    assert names(result) == (["replicas-differ-on-disk"] if wrong else [])
    if wrong:
        assert "their bytes differ" in result.anomalies[0].summary
        assert result.anomalies[0].details["nodes"] == ["n1", "n2"]


def test_an_entry_that_a_replica_lacks(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def drop(node: str, lines: Lines) -> Lines:
        if node == "n2":
            del lines[at_offset(lines, 0, 7)]
        return lines

    result = judged(tmp_path, summaries, drop, files=True, **sight())
    assert names(result) == ["replicas-differ-on-disk"]
    assert result.anomalies[0].summary.endswith("n2 has no whole entry there")


@pytest.mark.parametrize(
    ("name", "value", "committed", "wrong"),
    [
        ("indexed", False, 130_000, True),
        ("indexed", False, 100, False),
        ("tagged", False, 130_000, True),
        ("tagged", None, 130_000, False),  # a part of a transaction: no entry is due
    ],
)
def test_messages_that_no_entry_leads_to(
    tmp_path: Path, summaries: dict[str, list[str]], name: str, value: Any, committed: int, wrong: bool
) -> None:
    def hide(node: str, lines: Lines) -> Lines:
        if node == "n2":
            line = lines[at_offset(lines, 1, 3)]
            line[column(name)] = value
            lines[lines.index(line)] = {"behind": line}
        return lines

    result = judged(tmp_path, summaries, hide, files=True, **sight(committed))
    assert names(result) == (["unindexed"] if wrong else [])
    assert not wrong or result.anomalies[0].details["node"] == "n2"


@pytest.mark.parametrize(("committed", "wrong"), [(130_000, True), (100, False)])
def test_a_message_with_zero_bytes_in_its_properties(
    tmp_path: Path, summaries: dict[str, list[str]], committed: int, wrong: bool
) -> None:
    def tear(node: str, lines: Lines) -> Lines:
        if node == "n2":
            lines[at_offset(lines, 1, 3)][column("torn")] = True
        return lines

    result = judged(tmp_path, summaries, tear, files=True, **sight(committed))
    assert names(result) == (["torn-message"] if wrong else [])
    assert not wrong or result.anomalies[0].details["node"] == "n2"


def test_a_summary_of_an_earlier_version_has_fewer_columns(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def shorten(node: str, lines: Lines) -> Lines:
        return [line[: column("torn")] if isinstance(line, list) else line for line in lines]

    assert names(judged(tmp_path, summaries, shorten, files=True, **sight())) == []


def test_the_committed_point_of_a_raft_group_is_each_members_own() -> None:
    seen = [Observation(1, "n1", "leader", term=2, end=9, committed=9), Observation(1, "n2", "follower", end=9)]
    record = DeploymentRecord("dledger", groups={"g": ["n1", "n2"]}, traits=Traits(raft_log=True))
    assert committed(RunRecord(History([]), observations=seen, deployment=record)) == {"n1": 10}


def test_what_could_not_be_read_is_unknown(tmp_path: Path, summaries: dict[str, list[str]]) -> None:
    def fail(node: str, lines: Lines) -> Lines:
        lines[0]["head"]["problems"] = ["epochFileCheckpoint: damaged"]
        return lines

    result = judged(tmp_path, summaries, fail)
    assert result.verdict == Verdict.UNKNOWN
    assert "n1: epochFileCheckpoint: damaged" in result.reason


def test_a_pipe_in_place_of_a_summary_is_unknown_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "n1").mkdir(parents=True)
    os.mkfifo(tmp_path / "nodes" / "n1" / FILE)
    (result,) = judge(RunRecord(History([]), path=tmp_path), [GroundTruth()]).results
    assert result.verdict == Verdict.UNKNOWN
    assert "a pipe, not a regular file" in result.reason


def test_no_files_at_all(tmp_path: Path) -> None:
    assert GroundTruth().check(RunRecord(History([]), path=tmp_path)).verdict == Verdict.UNKNOWN


def unread(node: str, lines: Lines) -> Lines:
    """n2 keeps its queues in RocksDB, and nobody could read them."""
    if node == "n1":
        return lines
    lines[0]["head"]["problems"] = ["consumequeue: is RocksDB's, and cannot be read: so"]
    for line in lines:
        if isinstance(line, list):
            line[column("indexed")] = line[column("tagged")] = None
    return [line for line in lines if "dangling" not in line]


def test_queues_that_could_not_be_read_are_counted_and_not_judged(
    tmp_path: Path, summaries: dict[str, list[str]]
) -> None:
    """The logs are compared all the same: one replica without a reader for its queues is no unknown run."""
    result = judged(tmp_path / "a", summaries, unread, files=True, **sight())
    assert result.verdict == Verdict.VALID, result
    assert "could not be read: n2: consumequeue: is RocksDB's" in result.reason
    ((rule, used, why),) = [(excuse.rule, excuse.used, excuse.why) for excuse in result.excuses]
    assert (rule, used) == ("queues-unread", 148)
    assert why.startswith("n2: consumequeue")
    # The ground truth was asked for, so what it did not see leaves it open.
    truth = judged(tmp_path / "b", summaries, unread)
    assert (truth.verdict, names(truth)) == (Verdict.UNKNOWN, [])


def test_beside_queues_that_could_not_be_read_the_logs_are_judged(
    tmp_path: Path, summaries: dict[str, list[str]]
) -> None:
    """Planted: a byte of the log of n2, and a message that the readable index of n1 does not name."""

    def flip(node: str, lines: Lines) -> Lines:
        if node == "n2":
            lines[at_offset(lines, 0, 5)][column("crc")] ^= 1
        else:
            lines[at_offset(lines, 0, 7)][column("indexed")] = False
        return unread(node, lines)

    result = judged(tmp_path / "a", summaries, flip, files=True, **sight())
    assert names(result) == ["replicas-differ-on-disk", "unindexed"]

    def drop(node: str, lines: Lines) -> Lines:
        del lines[at_offset(lines, 0, 7)]
        return unread(node, lines)

    assert "lost" in names(judged(tmp_path / "b", summaries, drop))
