# SPDX-License-Identifier: Apache-2.0
"""A push consumer of librocketmq (C++), through rocketmq-client-python: a program on a node, in the protocol of
docs/clients.md ("An application of your own").

`python3 -m infra.systems.rocketmq.applications.native_consumer FOLDER`, the package in FOLDER. It uses the standard
library alone besides, because nodes lack this package: `native.NativeProgram` puts its two files there.

Each message decides the work on it itself: its property `fails` says how many attempts fail, `slow` how many
milliseconds one takes, and `broker` names its broker group, which the library does not report.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from infra.systems.rocketmq.clients.missing_functions import tolerate_missing_functions

_RETRY: Final = "%RETRY%"
_LARGE: Final = 4096
_SHOWN: Final = 64
"""Of a body with more than `_LARGE` bytes so many are reported."""


class Pipe:
    """The events, one JSON object a line. A library may print anything: its standard output goes to the log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        self._writing = threading.Lock()
        os.dup2(2, 1)

    def tell(self, event: str, **fields: Any) -> None:
        """Writes an event with the time of its clock (us); a None is left out."""
        clock = time.monotonic_ns() // 1000
        shown = {name: value for name, value in fields.items() if value is not None}
        line = json.dumps({"event": event, "clock": clock, **shown}) + "\n"
        with self._writing:
            self._out.write(line)

    def fail(self, problem: Exception, **fields: Any) -> None:
        """Writes that something failed."""
        self.tell("failed", **fields, error=type(problem).__name__, why=str(problem))


class Consumer:
    """One consumer. Raises what the package raises; ValueError for a command that it has no means for.

    numbers  the numbers of the deliveries of the process.
    """

    def __init__(self, package: Any, pipe: Pipe, numbers: Iterator[int], command: Mapping[str, Any]) -> None:
        if command.get("broadcast") or "sql" in command:
            raise ValueError("a native consumer has neither broadcast nor SQL92")
        self._pipe, self._numbers = pipe, numbers
        self._name, self._group = command["name"], command["group"]
        self._status = package.ConsumeStatus
        self._consumer = package.PushConsumer(self._group, orderly=bool(command.get("orderly")))
        self._consumer.set_name_server_address(command["nameservers"])
        self._consumer.set_instance_name(command["instance"])
        self._consumer.set_thread_count(int(command.get("set", {}).get("consumeThreadMax", 4)))
        for topic in command["topics"]:
            self._consumer.subscribe(topic, self._receive, command.get("tags", "*"))
        self._consumer.start()
        pipe.tell("started", name=self._name, client=command["instance"])

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._consumer.shutdown()

    def _receive(self, message: Any) -> Any:
        """Works on a message, and returns its result. An exception must not leave it: ctypes would return 0 for it,
        which is the code of a success.
        """
        done = False
        try:
            done = self._work(message)
        except Exception as problem:
            self._pipe.fail(problem, name=self._name)
        return self._status.CONSUME_SUCCESS if done else self._status.RECONSUME_LATER

    def _work(self, message: Any) -> bool:
        n, attempt = next(self._numbers), message.reconsume_times
        # The library shows the topic of a message that comes again as the one to which it was sent.
        topic = f"{_RETRY}{self._group}" if message.get_property("RETRY_TOPIC") else message.topic
        body = message.body or b""
        self._pipe.tell(
            "delivered",
            name=self._name,
            n=n,
            topic=topic,
            broker=_text(message.get_property("broker")) or "?",
            queue=message.queue_id,
            offset=message.queue_offset,
            attempt=attempt,
            id=message.id,
            tags=_text(message.tags) or None,
            keys=_text(message.keys) or None,
            body=_text(body[:_SHOWN] if len(body) > _LARGE else body),
        )
        time.sleep(_number(message, "slow") / 1000)
        done = bool(attempt >= _number(message, "fails"))
        self._pipe.tell("done", name=self._name, n=n, ok=done)
        return done


class Application:
    """The parts of the process, by their names."""

    def __init__(self, pipe: Pipe, package: Any) -> None:
        self._pipe, self._package = pipe, package
        self._numbers = itertools.count(1)
        self._parts: dict[str, Consumer] = {}

    def take(self, command: Mapping[str, Any]) -> None:
        """Does what a command says. Reports an exception."""
        name = command.get("name", "")
        try:
            if command["do"] == "consume":
                self._parts[name] = Consumer(self._package, self._pipe, self._numbers, command)
            elif command["do"] == "stop":
                if (part := self._parts.pop(name, None)) is not None:
                    part.stop()
                self._pipe.tell("stopped", name=name)
            elif name in self._parts:
                raise ValueError(f"a consumer cannot {command['do']}")
            else:
                raise ValueError(f"nothing here is called {name!r}")
        except Exception as problem:
            self._pipe.fail(problem, name=name, n=command.get("n"))


def _text(value: bytes | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _number(message: Any, name: str) -> int:
    return int(_text(message.get_property(name)) or 0)


def main() -> None:
    """Runs until the input ends, and ends at once then, even if a call hangs in the library."""
    pipe = Pipe()
    commands: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    sys.path.insert(0, sys.argv[1])

    def work() -> None:
        try:
            tolerate_missing_functions()
            application = Application(pipe, import_module("rocketmq.client"))
        except Exception as problem:
            pipe.fail(problem, name=commands.get().get("name", ""))
            return
        while True:
            application.take(commands.get())

    pipe.tell("hello", pid=os.getpid())
    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        commands.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
