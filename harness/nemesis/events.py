# SPDX-License-Identifier: Apache-2.0
"""Events: what strikes wait for, and the nemesis' generator.

An event is an op of the history that is no invocation. Each has a kind, and a text that identifies it:

| kind           | when                                                   | text                     |
|----------------|--------------------------------------------------------|--------------------------|
| `role-changed` | the observer saw another leader of a group, or a kind  | `GROUP NODE`             |
| `calm`         | every follower follows its leader again                |                          |
| `injected`     | a strike took effect                                   | `ID FAULT NODES`         |
| `healed`       | a strike was healed                                    | `ID FAULT`               |
| `died`         | a server ended that no op had stopped                 | `NODE KIND`              |
| `answer`       | a client's op was completed                            | `F TYPE ERROR`: `send ok` |
| `log`          | a server logged a line that a strike waits for         | `NODE LINE`              |

A strike waits for `KIND`, or for `KIND:TEXT`: an event of that kind whose text holds this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.generator import Context, Generator, Invocation, Pending, Step
from harness.plan.plan import PlanError
from infra.options import suggest
from results import op as op_module
from results.figures import SECOND
from results.op import INVOKE, NEMESIS, Op
from results.strikes import Strike

KINDS: Final = ("role-changed", "calm", "injected", "healed", "died", "answer", "log")


def check_trigger(after: str, where: str) -> None:
    """Raises PlanError for an unknown event."""
    kind, _, text = after.partition(":")
    if kind not in KINDS:
        raise PlanError(f"{where}: no event {kind!r}{suggest(kind, KINDS) or '; there are ' + ', '.join(KINDS)}")
    if kind == "log" and not text:
        raise PlanError(f"{where}: after = 'log' needs a text that the line holds: 'log:...'")


def watched_lines(strikes: Sequence[Strike]) -> list[str]:
    """The texts that log lines are searched for."""
    found = (strike.after.partition(":") for strike in strikes if strike.after is not None)
    return [text for kind, _, text in found if kind == "log"]


def event_of(op: Op) -> tuple[str, str] | None:
    """Kind and text of the event that an op is, or None."""
    if op.type == INVOKE:
        return None
    if op.process != NEMESIS:
        return "answer", " ".join(filter(None, (op.f, op.type, op.error)))
    value: Mapping[str, Any] = op.value if isinstance(op.value, Mapping) else {}
    match op.f:
        case "inject" if value.get("seen"):
            return "injected", f"{value.get('id')} {value.get('fault')} {' '.join(value.get('nodes', ()))}"
        case "heal" if not op.error:
            return "healed", f"{value.get('id')} {value.get('fault')}"
        case op_module.ROLE_CHANGED:
            return "role-changed", f"{value.get('of')} {value.get('node')}"
        case op_module.CALM:
            return "calm", ""
        case op_module.LOG_LINE:
            return "log", f"{value.get('node')} {value.get('line')}"
        case op_module.SERVER_DIED:
            return "died", f"{value.get('node')} {value.get('server')}"
    return None


def meets(after: str, event: tuple[str, str]) -> bool:
    """True if an event is the one that a strike waits for."""
    kind, _, text = after.partition(":")
    return kind == event[0] and text in event[1]


def generator(strikes: Sequence[Strike], over: Callable[[], bool] = lambda: False) -> Generator:
    """The strikes as the nemesis' ops, from the start of the phase on: `inject`, `heal`, and `skip` for one whose event
    did not come in time, and for a timed one whose time was over before it could begin. Of a heal and an inject that
    are due at one time the heal comes first.

    It must get all events, those of clients too, so it is a generator of all threads, not only of the nemesis's.

    over  asked at every event: once it is true, no strike begins any more, and the active ones are healed at once.
    """
    return _Strikes(tuple(strikes), over)


@dataclass(frozen=True, slots=True, eq=False)
class _Strikes(Generator):
    """left: strikes that have not begun, in order. start: of the phase (ns). armed: time since which the first of
    `left` has been waiting for its event; None: since the phase began. due: when it begins, if its event came. heals:
    (ns, strike) of the active ones.
    """

    left: tuple[Strike, ...]
    over: Callable[[], bool]
    start: int | None = None
    armed: int | None = None
    due: int | None = None
    heals: tuple[tuple[int, Strike], ...] = ()

    def op(self, ctx: Context) -> Step:
        if self.start is None or (self.left and self.armed is None):
            start = ctx.time if self.start is None else self.start
            return replace(self, start=start, armed=ctx.time).op(ctx)
        heal = self.heals[0][0] if self.heals else None
        begin, invocation = self._next(self.start)
        if begin is not None and self._over(begin, ctx.time):
            invocation = _nemesis("skip", self.left[0].to_heal())
        if heal is not None and (begin is None or heal <= begin):
            strike = self.heals[0][1]
            step = _nemesis("heal", strike.to_heal(), heal).op(ctx)
            return self._after(step, replace(self, heals=self.heals[1:]))
        if begin is None or invocation is None:
            return (Pending(), self) if self.left else None
        step = invocation.due(begin).op(ctx)
        if step is None:
            return None
        if isinstance(step[0], Pending):
            return step[0], self
        strike = self.left[0]
        rest = replace(self, left=self.left[1:], armed=ctx.time if self.left[1:] else None, due=None)
        if invocation.f == "inject":
            # A timed strike ends when the plan says so, however late it could begin.
            begun = begin if strike.after is None else ctx.time
            ends = begun + round(strike.for_s * SECOND)
            rest = replace(rest, heals=tuple(sorted((*self.heals, (ends, strike)), key=lambda one: one[0])))
        return step[0], rest

    def _over(self, begin: int, now: int) -> bool:
        """True if a timed strike could not begin before its time was over, since earlier strikes took too long."""
        strike = self.left[0]
        return strike.after is None and strike.for_s > 0 and now >= begin + round(strike.for_s * SECOND)

    def _next(self, start: int) -> tuple[int | None, Invocation | None]:
        """The time at which the next strike begins or is skipped, and its op; None: unknown."""
        if not self.left:
            return None, None
        strike = self.left[0]
        inject = _nemesis("inject", strike.to_inject())
        if strike.after is None:
            return start + round((strike.at_s or 0.0) * SECOND), inject
        if self.due is not None:
            return self.due, inject
        if strike.within_s is None or self.armed is None:
            return None, None
        skipped = {**strike.to_heal(), "after": strike.after, "within_s": strike.within_s}
        return self.armed + round(strike.within_s * SECOND), _nemesis("skip", skipped)

    def _after(self, step: Step, following: Generator) -> Step:
        if step is None or isinstance(step[0], Pending):
            return None if step is None else (step[0], self)
        return step[0], following

    def update(self, ctx: Context, event: Op) -> Generator:
        if self.over():
            heals = tuple((min(at, ctx.time), strike) for at, strike in self.heals)
            return self if not self.left and heals == self.heals else replace(self, left=(), due=None, heals=heals)
        if not self.left or self.due is not None:
            return self
        strike = self.left[0]
        if strike.after is None or (event.process != NEMESIS and not strike.after.startswith("answer")):
            return self
        found = event_of(event)
        if found is None or not meets(strike.after, found):
            return self
        return replace(self, due=event.time + round(strike.delay_s * SECOND))


def _nemesis(f: str, value: Any, due: int | None = None) -> Invocation:
    return Invocation(f, value=value, time=due, process=NEMESIS)
