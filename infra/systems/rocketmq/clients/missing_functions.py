# SPDX-License-Identifier: Apache-2.0
"""The functions of librocketmq that rocketmq-client-python binds, and that the library lacks.

The package binds all functions when it is imported, and one that is missing would end it. Here a missing one is
replaced by a stub and noted by name, so that operations that need it can be refused, and the rest works. It uses the
standard library alone: the file also goes to nodes, which lack this package.
"""

from __future__ import annotations

import ctypes
from typing import Any

MISSING: list[str] = []
"""Their names, in the order in which they were looked up."""


def tolerate_missing_functions() -> None:
    """Makes `ctypes` return a stub for a missing function of a library with `rocketmq` in its name."""
    found = ctypes.CDLL.__getattr__

    def find(library: ctypes.CDLL, name: str) -> Any:
        try:
            return found(library, name)
        except AttributeError:
            if name.startswith("__") or "rocketmq" not in str(library._name):
                raise
            MISSING.append(name)
            stub = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: -1)
            setattr(library, name, stub)
            return stub

    ctypes.CDLL.__getattr__ = find  # type: ignore[method-assign]
