"""Fetches summaries of the stopped brokers' files from the nodes for `checkers.log.storage`."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from checkers.log.storage import FILE
from harness.api import RunContext
from infra.machines.api import InfraError
from infra.systems.api import Server
from infra.systems.rocketmq.store.errors import StorageError
from infra.systems.rocketmq.store.summary import summarize

_WANTED: Final = ("commitlog", "consumequeue", "epochFileCheckpoint", "brokerIdentity")
"""What is read of a store; a DLedger commit log is in `dledger-<id>`."""

_PACKED: Final = "/var/lib/harness/truth"
_PACK_TIMEOUT_S: Final = 120
_AT_ONCE: Final = 2
"""Nodes read at one time: reading is work for the processor, which is the same for all of them on a small machine."""


def read_all(context: RunContext, topics: Collection[str], folder: Path) -> None:
    """Write each broker's summary below `folder`/nodes. Raises InfraError for the first store that cannot be read."""
    servers = [server for server in context.deployment.servers() if server.group is not None]

    def one(server: Server) -> None:
        node, group = server.node, str(server.group)
        with tempfile.TemporaryDirectory(prefix="harness-truth-") as scratch:
            try:
                store = _fetched(server, Path(scratch))
                target = folder / "nodes" / node.name / FILE
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("w") as lines:
                    lines.writelines(f"{line}\n" for line in summarize(store, group, topics))
            except (StorageError, tarfile.TarError, OSError) as problem:
                raise InfraError(f"{node.name}: its files could not be read: {problem}") from None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(one, servers))


def _fetched(server: Server, into: Path) -> Path:
    """A copy of a node's store, packed on the way: its files are as large as they will ever be, and mostly zeros."""
    node, (data,) = server.node, server.data_dirs
    store = f"{data}/store"
    there = node.run(["ls", "-1", store]).text.split()
    wanted = [name for name in there if name in _WANTED or name.startswith("dledger-")]
    node.run(["mkdir", "-p", _PACKED])
    pack = ["tar", "-C", store, "--sparse", "-czf", f"{_PACKED}/store.tgz", "--", *wanted]
    node.run(pack, timeout_s=_PACK_TIMEOUT_S)
    node.fetch(_PACKED, into)
    node.run(["rm", "-rf", "--", _PACKED])
    unpacked = into / "store"
    with tarfile.open(into / "store.tgz") as archive:
        archive.extractall(unpacked, filter="data")
    return unpacked
