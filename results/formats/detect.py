# SPDX-License-Identifier: Apache-2.0
"""Detects the format of a file by its content alone: names are unreliable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from results.errors import HistoryError

FORMATS: Final = ("jsonl", "edn", "porcupine-etcd", "porcupine-kv", "parquet")

PARQUET: Final = b"PAR1"
"""The first bytes of a file of this format."""

_LOG_LINE: Final = re.compile(r"(?:.*\s)?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+\S+\s+- ")
_FOREIGN: Final = (
    (
        re.compile(r"\S+\s+:(?:invoke|ok|fail|info)\s+:\S"),
        "Jepsen's history.txt, which is not read; the history.edn beside it has the same events",
    ),
    (
        re.compile(r"\w+\t[\w-]+\t(?:REQUEST|RESPONSE|start|end)\b"),
        "a history of OpenChaos, which is not read; docs/histories.md has the format of JSON lines to convert it to",
    ),
    (
        re.compile(r"[\w .-]+(?:,[\w .-]+){2,}\r?$"),
        "a table (CSV), which is not read; JSON lines with one event a line are right: "
        '{"process", "type", "f", "value", "time"}',
    ),
)
"""First lines of other formats, each with its error message."""

_KV_LINE: Final = re.compile(r"\{[^{}]*:f :(?:get|put|append)\b[^{}]*:key [^{}]*\}")


def detect(path: Path, head: bytes) -> str:
    """The format of a file that begins with `head` (`path` is for the error). Raises HistoryError for any other."""
    if head[:4] == PARQUET:
        return "parquet"
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if not text:
        raise HistoryError(path, None, "the file is empty; a history has at least one operation")
    if re.match(r'(?:\[\s*)?\{\s*"', text):
        return "jsonl"
    if _LOG_LINE.match(text):
        return "porcupine-etcd"
    if _KV_LINE.match(text):
        return "porcupine-kv"
    if re.match(r"[\[({;#]", text):
        return "edn"
    first = text.splitlines()[0]
    for pattern, what in _FOREIGN:
        if pattern.match(first):
            raise HistoryError(path, 1, what)
    raise HistoryError(path, 1, f"of no known format ({first[:80]!r}); there are {', '.join(FORMATS)}")
