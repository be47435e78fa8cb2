# SPDX-License-Identifier: Apache-2.0
"""Judges of server logs and of DLedger's invariants, on hand-written logs with planted breaches."""

from pathlib import Path

import pytest

from checkers.base.evidence import last_lines
from checkers.servers.dledger import DledgerInvariants
from checkers.servers.logs import DEFECTS, ServerLogs
from results.history import History
from results.record import Observation, RunRecord
from results.verdict import Verdict

S = 1_000_000_000
START = "2026-01-01T00:00:00.000000+00:00"


def record(folder: Path, logs: dict[str, list[str]], observations: tuple[Observation, ...] = ()) -> RunRecord:
    paths: dict[str, list[Path]] = {}
    for node, lines in logs.items():
        (folder / node).mkdir(parents=True)
        path = folder / node / "server.log"
        path.write_text("".join(line + "\n" for line in lines))
        paths[node] = [path]
    return RunRecord(History([]), environment={"started_at": START}, observations=observations, logs=paths)


def line(second: int, text: str) -> str:
    return f"2026-01-01 00:00:{second:02d}.500 INFO [main] x - {text}"


def at(second: int, role: str, committed: int, end: int) -> str:
    output = f"term=3 ledgerBeforeBegin=-1 ledgerEnd={end} committed={committed} watermarks={{}} appliedIndex=5"
    return line(second, f"[n1][{role}] {output}")


TRUNCATED = "[TRUNCATE] truncateIndex: {}, after truncate, ledgerEndIndex: -1 ledgerEndTerm: -1"
RESTART = "[MemberState] load persistent state ok. term=3 voteFor=n1"


@pytest.mark.parametrize(
    ("lines", "anomaly"),
    [
        ([at(1, "FOLLOWER", 10, 12), at(4, "LEADER", 20, 20)], None),
        ([at(1, "FOLLOWER", 10, 12), at(4, "FOLLOWER", 9, 12)], "committed-fell"),
        ([at(1, "FOLLOWER", 10, 12), line(2, RESTART), at(4, "FOLLOWER", -1, 12)], None),
        ([at(1, "FOLLOWER", 200, 12)], "committed-beyond-log"),
        ([at(1, "FOLLOWER", 14, 12)], None),
        ([at(1, "FOLLOWER", 10, 12), line(2, TRUNCATED.format(11))], None),
        ([at(1, "FOLLOWER", 10, 12), line(2, TRUNCATED.format(0))], "truncated-committed-entries"),
        ([at(1, "FOLLOWER", 10, 12), line(2, RESTART), line(3, TRUNCATED.format(0))], None),
    ],
)
def test_positions(lines: list[str], anomaly: str | None, tmp_path: Path) -> None:
    result = DledgerInvariants(["n1"]).check(record(tmp_path, {"n1": lines}))
    assert [a.name for a in result.anomalies] == ([anomaly] if anomaly else [])
    assert result.verdict == (Verdict.INVALID if anomaly else Verdict.VALID)


def push(second: int, old: str, new: str, peer: str = "n3") -> str:
    return line(second, f"[Push-{peer}]Change state from {old} to {new}, matchIndex: -1, writeIndex: 0")


def rounds(count: int) -> list[str]:
    return [
        text
        for n in range(count)
        for text in (push(3 * n, "COMPARE", "INSTALL_SNAPSHOT"), push(3 * n + 2, "INSTALL_SNAPSHOT", "COMPARE"))
    ]


@pytest.mark.parametrize(
    ("lines", "loops"),
    [
        (rounds(4), 0),
        (rounds(6), 1),
        # Refused at once, while the follower is busy with one installation.
        (rounds(1) * 40, 0),
        ([*rounds(3), push(10, "INSTALL_SNAPSHOT", "APPEND"), *rounds(4)], 0),
        ([*rounds(6), push(20, "INSTALL_SNAPSHOT", "APPEND"), *rounds(6)], 2),
    ],
)
def test_a_snapshot_that_is_installed_for_ever(lines: list[str], loops: int, tmp_path: Path) -> None:
    logs = {"n1": [at(0, "LEADER", 1, 1), *lines]}
    result = DledgerInvariants(["n1"]).check(record(tmp_path, logs))
    assert [a.name for a in result.anomalies] == ["snapshot-install-loop"] * loops


SAVED = "SnapshotManager - Snapshot SnapshotMeta{lastIncludedIndex=9, lastIncludedTerm=1} saved successfully"
INSTALLED = "[DoInstallSnapshot-n3]install snapshot success, lastIncludedIndex = 9, lastIncludedTerm"


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [([], Verdict.UNKNOWN), ([SAVED], Verdict.UNKNOWN), ([SAVED, INSTALLED], Verdict.VALID)],
)
def test_snapshot_mode_must_have_saved_and_installed(texts: list[str], verdict: Verdict, tmp_path: Path) -> None:
    logs = {"n1": [at(0, "LEADER", 1, 1), *(line(2, text) for text in texts)]}
    assert DledgerInvariants(["n1"], snapshots=True).check(record(tmp_path, logs)).verdict == verdict


def test_two_leaders_in_a_term_from_logs_and_observations(tmp_path: Path) -> None:
    elected = "[n2] [VOTE_RESULT] has been elected to be the leader in term 4"
    seen = (Observation(1 * S, "n1", "leader", term=4), Observation(2 * S, "n2", "leader", term=5))
    logs = {"n1": [at(1, "LEADER", 1, 1)], "n2": [line(2, elected)]}
    result = DledgerInvariants(["n1", "n2"]).check(record(tmp_path, logs, seen))
    assert [a.name for a in result.anomalies] == ["two-leaders-in-a-term"]
    assert "term 4 had 2 leaders: n1, n2" in result.reason


def test_no_evidence_is_unknown(tmp_path: Path) -> None:
    empty = RunRecord(History([]))
    assert DledgerInvariants(["n1"]).check(empty).verdict == Verdict.UNKNOWN
    assert ServerLogs().check(empty).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize("what", list(DEFECTS))
def test_defects_fail_the_run(what: str, tmp_path: Path) -> None:
    result = ServerLogs().check(record(tmp_path, {"n1": [line(1, "fine"), line(2, f"oh {what} here")]}))
    assert result.verdict == Verdict.INVALID
    assert "n1" in result.reason
    assert result.anomalies[0].window == (2_500_000_000, 2_500_000_000)


def test_network_exceptions_are_counted_and_permitted(tmp_path: Path) -> None:
    lines = [line(1, "java.net.ConnectException: refused"), "\tat java.net.ConnectException.x(Y.java)"]
    result = ServerLogs().check(record(tmp_path, {"n1": lines}))
    assert result.verdict == Verdict.VALID
    assert result.stats["exceptions"] == {"ConnectException": 1}


def test_a_jvm_crash_fails_the_run(tmp_path: Path) -> None:
    run = record(tmp_path, {"n1": [line(1, "fine")]})
    crash = tmp_path / "n1" / "hs_err_pid7.log"
    crash.write_text("# SIGSEGV")
    broken = RunRecord(run.history, logs={"n1": [*run.logs["n1"], crash]})
    assert [a.name for a in ServerLogs().check(broken).anomalies] == ["jvm-crash"]


def test_last_lines_stop_at_the_moment(tmp_path: Path) -> None:
    run = record(tmp_path, {"n1": [line(s, f"line {s}") for s in range(30)]})
    output = last_lines(run, "n1", 10 * S, count=2)
    assert [text[-6:] for text in output] == ["line 8", "line 9"]
