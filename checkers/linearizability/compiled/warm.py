"""Compile ahead of time: `python -m checkers.linearizability.compiled.warm`.

The first check compiles for some ten seconds, and every process of a Spark job that starts with an empty cache would do
the same at once. The set-up calls this instead; later processes read what it left.

Numba numbers the variants of a function in its cache as they come, and writes the index and the code one after the
other. Two processes that fill an empty cache at the same time can each take the same number for another variant; a
third one then runs code that was compiled for other types. So compiled code is only used once `ensure` was called: it
fills the cache under a lock, once, with every variant that there is of a part (a test sees to that).
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from checkers.linearizability.compiled import jit
from results.cache import exclusive
from results.errors import CacheError
from results.history import Call
from results.op import Op

SEARCH: Final = "search"
BATCH: Final = "batch"
STORES: Final = "stores"
"""What is compiled together: the searches of one history, `check_batch`, and what it needs for keys of a store. A first
verdict need not wait for what it does not use.
"""

_NEEDS: Final = {BATCH: SEARCH, STORES: BATCH}
_SECONDS: Final = {SEARCH: 15, BATCH: 20, STORES: 15}

_READY: Final = "ready"
"""A file beside the compiled code: all of a part is there, for this Numba, this Python and this kind of processor."""

_KEPT: Final = 3
_UNUSED_S: Final = 24 * 3600
"""So many folders of compiled code are kept in any case, and those that were used within that time."""


def ensure(part: str = SEARCH) -> None:
    """The code of a part is in the cache, or this process is the one that puts it there. Cheap from the second time."""
    # Kept elsewhere: run as a program, this module exists twice, and the second must not wait for the first's lock.
    if part in jit.State.ensured:
        return
    if part in _NEEDS:
        ensure(_NEEDS[part])
    jit.State.ensured.add(part)
    marker = _marker(part)
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
            if sys.stderr.isatty():
                told = f"compiling the checkers, which is needed once and takes some {_SECONDS[part]} s ..."
                print(told, file=sys.stderr)
            _run(part)
            with suppress(OSError):
                marker.touch()
    prune(marker.parent)


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


def warm() -> str:
    """Compiles everything that is not in the cache yet. Returns one line on what was done."""
    if not jit.enabled():
        return "nothing to compile: Numba is not installed, or switched off; checks run in plain Python"
    began = time.perf_counter()
    ensure(STORES)
    folder = os.environ.get("NUMBA_CACHE_DIR", "Numba's own folder")
    return f"the compiled checkers are ready after {time.perf_counter() - began:.1f} s, in {folder}"


def _run(part: str) -> None:
    """One small history through every compiled function, so that each has the one signature it is ever called with."""
    if part == SEARCH:
        _run_searches()
    elif part == BATCH:
        _run_batch()
    else:
        _run_stores()


def _run_searches() -> None:
    from checkers.linearizability.budget import Meter
    from checkers.linearizability.compiled.searches import Compiled
    from checkers.linearizability.history.encode import encode
    from checkers.linearizability.models.registers import CasRegister

    problem = encode(_register_calls(), CasRegister())
    fast = Compiled.of(problem)
    if fast is None:
        raise AssertionError("a register of two values has a closed table")
    for run in (fast.scout, fast.frontier, fast.refined):
        run(Meter(1_000, 1 << 24))


def _run_batch() -> None:
    from checkers.linearizability.compiled.batch import check_batch
    from checkers.linearizability.models.registers import CasRegister

    check_batch([_register_calls()], CasRegister())


def _register_calls() -> list[Call]:
    return [
        Call(Op(0, 0, 0, "invoke", "write", "k", 1), Op(4, 4, 0, "ok", "write", "k", 1)),
        Call(Op(1, 1, 1, "invoke", "cas", "k", [1, 2]), None),
        Call(Op(2, 2, 2, "invoke", "read", "k"), Op(3, 3, 2, "ok", "read", "k", 1)),
    ]


def _run_stores() -> None:
    from checkers.linearizability.compiled.batch import check_batch
    from checkers.linearizability.models.kv import KV

    store = [
        Call(Op(0, 0, 0, "invoke", "put", "k", "a"), Op(3, 3, 0, "ok", "put", "k", "a")),
        Call(Op(1, 1, 1, "invoke", "append", "k", "b"), None),
        Call(Op(2, 2, 2, "invoke", "get", "k"), Op(4, 4, 2, "ok", "get", "k", "ab")),
    ]
    check_batch([store], KV())


if __name__ == "__main__":
    print(warm())
