# SPDX-License-Identifier: Apache-2.0
"""Server mutants: their files are whole, the suite has each of them, and the table says what the judges found."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli.main import cli, guarded
from harness.findings.pages import replaced
from harness.findings.record import read_findings
from harness.nightly.matrix import read_matrix
from infra.systems.dledger import server as dledger
from infra.systems.maven import fetch_jars
from infra.systems.mends import apply
from infra.systems.mends.catalog import Mend, Mutant, choose, mends, own_mend
from infra.systems.rocketmq.servers import artifacts
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from rocketmq_harness.mutants import DEPTHS, PAGE, Tried, _planned, file_of, outcome, read_mutants, suite, table

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "examples" / "suites" / "mutants.toml"
MUTANTS = read_mutants()


def planted(mend: Mend) -> Mutant:
    assert mend.mutant is not None
    return mend.mutant


# The files.


def test_the_mutants_have_all_depths_and_both_systems() -> None:
    assert len(MUTANTS) >= 40
    assert {planted(mend).depth for mend in MUTANTS} == set(DEPTHS)
    assert {version for mend in MUTANTS for version in mend.versions} == {"rocketmq 5.5.0", "dledger 0.4.0"}


def test_no_mutant_has_the_id_of_a_finding() -> None:
    """A known finding counts as mended in a run that names its id."""
    assert not {mend.id for mend in MUTANTS} & {finding.id for finding in read_findings()}


def test_a_mutant_names_anomalies_that_a_judge_reports() -> None:
    known = set(re.findall(r"^\| \[`([a-z-]+)`\]", (ROOT / "docs" / "anomalies.md").read_text(), re.MULTILINE))
    for mend in MUTANTS:
        assert planted(mend).anomalies, mend.name
        assert set(planted(mend).anomalies) <= known, mend.name


def test_a_mutant_logs_the_line_that_its_file_names() -> None:
    """Without the line, a run in which it never acted would count as missed."""
    for mend in MUTANTS:
        found = {
            f"mutant {number} acted: {text}"
            for edit in mend.edits
            for number, text in re.findall(r'harness\.mends\.Mutant\.acts\((\d+), "([^"]+)"\)', edit.source)
        }
        assert found == {planted(mend).log}, mend.name


def test_the_suite_is_made_of_the_files() -> None:
    assert SUITE.read_text() == suite(MUTANTS)


def test_each_mutant_has_a_cell_that_can_run() -> None:
    matrix = read_matrix(SUITE)
    assert not matrix.impossible
    assert [file_of(mend) in cell.options for mend, cell in zip(MUTANTS, matrix.cells, strict=True)] == [True] * len(
        MUTANTS
    )


def test_each_plan_for_mutants_is_of_one() -> None:
    """A plan that no command names would rot."""
    words = {word for mend in MUTANTS for word in shlex.split(planted(mend).run)}
    plans = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / "plans" / "mutants").glob("*.toml")}
    assert plans == {word for word in words if word.startswith("examples/plans/")}


@pytest.mark.parametrize("mend", [pytest.param(mend, id=str(mend.id)) for mend in MUTANTS])
@pytest.mark.slow
def test_the_command_of_a_mutant_is_accepted(mend: Mend, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "run",
        "--dry-run",
        "--cluster",
        "local",
        "--mend",
        f"all,{file_of(mend)}",
        *shlex.split(planted(mend).run),
    ]
    code = guarded(lambda: cli.main(words, prog_name="harness", standalone_mode=False))
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert file_of(mend) in shown.out


# The agent.


def jars(version: str) -> Path:
    return fetch_jars(dledger.POM, dledger.LOCK) if version == dledger.VERSION else artifacts.fetch(version)


@pytest.mark.parametrize("version", [dledger.VERSION, artifacts.DEFAULT_VERSION])
@pytest.mark.slow
def test_all_mutants_apply_to_the_published_jars(version: str) -> None:
    """Their methods exist, and their code compiles and passes the verifier, beside all mends."""
    numbers = [own_mend(str(ROOT / file_of(mend))).id for mend in MUTANTS]
    made = apply.share([*(mend.id for mend in mends()), *numbers], [version])
    apply.check(made.source, version, [jars(version)])
    orders = (made.source / f"{version}.orders").read_text()
    ours = [mend for mend in MUTANTS if version in {name.split()[-1] for name in mend.versions}]
    assert {str(mend.id) for mend in ours} <= set(re.findall(r"^\d+\.mend=(\d+)", orders, re.MULTILINE))


@pytest.mark.parametrize("mend", [pytest.param(mend, id=str(mend.id)) for mend in MUTANTS])
@pytest.mark.nightly
@pytest.mark.slow
def test_a_mutant_applies_beside_all_mends(mend: Mend) -> None:
    """As its cell runs it: no edit of another mutant hides that its own does not fit."""
    (name,) = mend.versions
    version = name.split()[-1]
    chosen = choose(["all", str(ROOT / file_of(mend))], [name])
    made = apply.share([one.id for one in chosen], [version])
    apply.check(made.source, version, [jars(version)])


ACTS = """
import harness.mends.Mutant;
import org.apache.rocketmq.controller.impl.manager.SyncStateInfo;

