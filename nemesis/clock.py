# SPDX-License-Identifier: Apache-2.0
"""Clock faults: the wall clocks of single servers step, drift, or alternate. Their monotonic clocks do not change.

A server can see another time because libfaketime is preloaded into it, from its start (`ClockFault.prepare`). The
offset is changed in a file of the node while the server runs (`infra.machines.primitives.clock`). A server that another
fault starts again has the same clock, since it is started with the same launch.

The probe starts a process on the node with the environment of the server, and compares its two clocks with those of the
machine. It also checks if the library is in the memory of the server's process. If the server has written to its
log since the injection, the evidence contains the time in that log.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, ClassVar, Final, Literal

from harness.api import Evidence
from infra.machines.api import InfraError, Lease, Node
from infra.machines.primitives import clock
from infra.options import Seconds, option
from infra.systems.api import Deployment, Launch, Server, ServersRun
from nemesis.patience import eventually
from nemesis.process import Leases, ProcessFault, ProcessInjection, named
from results.strikes import Effect

_TOLERANCE_S: Final = 0.1
"""The largest difference between the measured offset and the one in the files."""
_MONOTONIC_S: Final = 0.001
"""A monotonic clock that is further off has moved."""
_CACHED_S: Final = 1.0
"""The time for which a server may still have the offset before the last."""
_DRAWN_STEPS: Final = 16
"""Steps of `both` that are drawn; then they repeat."""
_DRIFT_SEEN_S: Final = 3.0
"""The time for which the probe lets a clock drift between two readings."""


@dataclass(frozen=True)
class HealOptions:
    """The options for the end of every fault of a clock."""

    heal: Literal["step", "slew"] = option("step", "How the clock returns at the end: at once, or in small steps.")
    slew: Seconds = option(Seconds(10.0), "The time that the return in small steps takes.", low=0.5, high=20)

    @property
    def slew_s(self) -> float:
        """The time of the return in seconds; 0 if the clock returns at once."""
        return self.slew if self.heal == "slew" else 0.0


@dataclass(frozen=True)
class StepOptions(HealOptions):
    """The options of `clock-step`."""

    by: Literal["forward", "back", "both"] = option(
        "both", "One step forward, one step back, or several steps there and back in a random order."
    )
    offset: Seconds = option(Seconds(60.0), "The size of a step.", low=0.2, high=86400)
    gap: Seconds = option(Seconds(3.0), "With both: mean time between two steps.", low=1, high=60)


@dataclass(frozen=True)
class DriftOptions(HealOptions):
    """The options of `clock-drift`."""

    rate: float = option(
        0.1, "Seconds that the clock gains in each second; negative: it loses them.", low=-0.9, high=10
    )

    def __post_init__(self) -> None:
        if abs(self.rate) < 0.01:
            raise ValueError(f"a rate of {self.rate:g} is too small to be seen; 0.01 or more is right")


@dataclass(frozen=True)
class StrobeOptions(HealOptions):
    """The options of `clock-strobe`."""

    ahead: Seconds = option(Seconds(0.5), "How far the clock is ahead, half of the time.", low=0, high=86400)
    behind: Seconds = option(Seconds(0.0), "How far the clock is behind, the other half.", low=0, high=86400)
    stay: Seconds = option(Seconds(0.5), "How long the clock stays at each of the two.", low=0.1, high=5)

    def __post_init__(self) -> None:
        if self.ahead + self.behind < 2 * _TOLERANCE_S:
            raise ValueError(f"ahead and behind are less than {2 * _TOLERANCE_S:g} s apart, which cannot be seen")


class MovedClock(ProcessInjection):
    """The clocks of some servers of a node follow a course."""

    patience_s: float = 3.0
    """The time that the probes wait for an effect that does not show at once."""

    def __init__(
        self, node: str, kinds: Sequence[str], others: bool, course: clock.Course, slew_s: float, said: str
    ) -> None:
        """said: the action, for the journal."""
        super().__init__(node, kinds, others)
        self._course, self._slew_s, self._said = course, slew_s, said
        self._parts: dict[str, str] = {}
        self._since = 0.0

    @property
    def detail(self) -> Any:
        return dict.fromkeys(self.kinds, self._said)

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("slow", self.node, tuple(self.kinds))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases = Leases()
        for kind, (server, running) in self.running(deployment).items():
            self.struck[kind] = running
            leases.take(partial(self._move, server, ttl_s))
        self._since = time.monotonic()
        return leases if leases else None

    def _move(self, server: Server, ttl_s: float) -> Lease:
        if preload_of(server.launch) is None:
            raise InfraError(f"{self.node}: its {server.kind} was started without a clock that can be moved")
        held = clock.hold(server.node, folder_of(server.kind), self._course, ttl_s, self._slew_s)
        self._parts[server.kind] = held.part
        return held.lease

    def seen(self, deployment: Deployment) -> Evidence:
        if not self.struck:
            return Evidence(False, "no server was running, so no clock was moved")
        return self._asked_of_all(deployment, self._seen_at)

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if this strike's part of the offset is gone, and if the servers see only that of other strikes."""
        return self._asked_of_all(deployment, self._healed_at)

    def _asked_of_all(self, deployment: Deployment, ask: Any) -> Evidence:
        servers = [deployment.server(self.node, kind) for kind in self.struck]
        with ThreadPoolExecutor(len(servers)) as pool:
            found: list[Evidence] = list(pool.map(ask, servers))
        lines = (
            f"{named(kind, running)}: {one.what}"
            for (kind, running), one in zip(self.struck.items(), found, strict=True)
        )
        return Evidence(all(one.seen for one in found), "; ".join(lines))

    def _seen_at(self, server: Server) -> Evidence:
        preload = _preload(server)
        if not clock.is_preloaded(server.node, self.struck[server.kind].pid, preload["LD_PRELOAD"].split(":")[0]):
            return Evidence(False, "libfaketime is not in its memory")
        moved, what, monotonic = self.look(server, preload)
        still = monotonic <= _MONOTONIC_S
        tail = "the monotonic clock did not move" if still else f"the monotonic clock moved by {monotonic:.3f} s"
        return Evidence(moved and still, f"{what}{self._logged(server)}; {tail}")

    @abstractmethod
    def look(self, server: Server, preload: Mapping[str, str]) -> tuple[bool, str, float]:
        """Returns whether the clock is right, the figures, and the error of the monotonic clock in seconds."""

    def state(self, server: Server) -> clock.State:
        """The files of the server's clock."""
        return clock.state(server.node, folder_of(server.kind), self._parts[server.kind])

    def _logged(self, server: Server) -> str:
        """Returns the offset in the server's own log, if it was written when the server certainly had the offset."""
        since = time.monotonic() - self._since - _CACHED_S
        ahead = clock.logged_offset(server.node, server.log, since) if since > 0 else None
        return f", in its log {_s(ahead)}" if ahead is not None else ""

    def _healed_at(self, server: Server) -> Evidence:
        preload = _preload(server)
        offset = 0.0
        state = self.state(server)

        def back() -> bool:
            nonlocal offset, state
            before = self.state(server)
            offset, state = clock.read(server.node, preload).last, self.state(server)
            return state.own is None and not state.moving and _between(offset, before.total, state.total)

        well = eventually(back, self.patience_s)
        others = f" ({_s(state.total)} by other strikes)" if abs(state.total) > 0 else ""
        left = "" if state.own is None and not state.moving else f"; {_s(state.own or 0)} of this strike are left"
        return Evidence(well, f"offset {_s(offset)}{others}{left}")


