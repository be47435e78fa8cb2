# SPDX-License-Identifier: Apache-2.0
"""The system under test: a store with a replica that lags, and a queue in memory. Put your own client here."""

from __future__ import annotations

import os
import threading


class Store:
    """A register of two copies. STALE=1 in the environment plants an error: reads come from the copy that lags."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._main = self._replica = 0
        self._stale = bool(os.environ.get("STALE"))

    def write(self, value: int) -> None:
        with self._lock:
            self._replica, self._main = self._main, value

    def read(self) -> int:
        with self._lock:
            return self._replica if self._stale else self._main


class Broker:
    """A queue of messages with offsets. LOSES=1 plants an error: it acknowledges the third message and drops it."""

    def __init__(self) -> None:
        self._messages: list[int | None] = []
        self._loses = bool(os.environ.get("LOSES"))

    def send(self, message: int) -> int:
        lost = self._loses and len(self._messages) == 2
        self._messages.append(None if lost else message)
        return len(self._messages) - 1

    def read_all(self) -> list[list[int]]:
        return [[offset, message] for offset, message in enumerate(self._messages) if message is not None]
