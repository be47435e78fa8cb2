# SPDX-License-Identifier: Apache-2.0
"""The small judges: each catches what was planted and stays silent on what is good."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fault_stories import S, Story

from checkers.base.impairment import majority_connected
from checkers.run.availability import Availability
from checkers.run.convergence import Convergence
from checkers.run.faults import Faults
from checkers.run.stats import Stats
from checkers.run.wellformed import WellFormed
from checkers.servers.replication import Replication
from results.fault_intervals import FaultInterval
from results.history import History
from results.op import NEMESIS, SERVER_DIED, Op, OpType
from results.record import Observation, RunRecord
from results.strikes import Effect, impairs
from results.verdict import Verdict

NODES = ["n1", "n2", "n3", "n4", "n5"]


def availability() -> Availability:
    return Availability(NODES, 30, lambda op: op.type == "ok" and op.f == "write")


def steady(story: Story, start: float, end: float, type_: OpType = "ok") -> None:
    for i in range(int(start), int(end)):
        story.write(i + 0.1, type_, process=i if type_ == "info" else 0)


@pytest.mark.parametrize(
    ("seen", "end"),
    [
        ([(5, "n1", "leader")], "tried; n1 (term 1) reported to be leader"),
        ([(5, "n1", "leader"), (8, "n1", "silent")], "tried; no node reported to be leader"),
        (
            [(5, "n1", "leader"), (19, "n1", "silent"), (31, "n2", "leader"), (40, "n2", ""), (42, "n2", "leader")],
            "tried; no node reported to be leader for 14.0 s of it; at its end, n2 (term 1) reported to be leader",
        ),
    ],
)
def test_a_silence_tells_who_led_in_it(seen: list[tuple[int, str, str]], end: str) -> None:
    story = Story()
    steady(story, 0, 10)
    steady(story, 10, 50, "info")
    steady(story, 50, 60)
    observations = [Observation(at * S, node, role, 1) for at, node, role in seen]
    (found,) = availability().check(replace(story.record(), observations=observations)).anomalies
    assert found.summary.endswith(end)


def test_service_that_returns_is_available() -> None:
    story = Story()
    steady(story, 0, 10)
    story.strike(1, 10, 20, {"n1": ["n1"]})
    steady(story, 15, 60)
    result = availability().check(story.record())
    assert result.verdict == Verdict.VALID
    assert result.stats["recovery_s"] == {"hammer-time 1": 0.11}


def test_a_long_silence_that_faults_excuse_says_for_how_long_service_was_owed() -> None:
    """85.2 s without an acknowledgement, a limit of 30 s and `valid`, and nothing said why."""
    story = Story()
    steady(story, 0, 10)
    steady(story, 10, 95, "info")
    for n, at in enumerate(range(10, 94, 14)):
        story.strike(n + 1, at, at + 3, {node: [node] for node in NODES})
    steady(story, 95, 110)
    result = availability().check(story.record())
    assert result.verdict == Verdict.VALID
    (excuse,) = result.excuses
    assert (excuse.rule, excuse.used, excuse.bound_s) == ("silence-under-faults", 1, 30)
    assert excuse.nearest_s == pytest.approx(14, abs=3)
    assert "service was owed for at most" in result.reason


def test_silence_after_a_heal_is_unavailable_and_to_the_end_never_recovered() -> None:
    for until, name in ((80, "never-recovered"), (75, "unavailable")):
        story = Story()
        steady(story, 0, 10)
        story.strike(1, 10, 20, {"n1": ["n1"], "n2": ["n2"], "n3": ["n3"]})
        steady(story, 10, until, "info")
        if name == "unavailable":
            steady(story, 76, 80)
        seen = [Observation(70 * S, "n4", "leader", term=8)]
        result = availability().check(story.record(seen))
        assert result.verdict == Verdict.INVALID
        assert [a.name for a in result.anomalies] == [name]
        assert result.anomalies[0].window is not None
        assert result.anomalies[0].window[0] == 20 * S
        assert "n4 (term 8)" in result.anomalies[0].summary


def test_silence_without_a_connected_majority_is_no_anomaly() -> None:
    story = Story()
    steady(story, 0, 10)
    story.strike(1, 10, 60, {"n1": ["n4", "n5"], "n2": ["n4", "n5"], "n3": ["n3"]})
    steady(story, 10, 60, "info")
    steady(story, 61, 70)
    assert availability().check(story.record()).verdict == Verdict.VALID


def test_minority_faults_do_not_excuse_silence() -> None:
    story = Story()
    steady(story, 0, 10)
    for n in range(3):
        story.strike(n, 10 + 20 * n, 20 + 20 * n, {f"n{n + 1}": [f"n{n + 1}"]})
    steady(story, 10, 62, "info")
    steady(story, 63, 70)
    result = availability().check(story.record())
    assert [a.name for a in result.anomalies] == ["unavailable"]


def test_the_limit_runs_from_the_heal() -> None:
    for back, verdict in ((45, Verdict.VALID), (51, Verdict.INVALID)):
        story = Story()
        steady(story, 0, 10)
        story.strike(1, 9.5, 20, {"n1": ["n1"]})
        steady(story, 10, back, "info")
        steady(story, back, 60)
        assert availability().check(story.record()).verdict == verdict


def test_too_short_a_watch_is_unknown_and_the_restart_ends_the_judgement() -> None:
    story = Story()
    steady(story, 0, 10)
    story.strike(1, 10, 20, {"n1": ["n1"]})
    steady(story, 10, 35, "info")
    story.add(36, NEMESIS, "invoke", "restart-all")
    story.write(80, extra={"phase": "final"})
    result = availability().check(story.record())
    assert result.verdict == Verdict.UNKNOWN
    assert "observed" in result.reason


@pytest.mark.parametrize(
    ("cut", "connected"),
    [
        ([], True),
        ([{"n1": ["n1"], "n2": ["n2"]}], True),
        ([{"n1": ["n1"], "n2": ["n2"], "n3": ["n3"]}], False),
        ([{"n1": ["n3", "n4", "n5"], "n2": ["n3", "n4", "n5"]}], True),
        # The majorities ring: everyone hears a majority, but no three hear one another.
        ([{"n1": ["n3", "n4"], "n2": ["n4", "n5"], "n3": ["n5", "n1"], "n4": ["n1", "n2"], "n5": ["n2", "n3"]}], False),
        # A bridge: n3 hears both halves, and each half with it is a majority.
        ([{"n1": ["n4", "n5"], "n2": ["n4", "n5"]}], True),
        ([{"n1": ["n4", "n5"], "n2": ["n4", "n5"]}, {"n3": ["n3"]}], False),
        # The leader may be the one that clients do not reach, and then no other node takes over.
        ([{"n1": ["clients"]}], False),
        ([{"n1": ["n1"]}, {"n2": ["n3", "clients"]}], False),
    ],
)
def test_majority(cut: list[dict[str, list[str]]], connected: bool) -> None:
    active = [FaultInterval("x", n, 0, None, impairs=what) for n, what in enumerate(cut)]
    assert majority_connected(NODES, active) is connected


@pytest.mark.parametrize(("peers", "valid"), [(["clients"], True), (["n2"], False)])
def test_clients_that_reach_nobody_are_owed_no_service(peers: list[str], valid: bool) -> None:
    """While they are cut off. After the heal the limit runs as after any other; a cut between nodes excuses nobody."""
    story = Story()
    steady(story, 0, 10)
    story.strike(1, 10, 60, {"n1": peers})
    steady(story, 10, 65, "info")
    steady(story, 65, 80)
    result = availability().check(story.record())
    assert (result.verdict == Verdict.VALID) is valid
    late = Story()
    steady(late, 0, 10)
    late.strike(1, 10, 60, {"n1": peers})
    steady(late, 10, 95, "info")
    assert [a.name for a in availability().check(late.record()).anomalies][-1] == "never-recovered"


def test_faults_must_be_seen_healed_and_met_by_clients() -> None:
    good = Story()
    good.strike(1, 5, 10, {"n1": ["n1"]})
    good.write(7)
    assert Faults(planned=True).check(good.record()).verdict == Verdict.VALID
    blind = Story()
    blind.strike(1, 5, 10, {}, seen=False)
    blind.write(7)
    assert Faults(planned=True).check(blind.record()).verdict == Verdict.UNKNOWN
    idle = Story()
    idle.strike(1, 5, 10, {"n1": ["n1"]})
    idle.write(12)
    assert Faults(planned=True).check(idle.record()).verdict == Verdict.UNKNOWN
    left = Story()
    left.strike(1, 5, None, {"n1": ["n1"]})
    left.write(7)
    assert Faults(planned=True).check(left.record()).verdict == Verdict.UNKNOWN, "broken off in mid-fault"
    left.write(20, extra={"phase": "final"})
    assert Faults(planned=True).check(left.record()).verdict == Verdict.HARNESS_FAILURE
    failed = Story()
    failed.strike(1, 5, None, {"n1": ["n1"]})
    failed.write(7)
    failed.add(10, NEMESIS, "invoke", "heal", value={"fault": "hammer-time", "id": 1})
    failed.add(11, NEMESIS, "info", "heal", value={"fault": "hammer-time", "id": 1}, error="it is still stopped")
    assert Faults(planned=True).check(failed.record()).verdict == Verdict.HARNESS_FAILURE
    assert Faults(planned=False).check(Story().record()).verdict == Verdict.VALID
    late = Story()
    late.strike(1, 10, 20, {"n1": ["n1"]})
    late.write(15)
    late.add(20, NEMESIS, "invoke", "skip", value={"fault": "hammer-time", "id": 2})
    late.add(20, NEMESIS, "info", "skip", value={"fault": "hammer-time", "id": 2})
    told = Faults(planned=True).check(late.record())
    assert (told.reason, told.stats["skipped"]) == ("1 of 1 seen to take effect, 1 skipped, all healed", [2])
    assert Faults(planned=True).check(Story().record()).verdict == Verdict.UNKNOWN


def test_stats_want_a_success_of_every_kind() -> None:
    story = Story()
    story.write(1)
    assert Stats(["write"]).check(story.record()).verdict == Verdict.VALID
    result = Stats(["write", "cas"]).check(story.record())
    assert result.verdict == Verdict.UNKNOWN
    assert "no cas succeeded" in result.reason


def final_reads(values: dict[str, Any], quorum: Any = 5) -> RunRecord:
    story = Story()
    extra = {"phase": "final"}
    story.add(1, 0, "invoke", "read", key="k", extra=extra)
    story.add(1.1, 0, "ok", "read", key="k", value=quorum)
    for i, (node, value) in enumerate(values.items()):
        story.add(2 + i, 0, "invoke", "replica-read", key="k", extra={**extra, "node": node})
        failed = value == "silent"
        story.add(2.5 + i, 0, "fail" if failed else "ok", "replica-read", key="k", value=None if failed else value)
    return story.record()


def test_convergence() -> None:
    judge = Convergence(NODES, 30)
    assert judge.check(final_reads(dict.fromkeys(NODES, 5))).verdict == Verdict.VALID
    bad = judge.check(final_reads({**dict.fromkeys(NODES, 5), "n3": 4}))
    assert bad.verdict == Verdict.INVALID
    assert "n3 4" in bad.anomalies[0].summary
    assert judge.check(final_reads(dict.fromkeys(NODES, 5), quorum=6)).verdict == Verdict.INVALID
    assert judge.check(final_reads({**dict.fromkeys(NODES, 5), "n3": "silent"})).verdict == Verdict.UNKNOWN
    assert judge.check(Story().record()).verdict == Verdict.UNKNOWN


def test_a_replica_that_stays_behind_is_told_as_such() -> None:
    good = final_reads({**dict.fromkeys(NODES, 5), "n3": 4})
    for applied, names in ((10, ["divergent-replicas"]), (9, ["replica-left-behind"])):
        seen = [
            Observation(1 * S, "n1", "leader", committed=10, applied=10),
            Observation(40 * S, "n1", "leader", committed=12, applied=12),
            Observation(40 * S, "n3", "follower", committed=-1, applied=applied),
        ]
        result = Convergence(NODES, 30).check(RunRecord(good.history, observations=seen))
        assert [a.name for a in result.anomalies] == names
        assert result.verdict == Verdict.INVALID


GOOD = [Op(0, 0, 0, "invoke", "read"), Op(1, 5, 1, "invoke", "read"), Op(2, 6, 0, "info", "read")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], None),
        ([Op(3, 9, 10, "invoke", "read")], None),
        ([Op(4, 9, 10, "invoke", "read")], "position 3 has index 4"),
        ([Op(3, 5, 10, "invoke", "read")], "earlier than"),
        ([Op(3, 9, 1, "invoke", "read")], "still open"),
        ([Op(3, 9, 0, "invoke", "read")], "after its `info`"),
        ([Op(3, 9, 7, "ok", "read")], "never invoked"),
        ([Op(3, 9, 1, "ok", "write")], "where process 1 had invoked"),
    ],
)
def test_wellformed(more: list[Op], said: str | None) -> None:
    result = WellFormed().check(RunRecord(History([*GOOD, *more])))
    if said is None:
        assert result.verdict == Verdict.VALID
    else:
        assert result.verdict == Verdict.HARNESS_FAILURE
        assert said in result.reason


def test_wellformed_counts_breaches_and_keeps_the_first() -> None:
    ops = [Op(i, i, 0, "ok", "read", "k", None) for i in range(50_000)]
    tracemalloc.start()
    try:
        result = WellFormed().check(RunRecord(History(ops)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.reason.startswith("50000 breaches, the first: process 0 completes")
    assert [a.ops for a in result.anomalies] == [[i] for i in range(20)]
    assert peak < 150 * len(ops)  # bytes; a text and an anomaly for each take more than 500


def followed(stand: range, *, leader_moves: bool = True, strike: tuple[float, float] | None = None) -> RunRecord:
    """A minute of n1 leading and n2 following, but for the seconds in `stand`, in which n2's log stands still."""
    story = Story()
    if strike is not None:
        story.strike(1, *strike, {"n2": ["n1"], "n1": ["n2"]})
    story.add(61, NEMESIS, "invoke", "restart-all")
    seen, end = [], 0
    for second in range(60):
        committed = 10 * second if leader_moves else 5
        end = end if second in stand else committed
        seen.append(Observation(second * S, "n1", "leader", term=1, end=committed, committed=committed))
        seen.append(Observation(second * S + 1, "n2", "follower", term=1, leader="n1", end=end, committed=end))
    return story.record(seen)


