# SPDX-License-Identifier: Apache-2.0
"""Volumes on real nodes: what a failure of power takes and leaves, what writes come to on a disk in trouble, and that
nothing stays behind, however the control program ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from uuid import uuid4

import pytest

from infra.machines.api import Backend, Cluster, ClusterSpec, InfraError, Node, ProcessId
from infra.machines.backends.docker import DockerBackend
from infra.machines.backends.local import LocalBackend
from infra.machines.backends.owned import images_folder
from infra.machines.primitives import volume
from infra.machines.primitives.volume import Volume

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

DATA = "/var/lib/harness/data"
OLD = f"{DATA}/broker/store/old"
FULL = f"{DATA}/broker/store/full"
PIDFILE = "/var/lib/harness/writer.pid"
# Writes without end, and holds its file open, as a server does.
_WRITER = f"exec 5>>{DATA}/file; while :; do date >&5; sleep 0.01; done"


@pytest.fixture(scope="module", params=[DockerBackend(), LocalBackend()], ids=lambda backend: backend.name)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = request.param.provision(ClusterSpec(run_id=f"test/{uuid4().hex[:8]}", nodes=3))
    try:
        yield made
    finally:
        made.destroy()
        assert not loops_of(request.param.name, made.run_id)
        assert not images_folder(request.param.name, made.run_id).exists()


@pytest.fixture
def volumes(cluster: Cluster) -> list[Volume]:
    """One for each node, with a folder that was there before; made once, found again by the next test."""
    found = []
    for node in cluster.nodes:
        found.append(Volume(node.name, cluster.host(node.name), DATA))
        if not volume.attached(found[-1]):
            make = f"mkdir -p {DATA}/broker/store; seq 300000 >{OLD}; truncate -s 16M {OLD}; fallocate -l 8M {FULL}"
            node.run(["sh", "-c", make])
        volume.attach(found[-1], 128)
    return found


def loops_of(backend: str, run_id: str) -> list[str]:
    """Loop devices whose image is one of the run's."""
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "-O", "BACK-FILE"], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if line.startswith(str(images_folder(backend, run_id)))]


def writer(node: Node) -> ProcessId:
    argv = ["sh", "-c", _WRITER]
    return node.spawn(argv, env={}, log="/var/lib/harness/log/writer.log", pidfile=PIDFILE)


def established(node: Node, peer: Node) -> list[str]:
    """The connections that a peer made to the node's port 22, as the node sees them: state 01 in proc(5)'s net/tcp."""
    address = bytes(reversed(IPv4Address(peer.address).packed)).hex().upper()
    rows = [line.split() for line in node.read("/proc/net/tcp").decode().splitlines()[1:]]
    return [row[2] for row in rows if row[1].endswith(":0016") and row[2].startswith(address) and row[3] == "01"]


def lines(node: Node) -> int:
    return int(node.run(["sh", "-c", f"wc -l <{DATA}/file 2>/dev/null || echo 0"]).text)


def test_a_volume_holds_what_the_folder_held(cluster: Cluster, volumes: list[Volume]) -> None:
    """And it is on the disk, as it was before: a failure of power right away takes nothing of it."""
    volume.power_cycle({each: [] for each in volumes})
    for node in cluster.nodes:
        assert node.run(["stat", "-c", "%s", OLD]).text == f"{16 << 20}\n"
        assert node.run(["sh", "-c", f"tr -d '\\0' <{OLD} | tail -n 1"]).text == "300000\n"
        node.run(["test", "-d", f"{DATA}/broker/store"])
        node.run(["mountpoint", "-q", DATA])
    assert volume.why_not(volumes[0].host) is None
    assert not volume.attach(volumes[0], 128), "it is there already"


