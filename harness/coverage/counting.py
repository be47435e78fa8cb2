# SPDX-License-Identifier: Apache-2.0
"""The cells of coverage, counted in the histories of runs.

A cell is a request (`f` of an op), its answer, the role of the node that got it, the fault that was active when it
began, and its phase. Roles come from the observations: what the node last reported before the request.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from results.fault_intervals import FaultInterval, fault_intervals
from results.history import Call
from results.record import RunRecord

CALM: Final = "none"
"""In place of a fault: none was active."""

SEVERAL: Final = "several"
"""In place of a fault: more than one kind was active."""

NOBODY: Final = "-"
"""In place of a role: the request names no node."""

MAIN: Final = "main"

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_ -]{1,38}")


@dataclass(frozen=True, order=True)
class Place:
    """Runs that can be compared: of one workload on one topology."""

    workload: str
    topology: str


@dataclass(frozen=True, order=True)
class Cell:
    """See the module."""

    request: str
    answer: str
    role: str
    fault: str
    phase: str


@dataclass
class Seen:
    """The requests of one cell, and the first and the last run with one, by the time of their start."""

    requests: int = 0
    runs: int = 0
    first: str = ""
    last: str = ""

    def add(self, run: str, requests: int) -> None:
        """Adds those of one run."""
        self.requests += requests
        self.runs += 1
        self.first = min(self.first or run, run)
        self.last = max(self.last, run)


@dataclass
class Coverage:
    """Place -> cell -> its requests; the number of runs of each place; the faults that were active in them."""

    seen: dict[Place, dict[Cell, Seen]] = field(default_factory=dict)
    runs: Counter[Place] = field(default_factory=Counter)
    faults: dict[Place, set[str]] = field(default_factory=dict)

    def add(self, run: str, record: RunRecord) -> None:
        """Adds a run. `run`: its name, which sorts by the time of its start."""
        server: Mapping[str, Any] = record.plan.get("server", {})
        topology = record.deployment.topology or str(server.get("topology", ""))
        place = Place(str(record.plan.get("workload", "")), topology)
        self.runs[place] += 1
        shown = fault_intervals(record.history)
        self.faults.setdefault(place, set()).update(one.fault for one in shown if one.seen)
        table = self.seen.setdefault(place, {})
        for cell, requests in cells(record, shown).items():
            table.setdefault(cell, Seen()).add(run, requests)


def cells(record: RunRecord, shown: Sequence[FaultInterval]) -> Counter[Cell]:
    """The cells of one run. shown: its faults."""
    roles = _Roles(record)
    active = [one for one in shown if one.seen]
    found: Counter[Cell] = Counter()
    for call in record.history.clients.calls:
        names = {one.fault for one in active if one.covers(call.start, call.start)}
        fault = CALM if not names else next(iter(names)) if len(names) == 1 else SEVERAL
        phase = str(call.invoke.extra.get("phase", MAIN))
        found[Cell(call.invoke.f, answer(call), roles.of(call), fault, phase)] += 1
    return found


def answer(call: Call) -> str:
    """`ok`; `fail 17`, with the code of the protocol; `info timeout`, with the first words of the reason; `none`."""
    done = call.completion
    if done is None:
        return "none"
    code = done.extra.get("code")
    if isinstance(code, int) and (code or done.type != "ok"):
        return f"{done.type} {code}"
    words = _WORD.match(done.error or "")
    return done.type if done.type == "ok" or words is None else f"{done.type} {words[0].strip()}"


class _Roles:
    """The roles of the nodes over time."""

    def __init__(self, record: RunRecord) -> None:
        self._times: dict[str, list[int]] = {}
        self._roles: dict[str, list[str]] = {}
        for seen in record.observations:
            self._times.setdefault(seen.node, []).append(seen.time)
            self._roles.setdefault(seen.node, []).append(seen.role)

    def of(self, call: Call) -> str:
        """The role of the node of a request, as last reported before it began."""
        extra = {**call.invoke.extra, **(call.completion.extra if call.completion is not None else {})}
        node = extra.get("node")
        if not isinstance(node, str):
            return NOBODY
        at = bisect_right(self._times.get(node, []), call.start)
        return self._roles[node][at - 1] if at else "unknown"


def rows(table: Mapping[Cell, Seen], faults: Iterable[str]) -> dict[tuple[str, str, str], dict[str, Seen]]:
    """(request, answer, role) -> fault -> its requests in the main phase, for the given faults."""
    wanted = set(faults)
    found: dict[tuple[str, str, str], dict[str, Seen]] = {}
    for cell, seen in sorted(table.items()):
        if cell.phase == MAIN and cell.fault in wanted:
            found.setdefault((cell.request, cell.answer, cell.role), {})[cell.fault] = seen
    return found
