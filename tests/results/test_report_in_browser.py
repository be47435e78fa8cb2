# SPDX-License-Identifier: Apache-2.0
"""The report and the list of runs in a browser: the head is short, and every table can be read on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sample_run import S, sample_history, sample_run

from results.record import RunRecord
from results.report import render
from results.store import Store
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from results.verdict_file import write_verdict
from results.web import create_app

CHROMIUM = shutil.which("chromium")
SCREEN = 900
"""Height of a screen, px."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")

_MEASURE = """
<script>addEventListener("load", () => {
  const frame = document.querySelector("iframe"), page = frame.contentDocument, width = frame.clientWidth;
  page.querySelectorAll("details").forEach(d => { if (OPEN) d.open = true; });
  const wide = [...page.querySelectorAll("table")].filter(t => {
    const box = t.closest(".scroll");
    return !box || getComputedStyle(box).overflowX !== "auto" || box.getBoundingClientRect().right > width;
  });
  const narrow = [...page.querySelectorAll("table.stack td, table.stack th")].filter(c => {
    const text = c.textContent.trim();
    return text.length > 8 && c.clientWidth && c.clientWidth < 120;
  });
  const main = page.querySelector("main") || page.body;
  const found = {head: main.getBoundingClientRect().top, scroll: page.documentElement.scrollWidth, width: width,
                 wide: wide.length, narrow: narrow.map(c => c.textContent)};
  const out = document.createElement("pre");
  out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.replaceChildren(out);
})</script>
"""


def measured(page: str, folder: Path, width: int, *, unfolded: bool) -> dict[str, Any]:
    """The page in a frame of that width (a window of a headless browser has a least width)."""
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    frame = f"<iframe style='border:0;width:{width}px;height:{SCREEN}px' srcdoc=\"{html.escape(bare)}\"></iframe>"
    file = folder / "frame.html"
    file.write_text(f"<body style='margin:0'>{_MEASURE.replace('OPEN', str(unfolded).lower())}{frame}</body>")
    switches = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = f"--disable-component-update --disable-sync --window-size=1600,1000 --user-data-dir={folder}/profile"
    done = subprocess.run(
        [str(CHROMIUM), *switches.split(), *more.split(), "--dump-dom", f"file://{file}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-1000:]
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


def crowded(folder: Path) -> tuple[RunRecord, Judgement]:
    """A run with 40 names of anomalies, long summaries and long reasons."""
    record, judgement = sample_run(folder)
    ops = [op.index for op in sample_history() if op.is_client][:12]
    long = "the master of the group acknowledged a message that no replica has, for a long reason, " * 6
    many = [Anomaly(f"anomaly-of-kind-{i % 40}", long, f"k{i}", ops, (S, 9 * S)) for i in range(400)]
    results = [CheckResult(f"checker-{i}", Verdict.INVALID, long, many[i::30]) for i in range(30)]
    unclear = [CheckResult(f"unclear-{i}", Verdict.INVALID, long) for i in range(10)]
    return record, Judgement([*judgement.results, *results, *unclear])


@pytest.mark.parametrize("run", [sample_run, crowded])
def test_the_head_of_the_report_has_at_most_three_screens(run: Any, tmp_path: Path) -> None:
    record, judgement = run(tmp_path)
    found = measured(render(record, judgement, tmp_path / "report.html"), tmp_path, 1280, unfolded=False)
    assert 0 < found["head"] <= 3 * SCREEN
    assert found["scroll"] <= found["width"]


@pytest.mark.parametrize("run", [sample_run, crowded])
def test_every_table_can_be_read_on_a_phone(run: Any, tmp_path: Path) -> None:
    """The page itself never scrolls sideways; a table is stacked, or scrolls alone."""
    record, judgement = run(tmp_path)
    found = measured(render(record, judgement, tmp_path / "report.html"), tmp_path, 390, unfolded=True)
    assert (found["scroll"] <= found["width"], found["wide"], found["narrow"]) == (True, 0, [])


def test_the_list_of_runs_can_be_read_on_a_phone(tmp_path: Path) -> None:
    long = "the master of the group acknowledged a message that no replica has, for a long reason, " * 6
    root = tmp_path / "runs"
    for minutes in range(3):
        plan = 'workload = "register"\nseed = 7\n[server]\ntopology = "dledger"\nversion = "0.4.0"\n'
        run = Store(root).create("register-none", plan, datetime(2026, 11, 21, 12, minutes))
        write_verdict(Judgement([CheckResult("stats", Verdict.INVALID, long)]), run.verdict)
    page = create_app(root).test_client().get("/").text
    found = measured(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), tmp_path, 390, unfolded=True)
    assert (found["scroll"] <= found["width"], found["wide"], found["narrow"]) == (True, 0, [])
