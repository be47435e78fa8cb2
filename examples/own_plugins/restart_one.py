# SPDX-License-Identifier: Apache-2.0
"""A fault of one's own: an orderly restart (SIGTERM) of a server, in the middle of the load."""

from rocketmq_harness import Kill, Lease, ProcessFault, ProcessId, Server


class Restart(Kill):
    action = "SIGTERM, start"

    def end(self, server: Server, running: ProcessId, ttl_s: float) -> Lease:
        start = server.start_command()  # runs on the node, whatever becomes of us
        lease = server.node.lease([], [start], ttl_s=ttl_s)
        server.stop()
        return lease


class RestartOne(ProcessFault):
    name = "restart-one"
    summary = "an orderly stop (SIGTERM) of one server, started again at the heal"
    default_target = "one"
    injection = Restart
