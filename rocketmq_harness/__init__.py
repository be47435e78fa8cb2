# SPDX-License-Identifier: Apache-2.0
"""The public names of the harness: everything that a package of yours needs to import. docs/python.md lists them.

    from rocketmq_harness import Evidence, NodeFault, option

The names live in the packages below. A name loads its module when it is first used (PEP 562), so importing this package
costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rocketmq_harness.hidden import require_ours

if TYPE_CHECKING:
    from checkers import linearizability
    from checkers.base.api import Checker, judge
    from checkers.linearizability import ANYTHING, MODELS, Linearizable, LinearResult, Model, check, check_keys
    from checkers.linearizability.batch import check_batch
    from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
    from checkers.messages.ops import validate
    from checkers.run.stats import Stats
    from harness import generator
    from harness.api import (
        Client,
        ClientProtocol,
        Completion,
        Evidence,
        Fault,
        Injection,
        NodeFault,
        NoTarget,
        Phase,
        RunContext,
        Target,
        Watch,
        Workload,
    )
    from harness.cluster_view import ClusterView
    from harness.generator import Generator, Invocation
    from harness.plan.plan import Plan
    from harness.plan.table import PlanError
    from infra.machines.api import (
        Backend,
        Capability,
        Cluster,
        ClusterSpec,
        InfraError,
        Lease,
        Node,
        ProcessId,
        SettingsError,
        Share,
    )
    from infra.machines.primitives.process import kill_process
    from infra.options import NoOptions, Seconds, Size, option
    from infra.systems.api import Deployment, Server, ServerSettings, Status, Topology
    from nemesis.process import Kill, ProcessFault
    from results.alarm import Alarm
    from results.deployment import DeploymentRecord
    from results.errors import HistoryError
    from results.formats import ReadOptions, read_history
    from results.history import History
    from results.op import Op, OpType
    from results.record import RunRecord
    from results.strikes import Effect, EffectKind
    from results.verdict import Anomaly, CheckResult, Excuse, Judgement, Verdict
    from rocketmq_harness.asserting import assert_linearizable, assert_log
    from rocketmq_harness.clusters import RunningCluster, start_cluster
    from rocketmq_harness.recording import Operation, Recorder, record
    from workloads.clients import MessageClient
    from workloads.register import RegisterOptions, RegisterWorkload

__all__ = [
    "ANYTHING",
    "MODELS",
    "Alarm",
    "Anomaly",
    "Backend",
    "Capability",
    "CheckResult",
    "Checker",
    "Client",
    "ClientProtocol",
    "Cluster",
    "ClusterSpec",
    "ClusterView",
    "Completion",
    "Deployment",
    "DeploymentRecord",
    "Effect",
    "EffectKind",
    "Evidence",
    "Excuse",
    "Fault",
    "Generator",
    "History",
    "HistoryError",
    "InfraError",
    "Injection",
    "Invocation",
    "Judgement",
    "Kill",
    "Lease",
    "LinearResult",
    "Linearizable",
    "LogAnomalies",
    "LogLinearizable",
    "MessageClient",
    "Model",
    "NoOptions",
    "NoTarget",
    "Node",
    "NodeFault",
    "Op",
    "OpType",
    "Operation",
    "Phase",
    "Plan",
    "PlanError",
    "ProcessFault",
    "ProcessId",
    "ReadOptions",
    "Recorder",
    "RegisterOptions",
    "RegisterWorkload",
    "Replicas",
    "RunContext",
    "RunRecord",
    "RunningCluster",
    "Seconds",
    "Server",
    "ServerSettings",
    "SettingsError",
    "Share",
    "Size",
    "Stats",
    "Status",
    "Target",
    "Topology",
    "Verdict",
    "Watch",
    "Workload",
    "assert_linearizable",
    "assert_log",
    "check",
    "check_batch",
    "check_keys",
    "generator",
    "judge",
    "kill_process",
    "linearizability",
    "option",
    "read_history",
    "record",
    "start_cluster",
    "validate",
]

_MODULES: Final = {
    "generator": "harness.generator",
    "linearizability": "checkers.linearizability",
}
"""Name -> the module that it names."""

_PLACES: Final = {
    name: module
    for module, names in {
        "checkers.base.api": "Checker judge",
        "checkers.linearizability": "ANYTHING MODELS LinearResult Linearizable Model check check_keys",
        "checkers.linearizability.batch": "check_batch",
        "checkers.messages.log": "LogAnomalies LogLinearizable Replicas",
        "checkers.messages.ops": "validate",
        "checkers.run.stats": "Stats",
        "harness.api": "Client ClientProtocol Completion Evidence Fault Injection "
        "NoTarget NodeFault Phase RunContext Target Watch Workload",
        "harness.cluster_view": "ClusterView",
        "harness.generator": "Generator Invocation",
        "harness.plan.plan": "Plan",
        "harness.plan.table": "PlanError",
        "infra.machines.api": "Backend Capability Cluster ClusterSpec InfraError "
        "Lease Node ProcessId SettingsError Share",
        "infra.machines.primitives.process": "kill_process",
        "infra.options": "NoOptions Seconds Size option",
        "infra.systems.api": "Deployment Server ServerSettings Status Topology",
        "nemesis.process": "Kill ProcessFault",
        "results.alarm": "Alarm",
        "results.deployment": "DeploymentRecord",
        "results.errors": "HistoryError",
        "results.formats": "ReadOptions read_history",
        "results.history": "History",
        "results.op": "Op OpType",
        "results.record": "RunRecord",
        "results.strikes": "Effect EffectKind",
        "results.verdict": "Anomaly CheckResult Excuse Judgement Verdict",
        "rocketmq_harness.asserting": "assert_linearizable assert_log",
        "rocketmq_harness.clusters": "RunningCluster start_cluster",
        "rocketmq_harness.recording": "Operation Recorder record",
        "workloads.clients": "MessageClient",
        "workloads.register": "RegisterOptions RegisterWorkload",
    }.items()
    for name in names.split()
}
"""Name -> the module that defines it."""


if not TYPE_CHECKING:  # With it, a type checker would accept any name.

    def __getattr__(name: str) -> Any:
        """Loads a name on its first use. Raises HiddenPackage if a package of the user's hides one of the harness."""
        module = _MODULES.get(name) or _PLACES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its names are in docs/python.md")
        require_ours()
        found = import_module(module)
        value = found if name in _MODULES else getattr(found, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
