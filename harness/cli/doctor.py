# SPDX-License-Identifier: Apache-2.0
"""`harness doctor` shows what this machine can run. `harness clean` removes what earlier runs left on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from harness import terminal
from harness.boundary import FAILURE, end
from harness.parts import registry
from infra.machines.api import Backend, Leftover
from infra.machines.cpu_share import remove_group
from infra.machines.network import POOL, open_pool
from results.errors import ExpectedError

_NEEDED_GIB = 4


@click.command()
def doctor() -> None:
    """Show what this machine can do, what it cannot, and the remedy."""
    end(0 if examine(terminal.say) else FAILURE)


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--kept", "kept_too", is_flag=True, help="Also remove kept clusters (run --keep) that are not in use.")
def clean(dry_run: bool, kept_too: bool) -> None:
    """Remove what earlier runs left on this machine (containers, networks, namespaces, mounts); never results."""
    end(0 if clean_up(terminal.say, dry_run, kept_too) else FAILURE)


def examine(say: Callable[[str], None]) -> bool:
    """Prints, line by line, the found parts, the missing ones, and the remedy. True if a cluster can be made."""
    say(f"user        {'root' if os.geteuid() == 0 else 'not root: local nodes, packages and an engine need root'}")
    cores, memory = os.cpu_count() or 1, _memory_gib()
    say(f"machine     {cores} cores, {memory:.0f} GiB memory, {shutil.disk_usage(Path.cwd()).free >> 30} GiB disk free")
    if memory < _NEEDED_GIB:
        say(f"memory      five nodes need about {_NEEDED_GIB} GiB; runs may fail")
    for program, why in (
        ("java", "to build the server"),
        ("javac", "to build the server"),
        ("mvn", "to fetch DLedger"),
    ):
        where = shutil.which(program)
        say(f"{program:<12}{where or f'missing ({why}); make setup installs it as root on Debian'}")
    usable = []
    for name, backend in registry.backends():
        can = registry.probe(backend)
        say(f"{name:<12}{'yes: ' + can.reason if can.ok else 'no: ' + registry.describe(can)}")
        if can.ok and backend.auto_rank is not None:
            usable.append(name)
    auto = next(iter(usable), None)
    say(f"auto        {auto or 'nothing: use --cluster ssh --node HOST, or see the remedies above'}")
    return auto is not None


def clean_up(say: Callable[[str], None], dry_run: bool, kept_too: bool = False) -> bool:
    """Removes the leftovers of dead runs; of kept clusters only on request. Returns True if all could be seen, and
    nothing is left but parts of living runs and kept clusters.
    """
    clean, found, alive = True, 0, False
    for name, backend in registry.backends():
        try:
            leftovers = backend.leftovers()
        except ExpectedError as problem:
            say(f"{name}: {problem}")
            clean = False
            continue
        for run_id in dict.fromkeys(item.run_id for item in leftovers):
            found += 1
            mine = [item for item in leftovers if item.run_id == run_id]
            what = ", ".join(item.what for item in mine)
            why = next((item.broken for item in mine if item.broken), None)
            if why is not None:
                clean = False
                say(f"{name}: {run_id} could not be examined: {why}")
            elif (state := _left_alone(run_id, mine, kept_too)) is not None:
                alive = True
                say(f"{name}: {run_id} {state}: {what}")
            else:
                say(f"{name}: {run_id} {'would remove' if dry_run else 'removing'}: {what}")
                left = None if dry_run else _removed(backend, run_id)
                if left is not None:
                    clean = False
                    say(f"{name}: {run_id} could not be removed: {left}")
    if not found and clean:
        say("nothing was left behind")
    if clean and not alive and not dry_run:
        remove_group()
        if open_pool():
            say(f"the route for {POOL} was removed")
    return clean


def _left_alone(run_id: str, mine: Sequence[Leftover], kept_too: bool) -> str | None:
    """The reason why a run's leftovers are not removed; None if they are."""
    keeps = any(item.kept for item in mine)
    if any(item.alive for item in mine):
        return "is in use, not removed" if keeps else "is still running, not removed"
    if keeps and not kept_too:
        return f"is kept (run --reuse {run_id}, or clean --kept), not removed"
    return None


def _removed(backend: Backend, run_id: str) -> str | None:
    """Removes one run's leftovers. Returns what is still there, or what went wrong; None if all of it is gone."""
    try:
        backend.clean(run_id)
        return ", ".join(item.what for item in backend.leftovers() if item.run_id == run_id) or None
    except ExpectedError as problem:
        return str(problem)


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
