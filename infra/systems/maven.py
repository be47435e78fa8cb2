# SPDX-License-Identifier: Apache-2.0
"""Java artifacts: fetched by Maven into the cache, pinned by checksums; the harness' own sources compiled beside them.

Maven's own settings (mirrors, proxies, credentials) decide where the jars come from; this module names no host.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError
from results.cache import cache_dir, exclusive

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_RELEASE: Final = 8
"""The byte code's Java: DLedger's own, so that nodes may run any JDK from 8 on."""

_FETCH_TIMEOUT_S: Final = 600
_COMPILE_TIMEOUT_S: Final = 120


def read_lock(path: Path) -> dict[str, str]:
    """Name of the jar -> SHA-256 in hex, from the table `sha256` of a TOML file."""
    try:
        lock = tomllib.loads(path.read_text())["sha256"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as e:
        raise InfraError(f"{path}: not a readable list of checksums ({e})") from None
    for name, checksum in lock.items():
        if not (name.endswith(".jar") and isinstance(checksum, str) and re.fullmatch("[0-9a-f]{64}", checksum)):
            raise InfraError(f'{path}: want \'"NAME.jar" = "SHA-256 in hex"\', got {name!r} = {checksum!r}')
    return dict(lock)


def verify(folder: Path, lock: Mapping[str, str]) -> None:
    """Checks for exactly the jars of the lock, byte for byte. Raises InfraError that names the first wrong jar."""
    found = {path.name: path for path in folder.glob("*.jar")}
    if missing := sorted(lock.keys() - found.keys()):
        raise InfraError(f"{folder}: {missing[0]} is missing, but the lock file names it")
    if extra := sorted(found.keys() - lock.keys()):
        raise InfraError(f"{folder}: {extra[0]} is not in the lock file")
    for name, path in sorted(found.items()):
        actual = checksum_of(path)
        if actual != lock[name]:
            raise InfraError(f"{path}: SHA-256 is {actual}, the lock file says {lock[name]}; not used")


def checksum_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_jars(pom: Path, lock_file: Path, defined: Mapping[str, str] | None = None) -> Path:
    """The folder of all run-time jars of a POM, fetched if missing, checked against the lock every time.

    `defined`: properties that the POM leaves open (a version, say); the lock file must go with them. About 15 s and
    33 MB when cold for DLedger, a tenth of a second when cached. Raises InfraError (one line).
    """
    lock = read_lock(lock_file)
    digest = hashlib.sha256(pom.read_bytes() + lock_file.read_bytes()).hexdigest()[:16]
    folder = cache_dir() / "maven" / f"{pom.parent.name}-{lock_file.stem}-{digest}"
    with exclusive("maven"):
        if folder.is_dir():
            try:
                verify(folder, lock)
                return folder
            except InfraError as damage:
                raise InfraError(f"{damage}; remove {folder} to fetch it again") from None
        with fresh(folder) as making:
            _run_maven(pom, making, defined or {})
            verify(making, lock)
            making.rename(folder)
    return folder


def compile_jar(sources: Path, class_path: Path, name: str, more: Sequence[Path] = ()) -> Path:
    """A folder that holds `name`.jar, compiled from all sources of a folder; cached by their content.

    `class_path` and `more` are folders of jars. A `MANIFEST.MF` beside the sources becomes the jar's. Raises
    InfraError with javac's first error.
    """
    files = sorted(sources.glob("*.java"))
    if not files:
        raise InfraError(f"{sources}: no Java sources there; the installation is incomplete")
    folders = [*more, class_path]
    digest = hashlib.sha256(" ".join([str(_RELEASE), *(each.name for each in folders)]).encode())
    manifest = sources / "MANIFEST.MF"
    for file in [*files, *([manifest] if manifest.exists() else [])]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    folder = cache_dir() / "java" / f"{name}-{digest.hexdigest()[:16]}"
    with exclusive("java"):
        if not folder.is_dir():
            with fresh(folder) as making:
                _compile(files, folders, making, name)
                making.rename(folder)
    return folder


def _compile(files: Sequence[Path], class_path: Sequence[Path], into: Path, name: str) -> None:
    """Compiles and packs. `jar` comes with every JDK that has `javac`."""
    javac = _tool("javac", "a JDK (Debian: openjdk-17-jdk-headless)")
    jar = _tool("jar", "a JDK (Debian: openjdk-17-jdk-headless)")
    classes = into / "classes"
    argv = [javac, "--release", str(_RELEASE), "-Xlint:-options", "-encoding", "UTF-8"]
    argv += ["-cp", ":".join(f"{folder}/*" for folder in class_path), "-d", str(classes), *map(str, files)]
    _run(argv, _COMPILE_TIMEOUT_S, "javac", "error:")
    manifest = files[0].parent / "MANIFEST.MF"
    argv = [jar, "--create", "--file", str(into / f"{name}.jar")]
    argv += ["--manifest", str(manifest)] if manifest.exists() else []
    _run([*argv, "-C", str(classes), "."], _COMPILE_TIMEOUT_S, "jar", "")
    shutil.rmtree(classes)


def _run_maven(pom: Path, into: Path, defined: Mapping[str, str]) -> None:
    maven = _tool("mvn", "Maven (Debian: maven)")
    argv = [maven, "-B", "-q", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    argv += [f"-D{name}={value}" for name, value in defined.items()]
    _run(argv, _FETCH_TIMEOUT_S, "Maven", "[ERROR]")


def _run(argv: Sequence[str], timeout_s: float, what: str, mark: str) -> None:
    """Runs a command to its end. On failure: InfraError with the first line with `mark`; all output in the cache."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{what} did not end within {timeout_s:.0f} s: {' '.join(argv)[:200]}") from None
    if done.returncode == 0:
        return
    text = done.stdout.decode(errors="replace")
    log = cache_dir() / f"{what.lower()}.log"
    log.write_text(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    output = next((line for line in lines if mark in line), lines[-1] if lines else "no output")
    raise InfraError(f"{what} ended with {done.returncode}: {output[:300]} (all of it: {log})")


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InfraError(f"{name} is not on the path; install {package}")
    return found


class fresh:
    """A new folder beside `target`, to be renamed to it when it is whole; gone if that does not happen."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Path:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._made = Path(tempfile.mkdtemp(prefix=f".{self._target.name}-", dir=self._target.parent))
        os.chmod(self._made, 0o755)
        return self._made

    def __exit__(self, *_: object) -> None:
        if self._made.exists():
            shutil.rmtree(self._made, ignore_errors=True)
