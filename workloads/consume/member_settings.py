# SPDX-License-Identifier: Apache-2.0
"""The settings of the members' consumers that a user may choose, under the library's own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.plan.plan import PlanError
from infra.systems.rocketmq.servers.artifacts import DEFAULT_VERSION


@dataclass(frozen=True)
class _Setting:
    """high   the largest value; None: true or false. push, polls: the consumers that have it. since: the first version
    with it.
    """

    low: int = 0
    high: int | None = None
    push: bool = True
    polls: bool = True
    since: str = "5.1.0"


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "useHeartbeatV2": _Setting(since="5.2.0"),
    "unitMode": _Setting(),
    "pullBatchSize": _Setting(1, 1024),
    "pullThresholdForQueue": _Setting(1, 65535),
    "pullThresholdSizeForQueue": _Setting(1, 1024),
    "postSubscriptionWhenPull": _Setting(polls=False),
    "consumeConcurrentlyMaxSpan": _Setting(1, 65535, polls=False),
    "pullInterval": _Setting(0, 500, polls=False),
    "suspendCurrentQueueTimeMillis": _Setting(10, 2000, polls=False),
    "awaitTerminationMillisWhenShutdown": _Setting(0, 10_000, polls=False),
    "popBatchNums": _Setting(1, 32, polls=False),
    "popThresholdForQueue": _Setting(1, 1000, polls=False),
}
"""Without those that the harness sets itself. The bounds keep the times that the judges grant."""


def parse(given: Sequence[str], *, polls: bool, version: str | None) -> Mapping[str, str]:
    """The settings, each as `NAME=VALUE`. polls: of a consumer that polls. version: that of the client; None: the
    default. Raises PlanError (one line).
    """
    found: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        setting = _SETTINGS.get(name)
        if setting is None or not (setting.polls if polls else setting.push):
            known = ", ".join(name for name, each in _SETTINGS.items() if (each.polls if polls else each.push))
            raise PlanError(f"member_settings names {name!r}; known are {known}")
        if _numbers(version or DEFAULT_VERSION) < _numbers(setting.since):
            raise PlanError(f"member_settings names {name}, which clients have since {setting.since}, not in {version}")
        if setting.high is None:
            right, good = "true or false", value in ("true", "false")
        else:
            right = f"a whole number from {setting.low} to {setting.high}"
            good = value.isdecimal() and setting.low <= int(value) <= setting.high
        if not good:
            raise PlanError(f"member_settings has {text!r}; {name}={right} is right")
        found[name] = value
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
