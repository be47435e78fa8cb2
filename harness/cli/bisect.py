# SPDX-License-Identifier: Apache-2.0
"""The command `harness bisect`: the version or build in which a defect came in, and the one in which it went."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness import terminal
from harness.boundary import end
from harness.cli.parts import store_option
from harness.plan.table import shell_words
from harness.values import FilePath, FiniteRange
from results.verdict import Verdict


@click.command()
@click.argument("what", metavar="ID|PLAN|RUN")
@click.option("--versions", metavar="V,V,...|all", help="Published versions, the oldest first.")
@click.option(
    "--build", "builds", multiple=True, type=FilePath(), metavar="DIR", help="A folder of jars; the oldest first."
)
@click.option("--finding", metavar="ID", help="With a PLAN or a RUN: look for the signature of this finding.")
@click.option(
    "--anomaly", "anomalies", multiple=True, metavar="NAME", help="With a PLAN or a RUN: look for this anomaly."
)
@click.option("--max-runs", type=click.IntRange(1, 100_000), default=60, show_default=True, help="The most runs.")
@click.option("--hours", type=FiniteRange(0, 8784, min_open=True), help="Begin no run after this time.")
@click.option("--option", "options", multiple=True, metavar="OPTION", help='Option for the runs: "--cluster local".')
@click.option("--whole", is_flag=True, help="Run each load to its end, although its operations prove the anomaly.")
@store_option
def bisect(
    what: str,
    versions: str | None,
    builds: tuple[Path, ...],
    finding: str | None,
    anomalies: tuple[str, ...],
    max_runs: int,
    hours: float | None,
    options: tuple[str, ...],
    whole: bool,
    store: Path,
) -> None:
    """Find the version or build in which a defect came in, and the one in which it went, by runs that may miss it.

    The builds are in their order. Each step runs the one whose result is expected to decide most, until one interval
    of builds has 97 % of the posterior (docs/bisect.md). The exit code is 0 if the answer is sure, and 2 if the runs or
    the time were used up before.

    \b
    harness bisect 25 --versions all
    harness bisect results/shrunk/plan.toml --finding 5 --versions 5.1.1,5.3.3,5.5.0
    harness bisect 5 --build good/lib --build half/lib --build bad/lib
    """
    from harness.bisect.running import Runner, builds_of, lines, versions_of
    from harness.bisect.search import bisect as search
    from harness.cli.run import check_words, require_free, topology_of
    from harness.findings.reproduce import sought

    subject = sought(what, finding, anomalies)
    extra = [word for text in options for word in shell_words(text, "--option")]
    require_free(extra)
    named = builds_of(versions, builds, versions_of(topology_of([*subject.args, *extra])))
    for _, words in named:
        check_words([*subject.args, *extra, *words])
    until = None if hours is None else time.monotonic() + hours * 3600
    terminal.say(f"{subject.title}: {len(named)} builds, {named[0][0]} to {named[-1][0]}; at most {max_runs} runs")
    with Runner(subject, extra, named, store, until, terminal.say, whole) as runner:
        answer = search(len(named), runner, max_runs)
    terminal.say_all(lines(answer, [name for name, _ in named]))
    end((Verdict.VALID if answer.sure else Verdict.UNKNOWN).exit_code)
