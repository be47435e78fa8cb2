# SPDX-License-Identifier: Apache-2.0
"""The command `harness shrink`: the smallest plan that still shows the same anomaly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import terminal
from harness.boundary import end
from harness.cli.parts import store_option
from harness.values import FilePath, FiniteRange
from results.verdict import Verdict

if TYPE_CHECKING:
    from harness.shrink.shrinking import Tried


@click.command()
@click.argument("what", metavar="RUN|PLAN|ID")
@click.option("--finding", metavar="ID", help="Look for the signature of this finding of the record.")
@click.option("--anomaly", "anomalies", multiple=True, metavar="NAME", help="Look for this anomaly; can be repeated.")
@click.option("--max-runs", type=click.IntRange(1, 100_000), default=120, show_default=True, help="The most runs.")
@click.option("--hours", type=FiniteRange(0, 8784, min_open=True), help="Begin no run after this time.")
@click.option("--fresh", is_flag=True, help="A new cluster for each run: for what needs the start of the servers.")
@click.option("--whole", is_flag=True, help="Run each load to its end, although its operations prove the anomaly.")
@click.option(
    "--output",
    type=FilePath(file_okay=False),
    default=Path("results/shrunk"),
    show_default=True,
    help="Folder of the plan, the account and the runs; a search that was broken off goes on from it.",
)
@store_option
def shrink(
    what: str,
    finding: str | None,
    anomalies: tuple[str, ...],
    max_runs: int,
    hours: float | None,
    fresh: bool,
    whole: bool,
    output: Path,
    store: Path,
) -> None:
    """Find the smallest plan that still shows the same anomaly: strikes, nodes, clients, settings, seconds, load.

    RUN is the folder of a run that showed it, PLAN a file, ID a finding of the record. Each cut is tested by a
    sequential test of real runs with new seeds (docs/shrink.md). The plan and an account of all that was tried, in vain
    as well, are in the folder --output. The exit code is 0 if the result was verified, 1 if nothing could be shrunk, 2
    if the runs or the time were used up before.

    \b
    harness shrink results/runs/latest
    harness shrink results/runs/latest --finding 25 --max-runs 60
    harness shrink examples/plans/returning-tail.toml --anomaly lost --hours 2
    """
    from harness.findings.reproduce import sought
    from harness.shrink.running import PLAN, Runner, first_plan, write_results
    from harness.shrink.shrinking import shrink as search

    subject = sought(what, finding, anomalies)
    until = None if hours is None else time.monotonic() + hours * 3600
    plan = first_plan(subject, store, terminal.say)
    terminal.say(f"{subject.title}: {len(plan.strikes)} strikes, {plan.time_limit_s:g} s; at most {max_runs} runs")

    def tell(tried: Tried) -> None:
        word = {True: "accepted", False: "refused", None: "not decided"}[tried.accepted]
        terminal.say(f"{word:<11} {tried.name}: {tried.shown} of {tried.runs}")

    with Runner(subject, output, store, max_runs, until, terminal.say, fresh, whole) as runner:
        account = search(plan, runner, tell)
    write_results(account, subject, output, runner.early.count)
    shown, runs = account.last
    verified = f"verified, {shown} of {runs}" if runs else "not verified"
    terminal.say(f"{len(account.plan.strikes)} strikes, {account.plan.time_limit_s:g} s, {verified}: {account.ended}")
    terminal.say(f"plan      {output / PLAN}")
    if runs:
        end(Verdict.VALID.exit_code)
    end((Verdict.INVALID if account.ended.startswith(("it shows too", "no run")) else Verdict.UNKNOWN).exit_code)
