"""What of a run is known already: the findings that it shows, and what none of them explains."""

from __future__ import annotations

from collections.abc import Sequence

from harness.findings.record import Finding
from harness.findings.signature import Sight
from results.record import RunRecord
from results.verdict import Judgement


def sort_anomalies(
    record: RunRecord, judgement: Judgement, findings: Sequence[Finding], topology: str
) -> tuple[list[int], list[str]]:
    """Ids of the findings that a run shows, and the names of anomalies that none of these explains.

    A finding explains its own anomalies, and those that it brings with it, in the versions and on the topologies where
    it was seen, except on servers in which it is mended. What is permitted or doubtful is nobody's.
    """
    mended = {str(word) for word in record.plan.get("server", {}).get("mends", [])}
    left = {a.name for a in judgement.anomalies if a.legal is None and a.doubt is None}
    known = []
    explained: set[str] = set()
    for finding in findings:
        if finding.signature is None or str(finding.id) in mended or not finding.applies(record.version, topology):
            continue
        if left & set(finding.signature.anomalies) and (finding.signature.look(record, judgement).sight == Sight.SHOWN):
            known.append(finding.id)
            explained |= {*finding.signature.anomalies, *finding.brings}
    return known, sorted(left - explained)
