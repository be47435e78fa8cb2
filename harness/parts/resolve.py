"""Resolves what a plan leaves open (topology, profile, rate, every option), and checks that the parts fit together.

A stored plan contains every resolved value, so it stays the same run when a default changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.api import ClientProtocol, Workload
from harness.nemesis.events import check_trigger
from harness.nemesis.targets import check_role, is_role, roles
from harness.parts import registry
from harness.plan.defaults import default_client
from harness.plan.plan import NemesisPlan, Plan, PlanError, ServerRule
from infra.options import dump, suggest, toml_value
from infra.systems.api import NOT_AVAILABLE, TOPOLOGIES, Launch, LaunchRule, ServerSettings, Topology, nearest
from infra.systems.mends.catalog import choose

STRICT: Final = "strict"
"""The profile that is used if a topology has it and the plan names none: a test of promises needs it."""

DEFAULT_NODES: Final = 5


def resolve(plan: Plan) -> Plan:
    """The plan with every value resolved. Raises PlanError if its parts do not fit together.

    The plan of a stored run needs none of this to be judged: it was resolved before it ran.
    """
    workload = registry.workload_class(plan.workload)
    topology = _topology(plan, workload)
    profile = _profile(topology, plan.server.profile)
    owner = registry.topology_class(topology)
    client = _client(plan, workload)
    backend = plan.cluster.backend
    wanted = {n: value for n, value in workload.topology_options.items() if n in registry.options_by_name(owner)}
    server = replace(
        plan.server,
        topology=topology,
        profile=profile,
        version=plan.server.version or owner.default_version,
        mends=_mends(plan, owner),
        options=_filled(owner, {**wanted, **plan.server.options}, "server", f"the topology {topology!r}", TOPOLOGIES),
    )
    cluster_options, nodes = plan.cluster.options, plan.cluster.nodes
    if backend != "auto":
        found = registry.backend_class(backend)
        cluster_options = _filled(found, plan.cluster.options, "cluster", f"--cluster {backend}", registry.CLUSTERS)
        nodes = nodes or found().nodes_of(registry.options_of(found, cluster_options, "cluster", backend))
    elif given := [n for n, value in plan.cluster.options.items() if not _idle(n, value, registry.CLUSTERS)]:
        name = given[0]
        raise PlanError(f"--cluster auto has no option {name!r}; {_whose(name, registry.CLUSTERS)}")
    return replace(
        plan,
        rate=plan.rate or workload.default_rate,
        client=client,
        options=_top_options(plan, workload, client),
        server=server,
        cluster=replace(plan.cluster, nodes=nodes or DEFAULT_NODES, options=cluster_options),
        nemeses=tuple(_nemesis(nemesis) for nemesis in plan.nemeses),
        strikes=tuple(
            replace(
                strike,
                target=strike.target or registry.fault_class(strike.fault).default_target,
                options=_filled(
                    registry.fault_class(strike.fault),
                    strike.options,
                    f"strike {strike.id}",
                    f"the nemesis {strike.fault!r}",
                    registry.NEMESES,
                ),
            )
            for strike in plan.strikes
        ),
    )


def _nemesis(nemesis: NemesisPlan) -> NemesisPlan:
    owner = registry.fault_class(nemesis.fault)
    options = _filled(owner, nemesis.options, "nemesis", f"the nemesis {nemesis.fault!r}", registry.NEMESES)
    return replace(nemesis, options=options)


def _filled(owner: type[Any], given: Mapping[str, Any], where: str, what: str, group: str) -> dict[str, Any]:
    """An owner's options with all defaults. Raises PlanError for one that it does not have."""
    known = registry.options_by_name(owner)
    given = {name: value for name, value in given.items() if name in known or not _idle(name, value, group)}
    strange = [name for name in given if name not in known]
    if strange and (others := registry.owners_of(strange[0], group)):
        raise PlanError(f"{where}: {what} has no option {strange[0]!r}; {_owned(others, group)}")
    return dump(registry.options_of(owner, given, where, what))


