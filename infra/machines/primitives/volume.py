# SPDX-License-Identifier: Apache-2.0
"""Volumes: file systems for a node's data, which can lose their power, freeze, break and be repaired.

The work is done on the node's host (`infra.machines.api.NodeHost`) by `infra/machines/scripts/volume.py`, which
describes the mechanism. A volume is mounted in the node's mount namespace alone, and its loop device clears itself: the
end of the node ends both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from infra.machines import scripts
from infra.machines.api import CommandFailed, InfraError, Lease, NodeHost, ProcessId

Data = Literal["ordered", "writeback"]
"""ext4's modes of the journal (`data=`): a file's content must be on the disk before the file has its size, or need
not be.
"""

_CYCLE_S: Final = 60
"""Seconds. The kernel writes data back before a file system can go; on a busy machine that takes time."""

_MODULES: Final = ("mounts", "sockets", "throttle")
"""The modules that the script imports, in their order."""

_LOADER: Final = f"""
import sys, types
for package in {[".".join(scripts.__name__.split(".")[:n]) for n in (1, 2, 3)]}:
    sys.modules[package] = types.ModuleType(package)
for name in {_MODULES}:
    module = sys.modules["{scripts.__name__}." + name] = types.ModuleType(name)
    exec(compile(sys.argv.pop(1), name + ".py", "exec"), module.__dict__)
exec(compile(sys.argv.pop(1), "volume.py", "exec"), globals())
"""
"""Loads modules as text in place of files, under their own names: the machine may be another one."""

_WHEN_USABLE = """
path=$1 probe=$1/.harness-start
shift
for i in $(seq 500); do
    mountpoint -q "$path" && : 2>/dev/null >"$probe" && rm -f "$probe" && exec "$@"
    sleep 0.1
done
echo "no file system at $path that can be written"
exit 1
"""


@dataclass(frozen=True)
class Volume:
    """The file system of a node's data. path: where it is mounted on the node."""

    node: str
    host: NodeHost
    path: str

    @property
    def image(self) -> str:
        return f"{self.host.folder}/{self.path.strip('/').replace('/', '-')}.img"

    def to_json(self, processes: Sequence[ProcessId] = ()) -> dict[str, Any]:
        """The volume as the script's argument."""
        numbers = [process.pid for process in processes]
        return {
            "name": self.node,
            "pid": self.host.pid,
            "path": self.path,
            "image": self.image,
            "processes": numbers,
        }


@dataclass(frozen=True)
class PowerCycle:
    """The result of a power failure. Milliseconds since it began.

    cut_within_ms  between the cut of the first volume and that of the last.
    killed         processes that ended by it.
    muted          their connections that ended without a packet to the peer.
    not_muted      their sockets that could not be muted: a peer may have noticed.
    lost           nodes on which a file that was never synced is gone.
    kept           nodes on which a file that was synced before is there.
    data           node -> the mode of its journal afterwards.
    changed        node -> its requested small files whose content differs from before: `file` (below the
                   volume), `before`, `after` (text; None: the file is not there).
    """

    cut_ms: float
    cut_within_ms: float
    mounted_ms: float
    killed: int
    muted: int
    not_muted: int
    lost: Sequence[str]
    kept: Sequence[str]
    data: Mapping[str, Data]
    changed: Mapping[str, Sequence[Mapping[str, str | None]]]


def why_not(host: NodeHost, data: Data | None = None) -> str | None:
    """The reason why a host cannot have volumes; None: a power failure of a scratch file system worked as expected."""
    try:
        _ask("probe", host, {"folder": host.folder, "data": data})
    except InfraError as problem:
        return str(problem)
    return None


def attached(volume: Volume) -> bool:
    """True if it is mounted already."""
    return bool(_ask("attached", volume.host, {"volume": volume.to_json()})["attached"])


def data_mode(volume: Volume) -> Data | None:
    """The mode of its journal; None if it is not mounted. Raises InfraError."""
    found: Data | None = _ask("attached", volume.host, {"volume": volume.to_json()})["data"]
    return found


def attach(volume: Volume, size_mib: int, data: Data | None = None) -> bool:
    """Mounts it with the folder's former content; returns whether that had to be done. The file that power failures
    must leave is written and synced. data: the mode of its journal, also for a mounted volume, which no process may
    use then; None: its present mode, or ext4's default. Raises InfraError.
    """
    asked = {"volume": volume.to_json(), "size_mib": size_mib, "data": data}
    made = bool(_ask("attach", volume.host, asked)["attached"])
    mark([volume])
    return made


def mark(volumes: Sequence[Volume]) -> None:
    """Writes and syncs the file that the next power failure must leave."""
    _ask_all("mark", volumes)


