# SPDX-License-Identifier: Apache-2.0
"""`python -m infra.prepare [TOPOLOGY ...]`: slow set-up that is needed only once, so that a run starts fast.

It starts an engine if none answers (root on Debian only), and prepares the node image, the jars, the register server,
the agent of the mends, and the archives of class data. It is idempotent: a second or two when nothing is missing. It
reports what a machine does not support; this is no error as long as one backend works.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import entry_points

from infra.machines.api import Backend, Capability, InfraError
from infra.machines.backends.docker import DockerBackend
from infra.machines.backends.docker_image import ensure_image
from infra.machines.backends.local import LocalBackend
from infra.machines.engine import connect, engine_answers, start_engine
from infra.machines.image import ensure_rootfs, ensure_tar
from infra.systems import class_data
from infra.systems.api import TOPOLOGIES, ServerSettings, Topology
from infra.systems.mends.apply import build
from results.errors import ExpectedError


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Reports a step when it ends, with its own seconds."""
    began = time.monotonic()
    yield
    say(f"{what} ({time.monotonic() - began:.1f} s)")


def prepare(names: Collection[str] = ()) -> None:
    """Prepares everything for the topologies `names`, or for all. The image is built while jars are fetched.

    Raises InfraError when no backend can work here, or when the servers cannot be fetched or built.
    """
    with ThreadPoolExecutor(1) as beside:
        image = beside.submit(prepare_image)
        topologies = list(prepare_servers(names))
        docker = image.result()
    local = LocalBackend().probe()
    say(f"local: {'available' if local.ok else 'not available: ' + local.reason}")
    if not docker.ok and not local.ok:
        raise InfraError(f"neither docker ({docker.reason}) nor local nodes ({local.reason}) is available here")
    backend: Backend = LocalBackend() if local.ok else DockerBackend()  # one image, so the archives of one do for both
    with step("class data: archived"):
        for topology in topologies:
            class_data.shares(backend, backend.Options(), topology, say)


def prepare_servers(names: Collection[str] = ()) -> Iterator[Topology]:
    """Fetches the jars and builds the servers of each topology, and the agent of the mends; yields the topologies. One
    without published versions has servers of the user's own, of which nothing is known before a run.
    """
    points = sorted(entry_points(group=TOPOLOGIES), key=lambda point: point.name)
    if unknown := sorted(set(names) - {point.name for point in points}):
        raise InfraError(f"no topology {unknown[0]!r}; {', '.join(point.name for point in points)} are right")
    for point in points:
        made = point.load()
        if (not names or point.name in names) and made.known_versions():
            topology: Topology = made(ServerSettings())
            with step(f"{point.name}: jars and server are ready"):
                topology.shares()
            yield topology
    with step("mends: the agent is ready"):
        build()


def prepare_image() -> Capability:
    """Starts an engine if none answers, and builds the node image for it and for local nodes. Returns what docker can
    do here.
    """
    engine = engine_answers()
    if not engine.ok and os.geteuid() == 0 and shutil.which("dockerd"):
        say(f"{engine.reason}; starting an engine of our own (no default bridge)")
        start_engine(say)
        engine = engine_answers()
    if engine.ok:
        with step("docker: node image is ready"):
            ensure_tar(say)
            ensure_image(connect(), None, say)
    else:
        say(f"docker: not here: {engine.reason} {engine.remedy}")
    if os.geteuid() == 0:
        with step("local: root file system is ready"):
            ensure_rootfs(say)
    return engine


if __name__ == "__main__":
    try:
        prepare(sys.argv[1:])
    except ExpectedError as problem:
        print(f"setup: {problem}", file=sys.stderr)
        sys.exit(3)
