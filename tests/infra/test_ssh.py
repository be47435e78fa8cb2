# SPDX-License-Identifier: Apache-2.0
"""Nodes over a real sshd on loopback: commands, files, daemons, leases, keys, and the control log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_sshd import Sshd, connection_of, ssh_node

from infra.machines.api import CommandFailed, InfraError, NodeUnreachable, ProcessId, shown
from infra.machines.control_log import ControlLog
from infra.machines.keys import new_cluster_keys, new_key_pair
from infra.machines.lease import GuardedLease
from infra.machines.node import RemoteNode, spawn_argv
from infra.machines.primitives.network import control_address, drop_packets, send_probe
from infra.machines.primitives.page_cache import cached_bytes, drop_file_cache
from infra.machines.primitives.process import kill_and_restart, kill_process, process_state, stop_process
from infra.machines.remote.ssh import command_line

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


@pytest.fixture(scope="module")
def node(server: Sshd) -> Iterator[RemoteNode]:
    node = server.node()
    yield node
    node.close()


@pytest.fixture
def daemon(node: RemoteNode, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a `sleep` with this pid file's name; all are ended after the test."""
    pidfiles: list[str] = []

    def start(name: str) -> str:
        pidfile = str(tmp_path / name)
        node.spawn(["sleep", "300"], env={}, log=str(tmp_path / "log"), pidfile=pidfile)
        pidfiles.append(pidfile)
        return pidfile

    yield start
    for pidfile in pidfiles:
        if process := node.process(pidfile):
            kill_process(node, process)


def until(true: Callable[[], bool]) -> None:
    """Wait for something that must happen soon; the deadline is only there so that a failing test ends."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


words = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(words)
def test_any_words_come_out_of_a_shell_as_they_went_in(argv: list[str]) -> None:
    line = command_line(["printf", "%s\\0", *argv])
    output = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    assert output == b"".join(word.encode() + b"\0" for word in argv)


def test_words_pass_through_sshd(node: RemoteNode) -> None:
    words = ["", " ", "a b", "it's", '"', "$HOME", "`id`", "$(id)", "\\", "*", "~", "line\nbreak", "-n", ";", "é", "!x"]
    assert node.run(["printf", "%s\\0", *words]).text.split("\0")[:-1] == words


def test_file_names_that_are_not_utf8_can_be_named() -> None:
    assert command_line(["cat", b"\xff".decode("utf-8", "surrogateescape")]) == b"cat '\xff'"


@pytest.mark.parametrize("argv", [[], ["a\0b"]])
def test_what_cannot_be_a_command_is_refused(node: RemoteNode, argv: list[str]) -> None:
    with pytest.raises(ValueError):
        node.run(argv)


def test_a_command_longer_than_linux_takes_is_refused_here(node: RemoteNode) -> None:
    with pytest.raises(InfraError, match="pass data by stdin"):
        node.run(["true", "x" * (128 << 10)])


def test_exit_codes(node: RemoteNode) -> None:
    assert node.run(["sh", "-c", "exit 124"], check=False).code == 124  # also the deadline's own, but not late
    assert node.run(["sh", "-c", "kill -KILL $$"], check=False).code == -1
    with pytest.raises(CommandFailed, match=r"n1: 'it \$HOME' ended with 7: no luck"):
        node.run(["sh", "-c", "echo some; echo no luck >&2; exit 7", "it", "$HOME"])
    with pytest.raises(CommandFailed, match="127"):
        node.run(["no-such-program"])


def test_both_streams_and_stdin_at_once(node: RemoteNode) -> None:
    size = 3_000_000
    script = f"head -c {size} /dev/zero >&2; head -c {size} /dev/zero; cat"
    done = node.run(["sh", "-c", script], stdin=b"y" * size)
    assert done.stdout == b"\0" * size + b"y" * size
    assert done.stderr == b"\0" * size
    assert not done.truncated


def test_a_command_that_leaves_its_stdin_unread(node: RemoteNode) -> None:
    assert node.run(["echo", "done"], stdin=b"x" * 8_000_000).text == "done\n"


@pytest.mark.parametrize("stdin", [b"", b"unread"])
def test_a_command_that_is_over_at_once_does_not_cost_the_connection(
    server: Sshd, stdin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshd drops the whole connection when the end of stdin comes after paramiko has agreed to the channel's close."""
    node = server.node()
    node.run(["true"])
    first = connection_of(node).connect()
    sends = paramiko.Transport._send_user_message

    def late(self: paramiko.Transport, message: paramiko.Message) -> None:
        if message.asbytes()[0] == 96:  # SSH_MSG_CHANNEL_EOF (RFC 4254, 5.3): a busy machine sends it late
            time.sleep(0.1)
        sends(self, message)

    monkeypatch.setattr(paramiko.Transport, "_send_user_message", late)
    for _ in range(3):
        assert node.run(["sh", "-c", "exit 3"], stdin=stdin, check=False).code == 3
    time.sleep(0.1)
    assert connection_of(node).connect() is first
    assert first.is_active()
    node.close()


