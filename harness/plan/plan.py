"""The plan: everything that decides a run, as TOML; stored with the run (design.md, sections 3 and 4).

One seed for everything: `plan.rng("generator")`, `plan.rng("faults/...")` are independent streams split from it,
so that changing one component's draws does not disturb another's.

A plan on disk looks like this; what is left out takes its default:

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
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any, Final

import tomli_w

from results.reading import read_toml
from results.visible import THIN_SPACE

READ_MODES = ("log", "unsafe")
CLIENTS = ("remoting", "native", "grpc")
CONTROLLER_TYPES = ("dledger", "jraft", "dledger-embedded", "jraft-embedded")
CONSUME = ("pull", "pop")
_DURATION = re.compile(r"^\s*(\d{1,15}(?:\.\d{1,15})?)\s*(ms|s|m|min|h)?\s*$")
LONGEST_S: Final = 30 * 86400.0
"""No phase and no fault of a run lasts longer."""
MOST_STRIKES: Final = 100_000
"""Of all faults of a run together: the schedule is made before the run, and drawn into its report."""
_MOST_NODES: Final = 50
_LABEL: Final = 150
"""Characters of a run's label. File systems take names of 255 bytes."""
_DEEPEST: Final = 20
"""Tables in tables."""
_SEEDS: Final = range(-(2**63), 2**63)
"""What TOML can hold."""
_UNIT_S = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class PlanError(ValueError):
    """A plan or an option is wrong. One line: what is wrong, where, and what would be right."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when something known is near, else the empty string."""
    # (Matching takes time with the square of the length.)
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if len(word) <= 100 else []
    return f"; did you mean {near[0]!r}?" if near else ""


def seconds(text: object, what: str) -> float:
    """`90`, `"90s"`, `"1.5m"`, `"250ms"` -> seconds, at most `LONGEST_S`. PlanError names `what` otherwise."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        value = as_float(text)
    else:
        found = _DURATION.match(text) if isinstance(text, str) else None
        if not found:
            raise PlanError(f"{what} is {_cut(text)}; a duration is right, such as 60, '90s' or '2m'")
        value = float(found[1]) * _UNIT_S[found[2]]
    if not 0 <= value <= LONGEST_S:
        raise PlanError(f"{what} is {_cut(text)}; a time from 0 to {LONGEST_S / 86400:g} days is right")
    return value


def as_float(value: float) -> float:
    """A number as a float; one that no float can hold becomes infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _cut(value: object) -> str:
    """A value in an error line: its beginning, where it is long."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    try:
        text = repr(value)
    except RecursionError:
        return "a value that is nested too deeply"
    return text if len(text) <= 120 else f"{text[:120]}..."


@dataclass(frozen=True)
class NemesisPlan:
    """One fault of the schedule: every `every_s` seconds (start to start), each time for `for_s` seconds."""

    fault: str
    every_s: float = 20.0
    for_s: float = 10.0
    target: str | None = None
    """A word of `harness.nemesis.targets`, or nodes such as n1,n3; None = the fault's own default."""


@dataclass(frozen=True)
class ClusterPlan:
    """Machines: `backend` is auto, docker, local or ssh; the rest of the fields but `nodes` serve one backend each."""

    backend: str = "auto"
    nodes: int = 5
    hosts: tuple[str, ...] = ()
    ssh_key: str | None = None
    base_image: str | None = None
    install: bool = False
    disposable: bool = False


