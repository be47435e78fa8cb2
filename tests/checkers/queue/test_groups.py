# SPDX-License-Identifier: Apache-2.0
"""Committed offsets, deliveries and leases: what is promised, what at-least-once permits, what is a violation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.messages.queue import Deliveries, Leases, Offsets
from results.history import History
from results.op import NEMESIS, OpType
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Verdict

Q = "t:a:0"
S = 1_000_000_000


class Story(TimedStory):
    """Writes a history of group `g`: `at` in seconds; every call takes 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Observation] = []

    def call(self, at: float, f: str, requested: Any, got: Any, type_: OpType = "ok", **extra: Any) -> None:
        super().call(at, f, Q, requested, got, type_, process=0, group="g", **extra)

    def commit(self, at: float, offset: int, node: str = "n1", type_: OpType = "ok") -> None:
        self.call(at, "commit", offset, offset, type_, node=node)

    def committed(self, at: float, offset: int | None, node: str = "n1") -> None:
        self.call(at, "committed", None, offset, node=node)

    def reign(self, node: str, start: int, end: int, epoch: int, group: str = "a") -> None:
        for second in range(start, end):
            self.seen.append(Observation(second * S, node, "leader", term=epoch, extra={"broker_name": group}))

    def strike(self, at: float, node: str, until: float | None = None) -> None:
        what = {"fault": "kill", "id": len(self.events), "impairs": {node: [node]}, "seen": True}
        for when, f in ((at, "inject"), (until, "heal")):
            if when is not None:
                self.put(when, NEMESIS, "invoke", f, None, what)
                self.put(when, NEMESIS, "info", f, None, what)

    def felt(self, at: float, until: float, *kinds: str, impairs: bool = False) -> None:
        """A fault on n1 with these effects; its injection takes 0.2 s."""
        what: dict[str, Any] = {"fault": "kill", "id": len(self.events), "nodes": {"n1": {}}, "seen": True}
        what |= {"impairs": {"n1": ["n1"]} if impairs else {}, "effects": [{"kind": k, "node": "n1"} for k in kinds]}
        times: list[tuple[float, OpType, str]] = [
            (at, "invoke", "inject"),
            (at + 0.2, "info", "inject"),
            (until, "invoke", "heal"),
            (until, "info", "heal"),
        ]
        for when, type_, f in times:
            self.put(when, NEMESIS, type_, f, None, what)

    @property
    def record(self) -> RunRecord:
        return self.run(observations=sorted(self.seen, key=lambda o: o.time))


def offsets(story: Story) -> CheckResult:
    return Offsets(copied_within_s=15).check(story.record)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (7, None),
        (5, "committed-offset-regression"),
        (None, "committed-offset-regression"),
        (9, "committed-offset-jump"),
    ],
)
def test_a_master_knows_the_last_commit(said: int | None, name: str | None) -> None:
    story = Story()
    story.committed(1, None)
    story.commit(2, 5)
    story.commit(3, 7)
    story.committed(4, said)
    result = offsets(story)
    assert names([result]) == ({name} if name else set())
    if name == "committed-offset-regression":
        assert "although 7 had been committed and acknowledged by n1 at 00:03.0" in result.anomalies[0].summary


def test_commits_of_unknown_outcome_and_lower_ones_may_be_what_a_broker_knows() -> None:
    story = Story()
    story.commit(1, 7)
    story.commit(2, 3)
    story.committed(3, 3)
    story.put(4, 1, "invoke", "commit", Q, 9, group="g", node="n1")
    story.put(4.1, 1, "info", "commit", Q, 9, group="g", node="n1")
    story.committed(5, 9)
    story.committed(6, 3)
    assert offsets(story).verdict == Verdict.VALID


@pytest.mark.parametrize(("committed_at", "legal"), [(2, False), (18, True)])
def test_a_new_master_may_lack_what_was_committed_shortly_before(committed_at: float, legal: bool) -> None:
    story = Story()
    story.reign("n1", 0, 20, 1)
    story.reign("n2", 21, 40, 2)
    story.strike(20, "n1")
    story.commit(1, 4)
    story.commit(committed_at, 7)
    story.committed(25, 4, "n2")
    story.commit(30, 8, "n2")
    story.committed(31, 8, "n2")
    assert names([offsets(story)]) == (set() if legal else {"committed-offset-regression"})


