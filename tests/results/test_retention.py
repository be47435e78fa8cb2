# SPDX-License-Identifier: Apache-2.0
"""The removal of old runs: only runs, only old ones, none that is under way, nothing through a link."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sim.rig import prepared

from harness.cli.main import cli, guarded
from harness.plan.plan import ClusterPlan, Plan
from harness.run import lifecycle
from harness.run.virtual_time import VirtualTimeLoop
from results.retention import Pruned, prune
from results.store import RunDir, Store

NOW = datetime.now()
OLD = NOW - timedelta(days=40)
VERDICT = '{"verdict": "valid", "reason": "fine"}'
LIMIT = NOW - timedelta(days=30)


def made(root: Path, when: datetime, name: str = "log-none") -> RunDir:
    """A run with a verdict, and a log of one node."""
    run = Store(root).create(name, "seed = 7\n", when)
    run.verdict.write_text(VERDICT)
    (run.nodes / "n1").mkdir()
    (run.nodes / "n1" / "broker.log").write_text("x" * 1000)
    return run


def test_old_runs_go_and_others_stay(tmp_path: Path) -> None:
    """With their sizes; a dry run removes nothing. Links `latest` that would lead nowhere go too, and empty folders."""
    old, young = made(tmp_path, OLD, "log-old"), made(tmp_path, NOW)
    beside = tmp_path / "nightly.jsonl"
    beside.write_text("{}\n")
    for dry in (True, False):
        (found,) = prune(Store(tmp_path), LIMIT, dry_run=dry)
        assert (found.path, found.kept) == (old.path, None)
        assert found.size == 1000 + len("seed = 7\n") + len(VERDICT)
        assert old.path.exists() == dry
    assert not (tmp_path / "log-old").exists()
    assert (tmp_path / "latest").resolve() == young.path
    assert beside.exists()
    list(prune(Store(tmp_path), NOW + timedelta(days=1)))
    assert [path.name for path in tmp_path.iterdir()] == ["nightly.jsonl"]


def test_a_run_under_way_stays(tmp_path: Path) -> None:
    """Also one of another process; after its end it goes."""
    run = made(tmp_path, OLD)
    program = "import sys\nfrom pathlib import Path\nfrom results.store import RunDir\n"
    program += "with RunDir(Path(sys.argv[1])).held():\n    print(flush=True)\n    input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, run.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (found,) = prune(Store(tmp_path), LIMIT)
        assert found.kept == "it is under way"
        assert run.plan.exists()
        other.communicate(b"\n")
    (found,) = prune(Store(tmp_path), LIMIT)
    assert found.kept is None


def test_a_run_of_the_harness_is_under_way_until_its_verdict(tmp_path: Path) -> None:
    """Each of its lines comes while its folder is locked; a moment later nothing protects it but its age."""
    store = Store(tmp_path)
    found: list[Pruned] = []
    tomorrow = NOW + timedelta(days=1)
    plan = Plan("register", 5, 10.0, 60.0, cluster=ClusterPlan("sim"), nemeses=())
    lifecycle.run(prepared(plan), store, lambda _: found.extend(prune(store, tomorrow, dry_run=True)), VirtualTimeLoop)
    assert {one.kept for one in found} == {"it is under way"}
    assert [one.kept for one in prune(store, tomorrow, dry_run=True)] == [None]


def test_what_may_be_no_run_or_not_ended_stays(tmp_path: Path) -> None:
    """A folder without a plan; a run without a verdict whose files still change (of a version without the lock)."""
    bare, active = made(tmp_path, OLD, "a"), made(tmp_path, OLD, "b")
    bare.plan.unlink()
    active.verdict.unlink()
    reasons = [found.kept for found in prune(Store(tmp_path), LIMIT)]
    assert all(reasons)
    assert bare.path.exists()
    assert active.path.exists()
    os.utime(active.plan, (0, 0))
    os.utime(active.nodes, (0, 0))
    (gone,) = [found for found in prune(Store(tmp_path), LIMIT) if found.kept is None]
    assert gone.path == active.path


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither a kind, nor a run, nor a folder or file in a run that is a link to somewhere else."""
    store, outside = tmp_path / "store", tmp_path / "outside"
    foreign = made(outside, OLD)
    run = made(store, OLD)
    (store / "log-linked").symlink_to(foreign.path.parent)
    (store / "log-none" / "2026-01-01T00-00-00").symlink_to(foreign.path)
    (run.nodes / "n2").symlink_to(foreign.path)
    (run.path / "plots").symlink_to(foreign.nodes / "n1" / "broker.log")
    (found,) = prune(Store(store), LIMIT)
    assert (found.path, found.kept) == (run.path, None)
    assert not run.path.exists()
    assert (foreign.nodes / "n1" / "broker.log").read_text() == "x" * 1000
    assert foreign.plan.exists()


def test_an_interrupted_removal_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a run is no run: it is hidden from the first moment, and the next call removes the rest."""
    made(tmp_path, OLD)
    with monkeypatch.context() as patch:
        patch.setattr(
            "results.retention.shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(OSError(5, "I/O error"))
        )
        (found,) = prune(Store(tmp_path), LIMIT)
        assert (found.kept, found.failed) == ("it could not be removed: I/O error", True)
    assert Store(tmp_path).runs() == []
    assert list(prune(Store(tmp_path), LIMIT)) == []
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a run, and the sum."""
    run = made(tmp_path, OLD)
    words = ["store", "prune", "--keep-days", "30", "--store", str(tmp_path)]
    for dry, first, last in ((["--dry-run"], "would remove", "would be removed"), ([], "removed", "removed")):
        assert guarded(lambda dry=dry: cli.main([*words, *dry], standalone_mode=False)) == 0  # type: ignore[misc]
        one, total = capsys.readouterr().out.splitlines()
        assert one.split("  ")[0] == first
        assert one.endswith(f"  log-none/{run.path.name}")
        assert total == f"1 run, 1.0 KiB, {last} from {tmp_path}"
    assert not run.path.exists()
