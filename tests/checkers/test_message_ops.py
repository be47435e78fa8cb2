# SPDX-License-Identifier: Apache-2.0
"""The schema of the ops of messages: the ops of the harness's own runs fit it, and every other op is reported."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sim.rocketmq import Bug, simulate

from checkers.base.api import judge
from checkers.base.schema import BadOp
from checkers.messages.log import LogAnomalies, LogLinearizable, MessageIds, Replicas
from checkers.messages.ops import FORMS, explained, validate
from checkers.messages.queue import Deliveries, Leases, Offsets
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Verdict

JUDGES = (LogAnomalies(), LogLinearizable(), Replicas(), MessageIds(), Deliveries(), Offsets(), Leases())

NASTY: tuple[Any, ...] = (
    None, "x", "", -1, 0, True, 1.5, 2**62, 2**80, [], [1], [[1]], [[None, 1]], [["a", 1]], [[1, 2, 3]], [[0, 2.5]], {},
    {"max": "x"}, [{}], [[0, None]], [[0, [1]]], [["q", 0, 1, "h"]], [["q", "x", 1, "h", 0, 0]], {"min": 1},
)  # fmt: skip
EXTRA = ("node", "min", "max", "next", "done", "role", "start", "group", "offset", "invisible_ms")


def test_what_our_runs_write_is_as_the_schema_says() -> None:
    for seed in range(4):
        bug = None if seed % 2 else Bug.STRAY
        how = {"consumers": 2, "owners": 2, "anonymous": seed > 1}
        assert validate(simulate(seed, bug, expiring=seed == 3, **how)[0].history) == []


def one(f: str, requested: Any, got: Any, key: str | None = "q", **extra: Any) -> History:
    at = {"group": "g", "invisible_ms": 5, "id": 1}
    output = {name: value for name, value in at.items() if name in FORMS[f].extra} | extra
    return History(
        [Op(0, 0, 0, "invoke", f, key, requested, None, output), Op(1, 1, 0, "ok", f, key, got, None, output)]
    )


@pytest.mark.parametrize(
    ("history", "op", "what"),
    [
        (one("send", "a", [0, "a"]), 0, "a send has a positive number as its id, not 'a'"),
        (one("send", 0, [0, 0]), 0, "a send has a positive number as its id, not 0"),
        (one("send", True, [0, 1]), 0, "a send has a positive number as its id, not true"),
        (one("send", 1, None), 1, "a send is acknowledged as [offset, id], not null"),
        (one("send", 1, [-1, 1]), 1, "a send is acknowledged as [offset, id], not [-1, 1]"),
        (one("send", 1, [0, 2]), 1, "the send of message 1 is acknowledged with the id 2"),
        (one("send", 1, [0, 1], None), 0, 'a send has a key, the queue, such as "t:a:0"'),
        (one("send", 1, [0, 1], node=3), 0, "'node' of a send is a name, not 3"),
        (one("poll", "end", []), 0, "a poll asks for an offset (a whole number from 0), or null, not 'end'"),
        (one("poll", 0, None), 1, "a poll shows a list of messages, each [offset, id], not null"),
        (one("poll", 0, [[0, 1.5]]), 1, "a poll shows a list of messages, each [offset, id], not [[0, 1.5]]"),
        (one("poll", 0, [], min="0"), 0, "'min' of a poll is a whole number from 0, not '0'"),
        (one("poll", 0, [], start=1), 0, "'start' of a poll is true or false, not 1"),
        (one("consume", 0, [], group=None), 0, "a consume needs 'group' in its extra: a name"),
        (one("commit", None, None), 0, "a commit has an offset (a whole number from 0), not null"),
        (one("committed", None, "x"), 1, "a committed is answered with an offset (a whole number from 0), or null"),
        (one("drain", None, [1]), 1, 'a drain is answered with {"committed": N, "max": N, "consumed_to": N}, not [1]'),
        (one("pop", None, [["q", 0, 1]]), 1, "a pop shows a list of messages, each [queue, offset, id, handle,"),
        (one("ack", None, None, id="a"), 0, "'id' of a ack is a positive number, not 'a'"),
        (one("assign", "q", "q"), 0, "a assign has a list of queues, or null, not 'q'"),
        (one("max-offset", None, None), 1, "a max-offset is answered with an offset"),
    ],
)
def test_the_first_problem_is_told_with_its_op(history: History, op: int, what: str) -> None:
    found = validate(history)[0]
    assert found.op == op
    assert what in str(found)
    assert str(found).startswith(f"op {op}: ")


def test_an_id_is_sent_once() -> None:
    first, again = one("send", 1, [0, 1]), one("send", 1, [1, 1])
    ops = [*first, *(replace(op, index=op.index + 2) for op in again)]
    assert str(validate(History(ops))[0]) == "op 2: message 1 was sent before (op 0); every send has an id of its own"
    result = judge(RunRecord(History(ops)), [LogAnomalies()]).results[0]
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, str(validate(History(ops))[0]))


def test_only_the_first_problems_are_looked_for() -> None:
    ops = [Op(n, n, n, "invoke", "send", "q", "x") for n in range(50)]
    assert [problem.op for problem in validate(History(ops), 3)] == [0, 1, 2]


def test_a_bug_of_a_judge_is_not_taken_for_bad_data() -> None:
    with pytest.raises(ValueError, match="ours"), explained(one("send", 1, [0, 1])):
        raise ValueError("ours")
    with pytest.raises(BadOp, match="op 0: a send has"), explained(one("send", "x", None)):
        raise ValueError("theirs")


@pytest.mark.slow
def test_bad_values_are_never_called_a_failure_of_a_judge() -> None:
    rng, text = Random(7), 0
    good = list(simulate(1, None, 2, consumers=1, owners=1)[0].history)
    good += [
        Op(len(good) + i, good[-1].time + i, 900, type_, "pop", None, value, None, {"group": "g", "invisible_ms": 9})
        for i, (type_, value) in enumerate([("invoke", None), ("ok", [["t:a:0", 0, 1, "h", 0, 5]])])  # type: ignore[list-item]
    ]
    of_messages = [op for op in good if op.f in FORMS]
    for _ in range(300):
        victim = rng.choice(of_messages)
        field = rng.choice(["value", "value", "key", "extra"])
        value: Any = rng.choice(NASTY)
        if field == "key":
            value = None
        if field == "extra":
            value = {
                **victim.extra,
                rng.choice(["node", "min", "max", "next", "done", "role", "group", "offset"]): value,
            }
        bad = list(good)
        bad[victim.index] = replace(victim, **{field: value})
        history = History(bad)
        for result in judge(RunRecord(history), JUDGES).results:
            assert "itself failed" not in result.reason, f"{victim} {field} {value}: {result.stats}"
        text += bool(validate(history))
    assert text > 100
