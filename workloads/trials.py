# SPDX-License-Identifier: Apache-2.0
"""Trials, one after the other: the steps of each as ops, each step when the one before has ended.

A step with `until` is repeated, once or twice a second, until its answer has that state or its time is over. If an op
that changes something fails, or gets no answer, its trial is stopped: its members leave, and the next trial begins. It
is tried once more, under another name, after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.generator import PENDING, Generator, Invocation, Pending
from harness.generator import Step as Answer
from harness.generator.context import Context
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.crash_table import DOWN, FIRED, RUNNING, WRITTEN, Step

AGAIN_NS: Final[Mapping[str, int]] = {"look": SECOND // 2, "fired": SECOND}
"""The time between two tries of a step: a query of the proxy's counts (`fired`) is more expensive."""

ASKS: Final = ("next", "view")
"""Queries to controllers: one that does not lead, or is gone, gives no answer."""

_AGAIN: Final = "-again"

LOOKS: Final = (*ASKS, "look", "fired")
"""Ops that change nothing: without an answer the trial continues."""

UNTIL: Final[Mapping[str, Callable[[Any], bool]]] = {
    FIRED: lambda value: value > 0,
    DOWN: lambda value: not value["up"],
    RUNNING: lambda value: value["state"] == "RUNNING",
    WRITTEN: lambda value: value["identity"] is not None and value["state"] != "INITIAL",
}


@dataclass(frozen=True)
class Trial:
    """One row of the table, tried under its own broker name (group). steps: `on` names nodes here."""

    group: str
    row: str
    steps: Sequence[Step]

    def again(self) -> list[Trial]:
        """The same trial under another name; empty if it is already the second try."""
        return [] if self.group.endswith(_AGAIN) else [replace(self, group=f"{self.group}{_AGAIN}")]

    @property
    def leaving(self) -> int:
        """The number of the first step at which a member leaves."""
        return next(n for n, step in enumerate(self.steps) if step.f == "leave")


@dataclass(frozen=True, slots=True, eq=False)
class Trials(Generator):
    """All trials, on one thread.

    trial, step  the current ones. open: True if that step's op is under way. since, due: the begin of the step, and the
                 next invocation of its op (ns).
    """

    trials: Sequence[Trial]
    trial: int = 0
    step: int = 0
    open: bool = False
    since: int | None = None
    due: int = 0

    def op(self, ctx: Context) -> Answer:
        if self.trial == len(self.trials):
            return None
        if self.open or not ctx.free_takers:
            return PENDING, self
        if ctx.time < self.due:
            return Pending(self.due), self
        since = ctx.time if self.since is None else self.since
        return self._invocation(), replace(self, open=True, since=since)

    def _invocation(self) -> Invocation:
        trial = self.trials[self.trial]
        step = trial.steps[self.step]
        extra: dict[str, Any] = {"row": trial.row, "member": step.member}
        if step.on:
            extra["controller" if step.f in ASKS else "on"] = step.on
        return Invocation(step.f, trial.group, step.value, extra)

    def update(self, ctx: Context, event: Op) -> Generator:
        if not self.open or event.type == INVOKE or self.trial == len(self.trials):
            return self
        trial = self.trials[self.trial]
        step = trial.steps[self.step]
        if (event.f, event.key) != (step.f, trial.group):
            return self
        answered = event.type == OK
        if not answered and step.f not in LOOKS and step.f != "leave":
            at, trials = max(self.step + 1, trial.leaving), (*self.trials, *trial.again())
            return replace(self, trials=trials, step=at, open=False, since=None, due=0)
        assert self.since is not None
        over = event.time - self.since >= step.within_s * SECOND
        if step.until is not None and not over and not (answered and UNTIL[step.until](event.value)):
            return replace(self, open=False, due=event.time + AGAIN_NS[step.f])
        if self.step + 1 < len(trial.steps):
            return replace(self, step=self.step + 1, open=False, since=None, due=0)
        return replace(self, trial=self.trial + 1, step=0, open=False, since=None, due=0)
