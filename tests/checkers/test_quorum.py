# SPDX-License-Identifier: Apache-2.0
"""Quorum write: every planted violation is found in simulated groups and by hand, and good groups are silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.messages.quorum import QuorumAck
from checkers.messages.quorum.rules import ACTING, CONTROLLED, FIXED, RAFT, Setting, rule_of
from results.deployment import DeploymentRecord, Traits
from results.op import NEMESIS, OpType
from results.record import Observation
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
KEY = "t:a:0"
TIMEOUT = 2.0
COUNTED = Traits(acting_master=True)
IN_SET = Traits(in_sync=True)
PLAIN = Traits()


class Story(TimedStory):
    """Writes a history, in seconds."""

    def __init__(self, traits: Traits = COUNTED, replicas: int = 3, **options: Any) -> None:
        super().__init__()
        self.traits, self.nodes = traits, [f"n{i + 1}" for i in range(replicas)]
        self.options = {"inSyncReplicas": "3", "minInSyncReplicas": "2", "enableAutoInSyncReplicas": "true"} | options
        self.seen: list[Observation] = []
        self.ids = 0

    def call(self, at: float, f: str, key: str | None, asked: Any, got: Any, type_: OpType = "ok", **more: Any) -> None:
        places = {name: value for name, value in more.items() if name in ("node", "name_server")}
        super().call(at, f, key, asked, got, type_, ask={} if f == "send" else places, **{"took": 0.005, **more})

    def send(self, at: float, what: str = "ok", node: str = "n1", took: float = 0.005) -> int:
        """A send and what comes of it; its id."""
        self.ids += 1
        match what:
            case "ok":
                self.call(at, "send", KEY, self.ids, [self.ids, self.ids], node=node, code=0, took=took)
            case "late":
                self.call(at, "send", KEY, self.ids, self.ids, "info", node=node, code=12, took=TIMEOUT)
            case "refused":
                error = "SYSTEM_ERROR: in-sync replicas not enough"
                self.call(at, "send", KEY, self.ids, self.ids, "fail", node=node, code=1, error=error)
            case "gone":
                self.call(at, "send", KEY, self.ids, self.ids, "fail")
        return self.ids

    def look(self, at: float, message: int, held: Mapping[str, bool | None]) -> None:
        self.call(at, "held", None, None, {"id": message, "held": dict(held)})

    def settings(self, at: float, **options: str) -> None:
        for node in self.nodes:
            self.call(at, "settings", None, None, {**self.options, "slaveTimeout": "2000", **options}, node=node)

    def counts(self, at: float, in_sync: int, listed: int | None = None, node: str = "n1") -> None:
        """The counts of a master, and of the name servers."""
        self.call(at, "in-sync", None, None, {"master": True, "in_sync": in_sync, "behind": {}}, node=node)
        there = {str(i): node for i, node in enumerate(self.nodes[: in_sync if listed is None else listed])}
        self.call(at, "members", "a", None, there, name_server="n1")

    def answers(self, at: float, node: str) -> None:
        """A slave that lives."""
        self.call(at, "in-sync", None, None, {"master": False, "in_sync": 1, "behind": {}}, node=node)

    def fault(self, start: float, end: float, *nodes: str, cut: bool = False, kind: str | None = None) -> None:
        others = {n: [o for o in self.nodes if o not in nodes] for n in nodes} if cut else {n: [n] for n in nodes}
        impairs = {} if kind else others
        effects = [{"kind": kind or ("cut-off" if cut else "down"), "node": n} for n in nodes]
        what = {"fault": "x", "id": len(self.events), "nodes": dict.fromkeys(nodes), "seen": True}
        full = {**what, "impairs": impairs, "effects": effects}
        for at, f in ((start, "inject"), (end, "heal")):
            self.put(at - 0.05, NEMESIS, "invoke", f, None, what)
            self.put(at, NEMESIS, "info", f, None, full)

    def observed(self, at: float, epoch: int, *in_sync: str) -> None:
        extra = {"in_sync": list(in_sync), "in_sync_epoch": epoch, "master_epoch": 1}
        self.seen.append(Observation(int(at * S), "n2", "follower", extra=extra))

    def judge(self) -> CheckResult:
        deployment = DeploymentRecord(
            "toy", nodes=dict.fromkeys(self.nodes, ""), groups={"a": self.nodes}, traits=self.traits
        )
        return QuorumAck(6, 15).check(self.run(deployment=deployment, observations=self.seen))


BUGS = (
    "too-few-hold",
    "acked-below-quorum",
    "acked-below-minimum",
    "downgrade-late",
    "late-timeout",
    "not-refused",
    "replica-not-counted",
)

WITH: Mapping[str, tuple[str, ...]] = {
    "acked-below-quorum": ("too-few-hold",),
    "acked-below-minimum": ("too-few-hold",),
    "downgrade-late": ("late-timeout",),
    "replica-not-counted": ("downgrade-late",),
}
"""The other anomalies of such a group."""


@dataclass
class Group:
    """The true state of a simulated group: nodes that are away, nodes that the master believes in sync, holders."""

    believed: set[str]
    away: set[str] = field(default_factory=set)
    holding: dict[int, set[str]] = field(default_factory=dict)
    """Message -> who had it when it was acknowledged."""


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """A group whose slaves are stopped, killed or cut off, one set of them after the other. It does what was promised,
    or has a `bug`.
    """
    rng = Random(seed)
    size = rng.choice([3, 3, 5])
    auto = bug in ("acked-below-minimum", "downgrade-late", "late-timeout") or (
        bug != "acked-below-quorum" and rng.random() < 0.6
    )
    least = 2
    in_sync = size if bug in ("downgrade-late", "replica-not-counted") else rng.randint(2, size)
    few = bug in ("acked-below-minimum", "acked-below-quorum", "not-refused")
    story = Story(
        COUNTED,
        size,
        inSyncReplicas=str(in_sync),
        minInSyncReplicas=str(least),
        enableAutoInSyncReplicas=str(auto).lower(),
    )
    slaves = story.nodes[1:]
    changes: list[tuple[float, str, set[str]]] = []
    at = rng.uniform(4, 8)
    for _ in range(2):
        most = len(slaves) if few else max(1, size - (least if auto else in_sync))
        gone = set(rng.sample(slaves, most if few else rng.randint(1, most)))
        cut, lasts = rng.random() < 0.4, rng.uniform(14, 20)
        noticed = at + (rng.uniform(13.5, 13.9) if bug == "downgrade-late" else rng.uniform(0.1, 5.5))
        up = at + lasts + rng.uniform(0.1, 3)
        counted = up + rng.uniform(0.1, 4)
        story.fault(at, at + lasts, *sorted(gone), cut=cut)
        changes += [(at - 0.02, "away", gone), (noticed, "dropped", gone), (up, "up", gone)]
        changes += [(counted, "counted", gone)] if bug != "replica-not-counted" else []
        at = counted + rng.uniform(20, 25)
    changes.sort(key=lambda change: change[0])
    group = Group(set(story.nodes))
    now = 0.0
    while now < at:
        now += rng.uniform(0.15, 0.25)
        while changes and changes[0][0] <= now:
            _, what, who = changes.pop(0)
            if what == "away":
                group.away |= who
            elif what == "up":
                group.away -= who
            elif what == "dropped":
                group.believed -= who
            else:
                group.believed |= who
        here = [n for n in story.nodes if n not in group.away]
        alive = len(group.believed)
        need = max(least, min(in_sync, alive)) if auto else in_sync
        short, wrong = need > alive, rng.random() < 0.5
        acked = None
        if short and not (few and wrong):
            story.send(now, "refused")
        elif (bug == "not-refused" and short) or (bug == "late-timeout" and group.away and rng.random() < 0.3):
            story.send(now, "late")
        elif len(here) >= need or short:
            acked = story.send(now)
            group.holding[acked] = {"n1"} if bug == "too-few-hold" and rng.random() < 0.3 else set(here)
        else:
            story.send(now, "late")
        if acked is not None and rng.random() < 0.8:
            has = group.holding[acked]
            held = {n: None if n in group.away and rng.random() < 0.3 else n in has for n in story.nodes}
            story.look(now + 0.01, acked, held)
        if rng.random() < 0.7:
            story.counts(now, alive)
        if rng.random() < 0.5:
            for node in here[1:]:
                story.answers(now, node)
        if rng.random() < 0.2:
            story.settings(now)
    return story.judge()


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 1000), marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_good_groups_raise_no_alarm(seeds: range) -> None:
    alarms = {seed: r.reason for seed in seeds if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.slow
def test_every_planted_violation_is_found(bug: str) -> None:
    found = [names([simulated(seed, bug)]) for seed in range(8)]
    assert sum(bug in each for each in found) >= 7
    assert set.union(*found) <= {bug, *WITH.get(bug, ())}


def test_what_a_good_run_shows() -> None:
    stats = simulated(3).stats
    assert stats["looks"] > 100
    assert stats["sends"]["ok"] > 100
    assert stats["survives"] == min(map(int, stats["copies"])) - 1
    assert stats["downgrades"] == sorted(stats["downgrades"]) or len(stats["downgrades"]) == 2


def test_whom_a_master_waits_for() -> None:
    assert [rule_of(t) for t in (PLAIN, COUNTED, IN_SET, Traits(raft_log=True))] == [FIXED, ACTING, CONTROLLED, RAFT]
    auto = Setting(in_sync=3, least=2, auto=True, all_ack=True)
    assert [auto.needs(ACTING, 5, alive) for alive in (1, 2, 3, 4, 5)] == [2, 2, 3, 3, 3]
    assert [auto.needs(rule, 5, 1) for rule in (FIXED, CONTROLLED, RAFT)] == [3, 2, 3]
    assert replace(auto, auto=False).needs(ACTING, 5, 1) == 3
    assert replace(auto, all_ack=False).needs(CONTROLLED, 5, 1) == 3
    assert Setting.of({}).needs(FIXED, 3, 1) == 1


@pytest.mark.parametrize(
    ("held", "options", "expected"),
    [
        ((True, True, True), {}, False),
        ((True, True, False), {}, True),
        ((True, True, None), {}, False),  # who was not looked at may have it
        ((True, None, False), {"inSyncReplicas": "2"}, False),
        ((True, False, False), {"inSyncReplicas": "2"}, True),
        ((False, True, True), {"inSyncReplicas": "2"}, False),
        ((True, True, False), {"inSyncReplicas": "2"}, False),
    ],
)
def test_who_must_hold_a_message(held: tuple[bool | None, ...], options: dict[str, str], expected: bool) -> None:
    for auto in ("false", "true"):
        story = Story(enableAutoInSyncReplicas=auto, **options)
        for n in range(60):
            story.counts(n / 10, 3)
        story.settings(0.5)
        message = story.send(4)
        story.look(4.1, message, dict(zip(story.nodes, held, strict=True)))
        result = story.judge()
        assert names([result]) == ({"too-few-hold"} if expected else set())
        assert result.stats["copies"] == ({} if None in held else {str(sum(map(bool, held))): 1})


@pytest.mark.parametrize(("counted", "expected"), [(3, True), (2, False), (None, False)])
def test_a_downgrade_lowers_what_is_asked_for(counted: int | None, expected: bool) -> None:
    """By the count that the master, or a name server, reported around the send; without a report the minimum counts."""
    for who in ("master", "name server"):
        story = Story()
        story.settings(0.5)
        for n in range(60):
            if counted is not None:
                story.counts(n / 10, 3 if who == "name server" else counted, 3 if who == "master" else counted)
        message = story.send(4)
        story.look(4.1, message, {"n1": True, "n2": True, "n3": False})
        assert names([story.judge()]) == ({"too-few-hold"} if expected else set())


@pytest.mark.parametrize(("changed", "expected"), [(3.9, False), (4.1, False), (7.0, True)])
def test_a_change_of_the_settings_counts_as_the_brokers_tell_it(changed: float, expected: bool) -> None:
    story = Story(enableAutoInSyncReplicas="false")
    for n in range(20):
        story.settings(n / 2, inSyncReplicas="3" if n / 2 < changed else "2")
    message = story.send(4.02)
    story.look(4.1, message, {"n1": True, "n2": True, "n3": False})
    assert names([story.judge()]) == ({"too-few-hold"} if expected else set())


@pytest.mark.parametrize("kind", ["data-lost", "unsynced-lost", "data-damaged"])
def test_a_replica_that_lost_its_disk_proves_nothing(kind: str) -> None:
    story = Story(enableAutoInSyncReplicas="false")
    story.settings(0.5)
    message = story.send(4)
    story.fault(4.05, 5, "n3", kind=kind)
    story.look(6, message, {"n1": True, "n2": True, "n3": False})
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([(1, "n1 n2 n3")], True),
        ([(1, "n1 n2 n3"), (2, "n1 n2")], False),
        ([(1, "n1 n2 n3"), (3, "n1 n2 n3")], False),  # there was a set in between
        ([(1, "n1 n2")], False),
        ([], False),
    ],
)
def test_a_master_may_not_shrink_its_own_set(sets: list[tuple[int, str]], expected: bool) -> None:
    """As long as the controllers name a replica, it holds what is acknowledged."""
    story = Story(IN_SET, allAckInSyncStateSet="true")
    story.settings(0.5)
    for n in range(10 if sets else 0):
        epoch, members = sets[0] if n < 5 else sets[-1]
        story.observed(n, epoch, *members.split())
    message = story.send(5.5)
    story.look(5.6, message, {"n1": True, "n2": True, "n3": False})
    result = story.judge()
    assert names([result]) == ({"too-few-hold"} if expected else set())
    assert all("n3 is in the controllers' SyncStateSet" in a.summary for a in result.anomalies)


def test_a_set_that_is_not_told_after_the_send_proves_nothing() -> None:
    story = Story(IN_SET, allAckInSyncStateSet="true")
    story.settings(0.5)
    for n in range(5):
        story.observed(n, 1, *story.nodes)
    message = story.send(5.5)
    story.look(5.6, message, {"n1": True, "n2": True, "n3": False})
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(
    ("traits", "options", "away", "expected"),
    [
        (COUNTED, {"enableAutoInSyncReplicas": "false"}, 1, {"acked-below-quorum"}),
        (COUNTED, {}, 1, set()),
        (COUNTED, {}, 2, {"acked-below-minimum"}),
        (PLAIN, {"inSyncReplicas": "2"}, 1, set()),
        (PLAIN, {"inSyncReplicas": "2"}, 2, {"acked-below-quorum"}),
        (IN_SET, {"allAckInSyncStateSet": "true"}, 2, {"acked-below-minimum"}),
        (IN_SET, {"inSyncReplicas": "1"}, 2, set()),
        (Traits(raft_log=True), {}, 1, set()),
        (Traits(raft_log=True), {}, 2, {"acked-below-quorum"}),
    ],
)
def test_who_is_away_confirms_nothing(traits: Traits, options: dict[str, str], away: int, expected: set[str]) -> None:
    for cut in (False, True):
        story = Story(traits, **options)
        story.settings(0.5)
        story.fault(3, 6, *story.nodes[3 - away :], cut=cut)
        message = story.send(4)
        story.look(4.1, message, dict.fromkeys(story.nodes))
        assert names([story.judge()]) == expected


@pytest.mark.parametrize(("at", "took"), [(2.9, 0.3), (5.9, 0.3), (2.96, 0.02), (7, 0.1)])
def test_a_send_during_a_change_proves_nothing(at: float, took: float) -> None:
    story = Story(enableAutoInSyncReplicas="false")
    story.settings(0.5)
    story.fault(3, 6, "n3")
    message = story.send(at, took=took)
    story.look(8, message, dict.fromkeys(story.nodes))
    assert names([story.judge()]) == set()


def struck(what: str, back_s: float, cut: bool = False, traits: Traits = COUNTED, **options: str) -> Story:
    """n3 is away from 5 s to 25 s; sends end as `what` for so long, then in an acknowledgement."""
    story = Story(traits, **options)
    story.settings(0.5)
    story.fault(5, 25, "n3", cut=cut)
    for n in range(100):
        at = n * 0.3
        message = story.send(at, what if 5 <= at < 5 + back_s else "ok")
        if n < 10:
            story.look(at + 0.1, message, dict.fromkeys(story.nodes, True))
        story.answers(at, "n2")
        if not 5 <= at < 26:
            story.answers(at, "n3")
    return story


@pytest.mark.parametrize(
    ("what", "back_s", "expected"),
    [
        ("late", 6, set()),
        ("late", 9.5, set()),
        ("late", 14, {"downgrade-late", "late-timeout"}),
        ("late", 20, {"downgrade-late"}),
        ("refused", 14, {"downgrade-late"}),
        ("gone", 14, set()),  # for other reasons
    ],
)
def test_how_long_a_downgrade_may_take(what: str, back_s: float, expected: set[str]) -> None:
    for cut in (False, True):
        result = struck(what, back_s, cut).judge()
        assert names([result]) == expected
        assert {a.limit_s for a in result.anomalies} <= {10}
    if what != "gone" and back_s < 15:
        assert result.stats["downgrades"] == [pytest.approx(back_s, abs=2.4)]


def test_without_a_downgrade_there_is_nothing_to_be_late_for() -> None:
    assert names([struck("refused", 20, enableAutoInSyncReplicas="false", inSyncReplicas="3").judge()]) == set()
    assert names([struck("late", 14, traits=PLAIN, inSyncReplicas="3").judge()]) == {"acked-below-quorum"}


@pytest.mark.parametrize(("until", "expected"), [(13, set()), (20, {"not-refused"})])
def test_too_few_replicas_are_told_at_once(until: float, expected: set[str]) -> None:
    story = Story(enableAutoInSyncReplicas="false")
    story.settings(0.5)
    story.fault(5, 25, "n3")
    for n in range(80):
        at = n * 0.3
        message = story.send(at, "ok" if at < 4.9 else "late" if at < until else "refused")
        if n < 5:
            story.look(at + 0.1, message, dict.fromkeys(story.nodes, True))
    result = story.judge()
    assert names([result]) == expected


@pytest.mark.parametrize(("counted", "expected"), [(3, set()), (2, {"replica-not-counted"})])
def test_a_replica_that_returned_is_counted(counted: int, expected: set[str]) -> None:
    for options in ({}, {"enableAutoInSyncReplicas": "false"}):
        story = Story(**options)
        story.settings(0.5)
        message = story.send(1)
        story.look(1.1, message, dict.fromkeys(story.nodes, True))
        story.fault(5, 12, "n3")
        for n in range(45):
            story.counts(n, 3 if n < 5 else 2 if n < 15 else counted)
            story.send(n + 0.5, "ok" if n < 5 else "gone")
            if not 5 <= n < 14:
                story.answers(n, "n3")
        result = story.judge()
        assert names([result]) == expected
        assert all(a.window and a.window[0] == int(14.005 * S) for a in result.anomalies)


def test_a_run_without_looks_says_nothing() -> None:
    story = Story()
    assert (story.judge().verdict, story.judge().reason) == (
        Verdict.UNKNOWN,
        "no send was acknowledged; 0 looks at the replicas of 0 sends"[: len(story.judge().reason)],
    )
    story.send(1)
    assert story.judge().reason.startswith("nobody looked at the replicas")
