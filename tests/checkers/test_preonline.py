# SPDX-License-Identifier: Apache-2.0
"""Pre-online: every planted violation is found in simulated groups, and good groups are silent; the log by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.messages.listing import FOREVER, Listing, Period
from checkers.messages.preonline import Preonline
from results.deployment import DeploymentRecord
from results.op import OpType
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
NODES = ("n1", "n2", "n3")
QUIET, BUSY = "t:a:0", "t:a:1"
"""Committed only at the master; committed along the route."""


class Story(TimedStory):
    """Writes a history, in seconds; a call takes 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, list[Path]] = {}

    def commit(self, at: float, offset: int, node: str = "n1", key: str = BUSY) -> None:
        self.call(at, "commit", key, offset, offset, node=node, group="g")

    def asked(self, at: float, offset: int | None, node: str = "n1", key: str = BUSY) -> None:
        self.call(at, "committed", key, None, offset, node=node, group="g")

    def members(self, at: float, *there: str) -> None:
        for server in NODES:
            got = {str(NODES.index(node)): node for node in there}
            self.call(at, "members", "a", None, got, name_server=server)

    def fault(self, start: float, end: float, node: str = "n1", *, cut: bool = False) -> None:
        impairs = {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]} if cut else {node: [node]}
        super().fault(start, end, node, impairs=impairs)

    def judge(self, **environment: Any) -> CheckResult:
        deployment = DeploymentRecord(
            "toy", nodes={n: f"198.18.0.{i}" for i, n in enumerate(NODES)}, groups={"a": NODES}
        )
        run = self.run(deployment=deployment, environment=environment, logs=self.logs)
        return Preonline(online_within_s=15, copied_within_s=75).check(run)


@dataclass
class Broker:
    """The metadata of one broker in memory, and on its disk."""

    offsets: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    delay: int = 0
    delay_written: int = 0


