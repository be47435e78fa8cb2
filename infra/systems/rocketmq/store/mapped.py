# SPDX-License-Identifier: Apache-2.0
"""A log in files of one size, each named after its first byte's position: RocketMQ's MappedFileQueue.

The broker preallocates its files, so zeros follow the written part.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

from infra.systems.rocketmq.store.errors import StorageError

_NAME: Final = re.compile(r"\d{20}")


def mapped_files(folder: Path) -> list[tuple[int, Path]]:
    """(position of the first byte, file) of every file of the log in `folder`, in order; [] without a log.

    Raises StorageError for a log with a file missing in the middle.
    """
    if not folder.is_dir():
        return []
    found = sorted((int(path.name), path) for path in folder.iterdir() if _NAME.fullmatch(path.name))
    for (start, path), (following, _) in pairwise(found):
        if start + path.stat().st_size != following:
            raise StorageError(path, f"ends at {start + path.stat().st_size}, but the next file begins at {following}")
    return found
