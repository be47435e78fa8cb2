# SPDX-License-Identifier: Apache-2.0
"""Resolves what a plan leaves open (topology, profile, rate, every option), and checks that the parts fit together.

A stored plan contains every resolved value, so it stays the same run when a default changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from harness.api import ClientProtocol, Fault, Workload
from harness.nemesis.events import check_trigger
from harness.nemesis.targets import check_role, is_role, roles
from harness.parts import registry
from harness.parts.registry import PlugIn
from harness.plan.defaults import default_client
from harness.plan.plan import NemesisPlan, Plan, PlanError, ServerRule
from harness.shipped import shipped
from infra.options import dump, suggest, toml_value
from infra.systems.api import NOT_AVAILABLE, TOPOLOGIES, Launch, LaunchRule, ServerSettings, Topology, nearest
from infra.systems.mends import catalog
from results.strikes import Strike

STRICT: Final = "strict"
"""The profile that is used if a topology has it and the plan names none: a test of promises needs it."""

DEFAULT_NODES: Final = 5


@dataclass(frozen=True)
class Chosen:
    """A plug-in of a plan, and its options as an object of its `Options`."""

    plugin: PlugIn
    options: Any

    def make(self) -> Any:
        """The plug-in itself; for all but workloads and topologies, which need more."""
        return self.plugin.cls(self.options)


@dataclass(frozen=True)
class ChosenParts:
    """The plug-ins of a plan.

    client   None: the workload has its own. backend: None: the first that works (`auto`).
    faults   of the strikes, or of the nemeses, in their order.
    """

    workload: PlugIn
    topology: Chosen
    client: Chosen | None
    backend: Chosen | None
    faults: Sequence[Chosen]


@dataclass(frozen=True, kw_only=True)
class ResolvedPlan(Plan):
    """A plan without open values, with its plug-ins. As TOML it is the plan that is stored with a run."""

    chosen: ChosenParts = field(repr=False, compare=False)


def resolve(plan: Plan) -> ResolvedPlan:
    """The plan with every value resolved. Raises PlanError if its parts do not fit together.

    The plan of a stored run needs none of this to be judged: it was resolved before it ran.
    """
    workload = registry.find(registry.WORKLOADS, plan.workload)
    topology = registry.find(TOPOLOGIES, _topology(plan, workload.cls))
    named = {registry.CLIENTS: _client(plan, workload.cls), registry.CLUSTERS: _backend(plan)}
    client, backend = (registry.find(group, name) if name is not None else None for group, name in named.items())
    wanted = {n: value for n, value in workload.cls.topology_options.items() if n in topology.options}
    tables = [
        (topology, {**wanted, **plan.server.options}, "server"),
        *([(backend, plan.cluster.options, "cluster")] if backend is not None else []),
        *((registry.find(registry.NEMESES, one.fault), one.options, _where(one)) for one in plan.planned),
    ]
    filled = [Chosen(plugin, plugin.read(_own(plugin, table, where), where)) for plugin, table, where in tables]
    servers, *faults = filled
    machines = faults.pop(0) if backend is not None else None
    options, speaks = _top_options(plan, workload, client)
    server = replace(
        plan.server,
        topology=topology.name,
        profile=_profile(topology, plan.server.profile),
        version=plan.server.version or topology.cls.default_version,
        mends=_mends(plan, topology.cls),
        options=dump(servers.options),
    )
    nodes = plan.cluster.nodes
    if machines is not None:
        nodes = nodes or machines.plugin.cls().nodes_of(machines.options)
    drawn = [replace(n, options=dump(fault.options)) for n, fault in zip(plan.nemeses, faults, strict=False)]
    written = [_strike(s, fault) for s, fault in zip(plan.strikes, faults, strict=False)]
    made = replace(
        plan,
        rate=plan.rate or workload.cls.default_rate,
        client=client.name if client is not None else None,
        options=options,
        server=server,
        cluster=replace(
            plan.cluster,
            nodes=nodes or DEFAULT_NODES,
            options=dump(machines.options) if machines is not None else plan.cluster.options,
        ),
        nemeses=plan.nemeses if plan.strikes else tuple(drawn),
        strikes=tuple(written),
    )
    return ResolvedPlan(**_fields(made), chosen=ChosenParts(workload, servers, speaks, machines, faults))


def _fields(plan: Plan) -> dict[str, Any]:
    return {of.name: getattr(plan, of.name) for of in fields(Plan)}


def _where(one: NemesisPlan | Strike) -> str:
    return f"strike {one.id}" if isinstance(one, Strike) else "nemesis"


def _strike(strike: Strike, fault: Chosen) -> Strike:
    target = strike.target or fault.plugin.cls.default_target
    return replace(strike, target=target, options=dump(fault.options))


def _own(plugin: PlugIn, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a table that are the plug-in's. Raises PlanError for one that it does not have."""
    mine = {name: value for name, value in given.items() if name in plugin.options}
    for name, value in given.items():
        if name not in mine and not _idle(name, value, plugin.group):
            if others := registry.owners_of(name, plugin.group):
                raise PlanError(f"{where}: {plugin} has no option {name!r}; {_owned(others)}")
            mine[name] = value  # (`read` names those that exist)
    return mine


