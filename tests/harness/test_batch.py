# SPDX-License-Identifier: Apache-2.0
"""`harness batch`, but for Spark itself (tests/cluster/test_spark.py): what is checked and written, and when."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from random import Random
from typing import Any

import pytest
from models_at_work import falsified, lived
from sample_run import sample_history
from spark_double import Context, Killed

from checkers.linearizability import ANYTHING
from checkers.spark.files import SharedFiles
from checkers.spark.job import Done, Portion, Stopped
from checkers.spark.units import Unit
from harness.batch import input as batch_input
from harness.batch.pack import pack
from harness.batch.rows import rows_of
from harness.batch.run import BatchPlan, check_on, run_batch
from harness.batch.sources import sources_of
from harness.batch.work import BatchWork
from harness.check.examine import Columns, examine, examine_columns
from harness.check.judging import judge_stored
from harness.check.offline import check_paths
from harness.check.report import CheckOptions, Start
from harness.check.run_judges import registered
from harness.parts.registry import WORKLOADS
from harness.plan.plan import PlanError
from results.errors import HistoryError
from results.formats import ReadOptions, write_edn, write_jsonl
from results.formats.implied import implied_model
from results.history import Call, History
from results.op import NEMESIS, Op
from results.op_table import read_part, row_groups, runs_of, write_op_table
from results.sealed import read_sealed, seal
from results.store import RunDir
from results.trends import IMPACT
from results.verdict import Anomaly, CheckResult, Verdict, worst
from results.verdict_table import RECEIPTS, VERDICTS, VerdictRow, read_verdicts, to_table

PLAIN = CheckOptions(jit=False)
"""No waiting for a compiler: that both ways of the engine agree is tested where the engine is."""


def history(calls: Sequence[Call]) -> History:
    events = [event for call in calls for event in (call.invoke, call.completion) if event is not None]
    ordered = sorted(events, key=lambda op: op.index)
    return History(Op(i, i, op.process, op.type, op.f, op.key, op.value) for i, op in enumerate(ordered))


def some(name: str, seed: int, keys: int = 1, most: int = 8) -> History:
    """A history of a model; of odd seeds one answer is falsified."""
    events: list[Op] = []
    for key in range(keys):
        rng = Random(f"{name}/{seed}/{key}")
        calls = lived(rng, name, 0.1, most)
        own = history(falsified(rng, name, calls) if seed % 2 else calls)
        first = 1000 * key
        events += [Op(0, 0, first + op.process, op.type, op.f, f"k{key}", op.value) for op in own]
    return History(Op(i, i, op.process, op.type, op.f, op.key, op.value) for i, op in enumerate(events))


def table(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_verdicts(output).to_pylist()
    return rows


def verdicts(output: Path) -> dict[str, Verdict]:
    """By run, the worst of its rows."""
    by_run: dict[str, list[str]] = {}
    for row in table(output):
        by_run.setdefault(row["run"], []).append(row["verdict"])
    return {run: worst(map(Verdict, words)) for run, words in by_run.items()}


def batch(root: Path, output: Path, context: Context | None = None, **plan: Any) -> tuple[int, list[str]]:
    reply: list[str] = []
    wrap = plan.pop("wrap", None)
    check_options = plan.pop("check_options", PLAIN)
    inputs = plan.pop("inputs", [str(root)])
    code = check_on(
        lambda: context or Context(),  # type: ignore[arg-type, return-value]
        BatchPlan(inputs, str(output), check_options, **plan),
        reply.append,
        wrap,  # type: ignore[arg-type]
    )
    return code, reply


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Histories of every format and several models, good and bad, and some that cannot be read."""
    root = tmp_path / "corpus"
    (root / "deep").mkdir(parents=True)
    for seed in range(4):
        write_jsonl(some("cas-register", seed, keys=2), root / f"cas{seed}.jsonl")
        write_edn(some("mutex", seed), root / "deep" / f"mutex{seed}.edn")
        seal(some("kv", seed, keys=3), root / f"kv{seed}.parquet")
    (root / "README.md").write_text("no history")
    (root / "empty.log").write_text("")
    (root / "cut.edn").write_text("[{:process 0, :type :invoke, :f :read}\n {:process 0")
    (root / "nobody.jsonl").write_text('{"process": "nemesis", "type": "info", "f": "start"}\n')
    (root / "no-model.jsonl").write_text('{"process": 0, "type": "invoke", "f": "jump"}\n')
    (root / "damaged.parquet").write_bytes(b"PAR1 and nothing behind it")
    return root


