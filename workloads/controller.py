# SPDX-License-Identifier: Apache-2.0
"""The controllers as a replicated state machine: the metadata of many broker groups, changed and read by clients.

The clients act as brokers, and no broker has to run: they apply for ids (1013), register (1003), have a master elected
(1002), change the SyncStateSet as the master (1001), and send heartbeats (904). They read what the controllers know
(1004, 1006, 1012), and have ids and whole groups removed (1011). The groups have their operations one after the other;
a group is a register whose version is its two epochs.

Half of the clients ask all controllers for the leader. Each of the others asks only its home controller, so it
continues to use a leader that is cut off as long as that leader answers.

At the end all servers are restarted, and every controller is asked for every group. Then the leader is restarted, and
all are asked again, for some rounds: only a leader answers, so each round shows the state of another controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Phase, RunContext, Workload
from harness.generator import Generator, Invocation
from harness.run.phases import AnotherLeads
from infra.options import Seconds, option
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.controller_client import ControllerOps
from workloads.fake_brokers import FakeBrokers

if TYPE_CHECKING:
    from checkers.base.api import Checker

CONTROLLER: Final = "controller"
BROKER: Final = "broker"

_WIDTH: Final = 4
"""Groups under load at one time."""

_FORGET_EVERY: Final = 4
"""One in so many groups is removed after its last operation; reads follow."""

_SERVING_TRIES: Final = 5

_TAIL: Final = 8
"""Operations on a group from its removal on."""


@dataclass(frozen=True)
class ControllerWorkOptions:
    """The options of the workload."""

    ops_per_group: int = option(160, "Operations on a group before the next group replaces it.", low=20, high=10**6)
    snapshot_every: Seconds = option(
        Seconds(4), "jRaftSnapshotIntervalSecs: how often a JRaft controller takes a snapshot.", low=1
    )
    rounds: int = option(3, "How often, at the end, the leader is restarted and all are asked again.", low=0, high=20)


class ControllerWorkload(Workload):
    """Changes and reads of the metadata of many groups; afterwards each controller is asked for all of it."""

    name = "controller"
    summary = "the controllers as a replicated state machine: ids, masters, SyncStateSets and their epochs, snapshots"
    topologies = ("controller",)
    Options: ClassVar[type] = ControllerWorkOptions
    topology_options: ClassVar[Mapping[str, Any]] = {"brokers": 0, "log_reads": True}
    without = (BROKER,)
    default_rate = 120.0

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.controllers: Mapping[str, tuple[str, int]] = {}
        self._brokers: FakeBrokers | None = None

    async def setup(self, context: RunContext) -> None:
        found = context.deployment.record.having(CONTROLLER)
        self.controllers = {s.node: (s.host, s.ports[CONTROLLER]) for s in found}
        self._brokers = FakeBrokers(self.controllers)

    def client(self, context: RunContext, thread: int) -> Client:
        assert self._brokers is not None, "setup must be called first"
        nodes = list(self.controllers)
        home = None if thread % 2 == 0 else nodes[thread // 2 % len(nodes)]
        return ControllerOps(self.controllers, self._brokers, home, self.plan.op_deadline_s)

    def generator(self, rng: Random, phase: str) -> Generator:
        seed, most = rng.getrandbits(32), self.options.ops_per_group
        return gen.key_window(
            rng,
            width=_WIDTH,
            per_key=most,
            make=lambda key: lambda n: op_at(seed, key, n, most),
            prefix="g" if phase == "main" else f"{phase}.g",
        )

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        asks = [
            Invocation(f, key, None, {"controller": node})
            for key in keys
            for f in ("view", "next", "read")
            for node in self.controllers
        ]
        who = [Invocation("leader", None, None, {"controller": node}) for node in self.controllers]
        # A leader applies its log before it answers.
        serving = gen.limit(_SERVING_TRIES, gen.until_ok(gen.repeat(Invocation("serving"))))
        return gen.phases(gen.clients(gen.concurrency_limit(1, serving)), gen.clients(who), gen.clients(asks))

    def phases(self, usual: Sequence[Phase]) -> Sequence[Phase]:
        """After the final reads, more reads from other leaders."""
        return [*usual, *[AnotherLeads(CONTROLLER)] * round(self.options.rounds)]

    def server_settings(self) -> Mapping[str, str]:
        every = str(max(1, round(self.options.snapshot_every)))
        jraft = str(self.plan.server.options.get("controller_type", "")).startswith("jraft")
        return {
            "controller.notifyBrokerRoleChanged": "false",  # no client listens
            **({"controller.jRaftSnapshotIntervalSecs": every} if jraft else {}),
        }

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.controllers.answers import Controllers
        from checkers.run.availability import Availability
        from checkers.run.faults import Faults
        from checkers.run.stats import Stats
        from checkers.servers.deaths import ServersDied

        electors = {kind: nodes for kind, nodes in deployment.quorums.items() if kind != BROKER}
        return [
            Controllers(),
            Availability(list(deployment.nodes), self.plan.recovery_limit_s, self.acknowledges, electors),
            ServersDied(),
            Faults(planned=self.plan.faulty),
            Stats(["apply", "elect", "alter", "read", "view"]),
        ]

    def acknowledges(self, op: Op) -> bool:
        return op.type == "ok" and op.f in ("apply", "register", "elect", "alter", "clean", "forget")


def op_at(seed: int, key: str, n: int, most: int) -> Invocation:
    """The n-th of `most` ops on a group: a function of its arguments alone. First ids, then all kinds."""
    dice, extra = Random(f"{seed}/{key}/{n}"), {"n": n}
    if _is_forgotten(key) and n >= most - _TAIL:
        f = "forget" if n == most - _TAIL else dice.choice(("read", "view", "next"))
        return Invocation(f, key, None, extra)
    if n < 5:
        return Invocation("apply", key, None, extra)
    fs = ("alter", "read", "elect", "register", "view", "next", "apply", "clean")
    weights = (30, 25, 10, 10, 12, 5, 5, 3)
    return Invocation(dice.choices(fs, weights)[0], key, None, extra)


def _is_forgotten(key: str) -> bool:
    number = key.rpartition("g")[2]
    return number.isdecimal() and int(number) % _FORGET_EVERY == _FORGET_EVERY - 1
