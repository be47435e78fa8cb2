# SPDX-License-Identifier: Apache-2.0
"""The fault runner on nodes in memory: what it journals, and that everything ends - also when nodes misbehave."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from harness.api import Completion, Evidence, Fault, Injection, Target
from harness.cluster_view import ClusterView
from harness.nemesis.events import generator
from harness.nemesis.runner import Limits, Nemesis, require_disposable
from harness.plan.plan import PlanError
from harness.run.simulate import simulate
from infra.machines.api import InfraError
from infra.systems.api import Deployment
from results.deployment import DeploymentRecord, ServerRecord
from results.op import NEMESIS, Op
from results.strikes import Effect, EffectKind, Strike

NODES = ["n1", "n2", "n3"]
QUICK = Limits(inject_s=5, probe_s=5, heal_s=1, pause_s=0.01, role_s=0)


class Lease:
    def __init__(self, world: "World", node: str) -> None:
        self.world, self.node = world, node

    def heal(self, timeout_s: float = 30) -> None:
        self.world.heals.append(self.node)
        if self.world.unhealable.get(self.node, 0) > 0:
            self.world.unhealable[self.node] -= 1
            raise InfraError(f"{self.node}: undoing a fault failed")
        self.world.hit.pop(self.node, None)


class World:
    """A record of the faults on the nodes, and their planned misbehaviour."""

    def __init__(self) -> None:
        self.hit: dict[str, float] = {}
        """Node -> time to live of the lease it is held under."""
        self.heals: list[str] = []
        self.unhealable: dict[str, int] = {}
        """Node -> the number of heals that fail."""
        self.inject: dict[str, Callable[[], object]] = {}
        self.unseen: set[str] = set()
        self.effect: EffectKind = "down"


NOTHING = object()
"""The result of a node's `inject` that has nothing to do."""


class Hit(Injection):
    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node

    @property
    def detail(self) -> Any:
        return f"{self.node}!"

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect(self.world.effect, self.node)]

    def inject(self, deployment: Deployment, ttl_s: float) -> Any:
        node = self.node
        if node in self.world.inject and (lease := self.world.inject[node]()) is not None:
            return None if lease is NOTHING else lease
        self.world.hit[node] = ttl_s
        return Lease(self.world, node)

    def seen(self, deployment: Deployment) -> Evidence:
        there = self.node in self.world.hit and self.node not in self.world.unseen
        return Evidence(there, f"{self.node} is {'in' if there else 'in no'} trouble")

    def healed(self, deployment: Deployment) -> Evidence:
        well = self.node not in self.world.hit
        return Evidence(well, f"{self.node} is {'well' if well else 'not well'}")


class Trouble(Fault):
    name: ClassVar[str] = "trouble"
    summary: ClassVar[str] = "a fault of these tests"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        return {node: Hit(self.world, node) for node in target.nodes}


class Rig:
    """A runner with its world; `do` carries out one op, as the interpreter would."""

    def __init__(self, limits: Limits = QUICK, leader: str | None = "n2") -> None:
        self.world = World()
        servers = [ServerRecord(node, "broker", group="a") for node in NODES]
        record = DeploymentRecord("toy", dict.fromkeys(NODES, ""), servers, {"a": NODES})
        nodes = [SimpleNamespace(name=name) for name in NODES]
        deployment: Any = SimpleNamespace(nodes=nodes, clients=[], record=record)
        self.leader = leader
        self.runner = Nemesis(deployment, self.fault, self.view, limits)

    def fault(self, strike: Strike) -> Fault:
        if strike.fault != "trouble":
            raise PlanError(f"no nemesis {strike.fault!r}")
        return Trouble(self.world)

    def view(self) -> ClusterView:
        servers = dict.fromkeys(NODES, ("namesrv", "broker"))
        led = {"a": self.leader} if self.leader else {}
        return ClusterView(NODES, servers, dict.fromkeys(NODES, "broker"), {"a": NODES}, led)

    def op(self, f: str, number: int, target: str = "n1,n3") -> Op:
        value = {"fault": "trouble", "id": number}
        more = {"target": target, "seed": 1, "for_s": 10.0} if f == "inject" else {}
        return Op(0, 0, NEMESIS, "invoke", f, value={**value, **more})

    def do(self, f: str, number: int, target: str = "n1,n3") -> Completion:
        return asyncio.run(self.runner.invoke(self.op(f, number, target)))

    def heal_all(self) -> list[str]:
        return asyncio.run(self.runner.heal_all())


