# SPDX-License-Identifier: Apache-2.0
"""Findings as data: the record, the documents made from it, rates, signatures, and series of runs."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_run import sample_run

from harness.cli.main import cli, guarded
from harness.cli.run import run as run_command
from harness.findings import pages, pictures, rates, record, reproduce
from harness.findings.issue_text import issue_text, project
from harness.findings.signature import Sight, Sighting, Signature
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun, run_child
from harness.signals import Stopped
from results.figures import SECOND
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from results.verdict_file import write_verdict

DOCS = Path(__file__).parents[2] / "docs"


# The record of this project.


def test_every_finding_can_be_run_and_is_explained() -> None:
    findings = record.read_findings()
    assert [f.id for f in findings] == list(range(1, len(findings) + 1))
    chapters = set(re.findall(r"(?m)^## (\S+)$", (DOCS / "anomalies.md").read_text()))
    for finding in findings:
        if finding.signature is None:
            continue
        assert set(finding.signature.anomalies) <= chapters, finding.file
        with run_command.make_context("run", [*finding.args(), "--seed", "1"]) as ctx:
            assert ctx.params["nemesis"] or ctx.params["nemesis"] is None


def test_the_documents_are_made_from_the_record() -> None:
    for path, text in pages.documents(record.read_findings(), DOCS).items():
        assert path.exists(), f"{path.name} is missing; python -m harness.findings.pages docs makes it"
        assert path.read_text() == text, f"{path.name}: python -m harness.findings.pages docs brings it up to date"


def test_every_finding_has_a_text() -> None:
    for finding in record.read_findings():
        _, _, text = (DOCS / pages.FOLDER / f"{finding.file}.md").read_text().partition(pages.END)
        assert "**Seen as**" in text, finding.file
        assert finding.issue is not None, f"{finding.file}: [issue] says what a maintainer needs to know"


def test_an_issue_speaks_no_word_of_this_harness() -> None:
    for finding in record.read_findings():
        assert finding.issue is not None
        text = issue_text(finding, finding.issue)
        assert "](../" not in text
        assert not re.search(r"\bfindings? \[?\d|profile strict", text.partition("### Additional Context")[0]), text


def test_an_issue_has_the_fields_of_the_form(tmp_path: Path) -> None:
    issue = '[issue]\npromised = "P."\nhappens = "H."\nconfiguration = "C"\n[signature]'
    finding = one(tmp_path, GOOD.replace("[signature]", issue).replace("5.5.0", "5.5.0, controller"))
    assert finding.issue is not None
    text = issue_text(finding, finding.issue)
    for part in (
        "**[Bug] It breaks**",
        "### RocketMQ version\n5.5.0\n\nConfiguration: C\n",
        "### Describe the Bug\nH.\n",
        "    harness run --nemesis bridge\n",
        "### What Did You Expect to See?\nP.\n",
        "It showed in 2 of 5 runs",
    ):
        assert part in text
    assert project(finding) == "apache/rocketmq"


def test_an_issue_without_runs_says_so(tmp_path: Path) -> None:
    """A reader of the form must not find its most important field empty."""
    unmeasured = GOOD.partition("[[measured]]")[0]
    for remark in ("", 'remark = "once, by hand"\n'):
        finding = one(tmp_path, f'{remark}{unmeasured}\n[issue]\npromised = "P."\nhappens = "H."\n')
        assert finding.issue is not None
        seen = issue_text(finding, finding.issue).partition("### What Did You See Instead?\n")[2]
        assert seen.startswith("How often these steps show it is not measured yet.\n\n")
        assert ("once, by hand" in seen) == bool(remark)


def test_a_page_ends_with_the_command_that_prints_the_issue(tmp_path: Path) -> None:
    """Nobody edits the issue's text, so it is printed, and not a part of the page."""
    finding = one(tmp_path, f'{GOOD}\n[issue]\npromised = "P."\nhappens = "H."\nmeanwhile = "M."\n')
    page = pages.documents([finding], _docs(tmp_path))[tmp_path / "findings" / "05-breaks.md"]
    assert page.endswith(
        f"{pages.END}\n\n{pages.ISSUE}\n**What is promised.** P.\n\n**Meanwhile.** M.\n\n"
        "**An issue**, ready to file for apache/rocketmq: `harness reproduce 5 --issue`\n"
    )


