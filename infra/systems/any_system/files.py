# SPDX-License-Identifier: Apache-2.0
"""The files of a system on this machine: copied or downloaded, and unpacked, once; and on the nodes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from infra.machines.api import InfraError, Node, Share
from infra.machines.image import require_tools
from infra.systems.any_system.description import NodeFile
from results.cache import cache_dir, exclusive

SHARED: Final = "/opt/harness/files"
_LIMIT: Final = 4 << 30
_WAIT_S: Final = 60

_COPY: Final = r"""
set -e
mkdir -p -- "$2"
tar -C "$1" -cf - . | tar -C "$2" -xf - --keep-directory-symlink --no-overwrite-dir --no-same-owner
"""


def share_of(file: NodeFile) -> Share:
    """The share with a file's content, or with the content of its archive. Raises InfraError."""
    key = _key(file)
    folder = cache_dir() / "files" / key
    with exclusive(f"files-{key}"):
        if not folder.exists():
            partial = folder.with_name(f"{key}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                _make(file, partial)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return Share(folder, f"{SHARED}/{key}")


def put(node: Node, file: NodeFile, text: str | None) -> None:
    """Puts a file on a node: its text, or what its share has."""
    if text is not None:
        node.write(file.path, text.encode(), file.mode)
        return
    folder = f"{SHARED}/{_key(file)}"
    if file.unpack:
        node.run(["sh", "-c", _COPY, "copy", folder, file.path], timeout_s=120)
    else:
        node.run(["install", "-D", "-m", f"{file.mode:o}", "--", f"{folder}/file", file.path], timeout_s=120)


def _key(file: NodeFile) -> str:
    if file.sha256 is not None:
        content = file.sha256
    else:
        assert file.source is not None
        content = _checksum(file.source)
    return hashlib.sha256(f"{content} {file.unpack}".encode()).hexdigest()[:12]


def _make(file: NodeFile, folder: Path) -> None:
    if not file.unpack:
        _fetch(file, folder / "file")
        return
    archive = folder.with_suffix(".archive")
    try:
        _fetch(file, archive)
        _unpack(archive, folder, str(file.url or file.source))
    finally:
        archive.unlink(missing_ok=True)


def _fetch(file: NodeFile, into: Path) -> None:
    if file.source is not None:
        shutil.copyfile(file.source, into)
        return
    assert file.url is not None
    try:
        with urllib.request.urlopen(file.url, timeout=_WAIT_S) as answer, into.open("wb") as out:
            _copy(answer, out, file.url)
    except (OSError, ValueError) as problem:
        raise InfraError(f"cannot download {file.url}: {problem}") from None
    found = _checksum(into)
    if found != file.sha256:
        raise InfraError(f"{file.url} has the sha256 {found}, and the description says {file.sha256}")


def _copy(answer: IO[bytes], out: IO[bytes], url: str) -> None:
    size = 0
    while data := answer.read(1 << 20):
        size += len(data)
        if size > _LIMIT:
            raise InfraError(f"{url} is larger than {_LIMIT >> 30} GiB")
        out.write(data)


def _unpack(archive: Path, folder: Path, name: str) -> None:
    """Unpacks an archive. Neither tar nor zipfile writes outside of the folder."""
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder)
            return
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as problem:
        raise InfraError(f"{name} cannot be unpacked: {problem}") from None
    require_tools("tar")
    argv = ["tar", "-C", str(folder), "--no-same-owner", "-xf", str(archive)]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason"])[0]
        raise InfraError(f"{name} cannot be unpacked as a tar or zip archive: {why}")


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        for entry in zipped.infolist():
            made = Path(zipped.extract(entry, folder))
            mode = entry.external_attr >> 16 & 0o777
            if mode and made.is_file():
                made.chmod(mode)


def _checksum(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def shares(files: Sequence[NodeFile]) -> list[Share]:
    """The shares of all files that are no text."""
    found = {share.path: share for share in (share_of(file) for file in files if file.text is None)}
    return list(found.values())
