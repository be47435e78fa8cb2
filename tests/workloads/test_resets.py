# SPDX-License-Identifier: Apache-2.0
"""Resets of a group's offsets in virtual time: the workload `queue` against brokers in memory, right or with a bug."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest
from effort import effort
from sim.plays import judged as judged_by
from sim.plays import play, struck
from workloads_in_memory import JUDGES, NODES, Brokers, places

from harness.api import Completion
from harness.plan.plan import Plan, PlanError
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.pulling import OffsetsReset
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import Observation, RunRecord
from results.verdict import Judgement, Verdict
from workloads.places import Queue, queue_of
from workloads.queue import QueueWorkload
from workloads.resets import reset

S = 1_000_000_000
DOWN_S = 1.0
COPIED_S = 2.0


class ResetBrokers(Brokers):
    """Brokers that take resets. `bug`: what goes wrong with a third of them. `struck`: how often it did.

    kill_at  the time (s) at which the master is killed; it comes back with a copy of the offsets that is 2 s old, and
             without the resets that no client has fetched. None: never.
    """

    def __init__(self, seed: int, trouble: float = 0.0, bug: str = "", kill_at: float | None = None) -> None:
        super().__init__(Random(seed), trouble, forgetful=False)
        self.reset_bug, self.kill_at = bug, kill_at
        self.struck = 0
        self.pending: dict[tuple[str, str], int] = {}
        self.stored: dict[str, list[float]] = {}
        self.handles = count()
        self.copies: list[tuple[float, dict[Any, int], dict[str, int]]] = []
        self.killed = False
        self.ignored: set[tuple[str, str]] = set()
        """(group, queue) whose commits have no effect."""

    async def invoke(self, op: Op) -> Completion:
        now = asyncio.get_running_loop().time()
        if self.kill_at is not None and op.f not in ("assign", "crash"):
            if self.kill_at <= now < self.kill_at + DOWN_S:
                self._kill()
                await asyncio.sleep(0.01)
                return Completion("fail", op.value, "connection refused", {"node": "n1"})
            if not self.copies or self.copies[-1][0] < now - COPIED_S / 2:
                self.copies.append((now, dict(self.committed), dict(self.popped)))
        if op.f != "reset":
            return await super().invoke(op)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        luck = self.rng.random()
        if luck < self.trouble:
            return Completion("fail", op.value, "refused", {"node": "n1"})
        if luck < 1.5 * self.trouble:
            if self.rng.random() < 0.7:
                asyncio.get_running_loop().call_later(self.rng.uniform(0, 2), self.do, op)
            return Completion("info", op.value, "no answer", {"node": "n1"})
        return self.do(op)

    def _kill(self) -> None:
        if self.killed or not self.copies:
            return
        self.killed = True
        _, self.committed, self.popped = next(
            (c for c in reversed(self.copies) if c[0] < self.kill_at - 1), self.copies[0]
        )
        self.pending.clear()

    def do(self, op: Op) -> Completion:
        group, key = op.extra.get("group") or "", op.key or ""
        place = (group, key)
        match op.f:
            case "send":
                self.stored.setdefault(key, []).append(asyncio.get_running_loop().time())
            case "reset":
                return self._reset(op, group)
            case "consume" if place in self.pending:
                to = self.pending.pop(place)
                if self._strikes("stuck"):
                    self.ignored.add(place)
                end = len(self.queues.get(key, []))
                extra = {"node": "n1", "group": group, "min": 0, "max": end, "next": to, "code": 21}
                if self._strikes("lost-answer"):
                    extra |= {"next": op.value, "code": 19}
                return Completion("ok", [], extra=extra)
            case "commit" if place in self.pending or place in self.ignored:
                return Completion("ok", op.value, extra={"node": "n1", "group": group, "code": 0})
            case "committed" if place in self.pending:
                extra = {"node": "n1", "group": group, "code": 0}
                return Completion("ok", self.pending[place], extra=extra)
        return super().do(op)

    def _strikes(self, bug: str, chance: float = 0.3) -> bool:
        struck = self.reset_bug == bug and self.rng.random() < chance
        self.struck += struck
        return struck

    def _reset(self, op: Op, group: str) -> Completion:
        queue = queue_of(op.key)
        named = [q.key for q in places().queues] if queue.number < 0 else [queue.key]
        found: dict[str, int] = {}
        for key in named:
            end = len(self.queues.get(key, []))
            if op.extra["to"] == "offset":
                if op.value > end + 1:
                    return Completion("fail", op.value, "not in consume queue range", {"node": "n1", "group": group})
                found[key] = op.value
            elif op.extra["to"] == "end":
                found[key] = end
            else:
                ago_s = op.extra["ago_ms"] / 1000 - (3 if self._strikes("wrong-time") else 0)
                since = asyncio.get_running_loop().time() - ago_s
                found[key] = sum(at < since for at in self.stored.get(key, ()))
        for key, to in found.items():
            if self._strikes("deaf"):
                continue
            more = 3 if self._strikes("high") else -5 if self._strikes("low") else 0
            self._set(group, key, max(0, to + more))
        if self._strikes("others"):
            self._set(group, self.rng.choice(places().queues).key, 0)
        return Completion("ok", found, extra={"node": "n1", "code": 0, **op.extra})

    def _set(self, group: str, key: str, to: int) -> None:
        self.committed[group, key] = self.pending[group, key] = self.popped[key] = to

    def pop(self, source: Queue, now: float, invisible_ms: int) -> list[Any]:
        found = super().pop(source, now, invisible_ms)
        for entry in found:
            lease = self.leased.pop(entry[3])
            entry[3] = f"{entry[3]}/{next(self.handles)}"
            self.leased[entry[3]] = lease
        return found


def run(
    seed: int, consume: str = "pull", seconds: float = 10, kill: bool = False, **how: Any
) -> tuple[Judgement, RunRecord, ResetBrokers]:
    """A run of the workload with a reset a second, and its verdict."""
    dice = Random(seed)
    options = {"consume": consume, "resets": "0.7s", "invisible": "2s"}
    plan = Plan(
        seed=seed, rate=dice.uniform(80, 200), concurrency=dice.randint(4, 9), workload="queue", options=options
    )
    workload = QueueWorkload(plan)
    workload._places, workload.group = places(), "g"
    brokers = ResetBrokers(seed, kill_at=dice.uniform(3, 6) if kill else None, **how)

    def calm() -> None:
        brokers.trouble, brokers.reset_bug = 0, ""

    ops = play(workload, lambda thread: brokers, seconds, NODES, final_s=90, before_final=calm)
    history = History(ops)
    if brokers.kill_at is not None:
        history = struck(ops, "kill", "n1", brokers.kill_at, brokers.kill_at + DOWN_S)
    seen = [Observation(s * S, "n1", "leader", term=1, extra={"broker_name": "a"}) for s in range(int(seconds * 4))]
    record = RunRecord(history, observations=seen)
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""))
    return judged_by(workload, record, deployment, *JUDGES, "replays"), record, brokers


def good_runs(seeds: range) -> tuple[dict[Any, str], Counter[str]]:
    wrong: dict[Any, str] = {}
    excused: Counter[str] = Counter()
    for seed in seeds:
        for consume in ("pull", "pop"):
            judgement, record, _ = run(seed, consume, trouble=0.02 * (seed % 3), kill=seed % 2 == 1)
            # After a reset of unknown outcome, nothing may be proven.
            bad = [
                r for r in judgement.results if r.verdict != Verdict.VALID and "no acknowledged reset" not in r.reason
            ]
            if bad:
                wrong[seed, consume] = "; ".join(f"{r.checker}: {r.reason}" for r in bad)
            excused.update({e.rule: e.used for r in judgement.results for e in r.excuses})
            excused["reset"] += sum(op.f == "reset" and op.type == "ok" for op in record.history)
    return wrong, excused


@pytest.mark.slow
def test_good_brokers_raise_no_alarm() -> None:
    wrong, excused = good_runs(range(8))
    assert wrong == {}
    assert excused["reset"] > 50
    assert excused["redelivered"] > 0
    assert excused["passed-over"] > 0
    assert excused["acked-redelivered"] > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_many_good_brokers_raise_no_alarm() -> None:
    assert good_runs(range(100, 100 + effort(20)))[0] == {}


BUGS = {
    ("pull", "deaf"): {"not-replayed"},
    ("pull", "high"): {"not-replayed", "skipped-by-reset", "poll-skip"},
    ("pull", "low"): {"redelivered", "poll-skip"},
    ("pull", "others"): {"redelivered"},
    ("pull", "lost-answer"): {"not-replayed"},
    ("pull", "stuck"): {"committed-offset-regression", "redelivered"},
    ("pull", "wrong-time"): {"wrong-reset-time"},
    ("pop", "wrong-time"): {"wrong-reset-time"},
    ("pop", "deaf"): {"not-replayed", "skipped-by-reset"},
    ("pop", "high"): {"not-replayed", "skipped-by-reset"},
    ("pop", "low"): {"acked-redelivered"},
    ("pop", "others"): {"acked-redelivered"},
}
"""(the way the group consumes, the bug) -> the names, each of which must be found."""

ALSO = {"committed-offset-regression", "committed-offset-jump", "leased-twice"}
"""Further names that such a bug may show: the group's offset is not the one that was set."""


