# SPDX-License-Identifier: Apache-2.0
"""The figures of Jepsen's `set-full`: stable, lost and never-read elements of a set, with their latencies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.boundary import guarded
from harness.check.set_latencies import SetLatencies, set_latencies
from harness.cli.main import cli
from results.history import History
from results.op import Op, OpType

MS = 10**6


def history(*calls: tuple[str, Any, int, int], outcome: OpType = "ok") -> SetLatencies | None:
    """Calls as (f, value, start in ms, end in ms), one client each."""
    events = []
    for client, (f, value, start, end) in enumerate(calls):
        events.append((start, client, "invoke", f, value if f == "add" else None))
        events.append((end, client, outcome, f, value))
    events.sort(key=lambda event: event[0])
    return set_latencies(History(Op(i, at * MS, c, t, f, value=v) for i, (at, c, t, f, v) in enumerate(events)).calls)  # type: ignore[arg-type]


def figures(*calls: tuple[str, Any, int, int]) -> SetLatencies:
    found = history(*calls)
    assert found is not None
    return found


def test_an_element_that_every_later_read_has_is_stable_at_once() -> None:
    found = figures(("add", 1, 0, 10), ("read", [1], 20, 30), ("read", [1], 40, 50))
    assert (found.known, found.stable, found.lost, found.never_read, found.stale) == (1, [0], [], 0, 0)


def test_a_stale_read_makes_an_element_stable_late() -> None:
    """Known at 10 ms; the last read that lacks it began at 40 ms."""
    found = figures(("add", 1, 0, 10), ("read", [1], 20, 30), ("read", [], 40, 45), ("read", [1], 60, 70))
    assert (found.stable, found.stale) == ([30 * MS + 1], 1)


def test_an_element_that_the_last_read_lacks_is_lost() -> None:
    found = figures(("add", 1, 0, 10), ("read", [1], 20, 30), ("read", [], 40, 50))
    assert (found.stable, found.lost) == ([], [10 * MS + 1])
    assert figures(("add", 1, 0, 10), ("read", [], 40, 50)).lost == [0]


def test_a_read_that_overlaps_the_add_proves_no_loss() -> None:
    found = figures(("add", 1, 0, 100), ("read", [], 20, 30))
    assert (found.lost, found.never_read) == ([], 1)


def test_a_read_may_be_the_first_to_know_an_element() -> None:
    """The add was never acknowledged before the end; the read that has the element makes it known."""
    found = figures(("add", 1, 0, 90), ("read", [1], 20, 30), ("read", [], 40, 50))
    assert found.lost == [0]


@pytest.mark.parametrize(
    "calls",
    [
        [("add", 1, 0, 10)],
        [("add", 1, 0, 10), ("read", None, 20, 30)],
        [("add", [1], 0, 10), ("read", [[1]], 20, 30)],
        [("write", 1, 0, 10), ("read", [1], 20, 30)],
    ],
)
def test_other_histories_have_no_such_figures(calls: list[tuple[str, Any, int, int]]) -> None:
    assert history(*calls) is None


def test_the_page_of_a_set_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ops = [("add", 1, 0, 10), ("read", [1], 20, 30), ("read", [], 40, 50)]
    records = [
        {"client": n, "op": f, ("value" if f == "add" else "output"): v, "start": a * MS, "end": b * MS}
        for n, (f, v, a, b) in enumerate(ops)
    ]
    path, page = tmp_path / "h.jsonl", tmp_path / "out.html"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    argv = ["check", str(path), "--model", "set", "--plots", str(page)]
    assert guarded(lambda: cli.main(argv, standalone_mode=False)) == 1
    text = page.read_text()
    assert "Elements of the set" in text
    assert "<td>0: 10.0 ms, 0.5: 10.0 ms, 0.95: 10.0 ms, 0.99: 10.0 ms, 1: 10.0 ms</td>" in text
    capsys.readouterr()
