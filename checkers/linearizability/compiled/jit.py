# SPDX-License-Identifier: Apache-2.0
"""The compiler, if one is installed. Everything compiled is also written in plain Python.

Both are right: their verdicts never contradict each other. But they spend their steps in another order, so that one may
be undecided while the other is not; an `unknown` of plain Python names it as the cause.

Numba is not even imported when it is missing (it has no build for some machines), when `HARNESS_NO_JIT` is set, or
inside `plain()`; the searches in `search` then do the work.

Numba keeps compiled code in `NUMBA_CACHE_DIR`, by default in the harness' own cache folder: an installation may be
read-only. `python -m checkers.linearizability.compiled.warm` fills it.
"""

from __future__ import annotations

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
"""The parts for which this process called `code_cache.ensure`."""


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
    """The seconds that this process has spent so far on loading and compiling: set-up, not part of a verdict's time."""
    return _SETUP.seconds


@contextmanager
def setting_up() -> Iterator[None]:
    """Counts the time of its block as set-up."""
    _SETUP.begin()
    try:
        yield
    finally:
        _SETUP.end()


def enabled() -> bool:
    """True if compiled code may be used here."""
    return _ALLOWED.get() and not os.environ.get("HARNESS_NO_JIT") and _installed()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


@contextmanager
def plain() -> Iterator[None]:
    """Makes the plain-Python specification do all the work of its block."""
    token = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def compiled(function: F) -> F:
    """Makes a function that is compiled at the first call, or read from the cache. Only for modules that are imported
    when `enabled()`.
    """
    return _jit(function)


def loop(function: F) -> F:
    """`compiled` without reference counts, for a function that makes no array: with them, arrays that an inner loop
    takes out of a tuple nearly double its time.
    """
    return _jit(function, _nrt=False)


def inlined(function: F) -> F:
    """`loop`, and inlined into its callers: a call costs some 5 ns for each array that it passes."""
    return _jit(function, _nrt=False, forceinline=True)


def _jit(function: F, **options: bool) -> F:
    prepare_cache()
    import numba

    njit: Callable[..., Any] = numba.njit
    dispatcher = njit(nogil=True, boundscheck=False, **options)(function)
    if dispatcher is function:  # with NUMBA_DISABLE_JIT there is nothing to compile
        return function
    from checkers.linearizability.compiled.code_by_content import ByContent

    dispatcher._cache = cast(Any, ByContent)(function)  # what `cache=True` does, but for the class
    # (Numba calls this if it has no code yet for such arguments: it loads or compiles it, and runs nothing.)
    first_call = dispatcher._compile_for_args

    def timed(*args: Any, **named: Any) -> Any:
        with setting_up():
            return first_call(*args, **named)

    dispatcher._compile_for_args = timed
    return cast(F, dispatcher)


@cache
def prepare_cache() -> None:
    """Sets the folder for compiled code, before Numba is imported. If it cannot be made, Numba chooses its own.

    The folder is named after the content of the sources: Numba compares a function's own file only, and would go on
    using code into which an older version of another file was compiled. A second checkout of the same sources, or an
    installation from a wheel, uses the same folder (`code_by_content`).
    """
    # Imported here, and not done at the start: a small history that plain Python decides needs no compiled code.
    import hashlib

    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    if os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):  # the user's own: the place decides, and a checkout has its own
        digest.update(str(package).encode())
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"compiled.jit import" in text:
            digest.update(f"{source.relative_to(package)} {len(text)} ".encode())
            digest.update(text)
    name = f"numba-{digest.hexdigest()[:12]}"
    with suppress(CacheError):
        folder = Path(os.environ.get("NUMBA_CACHE_DIR") or cache_dir())
        os.environ["NUMBA_CACHE_DIR"] = str(folder if folder.name == name else folder / name)
