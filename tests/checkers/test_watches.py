# SPDX-License-Identifier: Apache-2.0
"""Watches: each alarm is an anomaly that the judges report too, good runs raise none, and the cost of an event does not
grow with the history.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
import stories
import transaction_stories
from effort import effort
from sim.rocketmq import Bug, simulate

from checkers.linearizability import Linearizable
from checkers.linearizability.models.registers import CasRegister
from checkers.linearizability.register_watch import RegisterWatch
from checkers.messages import delays, watches
from checkers.messages.log import LogAnomalies, LogLinearizable
from checkers.messages.transactions import Transactions
from checkers.messages.watches import DelayWatch, LogWatch, TransactionWatch
from results.alarm import Alarm
from results.history import History
from results.op import NEMESIS, Op
from results.record import RunRecord
from results.verdict import Verdict

S = 1_000_000_000

Event = tuple[int, str, str, str | None, Any, dict[str, Any]]
"""Process, type, f, key, value, extra."""


def ops_of(events: Iterable[Event]) -> list[Op]:
    return [
        Op(i, i * 1_000_000, process, type_, f, key, value, None, extra)  # type: ignore[arg-type]
        for i, (process, type_, f, key, value, extra) in enumerate(events)
    ]


def first_alarm(watch: Any, ops: Iterable[Op]) -> Alarm | None:
    return next((alarm for op in ops if op.is_client and (alarm := watch.see(op)) is not None), None)


def log_names(ops: Sequence[Op]) -> set[str]:
    record = RunRecord(History(ops))
    return {a.name for judge in (LogAnomalies(), LogLinearizable()) for a in judge.check(record).anomalies}


SEEN_EARLY = {
    Bug.LOSE: "nonlinearizable",
    Bug.SPLIT_BRAIN: "nonlinearizable",
    Bug.DUPLICATE: "nonlinearizable",
    Bug.SWAP: "nonlinearizable",
    Bug.SHIFT: "nonlinearizable",
    Bug.DIVERGE: "nonlinearizable",
    Bug.DIRTY: "nonlinearizable",
    Bug.INVERT: "hole",
    Bug.SKIP: "hole",
    Bug.HOLE: "hole",
    Bug.FORGET: "hole",
    Bug.PHANTOM: "aborted-read",
    Bug.STRAY: "never-sent",
}
"""Bug of the simulated brokers -> a name of its usual alarm. The others need final reads, or the faults of the run."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", SEEN_EARLY, ids=lambda bug: bug.name.lower())
def test_a_planted_violation_is_seen_before_the_end(bug: Bug) -> None:
    """The judges report the alarm in the whole run, and also if the history ends with it."""
    names, early, judged = Counter[str](), 0, 0
    for seed in range(effort(16, 6)):
        record, _ = simulate(seed, bug, 6.0, consumers=2 * (bug is Bug.FORGET))
        ops = list(record.history)
        whole = log_names(ops)
        judged += bool(whole)
        alarm = first_alarm(LogWatch(), ops)
        if alarm is None:
            continue
        names.update(alarm.names)
        early += ops[alarm.op].time < 6 * S
        assert whole & set(alarm.names), (seed, alarm)
        assert log_names(ops[: alarm.op + 1]) & set(alarm.names), (seed, alarm)
    assert names[SEEN_EARLY[bug]]
    assert early >= judged / 3 > 0


@pytest.mark.slow
@pytest.mark.parametrize("consumers", [0, 2])
def test_good_brokers_raise_no_alarm(consumers: int) -> None:
    """A thousand runs at night."""
    for seed in range(effort(125)):
        # (Consumers of the simulation do not report the beginning of a queue.)
        expiring = not consumers and seed % 3 == 0
        record, _ = simulate(seed, None, 3.0, consumers=consumers, owners=seed % 2, expiring=expiring)
        assert first_alarm(LogWatch(), record.history) is None, seed


@pytest.mark.slow
def test_an_alarm_of_lossy_brokers_is_one_that_their_permission_excuses() -> None:
    """Without strictness, brokers lose what they acknowledged, and their configuration permits this."""
    alarms = 0
    for seed in range(effort(60)):
        alarm = first_alarm(LogWatch(), simulate(seed, None, 4.0, strict=False)[0].history)
        assert alarm is None or {"lost", "dirty-read"} <= alarm.unless
        alarms += alarm is not None
    assert alarms


