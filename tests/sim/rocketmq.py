# SPDX-License-Identifier: Apache-2.0
"""The clients of the simulated broker group (`sim.brokers`), and the histories that they write.

Producers, some of them pinned to a node; readers of masters and slaves; consumers of a group that crash and begin again
at the committed offset. In the end everything is healed, and every replica is read through.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from results.history import History
from results.record import RunRecord
from sim.brokers import NODES, QUEUES, Brokers, Bug, Node, Process

__all__ = ["NODES", "QUEUES", "Bug", "Sim", "names", "simulate"]


class Sim(Brokers):
    """One run.

    owners     consumers that say not where they ask: their client keeps their position.
    expiring   brokers delete what has been read, each by itself, from the beginning of every queue.
    anonymous  the final readings do not say which node they are of.
    """

    def __init__(
        self, *args: Any, owners: int = 0, expiring: bool = False, anonymous: bool = False, **how: Any
    ) -> None:
        super().__init__(*args, **how)
        self.owners, self.expiring, self.anonymous = owners, expiring, anonymous

    def run(self, seconds: float = 4.0) -> RunRecord:
        """Load under faults, then heal, wait, and read every replica through."""
        self.spawn(self.replicate())
        self.spawn(self.observe())
        self.spawn(self.faults(seconds))
        for n in range(4):
            self.spawn(self._producer(NODES[n % 3] if n >= 2 else None))
        for n in range(3):
            self.spawn(self._reader(NODES[n] if n else None))
        for n in range(self.consumers):
            self.spawn(self._consumer(n))
        for n in range(self.owners):
            self.spawn(self._owner(NODES[n] if n else None))
        if self.expiring:
            self.spawn(self.expire())
        self.until(seconds)
        self.stop = True
        self.until(seconds + 3)
        self.heap.clear()
        if self.consumers:
            self.spawn(self._drain())
            self.until(seconds + 13)
        self.spawn(self._final())
        self.until(seconds + 30)
        self.planted += len(self.inverted & self._kept()) + len(self.unsure & self.shown)
        return RunRecord(History(self.ops), observations=self.seen)

    # Clients.

    def _number(self) -> int:
        return next(self.numbers)

    def _producer(self, home: str | None) -> Process:
        process = self._number()
        while not self.stop:
            yield self.rng.expovariate(8)
            queue, identity = self.rng.choice(QUEUES), next(self.ids)
            self.sent[identity] = self.now
            node = self.nodes[home or self.believed]
            self.note(process, "invoke", "send", queue, identity, node=node.name)
            fate = self.rng.random()
            if fate < 0.03:  # the request is under way for long: nobody knows, and it may appear late
                self.spawn(self._late(node, queue, identity))
                yield 1.0
                self.note(process, "info", "send", queue, identity, "no answer within 1 s", node=node.name)
                process = self._number()
                continue
            yield self.travel()
            refused = self.refusal(node)
            if refused:
                if self.bug is Bug.PHANTOM and node.up and self.master and self.strikes(0.3):
                    self.nodes[self.master].logs[queue].append(identity)
                    self.planted += 1
                self.note(process, "fail", "send", queue, identity, refused, node=node.name)
                continue
            offset = self.append(node, queue, identity)
            deadline = self.now + 1.0
            while self.strict and self.now < deadline and node.acting and node.confirm[queue] <= offset:
                yield 0.02
            safe = node.acting and (not self.strict or node.confirm[queue] > offset)
            if not safe or not node.up or fate < (0.3 if self.bug is Bug.SHIFT_UNSURE else 0.05):
                yield max(0.0, deadline - self.now)
                known: Mapping[str, Any] = {"offset": offset} if fate > 0.5 else {}
                if self.bug is Bug.SHIFT_UNSURE:
                    known = {"offset": offset + 1}
                    self.unsure.add(identity)
                self.note(process, "info", "send", queue, identity, "not known", node=node.name, **known)
                process = self._number()
                continue
            self.tamper(node, queue, offset)
            yield self.travel()
            text = offset + (self.shifted == queue)
            self.planted += self.bug is Bug.SHIFT and self.shifted == queue
            self.acked[identity] = self.now
            output = {"node": node.name, "code": 0, "epoch": self.epoch, "message_id": self._message_id()}
            self.note(process, "ok", "send", queue, [text, identity], **output)

    def _message_id(self) -> str:
        """The id of an acknowledged message: like an `offsetMsgId`, it only identifies the message."""
        if self.bug is Bug.REUSE_ID and len(self.acked) > 1 and self.strikes(0.02):
            self.planted += 1
        else:
            self.given += 1
        return f"{self.given:032X}"

    def _late(self, node: Node, queue: str, identity: int) -> Process:
        yield self.rng.uniform(0.2, 2.5)
        if self.refusal(node) is None:
            self.append(node, queue, identity)

    def _reader(self, home: str | None) -> Process:
        process, at = self._number(), dict.fromkeys(QUEUES, 0)
        known: set[str] = set()
        while not self.stop:
            yield self.rng.expovariate(12)
            queue = self.rng.choice(QUEUES)
            node = self.nodes[home or self.believed]
            role = "master" if node.name == self.believed else "slave"
            start = {} if queue in known else {"start": True}
            if not start and at[queue] > 3 and self.bug in (Bug.REWIND, Bug.LEAP):
                at[queue] += self._astray(node, queue, at[queue])
            known.add(queue)
            leap = False
            self.note(process, "invoke", "poll", queue, at[queue], node=node.name, **start)
            if self.rng.random() < 0.01:
                yield 1.0
                self.note(process, "info", "poll", queue, at[queue], "no answer")
                process, at = self._number(), dict.fromkeys(QUEUES, 0)
                known.clear()
                continue
            yield self.travel()
            if not node.up:
                self.note(process, "fail", "poll", queue, at[queue], "connection refused", node=node.name)
                continue
            top, requested = self.visible(node, queue), at[queue]
            if self.bug is Bug.STALE and role == "master" and requested > 3 and self.strikes(0.15):
                top = requested - 3
                self.planted += 1
            found = self.messages(node, queue, requested, top) if requested >= node.floor[queue] else []
            if self.bug is Bug.SKIP and len(found) > 2 and self.plants(0.5):
                found = found[2:]
                leap = self.strikes(0.3)
            after = found[-1][0] + 1 if found else max(min(requested, top), node.floor[queue])
            found = [] if leap else found
            yield self.travel()
            output = {"node": node.name, "role": role, "min": node.floor[queue], "max": top, "next": after}
            self.note(process, "ok", "poll", queue, found, **output)
            at[queue] = after

    def _astray(self, node: Node, queue: str, at: int) -> int:
        """By how much a client moves by itself: only where it can be seen, within what a reader may see."""
        by = -2 if self.bug is Bug.REWIND else 2
        if not self.plants(0.1 * (node.floor[queue] <= at + by and at + 2 < self.visible(node, queue))):
            return 0
        return by

    def _owner(self, home: str | None) -> Process:
        """A consumer whose client keeps its position, and does what its broker says where that is out of range."""
        process, at = self._number(), dict.fromkeys(QUEUES, 0)
        had: set[str] = set()
        while not self.stop:
            yield self.rng.expovariate(12)
            queue, anew, luck = self.rng.choice(QUEUES), {}, self.rng.random()
            if luck < 0.02:  # a seek: reported on the poll, or by a separate op
                at[queue] = self.rng.randint(0, at[queue])
                had.discard(queue)
                if luck < 0.01:
                    self._now(process, "seek", queue, at[queue], at[queue])
                else:
                    anew = {"start": True}
            elif luck < 0.04:  # another assignment: what it keeps goes on, what it gets back starts somewhere
                kept = [q for q in QUEUES if self.rng.random() < 0.5]
                self._now(process, "assign", None, kept, kept)
                for other in set(QUEUES) - set(kept):
                    at[other] = self.rng.randint(0, at[other])
                    had.discard(other)
            node = self.nodes[home or self.believed]
            if at[queue] > 3 and queue in had and self.bug in (Bug.REWIND, Bug.LEAP):
                at[queue] += self._astray(node, queue, at[queue])
            self.note(process, "invoke", "poll", queue, None, **anew)
            if luck > 0.99:
                yield 1.0
                self.note(process, "info", "poll", queue, None, "no answer")
                process, at = self._number(), dict.fromkeys(QUEUES, 0)
                had.clear()
                continue
            yield self.travel()
            if not node.up:
                self.note(process, "fail", "poll", queue, None, "connection refused")
                continue
            top, low = self.visible(node, queue), node.floor[queue]
            found = self.messages(node, queue, at[queue], top) if at[queue] >= low else []
            at[queue] = found[-1][0] + 1 if found else max(min(at[queue], top), low)
            if found:
                had.add(queue)
            yield self.travel()
            self.note(process, "ok", "poll", queue, found, node=node.name, min=low, max=top, next=at[queue])

    def _final(self) -> Process:
        process = self._number()
        last = [(self.master, self.nodes[self.master])] if self.anonymous and self.master else self.nodes.items()
        for name, node in last:
            who = {} if self.anonymous else {"node": name}
            for queue in QUEUES:
                at, done = 0, False
                while not done:
                    self.note(process, "invoke", "replica-read", queue, at, **who, phase="final")
                    yield 0.001
                    top = len(node.logs[queue])
                    found = self.messages(node, queue, at, top, 16)
                    at = found[-1][0] + 1 if found else top
                    done = at >= top
                    role = "master" if name == self.master else "slave"
                    output = {"role": role, "min": node.floor[queue], "max": top, "done": done, "next": at}
                    self.note(process, "ok", "replica-read", queue, found, **who, **output)

    # Consumers of a group. Each owns some queues; one that crashes forgets how far it was, and asks the broker.

    def _consumer(self, me: int) -> Process:
        process = self._number()
        mine = [queue for i, queue in enumerate(QUEUES) if i % self.consumers == me]
        at: dict[str, int] = {}
        master = self.believed
        self._now(process, "assign", None, mine, mine)
        while not self.stop:
            yield self.rng.expovariate(10)
            queue, node = self.rng.choice(mine), self.nodes[self.believed]
            if self.rng.random() < 0.02 or self.believed != master:
                master = self.believed
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
            at[queue] = shown[-1][0] + 1 if shown else min(at[queue], self.visible(node, queue))
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
                    if self.rng.random() < 0.3 and node.acting:
                        yield from self._ask(process, "committed", queue, None, node, lambda n, q: n.committed.get(q))

    def _now(self, process: int, f: str, key: str | None, requested: Any, got: Any, **extra: Any) -> None:
        self.note(process, "invoke", f, key, requested, group="g", **extra)
        self.note(process, "ok", f, key, got, group="g", **extra)

    def _ask(
        self, process: int, f: str, queue: str, requested: Any, node: Node, serve: Callable[[Node, str], Any]
    ) -> Generator[float, None, Any]:
        self.note(process, "invoke", f, queue, requested, group="g", node=node.name)
        yield self.travel()
        if not node.up or (f == "commit" and not node.acting):
            self.note(process, "fail", f, queue, requested, "refused", group="g", node=node.name)
            return _Unanswered()
        found = serve(node, queue)
        if f == "committed" and self.bug is Bug.CONJURE and queue not in self.began and node.acting:
            found = 3
            self.planted += 1
        if f == "commit":
            self.began.add(queue)
        self.note(process, "ok", f, queue, found, group="g", node=node.name)
        return found

    def _delivery(self, offset: int) -> Callable[[Node, str], Any]:
        def show(node: Node, queue: str) -> list[list[Any]]:
            if self.bug is Bug.STARVE:
                self.planted += 1
                return []
            found = self.messages(node, queue, offset, self.visible(node, queue))
            return found[1:] if self.bug is Bug.FORGET and len(found) > 1 and self.plants(0.2) else found

        return show

    def _commit(self, offset: int) -> Callable[[Node, str], Any]:
        def store(node: Node, queue: str) -> int:
            more = 3 if self.bug is Bug.SKIP_COMMITS and self.plants(0.1) else 0
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
            output = {"committed": at, "max": len(node.logs[queue]), "consumed_to": at}
            self._now(process, "drain", queue, None, output, node=node.name, phase="final")


class _Unanswered:
    """Instead of an answer."""


def simulate(seed: int, bug: Bug | None = None, seconds: float = 4.0, **how: Any) -> tuple[RunRecord, Sim]:
    """A run, and the simulation it came from (for what was planted). `how`: see `Sim`."""
    sim = Sim(seed, bug, **how)
    return sim.run(seconds), sim


def names(results: Sequence[Any]) -> set[str]:
    """The names of all anomalies of some results."""
    return {anomaly.name for result in results for anomaly in result.anomalies}
