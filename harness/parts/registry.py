"""Plug-ins by name, found through entry points (`pyproject.toml`), and the options that each declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

from harness import terminal
from harness.api import ClientProtocol, Fault, Workload
from harness.plan.plan import CLUSTER_KEYS, PLAN_KEYS, SERVER_KEYS, STRIKE_KEYS, Plan, PlanError
from harness.plan.points import points
from harness.signals import Stopped
from infra.machines.api import Backend, Capability
from infra.options import NoOptions, OptionError, OptionSpec, parse, specs, suggest
from infra.systems.api import TOPOLOGIES, Topology

WORKLOADS: Final = "harness.workloads"
NEMESES: Final = "harness.nemeses"
CLUSTERS: Final = "harness.clusters"
CLIENTS: Final = "harness.clients"


@dataclass(frozen=True)
class Family:
    """One kind of plug-ins. base: the base class of its plug-ins. word, plural: the users' names for it."""

    group: str
    word: str
    plural: str
    base: type | None = None


FAMILIES: Final = (
    Family(WORKLOADS, "workload", "workloads", Workload),
    Family(NEMESES, "nemesis", "nemeses", Fault),
    Family(TOPOLOGIES, "topology", "topologies"),
    Family(CLIENTS, "client", "clients", ClientProtocol),
    Family(CLUSTERS, "cluster", "clusters"),
)
FAMILY: Final = {family.group: family for family in FAMILIES}

RUN_FLAGS: Final = frozenset(
    (
        *("client", "cluster", "concurrency", "dry-run", "duration", "fail-on", "help", "interval", "json"),
        *("jvm-option", "keep", "mend", "nemesis", "nodes", "op-deadline", "plan", "profile", "rate"),
        *("recovery-limit", "replay", "reuse", "seed", "server-jars", "set", "store", "target", "time-limit"),
        *("topology", "version", "workload"),
    )
)
"""The options of `harness run` itself, without dashes. No plug-in may have one of these names, except a nemesis: its
options stand behind its own name.
"""

_TAKEN: Final[Mapping[str, Iterable[str]]] = {
    WORKLOADS: PLAN_KEYS,
    CLIENTS: PLAN_KEYS,
    TOPOLOGIES: SERVER_KEYS,
    CLUSTERS: CLUSTER_KEYS,
    NEMESES: STRIKE_KEYS,
}
"""Kind of plug-ins -> keys of the table of a plan in which their options stand."""


class PluginError(PlanError):
    """A plug-in is installed, but unusable. One line, with the package that registers it."""


def names(group: str) -> list[str]:
    """The names registered in an entry point group, sorted."""
    return sorted({point.name for point in points(group)})


def find(group: str, name: str, also: Iterable[str] = ()) -> type[Any]:
    """The class of a plug-in. Raises PlanError if no plug-in has that name, and PluginError if it cannot be loaded, is
    not of its kind, or takes a name of the harness for an option.
    """
    family = FAMILY[group]
    point = _point(family, name, also)
    return _loaded(family, point, point.load)


def _loaded(family: Family, point: EntryPoint, load: Callable[[], Any]) -> type[Any]:
    try:
        found = load()
        options = [] if not isinstance(found, type) else list(specs(options_class(found)).values())
    except Stopped:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as problem:  # whatever its modules do when they are imported
        text = " ".join(str(problem).split())[:300]
        raise _unusable(family, point, f"cannot be loaded: {type(problem).__name__}: {text}") from problem
    if not isinstance(found, type) or (family.base is not None and not issubclass(found, family.base)):
        wanted = f"a subclass of {family.base.__module__}.{family.base.__name__}" if family.base else "a class"
        raise _unusable(family, point, f"is {found!r}; {wanted} is right")
    if not isinstance(getattr(found, "name", None), str):
        raise _unusable(family, point, "has no name; a class attribute `name` is right")
    for option in options:
        flag = option.flag.removeprefix("--")
        if option.name in _TAKEN[family.group] or (flag in RUN_FLAGS and family.group != NEMESES):
            why = f"has an option {option.name!r}, and the harness has one of that name: rename it"
            raise _unusable(family, point, why)
    return found


