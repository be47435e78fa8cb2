"""Permissions: the anomalies that a configuration permits, each with its reason and its limit in time.

The topology states them (`infra.systems.api.Topology.permits`, `permits_after`), the run stores them in its
environment, and `checkers.legality` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Permission:
    """why       the setting, or the design, that permits an anomaly, in one clause.
    within_s  the limit in seconds: an acknowledgement that is older than this when the fault begins must last (without
              a kind of fault: when any fault, or a change of master, begins). None: the permission has no such limit.
    """

    why: str
    within_s: float | None = None

    def to_json(self) -> str | dict[str, Any]:
        """As the environment stores it: the reason alone where there is no limit."""
        return self.why if self.within_s is None else {"why": self.why, "within_s": self.within_s}

    @staticmethod
    def from_json(stored: object) -> Permission:
        """Raises ValueError for a value that `to_json` did not write."""
        if isinstance(stored, str):
            return Permission(stored)
        if isinstance(stored, Mapping) and isinstance(stored.get("why"), str):
            within = stored.get("within_s")
            if within is None or (isinstance(within, int | float) and not isinstance(within, bool) and within >= 0):
                return Permission(stored["why"], within)
        raise ValueError(f"a permission is a text, or has why and within_s, not {str(stored)[:80]}")


Permissions = Mapping[str, Permission | str]
"""Name of an anomaly -> its permission; a text stands for a permission without a limit."""


def to_json(permissions: Permissions) -> dict[str, Any]:
    """Name of an anomaly -> as stored."""
    return {name: p if isinstance(p, str) else p.to_json() for name, p in permissions.items()}