def _top_options(plan: Plan, workload: type[Workload], client: str | None) -> dict[str, Any]:
    """The options that stand beside the names of the workload and its client."""
    owners = [workload, *([registry.client_class(client)] if client is not None else [])]
    known = {name for owner in owners for name in registry.options_by_name(owner)}
    for name in plan.options:
        if name in known or _idle(name, plan.options[name], registry.WORKLOADS):
            continue
        others = registry.owners_of(name, registry.WORKLOADS)
        more = _owned(others, registry.WORKLOADS) if others else "leave it out"
        raise PlanError(f"workload {plan.workload!r} has no option --{name.replace('_', '-')}; {more}")
    found: dict[str, Any] = {}
    for owner in owners:
        mine = registry.options_by_name(owner)
        given = {name: value for name, value in plan.options.items() if name in mine}
        found |= dump(registry.options_of(owner, given, "the plan", f"workload {plan.workload!r}"))
    return found


def _idle(option: str, value: Any, group: str) -> bool:
    """True if another plug-in owns this option and the value is its default: earlier plans have them all."""
    if group == registry.NEMESES:
        return False
    for name in registry.owners_of(option, group):
        spec = registry.options_by_name(registry.find(group, name))[option]
        if value == (toml_value(spec, spec.default) if spec.default is not None else None):
            return True
    return False


def _whose(option: str, group: str) -> str:
    others = registry.owners_of(option, group)
    return _owned(others, group) if others else "leave it out"


def _owned(others: Sequence[str], group: str) -> str:
    word = next(family.word for family in registry.FAMILIES if family.group == group)
    return f"it is an option of the {word} {' and of '.join(others)}"


def _mends(plan: Plan, owner: type[Topology]) -> tuple[str, ...]:
    """The ids of the mends, for the versions of all servers. Raises SettingsError."""
    if not plan.server.mends:
        return ()
    numbers = {plan.server.version or owner.default_version, *(rule.version for rule in plan.server.rules)}
    numbers |= {known for _, known in _unpinned(plan, owner)}
    versions = [version for version in owner.known_versions() if version.split()[-1] in numbers]
    return tuple(str(mend.id) for mend in choose(plan.server.mends, versions))


def _unpinned(plan: Plan, owner: type[Topology]) -> list[tuple[str, str]]:
    """(version of own jars that is not pinned, the nearest one that is)."""
    server = plan.server
    known = [name.split()[-1] for name, said in owner.known_versions().items() if not said.startswith(NOT_AVAILABLE)]
    given = [(server.version, server.jars), *((rule.version, rule.jars or server.jars) for rule in server.rules)]
    return [
        (version, nearest(version, known))
        for version, jars in dict.fromkeys(given)
        if version is not None and jars and known and version not in known
    ]


def remarks(plan: Plan) -> list[str]:
    """Remarks for the user on a resolved plan before it runs, one line each."""
    owner = registry.topology_class(str(plan.server.topology))
    return [
        f"version {version} is not pinned here: your jars run with the settings and the libraries of {known}"
        for version, known in _unpinned(plan, owner)
    ]


def make_client(plan: Plan) -> ClientProtocol | None:
    """The client of a resolved plan; None: the workload has its own."""
    if plan.client is None:
        return None
    found = registry.client_class(plan.client)
    return found(plan.options_of(registry.options_class(found), f"the client {plan.client!r}"))


