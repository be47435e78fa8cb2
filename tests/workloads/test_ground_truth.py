# SPDX-License-Identifier: Apache-2.0
"""Protects the reading of nodes' files: an archive of a node is unpacked by every Python that the harness runs on."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from workloads.ground_truth import unpack


def packed(member: tarfile.TarInfo, data: bytes = b"") -> tarfile.TarFile:
    file = io.BytesIO()
    member.size = len(data)
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(member, io.BytesIO(data))
    return tarfile.open(fileobj=io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("filters", [True, False])
def test_files_are_unpacked_with_and_without_the_filters_of_later_pythons(
    filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with packed(tarfile.TarInfo("commitlog/0000"), b"messages") as archive:
        unpack(archive, tmp_path)
    assert (tmp_path / "commitlog" / "0000").read_bytes() == b"messages"


@pytest.mark.parametrize(("name", "kind"), [
    ("../0000", tarfile.REGTYPE),
    ("/etc/0000", tarfile.REGTYPE),
    ("commitlog/0000", tarfile.SYMTYPE),
    ("commitlog/0000", tarfile.FIFOTYPE),
])  # fmt: skip
def test_nothing_else_is_unpacked(name: str, kind: bytes, tmp_path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "elsewhere"
    with packed(member) as archive, pytest.raises(tarfile.TarError, match="is no file of the store"):
        unpack(archive, tmp_path / "store")
    assert not (tmp_path / "store").exists()
