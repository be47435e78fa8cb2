# SPDX-License-Identifier: Apache-2.0
"""The place of compiled code, by content: a second checkout of the same sources uses what the first one compiled.

Numba's own locator puts the path of the source file into the name of the folder. `jit.prepare_cache` names the folder
after the content of all sources, so the path within the package is enough. Numba reads the class from
`NUMBA_CACHE_LOCATOR_CLASSES`
(https://numba.readthedocs.io/en/stable/reference/envvars.html#envvar-NUMBA_CACHE_LOCATOR_CLASSES).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, cast

from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

_PACKAGE: Final = Path(__file__).parents[2]


class ByContent(UserProvidedCacheLocator):
    """For the files of this package; a function of anybody else's goes to Numba's other locators."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        cast(Any, super()).__init__(py_func, py_file)
        within = Path(py_file).resolve().relative_to(_PACKAGE.resolve())
        self._cache_path = os.path.join(cast(Any, config).CACHE_DIR, "-".join(within.with_suffix("").parts))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """None for a file outside the package. Called by Numba."""
        if not Path(py_file).resolve().is_relative_to(_PACKAGE.resolve()):
            return None
        return cast(Any, super()).from_function(py_func, py_file)
