# SPDX-License-Identifier: Apache-2.0
"""Stop signals: what each part of a run does about them, seen from a process of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

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


def test_the_live_line_fits_the_terminal() -> None:
    """A line that wraps leaves its first part standing: seven dead half lines in four seconds. It is wiped as well."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with os.fdopen(follower, "w") as out:
        faults = ["partition-leader-minority of n1, n2 and n3 against n4 and n5"]
        live = ProgressLine(lambda: 7 * 10**9, lambda: faults, lambda: (["n2"], 3), out=out)
        for _ in range(2):
            live.draw()
            drawn = os.read(leader, 4096).decode()
            assert drawn.startswith("\r 00:07  |")
            assert drawn.endswith("…")
            assert len(drawn.lstrip("\r")) < 60
        live.wipe()
        assert os.read(leader, 4096).decode().strip("\r ") == ""
    os.close(leader)