def power_cycle(processes: Mapping[Volume, Sequence[ProcessId]], durable: Sequence[str] = ()) -> PowerCycle:
    """Cuts the power of the machines at one instant, and brings them back: unsynced data is gone, and these processes
    have ended. On separate machines, the instants differ by the time that a command takes to reach them.

    A cycle that began is finished even if this program ends. durable: names of small files to compare.
    """
    found = _ask_all("cycle", list(processes), processes, durable=list(durable))
    times = [answer["ms"] for answer in found]
    probes = {name: probe for answer in found for name, probe in answer["probes"].items()}
    return PowerCycle(
        cut_ms=max(t["cut"] for t in times),
        cut_within_ms=max(t["cut_within"] for t in times),
        mounted_ms=max(t["mounted"] for t in times),
        killed=sum(answer["killed"] for answer in found),
        muted=sum(answer["muted"] for answer in found),
        not_muted=sum(answer["not_muted"] for answer in found),
        lost=[name for name, probe in probes.items() if not probe["unsynced"]],
        kept=[name for name, probe in probes.items() if probe["synced"]],
        data={name: probe["data"] for name, probe in probes.items()},
        changed={name: files for answer in found for name, files in answer["changed"].items() if files},
    )


def state(volume: Volume) -> Mapping[str, Any]:
    """`device`, `free` (bytes) and `write`, the result of a small synced write: `ok`, `frozen` (it would not end), or
    the name of its error (`EIO`, `EROFS`, `ENOSPC`).
    """
    found: Mapping[str, Any] = _ask("state", volume.host, {"volumes": [volume.to_json()]})[volume.node]
    return found


def hold(volume: Volume, inject: str, undo: str, ttl_s: float, **more: object) -> Lease:
    """A lease on the host: the command `inject` of the script now, `undo` at its end, both with these arguments."""
    given = {"volumes": [volume.to_json()], **more}
    return volume.host.node.lease([_argv(inject, volume.host, given)], [_argv(undo, volume.host, given)], ttl_s=ttl_s)


@dataclass(frozen=True)
class Speed:
    """The speed of the disk for a process of the node, past the page cache. done: accesses of 4 KiB, or bytes."""

    done: float
    seconds: float


@dataclass(frozen=True)
class Speeds:
    """The speeds for each requested limit that could be measured. limited: the present limits. device: `loop7`."""

    device: str
    measured: Mapping[str, Speed]
    limited: Mapping[str, int]


def why_not_slow(volume: Volume) -> str | None:
    """The reason why disks of the node cannot be made slow, with the remedy; None: a scratch file system was slow."""
    try:
        _ask("slow-probe", volume.host, {"volumes": [volume.to_json()], "folder": volume.host.folder})
    except InfraError as problem:
        return f"{problem}; mount the control groups of block IO (blkio, or version 2 with io), writable, on its host"
    return None


def speeds(volume: Volume, limits: Mapping[str, int]) -> Speeds:
    """Measures the disk's speed for each of these limits: names and units of `infra/machines/scripts/throttle.py`. The
    first call makes a file, and comes before `slow_down`. Takes seconds.
    """
    found = _ask("speeds", volume.host, {"volumes": [volume.to_json()], "limits": dict(limits)})
    measured = {name: Speed(one["done"], one["seconds"]) for name, one in found["speeds"].items()}
    return Speeds(found["device"], measured, found["limited"])


def slow_down(volume: Volume, device: str, limits: Mapping[str, int], ttl_s: float) -> Lease:
    """Sets these limits of the disk, by a lease on the host. device: as `speeds` returned it."""
    given = {"volumes": [volume.to_json()], "limits": dict(limits), "device": device}
    inject, undo = (_argv(command, volume.host, given) for command in ("throttle", "unthrottle"))
    return volume.host.node.lease([inject], [undo], ttl_s=ttl_s)


def when_usable(path: str, argv: Sequence[str]) -> list[str]:
    """A command of the node that waits for the volume: without it, a server would write below the mount point."""
    return ["sh", "-c", _WHEN_USABLE, "when-usable", path, *argv]


def _ask_all(
    command: str,
    volumes: Sequence[Volume],
    processes: Mapping[Volume, Sequence[ProcessId]] | None = None,
    **more: object,
) -> list[dict[str, Any]]:
    """Runs a command on each concerned host, at the same time."""
    hosts: dict[object, list[Volume]] = {}
    for volume in volumes:
        # Nodes that share our kernel are struck by one command.
        hosts.setdefault(volume.node if volume.host.pid is None else None, []).append(volume)

    def one(together: Sequence[Volume]) -> dict[str, Any]:
        given = {"volumes": [v.to_json((processes or {}).get(v, ())) for v in together], **more}
        return _ask(command, together[0].host, given)

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, hosts.values()))


def _ask(command: str, host: NodeHost, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(host.node.run(_argv(command, host, given), timeout_s=_CYCLE_S).text)
    except CommandFailed as problem:
        said = problem.result.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise InfraError(f"{host.node.name}: {command} of a volume: {said[-1]}") from None
    return answer


def _argv(command: str, host: NodeHost, given: Mapping[str, Any]) -> list[str]:
    # On this machine the interpreter that runs us; on another one its own.
    python = "python3" if host.pid is None else sys.executable
    return [python, "-c", _LOADER, *_sources(), command, json.dumps(given)]


@cache
def _sources() -> tuple[str, ...]:
    return tuple(scripts.text(f"{name}.py") for name in (*_MODULES, "volume"))
