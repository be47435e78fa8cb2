# SPDX-License-Identifier: Apache-2.0
"""The crash table of the registration of a broker: for each row the steps, as data.

A first start goes: 1012 (which id is next?), `brokerIdentity-temp`, 1013 (apply for it), `brokerIdentity`, 1003
(register), 1002 (elect). Each request and each answer is a point at which the broker dies, the leader of the
controllers dies, or a frame is lost, late or doubled. Other rows are of operators: files are deleted, cloned, wiped, an
address changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NEXT_ID, APPLY_ID, REGISTER = 1012, 1013, 1003
"""Request codes: `CONTROLLER_GET_NEXT_BROKER_ID`, `CONTROLLER_APPLY_BROKER_ID`, `CONTROLLER_REGISTER_BROKER`."""

FIRED, DOWN, RUNNING, WRITTEN = "fired", "down", "running", "written"

BOOT_S: Final = 30.0
"""The longest time from a broker's start to its first request, on a slow machine."""


@dataclass(frozen=True)
class Step:
    """One op of a trial.

    f, member, value  those of the op. on: the target of a query (`controllers`: each of them), or the place at which
                      a member enters (`leader`: the node of the controller that leads).
    until             the op is repeated until its answer has this state; None: it is executed once.
    within_s          the limit of the repeats; then the trial continues, and the judge sees the missing answer.
    """

    f: str
    member: int = 0
    value: Any = None
    on: str = ""
    until: str | None = None
    within_s: float = 0.0


@dataclass(frozen=True)
class Row:
    """One row. words: a description of its steps."""

    name: str
    words: str
    steps: Sequence[Step]

    @property
    def alone(self) -> bool:
        """True if it strikes a controller, which all trials need."""
        return any(step.f == "arm" and step.value.get("victim") == "controller" for step in self.steps)

    @property
    def members(self) -> int:
        """The number of its brokers."""
        return len({step.member for step in self.steps})


def rows(runs_within_s: float) -> Mapping[str, Row]:
    """The whole table. runs_within_s: the longest time until a started broker runs; looks continue a little longer."""
    table = _Table(runs_within_s + 2)
    found = [
        Row("first-start", "nothing goes wrong", table.starts(None)),
        Row("lost-request-1012", "the question for the next id is lost", table.starts(_rule(NEXT_ID, "drop"))),
        Row("lost-answer-1012", "its answer is lost", table.starts(_rule(NEXT_ID, "drop", answer=True))),
        Row("kill-at-answer-1012", "killed before that answer", table.killed(_kill(NEXT_ID, answer=True))),
        Row("kill-after-answer-1012", "killed behind it", table.killed(_kill(NEXT_ID, answer=True, passes=True))),
        Row("kill-at-request-1013", "killed before it can apply", table.killed(_kill(APPLY_ID))),
        Row("kill-after-request-1013", "killed when it has applied", table.killed(_kill(APPLY_ID, passes=True))),
        Row("kill-at-answer-1013", "killed before the answer to that", table.killed(_kill(APPLY_ID, answer=True))),
        Row(
            "kill-after-answer-1013",
            "killed behind the answer",
            table.killed(_kill(APPLY_ID, answer=True, passes=True)),
        ),
        Row("lost-request-1013", "its application is lost", table.starts(_rule(APPLY_ID, "drop"))),
        Row("lost-answer-1013", "the answer to it is lost", table.starts(_rule(APPLY_ID, "drop", answer=True))),
        Row("late-answer-1013", "the answer comes too late", table.starts(_rule(APPLY_ID, "delay", True, delay=6))),
        Row("twice-1013", "it applies twice with one code", table.starts(_rule(APPLY_ID, "repeat"))),
        Row("leader-killed-at-1013", "the leader dies before it has the application", table.leader_killed(False)),
        Row("leader-killed-after-1013", "the leader dies before it answers it", table.leader_killed(True)),
        Row("kill-at-request-1003", "killed before it registers", table.killed(_kill(REGISTER))),
        Row("lost-answer-1003", "the answer to its registration is lost", table.starts(_rule(REGISTER, "drop", True))),
        Row("kill-after-answer-1003", "killed behind it", table.killed(_kill(REGISTER, answer=True, passes=True))),
        Row("restart", "killed when it runs", table.restarts()),
        Row("readdress", "started again at another address", table.restarts(Step("readdress"))),
        Row("rm-temp", "its application was heard, and its note of it is deleted", table.temp_deleted()),
        Row("rm-identity", "its identity file is deleted", table.restarts(Step("rm-identity"), master=False)),
        Row("wipe", "all its files are deleted", table.restarts(Step("wipe"), master=False)),
        Row("two-at-once", "two first starts at one time", table.two_at_once()),
        Row("clone", "another broker has a copy of its identity file", table.cloned()),
        Row("clean-ghost", "an operator has the id of a wiped broker forgotten", table.cleaned()),
    ]
    return {row.name: row for row in found}


