"""A simulated group of three brokers in virtual time: right, unless a bug is planted.

One master appends to the queues, slaves copy; a controller elects from the in-sync set. Producers, some of them pinned
to a node, readers of masters and slaves, faults (a master killed, or cut off from everything but its clients), late
and lost answers, truncation of what was never acknowledged: all that a client of a right group may see. `strict`: an
acknowledgement waits for all in-sync replicas, and readers see only what those hold; otherwise neither does.

Processes are Python generators that yield how long they sleep; a history of a hundred sends takes milliseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from random import Random
from typing import Any

from results.history import History
from results.op import NEMESIS, Op, OpType
from results.record import Observation, RunRecord

NODES = ("n1", "n2", "n3")
QUEUES = ("t:a:0", "t:a:1", "t:a:2")
S = 1_000_000_000

Process = Iterator[float]


class Bug(Enum):
    """What can be planted."""

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
    FORGET = "a consumer is told that it has consumed what it has not"


@dataclass
class Node:
    """One broker. `acting`: it takes itself for the master. `confirm`: how much of each queue readers may see."""

    name: str
    logs: dict[str, list[Any]] = field(default_factory=lambda: {q: [] for q in QUEUES})
    confirm: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    committed: dict[str, int] = field(default_factory=dict)
    history: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    up: bool = True
    cut: bool = False
    acting: bool = False
    lag: float = 0.0


class Sim:
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
        self.planted = 0
        self.shifted: str | None = None
        self.stop = False
        self.heap: list[tuple[float, int, Process]] = []
        self.consumers = consumers

    # The engine.

    def run(self, seconds: float = 4.0) -> RunRecord:
        """Load under faults, then heal, wait, and read every replica through."""
        self._spawn(self._replicate())
        self._spawn(self._observe())
        self._spawn(self._faults(seconds))
        for n in range(4):
            self._spawn(self._producer(NODES[n % 3] if n >= 2 else None))
        for n in range(3):
            self._spawn(self._reader(NODES[n] if n else None))
        for n in range(self.consumers):
            self._spawn(self._consumer(n))
        self._until(seconds)
        self.stop = True
        self._until(seconds + 3)
        self.heap.clear()
        if self.consumers:
            self._spawn(self._drain())
            self._until(seconds + 13)
        self._spawn(self._final())
        self._until(seconds + 30)
        return RunRecord(History(self.ops), observations=self.seen)

    def _spawn(self, process: Process) -> None:
        heapq.heappush(self.heap, (self.now, next(self.order), process))

    def _until(self, time: float) -> None:
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
        """Whether the bug strikes now."""
        return self.rng.random() < chance

    def travel(self) -> float:
        return self.rng.uniform(0.001, 0.02)

    # The servers.

    def hears(self, a: Node, b: Node) -> bool:
        return a.up and b.up and not a.cut and not b.cut

    def _replicate(self) -> Process:
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
        self._spawn(self._tell(chosen.name))
        return True

    def _tell(self, master: str) -> Process:
        yield self.rng.uniform(0, 0.3)
        self.believed = master

    def _observe(self) -> Process:
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

    def _faults(self, seconds: float) -> Process:
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

    # Clients.

    def _number(self) -> int:
        return next(self.numbers)

    def _producer(self, home: str | None) -> Process:
        process = self._number()
        while not self.stop:
            yield self.rng.expovariate(8)
            queue, identity = self.rng.choice(QUEUES), next(self.ids)
            node = self.nodes[home or self.believed]
            self.note(process, "invoke", "send", queue, identity, node=node.name)
            fate = self.rng.random()
            if fate < 0.03:  # the request is under way for long: nobody knows, and it may appear late
                self._spawn(self._late(node, queue, identity))
                yield 1.0
                self.note(process, "info", "send", queue, identity, "no answer within 1 s", node=node.name)
                process = self._number()
                continue
            yield self.travel()
            refused = self._refusal(node)
            if refused:
                if self.bug is Bug.PHANTOM and node.up and self.master and self.strikes(0.3):
                    self.nodes[self.master].logs[queue].append(identity)
                    self.planted += 1
                self.note(process, "fail", "send", queue, identity, refused, node=node.name)
                continue
            offset = self._append(node, queue, identity)
            deadline = self.now + 1.0
            while self.strict and self.now < deadline and node.acting and node.confirm[queue] <= offset:
                yield 0.02
            safe = node.acting and (not self.strict or node.confirm[queue] > offset)
            if not safe or not node.up or fate < 0.05:
                yield max(0.0, deadline - self.now)
                known: Mapping[str, Any] = {"offset": offset} if fate > 0.5 else {}
                self.note(process, "info", "send", queue, identity, "not known", node=node.name, **known)
                process = self._number()
                continue
            self._tamper(node, queue, offset)
            yield self.travel()
            told = offset + (self.shifted == queue)
            self.note(process, "ok", "send", queue, [told, identity], node=node.name, code=0, epoch=self.epoch)

    def _refusal(self, node: Node) -> str | None:
        if not node.up:
            return "connection refused"
        if not node.acting:
            return "14: not the master"
        if self.strict and len(self.in_sync) < 2 and self.bug is not Bug.SPLIT_BRAIN:
            return "1: in-sync replicas not enough"
        return None

    def _late(self, node: Node, queue: str, identity: int) -> Process:
        yield self.rng.uniform(0.2, 2.5)
        if self._refusal(node) is None:
            self._append(node, queue, identity)

    def _append(self, node: Node, queue: str, identity: int) -> int:
        log = node.logs[queue]
        if self.bug is Bug.INVERT:
            return self._out_of_turn(log, queue, identity)
        log.append("?646166742121" if self.bug is Bug.STRAY and self._plants(0.05) else identity)
        offset = len(log) - 1
        if self.bug is Bug.DUPLICATE and self._plants(0.05):
            log.append(identity)
        if self.bug is Bug.SHIFT and self.shifted is None and self._plants(0.05):
            self.shifted = queue
        return offset

    def _plants(self, chance: float) -> bool:
        struck = self.strikes(chance)
        self.planted += struck
        return struck

    def _out_of_turn(self, log: list[Any], queue: str, identity: int) -> int:
        if self.free.get(queue, len(log)) < len(log):
            offset = self.free.pop(queue)
            log[offset] = identity
            self.planted += 1
            return offset
        self.free.pop(queue, None)
        if self.strikes(0.1):
            self.free[queue] = len(log)
            log.append(None)
        log.append(identity)
        return len(log) - 1

    def _tamper(self, node: Node, queue: str, offset: int) -> None:
        """Bugs that strike once a message is safe on every replica."""
        logs = [n.logs[queue] for n in self.nodes.values()]
        same = all(len(log) > offset and log[: offset + 1] == logs[0][: offset + 1] for log in logs)
        if not same or offset < 1:
            return
        if self.bug is Bug.SWAP and self._plants(0.2):
            for log in logs:
                log[offset - 1], log[offset] = log[offset], log[offset - 1]
        if self.bug is Bug.HOLE and self._plants(0.1):
            for log in logs:
                log[offset - 1] = None

    def _shown(self, node: Node, queue: str) -> int:
        """How much of a queue readers of this node see."""
        log = node.logs[queue]
        if self.strict and not (self.bug is Bug.DIRTY and node.acting):
            return min(node.confirm[queue], len(log))
        return len(log)

    def _reader(self, home: str | None) -> Process:
        process, at, begun = self._number(), dict.fromkeys(QUEUES, 0), set()
        # What a STALE master answers from.
        old = 0
        while not self.stop:
            yield self.rng.expovariate(12)
            queue = self.rng.choice(QUEUES)
            node = self.nodes[home or self.believed]
            role = "master" if node.name == self.believed else "slave"
            start = {} if queue in begun else {"start": True}
            begun.add(queue)
            self.note(process, "invoke", "poll", queue, at[queue], node=node.name, **start)
            if self.rng.random() < 0.01:
                yield 1.0
                self.note(process, "info", "poll", queue, at[queue], "no answer")
                process, at, begun = self._number(), dict.fromkeys(QUEUES, 0), set()
                continue
            yield self.travel()
            if not node.up:
                self.note(process, "fail", "poll", queue, at[queue], "connection refused", node=node.name)
                begun -= {queue} if start else set()
                continue
            top, asked = self._shown(node, queue), at[queue]
            if self.bug is Bug.STALE and role == "master" and node.name == self.master and self.strikes(0.15):
                old = max(0, top - 3)
                top = min(top, old)
            found = self._messages(node, queue, asked, top)
            after = found[-1][0] + 1 if found else min(asked, top)
            if self.bug is Bug.SKIP and not found[:-1] and top > asked + 3 and self.strikes(0.5):
                found, after = [], asked + 2
            if self.bug is Bug.SKIP and len(found) > 3 and self.strikes(0.2):
                found = found[2:]
            yield self.travel()
            said = {"node": node.name, "role": role, "min": 0, "max": top, "next": after}
            self.note(process, "ok", "poll", queue, found, **said)
            at[queue] = after

    def _messages(self, node: Node, queue: str, begin: int, end: int, most: int = 8) -> list[list[Any]]:
        stretch = node.logs[queue][begin : min(end, begin + most)]
        return [[begin + i, m] for i, m in enumerate(stretch) if m is not None]

    def _final(self) -> Process:
        process = self._number()
        for name, node in self.nodes.items():
            for queue in QUEUES:
                at, done = 0, False
                while not done:
                    self.note(process, "invoke", "replica-read", queue, at, node=name, phase="final")
                    yield 0.001
                    top = len(node.logs[queue])
                    found = self._messages(node, queue, at, top, 16)
                    at = found[-1][0] + 1 if found else top
                    done = at >= top
                    role = "master" if name == self.master else "slave"
                    said = {"node": name, "role": role, "min": 0, "max": top, "done": done, "next": at}
                    self.note(process, "ok", "replica-read", queue, found, **said)

    # Consumers of a group. Each owns some queues; one that crashes forgets how far it was, and asks the broker.

    def _consumer(self, me: int) -> Process:
        process = self._number()
        mine = [queue for i, queue in enumerate(QUEUES) if i % self.consumers == me]
        at: dict[str, int] = {}
        self._now(process, "assign", None, mine, mine)
        while not self.stop:
            yield self.rng.expovariate(10)
            queue, node = self.rng.choice(mine), self.nodes[self.believed]
            if self.rng.random() < 0.02:
                self._now(process, "crash", None, None, None)
                at.clear()
            if queue not in at:
                found = yield from self._ask(process, "committed", queue, None, node, lambda n, q: n.committed.get(q))
                if isinstance(found, _Unanswered):
                    continue
                at[queue] = found or 0
                continue
            shown = yield from self._ask(process, "consume", queue, at[queue], node, self._delivery(at[queue]))
            if isinstance(shown, _Unanswered):
                continue
            at[queue] = shown[-1][0] + 1 if shown else min(at[queue], self._shown(node, queue))
            if self.rng.random() < 0.6 and node.acting:
                lost = self.rng.random()
                if lost < 0.03:
                    self.note(process, "invoke", "commit", queue, at[queue], group="g", node=node.name)
                    yield 0.5
                    if lost < 0.015 and node.up:
                        node.committed = {**node.committed, queue: at[queue]}
                    self.note(process, "info", "commit", queue, at[queue], "no answer", group="g", node=node.name)
                    process = self._number()
                else:
                    yield from self._ask(process, "commit", queue, at[queue], node, self._commit(at[queue]))

    def _now(self, process: int, f: str, key: str | None, asked: Any, got: Any, **extra: Any) -> None:
        self.note(process, "invoke", f, key, asked, group="g", **extra)
        self.note(process, "ok", f, key, got, group="g", **extra)

    def _ask(
        self, process: int, f: str, queue: str, asked: Any, node: Node, serve: Callable[[Node, str], Any]
    ) -> Generator[float, None, Any]:
        self.note(process, "invoke", f, queue, asked, group="g", node=node.name)
        yield self.travel()
        if not node.up or (f == "commit" and not node.acting):
            self.note(process, "fail", f, queue, asked, "refused", group="g", node=node.name)
            return _Unanswered()
        found = serve(node, queue)
        self.note(process, "ok", f, queue, found, group="g", node=node.name)
        return found

    def _delivery(self, offset: int) -> Callable[[Node, str], Any]:
        def show(node: Node, queue: str) -> list[list[Any]]:
            found = self._messages(node, queue, offset, self._shown(node, queue))
            return found[1:] if self.bug is Bug.FORGET and len(found) > 1 and self._plants(0.2) else found

        return show

    def _commit(self, offset: int) -> Callable[[Node, str], Any]:
        def store(node: Node, queue: str) -> int:
            more = 3 if self.bug is Bug.SKIP_COMMITS and self._plants(0.1) else 0
            node.committed = {**node.committed, queue: offset + more}
            return offset

        return store

    def _drain(self) -> Process:
        """The rest of every queue is consumed, from where the broker says the group is."""
        process, node = self._number(), self.nodes[self.master or NODES[0]]
        for queue in QUEUES:
            at = yield from self._ask(process, "committed", queue, None, node, lambda n, q: n.committed.get(q))
            at = at or 0
            while at < len(node.logs[queue]):
                shown = yield from self._ask(process, "consume", queue, at, node, self._delivery(at))
                at = shown[-1][0] + 1 if shown else len(node.logs[queue])
            yield from self._ask(process, "commit", queue, at, node, self._commit(at))
            said = {"committed": at, "max": len(node.logs[queue]), "consumed_to": at}
            self._now(process, "drain", queue, None, said, node=node.name, phase="final")


class _Unanswered:
    """Instead of an answer."""


def simulate(seed: int, bug: Bug | None = None, seconds: float = 4.0, **how: Any) -> tuple[RunRecord, Sim]:
    """A run, and the simulation it came from (for what was planted). `how`: see `Sim`."""
    sim = Sim(seed, bug, **how)
    return sim.run(seconds), sim


def names(results: Sequence[Any]) -> set[str]:
    """The names of all anomalies of some results."""
    return {anomaly.name for result in results for anomaly in result.anomalies}
