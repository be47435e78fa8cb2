# SPDX-License-Identifier: Apache-2.0
"""librocketmq, the C++ client, through `rocketmq-client-python` 2.0.0.

Its use: the same load as from other users of brokers, with that client's own routing, waiting and retrying. It is not a
measuring instrument: one `send_sync` is up to three sends, each with the whole time-out, and one text
stands for "never sent", "refused" and "sent three times, unknown": **every exception is `info`**. It looks for a new
route every 30 s. So it finds loss and duplicates, not precise times.

Measured with the library of `rocketmq` 0.4.4: a body ends at its first NUL byte; it aborts at times when a connection
ends under it (the process dies, and is started again).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra.machines.api import InfraError
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.clients.worker import NotStarted, Standby, Worker, WorkerError
from infra.systems.rocketmq.protocol.sending import PRODUCERS, Sent

_CHILD: Final = "infra.systems.rocketmq.clients.native_child"

_ATTEMPTS: Final = 3
"""Sends behind one `send_sync` (`DefaultMQProducerImpl`: retryTimes 2); the C interface has no setting for it."""

_MARGIN: Final = 0.9
"""The attempts' share of the deadline: the library should give up by itself, since its process is slow to start."""

_SETTING_UP_S: Final = 60.0

_NEEDED: Final = (
    *("CreateMessage", "SetMessageBody", "DestroyMessage", "CreateProducer", "SetProducerNameServerAddress"),
    *("SetProducerSendMsgTimeout", "StartProducer", "SendMessageSync"),
)
"""Functions of librocketmq that a plain producer uses."""

_STATUS_CODES: Final[Mapping[str, int]] = {
    "FLUSH_DISK_TIMEOUT": 10,
    "SLAVE_NOT_AVAILABLE": 11,
    "FLUSH_SLAVE_TIMEOUT": 12,
}


class NativeProducer:
    """One producer in one process. It sends to a topic, and the library chooses the queue: give topics one queue each
    where that matters. Deadlines are kept by ending the process.

    packages  the folder that `packages.native_folder` made.
    """

    def __init__(
        self, packages: Path, nameservers: Sequence[tuple[str, int]], *, deadline_s: float, group: str = PRODUCERS
    ) -> None:
        self.packages = packages
        self.nameservers = ";".join(f"{host}:{port}" for host, port in nameservers)
        self.deadline_s = deadline_s
        self.group = group
        self._standby = Standby(self._start)

    async def open(self) -> None:
        """Starts the process, so that the first send need not wait for it; if that fails, the send tries again.
        Raises InfraError for a library that is too old.
        """
        with contextlib.suppress(NotStarted):
            await self._standby.ready()

    async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent:
        """Sends a message. Raises ValueError for a body that would arrive cut off."""
        if b"\0" in body:
            raise ValueError("the native client cuts a body off at its first NUL byte")
        request = {"do": "send", "topic": topic, "body": body.decode()}
        try:
            reply = await self._standby.ask(lambda left: request, self.deadline_s if deadline_s is None else deadline_s)
        except NotStarted as e:
            return Sent(Outcome("fail", f"nothing was sent: {e}"))
        except WorkerError as e:
            return Sent(Outcome("info", str(e)))
        return _sent(reply)

    async def close(self) -> None:
        """Ends the process. The next send starts another one."""
        await self._standby.close()

    async def _start(self) -> Worker:
        """A process with a started producer. Raises NotStarted, InfraError."""
        worker = Worker(_CHILD, str(self.packages))
        try:
            await worker.start()
            await check_library(worker)
            timeout_ms = max(1, int(self.deadline_s * 1000 * _MARGIN / _ATTEMPTS))
            request = {"nameservers": self.nameservers, "group": self.group, "timeout_ms": timeout_ms}
            reply = await worker.ask({"do": "produce", **request}, _SETTING_UP_S)
            if "error" in reply:
                raise NotStarted(f"{reply['error']}: {reply['why']}")
        except WorkerError as e:
            await worker.close()
            raise NotStarted(str(e)) from None
        except BaseException:
            await worker.close()
            raise
        return worker


async def check_library(worker: Worker) -> None:
    """Raises InfraError that names the functions of a producer that librocketmq lacks."""
    library = await worker.ask({"do": "library"}, _SETTING_UP_S)
    if lacks := sorted(set(_NEEDED) & set(library["missing"])):
        raise InfraError(f"{library['path']} lacks {', '.join(lacks)}: no librocketmq that --client native can use")


async def native_library(packages: Path) -> tuple[str, list[str]]:
    """The path of librocketmq, and by name the functions that it lacks. Raises InfraError if it is unusable."""
    worker = Worker(_CHILD, str(packages))
    try:
        await worker.start()
        await check_library(worker)
        library = await worker.ask({"do": "library"}, _SETTING_UP_S)
    except WorkerError as e:
        raise InfraError(f"the native client cannot be used here: {e}") from None
    finally:
        await worker.close()
    return str(library["path"]), list(library["missing"])


def _sent(reply: Mapping[str, Any]) -> Sent:
    """Converts the library's result, or its exception."""
    if "error" in reply:
        return Sent(Outcome("info", f"{reply['error']}: {reply['why']}"))
    status, offset, message_id = reply["status"], reply["offset"], reply["message_id"]
    if status == "OK":
        return Sent(Outcome("ok", ""), offset, message_id, 0)
    return Sent(Outcome("info", f"accepted, but {status}"), offset, message_id, _STATUS_CODES.get(status))
