# SPDX-License-Identifier: Apache-2.0
"""A node: `infra.machines.api.Node` on any way to a machine (`infra.machines.remote`).

Commands are argv lists from end to end; the scripts in this module are constants and get all values as arguments.
"""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from uuid import uuid4
from weakref import WeakSet

from infra.machines.api import CommandFailed, Completed, InfraError, Lease, NodeUnreachable, ProcessId, shown
from infra.machines.control_log import ControlLog
from infra.machines.lease import GuardedLease
from infra.machines.remote.api import CAP, ExecResult, Remote, Stream

_KILL_AFTER_S = 2
"""The time that a command past its deadline gets between SIGTERM and SIGKILL."""
_GRACE_S = 4
"""The time that the caller waits longer than the node for the end of a command, for the way there and back."""

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

_PARTS = r"""
set -e
size=$(wc -c < "$1")
[ "$size" -gt "$2" ] || exec cat -- "$1"
head -c "$(($2 / 4))" -- "$1"
printf '\n(%s bytes are left out here)\n' "$((size - $2))"
tail -c "$(($2 - $2 / 4))" -- "$1"
"""
"""Shell: prints a file; of a longer one the first quarter of so many bytes, and the rest of them from its end."""


def check_argv(argv: Sequence[str]) -> None:
    """Raises ValueError for an invalid command."""
    if not argv:
        raise ValueError("an empty command")
    if any("\0" in word for word in argv):
        raise ValueError(f"a command cannot hold a NUL character: {list(argv)!r}")


def spawn_argv(argv: Sequence[str], *, env: Mapping[str, str], log: str, pidfile: str, once: bool = True) -> list[str]:
    """The argv that starts a daemon on the node it runs on; see `infra.machines.api.Node.spawn`. For leases, whose undo
    runs without the control program.

    It prints `PID START` and ends once the daemon's program is entered. The environment is the caller's plus `env`;
    the daemon's working folder is its log's. With `once`, a daemon of this pid file that still runs is left alone
    and printed instead, so the command may be repeated.
    """
    for name in env:
        if not name or "=" in name:
            raise ValueError(f"not the name of an environment variable: {name!r}")
    assignments = [f"{name}={value}" for name, value in env.items()]
    script = ["sh", "-c", _SPAWN, "spawn", _DAEMON, "once" if once else "always", log, pidfile, *argv]
    return ["env", *assignments, *script] if assignments else script


