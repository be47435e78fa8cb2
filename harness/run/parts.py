# SPDX-License-Identifier: Apache-2.0
"""The constituents of a run: the parts that its plan names, and the run itself once it has machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from harness.api import Fault, Workload
from harness.parts.registry import FaultSet
from harness.plan.plan import Plan
from harness.run.environment import Environment
from infra.machines.api import Backend
from infra.systems.api import Deployment, Topology
from results.store import RunDir
from results.strikes import Strike

Say = Callable[[str], None]
"""Prints a line."""


@dataclass(frozen=True)
class Parts:
    """The parts that a resolved plan names; none is started yet. backend_options: None for the defaults."""

    workload: Workload
    faults: FaultSet
    strikes: Sequence[Strike]
    topology: Topology
    backend_options: Any = None

    def fault(self, strike: Strike) -> Fault:
        """The fault of a strike. Raises PlanError if the plan has none of this kind."""
        return self.faults.of(strike.fault, strike.options)


@dataclass(frozen=True)
class Prepared:
    """A plan that passed all checks that need no machine.

    keep   leave the cluster running at the end. reuse: the run id of a kept cluster to run on; it stays kept.
    keep_journal  leave `journal.jsonl` beside the sealed history, which has the same operations.
    end_early     anomalies that end the load when the workload's watch sees one; empty: any. None: it runs to its end.
    """

    plan: Plan
    parts: Parts
    backend: Backend
    keep: bool = False
    reuse: str | None = None
    keep_journal: bool = False
    end_early: Set[str] | None = None


@dataclass(frozen=True)
class Run:
    """A run on its machines. began: the time of the command (`time.monotonic`). keep_journal, end_early: see
    `Prepared`.
    """

    plan: Plan
    parts: Parts
    deployment: Deployment
    folder: RunDir
    environment: Environment
    say: Say
    began: float = field(default_factory=time.monotonic)
    keep_journal: bool = False
    end_early: Set[str] | None = None

    @property
    def seconds(self) -> float:
        """The time since the command."""
        return time.monotonic() - self.began
