# SPDX-License-Identifier: Apache-2.0
"""The exceptions of a monitor that has no order."""

from __future__ import annotations


class Undecided(Exception):
    """No rule applies to this history."""


class Contradiction(Exception):
    """No order exists. `rows`: those of a few ops that contradict each other, whatever the outcome of the others."""

    def __init__(self, *rows: int) -> None:
        self.rows = rows
