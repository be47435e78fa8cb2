# SPDX-License-Identifier: Apache-2.0
"""Opens a history's file once: its format, the size of its content, and the ways to read it."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from results.bulk import making_many
from results.errors import HistoryError
from results.formats.detect import FORMATS, PARQUET, detect
from results.formats.foreign import ForeignHistory, ReadOptions
from results.formats.implied import implied_model
from results.history import History
from results.reading import bounded, memory_limit, opened

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD: Final = 65_536
_GZIP: Final = b"\x1f\x8b"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
"""The first bytes of a text in UTF-16 or UTF-32."""


@dataclass(frozen=True)
class OpenedHistory:
    """A history's file, open, for the time of `open_history`.

    file     its bytes, unpacked if it is gzip.
    packed   True if its content is larger than the file: gzip, Parquet.
    parquet  True if it is a Parquet file, by its first bytes.
    """

    path: Path
    file: IO[bytes]
    packed: bool
    parquet: bool
    _format: str

    @cached_property
    def rows(self) -> int | None:
        """The number of ops of a sealed history, from the file's own directory; None for any other format. Raises
        HistoryError if the directory cannot be read.
        """
        if not self.parquet or self._format not in ("auto", "parquet"):
            return None
        # Imported here: Arrow takes longer to load than a small history takes to check.
        from results.sealed import row_count

        return row_count(self.path)

    def columns(self) -> pa.Table:
        """The columns of a sealed history (`results.sealed.read_columns`)."""
        from results.sealed import read_columns

        return read_columns(self.path)

    def limited(self, memory: int | None) -> AbstractContextManager[None]:
        """The context in which it is read: with at most this many bytes of memory (`results.reading.memory_limit`)."""
        return bounded(self.path, memory_limit(self.path, memory, packed=self.packed))

    def read(self, options: ReadOptions | None = None) -> ForeignHistory:
        """The history, converted. Raises HistoryError, with path and line, if it is of no known format, or corrupt."""
        with _explained(self.path), making_many():
            file, notes, head = _plain(self.path, self.file, _head(self.file))
            format_, front = detect(self.path, head) if self._format == "auto" else (self._format, 0)
            if front:
                file, ignored = _without(self.path, file, front, format_)
                notes = [*ignored, *notes]
            found = _read(self.path, file, format_, options or ReadOptions())
            return replace(found, notes=[*notes, *found.notes]) if notes else found

    def line_of(self, op: int, ops: int) -> int | None:
        """The number of the line with an op, blank lines not counted. None if ops and lines are not one to one."""
        seen, found = -1, None
        self.file.seek(0)
        for number, text in enumerate(self.file, 1):
            seen += not text.isspace()
            found = number if seen == op and found is None else found
        return found if seen + 1 == ops else None


@contextmanager
def open_history(path: Path, format: str = "auto") -> Iterator[OpenedHistory]:
    """Opens a file for its block. `format` is one of `FORMATS`, or `auto`: its content shows it.

    Raises HistoryError for a file that cannot be opened, and for a format that does not exist.
    """
    if format != "auto" and format not in FORMATS:
        raise HistoryError(path, None, f"no format {format!r}; there are {', '.join(('auto', *FORMATS))}")
    with _explained(path):
        if path.is_dir():
            raise HistoryError(path, None, "a folder, not a history")
        file = opened(path)
    with file:
        with _explained(path):
            magic = file.read(len(PARQUET))
            file.seek(0)
        packed = magic[:2] == _GZIP
        whole = _unpacked(file) if packed else file
        yield OpenedHistory(path, whole, packed or magic == PARQUET, magic == PARQUET, format)


def _head(file: IO[bytes]) -> bytes:
    file.seek(0)
    head = file.read(_HEAD)
    file.seek(0)
    return head


def _plain(path: Path, file: IO[bytes], head: bytes) -> tuple[IO[bytes], list[str], bytes]:
    """The file, or one that the readers know if it is in UTF-16 or UTF-32, has other ends of lines, or is JSON that is
    not one value a line; notes on that, and its first bytes.
    """
    odd = head.startswith(_WIDE) or head[:1] == b"\x1e" or b"\0" in head[:4] or (b"\r" in head and b"\n" not in head)
    if not odd and head[:4].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b""):
        return file, [], head
    # Imported here: few files need it.
    from results.formats.documents import as_array, in_plain_lines

    if odd:
        file = in_plain_lines(path, file)
        head = _head(file)
    found, notes = as_array(path, file, head)
    return found, notes, _head(found)


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    import gzip

    return io.BufferedReader(gzip.GzipFile(fileobj=file))


def read_history(path: Path, format: str = "auto", options: ReadOptions | None = None) -> ForeignHistory:
    """The history in a file, converted. `format` is one of `FORMATS`, or `auto`.

    Raises HistoryError, with path and line, for a file that cannot be read, is of no known format, or is corrupt.
    """
    with open_history(path, format) as history:
        return history.read(options)


def limited(path: Path, memory: int | None, shown: Path | None = None) -> AbstractContextManager[None]:
    """The context in which the history of a run is read: with at most this many bytes of memory. shown: the path that
    an error names instead of this one.
    """
    try:
        with open_history(path) as history:
            packed = history.packed
    except HistoryError:  # its reader says what is wrong with it
        packed = False
    return bounded(shown or path, memory_limit(path, memory, packed=packed))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns the errors of a file that cannot be read into HistoryError."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as problem:
        raise HistoryError(path, None, f"cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    except RecursionError:
        raise HistoryError(path, None, "a value in it is nested too deeply") from None


def _without(path: Path, file: IO[bytes], lines: int, format_: str) -> tuple[IO[bytes], list[str]]:
    """The file without its first lines, which are blank then, so that all others keep their numbers; of a log with JSON
    also without all other lines that are no events. And the notes on that.
    """
    if _json_reader(format_) is not None:
        # Imported here: few files need it.
        from results.formats.documents import of_console

        found = of_console(path, file)
        if found is not None:
            return found[0], [f"{found[1]} lines that are no events are ignored"] if found[1] else []
        file.seek(0)
    for _ in range(lines):
        file.readline()
    note = f"{lines} lines in front of the first event are ignored"
    return io.BytesIO(b"\n" * lines + file.read()), [note]


def _read(path: Path, file: IO[bytes], format_: str, options: ReadOptions) -> ForeignHistory:
    if format_ == "parquet":
        # Imported here: Arrow takes longer to load than a small history takes to check.
        from results.sealed import read_sealed

        history = History(read_sealed(path))
        return ForeignHistory(history, format_, implied_model(history))
    json_reader = _json_reader(format_)
    if json_reader is not None:
        return json_reader(path, file, options)
    data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        number = data.count(b"\n", 0, problem.start) + 1
        raise HistoryError(path, number, f"not UTF-8 text (byte {problem.start} is {data[problem.start]:#x})") from None
    del data
    return _text_reader(format_)(path, text, options)


# Readers are imported here: most of them take longer to load than to read a small history, and a file has one format.


def _json_reader(format_: str) -> Callable[[Path, IO[bytes], ReadOptions], ForeignHistory] | None:
    """The reader of a format of JSON values; None for another format."""
    match format_:
        case "jsonl":
            from results.formats.jsonl import read_jsonl

            return read_jsonl
        case "records":
            from results.formats.records import read_records

            return read_records
        case "kafka":
            from results.formats.kafka_tools import read_kafka

            return read_kafka
        case "porcupine":
            from results.formats.porcupine_json import read_porcupine

            return read_porcupine
        case "etcd":
            from results.formats.etcd_json import read_etcd_json

            return read_etcd_json
    return None


def _text_reader(format_: str) -> Callable[[Path, str, ReadOptions], ForeignHistory]:
    """The reader of any other format of text."""
    match format_:
        case "edn":
            from results.formats.edn import read_edn

            return read_edn
        case "openchaos":
            from results.formats.openchaos import read_openchaos

            return read_openchaos
    from results.formats.jepsen_text import read_etcd_log, read_history_txt, read_kv_log

    return {"porcupine-etcd": read_etcd_log, "porcupine-kv": read_kv_log, "jepsen-txt": read_history_txt}[format_]
