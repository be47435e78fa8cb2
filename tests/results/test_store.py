# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from results import store as stores
from results.errors import HistoryError, StoreError
from results.evidence import changes, digests
from results.journal import Journal
from results.observations import ObservationLog, read_observations
from results.op import Op
from results.record import BEGUN, COMPLETE, Observation, RunRecord
from results.sealed import seal, sealed_metadata
from results.store import RunDir, Store, load
from results.verdict import CheckResult, Judgement, Verdict
from results.verdict_file import write_verdict

NOW = datetime(2026, 11, 21, 6, 12, 44)
OPS = [Op(0, 0, 0, "invoke", "read", "r1"), Op(1, 5, 0, "ok", "read", "r1", 3)]


def new(root: Path, name: str = "register-none", now: datetime = NOW) -> RunDir:
    return Store(root).create(name, "seed = 7\n", now)


def journalled(run: RunDir) -> RunDir:
    with Journal(run.journal) as journal:
        for op in OPS:
            journal.append(op)
    return run


def test_a_run_has_its_folder_its_plan_and_the_links(tmp_path: Path) -> None:
    run = new(tmp_path)
    assert run.path == tmp_path / "register-none" / "2026-11-21T06-12-44"
    assert run.plan.read_text() == "seed = 7\n"
    assert os.readlink(tmp_path / "latest") == "register-none/2026-11-21T06-12-44"
    assert os.readlink(tmp_path / "register-none" / "latest") == "2026-11-21T06-12-44"
    again = new(tmp_path)
    assert again.path.name == "2026-11-21T06-12-44-2"
    assert new(tmp_path).path.name == "2026-11-21T06-12-44-3"
    other = new(tmp_path, "register-hammer-time")
    assert (tmp_path / "latest").resolve() == other.path
    assert (tmp_path / "register-none" / "latest").resolve().name == "2026-11-21T06-12-44-3"


def test_a_killed_run_can_be_loaded(tmp_path: Path) -> None:
    run = journalled(new(tmp_path))
    with run.journal.open("ab") as file:
        file.write(b'{"index":2,"tim')
    run.environment.write_text('{"kernel": "6.1"}')
    with run.observations.open("w") as file:
        file.write(
            '{"time":9,"node":"n2","role":"leader","term":3}\n{"time":4,"node":"n1","role":"silent"}\n{"time":12,"no'
        )
    (run.nodes / "n1" / "gc").mkdir(parents=True)
    (run.nodes / "n1" / "server.log").write_text("x")
    (run.nodes / "n1" / "gc" / "gc.log").write_text("x")
    (run.nodes / "n1" / "link").symlink_to("/etc/hostname")
    record = load(run.path)
    assert list(record.history) == OPS
    assert record.plan == {"seed": 7}
    assert record.environment == {"kernel": "6.1", "history": "the last 15 bytes were torn and are left out"}
    assert [seen.node for seen in record.observations] == ["n1", "n2"]
    assert record.logs == {"n1": [run.nodes / "n1" / "gc" / "gc.log", run.nodes / "n1" / "server.log"]}
    assert record.path == run.path


def test_the_sealed_history_comes_first_and_carries_the_run(tmp_path: Path) -> None:
    run = journalled(new(tmp_path))
    run.seal(run.load())
    facts = sealed_metadata(run.history)
    assert json.loads(facts["plan"]) == {"seed": 7}
    assert facts["run"] == "register-none/2026-11-21T06-12-44"
    other = [Op(0, 0, 0, "invoke", "write", "r1", 1)]
    seal(other, run.history)
    assert list(run.load().history) == other


@pytest.mark.parametrize(
    "text",
    [
        '{"kernel": "6.1',
        "[1]",
        '{"permits": "{"a":"}',
        '{"permits": "[1]"}',
        '{"permits": 7}',
        '{"permits_after": "x"}',
        '{"permits": {"lost": 7}}',
        '{"permits_after": {"unsynced-lost": {"lost": {"why": 5}}}}',
    ],
)
def test_a_damaged_environment_is_one_line_that_names_it(text: str, tmp_path: Path) -> None:
    """It decides what a run permits: without it a permitted loss would be a finding, or a checker would fail."""
    run = journalled(new(tmp_path))
    run.environment.write_text(text)
    with pytest.raises(HistoryError, match=r"environment\.json: the environment is damaged: ") as error:
        run.load()
    assert "\n" not in str(error.value)


