"""Clusters that outlive the run that made them (`--keep`), and how a later run finds its way back in (`--reuse`).

A record in the cache folder, readable by its user alone, holds what the control program knew of a cluster: addresses,
keys, and a note of the caller's. It is written when the cluster is kept and removed with the cluster.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from infra.api import InfraError
from infra.backends.owned import slug
from infra.cache import cache_dir, exclusive
from infra.keys import ClusterKeys, KeyPair
from infra.ownership import current, text_is_alive


@dataclass(frozen=True)
class Kept:
    """What is known of a kept cluster.

    client, hosts  private keys as text: ours, and each node's own.
    note           the caller's, unread here (the plan it was made for).
    user           the process that uses it now, as `infra.ownership.Owner`; empty when nobody does.
    """

    backend: str
    run_id: str
    addresses: Mapping[str, str]
    client: str
    hosts: Mapping[str, Sequence[str]]
    facts: Mapping[str, str]
    note: str
    user: str = ""

    @property
    def in_use(self) -> bool:
        return bool(self.user) and text_is_alive(self.user)

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
    """Write the record; mode 0600."""
    path = _path(kept.run_id)
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(kept)))
    draft.rename(path)


def found(run_id: str) -> Kept | None:
    """The record of a kept cluster, or None. Raises InfraError where it cannot be read."""
    try:
        return Kept(**json.loads(_path(run_id).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as problem:
        raise InfraError(f"the record of the kept cluster {run_id} cannot be read: {problem}") from None


def all_kept() -> list[str]:
    """The run ids of all kept clusters."""
    names = []
    for path in _folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            names.append(str(json.loads(path.read_text())["run_id"]))
    return sorted(names)


def take(run_id: str) -> Kept:
    """The cluster is ours to use until this process ends. Raises InfraError where there is none, or another uses it."""
    with exclusive("kept"):
        kept = found(run_id)
        if kept is None:
            there = ", ".join(all_kept()) or "none"
            raise InfraError(f"no kept cluster {run_id!r}; there are: {there} (harness run --keep leaves one)")
        if kept.in_use:
            raise InfraError(f"the kept cluster {run_id} is in use by process {kept.user.partition('.')[0]}")
        kept = replace(kept, user=str(current()))
        save(kept)
        return kept


def forget(run_id: str) -> None:
    """The cluster is gone. Idempotent."""
    _path(run_id).unlink(missing_ok=True)


def _folder() -> Path:
    folder = cache_dir() / "kept"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _path(run_id: str) -> Path:
    return _folder() / f"{slug(run_id)}.json"
