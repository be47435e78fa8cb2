# SPDX-License-Identifier: Apache-2.0
"""Every line of the outcome table, copied a second time from the reference, so that a slip shows."""

from __future__ import annotations

import pytest

from infra.systems.dledger.outcomes import OUTCOMES, Operation, outcome_of, outcome_of_error, outcome_of_outer
from infra.systems.remoting.connection import Broken, Refused, TimedOut

EXPECTED = {  # code: (write, cas, read)
    200: ("ok", "ok", "ok"),
    -1: ("info", "info", "fail"),
    300: ("info", "info", "fail"),
    302: ("info", "info", "fail"),
    400: ("fail", "fail", "fail"),
    401: ("fail", "fail", "fail"),
    403: ("info", "info", "fail"),
    404: ("fail", "fail", "fail"),
    411: ("fail", "fail", "fail"),
    414: ("info", "info", "fail"),
    415: ("fail", "fail", "fail"),
    500: ("info", "info", "fail"),
    501: ("info", "info", "fail"),
    502: ("info", "info", "fail"),
    503: ("fail", "fail", "fail"),
    506: ("fail", "fail", "fail"),
}

CHANGES: tuple[Operation, ...] = ("write", "cas")
OPERATIONS: tuple[Operation, ...] = ("write", "cas", "read")


@pytest.mark.parametrize("code", EXPECTED)
def test_line(code: int) -> None:
    assert tuple(outcome_of(operation, code).type for operation in OPERATIONS) == EXPECTED[code]


def test_the_table_has_these_lines_and_no_others() -> None:
    codes = [line.code for line in OUTCOMES]
    assert sorted(codes) == sorted(EXPECTED)
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("line", OUTCOMES, ids=lambda line: line.name)
def test_every_line_says_why_and_where_that_stands(line) -> None:  # type: ignore[no-untyped-def]
    assert line.source
    if line.code != 200:
        why = outcome_of("write", line.code).why
        assert line.name in why
        assert str(line.code) in why
        assert "\n" not in why


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("code", [0, 1, 405, 410, 422, 504, 4711])
def test_an_unlisted_code_is_unknown(operation: Operation, code: int) -> None:
    assert outcome_of(operation, code).type == "info"
    assert outcome_of(operation, code).why == f"unlisted code {code}"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_thrown_not_leader_is_a_refusal(operation: Operation) -> None:
    remark = "io.openmessaging.storage.dledger.exception.DLedgerException: [code=404,name=NOT_LEADER,desc=]\n  at x"
    assert outcome_of_outer(operation, 1, remark).type == "fail"


@pytest.mark.parametrize("operation", CHANGES)
def test_any_other_exception_of_a_handler_leaves_a_change_unknown(operation: Operation) -> None:
    assert outcome_of_outer(operation, 1, "java.lang.NullPointerException").type == "info"
    assert outcome_of_outer(operation, 1, None).type == "info"
    # NOT_LEADER further down a stack trace is not what was thrown.
    assert outcome_of_outer(operation, 1, "java.lang.NullPointerException\nNOT_LEADER").type == "info"
    assert outcome_of_outer(operation, 77, "?").type == "info"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("code", [2, 3])
def test_what_never_reached_its_handler_failed(operation: Operation, code: int) -> None:
    assert outcome_of_outer(operation, code, "[OVERLOAD]system busy").type == "fail"


@pytest.mark.parametrize("operation", CHANGES)
def test_a_lost_answer_leaves_a_change_unknown(operation: Operation) -> None:
    assert outcome_of_error(operation, Broken("h:1: reset")).type == "info"
    assert outcome_of_error(operation, TimedOut("h:1: no answer")).type == "info"
    assert outcome_of_error(operation, Refused("h:1: Connection refused")).type == "fail"


def test_a_lost_read_failed() -> None:
    for error in (Broken("h:1: reset"), TimedOut("h:1: no answer"), Refused("h:1: Connection refused")):
        assert outcome_of_error("read", error).type == "fail"
