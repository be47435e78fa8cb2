# SPDX-License-Identifier: Apache-2.0
"""Debian packages for nodes: downloaded once with all that the node image lacks, and unpacked into a folder.

apt resolves them against the list of packages of the node image, with an apt folder of its own: this machine's packages
stay unchanged, and its own list does not count. The packages are unpacked and not installed: their maintainer scripts
do not run, so they start no service and make no users.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, Node, SettingsError
from infra.machines.image import SUITE, Say, apt_sources, ensure_tar, image_id, require_tools
from results.cache import cache_dir, exclusive

_STATUS: Final = "var/lib/dpkg/status"

_INSTALL: Final = r"""
set -e
[ ! -e "$2" ] || exit 0
tar -C "$1" -cf - . | tar -C / -xf - --keep-directory-symlink --no-overwrite-dir
ldconfig
mkdir -p -- "$(dirname -- "$2")"
: > "$2"
"""


def ensure_packages(names: Sequence[str], say: Say) -> Path:
    """The folder with the unpacked files of the packages and of their dependencies. Raises SettingsError for a package
    that does not exist, InfraError if it cannot be downloaded.
    """
    tar = ensure_tar(say)
    key = hashlib.sha256(json.dumps([image_id(), sorted(set(names))]).encode()).hexdigest()[:12]
    folder = cache_dir() / "packages" / key
    with exclusive(f"packages-{key}"):
        if folder.exists():
            return folder
        require_tools("apt-get", "dpkg-deb")
        partial = folder.with_name(f"{key}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "root").mkdir(parents=True)
        say(f"packages: downloading {', '.join(names)} and what they need (Debian {SUITE}, once)")
        try:
            for deb in _download(tar, partial / "apt", names):
                _run(["dpkg-deb", "-x", str(deb), str(partial / "root")], f"cannot unpack {deb.name}")
            (partial / "root").rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def install_packages(node: Node, folder: str) -> None:
    """Copies the unpacked packages, which are at `folder` on the node, over its file system. Idempotent."""
    done = f"/var/lib/harness/packages-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"
    node.run(["sh", "-c", _INSTALL, "install", folder, done], timeout_s=120)


def _download(tar: Path, apt: Path, names: Sequence[str]) -> list[Path]:
    for place in ("lists/partial", "archives/partial", "empty"):
        (apt / place).mkdir(parents=True)
    with tarfile.open(tar) as image:
        found = next((image.extractfile(f"{prefix}{_STATUS}") for prefix in ("./", "") if _has(image, prefix)), None)
        if found is None:
            raise InfraError(f"{tar} has no list of packages; remove it, and the next run makes the node image again")
        (apt / "status").write_bytes(found.read())
    sources = apt_sources()
    if not sources:
        raise InfraError("packages: they come from this machine's own sources of Debian, and it has none (/etc/apt)")
    (apt / "sources.list").write_text("\n".join(sources) + "\n")
    options = {
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": apt / "empty",
        "Dir::Etc::preferencesparts": apt / "empty",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
    }
    base = ["apt-get", "-qq", "-y", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    _run([*base, "update"], "apt-get cannot fetch the lists of packages")
    _run([*base, "--download-only", "install", "--", *names], "apt-get cannot fetch the packages")
    return sorted((apt / "archives").glob("*.deb"))


def _has(image: tarfile.TarFile, prefix: str) -> bool:
    try:
        image.getmember(f"{prefix}{_STATUS}")
    except KeyError:
        return False
    return True


def _run(argv: Sequence[str], failure: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "dpkg"))] or ["no output"]
        if "Unable to locate package" in lines[-1] or "has no installation candidate" in lines[-1]:
            raise SettingsError(f"packages: {lines[-1].removeprefix('E: ')} in Debian {SUITE}")
        raise InfraError(f"{failure}: {lines[-1]}")
