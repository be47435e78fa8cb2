# SPDX-License-Identifier: Apache-2.0
"""Comparisons of two builds: pairs, the ledger, the choice of cells, the outcome, and the exit code, on runs that are
given.
"""

from __future__ import annotations

import json
import shutil
import signal
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.cli import run as run_command
from harness.cli.main import cli, guarded
from harness.compare import choice, pairs
from harness.compare.pairs import FAILED, NEW, OLD, Sample, read_course
from harness.findings.record import Finding, Measured, read_findings
from harness.findings.signature import Signature
from harness.nightly.matrix import Matrix, read_matrix
from harness.plan.plan import PlanError
from harness.series.child import ChildRun
from harness.signals import Stopped
from infra.systems.builds import Build
from infra.systems.rocketmq.servers import artifacts
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

SUITE = """
time_limit = "5s"
[[cells]]
workload = ["log"]
topology = ["controller"]
version = ["5.5.0"]
client = ["remoting"]
nemesis = ["none", "bridge"]
"""
QUIET, BRIDGE = "log, controller, none", "log, controller, bridge"


def sample(*names: str, findings: Sequence[int] = ()) -> Sample:
    return Sample("invalid" if names else "valid", "so", names, tuple(findings), figures=pairs.Figures(100, 2, 9, 3))


Story = Callable[[str, str, int], Sample]
"""(cell, side, number of the pair in its cell) -> the run."""


