"""What a server really runs with: asked after its start, kept for the record, compared with what was requested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

from infra.machines.api import InfraError, Node
from infra.systems.java import LOG, JavaServer
from infra.systems.mends.apply import require_applied
from infra.systems.rocketmq.servers import PROXY
from infra.systems.rocketmq.topologies.files import find_mismatch, live_changes
from infra.systems.settings import properties

_ASK_S: Final = 10.0


def read_back(
    servers: Sequence[JavaServer],
    requested: Callable[[str, Node], Mapping[str, str]],
    chosen: Mapping[str, Mapping[str, str]],
    changing: Collection[str],
) -> None:
    """Ask every server for its effective configuration, keep it on the node for `collect`, and compare it with what
    was requested. A server that ran before (on a kept cluster) is changed, as far as it takes that while it runs.
    `servers` stand node by node. `requested` tells the configuration of a kind of server at a node, `chosen` what the
    user chose of each kind, `changing` what the cluster changes by itself. Raises InfraError for the first setting that
    did not take, and the first mend.
    """

    def one(server: JavaServer) -> None:
        node, kind = server.node, server.kind
        require_applied(server)
        if kind == PROXY:
            return  # tells nobody
        reply = server.admin.settings(_ASK_S)
        asked = requested(kind, node)
        if changes := live_changes(kind, asked, reply):
            node.run(server.admin.change_command(changes))
            reply = server.admin.settings(_ASK_S)
        node.write(f"{LOG}/effective-{kind}.properties", properties(reply))
        if text := find_mismatch(asked, reply, chosen[kind], changing):
            raise InfraError(f"{node.name}: {kind}.{text}")

    def all_at(group: Sequence[JavaServer]) -> None:
        for server in group:
            one(server)

    nodes = [list(group) for _, group in groupby(servers, key=lambda server: server.node.name)]
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(all_at, nodes))
