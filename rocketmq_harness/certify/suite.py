# SPDX-License-Identifier: Apache-2.0
"""The suite of a certification: its faults, each a plan, and the promises that a sheet speaks of (`suite.toml`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.plan.plan import Plan
from infra.systems.rocketmq.topologies.base import GIVEN
from results.reading import read_toml
from rocketmq_harness.certify.files import Taken, both

DATA: Final = Path(__file__).with_name("suite.toml")

UPGRADE: Final = "upgrade"
"""The fault that starts with the version `--from`."""

OTHER: Final = "other"
"""The promise that each anomaly breaks which belongs to no other one."""


@dataclass(frozen=True)
class Fault:
    """A row of the sheet. why: the event in an operator's words."""

    name: str
    why: str
    nemesis: Sequence[Mapping[str, Any]]
    time_limit: str


@dataclass(frozen=True)
class Promise:
    """name  a column of the sheet. anomalies: each of them breaks it."""

    name: str
    text: str
    anomalies: Sequence[str]


@cache
def faults() -> Sequence[Fault]:
    """All faults of the suite, in its order."""
    data = read_toml(DATA)
    return [
        Fault(row["name"], row["why"], row["nemesis"], row.get("time_limit", data["time_limit"]))
        for row in data["fault"]
    ]


@cache
def promises() -> Sequence[Promise]:
    """All promises, the last of which is `OTHER`."""
    rows = [Promise(row["name"], row["text"], row["anomalies"]) for row in read_toml(DATA)["promise"]]
    return [*rows, Promise(OTHER, "nothing else is wrong", ())]


def promise_of(anomaly: str) -> str:
    """The name of the promise that an anomaly breaks."""
    return next((one.name for one in promises() if anomaly in one.anomalies), OTHER)


def plan(fault: Fault, taken: Taken, version: str, before: str | None, backend: str, seed: int) -> tuple[Plan, Taken]:
    """The plan of a run, and what it takes from the files. before: the version that an upgrade starts with."""
    data = read_toml(DATA)
    nemesis = [dict(one) for one in fault.nemesis]
    first = version
    if fault.name == UPGRADE:
        assert before is not None
        first, taken = before, both(taken, before)
        nemesis = [{**one, "to": [version]} for one in nemesis]
    made = {
        "workload": "log",
        "seed": seed,
        "time_limit": fault.time_limit,
        "recovery_limit": data["recovery_limit"],
        "rate": data["rate"],
        "cluster": {"backend": backend, "nodes": taken.nodes},
        "server": {
            "topology": taken.topology,
            "profile": GIVEN,
            "version": first,
            **taken.options,
            "set": dict(taken.settings),
        },
        "nemesis": nemesis,
    }
    return Plan.from_dict(made, f"the fault {fault.name}"), taken
