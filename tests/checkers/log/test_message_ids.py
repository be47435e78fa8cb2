# SPDX-License-Identifier: Apache-2.0
"""Every acknowledged message has an id of its own: the cases of Jepsen's `unique-ids-test`, and what the log says."""

from __future__ import annotations

from typing import Any

from checkers.base.legality import count
from checkers.messages.log import MessageIds
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import CheckResult, Verdict


def judged(answers: list[tuple[str, str, str | None]], **environment: Any) -> CheckResult:
    """Sends one after the other: (queue, how it ended, the message id of the answer)."""
    ops = []
    for number, (queue, type_, identity) in enumerate(answers, 1):
        extra = {"node": "n1"} | ({} if identity is None else {"message_id": identity})
        value = [number - 1, number] if type_ == "ok" else number
        ops.append(Op(len(ops), len(ops), 0, "invoke", "send", queue, number))
        ops.append(Op(len(ops), len(ops), 0, type_, "send", queue, value, None, extra))  # type: ignore[arg-type]
    return MessageIds().check(RunRecord(History(ops), environment=environment))


def test_each_its_own() -> None:
    result = judged([("t:a:0", "ok", "A"), ("t:a:1", "ok", "B"), ("t:a:0", "ok", "C")])
    assert (result.verdict, result.stats) == (Verdict.VALID, {"ids": 3})


def test_one_id_for_three_messages_in_two_queues() -> None:
    result = judged([("t:a:0", "ok", "A"), ("t:a:1", "ok", "A"), ("t:a:0", "ok", "B"), ("t:a:0", "ok", "A")])
    assert result.verdict == Verdict.INVALID
    (anomaly,) = result.anomalies
    assert (anomaly.name, count(anomaly), list(anomaly.ops), anomaly.key) == ("reused-message-id", 1, [0, 2, 6], None)
    assert "message 1 of t:a:0, acknowledged by n1" in anomaly.summary
    assert "message 4 of t:a:0" in anomaly.summary


def test_many_are_counted_and_not_all_told() -> None:
    result = judged([("t:a:0", "ok", str(n % 30)) for n in range(90)])
    assert (len(result.anomalies), sum(map(count, result.anomalies))) == (20, 30)


def test_an_answer_of_unknown_outcome_gives_nothing_away() -> None:
    assert judged([("t:a:0", "info", "A"), ("t:a:0", "ok", "A")]).verdict == Verdict.VALID


def test_without_ids_there_is_nothing_to_compare() -> None:
    result = judged([("t:a:0", "ok", None), ("t:a:0", "ok", None)])
    assert (result.verdict, result.reason) == (Verdict.VALID, "no acknowledgement carries a message id")


def test_where_loss_is_permitted_so_is_the_second_use() -> None:
    result = judged([("t:a:0", "ok", "A"), ("t:a:0", "ok", "A")], permits={"lost": "asynchronous"})
    assert result.verdict == Verdict.VALID
    assert [a.legal for a in result.anomalies] == ["asynchronous"]
