# SPDX-License-Identifier: Apache-2.0
"""The docker backend. Its work at the engine is in `infra.machines.backends.containers`, which is imported when it is
used: the Docker SDK loads slowly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from infra.machines.api import Capability, Cluster, ClusterSpec, Leftover
from infra.machines.backends.made import MakesMachines
from infra.machines.engine import engine_answers
from infra.machines.image import image_build
from infra.options import cut, option

_IMAGE: Final = re.compile(
    r"(?:[a-zA-Z0-9][\w.-]{0,250}:\d{1,5}/)?[a-zA-Z0-9][\w./-]{0,250}(?::\w[\w.-]{0,127})?(?:@\w+:[0-9a-f]{32,128})?"
)
"""Name of an image (distribution/reference): `debian`, `debian:12`, `host:5000/team/debian:12@sha256:...`."""


@dataclass(frozen=True)
class DockerOptions:
    """The options of the backend."""

    base_image: str | None = option(None, "Build the node image on top of this one (a Debian with openjdk-17).")

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.base_image is not None and not _IMAGE.fullmatch(self.base_image):
            raise ValueError(
                f"base_image is {cut(self.base_image)}; NAME[:TAG] of an image is right, such as debian:12"
            )


class DockerBackend(MakesMachines):
    """Five nodes in one to three seconds; needs a Docker engine on this machine. See `infra.machines.api.Backend`."""

    name = "docker"
    Options: ClassVar[type] = DockerOptions
    auto_rank: ClassVar[int | None] = 1

    def image(self, options: DockerOptions | None) -> str | None:
        """See `infra.machines.api.Imaged`."""
        return None if options is not None and options.base_image is not None else image_build()

    def probe(self) -> Capability:
        return engine_answers()

    def provision(self, spec: ClusterSpec) -> Cluster:
        from infra.machines.backends import containers

        return containers.provision(spec)

    def reuse(self, spec: ClusterSpec) -> Cluster:
        from infra.machines.backends import containers

        return containers.reuse(spec)

    def leftovers(self) -> list[Leftover]:
        """Raises InfraError if an engine that may hold parts of the harness does not answer."""
        from infra.machines.backends import containers

        return containers.leftovers()

    def clean(self, run_id: str) -> None:
        from infra.machines.backends import containers

        containers.clean(run_id)

    def load(self) -> None:
        """Imports the engine's SDK, for `sweep`."""
        from infra.machines.backends import containers  # noqa: F401

    def sweep(self, run_id: str) -> int:
        """Removes everything of a run without a question, and returns the number of things found."""
        from infra.machines.backends import containers

        return containers.sweep(run_id)
