"""Many keys of a store with put, append and get, each with a table of its own, in one compiled call.

Keys have nothing in common, so that one table of all would be large and empty; and the strings of a key are long. Here
its calls become numbers and its strings one row of characters, and everything else is compiled: which strings its gets
tell apart, the table that follows from it, and the search.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkers.linearizability.history.encode import Problem, encode
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.models.kv import KV
from results.history import Call
from results.op import FAIL, OK

GET: Final = 0
PUT: Final = 1
APPEND: Final = 2
_CODES: Final = {"get": GET, "put": PUT, "append": APPEND}

_AT_ONCE: Final = 1 << 22
"""Characters in a portion. A key that has more is a portion of its own."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The calls of many keys, and the problems that the other searches work on."""

    histories: Sequence[Sequence[Call]]

    def __len__(self) -> int:
        return len(self.histories)

    def problem(self, history: int) -> Problem:
        """Raises ValueError as `encode` does, with the history."""
        try:
            return encode(self.histories[history], KV())
        except ValueError as problem:
            raise ValueError(f"history {history}: {problem}") from None


@dataclass(slots=True)
class KvBatch:
    """Keys one behind the other. `begin`: the number of the first.

    ops      four numbers each: GET, PUT or APPEND; number of its string; when it was called; when it returned, NEVER if
             the outcome is unknown. Those of key k are at `4 * first[k]` to `4 * first[k + 1]`.
    strings  all different ones of a key, what was put and appended and what gets showed; those of key k are
             `strings[texts[k]:texts[k + 1]]`.
    longest  ops of the key that has most.
    """

    begin: int
    ops: array[int] = field(default_factory=lambda: array("q"))
    first: array[int] = field(default_factory=lambda: array("q", [0]))
    strings: list[str] = field(default_factory=list)
    texts: array[int] = field(default_factory=lambda: array("q", [0]))
    characters: int = 0
    longest: int = 0

    def add(self, calls: Sequence[Call]) -> None:
        """One more key. Raises ValueError, TypeError or OverflowError, and adds nothing, where a call is not quite what
        it should be.
        """
        numbers: dict[str, int] = {}
        ops: list[int] = []
        for call in calls:
            invoke, completion = call.invoke, call.completion
            code = _CODES.get(invoke.f)
            if code is None or invoke.process < 0:
                continue
            begin = invoke.index
            if completion is not None and completion.f != invoke.f:
                raise ValueError("it is completed by another one")
            if completion is not None and completion.type == OK:
                end = completion.index
                if not 0 <= begin < end:
                    raise ValueError("it ended before it began")
                value = invoke.value if code else completion.value
                if value is None and not code:
                    value = ""
            elif completion is not None and completion.type == FAIL:
                continue
            elif code:
                end, value = NEVER, invoke.value
            elif invoke.value is None or isinstance(invoke.value, str):
                continue
            else:
                raise TypeError("no string")
            ops += code, numbers.setdefault(value, len(numbers)), begin, end
        # (`join` takes nothing but strings.)
        characters = len("".join(numbers))
        self.ops += array("q", ops)
        self.strings += numbers
        self.characters += characters
        self.longest = max(self.longest, len(ops) // 4)
        self.close()

    def close(self) -> None:
        """That was all of a key."""
        self.first.append(len(self.ops) // 4)
        self.texts.append(len(self.strings))


def portions(histories: Sequence[Sequence[Call]]) -> Iterator[KvBatch]:
    """All keys. One that `KvBatch.add` refuses is there without any ops: others judge it, and say what is wrong."""
    portion = KvBatch(0)
    for history, calls in enumerate(histories):
        try:
            portion.add(calls)
        except (ValueError, TypeError, OverflowError):
            portion.close()
        if portion.characters > _AT_ONCE:
            yield portion
            portion = KvBatch(history + 1)
    yield portion
