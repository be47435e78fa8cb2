"""Plug-ins by name, found through entry points (`pyproject.toml`), and the options that each declares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from harness.api import ClientProtocol, Fault, Workload
from harness.plan.plan import STRIKE_KEYS, Plan, PlanError
from infra.machines.api import Backend, Capability
from infra.options import NoOptions, OptionError, OptionSpec, parse, specs, suggest
from infra.systems.api import TOPOLOGIES, Topology

WORKLOADS: Final = "harness.workloads"
NEMESES: Final = "harness.nemeses"
CLUSTERS: Final = "harness.clusters"
CLIENTS: Final = "harness.clients"


@dataclass(frozen=True)
class Family:
    """One kind of plug-ins. base: what a class of it must be. word, plural: how users call it."""

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
_FAMILY: Final = {family.group: family for family in FAMILIES}


def names(group: str) -> list[str]:
    """The names registered in an entry point group, sorted."""
    return sorted({point.name for point in _points(group, tuple(sys.path))})


@cache
def _points(group: str, path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """The search reads a file of each installed package (20 ms); a matrix asks thousands of times. path: `sys.path`."""
    return list(entry_points(group=group))


def find(group: str, name: str, also: Iterable[str] = ()) -> type[Any]:
    """The class of a plug-in. Raises PlanError where there is none of that name, or it is none of its kind."""
    family = _FAMILY[group]
    found = _point(family, name, also).load()
    if not isinstance(found, type) or (family.base is not None and not issubclass(found, family.base)):
        wanted = f"a subclass of {family.base.__module__}.{family.base.__name__}" if family.base else "a class"
        raise PlanError(f"{family.word} {name!r} is {found!r}; {wanted} is right")
    return found


def _point(family: Family, name: str, also: Iterable[str] = ()) -> EntryPoint:
    found = [point for point in _points(family.group, tuple(sys.path)) if point.name == name]
    if not found:
        known = [*names(family.group), *also]
        raise PlanError(f"no {family.word} {name!r}{suggest(name, known)}  (harness list {family.plural})")
    return found[0]


def workload_class(name: str) -> type[Workload]:
    """A workload's class."""
    return find(WORKLOADS, name)


def workload(plan: Plan) -> Workload:
    """The plan's workload, ready to generate and to judge."""
    return workload_class(plan.workload)(plan)


def fault_class(name: str) -> type[Fault]:
    """A fault's class. Raises PlanError, also for one with an option that a plan could not tell from its own keys."""
    found: type[Fault] = find(NEMESES, name, also=["none"])
    taken = sorted(set(STRIKE_KEYS) & set(options_by_name(found)))
    if taken:
        raise PlanError(
            f"the nemesis {name!r} has an option {taken[0]!r}, which is a key of every [[strike]]: rename it"
        )
    return found


def fault(name: str, options: Mapping[str, Any] | None = None, where: str = "the plan") -> Fault:
    """A fault with its options. Raises PlanError."""
    found = fault_class(name)
    return found(options_of(found, options or {}, where, f"the nemesis {name!r}"))


class FaultSet:
    """The faults of a run, one for each name with its options: those that are prepared are those that strike."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Fault] = {}

    def of(self, name: str, options: Mapping[str, Any]) -> Fault:
        """Raises PlanError for one that is not there."""
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
    """Where an owner's options are declared."""
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
    """Names of the plug-ins of a kind that have an option; `option` is its name, or its flag (`--node`). A plug-in that
    cannot be loaded is left out.
    """
    found = []
    for name in names(group):
        try:
            if any(option in (spec.name, spec.flag) for spec in options_by_name(find(group, name)).values()):
                found.append(name)
        except (PlanError, ImportError):
            continue
    return found


def backends() -> list[tuple[str, Backend]]:
    """All cluster backends, those that `auto` tries first in front, in their order."""
    found = [(name, backend_class(name)()) for name in names(CLUSTERS)]
    return sorted(found, key=lambda one: (one[1].auto_rank is None, one[1].auto_rank or 0, one[0]))


def backend(name: str) -> Backend:
    """A cluster backend by name, or, for `auto`, the first that this machine can offer."""
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
    """What a backend can do here. One that raises (a plug-in's, or a library that trips over an address in the
    environment) can do nothing, and says why: the others are asked all the same.
    """
    try:
        return made.probe()
    except Exception as problem:
        text = " ".join(str(problem).split()) or "no reason given"
        return Capability(False, f"its check failed: {type(problem).__name__}: {text[:300]}")


def describe(capability: Capability) -> str:
    """A capability that is lacking, as `reason (remedy)`."""
    return capability.reason + (f" ({capability.remedy})" if capability.remedy else "")
