# SPDX-License-Identifier: Apache-2.0
"""Clusters that exist longer than the run that created them (`--keep`), and their reuse by a later run (`--reuse`).

A record in the cache folder, readable only by its user, contains the control program's data of a cluster: addresses,
keys, and a note of the caller. It is written when the cluster is kept and removed with the cluster. It does not show
whether a program uses the cluster; the cluster itself shows this (`infra.machines.claims`, `engine_claim`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from infra.machines.api import InfraError, SettingsError
from infra.machines.keys import ClusterKeys, KeyPair
from infra.machines.ownership import slug
from results.cache import cache_dir


@dataclass(frozen=True)
class Kept:
    """The record of a kept cluster.

    client, hosts  private keys as text: the client's, and each node's own.
    note           the caller's, unread here (the plan it was made for).
    """

    backend: str
    run_id: str
    addresses: Mapping[str, str]
    client: str
    hosts: Mapping[str, Sequence[str]]
    facts: Mapping[str, str]
    note: str

    @property
    def keys(self) -> ClusterKeys:
        hosts = {name: KeyPair(private.encode(), public) for name, (private, public) in self.hosts.items()}
        return ClusterKeys(KeyPair(self.client.encode(), ""), hosts)

    @staticmethod
    def of(
        backend: str, run_id: str, addresses: Mapping[str, str], keys: ClusterKeys, facts: Mapping[str, str], note: str
    ) -> Kept:
        hosts = {name: [pair.private.decode(), pair.public] for name, pair in keys.hosts.items()}
        return Kept(backend, run_id, dict(addresses), keys.client.private.decode(), hosts, dict(facts), note)


def save(kept: Kept) -> None:
    """Writes the record; mode 0600."""
    path = _path(kept.run_id)
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(kept)))
    draft.rename(path)


def found(run_id: str) -> Kept | None:
    """The record of a kept cluster, or None. Raises InfraError if it is unreadable."""
    path = _path(run_id)
    try:
        record = json.loads(path.read_text())
        return Kept(**{field.name: record[field.name] for field in fields(Kept)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise InfraError(
            f"the record of the kept cluster {run_id} cannot be read ({problem}); if it is gone, remove {path}"
        ) from None


def is_on_record(run_id: str) -> bool:
    """True if a record exists, readable or not."""
    return _path(run_id).exists()


def all_kept() -> list[str]:
    """The run ids of all kept clusters on record."""
    return sorted(str(record["run_id"]) for record in _readable())


def known(run_id: str) -> Kept:
    """The record of a kept cluster. Raises SettingsError if none has this id, with the ids that exist; InfraError."""
    record = found(run_id)
    if record is None:
        there = ", ".join(all_kept()) or "none"
        raise SettingsError(f"no kept cluster {run_id!r}; there are: {there} (harness run --keep leaves one)")
    return record


def forget(run_id: str) -> None:
    """Removes the record: the cluster is gone. Idempotent."""
    _path(run_id).unlink(missing_ok=True)


def _readable() -> Iterator[Mapping[str, Any]]:
    for path in _folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(path.read_text())
            if isinstance(record, dict) and {"run_id", "backend"} <= record.keys():
                yield record


def _folder() -> Path:
    folder = cache_dir() / "kept"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _path(run_id: str) -> Path:
    return _folder() / f"{slug(run_id)}.json"
