# SPDX-License-Identifier: Apache-2.0
"""File systems of nodes, on the host: where they are mounted, and how they are mounted again.

The part of `volume.py` that knows mounts, namespaces and loop devices. It runs as root, without any package.
"""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from typing import Any

Volume = dict[str, Any]
Answer = dict[str, Any]

CLONE_NEWNS = 0x20000
MS_NOATIME, MS_REC, MS_PRIVATE = 0x400, 0x4000, 0x40000
OPTIONS = b"errors=remount-ro"
WRITEBACK = ("journal_data_writeback", "nodelalloc")
PATIENCE_S = 20.0

libc = ctypes.CDLL(None, use_errno=True)


class Problem(Exception):
    """One line for stderr."""


def checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def seen_from_here(volume: Volume) -> str:
    """The volume's path in this machine's own namespace: no `setns` is needed to open files there."""
    return f"/proc/{volume['pid']}/root{volume['path']}" if volume["pid"] else volume["path"]


def device_of(volume: Volume) -> str | None:
    """The device of the volume (`loop7`), or None if it is not mounted. Raises Problem if the node has ended."""
    try:
        with open(f"/proc/{volume['pid'] or 'self'}/mountinfo") as lines:
            mounted = [line.split() for line in lines]
    except OSError:
        raise Problem(f"{volume['name']}: its namespace has ended") from None
    found = [fields[fields.index("-") + 2] for fields in mounted if fields[4] == volume["path"]]
    return os.path.basename(found[-1]) if found and os.path.basename(found[-1]).startswith("loop") else None


def required(volume: Volume) -> str:
    device = device_of(volume)
    if device is None:
        raise Problem(f"{volume['name']}: no file system of its own is mounted at {volume['path']}")
    return device


def enter(volume: Volume) -> None:
    """Enters the node's mount namespace, in /dev of this machine: so `loop7` is still a path to the device."""
    devices = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY)
    if volume["pid"]:
        space = os.open(f"/proc/{volume['pid']}/ns/mnt", os.O_RDONLY)
        checked(libc.setns(space, CLONE_NEWNS), f"{volume['name']}: its mount namespace")
        os.close(space)
    os.fchdir(devices)


def mount(volume: Volume, device: str) -> None:
    source, target = device.encode(), volume["path"].encode()
    checked(libc.mount(source, target, b"ext4", MS_NOATIME, OPTIONS), f"{volume['name']}: mount {device}")


def unmount(volume: Volume, device: str) -> None:
    """Unmounts, and waits until the kernel has released the file system: until then a new mount is the old."""
    state = os.open("/sys/fs/ext4", os.O_RDONLY | os.O_DIRECTORY)
    until = time.monotonic() + PATIENCE_S
    while True:
        if libc.umount2(volume["path"].encode(), 0) == 0:
            break
        if ctypes.get_errno() != errno.EBUSY or time.monotonic() > until:
            raise Problem(f"{volume['name']}: cannot unmount {device}: {os.strerror(ctypes.get_errno())}")
        time.sleep(0.005)
    while True:
        try:
            os.stat(device, dir_fd=state)
        except FileNotFoundError:
            return
        if time.monotonic() > until:
            raise Problem(f"{volume['name']}: {device} is still mounted somewhere, so its cache is not lost")
        time.sleep(0.002)


def in_parallel(volumes: list[Volume], work: Callable[[Volume], None]) -> None:
    """Runs each in a child process, which may change its namespace. Raises Problem for the first failure."""
    children = []
    for volume in volumes:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            problem = ""
            try:
                work(volume)
            except BaseException as error:
                problem = str(error) or repr(error)
            os.write(writing, problem.encode()[:2000])
            os._exit(1 if problem else 0)
        os.close(writing)
        children.append((child, reading))
    problems = []
    for child, reading in children:
        with os.fdopen(reading) as said:
            problem = said.read()
        if os.waitpid(child, 0)[1] != 0:
            problems.append(problem or "it ended by a signal")
    if problems:
        raise Problem("; ".join(problems))


def data_of(volume: Volume) -> str:
    """`ordered` or `writeback`: the mode of the journal, as the kernel reports it (ext4_seq_options_show)."""
    with open(f"/proc/fs/ext4/{required(volume)}/options") as options:
        told = {line.strip() for line in options}
    return "writeback" if {"data=writeback", "nodelalloc"} <= told else "ordered"


