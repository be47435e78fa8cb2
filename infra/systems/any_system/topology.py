# SPDX-License-Identifier: Apache-2.0
"""The topology `any`: the server of a description (`--system FILE.toml`) on every node."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from infra.machines.api import Cluster, CommandFailed, InfraError, Node, SettingsError, Share
from infra.machines.backends.owned import OwnedCluster
from infra.machines.packages import ensure_packages, install_packages
from infra.options import option
from infra.systems.any_system import files
from infra.systems.any_system.description import Description, ListPart, read_description
from infra.systems.any_system.server import DATA_DIR, INSTALLED, SERVER, ProcessServer, ServerAdmin
from infra.systems.any_system.templates import TemplateError, fill
from infra.systems.api import Server, ServerSettings, Status
from infra.systems.java import LOG, RUN, launch_for
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.permission import Permissions
from results.strikes import EffectKind

log = logging.getLogger("infra")

_PACKAGES: Final = "/opt/harness/packages"
_PREPARED: Final = f"{RUN}/prepared"
_ONCE_DONE: Final = f"{RUN}/once"
_ONCE_S: Final = 30.0
"""The time in which the command of `[once]` must succeed; it is repeated until then."""
_PREPARE_S: Final = 60.0
_NO_CLOCK: Final = (
    "libfaketime changes the time of programs that read it through the C library (Go's do not); "
    "libc_clock = true in [server] says that this server does"
)
_POLL_S: Final = 0.2
_CLIENT_PART: Final = 0.5
"""The placeholder `{timeout}`: this part of an operation's deadline, so that a client gives up before it is killed."""
_ASK_S: Final = 2.0
_LOG_LIMIT: Final = 64 << 20

_ROLES: Final = {
    **dict.fromkeys(("leader", "master", "primary"), "leader"),
    **dict.fromkeys(("follower", "slave", "replica", "secondary", "standby"), "follower"),
    "candidate": "candidate",
}
"""Words of a role command -> roles."""


@dataclass(frozen=True)
class AnyOptions:
    """The options of the topology."""

    system: str = option("", "The description of the system, a TOML file (docs/any-system.md).", metavar="FILE")

    def __post_init__(self) -> None:
        """Makes the path absolute: a stored plan must not depend on a folder."""
        if self.system:
            object.__setattr__(self, "system", os.path.abspath(self.system))