@pytest.mark.parametrize(("restarted_at", "legal"), [(24, False), (34, True)])
def test_a_new_master_that_was_away_has_made_no_copy_meanwhile(restarted_at: float, legal: bool) -> None:
    story = Story()
    story.reign("n1", 0, 45, 1)
    story.reign("n2", 46, 60, 2)
    story.commit(1, 4)
    story.strike(20, "n2", until=restarted_at)
    story.commit(21, 7)
    story.strike(45, "n1")
    story.committed(47, 4, "n2")
    assert names([offsets(story)]) == (set() if legal else {"committed-offset-regression"})


def test_from_its_first_commit_on_a_new_master_is_bound() -> None:
    story = Story()
    story.reign("n1", 0, 20, 1)
    story.reign("n2", 21, 40, 2)
    story.commit(19, 7)
    story.commit(25, 8, "n2")
    story.committed(26, 7, "n2")
    assert names([offsets(story)]) == {"committed-offset-regression"}


@pytest.mark.parametrize(("effects", "legal"), [(["down"], True), ([], False)])
def test_what_is_acknowledged_during_a_kill_was_in_the_lost_memory(effects: list[str], legal: bool) -> None:
    story = Story()
    story.reign("n1", 0, 40, 1)
    story.commit(1, 4)
    story.felt(20, 26, *effects, impairs=True)
    story.commit(20.1, 7)
    story.committed(30, 4)
    assert names([offsets(story)]) == (set() if legal else {"committed-offset-regression"})
    story.commit(31, 8)
    story.committed(32, 4)
    assert names([offsets(story)]) == {"committed-offset-regression"}


@pytest.mark.parametrize(
    ("life_s", "verdict"),
    [(30, Verdict.INVALID), (16, Verdict.INVALID), pytest.param(11, Verdict.UNKNOWN, id="ends before the first write")],
)
def test_doubts_about_a_restarted_broker_do_not_add_up(life_s: float, verdict: Verdict) -> None:
    """A broker that stopped writing its offsets was `valid`: each restart added 15 s to what it may have forgotten."""
    story = Story()
    story.reign("n1", 0, 200, 1)
    story.commit(1, 4)
    at = 10.0
    story.felt(at, at + 2, "down", impairs=True)
    story.commit(at + 3, 7)
    for _ in range(4):
        at += 2 + life_s
        story.felt(at, at + 2, "down", impairs=True)
    story.committed(at + 4, 4)
    result = offsets(story)
    assert result.verdict == verdict
    if verdict == Verdict.UNKNOWN:
        assert "1 answers lack commits" in result.reason
        assert [(e.rule, e.used) for e in result.excuses] == [("short-life", 1)]


def test_what_was_in_a_brokers_file_stays_there_over_lives_without_a_write() -> None:
    story = Story()
    story.reign("n1", 0, 200, 1)
    story.commit(1, 4)
    story.commit(5, 7)
    for at in range(20, 120, 10):
        story.felt(at, at + 2, "down", impairs=True)
    story.committed(125, 4)
    assert names([offsets(story)]) == {"committed-offset-regression"}


def test_each_group_of_brokers_has_its_own_master() -> None:
    story = Story()
    story.reign("n1", 0, 60, 1)
    story.reign("n3", 1, 60, 1, "b")
    story.commit(2, 4)
    story.commit(3, 7)
    story.strike(30, "n1", until=35)
    story.committed(40, 4)
    assert names([offsets(story)]) == {"committed-offset-regression"}


DEAD_DISK = ("disk-dead", "unsynced-lost")
"""The effects of a disk that fails under a server, which is killed in the end."""


