# SPDX-License-Identifier: Apache-2.0
"""The times that consumers of a group may take: for the workload that waits for them, and for the judges."""

from __future__ import annotations

from typing import Final

DELAYS_S: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delay before attempt 1, 2, ... of a message that was failed: delay levels 3 to 18 of a broker's
`messageDelayLevel` (`ConsumerSendMsgBackProcessor`, level 3 + the number of attempts so far)."""

_LEVELS_S: Final = (1, 5, *DELAYS_S)
"""The delays of the levels 1 to 18."""


def delay_s(attempt: int, level: int = 0) -> int:
    """The delay (s) before the next attempt of a message that was failed. attempt: the number of its last one. level:
    the delay level that its consumer named (`delayLevelWhenNextConsume`); 0: none, the broker chooses.
    """
    return _LEVELS_S[level - 1] if level else DELAYS_S[min(attempt, len(DELAYS_S) - 1)]


ORDERLY_S: Final = 1.0
"""The pause of an orderly consumer before it tries a message again (`suspendCurrentQueueTimeMillis`)."""

QUIET_S: Final = 55.0
"""A group that has got nothing for so long, with members in it, has got all that it will get: a pull at a silent
broker ends after 30 s (`consumerTimeoutMillisWhenSuspend`), a client looks for queues every 20 s
(`rebalance.waitInterval`), and for routes every 5 s here.
"""

SETTLED_S: Final = 25.0
"""The time after a change of its members within which a group agrees on its members and its queues: clients look
every 20 s (`rebalance.waitInterval`), and usually are notified at once."""

HEARTBEAT_S: Final = 30.0
"""The time that this takes longer after a fault or a change of a master: a client's heartbeat makes it known to a
broker (`heartbeatBrokerInterval`)."""

LOCK_S: Final = 60.0
"""The time for which a broker keeps the lock of a member that was killed, so that no other orderly member gets its
queues (`rocketmq.broker.rebalance.lockMaxLiveTime`)."""
