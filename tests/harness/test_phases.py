# SPDX-License-Identifier: Apache-2.0
"""The phases behind the final reads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.api import PhaseSession
from harness.run.phases import AnotherLeads
from harness.run.session import Session
from results.op import Op
from workloads.places import group_of


class Rounds:
    """A session of which the leading server is not found from the n-th restart on."""

    def __init__(self, found: int) -> None:
        self.found, self.leaderless = found, set[str]()
        self.did: list[str] = []
        self.keys: list[str] = []
        self.plan = SimpleNamespace(nodes=("n1",))
        self.workload = SimpleNamespace(final=self.final, final_limit_s=120.0)

    def announce(self, line: str) -> None:
        pass

    def final(self, keys: object, nodes: object) -> None:
        self.did.append("reads")

    async def execute(self, ops: object, phase: str) -> None:
        assert phase == "final"
        if not self.did or self.did[-1] == "run":
            self.did.append("restart")
            if self.did.count("restart") > self.found:
                self.leaderless.add("controller")
        self.did.append("run")


@pytest.mark.parametrize(("found", "restarts"), [(3, 3), (1, 2), (0, 1)])
def test_nobody_waits_twice_for_a_leader(found: int, restarts: int) -> None:
    """The round that finds no leader still reads: one may come late."""
    session = Rounds(found)
    for _ in range(3):
        asyncio.run(AnotherLeads("controller").run(cast(PhaseSession, cast(Any, session))))
    assert session.did == ["restart", "run", "reads", "run"] * restarts


def test_a_recovery_lasts_until_every_group_serves_again() -> None:
    """Seen on 5.5.0: one of two groups never came back, the recovery ended with the first send to the other one, and
    nothing was left by which the lost one could be judged.
    """
    workload = SimpleNamespace(acknowledges=lambda op: op.type == "ok", group_of=group_of, groups=("a", "b"))
    session: Any = SimpleNamespace(workload=workload, observer=SimpleNamespace(all_follow=True), _serving=set())

    def done(key: str | None, kind: str = "ok") -> bool:
        return Session.recovered(session, Op(0, 0, 0, kind, "send", key, 1))

    assert [done("t:b:0"), done("t:a:0", "fail"), done("t:b:1")] == [False, False, False]
    assert done("t:a:0")
    assert done("t:b:0"), "both have served since the heal"
    session._serving.clear()
    session.observer.all_follow = False
    assert [done("t:a:0"), done("t:b:0")] == [False, False]
    session.observer.all_follow = True
    assert done("t:b:0")
    session._serving.clear()
    workload.groups = ()
    assert done("t:a:0"), "a workload without groups of its own"
    assert done(None)
