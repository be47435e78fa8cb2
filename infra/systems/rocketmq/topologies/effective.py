"""The effective configuration of a server: read after its start, recorded, compared with the requested one."""

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
    """Reads every server's effective configuration, keeps it on the node for `collect`, and compares it with the
    requested one. A server that ran before (on a kept cluster) is changed, as far as it accepts that while it runs.
    `servers` are ordered by node. `requested` returns the configuration of a kind of server at a node; `chosen` has the
    user's settings of each kind, `changing` those that the cluster changes by itself. Raises InfraError for the first
    setting that did not take effect, and the first mend.
    """

    def one(server: JavaServer) -> None:
        node, kind = server.node, server.kind
        require_applied(server)
        if kind == PROXY:
            return  # has no such request
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
