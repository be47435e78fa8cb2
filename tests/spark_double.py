# SPDX-License-Identifier: Apache-2.0
"""As much of a Spark context as the job needs, in this process: what runs on real Spark is in tests/cluster.

A task that asks for it dies as a worker does that is killed: Spark then fails the whole job that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast


class Killed(Exception):
    """The driver's exception for a worker that was killed."""

    def __init__(self) -> None:
        super().__init__("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")


class _Tasks:
    def __init__(self, items: Sequence[Any], do: Callable[[Any], Any] = lambda item: item) -> None:
        self.items, self.do = items, do

    def map(self, do: Callable[[Any], Any]) -> _Tasks:
        return _Tasks(self.items, do)

    def flatMap(self, do: Callable[[Any], Any]) -> _Tasks:
        return _Tasks([found for item in self.collect() for found in do(item)])

    def groupByKey(self, parts: int) -> _Tasks:
        groups: dict[Any, list[Any]] = {}
        # Spark promises no order of the values of a key.
        for key, value in reversed(self.collect()):
            groups.setdefault(key, []).append(value)
        return _Tasks(list(groups.items()))

    def collect(self) -> list[Any]:
        return [self.do(item) for item in self.items]

    def toLocalIterator(self, prefetchPartitions: bool = False) -> Iterator[Any]:
        return iter(self.collect())


class Context:
    """`jobs` counts what was asked of it."""

    defaultParallelism = 2
    version, master = "double", "here"

    def __init__(self) -> None:
        self.jobs = 0
        self.stopped = False
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.stopped))

    def parallelize(self, items: Sequence[Any], slices: int) -> _Tasks:
        self.jobs += 1
        return _Tasks(list(items))

    def cancelAllJobs(self) -> None:
        """Nothing goes on here."""

    def stop(self) -> None:
        """It stays for the next call."""


def context() -> Any:
    return cast(Any, Context())
