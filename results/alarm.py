# SPDX-License-Identifier: Apache-2.0
"""Alarms: anomalies that a run shows while its load goes on, and the early end of a load that one of them causes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from results.figures import SECOND, clock, many

ENDED_EARLY: Final = "ended_early"
"""The fact of an environment that describes the early end of the load (`EarlyEnd.to_text`)."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A violation that a prefix of a history proves, whatever follows.

    names   the judges report at least one of these anomalies for it.
    op      index of the event that completes the proof.
    text    the proof, in one line.
    unless  names of anomalies: a run whose configuration permits one of these may excuse it.
    """

    names: tuple[str, ...]
    op: int
    text: str
    unless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EarlyEnd:
    """The early end of a load.

    op, time_ns   of the event that proved the alarm; ns since the start of the run. names, text: the alarm's.
    not_run_s     seconds of the planned load that were not run. strikes_left: planned strikes that had not begun.
    """

    op: int
    time_ns: int
    names: tuple[str, ...]
    text: str
    not_run_s: float = 0.0
    strikes_left: int = 0

    def describe(self) -> str:
        """One line."""
        left = f" and {many(self.strikes_left, 'strike')}" if self.strikes_left else ""
        return (
            f"the load ended early at op {self.op} ({clock(self.time_ns)}): {self.text}; "
            f"{self.not_run_s:.1f} s of load{left} were not run"
        )

    @property
    def at_s(self) -> float:
        """The time of the alarm, in seconds since the start of the run."""
        return self.time_ns / SECOND

    def to_text(self) -> str:
        """The form in an environment."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(environment: Mapping[str, Any]) -> EarlyEnd | None:
        """The early end that an environment describes; None: the load ran to its end. A damaged description is an early
        end at an unknown op (-1), so that it hides nothing.
        """
        noted = environment.get(ENDED_EARLY)
        if noted is None:
            return None
        try:
            data = json.loads(noted)
            return EarlyEnd(
                int(data["op"]),
                int(data["time_ns"]),
                tuple(map(str, data["names"])),
                str(data["text"]),
                float(data["not_run_s"]),
                int(data["strikes_left"]),
            )
        except (ValueError, TypeError, KeyError):
            return EarlyEnd(-1, 0, (), f"unreadable: {str(noted)[:80]}")
