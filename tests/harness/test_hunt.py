# SPDX-License-Identifier: Apache-2.0
"""The hunt: its covering array, its episodes as plans, and what it finds in simulated runs, beside the control."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import median

import pytest
from click.testing import CliRunner
from effort import effort

from harness.cli.main import command
from harness.hunt import episodes
from harness.hunt.account import account_lines
from harness.hunt.array import GIVEN_UP, CoveringArray
from harness.hunt.hunting import Arm, Entry, Hunt, Outcome, first_sights
from harness.hunt.running import Runs, keep, read_entries, seeds_of, unexplained
from harness.nemesis.events import check_trigger
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun
from results.strikes import Strike
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

AXES = episodes.read_axes()
ARM = Arm("log, controller", ("--workload", "log"), AXES)


def rows_until_covered(array: CoveringArray, most: int) -> int:
    for number in range(most):
        if array.covered == array.total:
            return number
        array.came_about(array.next())
    return most


def test_soon_all_pairs_were_in_a_row() -> None:
    """The largest two axes alone need their product; greedy rows need little more, and a tenth of a random order."""
    array = CoveringArray(AXES, episodes.idle, seed=1)
    sizes = sorted(map(len, AXES.values()))
    rows = rows_until_covered(array, 1000)
    assert sizes[-1] * sizes[-2] - 10 <= rows <= 1.4 * sizes[-1] * sizes[-2]
    assert not array.gaps


def test_every_pair_is_one_of_a_row_that_means_something() -> None:
    """Without a second strike there is nothing that an event could begin."""
    array = CoveringArray(AXES, episodes.idle, seed=1)
    row = {**{axis: next(iter(values)) for axis, values in AXES.items()}, "second": "partition-leader"}
    alone = {**row, "second": episodes.NONE}
    assert len(array.tuples(row)) == len(list(combinations(AXES, 2)))
    assert len(array.tuples(alone)) == len(list(combinations(set(AXES) - {"when", "second_for"}, 2)))
    assert frozenset({("second", episodes.NONE), ("when", row["when"])}) not in array.open


def test_what_weighs_most_comes_first() -> None:
    """The pairs of the first rows weigh half as much again as the average pair."""
    array = CoveringArray(AXES, episodes.idle, seed=3)
    first = [array.next() for _ in range(1)]
    for _ in range(7):
        array.came_about(first[-1])
        first.append(array.next())
    weights = [array._weight[pair] for row in first for pair in array.tuples(row)]
    assert sum(weights) / len(weights) > 1.5 * sum(array._weight.values()) / array.total


def test_what_did_not_come_about_three_times_is_a_gap() -> None:
    """Another row would wait for the same event in vain; the count says what was not tried."""
    array = CoveringArray(AXES, episodes.idle, seed=1)
    row = array.next()
    for _ in range(GIVEN_UP):
        assert array.tuples(row) <= array.open
        array.did_not(row)
    assert array.gaps == array.tuples(row)
    array.came_about(row)
    assert array.covered == 0


def test_each_episode_is_a_right_plan() -> None:
    """Each event that a strike waits for exists, the first strike has a time, and the plan survives its file."""
    for seed in range(effort(30)):
        array = CoveringArray(AXES, episodes.idle, seed)
        rows = [array.next() for _ in range(3)]
        plan, ids = episodes.of_rows(rows)
        assert sorted(i for one in ids for i in one) == [strike.id for strike in plan.strikes]
        assert plan.strikes[0].at_s == episodes.LEAD_S
        for strike in plan.strikes[1:]:
            assert strike.at_s is None
            check_trigger(str(strike.after), "here")
            assert strike.within_s is not None
        again = Plan.from_dict(tomllib.loads(plan.to_toml()))
        assert again.strikes == plan.strikes


def test_a_change_of_a_plan_is_a_right_plan() -> None:
    """The first strike has a time and the others an event, whatever the change."""
    seeds = [episodes.of_rows([CoveringArray(AXES, episodes.idle, seed).next()])[0] for seed in range(5)]
    seeds.append(episodes.uniform(AXES, Random(1)))
    changed = set()
    for seed in range(effort(200)):
        plan = episodes.mutated(seeds, AXES, Random(seed))
        assert plan.strikes[0].at_s is not None
        assert all(strike.after and strike.within_s for strike in plan.strikes[1:])
        assert [strike.id for strike in plan.strikes] == list(range(1, len(plan.strikes) + 1))
        Plan.from_dict(tomllib.loads(plan.to_toml()))
        changed.add(len(plan.strikes))
    assert len(changed) > 2


# A cluster in which a kill of the master is followed by an election. Planted: of depth a (a pause of the slaves before
# a kill), b (a second kill within two seconds of the election), c (slaves are killed, and the master after their heal).

ELECTION_S = 4.0


def struck_at(plan: Plan, rng: Random) -> list[tuple[float, Strike]]:
    """The times of the strikes; one whose event does not come is skipped."""
    found: list[tuple[float, Strike]] = []
    elections: list[float] = []
    for strike in plan.strikes:
        begin = found[-1][0] if found else 0.0
        ends = {one.id: at + one.for_s for at, one in found}
        kind, _, text = (strike.after or "").partition(":")
        event: float | None = begin
        if strike.at_s is not None:
            event = strike.at_s
        elif kind in ("role-changed", "log"):
            event = next((at for at in elections if at >= begin), None)
        elif kind == "healed":
            event = ends.get(int(text))
        elif kind == "calm":
            event = max(ends.values()) + rng.uniform(2, 5)
        if event is None or event + strike.delay_s > plan.time_limit_s:
            continue
        at = event + strike.delay_s
        found.append((at, strike))
        kills_master = strike.target == "master" and strike.fault.startswith("kill")
        if kills_master or strike.fault == "pause-slaves-kill-master":
            elections.append(at + ELECTION_S * rng.uniform(0.7, 1.3))
    return found


def deep_b(strikes: list[tuple[float, Strike]], rng: Random) -> float | None:
    """The time of a second kill of a master within two seconds of the election that the first one made."""
    kills = [at for at, strike in strikes if strike.fault.startswith("kill") and strike.target in ("master", "all")]
    pairs = combinations(sorted(kills), 2)
    return min((later for first, later in pairs if ELECTION_S < later - first < ELECTION_S + 2), default=None)


def deep_c(strikes: list[tuple[float, Strike]], rng: Random) -> float | None:
    """Slaves are killed and heal; within eight seconds the master is killed: the time of that."""
    healed = [at + s.for_s for at, s in strikes if s.target == "slaves" and s.fault.startswith("kill")]
    kills = [at for at, s in strikes if s.target == "master" and s.fault.startswith("kill")]
    return min((at for heal in healed for at in kills if 0 <= at - heal < 8), default=None)


SEEN_S = 2.0
"""From the strike to the alarm: the new master takes this time to serve, and its first acknowledgements prove it."""


def runs_to_the_first(planted, seed: int, control: bool, most: int = 200) -> int:  # type: ignore[no-untyped-def]
    """Runs until the planted defect shows, of one mode alone."""
    return to_the_first(planted, seed, control, most)[0]


def to_the_first(  # type: ignore[no-untyped-def]
    planted, seed: int, control: bool, most: int = 200
) -> tuple[int, float, float]:
    """The same, with the seconds of load: whole, and if the alarm ends the load."""
    rng = Random(seed)
    hunt = Hunt([ARM], seed)
    load = 0.0
    for number in range(1, most + 1):
        mode, plan, rows, ids = hunt._choose(ARM, rng, 4 if control else 0)
        assert mode == ("control" if control else "array")
        strikes = struck_at(plan, rng)
        at = planted(strikes, rng)
        load += plan.time_limit_s
        if at is not None:
            return number, load, load - max(0.0, plan.time_limit_s - at - SEEN_S)
        done = tuple(strike.id for _, strike in strikes)
        hunt._credit(Entry(ARM.name, mode, 1.0, 1.0, Outcome("valid", struck=done, folder="x"), rows, ids))
    return most, load, load


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "better"), [(deep_b, 2.0), (deep_c, 1.0)], ids=["within-2-s", "two-in-order"])
def test_episodes_find_what_uniform_strikes_seldom_meet(planted, better: float) -> None:  # type: ignore[no-untyped-def]
    """docs/hunt.md has the medians."""
    seeds = range(effort(20))
    ours = median(runs_to_the_first(planted, seed, control=False) for seed in seeds)
    uniform = median(runs_to_the_first(planted, seed, control=True) for seed in seeds)
    assert ours * better <= uniform, (ours, uniform)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [deep_b, deep_c], ids=["within-2-s", "two-in-order"])
def test_an_early_end_saves_load_of_the_run_that_finds(planted) -> None:  # type: ignore[no-untyped-def]
    """docs/hunt.md has the medians. It saves nothing of the runs before."""
    found = [to_the_first(planted, seed, control=False) for seed in range(effort(20, 10))]
    whole, early = (median(one[column] for one in found) for column in (1, 2))
    assert all(early <= whole <= early + 75 for _, whole, early in found)
    assert early <= 0.95 * whole, (whole, early)


def test_new_is_what_no_run_before_had() -> None:
    """Each name is new once; every fifth run is the control; an arm that cannot run ends."""
    results = {0: ["lost"], 2: ["lost", "stale"], 6: ["stale"]}
    plans: list[Plan] = []

    def trial(plan: Plan, arm: Arm) -> Outcome:
        plans.append(plan)
        number = len(plans) - 1
        if arm.name == "broken":
            return Outcome("", problem="no")
        return Outcome("invalid", results.get(number, []), struck=[s.id for s in plan.strikes], folder=f"run-{number}")

    entries: list[Entry] = []
    hunt = Hunt([ARM, Arm("broken", (), AXES)], seed=5)
    hunt.run(trial, lambda: float(len(plans)), lambda: len(plans) >= 20, entries.append)
    assert [(e.outcome.folder, tuple(e.first)) for e in first_sights(entries)] == [
        ("run-0", ("lost",)),
        ("run-2", ("stale",)),
    ]
    assert [e.mode for e in entries].count("control") == len(entries) // 5
    assert sum(e.arm == "broken" for e in entries) == 4
    assert hunt.pairs[ARM.name].covered > 100
    assert hunt.triples[ARM.name].covered > 100
    text = "\n".join(account_lines(hunt, {ARM.name: ["no disk"]}, {"run-0": "Shrunk."}))
    assert "## lost" in text
    assert "## stale" in text
    assert f"* {ARM.name}: no disk" in text


def test_a_hunt_goes_on(tmp_path: Path) -> None:
    """The ledger has what was covered and what was seen; a line that is torn costs one run."""
    first = Hunt([ARM], seed=5)
    first.run(
        lambda plan, arm: Outcome("invalid", ["lost"], struck=[s.id for s in plan.strikes], folder="x"),
        lambda: 0.0,
        lambda: len(first.entries) >= 5,
        lambda entry: keep(tmp_path, entry),
    )
    with (tmp_path / "hunt.jsonl").open("a") as file:
        file.write('{"arm": "log')
    later = Hunt([ARM], seed=5, entries=read_entries(tmp_path))
    assert later.pairs[ARM.name].open == first.pairs[ARM.name].open
    assert later.seen == {"lost"}
    assert read_entries(tmp_path / "nowhere") == []


def test_an_anomaly_in_doubt_is_nothing_new() -> None:
    """A machine that was too small shows late answers, and nobody would find them again."""
    found = [
        Anomaly("lost", "gone", doubt=None),
        Anomaly("late", "slow", doubt="the machine"),
    ]
    judgement = Judgement([CheckResult("log", Verdict.INVALID, "x", anomalies=found)], new=["lost", "late"])
    assert unexplained(judgement) == ["lost"]
    assert unexplained(Judgement([])) == []


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--hours", "0"], "not in the range"),
        ([], "hours"),
        (["--hours", "1", "--option", "--seed 5"], "--seed"),
        (["--hours", "1", "--option", "--workload nothing"], "nothing"),
        (["--hours", "1", "--suite", "nowhere.toml"], "nowhere.toml"),
        (["--hours", "1", "--suite", "examples/suites/hunt.toml", "--option", "--workload log"], "leave one out"),
        (["--hours", "1", "--seed-store", "nowhere"], "no invalid run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_options_are_one_line(argv: list[str], problem: str, tmp_path: Path) -> None:
    """And nothing is started."""
    done = CliRunner().invoke(command("hunt"), [*argv, "--output", str(tmp_path / "out")], standalone_mode=False)
    assert done.exception is not None
    assert problem in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_the_shipped_arms_and_their_first_plan(tmp_path: Path) -> None:
    """Each arm has faults; a fault that an arm cannot have is not among them."""
    done = CliRunner().invoke(command("hunt"), ["--hours", "1", "--dry-run", "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    arms = [line for line in done.output.splitlines() if line.startswith("arm")]
    assert len(arms) > 8
    assert "[[strike]]" in done.output
    assert not (tmp_path / "out").exists()


def test_seeds_are_the_plans_of_invalid_runs(tmp_path: Path) -> None:
    """A valid run has nothing to begin with, and a store without any is said."""
    with pytest.raises(PlanError, match="no invalid run"):
        seeds_of([tmp_path])
    assert seeds_of([]) == []


class Made:
    """Runs that end at once, in place of those on real servers."""

    new: tuple[str, ...] = ("lost",)
    count = 0

    def __init__(self, store: Path, whole: bool = False, ended: Iterable[str] = ()) -> None:
        self.store = store

    def __enter__(self) -> Made:
        return self

    def __exit__(self, *problem: object) -> None:
        """There is no cluster."""

    def __call__(self, plan: Plan, arm: Arm) -> Outcome:
        Made.count += 1
        return Outcome("invalid", self.new, struck=[s.id for s in plan.strikes], folder=str(self.store))


def test_the_first_find_ends_it_and_a_second_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same anomaly in the second call is not new, and its exit code says so."""
    monkeypatch.setattr("harness.hunt.running.Runs", Made)
    monkeypatch.setattr(Made, "count", 0)
    argv = ["--hours", "1", "--first", "--shrink-runs", "0", "--option", "--workload log", "--output", str(tmp_path)]
    done = CliRunner().invoke(command("hunt"), [*argv, "--store", str(tmp_path / "runs")])
    assert (done.exit_code, Made.count) == (1, 1), done.output
    assert "NEW   lost" in done.output
    argv[1] = "0.0006"
    again = CliRunner().invoke(command("hunt"), [*argv, "--store", str(tmp_path / "runs")])
    assert again.exit_code == 0, again.output
    assert Made.count > 1
    assert "nothing new in" in again.output


@pytest.mark.parametrize("kept", [True, False])
def test_only_arms_that_can_share_a_cluster_do(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register servers of DLedger start again for each run: a kept cluster would refuse all runs of the arm."""
    asked: list[list[str]] = []

    def start(plan: Plan, args: list[str], store: Path) -> ChildRun:
        asked.append(list(args))
        return ChildRun(3, None, problem="no")

    monkeypatch.setattr("harness.hunt.running.run_plan", start)
    found = Runs(tmp_path)(Plan(), Arm("a", ("--workload", "register"), AXES, kept))
    assert (found.verdict, found.problem) == ("", "no")
    assert [("--keep" in args) for args in asked] == [kept]
