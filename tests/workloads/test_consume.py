# SPDX-License-Identifier: Apache-2.0
"""The workload `consume`: what its members do, what its messages are like, and the options that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from sim.plays import play as play_run
from workloads_in_memory import NODES, places

from harness.api import Completion
from harness.generator.context import Context
from harness.plan.plan import Plan, PlanError, ServerPlan
from infra.machines.api import InfraError
from infra.systems.rocketmq.applications.process import Event
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.applications.members import Members
from workloads.consume.crew import Consumers, ConsumerSeat, show
from workloads.consume.work import MESSAGE_GROUP, TAGS, WANTED, Work
from workloads.consume.workload import ConsumeWorkload

S = 10**9


def play(
    members: Members, seconds: float, answers: Mapping[str, Any] | None = None, unknown: int = 0
) -> list[tuple[float, str]]:
    """The ops of one member in this time, each completed at once, the first `unknown` ones with an unknown result; time
    passes while it has none.
    """
    generator: Any = members
    ctx = Context.start(1, nemesis=False)
    done: list[tuple[float, str]] = []
    while ctx.time < seconds * S:
        step = generator.op(ctx)
        if step is None:
            done.append((ctx.time / S, "end"))
            break
        what, generator = step
        later = ctx.time + S // 20
        if not hasattr(what, "f"):
            ctx = ctx._replace(time=later)
            continue
        done.append((ctx.time / S, what.f))
        value = (answers or {}).get(what.f)
        extra = {**what.extra, "behind": (answers or {}).get("behind", 1), "astray": (answers or {}).get("astray", 0)}
        event = Op(0, ctx.time, 0, "ok" if len(done) > unknown else "info", what.f, None, value, extra=extra)
        generator = generator.update(ctx._replace(turn=ctx.turn + 1), event)
        ctx = ctx._replace(turn=ctx.turn + 1, time=later)
    return done


def test_a_member_joins_takes_goes_and_comes_back() -> None:
    ops = play(Members("g", 1, 5), 60)
    kinds = [f for _, f in ops]
    assert kinds[:2] == ["join", "take"]
    ends = [f for f in kinds if f in ("crash", "leave")]
    assert ends[:4] == ["crash", "leave", "crash", "leave"], "both kinds of ends, in turn"
    for (at, f), (then, after) in pairwise(ops):
        if f in ("crash", "leave"):
            assert after == "join"
            assert then >= at + 2


def test_no_member_joins_before_its_time() -> None:
    """A backlog is what is there before the first one."""
    ops = play(Members("g", 1, 0, wait_s=5), 8)
    assert ops[0][1] == "join"
    assert 5 <= ops[0][0] < 5.2


def test_a_member_stays_if_it_is_not_to_go() -> None:
    assert {f for _, f in play(Members("g", 1, 0), 60)} == {"join", "take"}


@pytest.mark.parametrize(("behind", "ends"), [(0, 5), (3, 30)])
def test_a_group_that_is_behind_gets_more_time(behind: int, ends: float) -> None:
    """Without it a quiet run would last a minute longer, or a message that comes late would count as undelivered."""
    ops = play(Members("g", 1, 0, quiet_s=30, done_s=5), 90, {"behind": behind})
    at, last = ops[-1]
    assert last == "end"
    assert ends < at < ends + 2


def test_a_delivery_prolongs_the_end() -> None:
    got = [["delivered", 0, 1, 1, "t:a:0", 0, 1, 0, "a"]]
    assert play(Members("g", 1, 0, quiet_s=5, done_s=5), 20, {"take": got})[-1][1] == "take"


@pytest.mark.parametrize(("astray", "ends"), [(0, 5), (2, 40)])
def test_a_group_with_a_queue_without_owner_gets_more_time(astray: int, ends: float) -> None:
    """Without it the run would end before anybody can say that the queue stays without an owner."""
    ops = play(Members("g", 1, 0, quiet_s=30, done_s=5, astray_s=40), 90, {"behind": 0, "astray": astray})
    at, last = ops[-1]
    assert last == "end"
    assert ends < at < ends + 2


def test_the_last_ones_leave_and_end() -> None:
    assert [f for _, f in play(Members("g", 1, 0, ends=True), 10)] == ["leave", "end"]


@pytest.mark.parametrize(("unknown", "ops"), [(1, 2 * ["leave"]), (9, [*5 * ["leave"], "take"])])
def test_one_whose_end_is_unknown_leaves_again(unknown: int, ops: list[str]) -> None:
    """Seen with gRPC push consumers, which wait for their open polls: what one got meanwhile was not shown."""
    assert [f for _, f in play(Members("g", 1, 0, ends=True), 10, unknown=unknown)] == [*ops, "end"]


class _Slow:
    """A process that gets one more message while it stops."""

    def __init__(self, error: bool) -> None:
        self.error, self.stopped = error, asyncio.Event()
        told = {"event": "delivered", "n": 1, "topic": "t", "broker": "a", "queue": 0, "offset": 0, "attempt": 0}
        self.events = [Event(1, {**told, "body": "7", "tags": "a"})]

    async def ask(self, command: Mapping[str, Any], kind: str, timeout_s: float) -> None:
        await self.stopped.wait()
        if self.error:
            raise InfraError("no answer in time")

    async def kill(self) -> None: ...

    async def take(self, wait_s: float) -> list[Event]:
        found, self.events = self.events, []
        return found


@pytest.mark.parametrize("error", [False, True])
def test_a_second_op_waits_for_the_end_that_the_first_one_began(error: bool) -> None:
    """It has what the process reported until then; if the process did not stop in time, the next take has it."""

    async def scene() -> list[Any]:
        crew = Consumers([None], None, {}, 1)  # type: ignore[list-item, arg-type]
        application: Any = _Slow(error)
        crew.seats["m0"].application, crew.seats["m0"].joins = application, 1
        op = Op(0, 0, 0, "invoke", "leave", None, None, extra={"group": "g", "member": "m0"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await crew.invoke(op)
        asyncio.get_running_loop().call_later(0.01, application.stopped.set)
        second, third = await crew.invoke(op), await crew.take("m0", 0)
        assert second.type == ("info" if error else "ok")
        return third if error else second.value

    assert [[kind, life, *rest] for kind, _, life, *rest in asyncio.run(scene())] == [
        ["delivered", 1, 1, "t:a:0", 0, 7, 0, "a"]
    ]


def test_a_message_is_the_same_each_time() -> None:
    """The judges know from the send what a consumer has to do with a message."""
    work = Work(failing=20, fails=2, slow=10)
    made = [work.of(n) for n in range(1, 2001)]
    assert made == [work.of(n) for n in range(1, 2001)]
    assert {of["TAGS"] for of in made} == set(TAGS)
    assert 300 < sum("fails" in of for of in made) < 500
    assert 120 < sum("slow" in of for of in made) < 280
    assert set(Work().of(1)) == {"TAGS"}
    asked = [Work(requests=10).of(n) for n in range(1, 2001)]
    assert 130 < sum("request" in of for of in asked) < 280
    rare = [Work(matching=2).of(n)["TAGS"] for n in range(1, 2001)]
    assert 20 < sum(tag in WANTED for tag in rare) < 70
    back = [of for n in range(1, 2001) if "nacked" in (of := Work(nacked=10).of(n))]
    assert 130 < len(back) < 280
    assert {of["nacked"] for of in back} == {"1000", "3000", "-1"}
    assert {of["fails"] for of in back} == {"1"}
    assert [n for n in range(1, 2001) if "stuck" in Work(stuck=3).of(n)] == [101, 202, 303]
    named = [Work(failing=20, level=2).of(n) for n in range(1, 201)]
    assert all(("level" in of) == ("fails" in of) for of in named)


def test_events_become_short_lists() -> None:
    told = {"event": "delivered", "n": 3, "topic": "t", "broker": "a", "queue": 1, "offset": 7, "attempt": 0}
    assert show({**told, "body": "12 ...", "tags": "b"}) == ["delivered", 3, "t:a:1", 7, 12, 0, "b"]
    hidden = show({**told, "body": "12", "tags": "b", "hidden_ms": 9990})
    assert hidden == ["delivered", 3, "t:a:1", 7, 12, 0, "b", 9990]
    assert show({**told, "event": "left", "body": "12", "hidden_ms": 9})[:2] == ["left", 3]  # type: ignore[index]
    assert show({"event": "renewed", "n": 3, "ok": True, "hidden_ms": 19_000}) == ["renewed", 3, True, 19_000]
    assert show({"event": "done", "n": 3, "ok": False}) == ["done", 3, False]
    assert show({"event": "nonsense", "line": "x"}) == ["failed", "it wrote 'x'"]
    assert show({"event": "committed", "offsets": {"t:a:1": 8}}) == ["committed", {"t:a:1": 8}]
    assert show({"event": "stopped"}) is None


def hear(crew: Consumers, seat: ConsumerSeat, life: int, *events: dict[str, Any]) -> None:
    """The crew hears events of one of its processes."""
    crew._hear(seat, [Event(at, fields) for at, fields in enumerate(events)], life)


def test_a_seat_knows_what_it_is_done_with() -> None:
    """A group counts as done by this: a result that belongs to another process's delivery must not settle it."""
    seat = ConsumerSeat("m0", None)  # type: ignore[arg-type]
    assert seat.hear(["delivered", 1, "t:a:1", 7, 12, 2, "a"], 1) is None
    assert seat.hear(["done", 1, True], 2) is None
    assert seat.hear(["done", 1, True], 1) == (12, 2, True)


