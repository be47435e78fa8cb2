# SPDX-License-Identifier: Apache-2.0
"""Every combinator by simulation. `simulate` asks everything twice, so each of these is a test of purity as well."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.generator as gen
from harness.generator import (
    EMPTY,
    PENDING,
    Generator,
    GeneratorError,
    Invocation,
    Pending,
    Source,
    Step,
)
from harness.generator.context import Context, members, next_thread
from harness.generator.dice import Dice, draw, unit
from harness.run.simulate import imperfect, info, invocations, perfect, quick, simulate
from results.op import FAIL, INFO, INVOKE, NEMESIS, OK, Op

MS = 1_000_000
S = 1_000_000_000
READ = Invocation("read")
READS = gen.repeat(READ)
WRITES = gen.repeat(Invocation("write"))


def fs(history: list[Op]) -> list[str]:
    """The invoked operations, in order."""
    return [op.f for op in invocations(history)]


def named(prefix: str, n: int) -> list[Source]:
    return [Invocation(f"{prefix}{i}") for i in range(n)]


def seconds(history: list[Op]) -> list[float]:
    return [op.time / S for op in invocations(history)]


class Waits(Generator):
    """Pending until an op completes, for ever."""

    def op(self, ctx: Context) -> Step:
        return PENDING, self


# Sets of threads


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(0, 200))
def test_members_goes_round_and_next_thread_is_the_first(threads: set[int], start: int) -> None:
    bits = sum(1 << t for t in threads)
    expected = sorted(t for t in threads if t >= start) + sorted(t for t in threads if t < start)
    assert list(members(bits, start)) == expected
    assert next_thread(bits, start) == expected[0]


def test_all_threads_get_their_turn() -> None:
    history = simulate(gen.limit(12, READS), quick, concurrency=4)
    assert [op.process for op in invocations(history)] == [0, 1, 2, 3] * 3


# Dice


def test_draws_are_those_of_splitmix64() -> None:
    # The first outputs of the reference implementation (Vigna, splitmix64.c) for the seed 1234567.
    assert [draw(1234567, n) for n in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_dice_roll_the_same_at_the_same_place() -> None:
    dice = Dice()
    rolls = [dice.at(3, 5).random(), dice.randrange(10**30), dice.gauss(0, 1), dice.sample(range(100), 5)]
    dice.gauss(0, 1)
    assert rolls == [dice.at(3, 5).random(), dice.randrange(10**30), dice.gauss(0, 1), dice.sample(range(100), 5)]
    assert dice.at(3, 6).random() != rolls[0]
    assert all(0 <= unit(1, n) < 1 for n in range(1000))


# Plain data


def test_an_invocation_is_itself_once() -> None:
    assert fs(simulate(READ)) == ["read"]


def test_an_invocation_waits_for_its_time() -> None:
    assert seconds(simulate(Invocation("read", time=3 * S))) == [3]


def test_an_invocation_for_a_process_waits_for_it_and_is_given_up_when_it_crashed() -> None:
    both = [Invocation("a", process=1), Invocation("b", process=1)]
    assert [op.process for op in invocations(simulate(both, perfect))] == [1, 1]
    assert fs(simulate(both, info)) == ["a"]


def test_a_function_is_called_with_how_often_it_was_called_until_it_returns_none() -> None:
    def values(n: int) -> Source:
        return [Invocation("w", value=n), Invocation("x", value=n)] if n < 3 else None

    assert [(op.f, op.value) for op in invocations(simulate(values))] == [(f, n) for n in range(3) for f in ("w", "x")]


def test_a_function_that_gives_nothing_for_ever_is_an_error() -> None:
    with pytest.raises(GeneratorError, match="without an op"):
        simulate(lambda n: [])


def test_a_sequence_is_each_of_its_elements_in_turn() -> None:
    assert fs(simulate([READ, None, [Invocation("a"), []], gen.limit(2, WRITES)])) == ["read", "a", "write", "write"]


def test_updates_of_a_sequence_go_to_the_element_that_is_being_exhausted() -> None:
    heard: list[str] = []

    def hears(name: str) -> Generator:
        def react(g: Generator, ctx: Context, event: Op) -> Generator:
            heard.append(name)
            return g

        return gen.on_update(react, Invocation(name))

    simulate([hears("a"), gen.synchronize(hears("b"))], concurrency=1)
    assert heard[0] == "a"
    assert heard[-1] == "b"


def test_what_is_no_generator_is_told_so() -> None:
    with pytest.raises(GeneratorError, match="'reads' is not a generator"):
        gen.as_generator("reads")


def test_drawn_depends_on_seed_and_number_alone() -> None:
    def make(dice: Random, n: int) -> Source:
        return Invocation(dice.choice("abc"), value=[n, dice.randrange(100)])

    def stream(seed: int) -> list[object]:
        history = simulate(gen.limit(50, gen.drawn(Random(seed), make)), imperfect)
        return [(op.f, op.value) for op in invocations(history)]

    assert stream(1) == stream(1) != stream(2)


def test_the_simulation_finds_impure_generators() -> None:
    rng = Random(0)
    with pytest.raises(GeneratorError, match="for two equal calls"):
        simulate(gen.limit(20, lambda n: Invocation("w", value=rng.random())))


# Who


def test_clients_and_nemesis_keep_to_their_threads() -> None:
    history = simulate(gen.clients(named("c", 4), named("n", 3)), perfect)
    assert {op.f[0]: op.process == NEMESIS for op in history} == {"c": False, "n": True}
    assert len(invocations(history)) == 7
    other = simulate(gen.nemesis(named("n", 3), named("c", 4)), perfect)
    assert sorted(fs(other)) == sorted(fs(history))


def test_an_op_without_a_process_never_goes_to_the_nemesis() -> None:
    assert {op.process for op in simulate(gen.limit(9, READS), concurrency=2)} == {0, 1}


def test_the_nemesis_keeps_its_number_after_info() -> None:
    history = simulate(gen.nemesis(named("n", 3)), info)
    assert [op.process for op in history] == [NEMESIS] * 6


def test_ops_for_a_nemesis_that_is_not_there_are_an_error_and_none_are_none() -> None:
    with pytest.raises(GeneratorError, match="nemesis: there is no such thread"):
        simulate(gen.nemesis(READ), nemesis=False)
    assert simulate(gen.nemesis([]), nemesis=False) == []


def test_on_threads_shows_only_those_threads() -> None:
    def odd(thread: int) -> bool:
        return thread % 2 == 1 and thread != NEMESIS

    history = simulate(gen.on_threads(odd, gen.limit(6, READS)), info, concurrency=4)
    assert {op.process for op in invocations(history)} == {1, 3, 5, 7, 9, 11}


def test_reserve_gives_each_part_its_threads() -> None:
    source = gen.reserve(2, gen.repeat(Invocation("a")), 1, gen.repeat(Invocation("b")), default=READS)
    history = simulate(gen.limit(60, source), perfect, concurrency=5)
    threads: dict[str, set[int]] = {}
    for op in history:
        threads.setdefault(op.f, set()).add(op.process)
    assert threads == {"a": {0, 1}, "b": {2}, "read": {3, 4}}


def test_reserve_routes_updates_by_thread() -> None:
    source = gen.reserve(1, gen.until_ok(gen.repeat(Invocation("a"))), 1, gen.limit(4, READS))
    assert Counter(fs(simulate(source, perfect, concurrency=2))) == {"a": 1, "read": 4}


def test_each_part_hears_only_of_its_threads() -> None:
    heard: dict[str, set[str]] = {"a": set(), "b": set(), "n": set()}

    def hears(name: str) -> Generator:
        def react(g: Generator, ctx: Context, event: Op) -> Generator:
            heard[name].add(event.f)
            return g.update(ctx, event)

        return gen.on_update(react, gen.limit(5, gen.repeat(Invocation(name))))

    simulate(gen.any_(gen.clients(gen.reserve(1, hears("a"), 2, hears("b"))), gen.nemesis(hears("n"))), concurrency=3)
    assert heard == {"a": {"a"}, "b": {"b"}, "n": {"n"}}


def test_reserve_wants_enough_threads_and_pairs() -> None:
    with pytest.raises(GeneratorError, match="reserve needs 5 threads, but there are 3"):
        simulate(gen.reserve(5, READS), concurrency=3)
    with pytest.raises(GeneratorError, match="pairs"):
        gen.reserve(5)
    with pytest.raises(GeneratorError, match="a number of threads"):
        gen.reserve(0, READS)


def test_each_thread_does_all_of_it() -> None:
    history = simulate(gen.each_thread([Invocation("a"), Invocation("b")]), perfect, concurrency=3)
    assert Counter((op.process, op.f) for op in invocations(history)) == {
        (p, f): 1 for p in range(3) for f in ("a", "b")
    }


def test_each_thread_does_not_begin_anew_after_a_crash_and_each_process_does() -> None:
    two = [Invocation("a"), Invocation("b")]
    by_thread = invocations(simulate(gen.each_thread(two), info, concurrency=2))
    assert [(op.process, op.f) for op in by_thread] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    by_process = invocations(simulate(gen.limit(6, gen.each_process(two)), info, concurrency=2))
    assert [(op.process, op.f) for op in by_process] == [(p, "a") for p in range(6)]


def test_each_process_begins_anew_also_where_another_generator_crashed_it() -> None:
    """Thread 0 had said hello and was known to be done when a write crashed its process."""
    crashing = gen.on_threads(lambda thread: thread == 0, gen.limit(4, gen.delay(1, WRITES)))

    def outcome(op: Op) -> tuple[int, str]:
        return (100 * S, OK) if op.process == 1 else (10, INFO if op.f == "write" else OK)

    history = simulate(gen.any_(gen.each_process(Invocation("hello")), crashing), outcome)  # type: ignore[arg-type]
    assert [op.process for op in invocations(history) if op.f == "hello"] == [0, 1, 2, 4, 6, 8]


def test_each_process_ends_when_no_one_can_crash_any_more() -> None:
    history = simulate(gen.each_process(READ), imperfect, concurrency=3)
    crashed = sum(op.type == INFO for op in history)
    assert len(invocations(history)) == 3 + crashed


# Which


def test_any_gives_everyone_a_turn() -> None:
    history = simulate(gen.limit(30, gen.any_(READS, WRITES, gen.repeat(Invocation("cas")))), quick)
    assert Counter(fs(history)) == {"read": 10, "write": 10, "cas": 10}


def test_any_takes_the_soonest_and_ends_with_the_last() -> None:
    history = simulate(gen.any_([gen.sleep(2), Invocation("late")], [gen.sleep(1), Invocation("early")]))
    assert list(zip(fs(history), seconds(history), strict=True)) == [("early", 1), ("late", 2)]


def test_any_forgets_no_clock_of_the_one_that_waits() -> None:
    """A schedule beside a busy load: asked a thousand times and not chosen, its clock must not start again."""
    source = gen.clients(gen.time_limit(10, gen.rate(100, READS)), gen.script([(5, Invocation("inject"))]))
    strikes = [op for op in invocations(simulate(source, perfect)) if op.f == "inject"]
    assert [op.time for op in strikes] == [5 * S]


def test_any_tells_all_of_every_event() -> None:
    source = gen.any_(gen.until(lambda op: op.f == "b", gen.repeat(Invocation("a"))), Invocation("b"))
    # "b" is not an op of the first, so it does not end it.
    assert fs(simulate(source, perfect, most=10)).count("a") == 9


def test_shortest_any_ends_with_the_first() -> None:
    history = simulate(gen.shortest_any(gen.limit(3, READS), WRITES), quick)
    assert fs(history) == ["read", "write", "read", "write", "read"]


def test_mix_keeps_to_its_weights_and_its_seed() -> None:
    def stream(seed: int) -> list[str]:
        return fs(simulate(gen.limit(4000, gen.mix(Random(seed), {READS: 3, WRITES: 1})), quick))

    assert stream(1) == stream(1) != stream(2)
    assert 0.72 < stream(1).count("read") / 4000 < 0.78


def test_mix_leaves_out_what_has_ended() -> None:
    history = simulate(gen.mix(Random(1), [gen.limit(5, READS), gen.limit(50, WRITES), []]), quick)
    assert Counter(fs(history)) == {"read": 5, "write": 50}


def test_mix_is_the_same_stream_however_ops_end() -> None:
    source = gen.limit(200, gen.mix(Random(5), [gen.concurrency_limit(1, READS), WRITES]))
    streams = [fs(simulate(source, complete, concurrency=n)) for complete in (quick, info) for n in (2, 7)]
    assert all(stream == streams[0] for stream in streams)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_mix_wants_weights_above_zero(weight: float) -> None:
    with pytest.raises(GeneratorError, match="a weight of a mix"):
        gen.mix(Random(1), {READS: weight})


def test_flip_flop_alternates_and_ends_with_the_one_whose_turn_it_is() -> None:
    assert fs(simulate(gen.flip_flop(named("a", 2), named("b", 9)), quick)) == ["a0", "b0", "a1", "b1"]


# How often


def test_limit_and_once() -> None:
    assert fs(simulate(gen.limit(3, READS), info)) == ["read"] * 3
    assert fs(simulate(gen.once(named("a", 3)))) == ["a0"]
    assert simulate(gen.limit(0, READS)) == []
    with pytest.raises(GeneratorError, match="limit is -1"):
        gen.limit(-1, READS)


def test_repeat_gives_the_same_op_and_cycle_begins_anew() -> None:
    assert fs(simulate(gen.repeat(named("a", 2), 3))) == ["a0"] * 3
    assert fs(simulate(gen.cycle(named("a", 2), 2))) == ["a0", "a1", "a0", "a1"]
    assert fs(simulate(gen.cycle(named("a", 2)), most=5)) == ["a0", "a1", "a0", "a1", "a0"]
    assert simulate(gen.cycle([])) == []


def test_process_limit_ends_when_one_process_more_could_take_part() -> None:
    history = simulate(gen.clients(gen.process_limit(7, READS)), info, concurrency=3)
    assert {op.process for op in history} <= set(range(7))
    assert len(invocations(history)) >= 5


def test_concurrency_limit_bounds_the_open_ops() -> None:
    history = simulate(gen.limit(50, gen.concurrency_limit(3, READS)), imperfect, concurrency=10)
    now_open, most = 0, 0
    for op in history:
        now_open += 1 if op.type == INVOKE else -1
        most = max(most, now_open)
    assert most == 3


def test_until_ok_ends_with_its_own_success_only() -> None:
    def third_works(op: Op) -> tuple[int, str]:
        return 10, OK if op.value == 2 or op.f == "other" else FAIL

    def tries(n: int) -> Source:
        return Invocation("try", value=n)

    source = gen.any_(gen.until_ok(tries), gen.repeat(Invocation("other"), 40))
    history = simulate(source, third_works, concurrency=1)  # type: ignore[arg-type]
    assert [op.value for op in invocations(history) if op.f == "try"] == [0, 1, 2]
    assert fs(history).count("other") == 40


def test_until_waits_for_an_acknowledged_op_or_a_limit_of_time() -> None:
    def served_from_5_s(op: Op) -> tuple[int, str]:
        return MS, OK if op.time >= 5 * S else FAIL

    def recovery(limit_s: float) -> Source:
        return gen.time_limit(limit_s, gen.until(lambda op: op.type == OK, gen.rate(10, WRITES)))

    assert simulate(recovery(30), served_from_5_s)[-1].time == 5 * S + MS  # type: ignore[arg-type]
    gave_up = simulate(recovery(3), served_from_5_s)  # type: ignore[arg-type]
    assert {op.type for op in gave_up} == {INVOKE, FAIL}
    assert gave_up[-1].time < 3 * S


# In order


@pytest.mark.parametrize(
    "source",
    [
        gen.phases(gen.limit(4, READS), gen.limit(4, WRITES)),
        gen.then(gen.limit(4, READS), gen.limit(4, WRITES)),
        gen.limit(4, READS) >> gen.limit(4, WRITES),
        [gen.limit(4, READS), gen.synchronize(gen.limit(4, WRITES))],
    ],
)
def test_barriers_wait_until_all_is_complete(source: Source) -> None:
    history = simulate(source, imperfect, concurrency=3)
    last_read = max(op.index for op in history if op.f == "read")
    first_write = min(op.index for op in history if op.f == "write")
    assert last_read < first_write
    assert Counter(fs(history)) == {"read": 4, "write": 4}


def test_concat_does_not_wait() -> None:
    history = simulate(gen.concat(READ, Invocation("write")), perfect)
    assert [op.type for op in history] == [INVOKE, INVOKE, OK, OK]


# When


def test_rate_is_even_without_drift_and_over_all_clients() -> None:
    history = simulate(gen.time_limit(10, gen.rate(3, READS)), perfect, concurrency=7)
    assert [op.time for op in invocations(history)] == [round(n * S / 3) for n in range(30)]


def test_rate_with_an_rng_has_exponential_gaps_of_the_seed() -> None:
    def moments(seed: int) -> list[float]:
        return seconds(simulate(gen.limit(3000, gen.rate(100, READS, rng=Random(seed))), quick))

    times = moments(1)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert moments(1) == times != moments(2)
    assert 0.0094 < mean < 0.0106
    # Of an exponential distribution, a share of exp(-1) lies above the mean.
    assert 0.34 < sum(gap > mean for gap in gaps) / len(gaps) < 0.40


def stalled(op: Op) -> tuple[int, str]:
    """Servers that do not answer from 10 s to 40 s."""
    return (40 * S - op.time, OK) if 10 * S <= op.time < 40 * S else (MS, OK)


def test_a_stall_is_not_followed_by_an_unbounded_burst() -> None:
    source = gen.time_limit(60, gen.rate(100, READS))
    ops = invocations(simulate(source, stalled, concurrency=5))  # type: ignore[arg-type]
    burst = [op for op in ops if 40 * S <= op.time < 41 * S]
    assert 190 <= len(burst) <= 201, (
        "the second after the stall holds its own ops and one second's worth of missed ones"
    )
    assert 99 <= len([op for op in ops if 45 * S <= op.time < 46 * S]) <= 101


def test_what_is_late_tells_when_it_was_due() -> None:
    source = gen.limit(30, gen.delay(0.1, READS))
    history = simulate(source, lambda op: (1 * S, OK) if op.index == 0 else (MS, OK), concurrency=1)
    late = invocations(history)[1]
    assert (late.time, late.extra) == (1 * S, {"scheduled": 100 * MS})
    assert "scheduled" not in invocations(history)[-1].extra


def test_catch_up_may_be_chosen() -> None:
    source = gen.time_limit(42, gen.rate(100, READS, catch_up=0))
    ops = invocations(simulate(source, stalled, concurrency=5))  # type: ignore[arg-type]
    assert len([op for op in ops if 40 * S <= op.time < 41 * S]) <= 101


def test_stagger_draws_gaps_up_to_twice_the_mean() -> None:
    times = seconds(simulate(gen.limit(2000, gen.stagger(Random(4), 0.5, READS)), quick))
    gaps = [b - a for a, b in pairwise(times)]
    assert 0 <= min(gaps) < 0.05
    assert 0.95 < max(gaps) <= 1.0
    assert 0.47 < sum(gaps) / len(gaps) < 0.53


def test_delay_is_fixed_from_start_to_start() -> None:
    history = simulate(gen.limit(4, gen.delay(2, READS)), lambda op: (S, OK), concurrency=1)
    assert seconds(history) == [0, 2, 4, 6]


def test_time_limit_counts_from_the_first_question() -> None:
    phase = gen.time_limit(3, gen.delay(1, READS))
    assert seconds(simulate([gen.sleep(10), phase], quick)) == [10, 11, 12]


def test_time_limit_ends_what_waits_for_ever() -> None:
    history = simulate([gen.time_limit(7, gen.any_(Waits(), READ)), Invocation("after")], quick)
    assert list(zip(fs(history), seconds(history), strict=True)) == [("read", 0), ("after", 7)]


def test_sleep_is_a_pause_that_takes_no_thread() -> None:
    source = gen.any_([Invocation("a"), gen.sleep(5), Invocation("b")], gen.limit(3, gen.delay(1, READS)))
    history = simulate(source, quick, concurrency=1)
    assert list(zip(fs(history), seconds(history), strict=True)) == [
        ("a", 0),
        ("read", 0),
        ("read", 1),
        ("read", 2),
        ("b", 5),
    ]


def test_cycle_times_rotates_windows_and_keeps_what_was_left() -> None:
    source = gen.cycle_times(2, gen.delay(1, named("a", 5)), 3, gen.delay(1, named("b", 9)))
    history = simulate(source, quick, until_s=10)
    found = list(zip(fs(history), seconds(history), strict=True))
    # A gap that ran out while the other had its window has its op at the window's start, and the schedule of
    # before goes on within the second that may be made up for.
    assert [f for f, _ in found if f[0] == "a"] == [f"a{i}" for i in range(len([f for f, _ in found if f[0] == "a"]))]
    assert all(t % 5 < 2 if f[0] == "a" else t % 5 >= 2 for f, t in found)
    assert {f for f, _ in found} >= {"a0", "a1", "a2", "b0", "b1", "b2", "b3"}


def test_cycle_times_ends_when_all_have_ended() -> None:
    assert fs(simulate(gen.cycle_times(1, READ, 1, WRITES), most=4)) == ["read", "write", "write", "write"]
    assert seconds(simulate(gen.cycle_times(1, READ, 2, Invocation("b")), quick)) == [0, 1]
    with pytest.raises(GeneratorError, match="window of 0 s"):
        gen.cycle_times(0, READ)
    with pytest.raises(GeneratorError, match="pairs"):
        gen.cycle_times(5)


def test_script_keeps_its_moments() -> None:
    source = gen.script([(1, Invocation("a")), (2.5, Invocation("b")), (2.5, Invocation("c"))])
    history = simulate([gen.sleep(10), source], quick)
    assert list(zip(fs(history), seconds(history), strict=True)) == [("a", 11), ("b", 12.5), ("c", 12.5)]


def test_script_leaves_out_nothing_when_the_one_before_takes_long() -> None:
    source = gen.nemesis(gen.script([(1, Invocation("inject")), (2, Invocation("heal")), (9, Invocation("inject"))]))
    history = simulate(source, lambda op: (5 * S if op.f == "inject" else S, INFO))
    assert list(zip(fs(history), seconds(history), strict=True)) == [("inject", 1), ("heal", 6), ("inject", 9)]
    assert invocations(history)[1].extra == {"scheduled": 2 * S}


def test_script_must_be_sorted_and_may_be_empty() -> None:
    with pytest.raises(GeneratorError, match="from 5 s back to 3 s"):
        gen.script([(5, READ), (3, READ)])
    assert simulate(gen.script([])) == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: gen.rate(0, READS),
        lambda: gen.rate(float("nan"), READS),
        lambda: gen.delay(-1, READS),
        lambda: gen.time_limit(float("inf"), READS),
        lambda: gen.sleep(-0.1),
        lambda: gen.concurrency_limit(0, READS),
        lambda: gen.process_limit(0, READS),
        lambda: gen.concurrent_keys(0, [], lambda k: None),
        lambda: gen.key_window(Random(1), 0, 5, lambda k: None),
    ],
)
def test_settings_that_make_no_sense_are_one_clear_line(build) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(GeneratorError) as problem:
        build()
    assert "right" in str(problem.value) or "must" in str(problem.value)
    assert "\n" not in str(problem.value)


# Adapters


def test_map_f_map_and_filter() -> None:
    assert fs(simulate(gen.map(lambda op: Invocation(op.f + "!"), named("a", 2)))) == ["a0!", "a1!"]
    assert fs(simulate(gen.f_map({"a0": "x"}, named("a", 2)))) == ["x", "a1"]
    assert fs(simulate(gen.filter(lambda op: op.f != "a1", named("a", 3)))) == ["a0", "a2"]
    with pytest.raises(GeneratorError, match="no op matches it"):
        simulate(gen.filter(lambda op: False, READS))


def test_f_map_tells_events_by_their_old_names() -> None:
    heard: list[str] = []

    def react(g: Generator, ctx: Context, event: Op) -> Generator:
        heard.append(event.f)
        return g

    simulate(gen.f_map({"start": "inject"}, gen.on_update(react, Invocation("start"))))
    assert set(heard) == {"start"}


def test_on_update_may_change_the_generator() -> None:
    def stop_at_fail(g: Generator, ctx: Context, event: Op) -> Generator:
        return EMPTY if event.type == FAIL else g.update(ctx, event)

    history = simulate(gen.on_update(stop_at_fail, READS), imperfect, concurrency=1)
    assert [op.type for op in history if op.type != INVOKE][-1] == FAIL


def test_trace_tells_and_changes_nothing() -> None:
    lines: list[str] = []
    traced = simulate(gen.trace("load", gen.limit(2, READS), to=lines.append))
    assert traced == simulate(gen.limit(2, READS))
    assert any("hears" in line for line in lines)
    assert any("ended" in line for line in lines)


def test_log_leaves_nothing_in_the_history(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="harness.run"):
        history = simulate([READ, gen.log("half way"), READ], concurrency=1)
    assert fs(history) == ["read", "read"]
    assert caplog.messages == ["half way"]


class Answers(Generator):
    """Always the same answer, right or wrong."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def op(self, ctx: Context) -> Step:
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (READ, "a pair"),
        ((READ, None), "no generator"),
        (("read", EMPTY), "neither Pending nor"),
        ((Invocation("read", time=5), EMPTY), "due at 5 ns"),
        ((Invocation("read", process=17), EMPTY), "process 17 is not free"),
        ((Pending(0), EMPTY), "waits for 0 ns"),
    ],
)
def test_validate_tells_which_line_of_the_contract_is_broken(answer: object, why: str) -> None:
    with pytest.raises(GeneratorError, match=why):
        gen.validate(Answers(answer)).op(Context.start(2))
    if isinstance(answer, tuple):
        with pytest.raises(GeneratorError, match=why):
            simulate(Answers(answer))


