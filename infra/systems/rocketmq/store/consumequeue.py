# SPDX-License-Identifier: Apache-2.0
"""The consume queue: the index of one queue of a topic, from a message's offset there to its place in the commit log.

Units of 20 bytes: physical offset (8), size (4), hash of the tag or delivery time (8); unit n belongs to offset n
(`ConsumeQueue.CQ_STORE_UNIT_SIZE`). Brokers read messages through it alone: a message that it does not name is
invisible, even though the commit log holds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.systems.rocketmq.store.mapped import mapped_files

_UNIT: Final = struct.Struct(">qiq")
_FILL: Final = 0x7FFFFFFF
"""The size in units that only fill up a queue that begins later (`ConsumeQueue.fillPreBlank`)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message's place: `offset` in the queue; `physical` and `size` in the commit log, in bytes."""

    offset: int
    physical: int
    size: int
    tag: int


def read_consume_queue(folder: Path) -> Iterator[Entry]:
    """Every entry of one queue's folder (`consumequeue/<topic>/<queue>`), in order.

    Ends at the first unit that was not written. A truncation writes none: it moves the write position only, so the
    entries of a truncated tail may follow (their physical offsets then show it).
    """
    for start, path in mapped_files(folder):
        data = path.read_bytes()
        for n, (physical, size, tag) in enumerate(_UNIT.iter_unpack(data[: len(data) // _UNIT.size * _UNIT.size])):
            if size == _FILL:
                continue
            if size <= 0:
                return
            yield Entry(start // _UNIT.size + n, physical, size, tag)


def consume_queues(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue, folder) of every queue under a `consumequeue` folder."""
    if not folder.is_dir():
        return
    for topic in sorted(folder.iterdir()):
        for queue in sorted((q for q in topic.iterdir() if q.name.isdecimal()), key=lambda q: int(q.name)):
            yield topic.name, int(queue.name), queue
