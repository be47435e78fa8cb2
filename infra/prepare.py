"""`python -m infra.prepare`: slow set-up that is needed only once, so that a run starts fast.

It starts an engine if none answers (root on Debian only), and prepares the node image, the jars, the register server,
the agent of the mends, and the archives of class data. It is idempotent: a second or two when nothing is missing. It
reports what a machine does not support; this is no error as long as one backend works.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from importlib.metadata import entry_points

from infra.machines.api import Backend, InfraError
from infra.machines.backends.docker import DockerBackend
from infra.machines.backends.docker_image import ensure_image
from infra.machines.backends.local import LocalBackend
from infra.machines.engine import connect, engine_answers, start_engine
from infra.machines.image import ensure_rootfs, ensure_tar
from infra.systems import class_data
from infra.systems.api import TOPOLOGIES, ServerSettings
from infra.systems.mends.apply import build
from results.errors import ExpectedError


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def prepare() -> None:
    """Prepares all. Raises InfraError if no backend works here, or if the servers cannot be fetched or built."""
    began = time.monotonic()
    topologies = []
    for point in sorted(entry_points(group=TOPOLOGIES), key=lambda point: point.name):
        topologies.append(point.load()(ServerSettings()))
        topologies[-1].shares()
        say(f"{point.name}: jars and server are ready ({time.monotonic() - began:.1f} s)")
    build()
    say(f"mends: the agent is ready ({time.monotonic() - began:.1f} s)")
    engine = engine_answers()
    if not engine.ok and os.geteuid() == 0 and shutil.which("dockerd"):
        say(f"{engine.reason}; starting an engine of our own (no default bridge)")
        start_engine(say)
        engine = engine_answers()
    if engine.ok:
        ensure_tar(say)
        ensure_image(connect(), None, say)
        say(f"docker: node image is ready ({time.monotonic() - began:.1f} s)")
    else:
        say(f"docker: not here: {engine.reason} {engine.remedy}")
    if os.geteuid() == 0:
        ensure_rootfs(say)
    local = LocalBackend().probe()
    say(f"local: {'available' if local.ok else 'not available: ' + local.reason} ({time.monotonic() - began:.1f} s)")
    if not engine.ok and not local.ok:
        raise InfraError(f"neither docker ({engine.reason}) nor local nodes ({local.reason}) is available here")
    backend: Backend = LocalBackend() if local.ok else DockerBackend()  # one image, so the archives of one do for both
    for topology in topologies:
        class_data.shares(backend, backend.Options(), topology, say)
    say(f"class data: archived ({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    try:
        prepare()
    except ExpectedError as problem:
        print(f"setup: {problem}", file=sys.stderr)
        sys.exit(3)
