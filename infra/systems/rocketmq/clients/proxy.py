# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's gRPC protocol, through its proxy, by the protocol code of `rocketmq-python-client` 5.1.2.

One attempt, an exact deadline, and the proxy's own code as the result. The proxy hides much: most of a broker's
refusals come as 50001, which may also be an exception after the append, so that they are `info`. And it ends
transactions with one-way requests, so that its OK says only that it tried.

Messages of a type need a topic of this type (the attribute `message.type`): a proxy refuses others, and only for topics
of the type TRANSACTION it lets brokers ask (`ClientActivity.registerProducer`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from infra.systems.outcome import Outcome, OutcomeType
from infra.systems.rocketmq.clients.worker import NotStarted, Standby, Worker, WorkerError
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.outcomes import ACKS, POPS, SENDS, Operation, outcome_of
from infra.systems.rocketmq.protocol.sending import Sent

_GRACE_S: Final = 0.5
"""gRPC keeps the deadline by itself; the process is ended only if it does not answer this much later."""

_LISTENING_S: Final = 10.0
"""The time limit of a `listen` beyond its own wait: a new stream has 4 s."""

_BUSY: Final = 42900

_ENDS: Final[Set[Operation]] = frozenset({"end"})
_ALL: Final = SENDS | _ENDS | POPS | ACKS

MessageType = Literal["NORMAL", "DELAY", "TRANSACTION"]


@dataclass(frozen=True, slots=True)
class Line:
    """The meaning of the proxy's codes from `first` to `last`. `remoting`: the broker's code behind them, of a send.
    `says`: what must occur in the proxy's words.
    """

    first: int
    last: int
    type: OutcomeType
    why: str
    source: str
    remoting: int | None = None
    operations: Set[Operation] = _ALL
    says: str = ""


OUTCOMES: Final[tuple[Line, ...]] = (
    Line(
        20000,
        20000,
        "info",
        "sent one-way: no broker answers the proxy",
        "EndTransactionActivity and ClusterMessageService.endTransactionOneway",
        operations=_ENDS,
    ),
    Line(20000, 20000, "ok", "", "SendMessageActivity: SEND_OK; the others: the broker's SUCCESS", 0),
    Line(
        40401,
        40401,
        "ok",
        "",
        "ReceiveMessageResponseStreamWriter: MESSAGE_NOT_FOUND, no message now",
        operations=POPS,
    ),
    Line(40000, 40499, "fail", "refused by the proxy", "its validation, permissions and routes, before the broker"),
    Line(41300, 41399, "fail", "too big or empty: refused by the proxy", "GrpcValidator and SendMessageActivity"),
    Line(42800, 42999, "fail", "too busy: refused by the proxy", "its own limits; of a broker SYSTEM_BUSY", 2),
    Line(43100, 43199, "fail", "too long headers: refused by the proxy", "SendMessageActivity, validation"),
    Line(
        50001,
        50001,
        "fail",
        "this proxy does not know the half message, or no longer: it sent nothing",
        "TransactionProcessor.endTransaction: TRANSACTION_DATA_NOT_FOUND; transactionDataExpireMillis",
        operations=_ENDS,
        says="cannot found transaction data",
    ),
    Line(50002, 50002, "info", "appended at most on the master", "SLAVE_NOT_AVAILABLE", 11),
    Line(50100, 50199, "fail", "not known to broker or proxy", "ResponseBuilder: REQUEST_CODE_NOT_SUPPORTED", 3),
    Line(50401, 50401, "info", "appended, the disk's answer did not come in time", "FLUSH_DISK_TIMEOUT", 10),
    Line(50402, 50402, "info", "appended on the master, too few replicas in time", "FLUSH_SLAVE_TIMEOUT", 12),
)
"""`Code` of the protocol; the first line that fits decides. Codes in no line are `info`: 40800 and 504xx are time-outs,
500xx may be anything (`ResponseBuilder.buildCode` has five codes for all of a broker's).
"""


@dataclass(frozen=True, slots=True)
class ProxyHalf:
    """A half message, as a proxy's client knows it. proxy: the name of the one that sent it, or passed the question on:
    it alone knows the place of the message, for 30 s. checked: True if a broker asked for it.
    """

    proxy: str
    topic: str
    message_id: str
    transaction_id: str
    checked: bool = False


@dataclass(frozen=True, slots=True)
class ProxyQuestion:
    """A broker's question about a transaction, as the proxy passed it on."""

    half: ProxyHalf
    body: bytes


class ProxyError(Exception):
    """No stream of questions. One line: the reason."""


class ProxyProducer:
    """One producer in one process. It goes to one proxy at a time, and to the next one after anything but success. It
    sends to a topic, and the proxy chooses the queue: give topics one queue each where that matters.

    packages  the folder that `packages.proxy_folder` made. proxies: name -> host and port. first: which of them it
    begins with.
    """

    def __init__(
        self,
        packages: Path,
        proxies: Mapping[str, tuple[str, int]],
        *,
        deadline_s: float,
        raft_log: bool | None = None,
        first: int = 0,
    ) -> None:
        if not proxies:
            raise ValueError("a client of the proxy needs a proxy")
        self.proxies = list(proxies)
        self.deadline_s = deadline_s
        self.raft_log = raft_log
        self._at = first % len(proxies)
        self._addresses = {name: f"{host}:{port}" for name, (host, port) in proxies.items()}
        self._standby = Standby(partial(_start, packages))

    @property
    def proxy(self) -> str:
        """The name of the proxy of the next request."""
        return self.proxies[self._at]

    async def open(self) -> None:
        """Starts the process, so that the first send need not wait for it; if that fails, the send tries again."""
        with contextlib.suppress(NotStarted):
            await self._standby.ready()

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        kind: MessageType = "NORMAL",
        deliver_ms: int | None = None,
        deadline_s: float | None = None,
    ) -> Sent:
        """Sends a message. deliver_ms: when a message of the kind DELAY is due (ms since 1970)."""
        due = {} if deliver_ms is None else {"deliver_ms": deliver_ms}
        request = {"do": "send", "topic": topic, "body": body.decode(), "kind": kind, **due}
        reply = await self.ask(self.proxy, request, deadline_s)
        sent = _sent(reply, self.raft_log)
        self.learn(sent.outcome)
        return sent

    async def send_half(
        self, topic: str, body: bytes, *, deadline_s: float | None = None
    ) -> tuple[Sent, ProxyHalf | None]:
        """The first half of a transaction, which `end_transaction` ends. None: the proxy named no transaction."""
        proxy = self.proxy
        sent = await self.send(topic, body, kind="TRANSACTION", deadline_s=deadline_s)
        if sent.message_id is None or sent.unique_id is None:
            return sent, None
        return sent, ProxyHalf(proxy, topic, sent.message_id, sent.unique_id)

    async def end_transaction(
        self, half: ProxyHalf, end: Literal["commit", "rollback"], *, deadline_s: float | None = None
    ) -> Answer:
        """Commits or rolls back, through the proxy that knows the half message. Never `ok`: the proxy sends the end
        one-way.
        """
        request = {
            "do": "end",
            "topic": half.topic,
            "message_id": half.message_id,
            "transaction_id": half.transaction_id,
            "as": end.upper(),
            "asked": half.checked,
        }
        return answer_of("end", await self.ask(half.proxy, request, deadline_s), self.raft_log)

    async def recall(self, topic: str, handle: str, *, deadline_s: float | None = None) -> Answer:
        """Takes a message of the kind DELAY back before its time (from 5.3.2 on, with recallMessageEnable=true)."""
        request = {"do": "recall", "topic": topic, "handle": handle}
        answer = answer_of("recall", await self.ask(self.proxy, request, deadline_s), self.raft_log)
        self.learn(answer.outcome)
        return answer

    async def close(self) -> None:
        """Ends the process. The next send starts another one."""
        await self._standby.close()

    async def ask(self, proxy: str, request: Mapping[str, Any], deadline_s: float | None) -> Mapping[str, Any]:
        """The reply of a proxy's process to one attempt; without one, the reason for its absence."""
        limit = self.deadline_s if deadline_s is None else deadline_s
        try:
            return await self._standby.ask(
                lambda left: {**request, "address": self._addresses[proxy], "timeout_s": left}, limit, grace_s=_GRACE_S
            )
        except NotStarted as e:
            return {"refused": str(e)}
        except WorkerError as e:
            return {"broken": str(e)}

    def learn(self, outcome: Outcome) -> None:
        """Goes on to the next proxy after anything but success."""
        if outcome.type != "ok":
            self._at = (self._at + 1) % len(self.proxies)