def test_the_history_of_another_run_is_refused(tmp_path: Path) -> None:
    """The file itself says which run it is of. A folder may have another name: what was noted of the run decides."""
    first, second = journalled(new(tmp_path)), journalled(new(tmp_path))
    for run, begun in ((first, "2026-11-21T06:12:44"), (second, "2026-11-21T06:12:45")):
        run.environment.write_text(json.dumps({"begun_at": begun}))
        run.seal(run.load())
    moved = RunDir(tmp_path / "elsewhere")
    first.path.rename(moved.path)
    assert list(moved.load().history) == OPS
    moved.history.write_bytes(second.history.read_bytes())
    with pytest.raises(HistoryError, match="it is the history of another run, register-none/2026-11-21T06-12-44-2"):
        moved.load()
    moved.environment.unlink()
    moved.plan.write_text("seed = 8\n")
    with pytest.raises(HistoryError, match="it is the history of another run"):
        moved.load()


def test_evidence_has_digests(tmp_path: Path) -> None:
    """Of what a verdict is made from; not of what is made from it, nor of logs that go on after it."""
    run = journalled(new(tmp_path))
    (run.nodes / "n1").mkdir()
    for path in (run.nodes / "n1" / "b.log", run.verdict, run.log, run.control, run.path / "replicas.json"):
        path.write_text("x")
    run.plots.mkdir()
    (run.plots / "x.svg").write_text("x")
    (run.path / "link").symlink_to("/etc/hostname")
    before = digests(run.path)
    assert list(before) == ["journal.jsonl", "plan.toml", "replicas.json", "nodes/n1/b.log"]
    assert before["replicas.json"] == hashlib.sha256(b"x").hexdigest()
    assert changes(before, digests(run.path)) == []
    (run.path / "notes.txt").write_text("mine")
    assert changes(before, digests(run.path)) == []
    run.journal.write_text("")
    (run.path / "replicas.json").unlink()
    (run.nodes / "n1" / "c.log").write_text("planted")
    run.history.write_bytes(b"planted")
    assert changes(before, digests(run.path)) == [
        "journal.jsonl was changed",
        "replicas.json is missing",
        "history.parquet was added",
        "nodes/n1/c.log was added",
    ]


def test_a_damaged_sealed_history_falls_back_on_the_journal(tmp_path: Path) -> None:
    run = journalled(new(tmp_path))
    run.history.write_bytes(b"PAR1")
    record = run.load()
    assert list(record.history) == OPS
    assert record.environment["history"].startswith("read from the journal, since ")
    run.journal.unlink()
    with pytest.raises(HistoryError, match="not a sealed history, or damaged"):
        run.load()


def sealed_run(tmp_path: Path, phases: str = COMPLETE) -> tuple[RunDir, RunRecord]:
    run = journalled(new(tmp_path))
    run.environment.write_text(json.dumps({"phases": phases}))
    record = run.load()
    run.seal(record)
    return run, record


def test_the_journal_goes_when_the_sealed_history_has_the_same_ops(tmp_path: Path) -> None:
    run, record = sealed_run(tmp_path)
    assert run.drop_journal(record)
    assert not run.journal.exists()
    assert list(run.load().history) == OPS
    assert not run.drop_journal(record), "it is gone already"


@pytest.mark.parametrize(
    "harm",
    [
        lambda run: seal(OPS[:1], run.history),
        lambda run: seal([OPS[0], replace(OPS[1], value=4)], run.history),
        lambda run: seal([*OPS, Op(2, 9, 0, "invoke", "read", "r1")], run.history),
        lambda run: run.history.write_bytes(run.history.read_bytes()[:-9]),
        lambda run: run.history.unlink(),
    ],
)
def test_a_sealed_history_with_other_ops_leaves_the_journal(harm: Callable[[RunDir], object], tmp_path: Path) -> None:
    run, record = sealed_run(tmp_path)
    harm(run)
    assert not run.drop_journal(record)
    assert run.journal.exists()


