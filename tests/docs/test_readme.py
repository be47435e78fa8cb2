# SPDX-License-Identifier: Apache-2.0
"""The promises of the pages: commands parse, links lead somewhere, make targets and pictures exist."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from harness.cli.main import cli, guarded
from harness.cli.main import command as command_of
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

_PLACES = ("RUN_ID",)
"""Words that stand for something that only a run leaves behind."""


def commands(page: str, program: str) -> Iterator[list[str]]:
    """The words after `program`, for each line `$ program ...` of a box and each `program ...` in running text."""
    boxed = re.findall(rf"^\$ {program} (.*)$", page.replace("\\\n", " "), re.MULTILINE)
    spoken = re.findall(rf"`{program} ([^`]+)`", _FENCED.sub("", page))
    for text in boxed + spoken:
        yield shlex.split(text.split(" | ")[0].replace("\n", " "), comments=True)


def prose(page: str) -> str:
    return _FENCED.sub("", page)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside of the checkout, with a run, a matrix and the files of systems of a reader."""
    run = tmp_path / "results" / "runs" / "latest"
    run.mkdir(parents=True)
    for place in (run, tmp_path / "RUN"):
        place.mkdir(exist_ok=True)
        for name in ("plan.toml", "effective.toml"):
            (place / name).write_text('workload = "log"\nseed = 1\n')
    (tmp_path / "my-matrix.toml").write_text(
        '[[cells]]\nworkload = ["log"]\nnemesis = ["hammer-time"]\nversion = ["5.5.0"]\n'
    )
    for system in ("etcd", "redis"):  # (docs/any-system.md)
        shutil.copytree(ROOT / "examples" / "any" / system, tmp_path / system)
    monkeypatch.chdir(tmp_path)
    return tmp_path


