"""A node reached over SSH: `infra.machines.api.Node` for every backend.

Commands are argv lists from end to end. sshd's `exec` takes one string and gives it to the user's login shell, so
there is exactly one place where a list becomes a string (`command_line`), by `shlex.join`; the scripts in this module
are constants and get all values as arguments.
"""

from __future__ import annotations

import posixpath
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakSet

import paramiko

from infra.machines.api import CommandFailed, Completed, InfraError, Lease, NodeUnreachable, ProcessId, shown
from infra.machines.control_log import ControlLog
from infra.machines.remote.ssh import CAP, Connection, Outcome, shut

if TYPE_CHECKING:
    from infra.machines.lease import SshLease

_KILL_AFTER_S = 2
"""What a command that outlived its deadline gets between SIGTERM and SIGKILL."""
_GRACE_S = 4
"""How much longer than the node itself we wait for the end of a command, for the way there and back."""
_LONGEST_LINE = (128 << 10) - 64
"""Linux' limit for one argument (MAX_ARG_STRLEN), and the whole line is one argument of the login shell; less what
`infra.machines.remote.ssh` puts around it.
"""

PROCESS_OF = """
started_of() {  # start time (clock ticks since boot) of a process that runs; field 22 of proc(5)'s stat
    local stat
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 1
    set -- ${stat##*) }     # the name in parentheses may hold anything; what follows it is field 3
    case $1 in Z|X|x) return 1 ;; esac
    shift 19
    printf '%s' "$1"
}
"""
"""Shell function shared by the scripts here and in `infra.machines.primitives`."""

_WRITE = """
mkdir -p -- "$(dirname -- "$1")" && cat > "$2" || exit 1
if [ "$(stat -c %s -- "$2")" != "$4" ]; then
    rm -f -- "$2"
    echo "only a part of the file arrived" >&2
    exit 1
fi
chmod -- "$3" "$2" && mv -fT -- "$2" "$1"
"""

_SPAWN = (
    PROCESS_OF
    + """
daemon=$1 once=$2 log=$3 pidfile=$4
shift 4
if [ "$once" = once ] && read -r pid started 2>/dev/null < "$pidfile" &&
    [ -n "$started" ] && [ "$(started_of "$pid")" = "$started" ]; then
    echo "$pid $started"
    exit 0
fi
command -v "$1" > /dev/null || { echo "no program $1" >&2; exit 127; }
mkdir -p -- "$(dirname -- "$log")" "$(dirname -- "$pidfile")" || exit 1
# The substitution ends when the last holder of its pipe is gone: that is when the daemon's exec redirects stdout.
# So the pid file is whole when this script ends, and stays right, for exec keeps both pid and start time.
line=$(setsid --fork sh -c "$daemon" sh "$log" "$pidfile" "$@")
[ -n "$line" ] && echo "$line"
"""
)

_DAEMON = (
    PROCESS_OF
    + r"""
log=$1 pidfile=$2
shift 2
line="$$ $(started_of $$)"
printf '%s\n' "$line" > "$pidfile.new" && mv -fT -- "$pidfile.new" "$pidfile" || exit 1
cd -- "$(dirname -- "$log")" || exit 1      # what the daemon leaves in its folder (a core, hs_err) lies by its log
printf '%s\n' "$line"
# A shell cannot undo what was ignored before it began (an sshd under nohup, say); coreutils' env (8.31 or newer) can.
exec env --default-signal "$@" < /dev/null >> "$log" 2>&1
"""
)

_RUNNING = (
    PROCESS_OF
    + """
read -r pid started 2>/dev/null < "$1" && [ -n "$started" ] && [ "$(started_of "$pid")" = "$started" ] || exit 0
echo "$pid $started"
"""
)

_LIST = r"""[ -d "$1" ] || exit 0; cd -- "$1" && find . -type f -printf '%P\0'"""


def command_line(argv: Sequence[str]) -> bytes:
    """The argv as one line for a POSIX shell, which takes it apart into the same words again.

    Words may hold any character but NUL; undecodable bytes of file names may be there as surrogates.
    """
    if not argv:
        raise ValueError("an empty command")
    if any("\0" in word for word in argv):
        raise ValueError(f"a command cannot hold a NUL character: {list(argv)!r}")
    return shlex.join(argv).encode("utf-8", "surrogateescape")


