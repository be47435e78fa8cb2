# SPDX-License-Identifier: Apache-2.0
"""The container that the control program runs in, if it runs in one beside its nodes (docs/container.md).

The engine knows a folder by its path on the engine's machine. Inside a container the same folder has another path, so
what nodes are to mount is translated by the mounts of the own container.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import docker
from docker.errors import NotFound

from infra.machines.api import InfraError

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = re.compile(r"/containers/([0-9a-f]{64})/(?:resolv\.conf|hostname|hosts) /etc/")
"""The files that an engine mounts into each container: root and mount point of a line of proc(5)'s mountinfo."""


class EnginePaths:
    """Paths of this program's files, as the engine finds them."""

    def __init__(self, mounts: Mapping[str, str] | None) -> None:
        """mounts: folder here -> folder on the engine's machine; None: both are the same machine."""
        self._mounts = mounts

    def of(self, path: Path) -> str:
        """The engine's path of a folder of this program. Raises InfraError if the engine cannot see it."""
        here = PurePosixPath(path.resolve())
        if self._mounts is None:
            return str(here)
        for folder in (here, *here.parents):
            if (there := self._mounts.get(str(folder))) is not None:
                return str(PurePosixPath(there) / here.relative_to(folder))
        mounted = ", ".join(sorted(self._mounts)) or "none"
        raise InfraError(
            f"the nodes cannot mount {here}: it is inside the container of the control program; "
            f"use a folder that is mounted from outside ({mounted})"
        )


def engine_paths(client: docker.DockerClient) -> EnginePaths:
    """Returns the paths of this program's files as the engine sees them. Docker's errors pass."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return EnginePaths(None)
    own = own_id(lines)
    if own is None:
        return EnginePaths(None)
    try:
        attrs = client.containers.get(own).attrs
    except NotFound:  # a container of another engine, which this one knows nothing of
        return EnginePaths(None)
    return EnginePaths({m["Destination"]: m["Source"] for m in attrs.get("Mounts", ()) if m.get("Source")})


def own_id(mountinfo: Iterable[str]) -> str | None:
    """The id of the container whose mounts these are; None for a program outside of containers."""
    return next((found[1] for line in mountinfo if (found := _OWN.search(line))), None)
