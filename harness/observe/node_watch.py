# SPDX-License-Identifier: Apache-2.0
"""Watches if the nodes exist at all: during a run an engine may be stopped, or a user may remove the machines.

Without nodes every wait lasts until its own limit, which is minutes in all. So the run ends as soon as no node has
answered for a while. No fault has this effect: the way from the control program to the nodes is never cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from infra.machines.api import Node

GONE_S: Final = 25.0
"""If no node has answered for so many seconds, the nodes are gone. An overloaded machine still answers once in this
time, or its run is lost anyway.
"""
_EVERY_S: Final = 4.0
_ANSWER_S: Final = 8.0


class NodeWatch:
    """`gone` is called once, with the reason, if all nodes have answered before and none does any more."""

    def __init__(self, nodes: Sequence[Node], gone: Callable[[str], None]) -> None:
        self._nodes, self._gone = nodes, gone
        self._answered: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(max(1, len(nodes)), thread_name_prefix="nodes")

    async def watch(self) -> None:
        """Watches until cancelled, or until the nodes are gone."""
        tasks = [asyncio.ensure_future(self._watch(node)) for node in self._nodes]
        try:
            while not self._all_gone():
                await asyncio.sleep(_EVERY_S / 2)
            first = self._problems.get(self._nodes[0].name, "no answer")
            self._gone(f"no node has answered for {GONE_S:g} s: {first}")
        finally:
            for task in tasks:
                task.cancel()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _all_gone(self) -> bool:
        now = asyncio.get_running_loop().time()
        return len(self._answered) == len(self._nodes) > 0 and all(now - at > GONE_S for at in self._answered.values())

    async def _watch(self, node: Node) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._pool, lambda: node.run(["true"], timeout_s=_ANSWER_S))
                self._answered[node.name] = loop.time()
            except Exception as problem:  # whatever the way to it raises: it did not answer
                self._problems[node.name] = str(problem)
            await asyncio.sleep(_EVERY_S)


def let_go(nodes: Sequence[Node]) -> None:
    """Ends all commands that still wait for an answer of lost nodes. Never raises."""
    for node in nodes:
        with suppress(Exception):  # what is left of a connection that broke may be in any state
            node.close()
