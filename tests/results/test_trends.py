# SPDX-License-Identifier: Apache-2.0
"""Trends over runs: impact of faults, tables, and the page."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from harness.batch.run import BatchPlan
from harness.cli.main import cli, guarded
from results.errors import HistoryError
from results.history import History
from results.impact import CALM, impacts
from results.op import NEMESIS, Op
from results.report.trends import trends_page
from results.store import Store
from results.trends import IMPACT, read_trends
from results.verdict import CheckResult, Judgement, Verdict
from results.verdict_file import write_verdict
from results.verdict_table import VERDICTS, VerdictRow, parquet_bytes, read_verdicts, to_table
from results.web import create_app

S = 1_000_000_000


def call(process: int, start: float, end: float, type_: str = "ok", **extra: str) -> list[tuple[float, Op]]:
    ops = [Op(0, int(start * S), process, "invoke", "write", "k", 1, extra=extra)]
    ops.append(Op(0, int(end * S), process, type_, "write", "k", 1, extra=extra))  # type: ignore[arg-type]
    return [(op.time, op) for op in ops]


def strike(at: float, fault: str, number: int, f: str) -> list[tuple[float, Op]]:
    value = {"fault": fault, "id": number, "nodes": {"n1": None}, "seen": True}
    return [(int(at * S) + i, Op(0, int(at * S), NEMESIS, t, f, None, value)) for i, t in enumerate(("invoke", "info"))]  # type: ignore[arg-type]


def history(*events: list[tuple[float, Op]]) -> History:
    ordered = sorted((event for group in events for event in group), key=lambda event: event[0])
    return History(
        Op(i, op.time, op.process, op.type, op.f, op.key, op.value, extra=op.extra) for i, (_, op) in enumerate(ordered)
    )


def test_what_clients_felt_of_a_fault() -> None:
    felt = impacts(
        history(
            call(1, 0, 1),
            call(1, 2, 3),
            strike(10, "cut", 1, "inject"),
            call(1, 11, 13),
            call(2, 14, 18, "info"),
            strike(20, "cut", 1, "heal"),
            call(3, 21, 22),
            strike(30, "cut", 2, "inject"),
            call(3, 31, 31.5),
            strike(32, "cut", 2, "heal"),
            call(3, 39, 40),
            call(3, 90, 95, phase="final"),
        )
    )
    cut, calm = felt
    assert (cut.fault, cut.times, cut.seconds, cut.ops, cut.ok) == ("cut", 2, 12.0, 3, 2)
    assert (cut.p50_ms, cut.p99_ms) == (500.0, 2000.0)
    assert cut.silence_s == 7.0, "from the answer at 13 s to the heal at 20 s"
    assert (calm.fault, calm.times, calm.seconds, calm.ops, calm.ok) == (CALM, 3, 28.0, 4, 4)


def test_a_fault_without_calls_and_a_history_without_any() -> None:
    assert impacts(History([])) == []
    [cut, _] = impacts(history(strike(1, "cut", 1, "inject"), strike(2, "cut", 1, "heal"), call(1, 0, 3)))
    assert (cut.ops, cut.p50_ms, cut.silence_s) == (0, None, 1.0)


def rows(
    run: str, verdict: str, began: str, *anomalies: str, silence: float = 1.0, checked: int = 1
) -> list[VerdictRow]:
    permitted = json.dumps({"ops": 10, "permitted": ["lost-write"]}) if verdict == "valid" else None
    about = {"workload": "register", "nemesis": "hammer-time", "version": "0.4.0", "began": began, "checked": checked}
    felt = {"fault": "hammer-time", "times": 2, "seconds": 12.0, "ops": 100, "ok": 90, "p50_ms": 3.0, "p99_ms": 9.0}
    figures = json.dumps([{**felt, "silence_s": silence}])
    return [
        VerdictRow(run, "well-formed", "valid", "10 ops", source=run, **about),  # type: ignore[arg-type]
        VerdictRow(run, "x", verdict, "so", source=run, anomalies=anomalies, figures=permitted, **about),  # type: ignore[arg-type]
        VerdictRow(run, IMPACT, "valid", "felt", source=run, figures=figures, **about),  # type: ignore[arg-type]
    ]


def write(output: Path, name: str, *groups: list[VerdictRow]) -> None:
    (output / VERDICTS).mkdir(parents=True, exist_ok=True)
    table = to_table(row for group in groups for row in group)
    (output / VERDICTS / f"{name}.parquet").write_bytes(parquet_bytes(table))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    found = tmp_path / "verdicts"
    write(
        found,
        "1",
        rows("r/2", "invalid", "2026-11-02T00-00-00", "lost-write", "nonlinearizable", silence=4.0),
        rows("r/1", "valid", "2026-11-01T00-00-00", "lost-write"),
        rows("r/3", "invalid", "2026-11-03T00-00-00", "lost-write"),
        [VerdictRow("<b>.edn", "linearizability", "unknown", "budget", source="f", checked=10**18)],
    )
    return found


def test_tables_of_many_runs(output: Path) -> None:
    found = read_trends(output)
    assert [run.run for run in found.runs][:2] == ["<b>.edn", "r/1"]
    assert {group.workload: dict(counts) for group, counts in found.groups.items()} == {
        "-": {Verdict.UNKNOWN: 1},
        "register": {Verdict.INVALID: 2, Verdict.VALID: 1},
    }
    [((version, fault), one)] = found.faults.items()
    assert (version, fault, one.runs, one.times, one.ops, one.ok) == ("0.4.0", "hammer-time", 3, 6, 300, 270)
    assert one.silence_s == 4.0
    seen = found.anomalies["lost-write"]
    assert (seen.runs, seen.permitted, seen.first.run, seen.last.run) == (3, 1, "r/1", "r/3")
    assert list(found.anomalies) == ["lost-write", "nonlinearizable"]


def test_a_later_check_replaces_an_earlier_one(output: Path) -> None:
    write(output, "2", rows("r/3", "valid", "2026-11-03T00-00-00", checked=2))
    assert read_trends(output).anomalies["lost-write"].last.run == "r/2"
    assert len(read_verdicts(output)) == 10


def test_the_command_prints_tables_and_writes_the_page(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["trends", "--input", str(output), "--html", str(tmp_path / "t.html")]
    assert guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "workload",
        "nemesis",
        "version",
        "runs",
        "valid",
        "invalid",
        "unknown",
        "harness-failure",
    ]
    assert "register  hammer-time  0.4.0       3      1        2" in lines
    assert any(line.startswith("hammer-time  0.4.0       3        6           90%     3.0     9.0") for line in lines)
    assert any(
        line.startswith("lost-write          3          1  2026-11-01T00-00-00  2026-11-03T00-00-00  r/3")
        for line in lines
    )
    page = (tmp_path / "t.html").read_text()
    assert page == trends_page(read_trends(output))
    assert "&lt;b&gt;.edn" in page
    assert "<b>.edn" not in page
    assert page.count("<svg") == 2


def test_without_a_table_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that the user names is not made from somebody else's runs."""
    argv = ["trends", "--input", str(tmp_path)]
    assert guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)) == 64
    assert "there is no verdict table here; harness batch --output" in capsys.readouterr().err
    (tmp_path / VERDICTS).mkdir()
    (tmp_path / VERDICTS / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(HistoryError, match=r"x\.parquet: not a verdict table, or damaged"):
        read_trends(tmp_path)


def stored(root: Path, name: str = "log-none") -> Path:
    run = Store(root).create(name, "seed = 7\n", datetime(2026, 11, 21, 6, 12, 44))
    write_verdict(Judgement([CheckResult("log", Verdict.VALID, "so")]), run.verdict)
    return run.path


def test_the_table_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a run, `harness trends` says something at once; later runs are counted, and not judged unasked."""
    monkeypatch.chdir(tmp_path)
    assert guarded(lambda: cli.main(["trends"], standalone_mode=False)) == 64
    assert "there are no runs yet" in capsys.readouterr().err
    path = stored(tmp_path / "results" / "runs")
    asked: list[BatchPlan] = []

    def batch(plan: BatchPlan, say: Callable[[str], None]) -> int:
        asked.append(plan)
        write(Path(plan.output), "a", [VerdictRow(f"log-none/{path.name}", "log", "valid", "so", workload="log")])
        return 0

    monkeypatch.setattr("harness.batch.run.run_batch", batch)
    for again in range(2):
        assert guarded(lambda: cli.main(["trends"], standalone_mode=False)) == 0
        output = capsys.readouterr()
        assert "log" in output.out
        assert "more runs" not in output.err
        assert len(asked) == 1, again
    assert (asked[0].inputs, asked[0].output) == (["results/runs"], "results/verdicts")
    stored(tmp_path / "results" / "runs", "log-bridge")
    guarded(lambda: cli.main(["trends"], standalone_mode=False))
    assert "1 more runs are in results/runs; harness batch --input results/runs adds them" in capsys.readouterr().err


def test_the_web_view_has_the_page(output: Path) -> None:
    client = create_app(output.parent / "runs").test_client()
    (output.parent / "runs").mkdir()
    answer = client.get("/trends", headers={"Host": "127.0.0.1"})
    assert answer.status_code == 200
    assert "lost-write" in answer.text
    empty = create_app(output.parent / "runs" / "other").test_client()
    found = empty.get("/trends", headers={"Host": "127.0.0.1"})
    assert (found.status_code, found.mimetype, "harness batch" in found.text) == (404, "text/html", True)


def test_the_web_view_makes_the_table_once(tmp_path: Path) -> None:
    """In the background, while a page says so and loads itself again; what goes wrong is said once, and tried again."""
    begun, done = threading.Event(), threading.Event()
    calls = []

    def make() -> None:
        calls.append(1)
        begun.set()
        done.wait(10)
        if len(calls) == 1:
            raise ValueError("no <Spark> here")
        write(tmp_path / "verdicts", "a", [VerdictRow("log-none/x", "log", "valid", "so", workload="log")])

    (tmp_path / "runs").mkdir()
    client = create_app(tmp_path / "runs", make_table=make).test_client()
    for code, said in ((202, "is being made"), (202, "is being made")):
        page = client.get("/trends", headers={"Host": "127.0.0.1"})
        assert (page.status_code, said in page.text, 'http-equiv="refresh"' in page.text) == (code, True, True)
    assert begun.wait(10)
    done.set()
    _wait(lambda: client.get("/trends", headers={"Host": "127.0.0.1"}).status_code == 200)
    assert len(calls) == 2


def _wait(there: Callable[[], bool]) -> None:
    for _ in range(1000):
        if there():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verdict": "perhaps"}, "'perhaps' is not a valid Verdict"),
        ({"checker": IMPACT, "figures": "["}, "JSONDecodeError"),
        ({"checker": IMPACT, "figures": "[" * 3000}, "RecursionError"),
        ({"checker": IMPACT, "figures": '[{"fault": "x", "times": "many"}]'}, "times is 'many'"),
        ({"checker": IMPACT, "figures": "[null]"}, "TypeError"),
    ],
)
def test_rows_that_are_none_are_told(changed: dict[str, str], said: str, tmp_path: Path) -> None:
    row = {"run": "log-none/x", "checker": "log", "verdict": "valid", "reason": "so", **changed}
    write(tmp_path, "a", [VerdictRow(**row)])  # type: ignore[arg-type]
    with pytest.raises(HistoryError) as problem:
        read_trends(tmp_path)
    assert "the rows of 'log-none/x' are none of a verdict table" in str(problem.value)
    assert said in str(problem.value)


def test_a_pipe_among_the_tables_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a", [VerdictRow("r", "log", "valid", "so")])
    os.mkfifo(tmp_path / VERDICTS / "b.parquet")
    with pytest.raises(HistoryError, match=r"b\.parquet: not a verdict table, or damaged: a pipe, not a regular file"):
        read_trends(tmp_path)
