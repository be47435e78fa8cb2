# SPDX-License-Identifier: Apache-2.0
"""Faults that an operator causes, or has to repair: lost data folders, all servers of a kind lost, settings that
change while the servers run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import folders, process
from infra.options import assignments, option
from infra.systems.api import Deployment, Server
from nemesis.meant import Claims, kinds_meant, missing_kind, servers_of
from nemesis.patience import eventually
from nemesis.process import Kill
from results.strikes import Effect

_ASK_S = 5.0
"""The time that a server may take to return its settings."""


class Loss(Kill):
    """SIGKILL, and with `wipe` the removal of all data of the servers; they are started again at the end."""

    def __init__(self, node: str, kinds: Sequence[str], others: bool, wipe: bool) -> None:
        super().__init__(node, kinds, others)
        self.wipe = wipe
        self.before = folders.Content(0, 0)
        """The content of the folders before the strike."""

    @property
    def detail(self) -> Any:
        return dict.fromkeys(self.kinds, "SIGKILL, data removed, restart" if self.wipe else self.action)

    @property
    def effects(self) -> Sequence[Effect]:
        # A controller may be inside a name server: only the injection meets the process that it is in.
        kinds = tuple(self.struck) or tuple(self.kinds)
        lost = [Effect("data-lost", self.node, kinds)] if self.wipe else []
        return [Effect("down", self.node, kinds), *lost]

    def running(self, deployment: Deployment) -> Mapping[str, tuple[Server, ProcessId]]:
        servers = servers_of(deployment, self.node, self.kinds)
        return {server.kind: (server, found) for server in servers if (found := server.process()) is not None}

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        if self.wipe:
            dirs = [place for server, _ in self.running(deployment).values() for place in server.data_dirs]
            self.before = folders.content(deployment.node(self.node), dirs)
        return super().inject(deployment, ttl_s)

    def end(self, server: Server, running: ProcessId, ttl_s: float) -> Lease:
        if not self.wipe:
            return super().end(server, running, ttl_s)
        lost = [process.kill_argv(running), folders.empty_argv(server.data_dirs)]
        return server.node.lease(lost, [list(server.start_command())], ttl_s=ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the processes are gone and, with `wipe`, if data existed and none is left."""
        killed = super().seen(deployment)
        if not self.struck or not self.wipe:
            return killed
        dirs = [place for kind in self.struck for place in deployment.server(self.node, kind).data_dirs]
        left = folders.content(deployment.node(self.node), dirs)
        wiped = self.before.files > 0 and left.files == 0
        return Evidence(killed.seen and wiped, f"{killed.what}; its data were {self.before}, now {left}")


class Losses(Fault):
    """The base of all losses: servers of some kinds on some nodes, each with its own lease."""

    @property
    @abstractmethod
    def kinds(self) -> Sequence[str]:
        """The kinds of servers to strike; empty: those that the target means."""

    @property
    @abstractmethod
    def wipes(self) -> bool:
        """True if their data is removed."""

    def kinds_needed(self) -> Sequence[str]:
        return self.kinds

    def available(self, deployment: Deployment) -> str | None:
        return missing_kind(deployment, self.kinds)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        return {
            node: Loss(node, hit, view.main.get(node) not in hit, self.wipes)
            for node, hit in kinds_meant(view, target, self.kinds).items()
        }


@dataclass(frozen=True)
class WipeOptions:
    """The options of the fault."""

    kind: tuple[str, ...] = option((), "Kinds of servers, such as broker or controller; none named: all of the node.")


class WipeNode(Losses):
    """A node comes back after its disk was replaced: with its configuration, and without any data."""

    name = "wipe-node"
    summary = "kills servers, removes their data, and starts them again with an empty disk"
    Options = WipeOptions
    default_target: ClassVar[str] = "one"
    wipes = True

    @property
    def kinds(self) -> Sequence[str]:
        named: Sequence[str] = self.options.kind
        return named


@dataclass(frozen=True)
class LossOptions:
    """The options of the faults that end all servers of a kind."""

    wipe: bool = option(False, "Whether they come back with empty disks.")


class LossOfKind(Losses):
    """All servers of a kind die at once, and come back together."""

    Options = LossOptions
    default_target: ClassVar[str] = "all"

    @property
    def wipes(self) -> bool:
        return bool(self.options.wipe)


class NamesrvLoss(LossOfKind):
    """The loss of all name servers."""

    name = "namesrv-loss"
    summary = "kills all name servers and starts them again, with their disks or with empty ones"
    kinds = ("namesrv",)


