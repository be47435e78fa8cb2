# SPDX-License-Identifier: Apache-2.0
"""The command `harness trends`: a summary of many runs, as tables on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import click
from click.core import ParameterSource

from harness import terminal
from harness.cli.parts import store_option
from harness.plan.plan import PlanError
from harness.values import FilePath


@click.command()
@click.option(
    "--input",
    "folder",
    type=FilePath(file_okay=False),
    default=Path("results/verdicts"),
    show_default=True,
    help="Output folder of `harness batch`.",
)
@store_option
@click.option("--html", type=FilePath(), metavar="FILE", help="Write the page of the web view to this file.")
@click.pass_context
def trends(ctx: click.Context, folder: Path, store: Path, html: Path | None) -> None:
    """Verdicts by version, workload and nemesis; what clients felt of each fault; anomalies, first and last seen.

    Where there is no table yet, all runs of the store are judged first, with Spark in this process. `harness serve`
    shows the same as a page, with plots (docs/batch.md).
    """
    from harness.batch.made import has_table, make_table
    from results.durable import write_text
    from results.report.trends import trends_page
    from results.store import Store
    from results.trends import read_trends
    from results.verdict import Verdict

    if not has_table(folder):
        # A folder that the user names must exist.
        if ctx.get_parameter_source("folder") == ParameterSource.COMMANDLINE:
            raise PlanError(f"{folder}: there is no verdict table here; harness batch --output {folder} writes one")
        make_table(store, folder, lambda line: terminal.say(line, err=True))
    found = read_trends(folder)
    words = [v.value for v in Verdict]
    _table(
        ["workload", "nemesis", "version", "runs", *words],
        [
            [g.workload, g.nemesis, g.version, str(sum(c.values())), *(str(c[v] or "") for v in Verdict)]
            for g, c in found.groups.items()
        ],
        left=3,
    )
    if found.faults:
        terminal.say()
        _table(
            ["fault", "version", "runs", "strikes", "acknowledged", "p50 ms", "p99 ms", "longest silence"],
            [
                [
                    fault,
                    version,
                    str(one.runs),
                    str(one.times),
                    f"{one.ok / one.ops:.0%}" if one.ops else "-",
                    f"{median(one.p50s):.1f}" if one.p50s else "-",
                    f"{median(one.p99s):.1f}" if one.p99s else "-",
                    f"{one.silence_s:.1f} s",
                ]
                for (version, fault), one in found.faults.items()
            ],
            left=2,
        )
    if found.anomalies:
        terminal.say()
        _table(
            ["anomaly", "runs", "permitted", "first seen", "last seen", "in"],
            [
                [name, str(seen.runs), str(seen.permitted or ""), seen.first.when, seen.last.when, seen.last.run]
                for name, seen in found.anomalies.items()
            ],
            left=1,
            also_left=(3, 4, 5),
        )
    if ctx.get_parameter_source("folder") != ParameterSource.COMMANDLINE:
        known = {one.run for one in found.runs}
        runs = [one for one in Store(store).runs() if one.verdict is not None]
        if more := sum(f"{one.name}/{one.path.name}" not in known for one in runs):
            terminal.say(f"{more} more runs are in {store}; harness batch --input {store} adds them", err=True)
    if html is not None:
        write_text(html, trends_page(found), "the page")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int, also_left: Sequence[int] = ()) -> None:
    """Columns as wide as they have to be: the first `left` ones, and `also_left`, begin at the left."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if i < left or i in also_left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        terminal.say("  ".join(cells).rstrip())
