# SPDX-License-Identifier: Apache-2.0
"""`harness check`: checks stored runs and foreign histories again without a cluster (docs/checking.md)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from checkers.converging import CONVERGING
from checkers.linearizability.models import MODELS
from harness.check.examine import examine
from harness.check.report import CheckOptions, CheckReport, Task
from harness.plan.table import PlanError
from infra.options import suggest
from results.durable import created
from results.errors import cannot_write
from results.formats.detect import has_events
from results.reading import exists, opened
from results.verdict import FailOn, Verdict, worst

if TYPE_CHECKING:
    from harness.check.expected import ExpectedVerdicts, Row

HISTORY = re.compile(r"\.(jsonl|json|edn|log|txt|parquet)(\.gz)?$")
_MODEL_WIDTH = len("cas-register")
_MOST_SHOWN = 24
"""Ops of an order that the terminal shows."""

_HEAD = 65_536
_IMPLIED = " (implied)"
_LIST = "the list of verdicts"
_DEFAULTS = CheckOptions()


def check_paths(
    paths: Sequence[Path],
    say: Callable[[str], None],
    check_options: CheckOptions = _DEFAULTS,
    *,
    model: str | None = None,
    models: Path | None = None,
    json_file: Path | None = None,
    explain: Path | None = None,
    plots: Path | None = None,
    fail_on: FailOn = FailOn.ANY,
    jobs: int = 1,
) -> int:
    """Checks each path (a run's folder, a folder of histories, or a file), one line each. Returns the exit code of the
    worst verdict.

    An unreadable history is one line, counts as `unknown`, and the others are still checked. If `models` lists
    verdicts, a file whose verdict is as listed counts as 0, any other as 1. With `fail_on` new, anomalies that known
    findings explain count as valid.

    Raises PlanError for mistakes of the user, StoreError if `json_file`, `explain` or `plots` cannot be written.
    """
    names = sorted((*MODELS, *CONVERGING))
    if model is not None and model not in names:
        raise PlanError(f"no model {model!r}{suggest(model, names)}  (there are {', '.join(names)})")
    listed = None if models is None else _expected(models)
    tasks = [task for path in paths for task in _tasks(path, model, listed)]
    with ExitStack() as stack:
        out = None if json_file is None else stack.enter_context(_opened(json_file))
        guess = check_options.workload is None and not all(task.model for task in tasks)
        teller = _Teller(say, tasks, out, json_file or Path(), explain, fail_on, guess, plots)
        for task, found in zip(tasks, _all_examined(tasks, check_options, jobs), strict=True):
            teller.tell(task, found)
        if listed is not None:
            teller.missing(listed.missing())
    return teller.summary()


def _expected(path: Path) -> ExpectedVerdicts:
    # Imported here: most checks have no list.
    from harness.check.expected import ExpectedVerdicts

    return ExpectedVerdicts(path)


@contextmanager
def _opened(json_file: Path) -> Iterator[IO[str]]:
    """Yields the stream for the objects: a file, or standard output (`-`)."""
    if str(json_file) == "-":
        yield sys.stdout
        return
    with created(json_file, _LIST) as file:
        yield file


def _tasks(path: Path, model: str | None, listed: ExpectedVerdicts | None) -> list[Task]:
    if not exists(path):
        raise PlanError(f"{path}: no such file or folder; a run's folder or a history is right")
    found = [(path, str(path))]
    if path.is_dir() and not (path / "plan.toml").exists():
        inside = sorted({*_walk(path), *(path / p.relative_to(path.resolve()) for p in _listed_in(path, listed))})
        found = [(one, str(one.relative_to(path))) for one in inside]
        if not found:
            raise PlanError(f"{path}: neither a run nor a history lies in this folder")
    rows = [listed.of(one) if listed else None for one, _ in found]
    return [
        Task(one, shown, row.model if row and row.model else model, row)
        for (one, shown), row in zip(found, rows, strict=True)
    ]


def _listed_in(folder: Path, listed: ExpectedVerdicts | None) -> list[Path]:
    return [] if listed is None else listed.inside(folder)


def _walk(folder: Path) -> Iterator[Path]:
    """Yields runs, and histories that are not part of a run. Links to folders are not followed: `latest` is one."""
    for here, folders, files in os.walk(folder):
        if "plan.toml" in files:
            folders.clear()
            yield Path(here)
            continue
        yield from (Path(here, name) for name in files if HISTORY.search(name) and _may_be_history(Path(here, name)))


def _may_be_history(path: Path) -> bool:
    """False for a file of JSON that has no events. Other names say what a file is."""
    if path.suffix != ".json":
        return True
    try:
        with opened(path) as file:
            return has_events(file.read(_HEAD))
    except OSError:
        return True  # (Its line says why it cannot be read.)


def _all_examined(tasks: Sequence[Task], check_options: CheckOptions, jobs: int) -> Iterator[CheckReport]:
    """Yields the reports in order of the tasks, each as soon as it and all before it are done."""
    if jobs == 1 or len(tasks) < 2:
        yield from (examine(task.path, task.shown, task.model, check_options) for task in tasks)
        return
    # Imported here: it takes longer to load than a small history takes to check.
    from harness.check.in_parallel import examined

    yield from examined(tasks, check_options, min(jobs, len(tasks)))


class _Teller:
    """Reports the results, one line a history, and keeps the score."""

    def __init__(
        self,
        say: Callable[[str], None],
        tasks: Sequence[Task],
        out: IO[str] | None,
        out_path: Path,
        explain: Path | None,
        fail_on: FailOn,
        guess: bool,
        plots: Path | None = None,
    ) -> None:
        """`guess`: a model may be implied, which needs some room."""
        self.say, self.out, self.out_path, self.explain, self.fail_on = say, out, out_path, explain, fail_on
        self.width = max((len(task.shown) for task in tasks), default=0)
        self.model_width = max([_MODEL_WIDTH, *(len(task.model) for task in tasks if task.model)])
        self.model_width += len(_IMPLIED) * guess
        self.verdicts: list[Verdict] = []
        self.judged: list[Verdict] = []
        self.disagreements: list[str] = []
        self.agreed = self.pictures = self.plotted = 0
        self.plots = plots

    def tell(self, task: Task, found: CheckReport) -> None:
        self.say(self._line(found))
        for line in found.lines:
            self.say(line)
        for note in dict.fromkeys([*found.damage, *found.notes]):
            self.say(f"  note: {note}")
        if found.witness is not None:
            for key, order in found.witness.items():
                more = f" ... ({len(order):,} ops; --json has them all)" if len(order) > _MOST_SHOWN else ""
                on = "" if key is None else f" of key {key}"
                self.say(f"  order{on}: {' '.join(map(str, order[:_MOST_SHOWN]))}{more}")
        for page in found.pictures:
            assert self.explain is not None
            self.pictures += 1
            self.say(f"  picture: {_written(page, self.explain, self.pictures, 'the picture')}")
        if found.plots is not None and self.plots is not None:
            self.plotted += 1
            self.say(f"  plots: {_written(found.plots, self.plots, self.plotted, 'the plots')}")
        if self.out is not None:
            self._write(self.out, found)
        self.verdicts.append(found.verdict)
        self.judged.append(self._compared(task.row, found))

    def _write(self, out: IO[str], found: CheckReport) -> None:
        try:
            out.write(json.dumps(found.to_json()) + "\n")
            out.flush()
        except OSError as problem:
            with suppress(OSError):
                out.close()
            raise cannot_write(self.out_path, _LIST, problem) from None

    def missing(self, rows: Sequence[Row]) -> None:
        """Reports listed files that do not exist."""
        for row in rows:
            self.say(f"{row.file.ljust(self.width)}   unknown  it is listed, but there is no such file")
            self.verdicts.append(Verdict.UNKNOWN)
            self.judged.append(Verdict.UNKNOWN)

    def summary(self) -> int:
        if self.disagreements:
            self.say(f"{len(self.disagreements)} verdicts differ from the list:")
            for line in self.disagreements:
                self.say(f"  {line}")
        compared = self.agreed + len(self.disagreements)
        if len(self.verdicts) > 1 or compared:
            counts = ", ".join(f"{self.verdicts.count(v)} {v.value}" for v in Verdict if v in self.verdicts)
            noun = "history" if len(self.verdicts) == 1 else "histories"
            as_listed = f"; {self.agreed} of {compared} as listed" if compared else ""
            self.say(f"{len(self.verdicts)} {noun}: {counts}{as_listed}")
        if self.explain is not None and not self.pictures:
            self.say(f"no violation of a model was found, so {self.explain} was not written")
        return worst(self.judged).exit_code

    def _line(self, found: CheckReport) -> str:
        head = f"{found.file.ljust(self.width)}   {found.verdict.value:<7}  "
        if found.stored_run:
            return head + (f"{found.ops} ops  {found.ms:.0f} ms" if found.lines else found.reason)
        if found.algorithm is None and not found.ops:
            return head + found.reason
        model = (found.model or "") + (_IMPLIED if found.implied else "")
        figures = f"{model.ljust(self.model_width)}  {found.ops:>5} ops  {found.ms:>4.0f} ms  "
        reason = "" if found.verdict == Verdict.VALID else found.reason
        return f"{head}{figures}{found.algorithm or 'none':<9}  {reason}".rstrip()

    def _compared(self, row: Row | None, found: CheckReport) -> Verdict:
        """The verdict that counts for the exit code: the history's own, or, if one is listed, VALID if both agree."""
        if row is None or row.verdict is None:
            return found.beside_known if self.fail_on == FailOn.NEW and found.beside_known else found.verdict
        if row.agrees(found.verdict, found.empty):
            self.agreed += 1
            return Verdict.VALID
        self.disagreements.append(f"{found.file}: listed {row.verdict}, found {found.verdict}: {found.reason}")
        return Verdict.INVALID


def _written(page: str, first: Path, count: int, what: str) -> Path:
    """Writes a page: the first as the option names it (out.html), the next ones out-2.html, out-3.html, ..."""
    path = first if count == 1 else first.with_name(f"{first.stem}-{count}{first.suffix}")
    try:
        with created(path, what) as file:
            file.write(page)
    except OSError as problem:
        raise cannot_write(path, what, problem) from None
    return path
