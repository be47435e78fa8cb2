# SPDX-License-Identifier: Apache-2.0
"""Administration of RocketMQ's servers, queries and changes: `infra.systems.api.Admin` for each kind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, Node
from infra.systems.java import LIB, class_path
from infra.systems.remoting.connection import RemotingError
from infra.systems.remoting.frame import Frame, encode
from infra.systems.rocketmq import servers
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.codes import RELEASES, VERSION, Request
from infra.systems.rocketmq.protocol.link import Link
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV
from infra.systems.rocketmq.topologies.state import answers, effective
from infra.systems.settings import properties

_SCRIPT: Final = (Path(servers.__file__).parent / "change_settings.py").read_text()
_CHANGE: Final[Mapping[str, Request]] = {
    NAMESRV: Request.UPDATE_NAMESRV_CONFIG,
    BROKER: Request.UPDATE_BROKER_CONFIG,
    CONTROLLER: Request.UPDATE_CONTROLLER_CONFIG,
}
_SAYS_ITS_VERSION: Final[Mapping[str, Request]] = {
    NAMESRV: Request.GET_NAMESRV_CONFIG,
    BROKER: Request.GET_BROKER_CONFIG,
}
"""Kind of server -> a request whose answer has the version in its header (`codes.RELEASES`)."""
_JARS: Final = re.compile(rf"{LIB}/([^/]+)/")


class RocketmqAdmin:
    """One server. settings_file: path of the configuration that it reads at its start, on its node."""

    def __init__(self, node: Node, kind: str, port: int, settings_file: str) -> None:
        self._node, self._kind, self._port, self._file = node, kind, port, settings_file

    def answers(self, timeout_s: float) -> bool:
        return asyncio.run(answers(self._kind, self._node.address, self._port, timeout_s))

    def version(self, timeout_s: float) -> str:
        if self._kind in _SAYS_ITS_VERSION:
            number = asyncio.run(self._ask(_SAYS_ITS_VERSION[self._kind], timeout_s)).version
            return RELEASES.get(number, f"number {number}")
        jars = _JARS.search(":".join(class_path(self._node, self._kind)))
        if jars is None:
            raise self._error("runs none of the published versions")
        return jars[1]

    def settings(self, timeout_s: float) -> Mapping[str, str]:
        if self._kind not in _CHANGE:
            raise self._error("does not report its settings to anyone")
        try:
            return asyncio.run(effective(self._kind, self._node.address, self._port, timeout_s))
        except (RemotingError, AdminError) as problem:
            raise self._error(f"does not report its settings: {problem}") from None

    def change_command(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Returns the argv of the change. The server also writes accepted values to its file; it silently ignores
        unknown names and bad values.
        """
        if self._kind not in _CHANGE:
            raise self._error("takes no changes while it runs")
        lines = properties(settings)
        frame = encode(Frame(_CHANGE[self._kind], 1, body=lines, version=VERSION))
        where = [self._node.address, str(self._port)]
        return ["python3", "-c", _SCRIPT, *where, frame.hex(), self._file, *lines.decode().splitlines()]

    async def _ask(self, request: Request, timeout_s: float) -> Frame:
        link = Link(self._node.address, self._port, deadline_s=timeout_s)
        try:
            return await link.ask(request, {})
        except RemotingError as problem:
            raise self._error(f"does not report its version: {problem}") from None
        finally:
            await link.close()

    def _error(self, why: str) -> InfraError:
        return InfraError(f"{self._node.name}: the {self._kind} {why}")
