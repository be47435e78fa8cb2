# SPDX-License-Identifier: Apache-2.0
"""The progress of a broker, read from files, a log and a process of this machine; and a guest's end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.machines.api import CommandFailed, Completed
from infra.machines.node import spawn_argv
from infra.machines.primitives.process import kill_noted_argv
from infra.systems import guests
from infra.systems.rocketmq.registration import Registration, identity_file, log_size, look
from infra.systems.rocketmq.store.errors import StorageError
from infra.systems.rocketmq.store.identity import Identity, parse_identity, read_identity


@dataclass
class Here:
    """A node that is this machine."""

    leases: list[tuple[Any, Any]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, check: bool = True, **_: Any) -> Completed:
        done = subprocess.run(argv, capture_output=True, check=False)
        result = Completed(tuple(argv), done.returncode, done.stdout, done.stderr, 0.0)
        if check and done.returncode:
            raise CommandFailed("here", result)
        return result

    def lease(self, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float) -> Any:
        for argv in inject:
            self.run(argv)
        return SimpleNamespace(heal=lambda: [self.run(argv) for argv in undo])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    made = SimpleNamespace(
        node=Here(),
        data_dirs=[str(tmp_path / "data")],
        log=str(tmp_path / "guest.log"),
        pidfile=str(tmp_path / "guest.pid"),
    )
    (tmp_path / "data" / "store").mkdir(parents=True)
    yield made
    subprocess.run(kill_noted_argv(made.pidfile), check=True)


def start(server: Any) -> None:
    subprocess.run(spawn_argv(["sleep", "1000"], env={}, log=server.log, pidfile=server.pidfile), check=True)


def test_what_a_node_shows_of_a_registration(server: Any) -> None:
    assert look(server, 0) == Registration(False, None, None, False, "INITIAL")
    start(server)
    identity, log = Path(identity_file(server)), Path(server.log)
    temp = Path(f"{identity}-temp")
    temp.write_text("harness#t1#2#198.18.0.4:12911;1780000000000")
    assert look(server, 0) == Registration(True, Identity("harness", "t1", 2), None, False, "INITIAL")
    temp.unlink()
    identity.write_text("harness#t1#2\n")
    log.write_text("x First time register broker success, change state to: REGISTER_TO_CONTROLLER_DONE\n")
    assert look(server, 0) == Registration(True, None, Identity("harness", "t1", 2), False, "REGISTERED")
    with log.open("a") as lines:
        lines.write("x All register process has been done, change state to: RUNNING\n")
    assert look(server, 0).state == "RUNNING"
    assert look(server, log_size(server)).state == "INITIAL"
    identity.write_text("harness#t1")
    assert look(server, 0).torn


def test_a_guest_ends_with_its_lease_and_its_log_stays(server: Any) -> None:
    lease = guests.hold(server, 60)
    start(server)
    assert look(server, 0).up
    for _ in range(2):  # an undo may run twice
        lease.heal()
        assert not look(server, 0).up
    assert not Path(server.data_dirs[0]).exists()
    assert Path(server.log).exists()


@pytest.mark.parametrize(
    ("text", "temp", "found"),
    [
        ("c#a#1\n", False, Identity("c", "a", 1)),
        ("c#a#1", True, None),
        ("c#a#1#x:1;2", True, Identity("c", "a", 1)),
        ("c#a#1#x:1;2", False, None),
        ("c#a#", False, None),
        ("", True, None),
    ],
)
def test_identity_files(text: str, temp: bool, found: Identity | None, tmp_path: Path) -> None:
    assert parse_identity(text, temp=temp) == found
    if not temp and found is None:
        (tmp_path / "brokerIdentity").write_text(text)
        with pytest.raises(StorageError, match="is not CLUSTER#NAME#ID"):
            read_identity(tmp_path / "brokerIdentity")
