# SPDX-License-Identifier: Apache-2.0
"""Converts the events of another project's file to a well-formed history of the harness.

The readers only parse; the *meaning* of the events is defined here, once:

* the place in the file orders the events (or their time, with that option); `index` is that place, and a clock that
  runs back is held (with a note);
* a completion belongs to the open invocation of its process, repeats its argument if it has no value (except the ops
  whose result differs from it, `ANSWERED`), and one without an invocation is an error;
* a process that continues after an `info` gets a new number, as Jepsen's own do; one that has a name gets a number;
* Jepsen's nemesis writes `info` twice, for begin and end: the first becomes an `invoke`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from results.errors import with_article
from results.formats.implied import implied_model, is_register_txn
from results.formats.order import in_time_order
from results.history import History
from results.op import FAIL, INFO, INVOKE, NEMESIS, NO_EXTRA, OK, OP_TYPES, Op, make_op

READS: Final = frozenset({"read", "get", "r"})

ANSWERED: Final = READS | {
    "dequeue", "pop", "contains", "acquire", "append", "min-offset", "max-offset", "drain", "txn",
    "lock", "try-acquire", "try-lock", "add-and-get", "get-and-add", "increment", "decrement",
    "send", "poll", "replica-read", "consume", "committed",
}  # fmt: skip
"""Ops whose result is not their argument: a completion without a value has no result."""

NEEDING: Final = frozenset(
    {"write", "w", "put", "add", "broadcast", "remove", "enqueue", "push", "cas", "append", "send"}
)
"""Ops that have an argument."""

_NAMED: Final = 1 << 48
"""Processes with a name have numbers from here on, until all numbers are known."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for the points that projects read differently.

    failed_cas   The meaning of a `cas` that ended in `fail`. `"nothing"` (default; Knossos): it did not happen.
                 `"observed"` (Porcupine's etcd test): the value was *not* the expected one at some moment of the
                 call; such a pair is read as an acknowledged `cas-refused` with the value `[from, to]`.
    nil_reads    The meaning of an acknowledged read of `nil`. `"unset"`: no value existed (Porcupine; this harness).
                 `"unrecorded"` (Knossos): its result is unknown; the pair is kept as a `fail`, which for a read
                 constrains nothing; the value in the invocation of a read is then its later result, and not its
                 argument. None (default): the rule of the format's own project. A log in EDN, whose reads have an
                 offset for an argument, needs `"unset"`.
                 The same holds for the reads of a `txn`, of which the others are kept. Without this option, an `r` of
                 nil saw that there was nothing (Elle), and only a `read` of nil is unknown.
    independent  Each client's value is `[key value]` (`jepsen.independent`). Default False, but True if values
                 have its tag.
    order        The order of the events: their place in the `"file"`, their `"time"`, or their `"index"`. At equal
                 times invocations come first; events of one process stay in the order of the file. None: the file,
                 unless each event has an index of its own that says otherwise, which is an error.
    offsets      Messages: `"sparse"` if some offsets of a queue hold no message (Kafka), `"dense"` if all do. None: the
                 rule of the format's own project.
    values       Reads all numbers in values as `"text"`, or all texts that are numbers as `"numbers"`. None: unchanged;
                 a number and a text are never the same value.
    """

    failed_cas: Literal["nothing", "observed"] = "nothing"
    nil_reads: Literal["unset", "unrecorded"] | None = None
    independent: bool = False
    order: Literal["file", "time", "index"] | None = None
    values: Literal["text", "numbers"] | None = None
    offsets: Literal["dense", "sparse"] | None = None


@dataclass(frozen=True)
class ForeignHistory:
    """A history from a file. `model`: the one its operations imply, or None. `notes`: the changes and omissions;
    `damage`: the notes that show a damaged file (a torn end, a clock that ran back). `start`: the initial value of
    registers, if its project has a rule.
    """

    history: History
    format: str
    model: str | None
    notes: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    start: int | None = None


class BadEvent(ValueError):
    """An error in the event at a place in the file, if it is only found at the end."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)
        self.place = place


class Assembler:
    """Takes events in the order of the file; `finish` returns the history. `add` raises ValueError that describes the
    error, and `finish` raises BadEvent.
    """

    def __init__(self, options: ReadOptions, nil_reads: Literal["unset", "unrecorded"] = "unset") -> None:
        self._options = options
        self._later: list[Op] = []  # all events, if their time orders them
        self._names: dict[str, int] = {}
        self._observe_cas = options.failed_cas == "observed"
        self._drop_nil_reads = (options.nil_reads or nil_reads) == "unrecorded"
        self._ops: list[Op] = []
        self._open: dict[int, int] = {}
        self._gone: set[int] = set()
        self._alias: dict[int, int] = {}
        self._renamed = self._held = self._undated = self._renumbered = self._nil_reads = self._lone = self._events = 0
        self._time = 0
        self._highest = -1
        self._indices: list[int] = []  # those that are not the event's place
        self._fell: int | None = None  # the place of the first one that is below the one before
        self._knossos = False
        self._refused = self._denied = self._doubtful = 0

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
        """Adds one event. `time` in ns, or None if the format has no times; `index`: that of the file, or None."""
        if type(time) in (str, dict):
            time = self._instant(time)
        if time is None:
            self._undated += 1
            time = len(self._ops) + len(self._later)
        if error is not None and type(error) is not str:
            error = _text(error)
        number = process if type(process) is int and process < _NAMED else self.number_of(process)
        place = self._events + len(self._later) if index is None else index
        self.take(make_op(place, time, number, type_, f, key, value, error, extra or NO_EXTRA))

    def _instant(self, written: Any) -> int:
        # Imported here: few files have dates.
        from results.formats.times import moment

        time = moment(written, "time")
        if not isinstance(time, int):
            raise ValueError(f"time is {written!r}, neither a whole number of nanoseconds nor a date")
        return int(time)

    def number_of(self, process: Any) -> int:
        """The number of a process, given as a number or a name. Raises ValueError for anything else."""
        if type(process) is int and process >= _NAMED:
            process = str(process)
        if type(process) is float and process.is_integer():
            process = int(process)  # (Programs that have no whole numbers write 1.0.)
        if isinstance(process, str) and process != "nemesis" and process:
            return self._names.setdefault(process, _NAMED + len(self._names))
        return _process(process)

    def take(self, op: Op) -> None:
        """Adds one event that already is an op. An op that needs no change is kept without a copy."""
        if self._options.values is not None and op.process >= 0 and op.value is not None:
            op = replace(op, value=converted(op.value, self._options.values))
        if self._options.order in ("time", "index"):
            self._later.append(op)
        else:
            self._take(op)

    def _take(self, op: Op) -> None:
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
            if self._indices and op.index < self._indices[-1] and self._fell is None:
                self._fell = self._events
            self._indices.append(op.index)
        self._events += 1
        at = len(self._ops)
        time, actor = op.time, number
        if type(time) is int and time >= self._time:
            self._time = time
        else:
            time = self._clock(time)
        if self._highest < number < _NAMED:
            self._highest = number
        if self._gone or self._alias:
            actor = self._actor(number)
        if op.index != at or op.time != time or number != actor:
            op = replace(op, index=at, time=time, process=actor)
        if op.key is not None and type(op.key) is not str:
            op = replace(op, key=_text(op.key))
        if op.f == "cas" and isinstance(op.value, dict):
            op = replace(op, value=_old_and_new(op.value))
        if op.type == INVOKE:
            self._invoke(op, number)
        elif op.is_event:
            self._ops.append(op)
        else:
            self._complete(op, number)

    def finish(
        self, format_: str, notes: list[str], torn: str | None = None, start: int | None = None
    ) -> ForeignHistory:
        """The history of all events. Its processes get their final numbers only now, when the highest one is known.
        `torn`: a note on the file's end, or None. `start`: see `ForeignHistory`.
        """
        damage = [torn] if torn else []
        notes = [*damage, *notes]
        if self._options.order == "time":
            self._take_by_time()
            notes = [*notes, "the events are ordered by their time"]
        elif self._options.order == "index":
            self._take_by_index()
            notes = [*notes, "the events are ordered by their index"]
        elif self._fell is not None and self._options.order is None and len({*self._indices}) == len(self._indices):
            raise BadEvent(self._fell, f"its index is below that of an event above; {_INDEX}")
        if self._names:
            fresh = self._highest + 1
            self._ops = [
                replace(op, process=fresh + op.process - _NAMED) if op.process >= _NAMED else op for op in self._ops
            ]
            self._highest += len(self._names)
            notes = [*notes, f"{len(self._names)} processes have names; they get numbers"]
        if self._renamed:
            fresh = self._highest
            self._ops = [
                op if op.process >= NEMESIS else replace(op, process=fresh - 1 - op.process) for op in self._ops
            ]
            notes = [*notes, f"{self._renamed} processes continued after an info; they get new numbers"]
        if self._undated:
            notes = [*notes, "the events have no times: the position in the file replaces the time of an event"]
        if self._held:
            hint = "" if self._options.order == "time" else " (--order time sorts them)"
            damage.append(f"{self._held} events were earlier than the event above them; they get its time{hint}")
            notes = [*notes, damage[-1]]
        if self._renumbered and self._options.order in (None, "file"):
            notes = [
                *notes,
                f"{self._renumbered} events had an index different from their position; they get the position",
            ]
        if self._lone:
            notes = [
                *notes,
                f"{self._lone} events of the nemesis had no second one; they end where the next one begins",
            ]
        if self._refused:
            notes = [*notes, f"{self._refused} operations were answered with false: they did not happen"]
        if self._denied:
            notes = [*notes, f"{self._denied} operations were answered with false: their outcome is unknown"]
        if self._doubtful:
            notes = [*notes, f"{self._doubtful} operations are ok although they have an error"]
        if self._nil_reads:
            notes = [*notes, f"{self._nil_reads} reads recorded no value and are left out of account"]
        # (As in Knossos' own files; Elle's registers, with r and w, begin empty.)
        if self._knossos and self._drop_nil_reads and format_ == "edn":
            start = 0
        history = History(self._ops)
        self._ops = []
        return ForeignHistory(history, format_, implied_model(history), notes, damage, start)

    def _take_by_time(self) -> None:
        """All events, in the order of their times. Raises BadEvent."""
        events, self._later = self._later, []
        if events and (self._undated or all(op.time == place for place, op in enumerate(events))):
            raise BadEvent(0, "--order time needs the time of each event, and not all have one")
        self._take_in(events, in_time_order(events))

    def _take_by_index(self) -> None:
        """All events, in the order of their indices. Raises BadEvent."""
        events, self._later = self._later, []
        if len({op.index for op in events}) < len(events):
            raise BadEvent(0, "--order index needs another index for each event")
        self._take_in(events, sorted(range(len(events)), key=lambda place: events[place].index))

    def _take_in(self, events: Sequence[Op], order: Iterable[int]) -> None:
        for place in order:
            try:
                self._take(events[place])
            except ValueError as problem:
                raise BadEvent(place, str(problem)) from None

    def _nemesis(self, op: Op) -> Op:
        """An `info` of the nemesis: the end of its open fault, or the begin of a new one."""
        at = self._open.get(NEMESIS)
        if at is not None and self._ops[at].f == op.f:
            return op
        if at is not None:
            # Some files keep one event of the two: the open one ends where the next begins.
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
            still = f"its {self._ops[before].f} is still open (an info ends one whose outcome nobody knows)"
            raise ValueError(f"process {self._named(number)} invokes {with_article(op.f)} although {still}")
        if number != NEMESIS:
            _insist_on_shape(op)
            if op.f == "txn" and not self._knossos:
                self._knossos = is_register_txn(op.value) and any(step[0] in _LONG for step in op.value)
            if op.f in READS and op.value is not None and self._drop_nil_reads:
                # Knossos' files fill in the later result of a read.
                op = replace(op, value=None)
        self._open[op.process] = len(self._ops)
        self._ops.append(op)

    def _complete(self, op: Op, number: int) -> None:
        at = self._open.pop(op.process, None)
        completes = f"process {self._named(number)} completes {with_article(op.f)}"
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
        self._doubtful += op.type == OK and op.error is not None
        given = invoked.value is not None or op.value is None or isinstance(op.value, bool)
        if not given and op.type == OK and op.f in _GIVEN:
            raise ValueError(f"{with_article(op.f)} of {json.dumps(op.value)} needs that value in its invoke, too")
        if op.value is None and op.f not in ANSWERED:
            op = replace(op, value=invoked.value)
        if op.value is False and op.type == OK and op.f in _REFUSED:
            self._refused += 1
            op = replace(op, type=FAIL, value=None if op.f in ANSWERED else invoked.value)
        elif op.value is False and op.type == OK and op.f in _TAKING and invoked.value is not False:
            self._denied += 1
            op = replace(op, type=INFO, value=None if op.f in ANSWERED else invoked.value)
        elif op.type == OK and op.f in _REFUSED:
            _insist_on_answer(op, invoked)
        if op.type == FAIL and op.f == "cas" and self._observe_cas and op.error is None:
            self._ops[at] = replace(invoked, f="cas-refused")
            return replace(op, type=OK, f="cas-refused")
        if op.type == OK and op.f in READS and op.value is None and self._drop_nil_reads:
            self._nil_reads += 1
            return replace(op, type=FAIL, error=op.error or "a read without a recorded value")
        if op.type == OK and op.f == "txn":
            return self._txn_completion(op, invoked)
        return op

    def _txn_completion(self, op: Op, invoked: Op) -> Op:
        """The completion with unrecorded reads as steps without a value; one without a result recorded no read."""
        asked = op.value is None and is_register_txn(invoked.value)
        steps = invoked.value if asked else op.value
        if not is_register_txn(steps) or not (asked or self._drop_nil_reads):
            return op
        # (Elle's `r` of nil saw that there was nothing; Knossos' `read` of nil was not recorded.)
        unset = ("read", "r") if asked or self._options.nil_reads == "unrecorded" else ("read",)
        unrecorded = [step[0] in unset and len(step) == 3 and (asked or step[2] is None) for step in steps]
        self._nil_reads += sum(unrecorded)
        value = [step[:2] if nothing else step for step, nothing in zip(steps, unrecorded, strict=True)]
        return replace(op, value=value) if asked or any(unrecorded) else op

    def _named(self, process: int) -> str:
        if process >= _NAMED:
            return next(name for name, number in self._names.items() if number == process)
        return "nemesis" if process == NEMESIS else str(process)


_REFUSED: Final = frozenset({"cas", "acquire", "lock"})
"""Ops that did nothing if their answer is false."""

_TAKING: Final = frozenset({"write", "w", "put", "add", "enqueue", "push", "append", "remove", "delete"})
"""Ops that may have done nothing if their answer is false: their results are not part of a model."""

_GIVEN: Final = frozenset({"write", "w", "put", "enqueue", "push", "broadcast"})
"""Ops with an argument that a completion may repeat."""

_INDEX: Final = "--order index sorts the events, and --order file says that the lines are in order"

_LONG: Final = ("read", "write")


def converted(value: Any, to: str) -> Any:
    """A value with all its numbers as text, or with all texts that are numbers as numbers (`ReadOptions.values`)."""
    if isinstance(value, list):
        return [converted(one, to) for one in value]
    if isinstance(value, dict):
        return {name: converted(one, to) for name, one in value.items()}
    if to == "text":
        return as_text(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return value


def as_text(number: float) -> str:
    """A number as text; equal ones as equal texts: 1.0 is 1."""
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,299})(?:\.[0-9]{1,300})?")


