# SPDX-License-Identifier: Apache-2.0
"""The command line on bad input: `python -m tests.fuzz.bad_input --count 1000 --seed 1`.

Every input must end with the exit code that is right for what it is, one line on stderr at most, no control character
on either stream, no traceback and no line that calls it a bug, below 1 GiB and 20 s of the processor. Most run in this
process; a share, and what may take memory, in one of its own. What fails is printed with the command that makes
it again (`--only N --keep FOLDER` leaves its files there).
"""

from __future__ import annotations

import argparse
import io
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes

from werkzeug.test import create_environ, run_wsgi_app

sys.path[:0] = [str(Path(__file__).parents[1])]

from fuzz.bad_cases import MAKERS, case  # noqa: E402 - the tests' own modules
from fuzz.bad_common import Case  # noqa: E402
from fuzz.bad_series import SERIES  # noqa: E402
from harness.cli.main import main as main_of_harness  # noqa: E402
from harness.findings import reproduce  # noqa: E402
from harness.nightly import night  # noqa: E402
from results.web import create_app  # noqa: E402

LIMIT_S: Final = 20.0
"""Of the processor: a busy machine is no fault of an input."""
GUARD_S: Final = 120.0
"""By the clock: what has not ended then never does."""
LIMIT_KB: Final = 1 << 20
_BARE_KB: Final = 100 << 10
"""Memory of a separate process before it reads anything."""
OWN_SHARE: Final = 0.03
"""Of the inputs that need no process of their own, those that get one all the same."""

_BUG: Final = re.compile(
    r"Traceback|unexpected error|please report|itself failed|object at 0x|No space left.*\n.*No space"
)


@dataclass
class End:
    """The result of an input. `out` and `err`: the printed text; `peak_kb`: None where it was not measured."""

    code: int | str
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    peak_kb: int | None = None


class TooLong(BaseException):
    """An input that does not end: no handler of errors may catch it."""


def wrong(one: Case, end: End) -> list[str]:
    """The faults of a result; empty if it is as it has to be."""
    found = []
    if end.code not in one.codes:
        found.append(f"exit code {end.code}, not {' or '.join(map(str, one.codes))}")
    if end.seconds > LIMIT_S:
        found.append(f"{end.seconds:.0f} s")
    if end.peak_kb is not None and end.peak_kb > LIMIT_KB:
        found.append(f"{end.peak_kb >> 10} MiB")
    for name, text in (("stdout", end.out), ("stderr", end.err)):
        if bad := sorted({c for c in text if not c.isprintable() and c not in "\n\u202f"}):
            found.append(f"{name} has {bad!r}")
        if bug := _BUG.search(text):
            found.append(f"{name} says {bug[0]!r}")
    lines = end.err.splitlines()
    if len(lines) > 1 or any(not line.startswith("harness: ") for line in lines):
        found.append(f"{len(lines)} lines on stderr: {end.err[:300]!r}")
    if end.code in (3, 64) and not lines and not one.urls and "harness-failure" not in end.out:
        found.append("not a line that says what is wrong")
    if any(line.startswith("harness:") for line in end.out.splitlines()):
        found.append("a line on stdout looks like an error of the harness")
    return found


def _refuse_runs(*args: object) -> NoReturn:
    """No bad input may come so far as to start servers."""
    raise AssertionError(f"a run was to be started: {args}")


