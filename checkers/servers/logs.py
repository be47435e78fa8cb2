# SPDX-License-Identifier: Apache-2.0
"""The logs of the servers: programming errors make the run invalid; other exceptions are counted and shown.

Network exceptions are a consequence of faults (refused, reset, timed out) and no violation. A null pointer, an
exhausted heap, a crash of the JVM or a line that the server itself marks `[BUG]` is always a defect.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude, summary_of
from results.reading import log_lines
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

DEFECTS: dict[str, str] = {
    "OutOfMemoryError": "the heap was exhausted",
    "StackOverflowError": "endless recursion",
    "NullPointerException": "a programming error",
    "ClassCastException": "a programming error",
    "IndexOutOfBoundsException": "a programming error",
    "IllegalAccessError": "a class was refused access to another (a JVM option is missing)",
    "NoSuchMethodError": "incompatible jars",
    "NoClassDefFoundError": "incompatible jars",
    "InternalError": "the JVM had a fault in mapped memory",
    "[BUG]": "the server itself marks this as a bug",
    "handed out again": "the library applied committed entries twice to the state machine (our server skips them)",
}
"""Text in a log line -> the reason why it is a defect."""

_EXCEPTION = re.compile(r"\b(?:[a-z]\w*\.)+(\w+(?:Exception|Error))\b")


@dataclass
class _Found:
    count: int
    first: str
    at: int | None


class ServerLogs:
    """Reads `server.log` of every node, and looks for `hs_err` files. `unknown` if no log was collected."""

    name = "server-logs"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `exceptions` (class -> count, the harmless ones) and `lines` per node."""
        if not any(run.logs.values()):
            return CheckResult(self.name, Verdict.UNKNOWN, "no server log was collected")
        anomalies: list[Anomaly] = []
        harmless: Counter[str] = Counter()
        lines: dict[str, int] = {}
        for node, paths in sorted(run.logs.items()):
            found: dict[str, _Found] = {}
            for path in paths:
                if path.name.startswith("hs_err"):
                    anomalies.append(_crash(node, path))
                elif path.name == "server.log":
                    lines[node] = lines.get(node, 0) + _read(run, path, found, harmless)
            anomalies += [_tell(node, what, f) for what, f in found.items()]
        stats = {"exceptions": dict(harmless.most_common(20)), "lines": lines}
        reason = f"{harmless.total()} exceptions, none a defect" if harmless else "no exception"
        return conclude(self.name, run, anomalies, stats, reason, invalid=summary_of(anomalies))


def _read(run: RunRecord, path: Path, found: dict[str, _Found], harmless: Counter[str]) -> int:
    count = 0
    last: int | None = None
    for at, line in stamped_lines(path, run.environment):
        count += 1
        last = at if at is not None else last
        defect = next((what for what in DEFECTS if what in line), None)
        if defect is not None:
            if defect in found:
                found[defect].count += 1
            else:
                found[defect] = _Found(1, line[:400], last)
        else:
            harmless.update(_names(line))
    return count


def _names(line: str) -> Iterator[str]:
    # The frames of a stack trace name no new exception.
    if not line.lstrip().startswith("at "):
        yield from _EXCEPTION.findall(line)[:1]


def _tell(node: str, what: str, found: _Found) -> Anomaly:
    summary = f"{node} logged {what} {found.count} time{'s' if found.count != 1 else ''}: {DEFECTS[what]}"
    window = None if found.at is None else (max(0, found.at), max(0, found.at))
    return Anomaly("server-defect", summary, window=window, details={"node": node, "first": found.first})


def _crash(node: str, path: Path) -> Anomaly:
    head = "\n".join(islice(log_lines(path), 40))[:2000]
    return Anomaly("jvm-crash", f"the JVM on {node} crashed ({path.name})", details={"node": node, "first": head})
