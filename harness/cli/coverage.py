# SPDX-License-Identifier: Apache-2.0
"""The command `harness coverage`: what the stored runs have tried, and what none has."""

from __future__ import annotations

from pathlib import Path

import click

from harness import terminal
from harness.plan.plan import PlanError
from harness.values import FilePath


@click.command()
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=FilePath(file_okay=False))
@click.option("--html", type=FilePath(), metavar="FILE", help="Write the whole map to this page.")
@click.option(
    "--gaps", "most", type=click.IntRange(min=0), default=20, show_default=True, help="Print so many gaps at most."
)
def coverage(stores: tuple[Path, ...], html: Path | None, most: int) -> None:
    """Coverage of stored runs: requests by answer, role, fault and phase; and the gaps, with the command for each.

    A gap is a fault that can occur under a workload on a topology and that no run of them had. A fault that cannot
    occur there is counted apart; the page has its reason (docs/coverage.md).
    """
    from harness.coverage.counting import MAIN, Coverage
    from harness.coverage.gaps import gaps
    from harness.coverage.page import coverage_page
    from results.durable import write_text
    from results.errors import ExpectedError
    from results.store import RunDir, Store

    found = Coverage()
    for store in stores:
        if not store.is_dir():
            raise PlanError(f"{store}: no such folder; a store is right, such as results/runs")
        for summary in Store(store).runs():
            try:
                found.add(f"{summary.path.name} {summary.name}", RunDir(summary.path).load())
            except ExpectedError as problem:
                terminal.say(f"left out: {problem}", err=True)
    missing = list(gaps(found))
    for place, runs in sorted(found.runs.items()):
        here = [gap for gap in missing if gap.place == place]
        never = sum(not gap.impossible for gap in here)
        table = found.seen[place]
        words = [
            f"{place.workload} on {place.topology}: {runs} runs",
            f"{sum(seen.requests for seen in table.values()):,} requests in {len(table)} cells",
            f"{sum(cell.phase == MAIN for cell in table)} of them in the main phase",
            f"faults: {len(found.faults[place])} seen, {never} never, {len(here) - never} cannot occur",
        ]
        terminal.say("; ".join(words))
    shown = [gap for gap in missing if not gap.impossible]
    for gap in shown[:most]:
        terminal.say(f"  never  {gap.command}")
    if len(shown) > most:
        terminal.say(f"  and {len(shown) - most} more: --gaps {len(shown)} prints them")
    if html is not None:
        write_text(html, coverage_page(found, missing), "the page")
