# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's gRPC protocol, through its proxy, by the protocol code of `rocketmq-python-client` 5.1.2.

One attempt, an exact deadline, and the proxy's own code as the result. The proxy hides much: most of a broker's
refusals come as 50001, which may also be an exception after the append, so that they are `info`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from infra.systems.outcome import Outcome, OutcomeType
from infra.systems.rocketmq.clients.worker import NotStarted, Standby, Worker, WorkerError
from infra.systems.rocketmq.protocol.outcomes import outcome_of
from infra.systems.rocketmq.protocol.sending import Sent

_GRACE_S: Final = 0.5
"""gRPC keeps the deadline by itself; the process is ended only if it does not answer this much later."""

_BUSY: Final = 42900


@dataclass(frozen=True, slots=True)
class Line:
    """The meaning of the proxy's codes from `first` to `last` for a send. `remoting`: the broker's code behind it."""

    first: int
    last: int
    type: OutcomeType
    why: str
    source: str
    remoting: int | None = None


OUTCOMES: Final[tuple[Line, ...]] = (
    Line(20000, 20000, "ok", "", "SendMessageActivity.convertToSendMessageResponse: SEND_OK", 0),
    Line(40000, 40499, "fail", "refused by the proxy", "its validation, permissions and routes, before the broker"),
    Line(41300, 41399, "fail", "too big or empty: refused by the proxy", "GrpcValidator and SendMessageActivity"),
    Line(42800, 42999, "fail", "too busy: refused by the proxy", "its own limits; of a broker SYSTEM_BUSY", 2),
    Line(43100, 43199, "fail", "too long headers: refused by the proxy", "SendMessageActivity, validation"),
    Line(50002, 50002, "info", "appended at most on the master", "SLAVE_NOT_AVAILABLE", 11),
    Line(50100, 50199, "fail", "not known to broker or proxy", "ResponseBuilder: REQUEST_CODE_NOT_SUPPORTED", 3),
    Line(50401, 50401, "info", "appended, the disk's answer did not come in time", "FLUSH_DISK_TIMEOUT", 10),
    Line(50402, 50402, "info", "appended on the master, too few replicas in time", "FLUSH_SLAVE_TIMEOUT", 12),
)
"""`Code` of the protocol; codes in no line are `info`: 40800 and 504xx are time-outs, 500xx may be anything
(`ResponseBuilder.buildCode` has five codes for all of a broker's).
"""


class ProxyProducer:
    """One producer in one process. It goes to one proxy at a time, and to the next one after anything but success. It
    sends to a topic, and the proxy chooses the queue: give topics one queue each where that matters.

    packages  the folder that `packages.proxy_folder` made. first: which of the proxies it begins with.
    """

    def __init__(
        self,
        packages: Path,
        proxies: Sequence[tuple[str, int]],
        *,
        deadline_s: float,
        raft_log: bool | None = None,
        first: int = 0,
    ) -> None:
        if not proxies:
            raise ValueError("a client of the proxy needs a proxy")
        self.packages = packages
        self.proxies = [f"{host}:{port}" for host, port in proxies]
        self.deadline_s = deadline_s
        self.raft_log = raft_log
        self._at = first % len(proxies)
        self._standbys = {address: Standby(partial(self._start, address)) for address in self.proxies}

    async def open(self) -> None:
        """Starts the process, so that the first send need not wait for it; if that fails, the send tries again."""
        with contextlib.suppress(NotStarted):
            await self._standbys[self.proxies[self._at]].ready()

    async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent:
        """Sends a message."""
        request = {"do": "send", "topic": topic, "body": body.decode()}
        try:
            reply = await self._standbys[self.proxies[self._at]].ask(
                lambda left: {**request, "timeout_s": left},
                self.deadline_s if deadline_s is None else deadline_s,
                grace_s=_GRACE_S,
            )
            sent = _sent(reply, self.raft_log)
        except NotStarted as e:
            sent = Sent(Outcome("fail", f"nothing was sent: {e}"))
        except WorkerError as e:
            sent = Sent(Outcome("info", str(e)))
        if sent.outcome.type != "ok":
            self._at = (self._at + 1) % len(self.proxies)
        return sent

    async def close(self) -> None:
        """Ends the processes. The next send starts another one."""
        for standby in self._standbys.values():
            await standby.close()

    async def _start(self, address: str) -> Worker:
        """A process that talks to a proxy. Raises NotStarted."""
        worker = Worker("infra.systems.rocketmq.clients.proxy_child", str(self.packages), address)
        await worker.start()
        return worker


def outcome_of_code(code: int, name: str, why: str, raft_log: bool | None = None) -> Outcome:
    """The meaning of the proxy's code for a send. A broker that is too busy is judged by its own text."""
    line = next((line for line in OUTCOMES if line.first <= code <= line.last), None)
    if line is None:
        return Outcome("info", f"{code} {name}: {why}")
    if code == _BUSY and why.startswith("["):
        return outcome_of("send", 2, why, raft_log)
    return Outcome(line.type, "" if line.type == "ok" else f"{code} {name}: {line.why} ({why})")


def _sent(reply: Mapping[str, Any], raft_log: bool | None) -> Sent:
    if "refused" in reply:
        return Sent(Outcome("fail", f"nothing was sent: {reply['refused']}"))
    if "broken" in reply:
        return Sent(Outcome("info", str(reply["broken"])))
    if "error" in reply:
        return Sent(Outcome("info", f"{reply['error']}: {reply['why']}"))
    code = reply["code"]
    outcome = outcome_of_code(code, reply["name"], reply["why"], raft_log)
    offset = reply.get("offset")
    if outcome.type == "ok" and offset is None:
        return Sent(Outcome("info", "acknowledged, but without an offset"))
    remoting = next((line.remoting for line in OUTCOMES if line.first <= code <= line.last), None)
    return Sent(outcome, offset, reply.get("message_id"), remoting, reply["why"])
