# SPDX-License-Identifier: Apache-2.0
"""The messages that a group should have got: those that the final reads show on every replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.messages.log.outcomes import study
from results.record import RunRecord


@dataclass(frozen=True)
class Stored:
    """Queue -> offset -> id. partial: messages that only some replicas show. unread: queues without a final read."""

    queues: Mapping[str, Mapping[int, Any]]
    partial: int
    unread: list[str]


def stored(run: RunRecord) -> Stored:
    """Source: the complete chains of `replica-read` (`checkers.messages.log.replica_reads`)."""
    outcomes = study(run)
    queues: dict[str, dict[int, Any]] = {}
    partial, unread = 0, []
    for code, key in enumerate(outcomes.facts.queues):
        readings = outcomes.readings.of(code)
        if not readings:
            if np.any(outcomes.facts.sends.queue == code):
                unread.append(key)
            continue
        shown = [dict(zip(r.offset.tolist(), r.id.tolist(), strict=True)) for r in readings]
        everywhere = dict(sorted(set(shown[0].items()).intersection(*(each.items() for each in shown[1:]))))
        queues[key] = everywhere
        partial += len(set().union(*(each.items() for each in shown))) - len(everywhere)
    return Stored(queues, partial, unread)
