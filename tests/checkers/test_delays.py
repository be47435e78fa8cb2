# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: every planted violation is found, by hand and in simulated runs, and good runs are silent."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.messages.delays import Delays
from results.deployment import DeploymentRecord, Traits
from results.op import OpType
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
QUEUES = {"t:a:0": "a", "t:b:0": "b"}


class Story(TimedStory):
    """Writes a history, in seconds; a call takes 10 ms. `log`: queue -> (id, since when it is readable) by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, list[tuple[Any, float]]] = {queue: [] for queue in QUEUES}

    def delay(self, at: float, identity: int, wait_s: float = 5, type_: OpType = "ok", queue: str = "t:a:0") -> None:
        got = [0, identity] if type_ == "ok" else identity
        self.call(at, "delay", queue, identity, got, type_, wait_ms=int(wait_s * 1000), by="time")

    def deliver(self, at: float, identity: Any, queue: str = "t:a:0") -> None:
        self.log[queue].append((identity, at))

    def read(self, at: float, queue: str, node: str, f: str = "poll", *, down: bool = False) -> None:
        if down:
            self.call(at, f, queue, 0, None, "fail", node=node)
            return
        there = [[offset, m] for offset, (m, since) in enumerate(self.log[queue]) if since <= at]
        done = {"done": True} if f == "replica-read" else {}
        self.call(at, f, queue, 0, there, node=node, max=len(there), **done)

    def reads(self, until: int, every_s: float = 0.5) -> None:
        """Polls of every queue at every node, then the final reads. A node that a fault has hit does not answer."""
        spells = [(op.time / S, op.f, op.value["nodes"]) for op in self.events if op.f in ("inject", "heal")]
        for n in range(int(until / every_s)):
            at = n * every_s
            down = {node for node in ("n1", "n2", "n3", "n4", "n5") if self._down(spells, node, at)}
            for queue, group in QUEUES.items():
                for node in GROUPS[group]:
                    self.read(at, queue, node, down=node in down)
        for queue, group in QUEUES.items():
            for node in GROUPS[group]:
                self.read(until, queue, node, "replica-read")

    @staticmethod
    def _down(spells: list[tuple[float, str, Any]], node: str, at: float) -> bool:
        mine = [f for time, f, nodes in sorted(spells, key=lambda s: s[0]) if node in nodes and time <= at]
        return bool(mine) and mine[-1] == "inject"

    def judge(self, traits: Traits | None = None, **environment: Any) -> CheckResult:
        deployment = DeploymentRecord("toy", groups=GROUPS, traits=traits or Traits())
        return Delays(limit_s=10, copied_within_s=75).check(self.run(deployment=deployment, environment=environment))


def test_a_message_that_comes_in_time_is_silent() -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.3, 1, "t:b:0")
    story.reads(30)
    result = story.judge()
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
    assert result.stats["after_due_s"]["max"] == 0.5
    assert "1 of 1 acknowledged" in result.reason


@pytest.mark.parametrize(
    ("delivered", "expected"),
    [
        ((), {"delayed-lost"}),
        ((4,), {"delivered-early"}),
        ((5.2,), set()),
        ((15.4,), set()),
        ((17.5,), {"delivered-late"}),
        ((6, 6.6), {"delivered-again"}),
        ((6, 25), {"reappeared"}),
    ],
)
def test_a_message_comes_once_and_when_it_is_due(delivered: tuple[float, ...], expected: set[str]) -> None:
    story = Story()
    story.delay(1, 1)
    for at in delivered:
        story.deliver(at, 1)
    story.reads(40)
    result = story.judge()
    assert names([result]) == expected
    assert result.verdict == (Verdict.INVALID if expected else Verdict.VALID)
    assert all(a.legal is None for a in result.anomalies)
    late = [a for a in result.anomalies if a.name == "delivered-late"]
    assert all(a.limit_s == 10 and a.window == (6_010_000_000, 17 * S) for a in late)


@pytest.mark.parametrize(
    ("recall", "at", "delivered", "expected"),
    [
        ("ok", 1.5, False, set()),
        ("ok", 1.5, True, {"recalled-delivered"}),
        ("ok", 4.5, True, set()),
        ("info", 1.5, False, set()),
        ("info", 1.5, True, set()),
        ("fail", 1.5, True, set()),
        ("fail", 1.5, False, {"delayed-lost"}),
    ],
)
def test_a_recalled_message_never_comes(recall: OpType, at: float, delivered: bool, expected: set[str]) -> None:
    story = Story()
    story.delay(1, 1)
    story.call(at, "recall", "t:a:0", 1, 1, recall, handle="h")
    story.delay(1, 2)
    story.deliver(6.2, 2)
    if delivered:
        story.deliver(6.2, 1)
    story.reads(30)
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(("outcome", "expected"), [("info", set()), ("fail", {"aborted-read"})])
def test_what_was_refused_never_comes(outcome: OpType, expected: set[str]) -> None:
    story = Story()
    story.delay(1, 1, type_=outcome)
    story.delay(1, 2)
    story.deliver(6.2, 2)
    story.deliver(6.2, 1)
    story.reads(30)
    assert names([story.judge()]) == expected


def test_what_nobody_sent_is_told() -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.2, 1)
    story.deliver(6.4, 77)
    story.deliver(6.4, "?ab")
    story.reads(30)
    result = story.judge()
    assert names([result]) == {"never-sent"}
    assert result.anomalies[0].details["count"] == 2


def test_a_message_that_was_read_and_is_gone_is_lost() -> None:
    story = Story()
    story.delay(1, 1)
    story.call(7, "poll", "t:a:0", 0, [[0, 1]], node="n1", max=1)
    story.reads(30)
    result = story.judge()
    assert names([result]) == {"delayed-lost"}
    assert "t:a:0:0 at" in result.anomalies[0].summary


def test_a_loss_that_the_configuration_permits_is_legal() -> None:
    story = Story()
    story.delay(1, 1)
    story.reads(30)
    result = story.judge(permits={"lost": "acknowledged by one replica"})
    assert (result.verdict, result.anomalies[0].legal) == (Verdict.VALID, "acknowledged by one replica")


@pytest.mark.parametrize(
    ("fault", "delivered", "late"),
    [
        ((4, 40, "n1"), 15, False),
        ((4, 40, "n1"), 18, True),  # a fault that lasts is no excuse: another node must deliver
        ((10, 40, "n1"), 19, False),  # the limit starts again when a fault begins
        ((4, 12, "n1"), 21, False),  # and when it ends
        ((4, 12, "n1"), 24, True),
        ((4, 40, "n1", "n2", "n3"), 44, False),  # nobody is left who has the message
    ],
)
def test_the_limit_starts_again_with_a_fault(fault: tuple[Any, ...], delivered: float, late: bool) -> None:
    story = Story()
    story.delay(1, 1)
    story.fault(*fault)
    story.deliver(delivered, 1, "t:b:0")
    story.reads(70)
    assert names([story.judge()]) == ({"delivered-late"} if late else set())


def test_nothing_is_owed_while_no_master_takes_a_message() -> None:
    story = Story()
    story.delay(1, 1)
    for second in range(7, 30, 2):
        story.delay(second, 100 + second, type_="fail")
    story.deliver(31, 1)
    story.reads(60)
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(("stands_in", "back", "late"), [(False, 40, False), (True, 40, True), (False, 20, True)])
def test_nobody_delivers_for_a_master_without_a_stand_in(stands_in: bool, back: float, late: bool) -> None:
    """Pairs of a master and a slave: b serves all the time, and a does not."""
    it = Story()
    it.delay(2, 1, wait_s=10)
    for n in range(60):
        it.delay(n, 1000 + n, 200, "fail" if 5 <= n < back else "ok")
        it.delay(n + 0.5, 2000 + n, 200, queue="t:b:0")
    it.deliver(44, 1)
    it.reads(60)
    result = it.judge(traits=Traits(stands_in=stands_in))
    assert ({"delivered-late"} & names([result])) == ({"delivered-late"} if late else set())


def test_a_message_that_no_master_could_take_is_not_lost() -> None:
    story = Story()
    story.delay(1, 1)
    for second in range(7, 30, 2):
        story.delay(second, 100 + second, type_="fail")
    story.reads(60)
    result = story.judge()
    assert (result.verdict, result.anomalies) == (Verdict.UNKNOWN, [])
    assert "1 undelivered messages could not be delivered" in result.reason


def test_a_node_that_was_not_read_proves_no_lateness() -> None:
    story = Story()
    story.delay(1, 1)
    story.call(2, "poll", "t:a:0", 0, [], node="n1", max=0)
    story.deliver(7, 1)
    story.reads(1)
    story.events = [e for e in story.events if e.f != "replica-read"]
    for queue, group in QUEUES.items():
        for node in GROUPS[group]:
            story.read(40, queue, node, "replica-read")
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(("name", "again"), [("delivered-again", 14.0), ("reappeared", 22.0)])
@pytest.mark.parametrize(("fault_at", "legal"), [(8, True), (None, False)])
def test_a_copy_after_a_fault_is_permitted(name: str, again: float, fault_at: float | None, legal: bool) -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.2, 1)
    story.deliver(again, 1)
    if fault_at is not None:
        story.fault(fault_at, 20, "n1")
    story.reads(50)
    result = story.judge()
    assert [(a.name, a.legal is not None) for a in result.anomalies] == [(name, legal)]
    assert result.verdict == (Verdict.VALID if legal else Verdict.INVALID)


@pytest.mark.parametrize(("wait_s", "legal"), [(5, True), (90, False)])
def test_an_escaped_copy_shows_that_a_slave_acted(wait_s: float, legal: bool) -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.2, 1)
    story.deliver(6.2 + wait_s, 1, "t:b:0")
    story.reads(150)
    (copy,) = story.judge().anomalies
    assert (copy.legal is not None) is legal


def test_a_copy_of_what_the_slaves_knew_long_ago_is_not_permitted() -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.2, 1)
    story.fault(100, 110, "n1")
    story.deliver(112, 1)
    story.reads(150)
    result = story.judge()
    assert [(a.name, a.legal) for a in result.anomalies] == [("reappeared", None)]


def test_what_is_not_proven_is_unknown() -> None:
    story = Story()
    story.delay(1, 1)
    story.deliver(6.2, 1)
    assert story.judge().verdict == Verdict.UNKNOWN, "nobody has read"
    story.reads(30)
    assert story.judge().verdict == Verdict.VALID
    story.call(31, "replica-read", "t:a:1", 0, [], node="n1", max=3)
    result = story.judge()
    assert result.verdict == Verdict.UNKNOWN
    assert "t:a:1 at n1" in result.reason
    early = Story()
    early.delay(1, 1)
    early.reads(8)
    assert "not yet due for long enough" in early.judge().reason
    nothing = Story()
    nothing.reads(5)
    assert nothing.judge().reason == "no delayed message was acknowledged"


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """A run of random messages, with a fault of a's master or none. Its brokers deliver in time, `bug` once not."""
    rng, story = Random(seed), Story()
    fault = rng.choice([None, (rng.uniform(3, 20), rng.uniform(2, 15))])
    if bug in ("delivered-again", "reappeared"):
        fault = None  # it would explain a copy
    if fault is not None:
        story.fault(fault[0], fault[0] + fault[1], "n1")
    victim = rng.randint(1, 20)
    for identity in range(1, 21):
        at, wait, queue = rng.uniform(0, 20), rng.choice([2, 5, 10]), rng.choice(list(QUEUES))
        outcome: OpType = "ok" if identity == victim else rng.choice(["ok", "ok", "ok", "info", "fail"])
        if bug == "aborted-read" and identity == victim:
            outcome = "fail"
        recalled = bug == "recalled-delivered" if identity == victim else wait > 2 and rng.random() < 0.2
        wait = 10 if identity == victim else wait
        story.delay(at, identity, wait, outcome, queue)
        if recalled and outcome == "ok":
            story.call(at + 0.1, "recall", queue, identity, identity, "ok", handle="h")
        due = at + wait + rng.uniform(0.1, 2.5)
        if fault is not None and fault[0] <= due <= fault[0] + 7 and queue == "t:a:0":
            due, queue = fault[0] + rng.uniform(7, 8), "t:b:0"
        if identity == victim:
            times = {None: [due], "delayed-lost": [], "delivered-early": [at + 6], "delivered-late": [due + 50]}
            copies = {"delivered-again": [due, due + 3], "reappeared": [due, due + 50]}
            for time in {**times, **copies}.get(bug, [due]):
                story.deliver(time, identity, queue)
        elif (outcome == "ok" and not recalled) or (outcome == "info" and rng.random() < 0.5):
            story.deliver(due, identity, queue)
            if fault is not None and due < fault[0] and rng.random() < 0.3:
                story.deliver(fault[0] + rng.uniform(5, 9), identity, "t:b:0")
    story.delay(45, 21, 2)  # the masters serve again after whatever happened
    story.deliver(47.5, 21)
    for queue, log in story.log.items():
        story.log[queue] = sorted(log, key=lambda entry: entry[1])
    story.reads(100, every_s=1)
    return story.judge()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_good_runs() -> None:
    alarms = {seed: r.reason for seed in range(1000) if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


PLANTED = (
    *("delayed-lost", "delivered-early", "delivered-late", "delivered-again", "reappeared"),
    *("recalled-delivered", "aborted-read"),
)


@pytest.mark.parametrize("bug", PLANTED)
@pytest.mark.slow
def test_every_planted_violation_is_found(bug: str) -> None:
    for seed in range(12):
        result = simulated(seed, bug)
        assert bug in {a.name for a in result.anomalies if a.legal is None}, (seed, result.reason)
