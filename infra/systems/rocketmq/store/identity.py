# SPDX-License-Identifier: Apache-2.0
"""The file `brokerIdentity`: the id that a controller gave to a broker permanently (`BrokerMetadata`, `MetadataFile`).

Before, while a broker applies for an id, it has the file `brokerIdentity-temp` with the id and a register code
behind it (`TempBrokerMetadata`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.systems.rocketmq.store.errors import StorageError


@dataclass(frozen=True, slots=True)
class Identity:
    """cluster, name   of the broker's group. broker_id: its own, from 1; the master's role is no part of it."""

    cluster: str
    name: str
    broker_id: int


def read_identity(path: Path) -> Identity:
    """Reads the identity. Raises StorageError for a damaged file, and OSError for a missing one."""
    found = parse_identity(path.read_text())
    if found is None:
        raise StorageError(path, f"{path.read_text()[:100]!r} is not CLUSTER#NAME#ID")
    return found


def parse_identity(text: str, *, temp: bool = False) -> Identity | None:
    """The identity in such a file; None if it is damaged, or torn. temp: with a register code behind the id."""
    parts = text.strip().split("#")
    if len(parts) != 3 + temp or not parts[2].isdecimal():
        return None
    return Identity(parts[0], parts[1], int(parts[2]))
