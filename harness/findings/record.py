# SPDX-License-Identifier: Apache-2.0
"""The record of findings: one TOML file each, `NN-NAME.toml`; NN is the finding's id.

    title = "a cut-off master acknowledges what nobody else has"
    system = "RocketMQ 5.4.0 and 5.5.0, controller, profile strict"
    command = "--topology controller --nemesis partition-leader-minority --time-limit 90"
    cause = "AutoSwitchHAService.removeConnection"
    kept = true

    [issue]
    promised = "A send is acknowledged when all members of the SyncStateSet have it (RIP-44)."
    happens = "A partition separates the master from the controllers. It acknowledges sends that nobody else has."
    why = "The master removes a silent replica from its own copy of the SyncStateSet at once."
    meanwhile = "Check after a partition which messages the old master truncated."

    [signature]
    anomalies = ["lost"]
    after = ["cut-off"]
    log_line = "ha housekeeping, found this connection"

    [[measured]]
    shown = 10
    runs = 10
    version = "5.5.0"
    when = 2026-11-20
    where = "2 cores"

`docs/track-record.md` and the head of each page in `docs/findings/` are made from it (`harness.findings.pages`), and so
is the text of an issue (`harness reproduce N --issue`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args

import tomli_w

from harness.findings.patterns import compile_pattern
from harness.findings.rates import less_often
from harness.findings.signature import Signature
from harness.plan.table import PlanError, Table, check, shell_words
from infra.systems.mends.catalog import ALL, ids, mend_of
from results.durable import append_text
from results.errors import cannot_write
from results.reading import exists, read_toml
from results.strikes import EffectKind

DATA: Final = Path(__file__).with_name("data")
"""The record of this project."""

_FILE: Final = re.compile(r"(\d{2,4})-([a-z0-9-]+)\.toml")


_MOST_RUNS: Final = 10_000
"""The most runs of a series, since rates are computed exactly."""

_CLASS: Final = re.compile(r"(?<![.\w])([A-Z]\w*[a-z]\w*)(?=\.[A-Za-z]|,|$)")
"""A class at the beginning of `Class.Inner.method`, or alone, in a finding's cause."""

_TEXTS: Final = ("promised", "happens", "why", "meanwhile", "configuration")


@dataclass(frozen=True)
class Measured:
    """One series of runs, and the number of those that showed the finding.

    change     options put to the finding's command; "": none.
    not_tried  further runs, which tried nothing.
    version    of the servers, as the runs' deployment reports it; "": not noted.
    where      the machine.
    """

    shown: int
    runs: int
    not_tried: int = 0
    change: str = ""
    version: str = ""
    when: date | None = None
    where: str = ""

    def to_toml(self) -> dict[str, Any]:
        """Returns the fields as a TOML table, without unknown ones."""
        found = {k: v for k, v in vars(self).items() if v not in ("", None)}
        if not self.not_tried:
            del found["not_tried"]
        return found


@dataclass(frozen=True)
class Issue:
    """A report for a maintainer (Markdown), without the words of this harness.

    promised   what the servers promise, and where.
    happens    what a user sees.
    why        the cause, down to class and method; "": not known.
    meanwhile  what an operator should set or do until it is mended.
    configuration  of the servers; "": the text of `system` behind the versions is enough.
    """

    promised: str
    happens: str
    why: str = ""
    meanwhile: str = ""
    configuration: str = ""