@pytest.mark.parametrize(
    ("committed_at", "legal"),
    [
        (4, False),
        pytest.param(19, True, id="before it failed, but not written yet"),
        pytest.param(20.1, True, id="while it failed"),
        pytest.param(24, True, id="before the next write"),
        pytest.param(27, False, id="the broker knows"),
        pytest.param(44, False, id="the broker knows for long"),
        pytest.param(50, True, id="shortly before the kill"),
    ],
)
def test_who_cannot_write_offsets_may_forget_only_what_came_before_the_next_write(
    committed_at: float, legal: bool
) -> None:
    story = Story()
    story.reign("n1", 0, 80, 1)
    story.commit(1, 4)
    story.felt(20, 60, *DEAD_DISK)
    story.commit(committed_at, 7)
    story.committed(62, 4)
    story.commit(63, 8)
    story.committed(64, 8)
    assert names([offsets(story)]) == (set() if legal else {"committed-offset-regression"})


@pytest.mark.parametrize(
    ("effects", "committed_at", "legal"),
    [
        (["down"], 30, False),
        (["down"], 40, True),
        pytest.param(["down", "unsynced-lost"], 30, True, id="a power failure: the file was not synced"),
    ],
)
def test_a_master_that_is_restarted_has_its_own_file(effects: list[str], committed_at: float, legal: bool) -> None:
    story = Story()
    story.reign("n1", 0, 80, 1)
    story.commit(1, 4)
    story.felt(50, 55, *effects)
    story.commit(committed_at, 7)
    story.committed(57, 4)
    found = Offsets(copied_within_s=75).check(story.record)
    assert names([found]) == (set() if legal else {"committed-offset-regression"})


def test_a_disk_that_failed_again_is_no_excuse_for_what_was_written_in_between() -> None:
    story = Story()
    story.reign("n1", 0, 100, 1)
    story.felt(10, 14, *DEAD_DISK)
    story.felt(60, 70, *DEAD_DISK)
    story.commit(11, 4)
    story.commit(30, 7)
    story.committed(72, 4)
    assert names([offsets(story)]) == {"committed-offset-regression"}


def test_slaves_may_know_nothing() -> None:
    story = Story()
    story.reign("n1", 0, 20, 1)
    story.commit(1, 7)
    story.committed(18, None, "n2")
    result = offsets(story)
    assert (result.verdict, result.stats["at_slaves"]) == (Verdict.UNKNOWN, 1)
    assert "slaves" in result.reason
    story.committed(19, 7, "n1")
    assert offsets(story).verdict == Verdict.VALID
    assert Offsets().check(RunRecord(History([]))).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize(("said", "expected"), [(7, {"committed-offset-jump"}), (0, set()), (None, set())])
def test_an_offset_that_nobody_committed(said: int | None, expected: set[str], elsewhere: bool) -> None:
    story = Story()
    if elsewhere:
        story.call(1, "commit", 5, 5, node="n1")
        story.events = [replace(op, key="t:a:1") for op in story.events]
    story.committed(2, said)
    result = offsets(story)
    assert names([result]) == expected
    if expected:
        assert "returned offset 7 for group g on t:a:0 at 00:02.0, although no offset had been committed" in str(result)
    else:
        assert result.verdict == (Verdict.VALID if elsewhere else Verdict.UNKNOWN)


def test_a_commit_that_was_refused_or_comes_later_is_none() -> None:
    story = Story()
    story.commit(1, 7, type_="fail")
    story.committed(2, 7)
    story.commit(3, 7)
    assert names([offsets(story)]) == {"committed-offset-jump"}


def consumed(*shown: tuple[float, int, list[int]], drained: bool = True, sent: int = 4) -> Story:
    """`shown`: (at, first offset, ids) of deliveries. Message n stands at offset n - 1."""
    story = Story()
    for n in range(sent):
        story.call(0.1 * n, "send", n + 1, [n, n + 1], node="n1")
    for at, begin, ids in shown:
        story.call(at, "consume", begin, [[begin + i, identity] for i, identity in enumerate(ids)], node="n1")
    if drained:
        story.call(20, "drain", None, {"committed": sent, "max": sent, "consumed_to": sent}, node="n1")
    through = [[n, n + 1] for n in range(sent)]
    story.call(21, "replica-read", 0, through, node="n1", min=0, max=sent, done=True, next=sent, phase="final")
    return story


