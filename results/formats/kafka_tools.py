# SPDX-License-Identifier: Apache-2.0
"""The lines that Kafka's tools print: `kafka-verifiable-producer`, `kafka-verifiable-consumer --verbose`, `kcat -J`.

    {"timestamp":1436653537534,"name":"producer_send_success","key":null,"value":"3","offset":3,"topic":"t","partition":0}
    {"timestamp":1436653537540,"name":"record_data","key":null,"value":"3","topic":"t","partition":0,"offset":3}
    {"topic":"t","partition":0,"offset":3,"tstype":"create","ts":1436653537530,"broker":1,"key":null,"payload":"3"}

The lines of producers and consumers are in one file, one behind the other. They become the micro-operations of
jepsen.tests.kafka. A producer reports the ends of its sends alone, so each began at the beginning; the messages that a
consumer printed were there by then. Nothing says where consumers began to read, so an acknowledged message in front of
the first one that was read is refused. Messages in front of the first acknowledged one may be of an earlier run. They
are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from results.errors import HistoryError, in_bytes
from results.formats.foreign import Assembler, ForeignHistory, ReadOptions
from results.formats.json_objects import Place
from results.formats.records import Notes
from results.op import INFO, INVOKE, OK
from results.reading import TwiceNamed, json_of, lines

_SENT: Final = "producer_send_success"
_NOT_SENT: Final = "producer_send_error"
_READ: Final = "record_data"
_DONE: Final = "tool_data"
_MS: Final = 1_000_000
_CONSUMER: Final = 0
"""The process of all consumers: their positions are not judged."""
_TOGETHER: Final = "the lines of both are right, one behind the other (cat sent.json read.json)"


class _Message(NamedTuple):
    """A message in a line. `offset`: None is not known. `time`: ms, or None."""

    place: Place
    queue: str
    offset: int | None
    value: str
    time: int | None


class _Found:
    """The messages of a file: acknowledged, of unknown outcome, read.

    sent      the number of messages that the producers say that they sent.
    consumed  the number of lines that count records, and do not show them.
    """

    def __init__(self) -> None:
        self.acked: list[_Message] = []
        self.unknown: list[_Message] = []
        self.read: list[_Message] = []
        self.sent = 0
        self.consumed = 0
        self.notes = Notes()


def read_kafka(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """The history in a file. Raises HistoryError with the line."""
    found = _Found()
    for place, data in _objects(path, file, found.notes):
        try:
            _take(place, data, found)
        except ValueError as problem:
            raise place.error(path, f"{problem} ({json.dumps(data)[:200]})") from None
    _insist_on_both(path, found)
    _insist_on_one_send_each(path, found)
    _without_earlier(found)
    _insist_on_the_start(path, found)
    return _assembled(found, options)


def _objects(path: Path, file: IO[bytes], notes: Notes) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yields the objects of a file: of one array, or those that are a line each; other lines are what tools log."""
    front = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    file.seek(0)
    try:
        values = json_of(file.read()) if front == b"[" else None
    except ValueError:
        values = None  # (A line of a log begins so, too.)
    file.seek(0)
    if isinstance(values, list):
        for number, value in enumerate(values):
            if not isinstance(value, dict):
                raise Place(None, number).error(path, "not a JSON object")
            yield Place(None, number), value
        return
    for number, text in enumerate(lines(file), 1):
        if text.lstrip()[:1] != b"{":
            notes.count("{} lines that are no events are ignored", 1 - text.isspace())
            continue
        try:
            value = json_of(text)
        except ValueError as problem:
            if not text.endswith(b"\n") and not isinstance(problem, TwiceNamed):
                notes.count(f"the last {in_bytes(len(text))} were torn and are left out")
                return
            raise HistoryError(path, number, f"not a JSON object ({problem})") from None
        yield Place(number, number), value


def _take(place: Place, data: Mapping[str, Any], found: _Found) -> None:
    name = data.get("name")
    if name == _SENT:
        found.acked.append(_message(place, data))
    elif name == _NOT_SENT:
        # (It does not say which partition was meant.)
        found.unknown.append(_message(place, {"partition": -1, "offset": -1, **data}))
    elif name == _READ or (name is None and "offset" in data):
        found.read.append(_message(place, data))
    elif name is None:
        raise ValueError("a line without a name, and without an offset")
    elif name == _DONE:
        found.sent += data["sent"] if type(data.get("sent")) is int else 0
    else:
        found.consumed += name == "records_consumed"
        found.notes.count("{} lines on assignments, commits and counts are not read")


