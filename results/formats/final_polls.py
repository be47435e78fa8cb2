# SPDX-License-Identifier: Apache-2.0
"""Polls as final reads of a log, where no replica was read.

A consumer that reads a queue in sequence from its start passes over nothing. So its last such polls are a final read of
the queue if the first of them began after the last acknowledgement. They reach to the offset behind their last message,
or to the end that an answer names (`max`); of what may lie behind it they say nothing.

In histories of jepsen.tests.kafka, all polls of a queue together count instead, if no consumer began at the start: as
there, a message in front of the highest polled offset that no poll ever showed is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from results.formats.micro_ops import FROM_START
from results.history import Call, History
from results.op import FAIL, INVOKE, OK, Op

_MOVES: Final = frozenset({"assign", "crash", "seek"})
_NODE: Final = "the polls"
_REST: Final = "the rest of the queue"

_NEVER: Final = 2**62

Message = tuple[int, Any]


@dataclass
class _Chain:
    """Polls of one process and queue that continue each other, from the start on.

    least, end   the begin and the end of the queue, as the first and the last answer named them; -1: not named.
    """

    began: int
    position: int
    messages: list[Message]
    least: int = -1
    end: int = -1


@dataclass
class _Queue:
    """The facts of a queue. `lowest`, `end`: of all offsets that it names; `end` is the one behind them."""

    acked: list[Call]
    shown: set[Message]
    lowest: int = _NEVER
    end: int = 0

    def names(self, offset: Any, *, message: bool) -> None:
        if type(offset) is int:
            self.lowest = min(self.lowest, offset)
            self.end = max(self.end, offset + message)


def with_final_reads(history: History, *, any_poll: bool, lost_sight: bool = False) -> tuple[History, list[str]]:
    """The history with a `replica-read` at its end for each queue whose polls are a final read, and a note on that; the
    same history without such queues, or if a replica was read. any_poll: all polls of a queue count together, too;
    lost_sight: unless one of unknown outcome may have shown an acknowledged message that no other did.
    """
    clients = history.clients
    if any(op.f == "replica-read" for op in clients) or not any(op.f == "poll" for op in clients):
        return history, []
    if any(op.f == "send" and op.type == INVOKE and isinstance(op.value, (list, dict)) for op in clients):
        return history, []  # (The check refuses such an id, and names it.)
    queues = _queues(clients.calls)
    chains = _Chains(queues).of(clients.calls)
    ops: list[Op] = list(history)
    process = max(op.process for op in ops) + 1
    read = together = 0
    for name, queue in queues.items():
        if not queue.acked:
            continue
        last = max(call.completion.index for call in queue.acked if call.completion is not None)
        final = next((chain for chain in reversed(chains.get(name, ())) if chain.began > last), None)
        seen = {identity for _, identity in queue.shown}
        unseen = any(call.invoke.value not in seen for call in queue.acked)
        if final is None and any_poll and queue.shown and not (lost_sight and unseen):
            messages = sorted(queue.shown, key=lambda message: (message[0], str(message[1])))
            final = _Chain(0, messages[-1][0] + 1, messages)
            together += 1
        elif final is not None:
            read += 1
        else:
            continue
        ops += _as_reads(final, name, queue, len(ops), ops[-1].time, process)
        process += 2
    notes = []
    if read:
        notes.append(f"the last polls of {read:,} queues, from the start on, count as final reads")
    if together:
        notes.append(
            f"all polls of {together:,} queues together count as a final read, as in jepsen.tests.kafka: a message in "
            "front of the highest polled offset that no poll showed is lost"
        )
    return (History(ops), notes) if notes else (history, [])


def _queues(calls: Sequence[Call]) -> dict[str | None, _Queue]:
    found: dict[str | None, _Queue] = {}
    for call in calls:
        f, done = call.invoke.f, call.completion
        if f not in ("send", "poll") or done is None:
            continue
        queue = found.setdefault(call.invoke.key, _Queue([], set()))
        if f == "send" and call.outcome == OK:
            queue.acked.append(call)
            queue.names(_offset(call), message=True)
        elif f == "poll":
            queue.names(done.extra.get("min"), message=False)
            for message in _shown(call):
                queue.shown.add(message)
                queue.names(message[0], message=True)
    return found


def _offset(call: Call) -> Any:
    value = call.completion.value if call.completion is not None else None
    return value[0] if isinstance(value, list) and value else None


def _shown(call: Call) -> Iterator[Message]:
    """The messages that a poll shows."""
    done = call.completion
    if done is None or done.type != OK:
        return
    for message in done.value if isinstance(done.value, list) else ():
        if isinstance(message, list) and len(message) == 2 and _is_message(*message):
            yield message[0], message[1]


def _is_message(offset: Any, identity: Any) -> bool:
    return type(offset) is int and isinstance(identity, (int, str))


class _Chains:
    """Finds the chains of all queues.

    open        process -> queue -> its chain; None: polls that did not begin at the start.
    from_start  processes that went to the start of all their queues, and the queues (or None: all) of which.
    """

    def __init__(self, queues: Mapping[str | None, _Queue]) -> None:
        self._queues = queues
        self._open: dict[int, dict[str | None, _Chain | None]] = {}
        self._from_start: dict[int, set[str | None]] = {}
        self._found: dict[str | None, list[_Chain]] = {}

    def of(self, calls: Sequence[Call]) -> dict[str | None, list[_Chain]]:
        """The chains of each queue, in the order of their begins."""
        for call in calls:
            if call.invoke.f in _MOVES:
                self._move(call)
            elif call.invoke.f == "poll":
                self._poll(call)
        return self._found

    def _move(self, call: Call) -> None:
        invoke, queue = call.invoke, call.invoke.key
        starts = self._from_start.setdefault(invoke.process, set())
        if queue is None:
            self._open.pop(invoke.process, None)
            starts.clear()
        else:
            self._open.get(invoke.process, {}).pop(queue, None)
            starts.discard(queue)
        if call.outcome != OK:
            return
        if invoke.extra.get(FROM_START):
            starts.add(None)
        elif invoke.f == "seek" and self._at_start(queue, invoke.value):
            starts.add(queue)

    def _at_start(self, queue: str | None, offset: Any) -> bool:
        return queue in self._queues and type(offset) is int and offset <= self._queues[queue].lowest

    def _poll(self, call: Call) -> None:
        invoke, queue = call.invoke, call.invoke.key
        mine, requested = self._open.setdefault(invoke.process, {}), call.invoke.value
        if call.outcome != OK:
            if call.outcome != FAIL or requested is None:
                mine[queue] = None
            return
        chain = mine.get(queue)
        if chain is None or (requested is not None and requested != chain.position):
            lowest = self._queues[queue].lowest
            starts = self._from_start.get(invoke.process, set())
            if requested is None:
                begins = queue not in mine and not starts.isdisjoint((None, queue))
            else:
                begins = self._at_start(queue, requested)
            chain = _Chain(invoke.index, min(lowest, self._queues[queue].end), []) if begins else None
            if chain is not None:
                self._found.setdefault(queue, []).append(chain)
        mine[queue] = chain
        if chain is None:
            return
        least = call.completion.extra.get("min") if call.completion is not None else None
        if chain.messages and type(least) is int and least > chain.position:
            # What expired between two polls is not passed over.
            self._found[queue].remove(chain)
            mine[queue] = None
        else:
            _extend(chain, call)


def _extend(chain: _Chain, call: Call) -> None:
    assert call.completion is not None
    extra = call.completion.extra
    if not chain.messages and chain.least < 0 and type(extra.get("min")) is int:
        chain.least = extra["min"]
    messages = list(_shown(call))
    chain.messages += messages
    if messages:
        chain.position = messages[-1][0] + 1
    if type(extra.get("next")) is int:
        chain.position = max(chain.position, extra["next"])
    chain.end = extra["max"] if type(extra.get("max")) is int else -1


def _as_reads(chain: _Chain, name: str | None, queue: _Queue, index: int, time: int, process: int) -> Iterator[Op]:
    """The final read, and another one that failed if the queue may go on behind it."""
    seen = {identity for _, identity in chain.messages}
    ends_there = chain.position >= queue.end
    unplaced = any(type(_offset(call)) is not int and call.invoke.value not in seen for call in queue.acked)
    extra: dict[str, Any] = {"node": _NODE, "done": True, "next": chain.position}
    if chain.least >= 0:
        extra["min"] = chain.least
    whole = ends_there and 0 <= chain.end <= chain.position
    if whole:
        extra["role"] = "master"
    shown = [list(message) for message in chain.messages]
    yield Op(index, time, process, INVOKE, "replica-read", name, None, extra={"node": _NODE})
    yield Op(index + 1, time, process, OK, "replica-read", name, shown, extra=extra)
    if not whole and (unplaced or not ends_there):
        yield Op(index + 2, time, process + 1, INVOKE, "replica-read", name, None, extra={"node": _REST})
        yield Op(index + 3, time, process + 1, FAIL, "replica-read", name, None, "it was not read", {"node": _REST})
