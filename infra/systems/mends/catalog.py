# SPDX-License-Identifier: Apache-2.0
"""The mends of this folder: read, and chosen for the versions of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from infra.machines.api import SettingsError
from infra.options import OptionError, option, parse
from results.reading import read_toml

FOLDER: Final = Path(__file__).parent

ALL: Final = "all"
"""In place of ids: every mend for the versions of the run."""

_FILE: Final = re.compile(r"(\d{2,4})-([a-z0-9-]+)\.toml")

_own: dict[int, Mend] = {}
"""Mends of files that plans of this process name, by id."""


@dataclass(frozen=True)
class Edit:
    """One change of one method; see the example of the package."""

    method: str = option(help="CLASS.METHOD")
    at: Literal["call", "before", "after", "body"] = option(help="What the source replaces, or where it is put.")
    source: str = option(help="Java, as Javassist reads it.")
    call: str = option("", "CLASS.METHOD whose calls are replaced.")
    descriptor: str = option("", "Of the method, as the JVM writes it.")
    versions: tuple[str, ...] = option((), "Those of the mend's that it is for; none named: all.")

    def __post_init__(self) -> None:
        if "." not in self.method:
            raise ValueError(f"method is {self.method!r}; CLASS.METHOD is right")
        if (self.at == "call") != bool(self.call):
            raise ValueError('call = "CLASS.METHOD" goes with at = "call", and only with it')

    def fits(self, version: str | None) -> bool:
        """True if it is for servers of a version (`5.5.0`)."""
        return not self.versions or version in {name.split()[-1] for name in self.versions}

    def order(self, mend: int) -> dict[str, str]:
        """The edit in the form that the agent reads."""
        owner, _, name = self.method.rpartition(".")
        found = {"mend": str(mend), "class": owner, "method": name, "at": self.at, "source": self.source}
        return found | {"call": self.call, "descriptor": self.descriptor}


@dataclass(frozen=True)
class _Head:
    """The fields of a file beside its edits."""

    reason: str = option(help="What is changed.")
    versions: tuple[str, ...] = option(help="`SYSTEM VERSION` of the servers that it is for.")
    upstream: str = option("", "Where the system's own people corrected it, or speak of it.")
    also: tuple[int, ...] = option((), "Other findings that have this cause.")
    clients: bool = option(False, "It is also for the processes of applications.")


@dataclass(frozen=True)
class Mutant:
    """The part of a file whose change does harm: a planted defect, to try the judges (docs/mutants.md)."""

    promise: str = option(help="The promise that it breaks.")
    anomalies: tuple[str, ...] = option(help="Each of them shows it.")
    depth: Literal["a", "b", "c"] = option(help="What it needs: see docs/mutants.md.")
    run: str = option(help="Options of `harness run` that should find it, besides --mend.")
    log: str = option(help="The line of a server's log when it acts, without its time.")


@dataclass(frozen=True)
class Mend:
    """A correction of the cause of one finding.

    id        of the finding. also: of others with the same cause.
    versions  `SYSTEM VERSION` of the servers that it is for.
    reason    the change. upstream: the system's own correction or discussion of it; "": none known.
    clients   it is also for the processes of applications.
    file      as `--mend` names it; "": it is one of the harness'. mutant: None: it corrects.
    """

    id: int
    name: str
    reason: str
    upstream: str
    versions: Sequence[str]
    edits: Sequence[Edit]
    also: Sequence[int] = ()
    clients: bool = False
    file: str = ""
    mutant: Mutant | None = None

    @property
    def text(self) -> str:
        """Its name in a plan, and for `--mend`."""
        return self.file or str(self.id)

    @property
    def findings(self) -> Sequence[int]:
        """The ids of all findings whose cause it removes."""
        return (self.id, *self.also)

    @property
    def classes(self) -> Sequence[str]:
        """The classes that it edits, with their packages; of an inner class, the outermost one."""
        return sorted({edit.method.rpartition(".")[0].partition("$")[0] for edit in self.edits})


def read_mends(folder: Path) -> list[Mend]:
    """All mends of a folder, by id. Raises SettingsError if a file is wrong, or two have one id."""
    found: dict[int, Mend] = {}
    for path in sorted(folder.glob("*.toml")):
        mend = read_mend(path)
        if mend.id in found:
            raise SettingsError(f"{path}: there are two mends of finding {mend.id}; one file with all edits is right")
        found[mend.id] = mend
    return [found[number] for number in sorted(found)]


@cache
def mends() -> Sequence[Mend]:
    """The mends of the harness, by id."""
    return read_mends(FOLDER)


def mend_of(finding: int) -> Mend | None:
    """The mend of a finding."""
    return next((mend for mend in mends() if finding in mend.findings), None)


def read_mend(path: Path) -> Mend:
    """Reads one file. Raises SettingsError."""
    named = _FILE.fullmatch(path.name)
    if named is None:
        raise SettingsError(f"{path}: a mend's file is named NN-NAME.toml, NN being the finding's id")
    try:
        data = read_toml(path)
    except OSError as problem:
        raise SettingsError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise SettingsError(f"{path}: {problem}") from None
    edits, planted = data.pop("edit", None), data.pop("mutant", None)
    if not isinstance(edits, list) or not edits or not all(isinstance(edit, dict) for edit in edits):
        raise SettingsError(f"{path}: there is no [[edit]]; a mend changes at least one method")
    try:
        head = parse(_Head, data, str(path), "a mend")
        made = tuple(parse(Edit, edit, f"{path}: edit {n}", "an edit") for n, edit in enumerate(edits, start=1))
        mutant = None if planted is None else parse(Mutant, planted, f"{path}: mutant", "a mutant")
    except OptionError as problem:
        raise SettingsError(str(problem)) from None
    strange = sorted({name for edit in made for name in edit.versions} - set(head.versions))
    if strange:
        raise SettingsError(f"{path}: an edit is for {strange[0]}, the mend for {' and '.join(head.versions)}")
    number, name = int(named[1]), named[2]
    return Mend(number, name, head.reason, head.upstream, head.versions, made, head.also, head.clients, mutant=mutant)


def ids(texts: Iterable[str]) -> list[str]:
    """`["5,8", "13"]` -> `["5", "8", "13"]`: each once, in their order."""
    words = [word.strip() for text in texts for word in text.split(",")]
    return list(dict.fromkeys(word for word in words if word))


def choose(texts: Sequence[str], versions: Sequence[str]) -> list[Mend]:
    """The mends that a user named (ids, or `all`, and other files), for servers of these versions (`rocketmq
    5.5.0`), by id.

    Raises SettingsError for an id without a mend, for a wrong file, and for a mend that is for none of the versions.
    """
    words, fitting = ids(texts), [mend for mend in mends() if set(mend.versions) & set(versions)]
    files = [word for word in words if word.endswith(".toml")]
    words = [word for word in words if word not in files]
    here = " and ".join(versions) or "of a version that is not known"
    chosen = {}
    for mend in map(own_mend, files):
        if not set(mend.versions) & set(versions):
            raise SettingsError(f"--mend {mend.file}: {_for_others(mend, here)}")
        chosen[mend.id] = mend
    if words == [ALL]:
        if not fitting:
            raise SettingsError(f"--mend all: there is no mend for {here}  (harness list mends)")
        chosen |= {mend.id: mend for mend in fitting}
        words = []
    known = {str(number): mend for mend in mends() for number in mend.findings}
    for word in words:
        found = known.get(word.lstrip("0"))
        if found is None:
            right = f"{', '.join(known)}, a file, or all (without ids)"
            raise SettingsError(f"--mend {word}: there is no such mend; {right} is right  (harness list mends)")
        if found not in fitting:
            raise SettingsError(f"--mend {word}: {_for_others(found, here)}")
        chosen[found.id] = found
    return [chosen[number] for number in sorted(chosen)]


def _for_others(mend: Mend, here: str) -> str:
    return f"it is for {' and '.join(mend.versions)}, and the servers are {here}"


def own_mend(file: str) -> Mend:
    """Reads a user's own file, and keeps it for `named`. Raises SettingsError for a wrong file, and for an id that
    another one has.
    """
    mend = replace(read_mend(Path(file)), file=file)
    other = mend_of(mend.id) or _own.get(mend.id, mend)
    if (other.file and Path(other.file).resolve()) != Path(file).resolve():
        raise SettingsError(f"--mend {file}: {other.text} has the id {mend.id} too; another number is right")
    _own[mend.id] = mend
    return mend


def numbers(texts: Iterable[str]) -> list[int]:
    """The ids of mends as a resolved plan names them. Raises SettingsError."""
    return [own_mend(text).id if text.endswith(".toml") else int(text) for text in texts]


def named(wanted: Iterable[int]) -> list[Mend]:
    """Mends by their ids: the harness', and files that `choose` or `numbers` have read."""
    found = set(wanted)
    return [mend for mend in (*mends(), *_own.values()) if mend.id in found]


def applied(wanted: Iterable[int], version: str | None) -> list[Mend]:
    """The mends that are for a version (`5.5.0`; each system has other version numbers)."""
    return [mend for mend in named(wanted) if version in {name.split()[-1] for name in mend.versions}]


def orders(found: Iterable[Mend], version: str | None) -> Mapping[str, str]:
    """The agent's edits in servers of a version (`5.5.0`), as properties."""
    made: dict[str, Any] = {}
    meant = [edit.order(mend.id) for mend in found for edit in mend.edits if edit.fits(version)]
    for number, order in enumerate(meant):
        made |= {f"{number}.{key}": value for key, value in order.items() if value}
    return made
