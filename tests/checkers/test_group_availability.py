# SPDX-License-Identifier: Apache-2.0
"""Each of several replica groups owes a service of its own: a group that serves does not hide one that does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fault_stories import Story

from checkers.run.availability import Availability
from results.deployment import DeploymentRecord
from results.op import Op
from results.strikes import CLIENTS, Effect, impairs
from results.verdict import CheckResult

NODES = ["n1", "n2", "n3", "n4", "n5"]
GROUPS = {"a": ["n1", "n2", "n3"], "b": ["n4", "n5"]}
QUORUMS = {"broker": NODES}

Struck = tuple[float, float | None, Effect]


def group_of(op: Op) -> str | None:
    return None if op.key is None else op.key.split(":")[1]


def down(node: str) -> Effect:
    return Effect("down", node, ("broker",))


def judged(story: Story, groups: dict[str, list[str]] = GROUPS) -> CheckResult:
    run = replace(story.record(), deployment=DeploymentRecord("slave-acting-master", groups=groups))
    return Availability(NODES, 30, lambda op: op.type == "ok" and op.f == "send", QUORUMS, group_of).check(run)


def load(
    silences: Sequence[tuple[str, float, float]], faults: Sequence[Struck] = (), *, f: str = "send", until: int = 100
) -> Story:
    """One op a second on each group. `silences`: group, begin, end: its ops are refused. `f`: the ops on group b."""
    story = Story()
    for second in range(until):
        for number, group in enumerate(GROUPS):
            refused = any(group == of and begin <= second < end for of, begin, end in silences)
            kind = f if group == "b" else "send"
            story.add(second + 0.1, number, "invoke", kind, key=f"log:{group}:0", value=second)
            story.add(second + 0.11, number, "fail" if refused else "ok", kind, key=f"log:{group}:0", value=second)
    for number, (begin, end, effect) in enumerate(faults):
        story.strike(number + 1, begin, end, impairs([effect], ["broker"]), effects=[effect])
    return story


def names(result: CheckResult) -> list[tuple[str, object]]:
    return [(a.name, a.details.get("group")) for a in result.anomalies]


@pytest.mark.parametrize(
    ("silences", "faults", "found"),
    [
        ([("b", 20, 90)], [], [("unavailable", "b")]),
        ([("b", 20, 100)], [], [("never-recovered", "b")]),
        ([("a", 20, 60), ("b", 55, 95)], [], [("unavailable", "a"), ("unavailable", "b")]),
        ([("b", 10, 100)], [(10, 18, down("n4"))], [("never-recovered", "b")]),
        ([("b", 10, 60)], [(10, 60, down("n1"))], [("never-recovered", "b")]),  # the fault is in the other group
        # Nobody owes service in b:
        ([("b", 20, 45)], [], []),
        ([("b", 10, 90)], [(10, 70, down("n4"))], []),
        ([("b", 10, 90)], [(10, 70, down("n5"))], []),
        ([("b", 10, 90)], [(10, 70, Effect("cut-off", "n4", peers=("n1", "n2", "n3")))], []),
        ([("b", 10, 90)], [(10, 70, Effect("cut-off", "n5", peers=(CLIENTS,)))], []),
    ],
    ids=[
        "no fault",
        "to the end",
        "one group after the other",
        "after the heal",
        "a fault elsewhere",
        "shorter than the limit",
        "its master is down",
        "its slave is down",
        "cut off from the other group",
        "cut off from the clients",
    ],
)
def test_a_group_owes_service_while_all_its_nodes_are_up(
    silences: list[tuple[str, float, float]], faults: list[Struck], found: list[tuple[str, str]]
) -> None:
    """Group a acknowledges all the time, so the silence of the whole cluster is short: each of these was valid."""
    story = load(silences, faults)
    result = judged(story)
    assert names(result) == found
    assert all(f"of broker group {group} " in a.summary for (_, group), a in zip(found, result.anomalies, strict=True))
    of = {(op.index, group_of(op)) for op in story.record().history.clients}
    for (_, group), anomaly in zip(found, result.anomalies, strict=True):
        assert anomaly.ops
        assert all((index, group) in of for index in anomaly.ops)


def test_kinds_of_ops_that_are_never_acknowledged_ask_for_no_service() -> None:
    """Polls need no master, and no poll counts as an acknowledgement."""
    assert not names(judged(load([("b", 20, 90)], f="poll")))


def test_one_group_is_judged_as_the_cluster() -> None:
    """An outage of the whole cluster is reported once, without a group."""
    whole = load([("a", 20, 90), ("b", 20, 90)])
    assert names(judged(whole, {"a": NODES})) == [("unavailable", None)]
    assert names(judged(whole)) == [("unavailable", None)]


def test_good_histories_are_silent() -> None:
    """Kills of any node, each silence of a group within its fault and shortly after: 1,000 runs."""
    for seed in range(1000):
        rng = random.Random(seed)
        silences, faults, at = [], [], 5.0
        while at < 80:
            node, length = rng.choice(NODES), rng.uniform(2, 12)
            group = next(name for name, members in GROUPS.items() if node in members)
            faults.append((at, at + length, down(node)))
            after = rng.uniform(0, 25)
            silences.append((group, at, at + length + after))
            at += length + after
        assert not judged(load(silences, faults)).anomalies, seed