def test_a_message_that_a_dead_process_may_have_acknowledged_holds_nobody_up() -> None:
    """Seen on real servers: three such messages prolonged a run by two minutes, and it had no final reads."""
    crew = Consumers([None], None, {}, 1)  # type: ignore[list-item, arg-type]
    seat = crew.seats["m0"]
    seat.application, seat.joins = object(), 1  # type: ignore[assignment]
    told = {"event": "delivered", "topic": "t", "broker": "a", "queue": 1, "offset": 7, "attempt": 0}
    for n, message in ((1, 12), (2, 13)):
        crew.owe(message)
        hear(crew, seat, 1, {**told, "n": n, "body": str(message)})
    hear(crew, seat, 1, {"event": "acking", "n": 1})
    assert crew.behind == 2, "its result may come"
    seat.application = None
    assert crew.behind == 1, "the other message belongs to another member now"


def test_an_acknowledgement_without_an_answer_holds_a_group_up_until_its_message_would_be_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen on real servers: two such messages of a live process prolonged a valid run by two minutes."""
    now = 100.0
    monkeypatch.setattr("workloads.consume.crew.time.monotonic", lambda: now)
    crew = Consumers([None], None, {}, 1)  # type: ignore[list-item, arg-type]
    seat = crew.seats["m0"]
    seat.application, seat.joins = object(), 1  # type: ignore[assignment]
    told = {"event": "delivered", "n": 1, "topic": "t", "broker": "a", "queue": 1, "offset": 7, "attempt": 0}
    crew.owe(12)
    hear(crew, seat, 1, {**told, "body": "12"}, {"event": "acking", "n": 1})
    now = 144.0
    assert crew.behind == 1, "it may come again"
    now = 146.0
    assert crew.behind == 0


def test_a_process_that_fails_in_a_loop_fills_no_memory() -> None:
    """Seen when both proxies were gone: 1,966,856 failures in two minutes, and a history that took 1.1 GiB to judge."""
    crew = Consumers([None], None, {}, 1)  # type: ignore[list-item]
    seat = crew.seats["m0"]
    for life in (1, 2):
        hear(crew, seat, life, *({"event": "failed", "error": "Gone", "why": "x"} for _ in range(3500)))
    shown = crew._shown(seat)
    assert [sum(number == life for _, _, number, _ in shown) for life in (1, 2)] == [1002, 1002]
    assert {why for *_, why in shown} == {"Gone: x", "one of 1,000: Gone: x"}


def test_each_process_of_a_broadcast_group_must_get_all() -> None:
    """The end of a run waits for the one that lacks most; without the count each run waited for a minute of silence."""
    crew = Consumers([None, None], None, {}, 1, shared=True)  # type: ignore[list-item]
    told = {
        "event": "delivered",
        "n": 1,
        "topic": "t",
        "broker": "a",
        "queue": 1,
        "offset": 7,
        "attempt": 0,
        "body": "12",
    }
    crew.owe(12)
    assert crew.behind == 0, "nobody is there"
    m0, m1 = crew.seats.values()
    for seat in (m0, m1):
        seat.application, seat.joins = object(), 1  # type: ignore[assignment]
    for seat, ok in ((m0, True), (m1, False)):
        assert crew.behind == 1
        hear(crew, seat, 1, told)
        hear(crew, seat, 1, {"event": "done", "n": 1, "ok": ok})
    assert crew.behind == 0, "a broadcast message does not come again, whatever its listener returned"
    m1.joins = 2
    crew.joined(m1)
    hear(crew, m1, 1, told)
    hear(crew, m1, 1, {"event": "done", "n": 1, "ok": True})
    assert crew.behind == 1, "the new process gets it, too; the former one's report counts for nothing"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay_level": 2}, "needs --library remoting, --listener concurrently and --failing"),
        ({"library": "grpc-simple", "listener": "broadcast"}, "grpc-simple concurrently and orderly are right"),
        ({"library": "grpc-simple", "listener": "orderly", "renewed": 1.0}, "it needs --listener concurrently"),
        ({"library": "grpc-push", "listener": "broadcast"}, "grpc-push concurrently and orderly are right"),
        ({"library": "grpc-push", "listener": "orderly", "producer": "java"}, "which has no message groups"),
        ({"listener": "broadcast", "failing": 1.0}, "a broadcast consumer tries nothing again"),
        ({"large": 1.0}, "large is 1; it needs --producer java"),
        ({"requests": 1.0}, "requests is 1; it needs --producer java, --library remoting, another listener than broad"),
        ({"requests": 1.0, "producer": "java", "filter": "tag"}, "requests is 1; it needs --producer java"),
        ({"renewed": 1.0}, "renewed is 1; it needs --library grpc-simple"),
        ({"member_settings": ("x=1",)}, "member_settings names 'x'; known are useHeartbeatV2, unitMode, pullBatchSize"),
        ({"member_settings": ("pullBatchSize=0",)}, "pullBatchSize=a whole number from 1 to 1024 is right"),
        ({"member_settings": ("unitMode=1",)}, "member_settings has 'unitMode=1'; unitMode=true or false is right"),
        ({"member_settings": ("popBatchNums=8",), "library": "lite-pull"}, "member_settings names 'popBatchNums'"),
        ({"member_settings": ("unitMode=true",), "library": "grpc-push"}, "needs --library remoting or lite-pull"),
        ({"stuck": 2, "batch": 8}, "and neither --batch nor --application"),
        ({"stuck": 2}, "member_goes_every is 20 s; with --stuck 0s is right"),
        ({"stuck": 2, "listener": "orderly"}, "stuck is 2; it needs --library remoting, --listener concurrently"),
        ({"nacked": 1.0}, "nacked is 1; it needs --library grpc-simple"),
        ({"acked_twice": 1.0, "library": "grpc-push"}, "acked_twice is 1; it needs --library grpc-simple"),
        ({"commits": "by-hand"}, "commits is 'by-hand'; it needs --library lite-pull, --begins first, and neither"),
        ({"commits": "by-hand", "library": "lite-pull", "filter": "tag"}, "and neither --filter, --resets"),
        ({"library": "lite-pull", "listener": "orderly"}, "with --library lite-pull concurrently is right"),
        ({"library": "lite-pull", "failing": 1.0}, "which tries nothing again"),
        ({"members": 4}, "concurrency is 5; consume needs 6 clients"),
        ({"resets": "5s"}, "needs 6 clients: 3 members, an administrator and two producers"),
        ({"resets": "5s", "members": 1, "listener": "broadcast"}, "each member keeps its own offsets"),
        ({"resets": "5s", "members": 1, "reset_by": "members"}, "at least 15 s is right"),
        ({"mode_changes_every": "30s"}, "mode_changes_every is 30 s; it needs --mode pop"),
        ({"mode": "pop", "mode_changes_every": "2s"}, "mode_changes_every is 2 s; at least 5 s is right"),
        ({"mode": "pop", "library": "lite-pull"}, "mode is 'pop'; it needs --library remoting, --listener concurr"),
        ({"mode": "pop", "listener": "orderly"}, "mode is 'pop'; it needs --library remoting, --listener concurrently"),
        ({"matching": 1.0}, "matching is 1; it needs --filter tag or sql"),
        ({"batch": 8, "listener": "orderly"}, "batch is 8; it needs --library remoting, another listener than orderly"),
        ({"batch": 8, "library": "grpc-push"}, "batch is 8; it needs --library remoting"),
        ({"batch": 8, "failing": 1.0, "delay_level": 2}, "and neither --delay-level nor --application"),
        ({"backlog": "60s"}, "backlog is 60 s; less than --time-limit .60 s. is right"),
        ({"begins": "last", "application": "x"}, "begins is 'last'; with --application only first is right"),
        ({"begins": "time", "library": "grpc-push"}, "begins is 'time'; with --library grpc-push first and last are"),
        ({"allocation": "circle", "listener": "broadcast"}, "allocation is 'circle'; it needs --library remoting, lit"),
        ({"allocation": "circle", "mode": "pop"}, "allocation is 'circle'; it needs .* --mode pull, --commits auto"),
        ({"allocation": "circle", "library": "grpc-simple"}, "allocation is 'circle'; it needs --library remoting"),
        ({"grpc_client": "5.0.8"}, "it needs --library grpc-push or grpc-simple, and no --application"),
        ({"mode": "pop", "resets": "5s", "members": 1}, "resets is 5 s; with --mode pop only 0 is right"),
        ({"library": "native", "application": "x"}, "with --application another one is right"),
        ({"library": "native", "listener": "broadcast"}, "with --library native concurrently and orderly are right"),
        ({"library": "native", "filter": "sql"}, "with --library native none and tag are right"),
        ({"library": "native", "listener": "orderly", "failing": 1.0}, "it counts no attempts of an orderly listener"),
        ({"library": "native", "max_attempts_again": 2}, "max_attempts_again is 2; with --library native it cannot be"),
        ({"library": "native", "member_settings": ("unitMode=true",)}, "needs --library remoting or lite-pull"),
        ({"library": "native", "resets": "5s", "members": 1}, "resets is 5 s; with --library native only 0 is right"),
        (
            {"library": "native", "group_changes_every": "9s", "members": 1},
            "group_changes_every is 9 s; with --library",
        ),
        ({"library": "native", "mode": "pop"}, "mode is 'pop'; it needs --library remoting"),
        ({"library": "native", "batch": 8}, "batch is 8; it needs --library remoting"),
        ({"library": "native", "stuck": 2, "member_goes_every": "0s"}, "stuck is 2; it needs --library remoting"),
        ({"library": "native", "failing": 1.0, "delay_level": 2}, "delay_level is 2; it needs --library remoting"),
        ({"library": "native", "producer": "java", "requests": 1.0}, "requests is 1; it needs --producer java, --libr"),
        ({"library": "native", "grpc_client": "5.0.8"}, "it needs --library grpc-push or grpc-simple"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        ConsumeWorkload(Plan(workload="consume", concurrency=5, options=options))


def test_a_setting_that_the_client_lacks_is_refused() -> None:
    """The library ignores a name that it does not know: the run would try something else than it says."""
    options = {"member_settings": ("useHeartbeatV2=true", "pullBatchSize=4")}
    plan = Plan(workload="consume", concurrency=8, options=options)
    assert ConsumeWorkload(plan).member_settings == {"useHeartbeatV2": "true", "pullBatchSize": "4"}
    old = Plan(workload="consume", concurrency=8, options=options, server=ServerPlan(version="5.1.1"))
    with pytest.raises(PlanError, match=r"useHeartbeatV2, which clients have since 5\.2\.0, not in 5\.1\.1"):
        ConsumeWorkload(old)


@pytest.mark.parametrize(
    ("client", "library", "text"),
    [
        ("grpc", "grpc-push", "with --client grpc cluster is right"),
        ("remoting", "remoting-proxy", "with --library remoting-proxy cluster is right"),
    ],
)
def test_clients_that_do_not_follow_the_masters_need_proxies_for_all(client: str, library: str, text: str) -> None:
    server = ServerPlan(settings={"proxy.proxyMode": "local"})
    with pytest.raises(PlanError, match=f"proxy.proxyMode is local; {text}"):
        ConsumeWorkload(
            Plan(workload="consume", concurrency=5, client=client, options={"library": library}, server=server)
        )


def test_the_crew_counts_queues_without_the_right_owners() -> None:
    """The end of a run waits for this; a process that has ended owns nothing, whatever it reported."""
    nodes: Any = [None, None]
    crews = {shared: Consumers(nodes, None, {}, 1, ("t:a:0", "t:a:1"), shared=shared) for shared in (False, True)}  # type: ignore[arg-type]
    for shared, crew in crews.items():
        assert crew.astray == (0 if shared else 2), "nobody is there"
        m0, m1 = crew.seats.values()
        for seat, queues in ((m0, ["t:a:0", "t:a:1"]), (m1, ["t:a:1"])):
            seat.application, seat.joins = object(), 1  # type: ignore[assignment]
            hear(crew, seat, 1, {"event": "queues", "queues": queues})
        assert crew.astray == 1, "t:a:1 has two owners, or t:a:0 lacks one"
        hear(crew, m1, 0, {"event": "queues", "queues": ["t:a:0", "t:a:1"]})
        assert crew.astray == 1, "a report of a former process counts for nothing"
        m1.application = None
        assert crew.astray == 0
    assert Consumers(nodes, None, {}, 1).astray == 0, "members that report no queues"  # type: ignore[arg-type]


class _Answers:
    """A client whose ops all succeed: members report nothing, and each send has the next offset."""

    def __init__(self) -> None:
        self.sent = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(0.002)
        match op.f:
            case "send":
                self.sent += 1
                return Completion("ok", [self.sent // 4, op.value])
            case "join":
                return Completion("ok", f"{op.extra['member']}-1", extra=dict(op.extra))
        return Completion("ok", [] if op.f in ("take", "leave", "crash") else {}, extra=dict(op.extra))


@pytest.mark.parametrize("by", ["brokers", "members"])
def test_an_administrator_resets_the_offsets_during_the_load(by: str) -> None:
    every = "1s" if by == "brokers" else "15s"
    options = {"resets": every, "reset_by": by, "member_goes_every": "0s"}
    workload = ConsumeWorkload(Plan(seed=1, rate=50, concurrency=8, workload="consume", options=options))
    workload._places, workload.group = places(), "g"
    client = _Answers()
    ops = play_run(workload, lambda thread: client, 40 if by == "brokers" else 120, NODES, phases=("main",), final_s=2)
    resets = [op for op in ops if op.f == "reset" and op.type == "invoke"]
    assert {op.extra["to"] for op in resets} == ({"offset", "time", "end"} if by == "brokers" else {"time", "end"})
    assert len({op.process for op in resets}) == 1, "one administrator"
    assert not {op.process for op in resets} & {op.process for op in ops if op.f in ("send", "take")}
    assert all(op.extra["group"] == "g" for op in resets)
    assert workload.server_settings()["broker.useServerSideResetOffset"] == str(by == "brokers").lower()


@pytest.mark.parametrize("library", ["grpc-push", "grpc-simple"])
def test_fifo_messages_have_message_groups_of_one_queue_each(library: str) -> None:
    options = {"library": library, "listener": "orderly", "member_goes_every": "0s"}
    workload = ConsumeWorkload(Plan(seed=1, rate=50, concurrency=8, workload="consume", options=options))
    workload._places, workload.group = places(), "g"
    client = _Answers()
    ops = play_run(workload, lambda thread: client, 10, NODES, phases=("main",), final_s=2)
    sends = [op for op in ops if op.f == "send" and op.type == "invoke"]
    queues: dict[str, set[str | None]] = {}
    for op in sends:
        queues.setdefault(op.extra["properties"][MESSAGE_GROUP], set()).add(op.key)
    assert len(queues) == 3 * len(places().keys)
    assert all(len(keys) == 1 for keys in queues.values())
    judges = {checker.name: checker for checker in workload.checkers(DeploymentRecord("toy", dict.fromkeys(NODES, "")))}
    ordered: Any = judges["ordered"]
    assert ordered.within == MESSAGE_GROUP
    delivered: Any = judges["delivered"]
    assert ordered.leased == delivered.in_order == (library == "grpc-simple")
    assert ("invisible" in judges) == (library == "grpc-simple")


@pytest.mark.parametrize(
    ("options", "limit_s", "holds", "in_order"),
    [
        ({}, 55, True, False),
        ({"listener": "orderly"}, 85, True, False),
        ({"mode": "pop"}, 85, False, False),
        ({"library": "grpc-push", "listener": "orderly"}, 95, False, True),
        ({"listener": "broadcast"}, None, False, False),
        ({"library": "native"}, 80, True, False),
        ({"library": "native", "listener": "orderly"}, 110, True, False),
        ({"library": "native", "failing": 1.0}, None, False, False),
    ],
)
def test_how_long_a_queue_may_stand_still(
    options: dict[str, str], limit_s: float | None, holds: bool, in_order: bool
) -> None:
    """As long as a silent group takes to be finished, and for a lock; members of a broadcast group are behind alone."""
    workload = ConsumeWorkload(Plan(seed=1, concurrency=8, workload="consume", options=options))
    judges = {checker.name: checker for checker in workload.checkers(DeploymentRecord("toy", dict.fromkeys(NODES, "")))}
    progress: Any = judges.get("progress")
    if limit_s is None:
        assert progress is None
    else:
        assert (progress.limit, progress.holds, progress.in_order) == (limit_s * S, holds, in_order)


@pytest.mark.parametrize(
    ("options", "judges"),
    [
        ({}, ["delivered", "progress"]),
        ({"listener": "orderly"}, ["delivered", "ordered", "progress"]),
        ({"failing": 1.0}, ["delivered"]),
    ],
)
def test_native_members_are_judged_by_what_their_library_shows(options: dict[str, Any], judges: list[str]) -> None:
    """It reports no queues, commits when it likes, and sends all messages of a pull back if one of them fails."""
    workload = ConsumeWorkload(
        Plan(seed=1, concurrency=8, workload="consume", options={"library": "native", **options})
    )
    found = {judge.name: judge for judge in workload.judged(DeploymentRecord("toy", dict.fromkeys(NODES, "")))}
    assert [name for name in found if name not in ("log", "replicas")] == judges
    delivered: Any = found["delivered"]
    quiet_s = 90 if options.get("failing") else 80
    assert (delivered.holds, delivered.commits, delivered.quiet) == (True, False, quiet_s * S)
    assert (workload.again, list(workload.kinds), workload.owning, workload.lags) == (16, [], False, False)


@pytest.mark.parametrize(
    ("goes", "settings", "hidden_s", "still_s", "returned_s"),
    [
        ("20s", {}, 151, 95, 60),
        ("0s", {}, 0, 95, 60),
        ("20s", {"proxy.channelExpiredTimeout": "30000"}, 61, 95, 60),
        ("20s", {"proxy.defaultInvisibleTimeMills": "60000"}, 151, 135, 100),
    ],
)
def test_a_group_waits_for_what_a_proxy_hides_for_a_killed_client(
    goes: str, settings: dict[str, str], hidden_s: int, still_s: int, returned_s: int
) -> None:
    """Seen with a run whose last messages came 126 s after the kill, when the group had just given up. They were late,
    and not lost; a judge of its own says so.
    """
    options = {"library": "grpc-push", "member_goes_every": goes}
    server = ServerPlan(settings=settings)
    workload = ConsumeWorkload(Plan(seed=1, concurrency=8, workload="consume", options=options, server=server))
    judges: dict[str, Any] = {
        judge.name: judge for judge in workload.judged(DeploymentRecord("toy", dict.fromkeys(NODES, "")))
    }
    assert (judges["delivered"].quiet, judges["delivered"].hidden) == (still_s * S, hidden_s * S)
    assert (judges["progress"].limit, judges["returned"].limit) == (still_s * S, returned_s * S)
    assert workload.times.quiet_s == max(still_s, hidden_s) + 2
    assert workload.times.drain_s > workload.times.quiet_s + 60


@pytest.mark.parametrize(("library", "named"), [("native", True), ("remoting", False)])
def test_messages_to_native_members_name_their_broker_group(library: str, named: bool) -> None:
    options = {"library": library, "member_goes_every": "0s"}
    workload = ConsumeWorkload(Plan(seed=1, rate=50, concurrency=8, workload="consume", options=options))
    workload._places, workload.group = places(), "g"
    client = _Answers()
    ops = play_run(workload, lambda thread: client, 5, NODES, phases=("main",), final_s=2)
    sends = [op for op in ops if op.f == "send" and op.type == "invoke"]
    assert sends
    for op in sends:
        group = str(op.key).split(":")[1] if named else None
        assert op.extra["properties"].get("broker") == group
