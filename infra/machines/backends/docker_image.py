# SPDX-License-Identifier: Apache-2.0
"""The image of the nodes at a Docker engine: imported as `infra.machines.image` makes it, or built on another one."""

from __future__ import annotations

import hashlib
import io
from typing import Final

import docker
from docker.errors import APIError, BuildError, ImageNotFound

from infra.machines.api import InfraError
from infra.machines.image import Say, dockerfile, ensure_tar, image_id
from results.cache import exclusive

REPOSITORY: Final = "rocketmq-harness-node"


def ensure_image(client: docker.DockerClient, base: str | None, say: Say) -> str:
    """The node image's name at the engine; imported or built if it is missing. Raises InfraError."""
    if base is not None:
        return _build_on(client, base, say)
    tag = f"{REPOSITORY}:{image_id()}"
    with exclusive(f"import-{image_id()}"):
        if not _has(client, tag):
            tar = ensure_tar(say)
            say(f"image: importing {tag} into the Docker engine")
            client.api.import_image_from_file(str(tar), repository=REPOSITORY, tag=image_id())
            if not _has(client, tag):
                raise InfraError(f"the Docker engine did not import {tar}: see its log")
    return tag


def _build_on(client: docker.DockerClient, base: str, say: Say) -> str:
    recipe = dockerfile(base)
    tag = f"{REPOSITORY}:on-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with exclusive(f"build-{tag.rpartition(':')[2]}"):
        if _has(client, tag):
            return tag
        if not _has(client, base):
            say(f"image: pulling {base}")
            try:
                client.images.pull(base)
            except APIError as e:
                raise InfraError(
                    f"cannot pull --base-image {base}: {e.explanation}; leave it out, and the image is made here"
                ) from e
        say(f"image: building {tag} on top of {base}")
        try:
            # The host's network: the harness' own engine has no bridge that a build could reach a mirror through.
            client.images.build(
                fileobj=io.BytesIO(recipe.encode()), tag=tag, rm=True, forcerm=True, network_mode="host"
            )
        except BuildError as e:
            output = [line.get("stream", "").strip() for line in e.build_log if line.get("stream", "").strip()]
            raise InfraError(
                f"cannot install the node's packages on --base-image {base} (it must be a Debian with openjdk-17): "
                f"{output[-1] if output else e.msg}"
            ) from e
    return tag


def _has(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True
