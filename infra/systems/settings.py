# SPDX-License-Identifier: Apache-2.0
"""Server settings: those of the harness with their reasons, those of the user, and the files that contain them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.machines.api import SettingsError


@dataclass(frozen=True)
class Default:
    """A setting whose default in the harness differs from the server's, and the reason.

    needed  a small machine, the mode or a judge cannot do without it. All others make runs short, or safe.
    """

    value: str
    why: str
    needed: bool = False


def values(defaults: Mapping[str, Default]) -> dict[str, str]:
    """The settings without their reasons."""
    return {name: default.value for name, default in defaults.items()}


def chosen(
    settings: Mapping[str, str], kinds: Sequence[str], ours: Mapping[str, Collection[str]], called: str
) -> dict[str, dict[str, str]]:
    """Kind of server -> the user's settings for it, from `KIND.NAME` -> value.

    ours    kind -> names that the topology itself decides. called: the origin of these names, for the message.
    Raises SettingsError for an invalid setting, and for all at once that the topology decides. The server itself
    decides if it has a setting.
    """
    found: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    reserved = [key for key in settings if key.partition(".")[2] in ours.get(key.partition(".")[0], ())]
    if len(reserved) > 1:
        listed = ", ".join(map(repr, reserved))
        raise SettingsError(f"settings {listed} are the harness's own to decide; leave them out")
    for key, value in settings.items():
        kind, _, name = key.partition(".")
        if kind not in found or not name:
            prefixes = " or ".join(f"{kind}.NAME" for kind in kinds)
            raise SettingsError(f"setting {key!r}: settings of this topology are called {prefixes}, as {called}")
        if name in ours.get(kind, ()):
            raise SettingsError(f"setting {key!r} is the harness's own to decide; leave it out")
        if "\n" in value or "\r" in value:
            raise SettingsError(f"setting {key!r}: its value has more than one line")
        found[kind][name] = value
    return found


def jar_folder(folder: Path) -> Path:
    """A user's folder of jars, or InfraError."""
    try:
        there = folder.is_dir() and any(folder.glob("*.jar"))
    except (OSError, ValueError):
        there = False
    if not there:
        raise SettingsError(f"--server-jars {folder}: no folder with jars in it")
    return folder.absolute()


def properties(settings: Mapping[str, str]) -> bytes:
    """A Java properties file: backslashes and characters outside of ASCII are escaped."""

    def escaped(text: str) -> str:
        units = memoryview(text.encode("utf-16-be", "surrogatepass")).cast("B")
        codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
        return "".join(chr(c) if 0x20 < c < 0x7F and chr(c) not in "\\=:#!" else f"\\u{c:04x}" for c in codes)

    return "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in sorted(settings.items())).encode()