class ControllerLoss(LossOfKind):
    """The loss of all controllers. If they are inside name servers, these die."""

    name = "controller-loss"
    summary = "kills all controllers and starts them again, with their disks or with empty ones"
    kinds = ("controller",)


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The options of the fault."""

    set: str = option(help="The settings, by the server's own names: NAME=VALUE, several of them with ; between them.")
    kind: str = option("", "The kind of server; empty: the one that the target means, or the one with the node's data.")

    def __post_init__(self) -> None:
        if not self.settings:
            raise ValueError("set is empty; NAME=VALUE is right")

    @property
    def settings(self) -> Mapping[str, str]:
        """Name -> value."""
        words = [word.strip() for word in self.set.split(";") if word.strip()]
        assignments(words, "set")
        return {name.strip(): value for name, _, value in (word.partition("=") for word in words)}


_CHANGED = Claims()
"""(server, name of a setting)."""


class Change(Injection):
    """A change of a server's settings while it runs."""

    patience_s: float = 5.0
    """The time that a change may take to show."""

    def __init__(self, node: str, kind: str, settings: Mapping[str, str]) -> None:
        self.node, self.kind, self.settings = node, kind, settings
        self.before: dict[str, str] = {}
        """The former values of the changed settings, to restore."""
        self._idle = ""

    @property
    def detail(self) -> Any:
        return {self.kind: dict(self.settings)}

    @property
    def effects(self) -> Sequence[Effect]:
        return []

    def describe(self, labels: Mapping[str, str]) -> str:
        return f"{labelled(self.node, labels)} [{self.kind}]"

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        server = self._server(deployment)
        if server is None or server.process() is None:
            self._idle = f"no {self.kind} runs"
            return None
        now = server.admin.settings(_ASK_S)
        unknown = sorted(set(self.settings) - set(now))
        if unknown:
            raise InfraError(f"{self.node}: the {self.kind} has no setting {', '.join(unknown)}")
        claimed = _CHANGED.take([(server, name) for name in self.settings if now[name] != self.settings[name]])
        names = [name for name in self.settings if (server, name) in claimed]
        if not names:
            self._idle = "the settings have these values already, or another strike has changed them"
            return None
        self.before = {name: now[name] for name in names}
        try:
            lease = deployment.node(self.node).lease(
                [list(server.admin.change_command({name: self.settings[name] for name in names}))],
                [list(server.admin.change_command(self.before))],
                ttl_s=ttl_s,
            )
        except BaseException:
            _CHANGED.release(claimed)
            raise
        return _Changed(server, self.before, lease)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the server itself returns the new values."""
        server = self._server(deployment)
        if server is None or not self.before:
            return Evidence(False, self._idle)
        now: Mapping[str, str] = {}

        def taken() -> bool:
            nonlocal now
            now = server.admin.settings(_ASK_S)
            return all(now.get(name) == self.settings[name] for name in self.before)

        changed = eventually(taken, self.patience_s)
        return Evidence(changed, "; ".join(f"{n}: {was} -> {now.get(n)}" for n, was in self.before.items()))

    def healed(self, deployment: Deployment) -> Evidence:
        server = self._server(deployment)
        assert server is not None, "it was there when the strike began"
        if server.process() is None:
            return Evidence(True, f"the {self.kind} does not run; its file has the values from before")
        differ = eventually(lambda: not _differ(server, self.before), self.patience_s)
        return Evidence(differ, "; ".join(f"{n}: {v if differ else 'not yet ' + v}" for n, v in self.before.items()))

    def _server(self, deployment: Deployment) -> Server | None:
        return next(iter(servers_of(deployment, self.node, [self.kind])), None)


class _Changed(Lease):
    """The lease of a change. A server that read its file while this ended, and began to listen afterwards, gets the old
    values again.
    """

    def __init__(self, server: Server, before: Mapping[str, str], lease: Lease) -> None:
        self._server, self._before, self._lease = server, before, lease

    def heal(self, timeout_s: float = 30) -> None:
        self._lease.heal(timeout_s)
        if self._server.process() is not None and _differ(self._server, self._before):
            self._server.node.run(self._server.admin.change_command(self._before))
        _CHANGED.release([(self._server, name) for name in self._before])


def _differ(server: Server, wanted: Mapping[str, str]) -> bool:
    """True if a setting in `wanted` has another value now. Raises InfraError for a server that does not return them."""
    now = server.admin.settings(_ASK_S)
    return any(now.get(name) != value for name, value in wanted.items())


class ConfigChange(Fault):
    """Settings of running servers are changed, and changed back at the heal."""

    name = "config-change"
    summary = "changes settings of running servers, and changes them back"
    Options = ChangeOptions
    default_target: ClassVar[str] = "one"

    def kinds_needed(self) -> Sequence[str]:
        return [self.options.kind] if self.options.kind else []

    def available(self, deployment: Deployment) -> str | None:
        """Tries the program that a change needs on a node, and makes the command without running it."""
        kind = self.options.kind
        if kind and (why := missing_kind(deployment, [kind])):
            return why
        for server in deployment.servers(kind=kind or None):
            if not kind and server.group is None:
                continue
            try:
                server.admin.change_command(self.options.settings)
                server.node.run(["python3", "-c", "import re, socket"])
            except InfraError as problem:
                return str(problem)
        return None

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        given: str = self.options.kind
        kinds = kinds_meant(view, target, [given] if given else [])
        one = {node: view.main[node] if view.main.get(node) in hit else hit[0] for node, hit in kinds.items()}
        return {node: Change(node, kind, self.options.settings) for node, kind in one.items()}
