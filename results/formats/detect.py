# SPDX-License-Identifier: Apache-2.0
"""Detects the format of a file by its content alone: names are unreliable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.formats.signs import (
    AROUND,
    CONSOLE_EVENT,
    EVENT,
    is_event,
    is_of_kafka,
    is_operation,
    is_plain_event,
    is_record,
    is_request,
    plain_field,
)

FORMATS: Final = (
    "jsonl", "edn", "porcupine-etcd", "porcupine-kv", "parquet", "records", "porcupine", "etcd", "jepsen-txt",
    "openchaos", "kafka",
)  # fmt: skip

PARQUET: Final = b"PAR1"
"""The first bytes of a file of this format."""

_PACKED: Final = {
    b"\x28\xb5\x2f\xfd": "packed with zstd", b"BZh": "packed with bzip2", b"\xfd7zXZ": "packed with xz",
    b"\x04\x22\x4d\x18": "packed with lz4", b"PK\x03\x04": "an archive (zip)",
    b"SQLite format 3": "a database (SQLite)",
}  # fmt: skip
"""The first bytes of files that are no text."""

_NOT_READ: Final = {
    b"JEPSEN": "Jepsen's own binary file; the history.edn beside it is right",
    b"\xef\xa8\xe3": "Fressian; the history.edn beside it is right",
}
_PYTHON: Final = r"\[?\s*(?:\{\s*'|\((?:\d+|'[^'\n]*'), )"
_OTHERS: Final = {
    r"(?:---\s*)?- (?:\{\s*)?['\"]?[a-z]\w*['\"]?:(?:\s|$)": "YAML",
    r"(?:---\s*)?[a-z]\w*:\s*\n\s*- |---\s*\n\s*[a-z]\w*: ": "YAML",
    r"<[?!a-zA-Z]": "XML or HTML",
    r"&?[A-Za-z_][\w.]* ?[\[{(]\s*\w+\s?[=:]\s?\S": "values as a program prints them",
}
_LANGUAGES: Final = {
    r"#\{\s*\w+ => ": "a map of Erlang",
    r"\[?\{[a-z_]+,.*\}\]?\.\s*$": "terms of Erlang",
    r"%\{\w+: ": "a map of Elixir",
    r"\{\s*(?::\w+|\"\w+\")\s*=>": "a hash of Ruby",
    r"\{\s*[A-Za-z_]\w*:": "an object whose names have no quotes",
    r"\+-+\+|[^\n]*\n-+\+-": "a table as a database prints it",
    r"\[\[\w+\]\]\s*\n": "TOML",
}
"""The first line of a text that begins like EDN, or like nothing known -> what it is."""
_EXAMPLE: Final = '{"process": 0, "type": "invoke", "f": "write", "value": 1}'
_TEMPLATE: Final = "harness check --template NAME prints an example"
_COMMENTS: Final = r"(?:(?:[ \t]*#(?:[ \t!][^\n]*)?|sep=[,;\t|]\r?)\n\s*)+"
"""Lines in front of the first event; `sep=;` is Excel's."""
_LOG_LINE: Final = r"(?:.*\s)?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+\S+\s+- "
_JSON: Final = r'(?:\[\s*)?(?=\{\s*")'
_BEHIND: Final = r'\{\s*"(?=.*\}\s*$)'
_KV_LINE: Final = r"\{[^{}]*:f :(?:get|put|append)\b[^{}]*:key [^{}]*\}"
_EDN: Final = r"[\[({;#]"
_EDN_TEXTS: Final = r'(?:\[\s*)?\{\s*"[\w?-]+"[\s,]+[^\s,:]'
"""A map of EDN whose names are texts: JSON has a colon behind each."""
_EDN_EVENT: Final = r"(?:#[\w.]+)?\{\s*:\w"
_HISTORY_TXT: Final = EVENT
_OPENCHAOS: Final = r"(?:\d+\t[\w-]+\t(?:REQUEST|RESPONSE)|fault\t[\w-]+\t(?:start|end))\t"
_CELL: Final = r"[\w .\"?()\[\]-]*"
_TABLE: Final = "|".join(rf"{_CELL}(?:{between}{_CELL}){{2,}}\r?$" for between in (",", ";", r"\t", r"\|"))


