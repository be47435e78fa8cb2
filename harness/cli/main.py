# SPDX-License-Identifier: Apache-2.0
"""The command line: `harness run | check | reproduce | logs | advise | list | doctor | clean | serve | ...`.

Exit codes (design.md, section 4): 0 valid, 1 invalid, 2 unknown, 3 harness failure, 64 usage.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

import click

from harness import signals
from harness.boundary import Commands, guarded

_COMMANDS: Final = {
    "advise": (
        "rocketmq_harness.advice.command",
        "Say what your settings promise, which findings apply, and what was not measured; without servers.",
    ),
    "batch": (
        "harness.batch.command",
        "Judge every history of a store, a folder or an op table, in parallel, on Spark (docs/batch.md).",
    ),
    "bisect": (
        "harness.cli.bisect",
        "Find the version or build in which a defect came in, and the one in which it went, by runs that may miss it.",
    ),
    "certify": (
        "rocketmq_harness.certify.command",
        "Run your settings under a fixed suite of faults, and make one sheet: what held, the worst loss, the silences.",
    ),
    "check": (
        "harness.cli.check",
        "Judge stored runs (folders), histories (files), or folders of them again, offline, one line each.",
    ),
    "clean": (
        "harness.cli.doctor",
        "Remove what earlier runs left on this machine (containers, networks, namespaces, mounts); never results.",
    ),
    "compare": (
        "harness.cli.compare",
        "Compare two builds of the servers: pairs of runs with one plan and one seed, until a sequential test decides.",
    ),
    "completion": (
        "harness.cli.completion",
        "Print the script by which bash, zsh or fish completes commands, options and their values.",
    ),
    "coverage": (
        "harness.cli.coverage",
        "Coverage of stored runs: requests by answer, role, fault and phase; and the gaps, with the command for each.",
    ),
    "doctor": ("harness.cli.doctor", "Show what this machine can do, what it cannot, and the remedy."),
    "hunt": (
        "harness.cli.hunt",
        "Look for anomalies that no finding explains, by episodes of strikes at events, on kept clusters.",
    ),
    "list": (
        "harness.cli.listing",
        "List workloads, nemeses, topologies, clients, clusters, versions and mends; or show one with its options.",
    ),
    "logs": (
        "harness.cli.logs",
        "Search your own logs for the lines of known findings: where each may have happened, and what to look at.",
    ),
    "nightly": (
        "harness.cli.nightly",
        "Run the cells of a matrix until the time is up; a second call goes on where the first one ended.",
    ),
    "reproduce": (
        "harness.cli.reproduce",
        "Run findings of the record, plans or stored runs again and again; report how often they show.",
    ),
    "run": ("harness.cli.run", "Run a workload under faults on a real cluster, and judge it."),
    "serve": ("harness.cli.serve", "Show the runs in a browser, on 127.0.0.1 only."),
    "shrink": (
        "harness.cli.shrink",
        "Find the smallest plan that still shows the same anomaly: strikes, nodes, clients, settings, seconds, load.",
    ),
    "store": ("harness.cli.store", "Remove old runs from the store, and print the history of a run."),
    "trends": (
        "harness.cli.trends",
        "Verdicts by version, workload and nemesis; what clients felt of each fault; anomalies, first and last seen.",
    ),
}
"""Command -> its module, which is loaded when the command is called, and the first sentence of its help.

Those that know the servers under test are a floor above, in `rocketmq_harness`, as the command itself is.
"""


class LazyCommands(Commands):
    """The group of all commands. `commands` has the first sentence of each one's help, not the commands themselves."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in self.commands else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.get_short_help_str(limit)) for name, row in self.commands.items()])


def command(name: str) -> click.Command:
    """A command by name. Raises KeyError."""
    if name != "check":  # It takes no long steps, and a small history is checked faster than `logging` is loaded.
        from harness import progress

        progress.report()
    module = import_module(_COMMANDS[name][0])
    found = getattr(module, "list_" if name == "list" else name)
    assert isinstance(found, click.Command)
    return found


@click.group(
    cls=LazyCommands,
    no_args_is_help=False,  # one line, as for all other mistakes
    commands={name: click.Command(name, help=text) for name, (_, text) in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="rocketmq-harness", prog_name="harness")
def cli() -> None:
    """Fault-injection tests for Apache RocketMQ and DLedger: real servers, real faults, checked histories."""


def main(argv: list[str] | None = None) -> None:
    """The entry point. Every expected error is one line on stderr; the exit code shows its source."""
    signals.install()
    if "_HARNESS_COMPLETE" in os.environ:
        from harness.cli.completion import answer

        if (code := answer(cli)) is not None:
            sys.exit(code)
    sys.exit(guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)))


if __name__ == "__main__":
    main()
