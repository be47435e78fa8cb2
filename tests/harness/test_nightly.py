# SPDX-License-Identifier: Apache-2.0
"""Nights: the matrix, whose turn it is, what is new and what is known, and the page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.cli.main import cli, guarded
from harness.findings.known import explain
from harness.findings.record import Finding, Measured
from harness.findings.signature import Signature
from harness.nightly import ledger, night
from harness.nightly.ledger import Entry, code_digest, next_batch
from harness.nightly.matrix import Cell, Matrix, read_matrix
from harness.nightly.page import night_page
from harness.plan.plan import PlanError
from harness.series.child import ChildRun
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

SUITES = Path(__file__).parents[2] / "examples" / "suites"
NOW = datetime(2026, 11, 23, 3, 0)


def cells(*nemeses: str, version: str = "5.5.0") -> list[Cell]:
    return [Cell("log", "controller", version, "strict", "remoting", nemesis) for nemesis in nemeses]


def ran(cell: Cell, verdict: str = "valid", hours_ago: float = 1, **more: Any) -> Entry:
    at = (NOW - timedelta(hours=hours_ago)).isoformat()
    return Entry(cell.name, at, verdict, "", 60.0, **{"code": code_digest(), **more})


# The matrix.


def matrix(tmp_path: Path, text: str) -> Matrix:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return read_matrix(path)


def test_lists_are_multiplied_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    found = matrix(
        tmp_path,
        """
        time_limit = "30s"
        [[cells]]
        workload = ["log", "register"]
        version = ["5.5.0", "5.3.3", "0.4.0"]
        topology = ["controller", "dledger"]
        client = ["remoting"]
        nemesis = ["none", "bridge", "config-change", "packet-delay by=20ms"]
        """,
    )
    assert found.time_limit == "30s"
    assert {(c.workload, c.topology, c.version) for c in found.cells} == {
        ("log", "controller", "5.5.0"),
        ("log", "controller", "5.3.3"),
        ("register", "dledger", "0.4.0"),
    }
    assert {c.nemesis for c in found.cells} == {"none", "bridge", "packet-delay by=20ms"}
    assert len(found.cells) == 9
    assert found.impossible == {"nemesis: the nemesis 'config-change' needs the option set": 3}


def test_a_workload_has_options_of_its_own_and_shares_a_cluster_with_others(tmp_path: Path) -> None:
    found = matrix(
        tmp_path,
        """
        [[cells]]
        workload = ["queue consume=pop", "delay", "queue"]
        topology = ["slave-acting-master"]
        version = ["5.4.0"]
        client = ["remoting"]
        nemesis = ["none"]
        """,
    ).cells
    assert len({cell.name for cell in found}) == 3
    assert len({cell.shape for cell in found}) == 1
    assert found[0].args()[:6] == ["--workload", "queue", "--nemesis", "none", "--consume", "pop"]
    assert "--consume" not in found[2].args()


def test_a_list_that_is_left_out_is_everything(tmp_path: Path) -> None:
    found = matrix(tmp_path, '[[cells]]\nnemesis = ["none"]\nclient = ["remoting"]')
    assert {c.workload for c in found.cells} >= {"log", "queue", "register"}
    assert {c.topology for c in found.cells} >= {"controller", "dledger-commitlog", "master-slave", "dledger"}
    assert {c.version for c in found.cells} == {"5.1.0", "5.1.1", "5.2.0", "5.3.3", "5.4.0", "5.5.0", "0.4.0"}
    assert {c.profile for c in found.cells} == {"strict", ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one [[cells]] table"),
        ('[[cells]]\nworkload = ["lgo"]', "no workload 'lgo'; did you mean 'log'?"),
        ('[[cells]]\ntopology = ["raft"]', "no topology 'raft'"),
        ('[[cells]]\nworkload = ["queue consume=pip"]', "consume is 'pip'; pull or pop is right"),
        ('[[cells]]\nworkload = ["queue consum=pop"]', "did you mean 'consume'"),
        ('[[cells]]\nworkload = ["queue pop"]', "'pop'"),
        ('[[cells]]\nworkload = [""]', "no workload ''"),
        ('[[cells]]\nversion = ["4.9"]', "at least one [[cells]] table"),
        ('[[cells]]\nnemeses = ["none"]', "unknown key 'nemeses'; did you mean 'nemesis'?"),
        ('[[cells]]\nnemesis = "none"', "a list of strings is right"),
        ("time_limit = 'soon'\n[[cells]]", "a duration is right"),
        ("[[cells", "matrix.toml"),
    ],
)
def test_a_wrong_matrix_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        matrix(tmp_path, text)


def test_options_of_a_cell() -> None:
    (cell,) = cells("packet-delay by=20ms")
    whole = replace(cell, options="--rate 500").args()
    assert whole[:4] == ["--workload", "log", "--nemesis", "packet-delay by=20ms"]
    assert whole[4:] == [
        *["--client", "remoting", "--topology", "controller", "--version", "5.5.0"],
        *["--profile", "strict", "--rate", "500"],
    ]


def test_cells_with_a_plan(tmp_path: Path) -> None:
    """Settings that are not in the table come from the plan."""
    (tmp_path / "plans").mkdir()
    strike = '[[strike]]\nfault = "hammer-time"\ntarget = "n3"\nat = "6s"\nfor = "5s"\n'
    server = '[server]\ntopology = "master-slave"\nversion = "5.4.0"\n'
    (tmp_path / "plans" / "one.toml").write_text(
        f'workload = "queue"\n{server}[server.options]\nreplicas = 3\n{strike}'
    )
    (tmp_path / "plans" / "two.toml").write_text(f'workload = "queue"\n{server}{strike}')
    text = '[[cells]]\nplan = ["plans/one.toml", "plans/two.toml"]\nclient = ["remoting"]\n'
    one, two = matrix(tmp_path, text).cells
    assert one.name == "queue / master-slave / 5.4.0 / strict / remoting / one"
    assert one.args()[:4] == ["--plan", str(tmp_path / "plans" / "one.toml"), "--workload", "queue"]
    assert "--nemesis" not in one.args()
    assert one.shape != two.shape, "their servers are arranged otherwise"
    more = matrix(tmp_path, text + 'version = ["5.3.3", "5.5.0"]\nnemesis = ["none"]\n')
    assert [list(more.limit(c)) for c in (one, replace(one, plan=""))] == [[], ["--time-limit", "60s"]]
    assert list(matrix(tmp_path, f'time_limit = "9s"\n{text}').limit(one)) == ["--time-limit", "9s"]
    assert {(c.version, c.nemesis, Path(c.plan).stem) for c in more.cells} == {
        (version, "none", plan) for version in ("5.3.3", "5.5.0") for plan in ("one", "two")
    }
    with pytest.raises(PlanError, match=r"three\.toml"):
        matrix(tmp_path, '[[cells]]\nplan = ["plans/three.toml"]')


CELL = """
[[cells]]
workload = ["log"]
topology = ["controller"]
version = ["5.5.0"]
nemesis = ["none"]
client = ["remoting"]
options = "OPTIONS"
"""


@pytest.mark.parametrize("own", ["--time-limit 90s", "--rate 9 --time-limit=90s"])
def test_a_time_limit_among_the_options_of_a_cell_counts(tmp_path: Path, own: str) -> None:
    """The limit of the matrix came after it, and won: upgrades of two minutes ended after one."""
    found = matrix(tmp_path, 'time_limit = "9s"\n' + CELL.replace("OPTIONS", own))
    assert list(found.limit(found.cells[0])) == []


def test_options_of_a_workload_need_no_cluster_of_their_own() -> None:
    (cell,) = cells("none")
    shape = replace(cell, options="--replicas 5").shape
    assert replace(cell, options="--no-auto --in-sync-replicas=2 --replicas 5 --rate 9").shape == shape
    assert replace(cell, options="--set broker.a=1 --replicas 5").shape != shape
    assert replace(cell, options="--replicas 3").shape != shape


@pytest.mark.parametrize("suite", sorted(SUITES.glob("*.toml")), ids=lambda path: str(path.stem))
@pytest.mark.slow
def test_the_suites_can_be_run(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_matrix(suite)
    assert not found.impossible
    for cell in found.cells:
        argv = ["run", *cell.args(), "--cluster", "local", "--dry-run", *(["--keep"] if night.shares(cell) else [])]
        code = guarded(lambda argv=argv: cli.main(argv, standalone_mode=False))  # type: ignore[misc]
        assert code == 0, (cell.name, capsys.readouterr().err)


def test_parts_share_the_matrix_shape_by_shape() -> None:
    whole = Matrix([c for v in ("5.5.0", "5.4.0", "5.3.3", "5.2.0") for c in cells("none", "bridge", version=v)])
    parts = [whole.part(i, 3) for i in (1, 2, 3)]
    assert sorted(c.name for part in parts for c in part.cells) == sorted(c.name for c in whole.cells)
    assert sum(len({c.shape for c in part.cells}) for part in parts) == 4


# Whose turn it is.


def test_what_never_ran_comes_first_and_covers_pairs() -> None:
    """One run of (controller, 5.5.0): the next cell shares neither version nor nemesis with it."""
    everything = [*cells("none", "bridge"), *cells("none", "bridge", version="5.4.0")]
    (first, *_) = next_batch(everything, [ran(everything[0])], Random(1), NOW)
    assert (first.version, first.nemesis) == ("5.4.0", "bridge")


def test_all_pairs_are_covered_long_before_all_cells() -> None:
    everything = [
        Cell(w, t, v, "strict", "", n)
        for w in ("log", "queue")
        for t in ("controller", "master-slave")
        for v in ("5.5.0", "5.4.0", "5.3.3")
        for n in ("none", "bridge", "hammer-time", "disk-full")
    ]
    wanted = {pair for cell in everything for pair in cell.pairs}
    names = {cell.name: cell for cell in everything}
    covered: set[Any] = set()
    order = list(ledger.in_order(everything, [], Random(3)))
    for name in order[: len(everything) * 3 // 4]:
        covered |= set(names[name].pairs)
    assert covered == wanted
    assert sorted(order) == sorted(names)


def test_then_failed_then_changed_then_old() -> None:
    a, b, c, d, e = cells("none", "bridge", "hammer-time", "disk-full", "clock-step")
    entries = [
        ran(a, hours_ago=9),
        ran(b, hours_ago=40),
        ran(c, hours_ago=2, code="other"),
        ran(d, "unknown", hours_ago=1),
        ran(e, "invalid", hours_ago=1, known=(5,)),
    ]
    assert next_batch([a, b, c, d, e], entries, Random(1), NOW) == [d, c, b, a, e]


def test_a_batch_has_one_shape_and_some_that_ran_before() -> None:
    old, new = cells(*[f"f{i}" for i in range(9)]), cells(*[f"g{i}" for i in range(9)])
    batch = next_batch([*old, *new, *cells("h", version="5.4.0")], [ran(c) for c in old], Random(1), NOW)
    if batch[0].version == "5.5.0":
        assert [c in old for c in batch] == [False, False, True] * 2
    assert len({c.shape for c in batch}) == 1


def test_a_workload_with_groups_of_its_own_shares_no_cluster_with_others() -> None:
    one, other, third = (
        Cell(w, "controller", "5.5.0", "strict", "remoting", "none") for w in ("log", "queue", "quorum-ack")
    )
    assert one.shape == other.shape
    assert third.shape != one.shape


def test_the_ledger_survives_a_torn_line(tmp_path: Path) -> None:
    (cell,) = cells("none")
    ledger.append(tmp_path, ran(cell))
    with (tmp_path / ledger.FILE).open("a") as file:
        file.write('{"cell": "x", "at": \n')
    ledger.append(tmp_path, ran(cell, "invalid", new=("lost",)))
    assert [e.verdict for e in ledger.read_ledger(tmp_path)] == ["valid", "invalid"]
    assert ledger.read_ledger(tmp_path / "nowhere") == []


# What is new.


def finding(number: int, anomaly: str, *, version: str = "5.5.0", **more: Any) -> Finding:
    return Finding(
        number,
        "x",
        "it",
        "here",
        "--x",
        signature=Signature((anomaly,)),
        measured=[Measured(1, 1, version=version)],
        **more,
    )


def run_of(version: str) -> RunRecord:
    server = ServerRecord("n1", "broker", version=version)
    deployment = DeploymentRecord("controller", servers=(server,))
    return RunRecord(History([Op(0, 0, -1, "invoke", "inject", {"fault": "f", "id": 1})]), deployment=deployment)


def sort(*names: str, findings: Sequence[Finding], version: str = "5.5.0") -> tuple[list[int], list[str]]:
    judgement = Judgement([CheckResult("log", Verdict.INVALID, "so", [Anomaly(name, "so") for name in names])])
    return sorted_as(run_of(version), judgement, findings)


def sorted_as(record: RunRecord, judgement: Judgement, findings: Sequence[Finding]) -> tuple[list[int], list[str]]:
    """Ids of the known findings, and names of what is new."""
    found = explain(record, judgement, findings)
    assert found.new is not None
    return [known.id for known in found.known], list(found.new)


def test_known_findings_explain_their_anomalies_and_what_they_bring() -> None:
    known = finding(5, "lost", brings=("hole",))
    assert sort("lost", "hole", findings=[known]) == ([5], [])
    assert sort("hole", findings=[known]) == ([], ["hole"])
    assert sort("lost", "duplicated", findings=[known]) == ([5], ["duplicated"])
    assert sort("lost", findings=[finding(5, "lost", version="5.4.0")]) == ([], ["lost"])
    assert sort("lost", findings=[finding(5, "lost", topologies=("master-slave",))]) == ([], ["lost"])
    assert sort("lost", findings=[replace(known, signature=Signature(("lost",), log=re.compile("x")))]) == (
        [],
        ["lost"],
    )


def test_a_finding_explains_nothing_on_servers_in_which_it_is_mended() -> None:
    judgement = Judgement([CheckResult("log", Verdict.INVALID, "so", [Anomaly("lost", "so")])])
    for mends, known_and_new in (([], ([5], [])), (["6"], ([5], [])), (["5"], ([], ["lost"]))):
        record = replace(run_of("5.5.0"), plan={"server": {"mends": mends}})
        assert sorted_as(record, judgement, [finding(5, "lost")]) == known_and_new


def test_what_is_permitted_or_doubtful_is_no_news() -> None:
    anomalies = [Anomaly("lost", "so", legal="ASYNC_FLUSH"), Anomaly("unavailable", "so", doubt="no processor")]
    judgement = Judgement([CheckResult("log", Verdict.UNKNOWN, "so", anomalies)])
    assert sorted_as(run_of("5.5.0"), judgement, []) == ([], [])


# A whole night.


class Scripted:
    """Runs that end as a list gives: `v` valid, `n` new anomaly, `k` known one, `0` no run, `-` no such fault here."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signs: str) -> None:
        self.commands: list[list[str]] = []
        self.left = iter(signs)
        self.folder = tmp_path
        monkeypatch.setattr(night, "run_child", self.child)
        monkeypatch.setattr(night, "judge_stored", self.judge)
        monkeypatch.setattr(night.SharedCluster, "remove", lambda cluster: setattr(cluster, "run_id", ""))

    def child(self, args: Sequence[str], store: Path) -> ChildRun:
        self.commands.append(list(args))
        sign = next(self.left)
        if sign == "0":
            return ChildRun(3, None, problem="no engine")
        if sign == "-":
            return ChildRun(69, None, problem="no such disk")
        return ChildRun(0, RunDir(self.folder / f"{len(self.commands)}{sign}"), "h1")

    def judge(self, folder: RunDir) -> tuple[RunRecord, Judgement]:
        sign = folder.path.name[-1]
        anomalies = {"v": [], "n": [Anomaly("duplicated", "twice")], "k": [Anomaly("lost", "gone")]}[sign]
        verdict = Verdict.INVALID if anomalies else Verdict.VALID
        return run_of("5.5.0"), Judgement([CheckResult("log", verdict, "so", anomalies)])


