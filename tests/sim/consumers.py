# SPDX-License-Identifier: Apache-2.0
"""A simulated consumer group of the workload `consume`, in steps of 50 ms: right, unless a bug is planted.

Members pull, work, commit every 5 s, crash and come back; queues move between them, and the new owner begins at the
committed offset. Messages that fail come again from the retry topic, or, for an orderly group, in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Final

from results.op import OpType
from results.record import RunRecord
from tests.stories import S, TimedStory

GROUP: Final = "members-sim"
QUEUES: Final = tuple(f"t:a:{n}" for n in range(4))
MESSAGE_GROUP: Final = "__SHARDINGKEY"
USUAL: Final = {"consumeEnable": True, "consumeBroadcastEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1}
_STEP: Final = 0.05
_COMMIT: Final = 5.0
_BY_HAND: Final = 0.5
_REBALANCE: Final = 0.4
_RETRY: Final = 10.0
_ORDERLY_AGAIN: Final = 1.0
AGAIN: Final = 1
"""The number of further attempts."""
LOAD_S: Final = 20.0
END_S: Final = 70.0


class Bug(Enum):
    """The bugs that can be planted."""

    SKIP = "now and then an owner begins behind messages that nobody got"
    STUCK = "one queue has no owner at the end"
    LEAK = "now and then a message that the filter does not match is delivered"
    LOST_RETRY = "a message that failed does not come again"
    AGAIN = "now and then a message comes again to the owner that has finished it"
    HASTY = "a message that failed comes again too soon"
    TARDY = "a message that failed comes again long after its delay"
    UNBURIED = "a message that failed for the last time is no dead letter"
    TWICE = "a message becomes a dead letter twice"
    OFTEN = "a message that failed for the last time comes again"
    EARLY = "now and then a message comes before the one before it is finished"
    SHARED = "a former owner goes on for a while beside the new one"
    HOARD = "a former owner keeps a queue that another one has"
    GHOST = "the broker goes on naming members that crashed"
    UNNAMED = "after the load, the broker does not name a member that is there"
    ALTERED = "now and then a message is delivered with another tag"
    LAZY = "members do not commit at the end"
    STALE = "the figures of an administrator show less than the queue has"
    FORGOT = "the figures of an administrator show another offset of the group than its members get"
    DEAF = "from some time on, an acknowledged reset has no effect"
    HIGH = "now and then a reset goes further than acknowledged"
    WRONG_TIME = "resets to a time go too far"
    AHEAD = "the offset of the group is behind the end of a queue"
    HEEDLESS = "from some time on, members get messages although the group is off"
    OLD = "now and then the master answers with settings from before the last change"
    GONE = "now and then the master does not know the group"
    BACK = "the master knows a deleted group"
    STALL = "for 35 s, nobody gets a message of one queue"
    WIPED = "a deletion that keeps the offsets loses them"
    REWOUND = "now and then an owner begins far below the committed offset"


@dataclass
class _Work:
    n: int
    key: str
    offset: int
    id: int
    attempt: int
    ends: float
    ok: bool
    stale: bool = False
    """True if its member lost the queue by a reset."""


@dataclass
class _Member:
    name: str
    life: int = 0
    alive: bool = False
    back: float = 0.0
    n: int = 0
    at: dict[str, int] = field(default_factory=dict)
    finished: dict[str, set[int]] = field(default_factory=dict)
    open: list[_Work] = field(default_factory=list)
    due: dict[str, float] = field(default_factory=dict)
    told: list[tuple[float, list[Any]]] = field(default_factory=list)
    commits: float = 0.0
    tries: dict[tuple[str, int], int] = field(default_factory=dict)
    """(queue, offset) -> the number of the next attempt of an orderly member."""
    late: dict[str, float] = field(default_factory=dict)
    """Queues that it gives up at a time, although another one has them already."""

    @property
    def client(self) -> str:
        """The id by which the broker knows it."""
        return f"10.0.0.1@{self.name}-{self.life}"


class Group:
    """One run. tags: the filter of the group; None: everything. planted: the number of times that the bug struck."""

    def __init__(
        self,
        seed: int,
        *,
        orderly: bool = False,
        filtered: bool = False,
        failing: float = 0.1,
        bug: Bug | None = None,
        end_s: float = END_S,
        resets: bool = False,
        grouped: bool = False,
        changes: bool = False,
        late_crash: bool = False,
        by_hand: bool = False,
    ) -> None:
        self.by_hand = by_hand
        """True if members commit by hand, often, and report it."""
        self.late_crash = late_crash
        """True if a member crashes long after the load: all that it has finished is committed then."""
        self.changes, self.change_due = changes, 1.0
        self.settings: dict[str, Any] | None = dict(USUAL)
        """None: the group is deleted."""
        self.after: dict[str, Any] | None = None
        """The settings of the second half of a change under way."""
        self.forgotten: set[str] = set()
        """Queues without an offset of the group."""
        self.before: dict[str, Any] = dict(USUAL)
        """The settings before the last change."""
        self.grouped = grouped
        self.end_s = end_s
        self.resets, self.reset_due = resets, 3.0
        self.polls = seed % 2 == 1 and not orderly
        self.pending: dict[str, float] = {}
        """Queues with a new offset that no member has fetched -> the time of the reset."""
        self.stored: dict[str, list[float]] = {key: [] for key in QUEUES}
        """The times at which its messages were stored."""
        self.dice, self.orderly, self.failing, self.bug = Random(seed), orderly, failing, bug
        self.ends_s = LOAD_S / 2 if bug is Bug.TARDY else LOAD_S
        """Until this time members crash."""
        self.tags = frozenset("ab") if filtered else None
        self.planted = 0
        self.story = TimedStory()
        self.logs: dict[str, list[int]] = {key: [] for key in QUEUES}
        self.committed = dict.fromkeys(QUEUES, 0)
        self.properties: dict[int, dict[str, str]] = {}
        self.retries: list[tuple[float, int, int]] = []
        """(time, id, attempt)."""
        self.retried = 0
        self.dead: list[int] = []
        self.members = [_Member(f"m{i}", back=i * 0.3) for i in range(3)]
        self.unnamed: list[tuple[float, str]] = []
        """The time and the client id of members that the broker does not name yet."""
        self.named: set[str] = set()
        """The client ids that the broker names."""
        self.rebalance = 0.0
        self.ids = 0

    def run(self) -> RunRecord:
        """Plays it to its end."""
        now = 0.0
        while now < self.end_s:
            if now < LOAD_S:
                self._send(now)
                if self.resets and now >= self.reset_due:
                    self._reset(now)
            if self.changes and now >= self.change_due and (now < LOAD_S or self.after is not None):
                self._change(now)
            for member in self.members:
                self._live(member, now)
            if self.settings is not None:
                self._name(now)
            if now >= self.rebalance:
                self._share(now)
            for member in self.members:
                if member.alive:
                    self._work(member, now)
            if round(now / _STEP) % 4 == 0:
                for member in self.members:
                    self._tell("take", member, now)
            if round(now / _STEP) % 40 == 1:
                if self.bug is Bug.UNNAMED and now > LOAD_S:
                    self.planted = 1
                    self.named.discard(self.members[0].client)
                self.story.call(now, "named-members", "t:a:0", None, sorted(self.named), group=GROUP, node="n1")
                if self.changes:
                    self.story.call(now, "group-settings", "t:a:0", None, self._answer(), group=GROUP, node="n1")
            now += _STEP
        if self.bug is Bug.HOARD:
            self.planted = sum(sum(key in member.at for member in self.members) > 1 for key in QUEUES)
        for member in self.members:
            for key in member.at:
                self._commit(member, key)
            self._tell("leave", member, now)
        shown = [[offset, each] for offset, each in enumerate(self.dead)]
        self.story.call(now + 1, "dead-letters", f"%DLQ%{GROUP}:a:0", 0, shown, done=True)
        if self.bug is Bug.AHEAD:
            self.committed[QUEUES[0]] += 3
            self.planted = 1
        figures = [
            [key, len(log) - (self.bug is Bug.STALE), self.committed[key] - 2 * (self.bug is Bug.FORGOT)]
            for key, log in self.logs.items()
        ]
        self.planted += self.bug in (Bug.STALE, Bug.FORGOT)
        self.story.call(now + 1, "consume-stats", QUEUES[0], None, figures, group=GROUP, node="n1")
        for key, log in self.logs.items():
            self.story.call(now + 1, "committed", key, None, self.committed[key], group=GROUP, node="n1")
            for node in ("n1", "n2"):
                shown = [[offset, each] for offset, each in enumerate(log)]
                about = {"min": 0, "max": len(log), "next": len(log), "done": True, "phase": "final", "node": node}
                self.story.call(now + 2, "replica-read", key, 0, shown, **about)
        return self.story.run()

    def _send(self, now: float) -> None:
        for _ in range(self.dice.randrange(4)):
            self.ids += 1
            key = self.dice.choice(QUEUES)
            properties = {"TAGS": self.dice.choice("abc")}
            if self.dice.random() < self.failing:
                properties["fails"] = self.dice.choice("112")
            if self.grouped:
                properties[MESSAGE_GROUP] = f"{key}-{self.ids % 2}"
            self.properties[self.ids] = properties
            self.logs[key].append(self.ids)
            self.stored[key].append(now)
            got = [len(self.logs[key]) - 1, self.ids]
            self.story.call(now, "send", key, self.ids, got, took=0.005, node="n1", ask={"properties": properties})

    def _reset(self, now: float) -> None:
        """An administrator resets one queue to an offset, or all to a time or to the end; some get no answer."""
        self.reset_due = now + self.dice.uniform(0.1, 4)
        kinds = ["offset"] if self.bug in (Bug.DEAF, Bug.HIGH) else ["offset", "offset", "time", "end"]
        kind = self.dice.choice(kinds)
        about: dict[str, Any] = {"group": GROUP, "to": kind}
        key, value, ago = "t:a:-1", None, 0.0
        if kind == "offset":
            key = self.dice.choice(QUEUES)
            value = self.dice.randrange(len(self.logs[key]) + 1)
        elif kind == "time":
            ago = self.dice.uniform(0, 8)
            about["ago_ms"] = int(ago * 1000)
        found: dict[str, int] = {}
        for each in QUEUES if value is None else (key,):
            to = len(self.logs[each]) if value is None else value
            if kind == "time":
                late = 4.0 if self.bug is Bug.WRONG_TIME else 0.0
                to = sum(at < now - ago + late for at in self.stored[each])
                self.planted += bool(late)
            found[each] = to
        answered = self.dice.random() > 0.05
        if answered or self.dice.random() < 0.5:
            for each, to in found.items():
                if self.bug is Bug.DEAF and now > LOAD_S / 2:
                    self.planted += 1
                    continue
                further = 3 if self.bug is Bug.HIGH else 0
                self.planted += bool(further)
                self.committed[each] = min(to + further, len(self.logs[each]))
                self.pending[each] = now
        got, type_ = (found, "ok") if answered else (value, "info")
        self.story.call(now, "reset", key, value, got, type_, node="n1", took=0.001, **about)

    @property
    def closed(self) -> bool:
        """True if no member gets a message."""
        return self.settings is None or not self.settings["consumeEnable"]

    def _change(self, now: float) -> None:
        """An administrator switches the group off, changes its limit of retries, or deletes it; or ends that. Now and
        then one broker does not answer at first.
        """
        if self.dice.random() < 0.1:
            what = self.after if self.after is not None else {**USUAL, "retryMaxTimes": 99}
            self._tell_change(now - 0.03, "update-group", what, ["n1"], "info")
            self.settings = what
            if self.after is not None:
                self.change_due = now + 1
                return
        if self.after is not None:
            self.before = dict(self.settings or self.before)
            self.settings, self.after = self.after, None
            self._tell_change(now, "update-group", self.settings)
            self.change_due = now + self.dice.uniform(1, 4)
            return
        usual = {**USUAL, "retryMaxTimes": self.dice.randrange(17)}
        kind = self.dice.choice(["off", "retries", "delete", *(["clean"] if not self.orderly else [])])
        if self.bug is Bug.HEEDLESS:
            kind = "off"
        elif self.bug in (Bug.BACK, Bug.WIPED):
            kind = "delete"
        self.before = dict(self.settings or self.before)
        self.change_due = now + self.dice.uniform(2, 5)
        if kind == "retries":
            self.settings = usual
            self._tell_change(now, "update-group", usual)
            return
        self.after = usual
        if kind == "off":
            self.settings = {**usual, "consumeEnable": False}
            self._tell_change(now, "update-group", self.settings)
            return
        if kind == "delete":
            self._tell_offsets(now - 0.03)
        self.settings = None
        self._tell_change(now, "delete-group", kind)
        if kind == "clean" or self.bug is Bug.WIPED:
            self.planted += kind != "clean" and any(self.committed.values())
            self.forgotten = set(QUEUES)
            self.committed = dict.fromkeys(QUEUES, 0)
        self._tell_offsets(now + 0.03)

    def _tell_change(
        self, now: float, f: str, value: Any, acked: Sequence[str] = ("n1", "n2"), type_: OpType = "ok"
    ) -> None:
        unsure = [] if type_ == "ok" else ["n2"]
        process = len(self.story.events)
        self.story.put(now, process, "invoke", f, None, value, group=GROUP)
        self.story.put(now + 0.002, process, type_, f, None, value, group=GROUP, acked=list(acked), unsure=unsure)

    def _tell_offsets(self, now: float) -> None:
        for key in QUEUES:
            at = None if key in self.forgotten else self.committed[key]
            self.story.call(now, "committed", key, None, at, took=0.002, group=GROUP, node="n1")

    def _answer(self) -> dict[str, Any] | None:
        """The settings that the master reports."""
        if self.bug is Bug.OLD and self.settings is not None and self.settings != self.before:
            self.planted += 1
            return self.before
        if self.bug is Bug.GONE and self.settings is not None and self.dice.random() < 0.3:
            self.planted += 1
            return None
        if self.bug is Bug.BACK and self.settings is None:
            self.planted += 1
            return self.before
        return self.settings

    def _live(self, member: _Member, now: float) -> None:
        late = self.late_crash and LOAD_S + 25 <= now < LOAD_S + 25 + _STEP
        if not member.alive and now >= member.back:
            life = member.life + 1
            member.__init__(member.name, life, True, commits=now + _COMMIT)  # type: ignore[misc]
            extra = {"group": GROUP, "member": member.name}
            self.story.call(now, "join", None, None, f"{member.name}-{life}", took=0.001, **extra)
            member.told.append((now + 0.002, ["started", member.client]))
            self.unnamed.append((now, member.client))
            self.rebalance = now + _REBALANCE
        elif member.alive and (
            (now < self.ends_s and self.dice.random() < _STEP / 12) or (late and member is self.members[0])
        ):
            member.told = [each for each in member.told if each[0] <= now]
            self._tell("crash", member, now)
            self.retries += [(now + 1, work.id, work.attempt) for work in member.open if work.key.startswith("%")]
            if self.bug is Bug.GHOST:
                self.planted += 1
            else:
                self.named.discard(member.client)
                self.unnamed = [each for each in self.unnamed if each[1] != member.client]
            member.alive, member.back = False, now + 2
            self.rebalance = now + _REBALANCE

    def _name(self, now: float) -> None:
        """The broker takes the first heartbeats of members, and later ones of those that it refused at first."""
        for each in list(self.unnamed):
            since, client = each
            first = now < since + 2 * _STEP
            if first or self.dice.random() < _STEP / 5 or now > since + 25:
                self.unnamed.remove(each)
                self.named.add(client)

    def _share(self, now: float) -> None:
        """Each queue to one of the members that live; a new owner begins at the committed offset."""
        self.rebalance = float("inf")
        there = [member for member in self.members if member.alive]
        for i, key in enumerate(QUEUES):
            owner = there[i % len(there)] if there else None
            if self.bug is Bug.STUCK and key == QUEUES[-1] and now > LOAD_S / 2:
                owner = None
                self.planted = 1
            if self.orderly and self.bug is not Bug.SHARED and self._locked(key, owner):
                self.rebalance = now + _STEP
                continue
            for member in there:
                if member is not owner and key in member.at and key not in member.late:
                    if self.bug is Bug.HOARD:
                        continue
                    if self.bug is Bug.SHARED and any(work.key == key for work in member.open):
                        member.late[key] = now + 1
                        self.planted += 1
                    else:
                        self._drop(member, key)
            if owner is not None and key not in owner.at:
                begin = self.committed[key]
                if key in self.forgotten:
                    begin = self.dice.choice([0, len(self.logs[key])])
                if self.bug is Bug.SKIP and begin < len(self.logs[key]) - 1 and self.dice.random() < 0.5:
                    begin += 1
                    self.planted += 1
                back = 60 if self.by_hand else 5  # what was committed 2 s, or 16 s ago
                late = now > LOAD_S or self.by_hand
                if self.bug is Bug.REWOUND and late and begin > back and self.dice.random() < 0.5:
                    begin -= back
                    self.planted += 1
                owner.at[key], owner.finished[key] = begin, set()
        for member in there:
            member.told.append((now, ["queues", sorted(set(member.at) - set(member.late))]))

    def _locked(self, key: str, owner: _Member | None) -> bool:
        """True while another member works on a queue: it holds the lock until its work is done."""
        others = (member for member in self.members if member.alive and member is not owner)
        return any(work.key == key for member in others for work in member.open)

    def _drop(self, member: _Member, key: str) -> None:
        self._commit(member, key)
        del member.at[key]

    def _commit(self, member: _Member, key: str) -> None:
        if self.bug is Bug.LAZY and self.ids and max(map(len, self.logs.values())) > 20:
            self.planted = 1
            return
        if key in self.pending or self.settings is None:  # the broker ignores it, or refuses it
            return
        self.forgotten.discard(key)
        unfinished = [work.offset for work in member.open if work.key == key and not work.stale]
        at = min([member.at[key], *unfinished])
        self.committed[key] = max(self.committed[key], at)

    def _work(self, member: _Member, now: float) -> None:
        for work in list(member.open):
            if work.ends <= now:
                member.open.remove(work)
                self._finish(member, work, work.ends)
        for key, until in list(member.late.items()):
            if now >= until:
                del member.late[key], member.at[key]
        for key in [key for key in member.at if self.pending.get(key, now) < now]:
            self._fetch(member, key, now)
        heedless = self.bug is Bug.HEEDLESS and now > LOAD_S / 3
        for key in list(member.at):
            if not member.alive or key in member.late or key in self.pending or (self.closed and not heedless):
                continue
            self.planted += self.closed and heedless
            for _ in range(1 if self.orderly else 2):
                self._pull(member, key, now)
        if member is next(each for each in self.members if each.alive) and not self.closed:
            for due, identity, attempt in list(self.retries):
                if now >= due:
                    self.retries.remove((due, identity, attempt))
                    self.retried += 1
                    self._begin(member, "%RETRY%members-sim:a:0", self.retried, identity, attempt, now)
        if now >= member.commits:
            member.commits = now + (_BY_HAND if self.by_hand else _COMMIT)
            for key in member.at:
                self._commit(member, key)
            if self.by_hand and member.at:
                member.told.append((now, ["committed", {key: self.committed[key] for key in member.at}]))

    def _fetch(self, member: _Member, key: str, now: float) -> None:
        """A member learns of a reset: it drops the queue, and begins there again. One that polls only moves."""
        del self.pending[key]
        for work in member.open:
            work.stale |= work.key == key
        for tried in [tried for tried in member.tries if tried[0] == key]:
            del member.tries[tried]
        if self.polls:
            member.at[key] = self.committed[key]
            return
        del member.at[key]
        member.late.pop(key, None)
        member.told.append((now, ["queues", sorted(set(member.at) - set(member.late))]))
        self.rebalance = now + _REBALANCE

    def _pull(self, member: _Member, key: str, now: float) -> None:
        busy = any(work.key == key for work in member.open)
        early = self.bug is Bug.EARLY and busy and self.dice.random() < 0.01
        if self.orderly and ((busy and not early) or now < member.due.get(key, 0)):
            return
        at, log = member.at[key], self.logs[key]
        if at >= len(log):
            return
        if self.bug is Bug.STALL and key == QUEUES[-1] and LOAD_S / 2 < now < LOAD_S / 2 + 35:
            self.planted = 1
            return
        identity = log[at]
        self.planted += early and any(self._group(work.id) == self._group(identity) for work in member.open)
        member.at[key] = at + 1
        if self.tags is not None and self.properties[identity]["TAGS"] not in self.tags:
            if self.bug is not Bug.LEAK or self.dice.random() > 0.02:
                return
            self.planted += 1
        self._begin(member, key, at, identity, member.tries.pop((key, at), 0), now)
        if self.bug is Bug.AGAIN and self.dice.random() < 0.02 and not self.orderly:
            last = member.open[-1]
            if last.ok:
                self.planted += 1
                last.ends = now + 0.01
                self._finish(member, last, last.ends)
                member.open.remove(last)
                self._begin(member, key, at, identity, 0, now + 0.03)

    def _group(self, identity: int) -> str | None:
        """The message group of a message; None: the runs have none."""
        return self.properties[identity].get(MESSAGE_GROUP)

    def _begin(self, member: _Member, key: str, offset: int, identity: int, attempt: int, now: float) -> None:
        member.n += 1
        about = self.properties[identity]
        tag = about["TAGS"]
        if self.bug is Bug.ALTERED and self.dice.random() < 0.02:
            tag += "x"
            self.planted += 1
        member.told.append((now, ["delivered", member.n, key, offset, identity, attempt, tag]))
        ok = attempt >= int(about.get("fails", 0))
        member.open.append(_Work(member.n, key, offset, identity, attempt, now + self.dice.uniform(0.002, 0.12), ok))

    def _finish(self, member: _Member, work: _Work, now: float) -> bool:
        member.told.append((now, ["done", work.n, work.ok]))
        if work.ok:
            return True
        if work.attempt >= AGAIN and self.bug is not Bug.OFTEN:
            if self.bug is Bug.UNBURIED:
                self.planted += 1
                return True
            self.dead += [work.id] * (2 if self.bug is Bug.TWICE else 1)
            self.planted += self.bug is Bug.TWICE
        elif work.stale:
            return True  # the member has given up the queue, and fetches the message again
        elif self.orderly:
            if work.key in member.at:
                member.due[work.key] = now + _ORDERLY_AGAIN
                member.at[work.key] = work.offset
                member.tries[work.key, work.offset] = work.attempt + 1
        elif self.bug is Bug.LOST_RETRY and now < LOAD_S - 5:
            self.planted += 1
        else:
            self.planted += self.bug is Bug.HASTY or work.attempt >= AGAIN
            delay = 3 if self.bug is Bug.HASTY else _RETRY
            if self.bug is Bug.TARDY and now > LOAD_S * 0.7:
                self.planted += 1
                delay = _RETRY + 12
            self.retries.append((now + delay, work.id, work.attempt + 1))
        return True

    def _tell(self, f: str, member: _Member, now: float) -> None:
        ready = [each for each in member.told if each[0] <= now] if f != "leave" else member.told
        member.told = [each for each in member.told if each not in ready]
        at = now + 0.01
        value = [
            [kind, int((at - when) * S), member.life, *rest]
            for when, (kind, *rest) in sorted(ready, key=lambda e: e[0])
        ]
        self.story.call(now, f, None, None, value, group=GROUP, member=member.name)
