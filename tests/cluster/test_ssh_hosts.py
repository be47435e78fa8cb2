# SPDX-License-Identifier: Apache-2.0
"""Existing machines over SSH, end to end: five hosts, borrowed for a run and given back as they were.

The hosts are nodes of the local backend. The runs do not know it: to them these are machines with addresses, an sshd,
host keys and somebody's login, and the user at the other end has a home and a cache folder of their own.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import tomli_w
from cluster.real_runs import Going, Run, going, harness, is_inject, until

from infra.machines.api import ClusterSpec, InfraError, Node
from infra.machines.backends.local import LocalBackend
from infra.machines.backends.owned import HOST_KEY
from infra.machines.backends.ssh import SshBackend, SshOptions
from infra.machines.backends.ssh_folders import MARKER, ROOTS
from infra.machines.keys import new_key_pair
from infra.systems.api import ServerSettings
from infra.systems.dledger.topology import DledgerTopology
from results.cache import cache_dir
from results.sealed import read_sealed
from results.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

USAGE, FAILURE = 64, Verdict.HARNESS_FAILURE.exit_code
AUTHORIZED = "/root/.ssh/authorized_keys"
JUDGED = (Verdict.VALID.value, Verdict.INVALID.value)
"""The verdicts of a run that was judged completely. The test does not judge DLedger."""


@dataclass(frozen=True)
class Park:
    """Machines, and a user who may log in to them. `hosts` are seen through a connection of the test's own."""

    hosts: Sequence[Node]
    home: Path
    key: Path

    @property
    def specs(self) -> list[str]:
        return [f"root@{host.address}" for host in self.hosts]

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    @property
    def env(self) -> dict[str, str]:
        """As the user's shell has it. No Docker engine: what its runs left is not this user's to clean."""
        nowhere = f"unix://{self.home}/no-engine.sock"
        return {"HOME": str(self.home), "HARNESS_CACHE": str(self.home / "cache"), "DOCKER_HOST": nowhere}

    @property
    def shell(self) -> list[str]:
        """A wrapper that runs a command as this user."""
        return ["env", *(f"{name}={value}" for name, value in self.env.items())]

    def options(self, *hosts: str) -> list[str | Path]:
        """The machines on the command line; all of them unless they are named."""
        nodes = [word for host in hosts or self.specs for word in ("--node", host)]
        return ["--cluster", "ssh", *nodes, "--ssh-key", self.key]

    def run(self, *args: str | Path, store: Path) -> Run:
        with going(*args, store=store, wrapper=self.shell) as started:
            return started.wait()

    def refused(self, *args: str | Path, store: Path, code: int = FAILURE) -> str:
        """The one line of a run that does not begin."""
        return one_line(harness("run", *args, "--store", store, env=self.env), code)

    def clean(self, *args: str) -> subprocess.CompletedProcess[str]:
        return harness("clean", *args, env=self.env)


@dataclass(frozen=True)
class Trace:
    """All that a run could leave on a machine."""

    files: frozenset[bytes]
    rules: str
    programs: frozenset[str]


