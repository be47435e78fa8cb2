# SPDX-License-Identifier: Apache-2.0
"""Grudges: every node's view, for every size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.grudge import bisect, bridge, complete_grudge, majorities_ring, split_one, symmetric, view

clusters = st.integers(1, 50).flatmap(lambda n: st.permutations([f"n{i}" for i in range(1, n + 1)]))


@given(clusters)
def test_halves_hear_themselves_and_nobody_else(nodes: list[str]) -> None:
    small, large = bisect(nodes)
    assert small + large == nodes
    assert 0 <= len(large) - len(small) <= 1
    grudge = complete_grudge([small, large])
    assert symmetric(grudge)
    for half in (small, large):
        assert all(view(grudge, node, nodes) == set(half) for node in half)


@given(clusters, st.data())
def test_a_loner_hears_itself_alone(nodes: list[str], data: st.DataObject) -> None:
    loner = data.draw(st.sampled_from(nodes))
    grudge = complete_grudge(split_one(nodes, loner))
    assert symmetric(grudge)
    assert view(grudge, loner, nodes) == {loner}
    assert all(view(grudge, node, nodes) == set(nodes) - {loner} for node in nodes if node != loner)


@given(clusters)
def test_only_the_bridge_hears_both_sides(nodes: list[str]) -> None:
    small, (middle, *others) = bisect(nodes)
    grudge = bridge(nodes)
    assert symmetric(grudge)
    assert view(grudge, middle, nodes) == set(nodes)
    for side in (small, others):
        assert all(view(grudge, node, nodes) == {*side, middle} for node in side)


@given(clusters)
def test_in_the_ring_everyone_hears_another_majority(nodes: list[str]) -> None:
    grudge = majorities_ring(nodes)
    assert symmetric(grudge)
    views = [frozenset(view(grudge, node, nodes)) for node in nodes]
    assert all(node in heard and 2 * len(heard) > len(nodes) for node, heard in zip(nodes, views, strict=True))
    if len(nodes) >= 3:
        assert len(set(views)) == len(nodes)


@pytest.mark.parametrize("count", [4, 5])
def test_the_ring_is_exact_for_few_nodes(count: int) -> None:
    """Jepsen's: oneself and the two neighbours."""
    nodes = [f"n{i}" for i in range(count)]
    grudge = majorities_ring(nodes)
    for i, node in enumerate(nodes):
        assert view(grudge, node, nodes) == {nodes[i - 1], node, nodes[(i + 1) % count]}


def test_three_nodes_stand_in_a_line() -> None:
    assert majorities_ring(["a", "b", "c"]) == {"a": ["c"], "c": ["a"]}


@pytest.mark.parametrize("nodes", [[], ["a"], ["a", "b"]])
def test_too_few_nodes_make_no_ring(nodes: list[str]) -> None:
    assert majorities_ring(nodes) == {}


def test_one_way_is_not_symmetric() -> None:
    assert not symmetric({"a": ["b"]})
    assert symmetric({"a": ["b"], "b": ["a"]})


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="n9 is not one of n1, n2"):
        split_one(["n1", "n2"], "n9")
    with pytest.raises(ValueError, match="in two components"):
        complete_grudge([["a", "b"], ["b"]])
