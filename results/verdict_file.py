# SPDX-License-Identifier: Apache-2.0
"""`verdict.json`: a judgement for people, for scripts (`jq .verdict`), and for reading back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from results.durable import write_text
from results.errors import HistoryError
from results.reading import read_json
from results.verdict import Anomaly, CheckResult, Excuse, Judgement, KnownFinding, Verdict


def write_verdict(judgement: Judgement, path: Path) -> None:
    """Writes a judgement, whole or not at all; StoreError if it cannot be written.

    A value that is not JSON (a path, a set, infinity) is written as the nearest JSON value, so that no detail
    prevents a verdict.
    """
    text = json.dumps(judgement_to_json(judgement), indent=2, ensure_ascii=False)
    write_text(path, text + "\n", "the verdict")


def read_verdict(path: Path) -> Judgement:
    """The inverse of `write_verdict`. Raises HistoryError if no whole verdict is there."""
    try:
        data = read_json(path)
        return judgement_from_json(data)
    except OSError as problem:
        raise HistoryError(path, None, f"no verdict can be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise HistoryError(path, None, f"not a verdict: {type(problem).__name__}: {problem}") from None


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    """`{"verdict", "reason", "known", "new", "results": [RESULT, ...], "evidence"}`.

    A result is `{"checker", "verdict", "reason", "ms", "stats", "anomalies": [...], "excuses": [...]}`. `known` and
    `new` are there if the run was compared with the record of findings, `evidence` if the files that were judged are
    recorded.
    """
    compared: dict[str, Any] = {}
    if judgement.new is not None:
        compared = {"known": [_known_to_json(finding) for finding in judgement.known], "new": list(judgement.new)}
    recorded = {} if judgement.evidence is None else {"evidence": dict(judgement.evidence)}
    return {
        "verdict": judgement.verdict.value,
        "reason": judgement.reason,
        **compared,
        "results": [
            {
                "checker": result.checker,
                "verdict": result.verdict.value,
                "reason": result.reason,
                "ms": round(result.ms, 3),
                "stats": plain(result.stats),
                "anomalies": [_anomaly_to_json(anomaly) for anomaly in result.anomalies],
                "excuses": [plain(asdict(excuse)) for excuse in result.excuses],
            }
            for result in judgement.results
        ],
        **recorded,
    }


def judgement_from_json(data: Mapping[str, Any]) -> Judgement:
    """The inverse of `judgement_to_json`. `verdict` and `reason` at the top are ignored: the results imply them."""
    new, evidence = data.get("new"), data.get("evidence")
    return Judgement(
        known=tuple(known_from_json(finding) for finding in data.get("known", ())),
        new=None if new is None else tuple(map(str, new)),
        evidence=None if evidence is None else {str(path): str(digest) for path, digest in evidence.items()},
        results=tuple(
            CheckResult(
                checker=result["checker"],
                verdict=Verdict(result["verdict"]),
                reason=result["reason"],
                anomalies=tuple(_anomaly_from_json(anomaly) for anomaly in result.get("anomalies", ())),
                stats=result.get("stats", {}),
                ms=result.get("ms", 0.0),
                excuses=tuple(Excuse(**excuse) for excuse in result.get("excuses", ())),
            )
            for result in data["results"]
        ),
    )


def _known_to_json(finding: KnownFinding) -> dict[str, Any]:
    found = {"id": finding.id, "title": finding.title, "anomalies": dict(finding.anomalies)}
    texts = {"page": finding.page, "without": finding.without}
    return found | {key: text for key, text in texts.items() if text}


def known_from_json(data: Mapping[str, Any]) -> KnownFinding:
    """The finding of an entry of `known`."""
    counts = {str(name): int(count) for name, count in data.get("anomalies", {}).items()}
    return KnownFinding(
        int(data["id"]), str(data["title"]), counts, str(data.get("page", "")), str(data.get("without", ""))
    )


def plain(value: Any) -> Any:
    """`value` as JSON values: mappings with text keys, lists, null for a float that is no number, text for the rest."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Set):
        return sorted((plain(inner) for inner in value), key=str)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in value]
    return str(value)


def _anomaly_to_json(anomaly: Anomaly) -> dict[str, Any]:
    out: dict[str, Any] = {"name": anomaly.name, "summary": anomaly.summary}
    if anomaly.key is not None:
        out["key"] = anomaly.key
    if anomaly.legal is not None:
        out["legal"] = anomaly.legal
    if anomaly.limit_s is not None:
        out["limit_s"] = anomaly.limit_s
    if anomaly.doubt is not None:
        out["doubt"] = anomaly.doubt
    out["ops"] = plain(anomaly.ops)
    if anomaly.window is not None:
        out["window"] = list(anomaly.window)
    out["details"] = plain(anomaly.details)
    return out


def _anomaly_from_json(data: Mapping[str, Any]) -> Anomaly:
    window = data.get("window")
    return Anomaly(
        name=data["name"],
        summary=data["summary"],
        key=data.get("key"),
        ops=tuple(data.get("ops", ())),
        window=None if window is None else (window[0], window[1]),
        details=data.get("details", {}),
        legal=data.get("legal"),
        limit_s=data.get("limit_s"),
        doubt=data.get("doubt"),
    )
