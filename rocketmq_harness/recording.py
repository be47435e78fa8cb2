# SPDX-License-Identifier: Apache-2.0
"""Records the operations of any Python program as a history (docs/recording.md). Loads only Python's own modules.

    with record("history.jsonl") as recorder:
        with recorder.op("write", key="x", value=3) as op:
            client.write("x", 3)
            op.ok()

The file has one JSON object per event (docs/histories.md), in the order in which the events happened: one lock orders
the times and the lines. An event is copied into a shared mapping of the file (mmap(2)). The kernel owns these pages, so
a process that is killed loses no event, and no system call lets another thread in between. The file is reserved in
steps of `_STEP` bytes; a recorder that was not closed leaves zeros at its end, which readers cut off.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary, WeakSet

_STEP: Final = 256 << 10
"""Bytes that the file grows by."""

_REASON: Final = 500
"""The largest number of characters of an exception's text."""

_dumps: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class _Same:
    """The default of `ok`: the result is the argument."""

    def __repr__(self) -> str:
        return "the value of the operation"


_SAME: Final = _Same()
_SHOWING: Final = tuple(f',"f":"{f}",' for f in ("read", "get", "r", "dequeue", "pop", "drain", "poll"))
"""The texts of operations whose result is not their argument."""


class _Process:
    """A logical client: at most one open operation. `number` changes after an outcome that is not known."""

    __slots__ = ("busy", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.busy = False


class _Thread(threading.local):
    """The processes of the current thread."""

    def __init__(self) -> None:
        self.processes: list[_Process] = []


def record(path: str | os.PathLike[str]) -> Recorder:
    """A recorder that writes to a new file; a regular file at this path is replaced.

    Raises OSError if the file cannot be made.
    """
    return Recorder(path)


class Recorder:
    """A history that is being recorded. Its methods may be called from any thread and any asyncio task.

    Each thread and each task is a process of the history. If it begins an operation while another one of it is open,
    the inner one belongs to a process of its own. `process=` names a process explicitly.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._lock = threading.Lock()
        self._start = time.monotonic_ns()
        self._numbers: Iterator[int] = count()
        self._thread = _Thread()
        self._tasks: WeakKeyDictionary[Any, list[_Process]] = WeakKeyDictionary()
        self._named: dict[int | str, list[_Process]] = {}
        self._end, self._size = 0, _STEP
        self._closed = ""
        self._file, self._map = _mapped(self.path)
        _RECORDERS.add(self)

    def op(
        self, f: str, *, key: Any = None, value: Any = None, process: int | str | None = None, **extra: Any
    ) -> Operation:
        """An operation, for a `with` block: its invocation is recorded where the block begins.

        f        the name: `write`, `read`, `send`, ...
        key      the object that it touches, if there are several.
        value    its argument.
        process  the logical client; None: the current thread or asyncio task.
        extra    anything else (docs/histories.md): `start=True`.

        Raises ValueError if one of them is no JSON value.
        """
        try:
            text = f',"f":{_quoted(f)},"key":{_json(key)},"value":'
            argument = _json(value)
            more = f',"extra":{_dumps(extra)}' if extra else ""
        except (TypeError, ValueError) as problem:
            raise ValueError(f"the operation {f!r} cannot be recorded: {problem}") from None
        return Operation(self, process, text, argument, more)

    @contextmanager
    def fault(self, name: str, value: Any = None) -> Iterator[None]:
        """Records a fault for the time of a block: begin and end are events of the process `nemesis`."""
        self._nemesis(f"start-{name}", value)
        try:
            yield
        finally:
            self._nemesis(f"stop-{name}", value)

    def close(self) -> None:
        """Ends the file behind its last event. Open operations keep no completion: their outcome is not known. A second
        call does nothing more.
        """
        with self._lock:
            if not self._closed:
                self._closed = "was closed"
                self._map.close()
                os.ftruncate(self._file, self._end)
                os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _process(self, name: int | str | None) -> _Process:
        """A process of the caller that has no open operation."""
        if name is not None:
            processes = self._named.setdefault(name, [])
        else:
            task = _task()
            if task is None:
                processes = self._thread.processes
            else:
                found = self._tasks.get(task)
                processes = self._tasks.setdefault(task, []) if found is None else found
        for process in processes:
            if not process.busy:
                return process
        process = _Process(next(self._numbers))
        processes.append(process)
        return process

    def _nemesis(self, f: str, value: Any) -> None:
        event = f'{{"process":"nemesis","type":"%s","f":{_quoted(f)},"value":{_json(value)}'
        with self._lock:
            self._insist_on_open()
            for type_ in ("invoke", "info"):
                self._write(event.replace("%s", type_, 1))

    def _invoke(self, event: str) -> None:
        """Adds an invocation, without its time and its last brace. Raises ValueError after `close`."""
        with self._lock:
            self._insist_on_open()
            self._write(event)

    def _complete(self, event: str) -> None:
        """Adds a completion. After `close` it is too late: the operation keeps its unknown outcome."""
        with self._lock:
            if not self._closed:
                self._write(event)

    def _insist_on_open(self) -> None:
        if self._closed:
            raise ValueError(f"the recorder of {self.path} {self._closed}; nothing more can be recorded")

    def _write(self, event: str) -> None:
        data = f'{event},"time":{time.monotonic_ns() - self._start}}}\n'.encode("ascii")
        end = self._end + len(data)
        if end > self._size:
            self._grow(end)
        self._map[self._end : end] = data
        self._end = end

    def _grow(self, least: int) -> None:
        size = -(-least // _STEP) * _STEP
        _reserve(self._file, self._size, size - self._size)
        self._map.resize(size)
        self._size = size

    def _leave(self) -> None:
        """Gives the file up in a forked child: two processes would write to the same place."""
        self._lock = threading.Lock()  # another thread of the parent may have had it
        if not self._closed:
            self._closed = "belongs to the parent process"
            self._map.close()
            os.close(self._file)


class Operation:
    """One operation, open during its `with` block. One of `ok`, `fail` and `info` gives its outcome.

    Without any, the outcome is not known (`info`): the block ended early, or by an exception, which is not caught.
    After an `info` its process gets a new number, as a history requires.
    """

    __slots__ = ("_argument", "_more", "_name", "_open", "_process", "_recorder", "_text")

    def __init__(self, recorder: Recorder, name: int | str | None, text: str, argument: str, more: str) -> None:
        self._recorder, self._name = recorder, name
        self._text, self._argument, self._more = text, argument, more
        self._process: _Process | None = None
        self._open = False

    def ok(self, value: Any = _SAME, **extra: Any) -> None:
        """It certainly happened. value: its result; by default its argument. extra: as in `Recorder.op`.

        Raises ValueError if it has neither, and shows something: `ok(None)` says that nothing was there.
        """
        if value is _SAME and self._argument == "null" and self._text.startswith(_SHOWING):
            raise ValueError("`ok`: it needs a result, such as ok(3); ok(None) says that nothing was there")
        self._end("ok", self._argument if value is _SAME else self._encoded(value), None, extra)

    def fail(self, error: object = None, **extra: Any) -> None:
        """It certainly did not happen, and never will. This is a guarantee: a time-out does not give it."""
        self._end("fail", self._argument, error, extra)

    def info(self, error: object = None, **extra: Any) -> None:
        """The outcome is not known: it may have happened, and may still happen."""
        self._end("info", self._argument, error, extra)

    @property
    def open(self) -> bool:
        """True until it has an outcome."""
        return self._open

    def __enter__(self) -> Self:
        if self._process is not None:
            raise ValueError("an operation was begun twice; call `op` for each")
        process = self._process = self._recorder._process(self._name)
        # Before the event: a signal may raise between any two steps, and the process must not begin another one then.
        process.busy = self._open = True
        self._recorder._invoke(f'{{"process":{process.number},"type":"invoke"{self._text}{self._argument}{self._more}')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._open:
            self.info("no outcome was recorded" if kind is None else _described(kind, problem))

    def _encoded(self, value: Any) -> str:
        try:
            return _json(value)
        except (TypeError, ValueError) as problem:
            raise ValueError(f"a result cannot be recorded: {problem}") from None

    def _end(self, type_: str, value: str, error: object, extra: Mapping[str, Any]) -> None:
        process = self._process
        if process is None or not self._open:
            raise ValueError(f"`{type_}`: the operation {'has an outcome already' if process else 'was not begun'}")
        event = f'{{"process":{process.number},"type":"{type_}"{self._text}{value}'
        if error is not None:
            event += f',"error":{_quoted(" ".join(str(error).split()))}'
        if extra:
            event += f',"extra":{self._encoded(extra)}'
        self._open = False
        self._recorder._complete(event)
        if type_ == "info":
            process.number = next(self._recorder._numbers)
        process.busy = False


def _task() -> Any:
    """The current asyncio task, or None. No task exists where nothing has imported asyncio."""
    asyncio: Any = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    return None if running is None or running() is None else asyncio.current_task()


def _json(value: Any) -> str:
    # Exact types only: a bool is an int, and an enum of ints prints its name.
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is str:
        return _quoted(value)
    return "null" if value is None else _dumps(value)


def _described(kind: type[BaseException], problem: BaseException | None) -> str:
    """An exception in one line."""
    text = " ".join(str(problem).split())[:_REASON]
    return f"{kind.__name__}: {text}" if text else kind.__name__


def _mapped(path: Path) -> tuple[int, mmap.mmap]:
    """A new file of `_STEP` bytes, and its mapping. Another process may have a mapping of the old file, so this one is
    removed and not cut.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "is there and is no regular file", str(path))
        os.unlink(path)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        _reserve(file, 0, _STEP)
        return file, mmap.mmap(file, _STEP)
    except BaseException:
        os.close(file)
        raise


def _reserve(file: int, start: int, count: int) -> None:
    """Extends the file. Raises OSError if the disk is full: with a hole in the file, the kernel would end the process
    where it writes.
    """
    reserve: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if reserve is None:  # no Linux
        os.ftruncate(file, start + count)
    else:
        reserve(file, start, count)


_RECORDERS: Final[WeakSet[Recorder]] = WeakSet()
"""The recorders of this process."""


def _left() -> None:
    for recorder in list(_RECORDERS):
        recorder._leave()


os.register_at_fork(after_in_child=_left)
