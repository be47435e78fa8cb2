# SPDX-License-Identifier: Apache-2.0
"""`control.jsonl`: every command the control program gave to a node, one JSON object a line.

    {"time": 1763711131.482, "node": "n1", "argv": ["nft", ...], "code": 0, "ms": 7.9, "in": 0, "out": 0, "err": 0}

`time` is the wall clock (s since 1970) at the start of the command; `code` is null if the end was not seen, and
`note` then has the reason. `in`, `out`, `err` are bytes of stdin, stdout and stderr; their contents are never noted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_LONGEST = 2000
"""Characters of one argument that are noted; longer ones (scripts) are cut, with the number of missing ones."""


class ControlLog:
    """Appends to one file from many threads. With `path` None it notes nothing.

    A full disk must not keep a fault from being healed, so a failed write is not raised: the first one is kept in
    `failure` (one line) for the judgement of the run's evidence.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.failure: str | None = None
        self._lock = threading.Lock()
        self._file: IO[str] | None = None

    def note(
        self,
        node: str,
        argv: Sequence[str],
        *,
        code: int | None,
        ms: float,
        stdin: int = 0,
        stdout: int = 0,
        stderr: int = 0,
        note: str | None = None,
    ) -> None:
        """Notes one finished (or lost) command; its start is taken to be `ms` milliseconds ago."""
        if self.path is None:
            return
        entry: dict[str, object] = {
            "time": round(time.time() - ms / 1000, 3),
            "node": node,
            "argv": [_short(word) for word in argv],
            "code": code,
            "ms": round(ms, 1),
            "in": stdin,
            "out": stdout,
            "err": stderr,
        }
        if note is not None:
            entry["note"] = note
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self._lock:
            try:
                if self._file is None:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                if self.failure is None:
                    self.failure = f"control log {self.path}: {error.strerror or error}"

    def close(self) -> None:
        """Closes the file; a later note opens it again."""
        with self._lock:
            if self._file is not None:
                try:
                    self._file.close()
                except OSError as error:
                    self.failure = self.failure or f"control log {self.path}: {error.strerror or error}"
                self._file = None


def _short(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[:_LONGEST]}... (+{len(word) - _LONGEST})"