class ProxyListener:
    """A producer of topics at one proxy, in one process: it gets the questions of brokers about transactions. Its
    stream is opened, and opened again, by `listen`.
    """

    def __init__(self, packages: Path, name: str, address: tuple[str, int], topics: Sequence[str]) -> None:
        self.name = name
        self._request = {"do": "listen", "address": "{}:{}".format(*address), "topics": list(topics)}
        self._standby = Standby(partial(_start, packages))

    async def open(self) -> None:
        """Starts the process, so that the first `listen` need not wait for it; if that fails, `listen` tries again."""
        with contextlib.suppress(NotStarted):
            await self._standby.ready()

    async def listen(self, wait_s: float) -> list[ProxyQuestion]:
        """The questions since the last call; waits so long for the first one. Raises ProxyError without a stream."""
        request = {**self._request, "wait_s": wait_s}
        try:
            reply = await self._standby.ask(lambda left: request, wait_s + _LISTENING_S)
        except WorkerError as e:
            raise ProxyError(str(e)) from None
        if "error" in reply:
            raise ProxyError(f"{reply['error']}: {reply['why']}")
        found = [self._question(fields) for fields in reply["questions"]]
        if not found and "deaf" in reply:
            raise ProxyError(reply["deaf"])
        return found

    async def close(self) -> None:
        """Ends the process, and with it the stream."""
        await self._standby.close()

    def _question(self, fields: Mapping[str, str]) -> ProxyQuestion:
        half = ProxyHalf(self.name, fields["topic"], fields["message_id"], fields["transaction_id"], checked=True)
        return ProxyQuestion(half, fields["body"].encode("latin-1"))