def sent(n: int, offset: int | None, key: str = "t:a:0", how: str = "ok") -> list[Event]:
    """A send from its request to its answer."""
    value = [offset, n] if how == "ok" else n
    return [(n, "invoke", "send", key, n, {}), (n, how, "send", key, value, {"node": "n1"})]


def polled(at: int, *found: Any, key: str = "t:a:0", **extra: Any) -> list[Event]:
    value = [list(one) for one in found]
    return [(99, "invoke", "poll", key, at, {}), (99, "ok", "poll", key, value, {"node": "n2", **extra})]


@pytest.mark.parametrize(
    ("events", "name"),
    [
        ([*sent(1, 0), *sent(2, 1), *polled(0, (0, 1), (1, 2))], None),
        ([*sent(1, 0), *sent(2, 0)], "nonlinearizable"),  # one offset twice
        ([*sent(1, 1), *sent(2, 0)], "nonlinearizable"),  # below one that was known
        ([sent(1, 1)[0], sent(2, 0)[0], sent(1, 1)[1], sent(2, 0)[1]], None),  # at one time
        ([*sent(1, None, how="info"), *sent(2, 1), *polled(0, (0, 1), (1, 2))], None),
        ([*sent(1, None, how="info"), *polled(0, (0, 1)), *sent(2, 0)], "nonlinearizable"),
        ([*sent(1, 0), *sent(2, 1), *polled(0, (0, 1), (1, 1))], "nonlinearizable"),  # one message twice
        ([*sent(1, 0), *polled(0, (0, 1), key="t:a:1")], "nonlinearizable"),  # in another queue
        ([*sent(1, None, how="fail"), *polled(0, (0, 1))], "aborted-read"),
        ([sent(1, 0)[0], *polled(0, (0, 1)), (1, "fail", "send", "t:a:0", 1, {})], "aborted-read"),
        ([*sent(1, 0), *polled(0, (0, 1), (1, "?64"))], "never-sent"),
        ([*sent(1, 0), *polled(0, (0, 1), (1, 2)), *sent(2, 1)], "read-before-send"),
        ([*polled(0, (0, "?64")), *sent(1, 1)], None),  # older than the run: not known before its end
        ([(5, "invoke", "max-offset", "t:a:0", None, {}), (5, "ok", "max-offset", "t:a:0", 1, {}), *sent(1, 1),
          *polled(0, (0, 77), (1, 1))], None),
        ([*sent(1, 0), *sent(2, 1), *sent(3, 2), *polled(0, (0, 1), (2, 3))], "hole"),
        ([*sent(1, 0), *sent(2, 1), *polled(0, (1, 2))], "poll-skip"),
        ([*sent(1, 0), *sent(2, 1), *polled(0, (1, 2), min=1)], None),  # trimmed
        ([*sent(1, 5), *sent(2, 6), *polled(0, (5, 1), (6, 2))], None),  # the queue begins there
        ([*sent(1, 0), (9, "invoke", "pop", "t:a:-1", None, {}),
          (9, "ok", "pop", "t:a:-1", [["t:a:0", 0, 1, "h", 0, 5]], {"node": "n1"})], None),
        ([*sent(1, 0), (9, "invoke", "pop", "t:a:-1", None, {}),
          (9, "ok", "pop", "t:a:-1", [["t:a:0", 3, 1, "h", 0, 5]], {"node": "n1"})], "nonlinearizable"),
        ([*sent(1, 0), (9, "invoke", "pop", "t:a:-1", None, {}),
          (9, "ok", "pop", "t:a:-1", [["t:a:0", 3, 1, "h", 1, 5]], {"node": "n1"})], None),  # from the retry topic
    ],
)  # fmt: skip
def test_rules_of_a_log(events: list[Event], name: str | None) -> None:
    """Each rule just within and just beyond; the judges agree."""
    ops = ops_of(events)
    alarm = first_alarm(LogWatch(), ops)
    assert (name in alarm.names) if alarm is not None else name is None, alarm
    assert alarm is None or log_names(ops) & set(alarm.names)


def test_a_message_that_is_sent_twice_ends_the_watch() -> None:
    """Then nobody knows which of the two an answer shows."""
    assert first_alarm(LogWatch(), ops_of([*sent(1, 0), *sent(1, 1), *sent(2, 0)])) is None


