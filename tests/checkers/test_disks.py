# SPDX-License-Identifier: Apache-2.0
"""The judges of power failures and dead disks: planted violations, good histories, and what is legal after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sim.rocketmq import names

from checkers.base.legality import permits
from checkers.servers.dead_disk import NOTICED_S, DeadDisks
from checkers.servers.durable import DurableFiles
from results.deployment import DeploymentRecord, Traits
from results.history import History
from results.op import NEMESIS, Op
from results.record import RunRecord
from results.verdict import Verdict

S = 1_000_000_000
NODES = {f"n{i}": "" for i in (1, 2, 3)}


def strike(
    effects: Sequence[tuple[str, str]], detail: Any = None, begin_s: float = 5, end_s: float = 15, healed_s: float = 15
) -> list[Op]:
    """inject and heal of one strike, with these effects (kind, node)."""
    value = {"fault": "trouble", "id": 1}
    done = {
        **value,
        "nodes": {"n1": detail},
        "effects": [{"kind": kind, "node": node} for kind, node in effects],
        "seen": True,
    }
    times = [(begin_s, "invoke", "inject", value), (begin_s, "info", "inject", done)]
    times += [(end_s, "invoke", "heal", value), (healed_s, "info", "heal", value)]
    return [Op(0, int(at * S), NEMESIS, type_, f, None, v) for at, type_, f, v in times]  # type: ignore[arg-type]


def run(ops: Sequence[Op], groups: Sequence[Sequence[str]] = (("n1", "n2", "n3"),), **traits: Any) -> RunRecord:
    record = DeploymentRecord("toy", NODES, groups={f"g{i}": g for i, g in enumerate(groups)}, traits=Traits(**traits))
    ordered = sorted(ops, key=lambda op: op.time)
    history = History(
        [Op(i, op.time, op.process, op.type, op.f, op.key, op.value, extra=op.extra) for i, op in enumerate(ordered)]
    )
    return RunRecord(history, deployment=record)


def acks(node: str | None, *seconds: float, f: str = "send") -> list[Op]:
    """Acknowledged writes at these times."""
    extra = {} if node is None else {"node": node}
    return [
        op
        for at in seconds
        for op in (
            Op(0, int(at * S) - 1, 1, "invoke", f, "q", 1),
            Op(0, int(at * S), 1, "ok", f, "q", 1, extra=extra),
        )
    ]


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (None, "is not there any more"),
        ("", "is empty"),
        ("\0\0", "holds only NULs"),
        ("currTerm=4", "holds currTerm=4 again"),
    ],
)
def test_a_file_that_power_took_is_told(after: str | None, state: str) -> None:
    file = {"file": "store/currterm", "before": "voteLeader=n2\ncurrTerm=5", "after": after}
    found = DurableFiles().check(run(strike([("unsynced-lost", "n1")], {"nodes": ["n1"], "changed": {"n1": [file]}})))
    assert (found.verdict, names([found])) == (Verdict.INVALID, {"metadata-lost"})
    assert found.anomalies[0].summary == (
        f"n1: after the failure of power #1 store/currterm {state}; before: voteLeader=n2 currTerm=5"
    )


def test_files_that_survived_are_no_finding() -> None:
    good = run(strike([("unsynced-lost", "n1"), ("unsynced-lost", "n2")], {"nodes": ["n1", "n2"], "changed": {}}))
    assert DurableFiles.concerns(good)
    found = DurableFiles().check(good)
    assert (found.verdict, found.stats) == (Verdict.VALID, {"cuts": 2, "changed": 0})
    assert not DurableFiles.concerns(run(strike([("down", "n1")], {"broker": "SIGKILL"})))
    assert not DurableFiles.concerns(run(strike([("disk-dead", "n1"), ("unsynced-lost", "n1")], {"end": "kill"})))


def test_acknowledgements_without_a_disk_are_counted() -> None:
    late = 5 + NOTICED_S + 1
    dead = strike([("disk-dead", "n1")])
    found = DeadDisks().check(run([*dead, *acks("n1", 2, 6, late, late + 1), *acks("n1", 20)], groups=[["n1"], ["n2"]]))
    assert (found.verdict, names([found])) == (Verdict.INVALID, {"acknowledged-on-dead-disk"})
    assert found.anomalies[0].details["count"] == 2, "not before the fault, not at once, not after it"


def test_a_heal_that_takes_long_gives_the_disks_back_one_by_one() -> None:
    ops = [*strike([("disk-dead", "n1")], healed_s=25), *acks("n1", 16, 24)]
    assert DeadDisks().check(run(ops, groups=[["n1"], ["n2"]])).verdict == Verdict.VALID


@pytest.mark.parametrize(
    ("dead", "raft", "wrong"),
    [
        (["n1"], True, False),
        (["n1", "n2"], True, True),
        (["n1", "n2"], False, False),
        (["n1", "n2", "n3"], False, True),
    ],
)
def test_disks_that_work_may_keep_what_is_acknowledged(dead: Sequence[str], raft: bool, wrong: bool) -> None:
    """A Raft group needs a majority of them, any other one."""
    ops = [*strike([("disk-dead", node) for node in dead]), *acks("n1", 10)]
    assert bool(DeadDisks().check(run(ops, raft_log=raft)).anomalies) == wrong


def test_other_groups_and_other_ops_are_no_finding() -> None:
    ops = [*strike([("disk-dead", "n1")]), *acks("n2", 10), *acks("n1", 11, f="poll"), *acks(None, 12)]
    assert DeadDisks().check(run(ops, groups=[["n1"], ["n2", "n3"]])).verdict == Verdict.VALID
    assert not DeadDisks.concerns(run(strike([("slow", "n1")])))


def test_a_fault_makes_legal_what_its_effect_explains() -> None:
    """Only where it struck: the same loss without a failure of power stays a finding."""
    about = {
        "permits": {"lost": "profile default"},
        "permits_after": '{"unsynced-lost": {"dirty-read": "ASYNC_FLUSH"}}',
    }
    record = run(strike([("down", "n1"), ("unsynced-lost", "n1")]))
    record.environment.update(about)  # type: ignore[attr-defined]
    assert {name: permit.why for name, permit in permits(record).items()} == {
        "lost": "profile default",
        "dirty-read": "ASYNC_FLUSH",
    }
    assert permits(record)["dirty-read"].nodes == {"n1"}
    record = run(strike([("down", "n1")]))
    record.environment.update(about)  # type: ignore[attr-defined]
    assert permits(record).keys() == {"lost"}