def _unusable(family: Family, point: EntryPoint, why: str) -> PluginError:
    return PluginError(f"the {family.word} {point.name!r} of the package {_package(point)} {why}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def _point(family: Family, name: str, also: Iterable[str] = ()) -> EntryPoint:
    found = [point for point in points(family.group) if point.name == name]
    if not found:
        known = [*names(family.group), *also]
        raise PlanError(f"no {family.word} {name!r}{suggest(name, known)}  (harness list {family.plural})")
    if len({point.value for point in found}) > 1:
        packages = ", ".join(sorted(_package(point) for point in found))
        raise PluginError(f"several packages register the {family.word} {name!r}: {packages}; remove all but one")
    return found[0]


def loadable(group: str) -> dict[str, type[Any]]:
    """Name -> class of all plug-ins of a kind that can be loaded. One line on stderr names each of the others, once."""
    found = {}
    for name in names(group):
        try:
            found[name] = find(group, name)
        except PluginError as problem:
            _leave_out(str(problem))
    return found


@cache
def _leave_out(problem: str) -> None:
    terminal.say(f"harness: left out: {problem}", err=True)


def workload_class(name: str) -> type[Workload]:
    """A workload's class."""
    return find(WORKLOADS, name)


def workload(plan: Plan) -> Workload:
    """The plan's workload, ready to generate and to judge."""
    return workload_class(plan.workload)(plan)


def fault_class(name: str) -> type[Fault]:
    """A fault's class. Raises PlanError."""
    return find(NEMESES, name, also=["none"])


def fault(name: str, options: Mapping[str, Any] | None = None, where: str = "the plan") -> Fault:
    """A fault with its options. Raises PlanError."""
    found = fault_class(name)
    return found(options_of(found, options or {}, where, f"the nemesis {name!r}"))


class FaultSet:
    """The faults of a run, one object for each name with its options: the prepared objects are the ones that strike."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Fault] = {}

    def of(self, name: str, options: Mapping[str, Any]) -> Fault:
        """The fault with this name and these options. Raises PlanError for an unknown one."""
        key = name, json.dumps(options, sort_keys=True, default=str)
        if key not in self._made:
            self._made[key] = fault(name, options)
        return self._made[key]

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._made.values())


def topology_class(name: str) -> type[Topology]:
    """A topology's class."""
    return find(TOPOLOGIES, name)


def client_class(name: str) -> type[ClientProtocol]:
    """A client's class."""
    return find(CLIENTS, name)


def backend_class(name: str) -> type[Backend]:
    """A cluster backend's class."""
    return find(CLUSTERS, name, also=["auto"])


def options_class(owner: type[Any]) -> type[Any]:
    """The class that declares an owner's options."""
    return getattr(owner, "Options", NoOptions)


def options_of(owner: type[Any], given: Mapping[str, Any], where: str, what: str) -> Any:
    """An owner's options from a table. Raises PlanError."""
    try:
        return parse(options_class(owner), given, where, what)
    except OptionError as problem:
        raise PlanError(str(problem)) from None


def options_by_name(owner: type[Any]) -> Mapping[str, OptionSpec]:
    """Name -> option of an owner."""
    return specs(options_class(owner))


def owners_of(option: str, group: str) -> list[str]:
    """Names of the plug-ins of a kind that have an option; `option` is its name, or its flag (`--node`)."""
    return [
        name
        for name, owner in loadable(group).items()
        if any(option in (spec.name, spec.flag) for spec in options_by_name(owner).values())
    ]


def backends() -> list[tuple[str, Backend]]:
    """All cluster backends, the ones that `auto` tries first, in their order."""
    found = [(name, owner()) for name, owner in loadable(CLUSTERS).items()]
    return sorted(found, key=lambda one: (one[1].auto_rank is None, one[1].auto_rank or 0, one[0]))


def backend(name: str) -> Backend:
    """A cluster backend by name, or, for `auto`, the first that works on this machine."""
    if name != "auto":
        return backend_class(name)()
    reasons = []
    for candidate, made in backends():
        if made.auto_rank is None:
            continue
        can = probe(made)
        if can.ok:
            return made
        reasons.append(f"{candidate}: {describe(can)}")
    raise PlanError(
        f"no cluster can be made here: {'; '.join(reasons)}; or name machines with --cluster ssh --node HOST"
    )


def probe(made: Backend) -> Capability:
    """Returns a backend's capability here. One that raises (a plug-in, or a library that fails at an address in the
    environment) counts as lacking, with the error as reason: the other backends are probed all the same.
    """
    try:
        return made.probe()
    except Exception as problem:
        text = " ".join(str(problem).split()) or "no reason given"
        return Capability(False, f"its check failed: {type(problem).__name__}: {text[:300]}")


def describe(capability: Capability) -> str:
    """A capability that is lacking, as `reason (remedy)`."""
    return capability.reason + (f" ({capability.remedy})" if capability.remedy else "")
