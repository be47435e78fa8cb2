# SPDX-License-Identifier: Apache-2.0
"""The entry points of all installed packages, searched once: each search reads a file of every package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points


def points(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group."""
    return _points(group, tuple(sys.path))


@cache
def _points(group: str, path: tuple[str, ...]) -> Sequence[EntryPoint]:
    return list(_all(path).select(group=group))


@cache
def _all(path: tuple[str, ...]):  # type: ignore[no-untyped-def]  # (its type differs between versions of Python)
    """path: `sys.path`."""
    return entry_points()