def _rule(code: int, act: str, answer: bool = False, **more: Any) -> dict[str, Any]:
    return {"code": code, "frame": "response" if answer else "request", "act": act, **more}


def _kill(code: int, *, answer: bool = False, passes: bool = False, victim: str = "broker") -> dict[str, Any]:
    return _rule(code, "kill", answer, passes=passes, victim=victim)


class _Table:
    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s

    def running(self, member: int = 0) -> list[Step]:
        return [Step("look", member, until=RUNNING, within_s=self.patience_s)]

    def asked(self) -> list[Step]:
        return [Step("next", on="controllers"), Step("view", on="controllers")]

    def starts(self, rule: Mapping[str, Any] | None) -> list[Step]:
        """A first start with one frame struck."""
        armed = [Step("arm", value=rule)] if rule is not None else []
        struck = [Step("fired", until=FIRED, within_s=BOOT_S)] if rule is not None else []
        return [Step("enter"), *armed, Step("start"), *struck, *self.running(), *self.asked(), Step("leave")]

    def killed(self, rule: Mapping[str, Any]) -> list[Step]:
        """A first start that ends at a frame, and a second one."""
        return [*self._until_dead(rule), Step("start"), *self.running(), *self.asked(), Step("leave")]

    def _until_dead(self, rule: Mapping[str, Any]) -> list[Step]:
        return [
            *(Step("enter"), Step("arm", value=rule), Step("start")),
            *(Step("fired", until=FIRED, within_s=BOOT_S), Step("look", until=DOWN, within_s=2), *self.asked()),
        ]

    def leader_killed(self, answers: bool) -> list[Step]:
        """A first start at which the leader of the controllers dies; it is started again at once."""
        rule = _kill(APPLY_ID, answer=answers, victim="controller")
        return [
            *(Step("enter", on="leader"), Step("arm", value=rule), Step("start")),
            *(Step("fired", until=FIRED, within_s=BOOT_S), Step("disarm"), *self.running()),
            *(*self.asked(), Step("leave")),
        ]

    def restarts(self, between: Step | None = None, *, master: bool = True) -> list[Step]:
        """A broker that runs is killed, and started again, with the step `between`. master: True if it may become
        master then.
        """
        again = self.running() if master else [Step("look", until=WRITTEN, within_s=self.patience_s)]
        middle = [between] if between is not None else []
        return [
            *(Step("enter"), Step("start"), *self.running(), *self.asked(), Step("kill"), *middle),
            *(Step("start"), *again, *self.asked(), Step("leave")),
        ]

    def temp_deleted(self) -> list[Step]:
        dead = self._until_dead(_kill(APPLY_ID, answer=True))
        return [*dead, Step("rm-temp"), Step("start"), *self.running(), *self.asked(), Step("leave")]

    def two_at_once(self) -> list[Step]:
        return [
            *(Step("enter"), Step("enter", 1), Step("start"), Step("start", 1)),
            *(*self.running(), *self.running(1), *self.asked(), Step("leave", 1), Step("leave")),
        ]

    def cloned(self) -> list[Step]:
        return [
            *(Step("enter"), Step("start"), *self.running(), Step("enter", 1), Step("clone", 1, 0), Step("start", 1)),
            *(*self.running(1), Step("look"), *self.asked(), Step("leave", 1), Step("leave")),
        ]

    def cleaned(self) -> list[Step]:
        """A wiped broker comes back with another id; the id that it had is cleaned; then others come."""
        written = [Step("look", n, until=WRITTEN, within_s=self.patience_s) for n in range(3)]
        return [
            *(Step("enter"), Step("start"), *self.running(), Step("kill"), Step("wipe"), Step("start"), written[0]),
            *(*self.asked(), Step("clean", value=1), *self.asked()),
            *(Step("enter", 1), Step("start", 1), written[1], *self.asked()),
            *(Step("enter", 2), Step("start", 2), written[2], Step("look"), *self.asked()),
            *(Step("leave", 2), Step("leave", 1), Step("leave")),
        ]
