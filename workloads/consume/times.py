# SPDX-License-Identifier: Apache-2.0
"""The times of a group: how long messages may be hidden, and how long the end of a run waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from checkers.messages.consumer_times import HEARTBEAT_S, LOCK_S, ORDERLY_S, QUIET_S, SETTLED_S, delay_s
from workloads.consume.options import ConsumeOptions
from workloads.consume.work import RENEWED_MS, STUCK_MS

DONE_S: Final = 5.0
"""The time without a delivery after which a group is done that is not behind with any acknowledged message: others
may have been stored, too. One that is behind gets `QUIET_S`, and two seconds."""

DRAIN_S: Final = 90.0
"""The longest time for that."""

READS_S: Final = 60.0
"""The time for the reads after it."""

INVISIBLE_S: Final[Mapping[str, int]] = {"grpc-simple": 10, "grpc-push": 20}
"""The time for which a popped message is invisible. A simple consumer's is the least that a proxy takes; that of a push
consumer is the proxy's own, 60 s by default, which a process that is killed would cost every run.
"""

INVISIBLE: Final = "proxy.defaultInvisibleTimeMills"
_EXPIRED: Final = "proxy.channelExpiredTimeout"

_FIFO_INVISIBLE_S: Final = 5
"""The same of a simple consumer that gets messages in order: one that fails holds its queue up for so long."""

REVIVED_S: Final = 20.0
"""The longest time after that until the message is delivered again: brokers look for such ones every second, and wait
for late acknowledgements."""

POLL_S: Final = 20.0
"""The longest time for which a proxy waits for messages on behalf of a push consumer, also of one that has gone
(`grpcClientConsumerMaxLongPollingTimeoutMillis`)."""

_EXPIRED_S: Final = 120
"""The time after the last heartbeat of a gRPC client until its proxy gives up what it hides for it, if the client was
killed (`channelExpiredTimeout`; finding 80)."""

_GIVEN_UP_S: Final = 11.0
"""So much later at most the messages are visible: proxies look for such clients every 10 s, and ask for one more second
(`ConsumerManager.scanNotActiveChannel`, `invisibleTimeMillisWhenClear`)."""

POP_INVISIBLE_S: Final = 10
"""The time for which a message that a push consumer popped is hidden from the others (60 s by default)."""

_NATIVE_LATER_S: Final = 25.0
"""So much longer than the other clients librocketmq takes to find a queue: it looks for routes every 30 s, and has no
setting for that (`MQClientFactory::updateTopicRouteInfo`)."""


@dataclass(frozen=True)
class Times:
    """All in seconds.

    invisible_s  for which what a gRPC consumer popped is hidden from the others; 0: of other clients.
    still_s      a group without a delivery for so long has got all that comes in time.
    hidden_s     after the end of a process, for which its proxy may hide what it had; 0: nothing is hidden.
    quiet_s      without a delivery, after which a group that is behind is given up. done_s: one that is not.
    drain_s      the longest time for all that.
    settled_s    after a change of the members, within which each queue has its owner.
    astray_s     without a delivery, after which a group is given up in which a queue has no owner.
    """

    invisible_s: int
    still_s: float
    hidden_s: float
    quiet_s: float
    done_s: float
    drain_s: float
    settled_s: float
    astray_s: float


def times_of(options: ConsumeOptions, again: int, settings: Mapping[str, str]) -> Times:
    """The times of a group. again: the further attempts of a message that failed. settings: of the servers, by their
    names with the kind (`proxy.channelExpiredTimeout`).
    """
    tries = min(options.fails, again) if options.failing else 0
    delays = [delay_s(attempt, options.delay_level) for attempt in range(tries)]
    invisible_s = _FIFO_INVISIBLE_S if options.pops and options.fifo else INVISIBLE_S.get(options.library, 0)
    pushed = options.library == "grpc-push"
    if pushed:
        invisible_s = _setting_s(settings, INVISIBLE, invisible_s)
    waits = sum(delays) if options.listener == "concurrently" else tries * (invisible_s or ORDERLY_S)
    waits += STUCK_MS / 1000 if options.stuck else 0
    longest = max(delays, default=0) if options.listener == "concurrently" else 0
    still_s = QUIET_S + longest + (invisible_s + REVIVED_S if options.grpc else 0)
    still_s += RENEWED_MS / 1000 if options.renewed else 0
    still_s += POP_INVISIBLE_S + REVIVED_S if options.popping else 0
    still_s += _NATIVE_LATER_S if options.native else 0
    # What comes too late is not lost: `Returned` and `Progress` report it.
    given_up_s = _setting_s(settings, _EXPIRED, _EXPIRED_S) + _GIVEN_UP_S + REVIVED_S
    hidden_s = given_up_s if pushed and options.member_goes_every else 0
    # A member that was killed keeps the locks of its queues.
    locks = options.listener == "orderly"
    settled_s = SETTLED_S + (LOCK_S if locks else 0) + (_NATIVE_LATER_S if options.native else 0)
    return Times(
        invisible_s,
        still_s,
        hidden_s,
        quiet_s=2 + max(still_s, hidden_s),
        # A group that is reset is behind with what it had got: nobody counts these messages.
        done_s=still_s + 2 if options.resets else DONE_S,
        # Twice: what was popped by a process that was killed may come when the group has been quiet for long already.
        drain_s=DRAIN_S + waits + 2 * (still_s + 2),
        settled_s=settled_s,
        # With both, the final reads would have no time.
        astray_s=settled_s + (0 if locks else HEARTBEAT_S) + 3,
    )


def _setting_s(settings: Mapping[str, str], name: str, usual: int) -> int:
    """A setting in ms, in whole seconds rounded up; the usual one without it."""
    given = settings.get(name, "")
    return -(-int(given) // 1000) if given.isdecimal() else usual
