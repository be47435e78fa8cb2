# SPDX-License-Identifier: Apache-2.0
"""The fields by which strangers' files say, or deny, that an operation succeeded. A field that may deny it and is not
read is an error: an acknowledged operation is a promise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from results.errors import with_article
from results.formats.foreign import READS
from results.op import FAIL, INFO, OK, OpType

OUTCOMES: Final = ("type", "outcome", "status")
ERRORS: Final = ("error", "err", "exception")
_SUSPECT: Final = re.compile(
    r"failure|fail|unknown|state|aborted|errno|(?:.*_)?(?:code|status|(?:err|error|exception)(?:_?(?:code|type|kind|message))?)"
)
"""Fields of which one may say that an operation failed: leaving them out would be a guess."""

UNKNOWN: Final = frozenset({"info", "unknown", "timeout", "timed-out", "timed_out", "timedout"})
VAGUE: Final = frozenset({"failed", "failure", "error"})
"""Outcomes that do not promise that nothing happened."""
OUTCOME_OF: Final[Mapping[str, OpType]] = {
    "ok": OK, "success": OK, "succeeded": OK, "fail": FAIL, **dict.fromkeys(UNKNOWN | VAGUE, INFO),
}  # fmt: skip
GOOD: Final = ("ok", "success", "succeeded")

SHOWING: Final = READS | {"dequeue", "pop", "drain", "min-offset", "max-offset"}
"""Ops whose only value is their result."""
TAKING: Final = frozenset(
    [
        "write",
        "w",
        "put",
        "add",
        "broadcast",
        "remove",
        "enqueue",
        "push",
        "cas",
        "cas-refused",
        "delete",
        "trim",
        "release",
        "unlock",
    ]
)
"""Ops whose only value is their argument."""


TROUBLE: Final = re.compile(
    r"(?:time|timed)[\s_-]?out|.*\b(?:err|error|fail|failed|failure|timeout|exception|refused|unavailable|aborted|"
    r"cancell?ed|rejected|denied|conflict|deadline|unknown)\b.*|\w*(?:Error|Exception|Timeout)\b.*|Err[A-Z]\w*",
    re.IGNORECASE,
)
"""Texts by which a program says that an operation did not succeed."""


def insist_on_result(f: str, result: Any) -> None:
    """Raises ValueError for a result that is an error, or a word or code for one where an operation shows nothing."""
    if isinstance(result, Mapping):
        plain = {str(name).lower(): value for name, value in result.items()}
        if any(plain.get(name) for name in ERRORS) or any(plain.get(name) is False for name in GOOD):
            raise ValueError("the result has an error; an error beside it says that the outcome is not known")
    elif f in TAKING | {"append"} and (
        (isinstance(result, str) and TROUBLE.fullmatch(result)) or (type(result) is int and result < 0)
    ):
        shown = json.dumps(result)[:80]
        raise ValueError(f"the result of {with_article(f)} is {shown}; an outcome ({', '.join(OUTCOMES)}) is right")


_DENIED: Final = frozenset(
    "ok success succeeded acked acknowledged confirmed committed applied swapped completed accepted delivered".split()  # noqa: SIM905
)
_FOUND: Final = frozenset({"found", "exists", "present"})
"""Fields that say whether a read found anything."""
_DOUBTS: Final = frozenset(
    "aborted cancelled canceled rejected dropped crashed expired ambiguous indeterminate lost timeout failed".split()  # noqa: SIM905
)


def insist_on_success(f: str, rest: Mapping[str, Any], result: Any, *, all_suspects: bool) -> None:
    """Raises ValueError for a field that may deny that an operation succeeded: an error, `acked` that is false,
    `aborted` that is true, `found` that is false beside a value; with `all_suspects`, also a code or a status.
    """
    for name, value in rest.items():
        if f in SHOWING and name in _FOUND and value is False and result is not None:
            raise ValueError(f"the field {name!r} is false; null as its value says that nothing was there")
        if (
            (name in _DENIED and value is False)
            or (name in OUTCOMES and isinstance(value, str) and OUTCOME_OF.get(value.lower(), OK) != OK)
            or (name in _DOUBTS and value is True)
            or (_SUSPECT.fullmatch(name) and (all_suspects or _ERROR.fullmatch(name)) and value not in _HARMLESS)
        ):
            right = f"the outcome is {', '.join(OUTCOMES)}: ok, fail or info"
            raise ValueError(f"the field {name!r} is not known ({json.dumps(value)[:80]}); {right}")


_ERROR: Final = re.compile(
    r"failure|fail|aborted|errno|(?:.*_)?(?:err|error|exception)(?:_?(?:code|type|kind|message))?"
)
_HARMLESS: Final = (None, False, 0, "", "nil", "<nil>", "none", "null", "ok", "OK")