def test_a_follower_that_is_not_fed_is_starved() -> None:
    assert Replication(30).check(followed(range(0))).verdict == Verdict.VALID
    assert Replication(30).check(followed(range(10, 35))).verdict == Verdict.VALID
    bad = Replication(30).check(followed(range(10, 45)))
    assert [a.name for a in bad.anomalies] == ["starved-follower"]
    assert "n2's log stopped at index 90" in bad.reason
    # Under a partition from its leader it cannot be fed: only what follows counts.
    assert Replication(30).check(followed(range(10, 45), strike=(9, 20))).verdict == Verdict.VALID
    assert Replication(30).check(followed(range(10, 58), strike=(9, 20))).verdict == Verdict.INVALID
    # Where the leader commits nothing, there is nothing to get.
    assert Replication(30).check(followed(range(10, 45), leader_moves=False)).verdict == Verdict.VALID
    assert Replication(30).check(RunRecord(History([]))).verdict == Verdict.UNKNOWN


def test_a_server_that_dies_is_an_event_that_nobody_invoked() -> None:
    """It may come in the middle of a strike, and takes nothing from the strike's own pairing."""
    strike = {"fault": "bridge", "id": 1}
    ops = [
        Op(0, 1, NEMESIS, "invoke", "inject", value=strike),
        Op(1, 2, NEMESIS, "info", SERVER_DIED, value={"node": "n1", "server": "broker", "pid": 7, "last": ""}),
        Op(2, 3, NEMESIS, "info", "inject", value=strike),
    ]
    history = History(ops)
    assert WellFormed().check(RunRecord(history)).verdict == Verdict.VALID
    assert [(call.invoke.index, call.completion and call.completion.index) for call in history.calls] == [(0, 2)]


