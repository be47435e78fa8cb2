# SPDX-License-Identifier: Apache-2.0
"""Stop signals: what each part of a run does about them, seen from a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from harness import terminal
from harness.run.live import ProgressLine
from harness.signals import STOP_SIGNALS

ROOT = Path(__file__).parents[2]
NAMES = [signum.name for signum in STOP_SIGNALS]


def ended(program: str, *signals: str, ignore: str | None = None) -> tuple[int, str, str]:
    """Run a program that prints `ready` and reads a line between signals; its exit code, stdout and stderr."""
    # What a shell starts in the background is deaf to SIGINT from birth, and so would be all that it starts in turn.
    heard = ",".join(name.removeprefix("SIG") for name in NAMES if name != ignore)
    deaf = [f"--ignore-signal={ignore.removeprefix('SIG')}"] if ignore else []
    process = subprocess.Popen(
        [
            *("env", f"--default-signal={heard}", *deaf, sys.executable, "-c"),
            "import sys\nfrom harness import signals, boundary\n" + program,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for name in signals:
        process.send_signal(signal.Signals[name])
        process.stdout.readline() if "announce" in program else None
    out, err = process.communicate("\n", timeout=30)
    return process.returncode, out, err


IN_A_COMMAND = """
signals.install()
def work():
    print("ready", flush=True)
    sys.stdin.readline()
    print("went on", flush=True)
sys.exit(boundary.guarded(work))
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_command_ends_with_one_line(name: str) -> None:
    code, out, err = ended(IN_A_COMMAND, name)
    assert code == 128 + signal.Signals[name]
    assert out == ""
    assert err == f"harness: {'interrupted' if name == 'SIGINT' else f'ended by {name}'}\n"


def test_nohup_is_respected() -> None:
    assert ended(IN_A_COMMAND, "SIGHUP", ignore="SIGHUP") == (0, "went on\n", "")


IN_THE_LOOP = """
import asyncio
signals.install()
async def main():
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    with signals.forwarded(loop, stop.set):
        print("ready", flush=True)
        await stop.wait()
        print("healed")
def work():
    asyncio.run(main())
    before = [signals.signal.getsignal(s) for s in signals.STOP_SIGNALS]
    assert all(handler is signals._raise for handler in before), before
sys.exit(boundary.guarded(work))
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_is_woken_and_the_signals_are_as_before(name: str) -> None:
    assert ended(IN_THE_LOOP, name) == (0, "healed\n", "")


DEFERRED = """
signals.install()
def work():
    with signals.deferred(lambda: print("announced", flush=True)):
        print("ready", flush=True)
        sys.stdin.readline()
        print("judged", flush=True)
sys.exit(boundary.guarded(work))
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_first_one_does_not_cost_the_verdict(name: str) -> None:
    assert ended(DEFERRED, name) == (0, "judged\n", "")


def test_the_second_one_ends_it() -> None:
    code, out, err = ended(DEFERRED, "SIGTERM", "SIGINT")
    assert (code, out, err) == (130, "", "harness: interrupted\n")


def test_nothing_interrupts_the_teardown() -> None:
    program = IN_A_COMMAND.replace("def work():", "@signals.ignored()\ndef work():")
    assert ended(program, *NAMES) == (0, "went on\n", "")


class Closed:
    """A terminal that was closed: every write fails."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")

    def fileno(self) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_is_no_reason_to_stop() -> None:
    live = ProgressLine(lambda: 0, list, lambda: ((), None), out=Closed())  # type: ignore[arg-type]
    live.draw()
    live.wipe()
    assert terminal.lost() is None


@contextlib.contextmanager
def terminal_of(columns: int) -> Iterator[tuple[int, IO[str]]]:
    """A terminal of this width: the end to read from, and the stream that programs write to."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        with os.fdopen(follower, "w") as out:
            yield leader, out
    finally:
        os.close(leader)


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_live_line_fits_the_terminal(columns: int) -> None:
    """A line that wraps leaves its first part standing: seven dead half lines in four seconds. It is wiped as well.
    From 80 columns on the leader is visible, however many nodes the fault strikes.
    """
    faults = ["partition-leader-minority of n1, n2 and n3 against n4 and n5, and of all of them against the clients"]
    with terminal_of(columns) as (leader, out):
        live = ProgressLine(lambda: 7 * 10**9, lambda: faults, lambda: (["n2"], 3), out=out)
        live.counts.update({"ok": 14902, "fail": 163, "info": 118})
        for _ in range(2):
            live.draw()
            drawn = os.read(leader, 4096).decode().strip("\r ")
            assert drawn.startswith("00:07 ")
            assert ("…" in drawn) == (columns < 200)
            assert len(drawn) < columns - 1
            assert drawn.endswith("leader n2, term 3") == (columns >= 80)
        live.wipe()
        assert os.read(leader, 4096).decode().strip("\r ") == ""


def test_a_verdict_has_a_colour_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pipe, no file and nobody who set NO_COLOR gets escape sequences; names that look like verdicts stay plain."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def printed(line: str) -> str:
        with terminal_of(80) as (leader, out):
            monkeypatch.setattr(sys, "stdout", out)
            terminal.say(line)
            return os.read(leader, 4096).decode().rstrip()

    assert printed("INVALID   log, none") == "\x1b[1;31mINVALID\x1b[0m   log, none"
    assert printed("  log    valid     2 ops") == "  log    \x1b[32mvalid\x1b[0m     2 ops"
    assert printed("NOT WORSE   new: nothing") == "\x1b[1;32mNOT WORSE\x1b[0m   new: nothing"
    assert printed("WORSE   new: lost") == "\x1b[1;31mWORSE\x1b[0m   new: lost"
    assert printed("    as before   worse times") == "    as before   worse times"
    assert printed("a.edn   unknown  torn") == "a.edn   \x1b[33munknown\x1b[0m  torn"
    assert printed("  nodes   harness-failure n1") == "  nodes   \x1b[35mharness-failure\x1b[0m n1"
    assert printed("is it valid or invalid?") == "is it valid or invalid?"
    assert printed("\x1b[32m  valid") == "\\x1b[32m  \x1b[32mvalid\x1b[0m"
    for name, value in (("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
        assert printed("INVALID   log") == "INVALID   log"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    terminal.say("INVALID   log")
    assert stream.getvalue() == "INVALID   log\n"
