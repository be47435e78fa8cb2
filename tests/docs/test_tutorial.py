# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md, followed step by step: every command is typed, and what stands in its box is what it answers.

A box is a fenced block `console`, with words after it that a reader does not see:

    cluster   starts real servers, or needs what a run before it left: only in the test marked `cluster`
    varies    the servers decide: the lines must be there and in this order, but may say other things after their label;
              the verdict may be any, but a failure of the harness
    invalid   and this run must end invalid
    exact     figures must be the same, too (elsewhere a number stands for any number)

A block after a line such as `` `my_plugins/faults.py`: `` is a file to write.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+)`:\s*\Z")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_VERDICTS = r"(valid|invalid|unknown|harness-failure)"
_LABEL = re.compile(r"\s*([\w./-]+)")


@dataclass
class Command:
    """A line that is typed, and the lines that stand below it."""

    typed: str
    answer: list[str] = field(default_factory=list)


@dataclass
class Step:
    """A box of the tutorial (`commands`), or a file to write (`path`, `text`). `line`: where it stands."""

    line: int
    tags: set[str]
    commands: list[Command]
    path: str = ""
    text: str = ""


def steps(page: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(page):
        line = page.count("\n", 0, block.start()) + 1
        named = _FILE.search(page[: block.start()])
        if named:
            yield Step(line, set(), [], named[1], block[3])
        elif block[1] == "console":
            commands: list[Command] = []
            for text in block[3].splitlines():
                if text.startswith("$ "):
                    commands.append(Command(text[2:]))
                else:
                    commands[-1].answer.append(text)
            yield Step(line, set(block[2].split()), commands)


def differences(expected: list[str], output: list[str], tags: set[str]) -> str | None:
    """The fault of an answer, or None. `...` alone stands for any lines, inside a line for any text."""
    if "varies" in tags:
        return _missing_label(expected, output)
    position, anywhere = 0, False
    for line in expected:
        if line.strip() == "...":
            anywhere = True
            continue
        pattern = _pattern(line, exact="exact" in tags)
        found = next((i for i in range(position, len(output)) if pattern.fullmatch(output[i].rstrip())), None)
        if found is None or (found > position and not anywhere):
            return f"{line!r} is expected next; it says {output[position : position + 3]}"
        position, anywhere = found + 1, False
    rest = output[position:]
    return None if anywhere or not rest else f"it also says {rest[:3]}"


def _pattern(line: str, *, exact: bool) -> re.Pattern[str]:
    parts = []
    for piece in line.rstrip().split("..."):
        pattern = re.escape(piece)
        if not exact:
            pattern = re.sub(r"\d+(?:(?:\\\.|,)\d+)*", lambda _: _NUMBER.pattern, pattern)
        parts.append(re.sub(r"(?:\\ ){2,}", " +", pattern))
    return re.compile(".*".join(parts))


def _missing_label(expected: list[str], output: list[str]) -> str | None:
    """Labels in their order. The lines of a run under way and of single anomalies have none that can be promised."""
    position = 0
    for line in expected:
        label = _LABEL.match(line)
        if label is None or line.strip()[:1] in "-." or label[1][0].isdigit():
            continue
        word = label[1].lower()
        pattern = _VERDICTS if re.fullmatch(_VERDICTS, word) else re.escape(word)
        wanted = re.compile(rf"\s*{pattern}\b", re.IGNORECASE)
        found = next((i for i in range(position, len(output)) if wanted.match(output[i])), None)
        if found is None:
            return f"a line of {word!r} is missing after line {position} of:\n" + "\n".join(output)
        position = found + 1
    return None


class Reader:
    """Somebody who follows the tutorial in a folder of their own, with a virtual environment `.venv` in it.

    The environment sees what the one of the tests sees, so that nothing of a reader's is left in that one.
    """

    def __init__(self, home: Path, offline: bool) -> None:
        self.home, self.offline = home, offline
        self.code = 0
        venv.EnvBuilder(with_pip=False).create(home / ".venv")
        (self.site,) = (home / ".venv" / "lib").glob("python3*/site-packages")
        base = f"import site, sys; site.addsitedir({sysconfig.get_path('purelib')!r}); sys.path.append({str(ROOT)!r})"
        (self.site / "base.pth").write_text(base + "\n")
        self._program("harness", "from harness.cli.main import main; main()")
        self._program("pip", "import runpy; runpy.run_module('pip', run_name='__main__')")
        # In a reader's checkout the Makefile is here; ours is passed on to.
        (home / "Makefile").write_text(f"%:\n\t$(MAKE) -C {ROOT} $@\n")
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS")}
        self.env |= {"PATH": f"{home / '.venv' / 'bin'}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def _program(self, name: str, code: str) -> None:
        path = self.home / ".venv" / "bin" / name
        path.write_text(f"#!{self.home}/.venv/bin/python\n{code}\n")
        path.chmod(0o755)

    def follow(self, step: Step) -> None:
        if step.path:
            (self.home / step.path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / step.path).write_text(step.text)
        for command in step.commands:
            output = self.type(command.typed)
            problem = differences(command.answer, output, step.tags)
            assert problem is None, f"tutorial.md:{step.line}: $ {command.typed}\n{problem}"
            if "varies" in step.tags:
                allowed = {1} if "invalid" in step.tags else {0, 1, 2}
                assert self.code in allowed, f"tutorial.md:{step.line}: {self.code}\n" + "\n".join(output)

    def type(self, command: str) -> list[str]:
        """The lines it answers. The exit code is kept for an `echo $?` that follows."""
        if command.startswith("harness serve"):
            return self._serve()
        if self.offline and command.startswith("pip install"):
            return self._installed(self.home / command.rsplit(maxsplit=1)[-1])
        requested = f"(exit {self.code})\n{command}"
        done = subprocess.run(
            ["bash", "-c", requested],
            cwd=self.home,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        self.code = done.returncode
        return done.stdout.splitlines()

    def _installed(self, package: Path) -> list[str]:
        """The work of `pip install -e`, without a network: its folder is on the path, its entry points are known."""
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        points = [
            line
            for group, names in project["entry-points"].items()
            for line in (f"[{group}]", *(f"{name} = {where}" for name, where in names.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(points) + "\n")
        (self.site / f"{info.name}.pth").write_text(f"{package}\n")
        self.code = 0
        return []

    def _serve(self) -> list[str]:
        """Start it on a free port, look at its page, and end it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv = [str(self.home / ".venv" / "bin" / "harness"), "serve", "--port", str(port)]
        with subprocess.Popen(argv, cwd=self.home, env=self.env, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                first = server.stdout.readline().rstrip()
                assert b"partition-halves" in _page(f"http://127.0.0.1:{port}/")
            finally:
                server.terminate()
        self.code = 0
        return [first]


def _page(url: str, tries: int = 50) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(tries - 1):
        try:
            return bytes(opener.open(url, timeout=10).read())
        except OSError:
            time.sleep(0.1)
    return bytes(opener.open(url, timeout=10).read())


def test_what_needs_no_servers(tmp_path: Path) -> None:
    reader = Reader(tmp_path, offline=True)
    followed = [step for step in steps(TUTORIAL.read_text()) if "cluster" not in step.tags]
    assert sum(len(step.commands) for step in followed) >= 10
    for step in followed:
        reader.follow(step)


@pytest.mark.cluster
@pytest.mark.nightly
def test_every_step_on_real_servers(tmp_path: Path) -> None:
    reader = Reader(tmp_path, offline=False)
    for step in steps(TUTORIAL.read_text()):
        print(f"tutorial.md:{step.line}", *(c.typed for c in step.commands), sep="\n  ", file=sys.stderr)
        reader.follow(step)


@pytest.mark.parametrize(
    ("expected", "said", "tags"),
    [
        (["a 1.5 s"], ["a 22 s"], ""),
        (["a  b"], ["a      b"], ""),
        (["...", "b"], ["x", "y", "b"], ""),
        (["a", "..."], ["a", "x"], ""),
        (["n3 says ... twice"], ["n1 says no twice"], ""),
        (["VALID  register", "  stats  valid"], ["live", "INVALID  register", "  stats  unknown"], "varies"),
        (["n3: 4"], ["n3: 4"], "exact"),
    ],
)
def test_an_answer_that_fits(expected: list[str], said: list[str], tags: str) -> None:
    assert differences(expected, said, set(tags.split())) is None


@pytest.mark.parametrize(
    ("expected", "said", "tags"),
    [
        (["a"], ["b"], ""),
        (["a"], ["x", "a"], ""),
        (["a"], ["a", "Traceback"], ""),
        (["a", "b"], ["a"], ""),
        (["n1 1.5 s"], ["n1 soon"], ""),
        (["n3: 4"], ["n3: 5"], "exact"),
        (["  stats  valid"], ["  faults  valid"], "varies"),
        (["VALID  register", "  report"], ["  report", "VALID register"], "varies"),
    ],
)
def test_an_answer_that_does_not_fit(expected: list[str], said: list[str], tags: str) -> None:
    assert differences(expected, said, set(tags.split())) is not None


def test_every_box_can_be_read() -> None:
    page = TUTORIAL.read_text()
    text = list(steps(page))
    assert {tag for step in text for tag in step.tags} <= {"cluster", "varies", "invalid", "exact"}
    assert page.count("```console") == sum(bool(step.commands) for step in text)
    assert all(not step.tags & {"varies", "invalid"} or "cluster" in step.tags for step in text)


def test_the_written_package_is_the_one_of_the_examples() -> None:
    written = {Path(step.path).name: step.text for step in steps(TUTORIAL.read_text()) if step.path.startswith("my_")}
    assert set(written) == {"restart_one.py", "write_heavy.py", "pyproject.toml"}
    for name, text in written.items():
        example = (ROOT / "examples" / "own_plugins" / name).read_text()
        assert text == re.sub(r"\A# SPDX-License-Identifier: .*\n", "", example), name
