# SPDX-License-Identifier: Apache-2.0
"""Porcupine's test data: etcd logs, and key-value logs (`anishathalye/porcupine`, `test_data/jepsen` and `/kv`).

An etcd log is what Jepsen printed to the console; two kinds of white space between the fields are seen:

    INFO  jepsen.util - 4	:invoke	:cas	[3 4]
    INFO  jepsen.util - 4	:info	:cas	:timed-out

`:timed-out` in place of a value is the reason why the op did not end; its completion then repeats the argument. Lines
of other loggers are left out. A key-value log is EDN, a map a line, with a `:key`; a `get` of a missing key sees "".
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.formats.edn import EdnError, parse_edn, read_edn
from results.formats.foreign import Assembler, BadEvent, ForeignHistory, ReadOptions
from results.op import INVOKE

_LOGGER: Final = ["jepsen.util", "-"]
_OTHER_LOGGER: Final = re.compile(r"(?:.*\s)?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+(?!jepsen\.util\b)\S+ +- ")


def read_etcd_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads a whole log. Raises HistoryError with the line."""
    assembler = Assembler(options, nil_reads="unset")
    skipped = 0
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split(None, 4)
        event = None
        try:
            if fields[1:3] == _LOGGER and len(fields) == 5:
                event = _event(fields[4])
            if event is not None:
                process = fields[3].removeprefix(":")
                type_, f, value, error = event
                assembler.add(int(process) if process.isdecimal() else process, type_, f, value, error=error)
                continue
        except ValueError as problem:
            raise HistoryError(path, number, f"{problem} ({_short(line)})") from None
        if fields and not _OTHER_LOGGER.match(line):
            raise HistoryError(path, number, f"not a line of an etcd log ({_short(line)})")
        skipped += bool(fields)
    try:
        return assembler.finish("porcupine-etcd", [f"{skipped} lines of other loggers are ignored"] if skipped else [])
    except BadEvent as problem:
        raise HistoryError(path, None, str(problem)) from None


def read_kv_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads a whole log. Raises HistoryError with the line."""
    return read_edn(path, text, options, format_="porcupine-kv", nil_reads="unset")


@lru_cache(maxsize=4096)
def _event(text: str) -> tuple[str, str, Any, str | None] | None:
    """`:info :cas :timed-out` as type, f, value and error; None for any other text. Few of them differ, and each is
    written many times.
    """
    fields = text.split(None, 2)
    if len(fields) < 2 or fields[0][0] != ":" or fields[1][0] != ":":
        return None
    type_, f, last = fields[0][1:], fields[1][1:], fields[2].rstrip() if len(fields) == 3 else ""
    if last[:1] == ":" and type_ != INVOKE:
        return type_, f, None, last[1:]
    return type_, f, _value(last), None


def _value(last: str) -> Any:
    """The value in the last field."""
    if last == "nil":
        return None
    try:
        forms = parse_edn(last)
    except EdnError as problem:
        raise ValueError(f"the value cannot be read: {problem.what}") from None
    if len(forms) > 1:
        raise ValueError(f"{len(forms)} values where one is right")
    return forms[0] if forms else None


def _short(line: str) -> str:
    """`'INFO jepsen.util - 4 :ok :read 3'`: the line as readable text, at most 200 characters."""
    return repr(" ".join(line.split())[:200])
