# SPDX-License-Identifier: Apache-2.0
"""Malformed ops: an error that names the op, instead of an exception that looks like a bug of a checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from results.history import History


class BadOp(ValueError):
    """An op is malformed. `op`: its index; the text names it, and the right form."""

    def __init__(self, op: int, what: str) -> None:
        self.op, self.what = op, what
        super().__init__(f"op {op}: {what}")


@contextmanager
def explained(history: History, problems: Callable[[History], Iterator[BadOp]]) -> Iterator[None]:
    """Turns an exception of a judge that a malformed op causes into a BadOp that names the op.

    problems  yields the malformed ops of a history.
    """
    try:
        yield
    except BadOp:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        found = next(problems(history), None)
        if found is None:
            raise
        raise found from None
