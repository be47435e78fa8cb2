"""Detects the format of a file by its content alone: names are unreliable."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from pathlib import Path
from typing import IO, Final

from results.bulk import making_many
from results.errors import HistoryError
from results.formats.edn import read_edn
from results.formats.foreign import ForeignHistory, ReadOptions, implied_model
from results.formats.jsonl import read_jsonl
from results.formats.porcupine import read_etcd_log, read_kv_log
from results.history import History
from results.reading import opened

FORMATS: Final = ("jsonl", "edn", "porcupine-etcd", "porcupine-kv", "parquet")

_TEXT_READERS: Final = {"edn": read_edn, "porcupine-etcd": read_etcd_log, "porcupine-kv": read_kv_log}
_HEAD: Final = 65_536
PARQUET: Final = b"PAR1"
"""The first bytes of a file of this format."""

_GZIP: Final = b"\x1f\x8b"

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


def read_history(path: Path, format: str = "auto", options: ReadOptions | None = None) -> ForeignHistory:
    """The history in a file, converted. `format` is one of `FORMATS`, or `auto`.

    Raises HistoryError, with path and line, for a file that cannot be read, is of no known format, or is corrupt.
    """
    options = options or ReadOptions()
    if format != "auto" and format not in FORMATS:
        raise HistoryError(path, None, f"no format {format!r}; there are {', '.join(('auto', *FORMATS))}")
    try:
        with unpacked(path) as file, making_many():
            head = file.read(_HEAD)
            file.seek(0)
            return _read(path, file, detect(path, head) if format == "auto" else format, options)
    except (OSError, EOFError, zlib.error) as problem:
        raise HistoryError(path, None, f"cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    except RecursionError:
        raise HistoryError(path, None, "a value in it is nested too deeply") from None


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


def is_parquet(path: Path) -> bool:
    """True for a Parquet file, by its first bytes; False also if it cannot be read."""
    return _begins(path, PARQUET)


def is_packed(path: Path) -> bool:
    """True if the content is larger than the file: gzip, Parquet. False also if it cannot be read."""
    return _begins(path, PARQUET) or _begins(path, _GZIP)


def _begins(path: Path, magic: bytes) -> bool:
    try:
        with opened(path) as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def unpacked(path: Path) -> IO[bytes]:
    """A history's bytes, unpacked if it is gzip. Raises OSError as `opened` does, HistoryError for a folder."""
    if path.is_dir():
        raise HistoryError(path, None, "a folder, not a history")
    file = opened(path)
    magic = file.read(2)
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if magic == _GZIP else file


def _read(path: Path, file: IO[bytes], format_: str, options: ReadOptions) -> ForeignHistory:
    if format_ == "parquet":
        # Imported here: Arrow takes longer to load than a small history takes to check.
        from results.sealed import read_sealed

        history = History(read_sealed(path))
        return ForeignHistory(history, format_, implied_model(history))
    if format_ == "jsonl":
        return read_jsonl(path, file, options)
    data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        number = data.count(b"\n", 0, problem.start) + 1
        raise HistoryError(path, number, f"not UTF-8 text (byte {problem.start} is {data[problem.start]:#x})") from None
    del data
    return _TEXT_READERS[format_](path, text, options)
