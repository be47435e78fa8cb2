# SPDX-License-Identifier: Apache-2.0
"""The messages that a group should have got: those that the final reads show at the master of their queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.log.outcomes import study
from results.figures import SECOND
from results.record import RunRecord

_AT_ONCE_S = 3
"""Nodes that reported themselves as master within so long of each other may both be it."""


@dataclass(frozen=True)
class Stored:
    """Queue -> offset -> id. Without one reading of the one master, those that every replica shows.

    partial  messages that only some replicas show, and no master. unread: queues without a final read.
    """

    queues: Mapping[str, Mapping[int, Any]]
    partial: int
    unread: list[str]


def stored(run: RunRecord) -> Stored:
    """Source: the complete chains of `replica-read` (`checkers.messages.log.replica_reads`)."""
    outcomes, scene = study(run), RunTimeline(run)
    queues: dict[str, dict[int, Any]] = {}
    partial, unread = 0, []
    for code, key in enumerate(outcomes.facts.queues):
        readings = outcomes.readings.of(code)
        if not readings:
            if np.any(outcomes.facts.sends.queue == code):
                unread.append(key)
            continue
        masters = last_masters(scene, key)
        of_master = [reading for reading in readings if outcomes.facts.node(reading.node) in masters]
        readings = of_master if len(masters) == 1 and of_master else readings
        shown = [dict(zip(r.offset.tolist(), r.id.tolist(), strict=True)) for r in readings]
        everywhere = dict(sorted(set(shown[0].items()).intersection(*(each.items() for each in shown[1:]))))
        queues[key] = everywhere
        partial += len(set().union(*(each.items() for each in shown))) - len(everywhere)
    return Stored(queues, partial, unread)


def last_masters(scene: RunTimeline, key: str) -> set[str]:
    """The nodes that reported themselves as master of a queue's group at the end of the run."""
    periods = scene.masters_of(group_of(key))
    last = max((period.until for period in periods), default=0)
    return {period.node for period in periods if period.until >= last - _AT_ONCE_S * SECOND}
