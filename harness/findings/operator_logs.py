# SPDX-License-Identifier: Apache-2.0
"""The log lines of findings in an operator's own logs of brokers, controllers, name servers and DLedger.

RocketMQ's own logs have the form `2026-11-03 12:01:02 INFO main - text`, in many files, of which older ones are
compressed. The search reads pieces of bounded size, whatever the size of a file and of its lines. A piece is passed
over unless it contains a plain text that a pattern needs; its lines are then read one by one.

A line is one part of a finding's signature. Nobody can say from logs whether there was an anomaly, so a line means that
the finding *may* have happened.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final, cast

from checkers.base.evidence import MOMENT, written
from harness.findings.patterns import LINE, words_of
from harness.findings.record import Finding
from harness.findings.signature import FOLLOWS_S
from results.reading import LOG_LINE, opened

BLOCK: Final = 256 << 10
"""Bytes that are read at a time."""

MOST: Final = 64 << 30
"""Bytes of a file, unpacked, that are read."""

PLACES: Final = 5
"""Places that are kept for a finding: the earliest ones."""

SKIPPED: Final = 1000
"""Files that were not read, or not whole, of which the names are kept."""

NO_TEXT: Final = "not text"
"""The reason not to read a file that is no log."""

SHOWN: Final = 300
"""Characters of a line that are kept."""

_STAMP: Final = re.compile(rf"\b{MOMENT}")
_STAMPED: Final = 200
"""The stamp is in so many characters from the start of a line: something may stand before it."""

_BACK: Final = 200
"""Lines before a line without a stamp (a stack trace) that are searched for one."""

_PACKED: Final = (
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf", "7z"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
"""First bytes of compressed files that are not read -> the name of the form."""

_WAITING: Final = 100
"""Lines of a finding that wait for their successor at one time."""


@dataclass
class Place:
    """A line of a log. time: as the log has it, to the second; "": unknown. more: further lines of this finding in the
    same file within the same minute. note: what is uncertain about it.
    """

    time: str
    file: str
    line: int
    text: str
    more: int = 0
    note: str = ""


@dataclass
class Sighted:
    """The lines of one finding: their number, the earliest places, and the last one."""

    finding: Finding
    count: int = 0
    places: list[Place] = field(default_factory=list)
    last: Place | None = None
    _newest: Place | None = field(default=None, repr=False)

    def add(self, place: Place) -> None:
        """Counts a line; it joins the place before it if file and minute are the same."""
        self.count += 1
        before = self._newest
        if before is not None and (before.file, before.time[:16]) == (place.file, place.time[:16]):
            before.more += 1
            return
        self._newest = place
        self.places = sorted([*self.places, place], key=_order)[:PLACES]
        if self.last is None or _order(place) >= _order(self.last):
            self.last = place


def _order(place: Place) -> tuple[bool, str]:
    """By time; places without one come last."""
    return not place.time, place.time


@dataclass
class Searched:
    """The result for a folder. files, lines: read. stamped: a line with a time was among them. skipped: files that were
    not read, or not whole, and the reason; more_skipped: further ones; unread: those of them that may be logs. sighted:
    findings with lines, by id.
    """

    files: int = 0
    lines: int = 0
    stamped: bool = False
    skipped: list[tuple[str, str]] = field(default_factory=list)
    more_skipped: int = 0
    unread: int = 0
    sighted: dict[int, Sighted] = field(default_factory=dict)

    def skip(self, file: str, why: str) -> None:
        self.unread += why != NO_TEXT
        if len(self.skipped) < SKIPPED:
            self.skipped.append((file, why))
        else:
            self.more_skipped += 1


def has_line(finding: Finding) -> bool:
    """True if a line in a log shows the finding's mechanism, so that it can be seen at all."""
    return finding.signature is not None and finding.signature.log is not None


def search(folder: Path, findings: Iterable[Finding]) -> Searched:
    """Searches all regular files below a folder, or one file. Links are not followed. Raises OSError if the path itself
    cannot be read.
    """
    found = Searched()
    probes = [_Probe(finding, found) for finding in findings if has_line(finding)]
    for path in _files(folder, found):
        name = str(path.relative_to(folder)) if path != folder else path.name
        try:
            with opened(path, follow=False) as file:
                _search_file(file, name, probes, found)
        except OSError as problem:
            found.skip(name, problem.strerror or str(problem))
        except (EOFError, zlib.error, lzma.LZMAError):
            found.skip(name, "its compressed data is damaged or ends early; the lines before were read")
        finally:
            for probe in probes:
                probe.end()
    return found


def _files(folder: Path, found: Searched) -> Iterator[Path]:
    """The files below a folder in a fixed order, whatever they are, and the folder itself if it is a file."""
    if not stat.S_ISDIR(os.stat(folder).st_mode):
        yield folder
        return
    os.listdir(folder)

    def unreadable(problem: OSError) -> None:
        name = os.path.relpath(problem.filename, folder)
        found.skip(name, problem.strerror or str(problem))

    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders.sort()
        for linked in (Path(place, one) for one in folders if os.path.islink(Path(place, one))):
            found.skip(str(linked.relative_to(folder)), "a link, and links are not followed")
        yield from (Path(place, name) for name in sorted(names))


