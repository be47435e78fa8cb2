# SPDX-License-Identifier: Apache-2.0
"""Slow disks, on the host: limits of the block-IO controller for the loop device of a volume.

The part of `volume.py` that knows control groups. It runs as root, without any package. Limits belong to a pair of
control group and device, and only the volume's node uses its device. So no group is made: the groups that exist get the
limits.

Version 1 (`blkio.throttle.*`) counts for each group by itself, and never charges write-back to the group that wrote:
the kernel's threads write in the root group, the journal as well. So the root group has the limits, and the node's
processes are in it while these last. All accesses of the device then share one budget. The node's first process stays
behind: its group shows where the others belong. A whole machine (no `pid`) keeps its groups, each with the limits.

Version 2 (`io.max`) charges write-back to the group that wrote, has no limits for the root group, and lets the journal
pass. There the groups of the node's processes have the limits.

Sources: Documentation/admin-guide/cgroup-v1/blkio-controller.rst and cgroup-v2.rst; block/blk-throttle.c.
"""

import contextlib
import fcntl
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator

from infra.machines.scripts.mounts import (
    PATIENCE_S,
    Answer,
    Problem,
    Volume,
    device_of,
    on_scratch,
    required,
    seen_from_here,
)

Limits = dict[str, int]
"""`write_iops`, `read_iops` (a second), `write_rate`, `read_rate` (bytes a second) -> the limit; absent: none."""

V1 = {
    "write_iops": "blkio.throttle.write_iops_device",
    "read_iops": "blkio.throttle.read_iops_device",
    "write_rate": "blkio.throttle.write_bps_device",
    "read_rate": "blkio.throttle.read_bps_device",
}
V2 = {"write_iops": "wiops", "read_iops": "riops", "write_rate": "wbps", "read_rate": "rbps"}

SPEED = ".harness-speed"
SLOW_PROBE = 20
"""Writes a second."""
BLOCK, CHUNK, FILE = 4096, 64 << 10, 1 << 20
"""Bytes: of a counted access, of an access when bytes are counted, of the file of the measurement."""
LONGEST_S = 4.0
"""The seconds that one measurement may take. The servers' own accesses wait in the same queue."""


