# SPDX-License-Identifier: Apache-2.0
"""Wall clocks: moves the clock of one server, and reads it back. Uses libfaketime, without its own rate.

A server is started with the library preloaded (`variables`). The library adds an offset to the wall clock and reads the
offset from a file, once in each second. The monotonic clock is not changed. `scripts/clock.sh` describes the files of a
clock: their folder has one part for each strike, and the offset is their sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final
from uuid import uuid4

from infra.machines import scripts
from infra.machines.api import InfraError, Lease, Node
from infra.machines.node import PROCESS_OF
from infra.machines.pressure import HOME

FOLDER: Final = f"{HOME}/clock"
"""The clocks of a node, each in its own folder."""

PACKAGE: Final = "faketime"
"""Debian's package of the library."""

_GRACE_S: Final = 30
"""The time that a loop lasts longer than its lease: the lease ends it, in the requested way."""

_SCRIPT: Final = PROCESS_OF + scripts.text("loop.sh", "clock.sh")
_LIBRARIES: Final = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
_FIND: Final = 'for file in $1 $2; do [ ! -e "$file" ] || { readlink -f -- "$file"; exit 0; }; done'

# Pairs of clocks (ns), for `for_s` seconds. Two readings of the monotonic clock, one before the wall clock and one
# after: a pair between which the process waited for a processor is read again.
# A sleep of Python's cannot be used: with the library, its clock_nanosleep with an absolute time ends with EINVAL.
_READ: Final = """
import select, sys, time
for_ns, every_s = int(float(sys.argv[1]) * 1e9), float(sys.argv[2])
begin = time.monotonic_ns()
while True:
    for attempt in range(50):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after - before < 200_000:
            break
    print(before, wall)
    if after - begin >= for_ns:
        break
    select.select([], [], [], every_s)
"""

_LOG: Final = r"""
stamp='^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}'
for i in 1 2 3 4 5; do      # until nothing was written meanwhile
    written=$(stat -c %.6Y -- "$1" 2>/dev/null) || exit 0
    line=$(tail -c 65536 -- "$1" | grep -aoE "$stamp" | tail -n 1)
    [ "$(stat -c %.6Y -- "$1")" = "$written" ] && break
done
[ -n "$line" ] || exit 0
echo "$(date +%s.%N) $written $(date -u -d "$line" +%s.%3N)"
"""

FORGET_DEAD: Final = """
for file in /dev/shm/faketime_shm_* /dev/shm/sem.faketime_sem_*; do
    [ -d "/proc/${file##*_}" ] || rm -f -- "$file"
done
"""
"""Shell: removes the two files that the library of a killed process leaves; their names end with its number."""


@dataclass(frozen=True)
class Course:
    """The course of a clock while a strike lasts.

    steps  offsets in seconds, each with the time in seconds for which it stays; repeated from the first one. A single
           one with 0 s stays.
    rate   in place of steps: how many seconds the clock gains per second; negative: it loses them.
    """

    steps: Sequence[tuple[float, float]] = ()
    rate: float | None = None

    def words(self) -> list[str]:
        """The arguments of `clock.sh`: microseconds, and milliseconds."""
        if self.rate is not None:
            return ["drift", str(round(self.rate * 1e6))]
        return ["course", *(word for at, s in self.steps for word in (str(round(at * 1e6)), str(round(s * 1000))))]


@dataclass(frozen=True)
class Reading:
    """The clocks that a process with a server's preload read, in seconds.

    at         time of its beginning, by the machine's monotonic clock.
    offsets    (time since the first sample, its wall clock minus the machine's).
    monotonic  distance of its monotonic clock from the interval in which it ran, by the machine's clock.
    """

    at: float
    offsets: Sequence[tuple[float, float]]
    monotonic: float

    @property
    def last(self) -> float:
        return self.offsets[-1][1]


@dataclass(frozen=True)
class State:
    """The files of a clock. total: the sum of all parts (s). own: of one strike, or None. moving: its loop runs."""

    total: float
    own: float | None
    moving: bool


@dataclass
class HeldClock:
    """A strike's hold on a clock. part: its name."""

    part: str
    lease: Lease


def library(node: Node) -> str | None:
    """The path of libfaketime on the node, or None."""
    return node.run(["sh", "-c", _FIND, "find", *_LIBRARIES]).text.strip() or None


def variables(library: str, folder: str, cached: bool = True) -> dict[str, str]:
    """The environment of a process with the clock of `folder`.

    cached  it reads the offset once a second. If not, it does with each reading of the clock, which then takes
            some 12 us in place of 1.

    Measured with JDK 17 and libfaketime 0.9.10: without DONT_FAKE_MONOTONIC, nanoTime jumps; without
    FAKETIME_FORCE_MONOTONIC_FIX=0, Object.wait and parkNanos return at once; a cache of 1 is read only every two
    seconds, since whole seconds are compared with "more than".
    """
    found = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": f"{folder}/offset",
        "FAKETIME_CACHE_DURATION": "0",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }
    return found if cached else {**found, "FAKETIME_NO_CACHE": "1"}


