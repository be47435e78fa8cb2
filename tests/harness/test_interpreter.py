# SPDX-License-Identifier: Apache-2.0
"""The interpreter in virtual time: a minute takes milliseconds, and a client that hangs for a year hangs for none."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import harness.generator as gen
from checkers.run.wellformed import breaches
from harness.api import Completion
from harness.generator import PENDING, Generator, GeneratorError, Invocation, Source, Step
from harness.generator.context import Context
from harness.nemesis import events
from harness.run import virtual_time
from harness.run.clients import Blocking
from harness.run.interpreter import Interpreter
from harness.run.simulate import invocations, simulate
from results.journal import Journal, read_journal
from results.op import CALM, FAIL, INFO, INVOKE, NEMESIS, OK, ROLE_CHANGED, SERVER_DIED, Op
from results.strikes import Strike

S = 1_000_000_000
READS = gen.repeat(Invocation("read"))
Behaviour = Callable[[Op], Awaitable[Completion]]


async def ok(op: Op) -> Completion:
    """Takes 10 ms."""
    await asyncio.sleep(0.01)
    return Completion(OK, op.value)


async def hang(op: Op) -> Completion:
    await asyncio.sleep(365 * 86400)
    return Completion(OK, op.value)


@dataclass
class World:
    """The behaviour of a run's clients, and a record of them."""

    invoke: Behaviour = ok
    open: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    made: list[int] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    invoked: list[Op] = field(default_factory=list)
    history: list[Op] = field(default_factory=list)

    def client(self, thread: int) -> WorldClient:
        self.made.append(thread)
        return WorldClient(self)

    def run(
        self,
        *phases: tuple[str, Source],
        concurrency: int = 2,
        nemesis: Behaviour | None = None,
        meanwhile: Callable[[Interpreter], Awaitable[None]] | None = None,
        deadline_s: float = 4.0,
        nemesis_deadline_s: float = 120.0,
    ) -> list[Op]:
        """The history of a run in virtual time."""

        async def main() -> None:
            interpreter = Interpreter(
                concurrency=concurrency,
                client=self.client,
                nemesis=None if nemesis is None else NemesisOf(nemesis),
                journal=self.history.append,
                deadline_s=deadline_s,
                nemesis_deadline_s=nemesis_deadline_s,
            )
            beside = None if meanwhile is None else asyncio.ensure_future(meanwhile(interpreter))
            for phase, source in phases:
                await interpreter.run(source, phase)
            await interpreter.close()
            if beside is not None:
                await beside
            assert asyncio.all_tasks() == {asyncio.current_task()}, "a worker or a client outlived the run"

        virtual_time.run(main())
        return self.history


@dataclass
class WorldClient:
    world: World

    async def open(self) -> None:
        self.world.opened += 1
        if self.world.open is not None:
            await self.world.open()

    async def invoke(self, op: Op) -> Completion:
        self.world.invoked.append(op)
        return await self.world.invoke(op)

    async def close(self) -> None:
        self.world.closed += 1
        if self.world.close is not None:
            await self.world.close()


@dataclass
class NemesisOf:
    behaviour: Behaviour

    async def invoke(self, op: Op) -> Completion:
        return await self.behaviour(op)


def completions(history: list[Op]) -> list[Op]:
    return [op for op in history if op.type != INVOKE]


# What a run does is what a simulation shows


@pytest.mark.parametrize("concurrency", [1, 3, 20])
def test_a_run_is_as_its_simulation(concurrency: int) -> None:
    rng = Random(3)
    keys = gen.key_window(rng, 3, 9, lambda key: gen.mix(rng, {READS: 2, gen.repeat(Invocation("write")): 1}))
    load = gen.time_limit(20, gen.clients(gen.rate(7, keys), gen.script([(5, Invocation("a")), (9, Invocation("b"))])))
    kinds = {0: OK, 1: FAIL, 2: INFO}

    async def some(op: Op) -> Completion:
        await asyncio.sleep(0.2437)
        return Completion(kinds[op.index % 3], op.value)  # type: ignore[arg-type]

    run = World(some).run(("main", load), concurrency=concurrency, nemesis=some)
    simulated = simulate(load, lambda op: (243_700_000, kinds[op.index % 3]), concurrency=concurrency)  # type: ignore[arg-type,return-value]
    assert [(o.index, o.process, o.type, o.f, o.key) for o in run] == [
        (o.index, o.process, o.type, o.f, o.key) for o in simulated
    ]
    assert all(abs(a.time - b.time) < 10 for a, b in zip(run, simulated, strict=True))


