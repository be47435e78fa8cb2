# SPDX-License-Identifier: Apache-2.0
"""A simulated group of three brokers in virtual time: right, unless a bug is planted.

One master appends to the queues, slaves copy; a controller elects from the in-sync set. Producers, some of them pinned
to a node, readers of masters and slaves, faults (a master killed, or cut off from everything but its clients), late
and lost answers, truncation of what was never acknowledged: all that a client of a right group may see. `strict`: an
acknowledgement waits for all in-sync replicas, and readers see only what those hold; otherwise neither does.

Processes are Python generators that yield how long they sleep; a history of a hundred sends takes milliseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from random import Random
from typing import Any

from results.op import NEMESIS, Op, OpType
from results.record import Observation

NODES = ("n1", "n2", "n3")
QUEUES = ("t:a:0", "t:a:1", "t:a:2")
S = 1_000_000_000

Process = Iterator[float]


class Bug(Enum):
    """The bugs that can be planted."""

    LOSE = "a new master lacks the last messages that were acknowledged"
    SPLIT_BRAIN = "a cut-off master stops waiting for its slaves, and goes on acknowledging"
    DUPLICATE = "now and then a message is appended twice"
    SWAP = "now and then two neighbours change places after they were acknowledged"
    SHIFT = "from some moment on acknowledgements name the offset after the right one"
    INVERT = "now and then a message leaves an offset free in front of it, which the next one takes"
    STALE = "now and then the master answers from a view that is seconds old"
    SKIP = "now and then a reader is sent past some messages"
    HOLE = "a message vanishes from every replica, and its offset stays empty"
    DIVERGE = "a slave holds another message at some offset"
    DIRTY = "readers of the master see what is not replicated yet"
    PHANTOM = "now and then a refused message is stored all the same"
    STRAY = "now and then a body is damaged"
    REGRESS = "a new master knows nothing of the group's committed offsets"
    SKIP_COMMITS = "now and then a committed offset is stored too high"
    FORGET = "a consumer gets an offset up to which it has not consumed"
    SHIFT_UNSURE = "answers of unknown outcome name the offset after the right one"
    CONJURE = "a broker knows an offset of a group that has committed none"
    STARVE = "a group is given nothing at all, and the answer that it has reached the end"
    REWIND = "now and then a consumer's client goes back by itself"
    LEAP = "now and then a consumer's client leaves something out"
    REUSE_ID = "now and then a message gets the id of the one before it"


@dataclass
class Node:
    """One broker. `acting`: it takes itself for the master. `confirm`: how much of each queue readers may see; `floor`:
    what lies below was deleted for its age.
    """

    name: str
    logs: dict[str, list[Any]] = field(default_factory=lambda: {q: [] for q in QUEUES})
    confirm: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    floor: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    committed: dict[str, int] = field(default_factory=dict)
    history: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    up: bool = True
    cut: bool = False
    acting: bool = False
    lag: float = 0.0


class Brokers:
    """`strikes_at`: when the master is killed, and nothing else happens; None: random faults all the time.
    `planted`: how often the bug struck.
    """

    def __init__(
        self,
        seed: int,
        bug: Bug | None = None,
        strict: bool = True,
        consumers: int = 0,
        strikes_at: Sequence[float] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.strikes_at = strikes_at
        self.bug, self.strict = bug, strict
        self.now = 0.0
        self.nodes = {name: Node(name) for name in NODES}
        self.nodes["n1"].acting = True
        self.master: str | None = "n1"
        self.believed = "n1"
        self.epoch = 1
        self.in_sync = set(NODES)
        self.ops: list[Op] = []
        self.seen: list[Observation] = []
        self.ids, self.numbers, self.order = count(1), count(), count()
        self.free: dict[str, int] = {}
        self.acked: dict[int, float] = {}
        self.sent: dict[int, float] = {}
        self.inverted: set[int] = set()
        self.shown: set[Any] = set()
        self.unsure: set[int] = set()
        self.began: set[str] = set()
        self.planted = 0
        self.given = 0
        self.shifted: str | None = None
        self.stop = False
        self.heap: list[tuple[float, int, Process]] = []
        self.consumers = consumers

    # What really happened.

    @property
    def lost(self) -> set[int]:
        """Messages that were acknowledged and are on no replica in the end."""
        return self.acked.keys() - self._kept()

    @property
    def dirty(self) -> set[Any]:
        """Messages that were shown to readers, never acknowledged, and are on no replica in the end."""
        return self.shown - self.acked.keys() - self._kept()

    def _kept(self) -> set[Any]:
        return {m for node in self.nodes.values() for log in node.logs.values() for m in log}

    # The engine.

    def spawn(self, process: Process) -> None:
        heapq.heappush(self.heap, (self.now, next(self.order), process))

    def until(self, time: float) -> None:
        while self.heap and self.heap[0][0] <= time:
            self.now, _, process = heapq.heappop(self.heap)
            delay = next(process, None)
            if delay is not None:
                heapq.heappush(self.heap, (self.now + delay, next(self.order), process))
        self.now = time

    def note(
        self,
        process: int,
        type_: OpType,
        f: str,
        key: str | None = None,
        value: Any = None,
        error: str | None = None,
        **extra: Any,
    ) -> None:
        self.ops.append(Op(len(self.ops), int(self.now * S), process, type_, f, key, value, error, extra))

    def strikes(self, chance: float) -> bool:
        """True if the bug strikes now."""
        return self.rng.random() < chance

    def travel(self) -> float:
        return self.rng.uniform(0.001, 0.02)

    # The servers.

    def hears(self, a: Node, b: Node) -> bool:
        return a.up and b.up and not a.cut and not b.cut

    def replicate(self) -> Process:
        """Slaves copy, the in-sync set follows, the dead are replaced."""
        gone = 0.0
        while True:
            yield 0.04
            master = self.nodes[self.master] if self.master else None
            if master is None or not master.up or master.cut:
                gone += 0.04
                if gone > 0.3:
                    gone = 0.0 if self._elect() else gone
                continue
            gone = 0.0
            for node in self.nodes.values():
                if node is not master and self.hears(node, master):
                    node.acting = False
                    self._copy(master, node)
            self._membership(master)
            self._confirm(master)

    def _copy(self, master: Node, slave: Node) -> None:
        if self.rng.random() < 0.03:
            slave.lag = self.now + self.rng.uniform(0, 0.6)
        if slave.lag > self.now:
            return
        for queue, log in master.logs.items():
            mine = slave.logs[queue]
            same = len(mine)
            if mine != log[:same]:
                same = next((i for i, (a, b) in enumerate(zip(mine, log, strict=False)) if a != b), min(same, len(log)))
                if self.bug is Bug.DIVERGE and len(mine) == len(log):
                    continue
                del mine[same:]
            mine.extend(log[same : same + self.rng.randint(1, 6)])
            if self.bug is Bug.DIVERGE and len(mine) > 3 and slave.name == NODES[-1] and self.strikes(0.02):
                mine[-2], mine[-3] = mine[-3], mine[-2]
                self.planted += 1
            slave.confirm[queue] = min(len(mine), master.confirm[queue])
        if not slave.history or slave.history[-1][0] < self.now - 1:
            slave.committed = dict(master.committed)
            slave.history.append((self.now, slave.committed))

    def _membership(self, master: Node) -> None:
        for node in self.nodes.values():
            behind = any(len(node.logs[q]) < len(master.logs[q]) - 12 for q in QUEUES)
            if node is master:
                self.in_sync.add(node.name)
            elif not self.hears(node, master) or behind:
                self.in_sync.discard(node.name)
            elif all(node.logs[q][: master.confirm[q]] == master.logs[q][: master.confirm[q]] for q in QUEUES):
                self.in_sync.add(node.name)

    def _confirm(self, master: Node) -> None:
        for queue, log in master.logs.items():
            held = [len(self.nodes[n].logs[queue]) for n in self.in_sync]
            master.confirm[queue] = max(master.confirm[queue], min([*held, len(log)]))

    def _elect(self) -> bool:
        able = [n for n in self.nodes.values() if n.up and not n.cut and n.name in self.in_sync]
        if not able or len([n for n in self.nodes.values() if n.up and not n.cut]) < 2:
            return False
        chosen = able[0] if self.strict else max(able, key=lambda n: sum(map(len, n.logs.values())))
        self.epoch += 1
        self.master, self.in_sync, chosen.acting = chosen.name, {chosen.name}, True
        for queue, log in chosen.logs.items():
            if self.bug is Bug.LOSE and len(log) > 2:
                del log[-2:]
                self.planted += 1
            chosen.confirm[queue] = len(log)
        if self.bug is Bug.REGRESS:
            self.planted += bool(chosen.committed)
            chosen.committed = {}
        self.spawn(self._tell(chosen.name))
        return True

    def _tell(self, master: str) -> Process:
        yield self.rng.uniform(0, 0.3)
        self.believed = master

    def expire(self) -> Process:
        """Every broker deletes its oldest messages by itself, once they have been read."""
        while True:
            yield self.rng.uniform(0.05, 0.3)
            node, queue = self.nodes[self.rng.choice(NODES)], self.rng.choice(QUEUES)
            low, log = node.floor[queue], node.logs[queue]
            top = min(low + self.rng.randint(1, 4), node.confirm[queue] - 2)
            if all(message in self.shown for message in log[low:top]):
                node.floor[queue] = max(low, top)

    def observe(self) -> Process:
        while True:
            for node in self.nodes.values():
                role = "silent" if not node.up else "leader" if node.acting else "follower"
                extra: dict[str, Any] = {"broker_name": "a"}
                if node.name == "n2":
                    extra |= {"in_sync": sorted(self.in_sync), "in_sync_epoch": self.epoch}
                term = self.epoch if node.name == self.master else None
                self.seen.append(Observation(int(self.now * S), node.name, role, term=term, extra=extra))
            yield 0.5

    # What goes wrong.

    def faults(self, seconds: float) -> Process:
        planned = list(self.strikes_at or ())
        for number in count(1):
            if self.strikes_at is not None and not planned:
                return
            yield planned.pop(0) - self.now if planned else self.rng.uniform(0.4, 1.2)
            if self.now > seconds - 1:
                return
            struck = self.nodes[self.master or self.rng.choice(NODES)]
            if self.strikes_at is None and self.rng.random() < 0.3:
                struck = self.nodes[self.rng.choice(NODES)]
            kill = self.strikes_at is not None or self.rng.random() < 0.5
            others = [n for n in NODES if n != struck.name]
            peers = [struck.name] if kill else others
            what = {"fault": "kill" if kill else "partition", "id": number, "nodes": {struck.name: "struck"}}
            self.note(NEMESIS, "invoke", "inject", value=what)
            struck.up, struck.cut = struck.up and not kill, not kill
            self.note(NEMESIS, "info", "inject", value={**what, "impairs": {struck.name: peers}, "seen": True})
            lasting = self.now + self.rng.uniform(0.5, 1.5)
            while self.now < lasting:
                if self.bug is Bug.SPLIT_BRAIN and struck.cut and struck.acting and struck.name == self.master:
                    for queue, log in struck.logs.items():
                        struck.confirm[queue] = len(log)
                yield 0.02
                if self.bug is Bug.SPLIT_BRAIN and struck.cut and struck.acting:
                    for queue, log in struck.logs.items():
                        struck.confirm[queue] = len(log)
            self.note(NEMESIS, "invoke", "heal", value=what)
            back_as_master = kill and self.master == struck.name
            struck.up, struck.cut = True, False
            struck.acting = struck.acting and (back_as_master or not kill)
            self.note(NEMESIS, "info", "heal", value=what)

    # What a request finds.

    def refusal(self, node: Node) -> str | None:
        if not node.up:
            return "connection refused"
        if not node.acting:
            return "14: not the master"
        if self.strict and len(self.in_sync) < 2 and self.bug is not Bug.SPLIT_BRAIN:
            return "1: in-sync replicas not enough"
        return None

    def append(self, node: Node, queue: str, identity: int) -> int:
        log = node.logs[queue]
        if self.bug is Bug.INVERT:
            return self._out_of_turn(log, queue, identity)
        log.append("?646166742121" if self.bug is Bug.STRAY and self.plants(0.05) else identity)
        offset = len(log) - 1
        if self.bug is Bug.DUPLICATE and self.plants(0.05):
            log.append(identity)
        if self.bug is Bug.SHIFT and self.shifted is None and self.strikes(0.05):
            self.shifted = queue
        return offset

    def plants(self, chance: float) -> bool:
        struck = self.strikes(chance)
        self.planted += struck
        return struck

    def _out_of_turn(self, log: list[Any], queue: str, identity: int) -> int:
        if self.free.get(queue, len(log)) < len(log):
            offset = self.free.pop(queue)
            log[offset] = identity
            behind = [m for m in log[offset + 1 :] if self.acked.get(m, self.now) < self.sent[identity]]
            if behind:
                self.inverted.add(identity)
            return offset
        self.free.pop(queue, None)
        if self.strikes(0.1):
            self.free[queue] = len(log)
            log.append(None)
        log.append(identity)
        return len(log) - 1

    def tamper(self, node: Node, queue: str, offset: int) -> None:
        """Bugs that strike once a message is safe on every replica."""
        logs = [n.logs[queue] for n in self.nodes.values()]
        same = all(len(log) > offset and log[: offset + 1] == logs[0][: offset + 1] for log in logs)
        if not same or offset < 1:
            return
        if self.bug is Bug.SWAP and self.plants(0.2):
            for log in logs:
                log[offset - 1], log[offset] = log[offset], log[offset - 1]
        if self.bug is Bug.HOLE and self.plants(0.1):
            for log in logs:
                log[offset - 1] = None

    def visible(self, node: Node, queue: str) -> int:
        """The part of a queue that readers of this node see: its first entries."""
        log = node.logs[queue]
        if self.strict and not (self.bug is Bug.DIRTY and node.acting):
            return min(node.confirm[queue], len(log))
        return len(log)

    def messages(self, node: Node, queue: str, begin: int, end: int, most: int = 8) -> list[list[Any]]:
        begin = max(begin, node.floor[queue])
        stretch = node.logs[queue][begin : min(end, begin + most)]
        self.shown.update(m for m in stretch if m is not None)
        return [[begin + i, m] for i, m in enumerate(stretch) if m is not None]
