# SPDX-License-Identifier: Apache-2.0
"""Consume queues in RocksDB (`storeType=defaultRocksDB`), read by RocketMQ's own jar of RocksDB.

The folder `consumequeue` of such a store is one database. It has a value of 28 bytes for each message: physical offset,
size, hash of the tag, time (`RocksDBConsumeQueueTable`). Brokers keep the newest entries in memory, and make them again
from the commit log at a start, so only a broker that was stopped in an orderly way has all of them on its disk.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError
from infra.systems.maven import compile_jar
from infra.systems.rocketmq.store.consumequeue import Entry
from infra.systems.rocketmq.store.errors import StorageError

_MAIN: Final = "harness.store.ReadQueues"
_TIMEOUT_S: Final = 120


def is_rocksdb(folder: Path) -> bool:
    """True if a folder is a database of RocksDB."""
    return (folder / "CURRENT").is_file()


def read_rocksdb_queues(folder: Path, jars: Path, topics: Collection[str]) -> Iterator[tuple[str, int, Entry]]:
    """(topic, queue, entry) of every entry of these topics, in the order of topics, queues and offsets.

    jars: a folder with the jars of RocketMQ that has `rocketmq-rocksdb` of this store, or a newer one. Raises
    StorageError if the database or its reader fails.
    """
    try:
        tool = compile_jar(Path(__file__).parent, jars, "read-queues")
        argv = ["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", f"{tool}/*:{jars}/*", _MAIN, str(folder), *topics]
        done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S)
    except (InfraError, OSError, subprocess.TimeoutExpired) as problem:
        raise StorageError(folder, f"is RocksDB's, and its reader does not run: {problem}") from None
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise StorageError(folder, f"is RocksDB's, and cannot be read: {last}")
    for line in done.stdout.decode().splitlines():
        topic, *numbers = line.split("\t")
        queue, offset, physical, size, tag = map(int, numbers)
        yield topic, queue, Entry(offset, physical, size, tag)