@dataclass
class Bench:
    """The command on runs that are given. calls: (cell, side, seed) of each."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    story: Story = field(default=lambda cell, side, number: sample())
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    stop_at: int = 0

    def __post_init__(self) -> None:
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "rocketmq-own.jar").touch()
        (self.folder / "suite.toml").write_text(SUITE)
        self.monkeypatch.chdir(self.folder)
        self.monkeypatch.setattr(artifacts, "fetch", lambda version: self.folder / "published")
        self.monkeypatch.setattr("infra.systems.builds.compare", lambda own, before, version: Build(version, ("a.B",)))
        self.monkeypatch.setattr(run_command, "check_words", lambda words: None)
        self.monkeypatch.setattr(pairs, "run_child", self.child)
        self.monkeypatch.setattr(pairs, "judge", self.judge)

    def child(self, args: Sequence[str], store: Path) -> ChildRun:
        side = NEW if "--server-jars" in args else OLD
        cell = BRIDGE if "bridge" in args else QUIET
        self.calls.append((cell, side, int(args[args.index("--seed") + 1])))
        stopped = Stopped(signal.SIGINT) if len(self.calls) == self.stop_at else None
        return ChildRun(0, None, stopped=stopped)

    def judge(self, run: ChildRun, findings: object) -> Sample:
        cell, side, _ = self.calls[-1]
        number = sum(call[:2] == (cell, side) for call in self.calls)
        return self.story(cell, side, number)

    def compare(self, *words: str) -> tuple[int, list[str], str]:
        """The exit code, the lines of the output, and standard error."""
        argv = ["compare", *(words or ("--server-jars", "lib", "--suite", "suite.toml", "--seed", "1"))]
        code = guarded(lambda: cli.main(argv, standalone_mode=False))
        shown = self.capsys.readouterr()
        return code, shown.out.splitlines(), shown.err

    @property
    def ledger(self) -> Path:
        return next((self.folder / "results" / "compare").glob("*.jsonl"))


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, capsys, monkeypatch)


def always(shown: Mapping[tuple[str, str], Sample]) -> Story:
    return lambda cell, side, number: shown.get((cell, side), sample())


def test_equal_builds_are_not_worse(bench: Bench) -> None:
    bench.story = always({(BRIDGE, NEW): sample("lost"), (BRIDGE, OLD): sample("lost")})
    code, lines, _ = bench.compare()
    assert code == 0
    assert lines[-1].startswith("NOT WORSE   new: nothing; as before: lost   4 pairs")
    assert len(bench.calls) == 8


def test_a_pair_has_one_seed_and_the_sides_alternate(bench: Bench) -> None:
    """A drift of the machine then hits both builds alike."""
    bench.compare()
    for first, second in zip(bench.calls[::2], bench.calls[1::2], strict=True):
        assert (first[0], first[2]) == (second[0], second[2])
        assert {first[1], second[1]} == {NEW, OLD}
    assert len({call[2] for call in bench.calls}) == 4
    for cell in (QUIET, BRIDGE):
        assert [call[1] for call in bench.calls[::2] if call[0] == cell] in ([NEW, OLD], [OLD, NEW])
    assert bench.compare()[0] == 0
    assert bench.calls[:8] == bench.calls[8:], "the seed decides everything"


def test_a_new_anomaly_is_worse(bench: Bench) -> None:
    bench.story = always({(BRIDGE, NEW): sample("lost", "dirty-read")})
    code, lines, _ = bench.compare()
    assert code == 1
    assert lines[-1].startswith("WORSE   new: dirty-read, lost   6 pairs")
    assert any("lost" in line and "4 of 4 (0.40 to 1.00) against 0 of 4 (0.00 to 0.60)" in line for line in lines)


def test_a_finding_that_is_gone_is_not_worse(bench: Bench) -> None:
    bench.story = always({(BRIDGE, OLD): sample("lost", findings=[5])})
    code, lines, _ = bench.compare()
    assert code == 0
    assert lines[-1].startswith("NOT WORSE   new: nothing; gone: finding 5, lost")


def test_an_anomaly_that_only_becomes_more_frequent_is_not_new(bench: Bench) -> None:
    def story(cell: str, side: str, number: int) -> Sample:
        return sample("lost") if side == NEW or number == 1 else sample()

    bench.story = story
    code, lines, _ = bench.compare()
    assert (code, lines[-1].split("   ")[1]) == (1, "new: nothing; more often: lost")


def test_time_that_is_too_short_leaves_it_undecided(bench: Bench) -> None:
    """Code 2, the pairs that it would take, and the command that goes on."""
    bench.story = always({(QUIET, NEW): sample("lost")})
    code, lines, _ = bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--minutes", "0.001")
    assert code == 2
    assert any("3 more that differ alike, or 2 more that do not differ" in line for line in lines), lines
    assert any(f"harness compare --resume {Path('results') / 'compare' / bench.ledger.name}" in line for line in lines)
    assert lines[-1].startswith("NOT DECIDED   new: nothing; undecided: lost   1 pair in")


def test_a_later_call_goes_on(bench: Bench) -> None:
    bench.story = always({(QUIET, NEW): sample("lost")})
    bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--minutes", "0.001", "--seed", "4")
    code, lines, _ = bench.compare("--resume", str(bench.ledger))
    assert (code, lines[-1].partition("   ")[0]) == (1, "WORSE")
    course = read_course(bench.ledger)
    assert len(course.pairs) == len(bench.calls) / 2 == 6
    assert course.pairs[0].new == replace(sample("lost"), seconds=course.pairs[0].new.seconds)


def test_jars_that_changed_meanwhile_are_refused(bench: Bench) -> None:
    bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--minutes", "0.001")
    (bench.folder / "lib" / "rocketmq-own.jar").write_bytes(b"another build")
    code, _, problem = bench.compare("--resume", str(bench.ledger))
    assert code == 64
    assert "have changed since it began" in problem


def test_a_torn_line_of_the_ledger_is_left_out(bench: Bench) -> None:
    bench.compare()
    whole = bench.ledger.read_text()
    for torn in ("{", '{"pair": {"cell": 0}}', "[]", '"x"', whole.splitlines()[-1].replace('"cell": ', '"cell": 9')):
        bench.ledger.write_text(f"{whole}{torn}\n")
        assert len(read_course(bench.ledger).pairs) == 4, torn


@pytest.mark.parametrize(
    "head", ["", "[]", "{}", '{"format": 1, "comparison": {}}', '{"format": 1, "comparison": 3}', "1"]
)
def test_what_is_no_ledger_is_one_line(bench: Bench, head: str) -> None:
    Path("other.jsonl").write_text(head + "\n")
    code, _, problem = bench.compare("--resume", "other.jsonl")
    assert (code, len(problem.splitlines())) == (64, 1)


def test_a_store_that_cannot_be_written_is_one_line(bench: Bench) -> None:
    Path("file").touch()
    code, _, problem = bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--store", "file/x")
    assert (code, len(problem.splitlines())) == (3, 1)
    assert "the ledger of the comparison" in problem


def test_what_was_done_before_a_signal_is_judged(bench: Bench) -> None:
    """Half a pair does not count."""
    bench.story = always({(QUIET, NEW): sample("lost")})
    bench.stop_at = 6
    code, lines, _ = bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--json", "out.json")
    assert code == 128 + signal.SIGINT
    assert lines[-1].startswith("NOT DECIDED")
    assert json.loads(Path("out.json").read_text())["pairs"] == 2
    assert bench.ledger.with_suffix(".html").is_file()


def test_a_build_that_cannot_run_is_worse(bench: Bench) -> None:
    """Such as one whose brokers do not start."""
    dead = Sample(why="no server became ready", failed=True)
    bench.story = always({(QUIET, NEW): dead, (BRIDGE, NEW): dead})
    code, lines, _ = bench.compare()
    assert code == 1
    assert f"new: {FAILED}" in lines[-1]


def test_a_machine_that_cannot_run_anything_is_a_failure_of_the_harness(bench: Bench) -> None:
    bench.story = lambda cell, side, number: Sample(why="no docker here", failed=True)
    code, lines, _ = bench.compare()
    assert code == 3
    assert len(bench.calls) == 12, "three pairs of each cell, and no more"
    assert any("not tried" in line and "no docker here" in line for line in lines)


def test_a_pair_that_tried_nothing_does_not_count(bench: Bench) -> None:
    def story(cell: str, side: str, number: int) -> Sample:
        return Sample("unknown", untried="no fault took effect") if (cell, number) == (BRIDGE, 1) else sample()

    bench.story = story
    code, lines, _ = bench.compare()
    assert code == 0
    assert "4 pairs" in lines[-1]
    assert len(bench.calls) == 10


def test_the_page_and_the_json(bench: Bench) -> None:
    bench.story = always({(BRIDGE, OLD): sample("lost", findings=[5]), (QUIET, OLD): sample("<script>")})
    bench.compare("--server-jars", "lib", "--suite", "suite.toml", "--json", "out.json")
    page = bench.ledger.with_suffix(".html").read_text()
    assert "a cut-off master acknowledges what nobody else has" in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "longest silence" in page
    told = json.loads(Path("out.json").read_text())
    assert (told["verdict"], told["exit_code"]) == ("not worse", 0)
    assert {row["thing"]: row["state"] for row in told["rows"]}["finding 5"] == "gone"
    assert told["figures"][0]["figure"] == "rate"


def test_a_dry_run_says_what_differs_and_starts_nothing(bench: Bench) -> None:
    code, lines, _ = bench.compare("--server-jars", "lib", "--dry-run")
    assert code == 0
    assert not bench.calls
    assert lines[2] == "differ      1 changed class (B)"
    assert sum(line.endswith("(core)") for line in lines) == choice.MOST
    assert not (bench.folder / "results").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--server-jars is missing"),
        (["--server-jars", "nowhere"], "nowhere: no folder with jars in it"),
        (["--server-jars", "lib", "--against", "4.9"], "4.9"),
        (["--server-jars", "lib", "--against", "5.4.0", "--version", "5.5.0"], "--version is for --against DIR"),
        (["--server-jars", "lib", "--finding", "9999"], "--finding 9999: the record has no such finding"),
        (["--server-jars", "lib", "--option", "--seed 3"], "--seed cannot be an option of the runs"),
        (["--server-jars", "lib", "--option", "--version 5.4.0"], "--version cannot be an option of the runs"),
        (["--server-jars", "lib", "--suite", "missing.toml"], "missing.toml"),
        (["--resume", "lib/rocketmq-own.jar"], "not a ledger of harness compare"),
        (["--resume", "suite.toml", "--server-jars", "lib"], "leave --server-jars out"),
    ],
)
def test_wrong_options_are_one_line(bench: Bench, words: list[str], said: str) -> None:
    code, _, problem = bench.compare("--minutes", "1", *words)
    assert code == 64
    assert said in problem
    assert len(problem.splitlines()) == 1


# The choice of cells.


@pytest.fixture(scope="module")
def suite() -> Matrix:
    return read_matrix(choice.FILE)


def chosen(suite: Matrix, *changed: str) -> list[choice.Chosen]:
    return choice.by_classes(suite, Build("5.5.0", changed), read_findings(), "5.5.0")


def test_without_a_difference_the_core_runs(suite: Matrix) -> None:
    cells = chosen(suite)
    assert [cell.why for cell in cells] == ["core"] * choice.MOST
    assert choice.minutes_of(cells) <= 16


@pytest.mark.parametrize(
    ("changed", "cell"),
    [
        ("org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService", "partition-leader-minority"),
        ("org.apache.rocketmq.store.CommitLog", "pause-slaves-kill-master"),
        ("org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy", "kill-random-processes target=master"),
        ("org.apache.rocketmq.broker.transaction.TransactionalMessageServiceImpl", "transaction"),
        ("org.apache.rocketmq.store.timer.TimerWheel", "delay"),
        ("org.apache.rocketmq.broker.processor.PopMessageProcessor", "queue consume=pop"),
        ("org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager", "route"),
        ("io.openmessaging.storage.dledger.DLedgerServer", "dledger-commitlog"),
    ],
)
def test_a_class_brings_its_cells(suite: Matrix, changed: str, cell: str) -> None:
    cells = chosen(suite, changed)
    assert len(cells) == choice.MOST
    mine = [one for one in cells if one.why.startswith("classes")]
    assert any(cell in one.name for one in mine), cells
    assert all(changed.rpartition(".")[2] in one.why for one in mine)


def test_a_finding_whose_classes_all_differ_brings_its_command(suite: Matrix) -> None:
    first = chosen(suite, "org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl")[0]
    assert first.name == "finding 9"
    assert "--version" not in first.args


def test_a_finding_that_a_cell_shows_needs_no_command(suite: Matrix) -> None:
    cells = chosen(suite, "org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService")
    assert not any(cell.name.startswith("finding") for cell in cells)


def test_every_prefix_of_the_suite_names_published_classes(suite: Matrix) -> None:
    """A class that was renamed would silently choose nothing."""
    names = set()
    for jar in artifacts.fetch("5.5.0").glob("*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names |= {name.removesuffix(".class").replace("/", ".") for name in archive.namelist()}
    for cell in suite.cells:
        for prefix in cell.classes:
            assert any(name.startswith(prefix) for name in names), (cell.name, prefix)


def test_two_folders_of_jars_are_compared_with_each_other(tmp_path: Path) -> None:
    """A class that is back to what was published differs, if the other build has changed it."""
    from infra.systems.builds import compare

    def jar(name: str, classes: Mapping[str, bytes]) -> Path:
        (tmp_path / name).mkdir()
        with zipfile.ZipFile(tmp_path / name / "rocketmq.jar", "w") as archive:
            for path, content in classes.items():
                archive.writestr(f"org/apache/rocketmq/{path}.class", content)
        return tmp_path / name

    published = jar("published", {"A": b"a", "B": b"b"})
    mine, other = jar("mine", {"A": b"a", "B": b"x"}), jar("other", {"A": b"y", "B": b"x"})
    assert compare([mine, published], [other, published], "5.5.0").changed == ("org.apache.rocketmq.A",)
    shutil.rmtree(other)
    assert compare([mine, published], published, "5.5.0").changed == ("org.apache.rocketmq.B",)


# The judgement of a run.


def judged(monkeypatch: pytest.MonkeyPatch, *anomalies: Anomaly, verdict: Verdict = Verdict.INVALID) -> Sample:
    """The sample of a run on own jars that have changed the class of finding 900."""
    deployment = DeploymentRecord("controller", servers=(ServerRecord("n1", "broker", version="5.5.0"),))
    history = History([Op(0, 0, -1, "invoke", "inject", {"fault": "f", "id": 1})])
    record = RunRecord(history, environment={"changed_classes": "a.Changed"}, deployment=deployment)
    judgement = Judgement([CheckResult("log", verdict, "so", anomalies)])
    monkeypatch.setattr(pairs, "judge_stored", lambda folder: (record, judgement))
    finding = Finding(
        900, "x", "it loses", "here", "--x", signature=Signature(("lost",)), classes=("Changed",), measured=[SEEN]
    )
    return pairs.judge(ChildRun(verdict.exit_code, RunDir(Path("run"))), [finding])


SEEN = Measured(1, 1, version="5.5.0")


def test_a_finding_of_a_changed_class_is_the_same_thing_for_both_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, Anomaly("lost", "so"), Anomaly("hole", "so", legal="permitted"))
    assert (found.findings, found.names, found.doubtful) == ([900], ["lost"], [])


def test_what_is_in_doubt_is_doubtful_for_its_finding_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, Anomaly("lost", "so", doubt="no processor"), verdict=Verdict.UNKNOWN)
    assert (found.findings, found.names, found.doubtful) == ([], [], ["finding 900", "lost"])


def test_a_run_without_a_verdict_is_failed_or_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, verdict=Verdict.HARNESS_FAILURE).failed
    assert pairs.judge(ChildRun(3, None, problem="no server"), []).failed
    assert pairs.judge(ChildRun(69, None, problem="no disk"), []).untried == "no disk"
    with pytest.raises(PlanError, match="no such option"):
        pairs.judge(ChildRun(64, None, problem="harness: no such option"), [])


# The figures of a run.


def call(index: int, at: float, took: float, outcome: str = "ok", phase: str = "main") -> list[Op]:
    begin, end = round(at * 1e9), round((at + took) * 1e9)
    extra = {"phase": phase}
    return [
        Op(index=2 * index, time=begin, process=index, type="invoke", f="send", extra=extra),
        Op(index=2 * index + 1, time=end, process=index, type=outcome, f="send", extra=extra),  # type: ignore[arg-type]
    ]


def test_figures_are_those_of_acknowledged_operations() -> None:
    ops = [
        *call(0, 0, 0.002),
        *call(1, 1, 0.004),
        *call(2, 2, 1, "fail"),
        *call(3, 6, 0.010),
        *call(4, 9, 1, phase="f"),
    ]
    found = pairs.figures(History(ops))
    assert found is not None
    assert (found.p50_ms, found.p99_ms) == (4.0, 10.0)
    assert found.rate == pytest.approx(3 / 6.01, abs=0.05)
    assert found.silence_s == pytest.approx(5.01, abs=0.01)
    assert pairs.figures(History(call(0, 0, 1, "fail"))) is None
