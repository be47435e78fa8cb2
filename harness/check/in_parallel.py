# SPDX-License-Identifier: Apache-2.0
"""`harness check --jobs N`: several histories at a time, each in a process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from harness.check.examine import examine
from harness.check.report import CheckOptions, CheckReport, Task
from results.verdict import Verdict


def examined(tasks: Sequence[Task], check_options: CheckOptions, workers: int) -> Iterator[CheckReport]:
    """Yields the reports in order of the tasks, each as soon as it and all before it are done."""
    with _pool(workers) as pool:
        waiting: list[Future[CheckReport] | None] = [_submitted(pool, task, check_options) for task in tasks]
        for task, future in zip(tasks, waiting, strict=True):
            try:
                if future is None:
                    raise BrokenProcessPool
                yield future.result()
            except BrokenProcessPool:
                # A worker was killed, and all that was not done went with it. Each gets a process of its own now.
                yield _alone(task, check_options)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))


def _submitted(pool: ProcessPoolExecutor, task: Task, check_options: CheckOptions) -> Future[CheckReport] | None:
    try:
        return pool.submit(examine, task.path, task.shown, task.model, check_options)
    except BrokenProcessPool:
        return None


def _alone(task: Task, check_options: CheckOptions) -> CheckReport:
    with _pool(1) as pool:
        try:
            return pool.submit(examine, task.path, task.shown, task.model, check_options).result()
        except BrokenProcessPool:
            reason = f"{task.path}: the process that checked it was killed (was the machine out of memory?)"
            return CheckReport(task.shown, Verdict.UNKNOWN, reason, task.model)
