"""A fault of one's own: an orderly restart (SIGTERM) of a server, in the middle of the load."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.api import Evidence, Fault, Site
from infra.machines.api import Lease
from nemesis.patience import eventually


class RestartOne(Fault):
    name = "restart-one"
    summary = "an orderly stop (SIGTERM) of one server, started again at the heal"
    default_target = "one"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return dict.fromkeys(hit, "SIGTERM, start")

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        start = site.topology.start_command(site.node)  # runs on the node, whatever becomes of us
        lease = site.node.lease([], [start], ttl_s=ttl_s)
        site.topology.stop(site.node, server=site.topology.main(site.node))
        return lease

    def seen(self, site: Site, detail: Any) -> Evidence:
        running = site.topology.process(site.node)
        return Evidence(running is None, f"process {running.pid} still runs" if running else "the server has ended")

    def healed(self, site: Site, detail: Any) -> Evidence:
        back = eventually(lambda: site.topology.process(site.node) is not None, patience_s=10)
        return Evidence(back, "the server runs" if back else "no server runs 10 s after its start")