def test_a_file_keeps_the_space_that_it_had(cluster: Cluster, volumes: list[Volume]) -> None:
    """And a hole stays one. Mend 17 gives a new file all of its space. On a kept cluster the copy had none, and a full
    disk took 19,598 acknowledged messages.
    """
    for node in cluster.nodes:
        size, blocks = map(int, node.run(["stat", "-c", "%s %b", FULL]).text.split())
        assert size == 8 << 20 <= 512 * blocks
        size, blocks = map(int, node.run(["stat", "-c", "%s %b", OLD]).text.split())
        assert size == 16 << 20 > 4 * 512 * blocks


def test_a_failure_of_power_takes_what_was_not_synced(cluster: Cluster, volumes: list[Volume]) -> None:
    """On all nodes hit, and on no other; the processes have ended; what was synced is there."""
    for node in cluster.nodes:
        node.run(["sh", "-c", f"rm -f {DATA}/file; echo kept >{DATA}/kept; sync {DATA}/kept {DATA}"])
    processes = [writer(node) for node in cluster.nodes]
    time.sleep(0.5)
    hit = dict(zip(volumes[:2], ([process] for process in processes[:2]), strict=True))
    written = [lines(node) for node in cluster.nodes]
    found = volume.power_cycle(hit, ["kept"])
    assert (found.killed, found.lost, found.kept) == (2, ["n1", "n2"], ["n1", "n2"])
    assert min(written) > 5
    for node, process in zip(cluster.nodes[:2], processes, strict=False):
        assert node.process(PIDFILE) != process
        assert lines(node) == 0
        assert node.read(f"{DATA}/kept") == b"kept\n"
    assert cluster.nodes[2].process(PIDFILE) == processes[2]
    assert lines(cluster.nodes[2]) >= written[2]
    cluster.nodes[2].run(["kill", "-9", str(processes[2].pid)])


def test_a_name_that_was_synced_has_a_size_without_its_content_where_the_journal_does_not_order(
    cluster: Cluster, volumes: list[Volume]
) -> None:
    """Its content was never synced. The mode is changed on a file system that is mounted, and changed back.

    The block has what it held before: NUL bytes, or the content of a file that was deleted or rewritten.
    """
    node, mine = cluster.nodes[0], volumes[0]
    before = volume.data_mode(mine)
    modes: list[volume.Data] = ["writeback", "ordered"]
    left = {}
    for mode in modes:
        volume.attach(mine, 128, mode)
        assert volume.data_mode(mine) == mode
        assert node.run(["stat", "-c", "%s", OLD]).text == f"{16 << 20}\n"
        node.run(["sh", "-c", f"rm -f {DATA}/new; sync {DATA}; echo content >{DATA}/new; sync {DATA}"])
        assert volume.power_cycle({mine: []}).data == {node.name: mode}
        left[mode] = node.read(f"{DATA}/new")
    assert before == "ordered"
    assert left["ordered"] == b""
    assert len(left["writeback"]) == len(b"content\n")
    assert left["writeback"] != b"content\n"
    assert volume.why_not(mine.host, "writeback") is None


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_peers_are_not_told_of_a_failure_of_power(cluster: Cluster, volumes: list[Volume], power: bool) -> None:
    """The connection of a process without power stays established on the other side; that of a killed one ends."""
    first, second = cluster.nodes[:2]
    talk = f"exec 5<>/dev/tcp/{second.address}/22; read -r banner <&5; exec sleep 60"
    before = established(second, first)
    process = first.spawn(["bash", "-c", talk], env={}, log="/var/lib/harness/log/talk.log", pidfile=PIDFILE)
    time.sleep(1)
    (made,) = set(established(second, first)) - set(before)
    if power:
        found = volume.power_cycle({volumes[0]: [process]})
        assert (found.muted, found.not_muted) == (1, 0)
    else:
        first.run(["kill", "-9", str(process.pid)])
    time.sleep(1)
    assert (made in established(second, first)) == power


