# SPDX-License-Identifier: Apache-2.0
"""The meaning of a broker's answers for an operation: data, with the source of each line.

`ok`: certainly happened. `fail`: certainly did not, and never will. `info`: unknown. A change may be called failed only
if the refusal comes before anything is appended to the commit log; from then on it may be replicated and read at any
later time, whatever answer the client got. RocketMQ may also accept less surely than requested (10, 11, 12): the
message is in the master's log, and a switch may still lose it, so these are `info`, with their offset.

The first line that fits decides: an operation and a code, perhaps words of the remark; of two for different
topologies the less sure one stands first. An answer that fits no line is `info` for a change, and `fail` for a read,
which has no effect to be unsure of. Source names are classes of RocketMQ 5.3.3; "seen" are answers of a running 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal

from infra.systems.outcome import Outcome, OutcomeType
from infra.systems.remoting.connection import Malformed, Refused, RemotingError, TimedOut
from infra.systems.rocketmq.protocol.codes import name_of

Operation = Literal["send", "read", "pop", "commit", "ack", "extend", "lock", "end", "recall", "group", "reset"]
"""send: single, batch, half message. read: pull, offsets, anything without effect. commit: a consumer offset.
extend: change an invisible time. lock: also unlock. end: of a transaction. group: heartbeat, leaving, sending back.
reset: of a group's offsets, by an administrator.
"""

READS: Final[Set[Operation]] = frozenset({"read"})
POPS: Final[Set[Operation]] = frozenset({"pop"})
SENDS: Final[Set[Operation]] = frozenset({"send", "recall"})
ACKS: Final[Set[Operation]] = frozenset({"ack", "extend"})
RESETS: Final[Set[Operation]] = frozenset({"reset"})
CHANGES: Final[Set[Operation]] = SENDS | POPS | ACKS | RESETS | frozenset({"commit", "lock", "end", "group"})
ALL: Final = READS | CHANGES


@dataclass(frozen=True, slots=True)
class Line:
    """One answer. `remark`: what must occur in the remark, in lower case; empty: anything.

    raft_log  True: only where the CommitLog is a Raft log, since DLedger's refusals are translated into
              RocketMQ's words; False: only where it is not; None: everywhere.
    """

    operations: Set[Operation]
    code: int
    type: OutcomeType
    why: str
    source: str
    remark: str = ""
    raft_log: bool | None = None


def _refused(code: int, why: str, source: str, remark: str = "", operations: Set[Operation] = ALL) -> Line:
    """Refused before any effect: nothing happened, and nothing will."""
    return Line(operations, code, "fail", f"{why}: refused before anything was done", source, remark)


def _unsure(code: int, why: str, source: str, remark: str = "", operations: Set[Operation] = CHANGES) -> Line:
    """Perhaps done, or done less surely than requested."""
    return Line(operations, code, "info", why, source, remark)


_FAST_FAILURE: Final = "BrokerFastFailure.cleanExpiredRequestInQueue: taken out of the queue before it ran"

OUTCOMES: Final[tuple[Line, ...]] = (
    Line(ALL, 0, "ok", "", "ResponseCode.SUCCESS: done, with the waits for disk and replicas that are configured"),
    Line(READS, 19, "ok", "", "PullMessageProcessor: nothing there (yet); the answer has min and max"),
    Line(READS, 20, "ok", "", "PullMessageProcessor: no message now, go on at the next offset; seen at slaves"),
    Line(READS, 21, "ok", "", "PullMessageProcessor: the offset is outside the queue; the answer has the right one"),
    Line(READS, 22, "ok", "", "ConsumerManageProcessor.queryConsumerOffset: the group has committed nothing"),
    Line(POPS, 19, "ok", "", "PopMessageProcessor: no message"),
    Line(POPS, 209, "ok", "", "PopLongPollingService: too many wait already; no message"),
    Line(POPS, 210, "ok", "", "PopMessageProcessor: no message within the poll time, seen"),
    _unsure(
        10,
        "appended, the disk's answer did not come in time",
        "CommitLog.handleDiskFlush: syncFlushTimeout",
        operations=SENDS,
    ),
    _refused(
        11,
        "a slave ends no transactions and recalls nothing",
        "EndTransactionProcessor and RecallMessageProcessor, their first check; seen",
        operations=frozenset({"end", "recall"}),
    ),
    _unsure(
        11,
        "appended at most on the master",
        "SendMessageProcessor.handlePutMessageResult; only the escape bridge makes it",
        operations=SENDS,
    ),
    _unsure(
        12,
        "appended on the master, too few replicas in time: a switch may lose it",
        "GroupTransferService: slaveTimeout; seen",
        operations=SENDS,
    ),
    Line(
        frozenset({"send"}),
        1,
        "info",
        "appended on the leader, no quorum in time",
        "DLedgerCommitLog.asyncPutMessage: WAIT_QUORUM_ACK_TIMEOUT",
        "in-sync replicas not enough",
        raft_log=True,
    ),
    Line(
        frozenset({"send", "end"}),
        1,
        "fail",
        "too few replicas in sync: refused before the append",
        "CommitLog.asyncPutMessage, in front of its locks, also of a commit; seen with a controller",
        "in-sync replicas not enough",
        raft_log=False,
    ),
    _refused(
        1,
        "no file to write to",
        "CommitLog.asyncPutMessage: no mapped file, the message not appended",
        "create mapped file failed",
        operations=frozenset({"send"}),
    ),
    _refused(
        1,
        "timer messages are throttled",
        "HookUtils.handleScheduleMessage: WHEEL_TIMER_FLOW_CONTROL, a hook in front of the append",
        "timer message is under flow control",
        operations=SENDS,
    ),
    _refused(
        1,
        "there is no timer wheel",
        "HookUtils.handleScheduleMessage: WHEEL_TIMER_NOT_ENABLE; PopMessageProcessor, a check in front",
        "timerwheelenable",
        operations=SENDS | POPS,
    ),
    *(
        _refused(1, why, "AdminBrokerProcessor.resetOffsetInner: checks in front of assignResetOffset", remark, RESETS)
        for why, remark in (
            ("a slave resets no offsets", "can not reset offset in slave broker"),
            ("the offset is outside the queue", "not in consume queue range"),
            ("the topic has no queues here", "no queues to reset"),
        )
    ),
    _unsure(1, "an error inside the broker, perhaps after the append", "SYSTEM_ERROR: any exception ends as this"),
    _refused(
        2, "the broker takes no such requests now", "NettyRemotingAbstract: rejectRequest; seen", "[rejectrequest]"
    ),
    _refused(2, "its queue of requests is full", "NettyRemotingAbstract: RejectedExecutionException", "[overload]"),
    _refused(2, "it waited too long in the queue", _FAST_FAILURE, "[timeout_clean_queue]"),
    _refused(2, "the page cache is busy", _FAST_FAILURE, "[pcbusy_clean_queue]"),
    Line(
        SENDS,
        2,
        "info",
        "refused by DLedger, for whatever reason: not the leader, too many pending, or a write that stopped half way",
        "DLedgerCommitLog.asyncPutMessage: any position of -1 ends as OS_PAGE_CACHE_BUSY, DISK_ERROR too",
        "[pc_synchronized]",
        raft_log=True,
    ),
    _refused(
        2,
        "the page cache is busy",
        "HookUtils.checkBeforePutMessage, a hook in front of the append",
        "[pc_synchronized]",
        operations=SENDS,
    ),
    _unsure(2, "too busy", "SYSTEM_BUSY with an unknown remark"),
    _refused(3, "an unknown request", "NettyRemotingAbstract.processRequestCommand; seen"),
    _refused(13, "no legal message or queue", "SendMessageProcessor, HookUtils, AckMessageProcessor: validation; seen"),
    _refused(
        14,
        "the broker does not serve (no master, fenced, going down, disk full, or not DLedger's leader)",
        "HookUtils.checkBeforePutMessage; DLedgerCommitLog: NOT_LEADER, LEADER_NOT_READY, DISK_FULL; seen",
    ),
    _refused(15, "a version that is not supported", "validation"),
    _refused(16, "no permission", "SendMessageProcessor.msgCheck, PullMessageProcessor, RecallMessageProcessor"),
    _refused(17, "this replica does not know the topic", "AbstractSendMessageProcessor.msgCheck and others; seen"),
    _refused(23, "no legal subscription", "PullMessageProcessor, PopMessageProcessor"),
    _refused(24, "the group's subscription is unknown", "PullMessageProcessor"),
    _refused(25, "the group's subscription is an old one", "PullMessageProcessor"),
    _refused(26, "this replica does not know the group", "PullMessageProcessor, PopMessageProcessor and others; seen"),
    _refused(29, "no legal parameter", "validation; seen with bad topic names, queues and offsets"),
    _refused(
        206,
        "no member of the group is connected, and this broker resets the offsets of connected members only",
        "Broker2Client.resetOffset, without useServerSideResetOffset",
        operations=RESETS,
    ),
    _refused(
        208,
        "the offset is outside the queue",
        "AckMessageProcessor and ChangeInvisibleTimeProcessor, checks in front",
        operations=ACKS,
    ),
    _refused(
        604,
        "no legal operation: a handle that does not fit, or too late",
        "RecallMessageProcessor and EndTransactionProcessor.rejectCommitOrRollback, checks in front",
        operations=frozenset({"end", "recall"}),
    ),
    _refused(1500, "the server goes away", "NettyRemotingAbstract.processRequestCommand: isShuttingDown"),
)

STATUSES: Final[Mapping[int, str]] = {10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
"""`SendStatus` of the Java client, which takes these for a successful send."""


def outcome_of(operation: Operation, code: int, remark: str | None, raft_log: bool | None = None) -> Outcome:
    """The outcome of an operation that was answered. `raft_log`: whether the CommitLog is a Raft log; None: not known,
    then the least sure of the lines counts.
    """
    line = line_of(operation, code, remark, raft_log)
    reply = f" ({reply})" if (reply := _first_line(remark)) else ""
    if line is None:
        type_: OutcomeType = "fail" if operation in READS else "info"
        return Outcome(type_, f"{name_of(code)}: not in the table of outcomes{reply}")
    return Outcome(line.type, "" if line.type == "ok" else f"{name_of(code)}: {line.why}{reply}")


def line_of(operation: Operation, code: int, remark: str | None, raft_log: bool | None = None) -> Line | None:
    """The line that decides."""
    text = (remark or "").lower()
    for line in OUTCOMES:
        if line.code != code or operation not in line.operations or line.remark not in text:
            continue
        if line.raft_log is None or raft_log is None or raft_log == line.raft_log:
            return line
    return None


def outcome_of_error(operation: Operation, error: RemotingError) -> Outcome:
    """The outcome without an answer. A read has no effect, so its loss is a failure."""
    if isinstance(error, Refused):
        return Outcome("fail", f"nothing was sent: {error}")
    what = "timed out" if isinstance(error, TimedOut) else "the connection broke"
    if isinstance(error, Malformed):
        what = "the answer is invalid"
    return Outcome("fail" if operation in READS else "info", f"{what}: {error}")


def _first_line(remark: str | None) -> str:
    lines = (remark or "").strip().splitlines()
    return lines[0][:200] if lines else ""
