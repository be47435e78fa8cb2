# SPDX-License-Identifier: Apache-2.0
"""Compiles ahead of time: `python -m checkers.linearizability.compiled.warm`. The set-up calls it."""

from __future__ import annotations

import os
import time

from checkers.linearizability.compiled import jit
from checkers.linearizability.compiled.code_cache import ensure


def warm() -> str:
    """Compiles everything that is not in the cache yet. Returns one line about the result."""
    if not jit.enabled():
        return "nothing to compile: Numba is not installed, or switched off; checks run in plain Python"
    # Numba is imported here, and only where it may be used.
    from checkers.linearizability.compiled.kv_batch import KEYS

    began = time.perf_counter()
    ensure(KEYS)
    folder = os.environ.get("NUMBA_CACHE_DIR", "Numba's own folder")
    return f"the compiled checkers are ready after {time.perf_counter() - began:.1f} s, in {folder}"


if __name__ == "__main__":
    print(warm())