def test_a_group_that_serves_again_only_after_the_heal_has_not_failed_over() -> None:
    """A frozen leader, and a majority that does not replace it for longer than the limit."""
    for lasting, back, names in (
        (45, 46, ["never-recovered"]),
        (25, 26, []),  # shorter than the limit: nothing is owed before it ends
        (45, 35, []),  # they failed over after 25 s
        (45, 43, ["unavailable"]),  # they did, but it took 33 s
    ):
        story = Story()
        steady(story, 0, 10)
        story.strike(1, 10, 10 + lasting, {"n1": ["n1"]})
        steady(story, 10, 10 + back if names == ["never-recovered"] else back, "info")
        steady(story, 10 + back if names == ["never-recovered"] else back, 80)
        assert [a.name for a in availability().check(story.record()).anomalies] == names, (lasting, back)


def test_service_is_told_for_each_side_of_a_partition() -> None:
    story = Story()
    for at in range(0, 40):
        node = "n1" if at < 12 or at > 32 else "n4"
        if not 12 <= at < 15:
            story.write(at + 0.5, extra={"node": node})
    cut = ["n3", "n4", "n5"]
    story.strike(1, 10, 30, {"n1": cut, "n2": cut})
    stats = availability().check(story.record()).stats
    assert stats["failover_s"] == {"hammer-time 1": 0.51}
    assert stats["sides"] == {
        "hammer-time 1": {
            "n3 n4 n5": {"during_s": 5.51, "after_s": 0.51},
            "n1 n2": {"during_s": 0.51, "after_s": 3.51},
        }
    }