def spawn_argv(argv: Sequence[str], *, env: Mapping[str, str], log: str, pidfile: str, once: bool = True) -> list[str]:
    """The argv that starts a daemon on the node it runs on; see `infra.machines.api.Node.spawn`. For leases, whose undo
    runs without the control program.

    It prints `PID START` and ends once the daemon's program is entered. The environment is the caller's plus `env`;
    the daemon's working folder is its log's. With `once`, a daemon of this pid file that still runs is left alone
    and told instead, so the command may be repeated.
    """
    for name in env:
        if not name or "=" in name:
            raise ValueError(f"no name of an environment variable: {name!r}")
    assignments = [f"{name}={value}" for name, value in env.items()]
    script = ["sh", "-c", _SPAWN, "spawn", _DAEMON, "once" if once else "always", log, pidfile, *argv]
    return ["env", *assignments, *script] if assignments else script


class SshNode:
    """One machine over one SSH connection; implements `infra.machines.api.Node`. Thread-safe.

    name, address  as the other nodes know it (IPv4).
    host, port     where SSH connects to; `host` defaults to `address`.
    client_key     logs in as `user`.
    host_key       the node's pinned key; None: the user's known hosts decide, and an unknown key is refused.
    control_log    every command is noted there.
    sudo           commands run through `sudo -n` (a user who is not root).
    run_id         stands in the command lines of leases' guards, so that those of a run can be found on the node.

    Connects when first used, and anew when the connection turns out dead before a command was sent; a command that
    may have run is never sent again.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        host: str | None = None,
        port: int = 22,
        user: str = "root",
        client_key: paramiko.PKey,
        host_key: paramiko.PKey | None,
        control_log: ControlLog | None = None,
        sudo: bool = False,
        run_id: str = "",
    ) -> None:
        self.name, self.address, self.run_id = name, address, run_id
        self.connection = Connection(name, host or address, port, user, client_key, host_key)
        self._log = control_log or ControlLog(None)
        self._sudo = sudo
        self._leases: WeakSet[SshLease] = WeakSet()
        self._leases_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SshNode({self.name}, {self.connection.where})"

    def wait_reachable(self, timeout_s: float = 20) -> None:
        """Connect, trying again while the machine still boots. Raises the last NodeUnreachable at the deadline."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                self.connection.connect(max(0.1, min(left, 10)))
                return
            except NodeUnreachable:
                if left <= 0.1:
                    raise
                time.sleep(min(0.1, left))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30, check: bool = True) -> Completed:
        """See `infra.machines.api.Node.run`. Code -1: ended by a signal (with stdin: 128 + its number)."""
        return self._run(argv, stdin=stdin, timeout_s=timeout_s, check=check)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """See `infra.machines.api.Node.write`. A connection that breaks half-way leaves the old file as it was."""
        fresh = f"{path}.{uuid4().hex[:8]}.new"
        timeout_s = 30 + len(data) / (1 << 20)  # a slow line moves 1 MiB/s
        self.run(
            ["sh", "-c", _WRITE, "write", path, fresh, f"{mode:o}", str(len(data))], stdin=data, timeout_s=timeout_s
        )

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        """The whole file. Raises CommandFailed when it cannot be read, InfraError when it is longer than `limit`."""
        argv = ["head", "-c", str(limit + 1), "--", path]
        data = self._run(argv, timeout_s=30 + limit / (1 << 20), cap=limit + 1).stdout
        if len(data) > limit:
            raise InfraError(f"{self.name}: {path} is longer than {limit} bytes")
        return data

    def fetch(self, remote_dir: str, local_dir: Path, limit: int = 256 << 20) -> list[Path]:
        """See `infra.machines.api.Node.fetch`: the paths written here, sorted. No such folder there: none. Links stay
        out.
        """
        names = self._run(["sh", "-c", _LIST, "list", remote_dir], cap=64 << 20).stdout.split(b"\0")
        fetched: list[Path] = []
        for name in sorted(n.decode("utf-8", "surrogateescape") for n in names if n):
            target = local_dir / name
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise InfraError(f"{self.name}: {remote_dir} holds a file called {name!r}, which leads out of it")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                argv = ["tail", "-c", str(limit), "--", posixpath.join(remote_dir, name)]
                done = self._run(argv, timeout_s=30 + limit / (1 << 20), check=False, sink=file.write)
            if done.code == 0:
                fetched.append(target)
            else:  # gone since it was listed: a rotated log
                target.unlink()
        return fetched

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: str, pidfile: str) -> ProcessId:
        """See `infra.machines.api.Node.spawn` and `spawn_argv`. Raises CommandFailed when there is no such program."""
        command_line(argv)  # an empty or impossible command is the caller's mistake: said here, not on the node
        done = self.run(spawn_argv(argv, env=env, log=log, pidfile=pidfile, once=False))
        started = _process_id(done.text)
        if started is None:
            raise CommandFailed(self.name, done)
        return started

    def process(self, pidfile: str) -> ProcessId | None:
        """See `Node.process`: None also for a zombie, and for a later process with the same number."""
        return _process_id(self.run(["sh", "-c", _RUNNING, "process", pidfile]).text)

    def lease(self, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float) -> Lease:
        """See `infra.machines.api.Node.lease`, and `infra.machines.lease` for how it is held."""
        from infra.machines.lease import SshLease  # it stands on this module

        lease = SshLease.take(self, inject, undo, ttl_s=ttl_s)
        with self._leases_lock:
            self._leases.add(lease)
        return lease

    def heal_leases(self, timeout_s: float = 30) -> None:
        """Heal every lease taken here and still held by somebody; those healed already cost nothing. Raises InfraError
        with the first failure, after having tried all.
        """
        failures: list[InfraError] = []
        with self._leases_lock:
            held = list(self._leases)
        for lease in held:
            try:
                lease.heal(timeout_s)
            except InfraError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close the connection; leases still held end with it."""
        self.connection.close()

    def start(self, argv: Sequence[str], timeout_s: float = 30) -> paramiko.Channel:
        """Start a command whose channel the caller keeps, feeds and closes. It has no deadline on the node: the
        caller sees to it that it ends (a lease's guard ends by itself).
        """
        channel = self.connection.open_channel(timeout_s)
        try:
            self.connection.start(channel, b"exec " + self._line(argv, None), timeout_s)
        except NodeUnreachable:
            shut(channel)
            raise
        return channel

    def note(self, argv: Sequence[str], *, code: int | None, ms: float, note: str | None = None) -> None:
        """Note something in the control log that did not go through `run`."""
        self._log.note(self.name, argv, code=code, ms=ms, note=note)

    def _run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 30,
        check: bool = True,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> Completed:
        if timeout_s <= 0:
            raise ValueError(f"a command's deadline must be above 0 s, not {timeout_s}")
        line = self._line(argv, timeout_s)
        start = time.monotonic()
        try:
            outcome = self.connection.execute(
                line, stdin=stdin, deadline_s=timeout_s + _KILL_AFTER_S + _GRACE_S, cap=cap, sink=sink
            )
        except InfraError as error:
            ms = (time.monotonic() - start) * 1000
            self._log.note(self.name, argv, code=None, ms=ms, stdin=len(stdin), note=str(error))
            if isinstance(error, NodeUnreachable):
                raise NodeUnreachable(f"{error} ({shown(argv)}, deadline {timeout_s:g} s)") from error
            raise
        ms = (time.monotonic() - start) * 1000
        # `timeout` says 124, or dies of its own SIGKILL; a command may say the same of itself, but sooner.
        late = ms >= timeout_s * 1000 and outcome.code in (124, 128 + 9, -1)
        self._note(argv, outcome, ms, len(stdin), "ended at its deadline" if late else None)
        if late:
            raise NodeUnreachable(f"{self.name}: {shown(argv)} did not end within {timeout_s:g} s and was ended")
        done = Completed(tuple(argv), outcome.code, outcome.stdout, outcome.stderr, ms, outcome.truncated)
        if check and done.code != 0:
            raise CommandFailed(self.name, done)
        return done

    def _note(self, argv: Sequence[str], outcome: Outcome, ms: float, stdin: int, note: str | None) -> None:
        out, err = len(outcome.stdout), len(outcome.stderr)
        self._log.note(self.name, argv, code=outcome.code, ms=ms, stdin=stdin, stdout=out, stderr=err, note=note)

    def _line(self, argv: Sequence[str], timeout_s: float | None) -> bytes:
        """The whole line for sshd. `timeout` runs the command in a process group of its own and ends all of it."""
        line = command_line(argv)
        if timeout_s is not None:
            line = f"timeout -k {_KILL_AFTER_S} {timeout_s:.3f} ".encode() + line
        if self._sudo:
            # sudo drops the environment; where we come from is asked for before a network is cut
            # (infra.machines.primitives).
            line = b'sudo -n -- env "SSH_CONNECTION=$SSH_CONNECTION" ' + line
        if len(line) >= _LONGEST_LINE:
            raise InfraError(
                f"{self.name}: a command of {len(line)} bytes is too long (limit {_LONGEST_LINE}); pass data by stdin"
            )
        return line


def _process_id(text: str) -> ProcessId | None:
    words = text.split()
    return ProcessId(int(words[0]), int(words[1])) if len(words) == 2 else None
