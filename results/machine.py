# SPDX-License-Identifier: Apache-2.0
"""The resources of the machines during a run: `machine.log` of the control program and of each node.

The lines are those of `infra.machines.pressure`. Two consecutive lines give a `MachineSample`. Garbage-collection
pauses come from the servers' GC logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from results.reading import LOG_FILE, LOG_LINE, lines, opened

FILE: Final = "machine.log"
CONTROL: Final = "control"
"""The control program's machine, among the nodes."""

_MS: Final = 1_000_000
_PAUSE: Final = re.compile(r"^\[(\S+?)\].* Pause .* (\d+(?:\.\d+)?)ms$")


@dataclass(frozen=True, slots=True)
class BusyThread:
    """A thread of a server in one sample: the shares of the time in which it ran, and in which it ran or could run."""

    server: str
    id: int
    name: str
    ran: float
    runnable: float


@dataclass(frozen=True, slots=True)
class MachineSample:
    """The resources of one machine from `start` to `end` (ns since the start of the run). None: not reported by the
    kernel.

    late_ms   the delay of the latest timer.
    wait_ms   the average time for which a server's runnable thread waited for a processor.
    ran       processors that the servers used.
    cpu, memory, io   the share of the time in which some process of the machine waited for it (PSI).
    steal     the share of the processors' time that a hypervisor took.
    pause_ms  the longest pause of a server's garbage collector that ended in this time.
    waits     `wait_ms` of each kind of server; missing in runs of earlier versions.
    threads   of each server the two that were busiest since its start.
    """

    node: str
    start: int
    end: int
    late_ms: float
    wait_ms: float | None = None
    ran: float | None = None
    cpu: float | None = None
    memory: float | None = None
    io: float | None = None
    steal: float | None = None
    pause_ms: float = 0.0
    threads: Sequence[BusyThread] = ()
    waits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line: time in ns since the start of the run; server (`kind=pid`) -> (ran ns, waited ns, switches);
    (server, thread, its name) -> (ran ns, waited ns).
    """

    time: int
    late_us: int
    stalled: Sequence[int | None]
    steal: int
    ticks: int
    servers: Mapping[str, tuple[int, int, int]]
    threads: Mapping[tuple[str, int, str], tuple[int, int]]


def read_machine(
    control: Path, logs: Mapping[str, Sequence[Path]], environment: Mapping[str, Any]
) -> list[MachineSample]:
    """All samples of a run, in order of time. Empty if nothing was measured; a line that is torn is left out.

    control  the control program's own file; logs: node -> its files.
    """
    begun = environment.get("started_at")
    try:
        start = datetime.fromisoformat(str(begun))
    except ValueError:
        return []
    if start.tzinfo is None:  # the field is in UTC
        start = start.replace(tzinfo=UTC)
    start_us = int(start.timestamp() * 1e6)
    samples = _samples(CONTROL, control, start_us)
    for node, files in logs.items():
        measured = [s for path in files if path.name == FILE for s in _samples(node, path, start_us)]
        pauses = [pause for path in files if path.name.startswith("gc-") for pause in _pauses(path, start)]
        samples += _with_pauses(measured, pauses)
    return sorted(samples, key=lambda sample: sample.start)


def _samples(node: str, path: Path, start_us: int) -> list[MachineSample]:
    found = [line for line in _lines(path, start_us) if line.time >= 0]
    return [_between(node, a, b) for a, b in pairwise(found) if a.time < b.time]


def _between(node: str, a: _Line, b: _Line) -> MachineSample:
    span = b.time - a.time
    ran = waited = switches = 0
    waits: dict[str, float] = {}
    for server, now in b.servers.items():
        before = a.servers.get(server, (0, 0, 0))  # it was started in between
        if all(x >= y for x, y in zip(now, before, strict=True)):  # threads that have ended are counted no more
            more = [x - y for x, y in zip(now, before, strict=True)]
            ran, waited, switches = ran + more[0], waited + more[1], switches + more[2]
            kind, named, _ = server.partition("=")
            if named and more[2]:
                waits[kind] = more[1] / more[2] / _MS
    cpu, memory, io = (
        None if x is None or y is None else min(1.0, max(0.0, (y - x) * 1000 / span))
        for x, y in zip(a.stalled, b.stalled, strict=True)
    )
    return MachineSample(
        node,
        a.time,
        b.time,
        b.late_us / 1000,
        waited / switches / _MS if switches else None,
        ran / span if b.servers else None,
        cpu,
        memory,
        io,
        steal=(b.steal - a.steal) / (b.ticks - a.ticks) if b.ticks > a.ticks else None,
        waits=waits,
        threads=tuple(
            BusyThread(*key, (ran - a.threads[key][0]) / span, (ran + waited - sum(a.threads[key])) / span)
            for key, (ran, waited) in b.threads.items()
            if key in a.threads and ran >= a.threads[key][0] and waited >= a.threads[key][1]
        ),
    )


def _lines(path: Path, start_us: int) -> Iterator[_Line]:
    for line in _whole_lines(path):
        with suppress(ValueError):
            yield _parse(line, start_us)


def _whole_lines(path: Path) -> Iterator[str]:
    """Yields the complete lines: the last one may still be incomplete. Yields nothing if the file is unreadable."""
    with suppress(OSError), opened(path, LOG_FILE, follow=False) as file:
        for line in lines(file, LOG_LINE):
            if line.endswith(b"\n"):
                yield line[:-1].decode("utf-8", "replace")


def _parse(line: str, start_us: int) -> _Line:
    time, late, cpu, memory, io, steal, ticks, *rest = line.split()
    servers = {}
    threads = {}
    for word in rest:
        if "/" in word:
            who, ran, waited = word.split(":")
            server, _, thread = who.partition("/")
            tid, _, name = thread.partition("=")
            threads[server, _number(tid), name] = _number(ran), _number(waited)
            continue
        server, ran, waited, switches = word.split(":")
        servers[server] = (_number(ran), _number(waited), _number(switches))
    stalled = [None if text == "-" else _number(text) for text in (cpu, memory, io)]
    return _Line(
        (_number(time) - start_us) * 1000, _number(late), stalled, _number(steal), _number(ticks), servers, threads
    )


def _number(text: str) -> int:
    """The number in a text. Raises ValueError, also for one of more than 64 bits, which no kernel reports."""
    number = int(text)
    if abs(number) >= 1 << 64:
        raise ValueError(f"{text} has more than 64 bits")
    return number


def _pauses(path: Path, start: datetime) -> Iterator[tuple[int, float]]:
    """Yields (end in ns since the start of the run, ms) of every pause in a GC log."""
    for line in _whole_lines(path):
        found = _PAUSE.match(line)
        if found is not None:
            with suppress(ValueError):
                at = datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S.%f%z")
                yield int((at - start).total_seconds() * 1e9), float(found[2])


def _with_pauses(samples: Sequence[MachineSample], pauses: Iterable[tuple[int, float]]) -> list[MachineSample]:
    ordered = sorted(pauses)
    out, at = [], 0
    for sample in samples:
        while at < len(ordered) and ordered[at][0] <= sample.start:
            at += 1
        longest = 0.0
        while at < len(ordered) and ordered[at][0] <= sample.end:
            longest = max(longest, ordered[at][1])
            at += 1
        out.append(replace(sample, pause_ms=longest) if longest else sample)
    return out
