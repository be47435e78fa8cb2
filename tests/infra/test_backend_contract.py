# SPDX-License-Identifier: Apache-2.0
"""The promises of every backend (`infra.machines.api`): one suite over docker, local and ssh, with real nodes.

A backend that this machine cannot offer fails with its probe's reason: these tests are for machines that can.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import pytest
from loopback_sshd import Sshd

from infra.machines.api import Backend, Cluster, ClusterSpec, CommandFailed, InfraError, Node, NodeUnreachable, Share
from infra.machines.backends.ssh import PROGRAMS, SshBackend, SshOptions
from infra.machines.primitives.network import drop_packets, dropped, own_tables, send_probe
from infra.machines.primitives.process import kill_process, process_state, stop_process

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

BACKENDS = ("local", "docker", "ssh")
NODES = 3
HOME = "/var/lib/harness"
LIB = "/opt/harness/lib"


@dataclass
class Ground:
    """A backend with what its clusters need on this machine."""

    backend: Backend
    hosts: tuple[str, ...] = ()
    spare_hosts: tuple[str, ...] = ()
    """For a second cluster beside the one most tests share: a host serves one run at a time."""
    ssh_key: Path | None = None

    def spec(
        self, *, spare: bool = False, shares: tuple[Share, ...] = (), control_log: Path | None = None
    ) -> ClusterSpec:
        return ClusterSpec(
            run_id=f"contract-{uuid4().hex[:10]}",
            nodes=NODES,
            shares=shares,
            control_log=control_log,
            options=SshOptions(
                self.spare_hosts if spare else self.hosts,
                str(self.ssh_key) if self.ssh_key else None,
                disposable=True,
            )
            if self.hosts
            else None,
        )

    def left(self, run_id: str) -> list[str]:
        return [item.what for item in self.backend.leftovers() if item.run_id == run_id]


@pytest.fixture(scope="module", params=BACKENDS)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    name: str = request.param
    with ExitStack() as stack:
        if name == "ssh":
            yield _ssh_ground(stack, tmp_path_factory.mktemp("ssh"))
            return
        module = import_module(f"infra.machines.backends.{name}")
        backend: Backend = getattr(module, f"{name.capitalize()}Backend")()
        can = backend.probe()
        assert can.ok, f"{name}: {can.reason}; {can.remedy}"
        yield Ground(backend)


def _ssh_ground(stack: ExitStack, folder: Path) -> Ground:
    """Several sshd as several machines: own addresses, and own file systems where a host keeps what is ours."""
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("HOME", str(folder))
    patch.setenv("HARNESS_CACHE", str(folder / "cache"))
    client = None
    hosts, known = [], ""
    for i in range(1, 2 * NODES + 1):
        sshd = Sshd(folder / f"host{i}", address=f"127.0.0.{i}", private_folders=("/opt", "/var/lib"), client=client)
        stack.enter_context(sshd)
        client = sshd.client
        hosts.append(sshd.spec)
        known += sshd.known_hosts_line
    (folder / ".ssh").mkdir()
    (folder / ".ssh" / "known_hosts").write_text(known)
    # The hosts hide this machine's /opt and /var/lib, where Java may live; nothing here needs it.
    programs = {name: package for name, package in PROGRAMS.items() if name != "java"}
    return Ground(SshBackend(programs), tuple(hosts[:NODES]), tuple(hosts[NODES:]), folder / "host1" / "client")


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Share:
    source = tmp_path_factory.mktemp("share")
    (source / "sub").mkdir()
    (source / "a file").write_text("shared\n")
    (source / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run").chmod(0o755)
    source.chmod(0o755)
    return Share(source, LIB)


@pytest.fixture(scope="module")
def control_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "control.jsonl"


@pytest.fixture(scope="module")
def cluster(ground: Ground, share: Share, control_log: Path) -> Iterator[Cluster]:
    spec = ground.spec(shares=(share,), control_log=control_log)
    cluster = ground.backend.provision(spec)
    try:
        yield cluster
    finally:
        cluster.destroy()
    assert ground.left(spec.run_id) == []


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def until(true: Callable[[], bool]) -> None:
    """Wait for something that must happen soon; the deadline is only there so that a failing test ends."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_what_a_cluster_says_of_itself(ground: Ground, cluster: Cluster) -> None:
    assert cluster.backend == ground.backend.name == cluster.facts["backend"]
    assert [node.name for node in cluster.nodes] == ["n1", "n2", "n3"]
    assert len({node.address for node in cluster.nodes}) == NODES
    assert cluster.destructive
    ours = [item for item in ground.backend.leftovers() if item.run_id == cluster.run_id]
    assert ours
    assert all(item.alive for item in ours)


