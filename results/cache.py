# SPDX-License-Identifier: Apache-2.0
"""The cache folder: files that are expensive to create and the same for every run (images, jars, the engine's log)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results.errors import CacheError


def cache_dir() -> Path:
    """`$HARNESS_CACHE`, or `~/.cache/rocketmq-harness`; made if missing. Raises CacheError if it cannot be made."""
    chosen = os.environ.get("HARNESS_CACHE")
    folder = Path(chosen).absolute() if chosen else Path.home() / ".cache" / "rocketmq-harness"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CacheError(
            f"cannot make the cache folder {folder}: {e.strerror}; set HARNESS_CACHE to a folder of yours"
        ) from e
    return folder


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Holds the lock `name` of the cache folder; others wait. The kernel frees it when the holder dies."""
    path = cache_dir() / f"{name}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
