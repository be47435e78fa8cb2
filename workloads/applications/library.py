# SPDX-License-Identifier: Apache-2.0
"""The results of sends by RocketMQ's own Java client.

A refusal of the broker has the broker's code, which the table of outcomes explains
(`infra.systems.rocketmq.protocol.outcomes`). Of the library's own exceptions only two certainly sent nothing
(`_UNSENT`), and not for asynchronous sends, which wrap all causes in one of them; all others leave the outcome unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.systems.outcome import Outcome
from infra.systems.rocketmq.protocol.outcomes import outcome_of
from infra.systems.rocketmq.protocol.sending import Sent

START_S: Final = 60.0
"""The longest time for the start of a process on a busy machine."""

MARGIN_S: Final = 0.1
"""The library gives up so long before the op does."""

ROUTE_MS: Final = 5000
"""The time between two looks of a client for the routes (RocketMQ's default: 30 s)."""

CODES: Final[Mapping[str, int]] = {
    "SEND_OK": 0,
    "FLUSH_DISK_TIMEOUT": 10,
    "SLAVE_NOT_AVAILABLE": 11,
    "FLUSH_SLAVE_TIMEOUT": 12,
}
"""`SendStatus` -> the code of the broker's answer."""

_UNSENT: Final[Mapping[str, str]] = {
    "RemotingConnectException": "no connection",
    "MQClientException": "the library refused it",
}
"""The exceptions before anything is sent: `NettyRemotingClient` without a channel; with a queue that is given,
`DefaultMQProducerImpl.sendKernelImpl` without an address of the broker, and the checks of a message."""


def sent_of(fields: Mapping[str, Any], *, wraps: bool = False, raft_log: bool) -> Sent:
    """The result of a send that is one attempt, from the event `sent` or `failed`. wraps: it was asynchronous."""
    if fields["event"] != "sent":
        error, code, why = str(fields.get("error")), fields.get("code"), fields.get("why")
        if error == "MQBrokerException" and code is not None:
            return Sent(outcome_of("send", code, why, raft_log), code=code, remark=why)
        if error in _UNSENT and not wraps:
            return Sent(Outcome("fail", f"nothing was sent: {_UNSENT[error]}: {why}"))
        return Sent(Outcome("info", f"{error}: {why}"))
    code = CODES.get(fields["status"])
    if code is None:
        return Sent(Outcome("info", "sent one-way: no broker answers"))
    outcome = outcome_of("send", code, None, raft_log)
    return Sent(outcome, fields["offset"], fields.get("stored"), code)
