# SPDX-License-Identifier: Apache-2.0
"""The part of a backend that is the same for all that make their machines themselves."""

from __future__ import annotations

from typing import Any, ClassVar


class MakesMachines:
    """Its machines are the harness's own: everything is permitted on them, and they can be kept."""

    keeps: ClassVar[bool] = True
    makes_clients: ClassVar[bool] = True

    def nodes_of(self, options: Any) -> int | None:
        """None: the options do not name machines."""
        return None

    def check(self, options: Any, nodes: int, destructive: bool) -> None:
        """Permits everything."""
