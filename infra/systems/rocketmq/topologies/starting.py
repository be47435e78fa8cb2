"""The start of the servers of a cluster, in an order in which none waits long for another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final

from infra.machines.api import InfraError
from infra.systems.java import JavaServer, Looks
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, PROXY

_STAGES: Final = ((NAMESRV, CONTROLLER), (BROKER,), (PROXY,))
"""Brokers query name servers and controllers at their start, and again only seconds later."""

_AT_ONCE: Final = 4
"""Small servers that start at one time; the next one follows as soon as one of them answers."""

_POLL_S: Final = 0.25
_ASK_S: Final = 2.0


def start_in_stages(servers: Sequence[JavaServer], deadline: float, timeout_s: float) -> None:
    """Starts them, and waits until each answers. deadline: of the monotonic clock, `timeout_s` after the first start.
    Raises InfraError with the end of the log of a server that does not answer; servers that have not begun to start
    are then not started.
    """
    for stage in _STAGES:
        staged = [server for kind in stage for server in servers if server.kind == kind]
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

        # All brokers at once: after a restart one may wait for another, the only one that may become master.
        with ThreadPoolExecutor(max(len(staged), 1) if BROKER in stage else _AT_ONCE) as pool:
            try:
                list(pool.map(bring_up, staged))
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
