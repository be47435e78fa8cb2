# SPDX-License-Identifier: Apache-2.0
"""The end of a command: converts every error to one line and an exit code.

0 valid, 1 invalid, 2 unknown, 3 failure of the harness, 64 usage (design.md, section 4). An unexpected error is a
failure of the harness, never a verdict. Its traceback goes to a file, and the line names the file.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from harness import terminal
from harness.signals import Stopped
from infra.options import NotAvailable, OptionError
from results.errors import ExpectedError, HistoryError, UsageError
from results.verdict import Verdict

USAGE: Final = 64
UNAVAILABLE: Final = 69
"""The exit code of `sysexits.h` (EX_UNAVAILABLE)."""
FAILURE: Final = Verdict.HARNESS_FAILURE.exit_code
SIGNALLED: Final = 128
"""Exit codes from here on are this number plus the signal that ended the command."""


_ECHOED: Final = 200
_LONG: Final = re.compile(rf"\S{{{_ECHOED + 1},}}")


class Ended(SystemExit):
    """The end of a command with the exit code that the command itself decided. See `end`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.decided = code


def end(code: int) -> NoReturn:
    """Ends a command with an exit code. A command uses this, never `sys.exit`: an end that a plug-in or a library
    decides proves nothing about servers, so it is a failure of the harness.
    """
    raise Ended(code)


class _PipeBroken(Exception):
    """Hides a BrokenPipeError from click, which ends with exit code 1 for any such error; 1 is `invalid`."""


class Commands(click.Group):
    """A group of commands whose BrokenPipeErrors arrive at `guarded`."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError as problem:
            raise _PipeBroken from problem

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as problem:
            raise _PipeBroken from problem


def guarded(command: Callable[[], object]) -> int:
    """Runs a command, and turns errors into one line and an exit code."""
    code, line = _run(command)
    terminal.flush()
    problem = terminal.lost()
    if problem is not None and code not in (USAGE, UNAVAILABLE) and code < SIGNALLED:
        # (Whatever else went wrong may well come of it.)
        code, line = FAILURE, f"the output could not be written: {problem.strerror or problem}"
    if line is not None:
        # An argument may have any length, and a line must be readable.
        terminal.say(f"harness: {_LONG.sub(lambda word: f'{word[0][:_ECHOED]}…', line)}", err=True)
    return code


def _run(command: Callable[[], object]) -> tuple[int, str | None]:
    """Runs the command. Returns the exit code, and the message or None."""
    try:
        command()
        return 0, None
    except Ended as ended:
        return ended.decided, None
    except SystemExit as left:
        why = "" if left.code is None or isinstance(left.code, int) else f": {left.code}"
        return FAILURE, f"{_where(left)} ended the process (sys.exit){why}; the command came to no verdict"
    except click.UsageError as problem:
        hint = f"  ({problem.ctx.command_path} --help)" if problem.ctx else ""
        return USAGE, problem.format_message() + hint
    except NotAvailable as problem:
        return UNAVAILABLE, str(problem)
    except (OptionError, UsageError) as problem:
        return USAGE, str(problem)
    except HistoryError as problem:
        return Verdict.UNKNOWN.exit_code, str(problem)
    except ExpectedError as problem:
        return FAILURE, str(problem)
    except (KeyboardInterrupt, click.Abort) as ended:
        stopped = ended.__cause__ if isinstance(ended, click.Abort) else ended
        if not isinstance(stopped, Stopped):
            stopped = Stopped(signal.SIGINT)
        return stopped.exit_code, stopped.describe()
    except _PipeBroken as broken:
        # A reader may close help before its end; a server or a child that went away is an error.
        return (0, None) if terminal.unread() else (FAILURE, report_unexpected(broken.__cause__ or broken))
    except BaseException as problem:  # also asyncio's CancelledError: Python's own exit code for it is 1, `invalid`
        return FAILURE, report_unexpected(problem)


def _where(problem: BaseException) -> str:
    """The file and line that raised an error."""
    import traceback

    frames = traceback.extract_tb(problem.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "something"


def report_unexpected(problem: BaseException) -> str:
    """Describes an unexpected error in one line, which names the file with its traceback."""
    text = " ".join(str(problem).split())
    what = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    message = what if len(what) <= 300 else f"{what[:300]}…"
    return f"unexpected error, please report it: {message}  ({kept(problem)})"


def kept(problem: BaseException) -> str:
    """Stores the traceback, and returns a text with its path. Only its owner may read it: a traceback may repeat
    parts of the command line.
    """
    # Imported here: every command loads this module, and hardly any fails so.
    import tempfile
    import traceback

    try:
        fd, path = tempfile.mkstemp(prefix="harness-traceback-", suffix=".txt")
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(problem))
    except OSError as wrong:
        return f"its traceback could not be written: {wrong.strerror}"
    return f"traceback: {path}"
