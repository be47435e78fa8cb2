# SPDX-License-Identifier: Apache-2.0
"""The benchmark of members runs on real servers, small: a figure of the docs that nobody can measure again is none."""

from __future__ import annotations

import pytest

from benchmarks import applications

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_it_prints_all_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(applications, "ROUNDS", 1)
    monkeypatch.setattr("sys.argv", ["applications", "300"])
    applications.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in (*lines[:3], lines[4])] == ["start", "start", "without", "own"]
    assert all(float(line.rpartition(" ")[2]) > 0 for line in (lines[2], lines[4]))
