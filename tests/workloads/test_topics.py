# SPDX-License-Identifier: Apache-2.0
"""The workload `topics` in virtual time, against a group in memory; and its client against toy servers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from sim.plays import judged as judged_by
from sim.plays import layout
from sim.plays import play as played
from toy_servers import LONG, ToyServer, run, serving, silence

from harness.api import Completion
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, PlanError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.topologies.layout import CLUSTER
from results.deployment import DeploymentRecord, Traits
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from workloads.brokers import Beliefs
from workloads.consume.crew import Consumers
from workloads.masters import Masters
from workloads.places import Queue, TopicLayout
from workloads.topics.client import DeleteAt, Known, Subscribers, TopicOps
from workloads.topics.lives import Life, after
from workloads.topics.workload import TopicsWorkload

NODES = ("n1", "n2", "n3")
JUDGES = ("members", "lives", "log", "linearizability", "replicas", "topics", "message-ids", "well-formed", "stats")


class Group:
    """Three brokers, n1 the master at first, n2 later. A slave copies topics and deletions some time after its master.

    Answers are lost; what was asked is executed, at once or up to 2 s later, or not. `bug`: what is wrong.
    """

    def __init__(self, rng: Random, trouble: float, bug: str) -> None:
        self.rng, self.trouble, self.bug = rng, trouble, bug
        self.topics: dict[str, int] = {"t": 1}
        self.logs: dict[str, list[Any]] = {}
        self.committed: dict[str, int] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.known_at: dict[tuple[str, str], float] = {}
        self.known = Known()
        self.positions: dict[str, int] = {}
        """Queue -> the offset at which the members of the group go on."""
        self.kept: list[tuple[float, str, int, Any]] = []
        """Messages that a member shows again later: time, queue, offset, id."""
        self.lives: dict[str, int] = {}
        self.delivered = 0

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def master(self) -> str:
        return "n1" if self.now < 20 else "n2"

    def _member(self, op: Op) -> Completion:
        """An op of a member: each one gets what nobody has got yet, of all queues."""
        member = op.extra["member"]
        extra = {"group": op.extra["group"], "member": member}
        if op.f == "join":
            self.lives[member] = self.lives.get(member, 0) + 1
            names = ["t", *(f"t-{n}" for n in range(1, 30))]
            return Completion("ok", f"{member}-{self.lives[member]}", extra={**extra, "topics": names})
        found: list[Any] = [["started", 0, self.lives[member], f"id-{member}"]]
        for key, log in self.logs.items():
            at = self.positions.get(key, 0)
            for offset in range(at, len(log)):
                found += self._deliver(member, key, offset, log[offset])
            self.positions[key] = max(at, len(log))
        for each in [each for each in self.kept if each[0] <= self.now]:
            self.kept.remove(each)
            found += self._deliver(member, *each[1:])
        return Completion("ok", found, extra={**extra, "behind": int(self.bug in ("skip", "cache"))})

    def _deliver(self, member: str, key: str, offset: int, identity: Any) -> list[Any]:
        self.delivered += 1
        life = self.lives[member]
        shown = ["delivered", 0, life, self.delivered, key, offset, identity, 0, None]
        return [shown, ["done", 0, life, self.delivered, True]]

    async def invoke(self, op: Op) -> Completion:
        if op.f in ("join", "take", "crash", "leave"):
            return self._member(op)
        if op.f in ("update-topic", "delete-topic"):
            self.known.note(op)
            done = Completion("info", op.value)
            try:
                done = await self._do(op)
            finally:
                self.known.note(op, done)
            return done
        return await self._do(op)

    async def _do(self, op: Op) -> Completion:
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        luck = self.rng.random()
        if op.f in ("update-topic", "delete-topic", "send", "commit") and luck < self.trouble and self.now < 40:
            if luck < self.trouble / 3:
                return Completion("fail", op.value, "refused")
            if luck < self.trouble / 2:
                self._later(op)
            elif luck < self.trouble * 2 / 3:
                self._execute(op)
            if op.f == "delete-topic" and luck < self.trouble * 0.8:
                await asyncio.sleep(10)  # the deadline ends it
            return Completion("info", op.value, "no answer", {"node": self.master})
        if self.rng.random() < 0.02:
            await asyncio.sleep(self.rng.uniform(0, 0.5))
        done = self._execute(op)
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        return done

    def _later(self, op: Op) -> None:
        async def late() -> None:
            await asyncio.sleep(self.rng.uniform(0, 2))
            self._execute(op)

        task = asyncio.create_task(late())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _execute(self, op: Op) -> Completion:
        key, extra = str(op.key), {"node": self.master}
        topic = key.rsplit(":", 2)[0]
        match op.f:
            case "remake":
                return Completion("ok", {"topics": [], "groups": []}, extra={**extra, "group": "a"})
            case "update-topic":
                self.topics[key] = op.value
                self.known_at.setdefault((self.master, key), self.now)
                return Completion("ok", op.value, extra={"nodes": [self.master]})
            case "delete-topic":
                self.topics.pop(key, None)
                self.known_at = {at: t for at, t in self.known_at.items() if at[1] != key}
                for queue in [queue for queue in self.logs if queue.rsplit(":", 2)[0] == key]:
                    log = self.logs.pop(queue)
                    at = 0 if self.bug != "skip" else self.positions.get(queue, 0) // 2
                    self.positions[queue] = at
                    if self.bug == "cache" and log and self._plant(0.5):
                        self.kept.append((self.now + 35, queue, 0, log[0]))
                    if self.bug == "old" and self._plant(0.5):
                        self.logs[queue] = log
                for queue in [queue for queue in self.committed if queue.rsplit(":", 2)[0] == key]:
                    if not (self.bug == "offset" and self._plant(0.5)):
                        del self.committed[queue]
                return Completion("ok", None, extra={"nodes": list(NODES)})
            case "commit":
                if topic in self.topics:
                    self.committed[key] = op.value
                return Completion("ok", op.value, extra={**extra, "group": "readers"})
            case "committed":
                return Completion("ok", self.committed.get(key), extra={**extra, "group": "readers"})
            case "topic":
                if self.bug == "forget" and key != "t" and key in self.topics and self._plant(0.7):
                    return Completion("ok", None, extra={**extra, "group": "a"})
                if self.bug == "shrink" and key in self.topics and self._plant(0.7):
                    self.topics[key] -= 1
                if self.bug == "return" and key not in self.topics and self._plant(0.5):
                    return Completion("ok", 2, extra={**extra, "group": "a"})
                found = self.topics.get(key)
                if (found or 0) < op.extra["queues"]:
                    self.topics[key] = op.extra["queues"]
                return Completion("ok", found, extra={**extra, "group": "a"})
            case "send":
                return self._send(op, key, topic, extra)
        return self._read(op, key, topic)

    def _send(self, op: Op, key: str, topic: str, extra: dict[str, Any]) -> Completion:
        number = int(key.rsplit(":", 1)[1])
        if number >= self.topics.get(topic, 0):
            return self._unknown(op, topic, self.master)
        if self.bug == "unserved" and op.extra.get("probe") and number == 1:
            return Completion("fail", op.value, "14 SERVICE_NOT_AVAILABLE", extra)
        log = self.logs.setdefault(key, [])
        offset = len(log)
        if not (self.bug == "lose" and topic != "t" and self._plant(0.05)):
            log.append(op.value)
        return Completion("ok", [offset, op.value], extra=extra)

    def _read(self, op: Op, key: str, topic: str) -> Completion:
        node = str(op.extra["node"])
        at = (node, topic)
        self.known_at.setdefault(at, self.now + (0 if node == self.master else self.rng.uniform(0, 3)))
        copied = node == self.master or self.now >= self.known_at[at]
        if not copied or int(key.rsplit(":", 1)[1]) >= self.topics.get(topic, 0):
            return self._unknown(op, topic, node)
        log = self.logs.get(key, [])
        shown = [[n, log[n]] for n in range(op.value, min(op.value + 20, len(log)))]
        low = 0
        if self.bug == "minimum" and len(log) > 3 and self._plant(0.05):
            low = len(log) + 1 if self.rng.random() < 0.5 else 2
        extra: dict[str, Any] = {"node": node, "min": low, "max": len(log), "next": op.value + len(shown)}
        if op.f == "replica-read":
            extra["done"] = op.value + len(shown) >= len(log)
        if "life" in op.extra:
            extra["life"] = op.extra["life"]
        return Completion("ok", shown, extra=extra)

    def _unknown(self, op: Op, topic: str, node: str) -> Completion:
        late = node != self.master and self.now < self.known_at.get((node, topic), 0)
        code = 17 if topic not in self.topics or late else 13
        return Completion("fail", op.value, f"{code} (topic[{topic}] not exist)", {"node": node, "code": code})

    def _plant(self, chance: float) -> bool:
        return self.rng.random() < chance


def play(seed: int, bug: str = "", trouble: float = 0.1, **more: Any) -> tuple[Judgement, RunRecord, Group]:
    """40 s of load, then the final phase, judged."""
    dice = Random(seed)
    options = {"topics": dice.randint(1, 6), "change_every": 0.3, "quiet": dice.choice([0, 0.5]), **more}
    concurrency = dice.randint(3, 10) + options.get("members", 0)
    plan = Plan(workload="topics", seed=seed, rate=100, concurrency=concurrency, options=options)
    workload = TopicsWorkload(resolve(plan))
    workload._places = layout(NODES, {"a": NODES}, 1)
    group = Group(Random(seed), trouble, bug)
    group.known = workload._known
    ops = played(workload, lambda thread: group, 20, NODES)
    traits = Traits(60.0)
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, ""), groups={"a": NODES}, traits=traits)
    record = RunRecord(History(ops), deployment=deployment)
    return judged_by(workload, record, deployment, *JUDGES), record, group


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_good_group_raises_no_alarm(seed: int) -> None:
    judgement, _, _ = play(seed, trouble=[0.0, 0.1, 0.3][seed % 3])
    assert judgement.verdict == Verdict.VALID, judgement.reason
    stats = next(r.stats for r in judgement.results if r.checker == "lives")
    assert stats["made_again"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_group_that_gets_every_life_raises_no_alarm(seed: int) -> None:
    judgement, _, _ = play(seed, trouble=[0.0, 0.1, 0.3][seed % 3], members=2)
    assert judgement.verdict == Verdict.VALID, judgement.reason
    stats = next(r.stats for r in judgement.results if r.checker == "members")
    assert stats["again"] > 20
    assert stats["members"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "name"), [("skip", "missed-after-recreation"), ("cache", "deleted-message-returns")])
def test_a_group_that_does_not_begin_anew_is_found(bug: str, name: str) -> None:
    """Members that go on at their old offset, and members that show a message of a former life."""
    found = Counter[str]()
    for seed in range(3):
        judgement, _, _ = play(seed, bug, trouble=0.0, members=2)
        found.update(a.name for r in judgement.results if r.checker == "members" for a in r.anomalies)
    assert set(found) == {name}
    assert found[name] == 3


@pytest.mark.slow
@pytest.mark.nightly
def test_two_hundred_good_groups_raise_no_alarm() -> None:
    alarms = {}
    for seed in range(100, 300):
        judgement, _, _ = play(seed, trouble=[0.0, 0.1, 0.3, 0.6][seed % 4])
        if judgement.verdict != Verdict.VALID:
            alarms[seed] = judgement.reason
    assert alarms == {}


@pytest.mark.parametrize(
    ("bug", "names"),
    [
        ("old", {"deleted-message-returns"}),
        ("offset", {"deleted-offset-returns"}),
        ("forget", {"forgotten-creation"}),
        ("shrink", {"forgotten-queues"}),
        ("return", {"deleted-topic-returns"}),
        ("minimum", {"wrong-minimum"}),
        ("unserved", {"unserved-queue"}),
        ("lose", {"lost", "inconsistent-offsets"}),
    ],
)
@pytest.mark.slow
def test_a_bad_group_is_found(bug: str, names: set[str]) -> None:
    found: set[str] = set()
    for seed in range(4):
        judgement, _, _ = play(seed, bug)
        found |= {a.name for a in judgement.anomalies}
    assert found == names


def of(type_: str, f: str, value: Any = None) -> Op:
    return Op(0, 0, 0, type_, f, "t", value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "life"),
    [
        (["invoke 2", "ok 2"], Life(1, "open", 2)),
        (["invoke 2", "fail 2"], Life(1, "gone")),
        (["invoke 2", "info 2"], Life(1, "coming", 0, 2, unsure=True)),
        (["invoke 2", "info 2", "invoke 2", "fail 2"], Life(1, "coming", 0, 2, unsure=True)),
        (["invoke 2", "info 2", "invoke 2", "ok 2"], Life(1, "open", 2, unsure=True)),
        (["invoke 2", "ok 2", "invoke 4", "info 4"], Life(1, "open", 2, 4, unsure=True)),
        (["invoke 2", "ok 2", "invoke 4", "fail 4"], Life(1, "open", 2)),
        (["invoke 2", "ok 2", "invoke", "ok", "invoke 2"], Life(2, "coming", 0, 2)),
        (["invoke 2", "ok 2", "invoke", "fail"], Life(1, "open", 2)),
        (["invoke 2", "ok 2", "invoke", "info"], Life(1, "retired", 2)),
        (["invoke 2", "info 2", "invoke 2", "ok 2", "invoke", "ok"], Life(1, "retired", unsure=True)),
    ],
)
def test_a_topic_is_used_again_only_if_everything_was_answered(steps: list[str], life: Life) -> None:
    lives: dict[str, Life] = {}
    for step in steps:
        type_, *value = step.split()
        op = of(type_, "update-topic", int(value[0])) if value else of(type_, "delete-topic")
        lives = dict(after(lives, op))
    assert lives["t"] == life
    assert after(lives, of("ok", "send", [0, 1])) == lives


def test_the_load_makes_deletes_and_makes_again_and_repeats_what_was_not_answered() -> None:
    _, record, group = play(2, trouble=0.3)
    calls = [call for call in record.history.clients.calls if call.invoke.f in ("update-topic", "delete-topic")]
    assert {(call.invoke.f, call.outcome) for call in calls} >= {
        (f, outcome) for f in ("update-topic", "delete-topic") for outcome in ("ok", "fail", "info")
    }
    last: dict[str, Any] = {}
    for call in calls:
        key, before = str(call.invoke.key), last.get(str(call.invoke.key))
        if before is not None and before.outcome == "info":
            assert before.invoke.f == "update-topic", "nothing follows an unanswered deletion"
            assert call.invoke.value in (before.invoke.value, None), "the same again, or the deletion"
        last[key] = call
    assert any(life.number > 1 for life in group.known.lives.values())
    busy = Counter(call.invoke.process for call in record.history.clients.calls if call.invoke.f == "poll")
    assert not busy.keys() & {call.invoke.process for call in calls}, "the administrator does nothing else"


def test_members_are_owed_what_was_acknowledged_until_its_topic_is_deleted() -> None:
    """The final phase waits for what they are owed: it would wait in vain for messages of a deleted topic."""
    crew = Consumers([None], None, {}, 0)  # type: ignore[list-item, arg-type]
    members = Subscribers(crew, ["t", "u"])
    for n, topic in enumerate(("t", "t", "u", "x")):
        members.owe(Op(0, 0, 0, "ok", "send", f"{topic}:a:0", n))
    assert crew.behind == 3, "nobody subscribes to x"
    members.forget("t")
    assert crew.behind == 1


def test_members_need_clients_of_their_own() -> None:
    with pytest.raises(PlanError, match="needs 5 clients: 2 members, an administrator, a producer and a reader"):
        TopicsWorkload(Plan(workload="topics", concurrency=4, options={"members": 2}))
    with pytest.raises(PlanError, match="members is 0; library and member_goes_every need --members"):
        TopicsWorkload(Plan(workload="topics", concurrency=4, options={"library": "lite-pull"}))


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(PlanError, match="needs 3 clients: an administrator, a producer and a reader"):
        TopicsWorkload(Plan(workload="topics", concurrency=2))


class FixedMaster(Masters):
    """Names n1."""

    def __init__(self, name: str | None = "n1") -> None:
        self.name, self.silence = name, "no node reports one"

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        return self.name


@dataclass
class Servers:
    """The toy servers of a test: two brokers and a name server that lists them."""

    master: ToyServer = field(default_factory=ToyServer)
    slave: ToyServer = field(default_factory=ToyServer)
    name_server: ToyServer = field(default_factory=ToyServer)
    listed: tuple[int, ...] = (0, 1)

    def answers(self, *ops: Op, delete_at: DeleteAt = "all", named: str | None = "n1") -> list[Completion]:
        """The completions of these ops, one after the other."""
        done: list[Completion] = []

        async def test() -> None:
            async with serving(self.master) as n1, serving(self.slave) as n2, serving(self.name_server) as at:
                numbered = {number: f"{host}:{port}" for number, (host, port) in enumerate((n1, n2))}
                addresses = {str(number): numbered[number] for number in self.listed}
                self.name_server.body = json.dumps({"brokerAddrTable": {"a": {"brokerAddrs": addresses}}}).encode()
                places = TopicLayout(
                    False, "t", "readers", [Queue("t", "a", 0)], {"a": ["n1", "n2"]}, {"n1": n1, "n2": n2}, [at], []
                )
                client = TopicOps(places, FixedMaster(named), Beliefs(), LONG, False)
                client.known, client.delete_at = Known(), delete_at
                for op in ops:
                    done.append(await client.invoke(op))
                await client.close()

        run(test)
        return done

    def codes(self) -> tuple[list[int], list[int], list[int]]:
        return tuple([r.code for r in s.requests] for s in (self.master, self.slave, self.name_server))  # type: ignore[return-value]


MAKE, DELETED = of("invoke", "update-topic", 3), of("invoke", "delete-topic")


def test_a_topic_is_made_at_the_master_and_deleted_everywhere() -> None:
    servers = Servers()
    made, deleted = servers.answers(MAKE, DELETED)
    assert (made.type, made.value, made.extra) == ("ok", 3, {"nodes": ["n1"]})
    assert (deleted.type, deleted.extra) == ("ok", {"nodes": ["n1", "n2"]})
    assert servers.codes() == ([17, 215], [215], [106, 106, 216])
    assert servers.master.requests[0].ext["writeQueueNums"] == "3"
    assert servers.name_server.requests[2].ext == {"topic": "t", "clusterName": CLUSTER}


def test_mqadmin_deletes_a_topic_at_the_masters_alone() -> None:
    servers = Servers()
    (deleted,) = servers.answers(DELETED, delete_at="masters")
    assert (deleted.type, deleted.extra) == ("ok", {"nodes": ["n1"]})
    assert servers.codes() == ([215], [], [106, 216])


def test_without_a_master_nothing_is_sent() -> None:
    """A slave that acts as the master is listed under its own id."""
    servers = Servers(listed=(1,))
    done = servers.answers(MAKE, DELETED, delete_at="masters")
    assert [(c.type, c.error) for c in done] == [("fail", "no name server lists a master of a")] * 2
    assert servers.codes()[:2] == ([], [])
    (asked,) = servers.answers(replace(of("invoke", "topic"), extra={"group": "a", "queues": 0}), named=None)
    assert (asked.type, asked.error) == ("fail", "no-master: no node reports one; nothing was asked")


@pytest.mark.parametrize("server", ["master", "slave", "name_server"])
def test_a_deletion_that_one_server_does_not_acknowledge_is_open(server: str) -> None:
    servers = Servers()
    getattr(servers, server).code = 1
    if server == "name_server":
        servers.name_server = Refusing()
    (deleted,) = servers.answers(DELETED)
    assert deleted.type == "info"
    assert "SYSTEM_ERROR" in str(deleted.error)


class Refusing(ToyServer):
    """Refuses everything but the list of brokers."""

    async def __call__(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        self.code = 0 if frame.code == 106 else 1
        await super().__call__(frame, writer)


def test_the_end_asks_for_a_topic_and_makes_what_is_missing() -> None:
    config = ToyServer(body=json.dumps({"topicName": "t", "writeQueueNums": 2}).encode())
    servers = Servers(master=config)
    asked = [replace(of("invoke", "topic"), extra={"group": "a", "queues": n}) for n in (2, 4, 0)]
    done = servers.answers(*asked)
    assert [(c.type, c.value, c.extra) for c in done] == [("ok", 2, {"group": "a", "node": "n1"})] * 3
    assert [r.code for r in config.requests] == [351, 351, 17, 351]
    servers = Servers(master=ToyServer(code=17))
    gone, forgotten = servers.answers(asked[2], asked[1])
    assert (gone.type, gone.value) == ("ok", None)
    assert (forgotten.type, "UPDATE_AND_CREATE_TOPIC" in str(forgotten.error)) == ("fail", True)


def test_offsets_are_committed_and_asked_for_at_the_master() -> None:
    servers = Servers(master=ToyServer(offset="7"))
    extra = {"group": "readers"}
    commit = Op(0, 0, 0, "invoke", "commit", "t:a:1", 5, extra=extra)
    done = servers.answers(commit, Op(0, 0, 0, "invoke", "committed", "t:a:1", None, extra=extra))
    expected = {"group": "readers", "node": "n1"}
    assert [(c.type, c.value, c.extra) for c in done] == [("ok", 5, expected), ("ok", 7, expected)]
    assert servers.master.requests[0].ext["commitOffset"] == "5"
    (none,) = servers.answers(commit, named=None)
    assert (none.type, none.extra) == ("fail", extra)


@pytest.mark.parametrize("quiet", [0.0, 0.5])
def test_nothing_is_sent_just_before_a_deletion(quiet: float) -> None:
    _, record, _ = play(3, trouble=0.0, quiet=quiet)
    calls = record.history.clients.calls
    last: dict[str, int] = {}
    waits = []
    for call in calls:
        if call.invoke.f in ("send", "commit"):
            last[str(call.invoke.key).rsplit(":", 2)[0]] = call.start
        elif call.invoke.f == "delete-topic":
            waits.append(call.start - last[str(call.invoke.key)])
    assert len(waits) > 10
    assert min(waits) >= quiet * 1e9 if quiet else min(waits) < 0.5e9


def test_an_op_that_is_broken_off_is_unanswered() -> None:
    known: list[Known] = []

    async def test() -> None:
        async with serving(silence) as at:
            places = TopicLayout(False, "t", "readers", [Queue("t", "a", 0)], {"a": ["n1"]}, {"n1": at}, [at], [])
            client = TopicOps(places, FixedMaster(), Beliefs(), LONG, False)
            client.known, client.delete_at = Known(), "all"
            known.append(client.known)
            task = asyncio.create_task(client.invoke(MAKE))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()

    run(test)
    assert known[0].lives == {"t": Life(1, "coming", 0, 3, unsure=True)}
