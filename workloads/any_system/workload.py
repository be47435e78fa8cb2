# SPDX-License-Identifier: Apache-2.0
"""Operations of a model on any server, by a client program of the user.

Each thread has its own program, which uses one node. So the history includes operations at nodes that are cut off, and
at replicas that lag, if the program sends them there.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

import harness.generator as gen
from harness.api import Client, Phase, RunContext, Workload
from harness.generator import Generator
from harness.run.phases import Restart
from infra.machines.api import InfraError, SettingsError, Share
from infra.options import option
from infra.systems.any_system.description import read_description
from infra.systems.any_system.topology import AnyTopology
from results.deployment import DeploymentRecord
from results.op import OK, Op
from workloads.any_system.objects import OBJECTS, Object
from workloads.any_system.pipe import PipeClient

if TYPE_CHECKING:
    from checkers.base.api import Checker

_ACTIVE_KEYS = 5
"""Keys under load at one time."""


@dataclass(frozen=True)
class AnyOptions:
    """The options of the workload."""

    model: Literal[
        "register", "cas-register", "mutex", "fifo-queue", "unordered-queue", "log", "counter", "grow-only-set"
    ] = option("register", "The object that the system offers, which decides the operations and the judge.")
    client_arg: tuple[str, ...] = option((), "One more word of the client program's command (repeat).")
    ops_per_key: int = option(100, "Number of operations on a key before the next key replaces it.", low=1, high=10**6)
    restart: bool = option(False, "Restart all servers before the final reads, so that these show what outlives it.")


class AnyWorkload(Workload):
    """See the module."""

    name = "any"
    summary = "the operations of a model (register, lock, queue ...) on any server, by a client program of yours"
    topologies = ("any",)
    Options: ClassVar[type] = AnyOptions
    default_rate = 100.0
    restart_before_final = False

    @property
    def object(self) -> Object:
        """The model's operations."""
        return OBJECTS[self.options.model]

    def shares(self) -> Sequence[Share]:
        """Returns nothing. Raises SettingsError for a client program that is missing, before any node exists."""
        description = read_description(Path(str(self.plan.server.options.get("system"))))
        part = description.client
        if part is None:
            raise SettingsError(f"--system {description.path}: client: is missing; a table [client] is right")
        program = part.run[0]
        found = [shutil.which(one) for one in (program, str(description.here / program))]
        if "{" not in program and not any(found):
            raise SettingsError(f"--system {description.path}: client.run: this machine has no program {program}")
        return ()

    def client(self, context: RunContext, thread: int) -> Client:
        topology = context.deployment.topology
        if not isinstance(topology, AnyTopology):
            raise InfraError(f"the workload {self.name} needs the topology {AnyTopology.name}")
        deadline_s = self.plan.op_deadline_s
        node, argv, env = topology.client_command(thread, deadline_s)
        # Without it, a Python program that forgets to flush would be silent.
        env = {"PYTHONUNBUFFERED": "1", **env}
        folder = topology.description.here
        return PipeClient([*argv, *self.options.client_arg], env, folder, node, deadline_s, self.object.value)

    def generator(self, rng: Random, phase: str) -> Generator:
        seed = self._seed
        return gen.key_window(
            rng,
            width=_ACTIVE_KEYS,
            per_key=self.options.ops_per_key,
            make=lambda key: self.object.make(seed, key),
            prefix="k" if phase == "main" else f"{phase}.",
        )

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The final ops of each key, one at a time."""
        per_key = self.options.ops_per_key
        reads = [gen.concurrency_limit(1, self.object.final(self._seed, key, per_key)) for key in keys]
        return gen.clients(gen.phases(*reads))

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.linearizability import MODELS, Linearizable
        from checkers.run.availability import Availability
        from checkers.run.client_programs import ClientPrograms
        from checkers.run.faults import Faults
        from checkers.run.stats import Stats
        from checkers.servers.deaths import ServersDied

        limit = self.plan.recovery_limit_s
        return [
            Availability(list(deployment.nodes), limit, self.acknowledges, deployment.quorums),
            Linearizable(MODELS[self.options.model]()),
            ServersDied(),
            ClientPrograms(),
            Faults(planned=self.plan.faulty),
            Stats(list(self.object.fs)),
        ]

    def acknowledges(self, op: Op) -> bool:
        """True for any op that a server acknowledged."""
        return op.is_client and op.type == OK

    def phases(self, usual: Sequence[Phase]) -> Sequence[Phase]:
        """The usual phases, with a restart before the last two if that was requested."""
        return [*usual[:-2], Restart(), *usual[-2:]] if self.options.restart else usual

    @property
    def _seed(self) -> int:
        return self.plan.rng("objects").getrandbits(32)
