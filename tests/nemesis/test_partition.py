"""Partitions on nodes in memory: who is aimed at, what counts as seen and as healed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import Site
from infra.machines import primitives
from nemesis.grudge import symmetric, view
from nemesis.partition import Bridge, Partition, PartitionHalves, PartitionMajoritiesRing, PartitionRandomNode

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
    """The primitives of `infra.machines.primitives` on machines in memory. `lost`: links (from, to) whose probes get
    lost.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machines = [Machine(name, f"198.18.0.{i}") for i, name in enumerate(NODES, start=11)]
        self.lost: set[tuple[str, str]] = set()
        self.numbers = count()
        for name in ("drop_packets", "dropped", "send_probe", "own_tables"):
            monkeypatch.setattr(primitives, name, getattr(self, name))
        monkeypatch.setattr(Partition, "patience_s", 0.0)

    def site(self, name: str) -> Site:
        cluster: Any = SimpleNamespace(nodes=self.machines)
        topology: Any = None
        return Site(next(n for n in cluster.nodes if n.name == name), topology, cluster)

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


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    return Net(monkeypatch)


@pytest.mark.parametrize("fault", [PartitionRandomNode(), PartitionHalves(), PartitionMajoritiesRing(), Bridge()])
def test_the_aim_is_a_function_of_the_seed(fault: Partition) -> None:
    aims = [fault.aim(NODES, ["n4"], Random(seed)) for seed in (1, 1, 2, 3, 4, 5)]
    assert aims[0] == aims[1]
    assert all(symmetric(aim) for aim in aims)
    if not isinstance(fault, PartitionRandomNode):
        assert any(aim != aims[0] for aim in aims[2:])


def test_a_random_node_is_cut_off() -> None:
    aim = PartitionRandomNode().aim(NODES, ["n3"], Random(1))
    assert view(aim, "n3", NODES) == {"n3"}
    assert view(aim, "n1", NODES) == {"n1", "n2", "n4", "n5"}


@pytest.mark.parametrize("seed", range(20))
def test_who_is_hit_is_in_the_smaller_half(seed: int) -> None:
    aim = PartitionHalves().aim(NODES, ["n5"], Random(seed))
    assert len(view(aim, "n5", NODES)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_who_is_hit_is_the_bridge(seed: int) -> None:
    aim = Bridge().aim(NODES, ["n2"], Random(seed))
    assert "n2" not in aim
    assert sorted(len(dropped) for dropped in aim.values()) == [2, 2, 2, 2]


def test_a_dropped_probe_of_every_peer_is_the_proof(net: Net) -> None:
    fault, site = PartitionHalves(), net.site("n1")
    fault.inject(site, ["n2", "n3"], 60)
    evidence = fault.seen(site, ["n2", "n3"])
    assert evidence.seen
    assert evidence.what == "packets dropped since the probes: 1 from n2, 1 from n3"


def test_one_peer_that_is_not_dropped_is_told(net: Net) -> None:
    fault, site = PartitionHalves(), net.site("n1")
    net.lost.add(("n3", "n1"))
    fault.inject(site, ["n2", "n3"], 60)
    evidence = fault.seen(site, ["n2", "n3"])
    assert not evidence.seen
    assert evidence.what == "packets dropped since the probes: 1 from n2; still heard: n3"


def test_overlapping_partitions_heal_on_their_own(net: Net) -> None:
    fault, first, second = PartitionHalves(), net.site("n1"), net.site("n1")
    lease = fault.inject(first, ["n2"], 60)
    fault.inject(second, ["n3"], 60)
    lease.heal()
    assert fault.healed(first, ["n2"]).seen
    assert not fault.healed(second, ["n3"]).seen
    assert fault.seen(second, ["n3"]).seen


def test_a_table_that_stays_is_not_healed(net: Net) -> None:
    fault, site = PartitionHalves(), net.site("n1")
    lease = fault.inject(site, ["n2"], 60)
    net.machines[0].stuck = True
    lease.heal()
    assert fault.healed(site, ["n2"]).what == "still there: harness_drop_0"


def test_when_the_tables_cannot_be_read_nothing_stays(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[list[str]] = iter([[]])
    monkeypatch.setattr(primitives, "own_tables", lambda node: next(answers))
    with pytest.raises(StopIteration):
        PartitionHalves().inject(net.site("n1"), ["n2"], 60)
    assert net.machines[0].tables == {}


def test_it_impairs_who_is_not_heard() -> None:
    fault = PartitionHalves()
    aim = fault.aim(NODES, ["n1"], Random(3))
    assert fault.impairs(NODES, aim) == aim
    assert set(fault.told(aim, {"n1": "leader"}).split()) == {*NODES, "|", "(leader)"}