def test_the_issue_of_every_finding_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offline, line by line as it is in the form, and nothing else on standard output."""
    findings = record.read_findings()
    words = ["reproduce", "--issue", "--measured", str(tmp_path), *(str(finding.id) for finding in findings)]
    assert guarded(lambda: cli.main(words, standalone_mode=False)) == 0
    texts = [issue_text(finding, finding.issue) for finding in findings if finding.issue is not None]
    shown = capsys.readouterr()
    assert shown.out == "".join(f"{text}\n" for text in texts)
    assert shown.err.count("\n") == len(findings)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--issue needs the id of a finding (1 to "),
        (["results/runs/latest"], "not 'results/runs/latest'"),
        (["5", "--runs", "3"], "so --runs has no effect"),
        (["--all"], "so --all has no effect"),
        (["5", "--no-record"], "so --no-record has no effect"),
        (["5", "--page"], "--issue and --page exclude each other"),
    ],
)
def test_what_no_issue_can_be_printed_for_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: cli.main(["reproduce", "--issue", *words], standalone_mode=False)) == 64
    shown = capsys.readouterr()
    assert said in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


def _docs(folder: Path) -> Path:
    (folder / "track-record.md").write_text(f"{pages.BEGIN}\n{pages.END}\n")
    return folder


def test_a_finding_is_explained_when_chance_does_not_explain_it(tmp_path: Path) -> None:
    finding = one(tmp_path, GOOD.replace("shown = 2\nruns = 5", "shown = 5\nruns = 5"))
    assert (finding.mended(), finding.chance()) == ((0, 0), 1)
    record.add(tmp_path, finding, record.Measured(0, 1, change="--mend 5"))
    record.add(tmp_path, finding, record.Measured(1, 9, change="--mend 16"))
    finding = record.read_findings(tmp_path)[0]
    assert (finding.mended(), finding.chance()) == ((0, 1), pytest.approx(1 / 6))
    record.add(tmp_path, finding, record.Measured(0, 1, change="--time-limit 60 --mend 16,5"))
    finding = record.read_findings(tmp_path)[0]
    assert (finding.mended(), finding.chance()) == ((0, 2), pytest.approx(1 / 21))
    record.add(tmp_path, finding, record.Measured(0, 2, change="--mend all"))
    assert record.read_findings(tmp_path)[0].mended() == (0, 4)


# Files of a record.

GOOD = """
title = "it breaks"
system = "RocketMQ 5.5.0"
command = "--nemesis bridge"
[signature]
anomalies = ["lost"]
[[measured]]
shown = 2
runs = 5
"""


def one(folder: Path, text: str, name: str = "05-breaks.toml") -> record.Finding:
    (folder / name).write_text(text)
    return record.read_findings(folder)[0]


def test_a_series_is_added_and_read_again(tmp_path: Path) -> None:
    finding = one(tmp_path, GOOD)
    record.add(tmp_path, finding, record.Measured(1, 3, 2, "--version 5.4.0", "5.4.0", where="2 cores"))
    record.add(tmp_path, finding, record.Measured(5, 5))
    again = record.read_findings(tmp_path)[0]
    assert again.rates() == {"": (7, 10), "--version 5.4.0": (1, 3)}
    assert again.measured[1].not_tried == 2
    assert (tmp_path / "05-breaks.toml").read_text().startswith(GOOD)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "it breaks"', "", "title is ''; a text is right"),
        ('command = "--nemesis bridge"', "", "either a command, or by_hand"),
        (
            'command = "--nemesis bridge"',
            "command = '--nemesis \"bridge'",
            "No closing quotation; words of a shell are right",
        ),
        ('["lost"]', "[]", "anomalies is ()"),
        ('["lost"]', '["lost"]\nlog_line = "("', "log_line is no regular expression"),
        ('["lost"]', '["lost"]\nunless_followed_by = "x"', "unless_followed_by is 'x'; left out where"),
        (
            '["lost"]',
            '["lost"]\nlog_line = "(?P<to>n[0-9])"\nunless_followed_by = "{from}"',
            "unless_followed_by is '{from}'; a group of log_line (to) is right",
        ),
        ('["lost"]', '["lost"]\nat_node = true', "at_node is True; true only where there is a log_line"),
        ('["lost"]', '["lost"]\n[signature.other]\nanomalies = []', "anomalies is ()"),
        ("shown = 2", "shown = 6", "a number from 0 to that of the runs"),
        ("runs = 5", "runs = 5\nwhen = 7", "when is 7; a date is right"),
        ("title =", "titel =", "title is ''"),
        ("runs = 5", "runs = 5\nruns_ = 1", "unknown key 'runs_'"),
        ("[signature]", "[signature", "05-breaks.toml"),
        ("[signature]", '[issue]\npromised = "P"\n[signature]', "issue: happens is ''; a text is right"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(PlanError, match=re.escape(said)):
        one(tmp_path, GOOD.replace(old, new))


def test_names_of_files(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no findings there"):
        record.read_findings(tmp_path)
    with pytest.raises(PlanError, match=r"named NN-NAME\.toml"):
        one(tmp_path, GOOD, "five.toml")
    (tmp_path / "five.toml").unlink()
    one(tmp_path, GOOD)
    with pytest.raises(PlanError, match="has the id 5 as well"):
        one(tmp_path, GOOD, "005-other.toml")


# Rates.


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (10, 10, 0.69, 1),
        (8, 10, 0.44, 0.97),
        (4, 27, 0.04, 0.34),
        (1, 4, 0.01, 0.81),
        (2, 2, 0.16, 1),
        (0, 15, 0, 0.22),
    ],
)
def test_exact_intervals(k: int, n: int, low: float, high: float) -> None:
    """Figures that were computed elsewhere (R's binom.test gives the same)."""
    found = rates.interval(k, n)
    assert found == (pytest.approx(low, abs=0.006), pytest.approx(high, abs=0.006))


def test_an_interval_covers_the_rate_as_often_as_it_says() -> None:
    """Of all results that n runs can have, by their chance."""
    for p in (0.05, 0.3, 0.5, 0.9):
        n = 12
        covered = 0.0
        for k in range(n + 1):
            low, high = rates.interval(k, n)
            chance = rates.at_most(k, n, p) - (rates.at_most(k - 1, n, p) if k else 0.0)
            covered += chance * (low <= p <= high)
        assert covered >= 0.95


def test_a_sequential_test_errs_as_seldom_as_it_says() -> None:
    """Exactly: the chance of each state (k, n) that is not decided yet, for both rates."""
    rule = rates.Sequential(0.8, 0.2)
    for p, wrong in ((0.8, "gone"), (0.2, "show")):
        states, ended, expected = {0: 1.0}, {"show": 0.0, "gone": 0.0}, 0.0
        for n in range(1, rule.most + 1):
            following: dict[int, float] = {}
            for k, chance in states.items():
                for hit, part in ((1, p), (0, 1 - p)):
                    decided = rule.decision(k + hit, n)
                    if decided is None:
                        following[k + hit] = following.get(k + hit, 0.0) + chance * part
                    else:
                        ended[decided] += chance * part
                        expected += chance * part * n
            states = following
        assert ended[wrong] <= rule.error
        assert sum(ended.values()) == pytest.approx(1)
        assert expected == pytest.approx(4.9, abs=0.4)


@given(n=st.integers(0, 6), mended_n=st.integers(0, 6), data=st.data())
def test_the_exact_test_counts_all_ways_to_deal_the_runs(n: int, mended_n: int, data: st.DataObject) -> None:
    k, mended_k = data.draw(st.integers(0, n)), data.draw(st.integers(0, mended_n))
    deals = list(combinations(range(n + mended_n), k + mended_k))  # which runs showed it; the first are the mended ones
    few = sum(sum(run < mended_n for run in deal) <= mended_k for deal in deals)
    assert rates.less_often(k, n, mended_k, mended_n) == pytest.approx(few / len(deals))


@pytest.mark.parametrize(
    ("known", "runs"),
    [
        ((5, 5), 2),
        ((2, 2), 5),
        ((3, 3), 3),
        ((4, 4), 3),
        ((3, 5), 7),
        ((0, 5), 20),
        ((0, 0), 20),
        ((1, 1), 19),
        ((5, 5, 0, 2), 0),
        ((5, 5, 0, 1), 1),
        ((5, 5, 1, 2), 2),
    ],
)
def test_as_many_runs_as_exclude_a_rate(known: tuple[int, ...], runs: int) -> None:
    rule = rates.Excluded(*known)
    assert rule.runs == runs
    assert runs == 0 or rule.decide(0, runs - 1) is None
    assert "excluded" in (rule.decide(0, runs) or "")
    assert ("not excluded" in (rule.decide(runs, runs) or "")) == (runs > 0)


def test_rules_end_a_series() -> None:
    assert rates.Fixed(5).decide(0, 4) is None
    assert rates.Fixed(5).decide(0, 5) == "5 runs"
    assert rates.Sequential(0.8, 0.2, most=4).decide(2, 4) == "undecided after 4 runs"
    with pytest.raises(ValueError, match="0 < gone < show < 1"):
        rates.Sequential(0.2, 0.8)
    with pytest.raises(ValueError, match="3 of 2"):
        rates.interval(3, 2)


# Signatures.

LOST = Signature(("lost",))


def judged(*anomalies: Anomaly, verdict: Verdict = Verdict.INVALID, checker: str = "log") -> Judgement:
    return Judgement([CheckResult(checker, verdict, "as it is", anomalies)])


def run_of(*ops: tuple[str, Any], logs: Sequence[Path] = ()) -> RunRecord:
    history = History(Op(index=i, time=i, process=-1, type="invoke", f=f, value=v) for i, (f, v) in enumerate(ops))
    return RunRecord(history, logs={"n1": logs})


STRIKE = {"fault": "bridge", "id": 1}


def test_an_anomaly_shows_a_finding_unless_it_is_permitted_or_doubtful() -> None:
    run = run_of(("inject", STRIKE))
    assert LOST.look(run, judged(Anomaly("lost", "3 of 4"))) == Sighting(Sight.SHOWN, "lost: 3 of 4")
    legal = Anomaly("lost", "3 of 4", legal="ASYNC_FLUSH")
    assert LOST.look(run, judged(legal, verdict=Verdict.VALID)).sight == Sight.NOT_SHOWN
    assert Signature(("lost",), permitted=True).look(run, judged(legal)).sight == Sight.SHOWN
    assert LOST.look(run, judged(Anomaly("hole", "one"))).sight == Sight.NOT_SHOWN
    doubtful = Anomaly("lost", "3 of 4", doubt="but the machine stood still")
    assert LOST.look(run, judged(doubtful, verdict=Verdict.UNKNOWN)) == Sighting(
        Sight.NOT_TRIED, "lost, but the machine stood still"
    )


def test_the_log_line_must_be_there_too(tmp_path: Path) -> None:
    signature = Signature(("lost",), log=re.compile("found a illegal magic code"))
    log = tmp_path / "broker.log"
    log.write_text("all is well\n")
    found = judged(Anomaly("lost", "3 of 4"))
    assert signature.look(run_of(("inject", STRIKE), logs=[log]), found).sight == Sight.NOT_SHOWN
    log.write_text("all is well\n2026 found a illegal magic code 0x0\n")
    assert signature.look(run_of(("inject", STRIKE), logs=[log]), found).sight == Sight.SHOWN


def test_the_log_line_may_have_to_stand_in_the_time_of_the_anomaly(tmp_path: Path) -> None:
    signature = Signature(("unavailable",), log=re.compile("Failed to elect"), during=True)
    log = tmp_path / "controller.log"
    run = replace(
        run_of(("inject", STRIKE), logs=[log]), environment={"started_at": "2026-11-26T01:00:00.500000+00:00"}
    )
    silence = Anomaly("unavailable", "57 s", window=(10 * SECOND, 67 * SECOND))
    for stamp, sight in (
        ("2026-11-26 01:00:10.499 ", Sight.NOT_SHOWN),
        ("2026-11-26 01:00:10.501 ", Sight.SHOWN),
        ("2026-11-26 01:01:07,500 ", Sight.SHOWN),
        ("2026-11-26 01:01:07.501 ", Sight.NOT_SHOWN),
        ("", Sight.NOT_SHOWN),
    ):
        log.write_text(f"{stamp}WARN Failed to elect a new master\n")
        assert signature.look(run, judged(silence)).sight == sight, stamp
    log.write_text("2026-11-26 01:00:20.000 WARN Failed to elect a new master\n")
    first = Anomaly("unavailable", "31 s", window=(70 * SECOND, 101 * SECOND))
    assert signature.look(run, judged(first, silence)) == Sighting(Sight.SHOWN, "unavailable: 57 s")
    assert signature.look(run, judged(Anomaly("unavailable", "no window"))).sight == Sight.NOT_SHOWN
    assert signature.look(replace(run, environment={}), judged(silence)).sight == Sight.NOT_SHOWN


@pytest.mark.parametrize(
    ("later", "sight"),
    [
        ("01:00:02.000 connect to master 10.0.0.5:1\n01:00:40.000 other\n", Sight.NOT_SHOWN),
        ("01:00:02.000 connect to master 10.0.0.4:1\n01:00:40.000 other\n", Sight.SHOWN),
        ("01:00:11.000 connect to master 10.0.0.5:1\n", Sight.NOT_SHOWN),
        ("01:00:11.001 connect to master 10.0.0.5:1\n", Sight.SHOWN),
        ("01:00:09.000 other\n", Sight.NOT_SHOWN),  # The log ends: what would have followed is unknown.
        ("a line without a stamp\n01:00:11.500 other\n", Sight.SHOWN),
        (
            "01:00:02.000 connect to master 10.0.0.5:1\n01:00:03.000 address, NEW: 10.0.0.7:1\n01:00:40.000 other\n",
            Sight.SHOWN,
        ),
    ],
)
def test_the_log_line_may_have_to_stand_without_another_behind_it(tmp_path: Path, later: str, sight: Sight) -> None:
    signature = Signature(
        ("dirty-read",), log=re.compile(r"NEW: (?P<master>\S+)"), unless=r"connect to master {master}$"
    )
    log = tmp_path / "broker.log"
    text = f"01:00:01.000 address, NEW: 10.0.0.5:1\n{later}"
    log.write_text(re.sub(r"(?m)^(?=\d\d:)", "2026-11-26 ", text))
    run = replace(
        run_of(("inject", STRIKE), logs=[log]), environment={"started_at": "2026-11-26T01:00:00.000000+00:00"}
    )
    assert signature.look(run, judged(Anomaly("dirty-read", "7 messages"))).sight == sight


def test_an_anomaly_may_have_to_say_something() -> None:
    signature = Signature(("spinning-thread",), says=re.compile("TransactionalOp"))
    for thread, sight in (("TransactionalOp of the broker", Sight.SHOWN), ("io.openmessagin", Sight.NOT_SHOWN)):
        found = judged(Anomaly("spinning-thread", f"n2: {thread} never waited"))
        assert signature.look(run_of(("inject", STRIKE)), found).sight == sight


def test_the_fault_that_it_needs_must_have_struck() -> None:
    signature = Signature(("lost",), after=("cut-off", "slow"))
    found = judged(Anomaly("lost", "3 of 4"))
    for effect, sight in (("cut-off", Sight.SHOWN), ("down", Sight.NOT_SHOWN)):
        struck = {**STRIKE, "seen": True, "effects": [{"kind": effect, "node": "n1"}]}
        assert signature.look(run_of(("inject", STRIKE), ("inject", struck)), found).sight == sight
    assert signature.look(run_of(), found) == Sighting(Sight.NOT_SHOWN, "lost, but no fault of effect cut-off or slow")


def test_runs_that_tried_nothing() -> None:
    run = run_of(("inject", STRIKE))
    for judgement in (
        judged(verdict=Verdict.HARNESS_FAILURE),
        judged(verdict=Verdict.UNKNOWN, checker="faults"),
        judged(verdict=Verdict.UNKNOWN, checker="complete"),
    ):
        assert LOST.look(run, judgement).sight == Sight.NOT_TRIED
    good = judged(verdict=Verdict.VALID)
    assert LOST.look(run_of(*[("inject", STRIKE)] * 4, ("skip", STRIKE)), good).sight == Sight.NOT_SHOWN
    missed = LOST.look(run_of(*[("inject", STRIKE)] * 3, ("skip", STRIKE)), good)
    assert missed == Sighting(Sight.NOT_TRIED, "only 3 of 4 strikes met their event")


# Series.


def series(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sights: str,
    rule: rates.StoppingRule,
    others: Sequence[record.Finding] = (),
) -> tuple[reproduce.Series, list[list[str]], list[str]]:
    """A series of runs: `+` shown, `-` not shown, `0` no run at all, `!` broken off by a signal."""
    commands: list[list[str]] = []
    said: list[str] = []
    left = iter(sights)

    def child(args: Sequence[str], store: Path) -> ChildRun:
        commands.append(list(args))
        sign = next(left)
        if sign == "0":
            return ChildRun(3, None, problem="the engine is gone")
        folder = tmp_path / f"{len(commands)}{sign}"
        folder.mkdir()
        stopped = Stopped(signal.SIGTERM) if sign == "!" else None
        return ChildRun(1 if sign == "+" else 0, RunDir(folder), "h1", stopped=stopped)

    monkeypatch.setattr(reproduce, "run_child", child)
    monkeypatch.setattr(RunDir, "load", lambda self: run_of())
    monkeypatch.setattr(
        reproduce.Subject,
        "look",
        lambda self, folder: [
            Sighting(Sight.SHOWN if sign == "+" else Sight.NOT_SHOWN, "so")
            for sign in (folder.path.name[-1], *("-" for _ in self.others))
        ],
    )
    subject = reproduce.Subject("it", ["--nemesis", "bridge"], LOST, others=others)
    return reproduce.reproduce(subject, rule, ["--version", "5.4.0"], tmp_path, said.append), commands, said


def test_a_series_of_a_fixed_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, commands, said = series(monkeypatch, tmp_path, "+-0+", rates.Fixed(3))
    assert (found.shown, found.runs, found.not_tried) == (2, 3, 1)
    assert found.describe() == "shown in 2 of 3 (0.09 to 0.99); 1 more tried nothing"
    assert commands == [["--nemesis", "bridge", "--version", "5.4.0"]] * 4
    assert len(said) == 4
    assert "there was no run: the engine is gone" in said[2]
    assert found.measured("--version 5.4.0").change == "--version 5.4.0"


def test_findings_of_one_command_share_their_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one(tmp_path, GOOD, "05-breaks.toml")
    one(tmp_path, GOOD.replace('"lost"', '"hole"'), "06-breaks-too.toml")
    findings = [*record.read_findings(tmp_path), one(tmp_path, GOOD.replace("bridge", "none"), "04-else.toml")]
    subject = reproduce.of_finding(findings[0], findings)
    assert [finding.id for finding in subject.others] == [6]
    found, _, _ = series(monkeypatch, tmp_path, "+0+", rates.Fixed(2), subject.others)
    assert (found.shown, found.runs, found.not_tried) == (2, 2, 1)
    assert [(other.shown, other.runs, other.not_tried) for other in found.others] == [(0, 2, 1)]


def test_what_a_run_says_of_each_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    judged_run = run_of(("inject", STRIKE)), judged(Anomaly("lost", "3 of 4"))
    monkeypatch.setattr(reproduce, "judge_stored", lambda folder: judged_run)
    subject = reproduce.Subject("it", [], LOST, others=[one(tmp_path, GOOD.replace('"lost"', '"hole"'))])
    assert [seen.sight for seen in subject.look(RunDir(tmp_path))] == [Sight.SHOWN, Sight.NOT_SHOWN]


def test_a_series_that_is_broken_off_keeps_what_it_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, commands, _ = series(monkeypatch, tmp_path, "+-!+", rates.Fixed(5))
    assert (found.shown, found.runs, len(commands)) == (1, 2, 3)
    assert found.stopped is not None
    assert found.stopped.signum == signal.SIGTERM


def test_a_series_ends_when_it_is_decided_or_nothing_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    found, _, _ = series(monkeypatch, tmp_path / "a", "+++++++", rates.Sequential(0.8, 0.2))
    assert (found.shown, found.runs) == (3, 3)
    found, commands, _ = series(monkeypatch, tmp_path / "b", "0000000", rates.Fixed(5))
    assert (found.runs, len(commands)) == (0, reproduce.TOO_MANY)
    assert found.describe() == "no run that tried it; 3 more tried nothing"


def test_a_child_that_cannot_run_says_why(tmp_path: Path) -> None:
    run = run_child(["--nemesis", "brigde"], tmp_path)
    assert (run.code, run.folder) == (64, None)
    assert "did you mean 'bridge'" in run.problem


# The command.


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = guarded(lambda: cli.main(["reproduce", *argv], prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, output.out, output.err


def test_a_rate_is_known_with_the_runs_of_the_record() -> None:
    rule = rates.Within(0.25)
    assert [rule.decide(k, n) is None for k, n in ((0, 5), (4, 4), (4, 5), (4, 6), (7, 14))] == [True] * 5
    assert rule.decide(5, 5) == "the rate is known: 5 of 5 (0.48 to 1.00)"
    assert rule.decide(0, 6) is not None
    assert rule.decide(9, 18) is not None
    assert rates.Within(0.25, k=4, n=4).decide(0, 0) is None
    assert rates.Within(0.25, k=4, n=4).decide(1, 1) is not None
    assert rates.Within(0.25, k=4, n=4).describe().endswith("shown 5 of 5, 4 earlier runs included")


def test_the_kind_of_nodes_is_no_change_of_a_command() -> None:
    assert record.change(["--cluster", "local", "--mend", "5"]) == "--mend 5"
    assert record.change(["--cluster", "local"]) == ""


def test_the_control_of_a_finding_that_shows_on_mended_servers_only() -> None:
    found = {finding.id: finding.with_control() for finding in record.read_findings()}
    assert found[5] == ["--mend", "5"]
    assert found[31] == ["--mend", "5,31"]
    assert found[34] == ["--scheme", "cured"]


def test_a_control_counts_as_a_mend(tmp_path: Path) -> None:
    text = GOOD.replace("command = ", 'control = "--scheme cured"\ncommand = ', 1)
    found = one(tmp_path, text, "77-breaks.toml")
    assert (found.with_control(), found.mended()) == (["--scheme", "cured"], (0, 0))
    assert one(tmp_path, GOOD, "77-breaks.toml").with_control() is None
    assert one(tmp_path, text, "05-breaks.toml").with_control() == ["--scheme", "cured"], "before its mend"
    added = replace(found, measured=[record.Measured(0, 4, change="--scheme cured --version 5.4.0")])
    assert added.mended() == (0, 4)


def test_without_a_control_there_is_nothing_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one(tmp_path, GOOD, "77-breaks.toml")
    code, _, err = harness(capsys, "77", "--mended", "--record", str(tmp_path))
    assert (code, err.strip()[-60:]) == (64, "finding 77 has neither a mend nor a control  (harness list mends)"[-60:])


def test_without_arguments_it_lists_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = harness(capsys)
    assert code == 0
    assert len(out.splitlines()) == len(record.read_findings())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["999"], "'999' is no finding (there are 1 to"),
        (["5", "--runs", "3", "--show", "0.8"], "exclude each other: a series has one rule for its end"),
        (["5", "--runs", "3", "--within", "0.25"], "exclude each other: a series has one rule for its end"),
        (["5", "--show", "0.2", "--gone", "0.5"], "0 < gone < show < 1"),
        (["5", "--hours", "3"], "--hours is for --all"),
        (["5", "--anomaly", "lost"], "a finding has its own signature"),
        (["5", "--version", "4.9"], "4.9"),
        (["--all", "--record", "/nowhere/at/all"], "no findings there"),
        (["/etc/passwd"], "/etc/passwd"),
        (["/etc"], "no effective.toml"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    code, _, err = harness(capsys, *argv)
    assert code == 64
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("signature", ["", '[signature]\nanomalies = ["lost"]\n'])
def test_what_no_command_shows_is_not_run(signature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have a signature, so that a night knows it."""
    (tmp_path / "01-by-hand.toml").write_text(f'title = "t"\nsystem = "s"\nby_hand = "`top -H`"\n{signature}')
    (finding,) = record.read_findings(tmp_path)
    assert (finding.signature is not None) == bool(signature)
    code, _, err = harness(capsys, "1", "--record", str(tmp_path))
    assert (code, "finding 1: no command shows it" in err) == (64, True)


def test_a_plan_is_run_with_a_seed_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(Plan(seed=7).to_toml())
    subject = reproduce.of_path(path, ["lost"])
    assert subject.args == ["--plan", str(path)]
    assert subject.seeded
    assert subject.signature == LOST


# Pictures of runs.


def stored(folder: Path, monkeypatch: pytest.MonkeyPatch, anomaly: str, command: str) -> Path:
    """A run in a store, as the drawing of pictures meets it."""
    made, _ = sample_run(folder)
    plan = {**made.plan, "server": {"topology": "controller"}}
    environment = {"rocketmq": "5.5.0", "command": command}
    versioned = RunRecord(made.history, plan, environment, made.observations, made.logs, folder)
    judged = Judgement([CheckResult("log", Verdict.INVALID, "x", [Anomaly(anomaly, "gone", window=(5, 9))])])
    write_verdict(judged, folder / "verdict.json")
    monkeypatch.setattr(pictures, "judge_stored", lambda run: (versioned, judged))
    return folder


@pytest.mark.parametrize(
    ("anomaly", "command", "drawn"),
    [
        ("lost", "harness run --nemesis bridge", True),
        ("lost", "harness run --nemesis bridge --cluster local", True),
        ("hole", "harness run --nemesis bridge", False),
        ("lost", "harness run --nemesis bridge,bridge", False),
        ("lost", "harness run --rate 5 --nemesis bridge", False),
        ("lost", "harness run --nemesis bridge --mend 5", False),
        ("lost", "harness run --nemesis bridge --server-jars x", False),
    ],
)
def test_a_run_that_shows_a_finding_is_drawn_and_stands_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anomaly: str, command: str, drawn: bool
) -> None:
    finding = one(tmp_path, f'{GOOD}version = "5.5.0"\n')
    docs = _docs(tmp_path)
    store = stored(tmp_path / "store" / "run", monkeypatch, anomaly, command).parent
    monkeypatch.setattr(pictures, "read_findings", lambda: [finding])
    monkeypatch.setattr(pictures, "DOCS", docs / pages.FOLDER)
    assert pictures.main([str(store)]) == 0
    assert (docs / pages.FOLDER / pictures.picture_of(finding)).exists() is drawn
    page = pages.documents([finding], docs)[docs / pages.FOLDER / "05-breaks.md"]
    assert ("(runs/05-breaks.svg)" in page) is drawn


@pytest.mark.parametrize("argv", [[], ["/nowhere"], [".", "x"], [".", "999"]])
def test_wrong_words_for_pictures(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert pictures.main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1