def detect(path: Path, head: bytes) -> tuple[str, int]:
    """The format of a file that begins with `head`, and the number of lines in front of its first event (`path` is for
    the error). Raises HistoryError for any other.
    """
    if head[:4] == PARQUET:
        return "parquet", 0
    other = next((what for front, what in _NOT_READ.items() if head.startswith(front)), None)
    if other is not None:
        raise HistoryError(path, None, other)
    packed = next((name for front, name in _PACKED.items() if head.startswith(front)), None)
    if packed is not None or head[257:262] == b"ustar":
        raise HistoryError(path, None, f"{packed or 'an archive (tar)'}; unpack it: of packed files only gzip is read")
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if not text:
        raise HistoryError(path, None, "the file is empty; a history has at least one operation")
    comments = re.match(_COMMENTS, text)
    if comments is not None and text[comments.end() :]:
        found, more = _of_text(path, text[comments.end() :], b"")
        return found, comments[0].count("\n") + _blank_lines(head) + more
    return _of_text(path, text, head)


def _of_text(path: Path, text: str, head: bytes) -> tuple[str, int]:
    if re.match(_PYTHON, text):
        what = "values as Python prints them; json.dumps of each event writes JSON"
        raise HistoryError(path, 1, f"{what}, such as {_EXAMPLE}")
    language = next((name for front, name in _LANGUAGES.items() if re.match(front, text, re.MULTILINE)), None)
    if language is not None:
        raise HistoryError(path, 1, f"{language}; JSON is right, one event a line, such as {_EXAMPLE}")
    found = _by_first_line(text)
    if found is not None:
        return found, 0
    lines = text.split("\n")
    if any(re.match(CONSOLE_EVENT, line) for line in lines):
        return "porcupine-etcd", 0
    for number, line in enumerate(lines):
        if re.match(_JSON, line) or re.match(_EDN_EVENT, line):
            return _by_first_line("\n".join(lines[number:])) or "edn", number + _blank_lines(head)
        behind = re.search(_BEHIND, line)
        if behind is not None and has_events(line[behind.start() :].encode()):
            return _of_json(line[behind.start() :]), number + _blank_lines(head) + 1
    if re.match(_LOG_LINE, text):
        return "porcupine-etcd", 0
    if re.match(_EDN, text):
        return "edn", 0
    if re.match(_TABLE, lines[0]):
        names = dict.fromkeys(name.strip(' "') for name in re.split("[,;\t|]", lines[0]))
        if is_record(names):
            return "records", 0
        plain = set(map(plain_field, names))
        if plain & {"type", "event", "phase"} and plain & {"f", "op", "operation"}:
            return "jsonl", 0
        right = "the first line needs client, op, start and end (or process, type and f), and perhaps key and value"
        raise HistoryError(path, 1, f"a table (CSV) without the names of operations; {right}")
    other = next((name for front, name in _OTHERS.items() if re.match(front, text)), None)
    if other is not None:
        raise HistoryError(path, 1, f"{other}; JSON is right, one event a line, such as {_EXAMPLE}")
    raise HistoryError(path, 1, f"of no known format ({lines[0][:80]!r}); there are {', '.join(FORMATS)}; {_TEMPLATE}")


def _by_first_line(text: str) -> str | None:
    """The format by the first line; None if that line may be one in front of the events."""
    if re.match(_EDN_TEXTS, text):
        return "edn"
    if re.match(_JSON, text):
        return _of_json(text)
    if re.match(_KV_LINE, text):
        return "porcupine-kv"
    if re.match(r"[\[(]?\s*(?:#[\w.]+)?\{|[(;#]|\[\s*\[?:", text):
        return "edn"
    if re.match(_OPENCHAOS, text):
        return "openchaos"
    return "jepsen-txt" if re.match(_HISTORY_TXT, text) else None


def has_events(head: bytes) -> bool:
    """True for JSON whose first object is an event or an operation: most files of JSON are something else."""
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    around = re.search(AROUND, text)
    if around is not None and text[:1] == "{" and not _first_object(text).keys() >= {"type", "f"}:
        text = text[around.end() :].lstrip()
    first = _first_object(text)
    return is_plain_event(first) or _of_json(text) != "jsonl"


def _first_object(text: str) -> Mapping[str, Any]:
    front = re.match(_JSON, text)
    try:
        found = json.JSONDecoder().raw_decode(text, front.end())[0] if front else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_json(text: str) -> str:
    """The format by the fields of the first object."""
    first = _first_object(text)
    given = first.get("Input")
    if "Call" in first and isinstance(given, dict) and is_request(given):
        return "etcd"
    if is_operation(first) or ("Input" in first and "Call" in first):
        return "porcupine"
    if is_record(first):
        return "records"
    if is_event(first):
        return "porcupine"
    return "kafka" if is_of_kafka(first) else "jsonl"


def _blank_lines(head: bytes) -> int:
    """The number of blank lines at the beginning."""
    stripped = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return head[: len(head) - len(stripped)].count(b"\n")
