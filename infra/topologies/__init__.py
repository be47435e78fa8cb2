"""Which servers run on which node, with which configuration. A topology is found here by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from infra.api import ServerSettings, Topology
from infra.topologies.acting_master import ActingMasterTopology
from infra.topologies.controller import ControllerTopology
from infra.topologies.dledger import DledgerTopology
from infra.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.topologies.master_slave import MasterSlaveTopology

TOPOLOGIES: Final[dict[str, Callable[[ServerSettings], Topology]]] = {
    ControllerTopology.name: ControllerTopology,
    DledgerCommitlogTopology.name: DledgerCommitlogTopology,
    MasterSlaveTopology.name: MasterSlaveTopology,
    ActingMasterTopology.name: ActingMasterTopology,
    DledgerTopology.name: DledgerTopology,
}
