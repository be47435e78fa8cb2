# SPDX-License-Identifier: Apache-2.0
"""`harness run`: converts a command line to a plan.

The options of the workload, topology, backend, client and faults of a run are options of this command. They are looked
up when the command line is parsed, so a new plug-in needs no change here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from harness import terminal
from harness.boundary import end
from harness.nemesis.effective import by_times
from harness.parts import registry
from harness.parts.completion import words
from harness.parts.named import named_faults
from harness.parts.registry import PlugIn
from harness.parts.resolve import ResolvedPlan, remarks, resolve
from harness.parts.run_options import ANY, GROUPS, OPTIONS
from harness.plan.plan import Plan, PlanError
from infra.options import OptionSpec
from infra.systems.api import TOPOLOGIES
from results.durable import write_text
from results.store import Store
from results.verdict import FailOn

_OF_A_SERIES: Final = ("--store", "--json", "--dry-run", "--keep", "--reuse", "--plan", "--help", "-h")
"""Options of the runs of a night, or of `harness reproduce`, that are not the user's."""


_PLAN: Final = {
    **{name: name for name in ("workload", "seed", "rate", "concurrency", "client")},
    **{name: f"{name}_s" for name in ("time_limit", "op_deadline", "recovery_limit")},
}
_CLUSTER: Final = {"cluster": "backend", "nodes": "nodes"}
_SERVER: Final = {
    **{name: name for name in ("topology", "profile", "version", "jvm_options", "mends")},
    "server_jars": "jars",
}
_NEMESIS: Final = {"interval": "every_s", "duration": "for_s", "target": "target"}
"""Parameter of the command -> the field of the plan, or of its part, that it sets."""


