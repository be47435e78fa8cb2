# SPDX-License-Identifier: Apache-2.0
"""Requests of brokers to controllers: ids, registration, elections, changes of the SyncStateSet, heartbeats.

To the controllers such a client is a broker; no broker has to run. Each method is one attempt. Refusals raise
AdminError, and `outcome` returns the meaning of a refusal, or of no answer, for a change of the metadata.

Source: `ControllerRequestProcessor`, `ReplicasInfoManager`, `DLedgerController` and `JRaftController` of 5.3.3.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Malformed, Refused, RemotingError
from infra.systems.rocketmq.protocol import fastjson
from infra.systems.rocketmq.protocol.admin import AdminError, Controller
from infra.systems.rocketmq.protocol.codes import Request

NOT_LEADER: Final = 2007
UNKNOWN_GROUP: Final = 2008

REFUSALS: Final[Collection[int]] = (2, *range(2000, 2015))
"""Codes after which nothing has changed, nor will. A controller that does not lead refuses before it proposes anything
(`appendEvent`, `applyToJRaft`); the state machine finds all others, and then makes no event. 1 (an exception,
such as a wait of 5 s that was in vain) and 2015 (JRaft gave the entry up) may come behind a proposal that is committed
later.
"""


@dataclass(frozen=True, slots=True)
class Elected:
    """master and in_sync (the SyncStateSet), and the epochs that the election has made."""

    master: int
    master_epoch: int
    in_sync_epoch: int
    in_sync: tuple[int, ...]


class Metadata(Controller):
    """One connection to one controller."""

    async def apply_id(self, cluster: str, group: str, broker_id: int, code: str) -> None:
        """Applies for an id. code: `ADDRESS;WORD`; a repetition gets the same id. Another's id: AdminError 2014."""
        ext = {
            "clusterName": cluster,
            "brokerName": group,
            "appliedBrokerId": str(broker_id),
            "registerCheckCode": code,
        }
        await self.request(Request.CONTROLLER_APPLY_BROKER_ID, ext)

    async def register(self, cluster: str, group: str, broker_id: int, address: str) -> None:
        """Registers this address of the broker. An id that no broker applied for: AdminError 2010."""
        ext = {
            "clusterName": cluster,
            "brokerName": group,
            "brokerId": str(broker_id),
            "brokerAddress": address,
        }
        await self.request(Request.CONTROLLER_REGISTER_BROKER, ext)

    async def elect(self, cluster: str, group: str, broker_id: int) -> Elected:
        """Makes this broker the master. It must live and be in the SyncStateSet, or be the first: else AdminError 2012.
        It is the master already: 2011.
        """
        ext = {
            "clusterName": cluster,
            "brokerName": group,
            "brokerId": str(broker_id),
            "designateElect": "true",
        }
        reply = await self.request(Request.CONTROLLER_ELECT_MASTER, ext)
        try:
            return Elected(
                master=int(reply.ext["masterBrokerId"]),
                master_epoch=int(reply.ext["masterEpoch"]),
                in_sync_epoch=int(reply.ext["syncStateSetEpoch"]),
                in_sync=tuple(sorted(int(member) for member in fastjson.loads(reply.body)["syncStateSet"])),
            )
        except (KeyError, ValueError, TypeError):
            raise Malformed(f"{self.address}: an election without its epochs or its SyncStateSet") from None

    async def alter(self, group: str, master: int, master_epoch: int, in_sync: Collection[int], epoch: int) -> int:
        """Proposes, as this epoch's master, a SyncStateSet in place of the one with `epoch`. Returns the new epoch."""
        ext = {"brokerName": group, "masterBrokerId": str(master), "masterEpoch": str(master_epoch)}
        body = json.dumps({"syncStateSet": sorted(in_sync), "syncStateSetEpoch": epoch}).encode()
        reply = (await self.request(Request.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)).ext
        try:
            return int(reply["newSyncStateSetEpoch"])
        except (KeyError, ValueError):
            raise Malformed(f"{self.address}: a new SyncStateSet without its epoch") from None

    async def beat(self, cluster: str, group: str, broker_id: int, address: str, lives_ms: int) -> None:
        """Sends a heartbeat: the broker lives for so long, unless its connection ends. Any controller takes it."""
        ext = {
            "clusterName": cluster,
            "brokerName": group,
            "brokerAddr": address,
            "brokerId": str(broker_id),
            "epoch": "1",
            "maxOffset": "0",
            "confirmOffset": "0",
            "heartbeatTimeoutMills": str(lives_ms),
            "electionPriority": str(broker_id),
        }
        await self.request(Request.BROKER_HEARTBEAT, ext)

    async def forget(self, cluster: str, group: str) -> None:
        """Makes the controllers forget a whole group, also its living members."""
        ext = {"clusterName": cluster, "brokerName": group, "isCleanLivingBroker": "true", "cleanLivingBroker": "true"}
        await self.request(Request.CLEAN_BROKER_DATA, ext)


def outcome(problem: AdminError | RemotingError) -> Outcome:
    """The outcome of a change of the metadata that was not acknowledged.

    >>> outcome(AdminError("n1", Request.CLEAN_BROKER_DATA, 2007, None)).type
    'fail'
    """
    if isinstance(problem, AdminError):
        return Outcome("fail" if problem.code in REFUSALS else "info", str(problem))
    return Outcome("fail" if isinstance(problem, Refused) else "info", str(problem))
