# SPDX-License-Identifier: Apache-2.0
"""One process of a described system on one node."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Final

from infra.machines.api import InfraError, Node, ProcessId
from infra.machines.node import spawn_argv
from infra.machines.primitives.bits import FileKind
from infra.systems.api import Admin, Launch
from infra.systems.java import DATA, RUN, end, last_lines, log_file, pid_file

SERVER: Final = "server"
"""The only kind of server of a described system."""

INSTALLED: Final = "installed"
"""The only version of a described system."""

DATA_DIR: Final = f"{DATA}/{SERVER}"
"""The data of the server of a node."""

_GRACE_S: Final = 2.0


class ServerAdmin:
    """See `infra.systems.api.Admin`. The description has a command for readiness, and nothing to change settings."""

    def __init__(self, node: Node, port: int | None, ready: Sequence[str], env: Mapping[str, str]) -> None:
        self._node, self._port, self._ready, self._env = node, port, ready, env

    def answers(self, timeout_s: float) -> bool:
        if not self._ready:
            assert self._port is not None
            return connects(self._node.address, self._port, timeout_s)
        words = [f"{name}={value}" for name, value in self._env.items()]
        try:
            done = self._node.run(["env", *words, *self._ready], timeout_s=timeout_s + _GRACE_S, check=False)
        except InfraError:
            return False
        return done.code == 0

    def version(self, timeout_s: float) -> str:
        return INSTALLED

    def settings(self, timeout_s: float) -> Mapping[str, str]:
        raise self._error("does not report its settings")

    def change_command(self, settings: Mapping[str, str]) -> Sequence[str]:
        raise self._error("takes no changes of settings")

    def _error(self, why: str) -> InfraError:
        return InfraError(f"{self._node.name}: the server of a described system {why}")


class ProcessServer:
    """A server that is a single process; implements `infra.systems.api.Server`.

    ports   the first is that of clients. run, env: without placeholders.
    clock   the reason why its time cannot be changed; None: it can.
    """

    kind = SERVER
    group: str | None = SERVER
    data_dirs: Sequence[str] = (DATA_DIR,)
    files: Mapping[str, FileKind] = {}

    def __init__(
        self,
        node: Node,
        run: Sequence[str],
        env: Mapping[str, str],
        ports: Mapping[str, int],
        launch: Launch,
        admin: Admin,
        clock: str | None = None,
    ) -> None:
        self.node, self.launch, self.admin, self.clock = node, launch, admin, clock
        first = next(iter(ports.values()), 0)
        self.ports: Mapping[str, int] = {SERVER: first, **ports} if first else {}
        self._run, self._env = run, env

    def __repr__(self) -> str:
        return f"{self.node.name} {self.kind}"

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.node.address, self.ports.get(SERVER, 0)

    @property
    def log(self) -> str:
        return log_file(self.kind)

    @property
    def pidfile(self) -> str:
        return pid_file(self.kind)

    def start(self) -> None:
        self.node.run(self.start_command())

    def start_command(self) -> Sequence[str]:
        """See `infra.systems.api.Server`. `flock -o` keeps the lock from the server, so two starts make one process."""
        env = {**self._env, **self.launch.env}
        spawn = spawn_argv([*self.launch.wrapper, *self._run], env=env, log=self.log, pidfile=self.pidfile)
        return ["flock", "-o", f"{RUN}/{self.kind}.lock", *spawn]

    def stop(self, timeout_s: float = 20) -> None:
        end(self.node, self.pidfile, timeout_s, f"its {self.kind}")

    def process(self) -> ProcessId | None:
        return self.node.process(self.pidfile)

    def last_words(self) -> str:
        return last_lines(self.node, self.log)


def connects(address: str, port: int, timeout_s: float) -> bool:
    """True if a port takes a connection in time."""
    try:
        socket.create_connection((address, port), timeout_s).close()
    except OSError:
        return False
    return True
