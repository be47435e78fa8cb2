# SPDX-License-Identifier: Apache-2.0
"""The options of `harness run` itself. Those of the plug-ins join them when a command line is parsed
(`harness.cli.run`), and none of them may have one of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from harness.parts.completion import TARGETS, folders, mend_ids, names_of, versions, words
from harness.plan.defaults import default_fault, default_workload
from harness.values import FAIL_ON, STORE, FilePath, FiniteRange, duration

ANY: Final = "every"
"""The value of `--end-early` without names."""

GROUPS: Final[Mapping[str, tuple[click.Option, ...]]] = {
    "The run": (
        click.Option(["--plan", "plan_file"], type=FilePath(), help="A plan in TOML; options override it."),
        click.Option(
            ["--workload"],
            shell_complete=names_of("harness.workloads"),
            help=f"Operations and checkers (harness list workloads).  [default: {default_workload()}]",
        ),
        click.Option(
            ["--client"],
            shell_complete=names_of("harness.clients"),
            help="Client protocol (harness list clients).  [default: the workload's own]",
        ),
        click.Option(["--time-limit"], type=duration, metavar="TIME", help="Length of the main phase.  [default: 60s]"),
        click.Option(
            ["--rate"],
            type=FiniteRange(0, 1e6, min_open=True),
            help="Operations per second, over all clients.  [default: the workload's own]",
        ),
        click.Option(["--concurrency"], type=int, help="Number of clients.  [default: 10]"),
        click.Option(
            ["--op-deadline"],
            type=duration,
            metavar="TIME",
            help="Deadline of an operation; after it the outcome is unknown.  [default: 4s]",
        ),
        click.Option(
            ["--seed"], type=int, help="Seed of operations and fault schedule.  [default: random, stored in the plan]"
        ),
        click.Option(
            ["--end-early"],
            is_flag=False,
            flag_value=ANY,
            metavar="[=NAME,...]",
            help="End the load when its operations prove an anomaly (one of these): heal, final reads, judgement.",
        ),
        click.Option(["--dry-run"], is_flag=True, help="Check the plan and print it with all defaults; start nothing."),
    ),
    "Faults": (
        click.Option(
            ["--nemesis"],
            shell_complete=names_of("harness.nemeses", "none"),
            help='Faults, separated by commas, each with its own options: "hammer-time target=slaves, bridge for=5s"; '
            f"or none (harness list nemeses).  [default: {default_fault()}]",
        ),
        click.Option(
            ["--target"],
            shell_complete=words(*TARGETS),
            help="Target of the faults: one|minority|majority|all|random|n1,n3, or a role: "
            "leader|master|slaves|KIND[-leader].",
        ),
        click.Option(
            ["--interval"],
            type=duration,
            metavar="TIME",
            help="Time from the start of a fault to the start of the next.  [default: 20s]",
        ),
        click.Option(["--duration"], type=duration, metavar="TIME", help="Duration of a fault.  [default: 10s]"),
        click.Option(
            ["--recovery-limit"],
            type=duration,
            metavar="TIME",
            help="A longer time without acknowledgement is an anomaly.  [default: 30s]",
        ),
        click.Option(
            ["--replay"],
            type=click.Choice(["events", "times"]),
            help="For a plan with strikes: the events that strikes wait for.",
        ),
    ),
    "Servers": (
        click.Option(
            ["--topology"],
            shell_complete=names_of("harness.topologies"),
            help="Topology: servers and their nodes (harness list topologies).  [default: the workload's own]",
        ),
        click.Option(
            ["--profile"],
            shell_complete=words("default", "strict"),
            help="Guarantees of the servers: default|strict.  [default: strict]",
        ),
        click.Option(
            ["--version", "version"], shell_complete=versions, help="Version of the servers (harness list versions)."
        ),
        click.Option(
            ["--server-jars"],
            shell_complete=folders,
            help="Folder with the jars of your own build; precedes the class path.",
        ),
        click.Option(["--jvm-option", "jvm_options"], multiple=True, help="JVM option for the servers (repeat)."),
        click.Option(
            ["--mend", "mends"],
            shell_complete=mend_ids,
            multiple=True,
            metavar="ID[,ID...]|all|FILE",
            help="Correct known defects in the servers (harness list mends), or apply a mend of your own.",
        ),
        click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A server setting, such as broker.KEY=VALUE (repeat).",
        ),
    ),
    "Machines": (
        click.Option(
            ["--cluster"],
            shell_complete=names_of("harness.clusters", "auto"),
            help="Backend: auto, or a name from harness list clusters.  [default: auto]",
        ),
        click.Option(["--nodes"], type=int, help="Number of nodes.  [default: 5]"),
        click.Option(["--keep"], is_flag=True, help="Keep the cluster running after the run, for --reuse."),
        click.Option(["--reuse"], metavar="RUN_ID", help="Run on a kept cluster; it stays kept."),
    ),
    "Results": (
        click.Option(["--fail-on"], **FAIL_ON),
        click.Option(
            ["--json", "json_file"],
            type=FilePath(),
            metavar="FILE",
            help="Write folder, verdict and cluster of the run to this file, as JSON.",
        ),
        click.Option(
            ["--keep-journal"], is_flag=True, help="Keep journal.jsonl, although the sealed history has all of it."
        ),
        click.Option(["--store"], **STORE),
    ),
}
"""Heading in the help -> its options."""

OPTIONS: Final = tuple(option for group in GROUPS.values() for option in group)

FLAGS: Final = frozenset(("help", *(flag.removeprefix("--") for option in OPTIONS for flag in option.opts)))
"""Their names, without dashes. No plug-in may have one of these, except a nemesis: its options stand behind its own
name.
"""
