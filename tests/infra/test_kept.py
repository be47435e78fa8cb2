"""Records of kept clusters: found again by who made them, by nobody else, and never by two at a time."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infra import kept
from infra.api import InfraError
from infra.keys import new_cluster_keys
from infra.ownership import Owner
from results.durable import write_text


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kept.Kept:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    keys = new_cluster_keys(["n1", "n2"])
    made = kept.Kept.of("docker", "h1/x", {"n1": "198.18.0.11", "n2": "198.18.0.12"}, keys, {"image": "i"}, "the plan")
    kept.save(made)
    return made


def test_what_was_kept_is_found_again(record: kept.Kept) -> None:
    found = kept.take("h1/x")
    assert replace(found, user="") == record
    assert found.in_use
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


def test_two_cannot_use_it_at_a_time(record: kept.Kept) -> None:
    with subprocess.Popen(["sleep", "infinity"]) as other:
        try:
            kept.save(replace(record, user=str(Owner.of(other.pid))))
            with pytest.raises(InfraError, match=f"in use by process {other.pid}"):
                kept.take("h1/x")
        finally:
            other.kill()
    assert kept.take("h1/x").in_use, "its user has died"


def test_what_is_not_there_or_broken_is_told(record: kept.Kept, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="no kept cluster 'h2'; there are: h1/x"):
        kept.take("h2")
    (path,) = (tmp_path / "kept").glob("*.json")
    write_text(path, "{", "a broken record")
    with pytest.raises(InfraError, match="the record of the kept cluster h1/x cannot be read"):
        kept.found("h1/x")
