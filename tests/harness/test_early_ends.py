# SPDX-License-Identifier: Apache-2.0
"""Runs that an anomaly ends early: the verdict is never valid, and series claim only what was run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sim.rig import SimRegister, prepared
from sim.service import Bug

from harness.api import Watch
from harness.check.judging import judge_stored
from harness.check.summary import Outcome, summary
from harness.cli.run import ending_names
from harness.findings.signature import Sight, Signature
from harness.hunt import episodes
from harness.hunt.account import account_lines
from harness.hunt.array import CoveringArray
from harness.hunt.hunting import Arm, Entry, Hunt
from harness.hunt.hunting import Outcome as Found
from harness.hunt.running import Runs, outcome_of
from harness.nemesis.effective import FILE
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, PlanError
from harness.run import lifecycle
from harness.run.lookout import Lookout
from harness.run.virtual_time import VirtualTimeLoop
from harness.series.child import ChildRun
from harness.series.early import EarlyEnds
from results.alarm import ENDED_EARLY, Alarm, EarlyEnd
from results.fault_intervals import fault_intervals
from results.op import NEMESIS, Op
from results.record import RunRecord
from results.store import RunDir, Store
from results.verdict import FailOn, Verdict

ANY: frozenset[str] = frozenset()
EARLY = EarlyEnd(7, 12_340_000_000, ("lost", "nonlinearizable"), "two at one offset", 47.7, 3)


def plan(seed: int = 3, **changes: Any) -> Plan:
    base: dict[str, Any] = {
        "workload": "register",
        "seed": seed,
        "time_limit_s": 40.0,
        "rate": 60.0,
        "options": {"ops_per_key": 100},
        "cluster": ClusterPlan(backend="sim"),
        "nemeses": (NemesisPlan("sim-partition", 15, 10, "minority"),),
        "op_deadline_s": 4.0,
    }
    return Plan(**{**base, **changes})


def run(
    folder: Path, made: Plan, bug: Bug | None = None, early: frozenset[str] | None = ANY, **how: Any
) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    what = replace(prepared(made, bug, **how), end_early=early)
    return lifecycle.run(what, Store(folder), said.append, VirtualTimeLoop), said


@pytest.mark.slow
@pytest.mark.parametrize("bug", [Bug.STALE_READ, Bug.LOST_WRITE, Bug.DOUBLE_APPLY, Bug.SPLIT_BRAIN])
def test_a_planted_bug_ends_the_load(bug: Bug, tmp_path: Path) -> None:
    """Faults are healed at once and as usual, no strike begins any more, and the final phase is whole."""
    outcome, said = run(tmp_path, plan(), bug)
    record, again = judge_stored(outcome.folder)
    early = EarlyEnd.of(record.environment)
    assert early is not None
    assert outcome.judgement.verdict == Verdict.INVALID
    result = next(r for r in outcome.judgement.results if r.checker == "early-end")
    assert result.stats["confirmed"]
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, early.describe())
    assert f"ended early at op {early.op} " in result.reason
    assert any(early.describe() in line for line in said)
    assert any(f"at op {early.op}" in line for line in summary(outcome, plan(cluster=ClusterPlan())))
    assert [(r.checker, r.verdict) for r in again.results] == [
        (r.checker, r.verdict) for r in outcome.judgement.results
    ]
    after = [op for op in record.history if op.index > early.op]
    assert not [op for op in after if op.f in ("inject", "skip") and op.type == "invoke"]
    loads = [op for op in after if op.is_client and op.type == "invoke" and "phase" not in op.extra]
    assert len(loads) <= 10  # those that were asked for before the alarm was recorded
    assert {"recovery", "final"} <= {str(op.extra.get("phase")) for op in after}
    intervals = fault_intervals(record.history)
    assert all(one.end_ns is not None and one.end_ns <= early.time_ns + 10**9 for one in intervals)
    assert record.environment["phases"] == "complete"
    assert len(Plan.read(outcome.folder.path / FILE).strikes) == len(intervals)
    assert early.strikes_left == 3 - len(intervals)
    assert 0 < early.not_run_s <= 40


@pytest.mark.slow
def test_only_runs_that_ask_for_it_end_early(tmp_path: Path) -> None:
    """By default, and with the names of other anomalies, the load runs to its end."""
    for number, names in enumerate((None, frozenset({"lost"}))):
        outcome, _ = run(tmp_path / str(number), plan(), Bug.SPLIT_BRAIN, names)
        assert ENDED_EARLY not in outcome.folder.load().environment
        assert outcome.judgement.verdict == Verdict.INVALID
    outcome, _ = run(tmp_path / "named", plan(), Bug.SPLIT_BRAIN, frozenset({"lost", "nonlinearizable"}))
    assert ENDED_EARLY in outcome.folder.load().environment


@pytest.mark.slow
def test_a_good_run_is_the_same_with_a_watch(tmp_path: Path) -> None:
    """The same operations at the same times, and a valid verdict without a line about an early end."""
    watched, _ = run(tmp_path / "a", plan())
    plain, _ = run(tmp_path / "b", plan(), early=None)
    assert watched.judgement.verdict == plain.judgement.verdict == Verdict.VALID
    histories = [[op.to_json() for op in one.folder.load().history] for one in (watched, plain)]
    assert histories[0] == histories[1]
    assert "early-end" not in {r.checker for r in watched.judgement.results}


class CallsAtOnce:
    """A watch that is wrong: its alarm has no reason."""

    def see(self, op: Op) -> Alarm | None:
        return Alarm(("nonlinearizable",), op.index, "so it is") if op.index > 1000 else None


class Hasty(SimRegister):
    watches: ClassVar[type] = CallsAtOnce

    def watch(self) -> Watch | None:
        made: Watch = self.watches()
        return made


@pytest.mark.slow
def test_a_false_alarm_makes_no_run_valid(tmp_path: Path) -> None:
    """Nor invalid: its rest was not run, and no judge reports what it said."""
    outcome, _ = run(tmp_path, plan(), workload=Hasty(plan()))
    assert outcome.judgement.verdict == Verdict.UNKNOWN
    assert outcome.judgement.reason.startswith("early-end: the load ended early at op 1")
    assert outcome.judgement.reason.endswith("; no judge reported this")
    assert outcome.judgement.exit_code(FailOn.NEW) == Verdict.UNKNOWN.exit_code


class Broken:
    def see(self, op: Op) -> Alarm | None:
        raise KeyError(op.index)


@pytest.mark.slow
def test_a_watch_that_fails_costs_nothing(tmp_path: Path) -> None:
    class Fails(Hasty):
        watches: ClassVar[type] = Broken

    outcome, _ = run(tmp_path, plan(), workload=Fails(plan()))
    assert outcome.judgement.verdict == Verdict.VALID
    assert "the watch failed at op 0" in outcome.folder.log.read_text()


class Script:
    """Raises an alarm at each event of the client 1."""

    def see(self, op: Op) -> Alarm | None:
        if op.process != 1:
            return None
        return Alarm(("nonlinearizable", "lost"), op.index, "gone", frozenset({"lost", "dirty-read"}))


def op(index: int, process: int, f: str = "send", type_: Any = "ok", value: Any = None) -> Op:
    return Op(index, index * 1_000_000_000, process, type_, f, None, value)


def inject(index: int, *kinds: str) -> list[Op]:
    done = {"id": 1, "effects": [{"kind": kind} for kind in kinds]}
    return [op(index, NEMESIS, "inject", "invoke"), op(index + 2, NEMESIS, "inject", "info", done)]


AFTER = {"unsynced-lost": {"lost"}, "data-lost": {"voted-twice"}}


@pytest.mark.parametrize(
    ("events", "permits", "at"),
    [
        ([op(1, 0), op(2, 1)], set(), 2),
        ([op(1, 0), op(2, 1)], {"dirty-read"}, None),
        ([op(1, 0), op(2, 1)], {"voted-twice"}, 2),
        ([*inject(1, "unsynced-lost"), op(4, 1)], set(), None),
        ([*inject(1, "data-lost"), op(4, 1)], set(), 4),
        ([inject(1, "down")[0], op(2, 1), inject(1, "down")[1]], set(), 2),  # it waits for the effects
        ([inject(1, "unsynced-lost")[0], op(2, 1), inject(1, "unsynced-lost")[1]], set(), None),
        ([inject(1)[0], op(2, 1), op(3, NEMESIS, "inject", "info", {"id": 1})], set(), None),  # unknown effects
        ([inject(1, "down")[0], op(2, 1)], set(), None),
    ],
)
def test_what_a_permission_may_excuse_ends_nothing(events: list[Op], permits: set[str], at: int | None) -> None:
    lookout = Lookout(Script(), ANY, permits, AFTER, 60, 4)
    ends = [early for event in events if (early := lookout.see(event)) is not None]
    assert [one.op for one in ends] == ([] if at is None else [at])
    assert lookout.watching == (at is None)
    if ends:
        struck = any(event.f == "inject" for event in events)
        assert (ends[0].time_ns, ends[0].not_run_s, ends[0].strikes_left) == (at * 10**9, 60 - at, 4 - struck)  # type: ignore[operator]


def test_an_early_end_survives_its_file() -> None:
    """One that cannot be read still counts as an early end."""
    assert EarlyEnd.of({ENDED_EARLY: EARLY.to_text()}) == EARLY
    assert EarlyEnd.of({}) is None
    for text in ("", "{}", "[]", '{"op": "x"}'):
        found = EarlyEnd.of({ENDED_EARLY: text})
        assert found is not None
        assert found.op == -1
    assert EARLY.describe() == (
        "the load ended early at op 7 (00:12.3): two at one offset; 47.7 s of load and 3 strikes were not run"
    )


def test_the_option_names_anomalies() -> None:
    assert ending_names(None) is None
    assert ending_names("every") == ANY
    assert ending_names("lost, hole") == {"lost", "hole"}
    for text in ("", "lost,", ","):
        with pytest.raises(PlanError, match="--end-early"):
            ending_names(text)


def stored(folder: Path, environment: dict[str, str]) -> ChildRun:
    folder.mkdir(parents=True)
    (folder / "environment.json").write_text(json.dumps(environment))
    return ChildRun(1, RunDir(folder))


def test_a_series_that_got_the_wrong_end_goes_on_with_whole_runs(tmp_path: Path) -> None:
    """So it does not consist of runs that tried nothing."""
    said: list[str] = []
    series = EarlyEnds(True, ("lost", "hole"))
    assert series.options == ["--end-early=lost,hole"]
    assert series.note(stored(tmp_path / "whole", {}), False, said.append) is None
    assert series.note(stored(tmp_path / "shown", {ENDED_EARLY: EARLY.to_text()}), True, said.append) == EARLY
    assert series.on
    series.note(stored(tmp_path / "other", {ENDED_EARLY: EARLY.to_text()}), False, said.append)
    assert (series.options, series.count) == ([], 2)
    assert "so the runs that follow are whole" in said[0]
    assert series.note(ChildRun(3, None), False, said.append) is None
    assert EarlyEnds(False).options == []
    assert EarlyEnds().options == ["--end-early"]


@pytest.mark.slow
def test_an_early_end_without_the_signature_tried_nothing(tmp_path: Path) -> None:
    """It might have come later. With the signature it is shown, as in a whole run."""
    outcome, _ = run(tmp_path, plan(), Bug.SPLIT_BRAIN)
    record, judgement = judge_stored(outcome.folder)
    assert Signature(("nonlinearizable",)).look(record, judgement).sight == Sight.SHOWN
    other = Signature(("states-differ",)).look(record, judgement)
    assert other.sight == Sight.NOT_TRIED
    assert "ended early at op" in other.why
    after = Signature(("nonlinearizable",), after=("disk-full",)).look(record, judgement)
    assert after.sight == Sight.NOT_TRIED
    assert isinstance(record, RunRecord)


# The hunt: only what was run counts.

AXES = episodes.read_axes()
ROW = {axis: next(value for value in values if value != episodes.NONE) for axis, values in AXES.items()}
ALONE = {**ROW, "second": episodes.NONE}


def left(rows: Iterable[dict[str, str]], found: Found) -> tuple[CoveringArray, CoveringArray]:
    """The arrays of pairs: of a hunt after one run of these rows, and of a fresh one."""
    ids, number = [], 0
    for row in rows:
        some = [number + 1] if row["second"] == episodes.NONE else [number + 1, number + 2]
        ids.append(some)
        number = some[-1]
    hunts = Hunt([Arm("a", (), AXES)], seed=1), Hunt([Arm("a", (), AXES)], seed=1)
    hunts[0]._credit(Entry("a", "array", 1.0, 1.0, found, list(rows), ids))
    return hunts[0].pairs["a"], hunts[1].pairs["a"]


@pytest.mark.parametrize(
    ("row", "struck", "healed", "axes"),
    [
        (ROW, (), (), set()),
        (ROW, (1,), (), {"first"}),
        (ROW, (1,), (1,), {"first", "first_for"}),
        (ROW, (1, 2), (1,), {"first", "first_for", "second", "when"}),
        (ROW, (1, 2), (1, 2), {"first", "first_for", "second", "when", "second_for"}),
        (ROW, (2,), (2,), {"second", "when", "second_for"}),
        (ALONE, (1,), (), {"first"}),
        (ALONE, (1,), (1,), {"first", "first_for", "second"}),
    ],
)
def test_only_what_was_run_of_an_episode_counts(
    row: dict[str, str], struck: tuple[int, ...], healed: tuple[int, ...], axes: set[str]
) -> None:
    """The same run without an early end counts as a whole, or as a try in vain."""
    found = Found("invalid", ["lost"], struck=struck, folder="x", healed=healed, early="at op 7")
    now, fresh = left([row], found)
    expected = {pair for pair in fresh.tuples(row) if {axis for axis, _ in pair} <= axes}
    assert fresh.open - now.open == expected
    assert not now._tries
    whole, fresh = left([row], replace(found, early=""))
    complete = len(struck) == (1 if row["second"] == episodes.NONE else 2)
    assert fresh.open - whole.open == (fresh.tuples(row) if complete else set())
    assert bool(whole._tries) != complete


def test_an_episode_before_the_end_counts_as_usual() -> None:
    """A later one had begun: what did not come about was tried in vain. Of one that had not begun, nothing counts."""
    second = {**ROW, **{axis: list(values)[1] for axis, values in AXES.items()}}
    found = Found("invalid", ["lost"], struck=(1, 3), folder="x", healed=(1,), early="at op 7")
    now, fresh = left([ROW, second, ROW], found)
    assert set(now._tries) == fresh.tuples(ROW) & fresh.open
    assert not fresh.open - now.open  # of the second episode one property alone was there
    now, fresh = left([ROW, second], replace(found, struck=(1, 2), healed=(1, 2)))
    assert not fresh.tuples(second) - fresh.tuples(ROW) - now.open


@pytest.mark.slow
def test_the_result_of_a_run_has_its_early_end(tmp_path: Path) -> None:
    """The heal at the early end is not the strike's own, so its duration did not come about."""
    outcome, _ = run(tmp_path, plan(), Bug.SPLIT_BRAIN)
    found = outcome_of(ChildRun(1, outcome.folder))
    early = EarlyEnd.of(outcome.folder.load().environment)
    assert early is not None
    assert (found.early, found.not_run_s) == (early.describe(), early.not_run_s)
    assert (found.struck, found.healed) == ([1], [])
    again, _ = run(tmp_path / "whole", plan(), Bug.SPLIT_BRAIN, None)
    whole = outcome_of(ChildRun(1, again.folder))
    assert (whole.early, whole.struck, whole.healed) == ("", [1, 2, 3], [1, 2, 3])
    hunt = Hunt([Arm("a", (), AXES)], seed=1)
    hunt.entries += [Entry("a", "control", 1.0, 60.0, found, first=["nonlinearizable"])]
    assert Entry.from_json(json.loads(json.dumps(hunt.entries[0].to_json()))).outcome.early == found.early
    text = "\n".join(account_lines(hunt, {}, {}))
    assert f"The load ended early at op {early.op} " in text
    assert f"1 load ended early: {early.not_run_s / 60:.1f} min of planned load were not run." in text


@pytest.mark.parametrize("whole", [False, True])
def test_a_hunt_ends_the_load_of_an_arm_once(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whole loads show what comes after a common anomaly."""
    asked: list[list[str]] = []

    def start(made: Plan, args: list[str], store: Path) -> ChildRun:
        asked.append(list(args))
        return ChildRun(3, None, problem="no")

    monkeypatch.setattr("harness.hunt.running.run_plan", start)
    monkeypatch.setattr("harness.hunt.running.outcome_of", lambda run: Found("invalid", folder="x", early="at op 7"))
    runs = Runs(tmp_path, whole, ended=["c"])
    for name in ("a", "a", "b", "b", "c"):
        runs(plan(), Arm(name, (), AXES, kept=False))
    assert ["--end-early" in args for args in asked] == [not whole, False, not whole, False, False]
