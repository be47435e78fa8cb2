"""Faults of power and disks without nodes: whom they hit, what they impair, and what they refuse."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError
from infra.options import OptionError, parse
from nemesis.disk import DiskError, DiskFault, DiskFull, DiskReadOnly, DiskStall
from nemesis.power import PowerFailure

VIEW = ClusterView(
    ["n1", "n2", "n3"],
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ()},
    main={"n1": "broker", "n2": "broker"},
)


def test_power_fails_everywhere_at_one_instant() -> None:
    """One injection for all nodes: injections of their own would come one after another."""
    aimed = PowerFailure().aim(VIEW, Target(["n1", "n2", "n3"], "broker"), Random(1))
    assert list(aimed) == ["n1"]
    cut = aimed["n1"]
    assert [(effect.node, effect.kind, effect.servers) for effect in cut.effects] == [
        (node, kind, ()) for node in ("n1", "n2") for kind in ("down", "unsynced-lost")
    ], "a machine without power has no server that goes on, whoever was meant"
    assert cut.describe({"n2": "master"}) == "n1 n2 (master)"
    assert cut.detail == {"nodes": ["n1", "n2"], "changed": {}}


@pytest.mark.parametrize("fault", [PowerFailure(), DiskFull(), DiskStall(), DiskReadOnly(), DiskError()])
def test_a_node_without_servers_is_no_target(fault: Any) -> None:
    with pytest.raises(NoTarget, match="no server runs on n3"):
        fault.aim(VIEW, Target(["n3"]), Random(1))


@pytest.mark.parametrize(
    ("fault", "options", "kinds"),
    [
        (DiskFull, {}, ["disk-full"]),
        (DiskFull, {"end": "power"}, ["disk-full", "unsynced-lost"]),
        (DiskStall, {"end": "kill"}, ["slow", "down"]),
        (DiskReadOnly, {}, ["disk-dead", "unsynced-lost"]),
        (DiskError, {"end": "power"}, ["disk-dead", "unsynced-lost"]),
    ],
)
def test_what_is_lost_depends_on_the_end(fault: type[DiskFault], options: dict[str, str], kinds: list[str]) -> None:
    aimed = fault(parse(fault.Options, options, "options")).aim(VIEW, Target(["n1", "n2"]), Random(1))
    assert list(aimed) == ["n1", "n2"]
    assert [effect.kind for effect in aimed["n2"].effects] == kinds


@pytest.mark.parametrize("fault", [DiskReadOnly, DiskError])
def test_a_dead_disk_does_not_become_well_by_itself(fault: type[DiskFault]) -> None:
    with pytest.raises(OptionError, match="end"):
        parse(fault.Options, {"end": "free"}, "options")


def test_a_machine_without_a_host_says_why() -> None:
    """The plan is refused before anything starts."""

    def host(name: str) -> Any:
        raise InfraError(f"{name}: its container is not on this machine")

    deployment: Any = SimpleNamespace(nodes=[SimpleNamespace(name="n1")], cluster=SimpleNamespace(host=host))
    assert PowerFailure().available(deployment) == "n1: its container is not on this machine"
