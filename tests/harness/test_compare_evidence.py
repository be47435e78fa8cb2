# SPDX-License-Identifier: Apache-2.0
"""The sequential test of `harness compare`: its error rates, by simulation of whole comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product as all_of
from random import Random

import pytest

from harness.compare.evidence import (
    ALTERNATIVES,
    LEAST,
    UNDECIDED,
    CellEvidence,
    State,
    bound,
    count_tests,
    decide,
    evidence,
    exchanged,
    factor,
    missing,
    next_cell,
)

HALF_AN_HOUR = 16
"""Pairs that fit into 30 minutes: two runs of a minute, less four seconds, each."""

COMPARISONS = 400

Rates = Sequence[Sequence[tuple[float, float]]]
"""For each cell the anomalies, each with its rate in the new build and in the old one."""

YES, NO = (True, False), (False, True)
BOTH, NONE = (True, True), (False, False)


def simulate(rng: Random, rates: Rates, budget: int) -> tuple[str, int]:
    """(the outcome, the number of pairs) of a comparison: `worse`, `better`, `as before` or `undecided`."""
    cells = [CellEvidence() for _ in rates]
    used = 0
    while used < budget and (number := next_cell(cells)) is not None:
        shown = [
            [f"anomaly {i}" for i, rate in enumerate(rates[number]) if rng.random() < rate[side]] for side in (0, 1)
        ]
        cells[number].add(*shown)
        used += 1
    tests = count_tests(cells)
    states = {decide(column, tests, ended=True) for cell in cells for column in cell.columns.values()}
    if any(state.worse for state in states):
        return "worse", used
    if states & {State.GONE, State.LESS}:
        return "better", used
    undecided = State.UNDECIDED in states or any(not cell.tried for cell in cells)
    return "undecided" if undecided else "as before", used


def outcomes(rates: Rates, budget: int = HALF_AN_HOUR, count: int = COMPARISONS) -> Counter[str]:
    rng = Random(7)
    return Counter(simulate(rng, rates, budget)[0] for _ in range(count))


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_equal_builds_are_as_before(rate: float) -> None:
    """In at least 95 % of all comparisons of four cells, each of which shows the anomaly at this rate."""
    found = outcomes([[(rate, rate)]] * 4)
    assert found["as before"] >= 0.95 * COMPARISONS, found


def test_equal_builds_with_anomalies_of_all_rates_are_as_before() -> None:
    found = outcomes([[(0, 0), (0.3, 0.3), (1, 1)]] * 4)
    assert found["as before"] >= 0.95 * COMPARISONS, found


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.8])
def test_equal_builds_are_hardly_ever_called_different(rate: float) -> None:
    """At most 5 %, over three anomalies in each of four cells, however long the comparison lasts."""
    for budget in (HALF_AN_HOUR, 30):
        found = outcomes([[(rate, rate)] * 3] * 4, budget, 200)
        assert found["worse"] + found["better"] <= 0.05 * 200, (budget, found)


def test_a_clear_defect_is_new_within_half_an_hour() -> None:
    """Always where it always shows, also beside anomalies that come and go."""
    assert outcomes([[(1, 0)], [], [], []])["worse"] == COMPARISONS
    assert outcomes([[(1, 0), (0.3, 0.3)], [(1, 1)], [(0.3, 0.3)], []])["worse"] >= 0.99 * COMPARISONS
    assert outcomes([[], [], [], [(0.95, 0)]])["worse"] >= 0.95 * COMPARISONS


def test_a_defect_that_is_gone_is_gone_within_half_an_hour() -> None:
    assert outcomes([[(0, 1)], [(1, 1)], [], []])["better"] == COMPARISONS


def test_the_expected_factor_of_a_pair_is_at_most_one() -> None:
    """For every common rate: this is what bounds the error."""
    for alternative in ALTERNATIVES:
        for percent in range(101):
            p = percent / 100
            mean = sum(
                factor(pair, alternative) * (p if pair[0] else 1 - p) * (p if pair[1] else 1 - p)
                for pair in all_of((True, False), repeat=2)
            )
            assert mean <= 1 + 1e-9, (alternative, p)


def test_a_decision_needs_more_evidence_among_more_anomalies() -> None:
    assert decide([YES] * 4, 1, ended=False) == State.NEW
    assert decide([YES] * 3, 1, ended=False) == State.UNDECIDED
    assert decide([YES] * 4, 3, ended=False) == State.UNDECIDED
    assert decide([NO] * 4, 1, ended=False) == State.GONE
    assert bound(10) == 10 * bound(1)


def test_states_say_whether_the_other_build_shows_it_too() -> None:
    assert decide([BOTH, *[YES] * 9], 1, ended=False) == State.MORE
    assert decide([BOTH, *[NO] * 9], 1, ended=False) == State.LESS
    assert decide([BOTH] * LEAST, 1, ended=False) == State.AS_BEFORE


def test_one_pair_is_not_enough_unless_the_time_is_up() -> None:
    assert decide([NONE], 1, ended=False) == State.UNDECIDED
    assert decide([NONE], 1, ended=True) == State.AS_BEFORE
    assert decide([], 1, ended=True) == State.UNDECIDED
    assert decide([YES], 1, ended=True) == State.UNDECIDED


def test_the_way_to_a_decision_is_told() -> None:
    assert missing([YES], 1) == (3, 2)
    differ, same = missing([YES, NONE], 1)
    assert decide([YES, NONE, *[YES] * differ], 1, ended=False) == State.NEW
    assert decide([YES, NONE, *[NONE] * same], 1, ended=False) == State.AS_BEFORE


def test_anomalies_that_always_come_together_are_one_test() -> None:
    cell = CellEvidence()
    cell.add(["lost", "dirty-read"], [])
    cell.add(["lost", "dirty-read"], ["old"])
    assert count_tests([cell]) == 2
    assert cell.columns["old"] == [NONE, NO]


def test_a_doubtful_anomaly_is_neither_shown_nor_absent() -> None:
    cell = CellEvidence()
    cell.add(["lost"], ["lost", "unavailable"])
    cell.add([], ["lost", "unavailable"], doubtful=["unavailable"])
    assert cell.columns == {"lost": [BOTH, NO], "unavailable": [NO]}


def test_what_differs_is_looked_at_first() -> None:
    cells = [CellEvidence(), CellEvidence(), CellEvidence()]
    order = []
    for shown in ([], ["lost"], [], ["lost"], ["lost"], ["lost"]):
        number = next_cell(cells)
        assert number is not None
        order.append(number)
        cells[number].add(shown, [])
    assert order == [0, 1, 2, 1, 1, 1]
    assert next_cell(cells) == 0


def test_what_may_be_worse_comes_before_what_may_be_gone() -> None:
    cells = [CellEvidence(), CellEvidence()]
    cells[0].add([], ["lost"])
    cells[1].add(["lost"], [])
    assert next_cell(cells) == 1


def test_evidence_has_no_favourite() -> None:
    pairs = [YES, BOTH, NONE, NO, YES]
    assert evidence(exchanged(exchanged(pairs))) == evidence(pairs)
    assert evidence([YES, NO]) == pytest.approx(evidence([NO, YES]))


def test_a_run_of_which_a_judge_decided_nothing_shows_nothing_gone() -> None:
    """A replica that never catches up hides a loss: two such runs of the new build were two proofs that it is gone."""
    cell = CellEvidence()
    for _ in range(4):
        cell.add([UNDECIDED], ["lost"], undecided=(True, False))
    cell.add([UNDECIDED, "lost"], ["lost"], undecided=(True, False))
    assert cell.columns["lost"] == [(True, True)]
    assert cell.columns[UNDECIDED] == [(True, False)] * 5
    cell.add(["hole"], [])
    assert cell.columns["hole"] == [(True, False)]
    assert decide(cell.columns[UNDECIDED], 1, ended=True) == State.NEW