def here(one: Case) -> End:
    """In this process."""
    reproduce.run_child = night.run_child = _refuse_runs
    out, err = io.StringIO(), io.StringIO()
    before = _memory_kb("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of this input (proc(5))
    began = time.process_time()
    with _surroundings(one.env), _alarm(), redirect_stdout(out), redirect_stderr(err):
        try:
            code: int | str = _asked(one) if one.urls else _commanded(one)
        except TooLong:
            code = "none: it did not end"
        except BaseException as problem:
            code = f"none: {type(problem).__name__}: {problem}"
    seconds = time.process_time() - began
    return End(code, out.getvalue(), err.getvalue(), seconds, _BARE_KB + _memory_kb("VmHWM") - before)


def _memory_kb(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")))


def _commanded(one: Case) -> int:
    try:
        main_of_harness(list(one.argv))
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    return 0


def _asked(one: Case) -> int:
    """Sends the requests to the application; 0 if it answered each, and none with an error of the harness."""
    app = create_app(Path(one.argv[-1]))
    for url in one.urls:
        path, _, query = url.partition(b"?")
        environ = create_environ("/", "http://127.0.0.1", query_string=query.decode("latin-1"))
        environ["PATH_INFO"] = unquote_to_bytes(path).decode("latin-1")
        body, status, headers = run_wsgi_app(app, environ, buffered=True)
        data, head = b"".join(body), "".join(f"{name}: {value}" for name, value in headers)
        if status.startswith("5") or b"secret" in data or not head.isprintable():
            print(f"{url!r}: {status}, {data[:100]!r}")
            return 1
    return 0


@contextmanager
def _surroundings(env: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(signum: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, GUARD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_MAIN: Final = """
import atexit, re, resource, sys
from pathlib import Path
# (The kernel's `ru_maxrss` begins with the memory of the process that started this one.)
peak = Path(sys.argv.pop(1))
atexit.register(lambda: peak.write_text(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # a bad case must not take the machine with it
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from harness.cli.main import main
main()
"""


def apart(one: Case, folder: Path) -> End:
    """In a process of its own, its peak measured."""
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), **one.env}
    err, peak = folder / ".err", folder / ".peak"
    with err.open("wb") as errors, _output(one, folder) as (out, written):
        argv = list(one.program) or [sys.executable, "-c", _MAIN, str(peak), *one.argv]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=env)
        os.close(out)
        status, used = _waited(process)
    code: int | str = os.waitstatus_to_exitcode(status) if status is not None else "none: it did not end"
    text = written.read_bytes().decode("utf-8", "replace") if written is not None else ""
    said = err.read_bytes().decode("utf-8", "replace")
    # Of a program that is not the harness, only what exceeds the memory of this process is its own.
    inherited = used.ru_maxrss <= _memory_kb("VmHWM")
    most = int(peak.read_text()) if peak.exists() else None if inherited else used.ru_maxrss
    return End(code, text, said, used.ru_utime + used.ru_stime, most)


@contextmanager
def _output(one: Case, folder: Path) -> Iterator[tuple[int, Path | None]]:
    if one.output == "closed":
        reader, writer = os.pipe()
        os.close(reader)
        yield writer, None
    elif one.output is not None:
        yield os.open(one.output, os.O_WRONLY), None
    else:
        path = folder / ".out"
        yield os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path


def _waited(process: subprocess.Popen[bytes]) -> tuple[int | None, resource.struct_rusage]:
    """Wait status (None: killed after the limit) and what was used."""
    deadline = time.monotonic() + GUARD_S
    while time.monotonic() < deadline:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = status
            return status, used
        time.sleep(0.01)
    process.kill()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = -signal.SIGKILL
    return None, used


def tried(seed: int, number: int, keep: Path | None = None, series: bool = False) -> tuple[Case, End]:
    """Make case `number` and run it."""
    folder = Path(tempfile.mkdtemp(prefix="bad-input-")) if keep is None else keep
    folder.mkdir(parents=True, exist_ok=True)
    try:
        one = case(seed, number, folder, SERIES if series else MAKERS)
        sampled = not one.urls and not one.here and number % round(1 / OWN_SHARE) == 0
        own = one.own or one.output is not None or (sampled and _plain(one))
        return one, apart(one, folder) if own else here(one)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _plain(one: Case) -> bool:
    """True if the words can stand on a command line at all."""
    return all("\0" not in word for word in one.argv)


def failures(
    seed: int, numbers: Sequence[int], keep: Path | None = None, series: bool = False
) -> Iterator[tuple[int, Case, End, list[str]]]:
    """Every input of these, with what is wrong (nothing, mostly)."""
    for number in numbers:
        one, end = tried(seed, number, keep, series)
        yield number, one, end, wrong(one, end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--series", action="store_true", help="only nights, series, findings, mends, strikes, packages, ops"
    )
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--keep", type=Path, help="make its files here, and leave them")
    asked = parser.parse_args()
    numbers = range(asked.count) if asked.only is None else [asked.only]
    codes: Counter[object] = Counter()
    worst_s, worst_kb, bad = 0.0, 0, 0
    for number, one, end, told in failures(asked.seed, numbers, asked.keep, asked.series):
        codes[end.code] += 1
        worst_s, worst_kb = max(worst_s, end.seconds), max(worst_kb, end.peak_kb or 0)
        if asked.only is not None:
            print(f"{shlex.join(map(repr, one.argv))}\n{end}")
        if told:
            bad += 1
            print(f"{number} ({one.name[:80]!r}): {'; '.join(told)}\n  {_shown(one)}")
            print(f"  out {end.out[-300:]!r}\n  err {end.err[-300:]!r}")
            which = " --series" * asked.series
            print(
                f"  python -m tests.fuzz.bad_input{which} --seed {asked.seed} --only {number} --keep FOLDER", flush=True
            )
    counts = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items(), key=lambda item: str(item[0])))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{len(numbers)} bad inputs, seed {asked.seed}: {bad} failed; exit codes {counts}")
    print(f"longest {worst_s:.1f} s, most memory {worst_kb >> 10} MiB (this process: {peak} MiB)")
    return 1 if bad else 0


def _shown(one: Case) -> str:
    return " ".join(ascii(word)[:100] for word in one.argv) + "".join(f" {k}={v[:60]!r}" for k, v in one.env.items())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
