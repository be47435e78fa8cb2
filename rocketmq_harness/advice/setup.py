# SPDX-License-Identifier: Apache-2.0
"""An operator's set-up: the version, the topology, the number of replicas, and the files of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rocketmq_harness.advice.properties import Conf

TOPOLOGIES: Final = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")

CONTROLLED, RAFT, FIXED, ACTING = TOPOLOGIES

_MODES: Final[Mapping[str, str]] = {
    CONTROLLED: "enableControllerMode",
    RAFT: "enableDLegerCommitLog",
    ACTING: "enableSlaveActingMaster",
}
"""Topology -> the setting that makes a broker take part in it; without any, it is a fixed master or slave."""

DEFAULTS: Final[Mapping[str, str]] = {
    "allAckInSyncStateSet": "false",
    "brokerRole": "ASYNC_MASTER",
    "duplicationEnable": "false",
    "enableAutoInSyncReplicas": "false",
    "enableControllerMode": "false",
    "enableDLegerCommitLog": "false",
    "enableSlaveActingMaster": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "inSyncReplicas": "1",
    "minInSyncReplicas": "1",
    "totalReplicas": "1",
    "transientStorePoolEnable": "false",
    "writeWithoutMmap": "false",
}
"""The settings of a broker that this package looks at, with the servers' defaults, equal in all pinned versions."""

CONTROLLER_DEFAULTS: Final[Mapping[str, str]] = {
    "controllerType": "DLedger",
    "enableElectUncleanMaster": "false",
}
NAMESRV_DEFAULTS: Final[Mapping[str, str]] = {"supportActingMaster": "false"}

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("SYNC_FLUSH", "ASYNC_FLUSH"),
}


_UNTRIMMED: Final = ("5.1.0", "5.1.1")
"""Versions that do not remove spaces behind a text. No version removes those behind a number, `true` or `false`."""


@dataclass(frozen=True)
class Setup:
    """controller, namesrv: None: the operator gave no such file, so its settings are unknown."""

    version: str
    topology: str
    replicas: int
    broker: Conf
    controller: Conf | None = None
    namesrv: Conf | None = None

    @property
    def confs(self) -> Iterator[Conf]:
        return (conf for conf in (self.broker, self.controller, self.namesrv) if conf is not None)

    @cached_property
    def mode(self) -> str:
        """The topology in which a broker with these settings takes part, whatever the operator calls it."""
        return next((name for name, setting in _MODES.items() if self[setting] == "true"), FIXED)

    def mode_setting(self) -> str:
        """The setting of the topology that the operator named; "" for a fixed master."""
        return _MODES.get(self.topology, "")

    def __getitem__(self, name: str) -> str:
        """The value of a broker's setting as the broker takes it."""
        return taken(name, self.broker.values.get(name), DEFAULTS[name], self.version)

    def number(self, name: str) -> int:
        return int(self[name])

    def of_controller(self, name: str) -> str | None:
        """The value of a controller's setting; None if no file has the controllers' settings. Controllers inside of
        name servers read the name servers' file.
        """
        conf = self.controller
        if conf is None and self.namesrv is not None:
            inside = self.namesrv.values.get("enableControllerInNamesrv", "").lower() == "true"
            conf = self.namesrv if inside else None
        if conf is None:
            return None
        return taken(name, conf.values.get(name), CONTROLLER_DEFAULTS[name], self.version)


def taken(name: str, value: str | None, default: str, version: str) -> str:
    """The value that a server of a version has after it read a file (`MixAll.properties2Object`): it keeps its default
    for a text that it cannot read, and takes all but `true` for false.
    """
    if value is None:
        return default
    if default in ("true", "false"):
        return str(value.lower() == "true").lower()
    if default.isdigit():
        return str(int(value)) if is_number(value) else default
    text = value if version in _UNTRIMMED else value.strip()
    return text if text in _CHOICES.get(name, (text,)) else default


def wrong(name: str, value: str, default: str, version: str) -> str | None:
    """The right values, for one that a server does not take; None for one that it takes."""
    if default in ("true", "false"):
        return None if value.lower() in ("true", "false") else "true or false"
    if default.isdigit():
        return None if is_number(value) else "a number"
    if name in _CHOICES and (value if version in _UNTRIMMED else value.strip()) not in _CHOICES[name]:
        return " or ".join(_CHOICES[name])
    return None


def is_number(value: str) -> bool:
    """True for a text that `Integer.parseInt` reads."""
    digits = value[1:] if value[:1] in ("+", "-") else value
    return digits.isascii() and digits.isdigit() and len(digits) < 1000 and -(2**31) <= int(value) < 2**31
