# SPDX-License-Identifier: Apache-2.0
"""Input that nobody sane writes: each is one line and a usage error, before anything is started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from harness.boundary import guarded
from harness.cli.main import cli
from harness.cli.main import command as command_of
from harness.cli.run import check_words
from harness.findings import record
from harness.findings.patterns import TookTooLong, compile_pattern, in_time
from harness.nightly import ledger
from harness.nightly.ledger import Entry
from harness.plan.plan import Plan, PlanError
from harness.shipped import shipped
from harness.values import FilePath, FiniteRange
from results.durable import append_text
from results.errors import StoreError

ROOT = Path(__file__).parents[2]


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = guarded(lambda: cli.main(list(argv), prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, output.out, output.err


def commands() -> Iterator[click.Command]:
    yield from map(command_of, cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: str(command.name))
def test_numbers_are_finite_and_paths_not_empty(command: click.Command) -> None:
    """`--hours nan` never ended, and `check ""` checked the working directory (an unset variable of a CI job)."""
    for param in command.params:
        assert type(param.type) is not click.types.FloatParamType, param.name
        assert not isinstance(param.type, click.FloatRange) or isinstance(param.type, FiniteRange), param.name
        assert not isinstance(param.type, click.Path) or isinstance(param.type, FilePath), param.name


QUOTE = '"'
MATRIX = '[[cells]]\nworkload = ["log"]\nnemesis = ["none"]\nversion = ["5.5.0"]\n'


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nightly", "--hours", "nan", "--dry-run"], "is not in the range"),
        (["reproduce", "5", "--within", "nan"], "is not in the range"),
        (["reproduce", "5", "--show", "nan"], "is not in the range"),
        (["run", "--rate", "nan", "--dry-run"], "is not in the range"),
        (["check", ""], "the path is empty"),
        (["check", " "], "the path is empty"),
        *(
            (["run", "--dry-run", flag, ""], f"{flag} is empty; leave it out")
            for flag in ("--version", "--server-jars", "--topology", "--profile", "--mend", "--target", "--client")
        ),
        (["reproduce", "5", "--version", ""], "--version is empty; leave it out"),
        (["run", "--plan", ""], "the path is empty"),
        (["run", "--reuse", "", "--dry-run"], "--reuse is empty"),
        (["run", "--reuse", "no-such-id", "--dry-run"], "no kept cluster 'no-such-id'"),
        (["nightly", "MATRIX", "--option", QUOTE], "No closing quotation; words of a shell are right"),
        (["reproduce", "5", "--option", QUOTE], "No closing quotation; words of a shell are right"),
        (["nightly", "MATRIX", "--part", "²/³"], "I/N with 1 <= I <= N is right"),
        (["run", "--set", "broker.minInSyncReplicas=\udcff", "--dry-run"], "text in UTF-8 is right"),
        (["run", "--jvm-option", "-D\udcff", "--dry-run"], "text in UTF-8 is right"),
        (["batch", "--input", "s3a://key:secret@b/x"], "s3a://BUCKET/PATH is right"),
        (["batch", "--input", "x", "--output", "s3a://key@b/x"], "s3a://BUCKET/PATH is right"),
        (["batch", "--input", ""], "--input or --output is empty"),
        (["nightly", "MATRIX", "--dry-run", "--option", "--frob"], "No such option"),
        (["nightly", "MATRIX", "--dry-run", "--option", "--store /etc"], "--store cannot be an option of the runs"),
        (["nightly", "MATRIX", "--dry-run", "--option", "--dry-run"], "--dry-run cannot be an option of the runs"),
        (
            ["nightly", "MATRIX", "--dry-run", "--option", "--plan=/etc/passwd"],
            "--plan cannot be an option of the runs",
        ),
        (["nightly", "MATRIX", "--dry-run", "--option", "--nodes 99"], "nodes is 99"),
        (["reproduce", "5", "--option", "--json x"], "--json cannot be an option of the runs"),
        (["reproduce", "5", "--option", "--nodes 99"], "nodes is 99"),
        (["reproduce", "5", "20", "--option", "--consume pop"], "--consume"),
        (["run", "--dry-run", "--base-image", "-v /:/x"], "NAME[:TAG] of an image is right"),
        (["run", "--dry-run", "--nemesis", "frame-fault link=moon code=1001"], "frame-fault needs a moon"),
        (["run", "--dry-run", "--nemesis", "frame-fault link= code=1001"], "link is empty"),
        (["run", "--dry-run", "--nemesis", "frame-fault kill=moon code=1001"], "no moon is there"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.slow
def test_one_line_before_anything_is_started(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """64, and the line says what would be right; no secret is repeated."""
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text(MATRIX)
    cluster = ["--cluster", "docker"] if argv[0] == "run" and "--reuse" not in argv else []
    code, _, err = harness(capsys, *["m.toml" if word == "MATRIX" else word for word in argv], *cluster)
    assert (code, err.count("\n")) == (64, 1), err
    assert said in err
    assert "secret" not in err
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('options = "--frob"', "No such option '--frob'"),
        ('options = "\'"', "No closing quotation"),
        ('options = "--store /etc"', "--store cannot be an option of the runs"),
        ('options = "--nodes 99"', "nodes is 99"),
    ],
)
@pytest.mark.slow
def test_the_options_of_a_matrix_are_looked_at_first(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run of the night would have said so, as a failure of the harness, and the next ones too."""
    (tmp_path / "m.toml").write_text(f"{MATRIX}{text}\n")
    code, _, err = harness(capsys, "nightly", str(tmp_path / "m.toml"), "--dry-run")
    assert (code, err.count("\n")) == (64, 1)
    assert said in err
    (tmp_path / "m.toml").write_text('time_limit = "0s"\n[[cells]]\nworkload = ["log"]\nnemesis = ["none"]\n')
    code, _, err = harness(capsys, "nightly", str(tmp_path / "m.toml"), "--dry-run")
    assert (code, "a time above 0 is right" in err) == (64, True)