def test_a_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound cluster is used again, one with a finding is not; a second call goes on; the page has it all."""
    scripted = Scripted(tmp_path, monkeypatch, "vknv")
    made = Matrix(cells("none", "bridge", "hammer-time", "disk-full"), "30s", {"no role": 2})
    findings = [finding(5, "lost")]
    said: list[str] = []
    first = night.Night()
    night.run_night(made, findings, tmp_path, said.append, first, until=float("inf"), most=3, extra=["--rate", "9"])
    assert [(e.verdict, e.known, e.new) for e in first.entries] == [
        ("valid", [], []),
        ("invalid", [5], []),
        ("invalid", [], ["duplicated"]),
    ]
    assert ["--reuse" in c for c in scripted.commands] == [False, True, False]
    assert all(c[c.index("--time-limit") :][:2] == ["--time-limit", "30s"] for c in scripted.commands)
    assert all(c[c.index("--rate") :][:2] == ["--rate", "9"] for c in scripted.commands)
    assert first.verdict == Verdict.INVALID
    assert first.ended == "3 runs"
    second = night.Night()
    night.run_night(made, findings, tmp_path, said.append, second, until=float("inf"), most=1)
    assert second.entries[0].cell not in {e.cell for e in first.entries}
    assert second.verdict == Verdict.VALID
    page = night_page(made, first, ledger.read_ledger(tmp_path), findings)
    assert "duplicated" in page
    assert "2 combinations: no role" in page
    assert page.count(">ok<") == 2
    assert ">NEW<" in page
    assert ">5<" in page
    assert "4 of 4 cells ran" in page


def test_what_was_new_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the findings of today; what has no folder any more stays as it was, and so does what was not new."""
    Scripted(tmp_path, monkeypatch, "")
    for number, (sign, new) in enumerate((("v", []), ("n", ["duplicated"]), ("n", ["duplicated"]), ("k", []))):
        folder = tmp_path / f"{number}{sign}"
        if number != 2:
            folder.mkdir()
        (cell,) = cells(f"bridge{number}")
        ledger.append(tmp_path, ran(cell, "invalid" if new else "valid", new=new, folder=str(folder)))
    said: list[str] = []
    found = night.judge_again(tmp_path, [finding(7, "duplicated")], said.append)
    assert [(entry.known, entry.new) for entry in found.entries] == [
        ([], []),
        ([7], []),
        ([], ["duplicated"]),
        ([], []),
    ]
    assert [replace(e, known=list(e.known)) for e in ledger.read_ledger(tmp_path)] == found.entries
    assert len(said) == 1
    assert found.ended == "judged again"
    assert night.judge_again(tmp_path / "none", [], said.append).entries == []
    assert not (tmp_path / "none").exists()


