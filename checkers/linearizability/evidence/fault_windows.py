"""The faults of a history, from what its nemesis did: from when to when each lasted.

Every program names them in its own way; nobody says which op ends which fault. What is known are words: `start-x` is
ended by `stop-x`, `kill` by `start` or `restart`, `pause` by `resume`, and `heal` ends whatever is there (Jepsen's
nemeses, and ours: `inject` and `heal`). What is never ended lasts until the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from results.history import Call

_BEGIN: Final = frozenset({"start", "begin", "inject"})
_END: Final = frozenset(
    {"stop", "end", "heal", "resume", "unpause", "recover", "restart", "reset", "remove", "reconnect", "repair"}
)
_DEATHS: Final = frozenset({"kill", "crash", "stop"})
_ENDED_BY: Final = {
    "start": _DEATHS,
    "restart": _DEATHS,
    "recover": _DEATHS,
    "resume": frozenset({"pause"}),
    "unpause": frozenset({"pause"}),
}
"""What a word ends that has no noun."""

_LONGEST: Final = 60


class FaultWindow(NamedTuple):
    """What it was, for people; the call of the nemesis that began it, and the one that ended it (None: none did)."""

    label: str
    began: Call
    ended: Call | None


def fault_windows(calls: Sequence[Call]) -> list[FaultWindow]:
    """`calls`: those of the nemesis, in order."""
    found: list[FaultWindow] = []
    open_: list[tuple[str, int]] = []  # what it is, and its place among those that were found
    for call in calls:
        verb, noun = _parsed(call.invoke.f)
        ended = _ended(verb, noun, open_)
        for one in ended:
            open_.remove(one)
            found[one[1]] = found[one[1]]._replace(ended=call)
        if ended:
            continue
        if verb not in _END:
            open_.append((noun, len(found)))
        # (What ends a fault that nobody began is shown as one moment.)
        found.append(FaultWindow(_label(call), call, call if verb in _END else None))
    return found


def _parsed(f: str) -> tuple[str, str]:
    """`start-partition` as start and partition, `kill` as kill and kill."""
    first, _, rest = re.sub(r"[_\s.:/]+", "-", f.lower()).partition("-")
    return (first, rest) if first in _BEGIN | _END else (first, f.lower())


def _ended(verb: str, noun: str, open_: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Which of the open faults this ends."""
    if verb not in _END and not (verb == "start" and not noun):
        return []
    if noun:
        same = [one for one in open_ if one[0] == noun]
        return same or list(open_[-1:])
    own = [one for one in open_ if one[0].partition("-")[0] in _ENDED_BY.get(verb, ())]
    return own or (list(open_) if verb in _END else [])


def _label(call: Call) -> str:
    """`kill n1`: what it did, and to whom, in one line."""
    value = call.invoke.value if call.invoke.value is not None else call.completion and call.completion.value
    text = call.invoke.f + ("" if value is None else f" {_short(value)}")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
