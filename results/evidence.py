# SPDX-License-Identifier: Apache-2.0
"""Digests of a run's evidence, the files that the verdict is based on, so that a later check can detect a change.

They are in `verdict.json`. They detect a file that was exchanged, cut or damaged, but not a forger, who could rewrite
the verdict as well.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from results.errors import HistoryError
from results.reading import opened

_MADE_FROM_IT: Final = frozenset({"verdict.json", "report.html", "junit.xml", "plots"})
_STILL_WRITTEN: Final = frozenset({"harness.log", "control.jsonl", "output.txt"})
"""Logs that grow while the machines are removed, after the verdict. No verdict is based on them."""

_CORE: Final = (
    *("plan.toml", "environment.json", "deployment.json", "journal.jsonl", "history.parquet"),
    *("observations.jsonl", "machine.log"),
)
"""Files of a run that readers find by name: one that appears later is a change, too."""
_SHOWN: Final = 3


def digests(folder: Path) -> dict[str, str]:
    """Path in a run's folder -> SHA-256 in hex, of every regular file that is evidence. Raises HistoryError."""
    return {path.relative_to(folder).as_posix(): _digest(path) for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        at_top = Path(here) == folder
        left_out = _MADE_FROM_IT | _STILL_WRITTEN if at_top else frozenset[str]()
        folders[:] = sorted(name for name in folders if name not in left_out)
        for name in sorted(names):
            path = Path(here, name)
            if name not in left_out and not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _digest(path: Path) -> str:
    try:
        with opened(path, follow=False) as file:
            found = hashlib.sha256()
            while piece := file.read(1 << 20):
                found.update(piece)
            return found.hexdigest()
    except OSError as problem:
        raise HistoryError(path, None, f"it cannot be read: {problem.strerror}") from None


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The changes of the evidence since it was judged, one phrase for each file; empty: unchanged."""
    found = [f"{path} was changed" for path in before if path in now and now[path] != before[path]]
    found += [f"{path} is missing" for path in before if path not in now]
    return found + [f"{path} was added" for path in now if path not in before and _matters(path)]


def _matters(path: str) -> bool:
    return path in _CORE or path.startswith("nodes/")


def describe(changed: list[str]) -> str:
    """The changes in one line."""
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"the evidence has changed since the verdict: {', '.join(changed[:_SHOWN])}{more}"
