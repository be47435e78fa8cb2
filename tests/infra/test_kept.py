# SPDX-License-Identifier: Apache-2.0
"""Records of kept clusters: found again by who made them, and by nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.machines import kept
from infra.machines.api import InfraError
from infra.machines.keys import new_cluster_keys
from results.durable import write_text


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kept.Kept:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    keys = new_cluster_keys(["n1", "n2"])
    made = kept.Kept.of("docker", "h1/x", {"n1": "198.18.0.11", "n2": "198.18.0.12"}, keys, {"image": "i"}, "the plan")
    kept.save(made)
    return made


def test_what_was_kept_is_found_again(record: kept.Kept) -> None:
    found = kept.known("h1/x")
    assert found == record
    assert kept.all_kept() == ["h1/x"]
    assert found.keys.client.pkey == record.keys.client.pkey
    assert {name: pair.pkey for name, pair in found.keys.hosts.items()}.keys() == {"n1", "n2"}
    kept.forget("h1/x")
    kept.forget("h1/x")
    assert kept.found("h1/x") is None


def test_nobody_else_can_read_it(record: kept.Kept, tmp_path: Path) -> None:
    (path,) = (tmp_path / "kept").glob("*.json")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_what_is_not_there_or_broken_is_told(record: kept.Kept, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="no kept cluster 'h2'; there are: h1/x"):
        kept.known("h2")
    (path,) = (tmp_path / "kept").glob("*.json")
    write_text(path, "{", "a broken record")
    with pytest.raises(InfraError, match="the record of the kept cluster h1/x cannot be read"):
        kept.found("h1/x")
    assert kept.is_on_record("h1/x")
    assert kept.all_kept() == []


def test_a_record_of_an_earlier_harness_is_read(record: kept.Kept, tmp_path: Path) -> None:
    (path,) = (tmp_path / "kept").glob("*.json")
    write_text(path, json.dumps({**json.loads(path.read_text()), "user": "1.2.boot"}), "a record")
    assert kept.known("h1/x") == record
