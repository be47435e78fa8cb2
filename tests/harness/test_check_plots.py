# SPDX-License-Identifier: Apache-2.0
"""`harness check --plots`: latency, rate and faults of any history, as one page without scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.check.plots_page import NO_TIMES
from tests.commands import harness_lines as harness

SECOND = 10**9


def written(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


EPOCH = 1_700_000_000 * SECOND


def op(client: int, f: str, second: int, **more: Any) -> dict[str, Any]:
    at = EPOCH + second * SECOND
    return {"client": client, "op": f, "key": "k", "start": at, "end": at + SECOND, **more}


OPS = [op(n % 3, "write", n, value=n) for n in range(20)]
FAULTS = [
    {"client": "nemesis", "op": "<kill>", "input": ["n1"], "start": EPOCH + 5 * SECOND, "end": EPOCH + 9 * SECOND},
    {"client": "nemesis", "op": "upgrade", "start": EPOCH + 7 * SECOND, "end": None},
]


def test_a_page_has_the_charts_the_faults_and_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times count from the first event; a fault is a band from its begin to its end. What a file says is escaped."""
    path, page = written(tmp_path / "h.jsonl", *OPS, *FAULTS), tmp_path / "out.html"
    code, lines, _ = harness(capsys, "check", path, "--plots", page)
    assert (code, lines[-1]) == (0, f"  plots: {page}")
    text = page.read_text()
    for heading in ("Latency", "Latency quantiles", "Rate", "Faults", "Operations"):
        assert f">{heading}</h2>" in text
    assert "<td>00:05.0</td><td>00:09.0</td>" in text
    assert "<td>00:07.0</td><td></td>" in text
    assert "#1 start-&lt;kill&gt;" in text
    assert "<kill>" not in text
    assert "<script" not in text
    assert text.count('class="band') >= 2


def test_each_history_has_a_page_and_one_without_times_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages, too; also what is invalid."""
    sent = [{"process": 0, "type": t, "f": "send", "key": "q", "value": v, "time": 5 * SECOND + at}
            for at, (t, v) in enumerate((("invoke", 1), ("ok", [0, 1])))]  # fmt: skip
    found = written(tmp_path / "a.jsonl", *sent)
    page = tmp_path / "out.html"
    code, lines, _ = harness(capsys, "check", found, "--workload", "log", "--plots", page)
    assert (code, lines[-1]) == (2, f"  plots: {page}")
    assert ">send</th>" in page.read_text()
    written(tmp_path / "b.jsonl", *OPS, op(9, "read", 40, output=3))
    once = ({"process": 0, "type": type_, "f": "write", "value": 1} for type_ in ("invoke", "ok"))
    timeless = written(tmp_path / "c.jsonl", *once)
    code, lines, _ = harness(capsys, "check", tmp_path / "b.jsonl", timeless, tmp_path / "b.jsonl", "--plots", page)
    assert code == 1
    assert [line for line in lines if "plots" in line] == [
        f"  plots: {page}", f"  note: {NO_TIMES}", f"  plots: {tmp_path / 'out-2.html'}",
    ]  # fmt: skip


def test_two_faults_at_a_time_are_no_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that overlaps another must not be taken for an operation of the model."""
    code, lines, _ = harness(capsys, "check", written(tmp_path / "h.jsonl", *OPS, *FAULTS, FAULTS[0]), "--json", "-")
    assert (code, json.loads(lines[0])["ops"]) == (0, 40)
