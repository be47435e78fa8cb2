# SPDX-License-Identifier: Apache-2.0
"""The schedule is a function of the plan; targets choose what they say."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.api import Fault
from harness.cluster_view import ClusterView
from harness.nemesis.schedule import FIRST_S, LAST_S
from harness.nemesis.schedule import strikes as strikes_of
from harness.nemesis.targets import check_role, nodes_with_role, resolve, roles
from harness.parts import registry
from harness.parts import resolve as parts
from harness.parts.resolve import check_targets
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, PlanError, ServerPlan
from infra.options import option
from nemesis.partition import Bridge, PartitionHalves, PartitionLeaderMinority, PartitionMajoritiesRing
from nemesis.process import CrashRandomNodes, HammerTime, KillRandomProcesses
from nemesis.sequence import PauseSlavesKillMaster
from results.strikes import Strike

NODES = ["n1", "n2", "n3", "n4", "n5"]
FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        PartitionHalves,
        PartitionMajoritiesRing,
        Bridge,
        PartitionLeaderMinority,
        PauseSlavesKillMaster,
        HammerTime,
        KillRandomProcesses,
        CrashRandomNodes,
    )
}
KINDS = ("namesrv", "controller", "broker")


def strikes(plan: Plan) -> list[Strike]:
    return strikes_of(plan, [FAULTS[nemesis.fault]() for nemesis in plan.nemeses])


nemeses = st.builds(
    lambda fault, length, rest, target: NemesisPlan(fault, length + rest, length, target),
    st.sampled_from(sorted(FAULTS)),
    st.floats(0.5, 40),
    st.floats(0.1, 40),
    st.sampled_from([None, "one", "leader", "minority", "n1,n3"]),
)
plans = st.builds(
    lambda seed, limit, chosen: Plan(seed=seed, time_limit_s=limit, nemeses=tuple(chosen)),
    st.integers(0, 1000),
    st.floats(1, 300),
    st.lists(nemeses, min_size=1, max_size=4),
)


@given(plans)
def test_every_schedule_keeps_its_promises(plan: Plan) -> None:
    found = strikes(plan)
    assert found == strikes(plan)
    assert [strike.id for strike in found] == list(range(1, len(found) + 1))
    assert [(strike.at_s or 0) for strike in found] == sorted((strike.at_s or 0) for strike in found)
    assert {strike.fault for strike in found} == {nemesis.fault for nemesis in plan.nemeses}
    for strike in found:
        assert 0 < (strike.at_s or 0) < (strike.end_s or 0) <= plan.time_limit_s + 0.001
        if plan.time_limit_s >= 4:
            assert (strike.at_s or 0) <= plan.time_limit_s - LAST_S + 0.001


@given(st.integers(0, 1000), st.floats(0.5, 40), st.floats(0.1, 40))
def test_a_nemesis_ends_one_strike_before_the_next(seed: int, length: float, rest: float) -> None:
    plan = Plan(seed=seed, time_limit_s=300, nemeses=(NemesisPlan("hammer-time", length + rest, length),))
    found = strikes(plan)
    assert all((a.end_s or 0) <= (b.at_s or 0) + 0.001 for a, b in pairwise(found))


def test_the_default_run() -> None:
    found = strikes(Plan(seed=7))
    assert [round((strike.at_s or 0) / 10) for strike in found] in ([0, 2, 4], [1, 3, 5])
    assert all(FIRST_S <= (strike.at_s or 0) - 20 * i <= FIRST_S + 1 for i, strike in enumerate(found))
    assert all(9.99 < (strike.end_s or 0) - (strike.at_s or 0) < 10.01 for strike in found)
    assert {strike.target for strike in found} <= set(NODES)


def test_another_seed_is_another_schedule() -> None:
    assert len({repr(strikes(Plan(seed=seed))) for seed in range(20)}) == 20


def test_a_longer_run_begins_like_the_shorter() -> None:
    short = strikes(Plan(seed=3, time_limit_s=60))
    long = strikes(Plan(seed=3, time_limit_s=600))
    assert long[: len(short)] == short
    assert len(long) == 30


def test_two_nemeses_take_turns() -> None:
    plan = Plan(time_limit_s=120, nemeses=(NemesisPlan("hammer-time"), NemesisPlan("partition-halves")))
    found = strikes(plan)
    assert [strike.fault for strike in found] == ["hammer-time", "partition-halves"] * 6
    alone = strikes(Plan(time_limit_s=120, nemeses=(NemesisPlan("hammer-time"),)))
    assert [s.seed for s in found if s.fault == "hammer-time"] == [s.seed for s in alone]


def test_the_same_fault_twice_draws_twice() -> None:
    plan = Plan(time_limit_s=120, nemeses=(NemesisPlan("hammer-time"), NemesisPlan("hammer-time")))
    found = strikes(plan)
    assert len({strike.seed for strike in found}) == len(found)


def test_an_alias_is_journalled_by_its_name() -> None:
    plan = Plan(nemeses=(NemesisPlan("partition-random-halves"),))
    assert strikes_of(plan, [PartitionHalves()])[0].fault == "partition-halves"


@pytest.mark.parametrize("role", roles(KINDS))
def test_a_role_is_left_open(role: str) -> None:
    found = strikes(Plan(nemeses=(NemesisPlan("hammer-time", target=role),)))
    assert {strike.target for strike in found} == {role}


def test_only_the_leader_is_left_open() -> None:
    found = strikes(Plan(nemeses=(NemesisPlan("hammer-time", target="leader"),)))
    assert {strike.target for strike in found} == {"leader"}
    first = found[0]
    assert first == Strike(1, "hammer-time", "leader", first.for_s, first.seed, at_s=first.at_s)


@pytest.mark.parametrize(
    ("expression", "size"),
    [("one", 1), ("minority", 2), ("majority", 3), ("all", 5), ("leader", 0), ("n4, n2", 2), ("n1,n1", 1)],
)
def test_targets_choose_what_they_say(expression: str, size: int) -> None:
    for seed in range(30):
        chosen = resolve(expression, NODES, Random(seed))
        assert len(chosen) == size
        assert chosen == [node for node in NODES if node in chosen]


def test_minority_and_majority_of_four() -> None:
    assert len(resolve("minority", NODES[:4], Random(1))) == 1
    assert len(resolve("majority", NODES[:4], Random(1))) == 3


def test_random_is_never_empty_and_mostly_small() -> None:
    rng = Random(5)
    sizes = Counter(len(resolve("random", NODES, rng)) for _ in range(2000))
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert sizes[1] > sizes[2] > sizes[3] > sizes[4] > sizes[5]


def test_every_node_has_its_turn() -> None:
    rng = Random(5)
    assert {resolve("one", NODES, rng)[0] for _ in range(200)} == set(NODES)


@pytest.mark.parametrize(
    ("nemesis", "nodes", "said"),
    [
        (NemesisPlan("hammer-time", target="n1,n9x"), 5, "no target 'n9x'"),
        (NemesisPlan("hammer-time", target="n1,one"), 5, "'one' cannot be in a list of nodes"),
        (NemesisPlan("hammer-time", target=" , "), 5, "target of hammer-time is empty; one of one, minority"),
        (NemesisPlan("hammer-time", target="minority"), 2, "2 nodes have no minority; 'one' is right"),
        (NemesisPlan("partition-majorities-ring"), 2, "partition-majorities-ring cannot act on 2 nodes;"),
        (NemesisPlan("partition-halves"), 1, "partition-halves cannot act on 1 node;"),
        (NemesisPlan("partition-leader-minority"), 4, "partition-leader-minority cannot act on 4 nodes;"),
        (NemesisPlan("pause-slaves-kill-master"), 1, "pause-slaves-kill-master cannot act on 1 node;"),
    ],
)
def test_what_is_wrong_is_said(nemesis: NemesisPlan, nodes: int, said: str) -> None:
    with pytest.raises(PlanError) as problem:
        strikes(Plan(cluster=ClusterPlan(nodes=nodes), nemeses=(nemesis,)))
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_role_that_nobody_can_have_is_said() -> None:
    with pytest.raises(PlanError, match="target of x: no target 'leadr'; did you mean 'leader'"):
        check_role("leadr", KINDS, NODES, "target of x")
    with pytest.raises(PlanError, match="no target 'proxy'; one of one, minority"):
        check_role("proxy", KINDS, NODES, "target of x")
    check_role("controller-leader", KINDS, NODES, "target of x")


def test_a_follower_of_a_kind_is_one_of_those_that_do_not_lead_it() -> None:
    check_role("controller-follower", KINDS, NODES, "target of x")
    view = ClusterView(NODES, servers={node: ["controller"] for node in NODES[:3]}, leading={"controller": "n2"})
    drawn = [nodes_with_role("controller-follower", view, Random(seed)) for seed in range(20)]
    assert {tuple(target.nodes) for target in drawn} == {("n1",), ("n3",)}
    assert {target.kind for target in drawn} == {"controller"}
    assert nodes_with_role("controller-follower", replace(view, leading={}), Random(0)).nodes == []


def targets(plan: Plan) -> None:
    made = parts.resolve(plan)
    check_targets(made, [fault.make() for fault in made.chosen.faults])


@pytest.mark.parametrize("nemesis", [NemesisPlan("disk-stall"), NemesisPlan("hammer-time", target="slaves")])
def test_without_brokers_nobody_leads_them(nemesis: NemesisPlan) -> None:
    """Also where it is the fault's own target."""
    plan = Plan(workload="controller", nemeses=(nemesis,), server=ServerPlan(topology="controller"))
    with pytest.raises(
        PlanError, match=r"nobody is '(leader|slaves)' without replica groups; one of .*controller-leader"
    ):
        targets(plan)
    targets(replace(plan, nemeses=(replace(nemesis, target="controller-leader"),)))


