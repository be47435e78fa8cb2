# SPDX-License-Identifier: Apache-2.0
"""The workflows and the action: their shell runs here with stand-ins for sudo and make, and their options exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.compare import compare
from harness.cli.nightly import nightly
from harness.cli.run import run
from harness.nightly.ledger import Entry, append
from results.verdict import Anomaly, CheckResult, Judgement, KnownFinding, Verdict
from results.verdict_file import write_verdict

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"


def steps(path: Path) -> Iterator[Mapping[str, Any]]:
    data = yaml.safe_load(path.read_text())
    jobs = data.get("jobs", {"": data.get("runs")})
    for job in jobs.values():
        yield from job["steps"]


def scripts(path: Path) -> list[str]:
    return [step["run"] for step in steps(path) if "run" in step]


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_the_shell_of_every_step_is_sound(path: Path) -> None:
    for script in scripts(path):
        subprocess.run(["bash", "-n", "-c", script], check=True)
    assert all("${{" not in script for script in scripts(path)), "values reach a shell as variables, never as its text"


@pytest.fixture
def runner(tmp_path: Path) -> Mapping[str, str]:
    """The surroundings of a hosted runner, for the scripts. `sudo` runs its command; heavy tools only record their
    words, one a line. The harness writes the summary of a run that lies at `stored`, and ends with 1.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    note = f'#!/bin/bash\nprintf "%s\\n" "[$(basename "$0")]" "$@" >> "{tmp_path}/noted"\n'
    for name in ("apt-get", "make", "chown"):
        (tools / name).write_text(note)
    (tools / "sudo").write_text('#!/bin/bash\nexec "$@"\n')
    action = tmp_path / "action"
    (action / ".venv" / "bin").mkdir(parents=True)
    facts = json.dumps({"folder": str(tmp_path / "stored")})
    write = f"""while [ $# -gt 0 ]; do [ "$1" = --json ] && echo '{facts}' > "$2"; shift; done\nexit 1\n"""
    (action / ".venv" / "bin" / "harness").write_text(note + write)
    (action / ".venv" / "bin" / "python").write_text(f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    (action / "scripts").symlink_to(ROOT / "scripts")
    for path in [*tools.iterdir(), *(action / ".venv" / "bin").iterdir()]:
        path.chmod(0o755)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "JAVA_HOME": "/nowhere",
        "GITHUB_ACTION_PATH": str(action),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "FAIL_ON": "new",
    }


def acted(folder: Path, runner: Mapping[str, str], **given: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """The words that the step "Run" gave to the harness, and how it ended."""
    (folder / "noted").unlink(missing_ok=True)
    work = scripts(ACTION)[1]
    env = {**runner, "COMMAND": "run", "ARGS": "", "JARS": "", **given}
    done = subprocess.run(["bash", "-e", "-c", work], check=False, env=env, cwd=folder, capture_output=True, text=True)
    noted = (folder / "noted").read_text().splitlines() if (folder / "noted").exists() else []
    found = noted[noted.index("[harness]") + 1 :] if "[harness]" in noted else []
    end = next((n for n, word in enumerate(found) if word.startswith("[")), len(found))
    return found[:end], done


def test_the_action_sets_up(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """`make setup` runs in the action's own folder."""
    subprocess.run(["bash", "-e", "-c", scripts(ACTION)[0]], check=True, env=runner, cwd=tmp_path)
    noted = (tmp_path / "noted").read_text()
    assert f"[make]\n-C\n{runner['GITHUB_ACTION_PATH']}\nsetup\n" in noted


def test_the_action_passes_everything_on(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """All lines of `args`, quoted words whole, and the folder of jars; the exit code is that of the harness."""
    (tmp_path / "my lib").mkdir()
    args = """--nemesis "power-failure target=all"
    --seed 5 --set 'broker.x=a b' \\
    --time-limit 90s # $(touch hit) `touch hit`
    """
    words, done = acted(tmp_path, runner, ARGS=args, JARS="my lib")
    assert done.returncode == 1
    assert (tmp_path / "output").read_text() == "code=1\n"
    store, jars = f"{runner['HOME']}/harness-store", str(tmp_path / "my lib")
    assert words[:5] == ["run", "--store", store, "--fail-on", "new"]
    assert words[7:] == [
        *("--nemesis", "power-failure target=all", "--seed", "5", "--set", "broker.x=a b", "--time-limit", "90s", "#"),
        *("$(touch", "hit)", "`touch", "hit`", "--server-jars", jars),
    ]
    assert not (tmp_path / "hit").exists()
    words, _ = acted(tmp_path, runner, COMMAND="nightly", ARGS="--part 2/4", JARS="my lib")
    assert words[:5] == ["nightly", "--store", store, "--part", "2/4"]
    assert [shlex.split(word) for word in words[5:]] == [["--option"], ["--server-jars", jars]]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"ARGS": "--set 'a"}, "close every quote"), ({"JARS": "nowhere"}, "nowhere: no such folder")],
)
def test_wrong_inputs_of_the_action_are_one_line(
    given: Mapping[str, str], said: str, tmp_path: Path, runner: Mapping[str, str]
) -> None:
    """The harness does not run, and the step is red with the code of a wrong usage."""
    words, done = acted(tmp_path, runner, **given)
    assert (words, done.returncode) == ([], 64)
    assert said in done.stdout
    assert (tmp_path / "output").read_text() == "code=64\n"


