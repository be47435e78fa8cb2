# SPDX-License-Identifier: Apache-2.0
"""File systems of nodes, on the host: attach one, cut the power of several at one instant, freeze, break, repair.

    python3 volume.py COMMAND JSON          prints one line of JSON; problems are one line on stderr, exit code 1

Runs as root on the machine whose kernel the nodes run on, without any package. A *volume* is `{name, pid, path,
image}`: the node's name, a process in its mount namespace (null: this machine's own), where the file system is mounted
there, and its image here. It is an ext4 file system on a loop device, mounted in the node's namespace alone. The device
clears itself when the last mount is gone, so the end of a node's last process ends everything but the image.
`infra.machines.primitives.volume` passes the text of this module, of `mounts.py`, `sockets.py` and `throttle.py`:
nothing is installed.

    probe       {folder, data}                  does all this work here? Tried on a scratch file system
    attached    {volume}                        whether it is mounted, and `data`: the mode of its journal
    attach      {volume, size_mib, data}        make and mount it, with what the folder held before; only change the
                                                mode of its journal where it is
    cycle       {volumes: [{..., processes}], durable}   power failure, and the machines come back: see `cycle`
    mark        {volumes}                       write and sync the file that a power failure must leave
    fill        {volumes, left_mib}             a file that leaves so much room; `free` removes it
    freeze, thaw, cut, fail                     {volumes}   stall it; cut it off (EIO); make it read-only
    restore     {volumes, power}                kill who uses it, end all of the above, and mount it again: checked by
                                                e2fsck, or as a failure of power leaves it
    state       {volumes}                       see `state`
    speeds      {volumes, limits}               how fast the disk is, and `limited`, the limits that hold for it now
    throttle    {volumes, limits}               make it slow (`throttle.py`); `unthrottle` {volumes, device} ends that
    slow-probe  {volumes, folder}               does that work here? Tried on a scratch file system

Sources: ext4's shutdown ioctl (EXT4_IOC_SHUTDOWN in fs/ext4/ext4.h; xfs_io's `shutdown`), FIFREEZE of linux/fs.h,
/sys/fs/ext4/DEVICE/trigger_fs_error (Documentation/ABI/testing/sysfs-fs-ext4).
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import threading
import time

from infra.machines.scripts.mounts import (
    PATIENCE_S,
    Answer,
    Problem,
    Volume,
    attach,
    data_of,
    device_of,
    in_parallel,
    on_scratch,
    renew,
    required,
    seen_from_here,
)
from infra.machines.scripts.sockets import muted
from infra.machines.scripts.throttle import at_full_speed, clear, limits_of, slow_probe, speeds, throttle, unthrottle

SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
SYNCED, UNSYNCED, UNORDERED = ".harness-synced", ".harness-unsynced", ".harness-unordered"
FILLER, PROBE = ".harness-filler", ".harness-probe"


def mark(volumes: list[Volume]) -> Answer:
    for volume in volumes:
        required(volume)
        folder = os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY)
        write(folder, SYNCED, b"synced", sync=True)
        os.close(folder)
    return {}


def write(folder: int, name: str, text: bytes, sync: bool) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
    os.write(file, text)
    if sync:
        os.fsync(file)
        os.fsync(folder)
    os.close(file)


def content(volume: Volume, name: str) -> bytes:
    try:
        with open(os.path.join(seen_from_here(volume), name), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def cycle(volumes: list[Volume], durable: list[str]) -> Answer:
    """Cuts the power of all at one instant, ends the processes there, and mounts the content of the disks.

    It stops all processes first: else they would see an error of their disk before they lose their power. Their
    connections end without a word. The file that is written here, unsynced, must be gone afterwards; the one that
    `mark` synced must be there. Of the small files with one of the names `durable`, those with another content than
    before are reported.
    """
    began = time.monotonic()
    for volume in volumes:
        required(volume)
    processes = [pid for volume in volumes for pid in host_pids(volume)]
    folders = [os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY) for volume in volumes]
    ends = opened(processes)
    times = {"found": ms(began)}
    for _, end in ends:
        send(end, signal.SIGSTOP)
    times["stopped"] = ms(began)
    connections, not_muted = muted(ends)
    before = [small_files(volume, durable) for volume in volumes]
    for folder in folders:
        write(folder, UNSYNCED, b"unsynced", sync=False)
    first = time.monotonic()
    cuts = [threading.Thread(target=fcntl.ioctl, args=(folder, SHUTDOWN, NO_LOG_FLUSH)) for folder in folders]
    for cut in cuts:
        cut.start()
    for cut in cuts:
        cut.join()
    times["cut_within"] = ms(first)
    times["cut"] = ms(began)
    with at_full_speed(volumes):
        for _, end in ends:
            send(end, signal.SIGKILL)
        await_ends(ends)
        for connection in connections:
            connection.close()
        times["killed"] = ms(began)
        for folder in folders:
            os.close(folder)
        in_parallel(volumes, renew)
    times["mounted"] = ms(began)
    probes = {
        volume["name"]: {
            "synced": content(volume, SYNCED) == b"synced",
            "unsynced": content(volume, UNSYNCED) == b"unsynced",
            "data": data_of(volume),
        }
        for volume in volumes
    }
    changed = {
        volume["name"]: [
            {"file": path, "before": text, "after": after.get(path)}
            for path, text in sorted(was.items())
            if after.get(path) != text
        ]
        for volume, was in zip(volumes, before, strict=True)
        for after in [small_files(volume, durable)]
    }
    return {
        "ms": times,
        "probes": probes,
        "killed": len(processes),
        "muted": len(connections),
        "not_muted": not_muted,
        "changed": changed,
    }


def small_files(volume: Volume, names: list[str]) -> dict[str, str]:
    """Path below the volume -> the first 4 KiB, of the files with these names."""
    root = seen_from_here(volume)
    found = {}
    for folder, _, files in os.walk(root) if names else ():
        for name in set(files).intersection(names):
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, root)] = file.read(4096).decode(errors="replace")
            except FileNotFoundError:
                continue  # replaced meanwhile
    return found


def probe(folder: str, data: str | None) -> Answer:
    """A power failure of a scratch file system. With data `writeback`, a file whose name was synced and whose content
    was not must have its size afterwards, and NUL bytes.
    """
    text = b"without order"

    def fails(volume: Volume) -> None:
        mark([volume])
        inside = os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY)
        write(inside, UNORDERED, text, sync=False)
        os.fsync(inside)
        os.close(inside)
        found = cycle([volume], [])["probes"]["scratch"]
        left = content(volume, UNORDERED)
        if found != {"synced": True, "unsynced": False, "data": data or "ordered"}:
            raise Problem(f"a power failure of a scratch file system left {found}")
        if data == "writeback" and left != bytes(len(text)):
            raise Problem(f"a power failure of a scratch file system with data=writeback left {left!r} of {text!r}")

    on_scratch(folder, fails, data)
    return {}


def host_pids(volume: Volume) -> list[int]:
    """The volume's processes (numbers in the node's own namespace) as this machine counts them; those that run."""
    wanted = set(volume["processes"])
    if volume["pid"] is None:
        return [pid for pid in wanted if os.path.exists(f"/proc/{pid}")]
    space = os.stat(f"/proc/{volume['pid']}/ns/pid").st_ino
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == space and inner(name) in wanted:
                    found.append(int(name))
            except OSError:
                continue  # it has ended meanwhile
    return found


def inner(name: str) -> int:
    """A process's number in the innermost namespace: the last field of NSpid (proc(5))."""
    with open(f"/proc/{name}/status") as lines:
        return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def opened(processes: list[int]) -> list[tuple[int, int]]:
    """(number, descriptor) of those that still run: a descriptor never refers to a later process."""
    found = []
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            found.append((pid, os.pidfd_open(pid)))
    return found