@dataclass(frozen=True)
class ServerPlan:
    """Servers: which run where (`topology`) and with which promises (`profile`), version of the published artifacts, a
    user's own jars, JVM options, settings by their own names. None: the workload or the topology decides.
    """

    topology: str | None = None
    profile: str | None = None
    controller_type: str | None = None
    """One of `CONTROLLER_TYPES`, for topologies with controllers."""
    brokers: int | None = None
    """How many nodes run a broker; None: as many as the topology has room for."""
    version: str | None = None
    jars: str | None = None
    jvm_options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Times in seconds, `rate` in ops per second over all clients (None: the workload's own)."""

    workload: str = "log"
    seed: int = 0
    time_limit_s: float = 60.0
    rate: float | None = None
    concurrency: int = 10
    ops_per_key: int = 200
    op_deadline_s: float = 4.0
    recovery_limit_s: float = 30.0
    read_mode: str = "log"
    """`log` (through the Raft log, linearizable) or `unsafe` (any node's own state, stale by design)."""
    snapshot: bool = False
    client: str = "remoting"
    """How clients talk to brokers: our own remoting client, `native` (librocketmq) or `grpc` (through the proxy)."""
    consume: str = "pull"
    """How the queue workload consumes: `pull` and commit, or `pop` and ack."""
    ground_truth: bool = False
    """Whether the stopped servers' files are read at the end and compared with the history."""
    cluster: ClusterPlan = field(default_factory=ClusterPlan)
    server: ServerPlan = field(default_factory=ServerPlan)
    nemeses: tuple[NemesisPlan, ...] = (NemesisPlan("partition-halves"),)

    def __post_init__(self) -> None:
        _check(self.seed in _SEEDS, "seed", self.seed, "a whole number of at most 63 bits")
        _check(self.time_limit_s > 0, "time_limit", self.time_limit_s, "a time above 0")
        _check(self.rate is None or 0 < self.rate <= 1e6, "rate", self.rate, "ops per second above 0")
        _check(1 <= self.concurrency <= 10_000, "concurrency", self.concurrency, "1 to 10000 clients")
        _check(1 <= self.ops_per_key <= 10**9, "ops_per_key", self.ops_per_key, "1 to a billion")
        _check(self.op_deadline_s > 0, "op_deadline", self.op_deadline_s, "a time above 0")
        _check(self.recovery_limit_s > 0, "recovery_limit", self.recovery_limit_s, "a time above 0")
        _check(self.read_mode in READ_MODES, "read_mode", self.read_mode, " or ".join(READ_MODES))
        _check(self.client in CLIENTS, "client", self.client, " or ".join(CLIENTS))
        _check(self.consume in CONSUME, "consume", self.consume, " or ".join(CONSUME))
        kind, brokers = self.server.controller_type, self.server.brokers
        _check(kind is None or kind in CONTROLLER_TYPES, "controller_type", kind, " or ".join(CONTROLLER_TYPES))
        nodes = self.cluster.nodes
        _check(
            brokers is None or 1 <= brokers <= nodes, "brokers", brokers, f"1 to {nodes}, as many as there are nodes"
        )
        _check(1 <= nodes <= _MOST_NODES, "nodes", nodes, f"1 to {_MOST_NODES} (RIP-59's test has 5)")
        for what, text in self._texts():
            _check("\0" not in text, what, text, "text without NUL characters")
        for nemesis in self.nemeses:
            _check(
                nemesis.target is None or nemesis.target.strip(), f"target of {nemesis.fault}", nemesis.target, "whom"
            )
            _check(nemesis.for_s > 0, f"'for' of {nemesis.fault}", nemesis.for_s, "a time above 0")
            if nemesis.every_s <= nemesis.for_s:
                raise PlanError(
                    f"{nemesis.fault}: every {nemesis.every_s:g} s for {nemesis.for_s:g} s leaves no time between "
                    "two faults; the interval must be longer than the duration"
                )
        strikes = sum(self.time_limit_s / nemesis.every_s for nemesis in self.nemeses)
        if strikes > MOST_STRIKES:
            raise PlanError(
                f"the nemeses would strike {strikes:,.0f} times in {self.time_limit_s:g} s, and {MOST_STRIKES:,} are "
                "the most; a longer interval (--interval), or a shorter time limit (--time-limit) is right"
            )

    def _texts(self) -> Iterable[tuple[str, str]]:
        """What goes into command lines and files of nodes."""
        c, s = self.cluster, self.server
        yield from (("a JVM option", option) for option in s.jvm_options)
        yield from ((f"the setting {_cut(name)}", name + value) for name, value in s.settings.items())
        yield from (("a host", host) for host in c.hosts)
        yield from (("ssh_key", c.ssh_key or ""), ("base_image", c.base_image or ""), ("jars", s.jars or ""))

    def rng(self, component: str) -> Random:
        """An independent stream of random numbers for one component, split from the plan's seed."""
        digest = hashlib.sha256(f"{self.seed}/{component}".encode()).digest()
        return Random(int.from_bytes(digest[:8], "big"))

    @property
    def label(self) -> str:
        """`<workload>-<nemesis>`: the run's folder in the store."""
        names = [n.fault for n in self.nemeses] or ["none"]
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
        """The plan as TOML tables, every default filled in."""
        c, s = self.cluster, self.server
        return {
            "workload": self.workload,
            "seed": self.seed,
            "time_limit": _text(self.time_limit_s),
            **_without_none(rate=self.rate),
            "concurrency": self.concurrency,
            "ops_per_key": self.ops_per_key,
            "op_deadline": _text(self.op_deadline_s),
            "recovery_limit": _text(self.recovery_limit_s),
            "read_mode": self.read_mode,
            "snapshot": self.snapshot,
            "client": self.client,
            "consume": self.consume,
            "ground_truth": self.ground_truth,
            "cluster": _without_none(
                backend=c.backend,
                nodes=c.nodes,
                hosts=list(c.hosts),
                ssh_key=c.ssh_key,
                base_image=c.base_image,
                install=c.install,
                disposable=c.disposable,
            ),
            "server": _without_none(
                topology=s.topology,
                profile=s.profile,
                controller_type=s.controller_type,
                brokers=s.brokers,
                version=s.version,
                jars=s.jars,
                jvm_options=list(s.jvm_options),
                set=dict(s.settings),
            ),
            "nemesis": [
                _without_none(fault=n.fault, every=_text(n.every_s), **{"for": _text(n.for_s)}, target=n.target)
                for n in self.nemeses
            ],
        }

    def to_toml(self) -> str:
        """TOML that can be looked at as it is: what cannot be seen is written as TOML's own escapes."""
        tables = self.to_dict()
        nemeses = tables.pop("nemesis")
        if not nemeses:
            return _escaped(tomli_w.dumps({"nemesis": [], **tables}))
        return _escaped(tomli_w.dumps(tables) + "".join(f"\n[[nemesis]]\n{tomli_w.dumps(n)}" for n in nemeses))

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "plan") -> Plan:
        """The inverse of `to_dict`; missing keys take their defaults, unknown ones are a PlanError."""
        top = _Table(data, where, "", {f.name.removesuffix("_s") for f in fields(Plan)} - {"nemeses"} | {"nemesis"})
        cluster = top.table("cluster", {f.name for f in fields(ClusterPlan)})
        server = top.table("server", {f.name for f in fields(ServerPlan)} - {"settings"} | {"set"})
        base, c, s = Plan(), ClusterPlan(), ServerPlan()
        return Plan(
            workload=top.get("workload", str, base.workload),
            seed=top.get("seed", int, base.seed),
            time_limit_s=top.seconds("time_limit", base.time_limit_s),
            rate=top.get("rate", float, None),
            concurrency=top.get("concurrency", int, base.concurrency),
            ops_per_key=top.get("ops_per_key", int, base.ops_per_key),
            op_deadline_s=top.seconds("op_deadline", base.op_deadline_s),
            recovery_limit_s=top.seconds("recovery_limit", base.recovery_limit_s),
            read_mode=top.get("read_mode", str, base.read_mode),
            snapshot=top.get("snapshot", bool, base.snapshot),
            client=top.get("client", str, base.client),
            consume=top.get("consume", str, base.consume),
            ground_truth=top.get("ground_truth", bool, base.ground_truth),
            cluster=ClusterPlan(
                backend=cluster.get("backend", str, c.backend),
                nodes=cluster.get("nodes", int, len(cluster.strings("hosts")) or c.nodes),
                hosts=cluster.strings("hosts"),
                ssh_key=cluster.get("ssh_key", str, None),
                base_image=cluster.get("base_image", str, None),
                install=cluster.get("install", bool, c.install),
                disposable=cluster.get("disposable", bool, c.disposable),
            ),
            server=ServerPlan(
                topology=server.get("topology", str, None),
                profile=server.get("profile", str, None),
                controller_type=server.get("controller_type", str, None),
                brokers=server.get("brokers", int, None),
                version=server.get("version", str, None),
                jars=server.get("jars", str, None),
                jvm_options=server.strings("jvm_options"),
                settings={k: _scalar(v) for k, v in _flat(server.get("set", dict, dict(s.settings)))},
            ),
            nemeses=_nemeses(data, where) if "nemesis" in data else base.nemeses,
        )

    @staticmethod
    def read(path: Path) -> Plan:
        """Read a TOML file. PlanError with the file (and line, for a syntax error) otherwise."""
        try:
            data = read_toml(path)
        except OSError as problem:
            raise PlanError(f"{path}: cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise PlanError(f"{path}: not a plan in TOML: {problem}") from None
        return Plan.from_dict(data, str(path))


def _escaped(toml: str) -> str:
    """TOML with what cannot be seen as escapes: it stands in strings alone, where `\\u0085` means the same."""
    if toml.isascii():
        return toml
    return "".join(c if c.isprintable() or c in f"\n{THIN_SPACE}" else _escape(c) for c in toml)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        raise PlanError("the plan has text that is not UTF-8 (a file name, perhaps); another name is right")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _nemeses(data: Mapping[str, Any], where: str) -> tuple[NemesisPlan, ...]:
    tables = data["nemesis"]
    if not isinstance(tables, list):
        raise PlanError(f"{where}: nemesis must be a list of tables: write [[nemesis]]")
    found = []
    base = NemesisPlan("")
    for i, entry in enumerate(tables, start=1):
        table = _Table(entry, where, f"nemesis {i}: ", {"fault", "every", "for", "target"})
        fault = table.get("fault", str, None)
        if fault is None:
            raise PlanError(f'{where}: nemesis {i} names no fault; write fault = "hammer-time", say')
        found.append(
            NemesisPlan(
                fault,
                every_s=table.seconds("every", base.every_s),
                for_s=table.seconds("for", base.for_s),
                target=table.get("target", str, None),
            )
        )
    return tuple(found)


class _Table:
    """A TOML table that is read with checks; `prefix` says where in the file it stands."""

    def __init__(self, data: object, where: str, prefix: str, known: set[str]) -> None:
        if not isinstance(data, Mapping):
            raise PlanError(f"{where}: {prefix.rstrip(': ') or 'the plan'} must be a table, not {_cut(data)}")
        self.data, self.where, self.prefix = data, where, prefix
        for key in data:
            if key not in known:
                raise PlanError(f"{where}: {prefix}unknown key {_cut(key)}{suggest(key, known)}")

    def get(self, key: str, kind: Callable[..., Any], default: Any) -> Any:
        value = self.data.get(key, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = as_float(value)
        if value is not default and (
            not isinstance(value, kind) or (kind is int and isinstance(value, bool))  # type: ignore[arg-type]
        ):
            name = getattr(kind, "__name__", str(kind))
            raise PlanError(f"{self.where}: {self.prefix}{key} is {_cut(value)}; a value of type {name} is right")
        return value

    def seconds(self, key: str, default: float) -> float:
        return seconds(self.data.get(key, default), f"{self.where}: {self.prefix}{key}")

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise PlanError(f"{self.where}: {self.prefix}{key} is {_cut(value)}; a list of strings is right")
        return tuple(value)

    def table(self, key: str, known: set[str]) -> _Table:
        return _Table(self.data.get(key, {}), self.where, f"{key}: ", known)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """`{dledger: {a: 1}}` and `{"dledger.a": 1}` alike give `("dledger.a", 1)`."""
    if prefix.count(".") > _DEEPEST:
        raise PlanError(f"the settings are nested more than {_DEEPEST} deep, from {_cut(prefix)} on")
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(duration_s: float) -> str:
    return f"{duration_s:g}s" if float(f"{duration_s:g}") == duration_s else f"{duration_s!r}s"


def _without_none(**entries: Any) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}


def _check(right: object, what: str, value: object, wanted: str) -> None:
    if not right:
        raise PlanError(f"{what} is {_cut(value)}; {wanted} is right")
