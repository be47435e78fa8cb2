"""`harness doctor` and `harness clean`: what this machine can do, and removing what earlier runs left on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from harness import registry
from infra import kept
from infra.api import Backend, InfraError

_NEEDED_GIB = 4


def examine(say: Callable[[str], None]) -> bool:
    """Say, line by line, what is there and what is lacking with the way out. True when a cluster can be made."""
    say(f"user        {'root' if os.geteuid() == 0 else 'not root: local nodes, packages and an own engine need root'}")
    cores, memory = os.cpu_count() or 1, _memory_gib()
    say(f"machine     {cores} cores, {memory:.0f} GiB memory, {shutil.disk_usage(Path.cwd()).free >> 30} GiB disk free")
    if memory < _NEEDED_GIB:
        say(f"memory      five nodes want about {_NEEDED_GIB} GiB; expect trouble")
    for program, why in (
        ("java", "to build the server"),
        ("javac", "to build the server"),
        ("mvn", "to fetch DLedger"),
    ):
        where = shutil.which(program)
        say(f"{program:<12}{where or f'missing ({why}); make setup installs it as root on Debian'}")
    usable = []
    for name in registry.names(registry.CLUSTERS):
        can = registry.probe(registry.backend(name))
        say(f"{name:<12}{'yes: ' + can.reason if can.ok else 'no: ' + registry.told(can)}")
        if can.ok:
            usable.append(name)
    auto = next((name for name in registry.AUTO_ORDER if name in usable), None)
    say(f"auto        {auto or 'nothing: use --cluster ssh --node HOST, or see the remedies above'}")
    return auto is not None


def clean_up(say: Callable[[str], None], dry_run: bool, kept_too: bool = False) -> bool:
    """Remove the leftovers of dead runs; of kept clusters only when asked. Returns whether nothing is left but what
    living runs own, and what was kept.
    """
    clean = True
    found = 0
    for name in registry.names(registry.CLUSTERS):
        backend = registry.backend(name)
        try:
            leftovers = backend.leftovers()
        except InfraError as problem:
            say(f"{name}: {problem}")
            continue
        for run_id in dict.fromkeys(item.run_id for item in leftovers):
            mine = [item for item in leftovers if item.run_id == run_id]
            what = ", ".join(item.what for item in mine)
            found += 1
            if any(item.alive for item in mine):
                say(f"{name}: {run_id} is still running, left alone: {what}")
                continue
            record = kept.found(run_id)
            if record is not None and (record.in_use or not kept_too):
                state = "in use" if record.in_use else f"kept (run --reuse {run_id}, or clean --kept)"
                say(f"{name}: {run_id} is {state}, left alone: {what}")
                continue
            say(f"{name}: {run_id} {'would remove' if dry_run else 'removing'}: {what}")
            if not dry_run:
                left = _removed(backend, run_id)
                if left is not None:
                    clean = False
                    say(f"{name}: {run_id} could not be removed: {left}")
    if not found:
        say("nothing was left behind")
    return clean


def _removed(backend: Backend, run_id: str) -> str | None:
    """Remove one run's leftovers: what is still there, or what went wrong; None when all of it is gone."""
    try:
        backend.clean(run_id)
        kept.forget(run_id)
        return ", ".join(item.what for item in backend.leftovers() if item.run_id == run_id) or None
    except InfraError as problem:
        return str(problem)


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
