"""Verdicts: the results of the checkers for a run (design.md, section 4, "Verdict")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


_WORST_FIRST = (Verdict.INVALID, Verdict.HARNESS_FAILURE, Verdict.UNKNOWN, Verdict.VALID)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them, in the order invalid > harness-failure > unknown > valid. Of none: unknown."""
    found = set(verdicts)
    return next((v for v in _WORST_FIRST if v in found), Verdict.UNKNOWN)


@dataclass(frozen=True)
class Anomaly:
    """A named violation with the ops that prove it.

    name     standard term, e.g. `nonlinearizable`, `unavailable`, `never-recovered`, `divergent-replicas`.
    summary  one or two sentences in plain words: what happened, and why it must not.
    key      the key it concerns, or None.
    ops      indices of the ops that prove it (a small core, not everything).
    window   (from, to) in ns since the start of the run: where to look, or None.
    details  anything a reader may want: JSON values, e.g. `states`, `nodes` (name -> role, term, last log lines).
    legal    why this configuration permits it (then it is shown with its count and does not fail the run), or None.
    limit_s  how long this may last, for an anomaly of time (`window` is how long it did); None: one of content.
    doubt    why it may be the doing of the machine that the servers ran on (`checkers.starvation`), or None.
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


@dataclass(frozen=True)
class CheckResult:
    """What one checker says. `reason` is always there, in plain words, one line.

    stats  figures worth showing (JSON values); `ms` is the wall time the check took.
    """

    checker: str
    verdict: Verdict
    reason: str
    anomalies: Sequence[Anomaly] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    ms: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """The verdict on a whole run: the worst of its checkers', with a reason."""

    results: Sequence[CheckResult]

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
