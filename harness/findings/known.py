# SPDX-License-Identifier: Apache-2.0
"""Known and new: the findings that a run shows, and the anomalies that none of them explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from harness.findings.record import Finding, read_findings
from harness.parts import registry
from harness.plan.plan import Plan
from infra.options import OptionError
from infra.systems.mends.catalog import mend_of
from results.record import RunRecord
from results.verdict import Anomaly, Judgement, KnownFinding


def explain(record: RunRecord, judgement: Judgement, findings: Sequence[Finding] | None = None) -> Judgement:
    """Adds known findings and new anomalies to the judgement of a run. `findings`: None: all of the record.

    A finding explains the anomalies of its signature, and those that it brings with it. It does so in the versions and
    on the topologies where it was seen; not on servers in which it is mended, nor on own jars with another version of
    the class that it names. Anomalies that are permitted or in doubt need no explanation.
    """
    left = [a for a in judgement.anomalies if a.counts]
    chosen = _applying(record, read_record() if findings is None else findings) if left else []
    own = {finding.id: _shown(finding, record, judgement) for finding in chosen}
    shown = [finding for finding in chosen if own[finding.id]]
    explained = [anomaly for finding in shown for anomaly in own[finding.id]]
    known = []
    for finding in shown:
        brought = [a for a in left if a.name in finding.brings and a not in explained]
        explained += brought
        known.append(_known(finding, [*own[finding.id], *brought], record))
    new = sorted({a.name for a in left if a not in explained})
    return replace(judgement, known=tuple(known), new=tuple(new))


@cache
def read_record() -> Sequence[Finding]:
    """The record of this project. Raises PlanError."""
    return read_findings()


def _applying(record: RunRecord, findings: Sequence[Finding]) -> list[Finding]:
    server: Mapping[str, Any] = record.plan.get("server", {})
    topology = str(server.get("topology") or record.deployment.topology)
    mended = {str(word) for word in server.get("mends", [])}
    versions = _versions(record)
    changed = set(str(record.environment.get("changed_classes", "")).split())
    return [
        finding
        for finding in findings
        if finding.signature is not None
        and not _mended(finding, mended)
        and finding.applies(versions, topology, changed)
    ]


def _versions(record: RunRecord) -> str:
    """The versions of the servers, and those that faults of the plan installed on them (`5.1.0+5.2.0`)."""
    found = set(record.version.split("+"))
    try:
        planned = Plan.from_dict(record.plan, "the plan").planned if record.plan else ()
        for one in planned:
            found.update(registry.fault(one.fault, one.options).versions())
    except OptionError:
        return record.version  # a plan of another version of the harness, or with a plug-in that is not installed
    return "+".join(sorted(found))


def _mended(finding: Finding, mends: set[str]) -> bool:
    mend = mend_of(finding.id)
    return str(finding.id) in mends or (mend is not None and str(mend.id) in mends)


def _shown(finding: Finding, record: RunRecord, judgement: Judgement) -> list[Anomaly]:
    return [] if finding.signature is None else finding.signature.explains(record, judgement)


def _known(finding: Finding, anomalies: Sequence[Anomaly], record: RunRecord) -> KnownFinding:
    counts: Counter[str] = Counter()
    for anomaly in anomalies:
        counts[anomaly.name] += anomaly.cases
    mend, versions = mend_of(finding.id), set(record.version.split("+"))
    fits = mend is not None and versions <= {name.split()[-1] for name in mend.versions}
    without = f"--mend {finding.id}" if fits else ""
    return KnownFinding(finding.id, finding.title, counts, finding.page, without)
