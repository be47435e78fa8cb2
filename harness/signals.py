# SPDX-License-Identifier: Apache-2.0
"""Signals that end a run: Ctrl-C (SIGINT), a cancelled job (SIGTERM), a closed terminal (SIGHUP).

All three have the same effect: stop the load, heal, fetch the logs, check the history so far, remove the cluster. The
effect of a signal depends on the part of the run:

    before the load, and in every other command   `Stopped` is raised (`install`)
    while clients talk to servers                 a callback of the run is called in its event loop (`forwarded`)
    while files are read and a run is checked     the first one is announced, the second raises (`deferred`)
    while the cluster is removed                  nothing (`ignored`)
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal requested the end of this program. A KeyboardInterrupt, for code that lets a Ctrl-C pass."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """The exit code of a shell: 128 plus the signal's number."""
        return 128 + self.signum

    def describe(self) -> str:
        """One line for the user."""
        return "interrupted" if self.signum == signal.SIGINT else f"ended by {signal.Signals(self.signum).name}"


def install() -> None:
    """Makes every stop signal raise `Stopped`, except those that this process was started to ignore (nohup).

    This also replaces Python's own handler of SIGINT: asyncio overrides that one by a handler that only cancels the
    running task. A task that is about to end never notices, and the Ctrl-C is lost.
    """
    for signum in STOP_SIGNALS:
        if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, _raise)


def handled() -> list[signal.Signals]:
    """The stop signals that this process was not started to ignore."""
    return [signum for signum in STOP_SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """No stop signal has any effect."""
    with _handlers(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def forwarded(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Iterator[None]:
    """Every stop signal calls `callback` in the loop. (`loop.add_signal_handler` would leave the signals with the
    system's own effect when the loop is closed, and a signal at that moment would end this process at once.)
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)

    with _handlers(handle):
        yield


@contextlib.contextmanager
def deferred(announce: Callable[[], None], *, announced: bool = False) -> Iterator[None]:
    """The first stop signal calls `announce`, and the work continues; the next one raises `Stopped`.

    announced  the first one came before.
    """
    seen = announced

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            raise Stopped(signum)
        seen = True
        announce()

    with _handlers(handle):
        yield


@contextlib.contextmanager
def _handlers(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    before = {signum: signal.signal(signum, handler) for signum in handled()}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


def _raise(signum: int, frame: FrameType | None) -> None:
    raise Stopped(signum)
