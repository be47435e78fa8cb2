# SPDX-License-Identifier: Apache-2.0
"""`harness certify` on real servers, as docs/certify.md has it: an operator's files, a fault, and a sheet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from results.reading import read_toml
from results.store import RunDir
from rocketmq_harness.certify.sheet import Sheet

EXAMPLE = Path(__file__).parents[2] / "examples" / "certify"

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_a_sheet_is_made_of_a_real_run(tmp_path: Path) -> None:
    """The servers have the operator's settings, and their own defaults for all others: read back from the servers."""
    files = ["--broker-conf", EXAMPLE / "broker.conf", "--controller-conf", EXAMPLE / "controller.conf"]
    place = ["--store", tmp_path / "runs", "--output", tmp_path / "sheet.json"]
    servers = ["--version", "5.5.0", "--topology", "controller", "--replicas", "3"]
    argv = [sys.executable, "-m", "harness.cli", "certify", *files, *servers, "--fault", "kill", *place]
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    (row,) = (row for row in Sheet.read(tmp_path / "sheet.json").rows if not row.left_out)
    (run,) = row.runs
    assert (row.fault, run.why) == ("kill", "")
    assert run.silence_s is not None
    assert run.silence_s > 5, "a dead master is missed after production's ten seconds, not after the harness's three"
    folder = RunDir(Path(run.folder))
    assert read_toml(folder.path / "effective.toml")["server"]["profile"] == "given"
    effective = (folder.nodes / "n1" / "effective-broker.properties").read_text()
    assert "inSyncReplicas=2" in effective
    assert "haHousekeepingInterval=20000" in effective
