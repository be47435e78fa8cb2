# SPDX-License-Identifier: Apache-2.0
"""Compiled code is used only once its part of the cache is whole.

The first check compiles for some ten seconds, and every process of a Spark job that starts with an empty cache would do
the same at once. Numba numbers the variants of a function in its cache in order of arrival, and writes the index and
the code one after the other. So two processes that fill an empty cache at the same time can each use the same number
for another variant, and a third one then runs code that was compiled for other types. Therefore `ensure` fills the
cache under a lock, once, with every variant of a part (a test verifies that).
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from checkers.linearizability.compiled import jit
from results.cache import exclusive
from results.errors import CacheError

_READY: Final = "ready"
"""A file beside the compiled code: all of a part is there, for this Numba, this Python and this kind of processor."""

_KEPT: Final = 3
_UNUSED_S: Final = 24 * 3600
"""`_KEPT` folders of compiled code are always kept, and those that were used within `_UNUSED_S` seconds."""


class Part(NamedTuple):
    """Code that is compiled together: a first verdict need not wait for code that it does not use.

    run      runs small histories through every compiled function, so that each gets the one signature it is used with.
    seconds  the approximate time to compile it. needs: the part that it is built on.
    """

    name: str
    run: Callable[[], None]
    seconds: int
    needs: Part | None = None


def ensure(part: Part) -> None:
    """Fills the cache with the code of a part: this process compiles it if necessary. Later calls are cheap."""
    # Kept elsewhere: run as a program, `warm` exists twice, and the second must not wait for the first's lock.
    if part.name in jit.ENSURED:
        return
    if part.needs is not None:
        ensure(part.needs)
    jit.ENSURED.add(part.name)
    marker = _marker(part.name)
    if marker.exists():
        # (So that `prune` sees that it is in use.)
        with suppress(OSError):
            os.utime(marker)
        return
    with ExitStack() as held:
        # Without a folder to lock, no folder is shared either.
        with suppress(CacheError, OSError):
            held.enter_context(exclusive(f"numba-{marker.parent.name}"))
        if not marker.exists():
            _announce(part)
            part.run()
            with suppress(OSError):
                marker.touch()
    prune(marker.parent)


def _announce(part: Part) -> None:
    """Prints one line on stderr, also if that is a file: a minute without output looks like a hang."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            line = f"harness: compiling the checkers, once for this installation: about {part.seconds} s of a processor"
            print(line, file=sys.stderr, flush=True)


def _marker(part: str) -> Path:
    """The file that marks a part as complete. Machines may share a cache folder (a home on a file server): each kind
    compiles for itself.
    """
    jit.prepare_cache()
    import numba
    from llvmlite.binding import get_host_cpu_name

    made_by = f"{numba.__version__}-{sys.implementation.cache_tag}-{get_host_cpu_name()}"
    return Path(os.environ.get("NUMBA_CACHE_DIR", "")) / f"{_READY}-{part}-{made_by}"


def prune(own: Path) -> None:
    """Removes code compiled from other sources than `own`, except the newest folders and those used within a day.

    Every change of the sources makes a folder, and nothing else would ever remove one.
    """
    others = [folder for folder in own.parent.glob(f"numba-{'[0-9a-f]' * 12}") if folder != own]
    for folder in sorted(others, key=_used, reverse=True)[_KEPT - 1 :]:
        if time.time() - _used(folder) < _UNUSED_S:
            continue
        # Under the lock no process fills it; its markers go first, so that no process uses a half-removed folder.
        with suppress(CacheError, OSError), exclusive(f"numba-{folder.name}"):
            if time.time() - _used(folder) < _UNUSED_S:
                continue
            for marker in folder.glob(f"{_READY}-*"):
                marker.unlink()
            shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    """The time of its filling, or of its last use; seconds since 1970."""
    stamps = [0.0]
    for path in (folder, *folder.glob(f"{_READY}-*")):
        with suppress(OSError):
            stamps.append(path.stat().st_mtime)
    return max(stamps)
