# SPDX-License-Identifier: Apache-2.0
"""A stopped broker's store in a few facts that a judge can compare: the content of its log and of its index.

Written as JSON lines: first a `Head`, then one list per message (`LINE`), then the entries of the index that lead to no
message. A log of 100,000 messages takes about a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.machines.api import InfraError
from infra.systems.rocketmq.message_body import id_of
from infra.systems.rocketmq.protocol.messages import PREPARED, ROLLED_BACK, TRANSACTION
from infra.systems.rocketmq.store.commitlog import Damage, Record, read_commit_log, read_dledger_log
from infra.systems.rocketmq.store.consumequeue import Entry, consume_queues, read_consume_queue
from infra.systems.rocketmq.store.epochs import read_epochs
from infra.systems.rocketmq.store.errors import StorageError
from infra.systems.rocketmq.store.identity import read_identity
from infra.systems.rocketmq.store.rocksdb import is_rocksdb, read_rocksdb_queues

LINE: Final = (
    *("topic", "queue", "offset", "physical", "id", "intact", "indexed", "store_host", "stored", "term"),
    *("crc", "tagged", "torn"),
)
"""The fields of a message's list.

offset, physical   its place in the queue and in the log.
id                 of the body (`infra.systems.rocketmq.message_body.id_of`).
intact             the body matches its checksum, and the record names the place at which it lies.
indexed            the consume queue's entry for this offset leads to this record. Without, no reader ever sees it.
                   null: the queues, in RocksDB, could not be read (a problem says why).
store_host         `ip:port` of the broker that appended it first. stored: when, ms since 1970 on its clock.
term               DLedger's term, else null.
crc                CRC-32 of the whole record.
tagged             the consume queue's entry has the hash of the message's tag; null: no entry is due, because this is
                   a part of a transaction that no reader sees, or the queues could not be read.
torn               the properties have zero bytes: the record was not written to its end.
"""


@dataclass(frozen=True)
class Head:
    """The facts about the store as a whole.

    group     the broker group (broker name).
    files     `commitlog` or `dledger`: which kind of log.
    end       position after the last record.
    epochs    [epoch, start] of each master's time in office, in controller mode.
    identity  [cluster, broker name, id], in controller mode.
    problems  unreadable parts, one line each: a damaged file, bytes where a record should be.
    """

    group: str
    files: str
    end: int
    epochs: list[list[int]]
    identity: list[Any] | None
    problems: list[str] = field(default_factory=list)


Index = dict[tuple[str, int, int], Entry]
"""(topic, queue, offset) -> the entry of the consume queue."""


def summarize(
    store: Path, group: str, topics: Collection[str], jars: Callable[[], Path] | None = None
) -> Iterator[str]:
    """The lines about the store of a broker of `group`; only messages of these topics are listed. Of every other record
    there is `{"other": [physical, crc]}`. Whole records behind bytes that are none come as `{"behind": LINE}`: they may
    be left from before a truncation.

    jars: finds the folder of RocketMQ's jars that read consume queues in RocksDB; None: these are not read.

    The head reports damage; only a store without any log raises StorageError.
    """
    problems: list[str] = []
    logs = sorted(store.glob("dledger-*/data"))
    if not logs and not (store / "commitlog").is_dir():
        raise StorageError(store, "has neither a commitlog nor a dledger-* folder; is it a broker's store?")
    index = _index(store, topics, jars, problems)
    lines: list[str] = []
    end, broken = 0, False
    try:
        for found in read_dledger_log(logs[0]) if logs else read_commit_log(store / "commitlog", resume=True):
            if isinstance(found, Damage):
                problems.append(f"at {found.physical} of the log: {found.why}")
                broken = True
                continue
            end = end if broken else found.physical + found.size
            message = found.message
            if message.topic in topics:
                place = (message.topic, message.queue, message.offset)
                line = _line(found, place, index)
                lines.append(json.dumps({"behind": line} if broken else line))
            else:
                lines.append(json.dumps({"other": [found.physical, found.crc]}))
    except StorageError as problem:
        problems.append(str(problem))
    files = "dledger" if logs else "commitlog"
    head = Head(group, files, end, _epochs(store, problems), _identity(store, problems), problems)
    yield json.dumps({"head": vars(head)})
    yield from lines
    for (topic, queue, offset), entry in (index or {}).items():
        yield json.dumps({"dangling": [topic, queue, offset, entry.physical, entry.size]})


def _line(record: Record, place: tuple[str, int, int], index: Index | None) -> list[Any]:
    """The list of a message. Takes its entry, if it leads there, out of the index."""
    message = record.message
    entry = index.get(place) if index is not None else None
    indexed = (entry.physical, entry.size) == (record.physical, record.size) if entry is not None else False
    if index is not None and indexed:
        del index[place]
    due = index is not None and message.system_flag & TRANSACTION not in (PREPARED, ROLLED_BACK)
    tagged = (entry is not None and entry.tag == tag_hash(message.properties.get("TAGS", ""))) if due else None
    stored = (message.store_host, message.stored, record.term, record.crc)
    known = None if index is None else indexed
    return [*place, record.physical, id_of(message.body), record.intact, known, *stored, tagged, message.torn]


def tag_hash(tag: str) -> int:
    """Java's `String.hashCode`, which an entry of a consume queue holds for a message's tag."""
    found = 0
    for unit in memoryview(tag.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (found >> 31 << 32)


def _index(store: Path, topics: Collection[str], jars: Callable[[], Path] | None, problems: list[str]) -> Index | None:
    """The entries of all queues of these topics; None, and a problem: they are in RocksDB, and cannot be read."""
    folder = store / "consumequeue"
    if is_rocksdb(folder):
        try:
            return _of_rocksdb(store, folder, topics, jars)
        except (StorageError, InfraError) as problem:
            problems.append(str(problem))
            return None
    found: Index = {}
    for topic, queue, path in consume_queues(folder):
        if topic in topics:
            try:
                found.update(((topic, queue, entry.offset), entry) for entry in read_consume_queue(path))
            except StorageError as problem:
                problems.append(str(problem))
    return found


def _of_rocksdb(store: Path, folder: Path, topics: Collection[str], jars: Callable[[], Path] | None) -> Index:
    if (store / "abort").exists():
        raise StorageError(
            folder, "is RocksDB's; the broker was not stopped in an orderly way, so the newest entries are missing"
        )
    if jars is None:
        raise StorageError(folder, "is RocksDB's, which needs RocketMQ's jars to be read")
    return {(topic, queue, entry.offset): entry for topic, queue, entry in read_rocksdb_queues(folder, jars(), topics)}


def _epochs(store: Path, problems: list[str]) -> list[list[int]]:
    try:
        return [[epoch.epoch, epoch.start] for epoch in read_epochs(store / "epochFileCheckpoint")]
    except FileNotFoundError:
        return []
    except (StorageError, OSError, UnicodeDecodeError) as problem:
        problems.append(str(problem))
        return []


def _identity(store: Path, problems: list[str]) -> list[Any] | None:
    try:
        identity = read_identity(store / "brokerIdentity")
        return [identity.cluster, identity.name, identity.broker_id]
    except FileNotFoundError:
        return None
    except (StorageError, OSError, UnicodeDecodeError) as problem:
        problems.append(str(problem))
        return None
