# SPDX-License-Identifier: Apache-2.0
"""The records of runs on existing machines, in the cache folder of the control machine.

A record names the hosts of a run and the key to them, so that `harness clean` finds them when the control program was
killed. A claim (`infra.machines.claims`) shows whether that program is alive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from infra.machines.api import InfraError
from results.cache import cache_dir


def records() -> Path:
    """The folder of all records."""
    folder = cache_dir() / "ssh"
    folder.mkdir(exist_ok=True)
    return folder


def path_of(run_id: str) -> Path:
    return records() / f"{hashlib.sha256(run_id.encode()).hexdigest()[:16]}.json"


def claim_of(record: Path) -> Path:
    """The path of the claim of the program that made the record."""
    return cache_dir() / "claims" / f"ssh-{record.stem}.owner"


def write(path: Path, run_id: str, hosts: Iterable[object], key: Path) -> None:
    """Writes the whole record or nothing. `hosts`: each reads as `user@host:port`. `key`: the private key file."""
    record = {"run_id": run_id, "hosts": [str(host) for host in hosts], "ssh_key": str(key)}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record) + "\n")
    fresh.rename(path)


def read(path: Path) -> Mapping[str, Any]:
    """run_id, hosts, ssh_key. Raises InfraError if the file is no record."""
    try:
        record: Mapping[str, Any] = json.loads(path.read_text())
        return {name: record[name] for name in ("run_id", "hosts", "ssh_key")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InfraError(f"{path} is not a record of a run on existing machines ({error}); remove it") from error
