"""Runs that share a cluster: one leaves it running (`--keep`), others find it as it was left (`--reuse RUN_ID`).

What runs on a kept cluster was decided when it was made: topology, versions, settings and machines of a run that reuses
it are those of the run that made it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.api import Workload
from harness.plan.plan import Plan, PlanError
from harness.plan.registry import OWN_MACHINES
from infra.machines import kept

_DECIDED = {
    *("topology", "profile", "controller_type", "brokers", "version", "server_jars", "jvm_options", "settings"),
    *("cluster", "nodes", "hosts", "ssh_key", "base_image", "install", "disposable"),
}
"""Options that say what a cluster is."""


def on_kept(plan: Plan, run_id: str, given: Mapping[str, Any]) -> Plan:
    """The plan with machines and servers of the kept cluster. Raises PlanError where an option that was given asks for
    others, InfraError where there is no such cluster.
    """
    asked = [f"--{option.replace('_', '-')}" for option in given if option in _DECIDED]
    if asked:
        raise PlanError(f"--reuse {run_id}: {', '.join(asked)} was decided when that cluster was made; leave it out")
    record = kept.known(run_id)
    made = Plan.from_dict(tomllib.loads(record.note), f"the kept cluster {run_id}")
    return replace(plan, cluster=replace(made.cluster, backend=record.backend), server=made.server)


def check(plan: Plan, workload: Workload) -> None:
    """Raise PlanError where a plan cannot share a cluster."""
    if not workload.reusable:
        raise PlanError(f"workload {plan.workload!r} needs a cluster of its own; leave --keep and --reuse out")
    if plan.ground_truth:
        raise PlanError("--ground-truth stops the servers at the end; leave --keep and --reuse out")
    if plan.cluster.backend not in ("auto", *OWN_MACHINES):
        raise PlanError(f"--cluster {plan.cluster.backend} keeps nothing; --keep is for {' and '.join(OWN_MACHINES)}")


def told(run_id: str) -> str:
    """What to do with a kept cluster."""
    return f"kept      harness run --reuse {run_id} runs on it again; harness clean --kept removes it"
