# SPDX-License-Identifier: Apache-2.0
"""Promises of a document, counted in runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.findings import promises
from harness.findings.promises import (
    Counted,
    Document,
    Promise,
    Tally,
    broken,
    count,
    read_counted,
    read_promises,
    table,
)
from harness.parts import registry
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

ROOT = Path(__file__).parents[2]
APPEARS = Promise("D1", "an acknowledged message appears", "delay", ["delayed-lost"])


def run(started: str = "", **plan: Any) -> RunRecord:
    ops = [Op(0, 0, 1, "invoke", "delay", None), Op(1, 1, 1, "ok", "delay", None)]
    server = ServerRecord("n1", "broker", version="5.4.0")
    full = {"workload": "delay", "server": {"topology": "controller"}, **plan}
    return RunRecord(
        History(ops),
        plan=full,
        environment={"started_at": started},
        deployment=DeploymentRecord("controller", servers=(server,)),
    )


def judged(*anomalies: Anomaly, stats: Verdict = Verdict.VALID) -> Judgement:
    return Judgement(
        [CheckResult("delays", Verdict.VALID, "so", list(anomalies)), CheckResult("stats", stats, "so many ops")]
    )


def test_what_breaks_a_promise_and_what_cannot_judge_it() -> None:
    assert broken(APPEARS, run(), judged()) == set()
    assert broken(APPEARS, run(), judged(Anomaly("delayed-lost", "so"))) == {"delayed-lost"}
    assert broken(APPEARS, run(), judged(Anomaly("delayed-lost", "so", legal="ASYNC_FLUSH"))) == set()
    assert broken(APPEARS, run(), judged(Anomaly("delayed-lost", "so", doubt="no processor"))) is None
    assert broken(APPEARS, run(), judged(Anomaly("delivered-again", "so"))) == set()
    assert broken(APPEARS, run(), judged(stats=Verdict.UNKNOWN)) is None
    # What was seen counts, however little was tried.
    assert broken(APPEARS, run(), judged(Anomaly("delayed-lost", "so"), stats=Verdict.UNKNOWN)) == {"delayed-lost"}


def test_a_run_without_the_ops_that_a_promise_needs_does_not_count() -> None:
    recalled = Promise("D5", "a recalled one never appears", "delay", ["recalled-delivered"], needs=["recall"])
    assert broken(recalled, run(), judged()) is None
    assert broken(Promise("D1", "", "delay", [], needs=["delay"]), run(), judged()) == set()


def test_runs_are_counted_by_version_topology_and_faults() -> None:
    kill = {"nemesis": [{"fault": "kill-random-processes"}]}
    runs = [
        (run("1"), judged()),
        (run("2", **kill), judged(Anomaly("delayed-lost", "so"))),
        (run("3", **kill), judged()),
        (run("3", **kill), judged()),  # counted already
        (run("4", strike=[{"fault": "bridge"}]), judged()),
        (run("5", workload="log"), judged()),
    ]
    counted = Counted()
    document = Document([APPEARS], faults={"kill-random-processes": "kill"})
    assert count(document, runs, counted) == 5
    assert {name: (t.held, t.runs) for name, t in counted.tallies["D1"].items()} == {
        "5.4.0 controller quiet": (1, 1),
        "5.4.0 controller kill": (1, 2),
        "5.4.0 controller bridge": (1, 1),
    }
    assert list(table([APPEARS], counted.tallies))[-3:] == [
        "| 5.4.0 controller bridge | 1 of 1 |",
        "| 5.4.0 controller kill | 1 of 2 |",
        "| 5.4.0 controller quiet | 1 of 1 |",
    ]
    assert Document([APPEARS], topology="controller").kind(run()) == "5.4.0 quiet"
    mended = run(server={"topology": "controller", "mends": ["5", "24"]})
    assert Document([APPEARS], topology="controller").kind(mended) == "5.4.0 mended 5,24 quiet"


def test_options_of_the_workload_tell_runs_apart() -> None:
    document = Document([APPEARS], topology="controller", options=["scheme", "auto"])
    assert document.kind(run(scheme="cured", auto=False)) == "5.4.0 cured no auto quiet"
    assert document.kind(run(auto=True)) == "5.4.0 auto quiet"


def test_more_kinds_of_runs_than_promises_stand_in_rows() -> None:
    lines = list(table([APPEARS], {"D1": {"quiet": Tally(1, 1), "kill": Tally(1, 2)}}))
    assert lines[-4:] == ["| runs | D1 |", "|---|---|", "| kill | 1 of 2 |", "| quiet | 1 of 1 |"]
    assert lines[0].startswith("* D1 an acknowledged message appears: [`delayed-lost`]")


def test_runs_are_added_to_the_counts_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "rip-99.toml"
    named.write_text('[[promise]]\nid = "D1"\ntext = "so"\nworkload = "delay"\nanomalies = ["delayed-lost"]\n')
    page = tmp_path / "rip-99.md"
    page.write_text("before\n<!-- record -->\n<!-- end of record -->\nafter\n")
    monkeypatch.setattr(promises, "stored", lambda stores: [(run("1"), judged()), (run("2"), judged())])
    for _ in range(2):
        assert promises.main([str(named), "--add", "a-store"], tmp_path) == 0
    counted = read_counted(tmp_path / "rip-99.json")
    assert counted.runs == ["1", "2"]
    assert counted.tallies["D1"]["5.4.0 controller quiet"] == Tally(2, 2)
    assert "| 2 of 2 |\n<!-- end of record -->\nafter" in page.read_text()
    (tmp_path / "rip-99.json").write_text('{"runs": []}')
    assert promises.main([str(named), "--add", "a-store"], tmp_path) == 2


def test_a_cell_names_what_broke_a_promise_where_it_has_several_anomalies() -> None:
    tally = Tally()
    for names in (["a"], ["a", "b"], []):
        tally.add(names)
    (*_, row) = table([APPEARS], {"D1": {"x": tally}})
    assert row.endswith("| 1 of 3 (a in 2, b in 1) |")


@pytest.mark.parametrize("path", sorted(promises.FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_promises_name_workloads_and_anomalies_that_there_are(path: Path) -> None:
    chapters = set(re.findall(r"^#+ `?([a-z-]+)`?$", (ROOT / "docs/anomalies.md").read_text(), re.MULTILINE))
    found = read_promises(path).promises
    assert set(read_counted(path.with_suffix(".json")).tallies) <= {promise.id for promise in found}
    assert len({promise.id for promise in found}) == len(found) > 0
    for promise in found:
        assert promise.text
        assert promise.anomalies
        assert promise.workload in registry.names(registry.WORKLOADS)
        assert set(promise.anomalies) <= chapters


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[promise]]\nid = "D1"\nanomaly = ["lost"]')
    assert promises.main([str(wrong), str(tmp_path)]) == 2
    assert "anomaly" in capsys.readouterr().err
    assert promises.main(["rip-33", str(tmp_path)]) == 2
    assert "rip-33" in capsys.readouterr().err
    assert promises.main([]) == 2
    assert "rip-32" in capsys.readouterr().out
