# SPDX-License-Identifier: Apache-2.0
"""The administrator who changes how a group of push consumers gets messages: it pulls, or it pops.

As `mqadmin setConsumeMode` does (SET_MESSAGE_REQUEST_MODE), but at every replica: a slave copies it only every 10 s.
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from harness.api import Completion
from infra.machines.api import InfraError
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error
from results.op import Op
from workloads.places import SETUP_LIMIT_S, TopicLayout

MODE: Final = "mode"

Mode = Literal["PULL", "POP"]

_ASK_S: Final = 2.0
_PAUSE_S: Final = 0.2


async def start_with(places: TopicLayout, group: str, mode: Mode) -> None:
    """Sets the mode at every replica, before the first member joins. Raises InfraError if it takes too long."""
    try:
        async with asyncio.timeout(SETUP_LIMIT_S):
            while any(one.type != "ok" for one in await _set_all(places, group, mode, _ASK_S)):
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise InfraError(f"the brokers did not take the mode {mode} of {group} within {SETUP_LIMIT_S:g} s") from None


async def change_mode(places: TopicLayout, op: Op, deadline_s: float) -> Completion:
    """One attempt at every replica: `ok` if all took it, `fail` if certainly none did."""
    outcomes = await _set_all(places, op.extra["group"], op.value, min(_ASK_S, deadline_s))
    types = {one.type for one in outcomes}
    extra = {"group": op.extra["group"]}
    if types == {"ok"}:
        return Completion("ok", op.value, extra=extra)
    why = next(one.why for one in outcomes if one.type != "ok")
    return Completion("fail" if types == {"fail"} else "info", op.value, f"not taken by every replica: {why}", extra)


async def _set_all(places: TopicLayout, group: str, mode: Mode, deadline_s: float) -> list[Outcome]:
    nodes = [node for nodes in places.groups.values() for node in nodes]
    return list(await asyncio.gather(*(_set(places, node, group, mode, deadline_s) for node in nodes)))


async def _set(places: TopicLayout, node: str, group: str, mode: Mode, deadline_s: float) -> Outcome:
    """A refusal may come after the change, which is made before it is written to disk: unknown."""
    try:
        async with BrokerAdmin(*places.endpoints[node], deadline_s=deadline_s) as broker:
            await broker.set_request_mode(places.topic, group, mode)
    except AdminError as problem:
        return Outcome("info", str(problem))
    except RemotingError as problem:
        return outcome_of_error("group", problem)
    return Outcome("ok", "")