def random_register(rng: Random, wrong: float) -> list[Op]:
    """The history of a register that three processes use; with a chance, a read is answered with an older value."""
    events: list[Event] = []
    values, state, number = [None], None, 0
    open_: dict[int, tuple[str, Any]] = {}
    done: dict[int, Any] = {}
    for _ in range(rng.randint(6, 24)):
        process = rng.randrange(3)
        if process not in open_:
            f = rng.choice(("read", "write", "cas"))
            number += 1
            value = None if f == "read" else number if f == "write" else [rng.choice(values), number]
            open_[process] = f, value
            events.append((process, "invoke", f, "k", value, {}))
            continue
        f, value = open_[process]
        if process not in done:  # it takes effect, and is answered later
            seen = rng.choice(values) if rng.random() < wrong else state
            applies = f == "write" or (f == "cas" and value[0] == seen)
            if applies and rng.random() >= wrong / 2:
                state = value if f == "write" else value[1]
                values.append(state)
            done[process] = ("ok", seen) if f == "read" else ("ok" if applies else "fail", value)
        if rng.random() < 0.6:
            type_, answer = done.pop(process)
            del open_[process]
            events.append((process, type_, f, "k", answer, {}))
    return ops_of(events)


@pytest.mark.slow
def test_an_alarm_of_a_register_is_a_violation() -> None:
    """On random histories: the engine finds no order for what had happened until the alarm."""
    alarms = violations = 0
    for seed in range(effort(2000)):
        ops = random_register(Random(seed), wrong=0.15)
        found = Linearizable(CasRegister()).check(RunRecord(History(ops))).verdict == Verdict.INVALID
        alarm = first_alarm(RegisterWatch(), ops)
        violations += found
        if alarm is not None:
            alarms += 1
            assert found, seed
            prefix = RunRecord(History(ops[: alarm.op + 1]))
            assert Linearizable(CasRegister()).check(prefix).verdict == Verdict.INVALID, (seed, alarm)
    assert alarms > violations / 2 > 0
    assert all(first_alarm(RegisterWatch(), random_register(Random(seed), 0)) is None for seed in range(effort(500)))


def op(process: int, type_: str, f: str, value: Any) -> Event:
    return process, type_, f, "k", value, {}


def whole(process: int, f: str, value: Any, asked: Any = None) -> list[Event]:
    return [op(process, "invoke", f, value if f != "read" else asked), op(process, "ok", f, value)]


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([*whole(1, "write", 1), *whole(1, "write", 2), *whole(2, "read", 2)], False),
        ([*whole(1, "write", 1), *whole(1, "write", 2), *whole(2, "read", 1)], True),
        ([*whole(1, "write", 1), *whole(2, "read", None)], True),
        ([op(1, "invoke", "write", 1), *whole(2, "read", 1), *whole(2, "read", None)], True),  # new, then old
        ([op(1, "invoke", "write", 1), *whole(2, "read", None), *whole(2, "read", 1)], False),
        ([*whole(1, "write", 1), op(1, "invoke", "write", 2), *whole(2, "read", 2), *whole(2, "read", 1)], True),
        ([*whole(1, "write", 1), op(2, "invoke", "read", None), *whole(1, "write", 2), op(2, "ok", "read", 1)], False),
        ([*whole(1, "write", 1), *whole(1, "cas", [1, 2]), *whole(2, "cas", [1, 3])], True),
        ([*whole(1, "read", 5)], True),  # nobody wrote it
        ([op(1, "invoke", "write", 1), op(1, "fail", "write", None), *whole(2, "read", 1)], True),
        ([op(1, "invoke", "write", 1), *whole(2, "read", 1), op(1, "fail", "write", None)], True),
        ([*whole(1, "write", 1), *whole(1, "write", 2), *whole(1, "write", 1), *whole(2, "read", 2)], False),
    ],
)
def test_rules_of_a_register(events: list[Event], wrong: bool) -> None:
    """The last one writes a value twice, so that the watch knows nothing of this key."""
    ops = ops_of(events)
    assert (first_alarm(RegisterWatch(), ops) is not None) == wrong
    if wrong:
        assert Linearizable(CasRegister()).check(RunRecord(History(ops))).verdict == Verdict.INVALID


class DelayStory(stories.TimedStory):
    def delay(self, at: float, identity: int, type_: Any = "ok") -> None:
        self.call(at, "delay", "t:a:0", identity, [0, identity] if type_ == "ok" else identity, type_, wait_ms=5000)

    def read(self, at: float, *found: int) -> None:
        self.call(at, "poll", "t:a:0", 0, [[i, m] for i, m in enumerate(found)], node="n1", max=len(found))


