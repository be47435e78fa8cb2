# SPDX-License-Identifier: Apache-2.0
"""Sets and counters that converge: silent on good histories of simulated nodes, and each planted violation is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from effort import effort

from checkers.converging import COUNTER, SET, Promise
from checkers.converging.checker import Converging
from checkers.converging.sums import SubsetSums
from checkers.linearizability.models.values import freeze
from results.history import History
from results.op import Op, OpType
from results.verdict import CheckResult, Verdict

SECOND = 10**9


class Nodes:
    """A simulated system: each node has the adds that reached it. Each has two clients, whose operations overlap."""

    def __init__(self, seed: int, promise: Promise, unknown: float = 0.2) -> None:
        self.rng, self.promise, self.unknown = Random(seed), promise, unknown
        self.ops: list[Op] = []
        self.held: list[dict[int, Any]] = [{} for _ in range(3)]
        self.process = {client: client for client in range(6)}  # client % 3 is its node
        self.open: list[tuple[int, Callable[[], None]]] = []
        self.fresh, self.time = 6, 0

    def event(self, process: int, type_: OpType, f: str, value: Any, **extra: Any) -> None:
        self.time += self.rng.randint(0, 1000)
        self.ops.append(Op(len(self.ops), self.time, process, type_, f, None, value, extra=extra))

    def add(self, client: int) -> None:
        number, process, held = len(self.ops), self.process[client], self.held[client % 3]
        value = self.rng.choice([number, f"e{number}"]) if self.promise is SET else self.rng.randint(-3, 5)
        self.event(process, "invoke", "add", value)
        kind = self.rng.random()
        type_: OpType = "ok" if kind > self.unknown else "fail" if kind > self.unknown / 2 else "info"
        happens = type_ == "ok" or (type_ == "info" and self.rng.random() < 0.5)
        at_once = self.rng.random() < 0.5
        if happens and at_once:
            held[number] = value

        def complete() -> None:
            if happens and not at_once:
                held[number] = value
            self.event(process, type_, "add", value)
            if type_ == "info":
                self.process[client], self.fresh = self.fresh, self.fresh + 1

        self.open.append((client, complete))

    def gossip(self) -> None:
        one, other = self.rng.choice(self.held), self.rng.choice(self.held)
        one.update(other)

    def read(self, client: int, **extra: Any) -> None:
        process = self.process[client]
        self.event(process, "invoke", "read", None, **extra)

        def complete() -> None:
            held = list(self.held[client % 3].values())
            self.rng.shuffle(held)
            self.event(process, "ok", "read", held if self.promise is SET else sum(held), **extra)

        self.open.append((client, complete))

    def complete(self) -> None:
        self.open.pop(self.rng.randrange(len(self.open)))[1]()

    def run(self, steps: int, *, marked: bool = True) -> History:
        for _ in range(steps):
            free = sorted(self.process.keys() - {client for client, _ in self.open})
            choice = self.rng.random()
            if self.open and choice < 0.4:
                self.complete()
            elif free and choice < 0.8:
                (self.add if choice < 0.65 else self.read)(self.rng.choice(free))
            else:
                self.gossip()
        while self.open:
            self.complete()
        for held in self.held:
            self.held[0].update(held)
        self.held = [dict(self.held[0]) for _ in self.held]
        self.time += 6 * SECOND
        for client in range(3):
            self.read(client, **({"final?": True} if marked else {}))
        while self.open:
            self.complete()
        return History(self.ops)


def judged(history: Sequence[Op], promise: Promise) -> CheckResult:
    return Converging(promise).examine(History(history))


def names(found: CheckResult) -> set[str]:
    return {anomaly.name for anomaly in found.anomalies}


def acknowledged(history: History) -> list[Op]:
    return [op for op in history if op.f == "add" and op.type == "ok"]


@pytest.mark.parametrize("promise", [SET, COUNTER], ids=["set", "counter"])
def test_good_histories_are_silent(promise: Promise) -> None:
    """Adds that failed, and those of unknown outcome, which happened or not; stale reads; with and without marks."""
    for seed in range(effort(2000)):
        history = Nodes(seed, promise).run(Random(seed).randint(1, 60), marked=seed % 3 > 0)
        found = judged(history, promise)
        wanted = Verdict.VALID if acknowledged(history) else Verdict.UNKNOWN
        assert found.verdict == wanted, (seed, found.reason)


def changed(history: History, place: int, value: Any) -> list[Op]:
    return [replace(op, value=value) if op.index == place else op for op in history]


def finals(history: History) -> list[Op]:
    return [op for op in history if op.type == "ok" and op.extra.get("final?")]


def _lose_at_one(rng: Random, history: History) -> list[Op]:
    """A node that never converges."""
    lost, last = rng.choice(acknowledged(history)).value, rng.choice(finals(history))
    return changed(history, last.index, [e for e in last.value if e != lost])


def _lose_everywhere(rng: Random, history: History) -> list[Op]:
    lost = rng.choice(acknowledged(history)).value
    ends = {op.index for op in finals(history)}
    return [replace(op, value=[e for e in op.value if e != lost]) if op.index in ends else op for op in history]


def _from_nowhere(rng: Random, history: History) -> list[Op]:
    read = rng.choice([op for op in history if op.f == "read" and op.type == "ok"])
    return changed(history, read.index, [*read.value, -7])


def _too_early(rng: Random, history: History) -> list[Op]:
    """The first read has the element of the last add."""
    first = next(op for op in history if op.f == "read" and op.type == "ok")
    last = [op for op in history if op.f == "add" and op.type == "invoke" and op.index > first.index]
    value = last[-1].value if last else -7
    return changed(history, first.index, [*first.value, value])


def _aborted(rng: Random, history: History) -> list[Op]:
    """The element of an add that certainly failed."""
    failed = [op.value for op in history if op.type == "fail"] or [-7]
    read = rng.choice(finals(history))
    return changed(history, read.index, [*read.value, rng.choice(failed)])


def _another_form(rng: Random, history: History) -> list[Op]:
    """The text of a number is another element."""
    read = finals(history)[0]
    return changed(history, read.index, [*read.value[:-1], f"{read.value[-1]}!"])


PLANTED: dict[Callable[[Random, History], list[Op]], set[str]] = {
    _lose_at_one: {"lost-element"},
    _lose_everywhere: {"lost-element"},
    _from_nowhere: {"never-added"},
    _too_early: {"never-added"},
    _aborted: {"never-added"},
    _another_form: {"never-added"},
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_violation_of_a_set_is_found(plant: Callable[[Random, History], list[Op]]) -> None:
    for seed in range(effort(200)):
        history = Nodes(seed, SET).run(40)
        if acknowledged(history):
            found = judged(plant(Random(seed), history), SET)
            assert found.verdict == Verdict.INVALID, seed
            assert PLANTED[plant] <= names(found), (seed, found.reason)


@pytest.mark.parametrize("ends", [1, 3], ids=["one node", "all nodes"])
@pytest.mark.parametrize("times", [0, 2], ids=["lost", "counted twice"])
def test_a_violation_of_a_counter_is_found(times: int, ends: int) -> None:
    """Of adds of which every outcome is known; a counter has no name for an add, so its sum has to show it."""
    for seed in range(effort(200)):
        history = Nodes(seed, COUNTER, unknown=0).run(40)
        adds = [op.value for op in acknowledged(history) if op.value]
        if adds:
            change = Random(seed).choice(adds) * (times - 1)
            odd = {op.index for op in finals(history)[:ends]}
            found = judged([replace(op, value=op.value + change) if op.index in odd else op for op in history], COUNTER)
            assert (found.verdict, names(found)) == (Verdict.INVALID, {"wrong-sum"}), seed
            assert "is not" in found.reason or "all adds until then" in found.reason


def history_of(*events: tuple[int, OpType, str, Any], final: int = 0, gap: int = 1) -> list[Op]:
    """The last `final` events are of marked reads."""
    first = len(events) - final
    return [
        Op(at, at * gap, process, type_, f, None, value, extra={"final?": True} if at >= first else {})
        for at, (process, type_, f, value) in enumerate(events)
    ]


def read(process: int, value: Any) -> list[tuple[int, OpType, str, Any]]:
    return [(process, "invoke", "read", None), (process, "ok", "read", value)]


ADDED: list[tuple[int, OpType, str, Any]] = [(0, "invoke", "add", 2), (0, "ok", "add", 2)]
OPEN: list[tuple[int, OpType, str, Any]] = [(1, "invoke", "add", 5), (1, "info", "add", 5)]


@pytest.mark.parametrize("total", [2, 7])
def test_an_add_of_unknown_outcome_may_count_in_a_counter_or_not(total: int) -> None:
    for events in ([*ADDED, *OPEN], [*ADDED, OPEN[0]]):
        found = judged(history_of(*events, *read(2, total), *read(3, total), final=4), COUNTER)
        assert found.verdict == Verdict.VALID
        assert found.stats["notes"] == ["1 adds of unknown outcome may or may not count"]
    for wrong in (0, 3, 4, 5, 12):
        assert judged(history_of(*ADDED, *OPEN, *read(2, wrong), final=2), COUNTER).verdict == Verdict.INVALID


def test_nodes_that_disagree_about_adds_of_unknown_outcome_are_undecided() -> None:
    """It may have come between the two reads; or a node does not converge."""
    counter = judged(history_of(*ADDED, *OPEN, *read(2, 2), *read(3, 7), final=4), COUNTER)
    elements = judged(history_of(*ADDED, *OPEN, *read(2, [2]), *read(3, [5, 2]), final=4), SET)
    for found, said in (
        (counter, "the final reads differ (2 to 7)"),
        (elements, "1 elements of adds of unknown outcome"),
    ):
        assert (found.verdict, said in found.reason) == (Verdict.UNKNOWN, True), found.reason


def test_an_element_of_unknown_outcome_that_was_seen_is_known() -> None:
    """A read showed it before the final ones: from then on it cannot be missing."""
    found = judged(history_of(*ADDED, *OPEN, *read(4, [5]), *read(2, [2]), *read(3, [5, 2]), final=4), SET)
    assert (found.verdict, names(found)) == (Verdict.INVALID, {"lost-element"})
    assert found.reason == "element 5 was added (op 2) and is not in 1 of 2 final reads (op 6 of process 2)"


def test_an_add_that_failed_never_counts() -> None:
    """Nor does it, or the late end of an add of unknown outcome, make a final read an early one."""
    failed: list[tuple[int, OpType, str, Any]] = [(1, "invoke", "add", 5), (1, "fail", "add", 5)]
    assert judged(history_of(*ADDED, *failed, *read(2, 7), final=2), COUNTER).verdict == Verdict.INVALID
    assert names(judged(history_of(*ADDED, *failed, *read(4, [5]), *read(2, [2]), final=2), SET)) == {"never-added"}
    for end in (failed[1], OPEN[1]):
        for promise, value in ((COUNTER, 2), (SET, [2])):
            late = history_of(*ADDED, OPEN[0], *read(2, value), end, final=3)
            assert judged(late, promise).verdict == Verdict.VALID


def test_a_read_may_show_what_was_added_while_it_lasted() -> None:
    for promise, value in ((COUNTER, 2), (SET, [2])):
        around = history_of((2, "invoke", "read", None), *ADDED, (2, "ok", "read", value), *read(3, value), final=2)
        assert judged(around, promise).verdict == Verdict.VALID


def test_sums_that_cannot_be_decided_are_unknown() -> None:
    """Forty adds of unknown outcome, and numbers so far apart that their sums fill no table."""
    open_: list[tuple[int, OpType, str, Any]] = [(9 + at, "invoke", "add", 10**15 + 7 * at * at) for at in range(40)]
    found = judged(history_of(*ADDED, *open_, *read(1, 10**15 + 3), final=2), COUNTER)
    assert (found.verdict, "too many sums of 40 adds" in found.reason) == (Verdict.UNKNOWN, True)


def test_a_counter_that_read_more_than_was_added_is_wrong_before_the_end() -> None:
    for total, said in ((3, "all adds until then make at most 2"), (-1, "all adds until then make at least 0")):
        found = judged(history_of(*ADDED, *read(4, total), *ADDED, *read(4, 4), final=2), COUNTER)
        assert (found.verdict, said in found.reason) == (Verdict.INVALID, True)


@pytest.mark.parametrize("promise", [SET, COUNTER], ids=["set", "counter"])
def test_without_final_reads_nothing_is_proven(promise: Promise) -> None:
    """Not marked, and no pause; marked, but before the end of an add; asked for, but never answered."""
    value: Any = [2] if promise is SET else 2
    asked: list[tuple[int, OpType, str, Any]] = [(1, "invoke", "read", None), (1, "info", "read", None)]
    more: list[tuple[int, OpType, str, Any]] = [(2, "invoke", "add", 3), *read(3, value), (2, "ok", "add", 3)]
    for history, said in (
        (history_of(*ADDED, *read(1, value)), "no final reads: no read is marked"),
        (history_of(*ADDED, *more, final=3), "its final reads began before an add was over (op 5)"),
        (history_of(*ADDED, *asked, final=2), "no final read was answered"),
        (history_of(*ADDED, *read(3, value), *OPEN, final=4), "its final reads began before an add was over (op 4)"),
    ):
        found = judged(history, promise)
        assert found.verdict == Verdict.UNKNOWN
        assert said in found.reason


def test_reads_after_a_pause_are_final_if_none_is_marked() -> None:
    """After the last fault, too; a mark anywhere says that the others are not final."""
    good, stale = read(1, [2]), read(1, [])
    for events, verdict in ((good, Verdict.VALID), (stale, Verdict.INVALID)):
        found = judged(history_of(*ADDED, *events, gap=5 * SECOND), SET)
        assert found.verdict == verdict
        assert found.stats["notes"] == [
            "no read is marked as final: those count that begin 5 s after the last add and fault"
        ]
        assert judged(history_of(*ADDED, *events, gap=5 * SECOND - 1), SET).verdict == Verdict.UNKNOWN
    healed = Op(2, 9 * SECOND, -1, "info", "stop")
    history = history_of(*ADDED, (-1, "invoke", "stop", None), *stale, gap=5 * SECOND)
    late = [replace(op, time=op.time - SECOND) if op.index > 2 else op for op in history]
    assert judged([*late[:2], replace(healed, time=10 * SECOND), *late[3:]], SET).verdict == Verdict.UNKNOWN


def test_keys_are_judged_apart() -> None:
    events = history_of(*ADDED, *read(1, [2]), final=2)
    other = [
        replace(
            op,
            index=op.index + 4,
            time=op.time + 4,
            key="b",
            value=[] if op.type == "ok" and op.f == "read" else op.value,
        )
        for op in events
    ]
    found = judged([*[replace(op, key="a") for op in events], *other], SET)
    assert (found.verdict, [a.key for a in found.anomalies]) == (Verdict.INVALID, ["b"])
    assert found.reason.startswith("key b: element 2 was added (op 4) and is not in the final read (op 6")
    without = [replace(op, key="b", extra={}) for op in other]
    found = judged([*[replace(op, key="a") for op in events], *without], SET)
    assert (found.verdict, found.reason) == (
        Verdict.UNKNOWN,
        "1 of 2 keys undecided, the first: key b: no final read of it",
    )


@pytest.mark.parametrize("value", ["x", 1.5, True, None, [1]])
def test_a_counter_of_something_else_is_refused(value: Any) -> None:
    for events in (
        [*ADDED, *read(1, value)],
        [(0, "invoke", "add", value), (0, "ok", "add", value), *read(1, 2)],
    ):
        found = judged(history_of(*events, final=2), COUNTER)
        assert (found.verdict, "is a whole number, not" in found.reason) == (Verdict.UNKNOWN, True)


def test_elements_are_equal_if_they_mean_the_same() -> None:
    """1.0 is 1, an object has no order, `true` is not 1."""
    element = {"a": 1, "b": [2.0]}
    events = [(0, "invoke", "add", element), (0, "ok", "add", element)]
    assert judged(history_of(*events, *read(1, [{"b": [2], "a": 1.0}]), final=2), SET).verdict == Verdict.VALID
    assert freeze(True) != freeze(1)
    found = judged(history_of((0, "invoke", "add", 1), (0, "ok", "add", 1), *read(1, [True]), final=2), SET)
    assert names(found) == {"lost-element", "never-added"}


def test_sums_are_those_of_the_subsets() -> None:
    """Against all subsets, with the table of bits and with the list; far numbers are not guessed."""
    for seed in range(effort(300)):
        rng = Random(seed)
        scale = rng.choice([1, 1, 3, 10**12])
        numbers = [rng.randint(-6, 6) * scale for _ in range(rng.randint(0, 9))]
        right = {sum(part) for size in range(len(numbers) + 1) for part in combinations(numbers, size)}
        sums = SubsetSums(numbers)
        for total in range(min(right) - 2 * scale, max(right) + 3 * scale, scale):
            assert sums.has(total) == (total in right), (seed, total)
        assert not sums.has(max(right) + 1)
    apart = SubsetSums([10**15 + 7 * at * at for at in range(40)])
    assert apart.has(10**15 + 1) is None
    assert apart.has(-1) is False
    assert SubsetSums([10**15, 10**15 + 7, 3]).has(10**15 + 10)
    for count in range(20):
        same = SubsetSums([-2] * count)
        assert [total for total in range(-50, 3) if same.has(total)] == list(range(-2 * count, 1, 2))
    many = SubsetSums([1] * 100_000 + [-1] * 100_000)
    assert many.has(99_999)
    assert many.has(100_001) is False