def test_validate_passes_what_is_right() -> None:
    source = gen.any_(gen.limit(9, READS), gen.nemesis(named("n", 2)))
    assert simulate(gen.validate(source), imperfect) == simulate(source, imperfect)


# On what


def test_sequential_keys_does_one_key_after_the_other() -> None:
    history = simulate(gen.sequential_keys(iter(["a", "b"]), lambda key: gen.limit(3, READS)))
    assert [op.key for op in invocations(history)] == ["a"] * 3 + ["b"] * 3


def test_concurrent_keys_has_a_group_of_threads_for_each_key() -> None:
    history = simulate(
        gen.clients(gen.concurrent_keys(2, (f"k{i}" for i in range(5)), lambda key: gen.limit(4, READS))),
        perfect,
        concurrency=4,
    )
    groups: dict[str | None, set[int]] = {}
    for op in history:
        groups.setdefault(op.key, set()).add(op.process // 2)
    assert Counter(op.key for op in invocations(history)) == {f"k{i}": 4 for i in range(5)}
    assert all(len(group) == 1 for group in groups.values())
    assert {op.key for op in history[:4]} == {"k0", "k1"}


def test_concurrent_keys_tells_a_group_only_of_its_own() -> None:
    source = gen.concurrent_keys(1, ["a", "b"], lambda key: gen.until_ok(gen.repeat(Invocation(key))))

    def only_a(op: Op) -> tuple[int, str]:
        return 10, OK if op.f == "a" or op.index > 20 else FAIL

    history = simulate(source, only_a, concurrency=2)  # type: ignore[arg-type]
    assert fs(history).count("a") == 1
    assert fs(history).count("b") > 5


def test_concurrent_keys_wants_a_multiple() -> None:
    with pytest.raises(GeneratorError, match="multiple of 3"):
        simulate(gen.concurrent_keys(3, ["a"], lambda key: READ), concurrency=4)


def window(seed: int, per_key: int | None = 10) -> Generator:
    rng = Random(seed)

    def write(n: int) -> Source:
        return Invocation("write", value=n)

    return gen.key_window(rng, 4, per_key, lambda key: gen.mix(rng, {READS: 2, write: 1}))


def stream(history: list[Op]) -> list[object]:
    return [(op.f, op.key, op.value) for op in invocations(history)]


@pytest.mark.parametrize("complete", [quick, perfect, info, imperfect])
@pytest.mark.parametrize("concurrency", [1, 2, 13])
def test_key_window_gives_the_same_ops_however_fast_the_servers_are(complete, concurrency: int) -> None:  # type: ignore[no-untyped-def]
    paced = gen.limit(300, gen.rate(50, window(3), rng=Random(9)))
    assert stream(simulate(paced, complete, concurrency=concurrency)) == stream(
        simulate(gen.limit(300, window(3)), perfect, concurrency=5)
    )


def test_key_window_differs_with_the_seed() -> None:
    one, other = (stream(simulate(gen.limit(100, window(seed)))) for seed in (1, 2))
    assert one != other


def test_key_window_has_so_many_keys_at_a_time_and_so_many_ops_for_each() -> None:
    ops = invocations(simulate(gen.limit(400, window(3)), quick))
    counts: Counter[str] = Counter()
    for op in ops:
        assert op.key is not None
        counts[op.key] += 1
        begun_and_unfinished = [key for key, n in counts.items() if n < 10]
        assert len(begun_and_unfinished) <= 4
    assert max(counts.values()) == 10
    assert list(counts)[:4] != []
    assert set(counts) == {f"k{i}" for i in range(len(counts))}


def test_key_window_takes_the_next_key_when_one_ends_by_itself_and_ends_with_the_last() -> None:
    source = gen.key_window(Random(1), 2, None, lambda key: gen.limit(3, READS), keys=["a", "b", "c", "d", "e"])
    counts = Counter(op.key for op in invocations(simulate(source, imperfect)))
    assert counts == dict.fromkeys("abcde", 3)
    assert simulate(gen.key_window(Random(1), 2, 5, lambda key: None, keys=["a", "b", "c"])) == []


def test_endless_keys_with_nothing_to_do_are_an_error() -> None:
    keys = (f"k{i}" for i in range(10**9))
    with pytest.raises(GeneratorError, match="keys in a row"):
        simulate(gen.key_window(Random(1), 2, 5, lambda key: None))
    with pytest.raises(GeneratorError, match="keys in a row"):
        simulate(gen.concurrent_keys(1, keys, lambda key: None))


def test_key_window_lets_a_generator_hear_of_its_key() -> None:
    source = gen.key_window(Random(1), 2, None, lambda key: gen.until_ok(READS), keys=["a", "b", "c"])
    assert len(fs(simulate(source, perfect, concurrency=1))) == 3


# Purity of everything at once


SMALL: st.SearchStrategy[Source] = st.sampled_from([READ, READS, gen.limit(3, WRITES), gen.sleep(0.001), None])


def wrapped(inner: st.SearchStrategy[Source]) -> st.SearchStrategy[Source]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.builds(gen.limit, st.integers(0, 20), inner),
        st.builds(gen.cycle, inner),
        st.builds(lambda g: gen.repeat(g, 5), inner),
        st.builds(gen.until_ok, inner),
        st.builds(gen.synchronize, inner),
        st.builds(gen.each_thread, inner),
        st.builds(gen.each_process, inner),
        st.builds(lambda g: gen.time_limit(0.01, g), inner),
        st.builds(lambda g: gen.rate(2000, g), inner),
        st.builds(lambda g: gen.stagger(Random(1), 0.001, g), inner),
        st.builds(gen.concurrency_limit, st.integers(1, 3), inner),
        st.builds(gen.process_limit, st.integers(1, 30), inner),
        st.builds(gen.clients, inner, st.just(None)),
        st.builds(gen.nemesis, inner, st.just(None)),
        st.builds(lambda p: gen.any_(*p), pair),
        st.builds(lambda p: gen.shortest_any(*p), pair),
        st.builds(lambda p: gen.flip_flop(*p), pair),
        st.builds(lambda p: gen.mix(Random(2), p), pair),
        st.builds(lambda p: gen.phases(*p), pair),
        st.builds(lambda p: gen.cycle_times(0.002, p[0], 0.003, p[1]), pair),
        st.builds(lambda g: gen.key_window(Random(3), 2, 4, lambda key: g, keys="abcde"), inner),
        st.builds(lambda g: gen.concurrent_keys(1, ["a", "b", "c"], lambda key: g), inner),
    )


@given(st.recursive(SMALL, wrapped, max_leaves=6), st.sampled_from([quick, perfect, info, imperfect]))
def test_whatever_is_put_together_is_pure_and_keeps_the_contract(source: Source, complete) -> None:  # type: ignore[no-untyped-def]
    """Asked twice, the same; asked again from the beginning, the same; never an op for a thread that is busy."""

    def history() -> list[Op] | str:
        try:
            return simulate(source, complete, concurrency=3, most=60, until_s=1)
        except GeneratorError as problem:
            # Legal compositions that make no sense: clients within the nemesis, a barrier within a generator whose
            # own open ops keep it from ever coming.
            return str(problem)

    first = history()
    assert first == history()
    if isinstance(first, str):
        assert "no such thread" in first or "for ever" in first