@pytest.mark.parametrize(("consume", "bug"), BUGS)
@pytest.mark.slow
def test_a_planted_bug_is_called_by_its_name(consume: str, bug: str) -> None:
    found: set[str] = set()
    for seed in range(3):
        judgement, _, brokers = run(seed, consume, bug=bug)
        assert brokers.struck > 0
        mine = {a.name for a in judgement.anomalies if a.legal is None}
        assert judgement.verdict == Verdict.INVALID, (seed, judgement.reason)
        found |= mine
    assert BUGS[consume, bug] <= found <= BUGS[consume, bug] | ALSO


def test_resets_go_to_offsets_to_times_and_to_the_end() -> None:
    _, record, _ = run(1)
    resets = [op for op in record.history if op.f == "reset" and op.type == "invoke"]
    assert {op.extra["to"] for op in resets} == {"offset", "time", "end"}
    assert {op.process % 1000 for op in resets} == {0}
    gaps = [b.time - a.time for a, b in pairwise(resets)]
    assert min(gaps) < 0.1 * S
    assert max(gaps) > 0.6 * S
    assert all((op.value is None) == (op.extra["to"] != "offset") for op in resets)


def test_without_the_option_nothing_is_reset() -> None:
    plan = Plan(seed=1, rate=100, concurrency=4, workload="queue", options={})
    workload = QueueWorkload(plan)
    assert "broker.useServerSideResetOffset" not in workload.server_settings()
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""))
    assert "replays" not in {checker.name for checker in workload.checkers(deployment)}


