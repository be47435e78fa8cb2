# SPDX-License-Identifier: Apache-2.0
"""Linearizable registers, one per key, on a DLedger group: RIP-59's Jepsen test.

Every written value is unique on its key, so that a read identifies the write. Half of the clients look for the leader
on all nodes. Each of the others has a home node and uses only the leader that this node reports. It therefore continues
to use a leader that is cut off or stopped as long as its home node does. The history so includes operations on the
minority side of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import harness.generator as gen
from harness.api import Client, Completion, RunContext, Watch, Workload
from harness.generator import Generator, Invocation
from infra.options import option
from infra.systems.dledger.client import Answer, ReadMode, RegisterClient
from infra.systems.dledger.entries import summarize_entries
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.ground_truth import UNASKED, read_all

if TYPE_CHECKING:
    from checkers.base.api import Checker

_ACTIVE_KEYS = 5
"""Keys under load at one time: enough contention on each for the checker to have something to find."""

_RECENT = 4
"""A compare-and-set expects one of the last few values its key may hold, so that many succeed and some do not."""


_FINAL_TRIES = 30


@dataclass(frozen=True)
class RegisterOptions:
    """The options of the workload."""

    read_mode: Literal["log", "unsafe"] = option(
        "log", "log (through the Raft log, linearizable) or unsafe (any node's own state; the run must be invalid)."
    )
    snapshot: bool = option(False, "Use RIP-59's snapshot mode (expect findings).")
    ops_per_key: int = option(200, "Number of operations on a key before the next key replaces it.", low=1, high=10**9)


class RegisterWorkload(Workload):
    """Reads, writes and compare-and-sets on many keys; afterwards every key is read from every replica."""

    name = "register"
    summary = "linearizable registers on a DLedger group (RIP-59's test): read, write and cas on independent keys"
    topologies = ("dledger",)
    model = "cas-register"
    reads_files = True
    Options: ClassVar[type] = RegisterOptions

    def client(self, context: RunContext, thread: int) -> Client:
        servers = context.deployment.servers()
        endpoints = {server.node.name: server.endpoint for server in servers}
        home = None if thread % 2 == 0 else list(endpoints)[thread // 2 % len(endpoints)]
        return RegisterOps(endpoints, home, self.plan.op_deadline_s, self.options.read_mode)

    def generator(self, rng: Random, phase: str) -> Generator:
        seed = rng.getrandbits(32)
        return gen.key_window(
            rng,
            width=_ACTIVE_KEYS,
            per_key=self.options.ops_per_key,
            make=lambda key: lambda n: op_at(seed, key, n),
            prefix="k" if phase == "main" else f"{phase}.",
        )

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """A quorum read of every key, repeated if it failed; then every key from each replica alone."""
        quorum = [_until_answered(Invocation("read", key, extra={"mode": "log"})) for key in keys]
        local = [Invocation("replica-read", key, extra={"node": node}) for key in keys for node in nodes]
        return gen.phases(gen.clients(quorum), gen.clients(local))

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.linearizability import Linearizable
        from checkers.linearizability.models.registers import CasRegister
        from checkers.run.availability import Availability
        from checkers.run.convergence import Convergence
        from checkers.run.faults import Faults
        from checkers.run.stats import Stats
        from checkers.servers.dledger import DledgerInvariants
        from checkers.servers.logs import ServerLogs
        from checkers.servers.replication import Replication

        nodes = list(deployment.nodes)
        return [
            Availability(nodes, self.plan.recovery_limit_s, self.acknowledges),
            Linearizable(CasRegister()),
            Convergence(nodes, self.plan.recovery_limit_s),
            Replication(self.plan.recovery_limit_s),
            DledgerInvariants(nodes, self.options.snapshot),
            ServerLogs(),
            Faults(planned=self.plan.faulty),
            Stats(["read", "write", "cas"]),
        ]

    def watch(self) -> Watch | None:
        from checkers.linearizability.register_watch import RegisterWatch

        return RegisterWatch()

    def after_stop(self, context: RunContext, folder: Path) -> None:
        """The Raft log of every server."""
        read_all(context, summarize_entries, folder, UNASKED)

    def acknowledges(self, op: Op) -> bool:
        """A write, a compare-and-set (applied or refused by the state machine) or a read through the log."""
        if op.f == "cas" and op.type == "fail":
            return op.extra.get("applied") is False
        return op.type == "ok" and (op.f in ("write", "cas") or (op.f == "read" and self.options.read_mode == "log"))

    def server_settings(self) -> Mapping[str, str]:
        return {"dledger.enableSnapshot": "true"} if self.options.snapshot else {}


def op_at(seed: int, key: str, n: int) -> Invocation:
    """The n-th op on a key: 2 reads, 2 writes and 1 cas in 5, a function of its arguments alone.

    It writes the value n + 1, so no value is written twice on a key. A cas expects one of the `_RECENT` values that
    were last to be written before it.
    """
    dice = Random(f"{seed}/{key}/{n}")
    kind = _kind(dice)
    if kind == "read":
        return Invocation("read", key)
    recent = [] if kind == "write" else _written_before(seed, key, n)
    return Invocation("cas", key, [dice.choice(recent), n + 1]) if recent else Invocation("write", key, n + 1)


def _kind(dice: Random) -> str:
    return dice.choice(("read", "read", "write", "write", "cas"))


def _written_before(seed: int, key: str, n: int) -> list[int]:
    earlier = (m for m in reversed(range(n)) if _kind(Random(f"{seed}/{key}/{m}")) != "read")
    return [m + 1 for m in islice(earlier, _RECENT)]


class RegisterOps:
    """One process's client: turns ops into single attempts of `RegisterClient`, and answers into completions."""

    def __init__(
        self, endpoints: Mapping[str, tuple[str, int]], home: str | None, deadline_s: float, read_mode: str
    ) -> None:
        self.endpoints, self.home, self.deadline_s, self.read_mode = endpoints, home, deadline_s, read_mode
        self.main = RegisterClient(endpoints, home=home, deadline_s=deadline_s)
        self.replicas: dict[str, RegisterClient] = {}

    def _replica(self, node: str) -> RegisterClient:
        """A client that asks this node alone, leader or not."""
        if node not in self.replicas:
            self.replicas[node] = RegisterClient(self.endpoints, pinned=node, deadline_s=self.deadline_s)
        return self.replicas[node]

    async def open(self) -> None:
        """Does nothing: the first op that needs a connection makes it."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "write":
                return _completion(await self.main.write(_key(op), op.value), op.value)
            case "cas":
                expected, new = op.value
                return _cas(await self.main.cas(_key(op), expected, new), op.value)
            case "read" if self.home is not None and self._mode(op) == "unsafe":
                answer = await self._replica(self.home).read(_key(op), mode="unsafe")
                return _completion(answer, answer.value)
            case "read":
                answer = await self.main.read(_key(op), mode=self._mode(op))
                return _completion(answer, answer.value)
            case "replica-read":
                answer = await self._replica(op.extra["node"]).read(_key(op), mode="unsafe")
                return _completion(answer, answer.value)
        raise ValueError(f"the register workload does not know {op.f!r}")

    def _mode(self, op: Op) -> ReadMode:
        """The final reads go through the log whatever the plan's read mode."""
        return "log" if op.extra.get("mode", self.read_mode) == "log" else "unsafe"

    async def close(self) -> None:
        for client in (self.main, *self.replicas.values()):
            await client.close()


def _until_answered(read: Invocation) -> Generator:
    """Sends one read at a time until one is ok. Right after a restart, a client may still ask the old leader."""
    return gen.concurrency_limit(1, gen.limit(_FINAL_TRIES, gen.until_ok(gen.repeat(read))))


def _key(op: Op) -> str:
    if op.key is None:
        raise ValueError(f"op {op.index}: {op.f} needs a key")
    return op.key


def _completion(answer: Answer, value: Any) -> Completion:
    outcome = answer.outcome
    reported = {"node": answer.node, "term": answer.term, "log_index": answer.index, "code": answer.code}
    extra = {k: v for k, v in reported.items() if v is not None}
    if outcome.type == "ok":
        return Completion("ok", value, extra=extra)
    return Completion(outcome.type, error=outcome.why, extra=extra)


def _cas(answer: Answer, value: Any) -> Completion:
    """A cas that the state machine refused certainly did not happen: `fail`."""
    done = _completion(answer, value)
    if done.type == "ok" and not answer.applied:
        return Completion(
            "fail", error="the register did not hold the expected value", extra={**done.extra, "applied": False}
        )
    return done
