# SPDX-License-Identifier: Apache-2.0
"""The client of Redis on docs/any-system.md against a little double of Redis: logs, counters and sets, and their stale
reads.
"""

from __future__ import annotations

import asyncio
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import MODELS, check
from results.history import History
from results.op import Op
from results.verdict import Verdict
from workloads.any_system.objects import OBJECTS
from workloads.any_system.pipe import PipeClient

CLIENT = Path(__file__).parents[2] / "examples" / "any" / "redis" / "client.py"
WORDS = {"log": "log", "counter": "counter", "grow-only-set": "set"}
OPS = 40


class _Requests(socketserver.StreamRequestHandler):
    """Answers the commands that the client sends, from the server's `data`."""

    def handle(self) -> None:
        while (line := self.rfile.readline()).startswith(b"*"):
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].decode())
            self.wfile.write(self._answer(self.server.data, *words))  # type: ignore[attr-defined]

    def _answer(self, data: dict[str, Any], command: str, key: str, argument: str = "") -> bytes:
        if command == "RPUSH":
            data.setdefault(key, []).append(argument)
            return b":%d\r\n" % len(data[key])
        if command == "LINDEX":
            return _bulk((data.get(key, [])[int(argument) :] or [None])[0])
        if command == "INCRBY":
            data[key] = str(int(data.get(key, "0")) + int(argument))
            return f":{data[key]}\r\n".encode()
        if command == "GET":
            return _bulk(data.get(key))
        if command == "SADD":
            data.setdefault(key, set()).add(argument)
            return b":1\r\n"
        assert command == "SMEMBERS"
        elements = data.get(key, set())
        return b"*%d\r\n" % len(elements) + b"".join(map(_bulk, elements))


def _bulk(text: str | None) -> bytes:
    return b"$-1\r\n" if text is None else f"${len(text)}\r\n{text}\r\n".encode()


@contextmanager
def redis() -> Iterator[str]:
    """A double; yields its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Requests) as server:
        server.daemon_threads = True
        server.data = {}  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


async def history_of(model: str, *arguments: str) -> History:
    """The ops of the workload on one key, one after the other."""
    made = OBJECTS[model]
    client = PipeClient([sys.executable, str(CLIENT), *arguments], {}, CLIENT.parent, "n1", 20.0, made.value)
    await client.open()
    ops: list[Op] = []
    try:
        source = made.make(7, "k1")
        assert callable(source)
        for n in range(OPS):
            asked = source(n)
            invoke = Op(len(ops), len(ops), 0, "invoke", asked.f, "k1", asked.value)
            found = await client.invoke(invoke)
            ops += [invoke, Op(len(ops) + 1, len(ops) + 1, 0, found.type, asked.f, "k1", found.value, found.error)]
    finally:
        await client.close()
    return History(ops)


@pytest.mark.parametrize("model", WORDS)
def test_the_client_of_redis_has_the_object(model: str) -> None:
    """All ops succeed, and the history is right; with reads of a replica that nothing reaches it is not."""
    for more, verdict in (([], Verdict.VALID), (["replica-reads"], Verdict.INVALID)):
        with redis() as primary, redis() as replica:
            history = asyncio.run(history_of(model, primary, replica, "10", WORDS[model], *more))
        assert {op.type for op in history} == {"invoke", "ok"}
        assert {op.f for op in history} == set(OBJECTS[model].fs)
        assert check(history, MODELS[model]()).verdict == verdict
