# SPDX-License-Identifier: Apache-2.0
"""The journal: a run's history on disk during the run (design.md, section 4, "History on disk").

One JSON object per line. The last field is a CRC-32 over the bytes before it:

    {"index":0,"time":5,"process":1,"type":"invoke","f":"write","key":"r1","value":3,"crc":"1a2b3c4d"}

Any tool for JSON lines can read a journal, and a damaged line is detected. `Journal.append` only encodes and buffers (a
few microseconds). A separate thread passes the buffer to the kernel every `FLUSH_S` and to the disk every `SYNC_S`. A
control program killed with -9 loses at most the last `FLUSH_S`, a power loss the last `SYNC_S`. The file then ends in a
torn line, which `read_journal` cuts off and reports.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from sys import intern
from types import TracebackType
from typing import Any, Final

from results.bulk import json_values, making_many
from results.durable import sync_folder
from results.errors import HistoryError, StoreError, cannot_write, in_bytes
from results.op import NEMESIS, Op
from results.reading import LINE, TwiceNamed, json_of, lines, opened

FLUSH_S: Final = 0.2
"""Appended ops reach the kernel within this."""
SYNC_S: Final = 1.0
"""Appended ops reach the disk within this (and the time the disk takes)."""

_CRC_FIELD: Final = b',"crc":"'
_TAIL: Final = len(b',"crc":"1a2b3c4d"}')
_AT_ONCE: Final = 4096
_IDLE: Final = 5_000_000
"""The largest number of lines of a history that are no operation: blank ones, or a torn end."""
_dumps: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode(op: Op) -> bytes:
    """The op as a line without CRC and without the last brace: `json.dumps(op.to_json())` but several times as fast.

    Raises ValueError, naming the op, if `value` or `extra` is no JSON value.
    """
    try:
        text = (
            f'{{"index":{op.index},"time":{op.time},'
            f'"process":{op.process if op.process != NEMESIS else _NEMESIS_TEXT},'
            f'"type":"{op.type}","f":{_quoted(op.f)},'
            f'"key":{"null" if op.key is None else _quoted(op.key)},"value":{_json(op.value)}'
        )
        if op.error is not None:
            text += f',"error":{_quoted(op.error)}'
        if op.extra:
            text += f',"extra":{_object(op.extra)}'
    except (TypeError, ValueError) as problem:
        raise ValueError(f"op {op.index} ({op.f}) cannot be journalled: {problem}") from None
    return text.encode("ascii")


_NEMESIS_TEXT: Final = '"nemesis"'


def _json(value: Any) -> str:
    # Exact types only: a bool is an int, and an enum of ints prints its name.
    kind = type(value)
    if value is None:
        return "null"
    if kind is int:
        return str(value)
    if kind is str:
        return _quoted(value)
    return _dumps(value)


def _object(data: Mapping[str, Any]) -> str:
    if all(type(name) is str for name in data):
        return "{" + ",".join([f"{_quoted(name)}:{_json(value)}" for name, value in data.items()]) + "}"
    return _dumps(dict(data))


def line(op: Op) -> bytes:
    """The op as a whole line of a journal, CRC and newline included."""
    body = encode(op)
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


class Journal:
    """The file a run's ops are appended to. One writer; `append` and `close` may be called from any thread.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "history.jsonl"
    >>> with Journal(path) as journal:
    ...     journal.append(Op(0, 0, 0, "invoke", "read", "r1"))
    >>> read_journal(path)[0][0].f
    'read'

    An error of the disk is raised, as one line, by the `append` or `close` that follows it, and by each after
    that: a history with a hole must not grow. The file must not exist: two runs never share a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._buffer: list[bytes] = []
        self._lock = threading.Lock()
        self._failed: StoreError | None = None
        self._closing = threading.Event()
        self._closed = False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            sync_folder(path.parent)
        except OSError as problem:
            raise cannot_write(path, "the journal", problem) from None
        self._thread = threading.Thread(target=self._keep_writing, name="journal", daemon=True)
        self._thread.start()

    def append(self, op: Op) -> None:
        """Adds an op. Raises StoreError if the disk failed, ValueError if the op does not consist of JSON values."""
        text = line(op)
        with self._lock:
            if self._failed is not None:
                raise self._failed
            if self._closed:
                raise StoreError(f"{self.path}: op {op.index} arrived after the journal was closed")
            self._buffer.append(text)

    def close(self) -> None:
        """Puts everything appended on the disk, or raises StoreError. A second call does nothing more."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._closing.set()
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _keep_writing(self) -> None:
        """Runs the thread. Only `close` waits for it: a slow disk delays no operation."""
        synced = time.monotonic()
        unsynced = last = False
        try:
            while not last:
                last = self._closing.wait(FLUSH_S)
                unsynced |= self._flush()
                now = time.monotonic()
                # One more turn would be too late for the oldest unsynced op.
                if unsynced and (last or now - synced >= SYNC_S - FLUSH_S):
                    os.fsync(self._fd)
                    synced, unsynced = time.monotonic(), False
        except OSError as problem:
            with self._lock:
                self._failed = cannot_write(self.path, "the journal", problem)
                self._buffer.clear()
        finally:
            os.close(self._fd)

    def _flush(self) -> bool:
        """Passes the buffer to the kernel. Returns True if it was not empty."""
        with self._lock:
            taken, self._buffer = self._buffer, []
        rest = memoryview(b"".join(taken))
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        return bool(taken)


def read_journal(path: Path) -> tuple[list[Op], str | None]:
    """The ops of a journal, and a note if its end is torn: `"the last 37 bytes were torn and are left out"`.

    Everything behind the last good line is the torn tail (also zeros after a power failure). A broken line that good
    ones follow was not torn but changed: HistoryError with its number.
    """
    try:
        with opened(path) as file, making_many():
            return scan(path, lines(file), need_crc=True)
    except OSError as problem:
        raise HistoryError(path, None, f"the journal cannot be read: {problem.strerror}") from None


def scan(
    path: Path, found: Iterable[bytes], need_crc: bool, adapt: Callable[[dict[str, Any]], None] | None = None
) -> tuple[list[Op], str | None]:
    """`read_journal` on lines. Without `need_crc`, a line without a CRC is accepted (after `adapt` has converted it to
    an event of the harness, in place), and only a last line without its newline counts as torn. A journal may grow
    while it is read: data that is added after the first line without a newline was found is ignored.
    """
    ops: list[Op] = []
    broken: tuple[int, str] | None = None
    torn = number = 0
    rest = _as_found(path, found)
    while chunk := list(islice(rest, _AT_ONCE)):
        whole = _parse_all(chunk) if broken is None else None
        if whole is not None:
            ops += whole
            number += len(chunk)
            continue
        for text in chunk:
            number += 1
            if broken is None and text.isspace():
                continue
            try:
                op = parse(text, need_crc, len(ops), adapt)
            except ValueError as problem:
                broken = broken or (number, str(problem))
                torn += len(text)
                if not need_crc and (text.endswith(b"\n") or not ops or not isinstance(problem, _NotJson)):
                    raise HistoryError(path, *broken) from None
                continue
            if broken is not None:
                raise HistoryError(path, *broken)
            ops.append(op)
        if number - len(ops) > _IDLE:
            raise HistoryError(path, number, f"more than {_IDLE:,} lines without an operation")
    return ops, f"the last {in_bytes(torn)} were torn and are left out" if torn else None


def _as_found(path: Path, found: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines up to the first end of the file. Another read after the end would return data added since: the
    second half of a line that was being written, which would look like a changed line.
    """
    for number, text in enumerate(found, 1):
        if not text.endswith(b"\n"):
            if len(text) >= LINE:
                raise HistoryError(path, number, f"a line of more than {in_bytes(LINE)}; an operation is shorter")
            yield text
            return
        yield text


