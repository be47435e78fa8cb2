# SPDX-License-Identifier: Apache-2.0
"""Promises of docker and local beyond the contract: they touch no other user's things, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path
from uuid import uuid4

import docker
import pytest

from infra.machines.api import Backend, Cluster, ClusterSpec, InfraError, Leftover, Share
from infra.machines.backends.containers import RUN
from infra.machines.backends.docker import DockerBackend, DockerOptions
from infra.machines.backends.docker_image import ensure_image
from infra.machines.backends.engine_claim import EngineClaim
from infra.machines.backends.local import LocalBackend
from infra.machines.backends.owned import hosts_file, node_names
from infra.machines.engine import note_use
from infra.machines.janitor import make_backend
from infra.machines.network import POOL
from infra.machines.ownership import slug

pytestmark = pytest.mark.nodes
cluster = pytest.mark.cluster
both = pytest.mark.parametrize("backend", [DockerBackend(), LocalBackend()], ids=lambda b: b.name)


def spec(nodes: int = 2, **more: object) -> ClusterSpec:
    return ClusterSpec(run_id=f"test/{uuid4().hex[:8]}", nodes=nodes, **more)  # type: ignore[arg-type]


def left_of(backend: Backend, run_id: str) -> list[Leftover]:
    return [left for left in backend.leftovers() if left.run_id == run_id]


def test_names_are_readable_and_unique() -> None:
    assert slug("register-none/2026-11-21T06-12-44").startswith("register-none-2026-11-21T06-12-44-")
    assert slug("a/b") != slug("a-b")
    assert slug("///").strip("-").isalnum()
    assert len(slug("x" * 500)) < 70


@pytest.mark.parametrize("nodes", [0, -1, 201])
def test_a_number_of_nodes_that_cannot_be(nodes: int) -> None:
    with pytest.raises(InfraError, match=rf"{nodes} nodes: a cluster has 1 to 200"):
        node_names(ClusterSpec("run", nodes=nodes))


def test_a_share_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="does not exist"):
        node_names(ClusterSpec("run", shares=[Share(tmp_path / "none", "/opt/x")]))
    for place in ("opt/x", "/opt/../etc"):
        with pytest.raises(InfraError, match="needs an absolute path"):
            node_names(ClusterSpec("run", shares=[Share(tmp_path, place)]))


def test_hosts_file_knows_every_node() -> None:
    assert hosts_file({"n1": "198.18.0.11", "n2": "198.18.0.12"}).splitlines() == [
        b"127.0.0.1 localhost",
        b"198.18.0.11 n1",
        b"198.18.0.12 n2",
    ]


def test_every_backend_that_has_a_janitor_can_sweep() -> None:
    assert [type(make_backend(name)) for name in ("docker", "local")] == [DockerBackend, LocalBackend]


def test_a_cache_folder_overlay_cannot_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "a,b"))
    with pytest.raises(InfraError, match="set HARNESS_CACHE"):
        LocalBackend().leftovers()


def test_an_engine_that_is_down_may_hold_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an engine that was never used certainly has nothing of the harness."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    backend = DockerBackend()
    assert backend.leftovers() == []
    note_use()
    with pytest.raises(InfraError, match=r"what it holds cannot be seen: .*/none\.sock"):
        backend.leftovers()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/other.sock")
    assert backend.leftovers() == []
    assert not backend.probe().ok
    with pytest.raises(InfraError, match="no Docker engine answers"):
        backend.provision(ClusterSpec("run"))


@cluster
@both
def test_nodes_are_confined(backend: Backend, tmp_path: Path) -> None:
    """Another node yes; the world, the clock, mounts, the shared folder: no. And it runs what servers need."""
    (tmp_path / "file").write_text("shared\n")
    made = backend.provision(spec(shares=[Share(tmp_path, "/opt/shared")]))
    try:
        one, two = made.nodes
        assert IPv4Address(one.address) in POOL
        assert one.run(["hostname"]).text == "n1\n"
        one.run(["ping", "-c", "1", "-W", "5", "n2"])
        assert one.run(["cat", "/opt/shared/file"]).text == "shared\n"
        for tool in ("java", "iptables", "nft", "python3", "fincore", "ss", "tc", "setsid", "timeout"):
            one.run(["which", tool])
        one.run(["nft", "add", "table", "inet", "probe"])
        assert "probe" not in two.run(["nft", "list", "tables"]).text
        for forbidden in (
            ["touch", "/opt/shared/mine"],
            ["mount", "-t", "tmpfs", "none", "/mnt"],
            ["date", "-s", "2001-01-01"],
            ["sh", "-c", "echo 1 >/proc/sys/vm/drop_caches"],
            ["ping", "-c", "1", "-W", "1", "192.0.2.123"],
            ["getent", "hosts", "name.invalid"],
        ):
            assert one.run(forbidden, check=False).code != 0, forbidden
    finally:
        made.destroy()
    assert left_of(backend, made.run_id) == []


@cluster
@both
def test_clusters_made_at_once_do_not_meet(backend: Backend) -> None:
    with ThreadPoolExecutor(2) as pool:
        made: list[Cluster] = list(pool.map(backend.provision, [spec(), spec()]))
    try:
        assert made[0].facts["network"] != made[1].facts["network"]
        made[0].destroy()
        assert [node.run(["hostname"]).text for node in made[1].nodes] == ["n1\n", "n2\n"]
        assert left_of(backend, made[0].run_id) == []
    finally:
        for one in made:
            one.destroy()


@cluster
@both
def test_a_living_owner_is_respected(backend: Backend) -> None:
    made = backend.provision(spec(1))
    try:
        assert [left.alive for left in left_of(backend, made.run_id)] == [True]
        with pytest.raises(InfraError, match=rf"is still running.*process {os.getpid()}"):
            backend.clean(made.run_id)
        with pytest.raises(InfraError, match="already"):
            backend.provision(ClusterSpec(made.run_id, nodes=1))
        assert made.nodes[0].run(["true"]).code == 0
    finally:
        made.destroy()
        made.destroy()
    assert left_of(backend, made.run_id) == []
    backend.clean(made.run_id)


_ELSEWHERE = """
import sys
from infra.machines.api import InfraError
from infra.machines.janitor import make_backend
backend = make_backend(sys.argv[1])
print([(left.alive, left.kept) for left in backend.leftovers() if left.run_id == sys.argv[2]])
try:
    backend.clean(sys.argv[2])