def test_a_living_run_is_not_cleaned_away(ground: Ground, cluster: Cluster) -> None:
    with pytest.raises(InfraError):
        ground.backend.clean(cluster.run_id)
    assert cluster.nodes[0].run(["echo", "here"]).text == "here\n"


def test_commands(cluster: Cluster, control_log: Path) -> None:
    for node in cluster.nodes:
        assert node.run(["printf", "%s|", "a b", "$HOME", "'"]).text == "a b|$HOME|'|"
        assert node.run(["cat"], stdin=b"x" * 3_000_000).stdout == b"x" * 3_000_000
    with pytest.raises(CommandFailed) as caught:
        cluster.nodes[0].run(["sh", "-c", "exit 7"])
    assert caught.value.result.code == 7
    noted = [json.loads(line) for line in control_log.read_text().splitlines()]
    assert {entry["node"] for entry in noted} == {"n1", "n2", "n3"}
    assert any(entry["argv"] == ["sh", "-c", "exit 7"] and entry["code"] == 7 for entry in noted)


def test_large_outputs_on_both_streams(node: Node) -> None:
    script = "head -c 2000000 /dev/zero >&2; head -c 2000000 /dev/zero"
    done = node.run(["sh", "-c", script])
    assert (len(done.stdout), len(done.stderr), done.truncated) == (2_000_000, 2_000_000, False)


def test_a_deadline_ends_the_command_there_too(node: Node) -> None:
    with pytest.raises(NodeUnreachable):
        node.run(["sleep", "297"], timeout_s=0.5)
    until(lambda: node.run(["pgrep", "-x", "-f", "sleep 297"], check=False).code == 1)