class RunCommand(click.Command):
    """A command with its own options and those of all plug-ins that its command line (or plan) names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = click.Context(
            self,
            ctx.parent,
            ctx.info_name,
            ignore_unknown_options=True,
            allow_extra_args=True,
            help_option_names=ctx.help_option_names,
        )
        first.resilient_parsing = True
        with first:
            super().parse_args(first, list(args))
        plan = _plan(first.params.get("plan_file"), first.params)
        if plan.cluster.backend == "auto":
            ctx.meta["cluster"] = _implied(args)
            plan = replace(plan, cluster=replace(plan.cluster, backend=ctx.meta["cluster"] or "auto"))
        ctx.meta["owned"] = owned = owned_options(plan)
        known = {option for param in self.params for option in param.opts}
        ctx.meta["params"] = [_flag(spec) for spec, _ in owned.values() if spec.flag not in known]
        ctx.meta["owners"] = list(_owners(plan))
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            raise _whose(problem, plan) from None

    def invoke(self, ctx: click.Context) -> None:
        """Runs the command. Exit code 0 means `valid`: only `end`, after the verdict, and a dry run lead to it."""
        super().invoke(ctx)
        if not ctx.params["dry_run"]:
            raise RuntimeError("the run came to no verdict")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options in groups: those of the command, then those of each plug-in under its name."""
        flags = {param.opts[0]: param for param in ctx.meta.get("params", ())}
        groups: dict[str, list[click.Parameter]] = {heading: list(params) for heading, params in GROUPS.items()}
        groups["Help"] = [found for found in [self.get_help_option(ctx)] if found is not None]
        for plugin in ctx.meta.get("owners", ()):
            mine = [flags.pop(spec.flag) for spec in plugin.options.values() if spec.flag in flags]
            groups.setdefault(f"{plugin.family.word.capitalize()} {plugin.name}", []).extend(mine)
        for heading, params in groups.items():
            rows = [row for param in params if (row := param.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *ctx.meta.get("params", ())]


def _implied(args: Sequence[str]) -> str | None:
    """The only backend that has an option of the command line (`--node` means `--cluster ssh`)."""
    for arg in args:
        if arg.startswith("--"):
            owners = registry.owners_of(arg.partition("=")[0], registry.CLUSTERS)
            if len(owners) == 1:
                return owners[0].name
    return None


def _flag(spec: OptionSpec) -> click.Option:
    """An option of a plug-in for click. Values stay texts: the owner checks them."""
    name = _parameter(spec.name)
    if spec.kind is bool and not spec.many:
        negated = "" if spec.permission else f"/--no-{spec.name.replace('_', '-')}"
        return click.Option([f"{spec.flag}{negated}", name], is_flag=True, default=None, help=spec.describe())
    values = words(*spec.kind) if isinstance(spec.kind, tuple) else None
    return click.Option(
        [spec.flag, name],
        multiple=spec.many,
        metavar=spec.placeholder,
        help=spec.describe(),
        shell_complete=values,
    )


def _parameter(option: str) -> str:
    """The name under which click passes a plug-in's option: different from the command's own."""
    return f"of_{option}"


def owned_options(plan: Plan) -> dict[str, tuple[OptionSpec, list[str]]]:
    """Option -> its specification, and the groups of the plan's plug-ins that have it. If two differ, the first one's
    help is shown.
    """
    found: dict[str, tuple[OptionSpec, list[str]]] = {}
    for plugin in _owners(plan):
        for name, spec in plugin.options.items():
            found.setdefault(name, (spec, []))[1].append(plugin.group)
    return found


def _owners(plan: Plan) -> Iterator[PlugIn]:
    """The plug-ins of a plan that are known by now. Missing ones are reported later."""
    workload = registry.found(registry.WORKLOADS, plan.workload)
    topology, client = plan.server.topology, plan.client
    if workload is not None:
        topology = topology or next(iter(workload.cls.topologies_with(client)), None)
        client = client or next(iter(workload.cls.clients), None)
    named = [
        (registry.WORKLOADS, plan.workload),
        (registry.CLIENTS, client),
        (TOPOLOGIES, topology),
        (registry.CLUSTERS, plan.cluster.backend),
        *((registry.NEMESES, nemesis.fault) for nemesis in plan.nemeses),
        *((registry.NEMESES, strike.fault) for strike in plan.strikes),
    ]
    for group, name in named:
        plugin = None if name is None else registry.found(group, name)
        if plugin is not None:
            yield plugin


def _whose(problem: click.NoSuchOption, plan: Plan) -> click.UsageError:
    """The error for an option that no plug-in of this run has. It names the plug-ins that have it."""
    flag = problem.option_name.replace("--no-", "--", 1)
    mine = {
        registry.WORKLOADS: plan.workload,
        registry.CLIENTS: None,
        TOPOLOGIES: plan.server.topology,
        registry.CLUSTERS: plan.cluster.backend,
        registry.NEMESES: None,
    }
    for group, name in mine.items():
        if others := registry.owners_of(flag, group):
            word = others[0].family.word
            here = f" {name!r}" if name else ""
            return click.UsageError(
                f"the {word}{here} has no option {problem.option_name}; it is an option of "
                f"{' and '.join(f'--{word} {other.name}' for other in others)}",
                problem.ctx,
            )
    return problem


def _plan(plan_file: Any, params: Mapping[str, Any]) -> Plan:
    """Returns the plan that the command line names, as far as it is valid: for looking up options. Never raises."""
    try:
        base = Plan.read(Path(plan_file)) if plan_file else Plan()
        named = {
            k: v for k, v in params.items() if k in ("workload", "client", "topology", "cluster", "nemesis", "hosts")
        }
        return override(base, {k: v for k, v in named.items() if v not in (None, ())})
    except (PlanError, OSError, ValueError):
        return Plan()


# (The first context decides what the option for help is called, also one without the group of all commands.)
@click.command("run", cls=RunCommand, params=list(OPTIONS), context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def run(
    ctx: click.Context,
    /,
    store: Path,
    plan_file: Path | None,
    dry_run: bool,
    keep: bool,
    keep_journal: bool,
    end_early: str | None,
    reuse: str | None,
    replay: str | None,
    json_file: Path | None,
    fail_on: str,
    **options: Any,
) -> None:
    """Run a workload under faults on a real cluster, and judge it.

    The options of the workload, the topology, the machines, the client and the faults that are named are at the end,
    under their names; `harness list NAME` shows them, too.

    \b
    harness run
    harness run --topology controller --profile default --nemesis kill-random-processes --target master
    harness run --nemesis partition-leader-minority --version 5.3.3 --set broker.minInSyncReplicas=2
    harness run --workload register --snapshot --nemesis hammer-time --time-limit 2m
    harness run --plan results/runs/latest/effective.toml
    """
    from harness.check.summary import summary
    from harness.run import lifecycle

    early = ending_names(end_early)
    plan = _planned(ctx, plan_file, reuse, replay, options)
    if dry_run:
        lifecycle.check(plan, keep=keep, reuse=reuse)
        _say_remarks(plan)
        terminal.say_all(plan.to_toml().splitlines())
        return
    prepared = lifecycle.prepare(plan, keep=keep, reuse=reuse, keep_journal=keep_journal, end_early=early)
    _say_remarks(plan)
    outcome = lifecycle.run(prepared, Store(store), terminal.say)
    terminal.say_all(summary(outcome, plan))
    if json_file is not None:
        write_text(json_file, json.dumps(outcome.to_json()) + "\n", "the summary")
    end(outcome.judgement.exit_code(FailOn(fail_on)))


def ending_names(text: str | None) -> frozenset[str] | None:
    """The anomalies of `--end-early`: none without it; empty: any. Raises PlanError."""
    if text is None or text == ANY:
        return None if text is None else frozenset()
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise PlanError(f"--end-early={text!r}: names of anomalies, separated by commas, are right, or no value")
    return frozenset(names)


def _say_remarks(plan: ResolvedPlan) -> None:
    for remark in remarks(plan):
        terminal.say(f"harness: note: {remark}", err=True)


def topology_of(words: Sequence[str]) -> type:
    """The topology of these options of `harness run`. Raises as `check_words` does."""
    found: type = _resolved(words).chosen.topology.plugin.cls
    return found


def check_words(words: Sequence[str]) -> None:
    """Raises PlanError, SettingsError or click.UsageError if these options of `harness run` are wrong, as far as that
    shows without machines and servers.
    """
    from harness.run import lifecycle

    lifecycle.check(_resolved(words))


def _resolved(words: Sequence[str]) -> ResolvedPlan:
    with run.make_context("harness run", list(words)) as ctx:
        given = dict(ctx.params)
        plan_file, reuse, replay = (given.pop(name) for name in ("plan_file", "reuse", "replay"))
        ending_names(given.get("end_early"))
        for name in ("store", "dry_run", "keep", "keep_journal", "end_early", "json_file", "fail_on"):
            given.pop(name)
        return _planned(ctx, plan_file, reuse, replay, given)


def require_free(words: Sequence[str]) -> None:
    """Raises PlanError if a user's options for the runs of a series contain one that the series sets by itself."""
    for word in words:
        if (flag := word.partition("=")[0]) in _OF_A_SERIES:
            raise PlanError(f"{flag} cannot be an option of the runs: the series itself decides it; leave it out")


def _planned(
    ctx: click.Context, plan_file: Path | None, reuse: str | None, replay: str | None, options: Mapping[str, Any]
) -> ResolvedPlan:
    """The resolved plan that a command line names. Raises PlanError, SettingsError."""
    from harness.parts import reuse as reusing

    for param in run.params:
        value = options.get(str(param.name))
        if any(isinstance(one, str) and not one.strip() for one in (value if isinstance(value, tuple) else [value])):
            # Such as a variable of a CI job that is not set: the default would be tested in its place.
            raise PlanError(f"{param.opts[0]} is empty; leave it out, or give it a value")
    base = Plan.read(plan_file) if plan_file else None
    given = {k: v for k, v in options.items() if v not in (None, ())}
    if ctx.meta.get("cluster"):
        given["cluster"] = ctx.meta["cluster"]
    owned: Mapping[str, tuple[OptionSpec, list[str]]] = ctx.meta["owned"]
    if base is not None:
        _insist_on_permission(base, str(plan_file), owned, given)
    plan = override(base, given, owned)
    if replay is not None:
        if not plan.strikes:
            raise PlanError("--replay is for a plan with strikes written out ([[strike]]), such as effective.toml")
        plan = by_times(plan) if replay == "times" else plan
    if reuse is not None:
        if not reuse.strip():
            raise PlanError("--reuse is empty; the run id of a kept cluster is right")
        plan = reusing.on_kept(plan, reuse, given, owned, lambda made, some: override(made, some, owned))
    return resolve(plan)


def _insist_on_permission(
    plan: Plan, where: str, owned: Mapping[str, tuple[OptionSpec, Sequence[str]]], given: Mapping[str, Any]
) -> None:
    """Raises PlanError for permissions in a plan file that the user did not repeat: its author is unknown."""
    tables = {registry.CLUSTERS: plan.cluster.options, TOPOLOGIES: plan.server.options}
    for name, (spec, groups) in owned.items():
        granted = any(tables.get(group, plan.options).get(name) for group in groups)
        if spec.permission and granted and not given.get(_parameter(name)):
            raise PlanError(
                f"{where}: {name} = true is a permission; a plan cannot give it, {spec.flag} on the command line can"
            )


def override(
    plan: Plan | None,
    options: Mapping[str, Any],
    owned: Mapping[str, tuple[OptionSpec, Sequence[str]]] | None = None,
) -> Plan:
    """Returns the plan, overridden by the command line; draws a seed if neither has one.

    owned  the options of plug-ins (`owned_options`): each goes to every one of them that has it.
    """
    given = {k: v for k, v in options.items() if v not in (None, ())}
    base = plan or Plan(seed=int.from_bytes(os.urandom(3), "big"))
    cluster, server = base.cluster, base.server

    def of(*groups: str) -> dict[str, Any]:
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, (_, owners) in (owned or {}).items()
            if not set(owners).isdisjoint(groups) and (value := given.get(_parameter(name))) is not None
        }

    def still(option: str, before: str | None, table: Mapping[str, Any]) -> Mapping[str, Any]:
        return table if given.get(option, before) == before else {}  # (those of another plug-in)

    made = replace(
        base,
        **_chosen(given, _PLAN),
        options={**still("workload", base.workload, base.options), **of(registry.WORKLOADS, registry.CLIENTS)},
        cluster=replace(
            cluster,
            **_chosen(given, _CLUSTER),
            options={**still("cluster", cluster.backend, cluster.options), **of(registry.CLUSTERS)},
        ),
        server=replace(
            server,
            **_chosen(given, _SERVER),
            settings={**server.settings, **dict(map(_pair, given.get("settings", ())))},
            options={**still("topology", server.topology, server.options), **of(TOPOLOGIES)},
        ),
    )
    if plan is None and (workload := registry.found(registry.WORKLOADS, made.workload)) and workload.cls.brings_faults:
        made = replace(made, nemeses=())
    return _with_nemeses(made, given, of(registry.NEMESES))


def _with_nemeses(plan: Plan, given: Mapping[str, Any], options: Mapping[str, Any]) -> Plan:
    """Applies `--nemesis`, and the options for all faults: `--interval`, `--duration`, `--target`, the faults' own."""
    anew = "nemesis" in given
    found = []
    for nemesis in named_faults(given["nemesis"]) if anew else plan.nemeses:
        known = registry.found(registry.NEMESES, nemesis.fault)
        mine = {k: v for k, v in options.items() if known is not None and k in known.options}
        both = {**mine, **nemesis.options} if anew else {**nemesis.options, **mine}
        found.append(replace(nemesis, **_chosen(given, _NEMESIS), options=both))
    return replace(plan, nemeses=tuple(found), strikes=() if anew else plan.strikes)


def _chosen(given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[option] for option, field in fields.items() if option in given}


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise PlanError(f"--set {text!r}: KEY=VALUE is right, such as broker.minInSyncReplicas=2")
    return key, value
