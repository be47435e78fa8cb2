# SPDX-License-Identifier: Apache-2.0
"""Actions on the servers of all nodes: stop them, start them again, fetch their logs."""

from __future__ import annotations

import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from infra.machines.api import InfraError, Node, NodeUnreachable
from infra.systems.api import Deployment, Server
from results.store import RunDir

log = logging.getLogger("harness")

READY_TIMEOUT_S: Final = 240.0
PARTIAL_READY_S: Final = 30.0
"""The time that the rest of a group gets when one of its nodes does not answer; also the time that one server gets."""

_ASK_S: Final = 2.0


def restart_all(deployment: Deployment) -> None:
    """Stops every server in an orderly way, starts all again, waits until the group serves.

    Raises InfraError if a node does not answer, after the servers of all other nodes were started again.
    """
    failed = _stopped(deployment)
    if not failed:
        deployment.topology.start_all(READY_TIMEOUT_S)
        return
    for node in deployment.nodes:
        if node.name not in failed:
            try:
                for server in deployment.servers(node.name):
                    server.start()
            except InfraError as problem:
                failed[node.name] = problem
    with contextlib.suppress(InfraError):  # the error below names what is missing
        deployment.topology.await_serving(PARTIAL_READY_S)
    raise InfraError("; ".join(str(problem) for problem in failed.values()))


def start_one(server: Server) -> None:
    """Starts a server and waits until it answers. Raises InfraError."""
    server.start()
    end = time.monotonic() + PARTIAL_READY_S
    while not server.admin.answers(_ASK_S):
        if time.monotonic() > end:
            raise InfraError(f"{server.node.name}: the {server.kind} did not answer within {PARTIAL_READY_S:g} s")
        time.sleep(0.2)


def stop_all(deployment: Deployment) -> None:
    """Stops every server in an orderly way, all nodes at once. Raises InfraError after having tried all."""
    failed = _stopped(deployment)
    if failed:
        raise InfraError("; ".join(str(problem) for problem in failed.values()))


def _stopped(deployment: Deployment) -> dict[str, InfraError]:
    """Stops every server, on each node in the reverse order of their start. Returns node -> error of a failed stop."""
    nodes = deployment.nodes

    def stop(node: Node) -> InfraError | None:
        try:
            for server in reversed(deployment.servers(node.name)):
                server.stop()
        except InfraError as problem:
            return problem
        return None

    with ThreadPoolExecutor(len(nodes)) as pool:
        problems = dict(zip([node.name for node in nodes], pool.map(stop, nodes), strict=True))
    return {name: problem for name, problem in problems.items() if problem is not None}


def collect(deployment: Deployment, folder: RunDir) -> dict[str, str]:
    """Fetches every node's logs. A node that does not answer is noted, and the others are fetched all the same.

    Returns the nodes that the harness itself could not reach, with the error: every fault is healed by now, so they
    were removed from outside.
    """

    nodes = [*deployment.nodes, *deployment.clients]

    def fetch(node: Node) -> str | None:
        try:
            deployment.topology.collect(node, folder.nodes / node.name)
        except (InfraError, OSError) as problem:
            log.error("logs of %s were not collected: %s", node.name, problem)
            return str(problem) if isinstance(problem, NodeUnreachable) else None
        return None

    with ThreadPoolExecutor(len(nodes)) as pool:
        problems = dict(zip([node.name for node in nodes], pool.map(fetch, nodes), strict=True))
    return {name: problem for name, problem in problems.items() if problem is not None}