def test_files_that_must_not_be_forgotten_are_compared(cluster: Cluster, volumes: list[Volume]) -> None:
    """A term that was renamed into its place without a sync is gone; one that was synced is not reported."""
    first, second = cluster.nodes[:2]
    for node in (first, second):
        node.run(["sh", "-c", f"echo 1 >{DATA}/term; sync {DATA}/term {DATA}"])
    first.run(["sh", "-c", f"echo 2 >{DATA}/new; mv {DATA}/new {DATA}/term"])
    found = volume.power_cycle({volumes[0]: [], volumes[1]: []}, ["term"])
    assert list(found.changed) == ["n1"]
    change = found.changed["n1"][0]
    assert (change["file"], change["before"]) == ("term", "2\n")
    assert change["after"] in ("1\n", "", None)


@pytest.mark.parametrize(
    ("inject", "undo", "write", "restarted"),
    [
        ("fill", "free", "ENOSPC", False),
        ("freeze", "thaw", "frozen", False),
        ("fail", "restore", "EROFS", True),
        ("cut", "restore", "EIO", True),
        ("fill", "restore", "ENOSPC", True),
        ("freeze", "restore", "frozen", True),
    ],
)
@pytest.mark.parametrize("power", [False, True], ids=["", "power"])
def test_trouble_is_seen_by_a_write_and_ends(
    cluster: Cluster, volumes: list[Volume], inject: str, undo: str, write: str, restarted: bool, power: bool
) -> None:
    """A process that writes there ends if the file system had to be mounted again, and only then."""
    node, hit = cluster.nodes[0], volumes[0]
    process = writer(node)
    lease = volume.hold(hit, inject, undo, 60, left_mib=0, power=power)
    try:
        assert volume.state(hit)["write"] == write
        if inject == "fill":
            assert volume.state(hit)["free"] == 0
    finally:
        lease.heal()
    lease.heal()
    assert volume.state(hit)["write"] == "ok"
    assert (node.process(PIDFILE) is None) == restarted
    if not restarted:
        node.run(["kill", "-9", str(process.pid)])


def test_a_volume_that_is_not_there_is_told(cluster: Cluster) -> None:
    elsewhere = Volume("n1", cluster.host("n1"), "/var/lib/harness/nowhere")
    with pytest.raises(InfraError, match="n1: no file system of its own is mounted at /var/lib/harness/nowhere"):
        volume.power_cycle({elsewhere: []})


_CONTROL = """
import sys
from infra.machines.api import ClusterSpec
from infra.machines.janitor import make_backend
from infra.machines.primitives import volume
cluster = make_backend(sys.argv[1]).provision(ClusterSpec(run_id=sys.argv[2], nodes=2))
volumes = [volume.Volume(node.name, cluster.host(node.name), "/var/lib/harness/data") for node in cluster.nodes]
for each in volumes:
    volume.attach(each, 64)
print("ready", flush=True)
while True:
    volume.power_cycle({each: [] for each in volumes})
    print("cycle", flush=True)
"""


@pytest.mark.parametrize("backend", [DockerBackend(), LocalBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize(
    "after_ms", [3, 90, *(pytest.param(ms, marks=pytest.mark.nightly) for ms in range(10, 160, 15))]
)
def test_kill_9_in_the_middle_of_a_power_cycle_leaves_nothing(backend: Backend, after_ms: int) -> None:
    """The cycle that had begun is finished by its own process; the cluster is removed by the janitor."""
    run_id = f"test/{uuid4().hex[:8]}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    control = subprocess.Popen(
        [sys.executable, "-c", _CONTROL, backend.name, run_id], stdout=subprocess.PIPE, env=env, start_new_session=True
    )
    try:
        assert control.stdout is not None
        assert control.stdout.readline() == b"ready\n"
        assert control.stdout.readline() == b"cycle\n"
        time.sleep(after_ms / 1000)
    finally:
        control.kill()
        control.communicate()
    until = time.monotonic() + 60
    while [left for left in backend.leftovers() if left.run_id == run_id] or loops_of(backend.name, run_id):
        assert time.monotonic() < until, "a minute later it is still there"
        time.sleep(0.1)
    assert not images_folder(backend.name, run_id).exists()