def test_two_clients_are_too_few() -> None:
    with pytest.raises(PlanError, match="--resets, queue needs 3 clients"):
        QueueWorkload(Plan(seed=1, concurrency=2, workload="queue", options={"resets": "5s"}))


class _OldBroker:
    """A broker that resets the offsets of connected members only, and has none. fails: the queue whose commit fails."""

    def __init__(self, fails: int | None = None) -> None:
        self.fails, self.commits = fails, list[tuple[int, int]]()

    async def reset_offsets(self, *_: Any, **__: Any) -> OffsetsReset:
        return OffsetsReset(Outcome("fail", "no member"), code=206)

    async def max_offset(self, topic: str, queue: int) -> Answer:
        return Answer(Outcome("ok", ""), 40 + queue)

    async def offset_at(self, topic: str, queue: int, time_ms: int) -> Answer:
        return Answer(Outcome("ok", ""), 10 + queue)

    async def commit_offset(self, topic: str, queue: int, group: str, offset: int) -> Answer:
        if queue == self.fails:
            return Answer(Outcome("fail", "refused"))
        self.commits.append((queue, offset))
        return Answer(Outcome("ok", ""))


@pytest.mark.parametrize(
    ("to", "fails", "type_", "commits"),
    [
        ("time", None, "ok", [(0, 10), (1, 11)]),
        ("end", None, "ok", [(0, 40), (1, 41)]),
        ("end", 0, "fail", []),
        ("end", 1, "info", [(0, 40)]),
        ("offset", None, "fail", []),
    ],
)
def test_a_reset_without_members_commits_as_mqadmin_does(
    to: str, fails: int | None, type_: str, commits: list[tuple[int, int]]
) -> None:
    """A part of the queues may have new offsets after a failure: then the outcome is unknown."""
    broker: Any = _OldBroker(fails)
    ago = {"ago_ms": 1000} if to == "time" else {}
    op = Op(0, 0, 0, "invoke", "reset", "t:a:-1", None, extra={"group": "g", "to": to, **ago})
    _, done = asyncio.run(reset(broker, op, queue_of("t:a:-1"), {}, 2))
    assert (done.type, broker.commits) == (type_, commits)
    if type_ == "ok":
        assert done.value == {f"t:a:{queue}": offset for queue, offset in commits}
        assert done.extra["by"] == "commit"
