"""A fault of one's own: an orderly restart (SIGTERM) of a server, in the middle of the load."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from harness.api import Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Lease
from infra.options import Seconds, option
from infra.systems.api import Deployment
from nemesis.patience import eventually
from results.strikes import Effect


@dataclass(frozen=True)
class RestartOptions:
    patience: Seconds = option(10.0, "How long the server may take to come back.", low=1)


class Restart(Injection):
    def __init__(self, node: str, kind: str, patience_s: float) -> None:
        self.node, self.kind, self.patience_s = node, kind, patience_s

    @property
    def detail(self) -> Any:
        return {self.kind: "SIGTERM, start"}

    @property
    def effects(self) -> list[Effect]:
        return [Effect("down", self.node, (self.kind,))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease:
        server = deployment.server(self.node, self.kind)
        start = server.start_command()  # runs on the node, whatever becomes of us
        lease = server.node.lease([], [start], ttl_s=ttl_s)
        server.stop()
        return lease

    def seen(self, deployment: Deployment) -> Evidence:
        running = deployment.server(self.node, self.kind).process()
        return Evidence(running is None, f"process {running.pid} still runs" if running else "the server has ended")

    def healed(self, deployment: Deployment) -> Evidence:
        server = deployment.server(self.node, self.kind)
        back = eventually(lambda: server.process() is not None, self.patience_s)
        return Evidence(back, "the server runs" if back else f"no server runs {self.patience_s:g} s after its start")


class RestartOne(Fault):
    name = "restart-one"
    summary = "an orderly stop (SIGTERM) of one server, started again at the heal"
    Options = RestartOptions
    default_target = "one"

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """The servers that hold data, on the nodes that are hit."""
        hit = {node: view.main[node] for node in target.nodes if node in view.main}
        if not hit:
            raise NoTarget(f"no server of {', '.join(target.nodes)} holds data")
        return {node: Restart(node, kind, self.options.patience) for node, kind in hit.items()}
