"""Porcupine's test data: etcd logs, and key-value logs (`anishathalye/porcupine`, `test_data/jepsen` and `/kv`).

An etcd log is what Jepsen printed to the console; two kinds of white space between the fields are seen:

    INFO  jepsen.util - 4	:invoke	:cas	[3 4]
    INFO  jepsen.util - 4	:info	:cas	:timed-out

`:timed-out` in place of a value is why the op did not end; its completion then repeats the argument. Lines of other
loggers are left out. A key-value log is EDN, a map a line, with a `:key`; a `get` of a missing key sees "".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.formats.edn import EdnError, parse_edn, read_edn
from results.formats.foreign import Assembler, ForeignHistory, ReadOptions

_EVENT: Final = re.compile(r"[A-Z]+\s+jepsen\.util - :?(\S+)\s+:(\w+)\s+:(\S+)\s*(.*)")
_OTHER_LOGGER: Final = re.compile(r"(?:.*\s)?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+(?!jepsen\.util\b)\S+ +- ")
_PLAIN_VALUE: Final = re.compile(r"nil|-?\d+")


def read_etcd_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Read it all. Raises HistoryError with the line."""
    assembler = Assembler(options, nil_reads="unset")
    skipped = 0
    for number, line in enumerate(text.splitlines(), 1):
        found = _EVENT.fullmatch(line.rstrip())
        if found is None:
            if line.strip() and not _OTHER_LOGGER.match(line):
                raise HistoryError(path, number, f"not a line of an etcd log ({_short(line)})")
            skipped += bool(line.strip())
            continue
        process, type_, f, said = found.groups()
        try:
            value, error = _value(said, type_)
            assembler.add(int(process) if process.isdecimal() else process, type_, f, value, error=error)
        except ValueError as problem:
            raise HistoryError(path, number, f"{problem} ({_short(line)})") from None
    return assembler.finish("porcupine-etcd", [f"{skipped} lines of other loggers are left out"] if skipped else [])


def read_kv_log(path: Path, text: str, options: ReadOptions) -> ForeignHistory:
    """Read it all. Raises HistoryError with the line."""
    return read_edn(path, text, options, format_="porcupine-kv", nil_reads="unset")


def _value(said: str, type_: str) -> tuple[Any, str | None]:
    """(value, error) of the last field."""
    if said.startswith(":") and type_ != "invoke":
        return None, said[1:]
    if _PLAIN_VALUE.fullmatch(said):
        return (None if said == "nil" else int(said)), None
    try:
        forms = parse_edn(said)
    except EdnError as problem:
        raise ValueError(f"the value cannot be read: {problem.what}") from None
    if len(forms) > 1:
        raise ValueError(f"{len(forms)} values where one is right")
    return (forms[0] if forms else None), None


def _short(line: str) -> str:
    """`'INFO jepsen.util - 4 :ok :read 3'`: the line as one sees it, at most 200 characters."""
    return repr(" ".join(line.split())[:200])