def raises(problem: Exception) -> Callable[[], object]:
    def inject() -> object:
        raise problem

    return inject


def test_a_strike_is_seen_and_healed() -> None:
    rig = Rig()
    done = rig.do("inject", 1)
    assert done == Completion(
        "info",
        {
            "fault": "trouble",
            "id": 1,
            "nodes": {"n1": "n1!", "n3": "n3!"},
            "evidence": {"n1": "n1 is in trouble", "n3": "n3 is in trouble"},
            "effects": [{"kind": "down", "node": "n1"}, {"kind": "down", "node": "n3"}],
            "impairs": {"n1": ["n1"], "n3": ["n3"]},
            "seen": True,
        },
    )
    assert rig.world.hit == {"n1": 70.0, "n3": 70.0}
    assert rig.runner.active == ["trouble n1 n3"]
    healed = rig.do("heal", 1)
    assert healed.error is None
    assert healed.value["evidence"] == {"n1": "n1 is well", "n3": "n3 is well"}
    assert rig.runner.active == []
    assert rig.heal_all() == []


def test_the_leader_is_looked_up_when_it_strikes() -> None:
    rig = Rig()
    rig.leader = "n3"
    assert rig.do("inject", 1, "leader").value["nodes"] == {"n3": "n3!"}
    assert rig.runner.active == ["trouble n3 (leader)"]


def test_without_a_leader_nothing_is_struck() -> None:
    rig = Rig(leader=None)
    done = rig.do("inject", 1, "leader")
    assert done.error == "no leader is known, so nothing was injected"
    assert (done.value["seen"], done.value["impairs"]) == (False, {})
    assert rig.do("heal", 1).error is None


def test_a_strike_waits_for_a_leader() -> None:
    rig = Rig(Limits(role_s=60), leader=None)

    async def elected_meanwhile() -> Completion:
        strike = asyncio.create_task(rig.runner.invoke(rig.op("inject", 1, "leader")))
        await asyncio.sleep(0)
        rig.leader = "n1"
        return await strike

    assert asyncio.run(elected_meanwhile()).value["nodes"] == {"n1": "n1!"}


def test_a_role_is_whoever_has_it() -> None:
    rig = Rig(leader="n2")
    assert rig.do("inject", 1, "master").value["nodes"] == {"n2": "n2!"}
    assert set(rig.do("inject", 2, "slaves").value["nodes"]) == {"n1", "n3"}
    assert len(rig.do("inject", 3, "namesrv").value["nodes"]) == 1
    done = rig.do("inject", 4, "controller-leader")
    assert done.error == "no controller-leader is known, so nothing was injected"


def test_a_server_under_a_fault_does_not_die_by_itself() -> None:
    """Deaths are excused by a strike in force, and by one that ended after the process was seen to run."""
    rig = Rig()
    assert not rig.runner.explains_death("n1", "broker", 0)
    rig.do("inject", 1, "n1")
    before = time.monotonic()
    assert rig.runner.explains_death("n1", "broker", before)
    assert not rig.runner.explains_death("n2", "broker", before)
    rig.do("heal", 1)
    assert rig.runner.explains_death("n1", "broker", before)
    assert not rig.runner.explains_death("n1", "broker", time.monotonic())


@pytest.mark.parametrize(
    ("effect", "excused"), [("down", True), ("unsynced-lost", True), ("slow", False), ("cut-off", False)]
)
def test_a_slow_server_has_no_reason_to_die(effect: EffectKind, excused: bool) -> None:
    rig = Rig()
    rig.world.effect = effect
    rig.do("inject", 1, "n1")
    assert rig.runner.explains_death("n1", "broker", 0) is excused


