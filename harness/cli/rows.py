# SPDX-License-Identifier: Apache-2.0
"""The rows of `harness list`, kept in the cache folder: making them loads every plug-in, which takes a second.

The rows of an earlier call count if nothing changed since: the entry points, the path of Python, and each file of the
packages that have plug-ins, and of the harness. Rows are not kept while a plug-in cannot be loaded: a module that it
lacks may come without any such change.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Final, TypeAlias

from harness.plan.points import points
from results.cache import cache_dir
from results.durable import write_text
from results.errors import ExpectedError

Tables: TypeAlias = Mapping[str, Mapping[str, str]]
"""Kind -> name -> the text of its row."""

_FILE: Final = "listing.json"
_OURS: Final = ("harness", "infra")
"""Packages that the rows depend on, besides those of the plug-ins."""


def kept_rows(groups: Iterable[str], make: Callable[[], tuple[Tables, bool]]) -> Tables:
    """The rows of an earlier call, or new ones. `make` returns them, and True if every plug-in could be loaded."""
    key = _key(groups)
    with suppress(ExpectedError, OSError, ValueError, KeyError, TypeError, AttributeError):
        stored = json.loads((cache_dir() / _FILE).read_text(encoding="utf-8"))
        if stored["key"] == key:
            return {kind: {name: str(text) for name, text in rows.items()} for kind, rows in stored["rows"].items()}
    rows, complete = make()
    if complete:
        with suppress(ExpectedError):
            write_text(cache_dir() / _FILE, json.dumps({"key": key, "rows": rows}), "the rows of the list")
    return rows


def _key(groups: Iterable[str]) -> str:
    """A text that is another one after every change that may change a row."""
    found = [(point.group, point.name, point.value) for group in groups for point in points(group)]
    packages = sorted({*_OURS, *(value.partition(":")[0].partition(".")[0] for _, _, value in found)})
    path = [(entry, _installed(entry)) for entry in sys.path]
    facts = [sys.version, path, found, [(name, sorted(_files_of(name))) for name in packages]]
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "backslashreplace")).hexdigest()


def _installed(entry: str) -> list[str]:
    """The installed packages of a folder of `sys.path`."""
    try:
        return sorted(name for name in os.listdir(entry or ".") if name.endswith((".dist-info", ".egg-info", ".pth")))
    except OSError:
        return []


def _files_of(package: str) -> Iterator[tuple[str, int, int]]:
    """(path, time in ns, bytes) of each module and each TOML file of a package, which is not loaded."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    folders = spec.submodule_search_locations
    if folders is None:
        with suppress(OSError):
            yield _state(str(spec.origin), os.stat(str(spec.origin)))
    for folder in folders or ():
        yield from _files_in(folder)


def _files_in(folder: str) -> Iterator[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith((".py", ".toml")):
            with suppress(OSError):
                yield _state(entry.path, entry.stat())
        elif entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir():
            yield from _files_in(entry.path)


def _state(path: str, about: os.stat_result) -> tuple[str, int, int]:
    return path, about.st_mtime_ns, about.st_size