class AnyTopology:
    """See `infra.systems.api.Topology`. description: of the system."""

    name = "any"
    summary: ClassVar[str] = "any server of yours or of Debian, as a TOML file describes it (--system FILE)"
    Options: ClassVar[type] = AnyOptions
    profiles: ClassVar[Sequence[str]] = ()
    roles: Mapping[str, str] = MappingProxyType({"leader": "leader", "follower": "follower"})
    default_version: ClassVar[str] = INSTALLED
    kinds: ClassVar[Sequence[str]] = (SERVER,)

    def __init__(self, settings: ServerSettings, options: AnyOptions | None = None) -> None:
        """Raises SettingsError for a description that cannot be used, and for settings that only RocketMQ has."""
        path = (options or AnyOptions()).system
        if not path:
            raise SettingsError("the topology any needs a description of the system: --system FILE.toml")
        self._reject(settings)
        self.settings = settings
        self.description: Description = read_description(Path(path))
        self._digest = hashlib.sha256(self.description.path.read_bytes()).hexdigest()
        self._packages: str | None = None
        self._servers: dict[str, ProcessServer] = {}
        self._nodes: list[Node] = []

    def _reject(self, settings: ServerSettings) -> None:
        launches = [settings.launch, *(rule.launch for rule in settings.rules)]
        asked = {
            "--set": bool(settings.settings),
            "--server-jars": any(launch.jars is not None for launch in launches),
            "--jvm-option": any(launch.jvm_options for launch in launches),
            "--mend": any(launch.mends for launch in launches),
            "--profile": settings.profile is not None,
            "--version": any(launch.version not in (None, INSTALLED) for launch in launches),
        }
        for flag, given in asked.items():
            if given:
                raise SettingsError(f"{flag}: the description of the system decides this for the topology {self.name}")
        if settings.versions:
            raise SettingsError(f"the topology {self.name} has one version of its servers, and faults need another")
        if settings.kinds:
            raise SettingsError(f"the topology {self.name} has no {sorted(settings.kinds)[0]}, but {SERVER}")

    @classmethod
    def known_versions(cls) -> Mapping[str, str]:
        return {}

    def shares(self) -> Sequence[Share]:
        """The unpacked packages, and the files of the description. Raises InfraError."""
        found = files.shares(self.description.files)
        if self.description.packages:
            folder = ensure_packages(self.description.packages, log.info)
            self._packages = f"{_PACKAGES}/{folder.name}"
            found.append(Share(folder, self._packages))
        return found

    def fits(self, nodes: Sequence[str]) -> None:
        """Raises SettingsError for a description that names a node beyond the last one."""
        for name in sorted(self.description.nodes, key=lambda name: int(name[1:])):
            if name not in nodes:
                raise SettingsError(
                    f"--system {self.description.path}: it names {name}, and the nodes are {nodes[0]} to {nodes[-1]}; "
                    f"--nodes {name[1:]} is right"
                )
        for name in nodes:
            self._commands(name, dict.fromkeys(nodes, ""))

    def attach(self, cluster: Cluster) -> None:
        """Puts packages and files on the nodes; starts nothing."""
        self._nodes = list(cluster.nodes)
        addresses = self._addresses()
        mine = isinstance(cluster, OwnedCluster)
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(lambda node: self._furnish(node, addresses, mine), self._nodes))

    def _furnish(self, node: Node, addresses: Mapping[str, str], mine: bool) -> None:
        run, env = self._commands(node.name, addresses)
        node.run(["mkdir", "-p", "--", LOG])
        if self._packages is not None and mine:
            install_packages(node, self._packages)
        values = self._values(node.name, addresses)
        for file in self.description.files:
            files.put(node, file, None if file.text is None else fill(file.text, values))
        if node.run(["sh", "-c", 'command -v -- "$1"', "sh", run[0]], check=False).code != 0:
            why = ", and the harness installs no packages there" if self._packages is not None and not mine else ""
            raise InfraError(f"{node.name} has no program {run[0]}{why}")
        part = self.description.server
        ready = [fill(word, values) for word in part.ready]
        admin = ServerAdmin(node, next(iter(part.ports.values()), None), ready, env)
        launch = launch_for(self.settings, node.name, SERVER)
        clock = None if part.libc_clock else _NO_CLOCK
        self._servers[node.name] = ProcessServer(node, run, env, part.ports, launch, admin, clock)

    def _prepare(self, node: Node) -> None:
        """Runs the command `prepare` on a node, unless it has run there. Faults may have mounted a file system."""
        node.run(["mkdir", "-p", "--", DATA_DIR])
        part, addresses = self.description.server, self._addresses()
        if not part.prepare or node.run(["test", "-e", _PREPARED], check=False).code == 0:
            return
        values = self._values(node.name, addresses)
        argv = self._in_environment(node.name, [fill(word, values) for word in part.prepare])
        try:
            node.run(argv, timeout_s=_PREPARE_S)
        except CommandFailed as problem:
            raise InfraError(f"server.prepare: {problem}") from None
        node.run(["touch", "--", _PREPARED])

    def _addresses(self) -> dict[str, str]:
        return {node.name: node.address for node in self._nodes}

    def _values(self, name: str, addresses: Mapping[str, str]) -> dict[str, str]:
        """Placeholder -> its value on a node."""
        description = self.description
        return {
            **addresses,
            "node": name,
            "address": addresses[name],
            "index": name[1:],
            "data": DATA_DIR,
            "logs": LOG,
            **{f"{port}_port": str(number) for port, number in description.server.ports.items()},
            **{key: _joined(one, addresses) for key, one in description.lists.items()},
        }

    def _commands(self, name: str, addresses: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The server's command on a node, and its environment. Raises SettingsError for a node that does not exist."""
        part, values = self.description.server, self._values(name, addresses)
        run, env = part.run, dict(part.env)
        for rule in part.rules:
            if name in rule.nodes:
                run, env = rule.run or run, {**env, **rule.env}
        try:
            texts = [file.text for file in self.description.files if file.text is not None]
            for word in (*part.prepare, *part.ready, *part.role, *self.description.once, *texts):
                fill(word, values)
            return [fill(word, values) for word in run], {key: fill(text, values) for key, text in env.items()}
        except TemplateError as problem:
            raise SettingsError(f"--system {self.description.path}: {problem}") from None

    def _in_environment(self, name: str, argv: Sequence[str]) -> list[str]:
        """A command with the environment of a node's server."""
        _, env = self._commands(name, self._addresses())
        return ["env", *(f"{key}={value}" for key, value in env.items()), *argv]

    def client_command(self, thread: int, timeout_s: float) -> tuple[str, list[str], dict[str, str]]:
        """The node, the command and the environment of the client process of a thread. Raises SettingsError."""
        part = self.description.client
        if part is None:
            raise SettingsError(f"--system {self.description.path}: client: is missing; a table [client] is right")
        addresses = self._addresses()
        names = part.nodes or list(addresses)
        name = names[thread % len(names)]
        values = {
            **self._values(name, addresses),
            "here": str(self.description.here),
            "thread": str(thread),
            "timeout": f"{timeout_s * _CLIENT_PART:g}",
        }
        env = {key: fill(text, values) for key, text in part.env.items()}
        return name, [fill(word, values) for word in part.run], env

    def servers(self, node: Node) -> Sequence[Server]:
        return [self._servers[node.name]]

    def further(self, node: Node, name: str, group: str, slot: int) -> Server:
        raise InfraError(f"the topology {self.name} has one server on a node, and no further ones")

    def record(self) -> DeploymentRecord:
        """The servers. They are a replica group if the description says who leads."""
        names = [node.name for node in self._nodes]
        ports = self._servers[names[0]].ports if self._servers else {}
        needed = list(self.description.needed) or names
        return DeploymentRecord(
            topology=self.name,
            nodes=self._addresses(),
            servers=[ServerRecord(node.name, SERVER, node.address, ports, SERVER, None) for node in self._nodes],
            groups={SERVER: names} if self.description.server.role else {},
            quorums={SERVER: needed},
            traits=Traits(),
        )

    def forget(self, node: Node, timeout_s: float) -> str:
        """Raises InfraError: no command for this is described."""
        raise InfraError(f"{node.name}: the topology {self.name} cannot make servers forget a member")

    def keeps_address(self, node: str) -> str | None:
        return "the commands of the servers have the addresses of all nodes"

    def readdress(self, node: Node) -> None:
        """Raises SettingsError: see `keeps_address`."""
        raise SettingsError(f"{node.name}: {self.keeps_address(node.name)}")

    def permits(self) -> Permissions:
        return {}

    def permits_after(self) -> Mapping[EffectKind, Permissions]:
        return {}

    def start_all(self, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s

        def start(node: Node) -> None:
            self._prepare(node)
            self._servers[node.name].start()

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(start, self._nodes))
        self._await_answers(deadline, timeout_s)
        if self.description.once:
            self._run_once()

    def await_serving(self, timeout_s: float) -> None:
        """Waits until every server is ready. Raises InfraError with the end of the log of one that is not."""
        self._await_answers(time.monotonic() + timeout_s, timeout_s)

    def _await_answers(self, deadline: float, timeout_s: float) -> None:
        def wait(server: ProcessServer) -> None:
            while not server.admin.answers(_ASK_S):
                if server.process() is None:
                    raise InfraError(f"{server.node.name}: the server has ended; its log: {server.last_words()}")
                if time.monotonic() > deadline:
                    raise InfraError(
                        f"{server.node.name}: the server was not ready within {timeout_s:.0f} s; its log: "
                        f"{server.last_words()}"
                    )
                time.sleep(_POLL_S)

        servers = [self._servers[node.name] for node in self._nodes]
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(wait, servers))

    def _run_once(self) -> None:
        """Runs the command of `[once]`, unless it was run on this cluster before. Raises InfraError."""
        node = next(node for node in self._nodes if node.name == self.description.once_on)
        if node.run(["test", "-e", _ONCE_DONE], check=False).code == 0:
            return
        values = self._values(node.name, self._addresses())
        argv = self._in_environment(node.name, [fill(word, values) for word in self.description.once])
        deadline = time.monotonic() + _ONCE_S
        while True:
            try:
                node.run(argv, timeout_s=_ONCE_S)
                break
            except CommandFailed as problem:
                if time.monotonic() > deadline:
                    raise InfraError(f"once.run failed for {_ONCE_S:g} s: {problem}") from None
            time.sleep(_POLL_S)
        node.run(["touch", "--", _ONCE_DONE])

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """The answer of the role command; without one, only whether the server answers."""
        return await asyncio.to_thread(self._observe, node, timeout_s)

    def _observe(self, node: Node, timeout_s: float) -> Status:
        part = self.description.server
        if not part.role:
            answers = self._servers[node.name].admin.answers(timeout_s)
            return Status("follower", end=0, applied=0) if answers else Status("silent")
        values = self._values(node.name, self._addresses())
        try:
            words = [fill(word, values) for word in part.role]
            done = node.run(self._in_environment(node.name, words), timeout_s=timeout_s, check=False)
        except InfraError:
            return Status("silent")
        return status_of(done.text) if done.code == 0 else Status("silent")

    def collect(self, node: Node, into: Path) -> list[Path]:
        """The server's log, and all that it writes into the folder of logs; of each file at most 64 MiB."""
        return node.fetch(LOG, into, _LOG_LIMIT)

    def versions(self) -> Mapping[str, str]:
        """The system and the checksum of its description."""
        return {
            self.name: self.description.name,
            "system": self.description.name,
            "system_sha256": self._digest,
            "packages": " ".join(self.description.packages),
        }


def status_of(output: str) -> Status:
    """The status in the output of a role command: `ROLE [TERM [POSITION]]`; `silent` for another output.

    >>> status_of("leader 3").role, status_of("leader 3").term, status_of("?").role
    ('leader', 3, 'silent')
    """
    words = output.split()
    role = _ROLES.get(words[0].lower()) if words else None
    if role is None:
        return Status("silent")
    numbers = [int(word) for word in words[1:3] if word.lstrip("-").isdigit()]
    if len(numbers) != len(words[1:3]):
        return Status("silent")
    position = numbers[1] if len(numbers) > 1 else 0
    return Status(role, numbers[0] if numbers else None, end=position, committed=position, applied=position)


def _joined(one: ListPart, addresses: Mapping[str, str]) -> str:
    values = ({"node": name, "address": address, "index": name[1:]} for name, address in addresses.items())
    return one.join.join(fill(one.each, {**addresses, **of_node}) for of_node in values)
