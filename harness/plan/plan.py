# SPDX-License-Identifier: Apache-2.0
"""The plan: everything that decides a run, as TOML; stored with the run (design.md, sections 3 and 4).

One seed for everything: `plan.rng("generator")`, `plan.rng("faults/...")` are independent streams split from it,
so that changing one component's draws does not disturb another's.

A plan on disk looks like this; missing keys take their defaults:

    workload = "log"
    seed = 7
    time_limit = "90s"

    [cluster]
    backend = "docker"

    [server]
    topology = "controller"
    set."broker.minInSyncReplicas" = "2"

    [[nemesis]]
    fault = "hammer-time"
    every = "20s"
    for = "10s"
    target = "master"

Options of a workload, a client, a backend, a topology or a fault stand beside its name, in the same table
(`infra.options`). The plan carries them unchanged; their owners check them (`harness.parts.resolve`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import tomli_w

from harness.plan.defaults import default_fault, default_workload
from harness.plan.table import PlanError, Table, check, flat, scalar_text, without_none
from harness.shipped import shipped
from infra.options import OptionError, cut, duration_text, parse
from results.reading import read_toml
from results.strikes import Strike
from results.visible import THIN_SPACE

__all__ = ["ClusterPlan", "NemesisPlan", "Plan", "PlanError", "ServerPlan", "ServerRule"]

MOST_STRIKES: Final = 100_000
"""The most strikes of a run: the schedule is made before the run, and drawn into its report."""
_MOST_NODES: Final = 50
_LABEL: Final = 150
"""Characters of a run's label. File systems take names of 255 bytes."""
_SEEDS: Final = range(-(2**63), 2**63)
"""The integers that TOML can hold."""

Options = TypeVar("Options")


@dataclass(frozen=True)
class NemesisPlan:
    """One fault of the schedule: every `every_s` seconds (start to start), each time for `for_s` seconds."""

    fault: str
    every_s: float = 20.0
    for_s: float = 10.0
    target: str | None = None
    """A word of `harness.nemesis.targets`, or nodes such as n1,n3; None = the fault's own default."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the fault."""


