# SPDX-License-Identifier: Apache-2.0
"""etcd of Debian's packages, described by the example: a mistake of its client is found on real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import run

ETCD = Path(__file__).parents[2] / "examples" / "any" / "etcd" / "etcd.toml"
SHORT = ("--nodes", "3", "--time-limit", "10", "--interval", "20", "--duration", "5", "--seed", "11")

pytestmark = pytest.mark.cluster


def etcd(store: Path, *more: str) -> tuple[int, dict[str, str]]:
    """Exit code of a run with a partition, and name of each judge -> its verdict."""
    words = ("--cluster", "docker", "--workload", "any", "--system", str(ETCD), "--model", "register", *SHORT, *more)
    ended = run(*words, store=store)
    results = ended.verdict["results"]
    return ended.code, {str(one["checker"]): str(one["verdict"]) for one in results}


def test_reads_of_one_member_alone_are_stale(tmp_path: Path) -> None:
    """Everything else is in order: the packages are on the nodes, the clients answer, the partition took effect."""
    code, verdicts = etcd(tmp_path / "store", "--client-arg", "serializable")
    assert code == 1
    assert [name for name, verdict in verdicts.items() if verdict != "valid"] == ["linearizability"]


@pytest.mark.nightly
def test_reads_through_the_leader_are_not(tmp_path: Path) -> None:
    """CI judges right objects in virtual time (`workloads/test_any_system.py`)."""
    code, verdicts = etcd(tmp_path / "store")
    assert code == 0
    assert verdicts["linearizability"] == verdicts["client-programs"] == "valid"
