# SPDX-License-Identifier: Apache-2.0
"""Histories of transactions, written by hand: of our own client, and of Java producers."""

from __future__ import annotations

from typing import Any

from stories import S, TimedStory

from checkers.messages.transactions import Transactions
from results.deployment import DeploymentRecord, Traits
from results.op import OpType
from results.verdict import CheckResult

GROUPS = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5")}
QUEUES = {"t:a:0": "a", "t:b:0": "b"}
MASTERS = {"a": "n1", "b": "n4"}


class Story(TimedStory):
    """Writes a history, in seconds; a call takes 10 ms. `log`: queue -> (id, since when it is readable) by offset."""

    def __init__(self, until: float = 60) -> None:
        self.until = until
        super().__init__()
        self.log: dict[str, list[tuple[Any, float]]] = {queue: [] for queue in QUEUES}
        self.homes: dict[int, str] = {}
        self.given_up: dict[str, list[tuple[float, int, int]]] = {group: [] for group in GROUPS}
        """Broker group -> (time, id, number of questions by the broker's count) of what it gave up."""

    def half(
        self, at: float, identity: int, type_: OpType = "ok", queue: str = "t:a:0", immunity_s: int | None = None
    ) -> None:
        self.homes[identity] = queue
        got = [0, identity] if type_ == "ok" else identity
        node, plan = MASTERS[QUEUES[queue]], {} if immunity_s is None else {"immunity_s": immunity_s}
        self.call(at, "half", queue, identity, got, type_, ask=plan, node=node)

    def end(
        self, at: float, identity: int, how: str = "commit", type_: OpType = "ok", node: str = "n1", took: float = 0.01
    ) -> None:
        self.call(at, "end", self.homes[identity], identity, identity, type_, ask={"as": how}, node=node, took=took)

    def ask(self, at: float, identity: int, node: str = "n1", waited_ms: int = 0) -> None:
        group = next(g for g, nodes in GROUPS.items() if node in nodes)
        extra = {"node": node, "group": group, "waited_ms": waited_ms}
        self.call(at - 0.01, "check", None, None, identity, **extra)

    def give_up(self, at: float, identity: int, counted: int = 3, group: str | None = None) -> None:
        self.given_up[group or QUEUES[self.homes[identity]]].append((at, identity, counted))

    def read_given_up(self) -> None:
        """The final reads of what was given up; the topic of a group does not exist before the first one."""
        for group, found in self.given_up.items():
            shown = [
                [at, i, int((self.until + 0.01 - when) * 1000), n] for at, (when, i, n) in enumerate(sorted(found))
            ]
            key, node = f"TRANS_CHECK_MAX_TIME_TOPIC:{group}:0", MASTERS[group]
            more = {"node": node, "done": True, **({} if shown else {"no_topic": True})}
            self.call(self.until, "given-up", key, 0, shown, ask={}, **more)

    def deliver(self, at: float, identity: Any, queue: str = "t:a:0") -> None:
        self.log[queue].append((identity, at))

    def committed(self, at: float, identity: int, queue: str = "t:a:0") -> None:
        """A right transaction that is committed at once."""
        self.half(at, identity, queue=queue)
        self.end(at + 0.1, identity, node=MASTERS[QUEUES[queue]])
        self.deliver(at + 0.105, identity, queue)

    def read(self, at: float, queue: str, node: str, f: str = "poll") -> None:
        there = [[offset, m] for offset, (m, since) in enumerate(self.log[queue]) if since <= at]
        done = {"done": True} if f == "replica-read" else {}
        self.call(at, f, queue, 0, there, ask={"node": node}, max=len(there), **done)

    def finish(self, every_s: float = 0.5) -> None:
        """Polls of every queue, somebody who can be asked, then the final reads."""
        for queue in self.log:
            self.log[queue].sort(key=lambda entry: entry[1])
        for n in range(int(self.until / every_s)):
            for queue, group in QUEUES.items():
                self.read(n * every_s, queue, MASTERS[group])
        for n in range(int(self.until)):
            self.call(n, "check", None, None, None, took=0.9)
        for queue, group in QUEUES.items():
            for node in GROUPS[group]:
                self.read(self.until, queue, node, "replica-read")

    def judge(self, traits: Traits | None = None, check_max: int | None = None, **environment: Any) -> CheckResult:
        """check_max: the limit of questions; None: the default one, and what was given up is not read."""
        deployment = DeploymentRecord("toy", groups=GROUPS, traits=traits or Traits())
        judge = Transactions(3, 5, 0.5, 10, check_max or 15, limited=check_max is not None)
        return judge.check(self.run(deployment=deployment, environment=environment))

    def result(self, check_max: int | None = None, **how: Any) -> CheckResult:
        self.finish()
        if check_max is not None:
            self.read_given_up()
        return self.judge(check_max=check_max, **how)


