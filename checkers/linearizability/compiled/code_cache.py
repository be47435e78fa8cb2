"""Compiled code is used only once its part of the cache is whole.

The first check compiles for some ten seconds, and every process of a Spark job that starts with an empty cache would do
the same at once. Numba numbers the variants of a function in its cache as they come, and writes the index and the code
one after the other: two processes that fill an empty cache at the same time can each take the same number for another
variant, and a third one then runs code that was compiled for other types. So `ensure` fills the cache under a lock,
once, with every variant that there is of a part (a test sees to that).
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
"""So many folders of compiled code are kept in any case, and those that were used within that time."""


class Part(NamedTuple):
    """What is compiled together: a first verdict need not wait for what it does not use.

    run      small histories through every compiled function, so that each has the one signature it is ever called with.
    seconds  what it takes, about. needs: the part that it is built on.
    """

    name: str
    run: Callable[[], None]
    seconds: int
    needs: Part | None = None


def ensure(part: Part) -> None:
    """The code of a part is in the cache, or this process is the one that puts it there. Cheap from the second time."""
    # Kept elsewhere: run as a program, `warm` exists twice, and the second must not wait for the first's lock.
    if part.name in jit.ENSURED:
        return
    if part.needs is not None:
        ensure(part.needs)
    jit.ENSURED.add(part.name)
    marker = _marker(part.name)
    if marker.exists():
        # (So that `prune` sees that somebody needs it.)
        with suppress(OSError):
            os.utime(marker)
        return
    with ExitStack() as held:
        # Without a folder to lock there is none to share either.
        with suppress(CacheError, OSError):
            held.enter_context(exclusive(f"numba-{marker.parent.name}"))
        if not marker.exists():
            _announce(part)
            part.run()
            with suppress(OSError):
                marker.touch()
    prune(marker.parent)


def _announce(part: Part) -> None:
    """One line on stderr, also where that is a file: a minute without a word looks like a hang."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            line = f"harness: compiling the checkers, once for this installation: about {part.seconds} s of a processor"
            print(line, file=sys.stderr, flush=True)


def _marker(part: str) -> Path:
    """A cache folder may be shared by machines (a home on a file server): each kind compiles for itself."""
    import numba
    from llvmlite.binding import get_host_cpu_name

    made_by = f"{numba.__version__}-{sys.implementation.cache_tag}-{get_host_cpu_name()}"
    return Path(os.environ.get("NUMBA_CACHE_DIR", "")) / f"{_READY}-{part}-{made_by}"


def prune(own: Path) -> None:
    """Removes what was compiled from other sources than `own`, but for the newest and what was used within a day.

    Every change of the sources makes a folder, and nobody else would ever remove one.
    """
    others = [folder for folder in own.parent.glob(f"numba-{'[0-9a-f]' * 12}") if folder != own]
    for folder in sorted(others, key=_used, reverse=True)[_KEPT - 1 :]:
        if time.time() - _used(folder) < _UNUSED_S:
            continue
        # Nobody fills it meanwhile, and what is half gone is not taken for ready.
        with suppress(CacheError, OSError), exclusive(f"numba-{folder.name}"):
            if time.time() - _used(folder) < _UNUSED_S:
                continue
            for marker in folder.glob(f"{_READY}-*"):
                marker.unlink()
            shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    """When it was filled, or used last; seconds since 1970."""
    stamps = [0.0]
    for path in (folder, *folder.glob(f"{_READY}-*")):
        with suppress(OSError):
            stamps.append(path.stat().st_mtime)
    return max(stamps)
