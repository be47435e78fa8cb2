# SPDX-License-Identifier: Apache-2.0
"""Machines that are not as the plan wants them: one clear line with the way out, the right exit code, no traceback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from cluster.real_runs import harness
from loopback_sshd import Sshd

from infra.machines.keys import new_key_pair
from results.cache import cache_dir
from results.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

USAGE, FAILURE = 64, Verdict.HARNESS_FAILURE.exit_code
NOBODY = 65534


def told(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line a command ended with. Before it, a run may have said that it starts servers."""
    assert done.returncode == code, done.stdout + done.stderr
    assert all(line.startswith("starting ") for line in done.stdout.splitlines())
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("harness: ")
    return done.stderr


def refused(*args: str | Path, store: Path, env: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()) -> str:
    """The message of `harness run` that ends before it has started anything."""
    return told(harness("run", *args, "--store", store, env=env, wrapper=wrapper), FAILURE)


def at_home(home: Path, known_hosts: str = "") -> dict[str, str]:
    """A user who knows these hosts, and has the caches of this one."""
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    (home / ".ssh" / "known_hosts").write_text(known_hosts)
    return {"HOME": str(home), "HARNESS_CACHE": str(cache_dir())}


def key_file(path: Path) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(new_key_pair().private)
    return path


def test_a_host_that_nobody_can_reach(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        known = f"[127.0.0.1]:{taken.getsockname()[1]} {new_key_pair().public}\n"
        options = ("--cluster", "ssh", "--node", host, "--nemesis", "none", "--ssh-key", key_file(tmp_path / "key"))
        line = refused(*options, store=tmp_path / "store", env=at_home(tmp_path / "home", known))
    assert "n1" in line
    assert host in line
    assert "Connection refused" in line
    assert "is the machine up and sshd running?" in line


def test_a_host_without_a_name(tmp_path: Path) -> None:
    options = ("--node", "nobody-has-this-name.invalid", "--nemesis", "none", "--ssh-key", key_file(tmp_path / "key"))
    line = refused(*options, store=tmp_path / "store", env=at_home(tmp_path / "home"))
    assert "no IPv4 address of 'nobody-has-this-name.invalid' is known" in line


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "sshd") as sshd:
        yield sshd


def test_a_key_that_the_host_does_not_take(host: Sshd, tmp_path: Path) -> None:
    key = key_file(tmp_path / "key")
    options = ("--cluster", "ssh", "--node", host.spec, "--nemesis", "none", "--ssh-key", key)
    line = refused(*options, store=tmp_path / "store", env=at_home(tmp_path / "home", host.known_hosts_line))
    assert f"127.0.0.1:{host.port}" in line
    assert "key" in line


def test_a_host_whose_key_is_not_known(host: Sshd, tmp_path: Path) -> None:
    options = ("--cluster", "ssh", "--node", host.spec, "--nemesis", "none", "--ssh-key", host.folder / "client")
    line = refused(*options, store=tmp_path / "store", env=at_home(tmp_path / "home"))
    assert "known_hosts" in line


def test_a_key_file_that_is_none(tmp_path: Path) -> None:
    options = ("--node", "127.0.0.1", "--nemesis", "none", "--ssh-key", tmp_path / "missing")
    line = refused(*options, store=tmp_path / "store", env=at_home(tmp_path / "home"))
    assert str(tmp_path / "missing") in line


@pytest.mark.parametrize(
    ("address", "reason"),
    [("unix:///nonexistent/docker.sock", "there is no such socket"), ("tcp://127.0.0.1:1", "Connection refused")],
)
def test_no_docker_engine(address: str, reason: str, tmp_path: Path) -> None:
    line = refused("--cluster", "docker", store=tmp_path / "store", env={"DOCKER_HOST": address})
    assert address in line
    assert reason in line
    assert "make engine" in line


def as_nobody() -> list[str]:
    """Another user, who may read everything (wherever this checkout lies), and do nothing else that root may."""
    setpriv = shutil.which("setpriv")
    assert setpriv, "setpriv is not installed (Debian: util-linux)"
    may_read = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *may_read, "--"]


def test_local_nodes_want_root(tmp_path: Path) -> None:
    line = refused("--cluster", "local", store=tmp_path / "store", wrapper=as_nobody())
    assert "need root" in line
    assert "docker or ssh" in line


def test_neither_root_nor_docker(tmp_path: Path) -> None:
    env = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    done = harness("run", "--store", tmp_path / "store", env=env, wrapper=as_nobody())
    line = told(done, USAGE)
    assert "docker: " in line
    assert "local: " in line
    assert "--cluster ssh --node HOST" in line


def test_a_store_that_belongs_to_somebody_else() -> None:
    """The store is looked at before any machine is."""
    options = ("--cluster", "ssh", "--node", "127.0.0.1", "--nemesis", "none")
    with tempfile.TemporaryDirectory() as roots_own:  # not below pytest's folders, which others may not even enter
        Path(roots_own).chmod(0o755)
        line = refused(*options, store=Path(roots_own) / "store", wrapper=as_nobody())
    assert "the store cannot be written: Permission denied" in line


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = told(harness("serve", "--port", str(port), "--store", tmp_path / "store"), FAILURE)
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


def test_servers_that_do_not_start(tmp_path: Path) -> None:
    """The JVM's message about a wrong option reaches the user, and the cluster is gone."""
    options = ("--cluster", "local", "--nemesis", "none", "--jvm-option=-XX:NoSuchOption")
    line = refused(*options, store=tmp_path / "store")
    assert "Unrecognized VM option 'NoSuchOption'" in line
    checked = harness("check", (tmp_path / "store" / "latest").resolve())
    assert checked.returncode == Verdict.UNKNOWN.exit_code
    assert "the run ended before its first operation" in checked.stdout
