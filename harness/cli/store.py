# SPDX-License-Identifier: Apache-2.0
"""The command `harness store`."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from harness import terminal
from harness.boundary import FAILURE, Commands, end
from harness.cli.parts import store_option
from harness.values import FilePath
from results.errors import in_bytes


@click.group(cls=Commands, no_args_is_help=False)
def store() -> None:
    """Remove old runs from the store, and print the history of a run."""


@store.command()
@click.option("--keep-days", type=click.IntRange(1, 36_500), required=True, help="Keep the runs of the last N days.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@store_option
def prune(keep_days: int, dry_run: bool, store: Path) -> None:
    """Remove the runs that began more than N days ago; never one that is under way.

    A night's page and ledger, tables, and files that are no part of a run stay. No link is followed.
    """
    from results.retention import prune as prune_runs
    from results.store import Store

    removed = size = 0
    failed = False
    for run in prune_runs(Store(store), datetime.now() - timedelta(days=keep_days), dry_run=dry_run):
        name = run.path.relative_to(store)
        if run.kept is None:
            removed, size = removed + 1, size + run.size
            terminal.say(f"{'would remove' if dry_run else 'removed'}  {in_bytes(run.size):>10}  {name}")
        else:
            failed = failed or run.failed
            terminal.say(f"kept  {in_bytes(run.size):>10}  {name}: {run.kept}")
    word = "would be removed" if dry_run else "removed"
    terminal.say(f"{removed} {'run' if removed == 1 else 'runs'}, {in_bytes(size)}, {word} from {store}")
    end(FAILURE if failed else 0)


@store.command()
@click.argument("run", type=FilePath(file_okay=False))
def journal(run: Path) -> None:
    """Print the history of a run, one operation per line, as JSON.

    A complete run has no journal.jsonl: its sealed history (history.parquet) has the same operations, and takes a tenth
    of the room.
    """
    from results.journal import line
    from results.store import load

    terminal.say_all(line(op).decode().rstrip("\n") for op in load(run).history)
