# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of findings: those that may take for ever are refused, and the others have a limit of time.

A pattern runs over every line of every log. A repetition within a repetition, such as `(a+)+`, tries all ways to divide
a line, which doubles with each character.
"""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

LINE: Final = 4096
"""Characters of a line that a pattern sees."""
LIMIT_S: Final = 20.0
"""Processor seconds for a finding's patterns in all logs of a run: a gigabyte of logs takes some 10 s."""

_MANY: Final = 16
"""A repetition of more counts as one without an end."""


class TookTooLong(Exception):
    """A pattern did not end in time."""


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compiles a pattern. Raises ValueError for an invalid one, or one that repeats a repetition or a choice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # what a later Python reads in another way
            found = re.compile(text)
            # The parser of `re` itself: what it finds cannot differ from what is searched for.
            tree: Any = re._parser.parse(text)  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError, FutureWarning) as problem:
        raise ValueError(f"is no regular expression: {problem}") from None
    if _repeats(tree, within=False):
        raise ValueError(
            f"{text!r} repeats a repetition or a choice without an end, which may take for ever; repeat only single "
            "characters, or sets of them"
        )
    return found


def _repeats(tree: Any, *, within: bool) -> bool:
    for name, given in tree:
        kind = str(name)
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = given
            if within and least != most:
                return True
            if _repeats(inner, within=within or int(most) > _MANY):
                return True
        elif kind == "BRANCH":
            if within or any(_repeats(branch, within=within) for branch in given[1]):
                return True
        elif kind in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
            inner = given[-1] if isinstance(given, tuple) else given
            if _repeats(inner, within=within):
                return True
        elif kind.startswith("GROUPREF") and within:
            return True
    return False


def words_of(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Texts of which each match contains at least one, as long as possible; empty if no such texts are known. Many
    lines can be passed over by a search for plain text, which is much faster.
    """
    return _words(re._parser.parse(pattern.pattern)) or ()  # type: ignore[attr-defined]


def _words(tree: Any) -> tuple[str, ...]:
    found: list[tuple[str, ...]] = []
    text = ""
    for name, given in [*tree, (None, None)]:
        if str(name) == "LITERAL":
            text += chr(given)
            continue
        if text:
            found.append((text,))
        text = ""
        match str(name):
            case "BRANCH":
                branches = [_words(branch) for branch in given[1]]
                if all(branches):
                    found.append(tuple(word for words in branches for word in words))
            case "SUBPATTERN" | "ATOMIC_GROUP":
                found.append(_words(given[-1] if isinstance(given, tuple) else given))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                found.append(_words(given[2]) if given[0] else ())
    return max(found, key=lambda words: min(map(len, words), default=0), default=())


@contextmanager
def in_time(seconds: float = LIMIT_S) -> Iterator[None]:
    """Raises TookTooLong within the block after so many seconds of the processor. Python's `re` looks for signals as it
    searches; only the main thread gets any, so elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
