# SPDX-License-Identifier: Apache-2.0
"""Laws that no oracle is needed for: what must not change a verdict, and what can change it in one direction only.

Every model, and every special case on the unique values that it is made for. The last test shows that the laws notice
judges who are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from effort import effort
from fuzz.unique import UNIQUE
from models_at_work import WORK, Work, falsified, lived, told

from checkers.linearizability import INCONSISTENT, MODELS, Log, Model, check, encode
from checkers.linearizability.compiled.jit import plain
from checkers.linearizability.models.specification import Transition
from checkers.linearizability.models.values import freeze
from checkers.linearizability.monitors.registers import unique_register
from results.history import Call
from results.op import Op
from results.verdict import Verdict

Judge = Callable[[Sequence[Call], Model[Any]], "tuple[bool, Sequence[int] | None]"]
"""Is it valid? And, if it says so, an order of invocations that explains it."""

Event = tuple[int, bool]
"""(number of the call, is it its completion?)"""

FAMILIES: dict[str, tuple[str, Work]] = {name: (name, work) for name, work in WORK.items()}
FAMILIES |= {f"unique {family}": one for family, one in UNIQUE.items()}


def judged(calls: Sequence[Call], model: Model[Any]) -> tuple[bool, Sequence[int] | None]:
    # (That compiled code gives the same verdicts is tested elsewhere; for so few ops its tables are not worth making.)
    with plain():
        result = check(calls, model)
    nothing = not any(call.outcome == "ok" for call in calls)
    assert result.verdict != Verdict.UNKNOWN or nothing, told(calls)
    return result.verdict == Verdict.VALID or nothing, result.witness


def events_of(calls: Sequence[Call]) -> list[Event]:
    """In order of time."""
    stamped = [(call.invoke.index, i, False) for i, call in enumerate(calls)]
    stamped += [(call.completion.index, i, True) for i, call in enumerate(calls) if call.completion is not None]
    return [(i, end) for _, i, end in sorted(stamped)]


def at_places(calls: Sequence[Call], events: Sequence[Event], step: int = 1) -> list[Call]:
    """The calls with their events in this order; what is not there does not happen."""
    place = {event: step * at for at, event in enumerate(events)}
    made: list[Call] = []
    for i, call in enumerate(calls):
        if (i, False) not in place:
            continue
        answer = call.completion
        if answer is not None:
            answer = replace(answer, index=place[i, True], time=place[i, True]) if (i, True) in place else None
        made.append(Call(replace(call.invoke, index=place[i, False], time=place[i, False]), answer))
    return sorted(made, key=lambda call: call.invoke.index)


def forgotten(call: Call) -> Call:
    """Nobody heard what became of it."""
    return Call(call.invoke, None)


def other_process(call: Call, of: dict[int, int]) -> Call:
    ops = [None if op is None else replace(op, process=of[op.process]) for op in (call.invoke, call.completion)]
    assert ops[0] is not None
    return Call(ops[0], ops[1])


def renamed(call: Call, family: str) -> Call:
    """Other values, equal where they were equal: the same object under other names."""
    name = FAMILIES[family][0]

    def new(op: Op, result: bool) -> Any:
        value = op.value
        if value is None or isinstance(value, bool):
            return value
        if name == "multi-register":
            return [[f, f"other {r}", *(None if v is None else f"v{v}" for v in rest)] for f, r, *rest in value]
        if name == "kv":
            return value.translate(str.maketrans("ab0123456789;", "ba9876543210:"))
        if name == "counter":
            return -3 * value
        if name == "fenced-lock" and result and op.f not in ("release", "unlock"):
            return 2 * value + 5
        if name == "log":
            is_entry = (op.f == "append" and not result) or (op.f == "read" and result)
            return f"entry {value}" if is_entry else value
        if isinstance(value, list):
            return [None if v is None else f"v{v}" for v in value]
        return f"v{value}"

    if name == "counter" and call.invoke.f in ("increment", "decrement"):
        # Of another step: what adds that, and shows as much.
        step, ops = (1 if call.invoke.f == "increment" else -1), [call.invoke, call.completion]
        longer = [None if op is None else replace(op, f="add-and-get") for op in ops]
        assert longer[0] is not None
        call = Call(replace(longer[0], value=step), longer[1])
    answer = call.completion
    if answer is not None:
        answer = replace(answer, value=new(answer, answer.type == "ok"))
    return Call(replace(call.invoke, value=new(call.invoke, False)), answer)


def laws(
    family: str, calls: Sequence[Call], model: Model[Any], judge: Judge, rng: Random
) -> Iterator[tuple[str, bool]]:
    """(law, does it hold here?)"""
    valid, witness = judge(calls, model)
    events = events_of(calls)

    def still(changed: Sequence[Call]) -> bool:
        return judge(changed, model)[0]

    yield "verdicts know no names: renaming the values", still([renamed(call, family) for call in calls]) == valid
    processes = sorted({call.invoke.process for call in calls})
    others = dict(zip(processes, rng.sample(range(1000), len(processes)), strict=True))
    yield "who asked does not matter", still([other_process(call, others) for call in calls]) == valid
    yield "nor how far two events lie apart", still(at_places(calls, events, step=7)) == valid

    alike = [i for i in range(len(events) - 1) if events[i][1] == events[i + 1][1]]
    if alike:
        at = rng.choice(alike)
        swapped = [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
        yield "two calls, or two returns, in a row may come in any order", still(at_places(calls, swapped)) == valid
    for wider in (True, False):
        # A return and the next call: the one op was over before the other began, and is not any more; or the reverse.
        some = [
            i for i in range(len(events) - 1)
            if events[i][0] != events[i + 1][0] and (events[i][1], events[i + 1][1]) == (wider, not wider)
        ]  # fmt: skip
        if some and wider == valid:
            at = rng.choice(some)
            swapped = [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
            law = "a call that takes longer keeps it valid" if wider else "a call that takes less keeps it invalid"
            yield law, still(at_places(calls, swapped)) == valid

    unknown = [i for i, call in enumerate(calls) if call.outcome == "info"]
    if valid:
        lost = [forgotten(call) if call.outcome == "ok" and rng.random() < 0.3 else call for call in calls]
        yield "knowing less keeps it valid", still(lost)
        end = rng.randint(0, len(events))
        yield "so does cutting its end", still(at_places(calls, events[:end]))
        if witness is not None:
            spared = [i for i in unknown if calls[i].invoke.index not in witness]
            left = [call for i, call in enumerate(calls) if i not in spared]
            yield "an unknown op that an explanation does without can be dropped", still(left)
        f, argument = FAMILIES[family][1].ask(rng, len(calls))
        at = rng.randint(0, len(events))
        with_one = [*calls, Call(Op(0, 0, 999, "invoke", f, "k", argument), None)]
        grown = at_places(with_one, [*events[:at], (len(calls), False), *events[at:]])
        yield "an unknown op more keeps it valid", still(grown)
    elif unknown:
        gone = rng.choice(unknown)
        left = [call for i, call in enumerate(calls) if i != gone]
        yield "an invalid history stays so without one of its unknown ops", not still(left)


def drawn(family: str, rng: Random, most: int) -> list[Call]:
    name, work = FAMILIES[family]
    calls = lived(rng, name, rng.choice((0, 0.2, 0.4)), most, work)
    return falsified(rng, name, calls, work) if rng.random() < 0.6 else calls


@pytest.mark.parametrize("family", FAMILIES)
def test_the_laws_hold(family: str) -> None:
    rng, model = Random(f"laws/{family}"), MODELS[FAMILIES[family][0]]()
    tried: dict[str, int] = {}
    for _ in range(effort(25, 12)):
        calls = drawn(family, rng, rng.choice((5, 8)))
        for law, holds in laws(family, calls, model, judged, rng):
            assert holds, f"{law}: {told(calls)}"
            tried[law] = tried.get(law, 0) + 1
    assert len(tried) >= 9, tried


def test_the_laws_hold_for_registers_on_arrays() -> None:
    """Only long histories take this path."""
    rng, model, decided = Random("arrays"), MODELS["register"](), 0

    def on_arrays(calls: Sequence[Call], model: Model[Any]) -> tuple[bool, Sequence[int] | None]:
        nonlocal decided
        problem = encode(calls, model)
        outcome = unique_register(problem)
        if outcome is None:
            return judged(calls, model)
        decided += 1
        return outcome.verdict == Verdict.VALID, [problem.source[op] for op in outcome.witness or ()]

    for _ in range(effort(60)):
        calls = drawn("unique register", rng, 8)
        for law, holds in laws("unique register", calls, model, on_arrays, rng):
            assert holds, f"{law}: {told(calls)}"
    assert decided > effort(300)


def test_a_log_may_begin_anywhere() -> None:
    """Offsets that are all larger by the same, and so is the first."""
    rng = Random("offsets")
    verdicts = set()
    for _ in range(effort(60)):
        calls = drawn("log", rng, 8)
        valid = judged(calls, Log())[0]
        assert judged([_shifted(call, 5) for call in calls], Log(5))[0] == valid, told(calls)
        verdicts.add(valid)
    assert verdicts == {True, False}


def _shifted(call: Call, by: int) -> Call:
    answer = call.completion
    if call.invoke.f in ("read", "trim"):
        call = Call(replace(call.invoke, value=call.invoke.value + by), answer)
    shown = answer is not None and answer.type == "ok" and answer.value is not None
    if answer is not None and call.invoke.f != "read" and (shown or call.invoke.f == "trim"):
        answer = replace(answer, value=answer.value + by)
    return Call(call.invoke, answer)


def _by_call(calls: Sequence[Call], model: Model[Any]) -> tuple[bool, None]:
    """Takes the order of the calls for the order of the effects."""
    state = model.initial
    for call in calls:
        if call.outcome == "ok":
            kind = model.kind(call)
            state = model.step(state, Transition(kind.f, freeze(kind.value), kind.known))
            if state is INCONSISTENT:
                return False, None
    return True, None


WRONG: dict[str, Judge] = {
    "the order of the calls is that of the effects": _by_call,
    "what is unknown did not happen": lambda calls, model: judged([c for c in calls if c.outcome != "info"], model),
    "what is unknown happened": lambda calls, model: judged([_done(c) for c in calls], model),
    "some clients are not looked at": lambda calls, model: judged([c for c in calls if c.invoke.process % 7], model),
    "one value is not looked at": lambda calls, model: judged([c for c in calls if c.invoke.value != 1], model),
    "nothing comes before anything": lambda calls, model: judged(_overlapping(calls), model),
    "a long history is valid": lambda calls, model: (True, None) if _long(calls) else judged(calls, model),
    "a witness may leave out anything": lambda calls, model: (judged(calls, model)[0], []),
}


def _done(call: Call) -> Call:
    """An unknown op as one that was over at the very end."""
    if call.outcome != "info":
        return call
    return Call(call.invoke, replace(call.invoke, index=10_000 + call.invoke.index, time=10_000, type="ok"))


def _overlapping(calls: Sequence[Call]) -> list[Call]:
    """Right up to the first return: what is called later is called then."""
    events = sorted(events_of(calls), key=lambda event: event[1])
    return at_places(calls, events) if len(calls) % 2 else list(calls)


def _long(calls: Sequence[Call]) -> bool:
    return max((op.index for call in calls for op in (call.invoke, call.completion) if op), default=0) > 40


@pytest.mark.parametrize("judge", WRONG.values(), ids=WRONG)
def test_the_laws_notice_a_wrong_judge(judge: Judge) -> None:
    rng, model = Random("wrong judges"), MODELS["register"]()
    for _ in range(400):
        calls = drawn("register", rng, 8)
        if not all(holds for _, holds in laws("register", calls, model, judge, rng)):
            return
    pytest.fail("no law is broken")
