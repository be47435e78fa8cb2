# SPDX-License-Identifier: Apache-2.0
"""The advice for a set-up: the promise, its losses, the findings of the record, and the evidence of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.findings.rates import describe
from harness.findings.record import Finding
from infra.systems.mends.catalog import mend_of
from rocketmq_harness.advice import measured
from rocketmq_harness.advice.contradictions import Problem, problems
from rocketmq_harness.advice.measured import Held, Series
from rocketmq_harness.advice.rules import LOSSES, Promise, promise
from rocketmq_harness.advice.setup import CONTROLLER_DEFAULTS, DEFAULTS, Setup, taken

NOT_MEASURED: Final = "not measured"

_EFFECTS: Final[Mapping[str, Collection[str]]] = {
    "process": ("down",),
    "machine": ("down", "data-lost"),
    "power": ("unsynced-lost",),
    "disk": ("disk-full", "disk-dead", "data-damaged", "data-lost"),
    "link": ("cut-off", "slow"),
}
"""Loss -> the effects of faults in findings (`results.strikes.EffectKind`)."""

_COLUMN: Final[Mapping[str, Collection[str]]] = {
    "process": ("process",),
    "power": ("power",),
    "disk": ("disk full", "dead disk"),
    "link": ("cut",),
    "machine": (),
}

_LOSING: Final = frozenset(
    {
        "acked-below-minimum",
        "acked-below-quorum",
        "acknowledged-on-dead-disk",
        "committed-lost",
        "delayed-lost",
        "divergent-replicas",
        "lost",
        "lost-to-group",
        "never-returned",
        "poll-skip",
        "too-few-hold",
        "torn-message",
        "unindexed",
    }
)
"""Anomalies after which an acknowledged message is lost, unreadable, or on fewer replicas than promised."""

_NEEDS: Final[Mapping[int, tuple[str, str, str]]] = {
    10: ("controller", "controllerType", "(?i)jraft"),
    18: ("broker", "flushDiskType", "ASYNC_FLUSH"),
    38: ("controller", "controllerType", "(?i)jraft"),
    39: ("controller", "controllerType", "(?i)dledger"),
    40: ("controller", "controllerType", "(?i)dledger"),
    43: ("broker", "flushDiskType", "ASYNC_FLUSH"),
    57: ("broker", "writeWithoutMmap", "true"),
    60: ("controller", "controllerType", "(?i)dledger"),
    62: ("controller", "controllerType", "(?i)dledger"),
    66: ("controller", "controllerType", "(?i)dledger"),
    71: ("controller", "controllerType", "(?i)jraft"),
}
"""Finding -> the kind of server, the setting and the value that its cause needs, by the servers' source."""


@dataclass(frozen=True)
class Applied:
    """A finding and a set-up. rate: `11 of 11 (0.72 to 1.00)`, of this version and topology; "": nobody ran it there.
    elsewhere: the rate of this version on other topologies. condition: the setting that rules it out; "": none.
    """

    finding: Finding
    rate: str
    elsewhere: str = ""
    condition: str = ""

    @property
    def evidence(self) -> str:
        """`finding 5: 11 of 11 (0.72 to 1.00)`."""
        where = self.rate or (f"{self.elsewhere} on another topology" if self.elsewhere else NOT_MEASURED)
        return f"finding {self.finding.id}: {where}"


@dataclass(frozen=True)
class Loss:
    """A kind of loss. number, why: by the rule. broken: findings that break it. untried: findings that would,
    and that nobody ran with this version and topology. measured: counts of promises.
    """

    kind: str
    number: str
    why: str
    broken: Sequence[Applied]
    untried: Sequence[Applied]
    measured: str


@dataclass(frozen=True)
class Advice:
    """applying: seen with this version and topology. excluded: the same, but a setting that they need is not there.
    never_shown: run there, and not seen. untried: nobody ran them there. other: seen on other topologies only, and not
    tried on this one.
    """

    setup: Setup
    promise: Promise
    losses: Sequence[Loss]
    problems: Sequence[Problem]
    applying: Sequence[Applied]
    excluded: Sequence[Applied]
    never_shown: Sequence[Applied]
    untried: Sequence[Applied]
    other: Sequence[Applied]


def advise(setup: Setup, findings: Sequence[Finding]) -> Advice:
    """The advice for a set-up, by the findings of a record."""
    series = measured.series_of(findings)
    groups: dict[str, list[Applied]] = {name: [] for name in ("applying", "excluded", "never", "untried", "other")}
    for finding in findings:
        if finding.topologies == ("dledger",):
            continue
        group, one = _applied(setup, finding, [one for one in series if one.finding == finding.id])
        groups[group].append(one)
    made = promise(setup)
    losses = [
        Loss(
            kind,
            *made.survives[kind],
            _breaking(kind, groups["applying"]),
            _breaking(kind, groups["untried"]),
            _held(setup, kind),
        )
        for kind in LOSSES
    ]
    return Advice(
        setup,
        made,
        losses,
        problems(setup),
        groups["applying"],
        groups["excluded"],
        groups["never"],
        groups["untried"],
        groups["other"],
    )


