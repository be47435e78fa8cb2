# SPDX-License-Identifier: Apache-2.0
"""The harness under faults of its own: engines that stop, nodes that freeze, hosts that vanish, others that clean."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import docker
import pytest
from cluster.real_runs import going, harness, left_of, nodes_of, until
from fuzz import at_once, kill_moments
from loopback_sshd import Sshd

from infra.machines.api import ClusterSpec
from infra.machines.backends.containers import RUN
from infra.machines.backends.ssh import PROGRAMS, SshBackend, SshOptions
from infra.machines.ownership import slug
from results.cache import cache_dir
from results.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

FAILURE = Verdict.HARNESS_FAILURE.exit_code
QUIET = ("--nodes", "3", "--nemesis", "none", "--time-limit", "25")
ROOT = Path(__file__).parents[2]


def test_clean_in_another_pid_namespace_spares_a_run(tmp_path: Path) -> None:
    """Two containers of a CI on one engine: what one starts, the other's `clean` leaves alone, by another cache too."""
    elsewhere = ("unshare", "--pid", "--fork", "--mount-proc")
    with going("--cluster", "docker", *QUIET, store=tmp_path / "store") as started:
        facts = started.environment()
        for env in ({}, {"HARNESS_CACHE": str(tmp_path / "cache")}):
            cleaned = harness("clean", "--kept", env=env, wrapper=elsewhere)
            assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
            assert f"{facts['run_id']} is still running, not removed" in cleaned.stdout
        ended = started.wait()
    assert ended.code == 0, ended.out + ended.err


@pytest.mark.parametrize("cluster", ["docker", "local"])
def test_a_kept_cluster_in_use_is_cleaned_by_nobody(cluster: str, tmp_path: Path) -> None:
    first = (
        "--workload",
        "log",
        "--topology",
        "master-slave",
        "--nodes",
        "3",
        "--nemesis",
        "none",
        "--time-limit",
        "5",
    )
    made = harness("run", "--cluster", cluster, *first, "--keep", "--store", tmp_path / "store")
    found = re.search(r"--reuse (\S+)", made.stdout)
    assert found is not None, made.stdout + made.stderr
    run_id = found[1]
    other = {"HARNESS_CACHE": str(tmp_path / "cache")} if cluster == "docker" else {}
    try:
        options = ("--workload", "log", "--reuse", run_id, "--nemesis", "none", "--time-limit", "15")
        with going(*options, store=tmp_path / "second") as started:
            until(lambda: any(op.type == "ok" for op in started.ops()), "clients are served")
            cleaned = harness("clean", "--kept", env=other)
            assert f"{run_id} is in use, not removed" in cleaned.stdout
            ended = started.wait()
        assert ended.code == 0, ended.out + ended.err
        assert f"{run_id} is kept" in harness("clean", env=other).stdout
    finally:
        cleaned = harness("clean", "--kept")
    assert cleaned.returncode == 0, cleaned.stdout
    assert run_id not in harness("clean", "--kept", "--dry-run").stdout


@pytest.mark.parametrize("phase", ["main", "collect"])
def test_a_node_that_is_paused_from_outside(phase: str, tmp_path: Path) -> None:
    """The run ends in bounded time with the other nodes' logs, and is not `valid`."""
    with going("--cluster", "docker", *QUIET, store=tmp_path / "store") as started:
        facts = started.environment()
        if phase == "main":
            until(lambda: any(op.type == "ok" for op in started.ops()), "clients are served")
        else:
            until(lambda: any(op.extra.get("phase") == "final" for op in started.ops()), "the final reads")
        with closing(docker.from_env()) as client:
            client.containers.get(f"harness-{slug(facts['run_id'])}-n3").pause()
        ended = started.wait(400)  # each thing that is asked of the node takes its whole deadline
    assert ended.code == FAILURE, ended.out + ended.err
    assert "could not reach every node: n3: " in ended.results()["nodes"]["reason"]
    assert "Traceback" not in ended.out + ended.err
    assert {path.parent.name for path in ended.dir.nodes.glob("*/server.log")} >= {"n1", "n2"}
    assert left_of(facts) == []


def test_control_program_and_janitor_are_killed_together(tmp_path: Path) -> None:
    for cluster in ("docker", "local"):
        with going("--cluster", cluster, "--nemesis", "hammer-time", *QUIET[:2], store=tmp_path / cluster) as started:
            started.strike(1)
            facts = started.environment()
            processes = nodes_of(facts)
            children = Path(f"/proc/{started.process.pid}/task/{started.process.pid}/children").read_text().split()
            janitors = [
                int(pid) for pid in children if b"infra.machines.janitor" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
            assert len(janitors) == 1
            for pid in (*janitors, started.process.pid):
                os.kill(pid, signal.SIGKILL)
            started.wait()
        # The engine sees the end of the claim a moment after the owner's.
        until(lambda: harness("clean").stdout == "nothing was left behind\n", "all is removed", 60)
        assert left_of(facts, processes) == []
    assert "198.18.0.0/15" not in subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout


@contextmanager
def own_engine(folder: Path) -> Iterator[dict[str, str]]:
    """A second Docker engine, with images, containers and a socket of its own: the environment that names it."""
    cache = folder / "cache"
    cache.mkdir()
    for there in cache_dir().iterdir():
        if there.name in ("maven", "java") or there.name.startswith("rootfs-"):
            (cache / there.name).symlink_to(there)
    socket = f"unix://{folder}/docker.sock"
    env = {"HARNESS_CACHE": str(cache), "DOCKER_HOST": socket}
    program = f"from infra.machines import engine; engine._SOCKET = {socket!r}; engine.{{}}"
    here = {**os.environ, **env, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program.format("start_engine(print)")], env=here, check=True)
    try:
        yield env
    finally:
        subprocess.run([sys.executable, "-c", program.format("stop_engine()")], env=here, check=True)


