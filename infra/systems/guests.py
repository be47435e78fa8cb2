# SPDX-License-Identifier: Apache-2.0
"""Servers that are on a node for a while only: a workload adds them (`Topology.further`), and a lease holds them.

>>> server = deployment.topology.further(node, "guest-1", "t1", 0)  # doctest: +SKIP
>>> lease = hold(server, ttl_s=600)  # doctest: +SKIP
>>> server.start()  # doctest: +SKIP
>>> lease.heal()  # doctest: +SKIP

When the lease ends (its heal, its time, or the end of the control program), the node itself kills the server and
removes its data. Its log stays where all logs are, so it is collected with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from infra.machines.api import Lease, Node
from infra.machines.primitives.process import kill_noted_argv
from infra.systems.api import Server
from infra.systems.java import DATA, LOG

PREFIX: Final = "guest-"
"""The prefix of the names of such servers' files."""


def hold(server: Server, ttl_s: float) -> Lease:
    """Holds a server that its user may start and kill freely. Raises InfraError."""
    folders = list(server.data_dirs)
    return server.node.lease(
        [["mkdir", "-p", "--", *folders]], [kill_noted_argv(server.pidfile), ["rm", "-rf", "--", *folders]], ttl_s=ttl_s
    )


def forget(nodes: Iterable[Node]) -> None:
    """Removes the logs of guests of earlier runs on a kept cluster. Raises InfraError."""
    for node in nodes:
        theirs = ["-mindepth", "1", "-maxdepth", "1", "-name", f"{PREFIX}*"]
        node.run(["find", LOG, DATA, *theirs, "-exec", "rm", "-rf", "--", "{}", "+"])
