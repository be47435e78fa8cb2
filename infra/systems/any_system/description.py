# SPDX-License-Identifier: Apache-2.0
"""Reads the description of a system: what runs on each node, and how clients reach it.

    packages = ["etcd-server"]

    [server]
    run = ["etcd", "--name", "{node}", "--data-dir", "{data}"]
    ports = { client = 2379, peer = 2380 }

    [client]
    run = ["python3", "client.py", "{address}"]

docs/any-system.md describes each key. All errors are found when the file is read, before any machine is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from infra.machines.api import SettingsError
from infra.options import cut, suggest
from infra.systems.any_system.templates import NODE_NAME, TemplateError, check
from results.reading import read_toml

T = TypeVar("T")

ON_NODE: Final = ("node", "address", "index", "data", "logs")
"""Placeholders of everything on a node, besides ports, lists and the addresses of all nodes."""
IN_LIST: Final = ("node", "address", "index")
"""Placeholders of the element of a list."""
OF_CLIENT: Final = ("node", "address", "index", "here", "thread", "timeout")
"""Placeholders of the client's command."""

_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MODE: Final = re.compile(r"0?[0-7]{3}")
_NO_WORDS: Final[list[str]] = []
_NO_TEXTS: Final[dict[str, str]] = {}
_NO_TABLES: Final[list[Any]] = []
_NO_PORTS: Final[dict[str, int]] = {}
_FORBIDDEN: Final = ("/opt/harness", "/var/lib/harness", "/proc", "/sys", "/dev")


@dataclass(frozen=True)
class Command:
    """A command line with placeholders, and the environment of its process."""

    run: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeFile:
    """A file on every node: its text (with placeholders), or a file of this machine, or one that is downloaded.

    unpack  the source is a tar or zip archive, and `path` the folder for its content.
    """

    path: str
    text: str | None = None
    source: Path | None = None
    url: str | None = None
    sha256: str | None = None
    mode: int = 0o644
    unpack: bool = False