def test_the_engine_stops_in_mid_run(tmp_path: Path) -> None:
    """Its containers end with it. The run fails as a harness does, and `clean` finds the rest when it is back."""
    folder = Path("/tmp") / f"engine-{uuid4().hex[:6]}"  # a socket's path is short
    folder.mkdir()
    try:
        with own_engine(folder) as env:
            wrapper = ["env", *(f"{name}={value}" for name, value in env.items())]
            with going("--cluster", "docker", *QUIET, store=tmp_path / "store", wrapper=wrapper) as started:
                run_id = started.environment()["run_id"]
                until(lambda: any(op.type == "ok" for op in started.ops()), "clients are served")
                pid = int((folder / "cache" / "engine" / "dockerd.pid").read_text())
                os.kill(pid, signal.SIGTERM)
                until(lambda: not Path(f"/proc/{pid}").exists(), "the engine ends", 60)
                down = harness("clean", env=env)
                assert down.returncode == FAILURE, down.stdout
                assert "what it holds cannot be seen" in down.stdout
                time.sleep(60)
                start_again(env)
                ended = started.wait(400)
            assert ended.code == FAILURE, ended.out + ended.err
            assert ended.results()["nodes"]["verdict"] == "harness-failure"
            assert "Traceback" not in ended.out + ended.err
            cleaned = harness("clean", env=env)
            assert cleaned.returncode == 0, cleaned.stdout
            assert run_id not in harness("clean", "--dry-run", env=env).stdout
            with closing(docker.DockerClient(env["DOCKER_HOST"])) as client:
                assert client.containers.list(all=True, filters={"label": f"{RUN}={run_id}"}) == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_again(env: dict[str, str]) -> None:
    """The same engine, once more."""
    program = f"from infra.machines import engine; engine._SOCKET = {env['DOCKER_HOST']!r}; engine.start_engine(print)"
    here = {**os.environ, **env, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=here, check=True)


_BORROWS = """
import sys, time
from pathlib import Path
from infra.machines.api import ClusterSpec
from infra.machines.backends.ssh import SshBackend, SshOptions
from infra.machines.node import spawn_argv
host, key, run_id = sys.argv[1:]
cluster = SshBackend({"bash": "bash"}).provision(ClusterSpec(run_id, nodes=1, options=SshOptions((host,), key)))
node, home = cluster.nodes[0], "/var/lib/harness"
start = spawn_argv(["sleep", "1000"], env={}, log=f"{home}/log", pidfile=f"{home}/server.pid")
node.run(start)
lease = node.lease([["sh", "-c", "kill -9 $(cut -d' ' -f1 /var/lib/harness/server.pid)"]], [start], ttl_s=12)
print("held", flush=True)
time.sleep(600)
"""


def test_a_host_that_vanished_in_a_kill_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of the lost run knows nothing of its end. It starts no server in the next run on that host."""
    with Sshd(tmp_path / "host", private_folders=("/opt", "/var/lib")) as sshd:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh" / "known_hosts").write_text(sshd.known_hosts_line)
        key, backend = tmp_path / "host" / "client", SshBackend({k: v for k, v in PROGRAMS.items() if k != "java"})
        argv = [sys.executable, "-c", _BORROWS, sshd.spec, str(key), "lost"]
        control = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT)
        assert control.stdout is not None
        assert control.stdout.readline() == b"held\n"
        held = time.monotonic()
        with black_hole(sshd.port):
            control.kill()
            control.communicate()
            assert [left.alive for left in backend.leftovers()] == [False]
            backend.clean("lost")
            assert backend.leftovers() == []
            spec = ClusterSpec("next", nodes=1, options=SshOptions((sshd.spec,), str(key), disposable=True))
            cluster = backend.provision(spec)
            try:
                node = cluster.nodes[0]
                time.sleep(max(0.0, held + 20 - time.monotonic()))  # past the lease's time to live
                assert node.process("/var/lib/harness/server.pid") is None
                assert node.run(["ls", "/var/lib/harness"]).text == ""
            finally:
                cluster.destroy()


@contextmanager
def black_hole(port: int) -> Iterator[None]:
    """Drop every packet of the connections to a port of this machine that there are now, both ways."""
    text = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in text]
    peers = {int(row[1].split(":")[1], 16) for row in rows if int(row[2].split(":")[1], 16) == port and row[3] == "01"}
    assert peers
    table = f"hole{port}"
    rules = "".join(f"tcp sport {p} tcp dport {port} drop\ntcp sport {port} tcp dport {p} drop\n" for p in peers)
    script = f"table ip {table} {{\nchain c {{\ntype filter hook output priority 0;\n{rules}}}\n}}\n"
    subprocess.run(["nft", "-f", "-"], input=script, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "ip", table], check=True)


def test_random_moments() -> None:
    assert kill_moments.main(["--count", "8", "--seed", "3"]) == 0


def test_four_runs_at_once() -> None:
    assert at_once.main(["--rounds", "2"]) == 0
