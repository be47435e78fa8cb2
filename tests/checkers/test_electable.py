# SPDX-License-Identifier: Apache-2.0
"""A silence is excused while each replica in sync is away, and only then (`checkers.run.electable`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from fault_stories import S, Story

from checkers.run.availability import Availability
from results.deployment import DeploymentRecord, Traits
from results.record import Observation
from results.strikes import Effect, impairs
from results.verdict import Excuse, Verdict

NODES = ["n1", "n2", "n3"]
QUORUMS = {"controller": NODES, "broker": NODES}
TRAITS = Traits(in_sync=True, elects_in_sync=True)

Sets = Mapping[int, Sequence[str]]
"""Second -> the SyncStateSet from then on."""


def halted(node: str) -> Effect:
    return Effect("slow", node, halted=True)


def down(node: str) -> Effect:
    return Effect("down", node, ("broker",))


def judged(
    sets: Sets,
    faults: Sequence[tuple[float, float, Effect]],
    traits: Traits = TRAITS,
    *,
    last: int = 120,
    reports: int = 200,
    again: tuple[int, int] = (0, 0),
) -> tuple[Verdict, list[str], Sequence[Excuse]]:
    """Writes are acknowledged to 30 s and from 80 s on. All in seconds. `faults`: begin, end, effect. `reports`: the
    end of the reports of the set. `again`: a second silence.
    """
    story = Story()
    for second in range(last):
        silent = 30 <= second < 80 or again[0] <= second < again[1]
        story.write(second + 0.1, "info" if silent else "ok", process=second)
    for number, (begin, end, effect) in enumerate(faults):
        story.strike(number + 1, begin, end, impairs([effect], ["broker"]), effects=[effect])
    seen, members = [], sets[0]
    for second in range(min(last, reports)):
        members = sets.get(second, members)
        seen.append(Observation(second * S, "n1", "leader", extra={"in_sync": list(members)}))
    deployment = DeploymentRecord("controller", groups={"a": NODES}, traits=traits)
    run = replace(story.record(seen), deployment=deployment)
    result = Availability(NODES, 30, lambda op: op.type == "ok", QUORUMS).check(run)
    return result.verdict, [a.name for a in result.anomalies], result.excuses


STALL = (30, 79, halted("n1"))
KILLS = [(20, 28, down("n2")), (21, 29, down("n3"))]
"""The reason why n1 alone is in sync."""
ALONE = {0: NODES, 22: ["n1"], 79: NODES}


def test_no_service_is_owed_while_the_only_replica_in_sync_stands_still() -> None:
    """A hunt called this `unavailable`: the disk of the only replica in sync stood still, and nobody else may lead."""
    verdict, names, excuses = judged(ALONE, [*KILLS, STALL])
    assert (verdict, names) == (Verdict.VALID, [])
    (excuse,) = excuses
    assert (excuse.rule, excuse.used, excuse.bound_s) == ("none-in-sync", 1, 30)


@pytest.mark.parametrize("effect", [down("n1"), Effect("cut-off", "n1", peers=("n2", "n3"))])
def test_nor_while_it_is_down_or_cut_off(effect: Effect) -> None:
    assert judged(ALONE, [*KILLS, (30, 79, effect)])[:2] == (Verdict.VALID, [])


@pytest.mark.parametrize(
    ("sets", "faults", "traits"),
    [
        ({0: NODES, 22: ["n1", "n2"]}, [*KILLS, STALL], TRAITS),
        (ALONE | {40: ["n1", "n3"]}, [*KILLS, STALL], TRAITS),
        (ALONE, [*KILLS, (30, 79, Effect("slow", "n1"))], TRAITS),
        (ALONE, [*KILLS, (30, 40, halted("n1"))], TRAITS),
        (ALONE, [*KILLS, (30, 79, halted("n2"))], TRAITS),
        (ALONE, [KILLS[0], STALL], TRAITS),
        (ALONE | {0: ["n1"]}, [STALL], TRAITS),
        (ALONE | {22: []}, [*KILLS, STALL], TRAITS),
        (ALONE, [*KILLS, STALL], Traits(in_sync=True)),
    ],
    ids=[
        "another one is in sync",
        "another one joins",
        "it is only late",
        "it goes on",
        "another one stands still",
        "a third one should be in sync",
        "finding 25: both should be",
        "the set is empty",
        "any replica may lead",
    ],
)
def test_a_planted_outage_counts(sets: Sets, faults: Sequence[tuple[float, float, Effect]], traits: Traits) -> None:
    verdict, names, excuses = judged(sets, faults, traits)
    # The other name: it lasts until the heal of the fault that had begun it.
    assert names in (["unavailable"], ["never-recovered"])
    assert (verdict, excuses) == (Verdict.INVALID, [])


def test_reports_that_end_before_it_excuse_nothing() -> None:
    """Controllers that report no set may have had another one."""
    assert judged(ALONE, [*KILLS, STALL], reports=24)[0] == Verdict.INVALID


def test_another_long_silence_is_counted_by_itself() -> None:
    """The excuse of one silence hid that of the other."""
    everybody = [(85 + 14 * n, 88 + 14 * n, down(node)) for n in range(3) for node in NODES]
    verdict, names, excuses = judged(ALONE, [*KILLS, STALL, *everybody], last=160, again=(85, 120))
    assert (verdict, names) == (Verdict.VALID, [])
    assert [(excuse.rule, excuse.used) for excuse in excuses] == [("none-in-sync", 1), ("silence-under-faults", 1)]
