# SPDX-License-Identifier: Apache-2.0
"""Routes: every planted violation is found in simulated clusters, and good clusters are silent."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from sim.rocketmq import names
from stories import TimedStory

from checkers.messages.routes import Routes
from results.deployment import DeploymentRecord, Traits
from results.op import OpType
from results.verdict import CheckResult, Verdict

S = 1_000_000_000
NODES = ("n1", "n2", "n3")
CUT = {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}
DOWN = {"n1": ["n1"]}


class Story(TimedStory):
    """Writes a history, in seconds; a call takes 10 ms."""

    def __init__(self, acting: bool = True) -> None:
        super().__init__()
        self.lines: dict[str, list[tuple[float, str]]] = {}
        self.acting = acting

    def call(self, at: float, f: str, key: str, got: Any, type_: OpType = "ok", **extra: Any) -> None:
        requested = 0 if f == "routed-read" else None
        super().call(at, f, key, requested, got if type_ == "ok" else None, type_, **extra)

    def members(self, at: float, server: str, *there: str) -> None:
        got = {str(NODES.index(node)): node for node in there}
        self.call(at, "members", "a", got, name_server=server)

    def route(self, at: float, server: str, first: str | None, permission: int) -> None:
        addresses = {} if first is None else {"0": first}
        self.call(at, "route", "a", {"addresses": addresses, "permission": permission}, name_server=server)

    def read(self, at: float, node: str = "n1", type_: OpType = "ok") -> None:
        self.call(at, "routed-read", "t:a:0", [[0, 1]], type_, node=node)

    def fault(self, start: float, end: float, impairs: dict[str, list[str]]) -> None:
        super().fault(start, end, *list(impairs)[:1], impairs=impairs)

    def log(self, at: float, node: str, new: int) -> None:
        self.lines.setdefault(node, []).append((at, f"Min broker changed, old: 9-x:1, new {new}-y:1"))

    def judge(self, folder: Path | None = None) -> CheckResult:
        deployment = DeploymentRecord("toy", groups={"a": NODES}, traits=Traits(acting_master=self.acting))
        logs = {}
        for node in NODES if folder is not None else ():
            assert folder is not None
            path = folder / node / "broker.log"
            path.parent.mkdir(exist_ok=True)
            lines = sorted(self.lines.get(node, []))
            path.write_text(
                "".join(f"2026-01-01 00:{int(t) // 60:02d}:{t % 60:06.3f} INFO x - {m}\n" for t, m in lines)
            )
            logs[node] = [path]
        started = {"started_at": "2026-01-01T00:00:00.000000+00:00"}
        return Routes(detected_s=5).check(self.run(environment=started, logs=logs, deployment=deployment))


def steady(story: Story, until: float = 40, **servers: Any) -> Story:
    """All name servers list everybody, or what `servers` says for a time: (from, to, members)."""
    for n in range(int(until * 2)):
        for server in NODES:
            start, end, there = servers.get(server, (0, 0, NODES))
            now = there if start <= n / 2 < end else NODES
            story.members(n / 2, server, *now)
            story.route(n / 2 + 0.2, server, now[0] if now else None, 6 if now[:1] == ("n1",) else 4)
        story.read(n / 2 + 0.3)
    return story


@pytest.mark.parametrize(
    ("spell", "fault", "expected"),
    [
        ((10, 15), None, set()),
        ((10, 18), None, {"routes-disagree"}),
        ((10, 18), (13, 14, DOWN), set()),  # the limit starts again with a fault
        ((10, 18), (9, 30, CUT), set()),  # it hears other brokers
        ((10, 18), (9, 30, {"n2": ["n2"]}), set()),  # it is stopped
        ((10, 18), (9, 30, {"n1": ["n1"]}), {"routes-disagree"}),
    ],
)
def test_name_servers_agree(spell: tuple[float, float], fault: Any, expected: set[str]) -> None:
    server = "n1" if fault is not None and fault[2] == CUT else "n2"
    story = steady(Story(), **{server: (*spell, ("n2", "n3"))})
    if fault is not None:
        story.fault(*fault)
    result = story.judge()
    assert names([result]) == expected
    for anomaly in result.anomalies:
        assert anomaly.limit_s == 6
        assert anomaly.window is not None
        assert anomaly.window[1] - anomaly.window[0] > 6 * S


@pytest.mark.parametrize(("until", "expected"), [(30, set()), (33, {"routes-disagree"})])
def test_one_that_is_back_registers_every_ten_seconds(until: float, expected: set[str]) -> None:
    """n1 is back at 20 s for two name servers, and later for the third one."""
    story = steady(Story(), n1=(10, 20, NODES[1:]), n2=(10, 20, NODES[1:]), n3=(10, until, NODES[1:]))
    result = story.judge()
    assert names([result]) == expected
    assert all(anomaly.limit_s == 11 for anomaly in result.anomalies)


@pytest.mark.parametrize(("until", "expected"), [(29, set()), (32, {"routes-disagree"})])
def test_the_end_of_a_fault_may_be_a_return(until: float, expected: set[str]) -> None:
    story = steady(Story(), n3=(10, until, NODES[1:]))
    story.fault(9, 20, {"n1": ["n3"], "n3": ["n1"]})
    assert names([story.judge()]) == expected


@pytest.mark.parametrize(("until", "expected"), [(29, set()), (32, {"routes-disagree"})])
def test_brokers_come_back_one_after_another(until: float, expected: set[str]) -> None:
    """n3 lists itself alone in the cut, then n2 as well, and n1 at last."""
    story = Story()
    for n in range(100):
        at = n / 2
        for server in NODES:
            alone = server == "n3" and 10 <= at < until
            story.members(at, server, *(("n3",) if alone and at < 21 else NODES[1:] if alone else NODES))
        story.read(at)
    story.route(1, "n1", "n1", 6)
    story.fault(9, 20, {"n1": ["n3"], "n2": ["n3"], "n3": ["n1", "n2"]})
    assert names([story.judge()]) == expected


def test_one_that_lists_nobody_says_nothing() -> None:
    assert names([steady(Story(), n2=(10, 30, ())).judge()]) == set()


@pytest.mark.parametrize(
    ("first", "permission", "acting", "expected"),
    [
        ("n2", 4, True, set()),
        ("n3", 4, True, {"wrong-route"}),
        (None, 4, True, {"wrong-route"}),
        ("n2", 6, True, {"acting-writable"}),
        (None, 4, False, set()),  # without acting masters nobody replaces the master
    ],
)
def test_the_acting_master_stands_under_0_and_is_read_only(
    first: str | None, permission: int, acting: bool, expected: set[str]
) -> None:
    story = Story(acting)
    for server in NODES:
        for n in range(4):
            story.members(n, server, "n2", "n3")
    story.route(1.5, "n1", first, permission)
    story.route(2.5, "n1", "n2", 4)
    story.read(1.6)
    result = story.judge()
    assert names([result]) == expected
    assert result.stats["acting"] == (2 if acting else 0)


def test_a_route_between_two_different_answers_is_not_judged() -> None:
    story = Story()
    story.members(1, "n1", *NODES)
    story.route(1.5, "n1", "n3", 6)
    story.members(2, "n1", "n2", "n3")
    story.members(9, "n1", "n2", "n3")
    story.route(5, "n1", "n3", 6)
    story.read(2)
    assert names([story.judge()]) == set()


@pytest.mark.parametrize(
    ("gap", "fault", "expected"),
    [
        ((10, 19), None, set()),
        ((10, 21), None, {"reads-interrupted"}),
        ((10, 21), (15, 16, DOWN), set()),
        ((10, 21), (9, 30, DOWN), {"reads-interrupted"}),
        ((10, 21), (9, 30, CUT), {"reads-interrupted"}),
        ((10, 21), (9, 30, {n: [n] for n in NODES}), set()),
        ((10, 21), (9, 30, {n: [n] for n in NODES[:2]}), set()),  # most name servers
    ],
)
def test_reads_go_on(gap: tuple[float, float], fault: Any, expected: set[str]) -> None:
    story = Story()
    for n in range(60):
        story.members(n / 2, "n1", *NODES)
        story.members(n / 2, "n2", *NODES)
        story.members(n / 2, "n3", *NODES)
        story.read(n / 2, type_="fail" if gap[0] <= n / 2 < gap[1] else "ok")
    story.route(1, "n1", "n1", 6)
    if fault is not None:
        story.fault(*fault)
    result = story.judge()
    assert names([result]) == expected
    assert all(a.limit_s == 10 for a in result.anomalies)


@pytest.mark.parametrize(
    ("lines", "until", "fault", "expected"),
    [
        ([(20.5, "n2"), (21, "n3")], 60, None, set()),
        ([(20.5, "n2")], 60, None, {"change-not-learned"}),
        ([(20.5, "n2")], 30, None, set()),  # it did not last
        ([(20.5, "n2"), (5, "n3")], 60, None, {"change-not-learned"}),
        ([(20.5, "n2")], 60, (15, 25, {"n3": ["n3"]}), set()),
    ],
)
def test_slaves_learn_of_a_change(
    tmp_path: Path, lines: list[tuple[float, str]], until: float, fault: Any, expected: set[str]
) -> None:
    story = steady(Story(), 80, **dict.fromkeys(NODES, (20, until, ("n2", "n3"))))
    story.fault(19, until, DOWN)
    for at, node in lines:
        story.log(at, node, 1)
    for node in ("n2", "n3"):
        story.log(until + 1, node, 0)
    if fault is not None:
        story.fault(*fault)
    assert names([story.judge(tmp_path)]) == expected
    assert names([story.judge()]) == set(), "there are no logs"


def test_what_a_restarted_name_server_learns_again_is_no_change(tmp_path: Path) -> None:
    """It lists n2 first until n1 has registered again; the others list n1 all the time."""
    story = Story()
    for n in range(160):
        at = n / 2
        for server in ("n1", "n2"):
            story.members(at, server, *NODES)
        if not 20 <= at < 38:
            story.members(at, "n3", *(("n2", "n3") if 38 <= at < 41 else NODES))
        story.read(at)
    story.route(1, "n1", "n1", 6)
    for node in ("n2", "n3"):
        story.log(1, node, 0)
    assert names([story.judge(tmp_path)]) <= {"routes-disagree"}


def test_a_run_without_reads_says_nothing() -> None:
    story = Story()
    story.members(1, "n1", *NODES)
    assert story.judge().verdict == Verdict.UNKNOWN


BUGS = ("routes-disagree", "wrong-route", "acting-writable", "reads-interrupted")


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """80 s of three name servers and a group, whose master is killed or cut off, and returns."""
    rng, story = Random(seed), Story()
    down = rng.uniform(10, 20)
    up = down + rng.uniform(20, 30)
    cut = rng.random() < 0.4
    story.fault(down, up, CUT if cut else DOWN)
    gone = {server: down + rng.uniform(0.1, 4) for server in NODES}
    back = {server: up + rng.uniform(1, 4.5) for server in NODES}
    late = rng.choice(NODES[1:])
    if bug == "routes-disagree":
        back[late] = max(back.values()) + rng.uniform(12, 14)
    for n in range(320):
        at = n / 4
        for server in NODES:
            struck = down <= at < up
            if server == "n1" and struck and not cut:
                story.call(at, "members", "a", None, "fail", name_server=server)
                continue
            alone = cut and server == "n1" and down + 4 <= at < back[server]
            there = NODES[:1] if alone else NODES[1:] if gone[server] <= at < back[server] else NODES
            if cut and server == "n1" and not alone:
                there = NODES
            story.members(at + rng.uniform(0, 0.05), server, *there)
            first, permission = there[0], 6 if there[0] == "n1" else 4
            if bug == "wrong-route" and permission == 4 and rng.random() < 0.2:
                first = "n3"
            if bug == "acting-writable" and rng.random() < 0.2:
                permission = 6
            story.route(at + rng.uniform(0.1, 0.15), server, first, permission)
        named = "n2" if gone["n2"] <= at < back["n2"] else "n1"
        dead = named == "n1" and down <= at < up and not cut
        broken = bug == "reads-interrupted" and down + 5 <= at < down + 19
        story.read(at + 0.2, named, "fail" if dead or broken else "ok")
    return story.judge()


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 1000), marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_good_clusters_raise_no_alarm(seeds: range) -> None:
    alarms = {seed: r.reason for seed in seeds if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.slow
def test_every_planted_violation_is_found(bug: str) -> None:
    for seed in range(8):
        assert names([simulated(seed, bug)]) == {bug}, seed
