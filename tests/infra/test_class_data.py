# SPDX-License-Identifier: Apache-2.0
"""Archives of class data: who uses one, and how the cache comes to have it. Real ones: `tests/cluster`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from noting_nodes import NotingCluster, NotingNode, noting_nodes

from infra.machines.api import ClusterSpec, Completed, InfraError, Share
from infra.machines.backends.docker import DockerBackend, DockerOptions
from infra.machines.backends.local import LocalBackend
from infra.machines.backends.ssh import SshBackend
from infra.systems import class_data
from infra.systems.api import Launch, LaunchRule, ServerSettings
from infra.systems.class_data import Rehearsal, Rehearsed
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.topologies.controller import ControllerTopology
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology

BROKER = "/opt/harness/class-data/5.5.0/broker.jsa"
USED = f"-XX:SharedArchiveFile={BROKER}"


def broker_command(archives: Sequence[str], **settings: Any) -> Sequence[str]:
    """The start command of a master's broker on a node with these archives."""
    topology = MasterSlaveTopology(ServerSettings(**settings))
    (node,) = noting_nodes(1)
    node.archives = archives
    topology.attach(NotingCluster([node]))  # type: ignore[arg-type]
    return next(s for s in topology.servers(node) if s.kind == "broker").start_command()  # type: ignore[arg-type]


def test_a_server_uses_the_archive_that_its_node_has() -> None:
    argv = broker_command([BROKER])
    assert USED in argv
    assert argv.index("java") < argv.index("-Xshare:auto") < argv.index("-cp"), "and goes on where it is refused,"
    assert "-Xlog:cds*=off" in argv, "without a line in its log"


@pytest.mark.parametrize("there", [[], ["/opt/harness/class-data/5.4.0/broker.jsa"], [BROKER.replace("broker", "x")]])
def test_there_is_none_on_existing_machines_for_other_versions_and_kinds(there: Sequence[str]) -> None:
    assert not [word for word in broker_command(there) if "jsa" in word or "cds" in word]


def test_a_users_jars_come_first_so_the_archive_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.jar").touch()
    assert USED not in broker_command([BROKER], launch=Launch(jars=tmp_path))
    rule = LaunchRule(Launch(jars=tmp_path), kinds=["namesrv"])
    assert USED in broker_command([BROKER], rules=[rule]), "another server has them"


def test_with_mends_the_class_path_is_the_same() -> None:
    plain, mended = broker_command([BROKER]), broker_command([BROKER], launch=Launch(mends=[5]))
    assert USED in mended
    assert [word for word in mended if word.startswith("-javaagent:")]
    assert plain[plain.index("-cp") + 1] == mended[mended.index("-cp") + 1]


def test_a_users_options_come_later_and_win() -> None:
    argv = broker_command([BROKER], launch=Launch(jvm_options=["-Xshare:off"]))
    assert argv.index("-Xshare:auto") < argv.index("-Xshare:off")


def test_what_is_rehearsed(tmp_path: Path) -> None:
    """Every version that a server may be started with, unless the user's own jars come before all of them."""
    (tmp_path / "mine.jar").touch()
    several = ControllerTopology(ServerSettings(launch=Launch("5.4.0"), versions=["5.5.0"]))
    assert [(r.topology, r.version) for r in several.rehearsals()] == [("controller", "5.4.0"), ("controller", "5.5.0")]
    assert not ControllerTopology(ServerSettings(launch=Launch(jars=tmp_path))).rehearsals()
    assert [r.version for r in DledgerTopology(ServerSettings()).rehearsals()] == ["0.4.0"]
    assert isinstance(several, Rehearsed)


def test_an_image_of_the_users_and_existing_machines_have_no_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.machines.backends.docker.image_build", lambda: "b1")
    monkeypatch.setattr("infra.machines.backends.local.image_build", lambda: "b1")
    assert DockerBackend().image(DockerOptions()) == LocalBackend().image(LocalBackend.Options()) == "b1"
    assert DockerBackend().image(DockerOptions("debian:bookworm")) is None
    topology = DledgerTopology(ServerSettings())
    assert class_data.shares(SshBackend(), None, topology, lambda line: None) == []