public class Acts {
    public static void main(String[] args) {
        SyncStateInfo group = new SyncStateInfo("c", "b");
        for (long broker = 1; broker <= 30; broker++) {
            group.updateMasterInfo(broker);
        }
        System.out.println("epoch " + group.getMasterEpoch() + ", master " + group.getMasterBrokerId());
        System.out.println(Mutant.every(7, 2) + " " + Mutant.every(7, 2) + " " + Mutant.every(8, 1));
        Mutant.mark("event");
        System.out.println(Mutant.within("event", 60000L) + " " + Mutant.unmark("event"));
        System.out.println(Mutant.marked("event"));
        byte[] message = new byte[120];
        java.nio.ByteBuffer.wrap(message).putInt(4, -626843481).putInt(84, 20);
        System.out.println(Mutant.spoil(message, 0, 100) + " " + Mutant.spoil(message, 0, 120) + " " + message[98]);
    }
}
"""


@pytest.mark.slow
def test_a_mutant_does_its_harm_and_logs_it_twenty_times_at_most(tmp_path: Path) -> None:
    """In a JVM without a cluster: 30 elections of one group, all in the first epoch."""
    version = artifacts.DEFAULT_VERSION
    (mend,) = [mend for mend in MUTANTS if mend.id == 1046]
    made = apply.share([own_mend(str(ROOT / file_of(mend))).id], [version])
    (tmp_path / "Acts.java").write_text(ACTS)
    path = f"{jars(version)}/*:{made.source}/*"
    subprocess.run(["javac", "-cp", path, "-d", str(tmp_path), str(tmp_path / "Acts.java")], check=True, timeout=120)
    argv = ["java", apply.option(str(made.source), version), "-cp", f"{tmp_path}:{path}", "Acts"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert sum(line.endswith(f" {planted(mend).log}") for line in lines) == 20, done.stderr
    assert lines[-5:] == ["epoch 1, master 30", "false true true", "true true", "false", "false true 1"]


# The table.

MUTANT = Mutant("it stays", ("lost", "dirty-read"), "a", "--workload log", "mutant 1001 acted: it lost")


def run_of(folder: Path, *lines: str, skipped: int = 0) -> RunRecord:
    log = folder / "broker.log"
    log.write_text("".join(f"2026-11-29 15:00:00.000 {line}\n" for line in lines))
    ops = [Op(i, i, -1, "invoke", "skip", {"id": i}) for i in range(skipped)]
    return RunRecord(History(ops), logs={"n1": [log]})


def judged(*anomalies: Anomaly, verdict: Verdict = Verdict.INVALID) -> Judgement:
    return Judgement([CheckResult("log", verdict if anomalies else Verdict.VALID, "so", anomalies)])


ACTED = "mutant 1001 acted: it lost"


def test_a_run_that_acted_and_shows_its_anomaly_is_found(tmp_path: Path) -> None:
    run = outcome(1001, MUTANT, run_of(tmp_path, ACTED), judged(Anomaly("hole", "x"), Anomaly("lost", "x")))
    assert run == Tried(1001, "found", ("lost", "hole"))


def test_a_run_that_acted_and_was_judged_valid_is_missed(tmp_path: Path) -> None:
    assert outcome(1001, MUTANT, run_of(tmp_path, ACTED), judged()) == Tried(1001, "missed")


def test_a_run_with_another_anomaly_alone_is_missed(tmp_path: Path) -> None:
    """A known defect, or a side effect, must not count for the judge of the promise."""
    run = outcome(1001, MUTANT, run_of(tmp_path, ACTED), judged(Anomaly("unavailable", "x")))
    assert run == Tried(1001, "missed", ("unavailable",))


def test_a_permitted_anomaly_is_missed_and_shown(tmp_path: Path) -> None:
    run = outcome(1001, MUTANT, run_of(tmp_path, ACTED), judged(Anomaly("lost", "x", legal="the profile permits it")))
    assert run == Tried(1001, "missed", (), ("lost",))


def test_a_run_whose_mutant_was_silent_has_not_acted(tmp_path: Path) -> None:
    """Such a run is no evidence about the mutant; the line of another mutant is not its own."""
    record = run_of(tmp_path, "mend 1001 applied to a.B.c", "mutant 1002 acted: it lost")
    assert outcome(1001, MUTANT, record, judged()).outcome == "not acted"
    assert outcome(1001, MUTANT, record, judged(Anomaly("lost", "x"))).outcome == "not acted"


def test_a_line_of_an_earlier_run_on_the_cluster_does_not_count(tmp_path: Path) -> None:
    record = run_of(tmp_path, ACTED)
    later = RunRecord(record.history, logs=record.logs, environment={"begun_at": "2026-11-29T16:00:00.000"})
    assert outcome(1001, MUTANT, later, judged()).outcome == "not acted"


@pytest.mark.parametrize(
    ("anomalies", "skipped", "why"),
    [
        ((Anomaly("lost", "x", doubt="no processor time"),), 0, "lost: no processor time"),
        ((), 2, "only 0 of 2 strikes met their event"),
    ],
)
def test_a_run_in_doubt_is_not_decided(anomalies: Sequence[Anomaly], skipped: int, why: str, tmp_path: Path) -> None:
    judgement = judged(*anomalies, verdict=Verdict.UNKNOWN)
    run = outcome(1001, MUTANT, run_of(tmp_path, ACTED, skipped=skipped), judgement)
    assert (run.outcome, run.why) == ("not decided", why)


def test_a_run_is_of_the_mutant_that_its_plan_names(tmp_path: Path) -> None:
    def plan(text: str) -> int | None:
        (tmp_path / "plan.toml").write_text(text)
        return _planned(tmp_path)

    assert plan('[server]\nmends = ["5", "examples/mutants/1001-x.toml"]') == 1001
    assert plan('[server]\nmends = ["/lib/harness/shipped/mutants/1001-x.toml"]') == 1001
    assert plan('[server]\nmends = ["5"]') is None
    assert plan('[server]\nmends = ["mutants/1001-x.toml", "mutants/1002-x.toml"]') is None
    assert plan("workload =") is None


def test_the_table_counts_by_depth_and_has_a_row_for_each_mutant() -> None:
    """A mutant that was found once is found; one without a run is not run."""
    four = [
        Mend(1000 + n, "x", f"change {n}", "", ("rocketmq 5.5.0",), (), mutant=Mutant("kept", ("lost",), depth, "", ""))
        for n, depth in enumerate(("a", "a", "a", "c"), start=1)
    ]
    runs = [Tried(1001, "missed", ["hole"]), Tried(1001, "found", ["lost"]), Tried(1002, "missed", [], ["lost"])]
    runs.append(Tried(1003, "not acted", [], [], "only 0 of 1 strikes met their event"))
    lines = table(four, runs)
    assert lines[2:5] == [
        "| a: one fault or none | 3 | 1 | 1 | 1 | 0 | 0 |",
        "| b: a second thing within two seconds of an event | 0 | 0 | 0 | 0 | 0 | 0 |",
        "| c: two faults in order | 1 | 0 | 0 | 0 | 0 | 1 |",
    ]
    assert lines[8:] == [
        "| 1001 change 1 | a | kept | rocketmq 5.5.0 | missed in 1 of 2, found in 1 of 2 | `hole`, `lost` |",
        "| 1002 change 2 | a | kept | rocketmq 5.5.0 | missed | `lost` (permitted) |",
        "| 1003 change 3 | a | kept | rocketmq 5.5.0 | not acted | only 0 of 1 strikes met their event |",
        "| 1004 change 4 | c | kept | rocketmq 5.5.0 | not run | - |",
    ]
    page = (ROOT / "docs" / PAGE).read_text()
    assert "| 1004 change 4 |" in replaced(page, "\n".join(lines))
