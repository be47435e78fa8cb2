# SPDX-License-Identifier: Apache-2.0
"""`harness list`: the installed plug-ins and their options."""

from __future__ import annotations

from collections.abc import Mapping

import click

from harness import terminal
from harness.cli.rows import Tables, kept_rows
from harness.parts import registry
from harness.plan.defaults import DEFAULTS
from harness.plan.plan import PlanError
from infra.options import OptionSpec, suggest
from infra.systems.api import TOPOLOGIES

_VERSIONS = "versions"
_MENDS = "mends"


@click.command("list")
@click.argument("what", required=False, metavar="[KIND|NAME]")
def list_(what: str | None) -> None:
    """List workloads, nemeses, topologies, clients, clusters, versions and mends; or show one with its options.

    \b
    harness list
    harness list nemeses
    harness list pause-slaves-kill-master
    """
    kinds = [family.plural for family in registry.FAMILIES] + [_VERSIONS, _MENDS]
    if what is not None and what not in kinds:
        _describe(what)
        return
    clusters = registry.FAMILY[registry.CLUSTERS]
    rows = {} if what == clusters.plural else kept_rows((*registry.FAMILY, DEFAULTS), _all_rows)
    for kind in kinds:
        if what in (None, kind):
            _table(kind, _machines() if kind == clusters.plural else rows[kind])


def _all_rows() -> tuple[Tables, bool]:
    """The rows of all kinds but clusters, which depend on this machine. False if a plug-in cannot be loaded."""
    from infra.systems.mends.catalog import mends

    found: dict[str, Mapping[str, str]] = {}
    complete = True
    for family in registry.FAMILIES:
        if family.group != registry.CLUSTERS:
            found[family.plural] = _rows(family)
            complete = complete and set(registry.names(family.group)) <= set(found[family.plural])
    mended = {str(mend.id): f"{mend.reason}  [{', '.join(mend.versions)}]" for mend in mends()}
    return {**found, _VERSIONS: _versions(), _MENDS: mended}, complete


def _machines() -> dict[str, str]:
    """A row for each backend, with what it can do on this machine."""
    found = {}
    for name, plugin in registry.loadable(registry.CLUSTERS).items():
        can = registry.probe(plugin.cls())
        found[name] = "available: " + can.reason if can.ok else "not here: " + registry.describe(can)
    return found


def _rows(family: registry.Family) -> dict[str, str]:
    rows = {}
    for name, plugin in registry.loadable(family.group).items():
        found = plugin.cls
        rows[name] = found.summary if found.name == name else f"another name of {found.name}"
        if profiles := getattr(found, "profiles", ()):
            rows[name] += f"  [profiles: {', '.join(profiles)}]"
    if family.group == registry.NEMESES:
        rows["none"] = "no faults"
    return rows


def _versions() -> Mapping[str, str]:
    """Versions of all systems under test: each topology's module returns its own."""
    found: dict[str, str] = {}
    for plugin in registry.loadable(TOPOLOGIES).values():
        found |= plugin.cls.known_versions()
    return found


def _describe(name: str) -> None:
    """Prints one plug-in with its options. Raises PlanError if no plug-in has that name."""
    met = False
    for family in registry.FAMILIES:
        if name not in registry.names(family.group):
            continue
        met = True
        found = registry.find(family.group, name)
        terminal.say(f"{name}  ({family.word})")
        if summary := getattr(found.cls, "summary", ""):
            terminal.say(f"  {summary}")
        _options(found.options)
    if not met:
        known = [known for family in registry.FAMILIES for known in registry.names(family.group)]
        kinds = [family.plural for family in registry.FAMILIES] + [_VERSIONS, _MENDS]
        raise PlanError(f"there is no {name!r}{suggest(name, [*kinds, *known])}  (harness list)")


def _options(found: Mapping[str, OptionSpec]) -> None:
    if not found:
        terminal.say("  no options")
        return
    terminal.say("  options:")
    heads = {spec.name: f"{spec.flag} {spec.placeholder}" for spec in found.values()}
    width = max(map(len, heads.values()))
    for spec in found.values():
        terminal.say(f"    {heads[spec.name].ljust(width)}  {spec.describe()}")


def _table(title: str, rows: Mapping[str, str]) -> None:
    terminal.say(f"{title}:")
    width = max((len(name) for name in rows), default=0)
    for name, text in rows.items():
        terminal.say(f"  {name.ljust(width)}  {text}")
