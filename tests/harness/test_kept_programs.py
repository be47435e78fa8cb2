# SPDX-License-Identifier: Apache-2.0
"""A kept cluster without the programs that a plan needs is refused before anything starts on it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run.lifecycle import _insist_on
from infra.machines.api import InfraError, Share


def cluster() -> Any:
    """Its node is this machine."""

    def run(argv: Sequence[str]) -> Any:
        return SimpleNamespace(text=subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    return SimpleNamespace(run_id="h1", nodes=[SimpleNamespace(run=run)])


def test_an_upgrade_to_a_version_that_its_nodes_lack_is_refused(tmp_path: Path) -> None:
    """All name servers were stopped, and none of them started with a version that was not there: four minutes of a
    cluster without a route, and a verdict about it.
    """
    has, lacks = Share(tmp_path, str(tmp_path / "5.1.0")), Share(tmp_path, str(tmp_path / "5.2.0"))
    Path(has.path).mkdir()
    _insist_on([has], cluster())
    with pytest.raises(InfraError, match=r"have no \S+/5\.2\.0: they were made for a plan with other versions"):
        _insist_on([has, lacks], cluster())