def test_the_same_seed_gives_the_same_history_to_the_nanosecond() -> None:
    def history() -> list[Op]:
        load = gen.time_limit(30, gen.rate(20, gen.key_window(Random(4), 3, 9, lambda key: READS), rng=Random(5)))
        return World().run(("main", load), concurrency=4)

    assert history() == history()


# Phases


def test_indices_time_and_processes_go_on_from_phase_to_phase() -> None:
    async def crash(op: Op) -> Completion:
        await asyncio.sleep(1)
        return Completion(INFO, op.value)

    history = World(crash).run(("main", gen.limit(3, READS)), ("recovery", Invocation("read")))
    assert list(breaches(history)) == []
    assert [op.extra for op in invocations(history)] == [{}, {}, {}, {"phase": "recovery"}]
    assert history[-1].time == 3 * S
    assert len({op.process for op in history}) == 4


def test_a_phase_with_nothing_to_do_ends() -> None:
    assert World().run(("main", None), ("final", [])) == []


def test_scheduled_tells_when_a_late_op_was_due() -> None:
    async def slow(op: Op) -> Completion:
        await asyncio.sleep(0.5)
        return Completion(OK)

    late = invocations(World(slow).run(("main", gen.limit(3, gen.delay(0.2, READS))), concurrency=1))
    assert [(op.time, op.extra.get("scheduled")) for op in late] == [(0, None), (S // 2, S // 5), (S, 2 * S // 5)]


# Outcomes


def test_a_completion_is_what_the_client_says() -> None:
    async def answer(op: Op) -> Completion:
        return Completion(FAIL, 7, "refused", {"node": "n2"})

    invoked, done = World(answer).run(("main", Invocation("write", "k", 3, {"hint": "n1"})))
    assert (invoked.value, invoked.extra) == (3, {"hint": "n1"})
    assert (done.type, done.f, done.key, done.value, done.error, done.extra) == (
        FAIL,
        "write",
        "k",
        7,
        "refused",
        {"node": "n2"},
    )


def test_an_exception_is_info_in_one_line() -> None:
    async def breaks(op: Op) -> Completion:
        raise OSError("connection\n   reset")

    done = World(breaks).run(("main", Invocation("write", value=3)))[1]
    assert (done.type, done.value, done.error) == (INFO, 3, "OSError: connection reset")


@pytest.mark.parametrize("answer", [None, "ok", Completion("invoke"), Completion("okay")])  # type: ignore[arg-type]
def test_an_answer_that_is_none_is_info(answer: object) -> None:
    async def odd(op: Op) -> Completion:
        return answer  # type: ignore[return-value]

    done = World(odd).run(("main", Invocation("write", value=3)))[1]
    assert done.type == INFO
    assert "the client returned" in (done.error or "")


def test_after_info_the_thread_has_a_new_process_and_a_new_client() -> None:
    async def crash(op: Op) -> Completion:
        return Completion(INFO, error="lost")

    world = World(crash)
    history = world.run(("main", gen.limit(7, READS)), concurrency=3)
    assert sorted(op.process for op in invocations(history)) == list(range(7))
    assert (world.opened, world.closed) == (7, 7)
    assert Counter(world.made) == {0: 3, 1: 2, 2: 2}


def test_a_process_that_is_well_keeps_its_client() -> None:
    world = World()
    history = world.run(("main", gen.limit(20, READS)), ("final", gen.limit(20, READS)), concurrency=3)
    assert {op.process for op in history} == {0, 1, 2}
    assert (world.opened, world.closed) == (3, 3)


def test_clients_are_opened_when_they_are_needed() -> None:
    world = World()
    world.run(("main", gen.limit(3, gen.rate(1, gen.concurrency_limit(1, READS)))), concurrency=50)
    assert world.opened == 3


def test_a_client_may_ask_for_the_end_of_its_process() -> None:
    async def leaves(op: Op) -> Completion:
        return Completion(OK, extra={"end-process": True})

    world = World(leaves)
    history = world.run(("main", gen.limit(4, READS)), concurrency=2)
    assert [op.process for op in invocations(history)] == [0, 1, 2, 3]
    assert (world.opened, world.closed) == (4, 4)


# Deadlines


def test_a_hung_client_costs_its_deadline_and_no_more() -> None:
    world = World(hang)
    history = world.run(("main", Invocation("write", value=5)), ("final", Invocation("read")), concurrency=1)
    done = completions(history)
    assert [(op.time, op.type, op.error) for op in done] == [
        (4 * S, INFO, "no answer within 4 s"),
        (8 * S, INFO, "no answer within 4 s"),
    ]
    assert done[0].value == 5
    assert [op.process for op in done] == [0, 1]
    assert world.closed == 2


def test_others_go_on_while_one_hangs() -> None:
    async def first_hangs(op: Op) -> Completion:
        return await (hang if op.index == 0 else ok)(op)

    load = gen.time_limit(3, gen.rate(10, READS))
    history = World(first_hangs).run(("main", load), concurrency=2)
    assert len([op for op in history if op.type == OK]) == 29
    assert history[-1].time == 4 * S


async def never_gives_up(*_: object) -> None:
    """Ignores being cancelled, for ever."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def test_a_client_that_ignores_being_cancelled_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn(op: Op) -> Completion:
        if op.process == 0:
            await never_gives_up()
        return await ok(op)

    history = World(stubborn, close=never_gives_up).run(("main", gen.limit(3, READS)), concurrency=1)
    assert [(op.process, op.type) for op in completions(history)] == [(0, INFO), (1, OK), (1, OK)]
    assert "abandoned" in caplog.text


def test_an_answer_after_the_deadline_is_not_heard() -> None:
    async def answers_late(op: Op) -> Completion:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        return Completion(OK, "late")

    history = World(answers_late).run(("main", gen.limit(3, READS)), concurrency=1)
    assert [op.type for op in completions(history)] == [INFO] * 3
    assert list(breaches(history)) == []


def test_a_worker_that_was_left_behind_gets_no_more_ops() -> None:
    async def by_name(op: Op) -> Completion:
        if op.f == "ignores":
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(0.5)
        elif op.f == "slow":
            await asyncio.sleep(3)
        return Completion(OK)

    ops = [Invocation("ignores"), Invocation("quick"), gen.sleep(1), Invocation("slow")]
    done = completions(World(by_name).run(("main", ops), concurrency=1))
    assert [(op.f, op.process, op.type) for op in done] == [("ignores", 0, INFO), ("quick", 1, OK), ("slow", 1, OK)]


def test_the_nemesis_has_a_deadline_of_its_own() -> None:
    history = World().run(
        ("main", gen.nemesis([Invocation("inject"), Invocation("heal")])), nemesis=hang, nemesis_deadline_s=60.0
    )
    assert [(op.time, op.process, op.error) for op in completions(history)] == [
        (60 * S, NEMESIS, "no answer within 60 s"),
        (120 * S, NEMESIS, "no answer within 60 s"),
    ]


def test_a_nemesis_that_breaks_is_info_and_goes_on() -> None:
    async def breaks_once(op: Op) -> Completion:
        if op.f == "inject":
            raise ValueError("no such node")
        return Completion(INFO, "healed")

    history = World().run(("main", gen.nemesis([Invocation("inject"), Invocation("heal")])), nemesis=breaks_once)
    assert [(op.process, op.error, op.value) for op in completions(history)] == [
        (NEMESIS, "ValueError: no such node", None),
        (NEMESIS, None, "healed"),
    ]


# Opening


def test_what_could_not_be_sent_is_a_fail_of_the_same_process() -> None:
    async def refused() -> None:
        raise ConnectionRefusedError("n1:9876")

    world = World(open=refused)
    history = world.run(("main", gen.limit(3, READS)), concurrency=1)
    assert [(op.process, op.type, op.error) for op in completions(history)] == [
        (0, FAIL, "no-client: ConnectionRefusedError: n1:9876")
    ] * 3
    assert world.invoked == []
    assert (world.opened, world.closed) == (3, 3)


def test_a_factory_that_breaks_is_a_fail() -> None:
    world = World()
    world.made = None  # type: ignore[assignment]
    done = world.run(("main", READ := Invocation("read")))[1]
    assert (done.f, done.type) == (READ.f, FAIL)
    assert (done.error or "").startswith("no-client: AttributeError")


def test_what_did_not_open_in_time_is_a_fail_and_is_never_sent() -> None:
    async def opens_late() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)

    world = World(open=opens_late)
    history = world.run(("main", gen.limit(2, READS)), concurrency=1)
    assert [(op.time, op.type, op.error) for op in completions(history)] == [
        (4 * S, FAIL, "no-client: no answer within 4 s"),
        (8 * S, FAIL, "no-client: no answer within 4 s"),
    ]
    assert world.invoked == []


def test_a_client_that_opens_at_the_second_attempt_serves() -> None:
    async def once_refused() -> None:
        if world.opened == 1:
            raise OSError("refused")

    world = World(open=once_refused)
    assert [op.type for op in completions(world.run(("main", gen.limit(3, READS)), concurrency=1))] == [FAIL, OK, OK]


# Stopping


def test_stop_ends_generating_and_everything_open_is_info() -> None:
    async def after_3_s(interpreter: Interpreter) -> None:
        await asyncio.sleep(3)
        interpreter.stop()

    history = World(hang).run(("main", READS), ("final", READS), concurrency=5, meanwhile=after_3_s, deadline_s=60.0)
    assert len(invocations(history)) == 5
    assert {(op.time, op.type, op.error) for op in completions(history)} == {(3 * S, INFO, "the run was stopped")}


def test_stop_may_leave_a_grace() -> None:
    async def takes_as_long_as_its_process(op: Op) -> Completion:
        await asyncio.sleep(1 + op.process)
        return Completion(OK)

    async def at_once(interpreter: Interpreter) -> None:
        await asyncio.sleep(0.5)
        interpreter.stop(grace_s=2.0)
        assert interpreter.stopped

    history = World(takes_as_long_as_its_process).run(("main", READS), concurrency=3, meanwhile=at_once)
    assert [(op.process, op.type, op.time) for op in completions(history)] == [
        (0, OK, S),
        (1, OK, 2 * S),
        (2, INFO, S * 5 // 2),
    ]


def test_a_run_that_is_cancelled_leaves_a_whole_history() -> None:
    history: list[Op] = []

    async def main() -> None:
        interpreter = Interpreter(concurrency=3, client=World(hang).client, journal=history.append, deadline_s=60.0)
        running = asyncio.ensure_future(interpreter.run(READS))
        await asyncio.sleep(2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await interpreter.close()

    virtual_time.run(main())
    assert [op.type for op in history] == [INVOKE] * 3 + [INFO] * 3
    assert history[-1].error == "the run failed: CancelledError"


# What breaks a run


def test_a_full_disk_ends_the_run_and_nothing_more_is_invoked() -> None:
    world = World()
    history: list[Op] = []

    full = False

    def journal(op: Op) -> None:
        nonlocal full
        if len(history) == 20 and not full:
            full = True
            raise OSError(28, "No space left on device")
        history.append(op)

    async def main() -> None:
        interpreter = Interpreter(concurrency=4, client=world.client, journal=journal, deadline_s=4.0)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                await interpreter.run(READS)
        await interpreter.close()

    virtual_time.run(main())
    assert len(history) == 20
    journalled = {op.index for op in invocations(history)}
    assert {op.index for op in world.invoked} <= journalled
    assert world.closed == world.opened == 4


def test_an_invocation_is_journalled_before_it_is_sent() -> None:
    world = World()

    async def looks(op: Op) -> Completion:
        assert op in world.history
        return Completion(OK)

    world.invoke = looks
    assert {op.type for op in world.run(("main", gen.limit(50, READS)))} == {INVOKE, OK}


class Broken(Generator):
    def op(self, ctx: Context) -> Step:
        if ctx.time > S:
            raise ZeroDivisionError("in the generator")
        return (Invocation("read"), self) if ctx.free_takers else (PENDING, self)


class Deaf(Broken):
    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type != INVOKE:
            raise ZeroDivisionError("in the update")
        return self


@pytest.mark.parametrize("broken", [Broken(), Deaf()])
def test_a_generator_that_breaks_ends_its_phase_only(broken: Generator) -> None:
    history: list[Op] = []

    async def main() -> None:
        interpreter = Interpreter(concurrency=5, client=World().client, journal=history.append, deadline_s=4.0)
        with pytest.raises(ZeroDivisionError):
            await interpreter.run(broken)
        await interpreter.run(gen.limit(3, READS), "final")
        await interpreter.close()

    virtual_time.run(main())
    assert list(breaches(history)) == []
    assert len(invocations(history)) == len(completions(history))
    assert [op.extra.get("phase") for op in invocations(history)][-3:] == ["final"] * 3


class Waits(Generator):
    def op(self, ctx: Context) -> Step:
        return PENDING, self


def test_a_generator_that_waits_for_ever_is_told_so() -> None:
    with pytest.raises(GeneratorError, match="wait for ever"):
        World().run(("main", [Invocation("read"), Waits()]))


def test_on_event_hears_everything_in_order() -> None:
    heard: list[Op] = []
    history: list[Op] = []

    async def main() -> None:
        interpreter = Interpreter(
            concurrency=2, client=World().client, journal=history.append, on_event=heard.append, deadline_s=4.0
        )
        await interpreter.run(gen.limit(9, READS))
        await interpreter.close()

    virtual_time.run(main())
    assert heard == history
    assert len(heard) == 18


def test_one_phase_at_a_time() -> None:
    async def another(interpreter: Interpreter) -> None:
        await asyncio.sleep(0.001)
        with pytest.raises(RuntimeError, match="running already"):
            await interpreter.run(READS)

    assert len(World().run(("main", gen.limit(4, READS)), meanwhile=another)) == 8


# Whatever happens, a history


class Chaos:
    """Clients that do anything, by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    async def fate(self) -> Completion:
        lot = self.rng.randrange(9)
        await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.2, 3.9999999, 4, 4.0000001]))
        if lot == 0:
            raise RuntimeError("chaos")
        if lot == 1:
            await never_gives_up()
        if lot == 2:
            await asyncio.sleep(1e6)
        if lot == 3:
            return None  # type: ignore[return-value]
        if lot == 4:
            return Completion(OK, extra={"end-process": True})
        return Completion((OK, FAIL, INFO)[lot % 3])

    async def open(self) -> None:
        if self.rng.random() < 0.3:
            await self.fate()

    async def invoke(self, op: Op) -> Completion:
        return await self.fate()

    async def close(self) -> None:
        await self.fate()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 6), st.sampled_from([2, 20, 500]), st.booleans())