_TRIED: set[tuple[str, ...]] = set()
"""Commands that stand on several pages are tried once."""


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_can_be_typed(page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    """Outside of the checkout, too. What can be tried without an effect is tried; the rest is parsed."""
    for argv in commands(page.read_text(), "harness"):
        if tuple(argv) not in _TRIED:
            _TRIED.add(tuple(argv))
            type_in(argv, capsys, elsewhere)


def type_in(argv: list[str], capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    name, *options = argv
    if "--server-jars" in options:  # the reader has built it
        jars = Path(options[options.index("--server-jars") + 1])
        jars.mkdir(parents=True, exist_ok=True)
        (jars / "rocketmq-broker.jar").touch()
    command = command_of(name)
    if not options or "--help" in options or "partition-halfs" in options:
        return  # a command's bare name in running text, a help text, the tutorial's typing error
    if name in ("run", "nightly", "clean") and not any(word in _OWN or word in _PLACES for word in options):
        tried = [name, *dict.fromkeys(["--dry-run", *options])] if name != "run" else [name, "--dry-run", *options]
        code = guarded(lambda: cli.main(tried, prog_name="harness", standalone_mode=False))
        assert code == 0, (argv, capsys.readouterr().err)
    else:
        # (With its group: click keeps the help option that a command was first used with, and only the group's has -h.)
        command.make_context(name, list(options), parent=cli.make_context("harness", [name]))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_page_names_what_exists(page: Path) -> None:
    """Modules, links, make targets; and no path of a machine."""
    modules_exist(page)
    links_lead_somewhere(page)
    make_targets_exist(page)
    for path in re.findall(r"(?<![\w.])/(?:home|root|work|tmp|Users)/\S+", page.read_text()):
        pytest.fail(f"{page.name} names {path}")


def modules_exist(page: Path) -> None:
    """`python -m NAME` in a box, or in running text."""
    for module in re.findall(r"python3? -m ([a-z_.]+)", page.read_text()):
        assert module in ("venv", "pytest") or find_spec(module) is not None, f"{page.name}: python -m {module}"


def test_a_wrong_command_would_be_noticed() -> None:
    found = list(commands("```console\n$ harness run --sped 3  # fast\n```\nsay `harness\nlist`", "harness"))
    assert found == [["run", "--sped", "3"]]
    with pytest.raises(click.UsageError):
        command_of("run").make_context("run", found[0][1:])


def links_lead_somewhere(page: Path) -> None:
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


def make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for argv in commands(page.read_text(), "make"):
        named = {word for word in argv if "=" not in word}
        assert named <= targets, f"{page.name}: make {' '.join(argv)}"


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
    example = (ROOT / "examples" / "own_plugins" / name).read_text()
    code = re.sub(r"\A# SPDX-License-Identifier: .*\n", "", example)
    assert f"```python\n{code}```" in (ROOT / "examples" / "own_plugins" / "README.md").read_text()
    lines = code.splitlines()
    assert lines[1] == ""
    assert len(lines[2:]) <= 30, "a nemesis or a workload takes 30 lines below its docstring"


def test_the_first_page_is_short() -> None:
    """`harness list` reports what is installed. The page has no copy of it."""
    assert len(README.splitlines()) <= 150
    assert not re.search(r"^\$ harness list$", README, re.MULTILINE)
    assert "nemeses:" not in README


DENIED = {
    "any": "other (servers|systems)|systems? of (your|their) own",
    "bandwidth": "bandwidth|slow links?",
    "bridge": "bridge",
    "clock": "clocks?",
    "config-change": r"chang\w+ settings",
    "controller-loss": "controllers",
    "crash": "crash",
    "cut-applications": "cut an application|cuts? (of )?applications",
    "cut-clients": "clients? and servers?|cut a client",
    "cut-file": "torn|cut files?",
    "disk-error": r"failing (disk|\w+ disks)|disk errors?",
    "disk-full": r"full (disk|or \w+ disk)",
    "disk-read-only": "read-only",
    "disk-slow": "slow disks?",
    "disk-stall": "stall",
    "flip-bits": "bit flips?|flipped",
    "frame-fault": "frames?",
    "hammer-time": "SIGSTOP",
    "kill": "kills?",
    "long-pause": "pauses?",
    "memory-squeeze": "memory",
    "namesrv-loss": "name servers",
    "one-way-cut": "one-way",
    "packet-delay": "delays?",
    "packet-duplicate": "duplicat",
    "packet-loss": "lossy|packet loss",
    "packet-reorder": "reorder",
    "partition": "partitions?",
    "pause": "pauses?",
    "power-failure": "power",
    "remove-replica": "membership",
    "replace-node": "replac",
    "restart-group": "restarts?",
    "rolling-restart": "restarts?",
    "rolling-upgrade": "upgrades?",
    "slow-node": "slow (nodes?|or lossy|servers?)",
    "wipe-node": "wip(es?|ing)|empty disks?",
    "broker-identity": "identit",
    "consume": r"applications? (as|that) consum\w+|consumers? of an application",
    "controller": "controllers",
    "delay": "delayed messages",
    "gray": "gray",
    "log": "logs",
    "order-lock": "locks?",
    "preonline": "takes? over",
    "queue": "consumer groups?",
    "quorum-ack": "quorum",
    "register": "registers?",
    "route": "routes?",
    "topics": r"topics? (that are )?(made|created|deleted)|delet\w+ topics?",
    "transaction": "transactions?",
    "dledger": "dledger",
    "master-slave": "failover",
    "slave-acting-master": "acting master",
    "docker": "containers?",
    "kubernetes": "kubernetes|pods?",
    "local": "namespaces",
    "ssh": "machines of your own",
    "native": "native",
    "remoting": "remoting",
    "grpc": "grpc",
}
"""A registered name, or its beginning -> the words with which a page would deny that it exists."""

_NO = re.compile(r"\b(no|not|none|never|nor|neither|without|cannot|only)\b", re.IGNORECASE)


def limits(page: str) -> Iterator[str]:
    """The sentences below the headings that are about limits."""
    for part in re.split(r"^(?=#+ )", page, flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        if "limit" in heading.lower():
            yield from re.split(r"(?<=[.;:])\s+", " ".join(text.split()))


def denials(page: str) -> list[str]:
    """The sentences about limits that deny something registered. One with a registered `name` is about that name, and
    denies nothing else.
    """
    there = registered()
    found = []
    for sentence in limits(page):
        named = set(re.findall(r"`([\w-]+)", sentence)) & there
        words = [words for words in DENIED.values() if re.search(rf"\b(?:{words})", sentence, re.IGNORECASE)]
        if words and not named and _NO.search(sentence):
            found.append(sentence)
    return found


def registered() -> set[str]:
    from harness.parts import registry

    groups = (registry.WORKLOADS, registry.NEMESES, registry.TOPOLOGIES, registry.CLUSTERS, registry.CLIENTS)
    return {name for group in groups for name in registry.names(group)} - set(_OWN) - {"none"}


def test_every_registered_name_has_the_words_that_would_deny_it() -> None:
    """So that a new fault cannot be left out of the next test."""
    for name in registered():
        assert any(name == word or name.startswith(f"{word}-") for word in DENIED), name


def test_no_limit_denies_what_exists() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert denials(page.read_text()) == [], page.name


def test_a_limit_that_denies_what_there_is_is_noticed() -> None:
    """As the first page did until half of the faults had been there for a week."""
    old = """## Limits

* The faults hit networks and processes. There are no slow or lossy links, one-way cuts, cuts between clients and
  servers, clock jumps, full or failing disks, power losses, membership changes or rolling upgrades.
* Partitions cut only links between servers. They do not cut a client off from a server.
* `hammer-time` does not stop clocks.
"""
    assert [sentence.lstrip("* ")[:19] for sentence in denials(old)] == [
        "There are no slow o",
        "Partitions cut only",
        "They do not cut a c",
    ]


def test_every_room_is_told() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    design = (ROOT / "pyproject.toml").read_text()
    rooms = re.search(r"^packages = \[(.*)\]$", design, re.MULTILINE)
    assert rooms is not None
    for room in re.findall(r'"(\w+)"', rooms[1]):
        assert f"| `{room}/` |" in contributing
