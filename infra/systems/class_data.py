# SPDX-License-Identifier: Apache-2.0
"""Archives of class data: a JVM maps the classes of a server into memory, and neither parses nor verifies them again.

These are the dynamic archives of JDK 13 and later (JEP 350). A JVM that was started with `-XX:ArchiveClassesAtExit`
writes one when it ends; `-XX:SharedArchiveFile` uses it. An archive holds for one build of the JVM, and for a class
path that begins with the jars of the dump: the same paths, sizes and times. So it is made on a node: a rehearsal starts
each server of a version once, on a cluster of one node, and ends it in an orderly way.

Without an archive (existing machines, a user's jars, a failed rehearsal), servers start all the same. A JVM that cannot
use an archive also starts without it, silently. It dies of an archive that is cut off (SIGBUS): the cache has a
checksum of each.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from infra.machines.api import Backend, ClusterSpec, Imaged, InfraError, Node, Share
from infra.systems.api import TOPOLOGIES, Launch, LaunchRule, ServerSettings, Topology
from infra.systems.maven import checksum_of, fresh
from results.cache import cache_dir, exclusive

ON_NODE: Final = "/opt/harness/class-data"
"""The folder of `VERSION/KIND.jsa` on a node."""

_DUMPED: Final = "/var/lib/harness/class-data"
"""The folder in which the node of a rehearsal writes them."""

_RECIPE: Final = 1
"""Raise it when a rehearsal changes in a way that the other inputs of the key do not show."""

_SUMS: Final = "sha256.json"
_END_S: Final = 120
_LIMIT: Final = 1 << 30
"""Bytes of one archive; a broker's has 37 MB."""

_PROGRAMS: Final = "/var/lib/harness/class-data-of-programs"
"""The folder of a node with the archives of programs that are no servers."""

_STATS: Final = (
    'java=$(readlink -f "$(command -v java)") && home=${java%/bin/java} && '
    'stat -L -c "%n %s %Y" -- "$java" "$home/lib/modules" "$home/lib/server/libjvm.so" "$@"'
)
"""Shell: what a JVM compares before it takes an archive."""

_REHEARSED_S: Final = 90
"""The longest rehearsal of a program. One of a client takes 8 s on a machine that is busy."""

_KEPT: Final = 4
"""So many archives of a program stay in the cache; each has 20 MB."""

_QUIET: Final = "-Xlog:cds*=off"
"""Without it, a JVM that cannot use an archive reports that in the server's log."""


@dataclass(frozen=True)
class Rehearsal:
    """Servers that are started once to archive their classes.

    topology  its name, as an entry point of `infra.systems.api.TOPOLOGIES`. settings: without rules and user's jars.
    """

    topology: str
    version: str
    settings: ServerSettings


@runtime_checkable
class Rehearsed(Protocol):
    """A topology whose servers use archives of class data."""

    def rehearsals(self) -> Sequence[Rehearsal]:
        """One rehearsal for each version of its servers for which an archive is of use."""


def archive(version: str | None, kind: str) -> str:
    """The path of the archive of a kind of server on the nodes, if they have it."""
    return f"{ON_NODE}/{version}/{kind}.jsa"


def archives_on(node: Node) -> frozenset[str]:
    """The archives that a node has; none on existing machines."""
    found = node.run(["find", ON_NODE, "-name", "*.jsa"], check=False)
    return frozenset(found.text.split())


def use(path: str) -> list[str]:
    """The JVM options that use an archive."""
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={path}", _QUIET]


def shares(backend: Backend, options: Any, topology: Topology, say: Callable[[str], None]) -> list[Share]:
    """The archives for the servers of a topology on nodes of a backend; made if they are not in the cache.

    `options`: the backend's. Half a minute for each new version, a quarter of a second otherwise. If that fails, one
    line reports the reason, and the servers start without.
    """
    image = backend.image(options) if isinstance(backend, Imaged) else None
    if image is None or not isinstance(topology, Rehearsed):
        return []
    found = []
    for rehearsal in topology.rehearsals():
        try:
            folder = _ensure(rehearsal, image, backend, options, say)
        except (InfraError, OSError) as problem:  # a full disk, say
            say(f"no archives of class data, servers of version {rehearsal.version} start without: {problem}")
            continue
        found.append(Share(folder, f"{ON_NODE}/{rehearsal.version}"))
    return found


