# SPDX-License-Identifier: Apache-2.0
"""An operator's files of settings as a run takes them: whole, except what `aside.toml` lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.plan.plan import PlanError
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV
from results.reading import read_toml
from rocketmq_harness.advice import names
from rocketmq_harness.advice.properties import Conf
from rocketmq_harness.advice.setup import ACTING, CONTROLLED, FIXED, RAFT

DATA: Final = Path(__file__).with_name("aside.toml")

_MODES: Final = ("enableControllerMode", "enableDLegerCommitLog", "enableSlaveActingMaster")
_INSIDE: Final = "enableControllerInNamesrv"
_FEWEST: Final = 3
"""Nodes of a run: name servers and controllers are on the first three."""


@dataclass(frozen=True)
class Changed:
    """A setting that the run does not have as the file has it. `used`: the value in the run; None: left out."""

    kind: str
    name: str
    given: str
    used: str | None
    why: str

    def __str__(self) -> str:
        given = f"{self.kind}.{self.name}={self.given}"
        return f"{given}: {self.why}" if self.used is None else f"{given} is {self.used} here: {self.why}"


@dataclass
class Taken:
    """The part of the files that a run takes.

    settings  `KIND.NAME` -> value. options: the topology's own, such as its number of replicas. nodes: of the cluster.
    changed   all settings that are left out, lowered or raised, in the order of the files.
    absent    kinds of servers without a file: they have their own defaults.
    """

    topology: str
    nodes: int
    settings: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    changed: list[Changed] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def take(confs: Sequence[Conf], version: str, topology: str, replicas: int) -> Taken:
    """The settings of a run from files of a broker, and of controllers and name servers if they are given.

    Raises PlanError if the broker's file is for another topology.
    """
    broker = next(conf for conf in confs if conf.kind == BROKER)
    _require_mode(broker, topology)
    number = "brokers" if topology in (CONTROLLED, RAFT) else "replicas"
    taken = Taken(topology, max(replicas, _FEWEST), options={number: replicas})
    for conf in confs:
        for name, value in conf.values.items():
            _take(taken, _kind(conf, name, version), name, value, version)
    kinds = {conf.kind for conf in confs}
    if topology == CONTROLLED:
        taken.options["controller_type"] = _controllers(confs)
    else:
        kinds.add(CONTROLLER)
    inside = any(conf.values.get(_INSIDE, "").lower() == "true" for conf in confs)
    taken.absent = [
        kind for kind in (BROKER, CONTROLLER, NAMESRV) if kind not in kinds and not (inside and kind == CONTROLLER)
    ]
    return taken


def both(taken: Taken, other: str) -> Taken:
    """The same for a run that also starts servers of another version: without settings that this one does not have."""
    left = Taken(taken.topology, taken.nodes, options=taken.options, absent=taken.absent)
    left.changed = list(taken.changed)
    for key, value in taken.settings.items():
        kind, _, name = key.partition(".")
        if name in names.known(kind, other):
            left.settings[key] = value
        else:
            left.changed.append(Changed(kind, name, value, None, f"{other} does not read it"))
    return left


def _require_mode(broker: Conf, topology: str) -> None:
    flags = dict(zip(_MODES, (CONTROLLED, RAFT, ACTING), strict=True))
    modes = {flags[name]: name for name in _MODES if broker.values.get(name, "").strip().lower() == "true"}
    if topology in modes or (topology == FIXED and not modes):
        return
    if topology == FIXED:
        mode, name = next(iter(modes.items()))
        raise PlanError(f"{broker.where(name)}: {name}=true; --topology {mode} is right")
    needed = next(name for name, mode in flags.items() if mode == topology)
    raise PlanError(f"{broker.path}: a broker of --topology {topology} has {needed}=true; this file does not")


def _kind(conf: Conf, name: str, version: str) -> str:
    """The kind of server that a setting is for: controllers inside of name servers read the name servers' file."""
    inside = conf.kind == NAMESRV and name not in names.known(NAMESRV, version)
    return CONTROLLER if inside and name in names.known(CONTROLLER, version) else conf.kind


def _controllers(confs: Sequence[Conf]) -> str:
    inside = any(conf.values.get(_INSIDE, "").lower() == "true" for conf in confs)
    raft = next((conf.values["controllerType"] for conf in confs if "controllerType" in conf.values), "DLedger")
    kind = "jraft" if raft.strip().lower() == "jraft" else "dledger"
    return f"{kind}-embedded" if inside else kind


def _take(taken: Taken, kind: str, name: str, given: str, version: str) -> None:
    why = _aside(name)
    if why is None and name not in names.known(kind, version):
        why = f"no {kind} of {version} reads it"
    if why is None and name == "brokerRole" and taken.topology in (CONTROLLED, RAFT):
        why = "an election decides who is master"
    if why is None and name == "brokerRole" and given.strip() == "SLAVE":
        why = "the topology decides who is a slave"
    if why is not None:
        taken.changed.append(Changed(kind, name, given, None, why))
        return
    used, why = _fitted(kind, name, given.strip())
    if why:
        taken.changed.append(Changed(kind, name, given, used, why))
    taken.settings[f"{kind}.{name}"] = used


def _aside(name: str) -> str | None:
    for pattern, why in _patterns():
        if fnmatchcase(name, pattern):
            return why
    return None


def _fitted(kind: str, name: str, value: str) -> tuple[str, str]:
    """The value in the run, and the reason if it is another one."""
    if value.isdecimal():
        for row in _rows("lowered"):
            if (row["kind"], row["name"]) == (kind, name) and int(value) > row["most"]:
                return str(row["most"]), row["why"]
        for row in _rows("raised"):
            if (row["kind"], row["name"]) == (kind, name) and int(value) < row["least"]:
                return str(row["least"]), row["why"]
    return value, ""


@cache
def _patterns() -> Sequence[tuple[str, str]]:
    return [(name, row["why"]) for row in _rows("aside") for name in row["names"]]


@cache
def _data() -> Mapping[str, Any]:
    return read_toml(DATA)


def _rows(table: str) -> Iterator[Mapping[str, Any]]:
    yield from _data()[table]
