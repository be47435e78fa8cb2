# SPDX-License-Identifier: Apache-2.0
"""`harness reproduce N --expect gone`: the end of a correction. A wrong `gone` is the worst that it could say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli.main import cli, guarded
from harness.findings import record, reproduce
from harness.findings.signature import Sight, Sighting
from harness.series.child import ChildRun
from results.verdict import Verdict

FINDING = """
title = "it breaks"
system = "RocketMQ 5.5.0"
command = "--nemesis bridge"
[signature]
anomalies = ["lost"]
"""

SIGHTS = {"+": Sight.SHOWN, "-": Sight.NOT_SHOWN, "0": Sight.NOT_TRIED}


def measured(shown: int, runs: int, change: str = "") -> str:
    return f'[[measured]]\nshown = {shown}\nruns = {runs}\nchange = "{change}"\n'


class Series:
    """The command on runs that are given: `+` shown, `-` not shown, `0` not tried."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.runs = 0
        self.sights = ""
        (folder / "record").mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(reproduce, "run_child", self.child)
        monkeypatch.setattr(reproduce, "judged", self.judge)

    def child(self, args: Sequence[str], store: Path) -> ChildRun:
        self.runs += 1
        return ChildRun(Verdict.VALID.exit_code, None)

    def judge(self, subject: reproduce.Subject, run: ChildRun) -> list[Sighting]:
        sign = self.sights[min(self.runs, len(self.sights)) - 1]
        return [Sighting(SIGHTS[sign], "so")] * (1 + len(subject.others))

    def finding(self, text: str, name: str = "05-breaks") -> None:
        (self.folder / "record" / f"{name}.toml").write_text(FINDING + text)

    def reproduce(self, sights: str, *words: str) -> tuple[int, str, str]:
        """The exit code, the last line of the output, and standard error. The last sight is repeated."""
        self.runs, self.sights = 0, sights
        argv = ["reproduce", *words, "--expect", "gone", "--record", "record", "--no-record"]
        code = guarded(lambda: cli.main(argv, standalone_mode=False))
        shown = self.capsys.readouterr()
        return code, (shown.out.splitlines() or [""])[-1], shown.err


@pytest.fixture
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Series:
    return Series(tmp_path, monkeypatch, capsys)


def test_a_defect_that_does_not_show_any_more_is_gone(series: Series) -> None:
    series.finding(measured(5, 5))
    code, last, _ = series.reproduce("-", "5")
    assert (code, series.runs) == (0, 6)
    assert last == "gone: finding 5, shown in 0 of 6 (0.00 to 0.46), 0.1175 or less against 0.47 or more"


def test_a_defect_that_shows_is_not_gone(series: Series) -> None:
    series.finding(measured(5, 5))
    code, last, _ = series.reproduce("+", "5")
    assert (code, last.partition(",")[0]) == (1, "not gone: finding 5")


def test_what_was_not_decided_is_not_gone(series: Series) -> None:
    """Runs that tried nothing prove nothing."""
    series.finding(measured(5, 5))
    code, last, _ = series.reproduce("-0", "5")
    assert (code, last.partition(",")[0]) == (1, "not decided: finding 5")
    assert "3 more tried nothing" in last


def test_a_rare_defect_takes_more_runs(series: Series) -> None:
    """Three runs in a row without a defect of 8 in 17 happen once in seven times."""
    series.finding(measured(8, 17))
    assert series.reproduce("-", "5")[0] == 0
    assert series.runs == 16


def test_a_wrong_gone_is_as_rare_as_the_test_says() -> None:
    """Against the smallest rate that fits the record, `gone` is said in 5 % of all series at most."""
    from harness.cli.reproduce import _test_of

    for shown, runs in ((5, 5), (10, 10), (8, 17), (3, 3)):
        finding = record.Finding(5, "x", "t", "s", measured=[record.Measured(shown, runs)])
        test = _test_of(reproduce.Subject("finding 5", [], None, finding=finding), [], None, None)
        left, gone = {0: 1.0}, 0.0
        for n in range(1, test.most + 1):
            following: dict[int, float] = {}
            for k, chance in left.items():
                for more, part in ((0, 1 - test.show), (1, test.show)):
                    match test.decision(k + more, n):
                        case "gone":
                            gone += chance * part
                        case None:
                            following[k + more] = following.get(k + more, 0.0) + chance * part
            left = following
        assert gone <= 0.05, (shown, runs, gone)


def test_the_rate_of_the_version_counts_where_it_showed(series: Series) -> None:
    series.finding(measured(5, 5) + measured(8, 17, "--version 5.3.3") + measured(0, 5, "--version 5.4.0"))
    assert series.reproduce("-", "5", "--version", "5.3.3")[0] == 0
    assert series.runs == 16
    assert series.reproduce("-", "5", "--version", "5.4.0")[0] == 0
    assert series.runs == 6


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (measured(1, 1), [], "showed in 1 of 1 (0.02 to 1.00), and 60 runs without it would not exclude 0.02"),
        (measured(0, 9), [], "nobody has measured how often finding 5 shows; --show P says it"),
        (measured(5, 5), ["--runs", "3"], "leave out --all, --runs and --within"),
        (measured(5, 5), ["--all"], "leave out --all, --runs and --within"),
        (measured(5, 5), ["--gone", "0.5"], "0 < gone < show < 1 is right"),
    ],
)
def test_a_series_that_could_not_decide_is_not_begun(series: Series, text: str, words: list[str], said: str) -> None:
    series.finding(text)
    code, _, err = series.reproduce("-", "5", *words)
    assert (code, series.runs) == (64, 0)
    assert said in err
    assert err.count("\n") == 1


def test_several_findings_are_gone_together(series: Series) -> None:
    series.finding(measured(5, 5))
    series.finding(measured(5, 5), "06-else")
    code, last, _ = series.reproduce("------+", "5", "6")
    assert code == 1
    assert [part.partition(",")[0] for part in last.split("; ")] == ["gone: finding 5", "not gone: finding 6"]


def test_a_plan_needs_a_rate(series: Series) -> None:
    series.finding(measured(5, 5))
    Path("plan.toml").write_text('workload = "log"\nseed = 1\n')
    code, _, err = series.reproduce("-", "plan.toml", "--anomaly", "lost")
    assert (code, "nobody has measured how often plan.toml shows" in err) == (64, True)
    assert series.reproduce("-", "plan.toml", "--anomaly", "lost", "--show", "0.8")[0] == 0


def test_the_series_is_added_to_the_record(series: Series) -> None:
    series.finding(measured(5, 5))
    series.sights = "-"
    argv = ["reproduce", "5", "--version", "5.4.0", "--expect", "gone", "--record", "record"]
    assert guarded(lambda: cli.main(argv, standalone_mode=False)) == 0
    assert record.read_findings(Path("record"))[0].rates() == {"": (5, 5), "--version 5.4.0": (0, 6)}
