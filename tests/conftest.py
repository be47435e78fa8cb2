# SPDX-License-Identifier: Apache-2.0
"""For all tests: the effort, what Hypothesis may take, and which tests that start nodes may run beside each other."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import settings

settings.register_profile("any-machine", deadline=None)  # a busy machine is no slow function
settings.load_profile("any-machine")

_DISKS = ("infra/test_volumes", "nemesis/test_power_on_nodes")
"""They look at the limits and loops of the whole machine: one after the other."""


@pytest.hookimpl(tryfirst=True)  # xdist's own hook reads the groups
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Two processes run the tests that start nodes alone (`--dist loadgroup`): a module's stay together."""
    for item in items:
        if item.get_closest_marker("nodes"):
            module = "/".join(item.path.with_suffix("").parts[-2:])
            item.add_marker(pytest.mark.xdist_group("disks" if module in _DISKS else module))