class ArchivingNode(NotingNode):
    """It has an archive for each of its servers that has ended in an orderly way."""

    ended: list[str]

    def fetch(self, remote_dir: str, local_dir: Path, limit: int) -> list[Path]:
        paths = [local_dir / f"{kind}.jsa" for kind in self.ended]
        for path in paths:
            path.write_text(f"classes of {path.stem}")
        return paths


@dataclass
class Machines:
    """A backend. `now`: its nodes at present. `provisioned`: how often there were some."""

    now: list[ArchivingNode] = field(default_factory=list)
    provisioned: int = 0
    build: str | None = "b1"

    def image(self, options: Any) -> str | None:
        return self.build

    def provision(self, spec: ClusterSpec) -> Any:
        node = ArchivingNode("n1")
        node.ended = []
        self.now, self.provisioned = [node], self.provisioned + 1
        return SimpleNamespace(nodes=self.now, destroy=self.now.clear)


class Plays:
    """A topology of two kinds of servers."""

    kinds: ClassVar[Sequence[str]] = ("store", "front")
    jars: ClassVar[Path]
    broken: ClassVar[bool] = False
    settings: ServerSettings

    def __init__(self, settings: ServerSettings) -> None:
        Plays.settings = settings

    def rehearsals(self) -> Sequence[Rehearsal]:
        return [Rehearsal("toy", "1.0", ServerSettings())]

    def shares(self) -> Sequence[Share]:
        return [Share(self.jars, "/lib")]

    def attach(self, cluster: Any) -> None:
        (self.node,) = cluster.nodes

    def start_all(self) -> None:
        if self.broken:
            raise InfraError("n1: the store has ended")

    def servers(self, node: ArchivingNode) -> list[Any]:
        return [SimpleNamespace(kind=kind, stop=lambda s, kind=kind: node.ended.append(kind)) for kind in self.kinds]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages to the user; with a cache of the test's own, and the toy topology as a plug-in."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    point = SimpleNamespace(load=lambda: Plays)
    monkeypatch.setattr(class_data, "entry_points", lambda **named: [point] if named["name"] == "toy" else [])
    monkeypatch.setattr(Plays, "jars", tmp_path / "jars", raising=False)
    Plays.jars.mkdir()
    (Plays.jars / "a.jar").write_text("one")
    return []


def archives(machines: Machines, said: list[str]) -> Mapping[str, str]:
    """Name -> content of the archives that nodes would see."""
    found = class_data.shares(machines, None, Plays(ServerSettings()), said.append)  # type: ignore[arg-type]
    assert [share.path for share in found] in ([], ["/opt/harness/class-data/1.0"])
    assert not machines.now, "no machine is left"
    return {path.name: path.read_text() for share in found for path in share.source.glob("*.jsa")}


BOTH = {"store.jsa": "classes of store", "front.jsa": "classes of front"}


def test_a_rehearsal_makes_them_once_and_says_what_it_costs(said: list[str]) -> None:
    machines = Machines()
    assert archives(machines, said) == archives(machines, said) == BOTH
    assert machines.provisioned == len(said) == 1
    assert "half a minute, once" in said[0]
    options = {rule.kinds[0]: rule.launch.jvm_options for rule in Plays.settings.rules}
    assert options["store"][0] == "-XX:ArchiveClassesAtExit=/var/lib/harness/class-data/store.jsa"


def test_they_are_made_again_for_other_jars_and_another_jvm(said: list[str]) -> None:
    machines = Machines()
    archives(machines, said)
    os.utime(Plays.jars / "a.jar", ns=(1, 1))
    archives(machines, said)
    assert machines.provisioned == 2, "a JVM compares the times of the jars"
    machines.build = "b2"
    archives(machines, said)
    assert machines.provisioned == 3
    machines.build = None
    assert archives(machines, said) == {}
    assert machines.provisioned == 3


