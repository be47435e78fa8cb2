# SPDX-License-Identifier: Apache-2.0
"""One run in its own process: its leaks, errors and death do not affect the series."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.plan.plan import Plan
from harness.signals import Stopped
from results.durable import write_text
from results.store import RunDir

OUTPUT: Final = "output.txt"
"""The file with the run's output, in its folder."""


@dataclass(frozen=True)
class ChildRun:
    """The end of a run.

    code     its exit code (`results.verdict.Verdict.exit_code`, 64: usage, 69: not available here).
    folder   None if it ended before it had one.
    run_id   of its cluster; "": it had none.
    problem  the last line that it printed, if it has no folder.
    stopped  the signal that ended it before its time, or None.
    """

    code: int
    folder: RunDir | None
    run_id: str = ""
    problem: str = ""
    stopped: Stopped | None = None


def run_child(args: Sequence[str], store: Path) -> ChildRun:
    """Runs `harness run ARGS` to its end. Never raises for failures of the run; StoreError if its output cannot be
    kept.

    A stop signal goes on to the run, which heals, judges and removes its machines; the second one, too. Its own group
    of processes keeps a Ctrl-C of the terminal from reaching it twice.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harness-series-")))
        told, output = folder / "run.json", folder / OUTPUT
        # (-P: a folder `results` in the working directory, such as the store, must not be taken for our package.)
        command = [sys.executable, "-P", "-m", "harness.cli", "run", *args, "--store", str(store), "--json", str(told)]
        with output.open("wb") as file:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            code, stopped = _wait(child)
        text = output.read_text(encoding="utf-8", errors="replace")
        try:
            facts = json.loads(told.read_text())
        except (OSError, ValueError):
            lines = [line for line in text.splitlines() if line.strip()]
            return ChildRun(code, None, problem=lines[-1] if lines else f"exit code {code}", stopped=stopped)
        run = RunDir(Path(facts["folder"]))
        write_text(run.path / OUTPUT, text, "the output of the run")
        return ChildRun(code, run, facts["run_id"], stopped=stopped)


def run_plan(plan: Plan, args: Sequence[str], store: Path) -> ChildRun:
    """`run_child` of a plan that is in no file yet."""
    with tempfile.TemporaryDirectory(prefix="harness-plan-") as folder:
        file = Path(folder) / "plan.toml"
        file.write_text(plan.to_toml())
        return run_child(["--plan", str(file), *args], store)


def _wait(child: subprocess.Popen[bytes]) -> tuple[int, Stopped | None]:
    stopped: Stopped | None = None
    while True:
        try:
            return child.wait(), stopped
        except Stopped as signalled:
            stopped = signalled
            child.send_signal(signalled.signum)
