# SPDX-License-Identifier: Apache-2.0
"""The simulation itself: what time it is, what becomes of ops, when it ends."""

from __future__ import annotations

import asyncio
import doctest
import inspect

import pytest

import harness.generator as gen
import harness.run.simulate
from checkers.run.wellformed import breaches
from harness.generator import PENDING, Generator, GeneratorError, Invocation, Step
from harness.generator.context import Context, ProcessMap
from harness.run import virtual_time
from harness.run.simulate import imperfect, info, invocations, perfect, quick, simulate
from results.op import FAIL, INFO, INVOKE, NEMESIS, OK, Op

READS = gen.repeat(Invocation("read", value=1))


def test_the_example_in_the_docstring() -> None:
    assert doctest.testmod(harness.run.simulate).failed == 0
    assert doctest.testmod(harness.run.simulate).attempted > 0


@pytest.mark.parametrize(
    ("complete", "kinds"),
    [(quick, {OK}), (perfect, {OK}), (info, {INFO}), (imperfect, {OK, FAIL, INFO})],
)
def test_what_becomes_of_ops(complete, kinds: set[str]) -> None:  # type: ignore[no-untyped-def]
    history = simulate(gen.limit(30, READS), complete, concurrency=4)
    assert {op.type for op in history} == kinds | {INVOKE}
    assert len(history) == 60
    assert list(breaches(history)) == []
    assert {op.value for op in history} == {1}


def test_a_crashed_process_is_followed_by_one_that_is_as_much_higher_as_there_are_threads() -> None:
    history = simulate(gen.limit(6, READS), info, concurrency=2)
    assert sorted(op.process for op in invocations(history)) == [0, 1, 2, 3, 4, 5]


def test_an_endless_generator_is_cut() -> None:
    assert len(invocations(simulate(READS, most=17))) == 17
    assert simulate(gen.rate(10, READS), until_s=2)[-1].time < 2e9


def test_phases_other_than_main_are_written_on_the_invocations() -> None:
    invoke, done = simulate(Invocation("read", extra={"node": "n1"}), phase="final")
    assert invoke.extra == {"node": "n1", "phase": "final"}
    assert done.extra == {}


class Waits(Generator):
    def op(self, ctx: Context) -> Step:
        return PENDING, self


def test_to_wait_for_what_never_comes_is_an_error() -> None:
    with pytest.raises(GeneratorError, match="wait for ever"):
        simulate(Waits())


def test_a_run_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="at least 1 client"):
        simulate(READS, concurrency=0)


def test_a_crew_knows_whose_thread_a_process_is_on() -> None:
    process_map = ProcessMap.of(3, nemesis=True).next_process(1).next_process(1)
    assert process_map.processes == (0, 7, 2, NEMESIS)
    assert [process_map.thread_of(p) for p in (0, 7, 2, NEMESIS)] == [0, 1, 2, 3]
    ctx = Context.start(3)._replace(process_map=process_map)
    assert ctx.is_free(7)
    assert not ctx.runs(1)


def test_the_simulation_needs_no_loop() -> None:
    assert not inspect.iscoroutinefunction(simulate)
    assert isinstance(simulate(gen.limit(1, READS))[0], Op)


def test_virtual_time_jumps_and_keeps_order() -> None:
    async def main() -> list[tuple[float, str]]:
        loop, seen = asyncio.get_running_loop(), []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

        await asyncio.gather(sleeper("year", 365 * 86400), sleeper("b", 2), sleeper("a", 1), sleeper("c", 2))
        return seen

    seen = virtual_time.run(main())
    assert seen[:3] == [(1, "a"), (2, "b"), (2, "c")]
    assert seen[3][1] == "year"
    assert abs(seen[3][0] - 365 * 86400) < 1e-6


def test_virtual_time_finds_deadlocks() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(virtual_time.Deadlock, match="nothing can wake them"):
        virtual_time.run(main())