def trace(host: Node) -> Trace:
    files = host.run(["find", "/", "/run", "/dev/shm", "-xdev", "-printf", r"%p\0"]).stdout.split(b"\0")
    programs = host.run(["ps", "-e", "-o", "comm="]).text.split()
    return Trace(frozenset(files), host.run(["nft", "list", "ruleset"]).text, frozenset(programs))


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("harness: ")
    return done.stderr


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Park]:
    """Five machines; the user has put a key on each, and knows the host keys."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir()
    DledgerTopology(ServerSettings()).shares()
    (home / "cache").mkdir()
    for fetched in ("maven", "java"):
        (home / "cache" / fetched).symlink_to(cache_dir() / fetched)
    login, key = new_key_pair("a-user"), home / "key"
    key.touch(mode=0o600)
    key.write_bytes(login.private)
    made = LocalBackend().provision(ClusterSpec(f"park-{time.time_ns():x}", nodes=5))
    try:
        known = ""
        for host in made.nodes:
            host.write(AUTHORIZED, host.read(AUTHORIZED) + f"{login.public}\n".encode(), mode=0o600)
            known += f"{host.address} {host.run(['ssh-keygen', '-y', '-f', HOST_KEY]).text}"
        (home / ".ssh" / "known_hosts").write_text(known)
        yield Park(made.nodes, home, key)
    finally:
        made.destroy()


@pytest.fixture
def park(machines: Park) -> Iterator[Park]:
    """The machines. What a test does with them leaves each as it was: files, rules, programs; and no record here."""
    before = [trace(host) for host in machines.hosts]
    yield machines
    # The watch of the servers' processes waits on the node in rounds; the last one ends by itself, seconds later.
    pairs = list(zip(machines.hosts, before, strict=True))
    until(lambda: all(trace(host).programs <= then.programs for host, then in pairs), "the watch ends")
    after = [trace(host) for host in machines.hosts]
    for host, then, now in zip(machines.hosts, before, after, strict=True):
        assert now.files - then.files == frozenset(), host.name
        assert then.files - now.files == frozenset(), host.name
        assert replace(now, files=then.files) == then, host.name
    assert list((machines.home / "cache").glob("ssh/*.json")) == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def server_state(host: Node) -> str:
    """The letter of proc(5) for the server on a machine; empty when none runs."""
    return host.run(["ps", "-C", "java", "-o", "state="], check=False).text.strip()


@pytest.mark.nightly
def test_a_run_with_faults(park: Park, store: Path) -> None:
    faults = "partition-halves,kill-random-processes,hammer-time"
    times = ("--time-limit", "15", "--interval", "8", "--duration", "4", "--seed", "4")
    ended = park.run(*park.options(), "--disposable", "--nemesis", faults, *times, store=store)
    assert ended.verdict["verdict"] in JUDGED, ended.out + ended.err
    assert ended.code == Verdict(ended.verdict["verdict"]).exit_code
    assert "Traceback" not in ended.out + ended.err
    struck = [op for op in ended.ops if is_inject(op)]
    assert {op.value["fault"] for op in struck} == set(faults.split(","))
    assert all(op.error is None and op.value["seen"] for op in struck if op.value["fault"] == "partition-halves")
    assert any(op.value["seen"] for op in struck if op.value["fault"] == "hammer-time")
    assert any(op.value["seen"] for op in struck if op.value["fault"] == "kill-random-processes")
    healed = [op for op in ended.ops if op.f == "heal" and op.type == "info"]
    assert {op.value["id"] for op in healed} == {op.value["id"] for op in struck}
    assert [op.error for op in healed if op.error] == []
    assert read_sealed(ended.dir.history) == ended.ops
    assert ended.dir.report.stat().st_size > 10_000
    names = [host.name for host in park.hosts]
    for name in names:
        assert f"node {name} of" in (ended.dir.nodes / name / "server.log").read_text()
        assert (ended.dir.nodes / name / "gc.log").exists()
    commands = [json.loads(line) for line in ended.dir.control.read_text().splitlines()]
    assert {entry["node"] for entry in commands} == set(names)
    assert ended.environment["backend"] == "ssh"
    assert ended.environment["hosts"].split() == [f"{spec}:22" for spec in park.specs]


@pytest.mark.nightly
def test_messages_on_borrowed_machines(park: Park, store: Path) -> None:
    """RocketMQ itself: name servers, controllers and brokers, on hosts where other things lie around."""
    times = ("--time-limit", "16", "--interval", "8", "--duration", "5", "--rate", "200", "--seed", "2")
    faults = "kill-random-processes,partition-halves"
    ended = park.run(
        *park.options(), "--disposable", "--topology", "controller", "--nemesis", faults, *times, store=store
    )
    assert ended.verdict["verdict"] in JUDGED, ended.out + ended.err
    assert "Traceback" not in ended.out + ended.err
    struck = [op for op in ended.ops if is_inject(op)]
    assert {op.value["fault"] for op in struck} == set(faults.split(","))
    assert all(op.value["seen"] for op in struck)
    assert sum(op.f == "send" and op.type == "ok" for op in ended.ops) > 100, ended.out
    assert {op.extra["node"] for op in ended.ops if op.f == "replica-read"} == {host.name for host in park.hosts}


def test_machines_that_are_not_disposable(park: Park, store: Path) -> None:
    """No fault that stops or cuts, by default or by name; load in fair weather is welcome."""
    one = park.options(park.specs[1])
    for faults in ((), ("--nemesis", "hammer-time")):
        line = park.refused(*park.options(), *faults, store=store, code=USAGE)
        assert "--disposable" in line
        assert "--nemesis none" in line
    assert not store.exists()

    ended = park.run(*one, "--nemesis", "none", "--time-limit", "4", "--seed", "6", store=store)
    assert ended.verdict["verdict"] in JUDGED, ended.out + ended.err
    assert ended.code == Verdict(ended.verdict["verdict"]).exit_code
    assert [op for op in ended.ops if is_inject(op)] == []
    assert [path.name for path in ended.dir.nodes.iterdir()] == ["n1"]


@pytest.mark.nightly
def test_kill_9_in_mid_fault(park: Park, store: Path, tmp_path: Path) -> None:
    """The faults end by themselves, on the machines; the rest is on record, and `harness clean` fetches it."""
    plan = tmp_path / "plan.toml"
    faults = {"partition-halves": "n1", "hammer-time": "n2", "kill-random-processes": "n4"}
    # One strike of each, a few seconds apart, and nothing but the end of the run heals them.
    strikes = [{"fault": fault, "target": target, "every": 100, "for": 90} for fault, target in faults.items()]
    cluster = {"backend": "ssh", "hosts": park.specs, "ssh_key": str(park.key)}
    chosen = {"workload": "register", "seed": 8, "time_limit": 32, "cluster": cluster, "nemesis": strikes}
    plan.write_text(tomli_w.dumps(chosen))
    with going("--plan", plan, "--disposable", store=store, wrapper=park.shell) as started:
        run_id = lives(park, started)
        started.strike(3)
        n1, n2, *_, n4, _ = park.hosts
        assert "harness_drop_" in n1.run(["nft", "list", "tables"]).text
        assert server_state(n2).startswith("T")
        assert server_state(n4) == ""
        started.kill()

    until(lambda: all("harness_" not in h.run(["nft", "list", "tables"]).text for h in park.hosts), "the cuts end")
    until(lambda: all(server_state(h) not in ("", "T") for h in park.hosts), "every server runs")

    everything = [park.options()[3], *park.specs]
    assert "harness clean" in park.refused(*park.options(), "--nemesis", "none", store=store)
    output = park.clean("--dry-run").stdout
    assert f"ssh: {run_id} would remove: folders {' '.join(ROOTS)} on " in output
    assert all(str(where) in output for where in everything)

    known = park.known_hosts.read_text()
    park.known_hosts.write_text("".join(line for line in known.splitlines(True) if park.hosts[4].address not in line))
    partly = park.clean()
    park.known_hosts.write_text(known)
    assert partly.returncode == FAILURE
    text = next(line for line in partly.stdout.splitlines() if "could not" in line)
    assert all(word in text for word in (run_id, "n5", park.hosts[4].address, "is not known", "it is gone permanently"))
    assert "Traceback" not in partly.stdout + partly.stderr
    assert [server_state(host) != "" for host in park.hosts] == [False] * 4 + [True], "the others are clean already"

    done = park.clean()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was left behind" in park.clean().stdout


def lives(park: Park, started: Going) -> str:
    """The id of a run that lives: `harness clean` and other runs leave it its machines."""
    started.strike(1)
    run_id = started.environment()["run_id"]
    assert {host.read(f"{root}/{MARKER}") for host in park.hosts for root in ROOTS} == {f"{run_id}\n".encode()}
    output = park.clean()
    assert output.returncode == 0
    assert f"ssh: {run_id} is still running, not removed" in output.stdout
    return run_id


def test_a_host_key_that_is_not_known(park: Park, store: Path) -> None:
    known = park.known_hosts.read_text()
    strange = park.hosts[2]
    park.known_hosts.write_text("".join(line for line in known.splitlines(True) if strange.address not in line))
    try:
        line = park.refused(*park.options(), "--nemesis", "none", store=store)
    finally:
        park.known_hosts.write_text(known)
    assert f"n3: the host key of {strange.address}:22 is not known" in line
    assert f"ssh-keyscan -p 22 {strange.address} >> {park.known_hosts}" in line


def test_a_key_that_no_host_takes(park: Park, store: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(new_key_pair().private)
    line = park.refused(*park.options(), "--ssh-key", key, "--nemesis", "none", store=store)
    assert f"n1: root@{park.hosts[0].address}:22 refuses the key SHA256:" in line
    assert "authorized_keys" in line
    assert "--ssh-key" in line


def test_a_host_that_is_not_there(park: Park, store: Path) -> None:
    nobody = park.hosts[0].address.rpartition(".")[0] + ".99"
    line = park.refused(*park.options(*park.specs, f"root@{nobody}"), "--nemesis", "none", store=store)
    assert f"n6: no SSH at {nobody}:22: " in line
    assert "is the machine up and sshd running?" in line


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--cluster", "ssh"), "--node [user@]host[:port]"),
        (("--cluster", "ssh", "--nodes", "3", "--node", "a", "--node", "b"), "2 machines are named"),
        (("--cluster", "local", "--node", "a"), "--cluster ssh"),
    ],
)
def test_machines_and_options_that_do_not_fit(args: tuple[str, ...], said: str, store: Path) -> None:
    assert said in one_line(harness("run", *args, "--nemesis", "none", "--store", store), USAGE)


@pytest.fixture
def without_nft(park: Park) -> Iterator[Node]:
    """A machine that lacks a program, and whose package manager (a stand-in) brings just that one."""
    host = park.hosts[2]
    manager = (
        '#!/bin/sh\necho "$*" >> /root/asked\ncase $* in *" nftables") mv /usr/sbin/nft.away /usr/sbin/nft ;; esac\n'
    )
    host.run(["mv", "/usr/sbin/nft", "/usr/sbin/nft.away"])
    host.write("/usr/local/bin/apt-get", manager.encode(), mode=0o755)
    yield host
    host.run(["mv", "/usr/sbin/nft.away", "/usr/sbin/nft"], check=False)
    host.run(["rm", "-f", "/usr/local/bin/apt-get", "/root/asked"])


def test_a_program_that_is_missing(park: Park, without_nft: Node, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with what `--install` would do; only then, and only there, it is done."""
    line = park.refused(*park.options(), "--nemesis", "none", store=store)
    assert f"n3: root@{without_nft.address}:22 lacks nft; --install would run there: apt-get install nftables" in line
    with pytest.raises(InfraError):
        without_nft.read("/root/asked")

    for name, value in park.env.items():
        monkeypatch.setenv(name, value)
    spec = ClusterSpec("with-install", options=SshOptions(tuple(park.specs), str(park.key), install=True))
    SshBackend().provision(spec).destroy()
    assert without_nft.read("/root/asked").decode().splitlines() == [
        "-qy update",
        "-qy install --no-install-recommends nftables",
    ]
