# SPDX-License-Identifier: Apache-2.0
"""Slave acting master (RIP-32): the live slave with the smallest id replaces a missing master, except for sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from infra.machines.api import SettingsError
from infra.systems.rocketmq.servers import BROKER, NAMESRV, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.layout import (
    COPIED_SLOWLY,
    Layout,
    NodeRoles,
    ReplicasOptions,
    groups,
    one_group,
)
from infra.systems.settings import Default
from results.deployment import Traits
from results.permission import Permissions

_FIRST: Final = 3
"""Number of nodes of the group `a`."""


_HIDDEN: Final = (
    "RIP-32: until a returning master is online it does not register, and by that it does not serve; it refuses nothing"
)


class ActingMasterTopology(RocketmqTopology):
    """Group `a` of three nodes, and `b` of the others; `a` escapes to `b` messages that an acting master may not store.
    A single group (`replicas`) has no other group to escape to.
    """

    name = "slave-acting-master"
    summary = "RIP-32: if a group has no master, a slave acts for it and later hands its data back"
    Options: ClassVar[type] = ReplicasOptions

    traits: ClassVar[Traits] = replace(COPIED_SLOWLY, acting_master=True)

    def _layout(self, nodes: Sequence[str]) -> Layout:
        replicas = self.options.replicas
        if replicas is not None:
            kinds = {node: self._kinds(nodes, i, broker=i < replicas) for i, node in enumerate(nodes)}
            return one_group(nodes, replicas, kinds)
        if len(nodes) <= _FIRST:
            raise SettingsError(f"the topology {self.name} needs {_FIRST + 1} nodes at least: two groups")
        return {
            node: NodeRoles(
                kinds=self._kinds(nodes, i),
                group="a" if i < _FIRST else "b",
                broker_id=i if i < _FIRST else i - _FIRST,
            )
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        if kind == NAMESRV:
            return settings.ACTING_NAMESRV
        if kind != BROKER or place.group is None:
            return {}
        replicas = len(groups(self._places)[place.group])
        return {
            **settings.ACTING,
            "totalReplicas": Default(str(replicas), "the group's size: with 1 there is nobody to stand in"),
            "inSyncReplicas": Default(str(min(2, replicas)), "acknowledged when a slave has it, too"),
            **(settings.STRICT_ACTING if self.profile == "strict" and replicas > 1 else {}),
        }

    def permits(self) -> Permissions:
        """With lockInStrictMode a lock takes a majority. A master serves every client that knows its address."""
        place = next(place for place in self._places.values() if place.group is not None)
        strict = self.configured(BROKER, place).get("lockInStrictMode") == "true"
        alone = {name: f"lockInStrictMode=false: {why}" for name, why in super().permits().items()}
        return {"served-unlisted": _HIDDEN, **({} if strict else alone)}