@dataclass(frozen=True)
class Rule:
    """A different command for the servers of some nodes."""

    nodes: Sequence[str]
    run: Sequence[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerPart:
    """The server of each node.

    prepare  a command on each node before its first start. ready: one that ends with 0 when the server serves; None: it
             is ready when its first port takes connections.
    role     a command that prints `ROLE [TERM [POSITION]]`; None: nobody leads. libc_clock: the
             server reads the time through the C library, so libfaketime can change it.
    """

    run: Sequence[str]
    ports: Mapping[str, int]
    env: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    prepare: Sequence[str] = ()
    ready: Sequence[str] = ()
    role: Sequence[str] = ()
    libc_clock: bool = False


@dataclass(frozen=True)
class ClientPart:
    """The program of the clients, which runs on this machine. nodes: those that clients use; empty: all of them."""

    run: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()


@dataclass(frozen=True)
class ListPart:
    """A text for each node, joined to one."""

    each: str
    join: str = ","


@dataclass(frozen=True)
class Description:
    """A system.

    once    a command on `once_on` after the first start of all servers; empty: no command.
    needed  nodes of which a majority must be up for service to be owed; empty: all nodes.
    """

    name: str
    path: Path
    server: ServerPart
    client: ClientPart | None
    packages: Sequence[str] = ()
    files: Sequence[NodeFile] = ()
    lists: Mapping[str, ListPart] = field(default_factory=dict)
    once: Sequence[str] = ()
    once_on: str = "n1"
    needed: Sequence[str] = ()

    @property
    def here(self) -> Path:
        """The folder of the file."""
        return self.path.parent

    @property
    def nodes(self) -> set[str]:
        """All nodes that the file names."""
        rules = [name for rule in self.server.rules for name in rule.nodes]
        clients = list(self.client.nodes) if self.client is not None else []
        return {*rules, *clients, *self.needed, *([self.once_on] if self.once else [])}


def read_description(path: Path) -> Description:
    """The system that a file describes. Raises SettingsError, one line with the file, the key and what is right."""
    try:
        data = read_toml(path)
    except OSError as problem:
        raise SettingsError(f"--system {path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise SettingsError(f"--system {path}: not TOML: {problem}") from None
    return _description(path.absolute(), _Keys(data, str(path), ""))


class _Keys:
    """The keys of a table. Each is taken once; what is left at the end is unknown."""

    def __init__(self, table: Mapping[str, Any], file: str, where: str) -> None:
        self._left, self.file, self.where = dict(table), file, where
        self._known: list[str] = []

    @property
    def names(self) -> list[str]:
        """The keys that were not taken yet."""
        return list(self._left)

    def wrong(self, key: str, problem: str) -> SettingsError:
        """The error for a key."""
        return SettingsError(f"--system {self.file}: {self.where}{key}: {problem}")

    def take(self, key: str, read: Callable[[Any], T], default: T) -> T:
        """The value of a key as `read` converts it, or the default. `read` raises ValueError with what is right."""
        self._known.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return read(value)
        except TemplateError as problem:
            raise self.wrong(key, str(problem)) from None
        except ValueError as problem:
            raise self.wrong(key, f"{cut(value)}; {problem}") from None

    def table(self, key: str) -> _Keys | None:
        """A sub-table, or None."""
        found = self.take(key, _table, None)
        return None if found is None else _Keys(found, self.file, f"{self.where}{key}.")

    def tables(self, key: str) -> list[_Keys]:
        """The tables of `[[key]]`."""
        found: list[Any] = self.take(key, _tables, _NO_TABLES)
        return [_Keys(one, self.file, f"{self.where}{key}[{n}].") for n, one in enumerate(found, start=1)]

    def missing(self, key: str, right: str) -> SettingsError:
        """The error for a key that is needed and not there, perhaps because its name has a typing error."""
        other = next((left for left in self._left if suggest(left, [key])), None)
        return self.wrong(key, f"is missing; {right}") if other is None else self._unknown(other, [key])

    def only(self, *known: str) -> None:
        """Raises SettingsError for a key that is none of these."""
        for key in self._left:
            if key not in known:
                raise self._unknown(key, known)

    def end(self) -> None:
        """Raises SettingsError for a key that nobody took."""
        for key in self._left:
            raise self._unknown(key, self._known)

    def _unknown(self, key: str, known: Sequence[str]) -> SettingsError:
        right = suggest(key, known) or f"; there are {', '.join(known)}"
        return SettingsError(f"--system {self.file}: no key {self.where}{cut(key).strip(chr(39))}{right}")


def _description(path: Path, top: _Keys) -> Description:
    top.only("name", "packages", "needed", "lists", "file", "server", "once", "client")
    name = top.take("name", _name, re.sub(r"[^a-z0-9_]", "_", path.stem.lower()) or "system")
    packages = top.take("packages", _strings(_package), _NO_WORDS)
    needed = top.take("needed", _strings(_node), _NO_WORDS)
    lists = _lists(top)
    server = _server(top, lists)
    ports = [f"{port}_port" for port in server.ports]
    places = [*ON_NODE, *ports, *lists]
    files = [_file(table, path.parent, places) for table in top.tables("file")]
    client = _client(top, [*OF_CLIENT, *ports, *lists])
    once: list[str] = []
    once_on = "n1"
    if (table := top.table("once")) is not None:
        once = table.take("run", _command(places), _NO_WORDS)
        once_on = table.take("on", _node, "n1")
        table.end()
        if not once:
            raise top.wrong("once.run", 'is missing; a command such as ["redis-cli", "ping"] is right')
    return Description(name, path, server, client, packages, files, lists, once, once_on, needed)


def _lists(top: _Keys) -> dict[str, ListPart]:
    found: dict[str, ListPart] = {}
    table = top.table("lists")
    if table is None:
        return found
    for name in table.names:
        inner = table.table(name)
        assert inner is not None
        if not _NAME.fullmatch(name) or name in (*ON_NODE, *OF_CLIENT) or NODE_NAME.fullmatch(name):
            raise top.wrong(f"lists.{name}", "a name of small letters that is no other placeholder is right")
        each = inner.take("each", _template(IN_LIST), "")
        if not each:
            raise inner.missing("each", 'a text such as "{node}={address}" is right')
        found[name] = ListPart(each, inner.take("join", _text, ","))
        inner.end()
    return found


def _server(top: _Keys, lists: Mapping[str, ListPart]) -> ServerPart:
    table = top.table("server")
    if table is None:
        raise top.missing("server", 'a table [server] with run = ["PROGRAM", ...] is right')
    ports = table.take("ports", _ports, _NO_PORTS)
    clash = next((f"{port}_port" for port in ports if f"{port}_port" in lists), None)
    if clash is not None:
        raise top.wrong(f"lists.{clash}", "is the placeholder of a port; another name is right")
    places = [*ON_NODE, *(f"{port}_port" for port in ports), *lists]
    command, environment = _command(places), _environment(places)
    run = table.take("run", command, _NO_WORDS)
    if not run:
        raise table.missing("run", 'a command such as ["etcd", "--name", "{node}"] is right')
    rules = []
    for rule in table.tables("on"):
        nodes = rule.take("nodes", _strings(_node), _NO_WORDS)
        if not nodes:
            raise rule.missing("nodes", 'a list such as ["n1"] is right')
        rules.append(Rule(nodes, rule.take("run", command, None), rule.take("env", environment, _NO_TEXTS)))
        rule.end()
    part = ServerPart(
        run,
        ports,
        table.take("env", environment, _NO_TEXTS),
        rules,
        table.take("prepare", command, _NO_WORDS),
        table.take("ready", command, _NO_WORDS),
        table.take("role", command, _NO_WORDS),
        table.take("libc_clock", _bool, False),
    )
    table.end()
    if not part.ports and not part.ready:
        raise table.wrong("ports", "is missing; ports = { client = 2379 }, or a command `ready`, is right")
    return part


def _client(top: _Keys, places: Sequence[str]) -> ClientPart | None:
    table = top.table("client")
    if table is None:
        return None
    run = table.take("run", _command(places), _NO_WORDS)
    if not run:
        raise table.missing("run", 'a command such as ["python3", "client.py", "{address}"] is right')
    env = table.take("env", _environment(places), _NO_TEXTS)
    part = ClientPart(run, env, table.take("nodes", _strings(_node), _NO_WORDS))
    table.end()
    return part


def _file(table: _Keys, here: Path, places: Sequence[str]) -> NodeFile:
    path = table.take("path", _node_path, "")
    if not path:
        raise table.missing("path", 'an absolute path on the nodes such as "/etc/my.conf" is right')
    text = table.take("text", _template(places), None)
    source = table.take("source", lambda value: _source(value, here), None)
    url = table.take("url", _url, None)
    sha256 = table.take("sha256", _matching(_SHA256, "the 64 hex digits of sha256sum are right"), None)
    mode = int(table.take("mode", _matching(_MODE, 'a text such as "0755" is right'), "0644"), 8)
    unpack = table.take("unpack", _bool, False)
    table.end()
    if sum(one is not None for one in (text, source, url)) != 1:
        raise table.wrong("path", f"{cut(path)} needs exactly one of text, source and url")
    if (url is None) != (sha256 is None):
        raise table.wrong("sha256", "a url and the sha256 of what is there belong together")
    if unpack and text is not None:
        raise table.wrong("unpack", "a source or a url can be unpacked, and a text cannot")
    return NodeFile(path, text, source, url, sha256, mode, unpack)


def _table(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a table is right")
    return value


def _tables(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("a list of tables is right")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a text is right")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is right")
    return value


def _strings(one: Callable[[Any], str]) -> Callable[[Any], list[str]]:
    def read(value: Any) -> list[str]:
        if not isinstance(value, list):
            raise ValueError("a list of texts is right")
        return [one(element) for element in value]

    return read


def _matching(pattern: re.Pattern[str], right: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(right)
        return value

    return read


_name = _matching(_NAME, "small letters, digits and underscores are right")
_package = _matching(_PACKAGE, 'names of Debian packages, such as "etcd-server", are right')
_node = _matching(NODE_NAME, 'names of nodes, such as "n1", are right')


def _template(places: Sequence[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        check(_text(value), places)
        return str(value)

    return read


def _command(places: Sequence[str]) -> Callable[[Any], list[str]]:
    words = _strings(_template(places))

    def read(value: Any) -> list[str]:
        found = words(value)
        if not found or not found[0].strip():
            raise ValueError('a list of words such as ["program", "--option"] is right')
        return found

    return read


def _environment(places: Sequence[str]) -> Callable[[Any], dict[str, str]]:
    text = _template(places)

    def read(value: Any) -> dict[str, str]:
        found = {}
        for name, given in _table(value).items():
            if not name or "=" in name or "\0" in name:
                raise ValueError("names of environment variables are right")
            found[name] = text(given)
        return found

    return read


def _ports(value: Any) -> dict[str, int]:
    found = {}
    for name, number in _table(value).items():
        if not _NAME.fullmatch(name):
            raise ValueError("names of small letters are right, such as { client = 2379 }")
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 65535:
            raise ValueError(f"port {name}: a number from 1 to 65535 is right")
        found[name] = number
    return found


def _node_path(value: Any) -> str:
    path = PurePosixPath(_text(value))
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise ValueError("an absolute path on the nodes is right")
    if any(path.is_relative_to(place) for place in _FORBIDDEN):
        raise ValueError(f"a path outside of {', '.join(_FORBIDDEN)} is right")
    return str(path)


def _source(value: Any, here: Path) -> Path:
    path = here / _text(value)
    if not path.is_file():
        raise ValueError(f"a file next to the description is right, and {path} is none")
    return path


def _url(value: Any) -> str:
    if not _text(value).startswith(("https://", "http://")):
        raise ValueError("an address that begins with https:// is right")
    return str(value)
