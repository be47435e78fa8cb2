# SPDX-License-Identifier: Apache-2.0
"""The availability judge against its definition, tried moment by moment on random runs.

All events are at full seconds, so the half seconds show the state between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from random import Random

import pytest
from effort import effort
from fault_stories import S, Story

from checkers.run.availability import Availability
from results.verdict import Verdict

NODES = ["n1", "n2", "n3", "n4", "n5"]
LIMIT = 9
END = 60


@dataclass(frozen=True)
class _Fault:
    start: int
    end: int
    impairs: dict[str, list[str]]


@dataclass(frozen=True)
class _Run:
    """asks: (second, "ok" or "info") of each request; it is answered within the second."""

    asks: list[tuple[int, str]]
    faults: list[_Fault]


def _drawn(rng: Random) -> _Run:
    faults = []
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(1, END - 15)
        hit = rng.sample(NODES, rng.randint(1, 4))
        peers = rng.sample(NODES, rng.randint(1, 2))
        down = rng.random() < 0.7
        impairs = {node: [node] if down else [p for p in peers if p != node] for node in hit}
        faults.append(_Fault(start, start + rng.randint(1, 22), impairs))
    silent = [(begin, begin + rng.randint(5, 30)) for begin in (rng.randint(3, END - 10) for _ in range(2))]
    idle = [(begin, begin + rng.randint(2, 12)) for begin in (rng.randint(3, END) for _ in range(rng.randint(0, 2)))]
    asks = []
    for second in range(END):
        if second and any(a <= second < b for a, b in idle):
            continue
        asks.append((second, "info" if any(a <= second < b for a, b in silent) else "ok"))
    return _Run(asks, faults)


def _story(run: _Run) -> Story:
    story = Story()
    for number, (second, answer) in enumerate(run.asks):
        story.add(second, number, "invoke", "write", key="k", value=1)
        story.add(second, number, "ok" if answer == "ok" else "info", "write", key="k", value=1)
    for number, fault in enumerate(run.faults, start=1):
        story.strike(number, fault.start, fault.end, fault.impairs)
    story.add(END, 0, "invoke", "restart-all")
    return story


def _connected(active: list[_Fault]) -> bool:
    def apart(a: str, b: str) -> bool:
        return any(b in f.impairs.get(a, []) or a in f.impairs.get(b, []) for f in active)

    up = [node for node in NODES if not any(node in f.impairs.get(node, []) for f in active)]
    return any(not any(apart(a, b) for a, b in combinations(group, 2)) for group in combinations(up, 3))


def _broken(run: _Run) -> bool:
    """True if the run has an outage: a silence of `LIMIT` seconds with a majority connected and clients that send
    requests, which begins with a heal, or in which no fault begins or ends.
    """
    acks = {second for second, answer in run.asks if answer == "ok"}
    asked = sorted(second for second, _ in run.asks)
    last = max(asked[-1], *(f.end for f in run.faults))  # the last op before the restart

    def fine(second: int) -> bool:
        """Of the second that begins then: clients ask in it, and a majority is connected."""
        before = max((a for a in asked if a <= second), default=None)
        after = min((a for a in asked if a > second), default=last)
        if before is None or after - before > LIMIT // 3:
            return False
        return _connected([f for f in run.faults if f.start <= second < f.end])

    changes = {t for f in run.faults for t in (f.start, f.end)}
    heals = {f.end for f in run.faults if f.end <= last}
    for start in range(last):
        for end in range(start + LIMIT, last + 1):
            if any(start < ack < end for ack in acks) or not all(fine(s) for s in range(start, end)):
                break
            within = {t for t in changes if start < t < end}
            if any(start <= a <= end for a in asked) and (start in heals or not within):
                return True
    return False


@pytest.mark.slow
def test_the_judge_finds_what_the_definition_says_and_nothing_else() -> None:
    judge = Availability(NODES, LIMIT, lambda op: op.type == "ok")
    counted: Counter[bool] = Counter()
    for seed in range(effort(3000)):
        run = _drawn(Random(seed))
        found = judge.check(_story(run).record()).verdict == Verdict.INVALID
        assert found is _broken(run), f"seed {seed}: {run}"
        counted[found] += 1
    assert min(counted[True], counted[False]) > effort(500), counted


def test_a_heal_that_brings_the_majority_back_starts_the_limit() -> None:
    """Another fault begins meanwhile, so the silence is not explained by its own beginning."""
    story = Story()
    for second in range(10):
        story.write(second + 0.1)
    story.strike(1, 10, 20, {n: [n] for n in NODES[:3]})
    story.strike(2, 25, 26, {"n5": ["n5"]})
    for second in range(10, 52):
        story.write(second + 0.1, "info", process=second)
    for second in range(52, 60):
        story.write(second + 0.1)
    result = Availability(NODES, 30, lambda op: op.type == "ok").check(story.record())
    assert [a.window and a.window[0] for a in result.anomalies] == [20 * S]


def test_silence_of_clients_that_ask_nothing_is_not_counted() -> None:
    story = Story()
    for second in (*range(10), *range(50, 60)):
        story.write(second + 0.1)
    story.write(12, "info", process=90)
    story.write(48, "info", process=91)
    assert Availability(NODES, 30, lambda op: op.type == "ok").check(story.record()).verdict == Verdict.VALID