@pytest.mark.parametrize(
    ("outcome", "recalled_at", "read_at", "what", "name"),
    [
        ("ok", None, 6.2, 1, None),
        ("ok", None, 5.3, 1, None),  # within the precision of the timer
        ("ok", None, 4.9, 1, "delivered-early"),
        ("fail", None, 6.2, 1, "aborted-read"),
        ("info", None, 6.2, 1, None),
        ("ok", 2.0, 6.2, 1, "recalled-delivered"),
        ("ok", 4.5, 6.2, 1, None),  # the recall may have come too late
        ("ok", None, 6.2, 7, "never-sent"),
    ],
)
def test_rules_of_delayed_messages(
    outcome: str, recalled_at: float | None, read_at: float, what: int, name: str | None
) -> None:
    story = DelayStory()
    story.delay(1, 1, outcome)
    if recalled_at is not None:
        story.call(recalled_at, "recall", "t:a:0", 1, 1, "ok")
    story.read(read_at, what)
    run = story.run()
    alarm = first_alarm(DelayWatch(), run.history)
    assert (name in alarm.names) if alarm is not None else name is None
    found = {a.name for a in delays.Delays().check(run).anomalies}
    assert alarm is None or found & set(alarm.names)


@pytest.mark.parametrize(
    ("outcome", "end", "name"),
    [
        ("ok", "commit", None),
        ("ok", "rollback", "rolled-back-read"),
        ("ok", None, "uncommitted-read"),
        ("info", None, "uncommitted-read"),
        ("fail", None, "aborted-read"),
    ],
)
def test_rules_of_transactions(outcome: Any, end: str | None, name: str | None) -> None:
    story = transaction_stories.Story(until=10)
    story.half(1, 1, outcome)
    if end is not None:
        story.end(2, 1, end)
    story.deliver(2.1, 1)
    story.finish()
    run = story.run()
    alarm = first_alarm(TransactionWatch(), run.history)
    assert (name in alarm.names) if alarm is not None else name is None
    assert alarm is None or {a.name for a in Transactions().check(run).anomalies} & set(alarm.names)
    java = first_alarm(TransactionWatch(ends=False), run.history)
    assert (java is not None) == (name == "aborted-read")


def test_the_limits_are_those_of_the_judge() -> None:
    assert (watches.EARLY_NS, watches.TOO_LATE_NS) == (delays.EARLY_NS, delays.TOO_LATE_NS)


def lines_of(watch: Any, ops: Sequence[Op]) -> list[int]:
    """The number of lines of Python that the watch executes for each event."""
    count = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    found = []
    for op in ops:
        count, before = 0, sys.gettrace()
        sys.settrace(trace)
        try:
            assert watch.see(op) is None
        finally:
            sys.settrace(before)
        found.append(count)
    return found


@pytest.mark.slow
def test_an_event_costs_the_same_at_the_end_of_a_long_run() -> None:
    """Counted in lines: at most 40 for an event, and 15 for a new message of a read, 3 for one that was read before."""
    events: list[Event] = []
    count, batch = effort(4000), 16
    for n in range(1, count + 1):
        events += sent(n, n - 1)
        if n % batch == 0:
            shown = [(offset, offset + 1) for offset in range(n - batch, n)]
            for _ in range(3):  # of three nodes
                events += polled(n - batch, *shown)
    ops = ops_of(events)
    watch = LogWatch()
    lines = lines_of(watch, ops)
    for op, number in zip(ops, lines, strict=True):
        assert number <= 40 + (15 * batch if op.f == "poll" and op.type == "ok" else 0)
    again = [n for op, n in zip(ops, lines, strict=True) if op.f == "poll" and op.type == "ok"]
    assert max(again[1::3]) <= 40 + 3 * batch
    tenth = len(lines) // 10
    assert sum(lines[-tenth:]) <= 1.1 * sum(lines[:tenth])
    assert watch.work == 3 * (count // batch) * batch
    registers = [e for n in range(1, count) for e in (*whole(1, "write", n), *whole(2, "read", n))]
    assert max(lines_of(RegisterWatch(), ops_of(registers))) <= 40


def test_nemesis_events_are_not_for_watches() -> None:
    """`harness.run.lookout` passes events of clients alone."""
    assert first_alarm(LogWatch(), [Op(0, 0, NEMESIS, "info", "send", None, None)]) is None
