# SPDX-License-Identifier: Apache-2.0
"""The number of replicas that must hold an acknowledged message: the settings that decide, and the clusters' rules.

Source: `CommitLog.asyncPutMessage` and `calcNeedAckNums`, `GroupTransferService` and `MessageStoreConfig`, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from results.deployment import Traits
from results.figures import SECOND

SETTINGS: Final = (
    "inSyncReplicas",
    "minInSyncReplicas",
    "enableAutoInSyncReplicas",
    "allAckInSyncStateSet",
    "haMaxGapNotInSync",
    "slaveTimeout",
)
"""The settings of a broker that decide (`MessageStoreConfig`)."""


class Rule(NamedTuple):
    """The replicas that a master waits for.

    auto      `enableAutoInSyncReplicas` lowers the number.
    by_set    `allAckInSyncStateSet` replaces it.
    majority  it is a majority, whatever is set.
    refuses   with too few replicas in sync sends are refused before they are stored.
    """

    auto: bool = False
    by_set: bool = False
    majority: bool = False
    refuses: bool = False


RAFT: Final = Rule(majority=True)
CONTROLLED: Final = Rule(by_set=True, refuses=True)
ACTING: Final = Rule(auto=True, refuses=True)
FIXED: Final = Rule()
"""RocketMQ checks the number in front of a send, and lowers it, only with `enableSlaveActingMaster` (`CommitLog`)."""


def rule_of(traits: Traits) -> Rule:
    """The rule of a cluster."""
    if traits.raft_log:
        return RAFT
    return CONTROLLED if traits.in_sync else ACTING if traits.acting_master else FIXED


@dataclass(frozen=True)
class Setting:
    """The settings of one broker at one moment."""

    in_sync: int = 1
    least: int = 1
    auto: bool = False
    all_ack: bool = False
    timeout_ns: int = 3 * SECOND

    @staticmethod
    def of(told: Mapping[str, Any]) -> Setting:
        """The settings under a broker's own names; a missing one has RocketMQ's default."""
        return Setting(
            int(told.get("inSyncReplicas", 1)),
            int(told.get("minInSyncReplicas", 1)),
            str(told.get("enableAutoInSyncReplicas")) == "true",
            str(told.get("allAckInSyncStateSet")) == "true",
            int(told.get("slaveTimeout", 3000)) * 1_000_000,
        )

    def needs(self, rule: Rule, replicas: int, alive: int) -> int:
        """The number of replicas that must hold an acknowledged message, if `alive` are in sync."""
        if rule.majority:
            return replicas // 2 + 1
        if rule.by_set and self.all_ack:
            return max(1, self.least)
        if rule.auto and self.auto:
            return max(self.least, min(self.in_sync, alive))
        return max(1, self.in_sync)
