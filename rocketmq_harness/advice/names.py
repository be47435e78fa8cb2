# SPDX-License-Identifier: Apache-2.0
"""The names of all settings that servers of each pinned version read: `settings.toml` beside this file.

    python -m rocketmq_harness.advice.names      # makes the file, from the pinned jars

A server takes a setting if a class that it fills from its file has a setter of this name (`MixAll.properties2Object`).
It ignores all other names without a word.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from infra.systems.rocketmq.servers import artifacts
from results.durable import write_text
from results.reading import read_toml

DATA: Final = Path(__file__).with_name("settings.toml")

_NETTY: Final = (
    "org/apache/rocketmq/remoting/netty/NettyServerConfig",
    "org/apache/rocketmq/remoting/netty/NettyClientConfig",
)
_CLASSES: Final[Mapping[str, Sequence[str]]] = {
    "namesrv": ("org/apache/rocketmq/common/namesrv/NamesrvConfig", *_NETTY),
    "controller": ("org/apache/rocketmq/common/ControllerConfig", "org/apache/rocketmq/common/JraftConfig", *_NETTY),
    "broker": (
        "org/apache/rocketmq/common/BrokerConfig",
        "org/apache/rocketmq/common/BrokerIdentity",
        "org/apache/rocketmq/store/config/MessageStoreConfig",
        "org/apache/rocketmq/auth/config/AuthConfig",
        *_NETTY,
    ),
}
"""Kind of server -> the classes that its start fills, and their parents; see `artifacts.CONFIGS`."""

_ELSEWHERE: Final[Mapping[str, Collection[str]]] = {
    "broker": ("rmqAddressServerDomain", "rmqAddressServerSubGroup"),
}
"""Settings that a start reads without such a class (`BrokerStartup.properties2SystemEnv`)."""

_OBJECTS: Final = (b"jraftConfig",)
"""Fields whose setters take no text and no number."""

_SETTER: Final = re.compile(rb"\x01(..)set[A-Za-z]", re.DOTALL)
"""A text in a class file's constant pool (The Java Virtual Machine Specification, 4.4.7): 1, its length, its bytes."""


def versions_of(kind: str) -> Mapping[str, Sequence[str]]:
    """Name of a setting -> the versions whose servers of this kind read it."""
    return _read()[kind]


def known(kind: str, version: str) -> frozenset[str]:
    """The names that servers of a kind and version read."""
    return frozenset(name for name, versions in versions_of(kind).items() if version in versions)


def nearest(name: str, among: Collection[str]) -> str | None:
    """The most similar name, without regard to case, or None if none is similar."""
    best, least = None, max(2, len(name) // 4) + 1
    for other in sorted(among):
        if abs(len(other) - len(name)) < least and (far := _distance(name.lower(), other.lower())) < least:
            best, least = other, far
    return best


def _distance(first: str, second: str) -> int:
    """Characters to insert, remove or change (Levenshtein)."""
    before = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        now = [i]
        for j, b in enumerate(second, 1):
            now.append(min(before[j - 1] + (a != b), before[j] + 1, now[j - 1] + 1))
        before = now
    return before[-1]


@cache
def _read() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return {
        kind: {name: versions.split() for versions, names in groups.items() for name in names}
        for kind, groups in read_toml(DATA).items()
    }


def names_in(folder: Path, kind: str) -> set[str]:
    """The names that the jars of a folder have for a kind of server."""
    found = set(_ELSEWHERE.get(kind, ()))
    wanted = {f"{name}.class" for name in _CLASSES[kind]}
    for jar in sorted(folder.glob("rocketmq-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for member in wanted.intersection(archive.namelist()):
                found.update(_of_class(archive.read(member)))
    return found


def _of_class(data: bytes) -> Iterator[str]:
    """The names of the fields of a class that have a setter."""
    for match in _SETTER.finditer(data):
        at, size = match.start() + 3, int.from_bytes(match[1], "big")
        setter = data[at : at + size]
        if not re.fullmatch(rb"set\w+", setter):
            continue
        name = setter[3:4].lower() + setter[4:]
        for field in (name, setter[3:]) if name not in _OBJECTS else ():
            if b"\x01" + len(field).to_bytes(2, "big") + field in data:
                yield name.decode()
                break


def made() -> str:
    """The text of the file, from the pinned jars, which are fetched where they are missing."""
    lines = ["# SPDX-License-Identifier: Apache-2.0"]
    lines.append("# Made by `python -m rocketmq_harness.advice.names`. Versions, and the")
    lines.append("# settings that the servers of exactly these versions read.")
    folders = {version: artifacts.fetch(version) for version in artifacts.VERSIONS}
    for kind in _CLASSES:
        read = {version: names_in(folder, kind) for version, folder in folders.items()}
        groups: dict[str, list[str]] = {}
        for name in sorted(set().union(*read.values())):
            groups.setdefault(" ".join(v for v in artifacts.VERSIONS if name in read[v]), []).append(name)
        lines += ["", f"[{kind}]"]
        for versions in sorted(groups, key=lambda text: (-len(text), text)):
            lines += [f'"{versions}" = [', *(f'    "{name}",' for name in groups[versions]), "]"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(DATA, made(), "the names of settings")
