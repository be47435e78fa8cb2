# SPDX-License-Identifier: Apache-2.0
"""The matrix: the runs, as products of lists in TOML.

    time_limit = "60s"

    [[cells]]
    workload = ["log", "queue consume=pop"]
    version = ["5.5.0", "5.3.3"]
    nemesis = ["hammer-time", "power-failure target=all"]
    options = "--rate 500"

Workloads and faults take their options as `name=value`; `options` are for all runs of the table, and a `--time-limit`
there replaces that of the matrix. A list that is left out is everything that is installed: all workloads, all
topologies of a workload, all versions of a topology, all faults, all clients of a workload. Only the profile is the
strictest one. So a new plug-in is in the matrix when it is installed. An impossible combination (a fault needs an
option, or a role that the topology does not have) is left out, and its reason is reported.

    [[cells]]
    plan = ["plans/downgrade.toml"]
    version = ["5.3.3", "5.4.0"]

With a plan (its path is relative to the matrix), a list that is left out is taken from the plan. So is `time_limit`.

    classes = ["org.apache.rocketmq.store.ha"]
    shows = [5]
    core = true

`harness compare` chooses cells by these keys of a table (`harness.compare.choice`): the classes and packages that its
runs use, the findings that they show, and true for cells that run if no other fits. A night ignores them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Final

from harness.parts import registry
from harness.parts.named import named_faults
from harness.parts.resolve import resolve
from harness.parts.reuse import of_cluster
from harness.plan.plan import ClusterPlan, Plan, PlanError, ServerPlan
from harness.plan.table import Table, check, shell_words
from harness.run import lifecycle
from harness.shipped import shipped
from infra.machines.api import SettingsError
from infra.options import OptionError, assignments, suggest
from infra.systems.api import NOT_AVAILABLE, TOPOLOGIES
from results.reading import read_toml

DEFAULT: Final = Path(__file__).with_name("matrix.toml")

_MINUTE: Final = "60s"
"""Everything."""


@dataclass(frozen=True)
class Cell:
    """One run of the matrix. Empty: the workload's, or the topology's, own.

    workload  with options: `queue consume=pop`.
    nemesis  as on the command line, with options: `packet-delay by=50ms`, or none; empty: as in the plan.
    options  more of `harness run`.
    plan     file of the plan that the rest overrides; empty: no plan.
    classes  prefixes of names of classes that it is about; shows: ids of findings; core: see the package.
    """

    workload: str
    topology: str
    version: str
    profile: str
    client: str
    nemesis: str
    options: str = ""
    plan: str = ""
    classes: tuple[str, ...] = ()
    shows: tuple[int, ...] = ()
    core: bool = False

    @property
    def owner(self) -> registry.PlugIn:
        """Its workload."""
        return registry.find(registry.WORKLOADS, self.workload.split()[0])

    @property
    def own_options(self) -> dict[str, str]:
        """The options of the workload. Raises OptionError."""
        name, *words = self.workload.split()
        return assignments(words, f"workload {name}")

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """The shape: cells of one shape can share a cluster. Workloads that arrange groups differently have different
        shapes. Options of workloads are no part of it: they change running servers, or none.
        """
        alone = [self.workload.split()[0]] if self.owner.cls.topology_options else []
        options = of_cluster(shell_words(self.options, "options"))
        servers = [_servers(self.plan)] if self.plan else []
        return self.topology, self.version, self.profile, self.client, *options, *servers, *alone

    @cached_property
    def name(self) -> str:
        """Unique in a matrix, and the same every night."""
        words = [self.workload, self.topology, self.version, self.profile, self.client, self.nemesis, self.options]
        words.append(Path(self.plan).stem)
        return " / ".join(word for word in words if word)

    @cached_property
    def pairs(self) -> Sequence[tuple[tuple[int, str], tuple[int, str]]]:
        """All pairs of its properties."""
        words = self.workload, self.topology, self.version, self.profile, self.client, self.nemesis, self.options
        return list(combinations(enumerate(words), 2))

    def args(self) -> list[str]:
        """Options of `harness run`."""
        found = ["--plan", self.plan] if self.plan else []
        found += ["--workload", self.workload.split()[0]]
        found += ["--nemesis", self.nemesis] if self.nemesis else []
        for name, value in self.own_options.items():
            spec = self.owner.options[name]
            if spec.kind is bool:
                found.append(spec.flag if value == "true" else f"--no-{spec.flag[2:]}")
            else:
                found += [spec.flag, value]
        found += ["--client", self.client] if self.client else []
        found += ["--topology", self.topology, "--version", self.version]
        found += ["--profile", self.profile] if self.profile else []
        return found + shell_words(self.options, "options")


@dataclass(frozen=True)
class Matrix:
    """cells  the possible runs. impossible: reason -> number of combinations that it excludes.
    time_limit  of a run, as `harness run` takes it; empty: the plan's, or a minute.
    """

    cells: Sequence[Cell]
    time_limit: str = ""
    impossible: dict[str, int] = field(default_factory=dict)

    def limit(self, cell: Cell) -> Sequence[str]:
        """The option of `harness run` for the time limit; empty if the cell's own options or its plan name one."""
        own = any(word.partition("=")[0] == "--time-limit" for word in shell_words(cell.options, "options"))
        return [] if own or (cell.plan and not self.time_limit) else ["--time-limit", self.time_limit or _MINUTE]

    def part(self, number: int, of: int) -> Matrix:
        """The cells of one of `of` parts, from 1. Cells of one shape are in one part, and stay there every night."""
        mine = [cell for cell in self.cells if zlib.crc32(" ".join(cell.shape).encode()) % of == number - 1]
        return replace(self, cells=mine)


