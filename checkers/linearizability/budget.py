# SPDX-License-Identifier: Apache-2.0
"""The limits of a check. They count work, never time: the same history has the same verdict on every machine, however
slow, among those with Numba, and among those without it (`jit`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one check.

    steps      transitions tried or configurations examined, over all stages; plain Python does about 10^6 a second.
    per_event  further steps for each call and return, so that long histories get enough.
    memory     bytes that the configurations of one search may take at a time (estimated).
    explain    steps for finding the ops that contradict each other, after a violation was found.
    """

    steps: int = 2_000_000
    per_event: int = 150
    memory: int = 256 * 1024 * 1024
    explain: int = 400_000


class Spent(Exception):
    """A stage has used up one of its limits. The text names the limit."""


class Meter:
    """Counts one stage's work against its limits."""

    __slots__ = ("memory", "steps", "work")

    def __init__(self, steps: int, memory: int) -> None:
        self.steps, self.memory = steps, memory
        self.work = 0

    def spend(self, steps: int) -> None:
        self.work += steps
        if self.work > self.steps:
            raise Spent(f"its {self.steps:,} steps are used up")

    def hold(self, size: int) -> None:
        """`size`: bytes held right now."""
        if size > self.memory:
            raise Spent(f"it needs more than {self.memory / 2**20:,.0f} MiB")
