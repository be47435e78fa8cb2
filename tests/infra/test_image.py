# SPDX-License-Identifier: Apache-2.0
"""The node image: what it is made of, where from, and that it is made once."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path

import pytest

from infra.machines import image
from infra.machines.api import InfraError
from infra.machines.image import apt_settings, debian_sources, dockerfile, ensure_rootfs, ensure_tar, image_id, tar_path

DEB822 = """\
# where this machine's packages come from
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
 bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
SIGNED = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "


def test_sources_in_deb822_style() -> None:
    assert debian_sources({"/etc/apt/sources.list.d/debian.sources": DEB822}, "bookworm") == [
        f"deb {SIGNED}http://mirror.example/debian bookworm main",
        f"deb {SIGNED}http://mirror.example/debian bookworm-updates main",
        "deb http://mirror.example/debian-security bookworm-security main",
    ]


def test_sources_in_one_line_style_without_those_of_others() -> None:
    text = """
deb [arch=amd64] http://mirror.example/debian trixie main non-free  # ours
# deb http://off.example/debian trixie main
deb-src http://mirror.example/debian trixie main
deb http://database.example/apt trixie-pgdg main
deb http://cloud.example/apt trixie stable
deb http://mirror.example/debian trixie main
"""
    assert debian_sources({"sources.list": text}, "trixie") == [
        "deb [arch=amd64] http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm main",
    ]


def test_settings_that_say_how_to_fetch() -> None:
    dump = """APT "";
APT::Architecture "amd64";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::https::proxy::mirror.example "DIRECT";
Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";
Acquire::Check-Valid-Until "false";
Acquire::Changelogs::URI::Origin::Debian "https://changes.example";
Acquire::Retries "3";
DPkg::Post-Invoke:: "rm -rf /";"""
    kept = apt_settings(dump)
    assert [line.split()[0] for line in kept] == [
        "Acquire::http::Proxy",
        "Acquire::https::proxy::mirror.example",
        "Acquire::http::Proxy-Auto-Detect",
        "Acquire::Check-Valid-Until",
        "Acquire::Retries",
    ]


def test_the_id_follows_everything_that_decides_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {image_id()}
    assert image_id() in ids
    for name, value in (("PACKAGES", (*image.PACKAGES, "vim")), ("RECIPE", 999), ("SUITE", "sid")):
        with monkeypatch.context() as patch:
            patch.setattr(image, name, value)
            ids.add(image_id())
    assert len(ids) == 4
    assert tar_path().name == f"rootfs-{image_id()}.tar"


@pytest.mark.parametrize("base", ["", "debian\nRUN evil", "debian bookworm", "-x", "$(x)"])
def test_a_base_that_is_no_image_name(base: str) -> None:
    with pytest.raises(InfraError, match="is not an image name"):
        dockerfile(base)


def test_a_base_gets_the_same_packages() -> None:
    text = dockerfile("mirror.example:5000/debian:bookworm-slim")
    assert text.startswith("FROM mirror.example:5000/debian:bookworm-slim\n")
    assert all(package in text.split() for package in image.PACKAGES)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a folder in front of the path where a test puts its mmdebstrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return folder


def mmdebstrap(folder: Path, script: str) -> None:
    """A stand-in: `$tar` is the file it is to make, `$log` one line per call."""
    tool = folder / "mmdebstrap"
    tool.write_text(
        f'#!/bin/sh\nlog={folder}/calls\necho "$*" >>"$log"\n'
        "for word; do case $word in /*.tar) tar=$word ;; esac; done\n" + script
    )
    tool.chmod(0o755)


def test_it_is_made_once_however_many_ask(tools: Path) -> None:
    mmdebstrap(tools, 'echo "I: downloading packages"; cd "${log%/*}"; echo 1 >f; tar -cf "$tar" f')
    output: list[str] = []
    threads = [threading.Thread(target=ensure_rootfs, args=(output.append,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = (tools / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert f"--include={','.join(image.PACKAGES)}" in calls[0]
    assert (ensure_rootfs(output.append) / "f").read_text() == "1\n"
    assert "image: downloading packages" in output
    with tarfile.open(ensure_tar(output.append)) as tar:
        assert tar.getnames() == ["f"]


def test_a_failure_names_its_cause_and_leaves_nothing_half_made(tools: Path) -> None:
    mmdebstrap(tools, 'echo half >"$tar"; echo "E: no such package: x"; echo "I: cleaning"; exit 7')
    with pytest.raises(InfraError, match=r"could not make the node image: E: no such package: x \(all in .*\.log\)"):
        ensure_tar(lambda _: None)
    assert list(tar_path().parent.glob("*.tar")) == []


def test_without_mmdebstrap_it_says_what_to_install(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InfraError, match="needs mmdebstrap, which is not installed: `apt-get install mmdebstrap`"):
        ensure_tar(lambda _: None)
