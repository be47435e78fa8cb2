# SPDX-License-Identifier: Apache-2.0
"""The verdict table of a store, which `harness trends` and `serve` show. Made in this process if the store has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.plan.plan import PlanError
from results.reading import exists
from results.store import Store
from results.verdict_table import VERDICTS


def has_table(output: Path) -> bool:
    """True if a batch has written a table there."""
    return exists(output / VERDICTS)


def make_table(store: Path, output: Path, say: Callable[[str], None]) -> None:
    """Judges all runs of a store with Spark in this process, and writes the table. Raises PlanError without a run,
    NoSpark if Spark is not installed, StoreError.
    """
    if not Store(store).runs():
        raise PlanError(f"{store}: there are no runs yet; harness run makes one, --store names another folder")
    from harness.batch.run import BatchPlan, run_batch

    say(f"there is no verdict table in {output}; making it from {store}")
    run_batch(BatchPlan([str(store)], str(output)), say)