class Controller:
    """The block-IO controller of this machine. mount: its mountpoint, or raises Problem."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self.version, self.mount = 0, ""
        with open(f"{proc}/self/mountinfo") as lines:
            for line in lines:
                head, _, tail = line.partition(" - ")
                place, kind, options = head.split()[4], tail.split()[0], tail.split()[-1]
                if kind == "cgroup" and "blkio" in options.split(","):
                    self.version, self.mount = 1, place
                    return
                if kind == "cgroup2" and "io" in words(f"{place}/cgroup.controllers"):
                    self.version, self.mount = 2, place
        if not self.mount:
            raise Problem("no control groups have the controller of block IO (blkio, io) here")

    def group_of(self, pid: int | str) -> str | None:
        """Path below the mountpoint, without a slash at its end: empty for the root. None: the process is gone."""
        try:
            with open(f"{self.proc}/{pid}/cgroup") as lines:
                for line in lines:
                    _, names, path = line.rstrip("\n").split(":", 2)
                    if names == "" if self.version == 2 else "blkio" in names.split(","):
                        return path.rstrip("/")
        except OSError:
            pass
        return None

    def move(self, pid: int, group: str) -> None:
        with contextlib.suppress(ProcessLookupError), open(f"{self.mount}{group}/cgroup.procs", "w") as file:
            file.write(str(pid))

    def get(self, group: str, number: str) -> Limits:
        """The limits of a group for a device (`7:1`)."""
        if self.version == 1:
            found = {name: line[1] for name, file in V1.items() for line in self._lines(group, file, number)}
        else:
            given = dict(word.split("=") for line in self._lines(group, "io.max", number) for word in line[1:])
            found = {name: given[key] for name, key in V2.items() if given.get(key, "max") != "max"}
        return {name: int(value) for name, value in found.items()}

    def _lines(self, group: str, file: str, number: str) -> list[list[str]]:
        try:
            with open(f"{self.mount}{group}/{file}") as lines:
                return [line.split() for line in lines if line.split()[:1] == [number]]
        except FileNotFoundError:  # the group has ended, or it is the root
            return []

    def put(self, group: str, number: str, limits: Limits) -> None:
        """Sets exactly these limits. Does nothing if the group has ended."""
        if self.version == 1:
            values = {file: str(limits.get(name, 0)) for name, file in V1.items()}
        else:
            values = {"io.max": " ".join(f"{key}={limits.get(name, 'max')}" for name, key in V2.items())}
        for file, value in values.items():
            if os.path.exists(f"{self.mount}{group}/{file}"):
                with open(f"{self.mount}{group}/{file}", "w") as opened:
                    opened.write(f"{number} {value}")

    def groups(self) -> list[str]:
        return [folder[len(self.mount) :].rstrip("/") for folder, _, _ in os.walk(self.mount)]

    def enable(self, group: str) -> None:
        """Version 2: enables the controller in every group above, so that a group can have limits."""
        names = group.split("/")
        for depth in range(1, len(names)):
            above = self.mount + "/".join(names[:depth])
            if "io" not in words(f"{above}/cgroup.subtree_control"):
                try:
                    with open(f"{above}/cgroup.subtree_control", "w") as file:
                        file.write("+io")
                except OSError:
                    raise Problem(f"{above} does not pass the controller of block IO on") from None

    def processes(self, volume: Volume) -> list[int]:
        """The node's processes: those in its mount namespace, its first one too; of a whole machine: all."""
        numbers = [int(name) for name in os.listdir(self.proc) if name.isdigit()]
        if volume["pid"] is None:
            return numbers
        space = namespace(self.proc, volume["pid"])
        return [pid for pid in numbers if space is not None and namespace(self.proc, pid) == space]

    def limited(self, volume: Volume) -> list[str]:
        """The groups that get the limits. Raises Problem if no such group exists."""
        if self.version == 1 and volume["pid"] is not None:
            return sorted({"", self.group_of(volume["pid"]) or ""})
        found = {self.group_of(pid) for pid in self.processes(volume)} - {None}
        if self.version == 2:
            found -= {""}
            if not found:
                raise Problem(f"{volume['name']}: its processes are in the root control group, which has no limits")
        return sorted(group for group in found if group is not None)

    def gather(self, volume: Volume) -> None:
        """Version 1: moves the node's processes into the root group, all but its first one."""
        self._move_all(volume, lambda group: group != "", "")

    def scatter(self, volume: Volume) -> None:
        """Returns them to the group of the node's first process."""
        home = self.group_of(volume["pid"]) if volume["pid"] is not None else None
        if home:
            self._move_all(volume, lambda group: group == "", home)

    def _move_all(self, volume: Volume, wrong: Callable[[str], bool], to: str) -> None:
        """Moves all until none is left, since children may be born meanwhile."""
        if self.version != 1 or volume["pid"] is None:
            return
        until = time.monotonic() + PATIENCE_S
        while True:
            groups = {pid: self.group_of(pid) for pid in self.processes(volume) if pid != volume["pid"]}
            left = [pid for pid, group in groups.items() if group is not None and wrong(group)]
            if not left:
                return
            if time.monotonic() > until:
                raise Problem(
                    f"{volume['name']}: {len(left)} processes cannot be moved to the control group {to or '/'}"
                )
            for pid in left:
                self.move(pid, to)


def words(file: str) -> list[str]:
    try:
        with open(file) as opened:
            return opened.read().split()
    except OSError:
        return []


def namespace(proc: str, pid: int) -> str | None:
    try:
        return os.readlink(f"{proc}/{pid}/ns/mnt")
    except OSError:
        return None  # it has ended


def image_of(device: str) -> str:
    """The image of a loop device, which may be removed already; empty: it has none (any more)."""
    try:
        with open(f"/sys/block/{device}/loop/backing_file") as file:
            return file.read().rstrip("\n").removesuffix(" (deleted)")
    except OSError:
        return ""


def number_of(device: str) -> str:
    return words(f"/sys/block/{device}/dev")[0]


