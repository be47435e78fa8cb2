"""Plug-ins by name, found through entry points (`pyproject.toml`): workloads, nemeses, clusters, and the topologies."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from harness.api import Fault, Workload
from harness.plan.plan import Plan, PlanError, suggest
from infra.machines.api import Backend, Capability

WORKLOADS = "harness.workloads"
NEMESES = "harness.nemeses"
CLUSTERS = "harness.clusters"

AUTO_ORDER = ("docker", "local")
"""What `--cluster auto` tries, in this order."""

OWN_MACHINES = AUTO_ORDER
"""The backends that make their machines, and take none from the user."""


def names(group: str) -> list[str]:
    """The names registered in an entry point group, sorted."""
    return sorted(point.name for point in entry_points(group=group))


def _find(group: str, what: str, name: str, also: Iterable[str] = ()) -> EntryPoint:
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        known = [*names(group), *also]
        raise PlanError(f"no {what} {name!r}{suggest(name, known)}  (harness list {_PLURAL[what]})")
    return found[0]


_PLURAL = {"workload": "workloads", "nemesis": "nemeses", "cluster": "clusters"}


def workload_class(name: str) -> type[Workload]:
    loaded = _find(WORKLOADS, "workload", name).load()
    if not (isinstance(loaded, type) and issubclass(loaded, Workload)):
        raise PlanError(f"workload {name!r} is {loaded!r}; a subclass of harness.api.Workload is right")
    return loaded


def workload(plan: Plan) -> Workload:
    """The plan's workload, ready to generate and to judge."""
    return workload_class(plan.workload)(plan)


def fault(name: str) -> Fault:
    loaded = _find(NEMESES, "nemesis", name, also=["none"]).load()
    if not (isinstance(loaded, type) and issubclass(loaded, Fault)):
        raise PlanError(f"nemesis {name!r} is {loaded!r}; a subclass of harness.api.Fault is right")
    made: Fault = loaded()
    return made


def insist_on_backend(name: str) -> None:
    """Raise PlanError where there is no cluster backend of that name; none is asked what it can do."""
    if name != "auto":
        _find(CLUSTERS, "cluster", name, also=["auto"])


def backend(name: str) -> Backend:
    """A cluster backend by name, or the first of `AUTO_ORDER` that this machine can offer."""
    if name != "auto":
        made: Backend = _find(CLUSTERS, "cluster", name, also=["auto"]).load()()
        return made
    reasons = []
    for candidate in AUTO_ORDER:
        made = _find(CLUSTERS, "cluster", candidate).load()()
        can = probe(made)
        if can.ok:
            return made
        reasons.append(f"{candidate}: {told(can)}")
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
        return Capability(False, f"it cannot be asked: {type(problem).__name__}: {text[:300]}")


def told(capability: Capability) -> str:
    """A capability that is lacking, as `reason (remedy)`."""
    return capability.reason + (f" ({capability.remedy})" if capability.remedy else "")