class SteppedClock(MovedClock):
    """The clock has another offset, or several, one after the other."""

    def look(self, server: Server, preload: Mapping[str, str]) -> tuple[bool, str, float]:
        before: clock.State
        after: clock.State
        reading: clock.Reading

        def moved() -> bool:
            """True if the offset is right. Of several steps, one may just have led back to 0."""
            nonlocal before, after, reading
            before = self.state(server)
            reading = clock.read(server.node, preload)
            after = self.state(server)
            return bool(after.own) and _between(reading.last, before.total, after.total)

        seen = eventually(moved, self.patience_s)
        others = after.total - (after.own or 0.0)
        with_others = f" ({_s(others)} by other strikes)" if abs(others) > _TOLERANCE_S else ""
        what = f"asked {_s(after.own or 0)}{with_others}, seen {_s(reading.last)}"
        return seen, what, reading.monotonic


class DriftingClock(MovedClock):
    """The clock runs at another rate."""

    def look(self, server: Server, preload: Mapping[str, str]) -> tuple[bool, str, float]:
        rate = self._course.rate
        assert rate is not None
        first, first_others = self._reading(server, preload)
        time.sleep(_DRIFT_SEEN_S)
        last, last_others = self._reading(server, preload)
        seen = ((last.last - last_others) - (first.last - first_others)) / (last.at - first.at)
        # The offset is written every quarter of a second, as a stair: over three seconds its slope is a tenth off.
        moved = abs(seen - rate) <= max(0.25 * abs(rate), 0.005)
        what = f"asked {rate:+.3f} s/s, seen {seen:+.3f} s/s, now {_s(last.last)}"
        return moved, what, max(first.monotonic, last.monotonic)

    def _reading(self, server: Server, preload: Mapping[str, str]) -> tuple[clock.Reading, float]:
        """Returns a reading, and the offset of other strikes (s), taken when none of them has just stepped."""
        reading: clock.Reading
        others = 0.0

        def undisturbed() -> bool:
            nonlocal reading, others
            before = self.state(server)
            reading = clock.read(server.node, preload)
            after = self.state(server)
            others = after.total - (after.own or 0.0)
            return abs(others - (before.total - (before.own or 0.0))) <= _TOLERANCE_S

        eventually(undisturbed, self.patience_s)
        return reading, others


