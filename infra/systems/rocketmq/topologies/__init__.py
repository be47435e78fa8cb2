"""Which servers run on which node, with which configuration. A topology is found here by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from infra.machines.api import ServerSettings, Topology
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.rocketmq.topologies.acting_master import ActingMasterTopology
from infra.systems.rocketmq.topologies.controller import ControllerTopology
from infra.systems.rocketmq.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology

TOPOLOGIES: Final[dict[str, Callable[[ServerSettings], Topology]]] = {
    ControllerTopology.name: ControllerTopology,
    DledgerCommitlogTopology.name: DledgerCommitlogTopology,
    MasterSlaveTopology.name: MasterSlaveTopology,
    ActingMasterTopology.name: ActingMasterTopology,
    DledgerTopology.name: DledgerTopology,
}