@contextlib.contextmanager
def locked(volume: Volume) -> Iterator[None]:
    """Lets one command at a time change the limits of a volume; none waits if the image is gone with its cluster."""
    try:
        image = os.open(volume["image"], os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(image, fcntl.LOCK_EX)
        yield
    finally:
        os.close(image)


def throttle(volume: Volume, limits: Limits) -> Answer:
    """Makes the volume's disk slow from now on."""
    with locked(volume):
        impose(volume, required(volume), limits)
        Controller().gather(volume)
    return {}


def impose(node: Volume, device: str, limits: Limits) -> None:
    """Makes a device slow for the groups of a node."""
    controller = Controller()
    for group in controller.limited(node):
        if controller.version == 2:
            controller.enable(group)
        controller.put(group, number_of(device), limits)


def unthrottle(volume: Volume, device: str) -> Answer:
    """Removes the limits. Idempotent. `device`: the one that had been slowed down. It is gone, or no longer mounted, if
    the node has ended, or lost its power since. A device that another volume uses by now is left alone.
    """
    with locked(volume):
        devices = {device}
        with contextlib.suppress(Problem):
            devices.add(device_of(volume) or device)
        for each in devices:
            if image_of(each) in ("", volume["image"]):
                clear(each)
        Controller().scatter(volume)
        with contextlib.suppress(OSError):  # its node has ended
            os.unlink(os.path.join(seen_from_here(volume), SPEED))
    return {}


def clear(device: str) -> None:
    """Removes its limits from all groups."""
    try:
        controller, number = Controller(), number_of(device)
    except Problem:
        return
    for group in controller.groups():
        if controller.get(group, number):
            controller.put(group, number, {})


def limits_of(volume: Volume) -> Limits:
    """The present limits of a volume; empty: it runs at its own speed."""
    number = number_of(required(volume))
    try:
        controller = Controller()
    except Problem:
        return {}
    return next(filter(None, (controller.get(group, number) for group in controller.groups())), {})


@contextlib.contextmanager
def at_full_speed(volumes: list[Volume]) -> Iterator[None]:
    """Lifts the limits while volumes are mounted again. A killed process first ends the write that it had begun. The
    limits follow the volume to its new device.
    """
    with contextlib.ExitStack() as stack:
        found = []
        for volume in sorted(volumes, key=lambda each: str(each["image"])):
            stack.enter_context(locked(volume))
            limits = limits_of(volume)
            if limits:
                found.append((volume, limits))
                clear(required(volume))
        try:
            yield
        finally:
            for volume, limits in found:
                device = device_of(volume)
                if device is not None:  # else the failure here is reported
                    impose(volume, device, limits)


def speeds(volume: Volume, wanted: Limits, node: Volume | None = None) -> dict[str, dict[str, float]]:
    """Measures the disk's speed for a process of the node. For each wanted limit that could be measured: `done`
    (accesses of 4 KiB, or bytes) and `seconds`. The work takes a second at that speed, if `LONGEST_S` allows.

    The accesses bypass the page cache (O_DIRECT), and overwrite: each is one access of the device. The first call makes
    the file, so it comes before the limits; `unthrottle` removes the file.
    """
    required(volume)
    if not wanted:
        return {}
    shared = mmap.mmap(-1, 16 * len(V1))
    for at in range(len(V1)):
        struct.pack_into("dd", shared, 16 * at, 0.0, -1.0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):  # who waits for our output does not wait for a slow disk
                os.dup2(null, stream)
            measure(volume, wanted, shared, node or volume)
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + LONGEST_S * len(wanted)
    ended, status = 0, 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, signal.SIGKILL)
    elif status != 0:
        raise Problem(f"{volume['name']}: the speed of its disk cannot be measured")
    found = {}
    for at, name in enumerate(V1):
        done, seconds = struct.unpack_from("dd", shared, 16 * at)
        if name in wanted and seconds >= 0:
            found[name] = {"done": done, "seconds": seconds}
    return found


def measure(volume: Volume, wanted: Limits, shared: mmap.mmap, node: Volume) -> None:
    """Measures, in a separate process. It notes its progress, as its last access may never end."""
    path = os.path.join(seen_from_here(volume), SPEED)
    block, chunk = mmap.mmap(-1, BLOCK), mmap.mmap(-1, CHUNK)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    if os.fstat(file).st_size < FILE:
        for offset in range(0, FILE, CHUNK):
            os.pwrite(file, chunk, offset)
        os.fsync(file)
    controller = Controller()
    # Version 1: the root group, where the node's processes are; version 2: one of their groups.
    controller.move(os.getpid(), controller.limited(node)[0])
    for at, name in enumerate(V1):
        if name not in wanted:
            continue
        counted = name.endswith("iops")
        buffer, count = (block, max(6, wanted[name])) if counted else (chunk, max(1, wanted[name] // CHUNK))
        began = time.monotonic()
        struct.pack_into("dd", shared, 16 * at, 0.0, 0.0)
        for turn in range(count):
            offset = turn * len(buffer) % FILE
            if name.startswith("write"):
                os.pwrite(file, buffer, offset)
            else:
                os.preadv(file, [buffer], offset)
            spent = time.monotonic() - began
            struct.pack_into("dd", shared, 16 * at, (turn + 1.0) * (1 if counted else CHUNK), spent)
            if spent > LONGEST_S:
                break


def slow_probe(node: Volume, folder: str) -> Answer:
    """Checks that a scratch file system is slow for processes of the node, and then fast again."""

    def slow(volume: Volume) -> None:
        device, wanted = required(volume), {"write_iops": SLOW_PROBE}
        speeds(volume, wanted, node)  # makes the file
        impose(node, device, wanted)
        try:
            found = speeds(volume, wanted, node)["write_iops"]
        finally:
            clear(device)
        if found["seconds"] < found["done"] / SLOW_PROBE / 2:
            raise Problem(
                f"{found['done']:.0f} writes to a scratch file system took {found['seconds']:.3f} s with a limit of "
                f"{SLOW_PROBE} a second: the kernel does not enforce it"
            )

    on_scratch(folder, slow)
    return {}
