"""What is wrong with a file of a broker's store."""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """A file of the store cannot be read as what it claims to be. One line: which file, where in it, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