def test_every_history_is_well_formed(seed: int, concurrency: int, rate: int, stops: bool) -> None:
    history: list[Op] = []
    client = Chaos(seed)

    async def main() -> None:
        interpreter = Interpreter(
            concurrency=concurrency,
            client=lambda thread: client,
            nemesis=Chaos(seed + 1),
            journal=history.append,
            deadline_s=4.0,
            nemesis_deadline_s=7.0,
        )
        if stops:
            asyncio.get_running_loop().call_later(seed % 40, interpreter.stop, seed % 3)
        strikes = gen.nemesis(gen.script([(n, Invocation("inject", value=n)) for n in range(0, 20, 3)]))
        load = gen.clients(gen.rate(rate, READS))
        await interpreter.run(gen.time_limit(20, gen.any_(load, strikes)))
        await interpreter.run(gen.clients(gen.limit(40, gen.each_process(gen.limit(3, READS)))), "final")
        await interpreter.close()

    virtual_time.run(main())
    assert list(breaches(history)) == []
    assert len(invocations(history)) == len(completions(history)) > 0
    for call in completions(history):
        assert call.type in (OK, FAIL, INFO)


def test_a_minute_at_a_thousand_processes() -> None:
    load = gen.time_limit(60, gen.clients(gen.rate(100, READS)))
    history = World(hang).run(("main", load), concurrency=1000)
    assert len(invocations(history)) == 6000
    assert list(breaches(history)) == []
    assert max(op.time for op in history) == invocations(history)[-1].time + 4 * S


