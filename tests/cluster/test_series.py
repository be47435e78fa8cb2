# SPDX-License-Identifier: Apache-2.0
"""Series of real runs: a night on a kept cluster, a finding that is reproduced, and two builds that are compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.cli.main import cli, guarded
from harness.compare.pairs import read_course
from harness.findings import record, reproduce
from harness.findings.rates import Fixed
from harness.nightly import night
from harness.nightly.ledger import read_ledger
from harness.nightly.matrix import read_matrix
from infra.machines import kept
from infra.systems.rocketmq.servers import artifacts

pytestmark = pytest.mark.cluster

MATRIX = """
time_limit = "8s"
[[cells]]
workload = ["log"]
topology = ["master-slave"]
version = ["5.5.0"]
client = ["remoting"]
nemesis = ["none", "kill-random-processes every=6s for=2s"]
options = "--cluster local --nodes 3"
"""


@pytest.mark.nightly
def test_a_night_of_two_cells(tmp_path: Path) -> None:
    before = set(kept.all_kept())
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX)
    found = read_matrix(path)
    result = night.Night()
    night.run_night(found, record.read_findings(), tmp_path, print, result, until=float("inf"), most=2)
    assert {e.cell for e in read_ledger(tmp_path)} == {cell.name for cell in found.cells}
    assert all(e.folder for e in result.entries), [e.why for e in result.entries]
    clusters = [json.loads((Path(e.folder) / "environment.json").read_text())["run_id"] for e in result.entries]
    if result.entries[0].verdict == "valid":
        assert clusters[0] == clusters[1]
    assert not result.failures
    assert set(kept.all_kept()) == before


@pytest.mark.nightly
def test_a_known_finding_shows_again(tmp_path: Path) -> None:
    finding = record.find(record.read_findings(), "18")
    assert finding is not None
    said: list[str] = []
    subject = reproduce.of_finding(finding)
    series = reproduce.reproduce(subject, Fixed(1), ["--cluster", "local", "--time-limit", "15"], tmp_path, said.append)
    assert (series.shown, series.runs, series.not_tried) == (1, 1, 0), said
    assert series.version == "5.5.0"


SUITE = """
time_limit = "4s"
[[cells]]
workload = ["log"]
topology = ["master-slave"]
version = ["5.5.0"]
client = ["remoting"]
nemesis = ["none"]
options = "--cluster local --nodes 1"
"""


@pytest.mark.nightly
def test_equal_builds_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One pair of real runs: own jars that differ in nothing are not worse, and both runs are really theirs."""
    (tmp_path / "lib").mkdir()
    shutil.copy(artifacts.fetch("5.5.0") / "rocketmq-store-5.5.0.jar", tmp_path / "lib")
    (tmp_path / "suite.toml").write_text(SUITE)
    words = ["--server-jars", str(tmp_path / "lib"), "--suite", str(tmp_path / "suite.toml")]
    argv = ["compare", *words, "--store", str(tmp_path / "store"), "--minutes", "0.01"]
    code = guarded(lambda: cli.main(argv, standalone_mode=False))
    said = capsys.readouterr().out
    (ledger,) = (tmp_path / "store").glob("*.jsonl")
    (pair,) = read_course(ledger).pairs
    assert (pair.new.verdict, pair.old.verdict) == ("valid", "valid"), said
    assert code == 0, said
    built = [
        json.loads((Path(one.folder) / "environment.json").read_text()).get("build") for one in (pair.new, pair.old)
    ]
    assert built == ["5.5.0 + own jars without a changed class", None]
    assert pair.new.figures is not None
    assert "acknowledged a second" in ledger.with_suffix(".html").read_text()


@pytest.mark.nightly
def test_a_hunt_finds_a_planted_defect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A master that does not wait for its slaves for two seconds after an election (mutant 1002); no plan names it."""
    before = set(kept.all_kept())
    mends = "--mend all,examples/mutants/1002-acknowledged-early-after-election.toml"
    argv = [
        "hunt",
        "--hours",
        "0.25",
        "--first",
        "--shrink-runs",
        "0",
        "--seed",
        "7",
        "--output",
        str(tmp_path / "hunt"),
    ]
    argv += ["--store", str(tmp_path / "runs"), "--option", mends, "--option", "--workload log --topology controller"]
    assert guarded(lambda: cli.main(argv, standalone_mode=False)) == 1
    assert "NEW   " in capsys.readouterr().out
    account = (tmp_path / "hunt" / "hunt.md").read_text()
    assert "`lost`" in account
    assert set(kept.all_kept()) == before