def test_the_verdicts_are_those_of_harness_check(corpus: Path, tmp_path: Path) -> None:
    code, output = batch(corpus, tmp_path / "out")
    files = [path for path in corpus.rglob("*") if path.is_file() and path.suffix != ".md"]
    expected = {str(path.relative_to(corpus)): examine(path, str(path), None, PLAIN) for path in files}
    assert verdicts(tmp_path / "out") == {name: found.verdict for name, found in expected.items()}
    assert {Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN} <= {found.verdict for found in expected.values()}
    assert code == 1
    assert output[-2].startswith(f"{len(files)} histories: ")
    for name, found in expected.items():
        bad = [row for row in table(tmp_path / "out") if row["run"] == name and row["verdict"] != "valid"]
        if found.verdict == Verdict.INVALID:
            first = next(row for row in bad if row["key"] == found.key)
            assert found.reason.startswith(first["reason"])
            assert (first["core"], first["anomaly"]) == (list(found.core), found.anomaly)
        elif bad:
            assert bad[0]["reason"] == found.reason


def test_what_cannot_be_read_is_one_row_with_file_and_line(corpus: Path, tmp_path: Path) -> None:
    batch(corpus, tmp_path / "out")
    [row] = [row for row in table(tmp_path / "out") if row["run"] == "cut.edn"]
    assert (row["checker"], row["verdict"], row["line"]) == ("reader", "unknown", 2)
    assert row["reason"].startswith(f"{corpus}/cut.edn:2: ")


