# SPDX-License-Identifier: Apache-2.0
"""The command `harness serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness import terminal
from harness.cli.parts import store_option
from infra.machines.api import InfraError

_BESIDE: Final = ("runs", "nightly", "compare")
"""Stores of other commands. Those beside the store are shown as well."""


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@store_option
def serve(port: int, store: Path) -> None:
    """Show the runs in a browser, on 127.0.0.1 only.

    The runs of nights and comparisons are shown, too, if their stores are beside this one (results/nightly,
    results/compare).
    """
    from harness.batch.made import make_table
    from results.web import serve as serve_store
    from results.web import table_of

    def make() -> None:
        make_table(store, table_of(store), lambda line: terminal.say(f"trends: {line}", err=True))

    beside = {name: path for name in _BESIDE if (path := store.parent / name).is_dir() and path != store}
    try:
        serve_store(store, port=port, make_table=make, others=beside)
    except OSError as problem:
        raise InfraError(f"cannot listen on 127.0.0.1:{port}: {problem.strerror}; choose another --port") from None
