# SPDX-License-Identifier: Apache-2.0
"""The default plug-ins of a plan: entry points of the group `harness.defaults` (`pyproject.toml`)."""

from __future__ import annotations

from typing import Final

from harness.plan.points import points

DEFAULTS: Final = "harness.defaults"


def default(kind: str, group: str) -> str:
    """The name, in its group of plug-ins, of the default of this kind. Raises LookupError if none is installed."""
    classes = {point.value for point in points(DEFAULTS) if point.name == kind}
    found = sorted(point.name for point in points(group) if point.value in classes)
    if not found:
        raise LookupError(f"no default {kind} is installed: the entry points of {DEFAULTS} and {group} do not fit")
    return found[0]


def default_workload() -> str:
    """`log`."""
    return default("workload", "harness.workloads")


def default_fault() -> str:
    """`partition-halves`."""
    return default("nemesis", "harness.nemeses")


def default_client() -> str:
    """`remoting`."""
    return default("client", "harness.clients")