def test_options_that_go_with_some_cells_leave_the_others_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--consume` is an option of the workload queue alone; the dry run says why the rest is not in the matrix."""
    (tmp_path / "m.toml").write_text(
        '[[cells]]\nworkload = ["log", "queue"]\ntopology = ["controller"]\nnemesis = ["none"]\n'
    )
    code, out, _ = harness(capsys, "nightly", str(tmp_path / "m.toml"), "--dry-run", "--option", "--consume pop")
    assert code == 0
    cells = [line for line in out.splitlines() if " / " in line]
    assert cells
    assert all(line.startswith("queue / ") for line in cells)
    assert re.search(r"not in the matrix: \d+ combinations: the workload 'log' has no option --consume", out)


def test_a_long_argument_is_not_repeated_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A line stays readable, whatever was typed."""
    for argv in (["check", "x" * 5000], ["run", "--dry-run", "--server-jars", "y" * 5000], ["list", "z" * 5000]):
        code, _, err = harness(capsys, *argv)
        assert (code, len(err) < 1000) == (64, True), err[:100]


def test_help_has_two_names_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`harness run -h` was an unknown option, and was one again after a finding's options had been read."""
    check_words(["--nemesis", "none"])
    for command in commands():
        code, out, err = harness(capsys, str(command.name), "-h")
        assert (code, "-h, --help" in out) == (0, True), (command.name, err)


def test_the_package_is_a_program() -> None:
    """`python -m harness` is the command line, as for most tools."""
    done = subprocess.run([sys.executable, "-m", "harness", "--version"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


# Findings files.

GOOD = 'title = "t"\nsystem = "RocketMQ 5.5.0"\ncommand = "--nemesis bridge"\n[signature]\nanomalies = ["lost"]\n'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[[measured]]\nchange = "\'"', "change is"),
        ("[[measured]]\nruns = 1000000000000\nshown = 1000000000", "a number from 0 to 10,000"),
        (f"[[measured]]\nruns = {'9' * 40}", "a number from 0 to 10,000"),
        ("[[measured]]\nnot_tried = 20000", "a number from 0 to 10,000"),
        ('log_line = "(a+)+$"', "may take for ever"),
        ('says = "(a|aa)*b"', "may take for ever"),
        ('log_line = "(x{1,40}y)*"', "may take for ever"),
    ],
)
def test_a_findings_file_is_looked_at_when_it_is_read(more: str, said: str, tmp_path: Path) -> None:
    """Not when a judgement meets it: one bad file stopped every `reproduce`, or held each judgement for ever."""
    (tmp_path / "05-x.toml").write_text(f"{GOOD}{more}\n")
    with pytest.raises(PlanError, match=re.escape(said)):
        record.read_findings(tmp_path)


def test_long_series_have_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of more runs than a float can count the ways of."""
    (tmp_path / "05-x.toml").write_text(f"{GOOD}[[measured]]\nruns = 10000\nshown = 5000\n")
    code, out, _ = harness(capsys, "reproduce", "--record", str(tmp_path))
    assert (code, "5000 of 10000 (0.49 to 0.51)" in out) == (0, True)


def test_a_pattern_has_a_limit_of_time() -> None:
    """A pattern that passes the check may still be slow on some line: it ends after some time of the processor."""
    slow = compile_pattern(".*.*.*.*.*x")
    with pytest.raises(TookTooLong), in_time(0.2):
        slow.search("a" * 4000)
    done = []
    other = threading.Thread(target=lambda: done.append(_searched()))
    other.start()
    other.join()
    assert done == [True]


def _searched() -> bool:
    with in_time(0.01):
        return compile_pattern("a{2,3}b|[ab]+c").search("aac") is not None


# Files that several processes extend.


def test_lines_of_several_processes_stay_whole(tmp_path: Path) -> None:
    """Two nights on one store, and a line that a power failure tore: each line is whole, or alone."""
    path = tmp_path / "file"
    path.write_text("torn")
    script = "import sys; from pathlib import Path; from results.durable import append_text\n"
    script += "for n in range(30): append_text(Path(sys.argv[1]), sys.argv[2] * 20000 + chr(10), 'x')"
    argv = [[sys.executable, "-c", script, str(path), letter] for letter in "ab"]
    running = [subprocess.Popen(words, cwd=ROOT) for words in argv]
    assert [process.wait() for process in running] == [0, 0]
    lines = path.read_text().splitlines()
    assert sorted({line[0] + str(len(line)) for line in lines}) == ["a20000", "b20000", "t4"]
    assert len(lines) == 61
    with pytest.raises(StoreError, match="the thing cannot be written"):
        append_text(tmp_path / "nowhere" / "file", "x", "the thing")


def test_the_ledger_is_changed_and_not_replaced(tmp_path: Path) -> None:
    """An entry that a night adds while another one judges again is kept."""
    first, second, third = (Entry(name, "2026-01-01T00:00:00", "valid", "", 1.0) for name in ("a", "b", "c"))
    for entry in (first, second, third):
        ledger.append(tmp_path, entry)
    new = Entry("b", "2026-01-01T00:00:00", "invalid", "", 1.0, new=("lost",))
    found = ledger.replace_entries(tmp_path, [(second, new)])
    assert [entry.verdict for entry in found] == ["valid", "invalid", "valid"]
    assert [json.loads(line)["cell"] for line in (tmp_path / ledger.FILE).read_text().splitlines()] == ["a", "b", "c"]


# Outside the checkout.


def test_plans_of_findings_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """26 findings have a plan of `examples/`; documents name plans and suites there."""
    monkeypatch.chdir(tmp_path)
    for finding in record.read_findings():
        args = finding.args()
        if "--plan" in args:
            assert Plan.read(Path(args[args.index("--plan") + 1])) != Plan()
    code, out, _ = harness(capsys, "nightly", "examples/suites/gray.toml", "--dry-run")
    assert (code, "gray-last-leaves" in out) == (0, True)
    assert shipped(Path("examples/plans/none.toml")) == Path("examples/plans/none.toml")
    (tmp_path / "examples" / "plans").mkdir(parents=True)
    own = tmp_path / "examples" / "plans" / "term-ahead.toml"
    own.write_text("seed = 77\n")
    assert Plan.read(Path("examples/plans/term-ahead.toml")).seed == 77


def test_series_go_into_a_folder_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record of the project is changed only where `--record` names it; own series count beside it."""
    from harness.findings import reproduce

    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in record.DATA.glob("*.toml")}
    series = reproduce.Series(shown=2, runs=2, version="5.5.0")
    monkeypatch.setattr(reproduce, "reproduce", lambda subject, *rest: series)
    shown, runs = next(f for f in record.read_findings() if f.id == 7).rates()[""]
    code, out, _ = harness(capsys, "reproduce", "7", "--runs", "2")
    assert (code, "added to results/measured/07-" in out) == (0, True)
    assert {path: path.read_bytes() for path in record.DATA.glob("*.toml")} == before
    code, out, _ = harness(capsys, "reproduce")
    (line,) = [line for line in out.splitlines() if line.startswith("  7  ")]
    assert f"{shown + 2} of {runs + 2} (" in line


def test_the_list_has_the_rates_of_the_commands_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    """The first series of a file may be one with other options: five findings showed its rate."""
    _, out, _ = harness(capsys, "reproduce")
    for finding, line in zip(record.read_findings(), out.splitlines(), strict=True):
        rate = finding.rates().get("")
        assert f"{rate[0]} of {rate[1]} (" in line if rate else "no rate yet" in line, line


# What is printed in the plan is what was given.

GIVEN = {
    "--seed": ("77", ["seed", 77]),
    "--time-limit": ("91s", ["time_limit", "91s"]),
    "--rate": ("123", ["rate", 123.0]),
    "--concurrency": ("7", ["concurrency", 7]),
    "--op-deadline": ("3s", ["op_deadline", "3s"]),
    "--recovery-limit": ("29s", ["recovery_limit", "29s"]),
    "--nodes": ("4", ["cluster", "nodes", 4]),
    "--cluster": ("docker", ["cluster", "backend", "docker"]),
    "--topology": ("master-slave", ["server", "topology", "master-slave"]),
    "--profile": ("default", ["server", "profile", "default"]),
    "--version": ("5.4.0", ["server", "version", "5.4.0"]),
    "--jvm-option": ("-Dx=y", ["server", "jvm_options", ["-Dx=y"]]),
    "--mend": ("5", ["server", "mends", ["5"]]),
    "--nemesis": ("bridge", ["nemesis", 0, "fault", "bridge"]),
    "--interval": ("21s", ["nemesis", 0, "every", "21s"]),
    "--duration": ("9s", ["nemesis", 0, "for", "9s"]),
    "--target": ("n1", ["nemesis", 0, "target", "n1"]),
}


@pytest.mark.parametrize("workload", ["log", "queue", "transaction", "quorum-ack"])
def test_what_was_given_is_what_is_planned(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No option of a plug-in, and no default, takes the place of what the command line says."""
    words = ["--nemesis", "hammer-time"]
    words += [word for flag, (value, _) in GIVEN.items() if flag != "--nemesis" for word in (flag, value)]
    code, out, err = harness(capsys, "run", "--dry-run", "--workload", workload, *words)
    assert code == 0, err
    plan = tomllib.loads(out)
    assert plan["workload"] == workload
    for flag, (_, (*path, wanted)) in GIVEN.items():
        found: Any = plan
        for step in path:
            found = found[step]
        assert found == ("hammer-time" if flag == "--nemesis" else wanted), flag