def test_everything_delivered() -> None:
    result = Deliveries().check(consumed((1, 0, [1, 2]), (2, 2, [3, 4])).record)
    assert (result.verdict, result.stats["messages"], result.stats["again"]) == (Verdict.VALID, 4, 0)


def test_a_message_that_the_group_never_got() -> None:
    result = Deliveries().check(consumed((1, 0, [1, 2]), (2, 3, [4])).record)
    assert names([result]) == {"lost-to-group"}
    assert "message 3, acknowledged by n1" in result.anomalies[0].summary


@pytest.mark.parametrize("through", [True, False])
@pytest.mark.parametrize("given", [0, 1])
def test_a_group_that_was_drained_and_was_given_little_or_nothing(given: int, through: bool) -> None:
    story = consumed(*[(1, 0, [1])][:given])
    if not through:
        story.events = [op for op in story.events if op.f != "replica-read"]
    result = Deliveries().check(story.record)
    assert (result.verdict, names([result])) == (Verdict.INVALID, {"lost-to-group"})
    assert result.anomalies[0].details["count"] == 4 - given


def test_a_group_owes_nothing_of_what_is_lost_or_was_deleted_for_its_age() -> None:
    story = consumed((1, 0, [1]), (2, 3, [4]))
    shown = story.events[-1]
    held = {"lost": [[0, 1], [3, 4]], "expired": [[3, 4]]}
    for what, messages in held.items():
        extra = {**shown.extra, "min": 3 if what == "expired" else 0}
        story.events[-1] = replace(shown, value=messages, extra=extra)
        assert names([Deliveries().check(story.record)]) == set(), what


def test_nothing_sent_and_nothing_delivered_shows_nothing() -> None:
    result = Deliveries().check(consumed(sent=0).record)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "no message was delivered to any group")


def test_without_a_complete_drain_nothing_is_proven() -> None:
    result = Deliveries().check(consumed((1, 0, [1, 2]), drained=False).record)
    assert (result.verdict, names([result])) == (Verdict.UNKNOWN, set())
    assert "no complete drain of g on t:a:0" in result.reason
    assert Deliveries().check(RunRecord(History([]))).verdict == Verdict.UNKNOWN


def test_redelivery_is_counted_and_legal() -> None:
    story = consumed((1, 0, [1, 2]), (5, 0, [1, 2]), (6, 2, [3, 4]))
    before = Deliveries().check(story.record)
    assert (before.stats["again"], before.stats["after_commit"], before.verdict) == (2, 0, Verdict.VALID)
    story.commit(3, 2)
    after = Deliveries().check(story.record)
    assert (after.stats["after_commit"], after.verdict, names([after])) == (2, Verdict.VALID, {"redelivered"})
    assert all(a.legal for a in after.anomalies)


@pytest.mark.parametrize(
    ("killed_at", "legal"),
    [pytest.param(4.5, True, id="the commit was not written yet"), pytest.param(None, False, id="nobody forgot it")],
)
def test_at_least_once_excuses_only_what_a_broker_may_have_forgotten(killed_at: float | None, legal: bool) -> None:
    """Every redelivery was called legal: 12,245 of 6,556 messages, although the group had committed them."""
    story = consumed((1, 0, [1, 2]), (8, 0, [1, 2]), (9, 2, [3, 4]))
    story.reign("n1", 0, 25, 1)
    story.commit(3, 2)
    if killed_at is not None:
        story.felt(killed_at, killed_at + 1, "down", impairs=True)
    story.committed(7, 0)
    result = Deliveries().check(story.record)
    assert [a.name for a in result.anomalies] == ["redelivered"]
    assert (result.anomalies[0].legal is not None) == legal
    assert result.verdict == (Verdict.VALID if legal else Verdict.INVALID)


