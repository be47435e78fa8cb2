# SPDX-License-Identifier: Apache-2.0
"""Objects that consist of several: the elements of a set of which no op reads the whole.

Ops on one element show nothing about another, so each is a separate object, and all of them together are linearizable
iff each is (locality: Herlihy and Wing 1990). A set of a thousand elements would have 2 ** 1000 states.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.table import Table


def by_element(problem: Problem) -> Sequence[Problem]:
    """The elements of a set, short histories first; empty if an op reads the whole set. Ops keep their numbers."""
    model = problem.table.model
    if any(kind.f == "read" for kind in problem.table.kinds):
        return ()
    elements = [kind.value[0] if kind.f == "contains" else kind.value for kind in problem.table.kinds]
    events: dict[object, list[int]] = {}
    for event in problem.events:
        events.setdefault(elements[problem.kind[event >> 1]], []).append(event)
    if len(events) < 2:
        return ()
    tables = {element: Table(model) for element in events}
    number = [tables[e].kind(kind) if e in tables else 0 for e, kind in zip(elements, problem.table.kinds, strict=True)]
    for table in tables.values():
        table.seal_kinds()
    kinds = [number[kind] for kind in problem.kind]
    found = [Problem(tables[element], kinds, problem.source, own) for element, own in events.items()]
    return sorted(found, key=lambda part: len(part.events))


def merged(problem: Problem, orders: Sequence[Sequence[int]]) -> list[int]:
    """One order of everything from an order of each part: every op as early as its own part allows."""
    stamped: list[tuple[int, int, int, int]] = []
    for part, order in enumerate(orders):
        latest = -1
        for place, op in enumerate(order):
            latest = max(latest, problem.call[op])
            stamped.append((latest, part, place, op))
    return [op for _, _, _, op in sorted(stamped)]
