# SPDX-License-Identifier: Apache-2.0
"""Requests to the controllers to forget members."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Self

import pytest

from infra.machines.api import InfraError
from infra.systems.remoting.connection import TimedOut
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.topologies import members

CONTROLLERS = [("198.18.0.1", 9878), ("198.18.0.2", 9878), ("198.18.0.3", 9878)]


class World:
    """Three controllers; the first does not answer, the second leads. lives: so often they take a broker for alive."""

    def __init__(self, lives: int = 0, leader: str | None = "198.18.0.2") -> None:
        self.lives, self.leader = lives, leader
        self.members = {1: "198.18.0.1:10911", 2: "198.18.0.12:10911"}

    def controller(self, host: str, port: int, deadline_s: float) -> Any:
        world = self

        class One:
            async def __aenter__(self) -> Self:
                if host == "198.18.0.1":
                    raise TimedOut("no answer")
                return self

            async def __aexit__(self, *_: object) -> None:
                pass

            async def metadata(self) -> Any:
                return SimpleNamespace(is_leader=host == world.leader)

            async def sync_state(self, names: list[str]) -> Any:
                known = [{"brokerId": i, "brokerAddress": at} for i, at in world.members.items()]
                return {names[0]: {"inSyncReplicas": known[:1], "notInSyncReplicas": known[1:]}}

            async def clean_broker_data(self, cluster: str, group: str, ids: list[int]) -> None:
                world.lives -= 1
                if world.lives >= 0:
                    raise AdminError("n2", Request.CLEAN_BROKER_DATA, 2009, "it lives")
                for i in ids:
                    del world.members[i]

        return One()


def forget(world: World, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(members, "Controller", world.controller)
    monkeypatch.setattr(members, "_AGAIN_S", 0.01)
    return asyncio.run(members.forget(CONTROLLERS, "a", address, 0.5))


@pytest.mark.parametrize("lives", [0, 3])
def test_a_member_is_forgotten_once_it_is_down(lives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lives)
    assert forget(world, "198.18.0.12", monkeypatch) == "the controllers forgot id 2 of group a"
    assert list(world.members) == [1]


@pytest.mark.parametrize(
    ("world", "address", "why"),
    [
        (World(lives=10**6), "198.18.0.12", "it lives"),
        (World(), "198.18.0.99", "do not know it"),
        (World(leader=None), "198.18.0.12", "no controller leads"),
    ],
)
def test_a_member_that_is_not_forgotten(world: World, address: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfraError, match=why):
        forget(world, address, monkeypatch)
    assert len(world.members) == 2
