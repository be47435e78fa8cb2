# SPDX-License-Identifier: Apache-2.0
"""Plug-ins by name, found through entry points (`pyproject.toml`), and the options that each declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

from harness import terminal
from harness.api import ClientProtocol, Fault, Workload
from harness.parts.run_options import FLAGS
from harness.plan.plan import CLUSTER_KEYS, PLAN_KEYS, SERVER_KEYS, STRIKE_KEYS, Plan, PlanError
from harness.plan.points import points
from harness.signals import Stopped
from infra.machines.api import Backend, Capability
from infra.options import NoOptions, OptionError, OptionSpec, parse, specs, suggest
from infra.systems.api import TOPOLOGIES

WORKLOADS: Final = "harness.workloads"
NEMESES: Final = "harness.nemeses"
CLUSTERS: Final = "harness.clusters"
CLIENTS: Final = "harness.clients"


@dataclass(frozen=True)
class Family:
    """One kind of plug-ins.

    word, plural  the users' names for it.
    keys          keys of the table of a plan in which the options of its plug-ins stand.
    base          the base class of its plug-ins. also: a name that is allowed in place of a plug-in's.
    """

    group: str
    word: str
    plural: str
    keys: Collection[str]
    base: type | None = None
    also: str | None = None


FAMILIES: Final = (
    Family(WORKLOADS, "workload", "workloads", PLAN_KEYS, Workload),
    Family(NEMESES, "nemesis", "nemeses", STRIKE_KEYS, Fault, also="none"),
    Family(TOPOLOGIES, "topology", "topologies", SERVER_KEYS),
    Family(CLIENTS, "client", "clients", PLAN_KEYS, ClientProtocol),
    Family(CLUSTERS, "cluster", "clusters", CLUSTER_KEYS, also="auto"),
)
FAMILY: Final = {family.group: family for family in FAMILIES}


class PluginError(PlanError):
    """A plug-in is installed, but unusable. One line, with the package that registers it."""


def names(group: str) -> list[str]:
    """The names registered in an entry point group, sorted."""
    return sorted({point.name for point in points(group)})


@dataclass(frozen=True)
class PlugIn:
    """A plug-in that can be used. name: the one that was looked up; a class may have several."""

    family: Family
    name: str
    cls: Any

    def __str__(self) -> str:
        return f"--cluster {self.name}" if self.group == CLUSTERS else f"the {self.family.word} {self.name!r}"

    @property
    def group(self) -> str:
        """The entry point group."""
        return self.family.group

    @property
    def options(self) -> Mapping[str, OptionSpec]:
        """Name -> option that it declares."""
        return specs(options_class(self.cls))

    def read(self, given: Mapping[str, Any], where: str, what: str | None = None) -> Any:
        """Its options from a table. what: its name in errors. Raises PlanError."""
        try:
            return parse(options_class(self.cls), given, where, what or str(self))
        except OptionError as problem:
            raise PlanError(str(problem)) from None


def find(group: str, name: str) -> PlugIn:
    """A plug-in by name. Raises PlanError if none has that name, and PluginError if it cannot be loaded, is not of its
    kind, or takes a name of the harness for an option.
    """
    family = FAMILY[group]
    point = _point(family, name)
    return PlugIn(family, name, _loaded(family, point, point.load))


def found(group: str, name: str) -> PlugIn | None:
    """A plug-in by name, or None for one that cannot be used: an error that others report."""
    try:
        return find(group, name)
    except PlanError:
        return None


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
        if option.name in family.keys or (flag in FLAGS and family.group != NEMESES):
            why = f"has an option {option.name!r}, and the harness has one of that name: rename it"
            raise _unusable(family, point, why)
    return found


def _unusable(family: Family, point: EntryPoint, why: str) -> PluginError:
    return PluginError(f"the {family.word} {point.name!r} of the package {_package(point)} {why}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def _point(family: Family, name: str) -> EntryPoint:
    found = [point for point in points(family.group) if point.name == name]
    if not found:
        known = [*names(family.group), *([family.also] if family.also else [])]
        raise PlanError(f"no {family.word} {name!r}{suggest(name, known)}  (harness list {family.plural})")
    if len({point.value for point in found}) > 1:
        packages = ", ".join(sorted(_package(point) for point in found))
        raise PluginError(f"several packages register the {family.word} {name!r}: {packages}; remove all but one")
    return found[0]


def loadable(group: str) -> dict[str, PlugIn]:
    """All plug-ins of a kind that can be loaded, by name. One line on stderr names each of the others, once."""
    usable = {}
    for name in names(group):
        try:
            usable[name] = find(group, name)
        except PluginError as problem:
            _leave_out(str(problem))
    return usable


@cache
def _leave_out(problem: str) -> None:
    terminal.say(f"harness: left out: {problem}", err=True)


def workload_class(name: str) -> type[Workload]:
    """A workload's class. Raises PlanError."""
    cls: type[Workload] = find(WORKLOADS, name).cls
    return cls


def workload(plan: Plan) -> Workload:
    """The plan's workload, ready to generate and to judge."""
    return workload_class(plan.workload)(plan)


def fault(name: str, options: Mapping[str, Any] | None = None, where: str = "the plan") -> Fault:
    """A fault with its options. Raises PlanError."""
    plugin = find(NEMESES, name)
    made: Fault = plugin.cls(plugin.read(options or {}, where))
    return made


class FaultSet:
    """The faults of a run, one object for each name with its options: the prepared objects are the ones that strike."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Fault] = {}

    def add(self, made: Fault, options: Mapping[str, Any]) -> Fault:
        """Adds a fault of the plan, unless it is there. Returns the one that counts."""
        return self._made.setdefault(_key(made.name, options), made)

    def of(self, name: str, options: Mapping[str, Any]) -> Fault:
        """The fault with this name and these options. Raises PlanError for an unknown one."""
        key = _key(name, options)
        if key not in self._made:
            self._made[key] = fault(name, options)
        return self._made[key]

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._made.values())


def _key(name: str, options: Mapping[str, Any]) -> tuple[str, str]:
    return name, json.dumps(options, sort_keys=True, default=str)


def options_class(owner: type[Any]) -> type[Any]:
    """The class that declares an owner's options."""
    return getattr(owner, "Options", NoOptions)


def owners_of(option: str, group: str) -> list[PlugIn]:
    """The plug-ins of a kind that have an option; `option` is its name, or its flag (`--node`)."""
    return [
        plugin
        for plugin in loadable(group).values()
        if any(option in (spec.name, spec.flag) for spec in plugin.options.values())
    ]


def backends() -> list[tuple[str, Backend]]:
    """All cluster backends, the ones that `auto` tries first, in their order."""
    made = [(name, plugin.cls()) for name, plugin in loadable(CLUSTERS).items()]
    return sorted(made, key=lambda one: (one[1].auto_rank is None, one[1].auto_rank or 0, one[0]))


def backend(name: str) -> Backend:
    """A cluster backend by name, or, for `auto`, the first that works on this machine."""
    if name != "auto":
        chosen: Backend = find(CLUSTERS, name).cls()
        return chosen
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
