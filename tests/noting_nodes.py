# SPDX-License-Identifier: Apache-2.0
"""Nodes that only record their commands, and run nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.machines.api import Completed, ProcessId

ROOMY = "boot-1\n8388608\n16777216 12%\n"
"""Boot id; free memory and disk in KiB; how full the disk is."""


@dataclass
class NotingNode:
    """`dies_on` is the signal that ends its server; `space` is what it says of its memory and disk. `archives`: of
    class data, their paths.
    """

    name: str
    address: str = "127.0.0.1"
    ran: list[Sequence[str]] = field(default_factory=list)
    written: dict[str, bytes] = field(default_factory=dict)
    server: ProcessId | None = None
    dies_on: str = "TERM"
    space: str = ROOMY
    archives: Sequence[str] = ()

    def run(self, argv: Sequence[str], *, check: bool = True, **_: Any) -> Completed:
        self.ran.append(argv)
        if list(argv[:2]) == ["kill", "-s"] and argv[2] == self.dies_on:
            self.server = None
        output = b'openjdk version "17.0.1"' if argv[0] == "java" else b""
        out = b"first\n\nRegisterServer: the server did not start: port taken\n" if argv[0] == "tail" else b""
        if list(argv[3:4]) == ["space"]:
            out = self.space.encode()
        if argv[0] == "find":
            out = "".join(f"{path}\n" for path in self.archives).encode()
        return Completed(argv, 0, out, output, 0.0)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.written[path] = data

    def process(self, pidfile: str) -> ProcessId | None:
        return self.server

    def settings(self, path: str) -> Mapping[str, str]:
        """A properties file that was written, its escaped colons undone."""
        lines = self.written[path].decode().splitlines()
        return dict(line.replace("\\u003a", ":").split("=", 1) for line in lines)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass
class NotingCluster:
    nodes: Sequence[NotingNode]
    clients: Sequence[NotingNode] = ()


def noting_nodes(count: int) -> list[NotingNode]:
    """`n1` at 198.18.0.1, ..."""
    return [NotingNode(f"n{i + 1}", f"198.18.0.{i + 1}") for i in range(count)]
