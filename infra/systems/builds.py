# SPDX-License-Identifier: Apache-2.0
"""A user's own jars as a separate version: the classes in which they differ from the published jars.

The comparison is by the behaviour of classes (`infra.systems.class_files`): the same source, compiled by another JDK,
counts as unchanged, except parts that compilers translate differently, such as `try` with resources.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from infra.machines.api import SettingsError
from infra.systems.class_files import digest
from results.cache import cache_dir, exclusive
from results.durable import write_text
from results.reading import read_json

_OWN: Final = ("org/apache/rocketmq/", "io/openmessaging/")
"""Packages of the systems under test. All others are libraries."""
_SHOWN: Final = 5
_ENTRY_LIMIT: Final = 16 << 20
_FORMAT: Final = "1"
"""Part of the cache's key: raise it when the comparison changes."""


@dataclass(frozen=True)
class Build:
    """Own jars, compared with the published ones of a version.

    version    of the published jars.
    changed    classes of the systems under test that differ, with their packages, without inner classes.
    added      classes that the published jars do not have.
    libraries  own jars of libraries that differ from the published ones.
    asked      the version as the user names it, if that is another one.
    """

    version: str
    changed: Sequence[str] = ()
    added: Sequence[str] = ()
    libraries: Sequence[str] = ()
    asked: str = ""

    def describe(self) -> str:
        """`5.5.0 + 3 changed classes (AutoSwitchHAService, ReplicasManager, HAConnection)`."""
        parts = [_many(self.changed, "changed class", "changed classes")] if self.changed else []
        parts += [_many(self.added, "new class", "new classes")] if self.added else []
        parts += [_many(self.libraries, "other library", "other libraries")] if self.libraries else []
        head = f"{self.asked} (beside {self.version})" if self.asked else self.version
        return f"{head} + {', '.join(parts) or 'own jars without a changed class'}"


def _many(names: Sequence[str], one: str, several: str) -> str:
    shown = [name.rpartition(".")[2] if not name.endswith(".jar") else name for name in names[:_SHOWN]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {one if len(names) == 1 else several} ({', '.join(shown)}{more})"


def compare(own: Sequence[Path], published: Path | Sequence[Path], version: str) -> Build:
    """Compares folders of own jars (the first wins) with a folder of published ones, or with several folders of another
    build. Raises SettingsError for a file that is no jar. Takes up to 20 s if thousands of classes differ; results are
    kept.
    """
    before = [published] if isinstance(published, Path) else list(published)
    kept = cache_dir() / "builds" / f"{_key(own, before, version)}.json"
    with exclusive("builds"):
        try:
            found = read_json(kept)
            names = {key: tuple(found[key]) for key in ("changed", "added", "libraries")}
            return Build(version, names["changed"], names["added"], names["libraries"])
        except (OSError, ValueError, KeyError, TypeError):
            made = _compare(own, before, version)
            kept.parent.mkdir(exist_ok=True)
            write_text(kept, json.dumps(asdict(made)), "the comparison of own jars")
            return made


def _key(own: Sequence[Path], before: Sequence[Path], version: str) -> str:
    """The key of the cache, by names, sizes and times of change, as in `infra.systems.passed`."""
    found = hashlib.sha256(f"{_FORMAT} {version} {len(own)}\n".encode())
    for folder in (*own, *before):
        for path in sorted(path for path in folder.glob("*.jar") if path.exists()):
            status = path.stat()
            found.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()[:32]


@dataclass(frozen=True)
class _Entry:
    """A class in a jar."""

    jar: Path
    info: zipfile.ZipInfo

    def differs(self, other: _Entry) -> bool:
        """True if the classes differ in behaviour."""
        if (self.info.CRC, self.info.file_size) == (other.info.CRC, other.info.file_size):
            return False
        if not self.info.filename.startswith(_OWN):
            return True
        try:
            return digest(self._read()) != digest(other._read())
        except ValueError:
            return True

    def _read(self) -> bytes:
        if self.info.file_size > _ENTRY_LIMIT:
            raise ValueError("too large for a class")
        try:
            with zipfile.ZipFile(self.jar) as archive:
                return archive.read(self.info)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as problem:
            raise SettingsError(f"{self.jar}: {self.info.filename} cannot be read: {problem}") from None


def _compare(own: Sequence[Path], published: Sequence[Path], version: str) -> Build:
    before = _classes(published)
    changed: set[str] = set()
    added: set[str] = set()
    libraries: set[str] = set()
    for name, entry in _classes(own).items():
        old = before.get(name)
        if old is not None and not entry.differs(old):
            continue
        if not name.startswith(_OWN):
            libraries.add(entry.jar.name)
        else:
            (added if old is None else changed).add(_outermost(name))
    return Build(version, tuple(sorted(changed)), tuple(sorted(added - changed)), tuple(sorted(libraries)))


def _outermost(name: str) -> str:
    """`org/x/A$B.class` -> `org.x.A`."""
    return name.removesuffix(".class").partition("$")[0].replace("/", ".")


def _classes(folders: Sequence[Path]) -> Mapping[str, _Entry]:
    found: dict[str, _Entry] = {}
    for jar in (jar for folder in folders for jar in sorted(folder.glob("*.jar"))):
        for info in _entries(jar):
            found.setdefault(info.filename, _Entry(jar, info))
    return found


def _entries(jar: Path) -> Iterator[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(jar) as archive:
            yield from (
                info
                for info in archive.infolist()
                if info.filename.endswith(".class") and not info.filename.startswith("META-INF/")
            )
    except (OSError, zipfile.BadZipFile) as problem:
        raise SettingsError(f"--server-jars: {jar} is no jar: {problem}") from None