except InfraError as problem:
    print(problem)
"""


def seen_elsewhere(backend: Backend, run_id: str, cache: Path | None = None) -> list[str]:
    """Lines of another PID namespace: the runs that it sees, and the error of its `clean`. `cache`: another folder."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _ELSEWHERE, backend.name, run_id]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if cache is not None:
        env["HARNESS_CACHE"] = str(cache)
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True, timeout=120)
    return done.stdout.splitlines()


@cluster
@both
def test_a_living_owner_is_respected_by_other_pid_namespaces(backend: Backend, tmp_path: Path) -> None:
    made = backend.provision(spec(1))
    try:
        alive, refused = seen_elsewhere(backend, made.run_id)
        assert alive == "[(True, False)]"
        assert "is still running" in refused
        if backend.name == "docker":  # local nodes are seen by those alone who share the cache folder
            assert seen_elsewhere(backend, made.run_id, tmp_path) == [alive, refused]
        assert made.nodes[0].run(["true"]).code == 0
    finally:
        made.destroy()
    assert left_of(backend, made.run_id) == []


@cluster
def test_a_claim_outlives_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to the engine breaks for a moment: the claim is taken again, and released like any other."""
    monkeypatch.setattr("infra.machines.backends.engine_claim.RENEW_S", 0.2)
    client = docker.from_env()
    claim = EngineClaim.take(client, ensure_image(client, None, lambda _: None), "harness-test-break", {RUN: "break"})
    try:
        name = "harness-test-break-claim"
        claim._stdin._sock.shutdown(socket.SHUT_RDWR)
        first = client.containers.get(name).attrs["State"]["StartedAt"]
        until = time.monotonic() + 30
        while (state := client.containers.get(name).attrs["State"])["StartedAt"] == first or not state["Running"]:
            assert time.monotonic() < until, state
            time.sleep(0.05)
    finally:
        claim.release()
    assert client.containers.list(all=True, filters={"label": f"{RUN}=break"}) == []


@cluster
@both
def test_a_kept_cluster_is_used_by_one_at_a_time(backend: Backend, tmp_path: Path) -> None:
    wanted = spec(1)
    backend.provision(wanted).keep("a note")
    try:
        assert [(left.alive, left.kept) for left in left_of(backend, wanted.run_id)] == [(False, True)]
        for _ in range(2):
            used = backend.reuse(wanted)
            assert [(left.alive, left.kept) for left in left_of(backend, wanted.run_id)] == [(True, True)]
            with pytest.raises(InfraError, match="in use by"):
                backend.reuse(wanted)
            seen, refused = seen_elsewhere(backend, wanted.run_id, tmp_path if backend.name == "docker" else None)
            assert seen == "[(True, True)]"
            assert "is still running" in refused
            assert used.nodes[0].run(["hostname"]).text == "n1\n"
            used.destroy()
        if backend.name == "local":  # its nodes hang on a process that nobody there can end
            seen, refused = seen_elsewhere(backend, wanted.run_id)
            assert seen == "[(False, True)]"
            assert "clean it there" in refused
    finally:
        backend.clean(wanted.run_id)
    assert left_of(backend, wanted.run_id) == []
    with pytest.raises(InfraError, match="no kept cluster"):
        backend.reuse(wanted)


_CONTROL = """
import os, signal, sys
from infra.machines.api import ClusterSpec
from infra.machines.janitor import make_backend
made = make_backend(sys.argv[1]).provision(ClusterSpec(sys.argv[2], nodes=2))
made.nodes[0].spawn(["sleep", "1000"], env={}, log="/root/log", pidfile="/root/pid")
made.nodes[0].run(["pkill", "-STOP", "sleep"])
made.nodes[1].run(["iptables", "-I", "INPUT", "-j", "DROP", "-s", made.nodes[0].address])
if os.fork() == 0:
    signal.pause()