# In real time: blocking clients, the journal


class Sync:
    """A client that blocks."""

    def __init__(self, threads: list[str]) -> None:
        self.threads = threads
        self.stuck = threading.Event()

    def open(self) -> None:
        self.threads.append(threading.current_thread().name)

    def invoke(self, op: Op) -> Completion:
        if op.f == "hang":
            self.stuck.wait()
        if op.f == "stop":
            raise StopIteration
        assert threading.current_thread() is not threading.main_thread()
        return Completion(OK, op.value)

    def close(self) -> None:
        self.threads.append("closed")


def test_blocking_clients_run_in_threads_and_may_hang(tmp_path: Path) -> None:
    threads: list[str] = []
    clients: list[Sync] = []

    def client(thread: int) -> Blocking:
        clients.append(Sync(threads))
        return Blocking(clients[-1])

    async def main() -> None:
        with Journal(tmp_path / "history.jsonl") as journal:
            interpreter = Interpreter(concurrency=2, client=client, journal=journal.append, deadline_s=0.2)
            names = ["read", "hang", "read", "stop", "read"]
            await interpreter.run(gen.phases(*(Invocation(name, value=name) for name in names)))
            for hung in clients:
                hung.stuck.set()
            await interpreter.close()

    asyncio.run(main())
    history, torn = read_journal(tmp_path / "history.jsonl")
    assert torn is None
    assert list(breaches(history)) == []
    assert [(op.f, op.type) for op in completions(history)] == [
        ("read", OK),
        ("hang", INFO),
        ("read", OK),
        ("stop", INFO),
        ("read", OK),
    ]
    assert set(threads) == {"blocking-client", "closed"}
    assert threads.count("closed") == len(clients)


