# SPDX-License-Identifier: Apache-2.0
"""The schema of message ops: the input of the checkers of logs and queues (docs/histories.md).

`validate` returns the first problems of a history, each with its op. The checkers do not check every value beforehand.
They call it when a value causes an error (`explained`), so bad data is never reported as a bug of a checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import wraps
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from checkers.base import schema
from checkers.base.schema import BadOp
from results.history import Call, History
from results.op import OK, Op
from results.record import RunRecord
from results.verdict import CheckResult

Judge = TypeVar("Judge")

LARGEST: Final = 2**62 - 1
"""The largest id, offset and time: they are kept in 64 bits."""


class Check(NamedTuple):
    """The rule for a value: a predicate, and words. Those of arguments and results continue from "a send ..."."""

    words: str
    holds: Callable[[Any], bool]


def _whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value <= LARGEST


def _text(value: Any) -> bool:
    return type(value) is str and bool(value)


def _is_list(value: Any, what: Callable[[Any], bool]) -> bool:
    return isinstance(value, (list, tuple)) and all(map(what, value))


def _message(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and _whole(value[0]) and _identity(value[1])


def _discarded(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 4
        and _message(value[:2])
        and type(value[2]) is int
        and _whole(value[3])
    )


def _identity(value: Any) -> bool:
    return type(value) is str or _whole(value)


def _lease(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) >= 5
        and _text(value[0])
        and _whole(value[1])
        and _identity(value[2])
        and value[4] in (0, 1)
    )


def _drained(value: Any) -> bool:
    return isinstance(value, Mapping) and all(value.get(name) is None or _whole(value[name]) for name in _DRAINED)


def _members(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(name) and _text(node) for name, node in value.items())


def _progress(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    levels = value.get("delay") or {}
    figures = [*(levels.values() if isinstance(levels, Mapping) else [None]), value.get("timer") or 0]
    return all(type(n) is int for n in figures)


def _held(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and _whole(value.get("id"), 1)
        and isinstance(value.get("held"), Mapping)
        and all(_text(node) and (has is None or isinstance(has, bool)) for node, has in value["held"].items())
    )


def _counted(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("master"), bool) and _whole(value.get("in_sync"))


def _missing(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_list(value.get(kind), _text) for kind in ("topics", "groups"))


def _settings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(name) and _text(text) for name, text in value.items())


def _flag(value: Any) -> bool:
    return isinstance(value, Mapping) and _text(value.get("member")) and isinstance(value.get("gray"), bool)


def _rebalanced(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_list(value.get(name), _text) for name in ("queues", "gray", "base"))


_DRAINED: Final = ("committed", "max", "consumed_to")

ANY: Final = Check("has any value", lambda value: True)
ID: Final = Check("has a positive number as its id", lambda value: _whole(value, 1))
ASKED: Final = Check("asks for an offset (a whole number from 0), or null", lambda v: v is None or _whole(v))
PLACE: Final = Check(
    "is acknowledged as [offset, id]",
    lambda v: isinstance(v, (list, tuple)) and len(v) == 2 and (v[0] is None or _whole(v[0])) and _whole(v[1], 1),
)
MESSAGES: Final = Check("shows a list of messages, each [offset, id]", lambda v: _is_list(v, _message))
LEASES: Final = Check(
    "shows a list of messages, each [queue, offset, id, handle, retried (0 or 1)]", lambda v: _is_list(v, _lease)
)
DISCARDED: Final = Check(
    "shows a list of messages, each [offset, id, age in ms, number of questions]", lambda v: _is_list(v, _discarded)
)
QUESTION: Final = Check(
    "brings the id of the message that a broker asks about, or null", lambda v: v is None or _identity(v)
)
END: Final = Check("is answered with an offset (a whole number from 0)", _whole)
COMMITS: Final = Check("has an offset (a whole number from 0)", _whole)
COMMITTED: Final = Check(
    "is answered with an offset (a whole number from 0), or null", lambda v: v is None or _whole(v)
)
RETURNED: Final = Check("brings back a message, [offset, id]", _message)
QUEUES: Final = Check("has a list of queues, or null", lambda v: v is None or _is_list(v, _text))
DRAINED: Final = Check('is answered with {"committed": N, "max": N, "consumed_to": N}', _drained)
MEMBERS: Final = Check("is answered with the members, each broker id -> node", _members)
PROGRESS: Final = Check('is answered with {"counter": N, "delay": {level: N}, "timer": N}, or null for each', _progress)
ROUTE: Final = Check(
    'is answered with {"addresses": {broker id: node}, "permission": N}, the permission perhaps null',
    lambda v: (
        isinstance(v, Mapping)
        and _members(v.get("addresses"))
        and (v.get("permission") is None or _whole(v["permission"]))
    ),
)
HELD: Final = Check('is answered with {"id": N, "held": {node: true, false or null}}', _held)
COUNTED: Final = Check('is answered with {"master": true or false, "in_sync": N}', _counted)
MISSING: Final = Check('is answered with {"topics": [NAME, ...], "groups": [NAME, ...]}', _missing)
SETTINGS: Final = Check("is answered with the settings, each name -> text", _settings)
FLAGGED: Final = Check('has {"member": NAME, "gray": true or false}', _flag)
REBALANCED: Final = Check('is answered with {"queues": [...], "gray": [...], "base": [...]}', _rebalanced)
MADE: Final = Check("has the number of a topic's queues (a whole number from 1)", lambda v: _whole(v, 1))
COUNT: Final = Check("is answered with the number of a topic's queues, or null", lambda v: v is None or _whole(v))
RESET: Final = Check(
    "is answered with the new offset (a whole number from 0) of each queue",
    lambda v: isinstance(v, Mapping) and all(_text(queue) and _whole(offset) for queue, offset in v.items()),
)
NODES: Final = Check("a list of names", lambda v: _is_list(v, _text))
NAME: Final = Check("a name", _text)
FLAG: Final = Check("true or false", lambda value: isinstance(value, bool))
OFFSET: Final = Check("a whole number from 0", _whole)
ITS_ID: Final = Check("a positive number", lambda value: _whole(value, 1))

_WHO: Final[Mapping[str, Check]] = {"node": NAME}
_SERVED: Final[Mapping[str, Check]] = {
    **_WHO, "role": NAME, "min": OFFSET, "max": OFFSET, "next": OFFSET, "done": FLAG, "start": FLAG
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """argument: the invocation's value; result: that of an `ok`. extra: the rules for these fields, if present; those
    in `needs` must be present. keyed: the key is the queue.
    """

    argument: Check
    result: Check
    extra: Mapping[str, Check] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    keyed: bool = True


_GROUP: Final[Mapping[str, Check]] = {**_WHO, "group": NAME}
_MEMBER: Final[Mapping[str, Check]] = {"group": NAME, "member": NAME}

_COLOURED: Final[Mapping[str, Check]] = {"colour": NAME, "producer": NAME, "ordering": OFFSET}

FORMS: Final[Mapping[str, Form]] = {
    "send": Form(ID, PLACE, {**_WHO, "offset": OFFSET, "message_id": NAME, **_COLOURED}),
    "delay": Form(ID, PLACE, {**_WHO, "wait_ms": OFFSET}, ("wait_ms",)),
    "recall": Form(ID, ID, _WHO),
    "half": Form(ID, PLACE, {**_WHO, "queue": NAME, "member": NAME, "immunity_s": OFFSET}),
    "end": Form(ID, ID, {**_WHO, "as": NAME, "one_way": FLAG}, ("as",)),
    "check": Form(ANY, QUESTION, {**_WHO, "waited_ms": OFFSET, "replaces": OFFSET, "deaf": FLAG}, keyed=False),
    "given-up": Form(ASKED, DISCARDED, {**_SERVED, "no_topic": FLAG}),
    "poll": Form(ASKED, MESSAGES, _SERVED),
    "replica-read": Form(ASKED, MESSAGES, _SERVED),
    "max-offset": Form(ANY, END, _WHO),
    "min-offset": Form(ANY, END, _WHO),
    "consume": Form(ASKED, MESSAGES, {**_SERVED, "group": NAME}, ("group",)),
    "commit": Form(COMMITS, ANY, _GROUP, ("group",)),
    "committed": Form(ANY, COMMITTED, _GROUP, ("group",)),
    "drain": Form(ANY, DRAINED, _GROUP, ("group",)),
    "pop": Form(ANY, LEASES, {**_GROUP, "invisible_ms": OFFSET}, ("group", "invisible_ms"), keyed=False),
    "ack": Form(ANY, ANY, {**_GROUP, "id": ITS_ID}, ("group", "id"), keyed=False),
    "extend": Form(ANY, ANY, {**_GROUP, "id": ITS_ID}, ("group", "id"), keyed=False),
    "lock": Form(ANY, ANY, {**_GROUP, "client": NAME, "refused": FLAG}, ("client",)),
    "unlock": Form(ANY, ANY, {**_GROUP, "client": NAME}, ("client",)),
    "direct": Form(COMMITS, ANY, _GROUP, ("group", "node")),
    "members": Form(ANY, MEMBERS, {"name_server": NAME}, ("name_server",)),
    "route": Form(ANY, ROUTE, {"name_server": NAME}, ("name_server",)),
    "routed-read": Form(ASKED, MESSAGES, _WHO),
    "progress": Form(ANY, PROGRESS, _WHO, ("node",), keyed=False),
    "held": Form(ANY, HELD, keyed=False),
    "in-sync": Form(ANY, COUNTED, _WHO, ("node",), keyed=False),
    "settings": Form(ANY, SETTINGS, _WHO, ("node",), keyed=False),
    "reset": Form(ASKED, RESET, {**_GROUP, "ago_ms": OFFSET}, ("group",)),
    "assign": Form(QUEUES, QUEUES, _GROUP, keyed=False),
    "crash": Form(ANY, ANY, _GROUP, keyed=False),
    "join": Form(ANY, ANY, {**_MEMBER, "gray": FLAG}, ("member",), keyed=False),
    "leave": Form(ANY, ANY, _MEMBER, ("member",), keyed=False),
    "rebalance": Form(ANY, REBALANCED, _MEMBER, ("member",), keyed=False),
    "flag": Form(FLAGGED, FLAGGED, keyed=False),
    "expand": Form(ANY, ANY, keyed=False),
    "send-back": Form(RETURNED, ANY, _GROUP),
    "seek": Form(ANY, ANY, _WHO, keyed=False),
    "remake": Form(ANY, MISSING, _WHO, keyed=False),
    "update-topic": Form(MADE, MADE, {"nodes": NODES}, keyed=False),
    "delete-topic": Form(ANY, ANY, {"nodes": NODES}, keyed=False),
    "topic": Form(ANY, COUNT, {**_GROUP, "queues": OFFSET}, ("group",), keyed=False),
}
"""f -> the form of its ops. These judges ignore all others."""


def validate(history: History, most: int = 5) -> list[BadOp]:
    """The first problems of a history's message ops, in order of index; empty if it conforms to docs/histories.md."""
    return list(islice(_problems(history), most))