def popped(
    *pops: tuple[float, int],
    acks: tuple[float, ...] = (),
    strike: float | None = None,
    until: float | None = None,
    master: tuple[float, str] | None = None,
) -> CheckResult:
    """`pops`: (at, id), each for 10 s; id 0: an empty pop. `acks`: acknowledgements of message 1. `strike`, `until`: a
    fault; `master`: since when another node calls itself master.
    """
    story = Story()
    for n, (at, identity) in enumerate(pops):
        held = [[Q, identity - 1, identity, f"h{n}", 0, 0]] if identity else []
        story.call(at, "pop", None, held, node="n1", invisible_ms=10_000)
    for at in acks:
        story.call(at, "ack", ["h0"], ["h0"], node="n1", queue=Q, offset=0, id=1)
    if strike is not None:
        story.strike(strike, "n1", until)
    if master is not None:
        story.seen.append(Observation(int(master[0] * S), master[1], "leader", term=2))
    return Leases(limit_s=30, copied_within_s=15).check(story.record)


def test_a_lease_that_runs_out_is_given_again() -> None:
    result = popped((1, 1), (11.5, 1), acks=(12,))
    assert (result.verdict, result.stats["leases"], result.stats["acked"]) == (Verdict.VALID, 2, 1)
    assert popped().verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(("strike", "verdict"), [(None, Verdict.INVALID), (3, Verdict.VALID)])
def test_two_leases_at_once(strike: float | None, verdict: Verdict) -> None:
    result = popped((1, 1), (5, 1), strike=strike)
    assert (result.verdict, names([result])) == (verdict, {"leased-twice"})


@pytest.mark.parametrize(("strike", "verdict"), [(None, Verdict.INVALID), (20, Verdict.INVALID), (4, Verdict.VALID)])
def test_delivered_after_its_acknowledgement(strike: float | None, verdict: Verdict) -> None:
    result = popped((1, 1), (30, 1), acks=(2,), strike=strike)
    assert (result.verdict, names([result])) == (verdict, {"acked-redelivered"})


@pytest.mark.parametrize(("acked", "verdict"), [(29, Verdict.VALID), (41, Verdict.INVALID)])
def test_a_fault_explains_nothing_that_happens_long_after_it(acked: float, verdict: Verdict) -> None:
    result = popped((acked - 1, 1), (acked + 30, 1), acks=(acked,), strike=2, until=10)
    assert (result.verdict, names([result])) == (verdict, {"acked-redelivered"})


@pytest.mark.parametrize(("since", "verdict"), [(16, Verdict.VALID), (20, Verdict.INVALID), (40, Verdict.INVALID)])
def test_a_change_of_master_explains_what_a_fault_does(since: float, verdict: Verdict) -> None:
    result = popped((1, 1), (30, 1), acks=(2,), master=(since, "n2"))
    assert (result.verdict, names([result])) == (verdict, {"acked-redelivered"})


@pytest.mark.parametrize(("until", "verdict"), [(3, Verdict.INVALID), (14, Verdict.VALID)])
def test_the_copy_that_is_acknowledged_is_not_the_one_that_comes_again(until: float, verdict: Verdict) -> None:
    """Popped at its own place, come back in the retry topic, acknowledged there, and popped again at its own place."""
    story = Story()
    for at, queue in ((40, Q), (80, "%RETRY%g_t:b:0"), (82, Q)):
        held = [[queue, 5, 1, f"h{at}", int(queue != Q), 0]]
        story.call(at, "pop", None, held, node="n1", invisible_ms=10_000)
    story.call(81, "ack", ["h80"], ["h80"], node="n1", queue="%RETRY%g_t:b:0", offset=5, id=1)
    story.strike(2, "n1", until)
    result = Leases(limit_s=300, copied_within_s=15).check(story.record)
    assert (result.verdict, names([result])) == (verdict, {"acked-redelivered"})