@dataclass(frozen=True)
class ClusterPlan:
    """Machines: `backend` is auto, docker, local, ssh, or a plug-in's; `options` are the backend's."""

    backend: str = "auto"
    nodes: int | None = None
    """None: as many as the backend's options name, else 5."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerRule:
    """A rule for servers that start differently: those on `nodes`, of these `kinds`; empty: all of them."""

    nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    version: str | None = None
    jars: str | None = None
    jvm_options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    wrapper: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerPlan:
    """Servers: their nodes (`topology`), their promises (`profile`), version of the published artifacts, a user's own
    jars, JVM options, mends (ids of findings, files), settings by their own names. None: the workload or the topology
    decides.
    """

    topology: str | None = None
    profile: str | None = None
    version: str | None = None
    jars: str | None = None
    jvm_options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[ServerRule, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the topology."""
    mends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Times in seconds, `rate` in ops per second over all clients (None: the workload's own)."""

    workload: str = field(default_factory=default_workload)
    seed: int = 0
    time_limit_s: float = 60.0
    rate: float | None = None
    concurrency: int = 10
    op_deadline_s: float = 4.0
    recovery_limit_s: float = 30.0
    client: str | None = None
    """The client protocol; None: the workload's default."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the workload, and of the client."""
    cluster: ClusterPlan = field(default_factory=ClusterPlan)
    server: ServerPlan = field(default_factory=ServerPlan)
    nemeses: tuple[NemesisPlan, ...] = field(default_factory=lambda: (NemesisPlan(default_fault()),))
    strikes: tuple[Strike, ...] = ()
    """Strikes that the plan lists; then it has no nemeses."""

    def __post_init__(self) -> None:
        check(self.seed in _SEEDS, "seed", self.seed, "a whole number of at most 63 bits")
        check(self.time_limit_s > 0, "time_limit", self.time_limit_s, "a time above 0")
        check(self.rate is None or 0 < self.rate <= 1e6, "rate", self.rate, "ops per second above 0")
        check(1 <= self.concurrency <= 10_000, "concurrency", self.concurrency, "1 to 10000 clients")
        check(self.op_deadline_s > 0, "op_deadline", self.op_deadline_s, "a time above 0")
        check(self.recovery_limit_s > 0, "recovery_limit", self.recovery_limit_s, "a time above 0")
        nodes = self.cluster.nodes
        check(nodes is None or 1 <= nodes <= _MOST_NODES, "nodes", nodes, f"1 to {_MOST_NODES} (RIP-59's test has 5)")
        for what, text in self._texts():
            check("\0" not in text, what, text, "text without NUL characters")
            check(_is_unicode(text), what, text, "text in UTF-8")
        for nemesis in self.nemeses:
            check(
                nemesis.target is None or nemesis.target.strip(), f"target of {nemesis.fault}", nemesis.target, "whom"
            )
            check(nemesis.for_s > 0, f"'for' of {nemesis.fault}", nemesis.for_s, "a time above 0")
            if nemesis.every_s <= nemesis.for_s:
                raise PlanError(
                    f"{nemesis.fault}: every {nemesis.every_s:g} s for {nemesis.for_s:g} s leaves no time between "
                    "two faults; the interval must be longer than the duration"
                )
        strikes = len(self.strikes) + sum(self.time_limit_s / nemesis.every_s for nemesis in self.nemeses)
        if strikes > MOST_STRIKES:
            raise PlanError(
                f"the nemeses would strike {strikes:,.0f} times in {self.time_limit_s:g} s, and {MOST_STRIKES:,} are "
                "the most; a longer interval (--interval), or a shorter time limit (--time-limit) is right"
            )

    def _texts(self) -> Iterable[tuple[str, str]]:
        """Yields (name, text) of all texts for command lines and files of nodes, or for the plan's own file."""
        s = self.server
        tables = (self.options, self.cluster.options, s.options)
        more = (*((n.fault, n.options) for n in self.nemeses), *((n.fault, n.options) for n in self.strikes))
        for name, value in [(k, v) for table in tables for k, v in table.items()]:
            yield from ((f"the option {cut(name)}", text) for text in (name, *texts(value)))
        for fault, options in more:
            yield from ((f"an option of {cut(fault)}", text) for text in (fault, *texts(options)))
        yield from ((what, text or "") for what, text in (("the workload", self.workload), ("the client", self.client)))
        yield from (("a JVM option", option) for option in s.jvm_options)
        yield from ((f"the setting {cut(name)}", name + value) for name, value in s.settings.items())
        yield ("jars", s.jars or "")
        for rule in s.rules:
            words = (*rule.jvm_options, *rule.wrapper, *rule.env, *rule.env.values(), rule.jars or "")
            yield from (("a server's own option", word) for word in words)

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [f"n{i}" for i in range(1, (self.cluster.nodes or 5) + 1)]

    @property
    def planned(self) -> Sequence[NemesisPlan | Strike]:
        """The strikes that the plan lists, or else its nemeses."""
        return self.strikes or self.nemeses

    @property
    def faulty(self) -> bool:
        """True if any fault is planned."""
        return bool(self.nemeses or self.strikes)

    def options_of(self, owner: type[Options], what: str) -> Options:
        """The options of a workload or a client that are in the plan. Raises PlanError."""
        from infra.options import specs

        try:
            return parse(owner, {k: v for k, v in self.options.items() if k in specs(owner)}, "the plan", what)
        except OptionError as problem:
            raise PlanError(str(problem)) from None

    def rng(self, component: str) -> Random:
        """An independent stream of random numbers for one component, split from the plan's seed."""
        digest = hashlib.sha256(f"{self.seed}/{component}".encode()).digest()
        return Random(int.from_bytes(digest[:8], "big"))

    @property
    def label(self) -> str:
        """`<workload>-<nemesis>`: the run's folder in the store."""
        names = [n.fault for n in self.nemeses] or list(dict.fromkeys(s.fault for s in self.strikes)) or ["none"]
        whole = f"{self.workload}-{'+'.join(names)}"
        if len(whole) <= _LABEL:
            return whole
        # As a folder's name it would be too long; the digest keeps other combinations apart.
        digest = hashlib.sha256(whole.encode()).hexdigest()[:6]
        return f"{self.workload}-{names[0]}+{len(names) - 1}-more-{digest}"

    @property
    def digest(self) -> str:
        """Six hex digits that name this plan."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:6]

    def to_dict(self) -> dict[str, Any]:
        """The plan as TOML tables."""
        c, s = self.cluster, self.server
        return {
            "workload": self.workload,
            "seed": self.seed,
            "time_limit": duration_text(self.time_limit_s),
            **without_none(rate=self.rate),
            "concurrency": self.concurrency,
            "op_deadline": duration_text(self.op_deadline_s),
            "recovery_limit": duration_text(self.recovery_limit_s),
            **without_none(client=self.client),
            **self.options,
            "cluster": without_none(backend=c.backend, nodes=c.nodes, **c.options),
            "server": without_none(
                topology=s.topology,
                profile=s.profile,
                version=s.version,
                jars=s.jars,
                jvm_options=list(s.jvm_options),
                **({"mends": list(s.mends)} if s.mends else {}),
                **s.options,
                set=dict(s.settings),
                **({"on": [_rule_table(rule) for rule in s.rules]} if s.rules else {}),
            ),
            **({} if self.strikes else {"nemesis": [_nemesis_table(nemesis) for nemesis in self.nemeses]}),
            **({"strike": [strike_table(strike) for strike in self.strikes]} if self.strikes else {}),
        }

    def to_toml(self) -> str:
        """The plan as printable TOML: invisible characters are written as TOML's own escapes."""
        tables = self.to_dict()
        lists = {name: tables.pop(name) for name in ("nemesis", "strike") if name in tables}
        if lists.get("nemesis") == []:
            return _escaped(tomli_w.dumps({"nemesis": [], **tables}))
        text = tomli_w.dumps(tables)
        return _escaped(
            text + "".join(f"\n[[{name}]]\n{tomli_w.dumps(one)}" for name, many in lists.items() for one in many)
        )

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "plan") -> Plan:
        """The inverse of `to_dict`; missing keys take their defaults. All other keys are options,
        which their owners check (`harness.parts.resolve`).
        """
        top = Table(data, where, "")
        cluster, server = top.table("cluster"), top.table("server")
        base, c = Plan(), ClusterPlan()
        if top.has("strike") and data.get("nemesis"):
            raise PlanError(f"{where}: the plan has [[strike]] tables, so it cannot have a [[nemesis]]")
        return Plan(
            workload=top.get("workload", str, base.workload),
            seed=top.get("seed", int, base.seed),
            time_limit_s=top.seconds("time_limit", base.time_limit_s),
            rate=top.get("rate", float, None),
            concurrency=top.get("concurrency", int, base.concurrency),
            op_deadline_s=top.seconds("op_deadline", base.op_deadline_s),
            recovery_limit_s=top.seconds("recovery_limit", base.recovery_limit_s),
            client=top.get("client", str, None),
            cluster=ClusterPlan(
                backend=cluster.get("backend", str, c.backend),
                nodes=cluster.get("nodes", int, None),
                options=cluster.rest(),
            ),
            server=ServerPlan(
                topology=server.get("topology", str, None),
                profile=server.get("profile", str, None),
                version=server.get("version", str, None),
                jars=server.get("jars", str, None),
                jvm_options=server.strings("jvm_options"),
                mends=server.strings("mends"),
                settings={k: scalar_text(v) for k, v in flat(server.get("set", dict, {}))},
                rules=tuple(_rule(entry) for entry in server.tables("on")),
                options=server.rest(),
            ),
            nemeses=_nemeses(top) if top.has("nemesis") else () if top.has("strike") else base.nemeses,
            strikes=tuple(_strike(entry, n) for n, entry in enumerate(top.tables("strike"), start=1)),
            options=top.rest(),
        )

    @staticmethod
    def read(path: Path) -> Plan:
        """Reads a TOML file; a plan of `examples/` from any folder. Raises PlanError with the file (and line)."""
        try:
            data = read_toml(shipped(path))
        except OSError as problem:
            raise PlanError(f"{path}: cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise PlanError(f"{path}: not a plan in TOML: {problem}") from None
        return Plan.from_dict(data, str(path))


PLAN_KEYS: Final = (
    *("workload", "seed", "time_limit", "rate", "concurrency", "op_deadline", "recovery_limit", "client"),
    *("cluster", "server", "nemesis", "strike"),
)
"""Keys of a plan that are not the workload's or the client's."""
CLUSTER_KEYS: Final = ("backend", "nodes")
"""Keys of the table `[cluster]` that are not the backend's."""
SERVER_KEYS: Final = ("topology", "profile", "version", "jars", "jvm_options", "mends", "set", "on")
"""Keys of the table `[server]` that are not the topology's."""

STRIKE_KEYS: Final = ("fault", "target", "at", "after", "delay", "within", "for", "every", "seed")
"""Keys of `[[strike]]` and `[[nemesis]]` tables that are not the fault's: it must have no options of these names."""


def strike_table(strike: Strike) -> dict[str, Any]:
    """A strike as a `[[strike]]` table."""
    return without_none(
        fault=strike.fault,
        target=strike.target or None,
        at=None if strike.at_s is None else duration_text(strike.at_s),
        after=strike.after,
        delay=duration_text(strike.delay_s) if strike.delay_s else None,
        within=None if strike.within_s is None else duration_text(strike.within_s),
        **{"for": duration_text(strike.for_s)},
        seed=strike.seed or None,
        **strike.options,
    )


def texts(value: object) -> Iterable[str]:
    """All texts in a value of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *texts(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)


def _is_unicode(text: str) -> bool:
    """False for a text with bytes that were no UTF-8 on the command line: no file can hold them as they are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nemesis_table(nemesis: NemesisPlan) -> dict[str, Any]:
    return without_none(
        fault=nemesis.fault,
        every=duration_text(nemesis.every_s),
        **{"for": duration_text(nemesis.for_s)},
        target=nemesis.target,
        **nemesis.options,
    )


def _rule_table(rule: ServerRule) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(rule).items() if value}


