# SPDX-License-Identifier: Apache-2.0
"""Slow disks on real nodes: what is slow, for whom, and that no limit outlives the strike or the control program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from infra.machines.api import Backend, Cluster, ClusterSpec, Node
from infra.machines.backends.docker import DockerBackend
from infra.machines.backends.local import LocalBackend
from infra.machines.primitives import volume
from infra.machines.primitives.volume import Volume
from infra.machines.scripts.throttle import V1, Controller

pytestmark = pytest.mark.cluster  # alone: it compares times of the disk

DATA = "/var/lib/harness/data"
BACKENDS = [DockerBackend(), LocalBackend()]
# Synced appends; synced overwrites, as of a file that was allocated ahead; written, and left to the kernel.
_WORK = {
    "fsync": """
file = os.open("{data}/appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(10):
    os.write(file, bytes(1000))
    os.fsync(file)
""",
    "fdatasync": """
file = os.open("{data}/overwritten", os.O_RDWR | os.O_CREAT)
if os.fstat(file).st_size == 0:
    os.write(file, bytes(1 << 20))
    os.fsync(file)
for at in range(0, 10 * 8192, 8192):
    os.pwrite(file, b"x", at)
    os.fdatasync(file)
""",
    "write-back": """
file = os.open("{data}/buffered", os.O_WRONLY | os.O_CREAT)
for at in range(0, 20 * 81920, 81920):
    os.pwrite(file, b"x", at)
os.sync()
""",
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(backend, id=backend.name, marks=pytest.mark.nightly if backend.name == "docker" else ())
        for backend in BACKENDS
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = request.param.provision(ClusterSpec(run_id=f"test/{uuid4().hex[:8]}", nodes=2))
    try:
        yield made
    finally:
        made.destroy()
        assert not limits()


@pytest.fixture
def volumes(cluster: Cluster) -> list[Volume]:
    found = [Volume(node.name, cluster.host(node.name), DATA) for node in cluster.nodes]
    for each in found:
        volume.attach(each, 128)
    return found


def limits() -> Mapping[str, str]:
    """File -> its lines, of all limits of loop devices, in all control groups. No other test runs beside these."""
    controller = Controller()
    names = V1.values() if controller.version == 1 else ["io.max"]
    files = [Path(controller.mount + group) / name for group in controller.groups() for name in names]
    texts = {str(file): file.read_text() for file in files if file.exists()}
    return {file: text for file, text in texts.items() if any(line.startswith("7:") for line in text.splitlines())}


def groups(node: Node) -> set[str]:
    """The control groups of block IO of the node's processes."""
    script = "cat /proc/[0-9]*/cgroup | grep -E 'blkio|^0:' | sort -u"
    return set(node.run(["sh", "-c", script]).text.splitlines())


def seconds(node: Node, work: str) -> float:
    script = (
        f"import os, time\nbegan = time.monotonic()\n{_WORK[work].format(data=DATA)}\nprint(time.monotonic() - began)"
    )
    return float(node.run(["python3", "-c", script], timeout_s=60).text)


def slow(hit: Volume, ttl_s: float = 60, **wanted: int) -> volume.Lease:
    device = volume.speeds(hit, wanted).device
    return volume.slow_down(hit, device, wanted, ttl_s)


@pytest.mark.parametrize("work", list(_WORK))
def test_who_writes_waits_and_only_on_this_node(cluster: Cluster, volumes: list[Volume], work: str) -> None:
    """20 writes a second: each of ten syncs is at least one, so is each block that the kernel writes back."""
    first, second = cluster.nodes
    before = groups(first)
    seconds(first, work)
    lease = slow(volumes[0], write_iops=20)
    try:
        assert volume.why_not_slow(volumes[0]) is None, "a trial disturbs no strike"
        held = seconds(first, work)
        assert held > 0.4
        assert seconds(second, work) < held / 2
    finally:
        lease.heal()
    assert seconds(first, work) < held / 2
    assert not limits()
    assert groups(first) == before


def test_a_server_that_is_started_meanwhile_is_slow_too(cluster: Cluster, volumes: list[Volume]) -> None:
    node, before = cluster.nodes[0], groups(cluster.nodes[0])
    lease = slow(volumes[0], write_iops=20)
    started = node.spawn(
        ["sh", "-c", f"dd if=/dev/zero of={DATA}/dd bs=4k count=20 oflag=direct; sleep 100"],
        env={},
        log="/var/lib/harness/dd.log",
        pidfile="/var/lib/harness/dd.pid",
    )
    found = volume.speeds(volumes[0], {"write_iops": 20}).measured["write_iops"]
    assert found.seconds > 1.2, "20 writes that share their budget with the other's"
    lease.heal()
    assert groups(node) == before, "it was born in the other group, and has come back as well"
    node.run(["kill", str(started.pid)])


def test_limits_end_with_their_time_to_live(volumes: list[Volume]) -> None:
    slow(volumes[0], ttl_s=0.5, read_rate=1 << 20)
    until = time.monotonic() + 30
    while limits():
        assert time.monotonic() < until
        time.sleep(0.05)


_CONTROL = """
import sys, time
from infra.machines.api import ClusterSpec
from infra.machines.janitor import make_backend
from infra.machines.primitives import volume
cluster = make_backend(sys.argv[1]).provision(ClusterSpec(run_id=sys.argv[2], nodes=1))
hit = volume.Volume("n1", cluster.host("n1"), "/var/lib/harness/data")
volume.attach(hit, 64)
device = volume.speeds(hit, {"write_iops": 20}).device
lease = volume.slow_down(hit, device, {"write_iops": 20}, 600)
print(device, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_kill_9_of_the_control_program_leaves_no_limit(backend: Backend) -> None:
    """The host's guard and the end of the cluster meet: whichever comes first, the device has no limits in the end."""
    run_id = f"test/{uuid4().hex[:8]}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    control = subprocess.Popen(
        [sys.executable, "-c", _CONTROL, backend.name, run_id], stdout=subprocess.PIPE, env=env, start_new_session=True
    )
    try:
        assert control.stdout is not None
        control.stdout.readline()
        assert limits()
    finally:
        control.kill()
        control.communicate()
    until = time.monotonic() + 60
    while limits() or [left for left in backend.leftovers() if left.run_id == run_id]:
        assert time.monotonic() < until, "a minute later it is still there"
        time.sleep(0.1)
