# SPDX-License-Identifier: Apache-2.0
"""The conditions under which a queue may begin behind its first message: an excuse.

A broker reports the lowest offset of a queue (`min`). It rises when the broker deletes files of its CommitLog, and then
the loss of a message below it can no longer be decided. In a run of the harness this is allowed only if

* the settings allow a deletion: messages were older than `fileReservedTime` (`Traits.expires_after_s`; the harness sets
  a year), or the node's disk was full, when a broker deletes its oldest file at any age
  (`DefaultMessageStore.CleanCommitLogService.isSpaceToDelete`); and
* a log of the node shows that it deleted a file of the CommitLog (`DefaultMappedFile.destroy`); or
* the node had lost its disk, and copies from the last file of its master on (`Traits.copies_last_file`).

Otherwise a message below `min` is gone like any other. The settings behind a history of another origin are unknown:
there `min` is accepted.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from checkers.base.evidence import own_lines
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.record import RunRecord

RESERVED_S: Final = 8760 * 3600.0
"""`fileReservedTime` of the harness, for runs that were stored without it."""

_DELETED: Final = re.compile(r"delete file\[REF:-?\d+\] \S*/commitlog/\d{20}\b")


class Expiry:
    """The conditions, looked up in a run."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self._found: dict[str, str | None] = {}

    def allows(self, node: str) -> bool:
        """True if the queues of this node may begin behind their first message."""
        return self.why(node) is not None

    def why(self, node: str) -> str | None:
        """The reason why they may, in one clause; None: nothing allows it."""
        if node not in self._found:
            self._found[node] = self._why(node)
        return self._found[node]

    def _why(self, node: str) -> str | None:
        about = self.run.deployment
        if not about.servers:
            return "the settings of the brokers are not known"
        if about.traits.copies_last_file and self._struck(node, "data-lost"):
            return f"{node} had lost its disk, and copied from the last file of its master on"
        if not self._deleted(node):
            return None
        if self._struck(node, "disk-full"):
            return f"the disk of {node} was full, and it deleted files of its CommitLog"
        reserved = RESERVED_S if about.traits.expires_after_s is None else about.traits.expires_after_s
        if self.run.history and self.run.history[-1].time >= reserved * SECOND:
            return f"{node} deleted files of its CommitLog, which may be {reserved:g} s old"
        return None

    @cached_property
    def _faults(self) -> list[FaultInterval]:
        return fault_intervals(self.run.history)

    def _struck(self, node: str, kind: str) -> bool:
        return any(e.kind == kind and e.node == node for fault in self._faults for e in fault.effects)

    def _deleted(self, node: str) -> bool:
        lines = (line for path in self.run.logs.get(node, ()) for line in own_lines(path, self.run.environment))
        return any(_DELETED.search(line) for line in lines)
