# SPDX-License-Identifier: Apache-2.0
"""The faults that no run of a place had: those that cannot occur there, with the reason, and those that can, with the
command that tries each.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.coverage.counting import Coverage, Place
from harness.nightly.matrix import Cell as Combination
from harness.nightly.matrix import why_not
from harness.parts import registry


@dataclass(frozen=True)
class Gap:
    """A fault that no run of a place had. impossible: the reason why none can; "": one can."""

    place: Place
    fault: str
    impossible: str = ""

    @property
    def command(self) -> str:
        """The command that tries it."""
        words = ["harness", "run", "--workload", self.place.workload, "--topology", self.place.topology]
        return shlex.join([*words, "--nemesis", self.fault])


def faults() -> list[str]:
    """The names of all faults that are installed."""
    return sorted(name for name, plugin in registry.loadable(registry.NEMESES).items() if plugin.cls.name == name)


def gaps(found: Coverage) -> Iterator[Gap]:
    """The gaps of all places with runs whose workload is installed here, by place and fault."""
    for place in sorted(found.runs):
        if place.workload not in registry.names(registry.WORKLOADS):
            continue
        base = Combination(place.workload, place.topology, "", "", "", "")
        for fault in faults():
            if fault not in found.faults[place]:
                yield Gap(place, fault, why_not(replace(base, nemesis=fault)) or "")
