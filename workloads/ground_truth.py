# SPDX-License-Identifier: Apache-2.0
"""Fetches summaries of the stopped servers' files from the nodes, for `checkers.messages.log.storage` and
`checkers.messages.replica_files`.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from harness.api import RunContext
from infra.machines.api import InfraError
from infra.systems.api import Server
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.store.errors import StorageError
from infra.systems.rocketmq.store.summary import summarize
from results.deployment import DeploymentRecord

Summarize = Callable[[Path, str], Iterator[str]]
"""From a copy of a server's store and the name of its replica group to lines of JSON."""

UNASKED: Final = 256
"""The limit, in MiB on the disk of one server, of a read without `--ground-truth`."""

_WANTED: Final = ("commitlog", "consumequeue", "epochFileCheckpoint", "brokerIdentity", "abort")
"""The parts of a store that are read; a DLedger log is in `dledger-<id>`. A broker that was stopped in an orderly way
has removed `abort`.
"""

_PACKED: Final = "/var/lib/harness/truth"
_PACK_TIMEOUT_S: Final = 120
_AT_ONCE: Final = 2
"""The number of nodes read at the same time: reading takes processor time, which the nodes of a small machine share."""


def summarizer(topics: Collection[str], record: DeploymentRecord) -> Summarize:
    """The function that summarizes a broker's store, with the messages of these topics. record: of its servers, whose
    newest version reads what is in RocksDB.
    """
    versions = [server.version for server in record.servers if server.kind == "broker" and server.version]
    newest = max(versions, key=lambda version: [int(part) for part in re.findall("[0-9]+", version)], default=None)
    jars = partial(artifacts.fetch, newest) if newest is not None else None
    return lambda store, group: summarize(store, group, topics, jars)


def read_all(context: RunContext, summary: Summarize, folder: Path, most: int | None = None) -> None:
    """Writes the summary of each server that holds data below `folder`/nodes. most: limit of a store on the disk, MiB.

    Raises InfraError for the first store that cannot be read, or is larger.
    """
    from checkers.messages.log.storage import FILE

    servers = [server for server in context.deployment.servers() if server.group is not None]

    def one(server: Server) -> None:
        node, group = server.node, str(server.group)
        with tempfile.TemporaryDirectory(prefix="harness-truth-") as scratch:
            try:
                store = _fetched(server, Path(scratch), most)
                target = folder / "nodes" / node.name / FILE
                target.parent.mkdir(parents=True, exist_ok=True)
                # A summary that breaks off would be no summary.
                text = "".join(f"{line}\n" for line in summary(store, group))
                target.write_text(text)
            except (StorageError, tarfile.TarError, OSError) as problem:
                raise InfraError(f"{node.name}: its files could not be read: {problem}") from None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(one, servers))


def _fetched(server: Server, into: Path, most: int | None) -> Path:
    """A copy of a node's store, packed on the way: its files are as large as they will ever be, and mostly zeros."""
    node, (data,) = server.node, server.data_dirs
    there = node.run(["ls", "-1", data]).text.split()
    store = f"{data}/store" if "store" in there else data
    names = node.run(["ls", "-1", store]).text.split() if store != data else there
    wanted = [name for name in names if name in _WANTED or name.startswith("dledger-")]
    if most is not None:
        used = node.run(["du", "-scm", "--", *(f"{store}/{name}" for name in wanted)]).text.split()[-2]
        if int(used) > most:
            raise InfraError(f"{node.name}: its files take {used} MiB, and unasked at most {most} are read")
    node.run(["mkdir", "-p", _PACKED])
    pack = ["tar", "-C", store, "--sparse", "-czf", f"{_PACKED}/store.tgz", "--", *wanted]
    node.run(pack, timeout_s=_PACK_TIMEOUT_S)
    node.fetch(_PACKED, into)
    node.run(["rm", "-rf", "--", _PACKED])
    unpacked = into / "store"
    with tarfile.open(into / "store.tgz") as archive:
        unpack(archive, unpacked)
    return unpacked


def unpack(archive: tarfile.TarFile, into: Path) -> None:
    """Unpacks a node's files and folders into a folder. Raises tarfile.TarError if anything else is in the archive.

    Debian 12's own Python (3.11.2) has no filters yet (PEP 706), and ignores the attribute.
    """
    for member in archive.getmembers():
        name = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or name.is_absolute() or ".." in name.parts:
            raise tarfile.TarError(f"{member.name!r} is no file of the store")
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(into)
