"""JSON lines: our journal, and anything as simple.

    {"process":0,"type":"invoke","f":"write","key":"x","value":3}
    {"process":0,"type":"ok","f":"write","key":"x","value":3}

A file whose first line carries a CRC is a journal: every line must then match its own, and a torn end is cut. In
others `index` and `time` (ns) default to the line's place, and only a last line without its newline is torn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from results.durable import replacing
from results.errors import HistoryError
from results.formats.foreign import Assembler, ForeignHistory, ReadOptions
from results.journal import has_crc, line, scan
from results.op import Op
from results.reading import LINE, lines


def read_jsonl(path: Path, file: IO[bytes], options: ReadOptions) -> ForeignHistory:
    """Read it all. Raises HistoryError with the line."""
    first = file.readline(LINE)
    file.seek(0)
    ops, torn = scan(path, lines(file), need_crc=has_crc(first))
    del first
    assembler = Assembler(options, nil_reads="unset")
    for place, op in enumerate(ops):
        try:
            assembler.take(op)
        except ValueError as problem:
            file.seek(0)
            number, text = _line_of(file, place)
            raise HistoryError(path, number, f"{problem} ({text[:200]!r})") from None
    return assembler.finish("jsonl", [], torn)


def write_jsonl(ops: Iterable[Op], path: Path) -> None:
    """A journal, CRCs included, whole or not at all. StoreError when the disk does not take it."""
    with replacing(path, "the history") as file:
        file.writelines(line(op) for op in ops)


def _line_of(file: IO[bytes], place: int) -> tuple[int, str]:
    """Number and text of the op at a place, blank lines not counted."""
    seen = -1
    for number, text in enumerate(lines(file), 1):
        seen += not text.isspace()
        if seen == place:
            return number, json.dumps(json.loads(text)) if not has_crc(text) else text.decode().strip()
    raise AssertionError(f"no op at {place}")
