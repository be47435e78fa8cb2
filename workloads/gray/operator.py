# SPDX-License-Identifier: Apache-2.0
"""Generator for the operator: procedures at given times, each a few ops one after the other.

document   off: the gray queues are read to their end, then the flag; a second later the gray producers end, if this was
           the last gray member.
cured      off: if this is the last gray member, the gray producers end first; then the gray queues are read to their
           end; then the flag.

Both: on: the flag, then the gray producers begin. expand: two more queues on every broker. restart: a member leaves and
joins again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context
from infra.options import OptionError, seconds
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.gray.split import Scheme

MORE_QUEUES: Final = 2

_AGAIN_NS: Final = SECOND // 5
_PATIENCE_NS: Final = 20 * SECOND
"""The longest wait of a switch-off until the gray queues are read; then it is given up."""
_LATER_NS: Final = SECOND
"""The time from the flag to the end of the gray producers. The published scheme does not define it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A procedure. `at`: ns since the start of the run. member: empty for `expand`."""

    at: int
    verb: str
    member: str = ""


def tasks(texts: Sequence[str]) -> list[Task]:
    """`["10s off m1", "40s expand"]`, in order of time. Raises ValueError."""
    found = []
    for text in texts:
        words = re.fullmatch(r"\s*(\S+)\s+(on|off|restart)\s+(m\d+)\s*|\s*(\S+)\s+(expand)\s*", text)
        if words is None:
            raise ValueError(f"tasks has {text!r}; TIME on|off|restart MEMBER, or TIME expand, is right: '10s off m1'")
        time, verb, member = (words[1], words[2], words[3]) if words[2] else (words[4], words[5], "")
        try:
            found.append(Task(int(seconds(time, "tasks") * SECOND), verb, member))
        except OptionError as problem:
            raise ValueError(str(problem)) from None
    return sorted(found, key=lambda task: task.at)


@dataclass(frozen=True, slots=True, eq=False)
class Operator(Generator):
    """The operator on one thread.

    grays  the gray members. left: the tasks that have not begun. todo: the remaining ops of the current one.
    due    the earliest begin of the next op. since: the begin of the task (ns). busy: True if an op is open.
    """

    scheme: Scheme
    grays: frozenset[str]
    left: tuple[Task, ...]
    todo: tuple[Invocation, ...] = ()
    due: int = 0
    since: int = 0
    busy: bool = False

    def op(self, ctx: Context) -> Step:
        if self.busy or not ctx.free_takers:
            return PENDING, self
        if not self.todo:
            if not self.left:
                return None
            task = self.left[0]
            if ctx.time < task.at:
                return Pending(task.at), self
            begun = self._begin(task, ctx.time)
            return begun.op(ctx)
        if ctx.time < self.due:
            return Pending(self.due), self
        return self.todo[0].by(ctx.process(ctx.pick())), replace(self, busy=True)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type == INVOKE or not self.busy:
            return self
        again = replace(self, busy=False, due=event.time + _AGAIN_NS)
        first = self.todo[0]
        if event.f == "lag" and (event.type != OK or any(event.value.values())):
            if event.time <= self.since + _PATIENCE_NS:
                return again
            # Given up. Producers that had to stop may continue.
            back = (Invocation("sending", None, True),) if self._ends_sending() else ()
            return replace(again, todo=back)
        if event.type != OK:
            return again
        done = replace(again, todo=self.todo[1:], due=event.time)
        if event.f == "flag":
            member, gray = first.value["member"], first.value["gray"]
            done = replace(done, grays=self.grays | {member} if gray else self.grays - {member})
            if self.scheme == "document" and not gray and not done.grays:
                return replace(done, due=event.time + _LATER_NS)
        return done

    def _ends_sending(self) -> bool:
        """True if gray producers have been stopped for the task under way."""
        return self.scheme == "cured" and len(self.grays) == 1

    def _begin(self, task: Task, now: int) -> Operator:
        flag = Invocation("flag", None, {"member": task.member, "gray": task.verb == "on"})
        lag = Invocation("lag")
        todo: tuple[Invocation, ...]
        match task.verb:
            case "on":
                todo = (flag, *(() if self.grays else (Invocation("sending", None, True),)))
            case "off":
                last = self.grays <= {task.member}
                ends = (Invocation("sending", None, False),) if last else ()
                todo = (*ends, lag, flag) if self.scheme == "cured" else (lag, flag, *ends)
            case "restart":
                todo = (Invocation("restart", None, task.member),)
            case _:
                todo = (Invocation("expand", None, MORE_QUEUES),)
        return replace(self, left=self.left[1:], todo=todo, due=now, since=now)
