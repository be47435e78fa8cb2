# SPDX-License-Identifier: Apache-2.0
"""The connection of all requests in this package, and the answer of operations without a result of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Broken, Connection, Malformed, RemotingError, connect
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.codes import VERSION, Request
from infra.systems.rocketmq.protocol.messages import Message, MessageError, UnsupportedMessage, decode_all
from infra.systems.rocketmq.protocol.outcomes import Operation, outcome_of, outcome_of_error


class Unreadable(Malformed):
    """An answer whose bytes are no messages."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an operation that returns at most a number: an offset, or None without one.

    code  of the answer, None without one.
    """

    outcome: Outcome
    value: int | None = None
    code: int | None = None


class Link:
    """One connection to one server, for one logical process: one call at a time. It is made when it is needed, and made
    again by the next call after it ended.

    `raft_log`: whether the CommitLog is a Raft log, for answers that mean different things then.
    `on_request` gets the server's requests to the client (39, 40, ...), on the event loop; it must not block.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        deadline_s: float,
        raft_log: bool | None = None,
        on_request: Callable[[Frame], None] | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.deadline_s = deadline_s
        self.raft_log = raft_log
        self.on_request = on_request
        self._connection: Connection | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    async def ask(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, deadline_s: float | None = None
    ) -> Frame:
        """Sends one request, and returns its answer with any code, all within the deadline. Raises RemotingError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.deadline_s if deadline_s is None else deadline_s)
        connection = await self._connected(deadline - loop.time())
        return await connection.call(code, body, deadline - loop.time(), ext=ext)

    async def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Sends a request without an answer, also while a call waits. Raises Refused if nothing was sent."""
        (await self._connected(self.deadline_s)).post(code, body, ext=ext)

    async def operate(
        self,
        operation: Operation,
        code: Request,
        ext: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline_s: float | None = None,
    ) -> Answer:
        """Sends a request of whose answer only the code counts."""
        try:
            frame = await self.ask(code, ext, body, deadline_s=deadline_s)
        except RemotingError as error:
            return Answer(outcome_of_error(operation, error))
        return Answer(self.judge(operation, frame), None, frame.code)

    def judge(self, operation: Operation, frame: Frame) -> Outcome:
        """The outcome of an operation, by its answer."""
        return outcome_of(operation, frame.code, frame.remark, self.raft_log)

    def number(self, frame: Frame, name: str) -> int | None:
        """A field of an answer. Raises Broken if it is no number: an invalid answer proves nothing."""
        text = frame.ext.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise Broken(f"{self.address}: {name} is {text[:40]!r}, not a whole number") from None

    def messages(self, frame: Frame) -> list[Message]:
        """The messages in an answer. Raises Malformed; Unreadable if its bytes are no messages."""
        try:
            return decode_all(frame.body) if frame.code == 0 else []
        except UnsupportedMessage as e:
            raise Malformed(f"{self.address}: {e}") from None
        except MessageError as e:
            raise Unreadable(f"{self.address}: {e}") from None

    async def close(self) -> None:
        """Drops the connection. The link may be used again and then makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self, timeout_s: float) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self.host, self.port, timeout_s, self._on_request, VERSION)
        return self._connection

    def _on_request(self, frame: Frame) -> None:
        if self.on_request is not None:
            self.on_request(frame)
