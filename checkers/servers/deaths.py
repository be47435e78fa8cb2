# SPDX-License-Identifier: Apache-2.0
"""Server processes that ended without a fault. The harness monitors every process and journals such an end."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from checkers.base.legality import conclude
from results.figures import SECOND
from results.op import FAIL, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_LINES = 20

_EXHAUSTED: Final = "Terminating due to java.lang.OutOfMemoryError"
"""The JVM's last line with `-XX:+ExitOnOutOfMemoryError`, an option of all servers of the harness."""

_LATER_NS: Final = 60 * SECOND
"""A client's op that ends a server may do so at a later frame, and the harness notices the end some seconds later."""


class ServersDied:
    """`server-died` for each op `server-died`: `value = {"node", "server", "pid", "last": its last lines}`;
    `out-of-memory` if the JVM's last line reports an exhausted heap.

    on_purpose: kinds of clients' ops that end a server themselves: `extra["ends"]` is [node, kind of the server].
    """

    name = "servers"

    def __init__(self, on_purpose: Collection[str] = ()) -> None:
        self.on_purpose = on_purpose

    def check(self, run: RunRecord) -> CheckResult:
        """`stats["deaths"]`: node -> the kinds of servers that ended by themselves."""
        deaths = [op for op in run.history.nemesis if op.f == "server-died" and isinstance(op.value, dict)]
        meant = [op for op in run.history.clients if op.f in self.on_purpose and op.type != FAIL and "ends" in op.extra]
        deaths = [op for op in deaths if not any(_explains(one, op) for one in meant)]
        stats: dict[str, list[str]] = {}
        for op in deaths:
            stats.setdefault(str(op.value.get("node")), []).append(str(op.value.get("server")))
        reason = f"{len(deaths)} ended" if deaths else "no server ended without a fault"
        return conclude(self.name, run, [_tell(op) for op in deaths], {"deaths": stats}, reason)


def _explains(done: Op, death: Op) -> bool:
    same = list(done.extra["ends"]) == [death.value.get("node"), death.value.get("server")]
    return same and done.time <= death.time <= done.time + _LATER_NS


def _tell(op: Op) -> Anomaly:
    died: dict[str, Any] = op.value
    last = _last_lines(died.get("last"))
    exhausted = next((line for line in reversed(last) if _EXHAUSTED in line), None)
    decisive = exhausted or (last[-1] if last else None)
    why = f"; its log: {decisive[:200]}" if decisive else ""
    pid = died.get("pid")
    how = "did not come back after a fault" if pid is None else f"(pid {pid}) ended without a fault"
    return Anomaly(
        "server-died" if exhausted is None else "out-of-memory",
        f"the {died.get('server')} of {died.get('node')} {how}{why}",
        ops=[op.index],
        window=(op.time, op.time),
        details={"nodes": {str(died.get("node")): {"server": died.get("server"), "log": last[-_LINES:]}}},
    )


def _last_lines(raw: Any) -> list[str]:
    """The last lines of its log, in their order. `Server.last_words` joins them with ` | `."""
    lines = raw.replace(" | ", "\n").splitlines() if isinstance(raw, str) else [str(line) for line in raw or []]
    return [line for line in lines if line.strip()]