def _rule(table: Table) -> ServerRule:
    found = ServerRule(
        nodes=table.strings("nodes"),
        kinds=table.strings("kinds"),
        version=table.get("version", str, None),
        jars=table.get("jars", str, None),
        jvm_options=table.strings("jvm_options"),
        env={k: scalar_text(v) for k, v in flat(table.get("env", dict, {}))},
        wrapper=table.strings("wrapper"),
    )
    table.reject_unknown()
    return found


def _nemeses(top: Table) -> tuple[NemesisPlan, ...]:
    found = []
    base = NemesisPlan("")
    for i, table in enumerate(top.tables("nemesis"), start=1):
        fault = table.get("fault", str, None)
        if fault is None:
            raise PlanError(
                f'{table.where}: nemesis {i} names no fault; a line such as fault = "{default_fault()}" is right'
            )
        found.append(
            NemesisPlan(
                fault,
                every_s=table.seconds("every", base.every_s),
                for_s=table.seconds("for", base.for_s),
                target=table.get("target", str, None),
                options=table.rest(),
            )
        )
    return tuple(found)


def _strike(table: Table, number: int) -> Strike:
    fault, target = table.get("fault", str, None), table.get("target", str, None)
    at, after = table.get("at", object, None), table.get("after", str, None)
    where = f"{table.where}: strike {number}"
    if fault is None:
        raise PlanError(f'{where} names no fault; a line such as fault = "{default_fault()}" is right')
    if at is None and after is None:
        raise PlanError(f'{where} has no start; at = "12s" (a time), or after = "role-changed" (an event) is right')
    found = Strike(
        number,
        fault,
        (target or "").strip(),
        for_s=table.seconds("for", NemesisPlan("").for_s),
        seed=table.get("seed", int, 0),
        at_s=None if at is None else table.seconds("at", 0.0),
        after=after,
        delay_s=table.seconds("delay", 0.0),
        within_s=None if not table.has("within") else table.seconds("within", 0.0),
        options=table.rest(),
    )
    check(found.for_s > 0, f"{where}: for", found.for_s, "a time above 0")
    return found


def _escaped(toml: str) -> str:
    """TOML with escapes for invisible characters: they occur only in strings, where `\\u0085` means the same."""
    if toml.isascii():
        return toml
    return "".join(c if c.isprintable() or c in f"\n{THIN_SPACE}" else _escape(c) for c in toml)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        raise PlanError("the plan has text that is not UTF-8 (a file name, perhaps); another name is right")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
