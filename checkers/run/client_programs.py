# SPDX-License-Identifier: Apache-2.0
"""Client programs of a user that ended, were silent, or printed nonsense. Each such op is `info`; nothing is judged."""

from __future__ import annotations

from collections import Counter
from typing import Final

from results.record import RunRecord
from results.verdict import CheckResult, Verdict

_WORDS: Final = {
    "died": "ended by themselves",
    "garbled": "printed nonsense",
    "silent": "were silent until the deadline",
}


class ClientPrograms:
    """Counts the programs that were replaced (`workloads.any_system.pipe`)."""

    name = "client-programs"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: kind of accident -> its number."""
        lost = [op for op in run.history.clients if op.extra.get("accident") in _WORDS]
        counted = Counter(str(op.extra["accident"]) for op in lost)
        if not lost:
            return CheckResult(self.name, Verdict.VALID, "every program answered each operation")
        parts = ", ".join(f"{count} {_WORDS[kind]}" for kind, count in sorted(counted.items()))
        shown = [op for op in lost if op.extra["accident"] != "silent"] or lost
        first = f"the first: op {shown[0].index}: {shown[0].error}"
        return CheckResult(self.name, Verdict.VALID, f"{len(lost)} replaced: {parts}; {first}", stats=dict(counted))
