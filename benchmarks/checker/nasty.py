# SPDX-License-Identifier: Apache-2.0
"""Histories that are hard for a search, with verdicts that are known by how they were made.

`lived` ones are those of a real register at work (`benchmarks.checker.families`), perhaps with a few ops at the end
that cannot be. The others are built by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from benchmarks.checker.families import Row, Shape, packed, register
from checkers.linearizability import CasRegister, Problem, Transition
from checkers.linearizability.history.events import NEVER


class Nasty(NamedTuple):
    """steps: what deciding it may cost; a compiled search takes some six million in a second."""

    name: str
    rows: list[Row]
    valid: bool
    steps: int = 4_000_000

    def problem(self) -> Problem:
        return packed(CasRegister(), [self.rows]).problem(0)


def lived(shape: Shape, steps: int = 4_000_000) -> Iterator[Nasty]:
    for number in range(2):
        rows = register(Random(f"nasty/{shape}/{number}"), shape, cas=shape.values is not None)
        yield Nasty(f"{shape}, {number}", rows, not shape.broken, steps)


def ops(at: float, *kinds: Transition) -> list[Row]:
    """One after the other."""
    return [Row(kind, at + i, at + i + 0.5) for i, kind in enumerate(kinds)]


def burst(width: int, rounds: int, broken: bool) -> Nasty:
    """So many writes at the same time, and a reader that sees them all, in an unpredictable order."""
    rng, rows, at = Random(f"burst/{width}"), [], 0.0
    for _ in range(rounds):
        values = rng.sample(range(1, 10 * width), width)
        rows += [
            Row(Transition("write", value), at + i / width, at + 2 + 2 * width + rng.random())
            for i, value in enumerate(values)
        ]
        seen = rng.sample(values, width)
        rows += ops(at + 1.5, *(Transition("read", value) for value in seen))
        at += 4 + 2 * width
    if broken:
        # The last value that was seen stays; the one before it cannot come back.
        rows += ops(at, Transition("read", seen[-2]))
    return Nasty(f"{rounds} bursts of {width} writes, {'broken' if broken else 'valid'}", rows, not broken)


def late(count: int, broken: bool) -> Nasty:
    """Unknown writes of few values, each seen long after, between writes of others; `broken`: once too often."""
    rows = [Row(Transition("write", i % 5), i / count, NEVER) for i in range(count)]
    at = 2.0
    for i in range(count):
        rows += ops(at, Transition("write", 7 + i % 2), Transition("read", i % 5))
        at += 4
    if broken:
        rows += ops(at, Transition("write", 7), Transition("read", 0))
    return Nasty(f"{count} unknown writes, each seen late, {'broken' if broken else 'valid'}", rows, not broken)


def swaps(count: int, broken: bool) -> Nasty:
    """Unknown cas in a ring of five values; reads that need one after the other; `broken`: one too many."""
    rows = [Row(Transition("cas", (i % 5, (i + 1) % 5)), i / count, NEVER) for i in range(count)]
    rows += ops(2.0, Transition("write", 0), *(Transition("read", (i + 1) % 5) for i in range(count + broken)))
    return Nasty(f"{count} unknown cas in a ring, {'broken' if broken else 'valid'}", rows, not broken)


def storm(width: int, broken: bool) -> Nasty:
    """So many cas at the same time over five values, and all of them succeeded: together they lead back to 0."""
    rng = Random(width)
    walk = [0]
    while len(walk) < width:
        walk.append(rng.choice([v for v in range(5) if v != walk[-1]]))
    steps = [*zip(walk, [*walk[1:], 0], strict=True)]
    rows = ops(0.0, Transition("write", 0))
    rows += [
        Row(Transition("cas", step), 2 + i / width, 4 + i / width) for i, step in enumerate(rng.sample(steps, width))
    ]
    rows += ops(9.0, Transition("read", 3 if broken else 0))
    return Nasty(f"{width} cas at the same time, {'broken' if broken else 'valid'}", rows, not broken)


def corpus() -> Iterator[Nasty]:
    """Yields the histories to decide."""
    for broken in (False, True):
        yield from lived(Shape(500, 50, broken=broken))
        yield from lived(Shape(1_000, 30, broken=broken))
        yield from lived(Shape(250, 10, values=None, unknown=40, late=True, broken=broken))
        yield from lived(Shape(800, 10, unknown=10, broken=broken))
        yield from lived(Shape(20_000, 10, broken=broken))
        yield burst(12, 4, broken)
        yield burst(60, 2, broken)
        yield late(10, broken)
        yield late(40, broken)
        yield swaps(10, broken)
        yield swaps(40, broken)
        yield storm(8, broken)
        yield storm(40, broken)
        yield from lived(Shape(250, 10, unknown=40, broken=broken))
        yield from lived(Shape(250, 10, unknown=40, late=True, broken=broken))
        yield from lived(Shape(830, 10, unknown=20, broken=broken))
