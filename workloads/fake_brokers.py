# SPDX-License-Identifier: Apache-2.0
"""Brokers that are only names: their state at the controllers, and the heartbeats that keep them alive there.

All clients of a run share them. A group has members 1 to `LIVING` that send heartbeats; further ids are spare, and
never live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, ReplicaInfo
from infra.systems.rocketmq.protocol.metadata import Elected, Metadata
from infra.systems.rocketmq.topologies.layout import CLUSTER

LIVING: Final = 3

_BEAT_S: Final = 1.0
"""The time between two rounds of heartbeats to a controller, and the longest time for an answer to one."""

_FORSAKEN_S: Final = 15.0
"""Members of a group without any op for so long send no more heartbeats."""

_LIVES_MS: Final = 3_600_000
"""The time without heartbeats after which a broker is dead: so long that a late heartbeat causes no election."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last state of a group that any client received; master 0: no master."""

    master: int = 0
    master_epoch: int = 0
    in_sync: tuple[int, ...] = ()
    epoch: int = 0


@dataclass
class FakeGroup:
    """ids: id -> the address with which it was acknowledged. touched: the time of the last op on it (loop time)."""

    known: Known = field(default_factory=Known)
    ids: dict[int, str] = field(default_factory=dict)
    touched: float = 0.0


class FakeBrokers:
    """The brokers of one run; one event loop. controllers: node -> host and port."""

    def __init__(self, controllers: Mapping[str, tuple[str, int]]) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.addresses = 0
        self._controllers = controllers
        self._tasks: list[asyncio.Task[None]] = []

    def group(self, name: str) -> FakeGroup:
        """The group of this name; heartbeats begin with the first call."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._beat(*at)) for at in self._controllers.values()]
        found = self.groups.setdefault(name, FakeGroup())
        found.touched = asyncio.get_running_loop().time()
        return found

    def new_address(self) -> str:
        """An address that no broker had, and at which no server listens: controllers notify brokers of an election."""
        self.addresses += 1
        return f"127.{self.addresses >> 16 & 255}.{self.addresses >> 8 & 255}.{self.addresses & 255}:9"

    def heard(self, name: str, told: ReplicaInfo | Elected) -> None:
        """Keeps the newest state that clients receive."""
        group = self.groups[name]
        if isinstance(told, Elected):
            new = Known(told.master, told.master_epoch, told.in_sync, told.in_sync_epoch)
        else:
            in_sync = tuple(number for number in told.in_sync if isinstance(number, int))
            new = Known(told.master_id or 0, told.master_epoch, in_sync, told.in_sync_epoch)
        if (new.master_epoch, new.epoch) >= (group.known.master_epoch, group.known.epoch):
            group.known = new

    def altered(self, name: str, in_sync: tuple[int, ...], epoch: int) -> None:
        group = self.groups[name]
        if epoch > group.known.epoch:
            group.known = replace(group.known, in_sync=in_sync, epoch=epoch)

    async def _beat(self, host: str, port: int) -> None:
        """Sends heartbeats to one controller, also after errors, over one connection: its end would end the brokers."""
        async with Metadata(host, port, deadline_s=_BEAT_S) as controller:
            while True:
                with suppress(RemotingError, AdminError):
                    await self._round(controller)
                await asyncio.sleep(_BEAT_S)

    async def _round(self, controller: Metadata) -> None:
        since = asyncio.get_running_loop().time() - _FORSAKEN_S
        for name, group in list(self.groups.items()):
            for number, address in list(group.ids.items()) if group.touched >= since else ():
                if number <= LIVING:
                    await controller.beat(CLUSTER, name, number, address, _LIVES_MS)
