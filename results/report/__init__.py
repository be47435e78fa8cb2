# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that opens from disk, without scripts and external resources."""

from __future__ import annotations

from pathlib import Path

from results.durable import write_text
from results.record import RunRecord
from results.report.layout import render_template
from results.report.model import page
from results.verdict import Judgement

__all__ = ["render", "write_report"]


def render(record: RunRecord, judgement: Judgement, path: Path) -> str:
    """The report as HTML; `path`: its later place (links into the run's folder are relative to it)."""
    return render_template("report.html.j2", page=page(record, judgement, path))


def write_report(record: RunRecord, judgement: Judgement, path: Path) -> None:
    """Writes the report to `path`, whole or not at all. Raises StoreError if it cannot be written."""
    write_text(path, render(record, judgement, path), "the report")