print(made.nodes[0].address, flush=True)
input()
"""


@cluster
@both
@pytest.mark.parametrize("janitor", [True, False], ids=["janitor", "no-janitor"])
def test_kill_9_in_mid_fault_leaves_nothing(backend: Backend, janitor: bool) -> None:
    """Also while a forked child still holds all of the control program's pipes. Without a janitor, `clean` does it."""
    run_id = f"test/{uuid4().hex[:8]}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    control = subprocess.Popen(
        [sys.executable, "-c", _CONTROL, backend.name, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    children = Path(f"/proc/{control.pid}/task/{control.pid}/children")
    try:
        assert control.stdout is not None
        assert control.stdout.readline().startswith(b"198.")
        if not janitor:
            for child in map(int, children.read_text().split()):
                if b"\0-m\0infra.machines.janitor\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, 9)
        assert len(left_of(backend, run_id)) == 1
        control.kill()
        control.wait()
        if not janitor:
            until = time.monotonic() + 30
            while [left.alive for left in left_of(backend, run_id)] != [False]:
                assert time.monotonic() < until, "its owner is dead, and it is still taken for alive"
                time.sleep(0.05)
            backend.clean(run_id)
        until = time.monotonic() + 60
        while left_of(backend, run_id):
            assert time.monotonic() < until, "a minute later it is still there"
            time.sleep(0.05)
    finally:
        os.killpg(control.pid, 9)  # the forked child
        control.kill()
        control.communicate()


@cluster
def test_a_node_that_cannot_come_up_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The local backend with an image that is none."""
    monkeypatch.setattr("infra.machines.backends.local.ensure_rootfs", lambda say: tmp_path)
    backend, wanted = LocalBackend(), spec(1)
    with pytest.raises(InfraError, match="n1 did not come up: mount: "):
        backend.provision(wanted)
    assert left_of(backend, wanted.run_id) == []


@cluster
def test_a_base_image_that_cannot_be_pulled() -> None:
    with pytest.raises(InfraError, match=r"cannot pull --base-image name\.invalid/none:1: "):
        DockerBackend().provision(spec(1, options=DockerOptions("name.invalid/none:1")))


@cluster
def test_the_image_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = DockerBackend()
    backend.provision(spec(1)).destroy()
    monkeypatch.setattr(
        "infra.machines.backends.docker_image.ensure_tar", lambda say: pytest.fail("asked for the tar again")
    )
    backend.provision(spec(1)).destroy()
