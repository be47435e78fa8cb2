"""What a plan leaves open, decided: topology, profile, rate; and whether its parts go together.

A stored plan has every decision in it, so that it stays the same run when a default changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.api import Workload
from harness.plan import registry
from harness.plan.plan import Plan, PlanError, suggest
from infra.systems.api import ServerSettings, Topology
from infra.systems.dledger import server as dledger
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies import TOPOLOGIES

STRICT = "strict"
"""The profile taken where a topology has it and the plan names none: what a test of promises asks for."""

_SPECIAL = ("read_mode", "snapshot", "consume")
"""Options that mean something to some workloads only (`Workload.heeds`)."""


def decided(plan: Plan) -> Plan:
    """The plan with nothing left open. Raises PlanError where its parts do not go together."""
    workload = registry.workload_class(plan.workload)
    topology = _topology(plan, workload)
    profile = _profile(topology, plan.server.profile)
    version = plan.server.version or (
        dledger.VERSION if topology == DledgerTopology.name else artifacts.DEFAULT_VERSION
    )
    server = replace(plan.server, topology=topology, profile=profile, version=version)
    return replace(plan, rate=plan.rate or workload.default_rate, server=server)


def make_topology(plan: Plan, workload: Workload) -> Topology:
    """The topology of a decided plan. Raises InfraError for settings that it does not take."""
    server = plan.server
    assert server.topology is not None, "the plan is decided"
    options: Mapping[str, object] = {
        "controller_type": server.controller_type,
        "brokers": server.brokers,
        "proxy": "true" if plan.client == "grpc" else None,
    }
    return TOPOLOGIES[server.topology](
        ServerSettings(
            version=server.version,
            settings={**workload.server_settings(), **server.settings},
            jars=Path(server.jars) if server.jars else None,
            jvm_options=server.jvm_options,
            profile=server.profile,
            options={name: str(value) for name, value in options.items() if value is not None},
        )
    )


def _topology(plan: Plan, workload: type[Workload]) -> str:
    """Its name. PlanError where there is none of that name, or the workload, its client or an option cannot be had."""
    fits = [name for name in workload.topologies if name in TOPOLOGIES]
    asked = plan.server.topology
    if asked is not None and asked not in TOPOLOGIES:
        raise PlanError(f"no topology {asked!r}{suggest(asked, TOPOLOGIES)}  (harness list topologies)")
    if not fits:
        known = ", ".join(sorted(TOPOLOGIES))
        wanted = ", ".join(workload.topologies)
        raise PlanError(f"workload {plan.workload!r} wants the topology {wanted}; there are: {known}")
    if asked is not None and asked not in fits:
        raise PlanError(
            f"workload {plan.workload!r} does not run on the topology {asked!r}; it does on {', '.join(fits)}"
        )
    if plan.client not in workload.clients:
        right = " or ".join(workload.clients)
        raise PlanError(f"workload {plan.workload!r} has no client {plan.client!r}; --client {right} is right")
    for option in _SPECIAL:
        if getattr(plan, option) != getattr(Plan(), option) and option not in workload.heeds:
            raise PlanError(f"workload {plan.workload!r} knows no --{option.replace('_', '-')}; leave it out")
    if plan.ground_truth and workload.ground_truth is Workload.ground_truth:
        raise PlanError(f"workload {plan.workload!r} reads no ground truth; leave --ground-truth out")
    return asked or fits[0]


def topologies() -> list[str]:
    """The names of all topologies, sorted."""
    return sorted(TOPOLOGIES)


def told(topology: str) -> str:
    """A topology in one line: what it is, and its profiles."""
    summary = getattr(TOPOLOGIES[topology], "summary", "")
    known = profiles(topology)
    return summary + (f"  [profiles: {', '.join(known)}]" if known else "")


def versions() -> Mapping[str, str]:
    """Product and version -> what is known of it, for `harness list`; the default first."""
    whole = sorted(artifacts.VERSIONS, key=lambda v: (v != artifacts.DEFAULT_VERSION, v))
    found = {f"rocketmq {v}": "the default" if v == artifacts.DEFAULT_VERSION else "" for v in whole}
    found |= {
        f"rocketmq {v}": f"cannot be had: {what} were never published" for v, what in artifacts.INCOMPLETE.items()
    }
    return {**found, f"dledger {dledger.VERSION}": "the topology dledger"}


def profiles(topology: str) -> list[str]:
    """The profiles of a topology, its own default first; [] where there is only one way."""
    return list(getattr(TOPOLOGIES[topology], "profiles", ()))


def _profile(topology: str, asked: str | None) -> str | None:
    known = profiles(topology)
    if asked is not None and asked not in known:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise PlanError(f"the topology {topology} has no profile {asked!r}{suggest(asked, known)}; {there}")
    if asked is not None or not known:
        return asked
    return STRICT if STRICT in known else known[0]
