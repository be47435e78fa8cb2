"""What the pages promise can be typed: commands parse, links lead somewhere, make targets and pictures are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from harness.cli.main import cli, guarded
from results.verdict import Verdict

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
README = (ROOT / "README.md").read_text()
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_OWN = ("restart-one", "write-heavy", "slow-uplink")
"""Names that exist only once their package is installed."""


def commands(page: str, program: str) -> Iterator[list[str]]:
    """The words after `program`, for each line `$ program ...` of a box and each `program ...` in running text."""
    boxed = re.findall(rf"^\$ {program} (.*)$", page.replace("\\\n", " "), re.MULTILINE)
    spoken = re.findall(rf"`{program} ([^`]+)`", _FENCED.sub("", page))
    for text in boxed + spoken:
        yield shlex.split(text.split(" | ")[0].replace("\n", " "), comments=True)


def prose(page: str) -> str:
    return _FENCED.sub("", page)


def all_commands() -> list[tuple[str, list[str]]]:
    return [
        (name, argv) for name, page in zip(IDS, PAGES, strict=True) for argv in commands(page.read_text(), "harness")
    ]


@pytest.mark.parametrize(("page", "argv"), all_commands(), ids=lambda value: str(value)[:60])
def test_a_command_can_be_typed(
    page: str, argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, *options = argv
    monkeypatch.chdir(tmp_path)
    if "--server-jars" in options:  # the reader has built it
        jars = Path(options[options.index("--server-jars") + 1])
        jars.mkdir(parents=True)
        (jars / "rocketmq-broker.jar").touch()
    command = cli.commands[name]
    if not options or "--help" in options or "partition-halfs" in options:
        return  # a command's bare name in running text, a help text, the tutorial's typing error
    command.make_context(name, list(options))
    if name == "run" and not any(word in _OWN or word == "--plan" for word in options):
        code = guarded(lambda: cli.main(["run", "--dry-run", *options], prog_name="harness", standalone_mode=False))
        assert code == 0, capsys.readouterr().err


def test_a_wrong_command_would_be_noticed() -> None:
    found = list(commands("```console\n$ harness run --sped 3  # fast\n```\nsay `harness\nlist`", "harness"))
    assert found == [["run", "--sped", "3"]]
    with pytest.raises(click.UsageError):
        cli.commands["run"].make_context("run", found[0][1:])


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{page.name} links to {target}"


def anchors(page: str) -> set[str]:
    """As GitHub makes them: small letters, punctuation gone, blanks to hyphens."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for argv in commands(page.read_text(), "make"):
        named = {word for word in argv if "=" not in word}
        assert named <= targets, f"{page.name}: make {' '.join(argv)}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_machine_is_named(page: Path) -> None:
    for path in re.findall(r"(?<![\w.])/(?:home|root|work|tmp|Users)/\S+", page.read_text()):
        pytest.fail(f"{page.name} names {path}")


def test_pictures_are_shown_and_small() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert pictures
    pages = "".join(page.read_text() for page in PAGES)
    for picture in pictures:
        assert picture.stat().st_size < 300_000, picture.name
        assert f"images/{picture.name})" in pages, f"{picture.name} is shown nowhere"


def test_the_verdicts_and_their_exit_codes() -> None:
    text = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", README, re.MULTILINE))
    assert text == {verdict.value: str(verdict.exit_code) for verdict in Verdict}


@pytest.mark.parametrize("name", ["restart_one.py", "write_heavy.py"])
def test_code_of_ones_own_is_that_of_the_examples(name: str) -> None:
    code = (ROOT / "examples" / "own_plugins" / name).read_text()
    assert f"```python\n{code}```" in README
    lines = code.splitlines()
    assert lines[1] == ""
    assert len(lines[2:]) <= 30, "a nemesis or a workload takes 30 lines below its docstring"


def test_everything_that_is_registered_is_listed() -> None:
    from harness.parts import registry

    listed = README[README.index("$ harness list") :]
    for group in (registry.WORKLOADS, registry.NEMESES, registry.CLUSTERS):
        for name in registry.names(group):
            assert name in _OWN or re.search(rf"^  {name} ", listed, re.MULTILINE), name


def test_every_room_is_told() -> None:
    design = (ROOT / "pyproject.toml").read_text()
    rooms = re.search(r"^packages = \[(.*)\]$", design, re.MULTILINE)
    assert rooms is not None
    for room in re.findall(r'"(\w+)"', rooms[1]):
        assert f"| `{room}/` |" in README
