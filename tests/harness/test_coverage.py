# SPDX-License-Identifier: Apache-2.0
"""Coverage: each request is in its cell, and a fault that cannot occur is no gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import cli, guarded
from harness.coverage.counting import Cell, Coverage, Place, Seen, answer, cells
from harness.coverage.gaps import Gap, gaps
from harness.coverage.page import coverage_page
from results.deployment import DeploymentRecord
from results.fault_intervals import fault_intervals
from results.figures import SECOND
from results.history import Call, History
from results.op import Op
from results.record import Observation, RunRecord


class Story:
    """A history that grows: requests, and strikes of faults. Times in seconds."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def op(self, at: float, process: int, kind: Any, f: str, value: Any = None, **more: Any) -> None:
        error, extra = more.pop("error", None), more
        self.ops.append(Op(len(self.ops), int(at * SECOND), process, kind, f, None, value, error, extra))

    def request(self, at: float, kind: str, error: str | None = None, **extra: Any) -> None:
        self.op(at, 0, "invoke", "send", phase=extra.pop("phase", "main"))
        self.op(at + 0.1, 0, kind, "send", error=error, **extra)

    def strike(self, number: int, fault: str, start: float, end: float, seen: bool = True) -> None:
        value = {"id": number, "fault": fault, "nodes": {"n1": ""}, "seen": seen}
        for at, f in ((start, "inject"), (end, "heal")):
            self.op(at, -1, "invoke", f, value)
            self.op(at + 0.01, -1, "info", f, value)

    def record(self) -> RunRecord:
        ordered = sorted(self.ops, key=lambda op: op.time)
        history = History(
            [Op(i, o.time, o.process, o.type, o.f, o.key, o.value, o.error, o.extra) for i, o in enumerate(ordered)]
        )
        seen = [Observation(0, "n1", "leader"), Observation(10 * SECOND, "n1", "follower")]
        plan = {"workload": "log", "server": {"topology": "controller"}}
        return RunRecord(history, plan=plan, observations=seen, deployment=DeploymentRecord("controller"))


def test_a_request_is_in_the_cell_of_its_role_fault_and_phase() -> None:
    story = Story()
    story.request(1, "ok", node="n1")
    story.strike(1, "bridge", 2, 5)
    story.request(3, "fail", code=14, node="n1")
    story.strike(2, "hammer-time", 4, 8)
    story.request(4.5, "info", error="timeout: no answer within 3 s", node="n1")
    story.request(12, "ok", node="n1", phase="final")
    story.request(13, "ok", phase="recovery")
    record = story.record()
    assert cells(record, fault_intervals(record.history)) == {
        Cell("send", "ok", "leader", "none", "main"): 1,
        Cell("send", "fail 14", "leader", "bridge", "main"): 1,
        Cell("send", "info timeout", "leader", "several", "main"): 1,
        Cell("send", "ok", "follower", "none", "final"): 1,
        Cell("send", "ok", "-", "none", "recovery"): 1,
    }


def test_a_strike_without_an_effect_covers_nothing() -> None:
    story = Story()
    story.strike(1, "bridge", 2, 5, seen=False)
    story.request(3, "ok", node="n1")
    found = Coverage()
    found.add("1", story.record())
    (cell,) = found.seen[Place("log", "controller")]
    assert cell.fault == "none"
    assert not found.faults[Place("log", "controller")]


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (None, "none"),
        (Op(1, 2, 0, "ok", "send", extra={"code": 0}), "ok"),
        (Op(1, 2, 0, "ok", "send", extra={"code": 19}), "ok 19"),
        (Op(1, 2, 0, "fail", "send", error="198.18.0.1:10911: refused"), "fail"),
        (Op(1, 2, 0, "fail", "send", error="no-master: nobody"), "fail no-master"),
    ],
)
def test_an_answer_has_no_addresses(done: Op | None, text: str) -> None:
    assert answer(Call(Op(0, 1, 0, "invoke", "send"), done)) == text


def test_the_first_and_the_last_run_of_a_cell_are_known() -> None:
    seen = Seen()
    for run in ("20261129T10", "20261128T10", "20261130T10"):
        seen.add(run, 2)
    assert (seen.requests, seen.runs, seen.first, seen.last) == (6, 3, "20261128T10", "20261130T10")


def test_a_gap_has_its_command_and_what_cannot_occur_its_reason() -> None:
    """Faults that were seen are no gaps; one that needs an option, or a role that no server has, is listed apart."""
    story = Story()
    story.strike(1, "bridge", 2, 5)
    story.request(3, "ok", node="n1")
    found = Coverage()
    found.add("1", story.record())
    missing = {gap.fault: gap for gap in gaps(found)}
    assert "bridge" not in missing
    assert not missing["hammer-time"].impossible
    command = "harness run --workload log --topology controller --nemesis hammer-time"
    assert missing["hammer-time"].command == command
    assert missing["rolling-upgrade"].impossible
    page = coverage_page(found, list(missing.values()))
    assert command in page
    assert missing["rolling-upgrade"].impossible.split()[0] in page


def test_a_workload_that_is_not_installed_has_no_gaps() -> None:
    found = Coverage()
    found.runs[Place("gone", "controller")] += 1
    assert list(gaps(found)) == []


def test_the_command_of_a_gap_is_quoted() -> None:
    assert Gap(Place("log", "controller"), "a b").command.endswith("--nemesis 'a b'")


def test_an_empty_store_has_no_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["coverage", str(tmp_path), "--html", str(tmp_path / "c.html")]
    assert guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)) == 0
    assert capsys.readouterr().out == ""
    assert "<h1>Coverage</h1>" in (tmp_path / "c.html").read_text()
    argv = ["coverage", str(tmp_path / "none")]
    assert guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)) == 64
