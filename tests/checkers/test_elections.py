# SPDX-License-Identifier: Apache-2.0
"""The judge of needless elections: a planted scan that proposes them, and good histories on which it must be silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from checkers.servers.elections import Elections
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

Lines = Sequence[tuple[float, str]]
"""Seconds since the start of the run, and the line."""

FORCED = "Controller Manager received broker inactive event, clusterName: null, brokerName: a, brokerId: null"
EXPIRED = "Controller Manager received broker inactive event, clusterName: c, brokerName: a, brokerId: 1"
REFUSED = "The old master 1 is still alive, not need to elect new master for broker a"
ELECTED = "Elect new master 2 for broker a"


def judged(folder: Path, logs: Mapping[str, Lines], name: str = "controller.log") -> CheckResult:
    paths: dict[str, list[Path]] = {}
    for node, lines in logs.items():
        path = folder / node / name
        path.parent.mkdir(parents=True)
        path.write_text(
            "".join(f"2026-01-01 00:{at // 60:02.0f}:{at % 60:06.3f} WARN x - {text}\n" for at, text in lines)
        )
        paths[node] = [path]
    servers = [ServerRecord(node, "controller") for node in ("n1", "n2", "n3")]
    record = RunRecord(
        History([]),
        environment={"started_at": "2026-01-01T00:00:00.000000+00:00"},
        logs=paths,
        deployment=DeploymentRecord("toy", dict.fromkeys(("n1", "n2", "n3"), ""), servers),
    )
    assert Elections.concerns(record)
    return Elections().check(record)


def refusals(times: Sequence[float], tries: int = 3) -> Lines:
    """Proposals of a leader, each tried again at once, and refused each time."""
    return [pair for at in times for pair in [(at, FORCED), *[(at + 0.01 * (n + 1), REFUSED) for n in range(tries)]]]


def test_a_scan_that_goes_on_proposing_is_found(tmp_path: Path) -> None:
    applied = [(at + 0.02, REFUSED) for at in range(10, 52)]  # the other controllers apply what the leader proposed
    result = judged(tmp_path, {"n1": refusals(range(10, 52)), "n2": applied, "n3": applied})
    (found,) = result.anomalies
    assert (result.verdict, found.name) == (Verdict.INVALID, "needless-election")
    assert "42 elections for the group a in 41 s" in found.summary
    assert "broker 1" in found.summary
    assert result.stats["needless"] == {"a": 42}


def test_a_controller_in_a_name_server_is_read_too(tmp_path: Path) -> None:
    assert judged(tmp_path, {"n2": refusals(range(6))}, "namesrv.log").verdict == Verdict.INVALID


@pytest.mark.parametrize(
    "lines",
    [
        refusals(range(5)),  # the master comes and goes: as many as are allowed
        refusals(range(0, 58, 7)),  # never more than five within 30 s
        [(at, REFUSED) for at in range(40)],  # brokers asked; or a controller applies its log again
        [pair for at in range(40) for pair in [(at, EXPIRED), (at + 0.1, REFUSED)]],  # the master had been silent
        [pair for at in range(40) for pair in [(at, FORCED), (at + 0.1, ELECTED)]],
        [pair for at in range(0, 200, 5) for pair in [(at, FORCED), (at + 4, REFUSED)]],  # an answer of somebody else's
    ],
)
def test_elections_with_a_cause_are_not_told(lines: Lines, tmp_path: Path) -> None:
    result = judged(tmp_path, {"n1": lines})
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])


def test_a_run_without_logs_of_controllers_is_not_judged() -> None:
    assert not Elections.concerns(RunRecord(History([])))


def test_a_refusal_before_the_start_of_the_run_is_no_failure(tmp_path: Path) -> None:
    """Servers start, and write, before the run does: such a line made the judge fail, and the verdict unknown."""
    path = tmp_path / "n1" / "controller.log"
    path.parent.mkdir()
    path.write_text(f"2025-12-31 23:59:50.000 WARN x - {REFUSED}\n")
    servers = [ServerRecord("n1", "controller")]
    record = RunRecord(
        History([]),
        environment={"started_at": "2026-01-01T00:00:00.000000+00:00"},
        logs={"n1": [path]},
        deployment=DeploymentRecord("toy", {"n1": ""}, servers),
    )
    assert Elections().check(record).verdict == Verdict.VALID
