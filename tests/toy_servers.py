# SPDX-License-Identifier: Apache-2.0
"""Servers in the test's own process: real frames over loopback, answers as the test wants them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from infra.systems.remoting.frame import Decoder, Frame, encode

SHORT = 0.05
"""For calls that must run out of time."""
LONG = 10.0
"""For calls that must not."""

Handler = Callable[[Frame, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[tuple[str, int]]:
    """A server that decodes frames and leaves the rest to `handle`; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        try:
            while data := await reader.read(65536):
                for frame in decoder.feed(data):
                    await handle(frame, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield host, port
    finally:
        server.close()


async def free_port() -> tuple[str, int]:
    """An address where nobody listens."""
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    return host, port


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def silence(frame: Frame, writer: asyncio.StreamWriter) -> None:
    pass


async def hang_up(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def garbage(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")


class ToyServer:
    """Answers every request with one code, remark, fields and body; `requests` notes what arrived, in order."""

    def __init__(self, code: int = 0, remark: str | None = None, body: bytes = b"", **ext: str) -> None:
        self.code, self.remark, self.body, self.ext = code, remark, body, ext
        self.requests: list[Frame] = []

    async def __call__(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        self.requests.append(frame)
        if not frame.is_one_way:
            writer.write(encode(Frame(self.code, frame.opaque, 1, self.remark, self.ext, self.body)))

    @property
    def last(self) -> Frame:
        return self.requests[-1]
