# SPDX-License-Identifier: Apache-2.0
"""The error for a damaged file of a broker's store."""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """A file of the store is not what it claims to be. One line: the file, the place in it, and the reason."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