def send(end: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        signal.pidfd_send_signal(end, number)


def await_ends(ends: list[tuple[int, int]]) -> None:
    poller = select.poll()
    for _, end in ends:
        poller.register(end, select.POLLIN)
    left = {end: pid for pid, end in ends}
    until = time.monotonic() + PATIENCE_S
    while left:
        for end, _ in poller.poll(max(0, until - time.monotonic()) * 1000):
            poller.unregister(end)
            os.close(end)
            del left[end]
        if left and time.monotonic() > until:
            raise Problem(f"processes {sorted(left.values())} outlived SIGKILL")


def ioctl_each(volumes: list[Volume], request: int, argument: int | bytes) -> Answer:
    for volume in volumes:
        required(volume)
        folder = os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, request, argument)
        except OSError as error:
            # Frozen already, or thawed already: both commands may be repeated.
            if (request, error.errno) not in ((FIFREEZE, errno.EBUSY), (FITHAW, errno.EINVAL)):
                raise Problem(f"{volume['name']}: {error.strerror}") from None
        os.close(folder)
    return {}


def fail(volumes: list[Volume]) -> Answer:
    """Makes the kernel find an error in the file system, which goes read-only (`errors=remount-ro`)."""
    for volume in volumes:
        with open(f"/sys/fs/ext4/{required(volume)}/trigger_fs_error", "w") as trigger:
            trigger.write("x")
    return {}


def fill(volumes: list[Volume], left_mib: int) -> Answer:
    for volume in volumes:
        required(volume)
        file = os.open(os.path.join(seen_from_here(volume), FILLER), os.O_WRONLY | os.O_CREAT, 0o600)
        room = os.fstatvfs(file)
        size = room.f_bavail * room.f_frsize - (left_mib << 20)
        try:
            if size > 0:
                os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # it has filled all the room
                raise
        os.close(file)
    return {}


