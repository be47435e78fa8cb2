# SPDX-License-Identifier: Apache-2.0
"""The description of any server: every wrong file gives one clear line, and a right one the commands of each node."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.machines.api import InfraError, SettingsError
from infra.options import OptionError
from infra.prepare import prepare_servers
from infra.systems.any_system import files
from infra.systems.any_system.description import NodeFile, read_description
from infra.systems.any_system.server import ProcessServer, ServerAdmin
from infra.systems.any_system.templates import TemplateError, fill
from infra.systems.any_system.topology import AnyOptions, AnyTopology, status_of
from infra.systems.api import Launch, LaunchRule, ServerSettings
from nemesis.clock import ClockStep

EXAMPLES = Path(__file__).parents[2] / "examples" / "any"

LEAST = """
[server]
run = ["serve", "--name={node}"]
ports = { client = 1234 }
[client]
run = ["python3", "client.py", "{address}"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "system.toml"
    path.write_text(text)
    return path


WRONG = {
    "": "server: is missing; a table [server]",
    "[server": "not TOML:",
    'server = "etcd"': "server: 'etcd'; a table is right",
    "[server]\nports = { client = 1 }": "server.run: is missing; a command such as",
    '[server]\nrun = "etcd"\nports = { client = 1 }': "server.run: 'etcd'; a list of texts is right",
    "[server]\nrun = []\nports = { client = 1 }": "server.run: []; a list of words such as",
    '[server]\nrun = ["etcd"]': "server.ports: is missing; ports = { client = 2379 }",
    '[server]\nrun = ["etcd"]\nports = { client = 70000 }': "port client: a number from 1 to 65535 is right",
    '[server]\nrun = ["etcd", "{nod}"]\nports = { client = 1 }': "server.run: no placeholder {nod}; did you mean",
    '[server]\nrun = ["etcd", "{peer_port}"]\nports = { client = 1 }': "server.run: no placeholder {peer_port}",
    '[server]\nrun = ["awk", "{ print }"]\nports = { client = 1 }': "server.run: no placeholder { print }",
    '[server]\nrun = ["awk", "}"]\nports = { client = 1 }': "has a single brace",
    f"{LEAST}\nport = 3": "no key client.port; there are run, env, nodes",
    f"pakages = []\n{LEAST}": "no key pakages; did you mean 'packages'?",
    f'packages = ["--purge"]\n{LEAST}': "packages: ['--purge']; names of Debian packages",
    f'needed = ["node1"]\n{LEAST}': "needed: ['node1']; names of nodes, such as \"n1\", are right",
    f'{LEAST}\n[[server.on]]\nrun = ["x"]': "server.on[1].nodes: is missing",
    f'{LEAST}\n[once]\non = "n1"': "once.run: is missing",
    '[servr]\nrun = ["etcd"]': "no key servr; did you mean 'server'?",
    '[server]\nrum = ["etcd"]': "no key server.rum; did you mean 'run'?",
    f'{LEAST}\n[[server.on]]\nnode = ["n1"]': "no key server.on[1].node; did you mean 'nodes'?",
    f'{LEAST}\n[list]\npeers = {{ each = "x" }}': "no key list; did you mean 'lists'?",
    f'{LEAST}\n[lists]\nnode = {{ each = "x" }}': "lists.node: a name of small letters that is no other placeholder",
    f'{LEAST}\n[lists]\npeers = {{ each = "{{data}}" }}': "lists.peers.each: no placeholder {data}",
    f'{LEAST}\n[lists]\npeers = {{ join = "," }}': "lists.peers.each: is missing",
    f'{LEAST}\n[[file]]\ntext = "x"': "file[1].path: is missing; an absolute path",
    f'{LEAST}\n[[file]]\npath = "etc/x"\ntext = "x"': "file[1].path: 'etc/x'; an absolute path on the nodes is right",
    f'{LEAST}\n[[file]]\npath = "/proc/x"\ntext = "x"': "a path outside of",
    f'{LEAST}\n[[file]]\npath = "/x"': "needs exactly one of text, source and url",
    f'{LEAST}\n[[file]]\npath = "/x"\nsource = "none"': "file[1].source: 'none'; a file next to the description is",
    f'{LEAST}\n[[file]]\npath = "/x"\nurl = "https://host/x"': "a url and the sha256 of what is there belong together",
    f'{LEAST}\n[[file]]\npath = "/x"\ntext = "x"\nmode = "999"': 'a text such as "0755" is right',
    f'{LEAST}\n[[file]]\npath = "/x"\ntext = "x"\nunpack = true': "a text cannot",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_description_gives_one_line(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        read_description(path)
    message = str(raised.value)
    assert message.startswith(f"--system {path}: ")
    assert WRONG[text] in message
    assert "\n" not in message


def test_a_missing_file_and_a_missing_option_give_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_description(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="needs a description of the system: --system FILE"):
        AnyTopology(ServerSettings())


@pytest.mark.parametrize("example", ["etcd/etcd.toml", "redis/redis.toml"])
def test_the_examples_are_right(example: str) -> None:
    found = read_description(EXAMPLES / example)
    assert found.packages
    assert found.server.role
    assert found.client is not None
    made = AnyTopology(ServerSettings(), AnyOptions(str(EXAMPLES / example)))
    made.fits(["n1", "n2", "n3"])


SETTINGS: Mapping[str, ServerSettings] = {
    "--set": ServerSettings({"broker.x": "1"}),
    "--server-jars": ServerSettings(launch=Launch(jars=Path("lib"))),
    "--jvm-option": ServerSettings(rules=[LaunchRule(Launch(jvm_options=["-Xmx1g"]))]),
    "--mend": ServerSettings(launch=Launch(mends=[5])),
    "--version": ServerSettings(launch=Launch(version="5.5.0")),
    "has no proxy": ServerSettings(kinds=["proxy"]),
    "one version": ServerSettings(versions=["5.4.0"]),
}


@pytest.mark.parametrize("word", SETTINGS)
def test_settings_of_rocketmq_are_rejected(word: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=word):
        AnyTopology(SETTINGS[word], AnyOptions(str(write(tmp_path, LEAST))))


def test_a_node_beyond_the_last_is_rejected_before_the_start(tmp_path: Path) -> None:
    nodes = ["n1", "n2", "n3"]
    for text in (f'needed = ["n4"]\n{LEAST}', f'{LEAST}\n[[server.on]]\nnodes = ["n4"]\nenv = {{ A = "b" }}'):
        with pytest.raises(SettingsError, match="it names n4, and the nodes are n1 to n3; --nodes 4 is right"):
            AnyTopology(ServerSettings(), AnyOptions(str(write(tmp_path, text)))).fits(nodes)
    used = LEAST.replace("{node}", "{n4}")
    with pytest.raises(SettingsError, match=r"no placeholder \{n4\}"):
        AnyTopology(ServerSettings(), AnyOptions(str(write(tmp_path, used)))).fits(nodes)


class Machine:
    """A node that takes every command, and keeps them."""

    def __init__(self, name: str) -> None:
        self.name, self.address = name, f"198.18.0.1{name[1:]}"
        self.ran: list[Sequence[str]] = []
        self.files: dict[str, bytes] = {}
        self.missing = False

    def run(self, argv: Sequence[str], **how: Any) -> Any:
        self.ran.append(argv)
        code = 1 if argv[:2] == ["test", "-e"] or (self.missing and "command -v" in " ".join(argv)) else 0
        return SimpleNamespace(code=code, text="leader 3 9")

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data


WHOLE = """
packages = []
needed = ["n1", "n2"]
[lists]
peers = { each = "{node}@{address}", join = ";" }
[server]
run = ["serve", "{node}", "{index}", "{data}", "{peers}", "{client_port}", "{n2}", "{{x}}"]
ports = { client = 1234, replication = 99 }
env = { A = "{address}" }
prepare = ["format", "{data}"]
role = ["who"]
[[server.on]]
nodes = ["n2"]
run = ["follow", "{n1}"]
env = { B = "b" }
[[file]]
path = "/etc/serve.conf"
text = "I am {node}"
[client]
run = ["client", "{address}", "{thread}", "{timeout}", "{here}", "{n1}"]
env = { PORT = "{client_port}" }
nodes = ["n2"]
"""


def attached(folder: Path, text: str) -> tuple[AnyTopology, list[Machine]]:
    machines = [Machine("n1"), Machine("n2")]
    made = AnyTopology(ServerSettings(), AnyOptions(str(write(folder, text))))
    made.fits(["n1", "n2"])
    cluster: Any = SimpleNamespace(nodes=machines)
    made.attach(cluster)
    return made, machines


def test_each_node_gets_its_own_command_and_files(tmp_path: Path) -> None:
    made, (first, _) = attached(tmp_path, WHOLE)
    peers = "n1@198.18.0.11;n2@198.18.0.12"
    one, two = (made.servers(node)[0].start_command() for node in made._nodes)
    expected = ["serve", "n1", "1", "/var/lib/harness/data/server", peers, "1234", "198.18.0.12", "{x}"]
    assert one[-len(expected) :] == expected
    assert "A=198.18.0.11" in one
    assert two[-2:] == ["follow", "198.18.0.11"]
    assert {"A=198.18.0.12", "B=b"} <= set(two)
    assert first.files == {"/etc/serve.conf": b"I am n1"}
    record = made.record()
    assert record.quorums == {"server": ["n1", "n2"]}
    assert record.groups == {"server": ["n1", "n2"]}
    assert record.servers[0].ports == {"server": 1234, "client": 1234, "replication": 99}
    node, argv, env = made.client_command(3, 4.0)
    assert (node, env) == ("n2", {"PORT": "1234"})
    assert argv == ["client", "198.18.0.12", "3", "2", str(tmp_path), "198.18.0.11"]
    made._prepare(made._nodes[0])
    assert ["env", "A=198.18.0.11", "format", "/var/lib/harness/data/server"] in first.ran


def test_a_clock_needs_the_word_of_the_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No probe can see how a program reads the time: etcd was reported as struck, and was not."""
    monkeypatch.setattr("nemesis.clock.clock.unavailable", lambda node: None)
    for text, right in ((LEAST, False), (LEAST.replace("[client]", "libc_clock = true\n[client]"), True)):
        made, machines = attached(tmp_path, text)
        deployment: Any = SimpleNamespace(
            nodes=machines, servers=lambda made=made, machines=machines: [made._servers[node.name] for node in machines]
        )
        why = ClockStep().available(deployment)
        assert why is None if right else str(why).startswith("n1: libfaketime changes the time of programs")


def test_a_program_that_is_missing_on_a_node_is_named(tmp_path: Path) -> None:
    made, machines = attached(tmp_path, LEAST)
    machines[1].missing = True
    with pytest.raises(InfraError, match="n2 has no program serve"):
        made.attach(SimpleNamespace(nodes=machines))  # type: ignore[arg-type]


def test_without_a_role_command_there_is_no_group_and_no_leader(tmp_path: Path) -> None:
    made, _ = attached(tmp_path, LEAST)
    assert made.record().groups == {}


@pytest.mark.parametrize(
    ("output", "role", "term", "end"),
    [
        ("leader 3 17\n", "leader", 3, 17),
        ("slave", "follower", None, 0),
        ("Primary 4", "leader", 4, 0),
        ("candidate", "candidate", None, 0),
        ("", "silent", None, None),
        ("error: no", "silent", None, None),
        ("leader three", "silent", None, None),
    ],
)
def test_what_a_role_command_prints(output: str, role: str, term: int | None, end: int | None) -> None:
    found = status_of(output)
    assert (found.role, found.term, found.end) == (role, term, end)


def test_a_stored_plan_does_not_depend_on_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert AnyOptions("system.toml").system == str(tmp_path / "system.toml")


def test_a_server_that_never_answers_is_not_ready() -> None:
    node: Any = SimpleNamespace(address="127.0.0.1", name="n1", run=lambda *a, **k: SimpleNamespace(code=1))
    assert not ServerAdmin(node, 1, [], {}).answers(0.5)
    assert not ServerAdmin(node, None, ["false"], {}).answers(0.5)
    server = ProcessServer(node, ["x"], {}, {}, Launch(), ServerAdmin(node, None, ["false"], {}))
    assert server.ports == {}


def test_files_are_copied_or_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "a.tar.gz"
    with tarfile.open(source, "w:gz") as tar:
        about = tarfile.TarInfo("bin/serve")
        about.size, about.mode = 2, 0o755
        tar.addfile(about, io.BytesIO(b"hi"))
    plain, packed = (NodeFile("/opt/x", source=source, unpack=unpack) for unpack in (False, True))
    shares = files.shares([plain, packed, NodeFile("/t", text="x")])
    assert [sorted(path.name for path in share.source.iterdir()) for share in shares] == [["file"], ["bin"]]
    assert (shares[1].source / "bin" / "serve").read_bytes() == b"hi"
    assert files.shares([packed])[0].source == shares[1].source
    source.write_bytes(b"no archive")
    with pytest.raises(InfraError, match="cannot be unpacked as a tar or zip archive"):
        files.shares([packed])


def test_a_download_with_another_checksum_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "x"
    source.write_bytes(b"content")
    right = NodeFile("/x", url=source.as_uri(), sha256=hashlib.sha256(b"content").hexdigest())
    assert (files.share_of(right).source / "file").read_bytes() == b"content"
    with pytest.raises(InfraError, match=r"has the sha256 .*, and the description says"):
        files.share_of(NodeFile("/x", url=source.as_uri(), sha256="0" * 64))


def test_braces() -> None:
    assert fill("{{{a}}}", {"a": "b"}) == "{b}"
    with pytest.raises(TemplateError):
        fill("{a", {"a": "b"})


def test_an_unknown_option_is_an_error() -> None:
    from infra.options import parse

    with pytest.raises(OptionError, match="has no option 'sytem'"):
        parse(AnyOptions, {"sytem": "x"}, "server", "the topology 'any'")


def test_nothing_is_prepared_for_servers_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set-up of a fresh checkout ended at this topology, which needs a file of the user's."""
    monkeypatch.setattr("infra.prepare.build", lambda: None)
    assert list(prepare_servers(["any"])) == []