def test_service_is_owed_only_where_every_kind_of_server_has_its_majority() -> None:
    controllers, brokers = ["n1", "n2", "n3"], NODES
    halves = FaultInterval("x", 1, 0, None, impairs={"n1": ["n3", "n4", "n5"], "n2": ["n3", "n4", "n5"]})
    assert majority_connected(NODES, [halves])
    assert not majority_connected(NODES, [halves], {"controller": controllers, "broker": brokers})
    assert majority_connected(NODES, [halves], {"controller": controllers, "broker": ["n1", "n2", "n3"]})
    gone = FaultInterval("x", 1, 0, None, impairs={"n1": ["n1"]})
    assert majority_connected(NODES, [gone], {"controller": controllers, "broker": brokers})


QUORUMS = {"controller": ["n1", "n2", "n3"], "broker": NODES}


def down(*nodes: str, kinds: Sequence[str] = ()) -> list[Effect]:
    return [Effect("down", node, tuple(kinds)) for node in nodes]


@pytest.mark.parametrize(
    ("effects", "connected"),
    [
        (down("n2", "n3", kinds=["broker"]), True),  # finding 25: two masters, on nodes that have controllers
        (down("n2", "n3", kinds=["controller"]), False),
        (down("n2", "n3"), False),
        (down("n2", "n3", "n4", kinds=["broker"]), False),
        (down("n1", kinds=["controller"]) + down("n4", "n5", kinds=["broker"]), True),
        (down("n1", kinds=["controller"]) + down("n1", "n4", "n5", kinds=["broker"]), False),
        (down("n1", "n2", "n3", kinds=["namesrv", "proxy"]), True),
        # n1 hears n2 alone, n3's controller is down: the other two must be in one group, and with them all the brokers.
        ([*down("n3", kinds=["controller"]), Effect("cut-off", "n1", peers=("n3", "n4", "n5"))], False),
        # Without its controller, n1 is missing in the quorum of brokers alone.
        ([*down("n1", kinds=["controller"]), Effect("cut-off", "n1", peers=("n2", "n3", "n4", "n5"))], True),
    ],
)
def test_a_server_that_is_down_is_missing_among_its_own_kind(effects: list[Effect], connected: bool) -> None:
    """The interval's nodes that serve nobody do not matter where it names the servers that are down."""
    interval = FaultInterval("x", 1, 0, None, impairs=impairs(effects, ["broker"]), effects=effects)
    assert majority_connected(NODES, [interval], QUORUMS) is connected


