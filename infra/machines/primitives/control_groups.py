# SPDX-License-Identifier: Apache-2.0
"""Control groups: limits the processor time or the memory of some processes of a node, and reads the kernel's counters.

The processes move into a group that is made for the strike, and back at its end. Their children are born there. Control
groups are managed on the node's host (`infra.machines.api.NodeHost`), so a node needs no rights. Versions 1 and 2 work.
If two strikes hit the same process, it is in the group of the later one until this ends, and then in the other's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import uuid4

from infra.machines import scripts
from infra.machines.api import CommandFailed, InfraError, Lease, Node, NodeHost
from infra.machines.ownership import digest

Controller = Literal["cpu", "memory"]

PERIOD_US: Final = 100_000
"""The kernel's own period of a quota."""

_SCRIPT: Final = scripts.text("control_group.sh")
_PREFIX: Final = "harness-"
"""The names of all groups of strikes begin so: `harness-RUN-CONTROLLER-ID@ORIGIN`, ORIGIN being the name of the group
beside it to which its processes return; empty: the root.
"""

_BURN: Final = """
read -r up _ < /proc/uptime
end=$((10#${up/./} + $1))       # hundredths of a second
while ((10#${up/./} < end)); do read -r up _ < /proc/uptime; done
"""

# `now` is the machine's time (s), `ran` the nanoseconds that the threads of the group's processes ran.
_COUNTERS: Final = """
cd -- "$1" || exit 1
shift
read -r up _ < /proc/uptime
echo "now $up"
ran=0
while read -r pid; do
    echo "pid $pid"
    for file in /proc/"$pid"/task/*/schedstat; do read -r ns _ 2>/dev/null < "$file" && ran=$((ran + ns)); done
done < cgroup.procs
echo "ran $ran"
for file; do
    while read -r name value; do
        if [ -n "$value" ]; then echo "$file.$name $value"; else echo "$file $name"; fi
    done < "$file"
done
"""

_CLEAN: Final = """
for i in $(seq 100); do     # 5 s: the last processes may just be ending
    left=$(find /sys/fs/cgroup -depth -type d -name "$1" ! -exec rmdir {} \\; -print 2>/dev/null)
    [ -n "$left" ] || exit 0
    sleep 0.05
done
echo "these control groups have processes still: $left"
exit 1
"""

_READ_THROUGH: Final = """
rm -f -- "$1" && truncate -s "$2" -- "$1" && cat -- "$1" > /dev/null && fincore --bytes --noheadings --raw -o RES "$1"
rm -f -- "$1"
"""


@dataclass(frozen=True)
class Group:
    """A strike's group, made or to be made.

    path     below `mount`. origin: the group of its processes otherwise.
    returns  host's pid -> the group in which the process is now.
    """

    controller: Controller
    version: int
    mount: str
    path: str
    origin: str
    returns: Mapping[int, str]

    @property
    def folder(self) -> str:
        return self.mount + self.path


@dataclass(frozen=True)
class Counters:
    """The kernel's counters of a group.

    at_s       the host's time since its boot. ran_s: processor time of the processes that are in it now.
    processes  host's pids. values: `FILE.NAME`, or `FILE` -> number, of the group's files.
    """

    at_s: float
    ran_s: float
    processes: Sequence[int]
    values: Mapping[str, int]

    @property
    def throttled(self) -> int:
        """Periods in which the quota was used up before their end."""
        return self.values.get("cpu.stat.nr_throttled", 0)

    @property
    def memory(self) -> int:
        """Bytes that are charged to the group."""
        return self.values.get("memory.usage_in_bytes", 0) or self.values.get("memory.current", 0)

    @property
    def refused(self) -> int:
        """The number of times that the limit of the memory was reached."""
        return self.values.get("memory.failcnt", 0) or self.values.get("memory.events.high", 0)


def group_for(host: NodeHost, controller: Controller, pids: Sequence[int], run_id: str) -> Group:
    """A new group for these processes of the node (by its count), beside their own. Raises InfraError without a host
    that has the controller, or if none of the processes is there.
    """
    namespace = "-" if host.pid is None else str(host.pid)
    try:
        found = host.node.run(_argv("find", controller, namespace, *map(str, pids))).text.splitlines()
    except CommandFailed as failed:
        raise InfraError(failed.result.text.strip() or str(failed)) from None
    version, mount = found[0].split(" ", 1)
    returns = {int(pid): path for pid, path in (line.split(" ", 1) for line in found[1:])}
    if not returns:
        raise InfraError(f"{host.node.name}: none of the processes is there")
    parent, own = posixpath.split(next(iter(returns.values())))
    origin = own.partition("@")[2] if own.startswith(_PREFIX) else own
    name = f"{_PREFIX}{digest(run_id)[:8]}-{controller}-{uuid4().hex[:8]}@{origin}"
    return Group(controller, int(version), mount, posixpath.join(parent, name), posixpath.join(parent, origin), returns)


