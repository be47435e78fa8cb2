# SPDX-License-Identifier: Apache-2.0
"""The colour of each client, kept in the key-value tables of the name servers, which do not copy them to one another.

The published scheme keeps the flags in a database that all name servers use. Released name servers have none; each of
them has its own table. So a flag is written to all of them.

document   a flag that one of them has accepted is valid. A client reads from one name server, and uses the next if it
           does not answer.
cured      flags have versions. A majority must have accepted one, and a majority is read: the highest version counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.systems.remoting.connection import Refused, RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError
from workloads.gray.split import Scheme


class FlagStore(Protocol):
    """The table of one name server."""

    async def put_kv(self, namespace: str, key: str, value: str) -> None: ...

    async def kv_table(self, namespace: str) -> Mapping[str, str]: ...


class NoFlags(Exception):
    """The flags could not be read. One line."""


@dataclass(frozen=True)
class Written:
    """The nodes that accepted a flag, those that certainly did not, and those that may have."""

    taken: Sequence[str]
    refused: Sequence[str]
    unsure: Sequence[str]


class Flags:
    """One client's access to the flags of its group."""

    def __init__(self, stores: Mapping[str, FlagStore], namespace: str, scheme: Scheme) -> None:
        self._stores, self._namespace, self._scheme = stores, namespace, scheme
        self._nodes = list(stores)
        self._chosen = 0

    @property
    def chosen(self) -> str:
        """The node of the name server that this client uses now."""
        return self._nodes[self._chosen]

    def use(self, place: int) -> None:
        """Selects another name server; places continue from the first after the last one."""
        self._chosen = place % len(self._nodes)

    def next(self) -> None:
        """Selects the next name server."""
        self.use(self._chosen + 1)

    async def read(self) -> dict[str, bool]:
        """Client id -> True if it is gray. Raises NoFlags."""
        if self._scheme == "document":
            return await self._read_one()
        tables = [table for table in await asyncio.gather(*map(self._table, self._nodes)) if table is not None]
        if 2 * len(tables) <= len(self._nodes):
            raise NoFlags(f"{len(tables)} of {len(self._nodes)} name servers returned the flags, which is no majority")
        latest: dict[str, tuple[int, bool]] = {}
        for table in tables:
            for client, text in table.items():
                latest[client] = max(latest.get(client, (-1, False)), _parsed(text))
        return {client: gray for client, (_, gray) in latest.items()}

    async def write(self, client: str, gray: bool, version: int) -> Written:
        """Writes a client's flag to all name servers at once."""
        found = await asyncio.gather(
            *(self._put(node, client, f"{version}:{str(gray).lower()}") for node in self._nodes)
        )
        by = {kind: [node for node, one in zip(self._nodes, found, strict=True) if one == kind] for kind in set(found)}
        return Written(by.get("taken", []), by.get("refused", []), by.get("unsure", []))

    def holds(self, written: Written) -> bool:
        """True if a flag is valid for its writer."""
        return bool(written.taken) if self._scheme == "document" else 2 * len(written.taken) > len(self._nodes)

    async def _read_one(self) -> dict[str, bool]:
        for _ in self._nodes:
            table = await self._table(self.chosen)
            if table is not None:
                return {client: _parsed(text)[1] for client, text in table.items()}
            self.next()
        raise NoFlags("no name server returned the flags")

    async def _table(self, node: str) -> Mapping[str, str] | None:
        try:
            return await self._stores[node].kv_table(self._namespace)
        except (RemotingError, AdminError):
            return None

    async def _put(self, node: str, client: str, text: str) -> str:
        try:
            await self._stores[node].put_kv(self._namespace, client, text)
        except (Refused, AdminError):
            return "refused"
        except RemotingError:
            return "unsure"
        return "taken"


def _parsed(text: str) -> tuple[int, bool]:
    """Version and flag."""
    version, _, gray = text.partition(":")
    return int(version), gray == "true"