def test_strikes_overlap_and_end_on_their_own() -> None:
    rig = Rig()
    rig.do("inject", 1, "n1")
    rig.do("inject", 2, "n2,n3")
    assert rig.runner.active == ["trouble n1", "trouble n2 (leader) n3"]
    rig.do("heal", 1)
    assert set(rig.world.hit) == {"n2", "n3"}
    assert rig.heal_all() == []
    assert rig.world.hit == {}
    assert rig.do("heal", 2).value["note"] == "it was not in force"


def test_half_a_strike_is_taken_back() -> None:
    rig = Rig()
    rig.world.inject["n2"] = raises(InfraError("n2: no nft"))
    done = rig.do("inject", 1, "n1,n2,n3")
    assert done.error == "injection failed on n2: n2: no nft; all of it was undone"
    assert (done.value["seen"], done.value["impairs"]) == (False, {})
    assert rig.world.hit == {}
    assert sorted(rig.world.heals) == ["n1", "n3"]
    assert rig.runner.active == []
    assert rig.do("heal", 1).error is None


def test_half_a_strike_that_cannot_be_taken_back_is_told() -> None:
    rig = Rig()
    rig.world.inject["n2"] = raises(RuntimeError("a bug"))
    rig.world.unhealable["n1"] = 10**9
    done = rig.do("inject", 1, "n1,n2")
    assert done.error is not None
    assert done.error.startswith(
        "injection failed on n2: RuntimeError: a bug; and not all of it could be undone: trouble"
    )
    assert done.value["impairs"] == {"n1": ["n1"], "n2": ["n2"]}
    assert rig.runner.active == ["trouble n1 n2 (leader) (not healed)"]
    rig.world.unhealable["n1"] = 0
    assert rig.do("heal", 1).error is None
    assert rig.world.hit == {}


def test_a_heal_is_tried_again() -> None:
    rig = Rig()
    rig.do("inject", 1)
    rig.world.unhealable["n3"] = 2
    assert rig.do("heal", 1).error is None
    assert rig.world.heals.count("n3") == 3
    assert rig.world.heals.count("n1") == 1


def test_what_cannot_be_healed_is_told_every_time() -> None:
    rig = Rig(Limits(heal_s=0.05, pause_s=0.01))
    rig.do("inject", 4)
    rig.world.unhealable["n3"] = 10**9
    assert rig.do("heal", 4).error == "trouble 4 on n3: n3: undoing a fault failed"
    assert rig.runner.active == ["trouble n1 n3 (not healed)"]
    assert rig.heal_all() == ["trouble 4 on n3: n3: undoing a fault failed"]
    rig.world.unhealable.clear()
    assert rig.heal_all() == []
    assert rig.runner.active == []


def test_an_undo_without_effect_is_not_healed() -> None:
    rig = Rig(Limits(heal_s=0.05, pause_s=0.01))
    rig.world.inject["n1"] = lambda: rig.world.hit.update(n1=1.0) or SimpleNamespace(heal=lambda timeout_s=30: None)
    rig.do("inject", 1, "n1")
    assert rig.do("heal", 1).error == "trouble 1 on n1: n1 is not well"


def test_no_effect_is_told() -> None:
    rig = Rig()
    rig.world.unseen = {"n3"}
    done = rig.do("inject", 1)
    assert done.error == "no effect seen on n3: n3 is in no trouble"
    assert done.value["seen"]
    rig.world.unseen = {"n1", "n2"}
    assert not rig.do("inject", 2, "n2").value["seen"]


def test_a_dead_target_is_no_failure() -> None:
    rig = Rig()
    rig.world.inject["n1"] = lambda: NOTHING
    done = rig.do("inject", 1, "n1")
    assert (done.error, done.value["seen"], done.value["impairs"]) == (None, False, {})
    assert done.value["evidence"] == {"n1": "n1 is in no trouble"}
    healed = rig.do("heal", 1)
    assert (healed.error, healed.value["evidence"]) == (None, {"n1": "nothing was injected here"})


