# SPDX-License-Identifier: Apache-2.0
"""The pages for histories of one's own, followed literally: all files, Python and commands, in the order of the page,
in a folder that has nothing else. Only sections that need servers are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from harness.cli.main import cli, guarded

ROOT = Path(__file__).parents[2]
PLUGIN: Final = "rocketmq_harness.pytest_plugin"
COMPILED: Final = "Other languages"
"""The section whose programs are compiled."""

SERVERS: Final = "A cluster of RocketMQ, with faults"


class Block(NamedTuple):
    """A block of a page, with the heading above it. file: the name in the line above the block, `NAME`:"""

    heading: str
    file: str | None
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks that name a language."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    heading = ""
    form = r"^##+ (?P<heading>[^\n]+)$|(?:`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$"
    for found in re.finditer(form, text, re.MULTILINE | re.DOTALL):
        if found["heading"]:
            heading = found["heading"]
        else:
            yield Block(heading, found["file"], found["language"], found["text"])


class Follower:
    """A reader who types each line of a page, and compares what is printed. The current folder is the reader's."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.names: dict[str, Any] = {"__name__": "page"}
        self.commands = 0
        self._capsys = capsys

    def follow(self, block: Block) -> None:
        if block.file is not None:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            exec(block.text, self.names)
        elif block.language == "console":
            for typed in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                line, *shown = typed.splitlines()
                self._compare(line, self._type(line), shown)
                self.commands += 1
        else:
            raise AssertionError(f"nobody knows what to do with {block}")

    def _type(self, line: str) -> list[str]:
        """Executes a command, and returns the lines that a terminal shows."""
        words = shlex.split(line, comments=True)
        if words[0] == "pip":
            return []  # (The environment of the tests has it.)
        if words[0] == "pytest":
            return self._call(shlex.join([sys.executable, "-m", *words, "-p", PLUGIN, "-p", "no:cacheprovider"]))
        if words[0] != "harness":
            return self._call(line)
        argv, _, file = (" ".join(words[1:])).partition(" > ")
        self._capsys.readouterr()
        code = guarded(lambda: cli.main(argv.split(), prog_name="harness", standalone_mode=False))
        output = self._capsys.readouterr()
        assert code < 64, f"{line}\n{output.err}"
        if file:
            Path(file).write_text(output.out)
        return [*(output.out.splitlines() if not file else ()), *output.err.splitlines()]

    @staticmethod
    def _call(line: str) -> list[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return []  # (The page does not show what other programs print.)

    @staticmethod
    def _compare(line: str, printed: list[str], shown: list[str]) -> None:
        """Every line of the page was printed, in its order, and no other one, unless `...` stands for them."""

        def plain(text: str) -> str:
            return re.sub(r" +\d+ ms", " 1 ms", text)

        rest = iter(printed)
        for expected in shown:
            start = plain(expected).removesuffix("...")
            assert any(plain(found).startswith(start) for found in rest), f"{line}\n{expected}\n{printed}"
        if not any(expected.endswith("...") for expected in shown):
            assert len(printed) == len(shown), f"{line}\n{printed}"


@pytest.fixture
def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Follower:
    monkeypatch.chdir(tmp_path)
    return Follower(capsys)


def test_checking(follower: Follower) -> None:
    for name in ("etcd_000.log", "etcd_002.log"):  # (The page says where they come from.)
        Path("corpus").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "data" / "porcupine" / name, "corpus")
    for block in blocks("checking"):
        follower.follow(block)
    assert follower.commands == 5
    assert follower.names["found"].witness(0) is None, "etcd_000 is invalid"
    assert follower.names["found"].witness(1)


def test_histories(follower: Follower) -> None:
    """`mq.jsonl` is shown behind the first command that reads it."""
    for block in sorted(blocks("histories"), key=lambda block: block.file is None):
        follower.follow(block)
    assert follower.commands == 3


def test_recording(follower: Follower) -> None:
    for block in blocks("recording"):
        if block.heading not in (SERVERS, COMPILED):
            follower.follow(block)
    assert follower.commands == 3
    assert not list(Path().glob("*.html")), "no violation was recorded"
    assert {"history.jsonl", "refused.jsonl", "faults.jsonl"} <= {path.name for path in Path().iterdir()}


@pytest.mark.slow
def test_recording_in_other_languages(follower: Follower) -> None:
    """The recorders come out of the package, and the page's program of each language writes a history."""
    if missing := [tool for tool in ("javac", "go", "node") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    for block in blocks("recording"):
        if block.heading == COMPILED:
            follower.follow(block)
    assert follower.commands == 8
