# SPDX-License-Identifier: Apache-2.0
"""Early ends in a series: its runs end at the anomaly that it looks for (`harness run --end-early`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.series.child import ChildRun
from results.alarm import EarlyEnd
from results.reading import read_json


class EarlyEnds:
    """names: the anomalies that the series looks for; empty: any. on: False: all runs are whole.

    An early end without what is looked for is a run that tried nothing: it might have come later. After the first such
    run all others are whole, so that no series consists of them. count: the runs that ended early.
    """

    def __init__(self, on: bool = True, names: Sequence[str] = ()) -> None:
        self.on, self.names, self.count = on, tuple(names), 0

    @property
    def options(self) -> list[str]:
        """The options of the next run."""
        if not self.on:
            return []
        return ["--end-early" + ("=" + ",".join(self.names) if self.names else "")]

    def note(self, run: ChildRun, tried: bool, say: Callable[[str], None]) -> EarlyEnd | None:
        """Takes the end of a run. tried: False if it is no evidence. Returns its early end, or None."""
        early = early_end(run)
        if early is None:
            return None
        self.count += 1
        if not tried and self.on:
            self.on = False
            say(f"  {early.describe()}; this is not what is looked for, so the runs that follow are whole")
        return early


def early_end(run: ChildRun) -> EarlyEnd | None:
    """The early end of a run; None: it ran to its end, or its environment cannot be read."""
    if run.folder is None:
        return None
    try:
        return EarlyEnd.of(dict(read_json(run.folder.environment)))
    except (OSError, ValueError, TypeError):
        return None
