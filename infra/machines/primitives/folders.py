# SPDX-License-Identifier: Apache-2.0
"""Folders of data: measures and empties them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.machines.api import Node

# The folders themselves stay: one may be where a file system is mounted. What is mounted below them stays as well.
_EMPTY = """
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -xdev -mindepth 1 -delete || exit 1
done
"""

_CONTENT = r"""
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -xdev -type f -printf '%s\n'
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Content:
    """Regular files below some folders. size: the sum of their lengths in bytes, holes included."""

    files: int
    size: int

    def __str__(self) -> str:
        return f"{self.files} file{'s' * (self.files != 1)} of {self.size / (1 << 20):.1f} MiB"


def content(node: Node, folders: Sequence[str]) -> Content:
    """Number and size of the files below these folders; a missing folder holds nothing."""
    sizes = [int(line) for line in node.run(["sh", "-c", _CONTENT, "content", *folders], timeout_s=60).text.split()]
    return Content(len(sizes), sum(sizes))


def empty_argv(folders: Sequence[str]) -> list[str]:
    """The argv that empties these folders, for leases. No process may use the files meanwhile."""
    return ["sh", "-c", _EMPTY, "empty", *folders]
