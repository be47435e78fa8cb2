# SPDX-License-Identifier: Apache-2.0
"""Strikes: one fault at one time, as a value that is the same in the plan, the journal and the report.

A plan contains its strikes (`[[strike]]`), or a schedule draws them (`harness.nemesis.schedule`). The nemesis' ops
contain them (`inject`, `heal`). `effective.toml` of a finished run contains them with their actual targets and times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

CLIENTS: Final = "clients"
"""In place of a node among those that a node does not hear: all clients."""

EffectKind = Literal["down", "cut-off", "slow", "unsynced-lost", "disk-full", "disk-dead", "data-lost", "data-damaged"]

AT_DISKS: Final[Collection[EffectKind]] = ("unsynced-lost", "disk-full", "disk-dead", "data-damaged")
"""After these, the files of the stopped servers may hold other things than the servers had acknowledged."""


LASTING: Final[frozenset[EffectKind]] = frozenset({"unsynced-lost", "data-lost", "data-damaged"})
"""Effects that no heal reverts."""


@dataclass(frozen=True)
class Effect:
    """An effect of a fault while it lasts, for judges and plots.

    down           the servers of these kinds end, or stand still.
    cut-off        the node gets nothing from the peers; a peer may be `clients`.
    slow           the servers of these kinds work, but late: a disk that stalls, a clock that drifts, a full link.
    unsynced-lost  data that the servers of these kinds had not synced to their disk is gone.
    disk-full      a write of the servers of these kinds that needs space fails.
    disk-dead      no write of the servers of these kinds reaches the disk.
    data-lost      all data that the servers of these kinds had on their disk is gone, synced or not.
    data-damaged   files of the servers of these kinds hold other bytes than were written, and stay so.

    servers  kinds of servers; empty: all of the node.
    quota    it limits their processor time: they wait for a processor although the machine has one.
    halted   with `slow`: they get no further than their next write, until the heal.
    """

    kind: EffectKind
    node: str
    servers: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    quota: bool = False
    halted: bool = False

    def to_json(self) -> dict[str, Any]:
        """The effect in the form of the journal."""
        found: dict[str, Any] = {"kind": self.kind, "node": self.node}
        if self.servers:
            found["servers"] = list(self.servers)
        if self.peers:
            found["peers"] = list(self.peers)
        if self.quota:
            found["quota"] = True
        if self.halted:
            found["halted"] = True
        return found

    @staticmethod
    def from_json(reported: Mapping[str, Any]) -> Effect:
        """The effect of `to_json`. Raises KeyError or TypeError for anything else."""
        return Effect(
            reported["kind"],
            str(reported["node"]),
            tuple(reported.get("servers", ())),
            tuple(reported.get("peers", ())),
            bool(reported.get("quota", False)),
            bool(reported.get("halted", False)),
        )


@dataclass(frozen=True)
class Strike:
    """One fault at one time. Times in seconds since the main phase began.

    id       from 1, in the order of the plan, or of `at_s`.
    fault    the fault's own name. options: the fault's, in the form of TOML.
    target   a role, or names of nodes: `n1,n4`; "": the fault's default.
    for_s    its duration.
    seed     that of the random numbers with which the fault selects its target.
    at_s     its begin; None: it waits for an event.
    after    the event that it waits for, `KIND` or `KIND:TEXT` (`harness.nemesis.events`), from the beginning of the
             strike before it on. delay_s: the time from the event to its begin.
    within_s the longest wait; then it is skipped. None: to the end of the phase.
    """

    id: int
    fault: str
    target: str
    for_s: float
    seed: int = 0
    at_s: float | None = None
    after: str | None = None
    delay_s: float = 0.0
    within_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_s(self) -> float | None:
        """The begin of its heal; None if its own begin is unknown."""
        return None if self.at_s is None else round(self.at_s + self.for_s, 3)

    def to_inject(self) -> dict[str, Any]:
        """The value of its `inject` op."""
        found: dict[str, Any] = {
            "fault": self.fault,
            "id": self.id,
            "target": self.target,
            "seed": self.seed,
            "for_s": self.for_s,
        }
        if self.options:
            found["options"] = dict(self.options)
        if self.after is not None:
            found |= {"after": self.after, "delay_s": self.delay_s}
        return found

    def to_heal(self) -> dict[str, Any]:
        """The value of its `heal` op."""
        return {"fault": self.fault, "id": self.id}

    @staticmethod
    def from_op(value: object) -> Strike:
        """The strike of an `inject` or `heal` op. Raises ValueError for any other value."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r} is not a strike")
        number, fault = value.get("id"), value.get("fault")
        if not isinstance(number, int) or not isinstance(fault, str):
            raise ValueError(f"{value!r} names no fault, or has no id")
        options = value.get("options")
        return Strike(
            number,
            fault,
            str(value.get("target", "")),
            float(value.get("for_s", 0)),
            int(value.get("seed", 0)),
            after=value.get("after"),
            delay_s=float(value.get("delay_s", 0)),
            options=dict(options) if isinstance(options, Mapping) else {},
        )


def impairs(effects: Sequence[Effect], serving: Collection[str]) -> dict[str, list[str]]:
    """Node -> the peers it does not hear; a node that names itself serves no client.

    serving  kinds of servers that a node needs to serve clients.
    """
    found: dict[str, list[str]] = {}
    for effect in effects:
        if effect.kind == "cut-off":
            found.setdefault(effect.node, []).extend(effect.peers)
        elif effect.kind == "down" and (not effect.servers or set(effect.servers) & set(serving)):
            found.setdefault(effect.node, []).append(effect.node)
    return found
