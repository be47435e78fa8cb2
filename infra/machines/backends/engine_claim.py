# SPDX-License-Identifier: Apache-2.0
"""The owner of a cluster on a Docker engine: a claim that the owner renews and the engine keeps.

The claim is a container that runs as long as its owner lives. The owner holds its stdin and sends a line every
`RENEW_S`. The container ends when stdin ends (the engine notices that the owner's connection is closed), or when no
line came for `TTL_S` (the owner's machine or network has failed). Every client of the engine therefore gets the same
answer: from another PID namespace, with another cache folder, over the network. There cannot be two owners, because the
container's name is that of the run. A kept cluster has its own mark: a container that is never started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Self

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from infra.machines.api import InfraError

log = logging.getLogger("infra")

ROLE: Final = "rocketmq-harness.role"
"""The label of containers that are no nodes: `claim` or `kept`."""

RENEW_S: Final = 5.0
TTL_S: Final = 120
"""Seconds; longer than the time in which an engine passes on a line, even if it is busy or stopped for a minute."""

_CONFLICT: Final = 409
_WATCH: Final = f"while read -r -t {TTL_S} _; do :; done"


class EngineClaim:
    """Held from `take` until `release`, or this process' end."""

    def __init__(self, container: Any, stdin: Any) -> None:
        self._container, self._stdin = container, stdin
        self._done = threading.Event()
        os.register_at_fork(after_in_child=self._close)  # a forked child does not hold it too
        threading.Thread(target=self._renew, name="claim", daemon=True).start()

    @classmethod
    def take(cls, client: docker.DockerClient, image: str, prefix: str, labels: Mapping[str, str]) -> Self:
        """The claim on the cluster whose things are named `prefix-...`. Raises InfraError if another process holds it;
        docker's own errors pass.
        """
        name = f"{prefix}-claim"
        with contextlib.suppress(NotFound):
            old = client.containers.get(name)
            if old.status == "running":
                raise InfraError("in use by another process")
            _remove_unless_running(old)
        try:
            container = client.containers.create(
                image,
                ["bash", "-c", _WATCH],
                name=name,
                labels={**labels, ROLE: "claim"},
                network_mode="none",
                stdin_open=True,
                cap_drop=["ALL"],
                mem_limit="64m",
                pids_limit=16,
            )
        except APIError as problem:
            if problem.status_code == _CONFLICT:
                raise InfraError("in use by another process, which came first") from None
            raise
        try:
            stdin = _started(container)
        except BaseException:  # created and never started, it would pass for a claim for `TTL_S`
            with contextlib.suppress(DockerException, requests.RequestException):
                container.remove(force=True)
            raise
        return cls(container, stdin)

    def release(self) -> None:
        """Releases the claim. Idempotent; docker's errors pass."""
        self._done.set()
        self._close()
        with contextlib.suppress(NotFound):
            self._container.remove(force=True)

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            if (sock := _socket(self._stdin)) is not None:
                sock.close()
            self._stdin.close()

    def _renew(self) -> None:
        while not self._done.wait(RENEW_S):
            try:
                if (sock := _socket(self._stdin)) is not None:
                    sock.send(b"\n")
            except OSError as problem:
                log.warning("the connection that holds the claim on this cluster broke: %s", problem)
                if not self._take_again():
                    return

    def _take_again(self) -> bool:
        """Holds the same container's stdin again; False once it is gone, or the claim was released."""
        self._close()
        while not self._done.wait(RENEW_S):
            try:
                self._stdin = _started(self._container)
            except NotFound:
                return False
            except (DockerException, requests.RequestException, OSError):
                continue  # the engine is away; it may come back
            return True
        return False


def _socket(stdin: Any) -> Any:
    """The socket behind the SDK's stream (some of its transports give the socket itself); None once it was closed."""
    return getattr(stdin, "_sock", stdin)


def _started(container: Any) -> Any:
    """Starts a claim's container, and returns its stdin as a socket. Attached before the start: the end of this
    connection is the end of its stdin.
    """
    stdin = container.client.api.attach_socket(container.id, params={"stdin": 1, "stream": 1})
    try:
        container.start()
    except BaseException:
        stdin.close()
        raise
    return stdin


def mark_kept(client: docker.DockerClient, image: str, prefix: str, labels: Mapping[str, str]) -> None:
    """Marks the cluster as one that is to live on without its owner."""
    client.containers.create(
        image, ["true"], name=f"{prefix}-kept", labels={**labels, ROLE: "kept"}, network_mode="none"
    )


def is_held(containers: Iterable[Any], now: datetime) -> bool:
    """True if one of a run's containers is a claim that a process holds: it runs, or is about to be started.

    now  the engine's time.
    """
    return any(
        _labels(c).get(ROLE) == "claim"
        and (c.status == "running" or (c.status == "created" and (now - _created(c)).total_seconds() < TTL_S))
        for c in containers
    )


def is_kept(containers: Iterable[Any]) -> bool:
    """True if one of a run's containers is the mark of a cluster that was kept."""
    return any(_labels(c).get(ROLE) == "kept" for c in containers)


def engine_time(client: docker.DockerClient) -> datetime:
    """The time of the engine's clock. Raises DockerException if the engine returns no valid time."""
    try:
        return _time(str(client.info()["SystemTime"]))
    except (KeyError, ValueError) as problem:
        raise DockerException(f"the engine does not report its time: {problem}") from None


def _remove_unless_running(container: Any) -> None:
    """Removes a container. The engine refuses if another process has just started it: then it is theirs."""
    try:
        container.remove(v=True)
    except NotFound:
        return
    except APIError as problem:
        if problem.status_code == _CONFLICT:
            raise InfraError("in use by another process, which came first") from None
        raise


def _labels(container: Any) -> Mapping[str, str]:
    labels: Mapping[str, str] = container.labels or {}
    return labels


def _created(container: Any) -> datetime:
    created = container.attrs["Created"]
    return datetime.fromtimestamp(created).astimezone() if isinstance(created, int) else _time(str(created))


def _time(text: str) -> datetime:
    """RFC 3339 with nanoseconds, of which Python takes six digits: `2026-11-22T07:30:00.123456789Z`."""
    head, dot, rest = text.partition(".")
    if not dot:
        return datetime.fromisoformat(text)
    zone = rest.lstrip("0123456789")
    return datetime.fromisoformat(f"{head}.{rest[: len(rest) - len(zone)][:6]}{zone}")
