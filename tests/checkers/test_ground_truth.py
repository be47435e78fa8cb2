"""The judge of the disks: silent on files of real brokers that agree with what was acknowledged, not on others."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkers.api import judge
from checkers.log.storage import FILE, GroundTruth
from infra.systems.rocketmq.store.summary import LINE, summarize
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

STORES = Path(__file__).parent.parent / "data" / "rocketmq" / "stores-5.5.0.zip"
Lines = list[Any]


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the disks of the two real brokers hold of the topic."""
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
    folder: Path, summaries: dict[str, list[str]], spoil: Callable[[str, Lines], Lines] | None = None, **more: Any
) -> CheckResult:
    """The verdict on disks that `spoil(node, lines)` has changed."""
    for node, summary in summaries.items():
        lines = [json.loads(line) for line in summary]
        lines = lines if spoil is None else spoil(node, lines)
        path = folder / "nodes" / node / FILE
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return GroundTruth().check(RunRecord(history(summaries["n1"]), path=folder, **more))


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
            for line in lines[1:]:
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

    assert names(judged(tmp_path, summaries, dangle)) == ["broken-index"]


def test_old_entries_behind_the_end_are_what_a_truncation_leaves(
    tmp_path: Path, summaries: dict[str, list[str]]
) -> None:
    def leave(node: str, lines: Lines) -> Lines:
        return [*lines, {"dangling": ["log-fixture", 0, 5000, 99, 100]}]

    assert judged(tmp_path, summaries, leave).verdict == Verdict.VALID


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
