# SPDX-License-Identifier: Apache-2.0
"""The administrator who changes a consumer group while messages flow: its settings, and whether it exists.

As `mqadmin updateSubGroup` and `mqadmin deleteSubGroup` do, at every replica (`-b` for each) or at the masters (`-c`),
from which slaves copy it every 10 s (`SlaveSynchronize.syncSubscriptionGroupConfig`). Brokers make no group by
themselves here (`autoCreateSubscriptionGroup` is false), so a deleted group is gone until the administrator makes it
again. The topics of its retries and dead letters stay, as with `mqadmin deleteSubGroup -b`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from harness.api import Completion
from harness.generator import PENDING, Generator, Invocation, Step
from harness.generator.context import Context, members
from harness.generator.dice import Dice
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.places import TopicLayout

UPDATE: Final = "update-group"
DELETE: Final = "delete-group"
SETTINGS: Final = "group-settings"

Change = Literal["off", "retries", "queues", "delete", "clean"]

Changes = Literal["settings", "queues", "deletions", "all"]

KINDS: Final[Mapping[Changes, Sequence[Change]]] = {
    "settings": ("off", "retries"),
    "queues": ("queues",),
    "deletions": ("delete", "clean"),
    "all": ("off", "retries", "delete", "clean"),
}

Settings = Mapping[str, Any]
"""The settings that the administrator changes, under the names of the broker (`SubscriptionGroupConfig`)."""

USUAL: Final[Settings] = {
    "consumeEnable": True,
    "consumeBroadcastEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
}

MOST_QUEUES: Final = 4
"""The largest `retryQueueNums`."""

AWAY_S: Final = (3.0, 8.0)
"""A group stays off, or deleted, for so long."""

COPIED_AWAY_S: Final = (20.0, 28.0)
"""The same if slaves have to copy the change first, which may take 15 s."""

AGAIN_NS: Final = SECOND
"""A request without success is sent again after so long."""

_ASK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of the administrator, `wait_s` after the one before."""

    f: str
    key: str | None
    value: Any
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupChanges(Generator):
    """Changes of a group by the first thread, one every `every_ns`, for ever; first the usual settings. A change is
    repeated until all brokers acknowledged it. `n` counts the changes; `seed` and n determine each one.

    changes   the kinds, of which each change is one. keys: the queues, whose committed offsets are read around a
              deletion. limits: the least and the largest `retryMaxTimes`. broadcast: True if members need
              `consumeBroadcastEnable`, so that it stays. away_s: the least and the longest time (s) off.
    settings  those of the last change. steps: what is left of the change under way. due: the time (ns) of the next
              request. process: the process of the request without an answer.
    """

    group: str
    changes: Sequence[Change]
    keys: Sequence[str]
    limits: tuple[int, int]
    every_ns: int
    seed: int
    broadcast: bool = False
    away_s: tuple[float, float] = AWAY_S
    n: int = 0
    settings: Settings = field(default_factory=lambda: USUAL)
    steps: Sequence[_Request] = (_Request(UPDATE, None, USUAL),)
    due: int = 0
    process: int | None = None

    def op(self, ctx: Context) -> Step:
        if ctx.time < self.due:
            return PENDING.or_at(self.due), self
        process = ctx.process(next(members(ctx.takers)))
        if not ctx.is_free(process):
            return PENDING, self
        after = self if self.steps else self._drawn()
        request = after.steps[0]
        invocation = Invocation(request.f, request.key, request.value, {"group": self.group})
        return invocation.by(process), replace(after, process=process)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type == INVOKE or event.process != self.process or not self.steps:
            return self
        if event.type != OK and self.steps[0].f in (UPDATE, DELETE):
            return replace(self, process=None, due=ctx.time + AGAIN_NS)
        left = self.steps[1:]
        wait = int(left[0].wait_s * SECOND) if left else self.every_ns
        return replace(self, process=None, steps=left, due=ctx.time + wait)

    def _drawn(self) -> GroupChanges:
        """With the steps of the next change."""
        dice = Dice().at(self.seed, self.n)
        kind, settings = dice.choice(self.changes), dict(self.settings)
        away = dice.uniform(*self.away_s)
        steps: list[_Request]
        if kind == "off":
            off = {**settings, "consumeEnable": False}
            steps = [_Request(UPDATE, None, off), _Request(UPDATE, None, settings, away)]
        elif kind in ("retries", "queues"):
            if kind == "retries":
                settings["retryMaxTimes"] = dice.randint(*self.limits)
                settings["consumeBroadcastEnable"] = self.broadcast or not settings["consumeBroadcastEnable"]
            else:
                settings["retryQueueNums"] = settings["retryQueueNums"] % MOST_QUEUES + 1
            steps = [_Request(UPDATE, None, settings)]
        else:
            offsets = [_Request("committed", key, None) for key in self.keys]
            made = _Request(UPDATE, None, settings, away)
            steps = [*offsets, _Request(DELETE, None, kind), *offsets, made, *offsets]
        return replace(self, n=self.n + 1, settings=settings, steps=steps)


async def change_group(places: TopicLayout, op: Op, nodes: Sequence[str], deadline_s: float) -> Completion:
    """One attempt at each of these nodes: `ok` if all took the change, `fail` if certainly none did.

    The completion has `acked`: those that acknowledged it, and `unsure`: those that may execute it now or later.
    """
    group, ask_s = str(op.extra["group"]), min(_ASK_S, deadline_s)
    request = _deletion(group, op.value) if op.f == DELETE else _update(group, op.value, group in places.orderly)
    outcomes = await asyncio.gather(*(_at(places.endpoints[node], request, ask_s) for node in nodes))
    types = {one.type for one in outcomes}
    extra = {
        "group": group,
        "acked": sorted(node for node, one in zip(nodes, outcomes, strict=True) if one.type == "ok"),
        "unsure": sorted(node for node, one in zip(nodes, outcomes, strict=True) if one.type == "info"),
    }
    if types == {"ok"}:
        return Completion("ok", op.value, extra=extra)
    why = next(one.why for one in outcomes if one.type != "ok")
    return Completion("fail" if types == {"fail"} else "info", op.value, f"not taken by every broker: {why}", extra)


def shown(settings: Settings | None) -> Settings | None:
    """The settings that are judged, of those that a broker reports; None: it does not know the group."""
    return None if settings is None else {name: settings.get(name) for name in USUAL}


_Send = Callable[[BrokerAdmin], Coroutine[Any, Any, None]]


def _update(group: str, settings: Settings, orderly: bool) -> _Send:
    return lambda broker: broker.create_group(
        group,
        orderly=orderly,
        enabled=settings["consumeEnable"],
        broadcast=settings["consumeBroadcastEnable"],
        retries=settings["retryMaxTimes"],
        retry_queues=settings["retryQueueNums"],
    )


def _deletion(group: str, kind: str) -> _Send:
    return lambda broker: broker.delete_group(group, clean_offsets=kind == "clean")


async def _at(endpoint: tuple[str, int], request: _Send, deadline_s: float) -> Outcome:
    """A refusal may come after the change, which is made before it is written to disk: unknown."""
    try:
        async with BrokerAdmin(*endpoint, deadline_s=deadline_s) as broker:
            await request(broker)
    except AdminError as problem:
        return Outcome("info", str(problem))
    except RemotingError as problem:
        return outcome_of_error("group", problem)
    return Outcome("ok", "")