@pytest.mark.parametrize(
    ("topology", "nemesis", "said"),
    [
        ("dledger", NemesisPlan("namesrv-loss"), "needs a namesrv; the topology dledger has none, but server"),
        ("master-slave", NemesisPlan("controller-loss"), "controller-loss needs a controller"),
        ("master-slave", NemesisPlan("remove-replica"), "remove-replica needs a controller"),
        ("dledger", NemesisPlan("rolling-restart", options={"kind": "broker"}), "rolling-restart needs a broker"),
        ("controller", NemesisPlan("controller-loss"), None),
        ("dledger", NemesisPlan("rolling-restart"), None),
    ],
)
def test_a_fault_at_servers_that_the_topology_does_not_have(
    topology: str, nemesis: NemesisPlan, said: str | None
) -> None:
    workload = "register" if topology == "dledger" else "log"
    plan = Plan(workload=workload, nemeses=(nemesis,), server=ServerPlan(topology=topology))
    if said is None:
        return targets(plan)
    with pytest.raises(PlanError, match=said):
        targets(plan)


def test_strikes_that_are_written_out_are_taken_as_they_stand() -> None:
    written = (
        Strike(1, "hammer-time", "master", 2.0, at_s=3.0),
        Strike(2, "bridge", "n2", 1.0, seed=9, after="role-changed", delay_s=0.5),
    )
    plan = Plan(nemeses=(), strikes=written)
    found = strikes_of(plan, [HammerTime(), Bridge()])
    assert [replace(strike, seed=0) for strike in found] == [replace(strike, seed=0) for strike in written]
    assert found[1].seed == 9
    assert found[0].seed, "drawn from the plan's seed where it is not written"
    with pytest.raises(PlanError, match=r"target of strike 1 \(bridge\): no target 'n9'"):
        strikes_of(Plan(nemeses=(), strikes=(Strike(1, "bridge", "n9", 1.0, at_s=1.0),)), [Bridge()])


