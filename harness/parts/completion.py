# SPDX-License-Identifier: Apache-2.0
"""The values of options that a shell completes (`harness completion`). Only names are looked up: no plug-in is loaded
for them, except for the versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from harness.plan.points import points

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

TARGETS: Final = ("one", "minority", "majority", "all", "random", "leader", "master", "slaves")
"""Targets that many faults take; a fault may have roles of its own."""


def names_of(group: str, *more: str) -> Complete:
    """Completes names of plug-ins of an entry point group, and `more`."""
    return _listed(lambda: (*more, *{point.name for point in points(group)}))


def words(*known: str) -> Complete:
    """Completes these words."""
    return _listed(lambda: known)


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Lets the shell complete a folder."""
    return [CompletionItem(incomplete, type="dir")]


def versions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes versions of the servers that can be fetched, of every topology."""
    found = []
    for point in points("harness.topologies"):
        with suppress(Exception):  # (a package that cannot be loaded: `harness list` reports it)
            found.append(point.load().known_versions())
    return _matching(
        {name.rpartition(" ")[2] for known in found for name, about in known.items() if "not available" not in about},
        incomplete,
    )


def mend_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the ids of mends, and `all`."""
    from infra.systems.mends.catalog import mends

    return _matching(["all", *(str(mend.id) for mend in mends())], incomplete)


def _listed(known: Callable[[], Iterable[str]]) -> Complete:
    return lambda ctx, param, incomplete: _matching(known(), incomplete)


def _matching(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The words that begin as the last part of a list with commas does, behind its other parts."""
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{word}") for word in sorted(known) if word.startswith(last)]