def make_ready(node: Node, folder: str) -> None:
    """Makes the files of a clock, with the offset +0; existing ones stay. Call it before a process begins with it."""
    node.run(_argv("ready", folder, ""))


def hold(node: Node, folder: str, course: Course, ttl_s: float, slew_s: float = 0.0) -> HeldClock:
    """Moves a clock for as long as the lease lasts. At the end its part of the offset is removed, at once or in small
    steps within `slew_s`. A loop on the node changes offsets over time, and ends with the lease.
    """
    part = uuid4().hex[:8]
    inject = _argv("hold", folder, part, str(ceil(ttl_s) + _GRACE_S), *course.words())
    undo = _argv("end", folder, part, str(round(slew_s * 1000)))
    return HeldClock(part, node.lease([inject], [undo], ttl_s=ttl_s))


def state(node: Node, folder: str, part: str) -> State:
    """The present files of a clock."""
    total, own, running = node.run(_argv("state", folder, part)).text.split()
    return State(int(total) / 1e6, None if own == "-" else int(own) / 1e6, running == "1")


def read(node: Node, environment: Mapping[str, str], for_s: float = 0.0, every_s: float = 0.05) -> Reading:
    """Reads both clocks with an environment of `variables`, in a process that begins and ends here. Processes without
    it read the machine's own clocks before and after. Raises InfraError without Python on the node.
    """
    preloaded = [f"{name}={value}" for name, value in environment.items()]
    samples: list[list[tuple[int, int]]] = []
    for words, lasts in (([], 0.0), (preloaded, for_s), ([], 0.0)):
        argv = ["env", *words, "python3", "-S", "-E", "-c", _READ, str(lasts), str(every_s)]
        lines = node.run(argv, timeout_s=lasts + 30).text.splitlines()
        samples.append([(int(m), int(w)) for m, w in map(str.split, lines)])
    (before, own_wall), seen, (after, _) = samples[0][0], samples[1], samples[2][0]
    first, last = seen[0][0], seen[-1][0]
    return Reading(
        before / 1e9,
        [((m - first) / 1e9, ((w - m) - (own_wall - before)) / 1e9) for m, w in seen],
        max(0, before - first, last - after) / 1e9,
    )


def is_preloaded(node: Node, pid: int, library: str) -> bool:
    """True if a process has the library in its memory (`/proc/PID/maps`)."""
    return node.run(["grep", "-qF", "--", library, f"/proc/{pid}/maps"], check=False).code == 0


def logged_offset(node: Node, log: str, within_s: float) -> float | None:
    """The lead of the clock that stamps a log, in seconds: the time in its last stamped line, minus the machine's time
    of the last write. None if nothing was written within the last `within_s` seconds.

    A stamp is `yyyy-mm-dd HH:MM:SS.mmm` in UTC. A line without a stamp that is written later makes
    the difference smaller by the time between the two.
    """
    words = node.run(["bash", "--norc", "-c", _LOG, "log", log]).text.split()
    if not words:
        return None
    now, written, stamped = map(float, words)
    return stamped - written if now - written <= within_s else None


def unavailable(node: Node) -> str | None:
    """The reason why a clock cannot be moved here, with the remedy; None: it can. Moves a scratch clock by a minute."""
    found = library(node)
    if found is None:
        return f"{node.name} has no libfaketimeMT.so.1: install the package {PACKAGE} there"
    if node.run(["python3", "-S", "-E", "-c", ""], check=False).code != 0:
        return f"{node.name} has no python3, which reads the clocks back: install the package python3-minimal there"
    folder = f"{FOLDER}/scratch-{uuid4().hex[:8]}"
    try:
        make_ready(node, folder)
        held = hold(node, folder, Course([(60.0, 0.0)]), ttl_s=30)
        try:
            seen = read(node, variables(found, folder))
        finally:
            held.lease.heal()
    except InfraError as problem:
        return f"{node.name}: a scratch clock cannot be moved: {problem}"
    finally:
        node.run(["rm", "-rf", "--", folder])
    if abs(seen.last - 60) > 0.5:
        return f"{node.name}: {found} has no effect on Debian's python3; it needs a C library of GNU (glibc)"
    return None


def _argv(command: str, folder: str, part: str, *words: str) -> list[str]:
    return ["bash", "--norc", "-c", _SCRIPT, "clock", command, folder, part, *words]