@pytest.mark.parametrize(
    ("kinds", "verdict"), [((), Verdict.VALID), (("controller",), Verdict.VALID), (("broker",), Verdict.INVALID)]
)
def test_silence_while_the_brokers_of_two_controller_nodes_are_down(kinds: tuple[str, ...], verdict: Verdict) -> None:
    """Three brokers are up, and so are all controllers: they owe a master. Without the controllers they do not."""
    story, effects = Story(), down("n2", "n3", kinds=kinds)
    steady(story, 0, 10)
    story.strike(1, 10, 60, impairs(effects, ["broker"]), effects=effects)
    steady(story, 11, 60, "info")
    steady(story, 62, 80)
    judge = Availability(NODES, 30, lambda op: op.type == "ok" and op.f == "write", QUORUMS)
    assert judge.check(story.record()).verdict == verdict


def rolled(turns: Sequence[tuple[float, float, str]], silence: tuple[float, float], reported: bool = True) -> Story:
    """A rolling restart from 10 to 110 s. `turns`: begin, end and node of each broker that was down. `reported`: the
    heal has them.
    """
    story, effects = Story(), down(*NODES, kinds=["broker"])
    for second in range(140):
        story.write(second + 0.1, "info" if silence[0] <= second < silence[1] else "ok", process=second)
    story.strike(1, 10, None, impairs(effects, ["broker"]), effects=effects)
    spells = [
        {"effect": effect.to_json(), "began_s": 110 - begin, "ended_s": 110 - end}
        for begin, end, node in turns
        for effect in down(node, kinds=["broker"])
    ]
    value = {"fault": "hammer-time", "id": 1, **({"spells": spells} if reported else {})}
    story.add(110, NEMESIS, "invoke", "heal", value=value)
    story.add(110, NEMESIS, "info", "heal", value=value)
    return story


