# SPDX-License-Identifier: Apache-2.0
"""Promises of a document, counted in runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.findings import promises
from harness.findings.documents import DOCS, FOLDER, Document, Promise, broken, read_promises
from harness.findings.judged_runs import read_runs
from harness.findings.promises import Counted, Tally, count, read_counted, table
from harness.findings.run_by_run import Tried, by_fault, by_promise, tables
from harness.parts import registry
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from tests.sim.consumers import Bug, Group

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
    monkeypatch.setattr(promises, "judged_runs", lambda stores, wanted: [(run("1"), judged()), (run("2"), judged())])
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


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_promises_name_workloads_and_anomalies_that_there_are(path: Path) -> None:
    chapters = set(re.findall(r"^#+ `?([a-z-]+)`?$", (ROOT / "docs/anomalies.md").read_text(), re.MULTILINE))
    document, record = read_promises(path), path.with_suffix(".json")
    found = document.promises
    if not document.columns:
        assert set(read_counted(record).tallies) <= {promise.id for promise in found}
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


# Run by run: promises by kinds of clients.


def of_consume() -> Document:
    return read_promises(FOLDER / "consume.toml")


def consumed(started: str, *anomalies: Anomaly, **plan: Any) -> tuple[RunRecord, Judgement]:
    """A run of a push consumer group, of which the judges `delivered`, `groups` and `lag` decided something."""
    full = {"workload": "consume", "library": "remoting", "listener": "concurrently", **plan}
    results = [CheckResult("delivered", Verdict.VALID, "so", list(anomalies))]
    results += [CheckResult("groups", Verdict.VALID, "so"), CheckResult("lag", Verdict.UNKNOWN, "asked too early")]
    return run(started, **full), Judgement(results)


def test_a_promise_is_judged_by_its_judge_alone() -> None:
    """Without it, a kind of consumers would keep promises that nobody looked at."""
    record, judgement = consumed("1")
    held = {promise.id: broken(promise, record, judgement) for promise in of_consume().promises}
    assert {name for name, names in held.items() if names is not None} == {"delivered", "groups"}
    record, judgement = consumed("1", Anomaly("undelivered", "so"), Anomaly("lost", "so"))
    assert broken(of_consume().promises[0], record, judgement) == {"undelivered"}


def test_a_fault_may_be_named_with_its_target() -> None:
    document = of_consume()
    for fault, target, name in (
        ("kill-random-processes", "master", "master killed"),
        ("kill-random-processes", "proxy", "proxy killed"),
        ("partition-leader", "", "master cut off"),
        ("bridge", "all", "bridge"),
    ):
        one = {"fault": fault, "target": target} if target else {"fault": fault}
        assert document.faults_of({"nemesis": [one]}) == [name]
        assert document.faults_of({"strike": [one, one]}) == [name]
    assert document.faults_of({}) == ["none"]


def test_the_tables_count_by_kinds_and_name_what_was_not_run() -> None:
    """An anomaly stands with the findings that explain it; a kind without runs is no kind that held."""
    kill, why = "master killed", {"delivered": {"undelivered": ["72", "new"]}}
    runs = [
        Tried("1", "push", "5.5.0", "controller", "none", "valid", ["delivered"]),
        Tried("2", "push", "5.5.0", "controller", kill, "invalid", ["groups"], why, [72, 9], ["undelivered"]),
        Tried("3", "push", "5.5.0", "controller", kill, "invalid", [], {"delivered": {"retry-lost": ["9"]}}, [9]),
        Tried("4", "own", "5.4.0 mended 7", "master-slave", "bridge", "unknown"),
    ]
    first = list(by_promise(of_consume(), runs))
    assert first[0].startswith("| promise | push | push, orderly |")
    assert first[0].endswith("| gRPC simple | own |")
    undelivered, lost = (f"[`{name}`](anomalies.md#{name})" for name in ("undelivered", "retry-lost"))
    assert f" | 1 of 3; {lost} in 1 (9); {undelivered} in 1 (72, new) | not run | " in first[2]
    assert first[2].endswith(" | - |")
    second = list(by_fault(of_consume(), runs))
    rest = " | not run" * 7 + " |"
    assert f"| 5.5.0 controller | none | valid{rest}" in second
    assert f"| 5.5.0 controller | {kill} | invalid (72, 9; new: `undelivered`); invalid (9){rest}" in second
    assert second[-1] == "| 5.4.0 mended 7 master-slave | bridge" + " | not run" * 7 + " | unknown |"
    assert len(second) == 2 + 4 * 7 + 1
    (killed,) = (line for line in second if line.startswith("| 5.5.0 controller | proxy killed |"))
    assert killed == "| 5.5.0 controller | proxy killed" + " | -" * 4 + " | not run" * 4 + " |", "no proxy, no fault"


def test_a_run_that_is_added_again_replaces_the_older_one(tmp_path: Path) -> None:
    """A run that is judged better today would otherwise stay as it was judged first."""
    document, path = of_consume(), tmp_path / "consume.json"
    worse = consumed("1", Anomaly("undelivered", "so"))
    added, _ = tables(document, [worse, consumed("2", listener="orderly")], path, kept=True, add=True)
    assert added == 2
    _, lines = tables(document, [consumed("1")], path, kept=True, add=True)
    assert sorted(read_runs(path)) == ["1", "2"]
    assert lines[2].count(" 1 of 1 ") == 2
    assert tables(document, [], path, kept=True, add=False)[1] == lines
    path.write_text('{"runs": [{"began": "1", "colour": "red"}]}')
    with pytest.raises(ValueError, match="colour"):
        tables(document, [], path, kept=True, add=False)


def test_from_a_store_to_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole simulated runs, stored: one in which the group skips messages, a good one, which sent too little to prove a
    promise, and one of another workload, which does not count.
    """
    plans = (Bug.SKIP, "consume"), (None, "consume"), (Bug.SKIP, "queue")
    for number, (bug, workload) in enumerate(plans):
        folder = tmp_path / f"{workload}-none" / f"2026-11-21T06-12-4{number}"
        folder.mkdir(parents=True)
        own = 'library = "lite-pull"\nlistener = "concurrently"\n' if workload == "consume" else ""
        (folder / "plan.toml").write_text(f'workload = "{workload}"\nseed = 7\n{own}')
        (folder / "environment.json").write_text(f'{{"started_at": "{number}"}}')
        RunDir(folder).seal(Group(3, failing=0.0, bug=bug).run())
    assert promises.main(["consume", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    column = lines[0].split(" | ").index("lite pull")
    assert lines[2].split(" | ")[column] == "0 of 1; [`skipped-by-group`](anomalies.md#skipped-by-group) in 1 (new)"
    quiet = next(line for line in lines if line.startswith("| controller | none |")).split(" | ")[column + 1]
    assert quiet.count(";") == 1, "two runs"
    assert quiet.count("`skipped-by-group`") == 1


def test_the_record_of_consumers_and_its_tables_agree() -> None:
    """The page is made from the runs of the record."""
    _, lines = tables(of_consume(), [], FOLDER / "consume.json", kept=True, add=False)
    assert "\n".join(lines) in (DOCS / "clients.md").read_text()
