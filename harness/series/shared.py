# SPDX-License-Identifier: Apache-2.0
"""A kept cluster that runs of one shape share, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType

from harness import signals
from harness.parts import registry
from harness.series.child import ChildRun
from infra.machines import kept


class SharedCluster:
    """The first run makes the cluster, the next ones use it, and the end of the `with` removes it.

    A fault in the state of a cluster may affect later runs, so only a run without any anomaly leaves it to the next
    one.
    """

    def __init__(self) -> None:
        self.run_id = ""

    def __enter__(self) -> SharedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.remove()

    def _options(self) -> Sequence[str]:
        """The options for the next run."""
        return ["--reuse", self.run_id] if self.run_id else ["--keep"]

    def run(self, start: Callable[[Sequence[str]], ChildRun]) -> ChildRun:
        """Starts a run with the options that name its cluster. If it cannot use the kept one, it gets a new one: the
        disk may be too full by now, or not the one that the fault needs.
        """
        reused = bool(self.run_id)
        run = start(self._options())
        if reused and run.folder is None and run.stopped is None:
            self.remove()
            run = start(self._options())
        # Already here: the caller may end, with a stop signal, before it comes to `after`.
        self.run_id = run.run_id or self.run_id
        return run

    def after(self, *, sound: bool) -> None:
        """Keeps the cluster of the last run for the next one, or removes it."""
        if not sound:
            self.remove()

    def remove(self) -> None:
        """Removes the cluster. Raises InfraError if that fails; `harness clean --kept` then reports the reason."""
        run_id, self.run_id = self.run_id, ""
        if not run_id:
            return
        with signals.ignored(), contextlib.ExitStack() as stack:
            record = kept.found(run_id)
            if record is not None:
                stack.callback(kept.forget, run_id)
                registry.backend(record.backend).clean(run_id)
