# SPDX-License-Identifier: Apache-2.0
"""A workload of one's own: the register test with nine writes to one read."""

from collections.abc import Sequence
from random import Random

from rocketmq_harness import Checker, DeploymentRecord, Generator, Invocation, RegisterWorkload, Stats
from rocketmq_harness import generator as gen


class WriteHeavy(RegisterWorkload):
    name = "write-heavy"
    summary = "the register test with nine writes to one read"

    def generator(self, rng: Random, phase: str) -> Generator:
        keys = self.options.ops_per_key
        return gen.key_window(rng, 3, keys, lambda key: lambda n: nth(key, n), prefix=f"{phase}.")

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        return [Stats(["read", "write"]) if c.name == "stats" else c for c in super().checkers(deployment)]


def nth(key: str, n: int) -> Invocation:
    """The n-th op on a key. No value is written twice, so that a read names the write it saw."""
    return Invocation("read", key) if n % 10 == 9 else Invocation("write", key, n + 1)