def test_a_second_call_checks_only_what_is_new_or_was_checked_by_another_version(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = batch(corpus, tmp_path / "out")
    again = Context()
    assert batch(corpus, tmp_path / "out", again)[0] == code
    assert again.jobs == 0
    write_jsonl(some("cas-register", 11), corpus / "new.jsonl")
    os.utime(corpus / "cas0.jsonl", (1, 1))
    _, output = batch(corpus, tmp_path / "out")
    assert " 2 to check" in output[0]
    assert "new.jsonl" in verdicts(tmp_path / "out")
    before = len(table(tmp_path / "out"))
    monkeypatch.setattr("harness.batch.run.checker_version", lambda: "another")
    _, output = batch(corpus, tmp_path / "out")
    assert " 0 done before" in output[0]
    rows = table(tmp_path / "out")
    assert len(rows) == before
    assert {row["checker_version"] for row in rows} == {"another"}
    # Another question is another check; asked again for its own sake, all is checked.
    assert " 0 done before" in batch(corpus, tmp_path / "out", check_options=CheckOptions(jit=False, steps=1_000))[1][0]
    assert " 0 done before" in batch(corpus, tmp_path / "out", again=True)[1][0]


class Dying(Context):
    """The driver is killed when it asks for its n-th job."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.left = jobs

    def parallelize(self, items: Sequence[Any], slices: int) -> Any:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().parallelize(items, slices)


def test_a_driver_that_is_killed_loses_nothing_that_was_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkers.spark.job.waves", lambda found, cores: [[one] for one in found])
    monkeypatch.setattr("checkers.spark.units.PORTION_UNITS", 3)
    with pytest.raises(KeyboardInterrupt):
        batch(corpus, tmp_path / "out", Dying(2))
    kept = verdicts(tmp_path / "out")
    assert kept
    # What was being written when it died: rows without a receipt, and a receipt that was cut.
    receipts = sorted((tmp_path / "out" / RECEIPTS).iterdir())
    whole = receipts[0].read_text()
    receipts[0].write_text(whole[: len(whole) // 2])
    _, output = batch(corpus, tmp_path / "out")
    assert " 0 done before" not in output[0]
    assert verdicts(tmp_path / "out") == {**kept, **verdicts(tmp_path / "out")}
    fresh = batch(corpus, tmp_path / "fresh")
    assert verdicts(tmp_path / "fresh") == verdicts(tmp_path / "out")
    assert fresh[1][-2] == output[-2]


@pytest.mark.parametrize("moment", range(4))
def test_whenever_a_driver_is_killed_a_receipt_has_its_rows(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """It dies in front of its n-th file; the call that follows ends with all verdicts."""
    left = [moment]
    write = SharedFiles.write

    def dying(self: SharedFiles, path: str, data: bytes) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(self, path, data)

    monkeypatch.setattr("checkers.spark.job.waves", lambda found, cores: [[one] for one in found])
    monkeypatch.setattr("checkers.spark.units.PORTION_UNITS", 8)
    monkeypatch.setattr(SharedFiles, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        batch(corpus, tmp_path / "out")
    monkeypatch.setattr(SharedFiles, "write", write)
    _, output = batch(corpus, tmp_path / "out")
    assert (" 0 done before" in output[0]) == (moment < 2)
    assert set(verdicts(tmp_path / "out")) == {
        str(path.relative_to(corpus)) for path in corpus.rglob("*") if path.is_file() and path.suffix != ".md"
    }


def test_the_driver_unpacks_only_so_much_at_a_time(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wave of many portions: as one file where they are small, else each as one of its own, with its receipts."""
    monkeypatch.setattr("checkers.spark.job.waves", lambda found, cores: [list(found)])
    monkeypatch.setattr("checkers.spark.units.PORTION_UNITS", 3)
    shown = []
    for limit, files in ((1 << 20, 1), (0, 6)):
        monkeypatch.setattr("checkers.spark.job.FILE_BYTES", limit)
        out = tmp_path / f"out{limit}"
        batch(corpus, out)
        assert [len(list((out / kind).iterdir())) for kind in (VERDICTS, RECEIPTS)] == [files, files]
        assert " 0 to check" in batch(corpus, out)[1][0]
        shown.append(sorted((row["run"], row["key"] or "", row["checker"], row["verdict"]) for row in table(out)))
    assert shown[0] == shown[1]


def test_a_file_uri_is_the_path_that_it_means(tmp_path: Path) -> None:
    folder = tmp_path / "my runs, 100%"
    folder.mkdir()
    write_jsonl(some("cas-register", 0), folder / "a b#1?.jsonl")
    _, output = batch(Path(), tmp_path / "out", inputs=[folder.as_uri()])
    assert output[-2] == "1 history: 1 valid"
    assert {row["source"] for row in table(tmp_path / "out")} == {f"{folder}/a b#1?.jsonl"}
    with pytest.raises(HistoryError, match=r"a file: URI cannot name another machine; file:///path is right"):
        batch(Path(), tmp_path / "out", inputs=["file://elsewhere/runs"])


def test_two_jobs_on_one_output_do_not_disturb_each_other(corpus: Path, tmp_path: Path) -> None:
    class Second(Context):
        """While the first job goes, another one does all of the same."""

        def parallelize(self, items: Sequence[Any], slices: int) -> Any:
            if not self.jobs:
                batch(corpus, tmp_path / "out")
            return super().parallelize(items, slices)

    batch(corpus, tmp_path / "out", Second())
    assert len(list((tmp_path / "out" / VERDICTS).iterdir())) == 2
    batch(corpus, tmp_path / "alone")
    shown = [
        sorted((row["run"], row["key"] or "", row["checker"], row["verdict"], row["reason"]) for row in table(out))
        for out in (tmp_path / "out", tmp_path / "alone")
    ]
    assert shown[0] == shown[1]


@dataclass(frozen=True)
class Deadly:
    """Work during which the process is killed whenever it has one of these histories before it."""

    work: BatchWork
    deadly: Callable[[Unit, Path], bool]

    def __call__(self, portion: Portion, places: Mapping[str, Path]) -> Done:
        if any(self.deadly(unit, places[unit.source]) for unit in portion):
            raise Killed
        return self.work(portion, places)

    def lost(self, unit: Unit, reason: str) -> Done:
        return self.work.lost(unit, reason)

    def runs_in(self, unit: Unit, place: Path) -> int:
        return self.work.runs_in(unit, place)


def test_a_worker_that_dies_costs_its_history_and_not_the_job(corpus: Path, tmp_path: Path) -> None:
    code, _ = batch(
        corpus, tmp_path / "out", wrap=lambda work: Deadly(work, lambda unit, _: unit.name == "kv2.parquet")
    )
    batch(corpus, tmp_path / "fine")
    found, fine = verdicts(tmp_path / "out"), verdicts(tmp_path / "fine")
    assert {run for run in fine if fine[run] != found[run]} == {"kv2.parquet"}
    assert code == 1
    [row] = [row for row in table(tmp_path / "out") if row["run"] == "kv2.parquet"]
    assert row["verdict"] == "unknown"
    assert row["reason"].endswith("the process that checked it was killed (was the machine out of memory?)")


def test_in_an_op_table_too_a_death_costs_one_history(tmp_path: Path) -> None:
    named = [(f"h{seed}", some("cas-register", seed)) for seed in range(20)]
    named = [(name, ops) for name, ops in named if implied_model(History(ops)) is not None]
    (tmp_path / "in").mkdir()
    write_op_table(named, tmp_path / "in" / "ops.parquet", row_group=40)

    def deadly(unit: Unit, place: Path) -> bool:
        rows = read_part(place, unit.groups or (0, 0), ["run"])
        runs = [run for run, _, _ in runs_of(rows)]
        number, of = unit.slice or (0, 1)
        return "h7" in runs[len(runs) * number // of : len(runs) * (number + 1) // of]

    batch(tmp_path / "in", tmp_path / "out", wrap=lambda work: Deadly(work, deadly))
    found = verdicts(tmp_path / "out")
    assert [row["reason"].rpartition(": ")[2] for row in table(tmp_path / "out") if row["checker"] == "reader"] == [
        "the process that checked it was killed (was the machine out of memory?)"
    ]
    assert {name for name, _ in named} - set(found) == {"h7"}
    for name, one in named:
        if name != "h7":
            path = tmp_path / f"{name}.jsonl"
            write_jsonl(one, path)
            assert found[name] == examine(path, name, None, PLAIN).verdict
    assert len(row_groups(tmp_path / "in" / "ops.parquet")) > 2


def test_a_session_that_ends_is_no_word_about_a_history(corpus: Path, tmp_path: Path) -> None:
    class Ended(Context):
        def parallelize(self, items: Sequence[Any], slices: int) -> Any:
            self.stopped = True
            raise Killed

    with pytest.raises(Stopped):
        batch(corpus, tmp_path / "out", Ended())
    assert not (tmp_path / "out").exists()


def test_a_list_with_verdicts_turns_the_question_round(tmp_path: Path) -> None:
    write_jsonl(some("cas-register", 0), tmp_path / "good.jsonl")
    bad = next(seed for seed in range(1, 99, 2) if _verdict(some("cas-register", seed), tmp_path) == Verdict.INVALID)
    write_jsonl(some("cas-register", bad), tmp_path / "bad.jsonl")
    (tmp_path / "scratch.jsonl").unlink()
    listed = tmp_path / "listed.csv"
    listed.write_text("file,model,verdict\ngood.jsonl,cas-register,valid\nbad.jsonl,cas-register,invalid\n")
    code, output = batch(tmp_path, tmp_path / "out", models=listed)
    assert code == 0
    assert output[-2].endswith("; 2 of 2 as listed")
    listed.write_text("file,model,verdict\ngood.jsonl,,invalid\nbad.jsonl,cas-register,invalid\ngone.jsonl,,valid\n")
    code, output = batch(tmp_path, tmp_path / "out", models=listed)
    assert code == 1
    assert "1 verdicts differ from the list:" in output
    assert "gone.jsonl   unknown  it is listed, but there is no such file" in output


def _verdict(one: History, folder: Path) -> Verdict:
    write_jsonl(one, folder / "scratch.jsonl")
    return examine(folder / "scratch.jsonl", "", None, PLAIN).verdict


def _run(folder: Path, **options: Any) -> Path:
    """A stored run, of the register workload."""
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_text('workload = "register"\nseed = 7\n\n[[nemesis]]\nfault = "hammer-time"\n')
    (folder / "environment.json").write_text('{"dledger": "0.4.0"}')
    seal(sample_history(**options), folder / "history.parquet")
    (folder / "nodes").mkdir()
    return folder


def test_a_stored_run_is_judged_by_all_checkers_of_its_workload(tmp_path: Path) -> None:
    run = _run(tmp_path / "runs" / "register-hammer-time" / "2026-11-21T06-12-44", length_s=10)
    batch(tmp_path / "runs", tmp_path / "out")
    _, judgement = judge_stored(RunDir(run))
    rows = table(tmp_path / "out")
    expected = {r.checker: r.verdict.value for r in judgement.results}
    assert {row["checker"]: row["verdict"] for row in rows if row["checker"] not in ("linearizability", IMPACT)} == {
        name: verdict for name, verdict in expected.items() if name != "linearizability"
    }
    keys = [row for row in rows if row["checker"] == "linearizability"]
    assert worst(Verdict(row["verdict"]) for row in keys) == expected["linearizability"]
    assert len(keys) > 5
    assert {(row["workload"], row["nemesis"], row["version"], row["began"]) for row in rows} == {
        ("register", "hammer-time", "0.4.0", "2026-11-21T06-12-44")
    }
    assert verdicts(tmp_path / "out") == {"register-hammer-time/2026-11-21T06-12-44": judgement.verdict}
    # What the run's folder holds was read, and nothing in it written: a verdict drawn from it is no new evidence.
    assert sorted(p.name for p in run.iterdir()) == ["environment.json", "history.parquet", "nodes", "plan.toml"]
    (run / "verdict.json").write_text("{}")
    assert " 1 done before, 0 to check" in batch(tmp_path / "runs", tmp_path / "out")[1][0]


def test_a_long_history_is_spread_by_key_with_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    seal(some("cas-register", 3, keys=12), tmp_path / "in" / "long.parquet")
    seal(some("cas-register", 2, most=40), tmp_path / "in" / "one-key.parquet")
    _run(tmp_path / "in" / "register-none" / "2026-11-21T06-12-44", length_s=5)
    broken = [*some("cas-register", 0, keys=12)]
    broken[5:6] = []
    seal(broken, tmp_path / "in" / "malformed.parquet")
    batch(tmp_path / "in", tmp_path / "whole")
    for name, value in (("LONG", 10), ("SHARE", 20), ("SMALL", 0)):
        monkeypatch.setattr(batch_input, name, value)
    _, output = batch(tmp_path / "in", tmp_path / "parts")
    assert any("one-key.parquet" in line and "one task" in line for line in output)
    rows = [
        sorted((r["run"], r["key"] or "", r["checker"], r["verdict"], r["anomaly"] or "") for r in table(out))
        for out in (tmp_path / "whole", tmp_path / "parts")
    ]
    assert rows[0] == rows[1]
    assert output[-2] == f"4 histories: {_counts(tmp_path / 'whole')}"
    parts = {row["unit"] for row in table(tmp_path / "parts") if row["run"] == "long.parquet"}
    assert len(parts) > 3
    assert "all but the keys" in parts
    assert {row["unit"] for row in table(tmp_path / "parts") if row["run"] == "malformed.parquet"} == {
        "all but the keys"
    }
    assert any(" 0 to check" in line for line in batch(tmp_path / "in", tmp_path / "parts")[1])


@pytest.mark.parametrize("op_table", [False, True])
def test_a_long_history_is_judged_by_its_columns_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op_table: bool
) -> None:
    """Entries and offsets of a log are all different, too many for the common call of an op table."""
    (tmp_path / "in").mkdir()
    logs = {f"log{seed}.parquet": some("log", seed, most=12) for seed in range(6)}
    if op_table:
        write_op_table(logs.items(), tmp_path / "in" / "ops.parquet")
    else:
        for name, one in logs.items():
            seal(one, tmp_path / "in" / name)
    batch(tmp_path / "in", tmp_path / "usual", model="log")
    decided: list[bool] = []

    def noted(*given: Any) -> Columns | None:
        found = examine_columns(*given)
        decided.append(found is not None)
        return found

    monkeypatch.setattr("harness.batch.work.MANY", 1)
    monkeypatch.setattr("harness.batch.work.examine_columns", noted)
    batch(tmp_path / "in", tmp_path / "columns", model="log")
    wanted = ("run", "key", "checker", "verdict", "reason", "model", "ops", "core", "algorithm")
    usual, columns = (
        sorted(tuple(str(row[name]) for name in wanted) for row in table(tmp_path / out))
        for out in ("usual", "columns")
    )
    assert usual == columns
    assert len(decided) == 6
    assert {True, False} == set(decided)
    assert len({row[0] for row in columns}) == 6
    assert {"valid", "invalid"} <= {row[3] for row in columns}


def mixed(history: History) -> list[Op]:
    """The ops of all keys interleaved, each key in many row groups. Those of a process keep their order."""
    rng, left = Random(7), {key: [op for op in history if op.key == key] for key in {op.key for op in history}}
    found = []
    while any(left.values()):
        own = left[rng.choice(sorted(key for key, ops in left.items() if ops))]
        found.append(own.pop(0))
    return [replace(op, index=i, time=i) for i, op in enumerate(found)]


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sealed history is too long for a worker, and has many row groups and shares."""
    for name, value in (("LONG", 10), ("HUGE", 10), ("SMALL", 0)):
        monkeypatch.setattr(batch_input, name, value)
    for name, value in (("ROWS", 20), ("PROCESS_ROWS", 50), ("GROUPS", 2)):
        monkeypatch.setattr(f"checkers.spark.keys.{name}", value)
    monkeypatch.setattr("results.sealed.ROW_GROUP", 16)


def test_a_huge_history_has_the_verdicts_of_a_short_one(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once, and its ops are sent on by key. Reasons and cores name the ops of the whole."""
    (tmp_path / "in").mkdir()
    for seed in range(4):
        for model in ("cas-register", "unordered-queue", "set"):
            seal(mixed(some(model, seed, keys=9)), tmp_path / "in" / f"{model}-{seed}.parquet")
    nemesis = [Op(0, 0, NEMESIS, "info", "start", value=["n1"]), Op(1, 0, NEMESIS, "info", "stop", value=["n1"])]
    faulty = [*nemesis, *mixed(some("cas-register", 6, keys=3))]
    seal((replace(op, index=i) for i, op in enumerate(faulty)), tmp_path / "in" / "nemesis.parquet")
    batch(tmp_path / "in", tmp_path / "usual")
    request.getfixturevalue("huge")
    for path in (tmp_path / "in").iterdir():
        seal(list(read_sealed(path)), path)
    _, output = batch(tmp_path / "in", tmp_path / "huge")
    wanted = ("run", "key", "checker", "verdict", "reason", "anomaly", "model", "core")
    usual, huge = (
        sorted(tuple(str(row[name]) for name in wanted) for row in table(tmp_path / out)) for out in ("usual", "huge")
    )
    assert usual == huge
    assert output[-2] == f"13 histories: {_counts(tmp_path / 'usual')}"
    assert {"valid", "invalid"} <= {row[3] for row in huge}
    assert any(" 0 to check" in line for line in batch(tmp_path / "in", tmp_path / "huge")[1])


BREAKS: dict[str, tuple[Callable[[list[Op]], list[Op]], str]] = {
    "an op is missing": (lambda ops: [*ops[:5], *ops[6:]], "op 4 is followed by op 6"),
    "the first one is missing": (lambda ops: ops[1:], "op 1 is where op 0 belongs"),
    "time runs back": (lambda ops: [*ops[:30], replace(ops[30], time=3), *ops[31:]], "op 30 is earlier than"),
    "an answer without a call": (
        lambda ops: [replace(op, process=99) if op.index == at_answer(ops) else op for op in ops],
        "of process 99 does not match",
    ),
}


def at_answer(ops: Sequence[Op]) -> int:
    return next(op.index for op in ops if op.type == "ok")


@pytest.mark.usefixtures("huge")
@pytest.mark.parametrize("what", BREAKS)
def test_a_huge_history_that_is_malformed_is_judged_no_further(what: str, tmp_path: Path) -> None:
    change, said = BREAKS[what]
    seal(change(mixed(some("cas-register", 2, keys=9))), tmp_path / "h.parquet")
    code, output = batch(tmp_path / "h.parquet", tmp_path / "out")
    assert code == Verdict.HARNESS_FAILURE.exit_code
    (row,) = table(tmp_path / "out")
    assert (row["checker"], row["verdict"]) == ("well-formed", "harness-failure")
    assert said in row["reason"]
    assert any(said in line for line in output)


@pytest.mark.usefixtures("huge")
def test_a_huge_history_with_a_foreign_op_is_one_row_with_the_reason(tmp_path: Path) -> None:
    ops = mixed(some("cas-register", 2, keys=9))
    seal([replace(op, f="jump") if op.f == "write" else op for op in ops], tmp_path / "h.parquet")
    code, _ = batch(tmp_path / "h.parquet", tmp_path / "out", model="cas-register")
    (row,) = table(tmp_path / "out")
    assert (code, row["checker"], row["verdict"]) == (2, "reader", "unknown")
    assert "jump" in row["reason"]


def _counts(output: Path) -> str:
    found = list(verdicts(output).values())
    return ", ".join(f"{found.count(v)} {v.value}" for v in Verdict if v in found)


def test_what_is_wrong_with_the_whole_of_it_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"nowhere: no such file or folder"):
        batch(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(HistoryError, match=r"there is neither a run nor a history here"):
        batch(tmp_path, tmp_path / "out")
    with pytest.raises(PlanError, match=r"no model 'regster'; did you mean 'register'\?"):
        run_batch(BatchPlan([str(tmp_path)], str(tmp_path / "out"), model="regster"), print)


def test_a_password_in_a_uri_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as refused:
        run_batch(BatchPlan(["s3a://key:sEcReT@bucket/runs"], str(tmp_path)), print)
    assert "sEcReT" not in str(refused.value)
    assert "spark.hadoop.fs.s3a" in str(refused.value)


def test_the_tables_of_an_output_inside_of_the_input_are_no_histories(corpus: Path) -> None:
    batch(corpus, corpus / "verdicts")
    before = verdicts(corpus / "verdicts")
    assert " 0 to check" in batch(corpus, corpus / "verdicts")[1][0]
    assert verdicts(corpus / "verdicts") == before


def test_what_a_configuration_permits_is_told_apart() -> None:
    """A name counts as permitted when every anomaly of that name is."""
    seen = [Anomaly("lost", "", legal="default"), Anomaly("lost", ""), Anomaly("duplicated", "", legal="default")]
    [row] = rows_of("run", CheckResult("log", Verdict.INVALID, "so", seen, {"ops": 3}), None)
    assert row.anomalies == ["lost", "duplicated"]
    assert json.loads(row.figures or "") == {"ops": 3, "permitted": ["duplicated"]}
    [row] = rows_of("run", CheckResult("log", Verdict.INVALID, "so", seen[1:2]), None)
    assert row.figures == "{}"


def test_a_text_that_is_no_unicode_does_not_cost_the_row() -> None:
    [row] = to_table([VerdictRow("caf\udce9", "reader", "unknown", "a \udc80 in it")]).to_pylist()
    assert row["run"] == "caf\\udce9"
    assert json.dumps(row)


def strange(name: str) -> list[Op]:
    """A short history of a register that needs an option, or that is none."""
    steps = {
        "unknown op": [("write", 1, "ok"), ("increment", 1, "ok")],
        "idle": [("write", 1, "info"), ("write", 2, "fail")],
        "begins with 7": [("cas", [7, 1], "ok")],
        "only looks": [("read", 7, "ok")],
        "short names": [("w", 1, "ok"), ("r", 1, "ok")],
        "short names, stale": [("w", 1, "ok"), ("w", 2, "ok"), ("r", 1, "ok")],
        "lock": [("lock", None, "ok"), ("unlock", None, "ok")],
    }[name]
    return [
        Op(
            2 * p + end,
            2 * p + end,
            p,
            type_ if end else "invoke",
            f,
            "k",
            value if end or f not in ("read", "r") else None,
        )  # type: ignore[arg-type]
        for p, (f, value, type_) in enumerate(steps)
        for end in (0, 1)
    ]


STRANGE = ("unknown op", "idle", "begins with 7", "only looks", "short names", "short names, stale", "lock")


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("form", ["files", "sealed", "table"])
@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({}, None),
        ({}, "register"),
        ({"ignore": ("increment",)}, "cas-register"),
        ({"initial": Start(7)}, "cas-register"),
        ({"initial": Start(ANYTHING)}, "cas-register"),
    ],
)
@pytest.mark.slow
def test_strange_histories_have_the_verdicts_of_harness_check(
    options: dict[str, Any], model: str | None, form: str, jit: bool, tmp_path: Path
) -> None:
    """Refused, idle, begun with something: as files, and in a table, where the good ones are judged all at once."""
    (tmp_path / "in").mkdir()
    (tmp_path / "one").mkdir()
    check_options = CheckOptions(jit=jit, **options)
    expected = {}
    for name in STRANGE:
        write_jsonl(strange(name), tmp_path / "one" / f"{name}.jsonl")
        expected[name] = examine(tmp_path / "one" / f"{name}.jsonl", name, model, check_options).verdict
        if form == "files":
            write_jsonl(strange(name), tmp_path / "in" / f"{name}.jsonl")
        elif form == "sealed":
            seal(strange(name), tmp_path / "in" / f"{name}.parquet")
    if form == "table":
        write_op_table([(name, strange(name)) for name in STRANGE], tmp_path / "in" / "ops.parquet")
    batch(tmp_path / "in", tmp_path / "out", check_options=check_options, model=model)
    assert {Path(name).stem: found for name, found in verdicts(tmp_path / "out").items()} == expected
    assert expected["idle"] == expected["lock" if model else "only looks"] == Verdict.UNKNOWN or options
    assert (expected["short names, stale"], expected["unknown op"]) == (
        Verdict.INVALID,
        Verdict.VALID if options.get("ignore") else Verdict.UNKNOWN,
    )
    assert expected["begins with 7"] == (
        Verdict.VALID if "initial" in options else Verdict.UNKNOWN if model == "register" else Verdict.INVALID
    )