@pytest.mark.parametrize(
    ("until", "between", "permitted"),
    [
        (40, 25, True),  # both copies may be of the change of master
        (40, 75, False),  # the second copy lies behind one of a message whose lease ended at 85 s
        (None, 25, True),
        (4, 25, False),
    ],
)
def test_a_new_master_copies_a_message_again_and_the_copies_wait(
    until: float | None, between: float, permitted: bool
) -> None:
    """Popped at 20 s for 10 s; one copy in the retry topic is acknowledged long after the fault, then comes another."""
    story, retry = Story(), "%RETRY%g_t:b:0"
    for at, queue, offset, identity in (
        (20, Q, 5, 1),
        (between, Q, 6, 2),
        (120, retry, 70, 1),
        (122, retry, 80, 2),
        (124, retry, 90, 1),
    ):
        held = [[queue, offset, identity, f"h{at}", int(queue != Q), 0]]
        story.call(at, "pop", None, held, node="n1", invisible_ms=10_000)
    story.call(121, "ack", ["h120"], ["h120"], node="n1", queue=retry, offset=70, id=1)
    story.strike(2, "n1", until)
    (found,) = [a for a in Leases(limit_s=300).check(story.record).anomalies if a.name == "acked-redelivered"]
    assert bool(found.legal) == permitted


@pytest.mark.parametrize(
    ("strike", "again", "acked", "permitted"),
    [
        (4, 108, ["h2"], True),
        (200, 108, ["h2"], False),  # nothing explains the second delivery
        (4, 90, ["h2"], False),  # the first check point was not due
        (4, 108, ["h2", "h1"], False),  # none was due
        (4, 108, ["h2+"], True),  # "+": its time was extended before
        (4, 108, ["h2", "h1+"], False),
    ],
)
def test_each_delivery_has_a_check_point(strike: float, again: float, acked: list[str], permitted: bool) -> None:
    """Leased at 5 s for 100 s, once more at 25 s, acknowledged long after the fault, and delivered again."""
    story = Story()
    for at, queue, handle in ((5, Q, "h1"), (25, Q, "h2"), (again, "%RETRY%g_t:b:0", "h3")):
        story.call(at, "pop", None, [[queue, 5, 1, handle, int(queue != Q), 0]], node="n1", invisible_ms=100_000)
    for n, handle in enumerate(acked):
        if handle.endswith("+"):
            story.call(50 + n, "extend", [handle[:-1], 60_000], [handle], node="n1", queue=Q, offset=5, id=1)
        story.call(60 + n, "ack", [handle], [handle], node="n1", queue=Q, offset=5, id=1)
    story.strike(strike, "n1", strike + 1)
    (found,) = [a for a in Leases(limit_s=300).check(story.record).anomalies if a.name == "acked-redelivered"]
    assert bool(found.legal) == permitted


@pytest.mark.parametrize(("strike", "permitted"), [(4, True), (200, False)])
def test_a_check_point_that_is_due_while_a_second_lease_runs(strike: float, permitted: bool) -> None:
    """Leased at 5 s for 100 s, at 60 s once more, and at 108 s because the first lease is over."""
    story = Story()
    for at, queue, handle in ((5, Q, "h1"), (60, Q, "h2"), (108, "%RETRY%g_t:b:0", "h3")):
        story.call(at, "pop", None, [[queue, 5, 1, handle, int(queue != Q), 0]], node="n1", invisible_ms=100_000)
    story.strike(strike, "n1", strike + 1)
    found = [a for a in Leases(limit_s=300).check(story.record).anomalies if a.name == "leased-twice"]
    assert all(a.legal for a in found) == permitted
    assert sum(a.details["count"] for a in found) == 2


def test_an_acknowledgement_after_its_lease_promises_nothing() -> None:
    assert popped((1, 1), (30, 1), acks=(12,)).verdict == Verdict.VALID


def test_how_long_it_did_not_come_back() -> None:
    """So that time in which the machine had no processor for the servers can be taken off."""
    (found,) = popped((1, 1), (50, 0)).anomalies
    assert found.limit_s == 30
    assert found.window is not None
    assert found.window[1] - found.window[0] > 30 * S


@pytest.mark.parametrize(("last", "gone"), [(40, False), (50, True)])
def test_what_is_not_acknowledged_comes_back(last: float, gone: bool) -> None:
    assert names([popped((1, 1), (last, 0))]) == ({"never-returned"} if gone else set())
    assert names([popped((1, 1), (last, 0), acks=(2,))]) == set()
