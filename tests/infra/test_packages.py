# SPDX-License-Identifier: Apache-2.0
"""Debian packages for nodes: resolved against the node image's own list, and downloaded once."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from infra.machines import packages
from infra.machines.api import InfraError, SettingsError
from infra.machines.packages import ensure_packages

APT = r"""#!/bin/sh
echo "$@" >> "$CALLS"
for word; do
    case $word in
        Dir::State::status=*) status=${word#*=} ;;
        Dir::Cache::archives=*) archives=${word#*=} ;;
    esac
done
grep -q 'Package: base' "$status" || exit 9
case "$*" in
    *" update") exit 0 ;;
    *nothing*) echo "E: Unable to locate package nothing" >&2; exit 100 ;;
    *broken*) echo "E: Failed to fetch it" >&2; exit 100 ;;
esac
touch "$archives/serve_1_all.deb"
"""
DPKG = '#!/bin/sh\nmkdir -p "$3/usr/bin" && touch "$3/usr/bin/serve"\n'


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as tar:
        about, data = tarfile.TarInfo("./var/lib/dpkg/status"), b"Package: base\nStatus: install ok installed\n"
        about.size = len(data)
        tar.addfile(about, io.BytesIO(data))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(packages, "ensure_tar", lambda say: image)
    return tmp_path / "calls"


def test_packages_are_downloaded_once_and_unpacked(calls: Path) -> None:
    lines: list[str] = []
    folder = ensure_packages(["serve", "more"], lines.append)
    assert (folder / "usr" / "bin" / "serve").exists()
    assert ensure_packages(["more", "serve"], lines.append) == folder
    assert len(lines) == 1
    update, install = calls.read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith("--download-only install -- serve more")
    assert "Dir::Etc::sourceparts=" in install, "this machine's own sources must not count"
    assert ensure_packages(["other"], lines.append) != folder


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nothing", SettingsError, "packages: Unable to locate package nothing in Debian bookworm"),
        ("broken", InfraError, "apt-get cannot fetch the packages: E: Failed to fetch it"),
    ],
)
def test_a_failure_gives_one_line_and_leaves_nothing(
    name: str, kind: type[InfraError], message: str, calls: Path, tmp_path: Path
) -> None:
    with pytest.raises(kind) as raised:
        ensure_packages([name], lambda line: None)
    assert str(raised.value) == message
    assert list((tmp_path / "cache" / "packages").iterdir()) == []
