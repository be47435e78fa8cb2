# SPDX-License-Identifier: Apache-2.0
"""`harness bisect`: the answer is the true one, at any rate, and "sure" is as rare a mistake as it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from harness.bisect import running
from harness.bisect.running import builds_of, lines
from harness.bisect.search import Answer, Posterior, bisect
from harness.boundary import guarded
from harness.cli.main import cli
from harness.findings.record import find, read_findings
from harness.findings.reproduce import Subject
from harness.findings.signature import Sight, Sighting, Signature
from harness.plan.plan import PlanError
from harness.series.child import ChildRun

SIX = ["5.1.0", "5.1.1", "5.2.0", "5.3.3", "5.4.0", "5.5.0"]


def search(builds: int, first: int, last: int, rate: float, seed: int, most: int = 200) -> tuple[Answer, int]:
    rng, runs = Random(seed), [0]

    def trial(build: int) -> bool:
        runs[0] += 1
        return first <= build <= last and rng.random() < rate

    return bisect(builds, trial, most), runs[0]


@pytest.mark.parametrize(("rate", "most"), [(1.0, 14), (0.9, 18), (0.5, 35), (0.25, 80)])
def test_it_is_found_where_it_is(rate: float, most: int) -> None:
    """Of six builds, wherever it came and went: at most one sure answer in twenty is wrong."""
    spans = [(a, b) for a in range(6) for b in range(a, 6)]
    found = [(span, *search(6, *span, rate, seed)) for span in spans for seed in range(10)]
    sure = [(span, answer) for span, answer, _ in found if answer.sure]
    assert len(sure) >= 0.95 * len(found)
    assert sum((answer.first, answer.last) != span for span, answer in sure) <= 0.06 * len(sure)
    assert sorted(runs for *_, runs in found)[len(found) // 2] <= most


def test_silence_is_no_proof() -> None:
    """A defect that shows in three runs of a hundred is not excluded by thirty silent runs of each build."""
    answer, runs = search(6, 9, 9, 1.0, 1)
    assert (answer.first, answer.sure, runs) == (None, False, 200)
    assert 0.5 < answer.chance < 0.97


def test_it_takes_few_runs_of_many_builds() -> None:
    """A break somewhere in sixty builds, to the last: not each of them is run."""
    answer, runs = search(60, 41, 59, 0.9, 3)
    assert (answer.first, answer.last) == (41, 59)
    assert runs < 45


def test_runs_that_tried_nothing_decide_nothing() -> None:
    answer = bisect(3, lambda build: None, 10)
    assert not answer.sure
    assert answer.counts == [(0, 0)] * 3
    assert sum(answer.by_build) == pytest.approx(sum(Posterior(3).answer().by_build))


def test_builds_are_in_their_order_and_two_at_least() -> None:
    assert builds_of("all", (), SIX)[0] == ("5.1.0", ["--version", "5.1.0"])
    assert builds_of(None, (Path("a"), Path("b")), SIX)[1] == ("b", ["--server-jars", "b"])
    for versions, folders, says in (
        (None, (), "--versions or --build names the builds"),
        ("all", (Path("a"),), "--versions or --build names the builds"),
        ("5.5.0,5.1.0", (), "the oldest first"),
        ("5.5.0", (), "two or more are right"),
    ):
        with pytest.raises(PlanError, match=says):
            builds_of(versions, folders, SIX)


def test_the_answer_is_in_words() -> None:
    counts = [(0, 3), (0, 0), (0, 4), (3, 3), (2, 3), (0, 2)]
    text = list(lines(Answer(3, 4, 0.97, [0, 0, 0.01, 0.99, 0.98, 0.01], counts), SIX))
    assert text[0] == "it came between 5.2.0 and 5.3.3; it went between 5.4.0 and 5.5.0 (0.97)"
    assert text[4] == "  5.3.3      has it with a chance of 0.99; shown in 3 of 3 (0.29 to 1.00)"
    assert "not run" in text[2]
    assert next(iter(lines(Answer(0, 5, 0.98, [1.0] * 6, counts), SIX))) == (
        "it came before or in the first of them, 5.1.0; it went in none up to the last (0.98)"
    )
    assert next(iter(lines(Answer(None, None, 0.7, [0.1] * 6, counts), SIX))).startswith("not sure: none of these")


def test_the_command_runs_builds_until_it_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signature is that of the finding, and each build has its own servers."""
    monkeypatch.chdir(tmp_path)
    ran: list[Sequence[str]] = []
    sought: list[Signature | None] = []

    def child(args: Sequence[str], store: Path) -> ChildRun:
        ran.append(args)
        return ChildRun(1, None)

    def judged(subject: Subject, run: ChildRun) -> list[Sighting]:
        sought.append(subject.signature)
        version = ran[-1][list(ran[-1]).index("--version", 1) + 1] if "--version" in ran[-1] else ""
        last = [word for at, word in enumerate(ran[-1]) if at and ran[-1][at - 1] == "--version"][-1]
        assert version
        return [Sighting(Sight.SHOWN if last in ("5.3.3", "5.4.0", "5.5.0") else Sight.NOT_SHOWN, "so")]

    monkeypatch.setattr(running, "run_child", child)
    monkeypatch.setattr(running, "judged", judged)
    plan = Path("plan.toml")
    plan.write_text('workload = "log"\n[server]\ntopology = "controller"\n')
    argv = ["bisect", str(plan), "--anomaly", "lost", "--versions", "all"]
    assert guarded(lambda: cli.main(argv, standalone_mode=False)) == 0
    out = capsys.readouterr().out
    assert "it came between 5.2.0 and 5.3.3; it went in none up to the last" in out
    assert guarded(lambda: cli.main([*argv, "--max-runs", "2"], standalone_mode=False)) == 2
    assert "not sure: " in capsys.readouterr().out
    five = find(read_findings(), "5")
    assert five is not None
    del sought[:]
    assert guarded(lambda: cli.main([*argv[:2], "--finding", "5", *argv[4:]], standalone_mode=False)) == 0
    assert five.signature in sought
    assert guarded(lambda: cli.main([*argv, "--finding", "5"], standalone_mode=False)) == 64
    assert "exclude each other" in capsys.readouterr().err
