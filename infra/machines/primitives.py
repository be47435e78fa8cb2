"""Fault primitives: what can be done to a node's network, processes and page cache, and how to see that it was done.

Each returns a lease (or is over at once) and works on any `infra.machines.api.Node`; which node to hit and when is
`nemesis/`'s business. Everything here leaves alone what is not ours: packet rules live in nftables tables of our own,
and a process is named by pid and start time, so that a later process with its number is never hit.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from infra.machines.api import InfraError, Lease, Node, ProcessId
from infra.machines.node import PROCESS_OF

TABLE_PREFIX = "harness_"
"""All nftables tables of ours (family inet) start so, and nobody else's should."""

PROBE_PORT = 9
"""UDP port of the probes: `discard` (RFC 863)."""

_STOP = (
    PROCESS_OF
    + """
[ "$(started_of "$1")" = "$2" ] || { echo "process $1 is gone"; exit 1; }
kill -s STOP "$1" || exit 1
for i in $(seq 500); do     # 5 s: each thread stops only when it next leaves the kernel, the first one says nothing
    running=0
    for task in "/proc/$1"/task/*/stat; do
        read -r stat 2>/dev/null < "$task" || continue     # a thread that has ended meanwhile
        stat=${stat##*) }
        [ "${stat%% *}" = T ] || { running=1; break; }
    done
    [ "$running" = 0 ] && exit 0
    sleep 0.01
done
echo "process $1 did not stop"
exit 1
"""
)

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

_STATE = """
{ read -r stat < "/proc/$1/stat"; } 2>/dev/null || exit 0
started=$2
set -- ${stat##*) }         # field 3 of proc(5)'s stat and what follows; the start time is field 22
[ "${20}" = "$started" ] && echo "$1"
exit 0
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

_PROBE = 'printf harness > "/dev/udp/$1/$2"'

# Per file, so that only this node's pages go (/proc/sys/vm/drop_caches empties the whole machine's). dd's manual names
# this very use: `oflag=nocache` with `count=0` advises POSIX_FADV_DONTNEED for the whole file; fdatasync comes first,
# for dirty pages cannot be dropped.
_DROP_CACHE = """
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -type f -exec sh -c '
        for file; do
            dd of="$file" oflag=nocache conv=notrunc,nocreat,fdatasync count=0 status=none || [ ! -e "$file" ] || exit 1
        done' drop {} + || exit 1
done
"""

_CACHED = """
command -v fincore > /dev/null || { echo "no program fincore (Debian: util-linux-extra, or util-linux)" >&2; exit 127; }
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -type f -size +0c -exec fincore --bytes --noheadings --raw --output RES {} + 2>/dev/null
done
exit 0
"""


def drop_packets(node: Node, sources: Sequence[str], ttl_s: float) -> Lease:
    """Make the node deaf to what comes from these IPv4 addresses: one direction, established connections included.

    Dropped on arrival (hook `input`, priority -300: before connection tracking) and never on sending, where a program
    would see an error that no real network makes. A table per lease, so overlapping faults heal independently; the heal
    is one command that deletes just that table. Raises InfraError for an address that would cut the node off from us.
    """
    control = control_address(node)
    rules = []
    for source in dict.fromkeys(sources):
        address = _ipv4(source)
        if address.is_loopback or str(address) == control:
            raise InfraError(f"{node.name}: {source} is not to be cut off: the control program is reached through it")
        rules.append(str(address))
    if not rules:
        raise InfraError(f"{node.name}: no addresses to cut off")
    table = f"{TABLE_PREFIX}drop_{uuid4().hex[:8]}"
    # One command is one transaction: all of it or nothing.
    cut = "\n".join(
        [
            f"add table inet {table}",
            f"add chain inet {table} input {{ type filter hook input priority -300; policy accept; }}",
            *(f"add rule inet {table} input ip saddr {address} counter drop" for address in rules),
        ]
    )
    return node.lease([["nft", cut]], [delete_table_argv(table)], ttl_s=ttl_s)


def delete_table_argv(table: str) -> list[str]:
    """The argv that deletes a table of ours, whether it is there or not: the `add` makes it idempotent, atomically."""
    return ["nft", f"add table inet {table}\ndelete table inet {table}"]


def own_tables(node: Node) -> list[str]:
    """Names of our tables on the node; empty when no packet fault is held there."""
    found = _nft(node, "tables")
    return [table["name"] for table in (item.get("table") for item in found) if table and _ours(table, "name")]


def dropped(node: Node) -> dict[str, int]:
    """Packets dropped so far, per source address, over all faults now held on the node."""
    packets: Counter[str] = Counter()
    for item in _nft(node, "ruleset"):
        rule = item.get("rule")
        if not rule or not _ours(rule, "table"):
            continue
        source, count = "", 0
        for part in rule["expr"]:
            source = part["match"]["right"] if "match" in part else source
            count = part["counter"]["packets"] if "counter" in part else count
        packets[source] += count
    return dict(packets)


def send_probe(node: Node, to_address: str) -> None:
    """Send one UDP datagram from the node to another's discard port: something for a rule there to drop and count."""
    node.run(["bash", "-c", _PROBE, "probe", str(_ipv4(to_address)), str(PROBE_PORT)])


