# SPDX-License-Identifier: Apache-2.0
"""Archives of class data on real nodes: each JVM maps its own, with mends too, and is silent where it refuses one."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from infra.machines.api import ClusterSpec, Share
from infra.machines.backends.local import LocalBackend
from infra.options import NoOptions
from infra.systems import class_data
from infra.systems.api import Launch, Server, ServerSettings
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.applications.library import Library
from infra.systems.rocketmq.applications.process import Application
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies.controller import ControllerTopology

pytestmark = pytest.mark.cluster


@contextlib.contextmanager
def started(topology: ControllerTopology | DledgerTopology, archives: Sequence[Share]) -> Iterator[Sequence[Server]]:
    """The servers of one local node, which serve."""
    shares = [*topology.shares(), *archives]
    cluster = LocalBackend().provision(ClusterSpec(f"class-data-{time.time_ns():x}", 1, shares))
    try:
        topology.attach(cluster)
        topology.start_all()
        yield topology.servers(cluster.nodes[0])
    finally:
        cluster.destroy()


def archives_of(topology: ControllerTopology | DledgerTopology) -> list[Share]:
    return class_data.shares(LocalBackend(), NoOptions(), topology, print)


def mapped(server: Server) -> set[str]:
    """The archives that a server's JVM has mapped, by the kernel's list; the JVM's own is not among them."""
    process = server.process()
    assert process is not None
    lines = server.node.run(["cat", f"/proc/{process.pid}/maps"]).text.splitlines()
    return {line.split()[-1] for line in lines if class_data.ON_NODE in line}


@pytest.mark.parametrize(
    "topology",
    [
        DledgerTopology(ServerSettings()),
        ControllerTopology(ServerSettings(profile="default")),
        ControllerTopology(ServerSettings(profile="default", launch=Launch(mends=[5]))),
    ],
    ids=["dledger", "controller", "mended"],
)
def test_every_server_maps_its_archive(topology: ControllerTopology | DledgerTopology) -> None:
    with started(topology, archives_of(topology)) as servers:
        for server in servers:
            assert mapped(server) == {class_data.archive(server.launch.version, server.kind)}


def test_a_refused_archive_leaves_no_line_in_the_log(tmp_path: Path) -> None:
    """One of other jars, as after a change of the JVM."""
    topology = DledgerTopology(ServerSettings())
    (of_brokers,) = archives_of(ControllerTopology(ServerSettings()))
    shutil.copy(of_brokers.source / "namesrv.jsa", tmp_path / "server.jsa")
    (path,) = (share.path for share in archives_of(topology))
    with started(topology, [Share(tmp_path, path)]) as (server,):
        assert not mapped(server)
        assert "cds" not in server.node.run(["cat", server.log]).text


@pytest.mark.parametrize("library", ["remoting", "grpc-push"])
def test_a_member_maps_the_archive_of_its_program(library: Library) -> None:
    """Half the processor time of a start is for classes, and a run has a dozen starts."""
    program = JavaProgram("5.5.0", library)
    shares = [Share(artifacts.fetch("5.5.0"), artifacts.lib("5.5.0")), *JavaProgram.shares(library)]
    cluster = LocalBackend().provision(ClusterSpec(f"class-data-{time.time_ns():x}", 1, shares))
    try:
        (node,) = cluster.nodes
        program.prepare()
        program.install(node)
        (archive,) = (word.partition("=")[2] for word in program.argv if "SharedArchiveFile" in word)
        assert archive in asyncio.run(_maps(Application(node, "application", program.argv)))
    finally:
        cluster.destroy()


async def _maps(application: Application) -> str:
    """The list of the files that the process of an application has mapped."""
    await application.start(30)
    try:
        return application.node.run(["cat", f"/proc/{application.pid}/maps"]).text
    finally:
        await application.kill()
