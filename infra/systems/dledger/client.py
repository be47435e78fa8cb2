# SPDX-License-Identifier: Apache-2.0
"""A client of the register server (`infra/systems/dledger/server/`): it finds the leader, follows it, and tries each
operation once.

>>> client = RegisterClient({"n1": ("198.18.20.11", 20911)}, pinned=None, deadline_s=5)
>>> answer = await client.write("k1", 7)  # doctest: +SKIP
>>> answer.outcome.type, answer.index     # doctest: +SKIP
('ok', 12)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from infra.systems.dledger.outcomes import Operation, outcome_of, outcome_of_error, outcome_of_outer
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Broken, Connection, RemotingError, connect
from infra.systems.remoting.frame import Frame

GROUP: Final = "harness"
"""The Raft group's name, here and in the topology."""

ReadMode = Literal["log", "unsafe"]

_USER_DEFINED: Final = 59999
"""DLedgerRequestCode.USER_DEFINE_REQUEST; the type code goes into the header."""

_WRITE, _READ, _CAS, _STATUS = "0", "1", "2", "3"
_READ_MODES: Final[Mapping[ReadMode, str]] = {"log": "RAFT_LOG_READ", "unsafe": "UNSAFE_READ"}

_ROUND_S: Final = 0.5
"""The time that one round of queries for the leader waits for silent nodes."""

_PAUSE_S: Final = 0.1
"""The pause between two rounds: an election takes seconds, and each query costs the servers work."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt.

    value    the value that a read saw (None: absent); after a cas or write, the register's value.
    applied  whether a cas took effect; True for a write; None if the server did not report it.
    node     the node that got the request, or None if none did.
    term     of the entry, or the answering node's current one. index: of the entry, for a read of the entry that wrote
             the value.
    code     the answer's code (`infra.systems.dledger.outcomes`), or None without an answer.
    """

    outcome: Outcome
    value: int | None = None
    applied: bool | None = None
    node: str | None = None
    term: int | None = None
    index: int | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The report of a node from its own state. Indices are DLedger's: -1 means none yet.

    before_begin  the last index cut off in front of its log (-1: nothing is).
    snapshots     number of snapshots that it keeps, snapshot_index the newest's; None without snapshot mode.
    """

    node: str
    role: str
    term: int
    leader: str | None
    before_begin: int
    end: int
    committed: int
    applied: int
    registers: int
    snapshots: int | None
    snapshot_index: int | None
    saving_snapshot: bool


class RegisterClient:
    """The client of one logical process: operations one after the other, each within `deadline_s` seconds.

    pinned   the only node to query, leader or not; None: find the leader and follow it.
    home     the only node whose report of the leader is believed, for a client on that node's side of a partition: it
             uses a deposed leader for as long as its home does. None: all nodes are queried.
    The search for a leader has no effect and may take several tries; it gets half of the deadline. The operation itself
    is sent only once.
    """

    def __init__(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        group: str = GROUP,
        pinned: str | None = None,
        home: str | None = None,
        deadline_s: float,
    ) -> None:
        for node in (pinned, home):
            if node is not None and node not in endpoints:
                raise ValueError(f"bound to {node!r}, which is not one of {', '.join(endpoints)}")
        self._endpoints = dict(endpoints)
        self._group = group
        self._pinned = pinned
        self._home = home
        self._deadline_s = deadline_s
        self._target = pinned
        self._connection: tuple[str, Connection] | None = None

    async def write(self, key: str, value: int) -> Answer:
        """Sets a register to a 64-bit value."""
        return await self._operate("write", _WRITE, {"key": key, "value": _long(value)})

    async def cas(self, key: str, expect: int | None, value: int) -> Answer:
        """Sets a register if it holds `expect` (None: if it is absent). `ok` with `applied=False`: it did not."""
        fields: dict[str, Any] = {"key": key, "value": _long(value)}
        if expect is not None:
            fields["expect"] = _long(expect)
        answer = await self._operate("cas", _CAS, fields)
        if answer.outcome.type == "ok" and answer.applied is None:
            why = "acknowledged, but without the result of the state machine"
            return Answer(Outcome("info", why), None, None, answer.node, answer.term, answer.index, answer.code)
        return answer

    async def read(self, key: str, mode: ReadMode = "log") -> Answer:
        """Reads a register through the log of the leader, or (`unsafe`) the value on the queried node."""
        return await self._operate("read", _READ, {"key": key, "readMode": _READ_MODES[mode]})

    async def status(self, node: str, timeout_s: float | None = None) -> NodeStatus:
        """Queries one node's state, on a separate connection. Raises RemotingError."""
        return await ask_status(node, self._endpoints[node], timeout_s or self._deadline_s, self._group)

    async def close(self) -> None:
        """Drops the connection. The client may be used again and then makes a new one."""
        self._disconnect()

    async def _operate(self, operation: Operation, type_code: str, fields: Mapping[str, Any]) -> Answer:
        """Finds the node, connects, sends once, and judges the answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline_s
        node = self._target or await self._find_leader(loop.time() + self._deadline_s / 2)
        if node is None:
            return Answer(Outcome("fail", "nothing was sent: no node reported to be leader within half the deadline"))
        self._target = node
        body = json.dumps({"group": self._group, "remoteId": node, **fields}).encode()
        try:
            connection = await self._connected(node, deadline)
            frame = await connection.call(
                _USER_DEFINED, body, deadline - loop.time(), ext={"requestTypeCode": type_code}
            )
            answer = _judge(operation, node, frame)
        except RemotingError as error:
            self._disconnect()
            self._forget()
            return Answer(outcome_of_error(operation, error), node=node)
        except BaseException:
            self._disconnect()
            raise
        if answer.outcome.type != "ok":
            self._follow(frame)
        return answer

    async def _connected(self, node: str, deadline: float) -> Connection:
        """The connection to a node: the one in use, or a new one. Nothing is sent, so it may be repeated freely."""
        if self._connection is not None:
            to, connection = self._connection
            if to == node and not connection.closed:
                return connection
            self._disconnect()
        connection = await connect(*self._endpoints[node], deadline - asyncio.get_running_loop().time())
        self._connection = node, connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    def _forget(self) -> None:
        """Makes the next operation look for the leader."""
        self._target = self._pinned

    def _follow(self, frame: Frame) -> None:
        """Follows a refusal to the leader that it names, or looks for one."""
        self._forget()
        if self._pinned is None and self._home is None and frame.body:
            hint = json.loads(frame.body).get("leaderId")
            if hint in self._endpoints and hint != (self._connection and self._connection[0]):
                self._target = hint

    async def _find_leader(self, deadline: float) -> str | None:
        """Queries all nodes until one reports that it leads; of several the highest term counts. None: none in time.

        With a home, queries it alone, and believes it.
        """
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0:
            if self._home is not None:
                if believed := await self._opinion(self._home, min(_ROUND_S, left)):
                    return believed
                await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline - loop.time())))
                continue
            leaders = [s for s in await self._ask_all(min(_ROUND_S, left)) if s.role == "leader"]
            if leaders:
                return max(leaders, key=lambda s: s.term).node
            await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline - loop.time())))
        return None

    async def _opinion(self, node: str, timeout_s: float) -> str | None:
        """The node that one node considers the leader; None: it knows none, or does not answer."""
        try:
            reply = await ask_status(node, self._endpoints[node], timeout_s, self._group)
        except RemotingError:
            return None
        return reply.leader if reply.leader in self._endpoints else None

    async def _ask_all(self, timeout_s: float) -> list[NodeStatus]:
        """The status of all nodes that answer. Once one names a leader that has itself reported so in that term, silent
        nodes are not awaited.
        """
        requested = [
            asyncio.create_task(ask_status(node, endpoint, timeout_s, self._group))
            for node, endpoint in self._endpoints.items()
        ]
        answers: list[NodeStatus] = []
        try:
            for task in asyncio.as_completed(requested):
                try:
                    answers.append(await task)
                except RemotingError:
                    continue
                if _agreed(answers, len(requested)):
                    break
        finally:
            for unfinished in requested:
                unfinished.cancel()
            await asyncio.gather(*requested, return_exceptions=True)
        return answers


async def ask_status(node: str, endpoint: tuple[str, int], timeout_s: float, group: str = GROUP) -> NodeStatus:
    """Queries a node's state on a fresh connection, all within `timeout_s`. Raises RemotingError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    connection = await connect(*endpoint, timeout_s)
    try:
        body = json.dumps({"group": group, "remoteId": node}).encode()
        frame = await connection.call(_USER_DEFINED, body, deadline - loop.time(), ext={"requestTypeCode": _STATUS})
        data = _body(node, frame)
        if data.get("code") != 200:
            raise Broken(f"{node}: status answered with code {data.get('code')} {frame.remark or ''}".rstrip())
        return _status(node, data)
    finally:
        connection.close()


