# SPDX-License-Identifier: Apache-2.0
"""The DLedger topology on nodes that only record their commands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from noting_nodes import NotingCluster, NotingNode, noting_nodes

from infra.machines.api import InfraError, ProcessId
from infra.systems.api import Launch, Server, ServerSettings
from infra.systems.dledger import server as dledger
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.java import user_lib
from infra.systems.maven import read_lock


def attached(topology: DledgerTopology, count: int = 3) -> list[NotingNode]:
    nodes = noting_nodes(count)
    topology.attach(NotingCluster(nodes))  # type: ignore[arg-type]
    return nodes


def settings_of(node: NotingNode) -> Mapping[str, str]:
    (data,) = node.written.values()
    return dict(line.split("=", 1) for line in data.decode().splitlines())


def only(topology: DledgerTopology, node: NotingNode) -> Server:
    (server,) = topology.servers(node)  # type: ignore[arg-type]
    return server


def test_every_node_gets_its_settings() -> None:
    nodes = attached(DledgerTopology(ServerSettings(settings={"dledger.heartBeatTimeIntervalMs": "300"})))
    first, second = settings_of(nodes[0]), settings_of(nodes[1])
    assert first["heartBeatTimeIntervalMs"] == "300"
    assert first["snapshotThreshold"] == "200"
    assert (first["selfId"], second["selfId"]) == ("n1", "n2")
    assert first["peers"].replace("\\u003a", ":") == "n1-198.18.0.1:20911;n2-198.18.0.2:20911;n3-198.18.0.3:20911"
    assert first["storeBaseDir"] == "/var/lib/harness/data"


def test_members_keep_their_addresses() -> None:
    topology = DledgerTopology(ServerSettings())
    (node, *_) = attached(topology)
    with pytest.raises(InfraError, match="n1: the members of the group have one another's addresses"):
        topology.readdress(node)  # type: ignore[arg-type]


def test_a_value_may_hold_anything_in_one_line() -> None:
    (node,) = attached(DledgerTopology(ServerSettings(settings={"dledger.deleteWhen": "\\ é=:#😀"})), count=1)
    assert settings_of(node)["deleteWhen"] == "\\u005c\\u0020\\u00e9\\u003d\\u003a\\u0023\\ud83d\\ude00"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"broker.x": "1"}, "'broker.x': settings of this topology are called dledger.NAME"),
        ({"heartBeatTimeIntervalMs": "1"}, "are called dledger.NAME"),
        ({"dledger.": "1"}, "are called dledger.NAME"),
        ({"dledger.peers": "n1-h:1"}, "'dledger.peers' is the harness's own to decide"),
        ({"dledger.deleteWhen": "1\npeers=x"}, "more than one line"),
    ],
)
def test_settings_that_cannot_be_meant(settings: Mapping[str, str], said: str) -> None:
    with pytest.raises(InfraError, match=said):
        DledgerTopology(ServerSettings(settings=settings))


def test_other_versions_and_empty_jar_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"0\.3\.2 is not pinned here, only 0\.4\.0"):
        DledgerTopology(ServerSettings(launch=Launch("0.3.2")))
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InfraError, match="no folder with jars"):
            DledgerTopology(ServerSettings(launch=Launch(jars=folder)))


def test_the_start_command(tmp_path: Path) -> None:
    """Locked, the user's jars first, the user's options after ours, under the wrapper and its environment."""
    (tmp_path / "mine.jar").touch()
    launch = Launch(
        jars=tmp_path,
        env={"LD_PRELOAD": "/lib/f.so"},
        wrapper=["faketime", "-f", "+1s"],
        jvm_options=["-Xmx300m", "-javaagent:/x y.jar"],
    )
    topology = DledgerTopology(ServerSettings(launch=launch))
    (node,) = attached(topology, count=1)
    server = only(topology, node)
    argv = list(server.start_command())
    assert argv[:3] == ["flock", "-o", "/var/lib/harness/server.lock"]
    assert "LD_PRELOAD=/lib/f.so" in argv[: argv.index("faketime")]
    java = argv[argv.index("faketime") :]
    assert java[:4] == ["faketime", "-f", "+1s", "java"]
    locked = [f"/opt/harness/lib/{jar}" for jar in sorted(read_lock(dledger.LOCK))]
    ours = ["/opt/harness/server/register-server.jar", *locked]
    assert java[java.index("-cp") + 1].split(":") == [f"{user_lib(tmp_path)}/*", *ours]
    assert java.index("-Xmx160m") < java.index("-Xmx300m") < java.index("-cp")
    assert "-javaagent:/x y.jar" in java
    server.start()
    assert node.ran[-1] == argv


@pytest.mark.parametrize(("dies_on", "signals"), [("TERM", ["TERM"]), ("KILL", ["TERM", "KILL"])])
def test_stop_asks_first_and_kills_then(dies_on: str, signals: list[str]) -> None:
    topology = DledgerTopology(ServerSettings())
    (node,) = attached(topology, count=1)
    node.server, node.dies_on = ProcessId(7, 99), dies_on
    only(topology, node).stop(timeout_s=0.4)
    assert [argv[2] for argv in node.ran if argv[0] == "kill"] == signals
    assert node.server is None


def test_a_server_that_outlives_sigkill_is_told() -> None:
    topology = DledgerTopology(ServerSettings())
    (node,) = attached(topology, count=1)
    node.server, node.dies_on = ProcessId(7, 99), "never"
    with pytest.raises(InfraError, match="n1: its server is still running"):
        only(topology, node).stop(timeout_s=0.4)


def test_a_server_that_ends_at_once_is_told_with_its_log() -> None:
    topology = DledgerTopology(ServerSettings())
    (node,) = attached(topology, count=1)
    node.address = "127.0.0.1"
    with pytest.raises(InfraError, match=r"n1: the server has ended; its log: first \| .*port taken"):
        topology.start_all(timeout_s=5)


def test_a_node_that_does_not_answer_is_silent() -> None:
    topology = DledgerTopology(ServerSettings())
    (node,) = attached(topology, count=1)
    node.address = "127.0.0.1"
    status = asyncio.run(topology.observe(node, 1.0))  # type: ignore[arg-type]
    assert (status.role, status.term, status.end) == ("silent", None, None)
