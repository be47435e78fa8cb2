# SPDX-License-Identifier: Apache-2.0
"""Runs that share a cluster: one keeps it (`--keep`), others use it (`--reuse RUN_ID`).

Topology, versions, settings and machines of a kept cluster are fixed when it is created. A run that reuses it takes
them from the run that created it. Settings that its workload's own options need are changed while the servers run, if
they accept that (`infra.systems.rocketmq.topologies.files.LIVE`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harness.api import Workload
from harness.parts import registry
from harness.parts.resolve import ResolvedPlan, resolve
from harness.plan.plan import Plan, PlanError
from infra.machines import kept
from infra.options import OptionSpec
from infra.systems.api import TOPOLOGIES

_DECIDED: Final = {
    "topology": "--topology",
    "profile": "--profile",
    "version": "--version",
    "server_jars": "--server-jars",
    "jvm_options": "--jvm-option",
    "mends": "--mend",
    "settings": "--set",
    "cluster": "--cluster",
    "nodes": "--nodes",
}
"""Options that define a cluster, besides those of topologies and backends."""


def on_kept(
    plan: Plan,
    run_id: str,
    given: Mapping[str, Any],
    owned: Mapping[str, tuple[OptionSpec, Sequence[str]]],
    override: Callable[[Plan, Mapping[str, Any]], Plan],
) -> Plan:
    """The plan with machines and servers of the kept cluster. Raises PlanError if a given option needs others,
    InfraError if no such cluster exists. override: makes a plan with some of the given options.
    """
    flags = {option: _DECIDED[option] for option in given if option in _DECIDED} | {
        f"of_{name}": spec.flag
        for name, (spec, groups) in owned.items()
        if f"of_{name}" in given and set(groups) & {TOPOLOGIES, registry.CLUSTERS}
    }
    record = kept.known(run_id)
    made = Plan.from_dict(tomllib.loads(record.note), f"the kept cluster {run_id}")
    made = replace(made, cluster=replace(made.cluster, backend=record.backend))
    others = [flag for option, flag in flags.items() if not _has(made, override(made, {option: given[option]}))]
    if others:
        raise PlanError(f"--reuse {run_id}: {', '.join(others)} was set otherwise when that cluster was created")
    return replace(plan, cluster=made.cluster, server=made.server)


def _has(made: Plan, wanted: Plan) -> bool:
    # What was noted is resolved: mends are single ids there, whatever way they were named.
    wanted = resolve(wanted)
    return (made.cluster, made.server) == (wanted.cluster, wanted.server)


def check(plan: ResolvedPlan, workload: Workload) -> None:
    """Raises PlanError if a plan cannot share a cluster."""
    if not workload.reusable:
        raise PlanError(f"workload {plan.workload!r} needs a new cluster; leave --keep and --reuse out")
    if workload.stops_servers:
        raise PlanError(f"workload {plan.workload!r} stops the servers at the end; leave --keep and --reuse out")
    backend = plan.chosen.backend
    if backend is not None and not backend.plugin.cls.keeps:
        keeping = [name for name, made in registry.backends() if made.keeps]
        raise PlanError(f"--cluster {backend.plugin.name} cannot keep clusters; --keep is for {' and '.join(keeping)}")


def of_cluster(words: Sequence[str]) -> list[str]:
    """The options of `harness run` that define the cluster."""
    found: list[str] = []
    here = False
    for word in words:
        if word.startswith("--"):
            flag = word.partition("=")[0].replace("--no-", "--", 1)
            here = flag in _DECIDED.values() or any(
                registry.owners_of(flag, group) for group in (TOPOLOGIES, registry.CLUSTERS)
            )
        if here:
            found.append(word)
    return found


def describe(run_id: str) -> str:
    """A line that names the commands for a kept cluster."""
    return f"kept      harness run --reuse {run_id} runs on it again; harness clean --kept removes it"
