"""The file `brokerIdentity`: the id that a controller gave to a broker for good (`BrokerMetadata`, `MetadataFile`)."""

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
    """Raises StorageError for a file that is damaged, and OSError for one that is not there."""
    text = path.read_text().strip()
    parts = text.split("#")
    if len(parts) != 3 or not parts[2].isdecimal():
        raise StorageError(path, f"{text[:100]!r} is not CLUSTER#NAME#ID")
    return Identity(parts[0], parts[1], int(parts[2]))