def _agreed(answers: list[NodeStatus], nodes: int) -> bool:
    """True if a majority follows, in one term, a leader that has itself reported so."""
    return any(
        2 * sum(a.leader == leader.node and a.term == leader.term for a in answers) > nodes
        for leader in answers
        if leader.role == "leader"
    )


def _judge(operation: Operation, node: str, frame: Frame) -> Answer:
    if not frame.body:
        return Answer(outcome_of_outer(operation, frame.code, frame.remark), node=node, code=frame.code)
    data = _body(node, frame)
    code = _int(node, data, "code")
    if code is None:
        raise Broken(f"{node}: an answer without a code")
    applied = data.get("applied")
    return Answer(
        outcome=outcome_of(operation, code),
        value=_int(node, data, "value"),
        applied=applied if isinstance(applied, bool) else None,
        node=node,
        term=_int(node, data, "term"),
        index=_int(node, data, "index"),
        code=code,
    )


def _status(node: str, data: Mapping[str, Any]) -> NodeStatus:
    def number(name: str) -> int:
        value = _int(node, data, name)
        if value is None:
            raise Broken(f"{node}: a status without {name}")
        return value

    return NodeStatus(
        node=node,
        role=str(data.get("role")),
        term=number("term"),
        leader=data.get("leaderId"),
        before_begin=number("beforeBegin"),
        end=number("end"),
        committed=number("committed"),
        applied=number("appliedIndex"),
        registers=number("registers"),
        snapshots=_int(node, data, "snapshots"),
        snapshot_index=_int(node, data, "snapshotIndex"),
        saving_snapshot=bool(data.get("savingSnapshot")),
    )


def _body(node: str, frame: Frame) -> Mapping[str, Any]:
    """The JSON object in a frame's body. Raises Broken: an invalid answer proves nothing."""
    try:
        data = json.loads(frame.body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Broken(
            f"{node}: the answer's body is not a JSON object: {frame.body[:80]!r} {frame.remark or ''}".rstrip()
        )
    return data


def _int(node: str, data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and type(value) is not int:
        raise Broken(f"{node}: {name} is {value!r}, not a whole number")
    return value


def _long(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value