def test_the_action_says_what_is_known_and_what_is_new(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """A job summary in Markdown, and an annotation: an error for what is new, a notice for what is known."""
    (tmp_path / "stored").mkdir()
    known = KnownFinding(5, "a cut-off | master", {"lost": 1667}, "docs/findings/05.md", "--mend 5")
    anomalies = [Anomaly("lost", "gone"), Anomaly("duplicated", "100%\ntwice")]
    results = [CheckResult("log", Verdict.INVALID, "1 lost", anomalies), CheckResult("stats", Verdict.VALID, "fine")]
    write_verdict(Judgement(results, [known], ["duplicated"]), tmp_path / "stored" / "verdict.json")
    _, done = acted(tmp_path, runner)
    assert [line for line in done.stdout.splitlines() if line.startswith("::")] == [
        "::error title=new%3A duplicated::100%25%0Atwice",
        "::notice title=known%3A finding 5::a cut-off | master: 1,667 lost",
    ]
    text = (tmp_path / "summary.md").read_text()
    assert "| known 5 | a cut-off &#124; master: 1,667 lost (`docs/findings/05.md`) |" in text
    assert "| new | duplicated |" in text


def test_the_action_says_that_there_was_no_verdict(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """A job is never green, nor silent, where the harness came to no verdict."""
    _, done = acted(tmp_path, runner)
    assert "::error title=no verdict::the run ended with exit code 1" in done.stdout


def test_the_action_sums_up_a_night(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """Only the runs of this call: the ledger has those of all nights."""
    store = Path(runner["HOME"]) / "harness-store"
    append(store, Entry("old", "2001-01-01T00:00:00", "invalid", "so", 1.0, new=["lost"]))
    append(store, Entry("a / b", "2999-01-01T00:00:00", "invalid", "so", 1.0, new=["lost"], known=[5]))
    _, done = acted(tmp_path, runner, COMMAND="nightly")
    assert "::error title=new%3A lost::a / b: so" in done.stdout
    assert "old" not in (tmp_path / "summary.md").read_text()
    assert "| a / b | invalid | 5 | lost |" in (tmp_path / "summary.md").read_text()


OUTCOME = {
    "line": "WORSE   new: lost   5 pairs in 9 min",
    "builds": {"new": "lib on 5.5.0", "old": "5.5.0"},
    "differ": "1 changed class (CommitLog)",
    "exit_code": 1,
    "rows": [
        {"state": "new", "thing": "lost", "new": 4, "old": 0, "pairs": 4, "cell": "log | kill"},
        {"state": "gone", "thing": "finding 5", "new": 0, "old": 4, "pairs": 4, "cell": "log"},
        {"state": "as before", "thing": "hole", "new": 1, "old": 1, "pairs": 4, "cell": "log"},
    ],
    "figures": [{"cell": "log", "figure": "p99_ms", "new": [4.0, 3, 5], "old": [3.0, 2, 4]}],
    "short": [],
}


def test_with_own_jars_the_action_compares(tmp_path: Path, runner: Mapping[str, str]) -> None:
    """An annotation for each thing that differs, and a table in the job summary."""
    (tmp_path / "lib").mkdir()
    harness = Path(runner["GITHUB_ACTION_PATH"]) / ".venv" / "bin" / "harness"
    harness.write_text(
        harness.read_text().replace(json.dumps({"folder": str(tmp_path / "stored")}), json.dumps(OUTCOME))
    )
    words, done = acted(tmp_path, runner, COMMAND="", JARS="lib", ARGS="--minutes 20")
    assert words[:4] == ["compare", "--store", f"{runner['HOME']}/harness-store", "--json"]
    assert words[5:] == ["--minutes", "20", "--server-jars", str(tmp_path / "lib")]
    assert [line for line in done.stdout.splitlines() if line.startswith("::")] == [
        "::error title=new%3A lost::4 of 4 against 0 of 4, log | kill",
        "::notice title=gone%3A finding 5::0 of 4 against 4 of 4, log",
    ]
    text = (tmp_path / "summary.md").read_text()
    assert "| new | lost | 4 of 4 | 0 of 4 | log &#124; kill |" in text
    assert "| log | p99&#95;ms | 4.0 | 3.0 |" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["run", "--fail-on"]),
        ({"PLAN": "my plan.toml", "JARS": "lib"}, ["run", "--plan", "my plan.toml"]),
        ({"MATRIX": "m.toml"}, ["nightly", "m.toml", "--once"]),
        ({"SUITE": "s.toml", "JARS": "lib"}, ["compare", "--suite", "s.toml"]),
        ({"COMMAND": "run", "JARS": "lib"}, ["run", "--server-jars"]),
    ],
)
def test_inputs_choose_the_command(
    given: Mapping[str, str], words: list[str], tmp_path: Path, runner: Mapping[str, str]
) -> None:
    (tmp_path / "lib").mkdir()
    found, _ = acted(tmp_path, runner, **{"COMMAND": "", **given})
    assert [word for word in found if word in words] == words


def test_an_input_of_another_command_is_refused(tmp_path: Path, runner: Mapping[str, str]) -> None:
    words, done = acted(tmp_path, runner, COMMAND="run", MATRIX="m.toml")
    assert (words, done.returncode) == ([], 64)
    assert "::error title=matrix::it is for the command nightly, not run" in done.stdout


def test_the_options_in_workflows_exist() -> None:
    known = {option for command in (run, nightly, compare) for param in command.params for option in param.opts}
    for path in [*WORKFLOWS, ACTION, ROOT / "docs" / "ci.md"]:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text()):
            assert option in known | {"--depth"}, f"{path.name}: {option}"


@pytest.mark.nightly
@pytest.mark.slow
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """actionlint is a Go module; it also checks the shell of the steps where shellcheck is installed."""
    go = shutil.which("go")
    assert go is not None, "this test needs Go"
    tool = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
    subprocess.run([go, "run", tool, *map(str, WORKFLOWS)], check=True, cwd=ROOT)