class StrobingClock(MovedClock):
    """The clock alternates between two offsets."""

    def look(self, server: Server, preload: Mapping[str, str]) -> tuple[bool, str, float]:
        """Judges by the changes: the offsets between them may be those of other strikes."""
        (high, stays_s), (low, _) = self._course.steps
        reading = clock.read(server.node, preload, for_s=2 * stays_s + 2 * _CACHED_S, every_s=0.02)
        moves = [b - a for (_, a), (_, b) in pairwise(reading.offsets)]
        up, down = ([m for m in moves if abs(m - size) <= _TOLERANCE_S] for size in (high - low, low - high))
        seen = f"{max(up):+.3f} s ({len(up)} times) and {_s(min(down))} ({len(down)} times)" if up and down else "none"
        what = f"asked {high:+.3f} and {_s(low)}, changes seen in {reading.offsets[-1][0]:.1f} s: {seen}"
        return bool(up and down), what, reading.monotonic


class ClockFault(ProcessFault):
    """The base of all faults of clocks: the servers are started with the library."""

    default_target: ClassVar[str] = "one"

    def available(self, deployment: Deployment) -> str | None:
        """Probes a clock on each node. A server may itself have a reason (`clock`) why its time cannot be changed."""
        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            unable = next(filter(None, pool.map(clock.unavailable, deployment.nodes)), None)
        if unable is not None:
            return unable
        reasons = ((server, getattr(server, "clock", None)) for server in deployment.servers())
        return next((f"{server.node.name}: {why}" for server, why in reasons if why is not None), None)

    def prepare(self, deployment: Deployment) -> None:
        """Prepares a clock for every server, to start it with. Raises ServersRun if one runs without it."""
        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            list(pool.map(lambda node: self._furnish(deployment, node), deployment.nodes))

    def _furnish(self, deployment: Deployment, node: Node) -> None:
        found = clock.library(node)
        if found is None:
            raise InfraError(f"{node.name} has no libfaketimeMT.so.1")
        for server in deployment.servers(node.name):
            running = server.process()
            if running is not None and not clock.is_preloaded(node, running.pid, found):
                raise ServersRun(f"{node.name}: its {server.kind} runs without libfaketime")
            folder = folder_of(server.kind)
            clock.make_ready(node, folder)
            server.launch = with_clock(server.launch, clock.variables(found, folder, self.reads_seldom))

    @property
    def reads_seldom(self) -> bool:
        """True if it is enough that the servers read their offset once a second."""
        return True