def control_address(node: Node) -> str:
    """Where the node sees this control program come from; empty when it does not say."""
    said = node.run(["printenv", "SSH_CONNECTION"], check=False).text.split()
    return said[0] if said else ""


def stop_process(node: Node, process: ProcessId, ttl_s: float) -> Lease:
    """SIGSTOP, and SIGCONT at the end. Raises InfraError when the process is gone.

    Returns when every thread is seen stopped: a server was seen to acknowledge an entry after `kill` had returned.
    """
    return node.lease([_argv(_STOP, "stop", process)], [_argv(_CONTINUE, "continue", process)], ttl_s=ttl_s)


def process_state(node: Node, process: ProcessId) -> str:
    """The letter of proc(5): `R`, `S`, `D` run or wait, `T` is stopped, `Z` is dead but not reaped; "" is gone."""
    return node.run(_argv(_STATE, "state", process)).text.strip()


def await_end(node: Node, processes: Sequence[ProcessId], within_s: float) -> list[ProcessId]:
    """Wait on the node until one of the processes has ended, at most so long: those that have. One command in all."""
    words = [str(word) for process in processes for word in (process.pid, process.started)]
    rounds = str(max(1, round(within_s)))
    said = node.run(["sh", "-c", _AWAIT_END, "await-end", rounds, *words], timeout_s=within_s + 30).text.split()
    return [process for process in processes if str(process.pid) in said]


def kill_process(node: Node, process: ProcessId) -> None:
    """SIGKILL, and wait until it is gone. Fine when it is gone already."""
    node.run(_argv(_KILL, "kill", process))


def kill_and_restart(node: Node, process: ProcessId, restart_argv: Sequence[str], ttl_s: float) -> Lease:
    """SIGKILL now; `restart_argv` when the lease ends, on the node itself.

    `restart_argv` must do nothing when the server runs (as `infra.machines.node.spawn_argv` with `once`), nor keep
    stdout open.
    """
    return node.lease([_argv(_KILL, "kill", process)], [list(restart_argv)], ttl_s=ttl_s)


def drop_file_cache(node: Node, dirs: Sequence[str]) -> None:
    """Write the folders' files to disk and drop their pages from the page cache, file by file; sub-folders too.

    Pages that a running process has mapped stay. Nothing is lost by this: the next reader only sees the disk again.
    """
    if dirs:
        node.run(["sh", "-c", _DROP_CACHE, "drop-cache", *dirs], timeout_s=120)


def cached_bytes(node: Node, dirs: Sequence[str]) -> int:
    """Bytes of the folders' files that lie in the page cache, by fincore (package util-linux-extra on Debian 12)."""
    if not dirs:
        return 0
    return sum(int(line) for line in node.run(["sh", "-c", _CACHED, "cached", *dirs], timeout_s=60).text.split())


def _argv(script: str, name: str, process: ProcessId) -> list[str]:
    return ["sh", "-c", script, name, str(process.pid), str(process.started)]


def _ipv4(text: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise InfraError(f"{text!r} is no IPv4 address") from error


def _nft(node: Node, what: str) -> list[Mapping[str, Any]]:
    said = node.run(["nft", "-j", "list", what, "inet"]).text
    listed: list[Mapping[str, Any]] = json.loads(said)["nftables"] if said.strip() else []
    return listed


def _ours(item: Mapping[str, Any], field: str) -> bool:
    return item["family"] == "inet" and str(item[field]).startswith(TABLE_PREFIX)
