# SPDX-License-Identifier: Apache-2.0
"""Events as Jepsen prints them: its `history.txt`, its console, and Porcupine's etcd logs, which are such consoles.

    INFO  jepsen.util - 4	:invoke	:cas	[3 4]
    INFO [2020-05-11 13:10:28,123] jepsen worker 1 - jepsen.util 1	:info	:cas	[3 4]	:timed-out
    4	:invoke	:cas	[3 4]

Fields have tabs between them, in old logs any white space. In those, `:timed-out` in place of a value is the reason why
the op did not end; its completion then repeats the argument. Lines of a console that are no events are left out; one
that looks like an event is an error. Porcupine's key-value logs (`test_data/kv`) are EDN, a map a line, with a `:key`;
a `get` of a missing key sees "".
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.formats.edn import EdnError, parse_edn, read_edn
from results.formats.foreign import Assembler, BadEvent, ForeignHistory, ReadOptions
from results.formats.independent import keyed, keyed_for_certain, keyed_note
from results.formats.signs import CONSOLE_EVENT, EVENT
from results.op import FAIL, INFO

_EVENT: Final = re.compile(EVENT)
_CONSOLE_EVENT: Final = re.compile(CONSOLE_EVENT)
_ERROR_BEHIND: Final = re.compile(r"(\S+|\[.*\])\s+:([\w.!?-]+)")
"""A value and the reason behind it, with blanks where Jepsen writes a tab."""
_LOOKS_SO: Final = re.compile(rf"jepsen\.util(?::|\s+-)?\s+:?\w+\s|(?:^|[\s-])(?=(?:\d+|:nemesis)\s){EVENT}")


def read_etcd_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads the log of a console. Raises HistoryError with the line."""
    return _Reader(path, options, console=True).read(text, "porcupine-etcd")


def read_history_txt(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads a `history.txt`. Raises HistoryError with the line."""
    return _Reader(path, options, console=False).read(text, "jepsen-txt")


class _Reader:
    """Reads one file. `console`: other lines may be there, too; else only the further lines of an error."""

    def __init__(self, path: Path, options: ReadOptions, *, console: bool) -> None:
        self._path, self._options, self._console = path, options, console
        self._assembler = Assembler(options, nil_reads="unset")
        self._events: list[tuple[int, str, str, str, Any, str | None]] = []

    def read(self, text: str, format_: str) -> ForeignHistory:
        skipped, failed = 0, False
        # (A value may hold a character at which `splitlines` would divide it.)
        lines = [line.rstrip("\r") for line in text.split("\n")]
        for number, line in enumerate(lines, 1):
            try:
                event = self._event(line)
            except ValueError as problem:
                raise HistoryError(self._path, number, f"{problem} ({_short(line)})") from None
            if event is not None:
                self._events.append((number, *event))
                failed = event[4] is not None
            elif line and not line.isspace():
                if (not self._console and not failed) or _LOOKS_SO.search(line):
                    raise HistoryError(self._path, number, f"{self._what()} ({_short(line)})")
                skipped += 1
        if not self._events:
            raise HistoryError(self._path, 1, f"{self._what()}, nor is any other ({_short(text[:200])})")
        notes = [f"{skipped} lines that are no events are ignored"] if skipped else []
        return self._assembled(format_, notes, lines)

    def _what(self) -> str:
        return "not a line of an etcd log" if self._console else "not an event of a history.txt"

    def _event(self, line: str) -> tuple[str, str, str, Any, str | None] | None:
        """Process, type, f, value and error."""
        if self._console:
            front = _CONSOLE_EVENT.match(line)
            if front is None:
                return None
            line = line[front.end() :]
        elif not _EVENT.match(line):
            return None
        process, rest = line.split(None, 1)
        event = _event(rest)
        return None if event is None else (process.removeprefix(":"), *event)

    def _assembled(self, format_: str, notes: list[str], lines: list[str]) -> ForeignHistory:
        certain = keyed_for_certain((process, f, value) for _, process, _, f, value, _ in self._events)
        for number, process, type_, f, recorded, error in self._events:
            try:
                key, value = None, recorded
                if (certain or self._options.independent) and process != "nemesis":
                    key, value = keyed(f, recorded)
                actor = int(process) if process.isdecimal() else process
                self._assembler.add(actor, type_, f, value, key=key, error=error)
            except ValueError as problem:
                raise HistoryError(self._path, number, f"{problem} ({_short(lines[number - 1])})") from None
        try:
            return self._assembler.finish(format_, [*notes, *keyed_note(certain and not self._options.independent)])
        except BadEvent as problem:
            raise HistoryError(self._path, None, str(problem)) from None


def read_kv_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Reads a whole log. Raises HistoryError with the line."""
    return read_edn(path, text, options, format_="porcupine-kv", nil_reads="unset")


@lru_cache(maxsize=4096)
def _event(text: str) -> tuple[str, str, Any, str | None] | None:
    """`:info :cas :timed-out` as type, f, value and error; None for any other text. Few of them differ, and each is
    written many times.
    """
    tabbed = text.split("\t", 3)
    if len(tabbed) == 4 and all(field[:1] == ":" for field in tabbed[:2]):
        return tabbed[0][1:], tabbed[1][1:], _value(tabbed[2]), tabbed[3].strip()
    fields = text.split(None, 2)
    if len(fields) < 2 or fields[0][0] != ":" or fields[1][0] != ":":
        return None
    type_, f, last = fields[0][1:], fields[1][1:], fields[2].rstrip() if len(fields) == 3 else ""
    if last[:1] == ":" and type_ in (FAIL, INFO):
        return type_, f, None, last[1:]
    if type_ in (FAIL, INFO) and (behind := _ERROR_BEHIND.fullmatch(last)):
        return type_, f, _value(behind[1]), behind[2]
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
