# SPDX-License-Identifier: Apache-2.0
"""Protects the control program in a container: what nodes mount is found at the engine, or it says why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.errors import NotFound

from infra.machines.api import InfraError
from infra.machines.backends import own_container
from infra.machines.backends.own_container import EnginePaths, engine_paths, own_id

ID = "4f" * 32
INSIDE = [
    "812 700 0:61 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/AB,upperdir=/x",
    f"830 812 254:1 /var/lib/docker/containers/{ID}/resolv.conf /etc/resolv.conf rw,relatime - ext4 /dev/vda1 rw",
    f"831 812 254:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw",
]
# A machine on which an engine runs: it sees mounts of containers, but none of them at its own /etc.
OUTSIDE = [
    "29 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw",
    f"90 29 0:40 / /var/lib/docker/containers/{ID}/mounts/shm rw,nosuid - tmpfs shm rw,size=65536k",
]
ROOT = Path(__file__).parents[2]


class Client:
    """An engine that knows one container, with a volume and a folder of the user."""

    def __init__(self, known: str) -> None:
        self.known, self.containers = known, self

    def get(self, name: str) -> Any:
        if name != self.known:
            raise NotFound("no such container")
        self.attrs = {
            "Mounts": [
                {"Type": "volume", "Source": "/var/lib/docker/volumes/cache/_data", "Destination": "/cache"},
                {"Type": "bind", "Source": "/Users/ann/tests", "Destination": "/data"},
            ]
        }
        return self


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("\n".join(INSIDE))
    monkeypatch.setattr(own_container, "_MOUNTS", mounts)


def test_the_own_container_is_found_by_the_files_that_an_engine_mounts() -> None:
    assert own_id(INSIDE) == ID
    assert own_id(OUTSIDE) is None


@pytest.mark.usefixtures("inside")
def test_a_folder_has_its_path_of_the_engines_machine() -> None:
    paths = engine_paths(Client(ID))  # type: ignore[arg-type]
    assert paths.of(Path("/cache/maven/x")) == "/var/lib/docker/volumes/cache/_data/maven/x"
    assert paths.of(Path("/data")) == "/Users/ann/tests"
    with pytest.raises(InfraError, match=r"the nodes cannot mount /opt/jars: .* from outside \(/cache, /data\)"):
        paths.of(Path("/opt/jars"))


@pytest.mark.usefixtures("inside")
def test_the_container_of_another_engine_changes_nothing() -> None:
    assert engine_paths(Client("other")).of(Path("/srv/jars")) == "/srv/jars"  # type: ignore[arg-type]


def test_outside_of_containers_paths_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert EnginePaths(None).of(tmp_path / "link") == str(tmp_path)


def test_the_image_has_the_programs_that_the_set_up_installs() -> None:
    needed = re.search(r"^need=\((.*?)\)", (ROOT / "scripts/setup").read_text(), re.S | re.M)
    assert needed is not None
    packages = {pair.partition(":")[2] for pair in needed[1].split()}
    installed = set((ROOT / "infra/Dockerfile").read_text().split())
    assert packages <= installed, packages - installed


def test_the_image_gets_every_package_of_the_wheel() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    found = re.search(r"^packages = \[(.*?)\]", project, re.M)
    assert found is not None
    rules = (ROOT / ".dockerignore").read_text().split()
    for package in set(re.findall(r'"(\w+)"', found[1])) - {"results"}:
        assert f"!{package}" in rules
    # The stores of a user's runs are in the folder of this package, too.
    inner = {f"!results/{path.parent.name}" for path in (ROOT / "results").glob("*/__init__.py")}
    assert inner | {"!results/*.py", "!results/py.typed"} == {rule for rule in rules if rule.startswith("!results")}


def test_the_service_is_one_that_compose_can_read() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["harness"]
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert any(volume.endswith(":/var/run/docker.sock") for volume in service["volumes"])
