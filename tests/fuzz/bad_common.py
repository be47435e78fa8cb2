# SPDX-License-Identifier: Apache-2.0
"""The bad input as a type, and the parts that several makers of inputs share.

Each maker knows by how it makes an input which exit codes are right for it: 64 for what a user got wrong on the command
line or in a plan, 2 for a history that cannot be judged, 3 for output that cannot be written, and a set of them where
chance decides whether the input is still a good one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from results.formats import write_jsonl
from results.op import Op
from results.store import Store

GOOD: Final = (0, 1, 2)
"""Verdicts: what may come of a history that was changed by chance. (3 as well, where its numbers are not those of an
op: well-formedness is a question to the harness.)
"""
USAGE: Final = 64


@dataclass(frozen=True)
class Case:
    """`argv` of the command, the exit codes that are right, and how it is run.

    env     over the surroundings. output: where standard output goes; None: it is caught. urls: paths to ask for with
            GET where the command is `serve`. own: only in a process of its own.
    here: never in one: only in this process is a run refused.
    program: what is run in place of the harness.
    """

    name: str
    argv: Sequence[str]
    codes: Sequence[int]
    env: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None
    urls: Sequence[bytes] = ()
    own: bool = False
    here: bool = False
    program: Sequence[str] = ()


ESCAPES: Final = (
    "\x1b[31m",
    "\x1b]0;owned\x07",
    "\x9b2J",
    "\r\x1b[2K",
    "a\nharness: no such finding",
    "\u202etxt.exe",
    "\x00",
)
WORDS: Final = (
    "",
    " ",
    "no-such",
    "registr",
    "../../etc/passwd",
    "x" * 5000,
    "ü" * 300,
    "\udcff",
    "-1",
    "%s%n",
    "'; rm -rf /",
)
OPS: Final = [
    Op(0, 10, 0, "invoke", "write", "k", 1),
    Op(1, 20, 1, "invoke", "cas", "k", [1, 2]),
    Op(2, 30, -1, "invoke", "kill", None, ["n1"]),
    Op(3, 40, 0, "ok", "write", "k", 1, None, {"node": "n2"}),
    Op(4, 50, 1, "info", "cas", "k", [1, 2], "timed out"),
    Op(5, 60, -1, "info", "kill", None, ["n1"]),
    Op(6, 70, 2, "invoke", "read", "k"),
    Op(7, 80, 2, "ok", "read", "k", 2),
]


def write(path: Path, write: Callable[[list[Op], Path], object]) -> Path:
    write(OPS, path)
    return path


def mangled(rng: Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or put in."""
    found = bytearray(data)
    odd = [
        b"\x1b[31m",
        b"\x00",
        b"\xff",
        b"\n",
        b"[" * 2000,
        b'"',
        b"9" * 5000,
        b"{",
        b"\xe2\x80\xae",
        b"NaN",
        b"1e999",
        b"\\u001b",
        b"\x9b",
    ]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at:]
            case 2:
                found[at:at] = rng.choice(odd)
            case 3:
                del found[at : at + rng.randint(1, 20)]
            case _:
                found[at:at] = found[at : at + 200]
    return bytes(found)


def odd_file(rng: Random, path: Path) -> None:
    """Something else in the place of a file: never a good one."""
    if path.is_file():
        path.unlink()
    match rng.randrange(7):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/urandom", "/proc/self/mem"]))
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.mkdir()
        case 4:
            here = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        case 5:
            with path.open("wb") as file:
                file.truncate(3 << 30)
        case _:
            path.symlink_to("no-such-target")


def stored_run(store: Path, when: str) -> Path:
    plan = 'workload = "register"\nseed = 7\n[cluster]\nbackend = "docker"\n'
    run = Store(store).create("log-none", plan, datetime.strptime(when, "%Y-%m-%dT%H-%M-%S")).path
    write_jsonl(OPS, run / "journal.jsonl")
    (run / "environment.json").write_text(json.dumps({"started_at": "2026-11-21T06:12:44", "kernel": "6"}))
    (run / "observations.jsonl").write_text('{"time":1,"node":"n1","role":"leader"}\n')
    (run / "nodes" / "n1").mkdir()
    (run / "nodes" / "n1" / "server.log").write_text("2026-11-21 06:12:45.000 INFO started\n")
    (run / "verdict.json").write_text('{"verdict": "valid", "reason": "fine", "results": []}')
    return run