def _top_options(plan: Plan, workload: PlugIn, client: PlugIn | None) -> tuple[dict[str, Any], Chosen | None]:
    """The options that stand beside the names of the workload and its client, and the client with its own."""
    owners = [workload, *([client] if client is not None else [])]
    for name, value in plan.options.items():
        if not any(name in owner.options for owner in owners) and not _idle(name, value, registry.WORKLOADS):
            more = _whose(name, registry.WORKLOADS)
            raise PlanError(f"workload {plan.workload!r} has no option --{name.replace('_', '-')}; {more}")
    what = f"workload {plan.workload!r}"
    read = [
        Chosen(owner, owner.read({n: v for n, v in plan.options.items() if n in owner.options}, "the plan", what))
        for owner in owners
    ]
    found: dict[str, Any] = {}
    for one in read:
        found |= dump(one.options)
    return found, read[1] if client is not None else None


def _idle(option: str, value: Any, group: str) -> bool:
    """True if another plug-in owns this option and the value is its default: earlier plans have them all."""
    if group == registry.NEMESES:
        return False
    specs = (plugin.options[option] for plugin in registry.owners_of(option, group) if option in plugin.options)
    return any(value == (toml_value(spec, spec.default) if spec.default is not None else None) for spec in specs)


def _backend(plan: Plan) -> str | None:
    """The name of the backend; None for `auto`, which has no options."""
    if plan.cluster.backend != "auto":
        return plan.cluster.backend
    for name, value in plan.cluster.options.items():
        if not _idle(name, value, registry.CLUSTERS):
            raise PlanError(f"--cluster auto has no option {name!r}; {_whose(name, registry.CLUSTERS)}")
    return None


def _whose(option: str, group: str) -> str:
    others = registry.owners_of(option, group)
    return _owned(others) if others else "leave it out"


def _owned(others: Sequence[PlugIn]) -> str:
    return f"it is an option of the {others[0].family.word} {' and of '.join(plugin.name for plugin in others)}"


def _mends(plan: Plan, owner: type[Topology]) -> tuple[str, ...]:
    """The mends, for the versions of all servers: ids, and files. Raises SettingsError."""
    if not plan.server.mends:
        return ()
    numbers = {plan.server.version or owner.default_version, *(rule.version for rule in plan.server.rules)}
    numbers |= {known for _, known in _unpinned(plan, owner)}
    versions = [version for version in owner.known_versions() if version.split()[-1] in numbers]
    words = [str(shipped(Path(word))) for word in catalog.ids(plan.server.mends)]
    return tuple(mend.text for mend in catalog.choose(words, versions))


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


def remarks(plan: ResolvedPlan) -> list[str]:
    """Remarks for the user on a plan before it runs, one line each."""
    return [
        f"version {version} is not pinned here: your jars run with the settings and the libraries of {known}"
        for version, known in _unpinned(plan, plan.chosen.topology.plugin.cls)
    ]


