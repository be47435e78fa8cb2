# SPDX-License-Identifier: Apache-2.0
"""A group that is down at once and comes back in turn."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError
from infra.options import OptionError, parse
from nemesis.together import InTurn, RestartGroup, Together

NODES = ["n1", "n2", "n3"]
VIEW = ClusterView(
    NODES,
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ("broker",)},
    main=dict.fromkeys(NODES, "broker"),
    groups={"a": NODES},
    leaders={"a": "n2"},
)


def made(**options: Any) -> RestartGroup:
    return RestartGroup(parse(RestartGroup.Options, options, "options"))


def aimed(seed: int = 1, **options: Any) -> Together:
    ((node, found),) = made(**options).aim(VIEW, Target(NODES), Random(seed)).items()
    assert isinstance(found, Together)
    assert node == found.node
    return found


@pytest.mark.parametrize(
    ("order", "nodes"),
    [
        ("nodes", ["n1", "n2", "n3"]),
        ("reverse", ["n3", "n2", "n1"]),
        ("leaders-first", ["n2", "n1", "n3"]),
        ("leaders-last", ["n1", "n3", "n2"]),
        ("n3;n1;n2", ["n3", "n1", "n2"]),
        ("n3", ["n3", "n1", "n2"]),
    ],
)
def test_the_order_of_the_return(order: str, nodes: list[str]) -> None:
    found = aimed(order=order)
    assert found.detail["order"] == nodes
    assert {effect.node for effect in found.effects} == set(NODES)
    assert found.describe({"n2": "master"}).endswith(", back in this order")


def test_a_random_order_comes_from_the_seed() -> None:
    orders = [tuple(aimed(seed).detail["order"]) for seed in range(20)]
    assert orders == [tuple(aimed(seed).detail["order"]) for seed in range(20)]
    assert len(set(orders)) == 6


def test_kinds_choose_the_servers_and_one_node_has_no_order() -> None:
    assert aimed(kind="broker").effects[0].servers == ("broker",)
    with pytest.raises(NoTarget, match="no order"):
        made(kind="namesrv").aim(VIEW, Target(NODES), Random(1))


@pytest.mark.parametrize(
    ("order", "message"),
    [("n1;n1", "twice"), ("n1;random", "one word"), ("n1;;n2", "order is 'n1;;n2'"), ("", "order is ''")],
)
def test_a_wrong_order_is_told(order: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        made(order=order)


class Held:
    """A lease that notes its heal, and fails `fails` times at first."""

    def __init__(self, name: str, healed: list[str], fails: int = 0) -> None:
        self.name, self.healed, self.fails = name, healed, fails

    def heal(self, timeout_s: float = 30) -> None:
        self.fails -= 1
        if self.fails >= 0:
            raise InfraError(f"{self.name} does not answer")
        self.healed.append(self.name)


def test_leases_are_healed_in_turn_and_again_where_one_failed() -> None:
    healed: list[str] = []
    leases = InTurn([Held("a", healed), Held("b", healed, fails=1), Held("c", healed)], 0.01)
    with pytest.raises(InfraError, match="b does not answer"):
        leases.heal()
    assert healed == ["a", "c"]
    leases.heal()
    leases.heal()
    assert healed == ["a", "c", "b"]
    assert leases.started == sorted(leases.started)
