# SPDX-License-Identifier: Apache-2.0
"""One connection to one server: asynchronous, one call at a time, exact deadlines, no retries.

The purpose of this module is the meaning of an error for the request:

    Refused    no byte of it left this process: it certainly has no effect.
    Broken     the connection ended after a byte may have reached the kernel: unknown.
    TimedOut   no answer in time: unknown.

After any error the connection is closed, so that a late answer can never be taken for the next request's.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from infra.systems.remoting.frame import ONE_WAY, Decoder, Frame, FrameError, encode

_MAX_OPAQUE: Final = 1 << 31
"""`opaque` is a Java int."""


class RemotingError(Exception):
    """A call brought no answer. The text is one line: the server, and the event."""


class Refused(RemotingError):
    """Nothing of the request was sent."""


class Broken(RemotingError):
    """The connection ended, or its bytes were invalid, after the request may have been sent."""


class Malformed(Broken):
    """An answer came, but its content is invalid."""


class TimedOut(RemotingError):
    """The answer did not come within the deadline."""


class Connection(asyncio.Protocol):
    """Made by `connect`. `on_request` gets the server's requests to the client: RocketMQ's brokers send some, DLedger
    does not. Without it such requests are dropped. `version` is sent with every request (`Frame.version`).
    """

    def __init__(self, address: str, on_request: Callable[[Frame], None] | None = None, version: int = 0) -> None:
        self.address = address
        self._on_request = on_request
        self._version = version
        self._decoder = Decoder()
        self._opaque = itertools.count(1)
        self._waiting: tuple[int, asyncio.Future[Frame]] | None = None
        self._transport: asyncio.Transport | None = None
        self._ended: str | None = None

    @property
    def closed(self) -> bool:
        return self._ended is not None

    async def call(self, code: int, body: bytes, timeout_s: float, *, ext: Mapping[str, str] | None = None) -> Frame:
        """Sends one request and waits for its response. Raises Refused, Broken or TimedOut; then it is closed.

        `timeout_s` counts from now; cancelling the call closes the connection as well.
        """
        transport = self._open_transport()
        if timeout_s <= 0:
            raise Refused(f"{self.address}: no time left for the request")
        if self._waiting is not None:
            raise RuntimeError("a connection carries one call at a time")
        opaque, data = self._encoded(code, body, ext)
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting = (opaque, future)
        try:
            async with asyncio.timeout(timeout_s):
                transport.write(data)
                return await future
        except TimeoutError:
            self._end("closed after a call that timed out")
            raise TimedOut(f"{self.address}: no answer within {timeout_s:.3g} s") from None
        except BaseException:
            self._end("closed after a failed call")
            raise
        finally:
            self._waiting = None

    def post(self, code: int, body: bytes, *, ext: Mapping[str, str] | None = None) -> None:
        """Sends a request that is never answered (one-way), also while a call waits. Raises Refused: nothing was sent.

        Nothing shows whether the server got it.
        """
        transport = self._open_transport()
        transport.write(self._encoded(code, body, ext, flag=ONE_WAY)[1])

    def close(self) -> None:
        """Drops the connection at once. Idempotent."""
        self._end("closed")

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None or self._ended is not None:
            raise Refused(f"{self.address}: {self._ended or 'not connected'}")
        return self._transport

    def _encoded(self, code: int, body: bytes, ext: Mapping[str, str] | None, flag: int = 0) -> tuple[int, bytes]:
        """A new request's number and bytes."""
        opaque = next(self._opaque) % _MAX_OPAQUE
        try:
            return opaque, encode(Frame(code, opaque, flag=flag, ext=ext or {}, body=body, version=self._version))
        except FrameError as e:
            raise Refused(f"{self.address}: {e}") from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except FrameError as e:
            self._end(str(e))
            return
        for frame in frames:
            if not frame.is_response:
                if self._on_request is not None:
                    self._on_request(frame)
            elif self._waiting is None or frame.opaque != self._waiting[0]:
                self._end(f"an answer to request {frame.opaque}, which nobody waits for")
                return
            elif not self._waiting[1].done():
                self._waiting[1].set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the server closed the connection")

    def _end(self, why: str) -> None:
        """Keeps the first reason, wakes the caller, and frees the socket."""
        if self._ended is None:
            self._ended = why
        if self._transport is not None:
            self._transport.abort()
        if self._waiting is not None and not self._waiting[1].done():
            self._waiting[1].set_exception(Broken(f"{self.address}: {why}"))


async def connect(
    host: str, port: int, timeout_s: float, on_request: Callable[[Frame], None] | None = None, version: int = 0
) -> Connection:
    """Opens a connection. Raises Refused, also if the time is up: no request was sent."""
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(lambda: Connection(address, on_request, version), host, port)
    except TimeoutError:
        raise Refused(f"{address}: no connection within {timeout_s:.3g} s") from None
    except OSError as e:
        raise Refused(f"{address}: {os.strerror(e.errno) if e.errno else e}") from None
    return connection
