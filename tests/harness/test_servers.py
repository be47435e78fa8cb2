# SPDX-License-Identifier: Apache-2.0
"""Actions on the servers of all nodes at once: a node that fails does not stop the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sim.rig import SimNode

from harness.run.servers import restart_all, stop_all
from infra.machines.api import InfraError


class Servers:
    """Three nodes: `silent` cannot be stopped, `broken` cannot be started."""

    def __init__(self, silent: str = "", broken: str = "") -> None:
        self.silent, self.broken = silent, broken
        self.running = {"n1", "n2", "n3"}
        self.nodes = [SimNode(name) for name in ("n1", "n2", "n3")]
        self.topology = self

    def servers(self, node: str) -> list[Any]:
        return [SimpleNamespace(start=lambda: self.start(node), stop=lambda: self.stop(node))]

    def stop(self, node: str) -> None:
        if node == self.silent:
            raise InfraError(f"{node} does not answer")
        self.running.remove(node)

    def start(self, node: str) -> None:
        if node == self.broken:
            raise InfraError(f"{node} does not start")
        self.running.add(node)

    def start_all(self, timeout_s: float) -> None:
        self.running = {"n1", "n2", "n3"}

    def await_serving(self, timeout_s: float) -> None:
        """They do."""


def test_all_are_stopped_and_started() -> None:
    servers: Any = Servers()
    restart_all(servers)
    assert servers.running == {"n1", "n2", "n3"}
    stop_all(servers)
    assert servers.running == set()


def test_the_others_are_started_again() -> None:
    servers: Any = Servers(silent="n1", broken="n2")
    with pytest.raises(InfraError, match="n1 does not answer; n2 does not start"):
        restart_all(servers)
    assert servers.running == {"n1", "n3"}  # n1 was never stopped
