"""Fixed masters with slaves that copy: no failover. A group without its master accepts no sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from infra.systems.rocketmq.servers import BROKER, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.layout import COPIED_SLOWLY, Layout, NodeRoles, groups
from infra.systems.settings import Default
from results.deployment import Traits


class MasterSlaveTopology(RocketmqTopology):
    """Pairs of nodes, `a`, `b`, ...: a master and its slave; a last node without a partner is a master alone."""

    name = "master-slave"
    summary = "three groups with fixed masters, two of them with a slave; no failover"

    traits: ClassVar[Traits] = replace(COPIED_SLOWLY, stands_in=False)

    def _layout(self, nodes: Sequence[str]) -> Layout:
        return {
            node: NodeRoles(
                kinds=self._kinds(nodes, i),
                group=chr(ord("a") + i // 2),
                broker_id=i % 2,
            )
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        pair = kind == BROKER and place.group is not None and len(groups(self._places)[place.group]) > 1
        return settings.SYNC_PAIR if pair and self.profile == "strict" else {}
