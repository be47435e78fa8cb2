# SPDX-License-Identifier: Apache-2.0
"""The judge of applied indices: a member that is stuck, and those that are late, restarted, or under a fault."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from checkers.servers.applying import Applying
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import NEMESIS, Op
from results.record import RunRecord

S = 1_000_000_000
START = datetime(2026, 1, 1)


Reports = Sequence[tuple[int, int]]


def run(
    folder: Path, reports: Reports, kind: str = "controller", fault: int | None = None, others: Reports = ()
) -> RunRecord:
    """n1 reports (committed, applied) every 3 s, n2 a second later. fault: the begin (s) of one without a heal."""
    logs = {}
    for node, told, late in (("n1", reports, 0), ("n2", others, 1)):
        path = folder / node / f"{kind}.log"
        path.parent.mkdir(exist_ok=True)
        lines = [
            f"{START + timedelta(seconds=3 * n + late):%Y-%m-%d %H:%M:%S}.000 INFO QuorumAckChecker-{node} "
            f"DLedgerEntryPusher - [{node}][FOLLOWER] term=2 ledgerBegin=0 ledgerEnd={c} committed={c} watermarks={{}} "
            f"appliedIndex={a}\n"
            for n, (c, a) in enumerate(told)
        ]
        path.write_text("".join(lines))
        logs[node] = [path]
    what = {"fault": "trouble", "id": 1}
    ops = (
        []
        if fault is None
        else [Op(n, fault * S, NEMESIS, ("invoke", "info")[n], "inject", None, what) for n in (0, 1)]
    )
    deployment = DeploymentRecord("toy", dict.fromkeys(logs, ""), [ServerRecord(node, kind) for node in logs])
    return RunRecord(
        History(ops),
        environment={"started_at": f"{START.isoformat()}+00:00"},
        logs=logs,
        deployment=deployment,
    )


STUCK = [(30, 30), *[(30 + n, 27) for n in range(1, 8)]]


@pytest.mark.parametrize(
    ("reports", "expected_s"),
    [
        (STUCK, 18),
        (STUCK[:6], None),  # 12 s
        ([*STUCK, (40, 40)], 18),
        ([(30 + n, 20 + n) for n in range(12)], None),  # it is late, but goes on
        ([(30, -1)] * 3 + [(30, 30)] + [(31, 30)] * 4, None),
        ([(30, 30)] * 12, None),
    ],
)
def test_a_member_that_applies_nothing(
    reports: Sequence[tuple[int, int]], expected_s: int | None, tmp_path: Path
) -> None:
    result = Applying().check(run(tmp_path, reports))
    assert [a.name for a in result.anomalies] == ([] if expected_s is None else ["stuck-state-machine"])
    if expected_s is not None:
        end = ", up to the end" if reports[-1] == STUCK[-1] else ""
        assert f"n1 applied no entry for {expected_s} s{end} (limit 15 s)" in result.anomalies[0].summary
        assert result.anomalies[0].details["applied"] == 27


def test_a_fault_is_an_excuse(tmp_path: Path) -> None:
    assert not Applying().check(run(tmp_path, STUCK, fault=9)).anomalies
    assert Applying().check(run(tmp_path, STUCK, fault=60)).anomalies


BEHIND = [(30, 30)] * 14


@pytest.mark.parametrize(
    ("reports", "others", "expected_s"),
    [
        (BEHIND, [(30 + n, 30 + n) for n in range(14)], 33),
        (BEHIND[:12], [(30 + n, 30 + n) for n in range(12)], None),  # 27 s
        (BEHIND, [(30, 30)] * 14, None),
        ([(30 + n, 30 + n) for n in range(14)], [(90 + n, 90 + n) for n in range(14)], None),  # it goes on
        (BEHIND, [(31, 31)] * 3, None),  # the other one is silent since
    ],
)
def test_a_member_that_its_group_leaves_behind(
    reports: Reports, others: Reports, expected_s: int | None, tmp_path: Path
) -> None:
    result = Applying().check(run(tmp_path, reports, others=others))
    assert [a.name for a in result.anomalies] == ([] if expected_s is None else ["controller-left-behind"])
    if expected_s is not None:
        said = (
            f"n1 committed no entry for {expected_s} s, up to the end (limit 30 s), although no fault was active: its"
        )
        assert f"{said} committed index is 30, and that of another controller 42" in result.anomalies[0].summary
    assert not Applying().check(run(tmp_path, reports, others=others, fault=3)).anomalies


def test_a_broker_has_no_state_machine(tmp_path: Path) -> None:
    record = run(tmp_path, [(30, -1)] * 12, kind="broker")
    assert not Applying.concerns(record)
