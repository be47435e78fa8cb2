# SPDX-License-Identifier: Apache-2.0
"""Measures links between nodes, at the sockets: round trips, and the arrival of numbered datagrams.

The work is done on the nodes (`infra.machines.scripts.datagrams`). The control program can be one end as well.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.machines.api import Node
from infra.machines.node import RemoteNode
from infra.machines.remote.process import ProcessRemote
from infra.machines.scripts import datagrams

_LISTEN_S = 60
"""A listener without a request for its report ends after this."""


@dataclass(frozen=True)
class End:
    """One end of a link: a node, or the control program."""

    node: Node
    python: str = "python3"

    @property
    def address(self) -> str:
        return self.node.address

    def run(self, command: str, *words: object, timeout_s: float = 30) -> str:
        """Runs a command of `infra.machines.scripts.datagrams`, and returns its output. Raises InfraError."""
        argv = [self.python, "-c", _script(), command, *map(str, words)]
        return self.node.run(argv, timeout_s=timeout_s).text


def control_program(address: str) -> End:
    """The control program as an end. address: as the nodes see it."""
    return End(RemoteNode("clients", address, ProcessRemote("clients")), sys.executable)


@dataclass(frozen=True)
class Burst:
    """The numbered datagrams that arrived.

    arrived    with the copies. different: without them. behind: different ones that came after a later one.
    bytes      of payload, in `seconds` from the first to the last.
    """

    sent: int
    arrived: int
    different: int
    behind: int
    bytes: int
    seconds: float

    @property
    def lost(self) -> int:
        return self.sent - self.different

    @property
    def copies(self) -> int:
        return self.arrived - self.different

    @property
    def bits_per_second(self) -> float:
        """The rate of arrival; 0 if fewer than two arrived."""
        return 8 * self.bytes * (1 - 1 / self.arrived) / self.seconds if self.arrived > 1 and self.seconds else 0.0


def burst(
    source: End, target: End, count: int, *, gap_s: float = 0.0005, size: int = 32, port: int = 0, settle_s: float = 0.3
) -> Burst:
    """Sends numbered datagrams from one end to the other.

    gap_s     between two of them. size: bytes of payload. port: the sender's, 0: any.
    settle_s  all have arrived if nothing has come for so long.
    """
    listener = int(target.run("listen", _LISTEN_S))
    try:
        sent = int(source.run("send", target.address, listener, port, count, gap_s, size))
    finally:
        told = target.run("report", listener, settle_s, timeout_s=60).split()
    arrived, different, behind, size_of_all = map(int, told[:4])
    return Burst(sent, arrived, different, behind, size_of_all, float(told[4]))


def round_trip_ms(source: End, target: End, count: int = 7, *, port: int = 0, timeout_s: float = 2.0) -> float | None:
    """Median of some round trips at the sender's socket; None: no echo came back. port: the sender's, 0: any."""
    listener = int(target.run("listen", _LISTEN_S))
    try:
        found = source.run("ping", target.address, listener, port, count, timeout_s, timeout_s=60).split()
    finally:
        target.run("report", listener, 0)
    return statistics.median(map(float, found)) if found else None


@cache
def _script() -> str:
    return Path(datagrams.__file__).read_text(encoding="utf-8")