class ProxyStory(Story):
    """The same through proxies: nobody reports the broker, and no broker answers an end."""

    def half(self, at: float, identity: int, type_: OpType = "ok", queue: str = "t:a:0") -> None:
        self.homes[identity] = queue
        got = [0, identity] if type_ == "ok" else identity
        self.call(at, "half", queue, identity, got, type_, proxy="n4")

    def end(
        self,
        at: float,
        identity: int,
        how: str = "commit",
        type_: OpType = "info",
        node: str = "n4",
        took: float = 0.01,
    ) -> None:
        ask = {"as": how, "one_way": True}
        self.call(at, "end", self.homes[identity], identity, identity, type_, ask=ask, proxy=node, took=took)

    def ask(self, at: float, identity: int, node: str = "n4", waited_ms: int = 0) -> None:
        group = QUEUES[self.homes[identity]]
        self.call(at - 0.01, "check", None, None, identity, proxy=node, group=group, waited_ms=waited_ms)


def a_question(story: Story) -> None:
    """A transaction that is rolled back when the broker asks: without any question the run says nothing."""
    story.half(0.5, 900)
    story.ask(6, 900)
    story.end(6.1, 900, "rollback")


TAKE_S = 0.2


class JavaStory(Story):
    """The same with two producers, m0 and m1, that report what they do in takes. A half message has a topic alone as
    its key. `gone`: member -> the times (from, to) in which it has no process.
    """

    def __init__(self, until: float = 60) -> None:
        super().__init__(until)
        self.reports: dict[str, list[tuple[float, list[Any]]]] = {"m0": [], "m1": []}
        self.gone: dict[str, tuple[float, float]] = {}

    def half(self, at: float, identity: int, type_: OpType = "ok", queue: str = "t:a:0", member: str = "m0") -> None:
        self.homes[identity] = queue
        got = [0, identity] if type_ == "ok" else identity
        done = {} if type_ == "fail" else {"queue": queue, "node": MASTERS[QUEUES[queue]]}
        self.call(at, "half", "t", identity, got, type_, ask={}, member=member, **done)

    def decide(
        self, at: float, identity: int, answer: str | None, *, asked: bool, member: str = "m0", node: str = "n1"
    ) -> None:
        """A producer is about to end a transaction at a broker."""
        self.reports[member].append((at, [identity, answer, node, asked]))

    def committed(self, at: float, identity: int, queue: str = "t:a:0") -> None:
        self.half(at, identity, queue=queue)
        self.decide(at + 0.01, identity, "commit", asked=False, node=MASTERS[QUEUES[queue]])
        self.deliver(at + 0.02, identity, queue)

    def finish(self, every_s: float = 0.5) -> None:
        super().finish(every_s)
        for member, reports in self.reports.items():
            self._member(member, sorted(reports, key=lambda report: report[0]))

    def _member(self, member: str, reports: list[tuple[float, list[Any]]]) -> None:
        who = {"group": "g", "member": member}
        gone, back = self.gone.get(member, (None, None))
        for life, (first, last) in enumerate([(0, gone or self.until), (back, self.until)], 1):
            if first is None or (life == 2 and gone is None):
                continue
            self.call(first, "join", None, None, f"{member}-{life}", **who)
            before, at, tick = first, first + TAKE_S, 0
            while at < last:
                mine = [r for r in reports if before <= r[0] < at]
                events = [self._shown(at, when, life, what, tick) for when, what in mine]
                if not tick:
                    events.insert(0, ["started", int(0.15 * S), life, "client"])
                tick += 1
                self.call(at, "take", None, None, events, ask=who, tick=tick)
                before, at = at, at + TAKE_S
            if last != self.until:
                self.call(last, "crash", None, None, [], **who)

    @staticmethod
    def _shown(at: float, when: float, life: int, what: list[Any], tick: int) -> list[Any]:
        """The report, as a take shows it that ends 10 ms after `at`."""
        return ["decided", int((at + 0.01 - when) * S), life, *what, tick]
