# SPDX-License-Identifier: Apache-2.0
"""Judgements of time are doubted where the machine had no processor to give; judgements of content never are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkers.base.api import judge
from checkers.base.starvation import LATE_MS, PAUSE_MS, WAIT_MS, describe, shortage_s
from checkers.run.availability import Availability
from results.history import History
from results.machine import CONTROL, MachineSample
from results.op import NEMESIS, Op
from results.record import RunRecord
from results.strikes import Effect
from results.verdict import Anomaly, CheckResult, Verdict

S = 1_000_000_000
NODES = ["n1", "n2", "n3"]


def samples(
    begin: int, end: int, *, nodes: list[str] = NODES, wait_ms: float = 0.1, late_ms: float = 1.0, pause_ms: float = 0.0
) -> list[MachineSample]:
    """A sample for every two seconds."""
    return [
        MachineSample(
            node, t * S, (t + 2) * S, late_ms, None if node == CONTROL else wait_ms, pause_ms=pause_ms, steal=0.0
        )
        for node in nodes
        for t in range(begin, end, 2)
    ]


class Fixed:
    """A checker that always finds these."""

    name = "fixed"

    def __init__(self, *found: Anomaly) -> None:
        self.found = found

    def check(self, run: RunRecord) -> CheckResult:
        return CheckResult(self.name, Verdict.INVALID, "found", self.found)


SILENCE = Anomaly("never-recovered", "nothing for 40 s", window=(10 * S, 50 * S), limit_s=30)
LOST = Anomaly("lost", "one lost", window=(10 * S, 50 * S))


def verdict(machine: list[MachineSample], *found: Anomaly) -> CheckResult:
    (result,) = judge(RunRecord(History([]), machine=machine), [Fixed(*found)]).results
    return result


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ([], Verdict.INVALID),
        (samples(0, 60), Verdict.INVALID),
        (samples(10, 30, wait_ms=50), Verdict.UNKNOWN),
        (samples(10, 20, wait_ms=50), Verdict.INVALID),  # 30 s of the 40 remain, which is the limit
        (samples(10, 22, wait_ms=50), Verdict.UNKNOWN),
        (samples(50, 90, wait_ms=50), Verdict.INVALID),  # after it
        (samples(10, 50, nodes=["n1"], wait_ms=50) + samples(10, 50, nodes=["n2", "n3"]), Verdict.INVALID),
        (samples(10, 50, nodes=["n1", "n2"], wait_ms=50) + samples(10, 50, nodes=["n3"]), Verdict.UNKNOWN),
        (samples(10, 50, wait_ms=WAIT_MS * 0.99, late_ms=LATE_MS * 0.99, pause_ms=PAUSE_MS * 0.99), Verdict.INVALID),
        (samples(10, 50, late_ms=LATE_MS), Verdict.UNKNOWN),
        (samples(10, 50, pause_ms=PAUSE_MS), Verdict.UNKNOWN),
        (samples(0, 60) + samples(10, 50, nodes=[CONTROL], late_ms=LATE_MS), Verdict.UNKNOWN),
    ],
)
def test_time(machine: list[MachineSample], expected: Verdict) -> None:
    result = verdict(machine, SILENCE)
    assert result.verdict == expected
    assert (result.anomalies[0].doubt is not None) == (expected == Verdict.UNKNOWN)
    if expected == Verdict.UNKNOWN:
        assert "did not give the servers enough processor time" in result.reason


def test_content_is_never_excused() -> None:
    machine = samples(0, 60, wait_ms=500, late_ms=9000)
    assert verdict(machine, LOST).verdict == Verdict.INVALID
    both = verdict(machine, SILENCE, LOST)
    assert both.verdict == Verdict.INVALID
    assert [a.doubt is not None for a in both.anomalies] == [True, False]


def test_a_node_that_was_taken_away_excuses_what_is_of_time() -> None:
    about = {"lost_nodes": "n3: no SSH"}
    for found, expected in ((SILENCE, Verdict.UNKNOWN), (LOST, Verdict.INVALID)):
        (result,) = judge(RunRecord(History([]), environment=about), [Fixed(found)]).results
        assert result.verdict == expected


def test_what_is_said_of_one_node_is_doubted_by_that_node() -> None:
    left = Anomaly("replica-left-behind", "n3 out", window=(10 * S, 50 * S), details={"node": "n3"}, limit_s=30)
    alone = samples(10, 50, nodes=["n3"], wait_ms=50) + samples(10, 50, nodes=["n1", "n2"])
    assert verdict(alone, left).verdict == Verdict.UNKNOWN
    other = samples(10, 50, nodes=["n1"], wait_ms=50) + samples(10, 50, nodes=["n2", "n3"])
    assert verdict(other, left).verdict == Verdict.INVALID


def test_the_real_judge_of_silences() -> None:
    """Acknowledgements for 10 s, then none for 50: a finding on a quiet machine, and none where nobody got to run."""
    ops = []
    for i in range(60):
        ops.append(Op(2 * i, i * S, 0, "invoke", "write", "k", i))
        ops.append(Op(2 * i + 1, i * S + S // 2, 0, "ok" if i < 10 else "fail", "write", "k", i))
    for machine, expected in (
        (samples(0, 60), Verdict.INVALID),
        (samples(0, 30, wait_ms=40) + samples(30, 60), Verdict.UNKNOWN),
        (samples(0, 10, wait_ms=40) + samples(10, 60), Verdict.INVALID),
    ):
        run = RunRecord(History(ops), machine=machine)
        (result,) = judge(run, [Availability(NODES, 30, lambda op: op.type == "ok")]).results
        assert result.verdict == expected
        assert [a.name for a in result.anomalies] == ["never-recovered"]


def test_samples_that_overlap_count_once() -> None:
    """A clock that was set back: the later samples of a node begin within the earlier ones."""
    machine = [MachineSample(CONTROL, a * S, b * S, LATE_MS) for a, b in ((0, 10), (2, 4), (3, 12), (20, 22))]
    assert shortage_s(machine, 0, 30 * S) == 14


def test_what_is_told_of_a_run() -> None:
    assert describe([]) == "not measured"
    assert describe(samples(0, 20) + samples(20, 30, wait_ms=50)) == (
        "a server's thread waited 16.73 ms for a processor on average; shortage for 10 of 30 s"
    )
    assert describe(samples(0, 20, nodes=[CONTROL])) == "shortage for 0 of 20 s"
    assert shortage_s(samples(0, 30, wait_ms=50), 5 * S, 12 * S) == 7.0


@pytest.mark.parametrize(
    ("servers", "waits", "nodes", "expected"),
    [
        ((), {}, NODES, Verdict.INVALID),  # nobody was short but by the quota
        (("broker",), {"broker": 50.0, "namesrv": 0.1}, NODES, Verdict.INVALID),
        (("broker",), {"broker": 50.0, "namesrv": 50.0}, NODES, Verdict.UNKNOWN),  # others on the node were short too
        ((), {}, ["n1"], Verdict.UNKNOWN),  # the quota was of one node, and all were short
    ],
)
def test_time_that_a_quota_of_ours_took_is_no_shortage(
    servers: tuple[str, ...], waits: dict[str, float], nodes: list[str], expected: Verdict
) -> None:
    effects = [Effect("slow", node, servers, quota=True).to_json() for node in nodes]
    value = {"fault": "slow", "id": 1, "effects": effects, "seen": True}
    times = [(5, "invoke", "inject"), (6, "info", "inject"), (55, "invoke", "heal"), (55, "info", "heal")]
    history = History([Op(i, at * S, NEMESIS, type_, f, None, value) for i, (at, type_, f) in enumerate(times)])  # type: ignore[arg-type]
    machine = [replace(sample, waits=waits) for sample in samples(10, 50, wait_ms=50)]
    (result,) = judge(RunRecord(history, machine=machine), [Fixed(SILENCE)]).results
    assert result.verdict == expected
    # The same without a quota: the machine may be the cause.
    bare = [{**effect, "quota": False} for effect in effects]
    history = History([replace(op, value={**value, "effects": bare}) for op in history])
    (result,) = judge(RunRecord(history, machine=machine), [Fixed(SILENCE)]).results
    assert result.verdict == Verdict.UNKNOWN


def test_timers_and_stolen_time_count_under_a_quota_too() -> None:
    value = {"fault": "slow", "id": 1, "effects": [Effect("slow", n, quota=True).to_json() for n in NODES]}
    history = History([Op(i, 5 * S, NEMESIS, t, "inject", None, value) for i, t in enumerate(("invoke", "info"))])  # type: ignore[arg-type]
    run = RunRecord(history, machine=samples(10, 50, late_ms=LATE_MS))
    (result,) = judge(run, [Fixed(SILENCE)]).results
    assert result.verdict == Verdict.UNKNOWN