def _ensure(rehearsal: Rehearsal, image: str, backend: Backend, options: Any, say: Callable[[str], None]) -> Path:
    """The folder in the cache. Raises InfraError if the rehearsal fails."""
    (point,) = entry_points(group=TOPOLOGIES, name=rehearsal.topology)
    plays = point.load()
    topology: Topology = plays(replace(rehearsal.settings, rules=_dump_rules(plays.kinds)))
    jars = topology.shares()
    folder = cache_dir() / "class-data" / f"{rehearsal.topology}-{rehearsal.version}-{_key(image, jars)}"
    with exclusive("class-data"):
        if _whole(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        say(
            f"archiving the class data of {rehearsal.topology} {rehearsal.version}: "
            "half a minute, once; servers start faster then"
        )
        with fresh(folder) as making:
            _rehearse(topology, ClusterSpec(f"cds{time.time_ns():x}", 1, jars, options=options), backend, making)
            sums = {path.name: checksum_of(path) for path in sorted(making.iterdir())}
            (making / _SUMS).write_text(json.dumps(sums, indent=1))
            making.rename(folder)
    return folder


def _key(image: str, jars: Sequence[Share]) -> str:
    """The key of an archive: it covers all inputs that decide if a JVM takes it."""
    digest = hashlib.sha256(f"{_RECIPE} {image}\n".encode())
    for share in jars:
        for jar in sorted(share.source.glob("*.jar")):
            about = jar.stat()
            digest.update(f"{share.path}/{jar.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _whole(folder: Path) -> bool:
    """True if the archives in a folder are those that were written there, byte for byte."""
    try:
        sums = json.loads((folder / _SUMS).read_text())
        return bool(sums) and all(checksum_of(folder / name) == sums[name] for name in sums)
    except (OSError, ValueError, TypeError):
        return False


def _rehearse(topology: Topology, spec: ClusterSpec, backend: Backend, into: Path) -> None:
    """Starts the servers of a topology on one node until they serve, ends them, and fetches the files of their JVMs."""
    cluster = backend.provision(spec)
    try:
        (node,) = cluster.nodes
        topology.attach(cluster)
        node.run(["mkdir", "-p", _DUMPED])
        topology.start_all()
        servers = topology.servers(node)
        # At once: each waits for seconds in its orderly end, and for the others in vain. What counts is what it loaded.
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(lambda server: server.stop(_END_S), servers))
        written = {path.name for path in node.fetch(_DUMPED, into, _LIMIT)}
    finally:
        cluster.destroy()
    for server in servers:
        if f"{server.kind}.jsa" not in written:
            raise InfraError(f"the JVM of the {server.kind} wrote no archive when it ended")


def _dump_rules(kinds: Collection[str]) -> list[LaunchRule]:
    """Rules that make each kind of server write its archive when it ends."""
    return [
        LaunchRule(Launch(jvm_options=[f"-XX:ArchiveClassesAtExit={_DUMPED}/{kind}.jsa", _QUIET]), kinds=[kind])
        for kind in kinds
    ]


def of_program(node: Node, name: str, options: Sequence[str], path: Sequence[str], main: str, commands: str) -> str:
    """Puts the archive of a Java program on a node, and returns its path there. If the cache has none for this JVM and
    these jars (with their times), the node makes it: the program gets `commands` on stdin, and ends with them.

    name  of its archives in the cache. options: its JVM options. path: its jars on the node. main: its main class.
    Raises InfraError: the node has no Java or lacks a jar, or the program wrote no archive.
    """
    argv = [*options, "-cp", ":".join(path), main]
    stats = node.run(["sh", "-c", _STATS, "stats", *path]).text
    key = hashlib.sha256("\n".join([str(_RECIPE), *argv, commands, stats]).encode()).hexdigest()[:16]
    there = f"{_PROGRAMS}/{name}.{key}.jsa"
    if node.run(["test", "-f", there], check=False).code == 0:
        return there
    folder = cache_dir() / "class-data" / f"{name}.{key}"
    archive = folder / "program.jsa"
    with exclusive("class-data"):
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            dumped = f"{_DUMPED}/{name}.{key}.jsa"
            dump = ["java", f"-XX:ArchiveClassesAtExit={dumped}", _QUIET, *argv]
            node.run(["mkdir", "-p", _DUMPED])
            node.run(["timeout", str(_REHEARSED_S - 10), *dump], stdin=commands.encode(), timeout_s=_REHEARSED_S)
            made = node.read(dumped, _LIMIT)
            node.run(["rm", "--", dumped])
            with fresh(folder) as making:
                (making / archive.name).write_bytes(made)
                (making / _SUMS).write_text(json.dumps({archive.name: checksum_of(making / archive.name)}))
                making.rename(folder)
            _forget(name)
    node.run(["sh", "-c", 'rm -f -- "$1".*.jsa', "rm", f"{_PROGRAMS}/{name}"])  # of a kept cluster, before a change
    node.write(there, archive.read_bytes())
    return there


def _forget(name: str) -> None:
    """Removes the oldest archives of a program from the cache."""
    found = sorted((cache_dir() / "class-data").glob(f"{name}.*"), key=lambda folder: folder.stat().st_mtime)
    for folder in found[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
