# SPDX-License-Identifier: Apache-2.0
"""Fixed masters with slaves that copy: no failover. A group without its master accepts no sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from infra.systems.rocketmq.servers import BROKER, settings
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


class MasterSlaveTopology(RocketmqTopology):
    """Pairs of nodes, `a`, `b`, ...: a master and its slave; a last node without a partner is a master alone."""

    name = "master-slave"
    summary = "three groups with fixed masters, two of them with a slave; no failover"
    Options: ClassVar[type] = ReplicasOptions

    traits: ClassVar[Traits] = replace(COPIED_SLOWLY, stands_in=False)

    def _layout(self, nodes: Sequence[str]) -> Layout:
        replicas = self.options.replicas
        if replicas is not None:
            kinds = {node: self._kinds(nodes, i, broker=i < replicas) for i, node in enumerate(nodes)}
            return one_group(nodes, replicas, kinds)
        return {
            node: NodeRoles(
                kinds=self._kinds(nodes, i),
                group=chr(ord("a") + i // 2),
                broker_id=i % 2,
            )
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        if kind != BROKER or place.group is None or self.profile != "strict":
            return {}
        replicas = len(groups(self._places)[place.group])
        size = {"totalReplicas": Default(str(replicas), "the master and its slaves")}
        return {**settings.SYNC_GROUP, **size} if replicas > 1 else {}
