# SPDX-License-Identifier: Apache-2.0
"""Processes: stops, continues and kills them, and probes the effect.

A process is named by pid and start time, so a later process with the same number is never hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import uuid4

from infra.machines import scripts
from infra.machines.api import Lease, Node, ProcessId
from infra.machines.node import PROCESS_OF
from infra.machines.pressure import HOME

_STOP_ALL = """
is_stopped() {  # whether the process is stopped, by its first thread
    local stat
    read -r stat 2>/dev/null < "/proc/$1/stat" || return 1
    stat=${stat##*) }
    [ "${stat%% *}" = T ]
}

stop_all() {    # SIGSTOP; true when every thread is seen stopped
    local i running task stat
    kill -s STOP "$1" || return 1
    for i in $(seq 500); do     # 5 s: each thread stops only when it next leaves the kernel, the first one says nothing
        running=0
        for task in "/proc/$1"/task/*/stat; do
            read -r stat 2>/dev/null < "$task" || continue     # a thread that has ended meanwhile
            stat=${stat##*) }
            [ "${stat%% *}" = T ] || { running=1; break; }
        done
        [ "$running" = 0 ] && return 0
        sleep 0.01
    done
    return 1
}
"""

_STOP = (
    PROCESS_OF
    + _STOP_ALL
    + """
[ "$(started_of "$1")" = "$2" ] || { echo "process $1 is gone"; exit 1; }
stop_all "$1" && exit 0
echo "process $1 did not stop"
exit 1
"""
)

_PAUSES = PROCESS_OF + scripts.text("loop.sh") + _STOP_ALL + scripts.text("pauses.sh")

_CONTINUE = (
    PROCESS_OF
    + """
[ "$(started_of "$1")" = "$2" ] || exit 0   # gone: nothing to wake
kill -s CONT "$1"
"""
)

_KILL = (
    PROCESS_OF
    + """
for i in $(seq 1000); do    # 10 s: a process with much memory, or in the midst of a disk write, takes a while to go
    [ "$(started_of "$1")" = "$2" ] || exit 0
    [ "$i" -gt 1 ] || kill -s KILL "$1" || exit 1
    sleep 0.01
done
echo "process $1 outlived SIGKILL"
exit 1
"""
)

_END = (
    PROCESS_OF
    + """
for i in $(seq "$(($3 * 10))"); do
    [ "$(started_of "$1")" = "$2" ] || exit 0
    [ "$i" -gt 1 ] || kill -s TERM "$1" || exit 1
    sleep 0.1
done
"""
    + _KILL
)

_KILL_NOTED = (
    """
read -r pid started 2>/dev/null < "$1" && [ -n "$started" ] || exit 0
set -- "$pid" "$started"
"""
    + _KILL
)

_STATE = """
{ read -r stat < "/proc/$1/stat"; } 2>/dev/null || exit 0
started=$2
set -- ${stat##*) }         # field 3 of proc(5)'s stat and what follows; the start time is field 22
[ "${20}" = "$started" ] && echo "$1"
exit 0
"""

_AGAIN = """
host=$1 port=$2 pause=$3
shift 3
for i in $(seq 15); do
    sleep "$pause"
    (exec 3<> "/dev/tcp/$host/$port") 2> /dev/null && exit
    "$@"
done
"""

_UNTIL_IT_LISTENS = """
again=$1
shift
setsid --fork bash --norc -c "$again" until-it-listens "$@" > /dev/null 2>&1 < /dev/null
shift 3
exec "$@"
"""

_AWAIT_END = (
    PROCESS_OF
    + """
rounds=$1
shift
for i in $(seq "$rounds"); do
    ended= pid=
    for word; do    # pairs of pid and start time
        [ -n "$pid" ] || { pid=$word; continue; }
        [ "$(started_of "$pid")" = "$word" ] || ended="$ended $pid"
        pid=
    done
    [ -z "$ended" ] || break
    sleep 1
done
echo $ended
"""
)


def stop_process(node: Node, process: ProcessId, ttl_s: float) -> Lease:
    """Sends SIGSTOP, and SIGCONT at the end. Raises InfraError if the process is gone.

    Returns once every thread is seen stopped: a server was seen to acknowledge an entry after `kill` had returned.
    """
    return node.lease([_argv(_STOP, "stop", process)], [_argv(_CONTINUE, "continue", process)], ttl_s=ttl_s)


@dataclass(frozen=True)
class Pauses:
    """Pauses of a process that a lease repeats. folder: their notes on the node."""

    folder: str
    lease: Lease


def pause_repeatedly(node: Node, process: ProcessId, lengths: Sequence[tuple[float, float]], ttl_s: float) -> Pauses:
    """Stops and continues the process repeatedly until the lease ends; the first pause begins now.

    lengths  of a pause and of the time behind it, in seconds; repeated from the first pair. Raises InfraError if the
    process is gone. A process that another fault has stopped is left alone.
    """
    folder = f"{HOME}/pauses/{uuid4().hex[:8]}"
    about = [str(process.pid), str(process.started)]
    times = [str(round(s * 1000)) for pair in lengths for s in pair]
    script = ["bash", "--norc", "-c", _PAUSES, "pauses"]
    inject = [*script, "hold", folder, str(ceil(ttl_s)), *about, *times]
    return Pauses(folder, node.lease([inject], [[*script, "end", folder, *about]], ttl_s=ttl_s))


def pauses_s(node: Node, pauses: Pauses) -> list[float]:
    """The length of each finished pause in seconds; in a pause every thread was seen stopped."""
    return [int(line) / 1000 for line in node.run(["cat", f"{pauses.folder}/log"], check=False).text.split()]


def process_state(node: Node, process: ProcessId) -> str:
    """The letter of proc(5): `R`, `S`, `D` run or wait, `T` is stopped, `Z` is dead but not reaped; "" is gone."""
    return node.run(_argv(_STATE, "state", process)).text.strip()


def await_end(node: Node, processes: Sequence[ProcessId], within_s: float) -> list[ProcessId]:
    """Waits on the node, by one command, until a process has ended, at most so long. Returns those that have."""
    words = [str(word) for process in processes for word in (process.pid, process.started)]
    rounds = str(max(1, round(within_s)))
    output = node.run(["sh", "-c", _AWAIT_END, "await-end", rounds, *words], timeout_s=within_s + 30).text.split()
    return [process for process in processes if str(process.pid) in output]


def kill_process(node: Node, process: ProcessId) -> None:
    """Sends SIGKILL, and waits until the process is gone. It may be gone already."""
    node.run(kill_argv(process))


def kill_argv(process: ProcessId) -> list[str]:
    """The argv that does the same, for leases of several commands."""
    return _argv(_KILL, "kill", process)


def end_argv(process: ProcessId, grace_s: int) -> list[str]:
    """The argv of SIGTERM, and of SIGKILL after `grace_s`, for leases of several commands."""
    return [*_argv(_END, "end", process), str(grace_s)]


def kill_noted_argv(pidfile: str) -> list[str]:
    """The same for the process that a pid file (`Node.spawn`) names when the command runs."""
    return ["sh", "-c", _KILL_NOTED, "kill-noted", pidfile]


def until_it_listens(endpoint: tuple[str, int], argv: Sequence[str], pause_s: float = 2.0) -> list[str]:
    """The argv that starts a server by `argv`, and again up to 15 times, after a pause each, until its port listens: as
    an init system does with a server that ends at its start. For leases: it does not wait. `argv` must do nothing if
    the server runs.
    """
    host, port = endpoint
    again = [_AGAIN, host, str(port), str(pause_s)]
    return ["bash", "--norc", "-c", _UNTIL_IT_LISTENS, "until-it-listens", *again, *argv]


def end_and_restart(node: Node, process: ProcessId, grace_s: int, restart_argv: Sequence[str], ttl_s: float) -> Lease:
    """Sends SIGTERM now, SIGKILL after `grace_s` (at most 40: one command of a lease must end within a minute); then as
    `kill_and_restart`.
    """
    return node.lease([end_argv(process, grace_s)], [list(restart_argv)], ttl_s=ttl_s)


def kill_and_restart(node: Node, process: ProcessId, restart_argv: Sequence[str], ttl_s: float) -> Lease:
    """Sends SIGKILL now; runs `restart_argv` when the lease ends, on the node itself.

    `restart_argv` must do nothing if the server runs (as `infra.machines.node.spawn_argv` with `once`), nor keep
    stdout open.
    """
    return node.lease([kill_argv(process)], [list(restart_argv)], ttl_s=ttl_s)


def _argv(script: str, name: str, process: ProcessId) -> list[str]:
    return ["sh", "-c", script, name, str(process.pid), str(process.started)]
