# SPDX-License-Identifier: Apache-2.0
"""The judge of terms, votes and epochs: planted violations, good histories, and what a wiped disk permits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.base.api import judge
from checkers.servers.dledger import DledgerInvariants
from checkers.servers.terms import Terms
from infra.systems.dledger.layouts import WIPED
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.history import History
from results.op import NEMESIS, Op
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
START = "2026-01-01T00:00:00.000000+00:00"
NODES = ("n1", "n2", "n3")


def run(
    folder: Path | None = None,
    logs: dict[str, list[str]] | None = None,
    observations: Sequence[Observation] = (),
    struck: Sequence[tuple[str, str]] = (),
    detail: Any = None,
    raft: bool = True,
    **environment: Any,
) -> RunRecord:
    paths: dict[str, list[Path]] = {}
    for node, lines in (logs or {}).items():
        assert folder is not None
        path = folder / node / "server.log"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"2026-01-01 00:00:{i:02d}.500 INFO x - {line}\n" for i, line in enumerate(lines)))
        paths[node] = [path]
    value = {"fault": "trouble", "id": 1}
    done = {**value, "nodes": {"n1": detail}, "effects": [{"kind": k, "node": n} for k, n in struck], "seen": True}
    ops = [Op(0, 0, NEMESIS, "invoke", "inject", None, value), Op(1, 1, NEMESIS, "info", "inject", None, done)]
    servers = [ServerRecord(node, "controller") for node in NODES]
    record = DeploymentRecord("toy", dict.fromkeys(NODES, ""), servers, traits=Traits(raft_log=raft, in_sync=not raft))
    return RunRecord(
        History(ops if struck or detail else []),
        environment={"started_at": START, **environment},
        observations=observations,
        logs=paths,
        deployment=record,
    )


def checked(record: RunRecord) -> CheckResult:
    """As in a run, with what its configuration permits."""
    (result,) = judge(record, [Terms()]).results
    return result


def names(result: CheckResult) -> list[str]:
    return [a.name for a in result.anomalies if a.legal is None]


def seen(second: int, node: str, term: int, role: str = "follower") -> Observation:
    return Observation(second * S, node, role, term)


def vote(voter: str, candidate: str, term: int, result: str = "ACCEPT", group: str = "g") -> str:
    """As DLedger 0.4.0 logs it."""
    answer = {"code": 200, "group": group, "leaderId": candidate, "localId": candidate, "remoteId": voter}
    return f"[{candidate}][GetVoteResponse] {json.dumps({**answer, 'term': term, 'voteResult': result})}"


RAISE = "n1_[INCREASE_TERM] from {} to {}"
FOLLOW = "[n1][ChangeRoleToFollower] from term: {} leaderId: n2 and currTerm: {}"
LOADED = "[MemberState] load persistent state ok. term={} voteFor=n2"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([RAISE.format(0, 1), FOLLOW.format(1, 1), RAISE.format(1, 2), LOADED.format(2), RAISE.format(2, 3)], False),
        ([RAISE.format(0, 1), RAISE.format(1, 5), LOADED.format(4)], True),
        ([RAISE.format(0, 1), RAISE.format(0, 1)], True),  # the same term, entered a second time
        ([RAISE.format(3, 4), "[n1] [ChangeRoleToLeader] from term: 4 and currTerm: 4", FOLLOW.format(1, 1)], True),
        ([LOADED.format(7), "[n1] skip to be candidate in term: 3, but currTerm: 7"], False),
    ],
)
def test_the_terms_of_a_log(lines: list[str], wrong: bool, tmp_path: Path) -> None:
    result = checked(run(tmp_path, {"n1": lines}))
    assert names(result) == (["term-went-back"] if wrong else [])
    assert result.verdict == (Verdict.INVALID if wrong else Verdict.VALID)


def test_the_terms_of_the_statuses() -> None:
    good = [seen(1, "n1", 4), seen(2, "n2", 3), seen(3, "n1", 5), Observation(4 * S, "n1", "silent"), seen(5, "n1", 5)]
    result = checked(run(observations=good))
    assert (result.verdict, result.stats["terms"]) == (Verdict.VALID, 4)
    result = checked(run(observations=[*good, seen(6, "n1", 0), seen(7, "n1", 1), seen(8, "n1", 0)]))
    assert names(result) == ["term-went-back"]
    assert result.anomalies[0].summary.startswith(
        "n1 was in term 5 and, later, in term 0 (the first of 2 times); a term never decreases"
    )
    assert not Terms.concerns(run(observations=[seen(1, "n1", 5), seen(2, "n1", 4)], raft=False)), "a broker's epoch"


def test_the_file_of_the_term() -> None:
    def changed(after: str | None) -> Any:
        file = {"file": "x/currterm", "before": "voteLeader=n2\ncurrTerm=5", "after": after}
        return {"nodes": ["n1"], "changed": {"n1": [file]}}

    for after in (None, "", "\0\0", "voteLeader=n1\ncurrTerm=4"):
        assert names(checked(run(detail=changed(after)))) == ["term-went-back"]
    assert names(checked(run(detail=changed("voteLeader=\ncurrTerm=5")))) == []


def test_two_votes_in_a_term(tmp_path: Path) -> None:
    good = [vote("n2", "n1", 3), vote("n2", "n1", 3), vote("n2", "n3", 4), vote("n2", "n3", 3, "REJECT_ALREADY_VOTED")]
    good += [vote("n2", "n3", 3, group="other"), "[n1][GetVoteResponse] {torn"]
    assert names(checked(run(tmp_path / "good", {"n1": good}))) == []
    result = checked(run(tmp_path / "bad", {"n1": good, "n3": [vote("n2", "n3", 3)]}))
    assert names(result) == ["voted-twice"]
    assert result.anomalies[0].summary.startswith("n2 voted for n1 and n3 in term 3")


def test_what_is_permitted_of_a_wiped_disk_is_permitted_of_no_other(tmp_path: Path) -> None:
    after = json.dumps({"data-lost": {"term-went-back": "its disk is new"}})
    for node, legal in (("n1", True), ("n2", False)):
        record = run(
            tmp_path / node,
            {"n1": [RAISE.format(4, 5), RAISE.format(0, 1)]},
            struck=[("data-lost", node)],
            permits_after=after,
        )
        result = checked(record)
        assert (result.verdict == Verdict.VALID) == legal
        assert (result.anomalies[0].legal == "its disk is new") == legal


@pytest.mark.parametrize(("first", "wrong"), [(0, False), (1, True)])
def test_a_term_has_two_leaders_where_a_voter_lost_its_disk_between(first: int, wrong: bool, tmp_path: Path) -> None:
    after = json.dumps({"data-lost": WIPED})
    record = run(
        tmp_path,
        {"n2": ["start", "[n2] [VOTE_RESULT] has been elected to be the leader in term 4"]},
        [Observation(first * S, "n1", "leader", term=4)],
        struck=[("data-lost", "n3")],
        permits_after=after,
    )
    (result,) = judge(record, [DledgerInvariants(NODES)]).results
    assert [(a.name, a.legal is None) for a in result.anomalies] == [("two-leaders-in-a-term", wrong)]
    assert result.verdict == (Verdict.INVALID if wrong else Verdict.VALID)


def leads(second: int, node: str, epoch: int | None, role: str = "leader") -> Observation:
    extra = {"controller": role} if epoch is None else {"controller": role, "in_sync_epoch": epoch}
    return Observation(second * S, node, "follower", extra=extra)


FOLLOWS = leads(3, "n2", None, "follower")


@pytest.mark.parametrize(
    ("observations", "wrong"),
    [
        ([leads(1, "n1", 4), leads(2, "n1", 5), FOLLOWS, leads(4, "n2", 5), leads(5, "n2", 6)], False),
        ([leads(1, "n1", 4), leads(2, "n1", 3), leads(3, "n1", 3)], True),
        ([leads(1, "n1", 4), leads(2, "n1", 3), leads(3, "n1", 4)], False),  # not confirmed
        ([leads(2, "n1", 5), FOLLOWS, leads(4, "n2", 2), leads(5, "n2", 2)], True),
        ([leads(1, "n2", 2), leads(2, "n1", 5), leads(4, "n2", 2), leads(5, "n2", 2)], False),  # deposed, cut off
    ],
)
def test_epochs(observations: Sequence[Observation], wrong: bool) -> None:
    record = run(observations=observations, raft=False)
    assert Terms.concerns(record)
    assert names(checked(record)) == (["epoch-went-back"] if wrong else [])


def test_controllers_that_lost_a_majority_of_disks_begin_again() -> None:
    fall = [leads(1, "n1", 4), leads(2, "n1", 3), leads(3, "n1", 3)]
    lost = [("data-lost", "n1"), ("data-lost", "n2")]
    assert names(checked(run(observations=fall, struck=lost, raft=False))) == []
    assert names(checked(run(observations=fall, struck=lost[:1], raft=False))) == ["epoch-went-back"]


def test_a_run_that_says_nothing_of_terms_is_not_judged() -> None:
    assert not Terms.concerns(run())