def test_histories_of_any_format_become_one_op_table_with_the_same_verdicts(corpus: Path, tmp_path: Path) -> None:
    _run(corpus / "register-none" / "2026-11-21T06-12-44", length_s=2)
    output: list[str] = []
    packed = tmp_path / "in" / "packed.parquet"
    packed.parent.mkdir()
    assert pack([str(corpus)], packed, "auto", ReadOptions(), output.append) == Verdict.UNKNOWN.exit_code
    assert output[-1] == f"{packed}: 15 histories; 3 could not be read"
    assert any(line.startswith(f"{corpus}/cut.edn:2: ") for line in output)
    again = tmp_path / "again.parquet"
    assert pack([str(packed)], again, "auto", ReadOptions(), output.append) == 0
    assert [run for run, _, _ in runs_of(read_part(again, (0, 1)))] == [
        run for run, _, _ in runs_of(read_part(packed, (0, 1)))
    ]
    batch(corpus, tmp_path / "files")
    batch(packed, tmp_path / "table")
    files, tables = verdicts(tmp_path / "files"), verdicts(tmp_path / "table")
    plain = {name for name in tables if not name.startswith("register-none")}
    assert {name: files[name] for name in plain} == {name: tables[name] for name in plain}
    assert len(plain) == 14


@pytest.mark.parametrize(("ops", "expected"), [("nemesis", 0), ("others", 1)])
def test_only_an_empty_history_is_no_objection_to_valid(tmp_path: Path, ops: str, expected: int) -> None:
    """One without an op of the model is another matter, whether it is checked alone or in a batch."""
    kinds = {
        "nemesis": [Op(0, 0, NEMESIS, "info", "kill")],
        "others": [Op(0, 0, 0, "invoke", "append", "k", "x"), Op(1, 1, 0, "ok", "append", "k", "x")],
    }
    write_jsonl(History(kinds[ops]), tmp_path / "one.jsonl")
    listed = tmp_path / "listed.csv"
    listed.write_text("file,model,verdict\none.jsonl,register,valid\n")
    assert batch(tmp_path, tmp_path / "out", models=listed)[0] == expected
    assert check_paths([tmp_path / "one.jsonl"], lambda line: None, PLAIN, models=listed) == expected


