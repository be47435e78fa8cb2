# SPDX-License-Identifier: Apache-2.0
"""The checks of the pages belong to `make lint`: their marker is `docs`, unless they need more than this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_MORE = {"cluster", "slow", "nightly"}


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and not any(marker.name in _MORE for marker in item.iter_markers()):
            item.add_marker(pytest.mark.docs)
