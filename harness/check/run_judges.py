# SPDX-License-Identifier: Apache-2.0
"""The judges of every run, found through the entry points `harness.judges`.

A workload names the judges of its operations. These look at what any run may have: files of servers after a failure of
power, dead disks, threads, terms, logs. Each has a condition of its own (`concerns`), and a package of a user can add
more. They judge in the order of their `order`, and of their names; without an `order` they come last.

A judge that cannot be loaded is `unknown`, with the package that registers it, so that it never makes a run valid.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Protocol

from checkers.base.api import Checker
from checkers.base.schema import BadOp
from harness.plan.plan import PlanError
from harness.signals import Stopped
from results.errors import HistoryError
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

JUDGES: Final = "harness.judges"
_OWN: Final = "rocketmq-harness"
_LAST: Final = 1000
_PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


class RunJudge(Checker, Protocol):
    """A class that is constructed without arguments. It judges the runs that concern it; `order`: see above."""

    @classmethod
    def concerns(cls, run: RunRecord) -> bool:
        """True if the run has what it judges; it is not constructed for any other run, and no result mentions it."""


class _Unusable:
    """Stands for a judge that cannot be loaded, or that fails to see what concerns it."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why

    def check(self, run: RunRecord) -> CheckResult:
        return CheckResult(self.name, Verdict.UNKNOWN, self.why)


def registered() -> Sequence[EntryPoint]:
    """The entry points of all packages. Raises PlanError if this package registers none: then its installation is
    older than its sources.
    """
    return _registered(tuple(sys.path))


@cache
def _registered(path: tuple[str, ...]) -> Sequence[EntryPoint]:
    found = list(entry_points(group=JUDGES))
    own = _of_checkout() or [point for point in found if point.dist is not None and point.dist.name == _OWN]
    if not own:
        raise PlanError(f"{_OWN} registers no judges of every run: its sources have changed since; install it again")
    every = [*own, *(point for point in found if point.dist is None or point.dist.name != _OWN)]
    for name, count in Counter(point.name for point in every).items():
        if count > 1:
            packages = ", ".join(sorted(_package(point) for point in every if point.name == name))
            raise PlanError(f"several packages register the judge {name!r}: {packages}; remove all but one")
    return every


def _package(point: EntryPoint) -> str:
    return _OWN if point.dist is None else point.dist.name


def _of_checkout() -> list[EntryPoint]:
    """This package's entry points in a checkout, which is newer than the metadata of its installation; else none."""
    if not _PROJECT.is_file():
        return []
    project = tomllib.loads(_PROJECT.read_text()).get("project", {})
    named = project.get("entry-points", {}).get(JUDGES, {}) if project.get("name") == _OWN else {}
    return [EntryPoint(name, value, JUDGES) for name, value in named.items()]


def judges_of(run: RunRecord) -> list[Checker]:
    """The judges of every run that this run concerns, in their order."""
    found: list[tuple[int, str, Checker]] = []
    for point in registered():
        order: Any = _LAST
        try:
            cls = point.load()
            order = getattr(cls, "order", _LAST)
            if not cls.concerns(run):
                continue
            judge: Checker = cls()
        except Stopped:
            raise
        except (HistoryError, BadOp) as problem:
            judge = _Unusable(point.name, str(problem))
        except (Exception, SystemExit) as problem:  # whatever a module of another package does
            text = f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
            judge = _Unusable(point.name, f"the judge {point.name!r} of the package {_package(point)} failed: {text}")
        found.append((order if isinstance(order, int) else _LAST, point.name, judge))
    return [judge for _, _, judge in sorted(found, key=lambda one: one[:2])]