ROLL = [(10, 20, "n1"), (21, 31, "n2"), (32, 42, "n3"), (43, 53, "n4"), (54, 64, "n5")]


@pytest.mark.parametrize(
    ("turns", "silence", "reported", "names"),
    [
        (ROLL, (21, 50), True, []),
        (ROLL, (21, 90), True, ["unavailable"]),
        (ROLL, (66, 100), True, ["unavailable"]),
        (ROLL, (21, 90), False, []),
        ([(10, 70, "n1"), (11, 70, "n2"), (12, 70, "n3")], (21, 90), True, []),
    ],
    ids=["short", "one server after another", "after all of them", "of an older harness", "three at a time"],
)
def test_a_rolling_restart_owes_service_between_its_turns(
    turns: Sequence[tuple[float, float, str]], silence: tuple[float, float], reported: bool, names: list[str]
) -> None:
    """80 s without an acknowledgement were excused: all servers counted as down from the first turn to the heal."""
    judge = Availability(NODES, 30, lambda op: op.type == "ok" and op.f == "write", QUORUMS)
    assert [a.name for a in judge.check(rolled(turns, silence, reported).record()).anomalies] == names


def damaged(node: str, kind: str = "controller") -> list[Effect]:
    return [Effect("down", node, (kind,)), Effect("data-damaged", node, (kind,))]


@pytest.mark.parametrize(
    ("struck", "died", "owed"),
    [
        ([("n1", damaged("n1")), ("n2", damaged("n2"))], ["n1", "n2"], False),
        ([("n1", damaged("n1")), ("n2", damaged("n2"))], ["n1"], True),
        ([("n1", damaged("n1")), ("n2", down("n2"))], ["n1", "n2"], True),
        ([("n1", damaged("n1")), ("n2", damaged("n2", "broker"))], ["n1", "n2"], True),
        ([("n1", damaged("n1")), ("n2", damaged("n2")), ("n1", down("n1"))], ["n1", "n2"], True),
    ],
    ids=["two of three", "one ended", "another cause", "another server", "started again"],
)
def test_silence_after_servers_with_damaged_files_have_ended(
    struck: list[tuple[str, list[Effect]]], died: list[str], owed: bool
) -> None:
    """Two of three controllers do not start with damaged files: nobody owes a service, to the end."""
    story = Story()
    steady(story, 0, 10)
    for number, (_, effects) in enumerate(struck):
        at = 10 + 6 * number if number < 2 else 40
        story.strike(number, at, at + 5, impairs(effects, ["broker"]), effects=effects)
    for node in died:
        story.add(22, NEMESIS, "info", SERVER_DIED, value={"node": node, "server": "controller"})
    steady(story, 11, 100, "info")
    judge = Availability(NODES, 30, lambda op: op.type == "ok" and op.f == "write", QUORUMS)
    assert bool(judge.check(story.record()).anomalies) == owed


def test_a_raft_server_that_ended_with_damaged_files_is_missing() -> None:
    story, nodes = Story(), ["n1", "n2", "n3"]
    steady(story, 0, 10)
    for number, node in enumerate(["n1", "n2"]):
        effects = damaged(node, "server")
        story.strike(number, 10 + number, 15 + number, impairs(effects, ["server"]), effects=effects)
        story.add(17, NEMESIS, "info", SERVER_DIED, value={"node": node, "server": "server"})
    steady(story, 11, 100, "info")
    assert not Availability(nodes, 30, lambda op: op.type == "ok").check(story.record()).anomalies
