"""The compiler, if there is one. Everything compiled is also written in plain Python.

Both are right: neither says `valid` where the other says `invalid`. But they spend their steps in another order, so
that one may be undecided where the other is not; an `unknown` of plain Python says that it was.

Numba is not even imported when it is missing (it has no build for some machines), when `HARNESS_NO_JIT` is set, or
inside `plain()`; the searches in `search` then do the work.

What Numba compiled is kept in `NUMBA_CACHE_DIR`, by default in the harness' own cache folder: an installation may be
read-only. `python -m checkers.linearizability.compiled.warm` fills it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from results.cache import cache_dir
from results.errors import CacheError

F = TypeVar("F", bound=Callable[..., Any])

_ALLOWED: Final = ContextVar("compiled code is allowed", default=True)


ENSURED: Final[set[str]] = set()
"""For what this process called `code_cache.ensure`."""


class _SetUp:
    """Sums up the seconds from the first of several nested beginnings to the last end."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        self._depth = 0

    def begin(self) -> None:
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began


_SETUP: Final = _SetUp()


def setup_seconds() -> float:
    """Seconds that this process has spent so far on loading and compiling: set-up, and no part of a verdict's own
    time.
    """
    return _SETUP.seconds


@contextmanager
def setting_up() -> Iterator[None]:
    """What happens within it is set-up."""
    _SETUP.begin()
    try:
        yield
    finally:
        _SETUP.end()


def enabled() -> bool:
    """May compiled code be used right here?"""
    return _ALLOWED.get() and not os.environ.get("HARNESS_NO_JIT") and _installed()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


@contextmanager
def plain() -> Iterator[None]:
    """Within it, the plain-Python specification does all the work."""
    token = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def compiled(function: F) -> F:
    """Compiled at the first call, or read from the cache. Only modules that are imported when `enabled()` use it."""
    return _jit(function)


def loop(function: F) -> F:
    """`compiled` without reference counts, for what makes no array: with them, arrays that are taken out of a tuple in
    an inner loop nearly double its time.
    """
    return _jit(function, _nrt=False)


def inlined(function: F) -> F:
    """`loop`, and made part of whatever calls it: a call costs some 5 ns for each array that it hands over."""
    return _jit(function, _nrt=False, forceinline=True)


def _jit(function: F, **options: bool) -> F:
    import numba

    njit: Callable[..., Any] = numba.njit
    dispatcher = njit(cache=True, nogil=True, boundscheck=False, **options)(function)
    if dispatcher is function:  # with NUMBA_DISABLE_JIT there is nothing to compile
        return function
    # (What Numba calls where it has no code yet for such arguments: it loads or compiles it, and runs nothing.)
    first_call = dispatcher._compile_for_args

    def timed(*args: Any, **named: Any) -> Any:
        with setting_up():
            return first_call(*args, **named)

    dispatcher._compile_for_args = timed
    return cast(F, dispatcher)


def prepare_cache() -> None:
    """Names the folder for compiled code, before Numba is imported. Where none can be made, Numba chooses its own.

    The folder is named after the sources: Numba looks at a function's own file only, and would go on using code into
    which an older version of another file was compiled. Their place and time count too, as they do to Numba: a second
    checkout must not take the first one's code for its own (`code_cache.ensure` would not see that it has none).
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        text = source.read_bytes()
        if b"compiled.jit import" in text:
            digest.update(f"{source} {source.stat().st_mtime_ns}".encode())
            digest.update(text)
    name = f"numba-{digest.hexdigest()[:12]}"
    with suppress(CacheError):
        folder = Path(os.environ.get("NUMBA_CACHE_DIR") or cache_dir())
        os.environ["NUMBA_CACHE_DIR"] = str(folder if folder.name == name else folder / name)


if _installed():
    prepare_cache()
