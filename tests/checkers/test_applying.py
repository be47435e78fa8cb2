"""The judge of applied indices: a member that is stuck, and those that are late, restarted, or under a fault."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from checkers.applying import Applying
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import NEMESIS, Op
from results.record import RunRecord

S = 1_000_000_000
START = datetime(2026, 1, 1)


def run(
    folder: Path, reports: Sequence[tuple[int, int]], kind: str = "controller", fault: int | None = None
) -> RunRecord:
    """n1 tells (committed, applied) every 3 s. fault: when one begins that nobody heals, in s."""
    path = folder / f"{kind}.log"
    lines = [
        f"{START + timedelta(seconds=3 * n):%Y-%m-%d %H:%M:%S}.000 INFO QuorumAckChecker-n1 DLedgerEntryPusher - "
        f"[n1][FOLLOWER] term=2 ledgerBegin=0 ledgerEnd={c} committed={c} watermarks={{}} appliedIndex={a}\n"
        for n, (c, a) in enumerate(reports)
    ]
    path.write_text("".join(lines))
    what = {"fault": "trouble", "id": 1}
    ops = (
        []
        if fault is None
        else [Op(n, fault * S, NEMESIS, ("invoke", "info")[n], "inject", None, what) for n in (0, 1)]
    )
    deployment = DeploymentRecord("toy", {"n1": ""}, [ServerRecord("n1", kind)])
    return RunRecord(
        History(ops),
        environment={"started_at": f"{START.isoformat()}+00:00"},
        logs={"n1": [path]},
        deployment=deployment,
    )


STUCK = [(30, 30), *[(30 + n, 27) for n in range(1, 8)]]


@pytest.mark.parametrize(
    ("reports", "told"),
    [
        (STUCK, 18),
        (STUCK[:6], None),  # 12 s
        ([*STUCK, (40, 40)], 18),
        ([(30 + n, 20 + n) for n in range(12)], None),  # it is late, but goes on
        ([(30, -1)] * 3 + [(30, 30)] + [(31, 30)] * 4, None),
        ([(30, 30)] * 12, None),
    ],
)
def test_a_member_that_applies_nothing(reports: Sequence[tuple[int, int]], told: int | None, tmp_path: Path) -> None:
    result = Applying().check(run(tmp_path, reports))
    assert [a.name for a in result.anomalies] == ([] if told is None else ["stuck-state-machine"])
    if told is not None:
        end = ", up to the end" if reports[-1] == STUCK[-1] else ""
        assert f"n1 applied no entry for {told} s{end} (limit 15 s)" in result.anomalies[0].summary
        assert result.anomalies[0].details["applied"] == 27


def test_a_fault_is_an_excuse(tmp_path: Path) -> None:
    assert not Applying().check(run(tmp_path, STUCK, fault=9)).anomalies
    assert Applying().check(run(tmp_path, STUCK, fault=60)).anomalies


def test_a_broker_has_no_state_machine(tmp_path: Path) -> None:
    record = run(tmp_path, [(30, -1)] * 12, kind="broker")
    assert not Applying.concerns(record)
