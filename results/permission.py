# SPDX-License-Identifier: Apache-2.0
"""Permissions: the anomalies that a configuration permits, each with its reason and its limit in time.

The topology states them (`infra.systems.api.Topology.permits`, `permits_after`), the run stores them in its
environment, and `checkers.base.legality` applies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Permission:
    """A permission for an anomaly.

    why       the setting, or the design, that permits it, in one clause.
    within_s  the limit in seconds: an acknowledgement that is older than this when the fault begins must last (without
              a kind of fault: when any fault, or a change of master, begins). None: the permission has no such limit.
    bytes     a shorter limit for a server that had work: once so many bytes were written behind an acknowledged
    bytes_s   operation, it must last after so many seconds. None: the permission has no such limit.
    """

    why: str
    within_s: float | None = None
    bytes: int | None = None
    bytes_s: float | None = None

    def to_json(self) -> str | dict[str, Any]:
        """The form in the environment: the reason alone if no limit exists."""
        limits = {"within_s": self.within_s, "bytes": self.bytes, "bytes_s": self.bytes_s}
        known = {name: value for name, value in limits.items() if value is not None}
        return {"why": self.why, **known} if known else self.why

    @staticmethod
    def from_json(stored: object) -> Permission:
        """The permission of `to_json`. Raises ValueError for any other value."""
        if isinstance(stored, str):
            return Permission(stored)
        if isinstance(stored, Mapping) and isinstance(stored.get("why"), str):
            limits = [stored.get(name) for name in ("within_s", "bytes", "bytes_s")]
            if all(n is None or (isinstance(n, int | float) and not isinstance(n, bool) and n >= 0) for n in limits):
                within, size, size_s = limits
                return Permission(stored["why"], within, None if size is None else int(size), size_s)
        raise ValueError(f"a permission is a text, or has why and numbers as its limits, not {str(stored)[:80]}")


def permissions_of(environment: Mapping[str, Any], name: str) -> dict[str, dict[str, Permission]]:
    """`permits` (under the empty kind) or `permits_after` of a run's environment: kind of effect -> anomaly ->
    permission. Raises ValueError if the environment holds something else.
    """
    noted: Any = environment.get(name) or {}
    try:
        stored = json.loads(noted) if isinstance(noted, str) else noted
        by_kind = {"": stored} if name == "permits" else stored
        return {
            str(kind): {str(anomaly): Permission.from_json(p) for anomaly, p in named.items()}
            for kind, named in by_kind.items()
        }
    except (ValueError, AttributeError, RecursionError) as problem:
        raise ValueError(f"{name!r} is no list of permissions: {problem}") from None


Permissions = Mapping[str, Permission | str]
"""Name of an anomaly -> its permission; a text stands for a permission without a limit."""


def to_json(permissions: Permissions) -> dict[str, Any]:
    """Name of an anomaly -> its permission in the stored form."""
    return {name: p if isinstance(p, str) else p.to_json() for name, p in permissions.items()}
