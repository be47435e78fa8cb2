# SPDX-License-Identifier: Apache-2.0
"""Verdicts: the results of the checkers for a run (design.md, section 4, "Verdict")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """`valid`, `invalid`, `unknown` or `harness-failure`."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    HARNESS_FAILURE = "harness-failure"

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown, 3 harness failure (64, usage, is the command line's own)."""
        return {"valid": 0, "invalid": 1, "unknown": 2, "harness-failure": 3}[self.value]


class FailOn(StrEnum):
    """The anomalies that make a command fail: `any`, or `new`, those that no known finding explains."""

    ANY = "any"
    NEW = "new"


_WORST_FIRST = (Verdict.INVALID, Verdict.HARNESS_FAILURE, Verdict.UNKNOWN, Verdict.VALID)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict, in the order invalid > harness-failure > unknown > valid; without any: unknown."""
    found = set(verdicts)
    return next((v for v in _WORST_FIRST if v in found), Verdict.UNKNOWN)


@dataclass(frozen=True)
class Anomaly:
    """A named violation with the ops that prove it.

    name     standard term, e.g. `nonlinearizable`, `unavailable`, `never-recovered`, `divergent-replicas`.
    summary  one or two sentences in plain words: the event, and the promise that it breaks.
    key      the key it concerns, or None.
    ops      indices of the ops that prove it (a small core, not everything).
    window   (from, to) in ns since the start of the run: the time of the evidence, or None.
    details  further facts for a reader: JSON values, e.g. `states`, `nodes` (name -> role, term, last log lines).
    legal    the reason why this configuration permits it (it is then shown with its count and does not fail the run),
             or None.
    limit_s  the longest duration that is allowed, for an anomaly of time (`window` is its own); None: one of content.
    doubt    the reason why the machine of the servers may have caused it (`checkers.base.starvation`), or None.
    """

    name: str
    summary: str
    key: str | None = None
    ops: Sequence[int] = ()
    window: tuple[int, int] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    legal: str | None = None
    limit_s: float | None = None
    doubt: str | None = None

    @property
    def counts(self) -> bool:
        """True if it makes a run invalid: it is neither permitted nor in doubt."""
        return self.legal is None and self.doubt is None

    @property
    def cases(self) -> int:
        """The number of cases that it stands for: `details["count"]`, or one."""
        number = self.details.get("count", 1)
        return number if isinstance(number, int) and not isinstance(number, bool) else 1


@dataclass(frozen=True)
class Excuse:
    """A rule by which a checker permitted, left out or did not decide something (docs/anomalies.md, "Excuses").

    rule       its name in that list.
    used       number of cases.
    why        the condition of this run under which the rule holds, in one clause.
    bound_s    the rule's limit in seconds; None: the condition limits it in another way, which `why` names.
    nearest_s  the value, in seconds, of the case nearest to the limit; None: no limit, or not measured.
    """

    rule: str
    used: int
    why: str
    bound_s: float | None = None
    nearest_s: float | None = None

    def __str__(self) -> str:
        """`lost: 12 cases, up to 9.8 s of 15.5 s (flushDiskType=ASYNC_FLUSH ...)`."""
        near = "" if self.nearest_s is None else f"up to {self.nearest_s:.1f} s"
        near += "" if self.bound_s is None else f"{' of' if near else 'limit'} {self.bound_s:g} s"
        return f"{self.rule}: {self.used:,} cases{', ' + near.strip() if near else ''} ({self.why})"


def merged(excuses: Iterable[Excuse]) -> list[Excuse]:
    """One excuse for each rule and reason: the numbers of cases added up, the longest limit, the nearest value."""
    found: dict[tuple[str, str], Excuse] = {}
    for excuse in excuses:
        before = found.get((excuse.rule, excuse.why), replace(excuse, used=0))
        near = max((n for n in (before.nearest_s, excuse.nearest_s) if n is not None), default=None)
        limit = max((n for n in (before.bound_s, excuse.bound_s) if n is not None), default=None)
        used = before.used + excuse.used
        found[excuse.rule, excuse.why] = replace(excuse, used=used, bound_s=limit, nearest_s=near)
    return list(found.values())


@dataclass(frozen=True)
class CheckResult:
    """The result of one checker. `reason` is never empty: one line in plain words.

    stats    figures worth showing (JSON values); `ms` is the wall time the check took.
    excuses  the rules by which the checker did not count something as an anomaly, with the number of cases.
    """

    checker: str
    verdict: Verdict
    reason: str
    anomalies: Sequence[Anomaly] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    ms: float = 0.0
    excuses: Sequence[Excuse] = ()


@dataclass(frozen=True)
class KnownFinding:
    """A finding of the record that a run shows.

    id, title  those of the finding.
    anomalies  name -> number of cases of this run that it explains.
    page       path of the page about it in the harness's repository; "": no page.
    without    options of `harness run` with which it must not show, such as `--mend 5`; "": unknown.
    """

    id: int
    title: str
    anomalies: Mapping[str, int] = field(default_factory=dict)
    page: str = ""
    without: str = ""

    def describe(self) -> str:
        """`a cut-off master acknowledges what nobody else has: 1,667 lost, 7 dirty-read`."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.anomalies.items())
        return f"{self.title}: {counts}" if counts else self.title


@dataclass(frozen=True)
class Judgement:
    """The verdict on a whole run: the worst of its checkers', with a reason.

    known     the findings that explain anomalies of the run.
    new       names of the anomalies that no finding explains. None: the run was not compared with the findings.
    evidence  path in the run's folder -> SHA-256 of the file that was judged. None: not recorded.
    """

    results: Sequence[CheckResult]
    known: Sequence[KnownFinding] = ()
    new: Sequence[str] | None = None
    evidence: Mapping[str, str] | None = None

    @property
    def verdict(self) -> Verdict:
        return worst(r.verdict for r in self.results)

    @property
    def reason(self) -> str:
        """The reasons of the checkers that decided the verdict, joined."""
        if not self.results:
            return "nothing was checked"
        return "; ".join(f"{r.checker}: {r.reason}" for r in self.results if r.verdict == self.verdict)

    @property
    def anomalies(self) -> list[Anomaly]:
        return [a for r in self.results for a in r.anomalies]

    @property
    def excuses(self) -> list[Excuse]:
        """The excuses of all checkers, in their order."""
        return [e for r in self.results for e in r.excuses]

    def exit_code(self, fail_on: FailOn) -> int:
        """The exit code of a command: that of the verdict, or of the verdict without known findings."""
        return (self.verdict_beside_known if fail_on == FailOn.NEW else self.verdict).exit_code

    def known_as(self, anomaly: Anomaly) -> list[KnownFinding]:
        """The findings that explain an anomaly; empty if its name is also new, as the cases are indistinguishable."""
        if self.new is None or anomaly.name in self.new or not anomaly.counts:
            return []
        return [finding for finding in self.known if anomaly.name in finding.anomalies]

    def is_known(self, result: CheckResult) -> bool:
        """True if known findings explain every anomaly that makes this result invalid."""
        counted = [anomaly for anomaly in result.anomalies if anomaly.counts]
        return bool(counted) and all(map(self.known_as, counted))

    @property
    def verdict_beside_known(self) -> Verdict:
        """The verdict as it would be without the anomalies that known findings explain."""
        return worst(self._beside_known(result) for result in self.results)

    def _beside_known(self, result: CheckResult) -> Verdict:
        if result.verdict != Verdict.INVALID or not self.is_known(result):
            return result.verdict
        # A doubtful anomaly stays doubtful.
        return Verdict.UNKNOWN if any(a.doubt is not None for a in result.anomalies) else Verdict.VALID
