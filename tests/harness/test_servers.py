"""What is done to the servers of all nodes at once: a node that fails keeps the others from nothing."""

from __future__ import annotations

from typing import Any

import pytest

from harness.run.servers import restart_all, stop_all
from infra.machines.api import InfraError
from sim.rig import SimNode


class Servers:
    """Three nodes: `silent` cannot be stopped, `broken` cannot be started."""

    def __init__(self, silent: str = "", broken: str = "") -> None:
        self.silent, self.broken = silent, broken
        self.running = {"n1", "n2", "n3"}

    def stop(self, node: Any) -> None:
        if node.name == self.silent:
            raise InfraError(f"{node.name} does not answer")
        self.running.remove(node.name)

    def start(self, node: Any) -> None:
        if node.name == self.broken:
            raise InfraError(f"{node.name} does not start")
        self.running.add(node.name)

    def start_all(self, timeout_s: float) -> None:
        self.running = {"n1", "n2", "n3"}

    def await_serving(self, timeout_s: float) -> None:
        """They do."""


NODES: Any = [SimNode(name) for name in ("n1", "n2", "n3")]


def test_all_are_stopped_and_started() -> None:
    servers: Any = Servers()
    restart_all(servers, NODES)
    assert servers.running == {"n1", "n2", "n3"}
    stop_all(servers, NODES)
    assert servers.running == set()


def test_the_others_are_started_again() -> None:
    servers: Any = Servers(silent="n1", broken="n2")
    with pytest.raises(InfraError, match="n1 does not answer; n2 does not start"):
        restart_all(servers, NODES)
    assert servers.running == {"n1", "n3"}  # n1 was never stopped
