# SPDX-License-Identifier: Apache-2.0
"""The command `harness advise`: what an operator's settings promise, and what is known against it."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import terminal
from harness.boundary import end
from harness.values import FilePath
from results.verdict import Verdict

if TYPE_CHECKING:
    from rocketmq_harness.advice.advice import Advice, Applied, Loss

_WIDTH = 110


@click.command()
@click.argument("broker_conf", type=FilePath(), metavar="BROKER.CONF")
@click.option("--controller-conf", type=FilePath(), metavar="FILE", help="The controllers' settings.")
@click.option("--namesrv-conf", type=FilePath(), metavar="FILE", help="The name servers' settings.")
@click.option("--version", required=True, help="Version of the servers, such as 5.3.3.")
@click.option(
    "--topology",
    required=True,
    type=click.Choice(("controller", "dledger-commitlog", "master-slave", "slave-acting-master")),
    help="The way in which a group has its master (docs/topologies.md).",
)
@click.option("--replicas", required=True, type=click.IntRange(1, 100), help="Brokers of a group, the master included.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of the text.")
def advise(
    broker_conf: Path,
    controller_conf: Path | None,
    namesrv_conf: Path | None,
    version: str,
    topology: str,
    replicas: int,
    as_json: bool,
) -> None:
    """Say what your settings promise, which findings apply, and what was not measured; without servers.

    BROKER.CONF is the file of a broker that is, or may become, master. The answer has the number of losses that an
    acknowledged message survives by the rule, the findings that break it with their rates, settings without effect or
    against each other, and what to set meanwhile. Each statement has its evidence, or says "not measured". The exit
    code is 1 if a setting is wrong or contradicts another one, else 0; 0 does not mean that a configuration is safe.

    \b
    harness advise broker.conf --version 5.5.0 --topology controller --replicas 3
    harness advise broker.conf --controller-conf c.conf --version 5.3.3 --topology controller --replicas 5 --json
    """
    from harness.findings.record import read_findings
    from infra.systems.rocketmq.servers.artifacts import known_version
    from rocketmq_harness.advice.advice import advise as made
    from rocketmq_harness.advice.advice import to_json
    from rocketmq_harness.advice.properties import read_conf
    from rocketmq_harness.advice.setup import Setup

    found = made(
        Setup(
            known_version(version),
            topology,
            replicas,
            read_conf("broker", broker_conf),
            None if controller_conf is None else read_conf("controller", controller_conf),
            None if namesrv_conf is None else read_conf("namesrv", namesrv_conf),
        ),
        read_findings(),
    )
    if as_json:
        terminal.put(json.dumps(to_json(found), indent=1) + "\n", sys.stdout)
    else:
        terminal.say_all(_report(found))
    end(Verdict.INVALID.exit_code if found.problems else Verdict.VALID.exit_code)


def _report(found: Advice) -> Iterator[str]:
    setup = found.setup
    yield f"RocketMQ {setup.version}, {setup.mode}, {setup.replicas} replicas in a group"
    yield ""
    if found.problems:
        yield "Settings that are wrong, without effect, or against each other:"
        for problem in found.problems:
            where = f"{problem.where}: " if problem.where else ""
            yield from _wrapped("* ", f"{where}{problem.text}  [{problem.evidence}]")
        yield ""
    yield from _wrapped(
        "", f"A message is acknowledged when {found.promise.means}.  [{found.promise.source or 'by the file'}]"
    )
    if found.promise.copies is not None:
        yield f"So {found.promise.copies} of {setup.replicas} replicas have it at least, in memory or on the disk."
    yield ""
    yield "Losses that an acknowledged message survives:"
    for loss in found.losses:
        yield from _wrapped(f"  {loss.kind:<9}", _of_loss(loss))
    yield ""
    yield from _findings(found)


def _of_loss(loss: Loss) -> str:
    text = f"{loss.number} by the rule: {loss.why}"
    if loss.broken:
        text = f"NOT SURE. {text}. Broken by {'; '.join(one.evidence for one in loss.broken)}"
    if loss.untried:
        text += f". Not measured here: findings {', '.join(str(one.finding.id) for one in loss.untried)}"
    return f"{text}. Runs that looked at the copies: {loss.measured}"


def _findings(found: Advice) -> Iterator[str]:
    where = f"{found.setup.version} on {found.setup.mode}"
    yield f"Findings that were seen with {where}: {len(found.applying)}"
    for one in found.applying:
        issue = one.finding.issue
        yield from _wrapped("* ", f"{one.evidence}. {one.finding.title}  ({one.finding.system})")
        yield from _wrapped("  meanwhile: ", (issue.meanwhile if issue else "") or "nothing is known")
    yield ""
    lists: Sequence[tuple[str, Sequence[Applied]]] = (
        ("Seen there, but your settings do not have what they need by the source (not measured)", found.excluded),
        (f"Run with {where}, and not seen", found.never_shown),
        (f"Not measured with {where}, seen with other versions", found.untried),
        ("Not measured on this topology, seen on others", found.other),
    )
    for title, group in lists:
        if group:
            yield from _wrapped("", f"{title}: {', '.join(_short(one) for one in group)}")
    yield ""
    yield "Pages: harness reproduce ID --page. A rate is that of a test that aims at the finding, not of production."


def _short(one: Applied) -> str:
    more = ", ".join(text for text in (one.condition, one.rate and one.rate.partition(" (")[0]) if text)
    return f"{one.finding.id} ({more})" if more else str(one.finding.id)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