def _applied(setup: Setup, finding: Finding, series: Iterable[Series]) -> tuple[str, Applied]:
    """The group of a finding, and what is known of it here."""
    of_version = [one for one in series if one.of(setup.version)]
    here = _rate([one for one in of_version if one.topology == setup.mode])
    there = _rate([one for one in of_version if one.topology != setup.mode and one.shown])
    one = Applied(finding, _described(here), _described(there), _missing(setup, finding.id))
    if finding.applies(setup.version, setup.mode) or here[0]:
        return "excluded" if one.condition else "applying", one
    if here[1]:
        return "never", one
    elsewhere = finding.topologies and setup.mode not in finding.topologies
    return ("other" if elsewhere else "untried"), one


def _rate(series: Iterable[Series]) -> tuple[int, int]:
    counts = [(one.shown, one.runs) for one in series]
    return sum(shown for shown, _ in counts), sum(runs for _, runs in counts)


def _described(rate: tuple[int, int]) -> str:
    return describe(*rate) if rate[1] else ""


def _missing(setup: Setup, number: int) -> str:
    """The condition of a finding that the files rule out, or ""."""
    if number not in _NEEDS:
        return ""
    kind, name, right = _NEEDS[number]
    if kind == "broker":
        value = taken(name, setup.broker.values.get(name), DEFAULTS[name], setup.version)
    else:
        known = setup.of_controller(name) if name in CONTROLLER_DEFAULTS else None
        if known is None:
            return ""
        value = known
    return "" if re.fullmatch(right, value) else f"`{name}` is {value}"


def _breaking(kind: str, chosen: Iterable[Applied]) -> list[Applied]:
    """The findings after which a message that survives this loss by the rule does not."""
    found = []
    for one in chosen:
        signature = one.finding.signature
        if signature is None or one.condition or _LOSING.isdisjoint((*signature.anomalies, *one.finding.brings)):
            continue
        if not signature.after or not set(_EFFECTS[kind]).isdisjoint(signature.after):
            found.append(one)
    return found


def _held(setup: Setup, kind: str) -> str:
    """`Q1 held in 1 of 1 runs`, for the runs with this loss; `NOT_MEASURED` without any."""
    held = [
        one
        for one in measured.promises_held()
        if one.document == "quorum-ack"
        and one.promise == "Q1"
        and (one.version, one.topology) == (setup.version, setup.mode)
        and not one.faults.isdisjoint(_COLUMN[kind])
    ]
    return f"promise Q1 held in {_sum(held)} runs, with the settings of that suite" if held else NOT_MEASURED


def _sum(held: Iterable[Held]) -> str:
    counts = [(one.held, one.runs) for one in held]
    return f"{sum(held for held, _ in counts)} of {sum(runs for _, runs in counts)}"


def to_json(advice: Advice) -> dict[str, Any]:
    """The advice as plain data."""
    setup = advice.setup
    return {
        "version": setup.version,
        "topology": setup.topology,
        "mode": setup.mode,
        "replicas": setup.replicas,
        "files": {conf.kind: str(conf.path) for conf in setup.confs},
        "acknowledged_when": advice.promise.means,
        "source": advice.promise.source,
        "copies": advice.promise.copies,
        "survives": [
            {
                "loss": loss.kind,
                "by_the_rule": loss.number,
                "why": loss.why,
                "broken_by": [_finding(one) for one in loss.broken],
                "not_measured": [one.finding.id for one in loss.untried],
                "measured": loss.measured,
            }
            for loss in advice.losses
        ],
        "problems": [vars(problem) for problem in advice.problems],
        "findings": [_finding(one) | _texts(one.finding) for one in advice.applying],
        "excluded_by_settings": [_finding(one) for one in advice.excluded],
        "tried_and_not_seen": [_finding(one) for one in advice.never_shown],
        "not_measured": [_finding(one) for one in advice.untried],
        "seen_on_other_topologies_only": [_finding(one) for one in advice.other],
    }


def _finding(one: Applied) -> dict[str, Any]:
    return {
        "id": one.finding.id,
        "title": one.finding.title,
        "rate": one.rate or NOT_MEASURED,
        "rate_on_other_topologies": one.elsewhere or NOT_MEASURED,
        "page": one.finding.page,
        **({"condition": one.condition} if one.condition else {}),
    }


def _texts(finding: Finding) -> dict[str, Any]:
    mend = mend_of(finding.id)
    return {
        "system": finding.system,
        "happens": finding.issue.happens if finding.issue else "",
        "meanwhile": finding.issue.meanwhile if finding.issue else "",
        "corrected_by_mend": mend.id if mend else None,
    }
