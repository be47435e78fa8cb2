# SPDX-License-Identifier: Apache-2.0
"""Pictures of real runs for the pages of findings: `docs/findings/runs/ID-NAME.svg`.

`python -m harness.findings.pictures STORE [ID ...]` looks in a store for runs that show findings and draws one of each
that has no picture yet; with ids, those again. Only runs of the finding's own command count, without its control.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.check.judging import judge_stored
from harness.findings.record import Finding, read_findings
from harness.findings.signature import Sight, Signature
from results.durable import write_text
from results.errors import ExpectedError
from results.record import RunRecord
from results.report.course import course
from results.store import RunDir
from results.verdict import Anomaly, Judgement
from results.verdict_file import read_verdict

DOCS: Final = Path("docs/findings")
"""The folder of the pages."""

FOLDER: Final = "runs"
"""The pictures' folder, below that of the pages."""


def picture_of(finding: Finding) -> str:
    """The path of its picture, from its page."""
    return f"{FOLDER}/{finding.file}.svg"


def draw(finding: Finding, signature: Signature, record: RunRecord, judgement: Judgement) -> str:
    """The picture of a run that shows the finding, as SVG."""
    named = [a for a in judgement.anomalies if a.name in signature.names]
    own = signature.explains(record, judgement) or named
    heading = f"{finding.id}. {finding.title}: {record.version}, seed {record.plan.get('seed')}"
    return course(record, own, heading, next(_mechanism(signature, record, own), ""))


def _mechanism(signature: Signature, record: RunRecord, anomalies: Sequence[Anomaly]) -> Iterator[str]:
    """`n1 broker.log: ...`, the lines of the log that show the mechanism of the anomalies."""
    for node, files in sorted(record.logs.items()):
        for path in files:
            for at, line in signature.lines(path, record.environment):
                if any(signature.tells_of(at, anomaly) for anomaly in anomalies):
                    yield f"{node} {path.name}: {line.strip()}"


def _runs(store: Path) -> Iterator[RunDir]:
    """Yields runs with a verdict on servers as they were published, newest first."""
    for verdict in sorted(store.rglob("verdict.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        yield RunDir(verdict.parent)


def _own(finding: Finding, record: RunRecord) -> bool:
    """True if it is a run of the finding's command, on servers that have the defect."""
    command = "harness run " + " ".join(finding.args())
    given, _, more = (str(record.environment.get("command", "")).replace("'", "") + " ").partition(command + " ")
    control = finding.with_control() or [""]
    return not given and not {"--mend", "--server-jars", control[0]} & set(more.split())


def main(argv: Sequence[str]) -> int:
    """Draws the missing pictures. Returns 2 for wrong arguments."""
    words = list(argv)
    known = {finding.id: finding for finding in read_findings() if finding.signature is not None}
    if not words or not Path(words[0]).is_dir() or not all(w.isdigit() and int(w) in known for w in words[1:]):
        print("pictures: a folder of runs, then ids of findings that runs show, is right", file=sys.stderr)
        return 2
    again = [int(word) for word in words[1:]]
    wanted = {n: f for n, f in known.items() if (n in again if again else not (DOCS / picture_of(f)).exists())}
    for run in _runs(Path(words[0])):
        if not wanted:
            break
        try:
            names = {anomaly.name for anomaly in read_verdict(run.verdict).anomalies}
            near = [f for f in wanted.values() if f.signature is not None and names & f.signature.names]
            if not near:
                continue
            record, judgement = judge_stored(run)
        except ExpectedError as problem:
            print(f"{run.path}: {problem}", file=sys.stderr)
            continue
        topology = str(record.plan.get("server", {}).get("topology"))
        for finding in near:
            signature = finding.signature
            if signature is None or not _own(finding, record) or not finding.applies(record.version, topology):
                continue
            if signature.look(record, judgement).sight == Sight.SHOWN:
                path = DOCS / picture_of(finding)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, draw(finding, signature, record, judgement), "the picture")
                print(f"{path}  from {run.path}")
                wanted.pop(finding.id)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
