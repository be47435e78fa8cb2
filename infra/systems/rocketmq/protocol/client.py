# SPDX-License-Identifier: Apache-2.0
"""One broker, as producers and consumers see it: one attempt, an exact deadline, and the outcome by its answer.

>>> broker = Broker("198.18.20.11", 10911, deadline_s=5, raft_log=False)
>>> sent = await broker.send("log-1", 0, b"17")  # doctest: +SKIP
>>> sent.outcome.type, sent.offset               # doctest: +SKIP
('ok', 4)

Nothing here is tried twice. A connection that is refused is a certain `fail`; one that breaks after a byte may have
left is `info`, except for reads, which fail.
"""

from __future__ import annotations

from infra.systems.rocketmq.protocol.groups import Locked, Membership, Queue
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.messages import Message
from infra.systems.rocketmq.protocol.popping import Acked, Extended, Handle, Popped, Popping
from infra.systems.rocketmq.protocol.pulling import Pulled, Pulling
from infra.systems.rocketmq.protocol.sending import PRODUCERS, Check, Half, Sending, Sent, check_of


class Broker(Sending, Pulling, Popping, Membership):
    """One broker, for one logical process: one operation at a time."""


__all__ = [
    "PRODUCERS",
    "Acked",
    "Answer",
    "Broker",
    "Check",
    "Extended",
    "Half",
    "Handle",
    "Locked",
    "Message",
    "Popped",
    "Pulled",
    "Queue",
    "Sent",
    "check_of",
]