OLD_AND_NEW: Final = (("from", "to"), ("old", "new"), ("expected", "new"), ("expect", "update"))
"""Names of both values of a `cas`."""


def _old_and_new(value: dict[str, Any]) -> Any:
    """`[from, to]` of a cas whose values have names; anything else unchanged."""
    pair = next((pair for pair in OLD_AND_NEW if value.keys() == set(pair)), None)
    return value if pair is None else [value[name] for name in pair]


def _insist_on_shape(op: Op) -> None:
    if op.f == "cas" and not (isinstance(op.value, list) and len(op.value) == 2):
        three = isinstance(op.value, list) and len(op.value) == 3
        hint = " (with --independent, EDN may have [key from to])" if three else ""
        raise ValueError(f"a cas needs [from to], not {json.dumps(op.value)}{hint}")


def _insist_on_answer(op: Op, invoked: Op) -> None:
    """Raises ValueError for a result of a cas or a lock that may mean that it was refused."""
    value = op.value
    if value is None or value is True or value == invoked.value or isinstance(value, list):
        return
    if op.f == "cas":
        raise ValueError(f"a cas is answered with true or false, not {json.dumps(value)}")
    if type(value) is not int:
        raise ValueError(f"the result of {with_article(op.f)} is a fence, true or false, not {json.dumps(value)}")


def _process(process: Any) -> int:
    if process == "nemesis":
        return NEMESIS
    if isinstance(process, int) and not isinstance(process, bool) and process >= NEMESIS:
        return process
    raise ValueError(f"process is {process!r}, neither a whole number from 0, nor a name, nor nemesis")


def _text(value: Any) -> str | None:
    """Keys and errors as text: themselves, or their JSON."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)