class ClockStep(ClockFault):
    """The wall clock of a server steps, as after a correction by NTP or by hand, or after a virtual machine moved."""

    name = "clock-step"
    summary = "steps the wall clocks of servers forward, back, or both"
    Options: ClassVar[type] = StepOptions

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        given: StepOptions = self.options
        if given.by == "both":
            steps, said = _drawn_steps(given, rng), f"steps of {given.offset:g} s, forward and back"
        else:
            at = given.offset if given.by == "forward" else -given.offset
            steps, said = [(at, 0.0)], f"a step of {at:+g} s"
        return SteppedClock(node, kinds, others, clock.Course(steps), given.slew_s, said)


class ClockDrift(ClockFault):
    """The wall clock of a server runs too fast or too slow, as with a bad oscillator. It is moved in small steps."""

    name = "clock-drift"
    summary = "makes the wall clocks of servers run too fast or too slow"
    Options: ClassVar[type] = DriftOptions

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        rate = self.options.rate
        said = f"gains {rate:+g} s per second"
        return DriftingClock(node, kinds, others, clock.Course(rate=rate), self.options.slew_s, said)


class ClockStrobe(ClockFault):
    """The wall clock of a server jumps back and forth, as with two time sources that disagree."""

    name = "clock-strobe"
    summary = "alternates the wall clocks of servers between two offsets"
    Options: ClassVar[type] = StrobeOptions

    @property
    def reads_seldom(self) -> bool:
        return bool(self.options.stay >= 2 * _CACHED_S)

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        given: StrobeOptions = self.options
        course = clock.Course([(given.ahead, given.stay), (-given.behind, given.stay)])
        said = f"between +{given.ahead:g} and -{given.behind:g} s every {given.stay:g} s"
        return StrobingClock(node, kinds, others, course, given.slew_s, said)


def folder_of(kind: str) -> str:
    """The folder of the clock of a kind of server on its node."""
    return f"{clock.FOLDER}/{kind}"


def with_clock(launch: Launch, variables: Mapping[str, str]) -> Launch:
    """Adds the clock's environment to a launch, for the server alone: the last wrapper sets it. The environment of an
    earlier clock fault is kept, so a clock that one fault must read often is read often. A user's own preload stays.
    """
    own = preload_of(launch) or {}
    wrapper = list(launch.wrapper)
    if own:
        del wrapper[-len(own) - 1 :]
    merged = {**own, **variables}
    given = launch.env.get("LD_PRELOAD")
    if given:
        merged["LD_PRELOAD"] = f"{variables['LD_PRELOAD']}:{given}"
    return replace(launch, wrapper=[*wrapper, "env", *(f"{name}={value}" for name, value in merged.items())])


def preload_of(launch: Launch) -> dict[str, str] | None:
    """The environment that `with_clock` has put into a launch, or None."""
    wrapper = list(launch.wrapper)
    if "env" not in wrapper:
        return None
    last = len(wrapper) - 1 - wrapper[::-1].index("env")
    words = dict(word.partition("=")[::2] for word in wrapper[last + 1 :])
    return words if "FAKETIME_TIMESTAMP_FILE" in words else None


def _preload(server: Server) -> dict[str, str]:
    found = preload_of(server.launch)
    assert found is not None, "the injection has looked"
    return found


def _drawn_steps(given: StepOptions, rng: Random) -> list[tuple[float, float]]:
    """Offsets and times: each step leads to another of the three places; the first one leads away from 0."""
    steps: list[tuple[float, float]] = []
    at = 0.0
    while len(steps) < _DRAWN_STEPS:
        at = rng.choice([place for place in (-given.offset, 0.0, given.offset) if place != at])
        steps.append((at, round(given.gap * rng.uniform(0.5, 1.5), 3)))
    return steps


def _s(offset: float) -> str:
    """`+60.000 s`; never `-0.000 s`."""
    return f"{round(offset, 3) + 0.0:+.3f} s"


def _between(offset: float, one: float, other: float) -> bool:
    return min(one, other) - _TOLERANCE_S <= offset <= max(one, other) + _TOLERANCE_S
