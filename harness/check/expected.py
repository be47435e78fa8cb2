# SPDX-License-Identifier: Apache-2.0
"""`harness check --models FILE.csv`: the model and the expected verdict of each history of a folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.converging import CONVERGING
from checkers.linearizability.models import MODELS
from harness.plan.table import PlanError
from infra.options import suggest
from results.reading import SMALL_FILE, opened
from results.verdict import Verdict

_COLUMNS = ("file", "model")


@dataclass(frozen=True)
class Row:
    """A line of the list. `file`: as written there. `verdict`: the expected one, or None if none is listed."""

    file: str
    model: str | None
    verdict: Verdict | None

    def agrees(self, found: Verdict, empty: bool) -> bool:
        """True if `found` is the listed verdict. `empty`: no client did anything in the history. Then nothing can be
        wrong in it, and `unknown` is no objection to `valid` (docs/checking.md).
        """
        return found == self.verdict or (empty and found == Verdict.UNKNOWN and self.verdict == Verdict.VALID)


class ExpectedVerdicts:
    """The list: rows by the file that they mean. A relative `file` is looked for beside the list, then from here."""

    def __init__(self, path: Path) -> None:
        """Reads the list. Raises PlanError (one line, with the line's number) if it is no such list."""
        self.path = path
        self.rows: Mapping[Path, Row] = dict(self._read())

    def of(self, path: Path) -> Row | None:
        """The row that means this file."""
        return self.rows.get(path.resolve())

    def missing(self) -> list[Row]:
        """Rows whose file does not exist."""
        return [row for path, row in self.rows.items() if not path.exists()]

    def inside(self, folder: Path) -> list[Path]:
        """The listed files in a folder that exist, whatever their names."""
        root = folder.resolve()
        return [path for path in self.rows if path.is_relative_to(root) and path.is_file()]

    def _read(self) -> Iterator[tuple[Path, Row]]:
        try:
            with opened(self.path, SMALL_FILE) as data, io.TextIOWrapper(data, "utf-8-sig", newline="") as file:
                lines = csv.DictReader(file)
                lacking = [c for c in _COLUMNS if c not in (lines.fieldnames or ())]
                if lacking:
                    raise PlanError(
                        f"{self.path}:1: no column {lacking[0]!r}; the columns are file,model and, optionally, verdict"
                    )
                for line in lines:
                    row = self._row(line, lines.line_num)
                    yield self._meant(row.file, lines.line_num), row
        except OSError as problem:
            raise PlanError(f"{self.path}: cannot be read: {problem.strerror}") from None
        except (UnicodeDecodeError, csv.Error) as problem:
            raise PlanError(f"{self.path}: not a CSV file: {problem}") from None

    def _meant(self, file: str, number: int) -> Path:
        """The path, links resolved; beside the list, if a file is there."""
        beside = self.path.parent / file
        try:
            return (beside if beside.exists() or not Path(file).exists() else Path(file)).resolve()
        except (OSError, ValueError, RuntimeError) as problem:
            why = getattr(problem, "strerror", None) or problem
            raise PlanError(f"{self.path}:{number}: no file can be called {file[:80]!r}: {why}") from None

    def _row(self, line: Mapping[str | Any, Any], number: int) -> Row:
        file, model, verdict = ((line.get(name) or "").strip() for name in ("file", "model", "verdict"))
        where = f"{self.path}:{number}"
        if not file:
            raise PlanError(f"{where}: no file is named")
        models = sorted((*MODELS, *CONVERGING))
        if model and model not in models:
            raise PlanError(f"{where}: no model {model!r}{suggest(model, models)}  ({', '.join(models)})")
        words = [v.value for v in Verdict]
        if verdict and verdict not in words:
            raise PlanError(f"{where}: no verdict {verdict!r}{suggest(verdict, words)}  ({', '.join(words)})")
        return Row(file, model or None, Verdict(verdict) if verdict else None)
