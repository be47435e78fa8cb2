# SPDX-License-Identifier: Apache-2.0
"""The judge of the controllers: its order by epochs against a search for one, planted violations, logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import effort

from checkers.base.api import judge
from checkers.controllers.answers import SERVES_NS, Controllers
from checkers.controllers.logs import read_controller_logs
from checkers.linearizability import CasRegister, check
from results.deployment import DeploymentRecord, ServerRecord
from results.history import History
from results.op import NEMESIS, Op
from results.record import RunRecord
from results.verdict import Verdict

NODES = ("n1", "n2", "n3")


def told(version: int) -> dict[str, Any]:
    """The answer of a group at a version. Its set follows from the version, as with a register's value."""
    return {"master": 1, "master_epoch": 1, "in_sync": [1, 10 + version] if version else [1], "epoch": version}


def random_history(rng: Random) -> tuple[History, History]:
    """The same operations twice: on a group, and on a register whose values are the epochs. Some are linearizable."""
    at, epoch = 0, 0
    ours: list[Op] = []
    theirs: list[Op] = []
    open_ops: dict[int, tuple[str, int]] = {}
    fresh = 3

    def add(process: int, kind: str, f: str, mine: Any, yours: Any) -> None:
        nonlocal at
        at += 1
        extra = {"controller": "n1"}
        ours.append(Op(at - 1, at * 1000, process, kind, "alter" if f == "cas" else f, "g", mine, None, extra))  # type: ignore[arg-type]
        theirs.append(Op(at - 1, at * 1000, process, kind, f, "g", yours, None, extra))  # type: ignore[arg-type]

    processes = list(range(fresh))
    for _ in range(rng.randint(4, 16)):
        process = rng.choice(processes)
        if process not in open_ops:
            f = rng.choice(("read", "cas"))
            expected = max(0, epoch - (rng.random() < 0.25))
            open_ops[process] = (f, expected)
            add(process, "invoke", f, None, [expected, expected + 1] if f == "cas" else None)
            continue
        f, expected = open_ops.pop(process)
        if f == "read":
            version = max(0, epoch - rng.choice((0, 0, 0, 1)) + (rng.random() < 0.08))
            add(process, "ok", f, told(version), version)
            continue
        mine = {"master": 1, "master_epoch": 1, "in_sync": [1, 11 + expected], "expected": expected}
        kind = rng.choice(("ok", "ok", "ok", "info"))
        if kind == "ok":
            if expected < epoch and rng.random() < 0.7:
                add(process, "fail", f, mine, [expected, expected + 1])
                continue
            mine["epoch"] = expected + 1
        happened = kind == "ok" or rng.random() < 0.5
        if happened and expected >= epoch:
            epoch = expected + 1
        add(process, kind, f, mine, [expected, expected + 1])
        if kind == "info":
            processes[processes.index(process)] = fresh
            fresh += 1
    for process, (f, expected) in open_ops.items():
        mine = {"master": 1, "master_epoch": 1, "in_sync": [1, 11 + expected], "expected": expected}
        add(process, *(("info", f, mine, [expected, expected + 1]) if f == "cas" else ("fail", f, None, None)))
    return History(ours), History(theirs)


def test_the_order_by_epochs_is_the_order_that_a_search_finds() -> None:
    rng, verdicts = Random(5), {Verdict.VALID: 0, Verdict.INVALID: 0}
    for _ in range(effort(4000)):
        ours, theirs = random_history(rng)
        found = Controllers().check(RunRecord(ours)).anomalies
        # (Where nothing is known to have happened, nothing can be wrong.)
        happened = any(op.type == "ok" for op in theirs)
        wanted = check(theirs.by_key["g"], CasRegister(0)).verdict if happened else Verdict.VALID
        assert bool(found) == (wanted == Verdict.INVALID), [op.to_json() for op in ours]
        verdicts[wanted] += 1
    assert min(verdicts.values()) > effort(500), verdicts