def order_data(volume: Volume, data: str) -> None:
    """Sets the mode `data` for the next mount. It is an option in the superblock, so every later mount has it."""
    run("tune2fs", "-o", ",".join(name if data == "writeback" else f"^{name}" for name in WRITEBACK), volume["image"])


def renew(volume: Volume, check: bool = False, data: str | None = None) -> None:
    """Unmounts and mounts again, on a fresh loop device: the cache of the old one holds data that never reached the
    disk. It changes the namespace of its process and returns. check: with e2fsck in between. data: a new mode of the
    journal.
    """
    device = required(volume)
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY)

    def back() -> None:
        if volume["pid"]:
            checked(libc.setns(home, CLONE_NEWNS), "this machine's mount namespace")

    enter(volume)
    unmount(volume, device)
    back()
    if check:
        done = subprocess.run(["e2fsck", "-p", volume["image"]], capture_output=True, text=True, check=False)
        if done.returncode > 2:
            raise Problem(f"{volume['name']}: e2fsck: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    if data is not None:
        order_data(volume, data)
    device = run("losetup", "--find", "--show", volume["image"])
    try:
        enter(volume)  # the node may have ended meanwhile
        mount(volume, os.path.basename(device))
    finally:
        back()
        run("losetup", "--detach", device)  # it goes with its last mount


def attach(volume: Volume, size_mib: int, data: str | None = None) -> Answer:
    """Makes and mounts it. data: the mode of the journal; None: its present mode, `ordered` for a new one."""
    if device_of(volume) is not None:
        if data not in (None, data_of(volume)):
            in_parallel([volume], lambda volume: renew(volume, data=data))
        return {"attached": False}
    image, path = volume["image"], volume["path"]
    with open(image, "wb") as made:
        made.truncate(size_mib << 20)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", image)
    if data == "writeback":
        order_data(volume, data)
    device = run("losetup", "--find", "--show", image)

    def furnish(volume: Volume) -> None:
        enter(volume)
        before = f"{path}.before"
        os.makedirs(path, exist_ok=True)
        # Servers keep large files that are mostly holes, and others that got all of their space when they were made.
        whole = with_space(path)
        run("cp", "-a", "--sparse=always", path, before)
        mount(volume, os.path.basename(device))
        run("cp", "-a", "--sparse=always", f"{before}/.", path)
        give_space(path, whole)
        # What the servers of a kept cluster wrote long ago was on the disk, so the copy must be.
        run("sync", "--file-system", path)
        shutil.rmtree(before)

    try:
        in_parallel([volume], furnish)
    finally:
        # From now on the device goes with its last mount (or at once, if it has none).
        run("losetup", "--detach", device)
    return {"attached": True}


def with_space(folder: str) -> list[str]:
    """The files that have space on the disk for every byte, relative to the folder."""
    found = []
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            facts = os.lstat(path)
            if stat.S_ISREG(facts.st_mode) and 0 < facts.st_size <= facts.st_blocks * 512:
                found.append(os.path.relpath(path, folder))
    return found


def give_space(folder: str, names: list[str]) -> None:
    """Gives these files the space that a copy left out where they held nothing yet: without it, a full disk would take
    what a server writes there.
    """
    for name in names:
        with open(os.path.join(folder, name), "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{argv[0]}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout.strip()


def leave_mounts() -> None:
    """Enters a new mount namespace, whose mounts no other process sees."""
    checked(libc.unshare(CLONE_NEWNS), "a mount namespace")
    checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")


def on_scratch(folder: str, work: Callable[[Volume], None], data: str | None = None) -> None:
    """Calls `work` with a small volume in a mount namespace that ends with a child process."""
    scratch = os.path.join(folder, f"probe-{os.getpid()}")
    os.makedirs(os.path.join(scratch, "here"))
    volume: Volume = {
        "name": "scratch",
        "pid": None,
        "path": f"{scratch}/here",
        "image": f"{scratch}/image",
        "processes": [],
    }

    def alone(volume: Volume) -> None:
        leave_mounts()
        attach(volume, 16, data)
        work(volume)

    try:
        in_parallel([volume], alone)
    finally:
        shutil.rmtree(scratch)
