# SPDX-License-Identifier: Apache-2.0
"""The record of a run: the input of the checkers and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from results.deployment import DeploymentRecord
from results.history import History
from results.machine import MachineSample

BEGUN: Final = "begun"
COMPLETE: Final = "complete"
"""The fact `phases` of an environment: how far the phases of the run came. Runs of earlier versions lack it."""

NODES_GONE: Final = "nodes_gone"
"""The fact of an environment with the reason why no node was left."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One node's report at one moment (polled about once a second during a run).

    time       ns since the start of the run.
    role       `leader`, `follower`, `candidate`, `starting`, or `silent` (did not answer).
    term       Raft term, or None.
    leader     name of the node it considers the leader, or None.
    begin, end, committed, applied   log indices (brokers: bytes of the CommitLog), or None if not reported. -1 means
               "none yet".
    extra      further reports of its servers, JSON values: see `infra.systems.api.Status`.
    """

    time: int
    node: str
    role: str
    term: int | None = None
    leader: str | None = None
    begin: int | None = None
    end: int | None = None
    committed: int | None = None
    applied: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None and (k != "extra" or v)}


@dataclass(frozen=True)
class RunRecord:
    """Everything a checker may read: no machine, only recorded data.

    plan         the effective plan as plain data (`plan.toml`), defaults filled in; {} for a foreign history.
    observations roles and log positions of the nodes over time, in order of time.
    logs         node name -> text files collected from it (server log, GC log, hs_err).
    machine      the machines' resources over time; empty if not measured.
    deployment   the servers and their nodes; empty for a foreign history.
    path         the run's folder in the store, or None.
    """

    history: History
    plan: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    observations: Sequence[Observation] = ()
    logs: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    path: Path | None = None
    machine: Sequence[MachineSample] = ()
    deployment: DeploymentRecord = field(default_factory=lambda: DeploymentRecord(""))

    @property
    def version(self) -> str:
        """The version of the servers: `5.3.2`, or `5.3.2+5.5.0` of a mixed cluster; "": unknown. Runs stored before
        deployment records existed have it in their environment.
        """
        found = sorted({server.version for server in self.deployment.servers if server.version})
        noted = self.environment.get("rocketmq") or self.environment.get("dledger") or ""
        return "+".join(found) or str(noted)

    @property
    def build(self) -> str:
        """The version as readable text; with the user's jars, their changes
        (`5.5.0 + 3 changed classes (AutoSwitchHAService, ...)`).
        """
        return str(self.environment.get("build") or self.version)
