# SPDX-License-Identifier: Apache-2.0
"""The place of compiled code, by content: a second checkout of the same sources uses what the first one compiled.

Numba's own locator puts the path of the source file into the name of the folder, and takes the file's time as a sign
of a change. `jit.prepare_cache` names the folder after the content of all sources, so the path within the package is
enough. Numba's classes are extended here for our own functions alone; those of other packages, and of child processes,
keep Numba's places.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final, cast

from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

_PACKAGE: Final = Path(__file__).parents[2]


class _Locator(UserProvidedCacheLocator):
    """For the files of this package; None for others, which Numba's own locators serve."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        cast(Any, super()).__init__(py_func, py_file)
        within = Path(py_file).resolve().relative_to(_PACKAGE.resolve())
        self._cache_path = os.path.join(cast(Any, config).CACHE_DIR, "-".join(within.with_suffix("").parts))
        self._source = py_file

    def get_source_stamp(self) -> str:
        """The file's content. Numba compares it with the stamp of the stored code."""
        return hashlib.sha256(Path(self._source).read_bytes()).hexdigest()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Called by Numba."""
        if not Path(py_file).resolve().is_relative_to(_PACKAGE.resolve()):
            return None
        return cast(Any, super()).from_function(py_func, py_file)


class _Impl(CompileResultCacheImpl):
    _locator_classes = cast(Any, [_Locator, *cast(Any, CompileResultCacheImpl)._locator_classes])


class ByContent(FunctionCache):
    """The cache of one compiled function."""

    _impl_class = _Impl
