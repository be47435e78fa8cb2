"""From the events of another project's file to a well-formed history of ours.

The readers only parse; what the events *mean* is decided here, once:

* the place in the file orders the events; `index` is that place, and a clock that runs back is held (with a note);
* a completion belongs to the open invocation of its process, repeats its argument where it says nothing itself
  (but for those whose result is something else, `ANSWERED`), and one without an invocation is an error;
* a process that continues after an `info` gets a new number, as Jepsen's own do;
* Jepsen's nemesis writes `info` twice, for begin and end: the first becomes an `invoke`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from results.errors import with_article
from results.history import History
from results.op import FAIL, INFO, INVOKE, NEMESIS, NO_EXTRA, OK, OP_TYPES, Op, make_op

READS: Final = frozenset({"read", "get"})

ANSWERED: Final = READS | {
    "dequeue", "pop", "contains", "acquire", "append", "min-offset", "max-offset",
    "send", "poll", "replica-read", "consume", "committed", "drain",
}  # fmt: skip
"""Ops whose result is not their argument: where a completion has none, there is none."""


@dataclass(frozen=True)
class ReadOptions:
    """What is read differently by different projects.

    failed_cas   What a `cas` that ended in `fail` says. `"nothing"` (default; Knossos): it did not happen.
                 `"observed"` (Porcupine's etcd test): the value was *not* the expected one at some moment of the
                 call; such a pair is read as an acknowledged `cas-refused` with the value `[from, to]`.
    nil_reads    What an acknowledged read of `nil` saw. `"unset"`: that there was no value (Porcupine; ours).
                 `"unrecorded"` (Knossos): it is not known; the pair is kept as a `fail`, which for a read
                 constrains nothing; what is in the invocation of a read is then what it is going to see, and
                 not its argument. None (default): as the format's own project does. A log in EDN, whose reads
                 have an offset for an argument, needs `"unset"`.
    independent  EDN: each client's value is `[key value]` (`jepsen.independent`). Default False.
    """

    failed_cas: Literal["nothing", "observed"] = "nothing"
    nil_reads: Literal["unset", "unrecorded"] | None = None
    independent: bool = False


@dataclass(frozen=True)
class ForeignHistory:
    """A history from a file. `model`: the one its operations imply, or None. `notes`: what was changed or left out;
    `damage`: those of the notes that speak against the file (a torn end, a clock that ran back).
    """

    history: History
    format: str
    model: str | None
    notes: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


class Assembler:
    """Takes events in the order of the file; `finish` gives the history. `add` raises ValueError with what is wrong."""

    def __init__(self, options: ReadOptions, nil_reads: Literal["unset", "unrecorded"] = "unset") -> None:
        self._observe_cas = options.failed_cas == "observed"
        self._drop_nil_reads = (options.nil_reads or nil_reads) == "unrecorded"
        self._ops: list[Op] = []
        self._open: dict[int, int] = {}
        self._gone: set[int] = set()
        self._alias: dict[int, int] = {}
        self._renamed = self._held = self._undated = self._renumbered = self._nil_reads = self._lone = self._events = 0
        self._time = 0
        self._highest = -1

    def add(
        self,
        process: Any,
        type_: Any,
        f: Any,
        value: Any,
        *,
        key: Any = None,
        error: Any = None,
        time: Any = None,
        index: Any = None,
        extra: Mapping[str, Any] = NO_EXTRA,
    ) -> None:
        """One event. `time` in ns, or None where the format has none; `index` as the file has it, or None."""
        if time is None:
            self._undated += 1
            time = len(self._ops)
        if error is not None and type(error) is not str:
            error = _text(error)
        number = process if type(process) is int else _process(process)
        place = self._events if index is None else index
        self.take(make_op(place, time, number, type_, f, key, value, error, extra or NO_EXTRA))

    def take(self, op: Op) -> None:
        """One event that already is an op. It is kept as it is where nothing has to change: no copy is made."""
        number = op.process
        if op.type not in OP_TYPES:
            raise ValueError(f"type is {op.type!r}, not one of {', '.join(OP_TYPES)}")
        if type(op.f) is not str:
            raise ValueError(f"f is {op.f!r}, not a name")
        if type(number) is not int or number < 0:
            _process(number)
            if number == NEMESIS and op.type == INFO and not op.is_event:
                op = self._nemesis(op)
        if op.index != self._events:
            self._renumbered += 1
        self._events += 1
        at = len(self._ops)
        time, actor = op.time, number
        if type(time) is int and time >= self._time:
            self._time = time
        else:
            time = self._clock(time)
        if number > self._highest:  # noqa: PLR1730 - a call of max for every event costs more
            self._highest = number
        if self._gone or self._alias:
            actor = self._actor(number)
        if op.index != at or op.time != time or number != actor:
            op = replace(op, index=at, time=time, process=actor)
        if op.key is not None and type(op.key) is not str:
            op = replace(op, key=_text(op.key))
        if op.type == INVOKE:
            self._invoke(op, number)
        elif op.is_event:
            self._ops.append(op)
        else:
            self._complete(op, number)

    def finish(self, format_: str, notes: list[str], torn: str | None = None) -> ForeignHistory:
        """The history of all events. Its processes are numbered finally only now, when the highest number is known.
        `torn`: what is to be said of the file's end.
        """
        damage = [torn] if torn else []
        notes = [*damage, *notes]
        if self._renamed:
            fresh = self._highest
            self._ops = [
                op if op.process >= NEMESIS else replace(op, process=fresh - 1 - op.process) for op in self._ops
            ]
            notes = [*notes, f"{self._renamed} processes continued after an info; they get new numbers"]
        if self._undated:
            notes = [*notes, "there are no times: the position in the file replaces the time of an event"]
        if self._held:
            damage.append(f"{self._held} events were earlier than the event above them; they get its time")
            notes = [*notes, damage[-1]]
        if self._renumbered:
            notes = [
                *notes,
                f"{self._renumbered} events had an index different from their position; they get the position",
            ]
        if self._lone:
            notes = [
                *notes,
                f"{self._lone} events of the nemesis had no second one; they end where the next one begins",
            ]
        if self._nil_reads:
            notes = [*notes, f"{self._nil_reads} reads recorded no value and are left out of account"]
        history = History(self._ops)
        self._ops = []
        return ForeignHistory(history, format_, implied_model(history), notes, damage)

    def _nemesis(self, op: Op) -> Op:
        """An `info` of the nemesis: the end of what it has open, or the begin of something."""
        at = self._open.get(NEMESIS)
        if at is not None and self._ops[at].f == op.f:
            return op
        if at is not None:
            # Some files keep one event of the two: what was open ends where the next begins.
            self._lone += 1
            del self._open[NEMESIS]
            self._ops.append(replace(self._ops[at], index=len(self._ops), time=self._ops[-1].time, type=INFO))
        return replace(op, type=INVOKE)

    def _actor(self, number: int) -> int:
        """The process itself, or the stand-in (-2, -3, ...) of one that continued after its `info`."""
        if number in self._gone:
            self._gone.discard(number)
            self._renamed += 1
            self._alias[number] = -1 - self._renamed
        return self._alias.get(number, number)

    def _clock(self, time: int) -> int:
        if not isinstance(time, int) or isinstance(time, bool):
            raise ValueError(f"time is {time!r}, not a whole number of nanoseconds")
        if self._ops and time < self._time:
            self._held += 1
            return self._time
        self._time = time
        return time

    def _invoke(self, op: Op, number: int) -> None:
        before = self._open.get(op.process)
        if before is not None:
            still = f"its {self._ops[before].f} is still open"
            raise ValueError(f"process {_named(number)} invokes {with_article(op.f)} although {still}")
        if number != NEMESIS:
            _insist_on_shape(op)
            if op.f in READS and op.value is not None and self._drop_nil_reads:
                # Knossos' files fill in what a read is going to see.
                op = replace(op, value=None)
        self._open[op.process] = len(self._ops)
        self._ops.append(op)

    def _complete(self, op: Op, number: int) -> None:
        at = self._open.pop(op.process, None)
        completes = f"process {_named(number)} completes {with_article(op.f)}"
        if at is None:
            raise ValueError(f"{completes} that it never invoked")
        invoked = self._ops[at]
        if invoked.f != op.f:
            raise ValueError(f"{completes} where it had invoked {with_article(invoked.f)}")
        if op.key is not None and op.key != invoked.key:
            raise ValueError(f"{completes} of key {op.key} where it had invoked one of {invoked.key}")
        if number != NEMESIS:
            op = self._client_completion(op, invoked, at)
            if op.type == INFO:
                self._gone.add(number)
        elif op.key != invoked.key:
            op = replace(op, key=invoked.key)
        self._ops.append(op)

    def _client_completion(self, op: Op, invoked: Op, at: int) -> Op:
        if op.key != invoked.key:
            op = replace(op, key=invoked.key)
        if op.value is None and op.f not in ANSWERED:
            op = replace(op, value=invoked.value)
        if op.type == FAIL and op.f == "cas" and self._observe_cas and op.error is None:
            self._ops[at] = replace(invoked, f="cas-refused")
            return replace(op, type=OK, f="cas-refused")
        if op.type == OK and op.f in READS and op.value is None and self._drop_nil_reads:
            self._nil_reads += 1
            return replace(op, type=FAIL, error=op.error or "a read without a recorded value")
        return op


def implied_model(history: History) -> str | None:
    """The model whose operations these are: `cas-register`, `kv`, `multi-register`, `mutex`, `stack`, `set`, `log`, or
    None: several models have `enqueue` and `dequeue`, or `add` and `read`.

    No operation at all is what a `cas-register` did, too: every model accepts it.
    """
    requested = {op.f for op in history if op.process >= 0}
    if requested == {"txn"}:
        every = all(_is_register_txn(op.value) for op in history if op.is_client)
        return "multi-register" if every else None
    return implied_by(requested)


def implied_by(requested: Set[str]) -> str | None:
    """`implied_model` by the operations' names, where these are enough."""
    if requested <= {"read", "write", "cas", "cas-refused"}:
        return "cas-register"
    if requested <= {"get", "put", "append"}:
        return "kv"
    if requested <= {"acquire", "release"}:
        return "mutex"
    if requested <= {"push", "pop"}:
        return "stack"
    if requested <= {"add", "remove", "contains", "read"} and requested & {"remove", "contains"}:
        return "set"
    if requested <= {"append", "read", "min-offset", "max-offset", "trim"}:
        return "log"
    return None


def _is_register_txn(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(step, list) and len(step) == 3 and step[0] in ("read", "write") for step in value
    )


def _insist_on_shape(op: Op) -> None:
    if op.f == "cas" and not (isinstance(op.value, list) and len(op.value) == 2):
        raise ValueError(f"a cas needs [from to], not {json.dumps(op.value)}")


def _process(process: Any) -> int:
    if process == "nemesis":
        return NEMESIS
    if isinstance(process, int) and not isinstance(process, bool) and process >= NEMESIS:
        return process
    raise ValueError(f"process is {process!r}, neither a whole number from 0 nor nemesis")


def _named(process: int) -> str:
    return "nemesis" if process == NEMESIS else str(process)


def _text(value: Any) -> str | None:
    """Keys and errors as text: themselves, or their JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
