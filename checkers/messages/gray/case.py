"""One violation of a kind, for the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Case(NamedTuple):
    """key: the queue, if any. start, end: the time of the evidence (ns). ops: those that prove it."""

    key: str | None
    start: int
    end: int
    ops: Sequence[int]
    text: str