def test_a_workload_without_sources_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that left it out would not change with it."""
    lost = EntryPoint("lost", "a_package_that_is_gone.workload:Lost", WORKLOADS)
    monkeypatch.setattr("harness.batch.input.entry_points", lambda group: [lost])
    with pytest.raises(PlanError, match=r"the sources of a_package_that_is_gone\.workload were not found"):
        batch_input.checker_version()


def test_all_that_judges_is_part_of_the_version_and_nothing_else() -> None:
    """A change in one of them must renew the stored verdicts; a change in a plot or a backend must not."""
    root = Path(batch_input.__file__).parents[2]
    plugged = {point.module for point in (*entry_points(group=WORKLOADS), *registered())}
    found = {str(path.relative_to(root)) for path in sources_of({*batch_input._JUDGING, *plugged})}
    judges = {str(path.relative_to(root)) for path in (root / "checkers").rglob("*.py") if path.name != "__init__.py"}
    compiled = "checkers/linearizability/compiled"
    others = {f"{compiled}/warm.py", "checkers/spark/batch.py"}
    assert judges - found == {*others, "checkers/spark/session.py"}
    formats = {str(path.relative_to(root)) for path in (root / "results/formats").rglob("*.py")}
    assert {*formats, "results/permission.py", "harness/check/judging.py", "workloads/messages.py"} <= found
    assert not [path for path in found if path.startswith(("infra", "nemesis", "harness/run", "results/report"))]


def test_a_module_that_a_plug_in_imports_is_part_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "their_package"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "workload": "from .rules import (\n    limit,\n)\n",
        "rules": "def limit():\n    import their_package.inner.deep\n",
        "inner/__init__": "from . import beside\n",
        "inner/deep": "from ..top import what\n",
        "inner/beside": "",
        "top": "import json, no_such_package",
        "unused": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = [str(path.relative_to(package)) for path in sources_of({"their_package.workload"})]
    expected = ["__init__", "inner/__init__", "inner/beside", "inner/deep", "rules", "top", "workload"]
    assert found == [f"{name}.py" for name in expected]
