# SPDX-License-Identifier: Apache-2.0
"""The records of runs on machines that are not this one's, in the cache folder of the control machine.

A record names what `harness clean` needs to find the nodes of a run whose control program was killed. A claim
(`infra.machines.claims`) shows whether that program is alive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.machines.api import InfraError, Leftover
from infra.machines.claims import holder
from results.cache import cache_dir


@dataclass(frozen=True)
class RunRecords:
    """The records of one backend. where: its machines, for messages. fields: of a record, besides `run_id`."""

    backend: str
    where: str
    fields: Sequence[str]

    @property
    def folder(self) -> Path:
        """The folder of all records."""
        folder = cache_dir() / self.backend
        folder.mkdir(exist_ok=True)
        return folder

    def path_of(self, run_id: str) -> Path:
        return self.folder / f"{hashlib.sha256(run_id.encode()).hexdigest()[:16]}.json"

    def claim_of(self, record: Path) -> Path:
        """The path of the claim of the program that made the record."""
        return cache_dir() / "claims" / f"{self.backend}-{record.stem}.owner"

    def write(self, path: Path, run_id: str, **fields: Any) -> None:
        """Writes the whole record or nothing."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"run_id": run_id, **fields}) + "\n")
        fresh.rename(path)

    def read(self, path: Path) -> Mapping[str, Any]:
        """`run_id` and the fields. Raises InfraError if the file is no record."""
        try:
            record = json.loads(path.read_text())
            return {name: record[name] for name in ("run_id", *self.fields)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InfraError(f"{path} is not a record of a run {self.where} ({error}); remove it") from error

    def leftovers(self, what: Callable[[Mapping[str, Any]], str]) -> list[Leftover]:
        """The runs of which a record is left. what: what each of them has left, from its record."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                record = self.read(path)
            except InfraError as problem:
                place = f"the record {path}"
                found.append(Leftover(self.backend, path.stem, place, alive=False, broken=str(problem)))
                continue
            alive = holder(self.claim_of(path)) is not None
            found.append(Leftover(self.backend, record["run_id"], what(record), alive))
        return found
