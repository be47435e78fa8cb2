# SPDX-License-Identifier: Apache-2.0
"""The block-IO controller, both versions, in folders that look like the kernel's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.machines.scripts.mounts import Problem
from infra.machines.scripts.throttle import V1, Controller

NODE = {"name": "n1", "pid": 10}


def machine(tmp_path: Path, version: int, groups: Mapping[int, str]) -> Controller:
    """A machine with these processes (pid -> group); those from 10 on are in the node's mount namespace."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    kind = "cgroup cgroup rw,blkio" if version == 1 else "cgroup2 cgroup2 rw"
    mount.mkdir()
    (mount / "cgroup.controllers").write_text("cpu io memory\n" if version == 2 else "")
    for pid, group in groups.items():
        (proc / f"{pid}/ns").mkdir(parents=True)
        (proc / f"{pid}/ns/mnt").symlink_to("mnt:[2]" if pid >= 10 else "mnt:[1]")
        (proc / f"{pid}/cgroup").write_text(f"3:cpu:/elsewhere\n7:blkio:{group}\n" if version == 1 else f"0::{group}\n")
        folder = mount / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for file in V1.values() if version == 1 else ["io.max"] if folder != mount else []:
            (folder / file).write_text("")
        for above in [folder, *folder.parents]:
            if above.is_relative_to(mount):
                (above / "cgroup.subtree_control").write_text("cpu memory\n")
    (proc / "self").mkdir()
    (proc / "self/mountinfo").write_text(f"30 1 0:26 / {mount} rw,relatime - {kind}\n")
    return Controller(str(proc))


def test_version_1_has_its_limits_in_the_root_group(tmp_path: Path) -> None:
    """There the kernel writes back; and in the group of the node's first process, which stays."""
    controller = machine(tmp_path, 1, {1: "/", 10: "/docker/a", 11: "/docker/a", 12: "/docker/b"})
    assert controller.limited(NODE) == ["", "/docker/a"]
    controller.put("/docker/a", "7:3", {"write_iops": 20, "read_rate": 1 << 20})
    written = {name: (tmp_path / "cgroup/docker/a" / file).read_text() for name, file in V1.items()}
    assert written == {"write_iops": "7:3 20", "read_iops": "7:3 0", "write_rate": "7:3 0", "read_rate": "7:3 1048576"}


def test_version_1_reads_the_limits_of_one_device(tmp_path: Path) -> None:
    controller = machine(tmp_path, 1, {1: "/", 10: "/docker/a"})
    (tmp_path / "cgroup/docker/a" / V1["write_rate"]).write_text("7:31 5\n7:3 4096\n")
    assert controller.get("/docker/a", "7:3") == {"write_rate": 4096}
    assert controller.get("/gone", "7:3") == {}
    assert set(controller.groups()) == {"", "/docker", "/docker/a"}


def test_version_2_has_its_limits_in_the_groups_of_the_nodes_processes(tmp_path: Path) -> None:
    controller = machine(tmp_path, 2, {1: "/", 10: "/docker/a", 11: "/docker/a/inner", 12: "/"})
    assert controller.limited(NODE) == ["/docker/a", "/docker/a/inner"], "the root group has none"
    controller.enable("/docker/a")
    cgroup = tmp_path / "cgroup"
    assert (cgroup / "cgroup.subtree_control").read_text() == "+io"
    assert (cgroup / "docker/cgroup.subtree_control").read_text() == "+io"
    assert (cgroup / "docker/a/cgroup.subtree_control").read_text() == "cpu memory\n", "its own children need none"
    controller.put("/docker/a", "7:3", {"write_iops": 20, "read_rate": 4096})
    assert (cgroup / "docker/a/io.max").read_text() == "7:3 wiops=20 riops=max wbps=max rbps=4096"
    assert controller.get("/docker/a", "7:3") == {"write_iops": 20, "read_rate": 4096}
    controller.put("/docker/a", "7:3", {})
    assert controller.get("/docker/a", "7:3") == {}


def test_processes_in_the_root_group_of_version_2_are_a_problem(tmp_path: Path) -> None:
    controller = machine(tmp_path, 2, {1: "/", 10: "/"})
    with pytest.raises(Problem, match="n1: its processes are in the root control group, which has no limits"):
        controller.limited(NODE)


def test_a_group_that_passes_nothing_on_is_named(tmp_path: Path) -> None:
    controller = machine(tmp_path, 2, {10: "/docker/a"})
    (tmp_path / "cgroup/docker/cgroup.subtree_control").unlink()
    (tmp_path / "cgroup/docker/cgroup.subtree_control").mkdir()
    with pytest.raises(Problem, match="cgroup/docker does not pass the controller of block IO on"):
        controller.enable("/docker/a")


def test_a_machine_of_its_own_keeps_its_groups(tmp_path: Path) -> None:
    controller = machine(tmp_path, 1, {1: "/", 10: "/user", 12: "/services/a"})
    assert controller.limited({"name": "n1", "pid": None}) == ["", "/services/a", "/user"]


def test_a_machine_without_the_controller_says_so(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    with pytest.raises(Problem, match="no control groups have the controller of block IO"):
        Controller(str(tmp_path))
