"""A workload of one's own: the register test with nine writes to one read, or as many as one likes."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import harness.generator as gen
from checkers.api import Checker
from checkers.stats import Stats
from harness.generator import Generator, Invocation
from infra.options import option
from results.deployment import DeploymentRecord
from workloads.register import RegisterOptions, RegisterWorkload


@dataclass(frozen=True)
class WriteHeavyOptions(RegisterOptions):
    writes: int = option(9, "Writes to one read.", low=1)


class WriteHeavy(RegisterWorkload):
    name = "write-heavy"
    summary = "the register test with nine writes to one read"
    Options = WriteHeavyOptions

    def generator(self, rng: Random, phase: str) -> Generator:
        keys, writes = self.options.ops_per_key, self.options.writes
        return gen.key_window(rng, 3, keys, lambda key: lambda n: nth(key, n, writes), prefix=f"{phase}.")

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        return [Stats(["read", "write"]) if c.name == "stats" else c for c in super().checkers(deployment)]


def nth(key: str, n: int, writes: int = 9) -> Invocation:
    """The n-th op on a key. No value is written twice, so that a read names the write it saw."""
    return Invocation("read", key) if n % (writes + 1) == writes else Invocation("write", key, n + 1)