def test_files(node: Node, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    node.write(f"{HOME}/files/sub/blob", data, 0o600)
    assert node.read(f"{HOME}/files/sub/blob") == data
    assert node.run(["stat", "-c", "%a", f"{HOME}/files/sub/blob"]).text == "600\n"
    node.write(f"{HOME}/files/small", b"0123456789")
    got = node.fetch(f"{HOME}/files", tmp_path, limit=1000)
    left_out = b"\n(999000 bytes are left out here)\n"
    assert [path.read_bytes() for path in got] == [b"0123456789", data[:250] + left_out + data[-750:]]


def test_shares_are_seen_by_all(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert node.read(f"{LIB}/a file") == b"shared\n"
        assert node.run([f"{LIB}/sub/run"]).text == "ran\n"


def test_daemons(node: Node) -> None:
    pidfile, log = f"{HOME}/run/daemon.pid", f"{HOME}/log/daemon"
    first = node.spawn(["sh", "-c", 'echo "$WORD"; exec sleep 300'], env={"WORD": "a b"}, log=log, pidfile=pidfile)
    assert node.process(pidfile) == first
    until(lambda: node.read(log) == b"a b\n")
    kill_process(node, first)
    assert node.process(pidfile) is None
    second = node.spawn(["sleep", "300"], env={}, log=log, pidfile=pidfile)
    assert second != first
    assert node.process(pidfile) == second
    node.run(["kill", str(second.pid)])
    until(lambda: node.process(pidfile) is None)


def test_a_stopped_process_is_seen_and_wakes(node: Node) -> None:
    pidfile = f"{HOME}/run/stopped.pid"
    process = node.spawn(["sleep", "300"], env={}, log=f"{HOME}/log/stopped", pidfile=pidfile)
    lease = stop_process(node, process, 60)
    assert process_state(node, process) == "T"
    assert node.process(pidfile) == process, "a stopped process is not gone"
    lease.heal()
    assert process_state(node, process) in ("S", "R")
    kill_process(node, process)
    until(lambda: process_state(node, process) in ("", "Z"))


def test_leases(node: Node) -> None:
    def there() -> bool:
        return node.run(["test", "-e", f"{HOME}/fault"], check=False).code == 0

    node.run(["mkdir", "-p", HOME])
    inject, undo = [["touch", f"{HOME}/fault"]], [["rm", "-f", f"{HOME}/fault"]]
    lease = node.lease(inject, undo, ttl_s=60)
    assert there()
    lease.heal()
    assert not there()
    lease.heal()
    expiring = node.lease(inject, undo, ttl_s=0.5)
    until(lambda: not there())
    expiring.heal()
    with pytest.raises(InfraError):
        node.lease([*inject, ["false"]], undo, ttl_s=60)
    assert not there()


def test_packets_are_dropped_one_way_and_counted(ground: Ground, cluster: Cluster) -> None:
    if ground.backend.name == "ssh":  # these hosts are one network stack, and all their addresses are our own
        with pytest.raises(InfraError, match="cannot be cut off"):
            drop_packets(cluster.nodes[0], [cluster.nodes[1].address], 60)
        return
    deaf, other, third = cluster.nodes
    assert reaches(other, deaf)
    lease = drop_packets(deaf, [other.address], 60)
    second = drop_packets(deaf, [third.address], 60)
    assert not reaches(other, deaf)
    before = dropped(deaf)[other.address]
    send_probe(other, deaf.address)
    until(lambda: dropped(deaf)[other.address] == before + 1)
    assert heard_by(other, deaf), "what the deaf node sends arrives"
    lease.heal()
    assert reaches(other, deaf)
    assert list(dropped(deaf)) == [third.address], "each fault heals alone"
    second.heal()
    assert own_tables(deaf) == []


def reaches(source: Node, target: Node) -> bool:
    """True if a TCP connection to sshd's port is made within a second."""
    script = 'exec 3<>"/dev/tcp/$1/22"'
    return source.run(["timeout", "1", "bash", "-c", script, "reach", target.address], check=False).code == 0


def heard_by(listener: Node, sender: Node) -> bool:
    """True if a UDP probe arrives: its port is closed, and the kernel counts the packets for it (`NoPorts`)."""

    def count() -> int:
        names, values = (
            line.split() for line in listener.read("/proc/net/snmp").decode().splitlines() if "Udp:" in line
        )
        return int(values[names.index("NoPorts")])

    before = count()
    send_probe(sender, listener.address)
    until(lambda: count() > before)
    return True


def test_no_way_off_the_network(ground: Ground, cluster: Cluster) -> None:
    if ground.backend.name == "ssh":  # somebody's machines: their network is their own
        assert all(node.address.startswith("127.") for node in cluster.nodes)
        return
    # An address of our own pool, but of no network that is up: nothing may carry a node's packet there.
    for node in cluster.nodes:
        assert node.address.startswith(("198.18.", "198.19."))
        script = 'exec 3<>"/dev/tcp/$1/53"'
        assert node.run(["timeout", "1", "bash", "-c", script, "out", "198.19.255.254"], check=False).code != 0
        links = [
            line.split(":")[1].strip().partition("@")[0] for line in node.run(["ip", "-o", "link"]).text.splitlines()
        ]
        assert sorted(links) == ["eth0", "lo"]


def test_destroy_is_idempotent_and_leaves_nothing(ground: Ground) -> None:
    spec = ground.spec(spare=True)
    cluster = ground.backend.provision(spec)
    cluster.destroy()
    cluster.destroy()
    assert ground.left(spec.run_id) == []
    ground.backend.clean(spec.run_id)


_CONTROL = """
import sys, time
from importlib import import_module
from pathlib import Path
from infra.machines.api import ClusterSpec
from infra.machines.backends.ssh import SshOptions
from infra.machines.primitives.process import stop_process
name, run_id, nodes, key, *hosts = sys.argv[1:]
module = import_module("infra.machines.backends." + name)
if name == "ssh":
    backend = module.SshBackend({"bash": "bash"})
else:
    backend = getattr(module, name.capitalize() + "Backend")()
cluster = backend.provision(
    ClusterSpec(run_id, nodes=int(nodes), options=SshOptions(tuple(hosts), key, disposable=True) if hosts else None)
)
node = cluster.nodes[0]
process = node.spawn(["sleep", "300"], env={}, log="/var/lib/harness/log", pidfile="/var/lib/harness/d.pid")
lease = stop_process(node, process, 300)
print("held", process.pid, flush=True)
time.sleep(600)
"""


def test_kill_9_of_the_control_program_ends_the_fault_and_can_be_cleaned(ground: Ground) -> None:
    spec = ground.spec(spare=True)
    argv = [sys.executable, "-c", _CONTROL, ground.backend.name, spec.run_id, str(NODES), str(ground.ssh_key or "")]
    control = subprocess.Popen(
        [*argv, *(spec.options.hosts if spec.options else ())], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert control.stdout is not None
    held, pid = control.stdout.readline().split()
    assert held == b"held"
    control.send_signal(signal.SIGKILL)
    control.wait()
    control.stdout.close()
    if ground.backend.name == "ssh":  # the hosts live on: the fault ends by its lease, the rest waits for `clean`
        stat = Path("/proc") / pid.decode() / "stat"
        until(lambda: stat.read_text().rpartition(") ")[2][0] in "SR")
        ours = [item for item in ground.backend.leftovers() if item.run_id == spec.run_id]
        assert [item.alive for item in ours] == [False]
        ground.backend.clean(spec.run_id)
        until(lambda: not stat.exists() or stat.read_text().rpartition(") ")[2][0] == "Z")
    until(lambda: ground.left(spec.run_id) == [])
    ground.backend.clean(spec.run_id)