def _parse_all(lines: list[bytes]) -> list[Op] | None:
    """Lines that all match their CRC, parsed as one array (faster than one by one); None if one does not match."""
    for text in lines:
        if text[-_TAIL - 1 : -11] != _CRC_FIELD or text[-11:-3] != b"%08x" % zlib.crc32(text[: -_TAIL - 1]):
            return None
    try:
        return [_op(data) for data in json_values([text.decode() for text in lines])]
    except (ValueError, RecursionError):
        return None


def _op(data: Any) -> Op:
    """An op of a parsed line. Every op repeats a few strings: one copy of each is kept, not one per op."""
    if not isinstance(data, dict):
        raise ValueError(f"not a JSON object but {type(data).__name__}")
    for name in ("type", "f", "key"):
        if type(data.get(name)) is str:
            data[name] = intern(data[name])
    return Op.from_json(data)


class _NotJson(ValueError):
    """A line that is no JSON, perhaps because it was cut off."""


def has_crc(text: bytes) -> bool:
    """True if a line ends like the lines of a journal."""
    return text.rstrip(b"\r\n")[-_TAIL:-10] == _CRC_FIELD


def parse(text: bytes, need_crc: bool, position: int, adapt: Callable[[dict[str, Any]], None] | None = None) -> Op:
    """The op of one line. `index` and `time` default to `position` in a line without CRC. Raises ValueError."""
    bare = text.rstrip(b"\r\n")
    sealed = bare[-_TAIL:-10] == _CRC_FIELD
    if sealed:
        reported, is_ = bare[-10:-2], b"%08x" % zlib.crc32(bare[:-_TAIL])
        if reported != is_:
            raise ValueError(
                f"the line does not match its CRC ({reported.decode(errors='replace')}, not {is_.decode()})"
            )
    elif need_crc:
        raise ValueError("the line has no CRC")
    try:
        data = json_of(bare)
    except TwiceNamed:
        raise
    except ValueError as problem:
        raise _NotJson(f"not a JSON object: {problem}") from None
    except RecursionError:
        raise ValueError("its value is nested too deeply") from None
    if not sealed and isinstance(data, dict):
        if adapt is not None:
            adapt(data)
        data.setdefault("index", position)
        data.setdefault("time", data["index"])
    return _op(data)