@dataclass(frozen=True)
class Finding:
    """A defect in released servers, and the command that shows it.

    title     in plain words, without the system.
    system    versions and set-up in which it shows.
    command   options of `harness run`; "": none shows it at will, and `by_hand` describes the steps (Markdown).
    cause     class and method; "": not known yet.
    upstream  the project's own issue or discussion of it; "": none known.
    control   options of `harness run` with which it must not show; "": those that apply its mend.
    topologies  those on which it was seen; empty: all. brings: other anomalies that come with it.
    classes   the servers' classes with the defect, without their packages; empty: those that its mend edits and its
              cause names (`touches`).
    kept      whether runs may share a cluster: not where it needs servers that have just been started.
    remark    facts that the rates do not show (Markdown).
    """

    id: int
    name: str
    title: str
    system: str
    command: str = ""
    by_hand: str = ""
    signature: Signature | None = None
    issue: Issue | None = None
    cause: str = ""
    upstream: str = ""
    control: str = ""
    topologies: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    kept: bool = False
    remark: str = ""
    measured: Sequence[Measured] = field(default_factory=tuple)

    @property
    def file(self) -> str:
        """Its name in a folder, without a suffix."""
        return f"{self.id:02d}-{self.name}"

    @property
    def page(self) -> str:
        """The path of its page in the repository."""
        return f"docs/findings/{self.file}.md"

    def applies(self, version: str, topology: str, changed: Collection[str] = ()) -> bool:
        """True if it was seen with servers of this version (`5.1.1+5.5.0` of a mixed cluster), on this topology.

        changed  classes, with their packages, that the user's own jars have otherwise than this version: a finding in
        one of them may be gone, so it does not apply.
        """
        seen = {word for one in self.measured if one.shown for word in one.version.split("+")}
        if not seen & set(version.split("+")) or (self.topologies and topology not in self.topologies):
            return False
        return self.touches.isdisjoint(name.rpartition(".")[2] for name in changed)

    @cached_property
    def touches(self) -> frozenset[str]:
        """The classes of the servers in which the defect is, without packages and inner classes: its `classes`; or
        those that its mend edits and its cause names.
        """
        if self.classes:
            return frozenset(self.classes)
        mend = mend_of(self.id)
        edited = [] if mend is None else [name.rpartition(".")[2] for name in mend.classes]
        return frozenset([*edited, *_CLASS.findall(self.cause)])

    def args(self) -> list[str]:
        """The options of the command, as words."""
        return shlex.split(self.command)

    def shows(self) -> str:
        """The command as Markdown."""
        return f"`harness run {self.command}`" if self.command else self.by_hand

    def rates(self) -> Mapping[str, tuple[int, int]]:
        """Change of the command -> (shown, runs), over all series, in the order of the record."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.measured:
            shown, runs = found.get(one.change, (0, 0))
            found[one.change] = shown + one.shown, runs + one.runs
        return found

    def with_control(self) -> list[str] | None:
        """Options of `harness run` with which it must not show: its `control`, or its mend, besides what its command
        mends. None: it has neither.
        """
        if self.control:
            return shlex.split(self.control)
        return ["--mend", ",".join([*_mends(self.command), str(self.id)])] if mend_of(self.id) else None

    def mended(self) -> tuple[int, int]:
        """(shown, runs) over all series with its `control`; or, without one, with its mend (`--mend`), alone or
        with others.
        """
        mend = mend_of(self.id)
        numbers = {ALL, *map(str, mend.findings)} if mend else {str(self.id)}
        mine = [
            one
            for one in self.measured
            if (self.control in one.change if self.control else numbers & set(_mends(one.change)))
        ]
        return sum(one.shown for one in mine), sum(one.runs for one in mine)

    def chance(self) -> float:
        """The probability that the rates with and without the mend differ by chance. At `harness.findings.rates.ERROR`
        or less, the finding is explained.
        """
        return less_often(*self.rates().get("", (0, 0)), *self.mended())


def change(options: Sequence[str]) -> str:
    """Options added to a command, as the record has them, without `--cluster`: nodes of all kinds count together."""
    left = list(options)
    while "--cluster" in left:
        at = left.index("--cluster")
        del left[at : at + 2]
    return shlex.join(left)


def _mends(change: str) -> list[str]:
    """The ids that `--mend` names in options of `harness run`."""
    return ids(value for word, value in pairwise(shlex.split(change)) if word == "--mend")


def read_findings(folder: Path = DATA) -> list[Finding]:
    """All findings of a record, by id. Raises PlanError for a wrong file, or if two have one id."""
    found: dict[int, Finding] = {}
    try:
        paths = sorted(folder.glob("*.toml"))
    except OSError as problem:
        raise PlanError(f"{folder}: the record cannot be read: {problem.strerror}") from None
    for path in paths:
        finding = read_finding(path)
        if finding.id in found:
            raise PlanError(f"{path}: {found[finding.id].file}.toml has the id {finding.id} as well")
        found[finding.id] = finding
    if not found:
        raise PlanError(f"{folder}: no findings there; files such as 05-cut-off-master.toml are right")
    return [found[number] for number in sorted(found)]


def read_finding(path: Path) -> Finding:
    """One file of the record. Raises PlanError."""
    named = _FILE.fullmatch(path.name)
    if named is None:
        raise PlanError(f"{path}: a finding's file is named NN-NAME.toml, such as 05-cut-off-master.toml")
    data = _toml(path)
    table = Table(data, str(path), "")
    texts = {
        key: table.get(key, str, "")
        for key in ("title", "system", "command", "by_hand", "cause", "upstream", "control", "remark")
    }
    for key in ("title", "system"):
        check(texts[key], f"{path}: {key}", texts[key], "a text")
    if bool(texts["command"]) == bool(texts["by_hand"]):
        raise PlanError(f"{path}: a finding has either a command, or by_hand where no command shows it")
    for key in ("command", "control"):
        shell_words(texts[key], f"{path}: {key}")
    finding = Finding(
        id=int(named[1]),
        name=named[2],
        topologies=table.strings("topologies"),
        brings=table.strings("brings"),
        classes=table.strings("classes"),
        kept=table.get("kept", bool, False),
        signature=read_signature(table.table("signature")) if texts["command"] or "signature" in data else None,
        issue=_issue(table.table("issue")) if "issue" in data else None,
        measured=tuple(_measured(one) for one in table.tables("measured")),
        **texts,
    )
    table.reject_unknown()
    return finding


def _toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as problem:
        raise PlanError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise PlanError(f"{path}: {problem}") from None


def read_signature(table: Table) -> Signature:
    """Reads a signature. Raises PlanError."""
    anomalies = table.strings("anomalies")
    check(anomalies, f"{table.where}: {table.prefix}anomalies", anomalies, "a list with at least one name")
    log, says = (_pattern(table, key) for key in ("log_line", "says"))
    after = table.strings("after")
    for kind in after:
        check(
            kind in get_args(EffectKind),
            f"{table.where}: {table.prefix}after",
            kind,
            f"one of {', '.join(get_args(EffectKind))}",
        )
    during = table.get("during", bool, False)
    check(log or not during, f"{table.where}: {table.prefix}during", during, "true only where there is a log_line")
    unless = _pattern(table, "unless_followed_by")
    check(
        log or not unless,
        f"{table.where}: {table.prefix}unless_followed_by",
        table.get("unless_followed_by", str, ""),
        "left out where there is no log_line",
    )
    if log and unless:
        for name in re.findall(r"\{([A-Za-z_]\w*)\}", unless.pattern):
            groups = ", ".join(log.groupindex) or "no group with a name"
            check(
                name in log.groupindex,
                f"{table.where}: {table.prefix}unless_followed_by",
                f"{{{name}}}",
                f"a group of log_line ({groups})",
            )
    permitted = table.get("permitted", bool, False)
    at_node = table.get("at_node", bool, False)
    check(log or not at_node, f"{table.where}: {table.prefix}at_node", at_node, "true only where there is a log_line")
    other = read_signature(table.table("other")) if table.has("other") else None
    found = Signature(
        anomalies, permitted, log, after, says, during, unless.pattern if unless else None, at_node, other
    )
    table.reject_unknown()
    return found


def _pattern(table: Table, key: str) -> re.Pattern[str] | None:
    text = table.get(key, str, "")
    try:
        return compile_pattern(text) if text else None
    except ValueError as problem:
        raise PlanError(f"{table.where}: {table.prefix}{key} {problem}") from None


def _issue(table: Table) -> Issue:
    texts = {key: table.get(key, str, "") for key in _TEXTS}
    for key in ("promised", "happens"):
        check(texts[key], f"{table.where}: {table.prefix}{key}", texts[key], "a text")
    table.reject_unknown()
    return Issue(**texts)


def _measured(table: Table) -> Measured:
    when = table.get("when", object, None)
    check(when is None or isinstance(when, date), f"{table.where}: {table.prefix}when", when, "a date")
    counts = {key: table.get(key, int, 0) for key in ("shown", "runs", "not_tried")}
    for key in ("runs", "not_tried"):
        right = 0 <= counts[key] <= _MOST_RUNS
        check(right, f"{table.where}: {table.prefix}{key}", counts[key], f"a number from 0 to {_MOST_RUNS:,}")
    right = 0 <= counts["shown"] <= counts["runs"]
    check(right, f"{table.where}: {table.prefix}shown", counts["shown"], "a number from 0 to that of the runs")
    texts = {key: table.get(key, str, "") for key in ("change", "version", "where")}
    shell_words(texts["change"], f"{table.where}: {table.prefix}change")
    table.reject_unknown()
    return Measured(**counts, **texts, when=when)


def find(findings: Iterable[Finding], text: str) -> Finding | None:
    """The finding that a user names: `5`, `05`, or `05-cut-off-master`."""
    for finding in findings:
        if text in (str(finding.id), f"{finding.id:02d}", finding.name, finding.file):
            return finding
    return None


def add(folder: Path, finding: Finding, measured: Measured) -> Path:
    """Appends a series to a finding's file, which is made if it is missing; the rest of the file is unchanged. Raises
    StoreError.
    """
    path = folder / f"{finding.file}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise cannot_write(path, "the record", problem) from None
    append_text(path, "\n[[measured]]\n" + tomli_w.dumps(measured.to_toml()), "the record")
    return path


def with_series(findings: Iterable[Finding], folder: Path) -> list[Finding]:
    """The findings with the series of another folder (`add`) behind their own. Raises PlanError."""
    return [replace(one, measured=(*one.measured, *_series(folder / f"{one.file}.toml"))) for one in findings]


def _series(path: Path) -> list[Measured]:
    if not exists(path):
        return []
    table = Table(_toml(path), str(path), "")
    found = [_measured(one) for one in table.tables("measured")]
    table.reject_unknown()
    return found
