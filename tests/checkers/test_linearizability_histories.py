# SPDX-License-Identifier: Apache-2.0
"""Histories nobody here wrote, with the verdicts that their own projects state.

A handful lies in `tests/data`. `HARNESS_HISTORIES` may name another folder with a `verdicts.csv` (file, model,
verdict).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkers.linearizability import MODELS, Linearizable, check_keys, encode, verify_witness
from results.formats import ReadOptions, read_history
from results.record import RunRecord
from results.verdict import Verdict

HERE = Path(__file__).parent.parent / "data" / "porcupine"


def _known() -> Iterator[tuple[Path, str, Verdict]]:
    for folder in (HERE, Path(os.environ.get("HARNESS_HISTORIES", HERE))):
        with (folder / "verdicts.csv").open() as lines:
            for row in csv.DictReader(lines):
                yield folder / row["file"], row["model"], Verdict(row["verdict"])


KNOWN = sorted(set(_known()))


@pytest.mark.parametrize(("path", "model", "verdict"), KNOWN, ids=[path.name for path, _, _ in KNOWN])
def test_verdict_is_the_one_its_project_states(path: Path, model: str, verdict: Verdict) -> None:
    history = read_history(path).history
    result = Linearizable(MODELS[model]()).check(RunRecord(history))
    nothing_there = not any(op.f in MODELS[model].fs for op in history.clients)
    assert result.verdict == (Verdict.UNKNOWN if nothing_there else verdict), result.reason


@pytest.mark.parametrize(("path", "model", "verdict"), KNOWN, ids=[path.name for path, _, _ in KNOWN])
def test_evidence_holds(path: Path, model: str, verdict: Verdict) -> None:
    """Valid: the witness explains every key. Invalid: the failing op is in a core that cannot be made smaller."""
    history = read_history(path).history
    for key, result in check_keys(history, MODELS[model]()).items():
        if result.verdict == Verdict.VALID:
            problem = encode(history.by_key[key], MODELS[model]())
            order = [problem.source.index(index) for index in result.witness or ()]
            assert verify_witness(problem, order) is None
        else:
            assert result.core_is_minimal
            assert result.failing_op in result.core
            assert len(result.core) <= 8


def test_refused_cas_may_be_read_as_an_observation() -> None:
    """Porcupine reads its etcd logs so; its verdicts are the same either way."""
    for path, model, verdict in KNOWN:
        if path.suffix == ".log":
            history = read_history(path, options=ReadOptions(failed_cas="observed")).history
            assert Linearizable(MODELS[model]()).check(RunRecord(history)).verdict == verdict, path.name