def _message(place: Place, data: Mapping[str, Any]) -> _Message:
    topic, partition, offset = (data.get(name) for name in ("topic", "partition", "offset"))
    value = data.get("value", data.get("payload"))
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int:
        raise ValueError("a message needs its topic, its partition and its offset")
    if not isinstance(value, (str, int)):
        raise ValueError(f"a message needs its value, a text, not {json.dumps(value)[:80]}")
    time = data.get("timestamp") if "name" in data else None
    known = offset if offset >= 0 else None
    return _Message(place, f"{topic}-{partition}", known, str(value), time if type(time) is int else None)


def _insist_on_both(path: Path, found: _Found) -> None:
    if not found.acked:
        raise HistoryError(path, None, f"it shows what was read, and not what was acknowledged; {_TOGETHER}")
    if not found.read:
        right = "--verbose prints each record" if found.consumed else _TOGETHER
        raise HistoryError(path, None, f"it shows what was sent, and not the records that were read; {right}")


def _insist_on_one_send_each(path: Path, found: _Found) -> None:
    met: set[tuple[str, str]] = set()
    for message in found.acked:
        if (message.queue, message.value) in met:
            what = f"{message.value!r} was sent twice to {message.queue}; two producers need a --value-prefix each"
            raise message.place.error(path, what)
        met.add((message.queue, message.value))


def _without_earlier(found: _Found) -> None:
    """Leaves out what was read in front of the first acknowledged message of its partition."""
    first, queues = _lowest(found.acked), {message.queue for message in found.acked}
    kept = [m for m in found.read if m.queue in queues and m.offset is not None and m.offset >= first.get(m.queue, 0)]
    left_out = len(found.read) - len(kept)
    if left_out:
        found.notes.count(
            "{} records in front of the first acknowledged one of their partition are not judged", left_out
        )
    found.read = kept


def _insist_on_the_start(path: Path, found: _Found) -> None:
    shown = _lowest(found.read)
    for message in found.acked:
        begin = shown.get(message.queue)
        if message.offset is not None and begin is not None and message.offset < begin:
            what = (
                f"offset {message.offset} of {message.queue} was acknowledged, and the first one read is {begin}: "
                "lost if reading began at the start (a new group; kcat -o beginning), and else not read"
            )
            raise message.place.error(path, what)


def _lowest(messages: list[_Message]) -> dict[str, int]:
    """Queue -> the lowest offset of its messages."""
    found: dict[str, int] = {}
    for message in messages:
        if message.offset is not None:
            found[message.queue] = min(message.offset, found.get(message.queue, message.offset))
    return found


def _assembled(found: _Found, options: ReadOptions) -> ForeignHistory:
    assembler = Assembler(options)
    begin = min((m.time for m in (*found.acked, *found.unknown, *found.read) if m.time is not None), default=0)
    last = max((m.time for m in (*found.acked, *found.unknown, *found.read) if m.time is not None), default=0)
    sends = [(message, OK) for message in found.acked] + _open_sends(found)

    def add(process: int, type_: str, f: str, value: Any, time: int | None) -> None:
        assembler.add(process, type_, f, value, time=(last if time is None else time) * _MS)

    for number, (message, _) in enumerate(sends, 1):
        add(number, INVOKE, "send", [["send", message.queue, message.value]], begin)
    for type_ in (INVOKE, OK):
        add(_CONSUMER, type_, "subscribe", sorted({m.queue for m in found.read}), begin)
    ends = [(m, number, type_) for number, (m, type_) in enumerate(sends, 1)]
    for message, process, type_ in sorted(
        [*ends, *((m, _CONSUMER, "") for m in found.read)], key=lambda end: last if end[0].time is None else end[0].time
    ):
        if process == _CONSUMER:
            add(process, INVOKE, "poll", [["poll"]], message.time)
            add(process, OK, "poll", [["poll", {message.queue: [[message.offset, message.value]]}]], message.time)
        else:
            what = [message.offset, message.value] if type_ == OK else message.value
            add(process, type_, "send", [["send", message.queue, what]], message.time)
    return assembler.finish("kafka", found.notes.lines())


def _open_sends(found: _Found) -> list[tuple[_Message, str]]:
    """A send of unknown outcome for each partition in which a message was read that no producer reports, unless the
    producers reported all that they sent.
    """
    known = {(m.queue, m.value) for m in found.acked}
    failed = {m.value for m in found.unknown}
    reported = found.sent == len(found.acked) + len(found.unknown)
    more: dict[tuple[str, str], _Message] = {}
    for message in found.read:
        key = message.queue, message.value
        if key not in known and (message.value in failed or not reported):
            more.setdefault(key, message._replace(offset=None, time=None))
    unheard = sum(value not in failed for _, value in more)
    if unheard:
        found.notes.count("{} records were read that no producer reports: sends of unknown outcome", unheard)
    return [(message, INFO) for message in more.values()]