async def _start(packages: Path) -> Worker:
    """A process of the client. Raises NotStarted."""
    worker = Worker("infra.systems.rocketmq.clients.proxy_child", str(packages))
    await worker.start()
    return worker


def outcome_of_code(
    code: int, name: str, why: str, raft_log: bool | None = None, operation: Operation = "send"
) -> Outcome:
    """The meaning of the proxy's code. A broker that is too busy is judged by its own text."""
    line = _line(code, why, operation)
    if line is None:
        return Outcome("info", f"{code} {name}: {why}")
    if code == _BUSY and why.startswith("["):
        return outcome_of(operation, 2, why, raft_log)
    return Outcome(line.type, "" if line.type == "ok" else f"{code} {name}: {line.why} ({why})")


def _line(code: int, why: str, operation: Operation) -> Line | None:
    fits = (line for line in OUTCOMES if line.first <= code <= line.last and operation in line.operations)
    return next((line for line in fits if line.says in why), None)


def answer_of(operation: Operation, reply: Mapping[str, Any], raft_log: bool | None) -> Answer:
    """The answer to an operation, from what the process reported. `code`: the proxy's own."""
    if "refused" in reply:
        return Answer(Outcome("fail", f"nothing was sent: {reply['refused']}"))
    if "broken" in reply:
        return Answer(Outcome("info", str(reply["broken"])))
    if "error" in reply:
        return Answer(Outcome("info", f"{reply['error']}: {reply['why']}"))
    code, why = reply["code"], reply["why"]
    return Answer(outcome_of_code(code, reply["name"], why, raft_log, operation), code=code)


def _sent(reply: Mapping[str, Any], raft_log: bool | None) -> Sent:
    """The result of a send. `code`: the broker's, if the proxy's stands for one."""
    answer = answer_of("send", reply, raft_log)
    if answer.code is None:
        return Sent(answer.outcome)
    offset, line = reply.get("offset"), _line(answer.code, reply["why"], "send")
    sent = Sent(
        answer.outcome,
        offset,
        reply.get("message_id"),
        line.remoting if line is not None else None,
        reply["why"],
        unique_id=reply.get("transaction_id"),
        recall=reply.get("recall_handle"),
    )
    if answer.outcome.type == "ok" and offset is None:
        return replace(sent, outcome=Outcome("info", "acknowledged, but without an offset"), code=None)
    return sent