BUGS = ("offset-overwritten", "offset-dropped", "offset-not-copied", "progress-regressed", "late-online")


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """A group for 150 s: its master is killed, or cut off, and returns. It is what RIP-32 promises, or has a `bug`."""
    rng, story = Random(seed), Story()
    brokers = {node: Broker() for node in NODES}
    cut = rng.random() < 0.3 and bug in (None, "offset-dropped")
    down = rng.uniform(20, 50) if bug != "offset-not-copied" else rng.uniform(90, 100)
    up = down + rng.uniform(12, 30)
    online = up + (rng.uniform(20, 30) if bug == "late-online" else rng.uniform(1, 8))
    gone = down + (rng.uniform(3, 5) if cut else 0.1)
    copied = rng.uniform(5, 15) if bug == "offset-overwritten" else rng.uniform(0, 60)
    flushed, next_offset = rng.uniform(0, 5), 1
    story.fault(down, up, cut=cut)
    taken = False
    for n in range(190):
        at = 0.8 * n + rng.uniform(0, 0.1)
        alive = cut or not down <= at < up
        listed = not gone <= at < online
        first, master = ("n1" if listed else "n2"), brokers["n1"]
        if at >= flushed and alive:
            master.written, master.delay_written = dict(master.offsets), master.delay
            flushed += 5
        if not alive and master.offsets:
            master.offsets, master.delay = dict(master.written), master.delay_written
        if not taken and at >= online - 0.5:
            taken = True
            theirs, ours = brokers["n2"].offsets, dict(master.offsets)
            if bug == "offset-overwritten":
                master.offsets |= theirs
            elif bug != "offset-dropped":
                master.offsets = {k: max(theirs.get(k, 0), ours.get(k, 0)) for k in theirs | ours}
            if bug == "progress-regressed":
                master.delay //= 2
            else:
                master.delay = max(master.delay, brokers["n2"].delay)
        if at >= copied:
            copied += 60
            if listed and not down <= at < up:
                for slave in ("n2", "n3"):
                    if bug != "offset-not-copied":
                        brokers[slave].offsets = dict(master.offsets)
                    brokers[slave].delay = master.delay
        brokers[first].delay += rng.randint(0, 2) if alive or first != "n1" else 0
        settled = not (down - 0.5 <= at < gone + 4 or online - 0.5 <= at < online + 4)
        if settled and rng.random() < 0.8:
            for key in (QUIET, BUSY):
                if key == BUSY or first == "n1":
                    story.commit(at, next_offset, first, key)
                    brokers[first].offsets[key] = next_offset
                    next_offset += 1
        there = [node for node in NODES if node != "n1" or listed]
        story.members(at + 0.1, *there)
        for node in NODES if alive else NODES[1:]:
            for key in (QUIET, BUSY):
                story.asked(at + 0.2, brokers[node].offsets.get(key), node, key)
            told = {"counter": 0, "delay": {"1": brokers[node].delay}, "timer": None}
            story.call(at + 0.2, "progress", None, None, told, node=node)
    return story.judge()


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 1000), marks=[pytest.mark.slow, pytest.mark.nightly])]
)
@pytest.mark.slow
def test_good_groups_raise_no_alarm(seeds: range) -> None:
    alarms = {seed: r.reason for seed in seeds if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


def test_what_a_good_run_shows() -> None:
    stats = simulated(1).stats
    assert (stats["returns"], stats["queries"] > 1000, stats["commits"] > 200) == (1, True, True)
    assert 0 < stats["online_s"] < 15
    assert stats["stale_at_failover"] > 0


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.slow
def test_every_planted_violation_is_found(bug: str) -> None:
    found = [names([simulated(seed, bug)]) for seed in range(12)]
    assert sum(bug in each for each in found) >= 10
    assert (
        set.union(*found) <= {bug, "offset-overwritten"} if bug == "offset-not-copied" else set.union(*found) == {bug}
    )


def returned(story: Story, down: float = 30, up: float = 40, online: float = 45, until: float = 60) -> Story:
    """A master that is killed and returns."""
    story.fault(down, up)
    for n in range(int(until * 2)):
        story.members(n / 2, *(NODES if not down <= n / 2 < online else NODES[1:]))
    return story


@pytest.mark.parametrize(
    ("at", "node", "expected"),
    [
        (10, "n1", {"offset-overwritten"}),
        (22, "n1", {"offset-overwritten"}),
        (24, "n1", set()),  # it may not have written it
        (30.2, "n1", set()),  # when the strike has begun, but the process still serves
        (35, "n2", {"offset-dropped"}),
        (38, "n2", {"offset-dropped"}),
        (41, "n2", set()),  # it may be too late for the transfer
        (46, "n1", {"offset-overwritten"}),
        (48, "n2", set()),  # a client that commits to a slave now has not queried the name servers
    ],
)
def test_what_an_online_master_must_know(at: float, node: str, expected: set[str]) -> None:
    story = returned(Story())
    story.commit(5, 1)
    story.commit(at, 7, node)
    story.asked(43, 0)  # not online yet
    story.asked(50, 3)
    assert names([story.judge()]) == expected
    story.asked(51, 7)
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(("down", "expected"), [(70, set()), (90, {"offset-not-copied"})])
def test_an_acting_master_may_lack_what_no_copy_has(down: float, expected: set[str]) -> None:
    story = returned(Story(), down, down + 10, down + 12, down + 20)
    story.commit(5, 4)
    story.asked(down + 5, None, "n2")
    result = story.judge()
    assert names([result]) == expected
    assert result.stats["stale_at_failover"] == (0 if expected else 1)


@pytest.mark.parametrize(
    ("online", "until", "late"), [(54, 70, False), (57, 70, True), (99, 50, False), (99, 60, True)]
)
def test_a_master_that_runs_is_soon_online(online: float, until: float, late: bool) -> None:
    story = returned(Story(), online=online, until=until)
    story.commit(5, 1)
    story.asked(6, 1)
    result = story.judge()
    assert names([result]) == ({"late-online"} if late else set())
    for anomaly in result.anomalies:
        assert (anomaly.limit_s, anomaly.window and anomaly.window[0]) == (15, 40 * S)


def test_another_fault_is_an_excuse_for_being_late() -> None:
    story = returned(Story(), online=57, until=70)
    story.fault(50, 52, "n2")
    story.commit(5, 1)
    story.asked(6, 1)
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(("at", "type_", "expected"), [(42, "ok", 1), (42, "fail", 0), (47, "ok", 0), (20, "ok", 0)])
def test_a_master_that_is_not_listed_serves_nobody(at: float, type_: OpType, expected: int) -> None:
    story = returned(Story())
    story.commit(5, 1)
    story.asked(6, 1)
    story.call(at + 0.1, "direct", QUIET, 1, 1, type_, node="n1", group="d")
    result = story.judge()
    assert [a.name for a in result.anomalies] == ["served-unlisted"] * expected
    assert result.stats["direct_unlisted"] == (at == 42)
    legal = story.judge(permits={"served-unlisted": "only the routes hide it"})
    assert legal.verdict == Verdict.VALID


def log_of(tmp_path: Path, *lines: tuple[float, str]) -> dict[str, list[Path]]:
    path = tmp_path / "broker.log"
    path.write_text("".join(f"2026-01-01 00:00:{at:06.3f} INFO BrokerPreOnline - {text}\n" for at, text in lines))
    return {"n1": [path]}


@pytest.mark.parametrize(("asked", "left"), [((1, 2), None), ((1,), "n3"), ((), "n2, n3")])
def test_a_master_is_not_online_before_all_slaves_handed_over(
    tmp_path: Path, asked: tuple[int, ...], left: str | None
) -> None:
    story = returned(Story())
    story.commit(5, 1)
    story.asked(6, 1)
    story.logs = log_of(
        tmp_path,
        *((41 + i, f"Get metadata reverse from 198.18.0.{i}:10911") for i in asked),
        (44.8, "master preOnline complete, start service"),
    )
    result = story.judge(started_at="2026-01-01T00:00:00.000000+00:00")
    assert names([result]) == (set() if left is None else {"early-online"})
    assert all(f"without the data of {left}." in a.summary for a in result.anomalies)


def test_a_master_that_finds_nobody_is_online_too_early(tmp_path: Path) -> None:
    """The name server that it asked had just been restarted."""
    story = returned(Story())
    story.commit(5, 1)
    story.asked(6, 1)
    story.logs = log_of(tmp_path, (44.8, "no other broker online, will start service directly"))
    result = story.judge(started_at="2026-01-01T00:00:00.000000+00:00")
    assert names([result]) == {"early-online"}
    assert "without the data of n2, n3." in result.anomalies[0].summary


@pytest.mark.parametrize(("at", "expected"), [(33, {"offset-dropped"}), (36, set())])
def test_what_came_after_the_transfer_may_be_lost(tmp_path: Path, at: float, expected: set[str]) -> None:
    """On a slow machine it is long before the master is listed."""
    story = returned(Story())
    story.commit(5, 1)
    story.commit(at, 7, "n2")
    story.asked(50, 3)
    story.logs = log_of(
        tmp_path,
        *((35 + i / 10, f"Get metadata reverse from 198.18.0.{i}:10911") for i in (1, 2)),
        (44.8, "master preOnline complete, start service"),
    )
    assert names([story.judge(started_at="2026-01-01T00:00:00.000000+00:00")]) == expected


def test_a_run_without_commits_says_nothing() -> None:
    story = Story()
    assert story.judge().reason.startswith("no name server ever listed a master")
    story.members(1, *NODES)
    assert (story.judge().verdict, story.judge().reason[:25]) == (Verdict.UNKNOWN, "no offset was committed a")


def test_listing() -> None:
    story = Story()
    story.members(1, "n1", "n2")
    story.members(3, "n2")
    story.call(4, "members", "a", None, None, "fail", name_server="n3")
    story.members(5, "n1", "n2")
    listing = Listing(story.run().history)
    assert listing.masters == {"a": "n1"}
    assert listing.periods("a", "n1") == [Period(int(1.01 * S), int(3.01 * S)), Period(int(5.01 * S), FOREVER)]
    assert not listing.unlisted("a", "n1", int(3.5 * S), int(3.6 * S)), "n3 did not answer afterwards"
    assert listing.unlisted("a", "n3", int(1.5 * S), int(2.6 * S))
    assert listing.listed("a", NODES, 2 * S, 4 * S) == {"n2"}
    assert listing.listed("a", NODES, 2 * S, 3 * S) == {"n1", "n2"}
    assert listing.listed("a", NODES, 0, 3 * S) == set()