def test_what_no_heal_takes_back_is_an_effect_of_a_strike_that_failed() -> None:
    """The power of a node was cut, then the other one's could not be: the judges must know that data may be gone."""
    for effect, lasting in (("down", False), ("unsynced-lost", True)):
        rig = Rig()
        rig.world.effect = effect  # type: ignore[assignment]
        rig.world.inject["n3"] = raises(InfraError("n3: no volume"))
        done = rig.do("inject", 1)
        assert done.value["seen"] is False
        assert [e["kind"] for e in done.value["effects"]] == ([effect] * 2 if lasting else [])


def test_a_node_that_hangs_hangs_nothing_and_is_undone_late() -> None:
    rig = Rig(Limits(inject_s=0.05, heal_s=5, pause_s=0.01))
    release = threading.Event()
    rig.world.inject["n2"] = lambda: release.wait(30) and None
    done = rig.do("inject", 1, "n1,n2")
    assert done.error == "injection failed on n2: no answer within 0.05 s; all of it was undone"
    assert rig.world.hit == {}
    release.set()
    assert rig.heal_all() == []
    assert rig.world.hit == {}
    assert rig.world.heals == ["n1", "n2"]


def test_a_node_that_hangs_for_good_is_told() -> None:
    rig = Rig(Limits(inject_s=0.05, heal_s=0.05, pause_s=0.01))
    release = threading.Event()
    rig.world.inject["n2"] = lambda: release.wait(30) and None
    rig.do("inject", 1, "n2")
    assert rig.heal_all() == ["work on n2 that had to end within 0.05 s is still running; its lease will end it"]
    release.set()


def test_a_cancelled_injection_is_healed_at_the_end() -> None:
    rig = Rig()
    started, release = threading.Event(), threading.Event()

    def slowly() -> None:
        started.set()
        release.wait(30)

    rig.world.inject["n1"] = slowly

    async def interrupted() -> list[str]:
        strike = asyncio.create_task(rig.runner.invoke(rig.op("inject", 1)))
        await asyncio.to_thread(started.wait)
        strike.cancel()
        with pytest.raises(asyncio.CancelledError):
            await strike
        healing = asyncio.create_task(rig.runner.heal_all())
        await asyncio.sleep(0)
        release.set()
        return await healing

    assert asyncio.run(interrupted()) == []
    assert rig.world.hit == {}
    assert rig.runner.active == []


def test_a_heal_asks_for_no_options_again() -> None:
    """Its op has none, and the fault may be one that needs some."""
    rig = Rig()
    assert rig.do("inject", 1).error is None
    rig.runner._fault = lambda strike: raises(PlanError("it needs the option set"))()  # type: ignore[assignment,return-value]
    healed = rig.do("heal", 1)
    assert healed.error is None
    assert rig.world.hit == {}


def test_what_it_does_not_know_it_does_not_do() -> None:
    rig = Rig()
    for value in (None, {"fault": "else", "id": 1}, {"fault": "trouble"}):
        done = asyncio.run(rig.runner.invoke(Op(0, 0, NEMESIS, "invoke", "inject", value=value)))
        assert (done.error or "").startswith(f"the nemesis does not know inject of {value!r}: ")
    assert rig.do("inject", 1, "n9").error == "trouble targets n9: no such node"
    rig.do("inject", 2)
    assert rig.do("inject", 2).error == "strike 2 is already active; nothing was injected"


def test_the_schedule_as_ops() -> None:
    found = [Strike(1, "a", "n1", 10.0, 7, at_s=5.0), Strike(2, "b", "leader", 5.0, 8, at_s=15.0)]
    ops = [op for op in simulate(generator(found)) if op.type == "invoke"]
    assert [(op.time // 10**9, op.process, op.f, op.value["id"]) for op in ops] == [
        (5, NEMESIS, "inject", 1),
        (15, NEMESIS, "heal", 1),
        (15, NEMESIS, "inject", 2),
        (20, NEMESIS, "heal", 2),
    ]
    assert ops[0].value == {"fault": "a", "id": 1, "target": "n1", "seed": 7, "for_s": 10.0}


def test_machines_not_marked_disposable_are_spared() -> None:
    with pytest.raises(PlanError, match=r"trouble would stop servers .* --disposable"):
        require_disposable([Trouble(World())])
    require_disposable([])
