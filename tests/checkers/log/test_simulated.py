# SPDX-License-Identifier: Apache-2.0
"""The judges of messages against a simulated broker group: silent on good runs, and every planted bug by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from effort import effort
from sim.rocketmq import QUEUES, Bug, Sim, names, simulate

from checkers.base.api import Checker, judge
from checkers.base.legality import count
from checkers.controllers.sync_state import SyncState
from checkers.messages.log import LogAnomalies, LogLinearizable, MessageIds, Replicas
from checkers.messages.log.outcomes import study
from checkers.messages.queue import Deliveries, Offsets
from checkers.run.wellformed import WellFormed
from results.history import History
from results.record import RunRecord
from results.verdict import CheckResult, Judgement, Verdict

LOG: Sequence[Checker] = (LogAnomalies(), LogLinearizable(), Replicas(), MessageIds())
# The simulated slaves copy the offsets every second.
QUEUE: Sequence[Checker] = (LogAnomalies(), Replicas(), Offsets(copied_within_s=3), Deliveries())
PERMITTED = {"lost": "acknowledged before it is replicated", "dirty-read": "read before it is replicated"}

NAME = {
    Bug.LOSE: "lost",
    Bug.SPLIT_BRAIN: "lost",
    Bug.DUPLICATE: "duplicated",
    Bug.SWAP: "inconsistent-offsets",
    Bug.SHIFT: "inconsistent-offsets",
    Bug.STALE: "nonmonotonic-poll",
    Bug.SKIP: "poll-skip",
    Bug.HOLE: "hole",
    Bug.DIVERGE: "divergent-replicas",
    Bug.DIRTY: "dirty-read",
    Bug.PHANTOM: "aborted-read",
    Bug.STRAY: "never-sent",
    Bug.REGRESS: "committed-offset-regression",
    Bug.SKIP_COMMITS: "committed-offset-jump",
    Bug.FORGET: "lost-to-group",
    Bug.STARVE: "lost-to-group",
    Bug.CONJURE: "committed-offset-jump",
    Bug.SHIFT_UNSURE: "inconsistent-offsets",
    Bug.REWIND: "position-regression",
    Bug.LEAP: "position-jump",
    Bug.REUSE_ID: "reused-message-id",
}
OF_GROUPS = (Bug.REGRESS, Bug.SKIP_COMMITS, Bug.FORGET, Bug.STARVE, Bug.CONJURE)
WITHOUT_FAULTS = (Bug.STALE, Bug.SKIP, Bug.SKIP_COMMITS, Bug.FORGET, Bug.REWIND, Bug.LEAP)
OF_READERS = (Bug.STALE, Bug.SKIP, Bug.REWIND, Bug.LEAP)
"""They show in what readers are given, and leave the log as it must be."""
SEEDS = 4


def told(results: Sequence[CheckResult], name: str) -> int:
    return sum(count(a) for r in results for a in r.anomalies if a.name == name)


def lossy(record: RunRecord) -> RunRecord:
    return replace(record, environment={"permits": PERMITTED})


def alarms(seed: int, record: RunRecord, checkers: Sequence[Checker]) -> list[str]:
    found = judge(record, [WellFormed(), *checkers])
    return [f"seed {seed}, {r.checker}: {r.reason}" for r in found.results if r.verdict != Verdict.VALID]


def good_runs(seeds: range) -> list[str]:
    wrong: list[str] = []
    for seed in seeds:
        how: dict[str, Any] = {"owners": seed % 3, "anonymous": seed % 5 == 2}
        expiring = seed % 4 == 1
        wrong += alarms(seed, simulate(seed, seconds=3, expiring=expiring, **how)[0], [*LOG, SyncState(limit_s=4)])
        wrong += alarms(seed, lossy(simulate(seed, seconds=3, strict=False, **how)[0]), LOG)
    return wrong


def good_runs_of_consumers(seeds: range) -> list[str]:
    wrong: list[str] = []
    for seed in seeds:
        wrong += alarms(seed, simulate(seed, seconds=5, consumers=2)[0], QUEUE)
        wrong += alarms(seed, lossy(simulate(seed, seconds=5, consumers=2, strict=False)[0]), QUEUE)
    return wrong


@pytest.mark.slow
def test_good_runs_are_valid() -> None:
    assert good_runs(range(60)) + good_runs_of_consumers(range(10)) == []


@pytest.mark.slow
def test_many_good_runs_are_valid() -> None:
    assert good_runs(range(1000, 1000 + effort(450))) + good_runs_of_consumers(range(1000, 1000 + effort(50))) == []


def planted(bug: Bug, seed: int) -> tuple[Sim, Sequence[CheckResult]]:
    if bug in OF_GROUPS:
        record, sim = simulate(seed, bug, 14, consumers=2, strikes_at=[8.0] if bug is Bug.REGRESS else ())
        return sim, judge(record, QUEUE).results
    owners = 2 if bug in (Bug.REWIND, Bug.LEAP) else 0
    record, sim = simulate(seed, bug, strikes_at=() if bug in WITHOUT_FAULTS else None, owners=owners)
    return sim, judge(record, LOG).results


def really(sim: Sim) -> bool:
    """True if the bug had an effect that a client can see."""
    if sim.bug in (Bug.LOSE, Bug.SPLIT_BRAIN):
        return bool(sim.lost)
    return bool(sim.dirty) if sim.bug is Bug.DIRTY else sim.planted > 0


@pytest.mark.parametrize("bug", NAME)
@pytest.mark.slow
def test_a_planted_bug_is_called_by_its_name(bug: Bug) -> None:
    struck = 0
    for seed in range(SEEDS):
        sim, results = planted(bug, seed)
        assert (NAME[bug] in names(results)) == really(sim), f"seed {seed}: {names(results)}"
        struck += really(sim)
        if really(sim) and bug not in (*OF_READERS, *OF_GROUPS, Bug.PHANTOM, Bug.STRAY, Bug.SHIFT_UNSURE, Bug.REUSE_ID):
            assert "nonlinearizable" in names(results), f"seed {seed}"
    assert struck


def test_a_message_in_front_of_one_acknowledged_before_is_an_inversion() -> None:
    struck = 0
    for seed in range(SEEDS):
        sim, results = planted(Bug.INVERT, seed)
        assert bool({"reordered", "realtime-inversion"} & names(results)) == (sim.planted > 0), f"seed {seed}"
        struck += sim.planted > 0
    assert struck


@pytest.mark.parametrize("bug", [None, Bug.LOSE, Bug.SPLIT_BRAIN, Bug.DIRTY, Bug.HOLE])
def test_every_lost_message_is_counted_and_no_other(bug: Bug | None) -> None:
    lost = dirty = 0
    for seed in range(5):
        record, sim = simulate(seed, bug, strict=bug is not None)
        results = [checker.check(record) for checker in LOG]
        assert told(results, "lost") == len(sim.lost), f"seed {seed}"
        assert told(results, "dirty-read") == len(sim.dirty), f"seed {seed}"
        lost, dirty = lost + len(sim.lost), dirty + len(sim.dirty)
    assert dirty if bug is Bug.DIRTY else lost


def unsure(record: RunRecord) -> RunRecord:
    """The same run, but that no answer to a send reached its client in time: the offset of some came late."""
    ops = [
        replace(op, type="info", value=op.value[1], error="too late", extra={**op.extra, "offset": op.value[0]})
        if op.f == "send" and op.type == "ok"
        else op
        for op in record.history
    ]
    return replace(record, history=History(ops))


NEEDS_NO_ACKNOWLEDGEMENT = (
    Bug.DUPLICATE, Bug.SHIFT, Bug.SHIFT_UNSURE, Bug.STALE, Bug.SKIP, Bug.HOLE, Bug.DIVERGE, Bug.PHANTOM, Bug.STRAY,
    Bug.REWIND, Bug.LEAP,
)  # fmt: skip


@pytest.mark.parametrize("bug", NEEDS_NO_ACKNOWLEDGEMENT)
def test_what_was_seen_is_called_by_its_name_although_nothing_was_acknowledged(bug: Bug) -> None:
    struck = 0
    for seed in range(SEEDS):
        owners = 2 if bug in (Bug.REWIND, Bug.LEAP) else 0
        record, sim = simulate(seed, bug, strikes_at=() if bug in WITHOUT_FAULTS else None, owners=owners)
        found = judge(unsure(record), LOG)
        assert (NAME[bug] in names(found.results)) == really(sim), f"seed {seed}: {names(found.results)}"
        struck += really(sim)
    assert struck


def test_good_runs_in_which_nothing_was_acknowledged_show_nothing() -> None:
    for seed in range(10):
        result = LogAnomalies().check(unsure(simulate(seed, seconds=3)[0]))
        assert (result.verdict, names([result])) == (Verdict.UNKNOWN, set()), f"seed {seed}: {result.reason}"


@pytest.mark.parametrize("how", [{"expiring": True}, {"anonymous": True}, {"expiring": True, "anonymous": True}])
def test_losses_are_told_from_what_was_deleted_for_its_age(how: dict[str, bool]) -> None:
    found = 0
    for seed in range(8):
        record, sim = simulate(seed, Bug.LOSE, **how)
        lost = set(study(record).facts.sends.id[study(record).lost].tolist())
        assert lost <= sim.lost, f"seed {seed}: {lost - sim.lost} stood in the log"
        oldest = {queue: max(node.floor[queue] for node in sim.nodes.values()) for queue in QUEUES}
        acked = {op.value[1]: op for op in record.history if op.f == "send" and op.type == "ok"}
        sure = {m for m in sim.lost if acked[m].value[0] >= oldest[str(acked[m].key)]}
        assert sure <= lost, f"seed {seed}"
        found += len(sure)
    assert found


def test_what_the_configuration_permits_is_shown_with_its_count_and_fails_nothing() -> None:
    record, sim = next(run for run in (simulate(seed, strict=False) for seed in range(9)) if run[1].lost)
    strict, lenient = LogAnomalies().check(record), LogAnomalies().check(lossy(record))
    assert strict.verdict == Verdict.INVALID
    assert lenient.verdict == Verdict.VALID
    assert f"legal here: {len(sim.lost)} lost" in lenient.reason
    assert "acknowledged before it is replicated" in lenient.reason
    assert all(a.legal for a in lenient.anomalies)


def test_the_whole_of_a_lossy_run_is_invalid_where_nothing_is_permitted() -> None:
    record = next(run for run in (simulate(seed, strict=False) for seed in range(9)) if run[1].lost)[0]
    assert Judgement([c.check(record) for c in LOG]).verdict == Verdict.INVALID
