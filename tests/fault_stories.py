# SPDX-License-Identifier: Apache-2.0
"""Histories with faults, written by hand: what clients did and when, and the strikes between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stories import S, TimedStory

from results.op import NEMESIS, Op, OpType
from results.record import Observation, RunRecord
from results.strikes import Effect


class Story(TimedStory):
    """Writes a history by hand: `at` in seconds."""

    def add(self, at: float, process: int, type_: OpType, f: str, **more: Any) -> None:
        self.events.append(Op(len(self.events), int(at * S), process, type_, f, **more))

    def write(self, at: float, type_: OpType = "ok", process: int = 0, **more: Any) -> None:
        self.add(at, process, "invoke", "write", key="k", value=1, **more)
        self.add(at + 0.01, process, type_, "write", key="k", value=1, **more)

    def strike(
        self,
        number: int,
        start: float,
        end: float | None,
        impairs: dict[str, list[str]],
        seen: bool = True,
        effects: Sequence[Effect] = (),
    ) -> None:
        what = {"fault": "hammer-time", "id": number}
        self.add(start, NEMESIS, "invoke", "inject", value=what)
        done = {**what, "impairs": impairs, "seen": seen, "effects": [effect.to_json() for effect in effects]}
        self.add(start, NEMESIS, "info", "inject", value=done)
        if end is not None:
            self.add(end, NEMESIS, "invoke", "heal", value=what)
            self.add(end, NEMESIS, "info", "heal", value=what)

    def record(self, observations: Sequence[Observation] = ()) -> RunRecord:
        return self.run(observations=observations)
