# SPDX-License-Identifier: Apache-2.0
"""Real objects at work, one for each model, and the histories they leave: for the tests of the models.

The objects share nothing with the models: a `deque` is what a FIFO queue is. Every op takes effect at one moment within
its call, so the history is linearizable; then, perhaps, one answer is falsified, and only brute force knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from checkers.linearizability import (
    ANYTHING,
    INCONSISTENT,
    KV,
    MODELS,
    CasRegister,
    Counter,
    Model,
    MultiRegister,
    Register,
    Transition,
)
from checkers.linearizability.models.values import freeze
from results.history import Call
from results.op import Op, OpType

NEVER = float("inf")


class Refused(Exception):
    """The op certainly does nothing."""


@dataclass(frozen=True)
class Work:
    """make: a new object. ask: f and argument of the next op. do: its result. lie: a result that may be wrong."""

    make: Callable[[], Any]
    ask: Callable[[Random, int], tuple[str, Any]]
    do: Callable[[Any, str, Any], Any]
    lie: Callable[[Random, str, Any], Any]


def _register(obj: dict[str, Any], f: str, arg: Any) -> Any:
    if f == "cas":
        if obj.get("v") != arg[0]:
            raise Refused
        obj["v"] = arg[1]
    elif f in ("write", "w"):
        obj["v"] = arg
    else:
        return obj.get("v")
    return arg


def _txn(obj: dict[str, Any], f: str, arg: Any) -> Any:
    """One read in some does not say what it saw."""
    seen = []
    for step, name, value in arg:
        if step in ("write", "w"):
            obj[name] = value
        obj["count"] = obj.get("count", 0) + 1
        seen.append([step, name] if step == "read" and obj["count"] % 4 == 0 else [step, name, obj.get(name)])
    return seen


def _kv(obj: list[str], f: str, arg: Any) -> Any:
    if f == "get":
        return "".join(obj)
    if f in ("put", "delete"):
        obj.clear()
    obj.append(arg or "")
    return arg


def _count(obj: list[int], f: str, arg: Any) -> Any:
    """One answer in some does not say the number."""
    before = sum(obj)
    obj.append({"read": 0, "increment": 1, "decrement": -1}.get(f, arg))
    if f == "add":
        return arg
    if f != "read" and len(obj) % 4 == 0:
        return None
    return before if f == "get-and-add" else sum(obj)


def _set(obj: set[Any], f: str, arg: Any) -> Any:
    if f == "read":
        return sorted(obj)
    if f == "contains":
        return arg in obj
    (obj.add if f == "add" else obj.discard)(arg)
    return arg


def _drained(obj: Any) -> list[Any]:
    there = list(obj)
    obj.clear()
    return there


def _fifo(obj: deque[Any], f: str, arg: Any) -> Any:
    if f == "enqueue":
        obj.append(arg)
        return arg
    if f == "drain":
        return _drained(obj)
    return obj.popleft() if obj else None


def _bag(obj: list[Any], f: str, arg: Any) -> Any:
    if f == "enqueue":
        obj.append(arg)
        return arg
    if f == "drain":
        return _drained(obj)[::-1]
    return obj.pop(sum(obj) % len(obj)) if obj else None


def _stack(obj: list[Any], f: str, arg: Any) -> Any:
    if f == "push":
        obj.append(arg)
        return arg
    return obj.pop() if obj else None


LONG = {"lock": "acquire", "unlock": "release", "try-lock": "try-acquire"}


def _mutex(obj: list[None], f: str, arg: Any) -> Any:
    f = LONG.get(f, f)
    if f == "try-acquire":
        return not obj and not obj.append(None)
    if (f == "release") != bool(obj):
        raise Refused
    obj.pop() if obj else obj.append(None)


def _fenced(obj: dict[str, Any], f: str, arg: Any) -> Any:
    """One try in some does not say the fence."""
    f = LONG.get(f, f)
    if f == "try-acquire" and obj.get("holder"):
        return False
    if (f == "acquire" and obj.get("holder")) or (f == "release" and obj.get("holder") != arg):
        raise Refused
    obj["holder"] = None if f == "release" else arg
    obj["fence"] = obj.get("fence", 0) + (f != "release")
    if f == "try-acquire" and obj["fence"] % 3 == 0:
        return True
    return arg if f == "release" else obj["fence"]


def _reentrant(obj: list[str], f: str, arg: Any) -> Any:
    f = LONG.get(f, f)
    other = any(holder != arg for holder in obj)
    if f == "try-acquire":
        return not other and not obj.append(arg)
    if (f == "acquire" and other) or (f == "release" and arg not in obj):
        raise Refused
    obj.append(arg) if f == "acquire" else obj.pop()
    return arg


def _log(obj: dict[str, Any], f: str, arg: Any) -> Any:
    first, entries = obj.setdefault("first", 0), obj.setdefault("entries", [])
    if f == "append":
        entries.append(arg)
        return len(entries) - 1
    if f == "trim":
        if arg > len(entries):
            raise Refused
        obj["first"] = max(first, arg)
        return arg
    if f == "read":
        return entries[arg] if first <= arg < len(entries) else None
    return first if f == "min-offset" else len(entries)


def _ask(*fs: str, values: int = 3, plain: Sequence[str] = ()) -> Callable[[Random, int], tuple[str, Any]]:
    """Any of `fs`; those in `plain` have no argument, the others a small number."""

    def ask(rng: Random, op: int) -> tuple[str, Any]:
        f = rng.choice(fs)
        return f, None if f in plain else rng.randrange(values)

    return ask


def _ask_txn(rng: Random, op: int) -> tuple[str, Any]:
    steps = [(rng.choice(("read", "r", "write", "w")), name) for name in ("x", 9)[: rng.randint(1, 2)]]
    return "txn", [[f, name, rng.randrange(2) if f in ("write", "w") else None] for f, name in steps]


def _ask_cas(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("read", "r", "write", "cas"))
    old, new = rng.randrange(3), rng.randrange(3)
    return f, None if f in ("read", "r") else new if f == "write" else [rng.choice((None, old)), new]


def _ask_kv(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("get", "get", "get", "put", "append", "append", "delete"))
    return f, None if f in ("get", "delete") else rng.choice("ab")


def _ask_count(rng: Random, op: int) -> tuple[str, Any]:
    f = rng.choice(("add", "add", "read", "read", "add-and-get", "get-and-add", "increment", "decrement"))
    return f, rng.randrange(-1, 3) if "add" in f.replace("read", "") else None


LOCKS = ("acquire", "lock", "release", "release", "unlock", "try-acquire", "try-lock")


def _ask_owner(rng: Random, op: int) -> tuple[str, Any]:
    return rng.choice(LOCKS), rng.choice(("ann", "bob"))


def _numbers(rng: Random, f: str, result: Any) -> Any:
    """One of a few, or none, wherever a result is one of a few."""
    return rng.choice((None, 0, 1, 2))


def _others(change: Callable[[Random, str, Any], Any], *fs: str) -> Callable[[Random, str, Any], Any]:
    """Only the results of `fs` are results at all."""
    return lambda rng, f, result: change(rng, f, result) if f in fs else result


def _lie_txn(rng: Random, f: str, result: Any) -> Any:
    return [[f, name, rng.choice((None, 0, 1)) if rest and f in ("read", "r") else rest[0]] if rest else [f, name]
            for f, name, *rest in result]  # fmt: skip


def _lie_taken(rng: Random, f: str, result: Any) -> Any:
    """Another element, or a drain that shows one less, another one, or another order."""
    if f != "drain":
        return _numbers(rng, f, result) if f == "dequeue" else result
    return rng.choice((result[1:], [*result, rng.randrange(3)], rng.sample(result, len(result))))


def _lie_lock(rng: Random, f: str, result: Any) -> Any:
    """Of locks whose only other answer is that of a try."""
    return not result if "try" in f else result


def _lie_fence(rng: Random, f: str, result: Any) -> Any:
    if "try" in f:
        return rng.choice((True, False, 1, 2, 3))
    return rng.choice((None, 1, 2, 3)) if LONG.get(f, f) == "acquire" else result


def _lie_count(rng: Random, f: str, result: Any) -> Any:
    return result if f == "add" or result is None else result + rng.choice((-1, 1))


def _lie_elements(rng: Random, f: str, result: Any) -> Any:
    return rng.random() < 0.5 if f == "contains" else rng.sample(range(3), rng.randint(0, 3))


_TAKES = ("dequeue", "drain")

WORK: dict[str, Work] = {
    "register": Work(
        dict, _ask("read", "r", "write", "w", plain=["read", "r"]), _register, _others(_numbers, "read", "r")
    ),
    "cas-register": Work(dict, _ask_cas, _register, _others(_numbers, "read", "r")),
    "multi-register": Work(dict, _ask_txn, _txn, _lie_txn),
    "kv": Work(list, _ask_kv, _kv, _others(lambda rng, f, r: r[1:] + rng.choice(("", "a", "b")), "get")),
    "counter": Work(list, _ask_count, _count, _lie_count),
    "grow-only-set": Work(set, _ask("add", "read", plain=["read"]), _set, _others(_lie_elements, "read")),
    "set": Work(
        set, _ask("add", "remove", "contains", "read", plain=["read"]), _set, _others(_lie_elements, "contains", "read")
    ),
    "fifo-queue": Work(deque, _ask(*["enqueue"] * 4, "dequeue", "dequeue", "drain", plain=_TAKES), _fifo, _lie_taken),
    "unordered-queue": Work(list, _ask(*["enqueue", "dequeue"] * 3, "drain", plain=_TAKES), _bag, _lie_taken),
    "stack": Work(list, _ask("push", "push", "pop", plain=["pop"]), _stack, _others(_numbers, "pop")),
    "mutex": Work(list, _ask(*LOCKS, plain=LOCKS), _mutex, _lie_lock),
    "fenced-lock": Work(dict, _ask_owner, _fenced, _lie_fence),
    "reentrant-lock": Work(list, _ask_owner, _reentrant, _lie_lock),
    "log": Work(
        dict,
        _ask(
            "append", "append", "read", "read", "min-offset", "max-offset", "trim", plain=["min-offset", "max-offset"]
        ),
        _log,
        lambda rng, f, r: r if f == "trim" else rng.choice((0, 1, 2, None) if f in ("append", "read") else (0, 1, 2)),
    ),
}
"""The operations of each model of `MODELS` at work."""


def _from(start: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """A new object that is not empty."""

    def made() -> Any:
        obj = make()
        obj.update(start) if isinstance(start, dict) else obj.extend(start)
        return obj

    return made


def _started(name: str, start: Any) -> Work:
    return replace(WORK[name], make=_from(start, WORK[name].make))


STARTED: dict[str, tuple[Callable[[], Model[Any]], Work]] = {
    "register from 1": (lambda: Register(1), _started("register", {"v": 1})),
    "cas-register from 1": (lambda: CasRegister(1), _started("cas-register", {"v": 1})),
    "register of any start": (lambda: Register(ANYTHING), _started("register", {"v": 1})),
    "cas-register of any start": (lambda: CasRegister(ANYTHING), _started("cas-register", {"v": 1})),
    "multi-register from 1": (lambda: MultiRegister(1), _started("multi-register", {"x": 1, 9: 1})),
    "multi-register of any start": (lambda: MultiRegister(ANYTHING), _started("multi-register", {"x": 1, 9: 0})),
    "kv from ab": (lambda: KV("ab"), _started("kv", ["ab"])),
    "kv of any start": (lambda: KV(ANYTHING), _started("kv", ["ab"])),
    "counter from 2": (lambda: Counter(2), _started("counter", [2])),
    "counter of any start": (lambda: Counter(ANYTHING), _started("counter", [2])),
}
"""Models that do not begin with nothing, and objects that begin so."""


def lived(rng: Random, name: str, crash: float, most: int = 8, work: Work | None = None) -> list[Call]:
    """A true history of up to `most` ops. Each is its own client; unknown ones happened half of the time."""
    work = work or WORK[name]
    obj, count = work.make(), rng.randint(1, most)
    events: list[tuple[float, int, OpType | None, str, Any]] = []
    for op, moment in enumerate(sorted(rng.random() * count for _ in range(count))):
        f, argument = work.ask(rng, op)
        type_: OpType | None = rng.choice(("info", None)) if rng.random() < crash else "ok"
        result = None
        if type_ == "ok" or rng.random() < 0.5:
            try:
                result = work.do(obj, f, argument)
            except Refused:
                type_ = "fail"
        length = rng.choice((0.3, 2, 5))
        events.append((moment - rng.random() * length, op, "invoke", f, argument))
        if type_ is not None:
            events.append((moment + rng.random() * length, op, type_, f, result if type_ == "ok" else argument))
    return assembled(events)


def assembled(events: Sequence[tuple[float, int, OpType | None, str, Any]]) -> list[Call]:
    """(when, process, type, f, value) as calls of the key `k`; the order is that of the times."""
    calls: dict[int, Call] = {}
    for index, (_, op, type_, f, value) in enumerate(sorted(events, key=lambda event: event[:2])):
        assert type_ is not None
        this = Op(index, index, op, type_, f, "k", value)
        calls[op] = Call(this, None) if type_ == "invoke" else Call(calls[op].invoke, this)
    return list(calls.values())


def falsified(rng: Random, name: str, calls: Sequence[Call], work: Work | None = None) -> list[Call]:
    """The same with another answer to one op, which may happen to be as good."""
    known = [i for i, call in enumerate(calls) if call.outcome == "ok"]
    made = list(calls)
    if known:
        at = rng.choice(known)
        invoke, answer = made[at].invoke, made[at].completion
        assert answer is not None
        if name in ("mutex", "reentrant-lock") and "try" not in invoke.f:
            # Their only answer is that it worked: let an op be the other one.
            other = "release" if LONG.get(invoke.f, invoke.f) == "acquire" else "acquire"
            invoke = Op(invoke.index, invoke.time, invoke.process, "invoke", other, "k", invoke.value)
        value = (work or WORK[name]).lie(rng, invoke.f, answer.value)
        made[at] = Call(invoke, Op(answer.index, answer.time, answer.process, "ok", invoke.f, "k", value))
    return made


def brute_force(calls: Sequence[Call], model: Model[Any], perhaps: Collection[int] = ()) -> bool:
    """Straight from the definition, and from nothing else: some order of all that completed and of any of the unknown
    fits time and model. `model` as it is, with nothing narrowed. `perhaps`: invocations of acknowledged ops of which
    one does not know whether they happened (but with which result, if so).
    """
    kept = [call for call in calls if call.outcome != "fail" and call.invoke.f in model.fs]
    kinds = [_frozen(model.kind(call)) for call in kept]
    begin = [call.invoke.index for call in kept]
    end: list[float] = [
        c.completion.index if c.completion and c.outcome == "ok" and c.invoke.index not in perhaps else NEVER
        for c in kept
    ]
    must = frozenset(i for i, e in enumerate(end) if e != NEVER)
    hopeless: set[tuple[frozenset[int], Any]] = set()

    def possible(placed: frozenset[int], state: Any) -> bool:
        if must <= placed:
            return True
        if (placed, state) in hopeless:
            return False
        first_return = min(end[i] for i in must - placed)
        for i in range(len(kept)):
            if i not in placed and begin[i] < first_return:
                after = model.step(state, kinds[i])
                if after is not INCONSISTENT and possible(placed | {i}, after):
                    return True
        hopeless.add((placed, state))
        return False

    return possible(frozenset(), model.initial)


def told(calls: Sequence[Call]) -> str:
    """The history as text, for a failed assertion."""
    return str(
        [
            (
                c.invoke.f,
                c.invoke.value,
                c.outcome,
                c.completion and c.completion.value,
                c.invoke.index,
                c.completion and c.completion.index,
            )
            for c in calls
        ]
    )


def _frozen(kind: Transition) -> Transition:
    return Transition(kind.f, freeze(kind.value), kind.known)


def model_of(name: str) -> Model[Any]:
    """The model with its defaults."""
    return MODELS[name]()
