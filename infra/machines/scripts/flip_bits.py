# SPDX-License-Identifier: Apache-2.0
"""Flips bits in the files of a server that does not run.

It is sent to a node as text (`infra.machines.primitives.bits`), and needs only Debian's python3-minimal, which has
neither `json` nor `mmap`.

    flip_bits.py flip REQUEST       REQUEST: {"seed", "count", "part", "where", "files": [[kind, [glob, ...], layout]]}
    flip_bits.py read REQUEST       REQUEST: [[file, offset], ...]

`flip` prints [{"kind", "file", "offset", "bit", "before", "after", "record", "size"}, ...], `read` a list of bytes. All
these are Python literals. An error is one line on stderr, and exit code 1. Layouts are those of `bits.Layout`.
"""

from __future__ import annotations

import ast
import glob
import os
import re
import sys
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

ANY = "any"
_LOG_FILE = re.compile(r"\d{20}")
_WRITTEN = re.compile(rb"[^\0]")
_TRIES = 10000
_BLOCK = 1 << 20


class Record(NamedTuple):
    """A whole record: `size` bytes at `at` of a file. layout: None for a byte of a file without records."""

    kind: str
    file: str
    at: int
    size: int
    layout: Any


class Bytes:
    """A file, of which only the requested blocks are read: files may be long, and mostly holes."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  (closed with the object)
        self.size = os.fstat(self._file.fileno()).st_size
        self._at, self._block = 0, b""

    def span(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end), at most a block."""
        if not self._at <= begin <= end <= self._at + len(self._block):
            self._at, self._block = begin, os.pread(self._file.fileno(), _BLOCK, begin)
        return self._block[begin - self._at : end - self._at]

    def written(self) -> Iterator[int]:
        """The places of all bytes that are not NUL."""
        for block in range(0, self.size, _BLOCK):
            for found in _WRITTEN.finditer(self.span(block, min(block + _BLOCK, self.size))):
                yield block + found.start()


def number(data: Bytes, at: int, field: Any) -> int:
    """The big-endian field ([begin, end), from the record's start) of the record at `at`."""
    return int.from_bytes(data.span(at + field[0], at + field[1]), "big")


def records_of(data: Bytes, start: int, layout: Any) -> Iterator[Any]:
    """(place, size) of every whole record of a file, in order. start: the place of the file's first byte in its log.

    It ends at the first bytes that were not written, or are no record.
    """
    at, head = 0, layout["head"]
    while at + head <= data.size:
        used = number(data, at, layout["used"])
        size = number(data, at, layout["size"]) if layout["variable"] else head
        if used in layout["skips"]:
            if layout["variable"]:
                return  # it fills the rest of the file
            at += head
            continue
        if used == 0 or (layout["accepts"] and used not in layout["accepts"]):
            return
        body = number(data, at, layout["length"]) if layout["length"] else 0
        if size < head + body or at + size > data.size:
            return
        if layout["position"] and number(data, at, layout["position"]) != start + at:
            return
        yield at, size
        at += size


def spans(record: Record, data: Bytes, part: str) -> list[Any]:
    """The places in the file ([begin, end)) that belong to a part of a record; [] if it has no such bytes."""
    if record.layout is None or part == ANY:
        found = [[0, record.size]]
    elif part == "body" and record.layout["length"]:
        head = record.layout["head"]
        found = [[head, head + number(data, record.at, record.layout["length"])]]
    else:
        found = record.layout["parts"].get(part, [])
    return [[record.at + begin, record.at + end] for begin, end in found if end > begin]


def logs_of(kind: str, paths: list[str], layout: Any, part: str, where: str) -> list[list[Record]]:
    """The records of each log that have such a part, in order; a log is a folder of files, or one file without records.

    Of the last records only the file that holds them is read.
    """
    logs: dict[str, list[Record]] = {}
    for path in sorted(paths, reverse=True):
        if not os.path.isfile(path):
            continue
        folder, name = os.path.split(path)
        if layout is None:
            logs[path] = [Record(kind, path, at, 1, None) for at in Bytes(path).written()]
        elif _LOG_FILE.fullmatch(name) and not (where == "last" and logs.get(folder)):
            data = Bytes(path)
            found = (Record(kind, path, at, size, layout) for at, size in records_of(data, int(name), layout))
            logs[folder] = [record for record in found if spans(record, data, part)] + logs.get(folder, [])
    return [log for log in logs.values() if log]


def choose(request: Any) -> list[Any]:
    """[record, offset, bit] of each bit to flip, all different. Exits if there are too few."""
    rng, part, where = Random(request["seed"]), request["part"], request["where"]
    kinds = []
    for kind, patterns, layout in request["files"]:
        paths = [path for pattern in patterns for path in glob.glob(pattern, recursive=True)]
        logs = logs_of(kind, paths, layout, part, where)
        if logs:
            kinds.append(logs)
    if not kinds:
        sys.exit(
            "no whole record with such a part in " + " ".join(p for _, globs, _ in request["files"] for p in globs)
        )
    logs = rng.choice(kinds)
    candidates = [rng.choice(logs)[-1]] if where == "last" else [record for log in logs for record in log]
    chosen: dict[Any, Record] = {}
    for _ in range(_TRIES):
        if len(chosen) == request["count"]:
            return [[record, offset, bit] for (_, offset, bit), record in chosen.items()]
        record = rng.choice(candidates)
        offset = rng.choice([at for span in spans(record, Bytes(record.file), part) for at in range(*span)])
        chosen.setdefault((record.file, offset, rng.randrange(8)), record)
    sys.exit(f"fewer than {request['count']} bits are there to be flipped")


def flip(request: Any) -> Any:
    """Flips the bits, and syncs them to the disk."""
    flips = []
    for record, offset, bit in choose(request):
        target = os.open(record.file, os.O_RDWR)
        before = os.pread(target, 1, offset)[0]
        os.pwrite(target, bytes([before ^ (1 << bit)]), offset)
        os.fsync(target)
        os.close(target)
        flips.append(
            {
                "kind": record.kind,
                "file": record.file,
                "offset": offset,
                "bit": bit,
                "before": before,
                "after": before ^ (1 << bit),
                "record": record.at,
                "size": record.size,
            }
        )
    return flips


def read(request: Any) -> list[int]:
    """The bytes at these places; -1 if the file is gone, or ends before."""
    found = []
    for path, offset in request:
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                found.append((file.read(1) or b"\0")[0] if offset < os.fstat(file.fileno()).st_size else -1)
        except FileNotFoundError:
            found.append(-1)
    return found


if __name__ == "__main__":
    work = {"flip": flip, "read": read}[sys.argv[1]]
    print(work(ast.literal_eval(sys.argv[2])))