def free(volumes: list[Volume]) -> Answer:
    for volume in volumes:
        required(volume)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(seen_from_here(volume), FILLER))
    return {}


def restore(volumes: list[Volume], power: bool) -> Answer:
    """Restores the volumes. Idempotent. Kills processes that use them; with `power`, their unsynced data is gone."""
    for volume in volumes:
        required(volume)

    def one(volume: Volume) -> None:
        folder = os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY)
        ends = opened(users(volume, os.fstat(folder).st_dev))
        for _, end in ends:
            send(end, signal.SIGSTOP)
        with contextlib.suppress(OSError):  # it is not frozen
            fcntl.ioctl(folder, FITHAW, 0)
        if power:
            with contextlib.suppress(OSError):  # it is cut off already
                fcntl.ioctl(folder, SHUTDOWN, NO_LOG_FLUSH)
        else:
            with contextlib.suppress(OSError):  # it does not exist, or it cannot be removed now
                os.unlink(FILLER, dir_fd=folder)
        os.close(folder)
        for _, end in ends:
            send(end, signal.SIGKILL)
        await_ends(ends)
        renew(volume, check=not power)

    with at_full_speed(volumes):
        in_parallel(volumes, one)
        free(volumes)
    return {}


def users(volume: Volume, device: int) -> list[int]:
    """Processes of the node that have a file of this file system open, or mapped (proc(5): maps, fd)."""
    number = f"{os.major(device):02x}:{os.minor(device):02x}"
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/maps") as lines:
                mapped = any(line.split(None, 4)[3] == number for line in lines)
            opened = mapped or any(
                os.stat(f"/proc/{name}/fd/{file}").st_dev == device for file in os.listdir(f"/proc/{name}/fd")
            )
        except OSError:
            continue  # it has ended meanwhile, or closed the file
        if opened:
            found.append(int(name))
    return found


def state(volumes: list[Volume]) -> Answer:
    """Name -> its device, bytes free, and `write`, the result of a small synced write: `ok`, `frozen` (it would not
    end), or the error's name (`EIO`, `EROFS`, `ENOSPC`).
    """
    found = {}
    for volume in volumes:
        device = required(volume)
        room = os.statvfs(seen_from_here(volume))
        found[volume["name"]] = {"device": device, "free": room.f_bavail * room.f_frsize, "write": written(volume)}
    return found


def written(volume: Volume) -> str:
    folder = os.open(seen_from_here(volume), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(folder, FIFREEZE, 0)
        fcntl.ioctl(folder, FITHAW, 0)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return "frozen"
    try:
        write(folder, PROBE, bytes(8192), sync=True)
        os.unlink(PROBE, dir_fd=folder)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    finally:
        os.close(folder)
    return "ok"


def ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


def main() -> None:
    # A begun command is finished, even if its caller ends: half a power failure is none.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    command, given = sys.argv[1], json.loads(sys.argv[2])
    volumes = given.get("volumes", [])
    try:
        match command:
            case "probe":
                answer = probe(given["folder"], given["data"])
            case "attached":
                there = device_of(given["volume"]) is not None
                answer = {"attached": there, "data": data_of(given["volume"]) if there else None}
            case "attach":
                answer = attach(given["volume"], given["size_mib"], given["data"])
                if answer["attached"]:  # its device may have limits that an earlier run left
                    clear(required(given["volume"]))
            case "mark":
                answer = mark(volumes)
            case "cycle":
                answer = cycle(volumes, given["durable"])
            case "freeze":
                answer = ioctl_each(volumes, FIFREEZE, 0)
            case "thaw":
                answer = ioctl_each(volumes, FITHAW, 0)
            case "cut":
                answer = ioctl_each(volumes, SHUTDOWN, NO_LOG_FLUSH)
            case "fail":
                answer = fail(volumes)
            case "fill":
                answer = fill(volumes, given["left_mib"])
            case "free":
                answer = free(volumes)
            case "restore":
                answer = restore(volumes, given["power"])
            case "state":
                answer = state(volumes)
            case "speeds":
                answer = {
                    "device": required(volumes[0]),
                    "speeds": speeds(volumes[0], given["limits"]),
                    "limited": limits_of(volumes[0]),
                }
            case "throttle":
                answer = throttle(volumes[0], given["limits"])
            case "unthrottle":
                answer = unthrottle(volumes[0], given["device"])
            case "slow-probe":
                answer = slow_probe(volumes[0], given["folder"])
            case _:
                raise Problem(f"no command {command}")
    except (Problem, OSError) as problem:
        print(str(problem), file=sys.stderr)
        sys.exit(1)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