def read_matrix(path: Path = DEFAULT) -> Matrix:
    """Reads a matrix. Raises PlanError if the file is wrong, or no cell is left."""
    path = shipped(path)
    try:
        table = Table(read_toml(path), str(path), "")
    except OSError as problem:
        raise PlanError(f"{path}: the matrix cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise PlanError(f"{path}: {problem}") from None
    time_limit = ""
    if table.has("time_limit"):
        limit_s = table.seconds("time_limit", 60.0)
        check(limit_s > 0, f"{path}: time_limit", limit_s, "a time above 0")
        time_limit = f"{limit_s:g}s"
    found: dict[str, Cell] = {}
    known: dict[Cell, str | None] = {}
    impossible: dict[str, int] = {}
    for entry in table.tables("cells"):
        for cell in _product(entry, path.parent):
            # Whether a fault can be does not depend on the version, nor a version on the fault.
            why = None
            for key, tried in (
                (replace(cell, nemesis="", plan=""), replace(cell, nemesis="none")),
                (replace(cell, version=""), cell),
            ):
                if why is None:
                    why = known[key] if key in known else known.setdefault(key, why_not(tried))
            if why is None:
                found.setdefault(cell.name, cell)
            else:
                impossible[why] = impossible.get(why, 0) + 1
    table.reject_unknown()
    check(found, f"{path}: the matrix", "without a cell", "at least one [[cells]] table with a possible combination")
    return Matrix(list(found.values()), time_limit, impossible)


@cache
def _servers(plan: str) -> str:
    """A plan's settings of its servers besides topology, version and profile, as a text to compare."""
    return str(replace(Plan.read(Path(plan)).server, topology=None, version=None, profile=None))


def _product(entry: Table, folder: Path) -> Iterator[Cell]:
    """All combinations of a `[[cells]]` table, the impossible ones included. folder: paths of plans begin there."""
    plans = [str(folder / name) for name in entry.strings("plan")] or [""]
    known = {
        key: list(entry.strings(key)) for key in ("workload", "topology", "version", "profile", "client", "nemesis")
    }
    options = entry.get("options", str, "")
    shell_words(options, f"{entry.where}: {entry.prefix}options")
    classes, core, shows = entry.strings("classes"), entry.get("core", bool, False), entry.get("shows", list, [])
    check(all(type(one) is int for one in shows), f"{entry.where}: {entry.prefix}shows", shows, "a list of ids")
    entry.reject_unknown()
    for plan in plans:
        for cell in _of_plan(entry, plan, {**known, **_said(plan, known)} if plan else known, options):
            yield replace(cell, classes=classes, shows=tuple(shows), core=core)


def _said(path: str, given: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The plan's values for all lists that the table does not give."""
    plan = Plan.read(Path(path))
    said = {
        "workload": plan.workload,
        "topology": plan.server.topology,
        "version": plan.server.version,
        "profile": plan.server.profile,
        "client": plan.client,
    }
    return {key: [value] for key, value in said.items() if value is not None and not given[key]}


def _of_plan(entry: Table, plan: str, given: Mapping[str, list[str]], options: str) -> Iterator[Cell]:
    nemeses = given["nemesis"] or ([""] if plan else [*_faults(), "none"])
    for workload in _names(entry, "workload", given["workload"], registry.WORKLOADS):
        name, *words = workload.split()
        plugin = registry.find(registry.WORKLOADS, name)
        owner = plugin.cls
        try:
            plugin.read(assignments(words, entry.where), entry.where)
        except OptionError as problem:
            raise PlanError(str(problem)) from None
        clients = [c for c in owner.clients if not given["client"] or c in given["client"]] or [""]
        named = _names(entry, "topology", given["topology"], TOPOLOGIES)
        for topology in (t for t in owner.topologies if t in named):
            versions = [v for v in _versions(topology) if not given["version"] or v in given["version"]]
            known = registry.find(TOPOLOGIES, topology).cls.profiles
            profiles = [p for p in known if p in given["profile"]] or list(known[:1]) or [""]
            for version, profile, client, nemesis in product(versions, profiles, clients, nemeses):
                yield Cell(workload, topology, version, profile, client, nemesis, options, plan)


def _names(entry: Table, key: str, given: Sequence[str], group: str) -> Sequence[str]:
    """The names that a table gives, or all. Raises PlanError for an unknown one."""
    known = [name for name, plugin in registry.loadable(group).items() if plugin.cls.name == name]
    named = given or known
    for name in (words.split()[0] if words.split() else "" for words in named):
        if name not in known:
            raise PlanError(f"{entry.where}: {entry.prefix}no {key} {name!r}{suggest(name, known)}")
    return named


def _faults() -> list[str]:
    return [name for name, plugin in registry.loadable(registry.NEMESES).items() if plugin.cls.name == name]


def _versions(topology: str) -> list[str]:
    known = registry.find(TOPOLOGIES, topology).cls.known_versions()
    return [name.split()[-1] for name, said in known.items() if not said.startswith(NOT_AVAILABLE)]


def why_not(cell: Cell) -> str | None:
    """The reason why a combination is impossible, or None. Starts nothing."""
    try:
        base = Plan.read(Path(cell.plan)) if cell.plan else Plan()
        plan = replace(
            base,
            workload=cell.workload.split()[0],
            client=cell.client or None,
            options={**base.options, **cell.own_options},
            cluster=ClusterPlan(),
            server=ServerPlan(topology=cell.topology, version=cell.version, profile=cell.profile or None),
        )
        if cell.nemesis:
            faults = () if cell.nemesis == "none" else named_faults(cell.nemesis)
            plan = replace(plan, nemeses=faults, strikes=())
        lifecycle.check(resolve(plan))
    except (OptionError, SettingsError) as problem:
        return str(problem)
    return None


def shares(cell: Cell) -> bool:
    """True if its runs can share a cluster with others."""
    return bool(cell.owner.cls.reusable)
