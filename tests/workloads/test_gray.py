# SPDX-License-Identifier: Apache-2.0
"""The workload `gray` against a simulated cluster, and its parts by themselves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sim.gray import LEASE_S, play

from checkers.base.api import judge
from checkers.messages.gray import Gray
from checkers.messages.queue import Deliveries, Leases, Offsets
from checkers.run.wellformed import WellFormed
from harness.generator.context import Context
from harness.plan.plan import Plan, PlanError
from harness.run.simulate import simulate
from infra.systems.remoting.connection import Refused, TimedOut
from results.op import Op
from results.verdict import Judgement, Verdict
from workloads.gray.flags import Flags, NoFlags
from workloads.gray.operator import Operator, Task, tasks
from workloads.gray.split import Split, averaged
from workloads.gray.workload import GrayWorkload

SPLIT = {"tasks": ("4s off m1", "12s restart m2"), "cut": (2.0, 8.0), "crashes_s": 0.0}
LEAVES = {"tasks": ("4s off m1", "6s off m0", "14s on m0"), "crashes_s": 0.0}
EXPANDS = {"tasks": ("11s expand",), "crashes_s": 0.0}


def judged(seed: int, **how: Any) -> Judgement:
    record, _ = play(seed, **how)
    return judge(record, [WellFormed(), Gray(), Deliveries(), Offsets()])


def broken(judgement: Judgement) -> set[str]:
    return {a.name for a in judgement.anomalies if a.legal is None}


def in_order(seed: int, **how: Any) -> Judgement:
    record, _ = play(seed, consume="orderly", **how)
    return judge(record, [WellFormed(), Gray(lease_s=LEASE_S), Deliveries(), Offsets()])


@pytest.mark.slow
def test_good_runs_raise_no_alarm() -> None:
    for seed in range(3):
        record, _ = play(seed, trouble=0.02 * seed, seconds=20)
        judgement = judge(record, [WellFormed(), Gray(), Deliveries(), Offsets()])
        assert judgement.verdict == Verdict.VALID, (seed, judgement.reason)
        done = Counter(op.f for op in record.history if op.type == "ok")
        for f in ("join", "rebalance", "assign", "consume", "commit", "crash", "flag", "lag", "sending", "expand"):
            assert done[f], f
        (figures,) = (r.stats for r in judgement.results if r.checker == "gray")
        assert figures["without_gray"] == 1


@pytest.mark.slow
def test_ordered_consumption_and_what_is_sent_back_raise_no_alarm() -> None:
    for seed in range(2):
        found = in_order(seed, trouble=0.02 * seed, crashes_s=8 * seed)
        assert found.verdict == Verdict.VALID, (seed, found.reason)
        record, _ = play(seed, failing=10, trouble=0.02 * seed)
        found = judge(record, [WellFormed(), Gray(), Deliveries(), Offsets()])
        assert found.verdict == Verdict.VALID, (seed, found.reason)
        (figures,) = (r.stats for r in found.results if r.checker == "gray")
        assert figures["returned"] > 10


@pytest.mark.slow
def test_pops_keep_colours_apart_while_everything_is_acknowledged() -> None:
    """A message without acknowledgement comes back by a retry queue, from which every member pops."""
    for seed, failing in ((1, 0.0), (2, 10.0)):
        record, _ = play(seed, consume="pop", failing=failing, crashes_s=0)
        found = judge(record, [WellFormed(), Gray(), Deliveries(), Leases()])
        assert bool(broken(found)) == bool(failing), found.reason
        assert broken(found) <= {"wrong-colour", "recoloured"}
        done = Counter(op.f for op in record.history if op.type == "ok" and "member" in op.extra)
        assert done["pop"] > 100
        assert done["ack"] > 100


@pytest.mark.slow
def test_what_the_published_scheme_makes_of_messages_that_are_sent_back() -> None:
    """A group has one retry queue on a broker: base messages reach a gray member, or nobody."""
    quiet = {"scheme": "document", "failing": 10, "crashes_s": 0}
    assert broken(judged(3, tasks=["20s expand"], **quiet)) >= {"wrong-colour"}
    assert broken(judged(3, tasks=["5s off m1", "6s off m0"], **quiet)) >= {"never-received"}


@pytest.mark.slow
def test_locks_leave_one_owner_where_the_scheme_names_two() -> None:
    """The flag that one name server lacks: the second owner is refused the lock, and the other queue has none still."""
    without, with_locks = broken(judged(4, scheme="document", **SPLIT)), broken(in_order(4, scheme="document", **SPLIT))
    assert without >= {"owned-by-two", "ownerless"}
    assert with_locks >= {"ownerless"}
    assert "owned-by-two" not in with_locks
    assert "owned-by-two" in broken(in_order(6, bug="grants", crashes_s=0, tasks=["9s off m1"]))


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_good_runs() -> None:
    alarms = {}
    modes: tuple[dict[str, Any], ...] = ({}, {"consume": "orderly"}, {"failing": 10.0}, {"consume": "pop"})
    for seed in range(1000):
        more, trouble = modes[seed % len(modes)], (0.0, 0.0, 0.0, 0.02, 0.05)[seed % 5]
        cut = (3.0, 7.0) if seed % 7 < 2 else None
        # A lost answer of a pop, and a crash, leave messages to the next member that pops.
        pops = more.get("consume") == "pop"
        how = {"trouble": 0.0 if pops else trouble, "cut": cut, "crashes_s": 0 if pops else (0, 3, 8)[seed % 3]}
        record, _ = play(seed, seconds=18, **how, **more)
        lease = LEASE_S if more.get("consume") == "orderly" else 0
        offsets = Leases() if pops else Offsets()
        found = judge(record, [WellFormed(), Gray(lease_s=lease), Deliveries(), offsets])
        if broken(found):
            alarms[seed] = found.reason
    assert alarms == {}


@pytest.mark.parametrize(
    ("how", "found"),
    [
        (SPLIT, {"owned-by-two", "ownerless", "received-again"}),
        (LEAVES, {"stranded"}),
        (EXPANDS, {"recoloured"}),
    ],
    ids=["split", "leaves", "expands"],
)
@pytest.mark.slow
def test_the_published_scheme_breaks_and_the_cured_one_does_not(how: Mapping[str, Any], found: set[str]) -> None:
    document = judged(4, scheme="document", **how)
    assert found <= broken(document)
    assert judged(4, scheme="cured", **how).verdict == Verdict.VALID


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("mixed", "wrong-colour"),
        ("skip", "never-received"),
        ("forget", "received-again"),
        ("orphan", "ownerless"),
        ("both", "owned-by-two"),
        ("swallow", "never-received"),
    ],
)
@pytest.mark.slow
def test_a_planted_bug_is_found(bug: str, name: str) -> None:
    back = {"failing": 10, "scheme": "document"} if bug == "swallow" else {}
    assert name in broken(judged(6, bug=bug, crashes_s=5 if bug == "forget" else 0, tasks=["9s off m1"], **back))


def test_the_first_and_the_last_queue_are_gray() -> None:
    assert [sorted(Split().numbers(n)) for n in (6, 8, 1)] == [[0, 5], [0, 7], [0]]
    assert [sorted(Split(6).numbers(n)) for n in (6, 8)] == [[0, 5], [0, 5]]
    assert sorted(Split(gray=3).numbers(6)) == [0, 1, 5]
    assert Split().queues({"b": 3, "a": 3}, True) == [("a", 0), ("a", 2), ("b", 0), ("b", 2)]


def test_queues_are_averaged_as_in_java() -> None:
    assert [averaged(c, "xyz", range(8)) for c in "xyz"] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [averaged(c, "xyz", range(2)) for c in "xyz"] == [[0], [1], []]
    assert averaged("w", "xyz", range(8)) == []


def test_every_queue_has_one_owner_among_members_that_know_the_same() -> None:
    clients, flags = ["m0", "m1", "m2", "m3"], {"m0": True, "m1": True, "m2": False}
    shares = [place for c in clients for place in Split().share(c, clients, flags, {"a": 6, "b": 7})]
    assert sorted(shares) == [("a", n) for n in range(6)] + [("b", n) for n in range(7)]


class Table:
    """The table of a name server that answers, or does not."""

    def __init__(self, problem: Exception | None = None, **table: str) -> None:
        self.problem, self.table = problem, table

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.table[key] = value

    async def kv_table(self, namespace: str) -> Mapping[str, str]:
        if self.problem is not None:
            raise self.problem
        return self.table


def test_a_stale_name_server_misleads_one_who_reads_from_it_alone() -> None:
    async def test() -> None:
        stores = {"n1": Table(m1="1:true"), "n2": Table(m1="2:false"), "n3": Table(m1="2:false")}
        document, cured = (Flags(stores, "g", scheme) for scheme in ("document", "cured"))
        assert await document.read() == {"m1": True}
        document.next()
        assert await document.read() == {"m1": False}
        assert await cured.read() == {"m1": False}

    asyncio.run(test())


@pytest.mark.parametrize(("down", "document", "cured"), [(0, True, True), (1, True, True), (2, True, False)])
def test_who_must_have_taken_a_flag(down: int, document: bool, cured: bool) -> None:
    async def test() -> None:
        stores = {f"n{n}": Table(Refused("no") if n < down else None) for n in range(3)}
        for scheme, holds in (("document", document), ("cured", cured)):
            flags = Flags(stores, "g", scheme)  # type: ignore[arg-type]
            assert flags.holds(await flags.write("m1", False, 3)) == holds
            if holds:
                assert await flags.read() == {"m1": False}
            else:
                with pytest.raises(NoFlags, match="1 of 3"):
                    await flags.read()

    asyncio.run(test())


def test_an_answer_that_is_lost_is_not_a_refusal() -> None:
    async def test() -> None:
        stores = {"n1": Table(TimedOut("late")), "n2": Table(Refused("no")), "n3": Table()}
        written = await Flags(stores, "g", "document").write("m1", True, 1)
        assert (written.taken, written.refused, written.unsure) == (["n3"], ["n2"], ["n1"])

    asyncio.run(test())


def procedure(scheme: Any, grays: Sequence[str], *given: str, lags: int = 2) -> list[Any]:
    """The steps of an operator for tasks, when the gray queues have been read at the `lags`-th look."""
    looks = iter(range(1, 1000))
    generator = Operator(scheme, frozenset(grays), tuple(tasks(given)))
    done: list[Any] = []
    ctx = Context.start(1, nemesis=False)
    step = generator.op(ctx)
    while step is not None:
        what, generator = step  # type: ignore[assignment]
        if hasattr(what, "until"):
            ctx = ctx._replace(time=what.until)
        else:
            value = {"q": int(next(looks) < lags)} if what.f == "lag" else what.value
            generator = generator.update(ctx, Op(0, ctx.time, 0, "ok", what.f, None, value))  # type: ignore[assignment]
            done.append((what.f, what.value) if what.f != "flag" else (what.f, what.value["gray"]))
        step = generator.op(ctx)
    return done


def test_the_order_of_the_procedures() -> None:
    ends, begins = ("sending", False), ("sending", True)
    look = ("lag", None)
    assert procedure("document", ["m0"], "1s off m0") == [look, look, ("flag", False), ends]
    assert procedure("cured", ["m0"], "1s off m0") == [ends, look, look, ("flag", False)]
    assert procedure("cured", ["m0", "m1"], "1s off m0", lags=1) == [look, ("flag", False)]
    assert procedure("cured", [], "1s on m0") == [("flag", True), begins]
    assert procedure("document", ["m0"], "1s on m1", "2s expand") == [("flag", True), ("expand", 2)]
    given_up = procedure("cured", ["m0"], "1s off m0", lags=900)
    assert given_up[0] == ends
    assert given_up[-1] == begins, "the gray queues were never read to their end"


def test_tasks_are_read() -> None:
    assert tasks(["40s expand", "10s off m1"]) == [Task(10 * 10**9, "off", "m1"), Task(40 * 10**9, "expand")]
    for wrong in ("off m1", "10s off", "10s expand m1", "10s leave m1", "soon off m1"):
        with pytest.raises(ValueError, match="tasks"):
            tasks([wrong])


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(PlanError, match="needs 7 clients"):
        GrayWorkload(Plan(workload="gray", concurrency=6))
    with pytest.raises(PlanError, match="failing needs another consume than orderly"):
        GrayWorkload(Plan(workload="gray", options={"failing": 5.0, "consume": "orderly"}))
    with pytest.raises(PlanError, match="'m7'; there are m0, m1, m2, m3"):
        GrayWorkload(Plan(workload="gray", options={"tasks": ["1s off m7"]}))


def test_generators_give_the_same_answer_twice() -> None:
    """`simulate` asks everything twice."""
    generator = Operator("document", frozenset({"m0"}), tuple(tasks(["1s expand"])))
    assert [op.f for op in simulate(generator, concurrency=1) if op.type == "invoke"] == ["expand"]