def explained(history: History) -> AbstractContextManager[None]:
    """`checkers.base.schema.explained` for the ops of messages."""
    return schema.explained(history, _problems)


def of_messages(check: Callable[[Judge, RunRecord], CheckResult]) -> Callable[[Judge, RunRecord], CheckResult]:
    """Decorates the `check` of a judge of messages: it runs inside `explained`."""

    @wraps(check)
    def checked(self: Judge, run: RunRecord) -> CheckResult:
        with explained(run.history):
            return check(self, run)

    return checked


def _problems(history: History) -> Iterator[BadOp]:
    sent: dict[int, int] = {}
    for call in history.clients.calls:
        form = FORMS.get(call.invoke.f)
        if form is None:
            continue
        for op, what in _of_call(call, form):
            yield BadOp(op.index, what)
        if call.invoke.f == "send" and ID.holds(call.invoke.value):
            before = sent.setdefault(call.invoke.value, call.invoke.index)
            if before != call.invoke.index:
                yield BadOp(
                    call.invoke.index,
                    f"message {call.invoke.value} was sent before (op {before}); every send has an id of its own",
                )


def _of_call(call: Call, form: Form) -> Iterator[tuple[Op, str]]:
    invoke, done = call.invoke, call.completion
    f = invoke.f
    if form.keyed and invoke.key is None:
        yield invoke, f'a {f} has a key, the queue, such as "t:a:0"'
    if not form.argument.holds(invoke.value):
        yield invoke, f"a {f} {form.argument.words}, not {_shown(invoke.value)}"
    extra: Mapping[str, Any] = invoke.extra if done is None else {**invoke.extra, **done.extra}
    missing = next((name for name in form.needs if extra.get(name) is None), None)
    if missing is not None:
        yield invoke, f"a {f} needs {missing!r} in its extra: {form.extra[missing].words}"
    for op in (invoke, *([done] if done is not None else [])):
        for name, check in form.extra.items():
            value = op.extra.get(name)
            if value is not None and not check.holds(value):
                yield op, f"{name!r} of a {f} is {check.words}, not {_shown(value)}"
    if done is None or done.type != OK:
        return
    if not form.result.holds(done.value):
        yield done, f"a {f} {form.result.words}, not {_shown(done.value)}"
    elif f == "send" and done.value[1] != invoke.value:
        yield done, f"the send of message {invoke.value} is acknowledged with the id {done.value[1]}"


def _shown(value: Any) -> str:
    """A value in the form of JSON, a long one cut."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