def test_a_written_strike_may_leave_its_target_to_the_fault() -> None:
    written = (Strike(1, "hammer-time", "", 2.0, at_s=3.0), Strike(2, "hammer-time", "one", 2.0, at_s=8.0))
    first, second = strikes_of(Plan(nemeses=(), strikes=written), [HammerTime(), HammerTime()])
    assert len(first.target.split(",")) == 2, "a minority of five"
    assert second.target in NODES
    assert first.seed != second.seed
    again = strikes_of(Plan(nemeses=(), strikes=written), [HammerTime(), HammerTime()])
    assert again == [first, second]


def test_an_option_that_is_a_key_of_every_strike_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`delay` of a `[[strike]]` is the time between its event and its begin: a plan could not distinguish the two."""

    @dataclass(frozen=True)
    class LateOptions:
        delay: float = option(1.0, "How long.")

    class Late(Fault):
        name, summary = "late", "late"
        Options = LateOptions

    class Point:
        name, module, dist = "late", "toy", None

        def load(self) -> type[Fault]:
            return Late

    monkeypatch.setattr(registry, "_point", lambda *args: Point())
    with pytest.raises(PlanError, match="the nemesis 'late' of the package toy has an option 'delay', and the harness"):
        registry.find(registry.NEMESES, "late")


def test_no_fault_of_ours_has_such_an_option() -> None:
    for name in registry.names(registry.NEMESES):
        assert registry.find(registry.NEMESES, name).cls.name