def test_a_run_that_was_cut_off_keeps_its_journal(tmp_path: Path) -> None:
    run, record = sealed_run(tmp_path, BEGUN)
    assert not run.drop_journal(record)
    with run.journal.open("ab") as file:
        file.write(b'{"index":2,"tim')
    run.environment.write_text(json.dumps({"phases": COMPLETE}))
    run.history.unlink()
    torn = run.load()
    run.seal(torn)
    assert not run.drop_journal(torn)
    assert run.journal.exists()


def test_a_run_without_any_history_says_so(tmp_path: Path) -> None:
    run = new(tmp_path)
    with pytest.raises(HistoryError, match=r"neither history.parquet nor journal.jsonl: the run ended before"):
        run.load()
    with pytest.raises(HistoryError, match="no such run"):
        load(tmp_path / "nowhere")
    journalled(run)
    run.plan.write_text("seed = \n")
    with pytest.raises(HistoryError, match=r"plan.toml: the plan cannot be read"):
        run.load()


def test_runs_lists_all_sorts_newest_first(tmp_path: Path) -> None:
    judged, going, broken = (new(tmp_path, now=NOW + timedelta(hours=h)) for h in range(3))
    second = new(tmp_path, now=NOW)
    write_verdict(Judgement([CheckResult("stats", Verdict.VALID, "fine")]), judged.verdict)
    broken.verdict.write_text('{"verdict": "val')
    (tmp_path / "register-none" / "notes").mkdir()
    (tmp_path / "register-none" / "2026-99-21T06-12-44").mkdir()
    (tmp_path / "file").write_text("")
    found = Store(tmp_path).runs()
    assert [run.path for run in found] == [broken.path, going.path, second.path, judged.path]
    assert [run.verdict for run in found] == [None, None, None, Verdict.VALID]
    assert [run.broken for run in found] == [True, False, False, False]
    assert found[3].reason == "stats: fine"
    assert found[1].reason == "no verdict: the run is still active, or was interrupted"
    assert found[3].time == NOW
    assert Store(tmp_path / "nowhere").runs() == []


def test_a_full_store_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(stores.shutil, "disk_usage", lambda _: usage(0, 0, 12 * 1024 * 1024))
    with pytest.raises(StoreError, match=r"only 12.0 MiB free, and a run needs at least 100.0 MiB"):
        new(tmp_path)
    assert not (tmp_path / "latest").exists()


def test_a_store_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="the store cannot be written: Not a directory"):
        new(tmp_path / "file")
    (tmp_path / "s" / "latest").mkdir(parents=True)
    with pytest.raises(StoreError, match="latest: the link cannot be written: Is a directory"):
        new(tmp_path / "s")


@pytest.mark.parametrize("name", ["", "..", "a/b", "latest", ".hidden", "a\nb", "x" * 300])
def test_a_name_stays_inside_the_store(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="cannot name a run's folder"):
        new(tmp_path / "s", name)
    assert not (tmp_path / "s").exists()


def test_observations_are_on_disk_at_once_and_come_back(tmp_path: Path) -> None:
    seen = [Observation(2, "n1", "leader", 4, "n1", 0, 9, 8, -1), Observation(3, "n2", "silent")]
    log = ObservationLog(tmp_path / "o")
    for one in seen:
        log.append(one)
    assert read_observations(tmp_path / "o") == seen
    log.close()
    log.close()
    assert read_observations(tmp_path / "none") == []


def test_a_broken_observation_in_the_middle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "o").write_text('{"time":1,"node":"n1"}\n{"time":1,"node":"n1","role":"leader"}\n')
    with pytest.raises(HistoryError, match="o:1: role is None"):
        read_observations(tmp_path / "o")


def test_observations_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the observations cannot be written"):
        ObservationLog(tmp_path / "no" / "o")
    log = ObservationLog(Path("/dev/full"))
    with pytest.raises(StoreError, match="No space left on device"):
        log.append(Observation(1, "n1", "leader"))