def hold(host: NodeHost, group: Group, limit: int, ttl_s: float) -> Lease:
    """Makes the group and moves its processes there until the lease ends.

    limit  of `cpu`: percent of one processor. Of `memory`: bytes of what is charged to the group from now on; beyond
           them the kernel reclaims, and a process that finds nothing to reclaim waits. None is killed.
    """
    where = [str(group.version), group.mount, group.path]
    moved = [str(pid) for pid in group.returns]
    back = [f"{pid}={path}" for pid, path in group.returns.items()]
    inject = _argv("hold", *where, *_limits(group, limit), "--", *moved)
    undo = _argv("end", *where, group.origin, *_limits(group, None), "--", *back)
    return host.node.lease([inject], [undo], ttl_s=ttl_s)


def counters(host: NodeHost, group: Group) -> Counters:
    """The counters of a group. Raises InfraError if it is gone."""
    names = {"cpu": ["cpu.stat"], "memory": ["memory.usage_in_bytes", "memory.failcnt"]}[group.controller]
    if group.version == 2:
        names = {"cpu": ["cpu.stat"], "memory": ["memory.current", "memory.events"]}[group.controller]
    values: dict[str, int] = {}
    pids: list[int] = []
    at = ran = 0.0
    for line in host.node.run(["bash", "--norc", "-c", _COUNTERS, "counters", group.folder, *names]).text.splitlines():
        match line.split():
            case ["now", text]:
                at = float(text)
            case ["pid", text]:
                pids.append(int(text))
            case ["ran", text]:
                ran = int(text) / 1e9
            case [name, value]:
                values[name] = int(value)
    return Counters(at, ran, pids, values)


def exists(host: NodeHost, group: Group) -> bool:
    """True if the group exists."""
    return host.node.run(["test", "-d", group.folder], check=False).code == 0


def burn(host: NodeHost, group: Group, for_s: float) -> None:
    """Runs a busy process in the group for some seconds: it uses all of a processor, and so shows the quota if the
    servers need little.
    """
    work = ["bash", "--norc", "-c", _BURN, "burn", str(round(for_s * 100))]
    host.node.run(_argv("run", str(group.version), group.mount, group.path, *work), timeout_s=for_s + 30)


def read_through(host: NodeHost, group: Group, size: int) -> int:
    """Lets a process in the group read an empty file of `size` bytes, and returns the bytes of it that are then in the
    page cache. The file has no blocks, so no disk is used.
    """
    file = posixpath.join(host.folder, f"read-{uuid4().hex[:8]}")
    work = ["sh", "-c", _READ_THROUGH, "read-through", file, str(size)]
    host.node.run(["mkdir", "-p", "--", host.folder])
    done = host.node.run(_argv("run", str(group.version), group.mount, group.path, *work), timeout_s=60)
    return int(done.text or 0)


def unavailable(node: Node, host: NodeHost, controller: Controller, run_id: str) -> str | None:
    """The reason why processes of a node cannot be limited, with the remedy; None: they can. Limits a trial process."""
    pid = node.run(["sh", "-c", "sleep 30 < /dev/null > /dev/null 2>&1 & echo $!"]).text.strip()
    try:
        group = group_for(host, controller, [int(pid)], run_id)
        hold(host, group, 50 if controller == "cpu" else 64 << 20, ttl_s=20).heal()
    except InfraError as problem:
        return f"{node.name}: {problem}; mount the control groups of the controller {controller}, writable, on its host"
    finally:
        node.run(["kill", pid], check=False)
    return None


def drop_cache(host: NodeHost, group: Group) -> None:
    """Reclaims the node's part of the page cache, mapped files included, if its processes have their own control group
    (docker). Does nothing if other processes are in it as well (local).
    """
    if host.pid is not None:
        host.node.run(_argv("empty", str(group.version), group.mount, group.origin, str(host.pid)), timeout_s=60)


def clean_argv(run_id: str) -> list[str]:
    """The argv that removes the groups of a run on the machine that executes it, after its processes have ended."""
    return ["sh", "-c", _CLEAN, "clean-groups", f"{_PREFIX}{digest(run_id)[:8]}-*@*"]


def _limits(group: Group, limit: int | None) -> list[str]:
    """`FILE=VALUE` of the group's limits; None: no limit any more."""
    match group.controller, group.version:
        case "cpu", 1:
            quota = -1 if limit is None else limit * PERIOD_US // 100
            return [f"cpu.cfs_period_us={PERIOD_US}", f"cpu.cfs_quota_us={quota}"]
        case "cpu", _:
            quota_2 = "max" if limit is None else str(limit * PERIOD_US // 100)
            return [f"cpu.max={quota_2} {PERIOD_US}"]
        case "memory", 1:
            lifted = [f"memory.limit_in_bytes={-1 if limit is None else limit}"]
            return lifted if limit is None else [*lifted, "memory.oom_control=1"]
    return [f"memory.high={'max' if limit is None else limit}"]


def _argv(command: str, *words: str) -> list[str]:
    return ["bash", "--norc", "-c", _SCRIPT, "control-group", command, "/proc", *words]
