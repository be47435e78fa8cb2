# SPDX-License-Identifier: Apache-2.0
"""The janitor: a process that cleans up after the end of the control program, whatever its cause.

It is started before any object of a run is created. It has its own session and ignores INT, TERM and HUP. It notices
the end of the control program in two ways: as the end of its stdin (a pipe whose other end only the control program
holds), and by a pidfd (which still works if a forked child of the control program also holds the pipe). Then it removes
all objects of the run, by its id. `kill -9` of the control program leaves nothing behind. `kill -9` of both leaves
objects that `harness clean` finds.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from infra.machines.api import BACKENDS, InfraError
from infra.machines.ownership import Owner, current, is_alive
from results.cache import cache_dir
from results.errors import ExpectedError

_BYE: Final = b"bye\n"
_ROUNDS: Final = 20
_PAUSE_S: Final = 0.5


class Sweeper(Protocol):
    """The part of a backend that the janitor needs."""

    def sweep(self, run_id: str) -> int:
        """Removes everything of a run without a question, and returns the number of things found. Raises InfraError."""


@runtime_checkable
class LateSweeper(Protocol):
    """A backend whose `sweep` needs modules that are not imported with it."""

    def load(self) -> None:
        """Imports them."""


class Janitor:
    """The control program's end: start it first, dismiss it last."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(cls, backend_name: str, run_id: str) -> Janitor:
        """Starts a janitor for this process and this run. It logs its work in `janitor.log` of the cache folder."""
        make_backend(backend_name)
        home = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        with (cache_dir() / "janitor.log").open("ab") as log:
            return cls(
                subprocess.Popen(
                    [sys.executable, "-m", "infra.machines.janitor", backend_name, run_id, str(current())],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """Ends the janitor after an orderly removal, and waits for its end. Idempotent."""
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.closed:
            try:
                stdin.write(_BYE)
                stdin.close()
            except BrokenPipeError:
                pass  # it is gone already
        self._process.wait()


def await_dismissal(owner: Owner, stdin: int) -> bool:
    """Waits for the end of either: of the work (True: a final message came), or of the owner (False)."""
    poller = select.poll()
    poller.register(stdin, select.POLLIN)
    pidfd = _open_pidfd(owner)
    if pidfd is not None:
        poller.register(pidfd, select.POLLIN)
    heard = b""
    try:
        while True:
            dead = not is_alive(owner)
            # A dead owner may have sent its final message first: then it is in the pipe already, so do not wait.
            ready = [fd for fd, _ in poller.poll(0 if dead else None)]
            if stdin in ready:
                word = os.read(stdin, 64)
                heard += word
                if heard.endswith(_BYE):
                    return True
                if not word:
                    return False
            elif dead:
                return False
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _open_pidfd(owner: Owner) -> int | None:
    """A descriptor that is readable once the owner has ended. None if it has already, or before Linux 5.3: then the
    pipe shows it.
    """
    try:
        return os.pidfd_open(owner.pid)
    except OSError:
        return None


def sweep_until_clean(backend: Sweeper, run_id: str, pause_s: float = _PAUSE_S, rounds: int = _ROUNDS) -> int:
    """Sweeps until nothing was found twice in a row, and returns the number of things found in all.

    Twice, because the control program's last request may create something after the first sweep.
    Raises the last InfraError if the rounds are used up.
    """
    found, quiet, trouble = 0, 0, None
    for _ in range(rounds):
        try:
            here, trouble = backend.sweep(run_id), None
        except ExpectedError as e:
            here, trouble = 1, e
        found += here
        quiet = 0 if here else quiet + 1
        if quiet == 2:
            return found
        time.sleep(pause_s)
    raise trouble or InfraError(f"run {run_id}: something is created as fast as it is removed; see `harness clean`")


def make_backend(name: str) -> Sweeper:
    """The backend with this name. Raises ValueError if none has it, or the backend leaves nothing on this machine."""
    found = [point for point in entry_points(group=BACKENDS) if point.name == name]
    made: Any = found[0].load()() if found else None
    if not hasattr(made, "sweep"):
        raise ValueError(f"there is no janitor for {name!r}")
    backend: Sweeper = made
    return backend


def main(argv: list[str]) -> int:
    """`python -m infra.machines.janitor BACKEND RUN-ID OWNER`, stdin a pipe from the owner."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    name, run_id, owner = argv
    backend = make_backend(name)
    if isinstance(backend, LateSweeper):
        backend.load()  # before it is needed: an import is the last thing that should fail then
    if await_dismissal(Owner.parse(owner), sys.stdin.fileno()):
        return 0
    begin = time.monotonic()
    try:
        found = sweep_until_clean(backend, run_id)
    except ExpectedError as e:
        print(f"janitor: run {run_id} ({name}): {e}", flush=True)
        return 1
    took = time.monotonic() - begin
    print(f"janitor: run {run_id} ({name}): its control program died; {found} removed in {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
