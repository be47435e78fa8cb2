# SPDX-License-Identifier: Apache-2.0
"""Bits: flips some in the files of a server that does not run, and reads them back.

A script on the node chooses the place, since the choice of a whole record needs all bytes of the files
(`infra/machines/scripts/flip_bits.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from infra.machines import scripts
from infra.machines.api import InfraError, Node

Part = Literal["any", "body", "header", "size", "crc"]
Where = Literal["last", "random"]

_SCRIPT: Final = (Path(scripts.__file__).parent / "flip_bits.py").read_text()
_CUT: Final = """
import ast, glob, os, sys
found = [(os.stat(f).st_mtime, k, f) for k, p in ast.literal_eval(sys.argv[2]) for f in glob.glob(p, recursive=True)]
if not found:
    sys.exit("there is no such file")
_, kind, file = max(found)
size = os.path.getsize(file)
if sys.argv[1] == "missing":
    os.remove(file)
else:
    os.truncate(file, size // 2 if sys.argv[1] == "torn" else 0)
print((kind, file, size, {"missing": -1, "empty": 0, "torn": size // 2}[sys.argv[1]]))
"""
_TIMEOUT_S: Final = 25.0
"""Seconds. 447,000 messages in 128 MiB took 2.2 s of processor time (`random`); `last` reads one file of each log."""


@dataclass(frozen=True)
class Layout:
    """The layout of a log's records in its files, back to back from the beginning of each file. The files are named by
    the place of their first byte in the log, in 20 digits. A field is [begin, end) in bytes from its record's start,
    and holds a big-endian number without a sign.

    head      bytes of the part that all records have.
    used      a field that is 0 behind the last record. accepts: its possible values; empty: any other.
    skips     values of `used` that mean filling, not a record: of units one unit, otherwise the rest of the file.
    variable  whether the records differ in length: then `size` is the field with it; otherwise all have `head` bytes.
    length    the field with the length of the body, which begins behind the head; None: the body is one of `parts`.
    position  the field with the record's own place in the log; None: no such field.
    parts     the fields that belong to `header`, `size`, `crc`, `body`.
    """

    head: int
    used: tuple[int, int]
    parts: Mapping[str, Sequence[tuple[int, int]]]
    accepts: Sequence[int] = ()
    skips: Sequence[int] = ()
    variable: bool = False
    size: tuple[int, int] = (0, 4)
    length: tuple[int, int] | None = None
    position: tuple[int, int] | None = None

    def has(self, part: Part) -> bool:
        """True if the records have such a part."""
        return part == "any" or part in self.parts or (part == "body" and self.length is not None)


@dataclass(frozen=True)
class FileKind:
    """A kind of files of a server: their paths below its folders of data, and their layout.

    pattern  as of Python's `glob`, relative to each folder; `**` is any number of folders.
    layout   None: no records, so any byte that is not NUL may be hit.
    """

    pattern: str
    layout: Layout | None = None


@dataclass(frozen=True)
class Flip:
    """A bit that was flipped: in the byte at `offset` of `file`, which was `before` and is `after`.

    record, size  its record: the place in the file, and the length in bytes.
    """

    kind: str
    file: str
    offset: int
    bit: int
    before: int
    after: int
    record: int
    size: int

    def __str__(self) -> str:
        return (
            f"bit {self.bit} of byte {self.offset} of {self.file} ({self.kind} record of {self.size} bytes at "
            f"{self.record}): {self.before:#04x} -> {self.after:#04x}"
        )


@dataclass(frozen=True)
class Choice:
    """The bits to flip: `count` of them, in a part of the last record of a log, or of random ones; drawn by `seed`."""

    count: int
    part: Part
    where: Where
    seed: int
    files: Mapping[str, FileKind] = field(default_factory=dict)


def flip_bits(node: Node, folders: Sequence[str], choice: Choice) -> list[Flip]:
    """Flips bits in files below these folders; of several kinds of files, one is chosen. Unwritten parts (NUL tails of
    preallocated files) are never hit. Raises InfraError if no such record exists.
    """
    files = [
        [kind, [f"{folder}/{found.pattern}" for folder in folders], found.layout and asdict(found.layout)]
        for kind, found in choice.files.items()
    ]
    request = {"seed": choice.seed, "count": choice.count, "part": choice.part, "where": choice.where, "files": files}
    return [Flip(**flip) for flip in _ask(node, "flip", request)]


def bytes_at(node: Node, flips: Sequence[Flip]) -> list[int]:
    """The present bytes at these places; -1 if the file is gone, or shorter."""
    found: list[int] = _ask(node, "read", [[flip.file, flip.offset] for flip in flips])
    return found


@dataclass(frozen=True)
class Cut:
    """A file that has `after` bytes left of `before`; after -1: it is gone."""

    kind: str
    file: str
    before: int
    after: int

    def __str__(self) -> str:
        left = "is gone" if self.after < 0 else f"has {self.after} bytes left"
        return f"{self.file} ({self.kind}, {self.before} bytes) {left}"


Loss = Literal["torn", "empty", "missing"]


def cut_file(node: Node, folders: Sequence[str], files: Mapping[str, FileKind], loss: Loss) -> Cut:
    """Cuts off the second half of the last changed file of these kinds, or all of it, or removes the file. Raises
    InfraError if no such file exists.
    """
    patterns = [[kind, f"{folder}/{found.pattern}"] for kind, found in files.items() for folder in folders]
    done = node.run(["python3", "-c", _CUT, loss, repr(patterns)], timeout_s=_TIMEOUT_S, check=False)
    if done.code != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        raise InfraError(f"{node.name}: cutting a file failed: {lines[-1]}")
    return Cut(*ast.literal_eval(done.text))


def size_of(node: Node, file: str) -> int:
    """Bytes of a file; -1: no such file."""
    text = node.run(["stat", "-c", "%s", "--", file], check=False).text.strip()
    return int(text) if text.isdecimal() else -1


def why_not(node: Node) -> str | None:
    """The reason why bits cannot be flipped on this node, and the remedy; None: they can. Reads one byte as a trial."""
    done = node.run(["python3", "-c", _SCRIPT, "read", '[["/proc/self/cmdline", 0]]'], check=False)
    return None if done.code == 0 else f"{node.name} has no working python3: install it there (Debian: python3-minimal)"


def _ask(node: Node, what: str, request: object) -> Any:
    done = node.run(["python3", "-c", _SCRIPT, what, repr(request)], timeout_s=_TIMEOUT_S, check=False)
    if done.code != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        raise InfraError(f"{node.name}: {what} of bits failed: {lines[-1]}")
    return ast.literal_eval(done.text)
