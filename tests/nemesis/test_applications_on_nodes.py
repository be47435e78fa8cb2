# SPDX-License-Identifier: Apache-2.0
"""Faults of applications on real nodes: the kernel's states and counters show them, and their end."""

from __future__ import annotations

from random import Random

import pytest
from bare_servers import deployed

from harness.api import Target
from harness.cluster_view import ClusterView
from infra.machines.api import Node
from infra.machines.node import spawn_argv
from infra.systems.api import APPLICATION_PIDS, Deployment
from nemesis.applications import CutApplications, PauseApplications, programs

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]


def view_of(deployment: Deployment) -> ClusterView:
    return ClusterView.of(deployment.record, [node.name for node in deployment.clients])


def reaches(node: Node, other: Node) -> bool:
    return node.run(["ping", "-c", "1", "-W", "1", other.address], check=False).code == 0


def test_programs_stand_still_and_nodes_are_cut_off() -> None:
    with deployed({"broker": ["sleep", "1000"]}, nodes=2, clients=2) as deployment:
        first, second = deployment.clients
        for node in deployment.clients:
            pidfile = f"{APPLICATION_PIDS}/application-m0.pid"
            node.run(spawn_argv(["sleep", "1000"], env={}, log="/var/lib/harness/log/m0.log", pidfile=pidfile))
        view = view_of(deployment)
        (pause,) = PauseApplications().aim(view, Target(["n1"]), Random(1)).values()
        struck = deployment.node(pause.node)
        (running,) = programs(struck)
        lease = pause.inject(deployment, 60)
        assert lease is not None
        assert pause.seen(deployment).what == f"process {running.pid} is stopped"
        lease.heal()
        assert pause.healed(deployment).what == f"process {running.pid} goes on"

        aimed = CutApplications().aim(view, Target(["n1"]), Random(1))
        (cut,) = (node for node in deployment.clients if node.name in aimed)
        other = second if cut is first else first
        leases = [(each, each.inject(deployment, 60)) for each in aimed.values()]
        assert all(each.seen(deployment).seen for each in aimed.values())
        for server in deployment.nodes:
            assert not reaches(cut, server)
            assert not reaches(server, cut)
            assert reaches(other, server)
        for each, held in leases:
            assert held is not None
            held.heal()
            assert each.healed(deployment).seen
        assert all(reaches(cut, server) for server in deployment.nodes)