def _search_file(file: IO[bytes], name: str, probes: Sequence[_Probe], found: Searched) -> None:
    head = file.peek(8)[:8] if hasattr(file, "peek") else b""
    other = next((form for magic, form in _PACKED if head.startswith(magic)), None)
    if other is not None:
        found.skip(name, f"compressed in a form that is not read here ({other})")
        return
    number, size, before, first = 1, 0, b"", True
    for block in _blocks(_unpacked(file, head)):
        if first and b"\0" in block[: 8 << 10] and not _STAMP.search(_text(block)):
            found.skip(name, NO_TEXT)
            return
        if first:
            found.files += 1
        first = False
        hot = [probe for probe in probes if probe.may_be_in(block)]
        found.stamped = found.stamped or _STAMP.search(_text(block[: 64 << 10])) is not None
        if hot:
            _read_lines(block, before, number, name, hot)
        newlines = block.count(b"\n")
        number += newlines
        found.lines += newlines + (not block.endswith(b"\n"))
        before = block
        size += len(block)
        if size > MOST:
            found.skip(name, f"only its first {MOST >> 30} GiB were read")
            return


def _unpacked(file: IO[bytes], head: bytes) -> IO[bytes]:
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if head.startswith(b"BZh"):
        return cast(IO[bytes], bz2.BZ2File(file))
    if head.startswith(b"\xfd7zXZ"):
        return cast(IO[bytes], lzma.LZMAFile(file))
    return file


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Pieces of a file that end with a line, unless it is longer than any line of a log."""
    while block := file.read(BLOCK):
        yield block if block.endswith(b"\n") else block + file.readline(LOG_LINE)


def _read_lines(block: bytes, before: bytes, number: int, name: str, probes: Sequence[_Probe]) -> None:
    lines = block.split(b"\n")
    for at, data in enumerate(lines):
        text = ""
        for probe in probes:
            if probe.may_be_in(data):
                text = text or _text(data.lstrip(b"\0")[: 4 * LINE])
                probe.take(text, partial(_time, lines, at, before), name, number + at)


def _time(lines: Sequence[bytes], at: int, before: bytes) -> str:
    """The time of a line, or of the nearest one before it."""
    earlier = lines[max(0, at - _BACK) : at + 1]
    for data in reversed(earlier):
        if stamp := _stamp(data):
            return stamp
    for data in islice(reversed(before[-LOG_LINE:].split(b"\n")), _BACK):
        if at < _BACK and (stamp := _stamp(data)):
            return stamp
    return ""


def _stamp(data: bytes) -> str:
    found = _STAMP.search(_text(data.lstrip(b"\0")[:_STAMPED]))
    return written(found) if found else ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class _Probe:
    """The search for the line of one finding, through all files."""

    def __init__(self, finding: Finding, found: Searched) -> None:
        signature = finding.signature
        assert signature is not None
        assert signature.log is not None
        self._finding, self._found = finding, found
        self._pattern, self._unless = signature.log, signature.unless
        self._words = [word.encode() for word in words_of(self._pattern)]
        self._waiting: dict[str, tuple[float, Place, re.Pattern[str]]] = {}

    def may_be_in(self, data: bytes) -> bool:
        return bool(self._waiting) or not self._words or any(word in data for word in self._words)

    def take(self, text: str, time: Callable[[], str], file: str, line: int) -> None:
        """Looks at one line. `time` returns its time."""
        if self._waiting:
            self._expire(_seconds(time()))
            cancelled = [key for key, (_, _, then) in self._waiting.items() if then.search(text, 0, LINE)]
            for key in cancelled:
                del self._waiting[key]
        match = self._pattern.search(text, 0, LINE)
        if match is None:
            return
        place = Place(time(), file, line, text[:SHOWN].strip())
        if self._unless is None:
            self._add(place)
            return
        then = self._unless
        for name, value in match.groupdict().items():
            then = then.replace(f"{{{name}}}", re.escape(value or ""))
        seconds = _seconds(place.time)
        if then in self._waiting or seconds is None or len(self._waiting) >= _WAITING:
            return
        self._waiting[then] = seconds, place, re.compile(then)

    def end(self) -> None:
        """The end of a file: nobody knows what follows the lines that wait."""
        for _, place, _ in self._waiting.values():
            place.note = f"the log ends within {FOLLOWS_S} s"
            self._add(place)
        self._waiting.clear()

    def _expire(self, now: float | None) -> None:
        over = [key for key, (at, _, _) in self._waiting.items() if now is not None and now - at > FOLLOWS_S]
        for key in over:
            self._add(self._waiting.pop(key)[1])

    def _add(self, place: Place) -> None:
        self._found.sighted.setdefault(self._finding.id, Sighted(self._finding)).add(place)


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None