def make_client(plan: Plan) -> ClientProtocol | None:
    """The client of a resolved plan; None: the workload has its own."""
    if plan.client is None:
        return None
    cls: type[ClientProtocol] = registry.find(registry.CLIENTS, plan.client).cls
    return cls(plan.options_of(registry.options_class(cls), f"the client {plan.client!r}"))


def make_topology(plan: ResolvedPlan, workload: Workload, versions: Sequence[str] = ()) -> Topology:
    """The topology of a plan. `versions`: others that faults need. Raises InfraError for settings that it rejects."""
    server, client, chosen = plan.server, plan.chosen.client, plan.chosen.topology
    settings = ServerSettings(
        settings={**workload.server_settings(), **server.settings},
        profile=server.profile,
        launch=Launch(
            version=server.version,
            jars=Path(server.jars) if server.jars else None,
            jvm_options=server.jvm_options,
            mends=catalog.numbers(server.mends),
        ),
        rules=[_launch_rule(rule) for rule in server.rules],
        versions=versions,
        kinds=[*(client.plugin.cls.kinds if client is not None else ()), *workload.kinds],
    )
    made: Topology = chosen.plugin.cls(settings, chosen.options)
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


def check_targets(plan: ResolvedPlan, faults: Sequence[Fault]) -> None:
    """Raises PlanError for roles that no server of this cluster can have, for faults at servers that it does not have,
    and for unknown events. faults: of the strikes, or of the nemeses, in their order.
    """
    without = plan.chosen.workload.cls.without
    kinds = [kind for kind in plan.chosen.topology.plugin.cls.kinds if kind not in without]
    known = roles(kinds, groups=not without)
    for one, fault in zip(plan.planned, faults, strict=True):
        target = one.target or fault.default_target
        if is_role(target):
            check_role(target.strip(), kinds, plan.nodes, f"target of {one.fault}", groups=not without)
    for one, fault in zip(plan.planned, faults, strict=True):
        absent = next((kind for kind in fault.kinds_needed() if kind not in kinds), None)
        if absent is not None:
            had = ", ".join(kinds)
            whose = f"workload {plan.workload}" if absent in without else f"topology {plan.server.topology}"
            raise PlanError(f"{one.fault} needs a {absent}; the {whose} has none, but {had}; another is right")
        for role in fault.roles():
            if role not in known:
                raise PlanError(
                    f"peers of {one.fault}: no role {role!r}{suggest(role, known) or '; ' + ', '.join(known)}"
                )
    for strike in plan.strikes:
        if strike.after is not None:
            check_trigger(strike.after, f"strike {strike.id}")


def _topology(plan: Plan, workload: type[Workload]) -> str:
    """Returns the topology's name. Raises PlanError if none has that name, or the workload does not run on it."""
    known = registry.names(TOPOLOGIES)
    topologies = workload.topologies_with(plan.client)
    fits = [name for name in topologies if name in known]
    requested = plan.server.topology
    if requested is not None and requested not in known:
        registry.find(TOPOLOGIES, requested)  # says so
    if not fits:
        wanted = ", ".join(topologies)
        raise PlanError(f"workload {plan.workload!r} needs the topology {wanted}; there are: {', '.join(known)}")
    if requested is not None and requested not in fits:
        speaks = f" with --client {plan.client}" if requested in workload.topologies else ""
        raise PlanError(
            f"workload {plan.workload!r} does not run on the topology {requested!r}{speaks}; it does on "
            f"{', '.join(fits)}"
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


def _profile(topology: PlugIn, requested: str | None) -> str | None:
    known = list(topology.cls.profiles)
    if requested is not None and requested not in known:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise PlanError(
            f"the topology {topology.name} has no profile {requested!r}{suggest(requested, known)}; {there}"
        )
    if requested is not None or not known:
        return requested
    return STRICT if STRICT in known else known[0]