class Story:
    """Operations one after the other, each over before the next; `final`: they are of the final phase."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.final = False

    def add(self, f: str, value: Any, kind: str = "ok", by: str = "n1", key: str = "g") -> Story:
        extra = {"controller": by} | ({"phase": "final"} if self.final else {})
        at = len(self.ops)
        self.ops.append(Op(at, at * 1000, 0, "invoke", f, key, None, None, extra))
        self.ops.append(Op(at + 1, at * 1000 + 500, 0, kind, f, key, value, None, extra))  # type: ignore[arg-type]
        return self

    def names(self) -> set[str]:
        return {a.name for a in Controllers().check(RunRecord(History(self.ops))).anomalies}


def view(epochs: tuple[int, int], in_sync: list[int], replicas: dict[str, str], master: int | None = 1) -> Any:
    return {"master": master, "master_epoch": epochs[0], "epoch": epochs[1], "in_sync": in_sync, "replicas": replicas}


def registered() -> Story:
    story = Story()
    story.add("apply", {"id": 1, "address": "a"}).add("apply", {"id": 2, "address": "b"})
    return story.add("elect", {"id": 1, "master": 1, "master_epoch": 1, "epoch": 1})


BOTH = {"1": "a", "2": "b"}


def test_a_good_story_is_silent() -> None:
    story = registered().add("view", view((1, 1), [1], BOTH)).add("next", 3)
    story.add("alter", {"master": 1, "master_epoch": 1, "in_sync": [1, 2], "expected": 1, "epoch": 2})
    story.add("register", {"id": 2, "address": "c"}).add("view", view((1, 2), [1, 2], {"1": "a", "2": "c"}))
    story.add("elect", {"id": 2, "master": 2, "master_epoch": 2, "epoch": 3}).add("next", 3, by="n2")
    story.final = True
    for node in NODES:
        story.add("view", view((2, 3), [2], {"1": "a", "2": "c"}, 2), by=node).add("next", 3, by=node)
    assert story.names() == set()
    result = Controllers().check(RunRecord(History(story.ops)))
    assert result.verdict == Verdict.VALID
    assert result.stats["led_at_end"] == ["n1", "n2", "n3"]


@pytest.mark.parametrize("acknowledged", [True, False])
def test_an_election_may_keep_the_others_in_the_set(acknowledged: bool) -> None:
    """Mend 25 does; its election makes two epochs."""
    story = registered()
    story.add("alter", {"master": 1, "master_epoch": 1, "in_sync": [1, 2], "expected": 1, "epoch": 2})
    if acknowledged:
        story.add("elect", {"id": 2, "master": 2, "master_epoch": 2, "in_sync": [1, 2], "epoch": 4})
    else:
        story.add("elect", {"id": 2}, kind="info")
    story.add("read", view((2, 4), [1, 2], BOTH, 2))
    assert story.names() == set()
    story.add("read", view((2, 5), [1, 2, 3], BOTH, 2))
    assert story.names() == {"unasked-metadata"}


@pytest.mark.parametrize(
    ("added", "name"),
    [
        ([("read", view((1, 1), [2], BOTH, 2))], "epoch-reused"),
        ([("elect", {"id": 2, "master": 2, "master_epoch": 1, "epoch": 1})], "epoch-reused"),
        ([("read", None), ("read", view((1, 1), [1], BOTH))], "stale-metadata"),
        ([("read", None)], "lost-metadata"),
        ([("view", view((1, 1), [1], {"1": "a"}))], "lost-metadata"),
        ([("view", view((1, 1), [1], {"1": "a"})), ("view", view((1, 1), [1], BOTH))], "stale-metadata"),
        ([("view", view((1, 2), [1, 2], BOTH))], "unasked-metadata"),
        ([("view", view((1, 1), [1], {"1": "a", "2": "z"}))], "unasked-metadata"),
        ([("apply", {"id": 2, "address": "x"})], "id-given-twice"),
        ([("next", 2)], "id-given-twice"),
        ([("forget", None), ("view", view((1, 1), [1], BOTH))], "lost-metadata"),
        ([("forget", None), ("next", 3), ("next", 1)], "stale-metadata"),
        (
            [
                ("apply", {"id": 4, "address": "d"}),
                ("clean", {"id": 4}),
                ("view", view((1, 1), [1], BOTH | {"4": "d"})),
            ],
            "lost-metadata",
        ),
        ([("register", {"id": 2, "address": "c"}), ("view", view((1, 1), [1], BOTH))], "lost-metadata"),
    ],
)
def test_planted(added: list[tuple[str, Any]], name: str) -> None:
    story = registered()
    for f, value in added:
        story.add(f, value)
    assert name in story.names()


def test_controllers_that_differ_at_the_end() -> None:
    story = registered()
    story.final = True
    story.add("view", view((1, 1), [1], BOTH)).add("next", 3).add("next", 4, by="n2")
    assert story.names() == {"controllers-differ"}


def test_who_elects_by_itself_is_no_difference() -> None:
    """The master is gone when its heartbeats are: the first epoch grows, and there is no master."""
    story = registered()
    story.final = True
    story.add("view", view((1, 1), [1], BOTH)).add("view", view((2, 1), [1], BOTH, None), by="n2")
    assert story.names() == set()


def restarted(to: str | None, at: int, error: str | None = None) -> list[Op]:
    value = {"kind": "controller", "from": "n1", "to": to}
    start = Op(at, at * 1000, NEMESIS, "invoke", "restart-leading", None, {"kind": "controller"})
    return [start, Op(at + 1, at * 1000 + 500, NEMESIS, "info", "restart-leading", None, value, error)]


@pytest.mark.parametrize(
    ("to", "kinds", "name"),
    [
        ("n2", ("fail", "fail"), {"leader-serves-nothing"}),
        ("n2", ("fail", "ok"), set()),
        (None, ("fail", "fail"), set()),
        ("n2", (), set()),
    ],
)
def test_a_leader_that_answers_nothing(to: str | None, kinds: tuple[str, ...], name: set[str]) -> None:
    story = registered()
    story.final = True
    story.add("view", view((1, 1), [1], BOTH))
    story.ops += restarted(to, len(story.ops))
    for kind in kinds:
        story.add("view", view((1, 1), [1], BOTH) if kind == "ok" else None, kind, by="n2")
    late = [replace(op, time=op.time + (SERVES_NS if op.extra.get("controller") == "n2" else 0)) for op in story.ops]
    assert story.names() <= (name if "ok" not in kinds else set()) - {"leader-serves-nothing"}, (
        "too early for a verdict"
    )
    story.ops = late
    assert story.names() == name


LOG = """\
2026-01-01 00:00:01.000 INFO main - node <controllers/198.18.0.1:9880> Start Leader, term={term}
2026-01-01 00:00:02.000 INFO main - Save snapshot, path=/var/x/snapshot/temp
2026-01-01 00:00:03.000 INFO main - Load snapshot from /var/x/snapshot/snapshot_7
"""


def logged(tmp_path: Path, **logs: str) -> RunRecord:
    servers = [ServerRecord(node, "controller", "198.18.0.1", {"controller": 9770}, None, "5.5.0") for node in NODES]
    deployment = DeploymentRecord("toy", dict.fromkeys(NODES, "198.18.0.1"), servers)
    paths = {}
    for node, text in logs.items():
        path = tmp_path / node / "controller.log"
        path.parent.mkdir()
        path.write_text(text)
        paths[node] = [path]
    return RunRecord(History(()), environment={"started_at": "2026-01-01T00:00:00"}, logs=paths, deployment=deployment)


def test_logs_are_counted(tmp_path: Path) -> None:
    run = logged(tmp_path, n1=LOG.format(term=2), n2=LOG.format(term=3))
    stats = read_controller_logs(run).stats()
    assert (stats["elections"], stats["snapshots_saved"], stats["snapshots_loaded"]) == (2, 2, 2)
    assert not Controllers().check(run).anomalies


def test_two_leaders_of_a_term_and_a_snapshot_that_cannot_be_loaded(tmp_path: Path) -> None:
    broken = "2026-01-01 00:00:04.000 ERROR main - Fail to load snapshot from /var/x/snapshot_7\n"
    run = logged(tmp_path, n1=LOG.format(term=2), n2=LOG.format(term=2) + broken)
    assert {a.name for a in Controllers().check(run).anomalies} == {"two-leaders-in-a-term", "snapshot-failed"}


ODD = (None, 7, -1, 2**70, 1.5, "x", [], [1, "x"], [[1]], {}, {"master": []}, {"id": "x"}, {"in_sync": 5}, True)


@pytest.mark.parametrize("f", ["read", "view", "next", "apply", "register", "elect", "alter", "clean", "forget"])
def test_odd_values_are_told_by_their_op(f: str) -> None:
    """A stored run with a value that no client writes: the line names the op, and no checker fails."""
    good = told(1) | {"id": 2, "address": "a", "expected": 0, "replicas": {"1": "a"}}
    values = [
        *ODD,
        *({**good, name: odd} for name in good for odd in ODD),
        *({k: v for k, v in good.items() if k != name} for name in good),
    ]
    for value in values:
        for kind in ("ok", "info"):
            ops = [
                Op(0, 1, 0, "invoke", "alter", "g"), Op(1, 2, 0, "ok", "alter", "g", {**good, "epoch": 1}),
                Op(2, 3, 0, "invoke", "apply", "g"), Op(3, 4, 0, "ok", "apply", "g", {"id": 2, "address": "a"}),
                Op(4, 5, 1, "invoke", f, "g"), Op(5, 6, 1, kind, f, "g", value, None, {"controller": value}),
                Op(6, 7, 2, "invoke", "view", "g"), Op(7, 8, 2, "ok", "view", "g", good, None, {"phase": "final"}),
            ]  # fmt: skip
            (result,) = judge(RunRecord(History(ops)), [Controllers()]).results
            assert "itself failed" not in result.reason, (value, result.stats.get("traceback"))


@pytest.mark.parametrize("value", [*ODD, {"kind": 5, "to": "n1"}, {"kind": "controller"}])
def test_an_odd_restart_is_told(value: Any) -> None:
    """The nemesis' op that restarts who leads, too."""
    ops = [
        Op(0, 1, NEMESIS, "invoke", "restart-leading", None, {"kind": "controller"}),
        Op(1, 2, NEMESIS, "info", "restart-leading", None, value),
        Op(2, 3, 0, "invoke", "serving", None),
        Op(3, 4, 0, "fail", "serving", None),
    ]
    (result,) = judge(RunRecord(History(ops)), [Controllers()]).results
    assert "itself failed" not in result.reason, (value, result.stats.get("traceback"))