def test_output_is_cut_at_16_mib_and_says_so(node: RemoteNode) -> None:
    done = node.run(["head", "-c", str((16 << 20) + 5), "/dev/zero"])
    assert done.truncated
    assert len(done.stdout) == 16 << 20


def test_a_deadline_ends_the_command_on_the_node_with_its_children(node: RemoteNode, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = 'sleep 300 & echo $! > "$1"; echo $$ >> "$1"; wait'
    with pytest.raises(NodeUnreachable, match=r"'it .*' did not end within 0.5 s"):
        node.run(["sh", "-c", script, "it", str(pids)], timeout_s=0.5)
    assert len(pids.read_text().split()) == 2
    for pid in pids.read_text().split():
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_many_threads_share_one_connection(node: RemoteNode) -> None:
    with ThreadPoolExecutor(20) as pool:
        output = pool.map(lambda i: node.run(["echo", str(i)]).text, range(60))
        assert list(output) == [f"{i}\n" for i in range(60)]


def test_files(node: RemoteNode, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a file"
    data = bytes(range(256)) * 5000
    node.write(str(path), data, 0o640)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o640
    assert node.read(str(path)) == data
    assert node.read(str(path), limit=len(data)) == data
    with pytest.raises(InfraError, match="longer than"):
        node.read(str(path), limit=len(data) - 1)
    with pytest.raises(CommandFailed, match="No such file"):
        node.read(str(tmp_path / "nothing"))
    node.write(str(path), b"")
    assert path.read_bytes() == b""
    assert [p.name for p in path.parent.iterdir()] == ["a file"]


def test_fetch_takes_both_ends_and_sub_folders_but_no_links(node: RemoteNode, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "sub dir").mkdir(parents=True)
    (there / "long.log").write_bytes(b"0123456789")
    (there / "sub dir" / "é\n.log").write_bytes(b"abc")
    (there / "link").symlink_to("/etc/passwd")
    got = node.fetch(str(there), here, limit=4)
    assert got == [here / "long.log", here / "sub dir" / "é\n.log"]
    assert [path.read_bytes() for path in got] == [b"0\n(6 bytes are left out here)\n789", b"abc"]
    assert node.fetch(str(tmp_path / "nothing"), here) == []


def ignored_signals(process: ProcessId) -> list[int]:
    """The standard signals that a process ignores. (GNU make hands on 32 and 33, glibc's own, as ignored.)"""
    found = re.search(r"^SigIgn:\s*([0-9a-f]+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return [number for number in range(1, 32) if int(found[1], 16) >> (number - 1) & 1]


def test_daemons_outlive_the_connection_and_are_told_apart(server: Sshd, tmp_path: Path) -> None:
    pidfile, log = str(tmp_path / "run" / "d.pid"), tmp_path / "log dir" / "out"
    script = 'echo "$A"; pwd; exec sleep 300'
    first = server.node()
    process = first.spawn(["sh", "-c", script], env={"A": "b c"}, log=str(log), pidfile=pidfile)
    first.close()
    second = server.node()
    try:
        assert second.process(pidfile) == process
        until(lambda: log.read_text() == f"b c\n{log.parent}\n")
        assert ignored_signals(process) == []  # a daemon born deaf to SIGTERM could not be stopped in order
        kill_process(second, process)
        assert second.process(pidfile) is None
        # A later process with the same number: the start time in the pid file is not its own.
        Path(pidfile).write_text(f"{process.pid} {process.started}\n")
        again = second.spawn(["sleep", "300"], env={}, log=str(log), pidfile=pidfile)
        Path(pidfile).write_text(f"{again.pid} {again.started - 1}\n")
        assert second.process(pidfile) is None
        kill_process(second, again)
        with pytest.raises(CommandFailed, match="no program no-such"):
            second.spawn(["no-such"], env={}, log=str(log), pidfile=pidfile)
        with pytest.raises(ValueError):
            second.spawn(["true"], env={"A=B": "c"}, log=str(log), pidfile=pidfile)
    finally:
        second.close()


def test_spawn_once_leaves_a_running_daemon_alone(node: RemoteNode, daemon: Callable[..., str], tmp_path: Path) -> None:
    pidfile = daemon("d.pid")
    running = node.process(pidfile)
    assert running is not None
    again = spawn_argv(["sleep", "300"], env={}, log=str(tmp_path / "log"), pidfile=pidfile)
    assert node.run(again).text == f"{running.pid} {running.started}\n"
    kill_process(node, running)
    node.run(again)
    assert node.process(pidfile) not in (None, running)


def test_a_pid_file_with_anything_else_in_it_names_no_process(node: RemoteNode, tmp_path: Path) -> None:
    for text in ("", "\n", "1\n", "no numbers here\n", "999999999 5\n"):
        (tmp_path / "pid").write_text(text)
        assert node.process(str(tmp_path / "pid")) is None


def test_a_dead_connection_is_made_anew(tmp_path: Path) -> None:
    with Sshd(tmp_path) as server:
        node = server.node()
        assert node.run(["echo", "1"]).text == "1\n"
        server.stop()
        with pytest.raises(NodeUnreachable, match=r"no SSH at .*: Connection refused"):
            node.run(["true"])
        server.start()
        assert node.run(["echo", "2"]).text == "2\n"
        node.close()


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError("Broken pipe")])
def test_a_send_that_fails_before_paramiko_sees_the_end_counts_as_a_dead_connection(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    first = connection_of(node).connect()

    def fails(**_: object) -> paramiko.Channel:
        raise error

    monkeypatch.setattr(first, "open_session", fails)
    assert first.is_active()
    assert node.run(["echo", "1"]).text == "1\n"
    assert not first.is_active()


def test_a_connection_lost_in_mid_command_is_told_and_nothing_runs_twice(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with Sshd(tmp_path / "sshd") as server:
        node = server.node()
        cut = threading.Thread(target=lambda: (until(marks.exists), server.stop()))
        cut.start()
        with pytest.raises(NodeUnreachable, match="broke during the command"):
            node.run(["sh", "-c", 'echo ran >> "$1"; exec sleep 5', "it", str(marks)])
        cut.join()
        server.start()
        node.run(["true"])
        assert marks.read_text() == "ran\n"
        node.close()


def test_closing_waits_for_no_connection_that_is_being_made(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a machine that is gone a connection takes its whole time limit, and the end of a run closes all of them. What
    is there after all is dropped; a command that waits behind it has its own limit.
    """
    connection = connection_of(server.node())
    dialing, go_on = threading.Event(), threading.Event()
    dial = connection._dial

    def slowly(timeout_s: float) -> paramiko.Transport:
        dialing.set()
        assert go_on.wait(30)
        return dial(timeout_s)

    monkeypatch.setattr(connection, "_dial", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(connection.connect, 20)
        assert dialing.wait(30)
        with pytest.raises(NodeUnreachable, match="another command still waits for the connection"):
            connection.connect(0.05)
        connection.close()
        assert not first.done()
        go_on.set()
        with pytest.raises(NodeUnreachable, match="was closed while it was being made"):
            first.result()
    assert connection._transport is None
    assert connection.connect().is_active()
    connection.close()


def test_a_wrong_client_key_is_one_clear_line(server: Sshd) -> None:
    node = ssh_node(
        "n1",
        server.address,
        port=server.port,
        user=server.user,
        client_key=new_key_pair().pkey,
        host_key=server.host.pkey,
    )
    with pytest.raises(InfraError, match=r"refuses the key SHA256:.*--ssh-key") as caught:
        node.run(["true"])
    assert "\n" not in str(caught.value)


def test_another_host_key_is_refused(server: Sshd) -> None:
    node = ssh_node(
        "n1",
        server.address,
        port=server.port,
        user=server.user,
        client_key=server.client.pkey,
        host_key=new_key_pair().pkey,
    )
    with pytest.raises(InfraError, match="shows another host key"):
        node.run(["true"])


def test_an_unknown_host_key_is_refused_and_a_known_one_taken(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    known = tmp_path / ".ssh" / "known_hosts"

    def fresh() -> RemoteNode:
        key = server.client.pkey
        return ssh_node("n1", server.address, port=server.port, user=server.user, client_key=key, host_key=None)

    with pytest.raises(InfraError, match=rf"is not known .*ssh-keyscan -p {server.port} {server.address} >> "):
        fresh().run(["true"])
    known.parent.mkdir()
    known.write_text(server.known_hosts_line)
    node = fresh()
    assert node.run(["echo", "in"]).text == "in\n"
    node.close()
    known.write_text(server.known_hosts_line.replace(server.host.public, new_key_pair().public))
    with pytest.raises(InfraError, match=rf"remove the old key from {known}"):
        fresh().run(["true"])


def test_no_host_and_no_ssh_are_one_clear_line_each(server: Sshd) -> None:
    key = server.client.pkey
    with pytest.raises(NodeUnreachable, match=r"there is no host 'no-such-host\.invalid'"):
        ssh_node("n1", "198.18.0.1", host="no-such-host.invalid", client_key=key, host_key=None).run(["true"])


def test_keys_are_read_back_by_paramiko_and_hide_their_secret() -> None:
    keys = new_cluster_keys(["n1", "n2"])
    pairs = [keys.client, *keys.hosts.values()]
    assert len({pair.public for pair in pairs}) == 3
    for pair in pairs:
        assert isinstance(pair.pkey, paramiko.Ed25519Key)
        assert pair.public.split()[:2] == ["ssh-ed25519", pair.pkey.get_base64()]
        assert "PRIVATE" not in repr(pair)
    assert keys.authorized_keys.decode() == keys.client.public + "\n"
    with pytest.raises(ValueError):
        new_key_pair("two words")


def test_control_log_notes_every_command(server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "run" / "control.jsonl"
    log = ControlLog(path)
    node = server.node(control_log=log)
    node.run(["sh", "-c", "cat; echo err >&2; exit 3", "it"], stdin=b"12345", check=False)
    with pytest.raises(NodeUnreachable):
        node.run(["sleep", "30"], timeout_s=0.2)
    node.lease([["true"]], [["echo", "undone"]], ttl_s=30).heal()
    node.run(["true", "x" * 5000])
    node.close()
    log.close()
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    first, late, *leases, long = entries
    assert first["argv"] == ["sh", "-c", "cat; echo err >&2; exit 3", "it"]
    assert (first["node"], first["code"], first["in"], first["out"], first["err"]) == ("n1", 3, 5, 5, 4)
    assert late["note"] == "ended at its deadline"
    assert [(e["argv"], e["code"]) for e in leases] == [(["true"], 0), (["echo", "undone"], 0)]
    assert long["argv"][1].endswith("... (+3000)")
    assert all(entry["ms"] >= 0 and entry["time"] > 1e9 for entry in entries)


def test_control_log_on_a_full_disk_says_so_and_goes_on() -> None:
    log = ControlLog(Path("/dev/full"))
    log.note("n1", ["true"], code=0, ms=1)
    log.note("n1", ["true"], code=0, ms=1)
    log.close()
    assert log.failure == "control log /dev/full: No space left on device"


def test_scripts_go_by_their_name_in_messages() -> None:
    assert (
        shown(["sh", "-c", "a\nlong script", "write", "/a"]) == shown(("sh", "-c", "x", "write", "/a")) == "'write /a'"
    )
    assert shown(["echo", "a\nb"]) == "'echo a b'"
    assert len(shown(["x" * 500])) < 130


def test_a_lease_holds_and_heals(node: RemoteNode, tmp_path: Path) -> None:
    fault = tmp_path / "a fault; $(id)"
    lease = node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=60)
    assert fault.exists()
    lease.heal()
    assert not fault.exists()
    fault.touch()
    lease.heal()
    assert fault.exists(), "a second heal runs nothing"
    assert isinstance(lease, GuardedLease)
    assert lease.ended_by == "healed"


def test_a_lease_ends_with_its_time(node: RemoteNode, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    lease = node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=0.3)
    until(lambda: not fault.exists())
    lease.heal()
    assert isinstance(lease, GuardedLease)
    assert lease.ended_by == "expired"


def test_a_failed_injection_is_undone(node: RemoteNode, tmp_path: Path) -> None:
    fault, other = tmp_path / "fault", tmp_path / "other"
    inject = [["touch", str(fault)], ["sh", "-c", "echo one; echo two; exit 3", "break"], ["touch", str(other)]]
    with pytest.raises(InfraError, match=r"injecting with 'break' failed: one \| two$"):
        node.lease(inject, [["rm", "-f", str(fault)]], ttl_s=60)
    assert not fault.exists()
    assert not other.exists()
    with pytest.raises(InfraError, match="and its undo failed"):
        node.lease([["false"]], [["false"]], ttl_s=60)


def test_all_of_the_undo_runs_and_its_failure_is_told(node: RemoteNode, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    undo = [["sh", "-c", 'echo cannot; test -e "$1"', "first", str(tmp_path / "way")], ["rm", "-f", str(fault)]]
    lease = node.lease([["touch", str(fault)]], undo, ttl_s=60)
    with pytest.raises(InfraError, match="undo 1 ended with 1: cannot"):
        lease.heal()
    assert not fault.exists()
    with pytest.raises(InfraError, match=r"'first .*' ended with 1: cannot"):
        lease.heal()
    (tmp_path / "way").touch()
    lease.heal()


def test_a_lost_guard_is_replaced_by_the_heal(tmp_path: Path) -> None:
    undone = tmp_path / "undone"
    with Sshd(tmp_path / "sshd") as server:
        node = server.node()
        lease = node.lease([["true"]], [["touch", str(undone)]], ttl_s=60)
        node.close()
        until(undone.exists)
        undone.unlink()
        lease.heal()
        assert undone.exists()
        assert isinstance(lease, GuardedLease)
        assert lease.ended_by == "lost"
        node.close()


_HOLDER = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
import paramiko
from loopback_sshd import ssh_node
folder, address, port, user, fault = sys.argv[1:]
key, host = (paramiko.PKey.from_path(Path(folder) / name) for name in ("client", "host"))
node = ssh_node("n1", address, port=int(port), user=user, client_key=key, host_key=host)
lease = node.lease([["touch", fault]], [["rm", "-f", fault]], ttl_s=300)
print("held", flush=True)
time.sleep(300)
"""


def test_a_lease_ends_when_the_control_program_is_killed(server: Sshd, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    argv = [
        sys.executable,
        "-c",
        _HOLDER,
        str(server.folder),
        server.address,
        str(server.port),
        server.user,
        str(fault),
    ]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    control = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, env=env)
    assert control.stdout is not None
    assert control.stdout.readline() == b"held\n"
    assert fault.exists()
    control.kill()
    control.wait()
    control.stdout.close()
    until(lambda: not fault.exists())


@pytest.mark.parametrize("ttl_s", [0, -1])
def test_a_lease_without_time_is_refused(node: RemoteNode, ttl_s: float) -> None:
    with pytest.raises(ValueError):
        node.lease([["true"]], [["true"]], ttl_s=ttl_s)


def test_heal_leases_heals_all_even_if_one_fails(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    leases = [node.lease([["true"]], [argv], ttl_s=60) for argv in (["false"], ["touch", str(tmp_path / "undone")])]
    with pytest.raises(InfraError, match="undoing a fault failed"):
        node.heal_leases()
    assert (tmp_path / "undone").exists()
    assert len(leases) == 2
    node.close()


def test_a_stopped_process_is_seen_and_wakes(node: RemoteNode, daemon: Callable[..., str]) -> None:
    process = node.process(daemon("d.pid"))
    assert process is not None
    lease = stop_process(node, process, 60)
    assert process_state(node, process) == "T"
    lease.heal()
    assert process_state(node, process) == "S"
    lease = stop_process(node, process, 60)
    kill_process(node, process)
    lease.heal()
    assert process_state(node, process) in ("", "Z")
    with pytest.raises(InfraError, match="is gone"):
        stop_process(node, process, 60)


def test_a_killed_process_is_started_again_when_the_lease_ends(
    node: RemoteNode, daemon: Callable[..., str], tmp_path: Path
) -> None:
    pidfile = daemon("d.pid")
    process = node.process(pidfile)
    assert process is not None
    restart = spawn_argv(["sleep", "300"], env={}, log=str(tmp_path / "log"), pidfile=pidfile)
    lease = kill_and_restart(node, process, restart, 60)
    assert node.process(pidfile) is None
    lease.heal()
    later = node.process(pidfile)
    assert later not in (None, process)
    assert later is not None
    assert ignored_signals(later) == []


def test_the_page_cache_of_some_files_is_dropped(node: RemoteNode, tmp_path: Path) -> None:
    folder = tmp_path / "data dir"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a file").write_bytes(b"x" * 4_000_000)
    (folder / "empty").touch()
    dirs = [str(folder), str(tmp_path / "nothing")]
    assert cached_bytes(node, dirs) >= 4_000_000
    drop_file_cache(node, dirs)
    # On a file system that lives in memory there is nothing but cache, and it stays.
    kind = node.run(["stat", "-f", "-c", "%T", str(folder)]).text.strip()
    assert cached_bytes(node, dirs) == (4_001_792 if kind == "tmpfs" else 0)
    assert (folder / "sub" / "a file").read_bytes() == b"x" * 4_000_000
    assert cached_bytes(node, []) == 0


def test_nobody_is_cut_off_from_the_control_program(node: RemoteNode) -> None:
    assert control_address(node) == "127.0.0.1"
    for source, why in (
        ("127.0.0.1", "cannot be cut off"),
        ("127.0.0.77", "cannot be cut off"),
        ("x; drop", "not an IPv4"),
    ):
        with pytest.raises(InfraError, match=why):
            drop_packets(node, [source], 60)
    with pytest.raises(InfraError, match="no addresses"):
        drop_packets(node, [], 60)
    with pytest.raises(InfraError, match="not an IPv4"):
        send_probe(node, "n2")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_fetch_refuses_names_that_lead_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lies about what its folder holds writes nothing elsewhere."""
    node = object.__new__(RemoteNode)
    node.name = "n1"
    listed = SimpleNamespace(stdout=name.encode() + b"\0")
    monkeypatch.setattr(RemoteNode, "_run", lambda self, argv, **how: listed)
    with pytest.raises(InfraError, match=r"n1: /log contains the file .*, which is outside of it"):
        node.fetch("/log", tmp_path / "here")
    assert not (tmp_path / "up").exists()
