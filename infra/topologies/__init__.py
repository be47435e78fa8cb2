"""Which servers run on which node, with which configuration. A topology is found here by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from infra.api import ServerSettings, Topology
from infra.topologies.controller import ControllerTopology
from infra.topologies.dledger import DledgerTopology

TOPOLOGIES: Final[dict[str, Callable[[ServerSettings], Topology]]] = {
    ControllerTopology.name: ControllerTopology,
    DledgerTopology.name: DledgerTopology,
}
