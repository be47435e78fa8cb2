# SPDX-License-Identifier: Apache-2.0
"""The state of the nodes around a time: roles and terms from the observations, lines from their logs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from results.reading import log_lines
from results.record import RunRecord

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MOMENT = rf"(\d{{4}})-(\d\d|{'|'.join(_MONTHS)})-(\d\d)[ T](\d\d:\d\d:\d\d)"
"""Pattern of a date and a time of day as RocketMQ and its clients log them; librocketmq names the month."""

_STAMP = re.compile(rf"^\[?{MOMENT}[.,](\d{{3}})")
_LINES = 12
_MAIN = ("server.log", "broker.log")
"""The logs of the servers that hold data: DLedger's, and RocketMQ's broker's."""


def nodes_at(run: RunRecord, time: int, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """node -> its last observation at or before `time` (ns) as plain data, plus `log`: its last lines until then."""
    last = {seen.node: seen for seen in run.observations if seen.time <= time}
    reported: dict[str, dict[str, Any]] = {}
    for node in nodes:
        said = last[node].to_json() if node in last else {}
        reported[node] = {k: v for k, v in said.items() if k != "node"} | {"log": last_lines(run, node, time)}
    return reported


def last_lines(run: RunRecord, node: str, time: int, count: int = _LINES) -> list[str]:
    """The last `count` lines of the main server's log that were written before `time` (ns since the start)."""
    tail: deque[str] = deque(maxlen=count)
    for path in run.logs.get(node, ()):
        if path.name in _MAIN:
            for at, line in stamped_lines(path, run.environment):
                if at is not None and at > time:
                    break
                tail.append(line[:300])
    return list(tail)


def own_lines(path: Path, environment: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a log without those of earlier runs on the same cluster, which are before `begun_at`. After the
    first line of this run all are its own, even if a fault sets the clock back.
    """
    begun = str(environment.get("begun_at") or "").replace("T", " ")[:23]
    ours, sure = True, not begun
    for line in log_lines(path):
        if not sure and (stamp := _stamp(line)):
            sure = ours = stamp >= begun
        if ours:
            yield line


def stamped_lines(path: Path, environment: Mapping[str, Any]) -> Iterator[tuple[int | None, str]]:
    """The lines of the run (`own_lines`) with their time in ns since its start, or None if no stamp or start is
    known.

    Lines start with `yyyy-mm-dd HH:MM:SS.mmm`, in UTC, or `[yyyy-Mon-dd HH:MM:SS.mmm`, as those of librocketmq;
    `environment["started_at"]` is the run's start (ISO 8601, UTC).
    """
    begun = environment.get("started_at")
    start = _moment(str(begun)) if begun else None
    for line in own_lines(path, environment):
        stamp = _stamp(line)
        at = _moment(f"{stamp}000") if stamp and start else None
        yield None if at is None or start is None else int((at - start).total_seconds() * 1_000_000_000), line


def _stamp(line: str) -> str | None:
    """The stamp of a line as `yyyy-mm-dd HH:MM:SS.mmm`."""
    found = _STAMP.match(line)
    return f"{written(found)}.{found[5]}" if found else None


def written(moment: re.Match[str]) -> str:
    """A match of MOMENT as `yyyy-mm-dd HH:MM:SS`."""
    year, month, day, time = moment.groups()[:4]
    number = f"{_MONTHS.index(month) + 1:02}" if month in _MONTHS else month
    return f"{year}-{number}-{day} {time}"


def _moment(text: str) -> datetime | None:
    """A time without its zone, or None for an impossible one (month 13)."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None