def test_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell once, whatever ran before; those of one shape share a cluster."""
    scripted = Scripted(tmp_path, monkeypatch, "v" * 9)
    made = Matrix([*cells("none"), *cells("none", version="5.4.0"), *cells("bridge", "hammer-time")])
    for cell in made.cells[:2]:
        ledger.append(tmp_path, ran(cell))
    result = night.Night()
    night.run_night(made, [], tmp_path, print, result, until=float("inf"), once=True)
    assert [entry.cell for entry in result.entries] == [
        cell.name for cell in (made.cells[0], *made.cells[2:], made.cells[1])
    ]
    assert ["--reuse" in c for c in scripted.commands] == [False, True, True, False]
    assert result.ended == "every cell has run"


def test_a_fault_that_a_kept_cluster_does_not_have_gets_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(tmp_path, monkeypatch, "v0v")
    result = night.Night()
    made = Matrix(cells("none", "disk-full"))
    night.run_night(made, [], tmp_path, print, result, until=float("inf"), most=2)
    assert ["--reuse" in c for c in scripted.commands] == [False, True, False]
    assert [e.verdict for e in result.entries] == ["valid", "valid"]


def test_a_broken_machine_ends_the_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(tmp_path, monkeypatch, "0" * 40)
    result = night.Night()
    night.run_night(Matrix(cells("none", "bridge")), [], tmp_path, print, result, until=float("inf"))
    assert result.verdict == Verdict.HARNESS_FAILURE
    assert "in a row had no history: there was no run: no engine" in result.ended


def test_what_a_machine_cannot_do_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(tmp_path, monkeypatch, "-" * 40)
    made, result = Matrix(cells("none", "bridge")), night.Night()
    night.run_night(made, [], tmp_path, print, result, until=float("inf"), most=9)
    assert (result.verdict, result.ended) == (Verdict.VALID, "9 runs")
    page = night_page(made, result, ledger.read_ledger(tmp_path), [])
    assert "there was no run: no such disk" in page


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.toml"
    path.write_text('[[cells]]\nworkload = ["register"]\nnemesis = ["none", "bridge"]\n')
    store = str(tmp_path / "store")
    code = guarded(lambda: cli.main(["nightly", str(path), "--dry-run", "--store", store], standalone_mode=False))
    assert code == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "register / dledger / 0.4.0 / bridge",
        "register / dledger / 0.4.0 / none",
    ]
    again = ["nightly", str(path), "--judge-again", "--store", store]
    assert guarded(lambda: cli.main(again, standalone_mode=False)) == 64
    assert f"there was no night in {store}; --store" in capsys.readouterr().err
    ledger.append(Path(store), ran(cells("none")[0]))
    assert guarded(lambda: cli.main(again, standalone_mode=False)) == 0
    assert "1 runs, 0 with new findings; judged again" in capsys.readouterr().out
    assert (Path(store) / "nightly.html").exists()
    code = guarded(lambda: cli.main(["nightly", str(path), "--part", "3/2"], standalone_mode=False))
    assert code == 64
    assert "I/N with 1 <= I <= N is right" in capsys.readouterr().err
    code = guarded(lambda: cli.main(["nightly", str(tmp_path / "none.toml")], standalone_mode=False))
    assert code == 64
    assert "the matrix cannot be read" in capsys.readouterr().err


def test_entries_are_json(tmp_path: Path) -> None:
    (cell,) = cells("none")
    ledger.append(tmp_path, ran(cell))
    (line,) = (tmp_path / ledger.FILE).read_text().splitlines()
    assert json.loads(line)["cell"] == "log / controller / 5.5.0 / strict / remoting / none"