# Events that nobody invoked


def test_an_event_stands_where_it_happened_also_within_a_strike_and_after_the_last_phase() -> None:
    async def slowly(op: Op) -> Completion:
        await asyncio.sleep(3)
        return Completion(INFO, op.value)

    async def dying(interpreter: Interpreter) -> None:
        await asyncio.sleep(2)
        interpreter.event(SERVER_DIED, {"node": "n1"})
        await asyncio.sleep(60)
        interpreter.event(SERVER_DIED, {"node": "n2"})

    world = World()
    load = gen.any_(gen.clients(gen.time_limit(10, gen.rate(5, READS))), gen.nemesis(Invocation("inject")))
    history = world.run(("main", load), nemesis=slowly, meanwhile=dying)
    assert list(breaches(history)) == []
    died = [op for op in history if op.is_event]
    assert [op.value["node"] for op in died] == ["n1"]
    assert died[0].time == 2 * S
    inject = [op.index for op in history if op.f == "inject"]
    assert inject[0] < died[0].index < inject[1]


def test_what_only_the_observer_tells_reaches_the_generator() -> None:
    """A strike waits for a change of role, which is no op of anybody."""

    async def changing(interpreter: Interpreter) -> None:
        interpreter.event(CALM, {})
        await asyncio.sleep(2)
        interpreter.event(ROLE_CHANGED, {"of": "a", "node": "n2"})

    async def at_once(op: Op) -> Completion:
        return Completion(INFO, op.value)

    strikes = events.generator(
        [
            Strike(1, "bridge", "n1", 1.0, after="calm", delay_s=0.5, within_s=9.0),
            Strike(2, "bridge", "n2", 1.0, after="role-changed:a", delay_s=1.5, within_s=9.0),
        ]
    )
    load = gen.any_(gen.clients(gen.time_limit(10, gen.rate(5, READS))), strikes)
    history = World().run(("main", load), nemesis=at_once, meanwhile=changing)
    struck = [(op.time / S, op.f) for op in history if op.process == NEMESIS and op.type == "invoke"]
    assert struck == [(0.5, "inject"), (1.5, "heal"), (3.5, "inject"), (4.5, "heal")]


def test_an_event_between_phases_is_written_down_with_the_next_and_at_the_end() -> None:
    async def main() -> list[Op]:
        world = World()
        interpreter = Interpreter(
            concurrency=2, client=world.client, nemesis=None, journal=world.history.append, deadline_s=4
        )
        await interpreter.run(gen.clients(gen.limit(3, READS)))
        interpreter.event(SERVER_DIED, {"node": "n1"})
        await interpreter.run(gen.clients(gen.limit(3, READS)), "final")
        interpreter.event(SERVER_DIED, {"node": "n2"})
        await interpreter.close()
        return world.history

    history = virtual_time.run(main())
    assert list(breaches(history)) == []
    assert [(op.index, op.value["node"]) for op in history if op.is_event] == [(6, "n1"), (13, "n2")]
