# SPDX-License-Identifier: Apache-2.0
"""Machines that are replaced: one fails permanently; one with its name, another address and an empty disk takes its
place.

The machine here is the same one. Its network interface gets a second address, and is no longer reachable at the
first. Peers with a connection to it get no notice of its end. The new address stays until the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import addresses, folders, process
from infra.machines.primitives.addresses import Move
from infra.options import option
from infra.systems.api import Deployment, Server
from nemesis.process import Kill
from results.strikes import Effect


@dataclass(frozen=True)
class ReplaceOptions:
    """The options of the fault."""

    keep_data: bool = option(False, "Whether the disk of the failed machine moves into the new one.")


class Replacement(Kill):
    """A node's broker is gone at once; at the heal it starts at the new address."""

    def __init__(self, node: str, kind: str, keep_data: bool) -> None:
        super().__init__(node, [kind])
        self.kind, self.keep_data = kind, keep_data
        self.move: Move | None = None
        self.before = folders.Content(0, 0)
        """The data of the failed machine."""
        self._idle = "no server was running, so no machine failed"

    @property
    def detail(self) -> Any:
        data = "with its disk" if self.keep_data else "with an empty disk"
        return {self.kind: f"the machine fails, another one {data} takes its place", "address": self._addresses()}

    def _addresses(self) -> str:
        return "" if self.move is None else f"{self.move.old} -> {self.move.new}"

    @property
    def effects(self) -> Sequence[Effect]:
        lost = [] if self.keep_data else [Effect("data-lost", self.node, (self.kind,))]
        return [Effect("down", self.node, (self.kind,)), *lost]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        node, server = deployment.node(self.node), deployment.server(self.node, self.kind)
        running = server.process()
        if running is None:
            return None
        if why := deployment.topology.keeps_address(self.node):
            raise InfraError(f"{self.node}: {why}")
        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            ruled = pool.map(addresses.has_rules, deployment.nodes)
            held = [each.name for each, has in zip(deployment.nodes, ruled, strict=True) if has]
        if held:
            self._idle = f"another fault holds packet rules on {', '.join(held)}, which mean the address of today"
            return None
        self.before = folders.content(node, server.data_dirs)
        self.move = move = addresses.take(deployment.cluster, node)
        try:
            deployment.topology.readdress(node)
            lease = node.lease(self._fail(server, running, move), [list(server.start_command())], ttl_s=ttl_s)
        except BaseException:
            node.run(move.back_argv(), check=False)
            node.address = move.old
            deployment.topology.readdress(node)
            raise
        self.struck = {self.kind: running}
        return lease

    def _fail(self, server: Server, running: ProcessId, move: Move) -> list[list[str]]:
        """Cuts the network first: peers of a failing machine get no notice."""
        lost = [] if self.keep_data else [folders.empty_argv(server.data_dirs)]
        return [move.argv(), process.kill_argv(running), *lost]

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the process is gone, if another node reaches the new address and not the old one, and if the data
        is as expected.
        """
        if self.move is None:
            return Evidence(False, self._idle)
        killed = super().seen(deployment)
        node, server = deployment.node(self.node), deployment.server(self.node, self.kind)
        witness = next((each for each in deployment.nodes if each is not node), node)
        old, new = (addresses.answers(witness, at, self.move.port) for at in (self.move.old, self.move.new))
        left = folders.content(node, server.data_dirs)
        right = self.before.files > 0 and (left.files > 0) == self.keep_data
        reached = " and ".join(
            f"{'reaches' if answer else 'does not reach'} {at}"
            for at, answer in ((self.move.new, new), (self.move.old, old))
        )
        return Evidence(
            killed.seen and new and not old and right,
            f"{killed.what}; {witness.name} {reached}; the data were {self.before}, now {left}",
        )

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if another process runs. The new address stays."""
        found = super().healed(deployment)
        return Evidence(found.seen, f"{found.what}; the address is {deployment.node(self.node).address}")


class ReplaceNode(Fault):
    """Replaces one of the target's nodes. Only a node without any server but the data server can be replaced: peers
    have the addresses of all others in their configuration.
    """

    name = "replace-node"
    summary = "replaces a failed node by one with its name, another address and an empty disk"
    Options: ClassVar[type] = ReplaceOptions
    default_target: ClassVar[str] = "all"

    def available(self, deployment: Deployment) -> str | None:
        if why := addresses.why_not(deployment.cluster):
            return why
        used = [node for node in deployment.nodes if deployment.servers(node.name)]
        kept = {node.name: deployment.topology.keeps_address(node.name) for node in used}
        if None in kept.values():
            return None
        name, why = next(iter(kept.items()))
        return f"no node can get another address: {name}: {why}; it takes a topology with nodes that run a broker alone"

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        alone = [node for node in target.nodes if node in view.main and set(view.servers[node]) == {view.main[node]}]
        if not alone:
            raise NoTarget(f"{', '.join(target.nodes)}: other servers run there, which keep their addresses")
        node = rng.choice(alone)
        return {node: Replacement(node, view.main[node], self.options.keep_data)}
