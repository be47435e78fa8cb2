# SPDX-License-Identifier: Apache-2.0
"""`harness shrink` from the command line: runs are counted once, a break loses none, and the results are files."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.boundary import guarded
from harness.cli.main import cli
from harness.findings.signature import Sight, Sighting
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun
from harness.signals import Stopped
from results.store import RunDir
from results.verdict import Verdict

STRIKES = ("hammer-time", "kill-random-processes", "hammer-time")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f'[[strike]]\nfault = "{fault}"\nat = "{5 + 10 * n}s"\nfor = "4s"\n' for n, fault in enumerate(STRIKES)]
    path = tmp_path / "noisy.toml"
    path.write_text('workload = "log"\ntime_limit = "50s"\n' + "".join(rows))
    return path


class Runs:
    """Runs that show it if a kill is among their strikes. die: the run at which the machine goes away. clients: the
    fewest with which the workload runs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, die: int | None = None, clients: int = 1) -> None:
        self.clients = clients
        self.plans: list[Plan] = []
        self.options: list[Sequence[str]] = []
        self.die = die
        monkeypatch.setattr("harness.series.child.run_child", self.child)
        monkeypatch.setattr("harness.findings.reproduce.judge_stored", lambda folder: (None, None))
        monkeypatch.setattr("harness.findings.signature.Signature.look", self.look)

    def child(self, args: Sequence[str], store: Path) -> ChildRun:
        if self.die is not None and len(self.plans) == self.die:
            raise Stopped(signal.SIGTERM)
        plan = Plan.read(Path(args[1]))
        if plan.concurrency < self.clients:
            raise PlanError(f"concurrency is {plan.concurrency}; log needs {self.clients} clients")
        self.plans.append(plan)
        self.options.append(args[2:])
        return ChildRun(Verdict.INVALID.exit_code, RunDir(store / str(len(self.plans))))

    def look(self, *_: object) -> Sighting:
        shown = any(strike.fault == "kill-random-processes" for strike in self.plans[-1].strikes)
        return Sighting(Sight.SHOWN if shown else Sight.NOT_SHOWN, "so")


def shrink(*words: str) -> int:
    return guarded(lambda: cli.main(["shrink", *words], standalone_mode=False))


def test_a_plan_its_account_and_its_runs_are_left(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(monkeypatch)
    assert shrink(str(plan), "--anomaly", "lost") == 0
    out = capsys.readouterr().out
    assert "1 strikes" in out.splitlines()[-2]
    found = Plan.read(Path("results/shrunk/plan.toml"))
    assert [strike.fault for strike in found.strikes] == ["kill-random-processes"]
    account = Path("results/shrunk/account.md").read_text()
    assert "| the last 1 of 3 strikes | 0 of" in account
    assert 'anomalies = ["lost"]' in account
    assert len(Path("results/shrunk/runs.jsonl").read_text().splitlines()) == len(runs.plans)
    assert len({options[1] for options in runs.options}) == len(runs.plans)  # each has a seed of its own


def test_a_cut_that_the_workload_refuses_is_refused(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client cannot send and read. The search ended there, without an account."""
    Runs(monkeypatch, clients=2)
    assert shrink(str(plan), "--anomaly", "lost") == 0
    found = Plan.read(Path("results/shrunk/plan.toml"))
    assert ([strike.fault for strike in found.strikes], found.concurrency) == (["kill-random-processes"], 2)
    account = Path("results/shrunk/account.md").read_text()
    assert "1 client: concurrency is 1; log needs 2 clients | 0 of 0 | no |" in account


def test_a_search_that_was_broken_off_runs_nothing_again(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Runs(monkeypatch, die=9)
    assert shrink(str(plan), "--anomaly", "lost") == 128 + signal.SIGTERM
    second = Runs(monkeypatch)
    assert shrink(str(plan), "--anomaly", "lost") == 0
    whole = len(Path("results/shrunk/runs.jsonl").read_text().splitlines())
    assert len(first.plans) + len(second.plans) == whole


def test_a_search_ends_at_its_number_of_runs(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(monkeypatch)
    assert shrink(str(plan), "--anomaly", "lost", "--max-runs", "7") == 2
    assert "not verified: 7 runs were made (--max-runs)" in capsys.readouterr().out
    assert len(runs.plans) == 7
    assert Path("results/shrunk/plan.toml").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "'nowhere' is no finding"),
        (["noisy.toml"], "--anomaly or --finding says what to look for"),
        (["noisy.toml", "--finding", "999"], "the record has no such finding"),
        (["noisy.toml", "--finding", "5", "--anomaly", "lost"], "exclude each other"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], says: str, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Runs(monkeypatch)
    assert plan.exists()
    assert shrink(*words) == 64
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