class RemoteNode:
    """One machine; implements `infra.machines.api.Node`. Thread-safe.

    name, address  for the other nodes (IPv4).
    remote         the way to the machine.
    control_log    every command is noted there.
    run_id         is in the command lines of leases' guards, so that those of a run can be found on the node.
    """

    def __init__(
        self, name: str, address: str, remote: Remote, *, control_log: ControlLog | None = None, run_id: str = ""
    ) -> None:
        self.name, self.address, self.remote, self.run_id = name, address, remote, run_id
        self._log = control_log or ControlLog(None)
        self._leases: WeakSet[GuardedLease] = WeakSet()
        self._leases_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RemoteNode({self.name}, {self.remote.where})"

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30, check: bool = True) -> Completed:
        """See `infra.machines.api.Node.run`. Code -1: ended by a signal (with stdin: 128 + its number)."""
        return self._run(argv, stdin=stdin, timeout_s=timeout_s, check=check)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """See `infra.machines.api.Node.write`. A connection that breaks half-way leaves the old file unchanged."""
        fresh = f"{path}.{uuid4().hex[:8]}.new"
        timeout_s = 30 + len(data) / (1 << 20)  # a slow line moves 1 MiB/s
        self.run(
            ["sh", "-c", _WRITE, "write", path, fresh, f"{mode:o}", str(len(data))], stdin=data, timeout_s=timeout_s
        )

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        """The whole file. Raises CommandFailed if it is unreadable, InfraError if it is longer than `limit`."""
        argv = ["head", "-c", str(limit + 1), "--", path]
        data = self._run(argv, timeout_s=30 + limit / (1 << 20), cap=limit + 1).stdout
        if len(data) > limit:
            raise InfraError(f"{self.name}: {path} is longer than {limit} bytes")
        return data

    def fetch(self, remote_dir: str, local_dir: Path, limit: int = 256 << 20) -> list[Path]:
        """See `infra.machines.api.Node.fetch`. Returns the paths written here, sorted; none if the folder does not
        exist. Links are left out.
        """
        names = self._run(["sh", "-c", _LIST, "list", remote_dir], cap=64 << 20).stdout.split(b"\0")
        fetched: list[Path] = []
        for name in sorted(n.decode("utf-8", "surrogateescape") for n in names if n):
            target = local_dir / name
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise InfraError(f"{self.name}: {remote_dir} contains the file {name!r}, which is outside of it")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                argv = ["sh", "-c", _PARTS, "parts", posixpath.join(remote_dir, name), str(limit)]
                done = self._run(argv, timeout_s=30 + limit / (1 << 20), check=False, sink=file.write)
            if done.code == 0:
                fetched.append(target)
            else:  # gone since it was listed: a rotated log
                target.unlink()
        return fetched

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: str, pidfile: str) -> ProcessId:
        """See `infra.machines.api.Node.spawn` and `spawn_argv`. Raises CommandFailed if the program does not exist."""
        check_argv(argv)  # an empty or impossible command is the caller's mistake: reported here, not on the node
        done = self.run(spawn_argv(argv, env=env, log=log, pidfile=pidfile, once=False))
        started = _process_id(done.text)
        if started is None:
            raise CommandFailed(self.name, done)
        return started

    def process(self, pidfile: str) -> ProcessId | None:
        """See `Node.process`: None also for a zombie, and for a later process with the same number."""
        return _process_id(self.run(["sh", "-c", _RUNNING, "process", pidfile]).text)

    def lease(self, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float) -> Lease:
        """See `infra.machines.api.Node.lease`, and `infra.machines.lease` for the mechanism."""
        for argv in (*inject, *undo):
            check_argv(argv)  # before anything is injected
        lease = GuardedLease.take(self, inject, undo, ttl_s=ttl_s)
        with self._leases_lock:
            self._leases.add(lease)
        return lease

    def heal_leases(self, timeout_s: float = 30) -> None:
        """Heals every lease that was taken here and is still held; healed ones cost nothing. Raises InfraError with the
        first failure, after having tried all.
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
        """Closes the way to the machine; leases that are still held end with it."""
        self.remote.close()

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        """Starts a command that the caller keeps. It has no deadline on the node: the caller must end it (a lease's
        guard ends by itself).
        """
        return self.remote.open(argv, timeout_s)

    def note(self, argv: Sequence[str], *, code: int | None, ms: float, note: str | None = None) -> None:
        """Adds a command to the control log that did not go through `run`."""
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
        check_argv(argv)
        # `timeout` runs the command in a process group of its own and ends all of it.
        limited = ["timeout", "-k", str(_KILL_AFTER_S), f"{timeout_s:.3f}", *argv]
        deadline_s = timeout_s + _KILL_AFTER_S + _GRACE_S
        start = time.monotonic()
        try:
            outcome = self.remote.execute(limited, stdin=stdin, deadline_s=deadline_s, cap=cap, sink=sink)
        except InfraError as error:
            ms = (time.monotonic() - start) * 1000
            self._log.note(self.name, argv, code=None, ms=ms, stdin=len(stdin), note=str(error))
            if isinstance(error, NodeUnreachable):
                raise NodeUnreachable(f"{error} ({shown(argv)}, deadline {timeout_s:g} s)") from error
            raise
        ms = (time.monotonic() - start) * 1000
        # `timeout` returns 124, or dies of its own SIGKILL; a command may end in the same way, but sooner.
        late = ms >= timeout_s * 1000 and outcome.code in (124, 128 + 9, -1)
        self._note(argv, outcome, ms, len(stdin), "ended at its deadline" if late else None)
        if late:
            raise NodeUnreachable(f"{self.name}: {shown(argv)} did not end within {timeout_s:g} s and was ended")
        done = Completed(tuple(argv), outcome.code, outcome.stdout, outcome.stderr, ms, outcome.truncated)
        if check and done.code != 0:
            raise CommandFailed(self.name, done)
        return done

    def _note(self, argv: Sequence[str], outcome: ExecResult, ms: float, stdin: int, note: str | None) -> None:
        out, err = len(outcome.stdout), len(outcome.stderr)
        self._log.note(self.name, argv, code=outcome.code, ms=ms, stdin=stdin, stdout=out, stderr=err, note=note)


def _process_id(text: str) -> ProcessId | None:
    words = text.split()
    return ProcessId(int(words[0]), int(words[1])) if len(words) == 2 else None
