# SPDX-License-Identifier: Apache-2.0
"""The start of servers in stages, each of which waits for the one before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Final

from infra.machines.api import InfraError
from infra.systems.java import JavaServer, Looks

_POLL_S: Final = 0.2
_ASK_S: Final = 2.0


@dataclass(frozen=True)
class Stage:
    """Servers that start together. at_once: so many at one time; the next one follows when one of them answers."""

    servers: Sequence[JavaServer]
    at_once: int


def start_in_stages(stages: Sequence[Stage], deadline: float, timeout_s: float) -> None:
    """Starts the servers, and waits until each answers. deadline: of the monotonic clock, `timeout_s` after the first
    start. Raises InfraError with the end of the log of a server that does not answer; servers that have not begun to
    start are then not started.
    """
    for stage in stages:
        given_up = Event()

        def bring_up(server: JavaServer, given_up: Event = given_up) -> None:
            if given_up.is_set():
                return
            try:
                server.start()
                _await_answer(server, deadline, timeout_s, given_up)
            except BaseException:
                given_up.set()
                raise

        with ThreadPoolExecutor(max(stage.at_once, 1)) as pool:
            try:
                list(pool.map(bring_up, stage.servers))
            except BaseException:  # a Ctrl-C here must not wait until every server has answered
                given_up.set()
                raise


def _await_answer(server: JavaServer, deadline: float, timeout_s: float, given_up: Event) -> None:
    """Waits until the server answers at all, or another was given up. Raises InfraError with the end of its log."""
    looks = Looks([server], deadline)
    while not server.admin.answers(_ASK_S) and not given_up.is_set():
        looks.must_run()
        if time.monotonic() > deadline:
            raise InfraError(
                f"{server.node.name}: the {server.kind} did not answer within {timeout_s:.0f} s; its log: "
                f"{server.last_words()}"
            )
        time.sleep(_POLL_S)