@pytest.mark.parametrize("damage", ["cut off", "changed", "gone", "sums"])
def test_a_damaged_archive_is_made_again(said: list[str], damage: str) -> None:
    """A JVM dies of one that is cut off."""
    machines = Machines()
    archives(machines, said)
    (archive,) = (Path(os.environ["HARNESS_CACHE"]) / "class-data").glob("*/store.jsa")
    match damage:
        case "cut off":
            archive.write_text("classes")
        case "changed":
            archive.write_text("classes of stork")
        case "gone":
            archive.unlink()
        case "sums":
            (archive.parent / "sha256.json").write_text("[]")
    assert archives(machines, said) == BOTH
    assert machines.provisioned == 2
    assert archives(machines, said) == BOTH
    assert machines.provisioned == 2


def test_where_none_can_be_made_servers_start_without(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plays, "broken", True)
    assert archives(Machines(), said) == {}
    assert said[-1].endswith("start without: n1: the store has ended")
    monkeypatch.setattr(Plays, "broken", False)
    monkeypatch.setattr(ArchivingNode, "fetch", lambda *_: [])
    assert archives(Machines(), said) == {}
    assert "the JVM of the store wrote no archive" in said[-1]
    assert not list((Path(os.environ["HARNESS_CACHE"]) / "class-data").iterdir()), "nothing half made is left"


class ProgramNode:
    """A node on which a Java program can be rehearsed. files: path -> content; `jvm` is what it says of its JVM and
    jars. broken: the program writes no archive.
    """

    name = "c1"

    def __init__(self, jvm: str = "java 1 2", *, broken: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self.jvm, self.broken, self.rehearsals = jvm, broken, 0

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", check: bool = True, **how: object) -> Completed:
        code, out = 0, b""
        match argv:
            case ["sh", "-c", _, "stats", *_]:
                out = self.jvm.encode()
            case ["test", "-f", path]:
                code = int(path not in self.files)
            case ["timeout", _, "java", dump, *_]:
                self.rehearsals += 1
                if not self.broken:
                    self.files[dump.partition("=")[2]] = b"classes of " + stdin
            case ["rm", "--", path]:
                del self.files[path]
            case ["sh", "-c", _, "rm", start]:
                self.files = {path: of for path, of in self.files.items() if not path.startswith(f"{start}.")}
        return Completed(argv, code, out, b"", 0.1)

    def read(self, path: str, limit: int = 0) -> bytes:
        if path not in self.files:
            raise InfraError(f"{self.name}: {path} is not there")
        return self.files[path]

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data


def of_program(node: ProgramNode, commands: str = "join") -> str:
    return class_data.of_program(node, "member", ["-Xmx64m"], ["/lib/a.jar"], "Member", commands)  # type: ignore[arg-type]


def test_a_program_is_rehearsed_once_for_all_nodes(said: list[str]) -> None:
    nodes = [ProgramNode(), ProgramNode()]
    (there,) = {of_program(node) for node in (*nodes, *nodes)}
    assert [node.rehearsals for node in nodes] == [1, 0]
    assert [node.files for node in nodes] == [{there: b"classes of join"}] * 2, "and nothing else is left"


def test_a_program_is_rehearsed_again_for_another_jvm_and_other_commands(said: list[str]) -> None:
    node = ProgramNode()
    old = of_program(node)
    node.jvm = "java 1 3"
    assert of_program(node) != old
    new = of_program(node, "leave")
    assert node.rehearsals == 3
    assert node.files == {new: b"classes of leave"}, "a kept node has only the one in use"
    for i in range(9):
        of_program(ProgramNode(str(i)))
    assert len(list((Path(os.environ["HARNESS_CACHE"]) / "class-data").iterdir())) == 4


def test_a_damaged_archive_of_a_program_is_made_again(said: list[str]) -> None:
    """A JVM dies of one that is cut off."""
    of_program(ProgramNode())
    (archive,) = (Path(os.environ["HARNESS_CACHE"]) / "class-data").glob("*/program.jsa")
    archive.write_text("classes")
    node = ProgramNode()
    there = of_program(node)
    assert node.rehearsals == 1
    assert node.files[there] == b"classes of join"


def test_members_start_without_an_archive_where_none_can_be_made(said: list[str]) -> None:
    program = JavaProgram("5.5.0", "remoting")
    for broken in (True, False):
        program.install(ProgramNode(broken=broken))  # type: ignore[arg-type]
        assert any("SharedArchiveFile" in word for word in program.argv) is not broken
