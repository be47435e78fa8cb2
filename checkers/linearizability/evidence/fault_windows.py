# SPDX-License-Identifier: Apache-2.0
"""The faults of a history with their begin and end, from the ops of its nemesis.

Every program has its own names, and no history records which op ends which fault. The words show it: `stop-x` ends
`start-x`, `start` or `restart` ends `kill`, `resume` ends `pause`, and `heal` ends all open faults (Jepsen's nemeses,
and this harness: `inject` and `heal`). A fault that no op ends lasts until the end.
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
"""The faults that a word without a noun ends."""

_LONGEST: Final = 60


class FaultWindow(NamedTuple):
    """A readable label; the call of the nemesis that began the fault, and the one that ended it (None: none did)."""

    label: str
    began: Call
    ended: Call | None


def fault_windows(calls: Sequence[Call]) -> list[FaultWindow]:
    """The faults among the nemesis' `calls`, which are in order."""
    found: list[FaultWindow] = []
    open_: list[tuple[str, int]] = []  # noun of the fault, and its place in `found`
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
        # (An end without a begin is shown as one moment.)
        found.append(FaultWindow(_label(call), call, call if verb in _END else None))
    return found


def _parsed(f: str) -> tuple[str, str]:
    """`start-partition` as start and partition, `kill` as kill and kill."""
    first, _, rest = re.sub(r"[_\s.:/]+", "-", f.lower()).partition("-")
    return (first, rest) if first in _BEGIN | _END else (first, f.lower())


def _ended(verb: str, noun: str, open_: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The open faults that a word ends."""
    if verb not in _END and not (verb == "start" and not noun):
        return []
    if noun:
        same = [one for one in open_ if one[0] == noun]
        return same or list(open_[-1:])
    own = [one for one in open_ if one[0].partition("-")[0] in _ENDED_BY.get(verb, ())]
    return own or (list(open_) if verb in _END else [])


def _label(call: Call) -> str:
    """`kill n1`: the action and its target, in one line."""
    value = call.invoke.value if call.invoke.value is not None else call.completion and call.completion.value
    text = call.invoke.f + ("" if value is None else f" {_short(value)}")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
