# SPDX-License-Identifier: Apache-2.0
"""Partitions on nodes in memory: who is aimed at, what counts as seen and as healed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import Target
from harness.cluster_view import ClusterView
from infra.machines.primitives import network
from nemesis.grudge import symmetric, view
from nemesis.partition import Bridge, Cut, Partition, PartitionHalves, PartitionMajoritiesRing, PartitionRandomNode
from results.strikes import impairs

NODES = ["n1", "n2", "n3", "n4", "n5"]


@dataclass
class Machine:
    """A node with packet filter tables: table -> source -> packets dropped."""

    name: str
    address: str
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    stuck: bool = False
    """Its tables cannot be deleted."""


class Net:
    """The primitives of `primitives.network` on machines in memory. `lost`: links (from, to) whose probes get
    lost.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machines = [Machine(name, f"198.18.0.{i}") for i, name in enumerate(NODES, start=11)]
        self.lost: set[tuple[str, str]] = set()
        self.numbers = count()
        for name in ("drop_packets", "dropped", "send_probe", "own_tables"):
            monkeypatch.setattr(network, name, getattr(self, name))
        self.deployment: Any = self

    def node(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def cut(self, *peers: str) -> Cut:
        """An injection on n1 that waits for nothing."""
        return Cut("n1", peers, patience_s=0.0)

    def drop_packets(self, node: Machine, sources: list[str], ttl_s: float) -> Any:
        table = f"harness_drop_{next(self.numbers)}"
        node.tables[table] = dict.fromkeys(sources, 0)

        def heal(timeout_s: float = 30) -> None:
            if not node.stuck:
                node.tables.pop(table, None)

        return SimpleNamespace(heal=heal)

    def dropped(self, node: Machine) -> dict[str, int]:
        return {source: packets for table in node.tables.values() for source, packets in table.items()}

    def send_probe(self, node: Machine, to_address: str) -> None:
        target = next(m for m in self.machines if m.address == to_address)
        if (node.name, target.name) in self.lost:
            return
        for table in target.tables.values():
            if node.address in table:
                table[node.address] += 1
                return

    def own_tables(self, node: Machine) -> list[str]:
        return list(node.tables)


def aim(fault: Partition, hit: str, seed: int) -> dict[str, list[str]]:
    """Node -> whose packets it drops."""
    found = fault.aim(ClusterView.assumed(NODES, "n1"), Target([hit]), Random(seed))
    return {place: injection.detail for place, injection in found.items()}


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    return Net(monkeypatch)


@pytest.mark.parametrize("fault", [PartitionRandomNode(), PartitionHalves(), PartitionMajoritiesRing(), Bridge()])
def test_the_aim_is_a_function_of_the_seed(fault: Partition) -> None:
    aims = [aim(fault, "n4", seed) for seed in (1, 1, 2, 3, 4, 5)]
    assert aims[0] == aims[1]
    assert all(symmetric(found) for found in aims)
    if not isinstance(fault, PartitionRandomNode):
        assert any(found != aims[0] for found in aims[2:])


def test_a_random_node_is_cut_off() -> None:
    cut = aim(PartitionRandomNode(), "n3", 1)
    assert view(cut, "n3", NODES) == {"n3"}
    assert view(cut, "n1", NODES) == {"n1", "n2", "n4", "n5"}


@pytest.mark.parametrize("seed", range(20))
def test_who_is_hit_is_in_the_smaller_half(seed: int) -> None:
    assert len(view(aim(PartitionHalves(), "n5", seed), "n5", NODES)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_who_is_hit_is_the_bridge(seed: int) -> None:
    cut = aim(Bridge(), "n2", seed)
    assert "n2" not in cut
    assert sorted(len(dropped) for dropped in cut.values()) == [2, 2, 2, 2]


def test_a_dropped_probe_of_every_peer_is_the_proof(net: Net) -> None:
    cut = net.cut("n2", "n3")
    cut.inject(net.deployment, 60)
    evidence = cut.seen(net.deployment)
    assert evidence.seen
    assert evidence.what == "packets dropped since the probes: 1 from n2, 1 from n3"


def test_one_peer_that_is_not_dropped_is_told(net: Net) -> None:
    cut = net.cut("n2", "n3")
    net.lost.add(("n3", "n1"))
    cut.inject(net.deployment, 60)
    evidence = cut.seen(net.deployment)
    assert not evidence.seen
    assert evidence.what == "packets dropped since the probes: 1 from n2; still heard: n3"


def test_overlapping_partitions_heal_on_their_own(net: Net) -> None:
    first, second = net.cut("n2"), net.cut("n3")
    lease = first.inject(net.deployment, 60)
    second.inject(net.deployment, 60)
    lease.heal()
    assert first.healed(net.deployment).seen
    assert not second.healed(net.deployment).seen
    assert second.seen(net.deployment).seen


def test_a_table_that_stays_is_not_healed(net: Net) -> None:
    cut = net.cut("n2")
    lease = cut.inject(net.deployment, 60)
    net.machines[0].stuck = True
    lease.heal()
    assert cut.healed(net.deployment).what == "still there: harness_drop_0"


def test_when_the_tables_cannot_be_read_nothing_stays(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[list[str]] = iter([[]])
    monkeypatch.setattr(network, "own_tables", lambda node: next(answers))
    with pytest.raises(StopIteration):
        net.cut("n2").inject(net.deployment, 60)
    assert net.machines[0].tables == {}


def test_it_impairs_who_is_not_heard() -> None:
    fault = PartitionHalves()
    found = fault.aim(ClusterView.assumed(NODES, "n1"), Target(["n1"]), Random(3))
    effects = [effect for injection in found.values() for effect in injection.effects]
    assert impairs(effects, ("server",)) == {place: injection.detail for place, injection in found.items()}
    assert set(fault.describe(list(found.values()), {"n1": "leader"}).split()) == {*NODES, "|", "(leader)"}
