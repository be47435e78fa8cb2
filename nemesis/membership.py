# SPDX-License-Identifier: Apache-2.0
"""Replicas that leave their group, and new ones that replace them, while load goes on.

The operator stops a broker in an orderly way and makes the controllers forget it, so its id is gone. At the heal a
broker with an empty disk starts on the node: it applies for an id as a new member, and copies everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from harness.api import Evidence, Fault, Injection, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import folders, process
from infra.options import Seconds, option
from infra.systems.api import Deployment, Server
from nemesis.meant import missing_kind
from nemesis.patience import eventually
from nemesis.process import Kill

_GRACE_S: Final = 8
"""The time that a broker gets between SIGTERM and SIGKILL. An injection has 30 s."""
_ASK_S: Final = 3.0


@dataclass(frozen=True)
class RemovalOptions:
    """The options of the fault."""

    forget: Seconds = option(
        Seconds(10.0), "How long the controllers may take to forget a broker that has stopped.", low=1, high=15
    )


class Removal(Kill):
    """A node's broker leaves its group permanently; at the heal a new one joins."""

    action: ClassVar[str] = "SIGTERM, forgotten by the controllers, data removed; a new member at the end"
    join_s: float = 20.0
    """The time that a new member may take to follow, for the evidence. (A judge decides if it then serves.)"""

    def __init__(self, node: str, kind: str, forget_s: float) -> None:
        super().__init__(node, [kind])
        self.kind, self.forget_s = kind, forget_s
        self.forgotten = ""
        """The servers that forgot it, in words; empty: none."""
        self._refused = ""

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        lease = super().inject(deployment, ttl_s)
        if lease is None:
            return None
        try:
            self.forgotten = deployment.topology.forget(deployment.node(self.node), self.forget_s)
        except InfraError as problem:
            self._refused = str(problem)
        except BaseException:
            lease.heal()
            raise
        return lease

    def end(self, server: Server, running: ProcessId, ttl_s: float) -> Lease:
        gone = [process.end_argv(running, _GRACE_S), folders.empty_argv(server.data_dirs)]
        return server.node.lease(gone, [list(server.start_command())], ttl_s=ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the process is gone, no file is left, and the controllers have forgotten the member."""
        gone = super().seen(deployment)
        if not self.struck:
            return gone
        server = deployment.server(self.node, self.kind)
        left = folders.content(deployment.node(self.node), server.data_dirs)
        what = f"{gone.what}; {self.forgotten or self._refused}; its data are now {left}"
        return Evidence(gone.seen and bool(self.forgotten) and left.files == 0, what)

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if another process runs. Also reports its role in its group, if it has one by then."""
        back = super().healed(deployment)
        now = ""

        def joined() -> bool:
            nonlocal now
            status = asyncio.run(deployment.topology.observe(deployment.node(self.node), _ASK_S))
            # A master calls itself 0, whatever its id.
            now = {"leader": "it is the master", "follower": f"its id is {status.extra.get('broker_id')}"}.get(
                status.role, ""
            )
            return bool(now)

        known = back.seen and eventually(joined, self.join_s)
        return Evidence(back.seen, f"{back.what}; {now if known else f'no member within {self.join_s:g} s'}")


class RemoveReplica(Fault):
    """Members leave and join where controllers keep the list of members."""

    name = "remove-replica"
    summary = "removes brokers from their group permanently, and adds new ones in their place"
    Options: ClassVar[type] = RemovalOptions
    default_target: ClassVar[str] = "one"

    def kinds_needed(self) -> Sequence[str]:
        return ["controller"]

    def available(self, deployment: Deployment) -> str | None:
        return missing_kind(deployment, self.kinds_needed())

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        forget: float = self.options.forget
        return {node: Removal(node, view.main[node], forget) for node in target.nodes if node in view.main}
