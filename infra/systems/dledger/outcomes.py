# SPDX-License-Identifier: Apache-2.0
"""The meaning of DLedger 0.4.0's answers for an operation: data, with the source of each line.

`ok`: certainly happened. `fail`: certainly did not, and never will. `info`: unknown. A write may be called failed only
if the refusal comes before the entry is appended to the leader's log: from then on it may be replicated and applied
at any later time, whatever answer the client got. A read without a result has no effect, so it fails harmlessly (a read
through the log appends an entry without content).

Source names are classes of `io.openmessaging.storage.dledger` at 0.4.0; "server" is `Processors.java` of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from infra.systems.outcome import Outcome, OutcomeType
from infra.systems.remoting.connection import Refused, RemotingError, TimedOut

Operation = Literal["write", "cas", "read"]


@dataclass(frozen=True, slots=True)
class Line:
    """One answer code (`code` of the JSON body) and its meaning for each operation."""

    code: int
    name: str
    write: OutcomeType
    cas: OutcomeType
    read: OutcomeType
    why: str
    source: str

    def of(self, operation: Operation) -> OutcomeType:
        return {"write": self.write, "cas": self.cas, "read": self.read}[operation]


def _refused(code: int, name: str, why: str, source: str) -> Line:
    """Refused before the append: nothing happened, and nothing will."""
    return Line(code, name, "fail", "fail", "fail", f"{why}: refused before the append", source)


def _unknown(code: int, name: str, why: str, source: str) -> Line:
    """Perhaps appended: anything may still happen to a change; a read is merely lost."""
    return Line(code, name, "info", "info", "fail", why, source)


OUTCOMES: Final[tuple[Line, ...]] = (
    Line(200, "SUCCESS", "ok", "ok", "ok", "", "Status.ok, given to the closure by DLedgerEntryPusher"),
    _refused(400, "UNKNOWN_GROUP", "another Raft group", "server, Base.handleRequest"),
    _refused(401, "UNKNOWN_MEMBER", "another node than the one addressed", "server, Base.handleRequest"),
    _refused(
        404,
        "NOT_LEADER",
        "not the leader",
        "DLedgerServer.handleWrite and DLedgerMmapFileStore.appendAsLeader: checked, again under the lock, before the "
        "first byte is written. No closure ends with it: those of a deposed leader end with 403 or 502",
    ),
    _refused(411, "UNEXPECTED_ARGUMENT", "no key or no value", "server, Write, CompareAndSet and Read"),
    _refused(415, "DISK_FULL", "the disk is full", "DLedgerMmapFileStore.appendAsLeader, its second check"),
    _refused(
        503,
        "LEADER_PENDING_FULL",
        "too many pending writes",
        "DLedgerServer.handleWrite, before the append; reads through the log skip the check",
    ),
    _refused(
        506,
        "LEADER_TRANSFERRING",
        "leadership is being handed over",
        "DLedgerServer.handleWrite and DLedgerMmapFileStore.appendAsLeader, before the first byte is written",
    ),
    _unknown(
        -1,
        "UNKNOWN",
        "the server gives no further reason",
        "DLedgerServer.handleRead makes it of every refusal of a read; a write has no such path in 0.4.0",
    ),
    _unknown(300, "TIMEOUT", "timed out inside the server", "DLedgerResponseCode; DLedger's own client only"),
    _unknown(302, "NETWORK_ERROR", "a network error inside the server", "DLedgerRpcNettyService, node to node"),
    _unknown(
        403,
        "EXPIRED_TERM",
        "appended, then the term changed: it may still be committed",
        "DLedgerEntryPusher.QuorumAckChecker ends all closures of older terms with it; the entries stay in the log",
    ),
    _unknown(
        414,
        "DISK_ERROR",
        "the append failed half-way: data may exist without its index",
        "DLedgerMmapFileStore.appendAsLeader, checks after dataFileList.append",
    ),
    _unknown(
        500,
        "INTERNAL_ERROR",
        "an exception inside the server, perhaps after the append",
        "server, Base.handleRequest: anything but a DLedgerException",
    ),
    _unknown(
        501,
        "TERM_CHANGED",
        "appended, then the term changed: it may still be committed",
        "0.3.1.2's word for 403; 0.4.0 never says it",
    ),
    _unknown(
        502,
        "WAIT_QUORUM_ACK_TIMEOUT",
        "appended, no quorum seen in time",
        "DLedgerEntryPusher.checkResponseFuturesTimeout: 2 s (fixed in Closure), checked once a second",
    ),
)

_BY_CODE: Final = {line.code: line for line in OUTCOMES}

_OUTER_REFUSALS: Final = {
    2: "the server is too busy: refused before it was examined",
    3: "the server does not know this request",
}
"""Outer codes given before a request reaches its handler (NettyRemotingAbstract.processRequestCommand, 5.1.0)."""


def outcome_of(operation: Operation, code: int) -> Outcome:
    """The outcome of an operation from the code in the answer's JSON body. An unlisted code is `info`, also for reads:
    the report counts it, and the table should get it.
    """
    line = _BY_CODE.get(code)
    if line is None:
        return Outcome("info", f"unlisted code {code}")
    type_ = line.of(operation)
    return Outcome(type_, "" if type_ == "ok" else f"{code} {line.name}: {line.why}")


def outcome_of_outer(operation: Operation, code: int, remark: str | None) -> Outcome:
    """The outcome from the frame's own code, if it has no body: the handler threw (1), or never ran.

    A NOT_LEADER thrown by `handleWrite` or `appendAsLeader` is thrown before the append, as above.
    """
    reply = (remark or "no remark").splitlines()[0][:200]
    if code in _OUTER_REFUSALS:
        return Outcome("fail", f"{_OUTER_REFUSALS[code]} (outer code {code}, {reply})")
    if code == 1 and "NOT_LEADER" in reply:
        return Outcome("fail", f"not the leader: refused before the append ({reply})")
    if operation == "read" and code == 1:
        return Outcome("fail", f"the server's handler threw ({reply})")
    if code == 1:
        return Outcome("info", f"the server's handler threw, perhaps after the append ({reply})")
    return Outcome("info", f"unlisted outer code {code} ({reply})")


def outcome_of_error(operation: Operation, error: RemotingError) -> Outcome:
    """The outcome without an answer. A read has no effect, so its loss is a failure."""
    if isinstance(error, Refused):
        return Outcome("fail", f"nothing was sent: {error}")
    what = "timed out" if isinstance(error, TimedOut) else "the connection broke"
    return Outcome("fail" if operation == "read" else "info", f"{what}: {error}")