def make_topology(plan: Plan, workload: Workload, versions: Sequence[str] = ()) -> Topology:
    """The topology of a resolved plan. `versions`: others that faults need. Raises InfraError for settings that it
    rejects.
    """
    server, client = plan.server, make_client(plan)
    assert server.topology is not None, "the plan is resolved"
    found: Any = registry.topology_class(server.topology)
    settings = ServerSettings(
        settings={**workload.server_settings(), **server.settings},
        profile=server.profile,
        launch=Launch(
            version=server.version,
            jars=Path(server.jars) if server.jars else None,
            jvm_options=server.jvm_options,
            mends=[int(word) for word in server.mends],
        ),
        rules=[_launch_rule(rule) for rule in server.rules],
        versions=versions,
        kinds=client.kinds if client is not None else (),
    )
    options = registry.options_of(found, server.options, "server", f"the topology {server.topology!r}")
    made: Topology = found(settings, options)
    return made


def _launch_rule(rule: ServerRule) -> LaunchRule:
    launch = Launch(
        version=rule.version,
        jars=Path(rule.jars) if rule.jars else None,
        env=rule.env,
        wrapper=rule.wrapper,
        jvm_options=rule.jvm_options,
    )
    return LaunchRule(launch, rule.nodes, rule.kinds)


def check_targets(plan: Plan) -> None:
    """Raises PlanError for roles that no server of this cluster can have, for faults at servers that it does not have,
    and for unknown events.
    """
    topology, without = str(plan.server.topology), registry.workload_class(str(plan.workload)).without
    kinds = [kind for kind in registry.topology_class(topology).kinds if kind not in without]
    aimed = [(n.target, n.fault) for n in plan.nemeses] + [(s.target, s.fault) for s in plan.strikes]
    for named_target, fault in aimed:
        target = named_target or registry.fault_class(fault).default_target
        if is_role(target):
            check_role(target.strip(), kinds, plan.nodes, f"target of {fault}", groups=not without)
    named = [(n.fault, n.options) for n in plan.nemeses] + [(s.fault, s.options) for s in plan.strikes]
    for name, options in named:
        made = registry.fault(name, options)
        absent = next((kind for kind in made.kinds_needed() if kind not in kinds), None)
        if absent is not None:
            had = ", ".join(kinds)
            whose = f"workload {plan.workload}" if absent in without else f"topology {topology}"
            raise PlanError(f"{name} needs a {absent}; the {whose} has none, but {had}; another is right")
        for role in made.roles():
            if role not in (known := roles(kinds, groups=not without)):
                raise PlanError(f"peers of {name}: no role {role!r}{suggest(role, known) or '; ' + ', '.join(known)}")
    for strike in plan.strikes:
        if strike.after is not None:
            check_trigger(strike.after, f"strike {strike.id}")


def _topology(plan: Plan, workload: type[Workload]) -> str:
    """Returns the topology's name. Raises PlanError if none has that name, or the workload does not run on it."""
    known = registry.names(TOPOLOGIES)
    fits = [name for name in workload.topologies if name in known]
    requested = plan.server.topology
    if requested is not None and requested not in known:
        registry.topology_class(requested)  # says so
    if not fits:
        wanted = ", ".join(workload.topologies)
        raise PlanError(f"workload {plan.workload!r} needs the topology {wanted}; there are: {', '.join(known)}")
    if requested is not None and requested not in fits:
        raise PlanError(
            f"workload {plan.workload!r} does not run on the topology {requested!r}; it does on {', '.join(fits)}"
        )
    return requested or fits[0]


def _client(plan: Plan, workload: type[Workload]) -> str | None:
    if not workload.clients:
        if plan.client not in (None, default_client()):
            raise PlanError(f"workload {plan.workload!r} has its own clients; leave --client out")
        return None
    if plan.client is not None and plan.client not in workload.clients:
        right = " or ".join(workload.clients)
        raise PlanError(f"workload {plan.workload!r} has no client {plan.client!r}; --client {right} is right")
    return plan.client or workload.clients[0]


def _profile(topology: str, requested: str | None) -> str | None:
    known = list(registry.topology_class(topology).profiles)
    if requested is not None and requested not in known:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise PlanError(f"the topology {topology} has no profile {requested!r}{suggest(requested, known)}; {there}")
    if requested is not None or not known:
        return requested
    return STRICT if STRICT in known else known[0]
