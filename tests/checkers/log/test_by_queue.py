# SPDX-License-Identifier: Apache-2.0
"""The judge of a history that is divided by queue says what it says of the whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from sim.rocketmq import Bug, simulate
from stories import TimedStory

from checkers.base.api import judge
from checkers.base.legality import count
from checkers.messages.log import LogAnomalies
from checkers.messages.log.anomalies import NAMES
from checkers.spark import logs
from checkers.spark.logs import OpRow, conclude, divided, first_breach, messages_of, parts_of, scan_part
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

PERMITTED = {"lost": "acknowledged before it is replicated", "dirty-read": "read before it is replicated"}


def rows_of(history: Iterable[Op]) -> list[OpRow]:
    return [
        OpRow("r", op.index, op.time, op.process, op.type, op.f, op.key, json.dumps(op.value), op.error,
              json.dumps(dict(op.extra)) if op.extra else None)
        for op in history
    ]  # fmt: skip


def by_queue(run: RunRecord) -> tuple[CheckResult, int]:
    """The result, and how many parts it came from."""
    rows = rows_of(run.history)
    seen: dict[Any, set[str]] = {}
    for row in rows:
        for queue, message in messages_of(row):
            seen.setdefault(message, set()).add(queue)
    queues = set().union(*seen.values())
    part_of = divided(queues, [some for message, some in seen.items() if message is not None])
    parts: dict[int, list[OpRow]] = {}
    for row in rows:
        for part in parts_of(row, part_of):
            parts.setdefault(part, []).append(row)
    about = replace(run, history=History(()))
    looked = [
        scan_part(own[::-1], {q for q, at in part_of.items() if at == part}, about) for part, own in parts.items()
    ]
    return conclude(about, looked), len(parts)


def same(run: RunRecord) -> int:
    """Asserts that both ways agree; returns the number of parts."""
    whole = judge(run, [LogAnomalies()]).results[0]
    divided_, parts = by_queue(run)
    assert (divided_.verdict, divided_.reason) == (whole.verdict, whole.reason)
    assert {k: v for k, v in divided_.stats.items() if v} == {k: v for k, v in whole.stats.items() if v}
    assert counts(divided_) == counts(whole)
    assert {op for a in divided_.anomalies for op in a.ops} <= set(range(len(run.history)))
    return parts


def counts(result: CheckResult) -> Counter[tuple[str, bool]]:
    found: Counter[tuple[str, bool]] = Counter()
    for anomaly in result.anomalies:
        found[anomaly.name, anomaly.legal is None] += count(anomaly)
    return found


@pytest.mark.parametrize("bug", [None, *Bug], ids=lambda bug: bug.name if bug else "good")
@pytest.mark.slow
def test_the_parts_say_what_the_whole_says(bug: Bug | None) -> None:
    for seed in range(2):
        run = simulate(seed, bug, consumers=seed, owners=2)[0]
        assert same(run) > 1, "nothing was divided"
        same(replace(run, environment={"permits": PERMITTED}))
    same(simulate(9, bug, expiring=True, anonymous=True)[0])


@pytest.mark.parametrize("of", ["t:a:-1", "t:a:1"])
def test_a_reset_is_known_in_the_part_of_its_queues(of: str) -> None:
    story = TimedStory()
    for number in (0, 1):
        for n in range(4):
            story.call(1 + n / 10, "send", f"t:a:{number}", 10 * number + n + 1, [n, 10 * number + n + 1], node="n1")
        shown = [[n, 10 * number + n + 1] for n in range(4)]
        about: dict[str, Any] = {"min": 0, "max": 4, "next": 4, "done": True, "phase": "final", "node": "n1"}
        story.call(20, "replica-read", f"t:a:{number}", 0, shown, **about)
        moved: dict[str, Any] = {"node": "n1", "code": 21, "min": 0, "max": 4, "next": 3, "group": "g"}
        story.call(6, "consume", f"t:a:{number}", 1, [], **moved)
    story.call(5, "reset", of, None, {f"t:a:{n}": 3 for n in (0, 1)}, group="g", node="n1", to="end")
    run = story.run()
    assert same(run) == 2
    assert counts(by_queue(run)[0]) == ({} if of == "t:a:-1" else {("poll-skip", True): 1})


def test_few_parts_of_many_queues_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_PARTS", 2)
    assert same(simulate(3, Bug.LOSE)[0]) == 2


def history(*events: tuple[int, Any, str, str | None, Any]) -> RunRecord:
    return RunRecord(History(Op(i, i, p, type_, f, key, value) for i, (p, type_, f, key, value) in enumerate(events)))


SENT = [(0, "invoke", "send", "a", 1), (0, "ok", "send", "a", [0, 1])]
LATER = [(0, "invoke", "send", "b", 2), (0, "ok", "send", "b", [0, 2])]


@pytest.mark.parametrize(
    "events",
    {
        "seen in another queue": [
            *SENT, *LATER, (1, "invoke", "poll", "b", 0), (1, "ok", "poll", "b", [[0, 2], [1, 1]]),
        ],
        "popped from two queues": [
            *SENT, *LATER, (1, "invoke", "pop", None, None),
            (1, "ok", "pop", None, [["a", 0, 1, "h", False], ["b", 0, 2, "i", False], ["c", 0, 9, "j", False]]),
        ],
        "sent again to another queue": [*SENT, (0, "invoke", "send", "b", 1), (0, "ok", "send", "b", [0, 1])],
        "nothing acknowledged in one": [*SENT, (0, "invoke", "send", "b", 2), (0, "fail", "send", "b", 2)],
        "an id that is none": [*SENT, (0, "invoke", "send", "b", "x"), (0, "ok", "send", "b", [0, 1])],
        "assigned, and never read": [
            *SENT, (1, "invoke", "assign", None, ["a", "b"]), (1, "ok", "assign", None, ["b"]),
        ],
        "nothing at all": [(0, "invoke", "write", None, 1), (0, "ok", "write", None, 1)],
    }.items(),
    ids=lambda item: item[0],
)  # fmt: skip
def test_what_concerns_several_queues(events: tuple[str, list[Any]]) -> None:
    extra = {"group": "g", "invisible_ms": 1000, "node": "n1"}
    run = history(*events[1])
    same(replace(run, history=History(replace(op, extra=extra) for op in run.history)))


def test_queues_between_which_messages_wander_are_one_part() -> None:
    found = divided("abcdef", [("a", "c"), ("c", "e"), ("b", "f")])
    assert found["a"] == found["c"] == found["e"]
    assert found["b"] == found["f"]
    assert len(set(found.values())) == 3


def test_ops_that_do_not_pair_are_noticed_by_process() -> None:
    rows = rows_of(simulate(1)[0].history)
    one = next(row.process for row in rows if row.f == "send")
    mine = [row for row in rows if row.process == one]
    assert first_breach(mine[::-1]) is None
    text = first_breach([row for row in mine if row is not mine[2]])
    assert text == f"op {mine[3].at} does not match the previous op of its process"


def test_every_name_has_its_rank() -> None:
    seen = {a.name for bug in Bug for a in LogAnomalies().check(simulate(0, bug)[0]).anomalies}
    assert seen <= set(NAMES)
    assert LogAnomalies().check(RunRecord(History(()))).verdict == Verdict.UNKNOWN
