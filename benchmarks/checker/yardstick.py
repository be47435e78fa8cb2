# SPDX-License-Identifier: Apache-2.0
"""Porcupine, as a Go program that waits for numbers of histories, and the conversion of histories to its format."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.packed import Packed
from results.history import Call

SOURCE = Path(__file__).parent / "porcupine"


def build(program: Path) -> None:
    """Builds the program. Raises CalledProcessError; Go has printed the reason."""
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True)


class Answer(NamedTuple):
    """word: ok, illegal or unknown. seconds: those of the processor. mib: peak of resident memory, if requested."""

    word: str
    seconds: float
    mib: int


class Yardstick:
    """The program with its histories loaded."""

    def __init__(self, program: Path, histories: Sequence[Mapping[str, Any]], folder: Path) -> None:
        path = folder / "histories.json"
        path.write_text(json.dumps(histories))
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def check(self, history: int, limit_ms: int, memory: bool = False) -> Answer:
        asked, told = self._pipes()
        print(history, limit_ms, int(memory), file=asked, flush=True)
        word, nanoseconds, mib = told.readline().split()
        return Answer(word, int(nanoseconds) / 1e9, int(mib))

    def close(self) -> None:
        self._pipes()[0].close()
        self.process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout


def of_register(packed: Packed, history: int) -> dict[str, Any]:
    """A history of a register: kinds by number, unknown ops end after everything else; unknown reads are left out."""
    begin, end = int(packed.first[history]), int(packed.first[history + 1])
    call, ret = packed.call[begin:end].tolist(), packed.ret[begin:end].tolist()
    last = 1 + max((*call, *(at for at in ret if at != NEVER)), default=0)
    kinds: list[dict[str, Any]] = []
    number: dict[int, int] = {}
    ops = []
    for op, kind in enumerate(packed.kind[begin:end].tolist()):
        unknown = ret[op] == NEVER
        what = packed.table.kinds[kind]
        if unknown and what.f == "read":
            continue
        if kind not in number:
            number[kind] = len(kinds)
            a, b = what.value if isinstance(what.value, tuple) else (what.value, None)
            a, b = (-1 if value is None else value for value in (a, b))
            kinds.append({"F": what.f, "A": a, "B": b, "Seen": a})
        ops.append({"Kind": number[kind], "Call": call[op], "Ret": last if unknown else ret[op], "Unknown": unknown})
    return {"Model": "register", "Kinds": kinds, "Ops": ops}


def of_store(keys: Mapping[str | None, Sequence[Call]]) -> dict[str, Any]:
    """A history of a key-value store, all of its ops known."""
    kinds: list[dict[str, Any]] = []
    ops = []
    for number, calls in enumerate(keys.values()):
        for call in calls:
            assert call.completion is not None
            seen = call.completion.value if call.invoke.f == "get" else call.invoke.value
            begin, end = call.invoke.index, call.completion.index
            ops.append({"Kind": len(kinds), "Key": number, "Call": begin, "Ret": end, "Unknown": False})
            kinds.append({"F": call.invoke.f, "Text": seen})
    return {"Model": "kv", "Kinds": kinds, "Ops": ops}
