# SPDX-License-Identifier: Apache-2.0
"""The agent that applies mends: built, tried on this machine, put on nodes, and checked for its report."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from infra.machines.api import InfraError, Node, SettingsError, Share
from infra.systems.maven import compile_jar, fetch_jars
from infra.systems.mends.catalog import FOLDER, applied, orders
from infra.systems.settings import properties
from results.cache import cache_dir, exclusive

ON_NODE: Final = "/opt/harness/mends"
"""The agent, its library and its orders."""

_SOURCES: Final = FOLDER / "agent"
_LOCK: Final = _SOURCES / "jars-3.30.2.toml"
_JAR: Final = "mends"
_CLIENTS: Final = "-clients"
_TRY_S: Final = 120


class Mended(Protocol):
    """The required properties of a server: its log, its node, and its launch."""

    @property
    def node(self) -> Node: ...

    @property
    def log(self) -> str: ...

    @property
    def mends(self) -> Sequence[int]: ...


def option(folder: str, version: str | None) -> str:
    """The JVM option that loads the agent, with the orders for servers of a version."""
    return f"-javaagent:{folder}/{_JAR}.jar={folder}/{version}.orders"


def client_options(numbers: Iterable[int], version: str, folder: str = ON_NODE) -> Sequence[str]:
    """The JVM options of an application with the client of a version; empty without a mend of clients."""
    mended = any(mend.clients for mend in applied(numbers, version))
    return [option(folder, f"{version}{_CLIENTS}")] if mended else []


def build() -> Path:
    """A folder with the agent and its library, built if missing. Raises InfraError."""
    return compile_jar(_SOURCES, fetch_jars(_SOURCES / "pom.xml", _LOCK), _JAR)


def share(numbers: Sequence[int], versions: Iterable[str]) -> Share:
    """Returns the share that every node needs to start servers, and applications, of these versions with the mends.
    Raises InfraError.
    """
    files = {}
    for version in versions:
        found = applied(numbers, version)
        files[f"{version}.orders"] = properties(orders(found, version))
        files[f"{version}{_CLIENTS}.orders"] = properties(orders([mend for mend in found if mend.clients], version))
    built, library = build(), fetch_jars(_SOURCES / "pom.xml", _LOCK)
    for path in [*built.glob("*.jar"), *library.glob("*.jar")]:
        files[path.name] = path.read_bytes()
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    folder = cache_dir() / "mends" / digest.hexdigest()[:16]
    with exclusive("mends"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if not (folder / name).is_file() or (folder / name).read_bytes() != content:
                (folder / name).write_bytes(content)
    return Share(folder, ON_NODE)


def check(folder: Path, version: str, class_path: Sequence[Path]) -> None:
    """Makes the agent apply its orders here to the jars that servers of a version will have. About 2 s.

    Raises SettingsError with the agent's line if one does not apply.
    """
    jars = ":".join(f"{path}/*" for path in (*class_path, folder))
    argv = ["java", "-XX:TieredStopAtLevel=1", option(str(folder), version), "-cp", jars, "harness.mends.Agent"]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TRY_S)
    except FileNotFoundError:
        raise InfraError("java is not on the path; install a JDK (Debian: openjdk-17-jdk-headless)") from None
    except subprocess.TimeoutExpired:
        raise InfraError(f"java took more than {_TRY_S} s to try the mends: this machine is overloaded") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines() or ["no output"]
        reason = next((line.split(" ", 2)[-1] for line in lines if "mends not applied" in line), lines[-1])
        raise SettingsError(f"servers of version {version}: {reason}")


def require_applied(server: Mended) -> None:
    """Raises InfraError if a running server has not reported each of its mends as applied.

    The agent reports them before the server's own main method, and ends a server if one is not applied. So a server
    that answers has reported them, unless it was started without the agent.
    """
    if not server.mends:
        return
    told = server.node.run(["grep", "-a", " mend [0-9]* applied to ", "--", server.log], check=False).text
    words = {tuple(line.split()[2:5]) for line in told.splitlines()}
    for number in server.mends:
        if ("mend", str(number), "applied") not in words:
            raise InfraError(f"{server}: mend {number} was not applied; its log: {server.log}")
