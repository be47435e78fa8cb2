# SPDX-License-Identifier: Apache-2.0
"""Clock faults on real nodes: a JVM says in its log what its clocks are, and the probes say the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bare_servers import BareServer, deployed

from harness.api import Evidence, Fault, Injection, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease
from infra.machines.primitives import clock, process
from infra.systems.api import Deployment, ServersRun
from nemesis.clock import ClockDrift, ClockStep, ClockStrobe, DriftOptions, StepOptions, StrobeOptions
from nemesis.patience import eventually
from nemesis.process import Kill

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

TICKER = Path(__file__).with_name("Ticker.java")
SLEEPER = "import select\nwhile True: select.select([], [], [], 1)"
VIEW = ClusterView(["n1"], {"n1": ("namesrv", "broker")}, {"n1": "broker"}, {"a": ["n1"]})
STROBE = ClockStrobe(StrobeOptions(ahead=0.4, behind=0.3, stay=0.2))


@pytest.fixture(scope="module")
def ticking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`broker`: the JVM. `namesrv`: a process that logs nothing. Both with a clock that a strobe needs."""
    made = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "--release", "17", "-d", str(made), str(TICKER)], check=True)
    java = ["java", "-Xmx32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+PerfDisableSharedMem"]
    programs = {"namesrv": ["python3", "-c", SLEEPER], "broker": [*java, "-cp", "/root", "Ticker"]}
    with deployed(programs) as deployment:
        (node,) = deployment.nodes
        node.write("/root/Ticker.class", (made / "Ticker.class").read_bytes())
        assert STROBE.available(deployment) is None
        STROBE.prepare(deployment)
        for server in deployment.servers():
            server.start()
        assert eventually(lambda: len(ticks(deployment)) > 2, 20)
        yield deployment


_HELD: list[Lease] = []


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    """A test that fails leaves no strike to the next one."""
    yield
    while _HELD:
        _HELD.pop().heal()


def ticks(deployment: Deployment) -> list[tuple[float, float]]:
    """The JVM's readings so far: wall clock and monotonic clock, in seconds."""
    server: Any = deployment.server("n1", "broker")
    lines = [line.split() for line in server.node.read(server.log).decode().splitlines()]
    return [(int(line[2]) / 1e3, int(line[3]) / 1e9) for line in lines if len(line) == 4]


def jumps(deployment: Deployment, since: int) -> list[float]:
    """By how much the JVM's wall clock moved against its monotonic clock, from tick to tick; what is visible of it."""
    found = ticks(deployment)[max(0, since - 1) :]
    moved = [(b[0] - a[0]) - (b[1] - a[1]) for a, b in pairwise(found)]
    return [round(jump, 2) for jump in moved if abs(jump) > 0.01]


def struck(fault: Fault, deployment: Deployment, kind: str | None = "broker") -> tuple[Injection, Lease]:
    (injection,) = fault.aim(VIEW, Target(["n1"], kind), Random(3)).values()
    lease = injection.inject(deployment, 60)
    assert lease is not None
    _HELD.append(lease)
    return injection, lease


def figures(evidence: Evidence) -> Sequence[float]:
    """Every number with a sign in the evidence."""
    return [float(text) for text in re.findall(r"[+-]\d+\.\d+", evidence.what)]


@pytest.mark.parametrize(("by", "offset"), [("forward", 60.0), ("back", -3600.0)])
def test_a_step_is_seen_by_the_jvm_and_taken_back(ticking: Deployment, by: Any, offset: float) -> None:
    before = len(ticks(ticking))
    injection, lease = struck(ClockStep(StepOptions(by=by, offset=abs(offset))), ticking)
    assert eventually(lambda: len(jumps(ticking, before)) > 0, 5)
    # A line of the log that was certainly written with the new offset.
    assert eventually(lambda: "in its log" in injection.seen(ticking).what, 5)
    evidence = injection.seen(ticking)
    assert evidence.seen, evidence.what
    asked, seen, logged = figures(evidence)
    assert (asked, round(seen, 2)) == (offset, offset)
    assert abs(logged - offset) < 0.5
    assert evidence.what.endswith("the monotonic clock did not move")
    lease.heal()
    healed = injection.healed(ticking)
    assert (healed.seen, healed.what.partition(": ")[2]) == (True, "offset +0.000 s")
    assert eventually(lambda: len(jumps(ticking, before)) > 1, 5)
    assert jumps(ticking, before) == [offset, -offset]


def test_only_the_server_that_is_meant(ticking: Deployment) -> None:
    """And the node's own clock is nobody's but the machine's."""
    injection, lease = struck(ClockStep(StepOptions(by="forward", offset=60.0)), ticking, "namesrv")
    before = len(ticks(ticking))
    evidence = injection.seen(ticking)
    assert evidence.seen, evidence.what
    assert "namesrv process" in evidence.what
    assert eventually(lambda: len(ticks(ticking)) > before + 30, 20)
    assert jumps(ticking, before) == []
    lease.heal()


def test_a_node_is_all_its_servers(ticking: Deployment) -> None:
    injection, lease = struck(ClockStep(StepOptions(by="forward", offset=5.0)), ticking, None)
    evidence = injection.seen(ticking)
    assert evidence.seen
    assert evidence.what.count("asked +5.000 s, seen +5.000 s") == 2
    lease.heal()
    assert injection.healed(ticking).seen


def test_steps_there_and_back(ticking: Deployment) -> None:
    before = len(ticks(ticking))
    injection, lease = struck(ClockStep(StepOptions(by="both", offset=7.0, gap=1.0)), ticking)
    evidence = injection.seen(ticking)
    assert evidence.seen, evidence.what
    assert eventually(lambda: {True, False} <= {jump > 0 for jump in jumps(ticking, before)}, 20)
    lease.heal()
    assert injection.healed(ticking).seen
    assert {abs(jump) for jump in jumps(ticking, before)} <= {7.0, 14.0}


def test_a_drift_gains_at_its_rate(ticking: Deployment) -> None:
    before = len(ticks(ticking))
    injection, lease = struck(ClockDrift(DriftOptions(rate=-0.2)), ticking)
    evidence = injection.seen(ticking)
    assert evidence.seen, evidence.what
    asked, seen, now = figures(evidence)[:3]
    assert asked == -0.2
    assert -0.25 < seen < -0.15
    assert now < -0.4
    lease.heal()
    assert injection.healed(ticking).seen
    assert eventually(lambda: abs(sum(jumps(ticking, before))) < 0.05, 5)
    *drifted, back = jumps(ticking, before)
    assert all(-0.5 < jump < 0 for jump in drifted), "many small steps, no rate of libfaketime's own"
    assert back > 0.4


def test_a_strobe_shows_both_offsets(ticking: Deployment) -> None:
    before = len(ticks(ticking))
    injection, lease = struck(STROBE, ticking)
    evidence = injection.seen(ticking)
    assert evidence.seen, evidence.what
    assert figures(evidence)[:4] == pytest.approx([0.4, -0.3, 0.7, -0.7], abs=0.02)
    lease.heal()
    assert injection.healed(ticking).seen
    assert {0.7, -0.7} <= set(jumps(ticking, before))


def test_strikes_add_up_and_heal_alone(ticking: Deployment) -> None:
    step, step_lease = struck(ClockStep(StepOptions(by="forward", offset=60.0)), ticking)
    back, back_lease = struck(ClockStep(StepOptions(by="back", offset=10.0)), ticking)
    assert "asked -10.000 s (+60.000 s by other strikes), seen +50.000 s" in back.seen(ticking).what
    step_lease.heal()
    assert step.healed(ticking).what.endswith("offset -10.000 s (-10.000 s by other strikes)")
    assert back.seen(ticking).seen
    back_lease.heal()
    assert back.healed(ticking).what.endswith("offset +0.000 s")


def test_a_slow_return_has_small_steps(ticking: Deployment) -> None:
    before = len(ticks(ticking))
    _, lease = struck(ClockStep(StepOptions(by="forward", offset=2.0, heal="slew", slew=2.0)), ticking)
    assert eventually(lambda: jumps(ticking, before) == [2.0], 5)
    lease.heal()
    assert eventually(lambda: abs(sum(jumps(ticking, before))) < 0.05, 5)
    _, *slewed = jumps(ticking, before)
    assert len(slewed) > 4
    assert all(-0.8 < jump < 0 for jump in slewed)


def test_a_server_that_is_started_again_has_the_clock_too(ticking: Deployment) -> None:
    _, lease = struck(ClockStep(StepOptions(by="forward", offset=60.0)), ticking, "namesrv")
    killed = Kill("n1", ["namesrv"])
    kill_lease = killed.inject(ticking, 60)
    assert kill_lease is not None
    kill_lease.heal()
    again = ticking.server("n1", "namesrv").process()
    assert again is not None
    found = clock.library(ticking.node("n1"))
    assert found is not None
    assert eventually(lambda: clock.is_preloaded(ticking.node("n1"), again.pid, found), 5)
    lease.heal()


def test_a_lease_that_expires_ends_the_clock_and_its_loop(ticking: Deployment) -> None:
    (injection,) = ClockDrift(DriftOptions(rate=1.0)).aim(VIEW, Target(["n1"], "broker"), Random(1)).values()
    assert injection.inject(ticking, 2.0) is not None
    assert injection.seen(ticking).seen is False, "it is over before the probe has looked for three seconds"
    assert injection.healed(ticking).seen
    assert ticking.node("n1").run(["pgrep", "-f", "[c]lock loop"], check=False).text == ""


def test_a_server_without_the_library_is_no_target(ticking: Deployment) -> None:
    node = ticking.node("n1")
    bare = BareServer(node, "broker", ["sleep", "300"])
    deployment: Any = Deployment(ticking.cluster, _Only(bare))
    running = node.spawn(["sleep", "300"], env={}, log="/root/log", pidfile=bare.pidfile + ".bare")
    try:
        bare_process: Any = lambda: running  # noqa: E731
        bare.process = bare_process
        with pytest.raises(InfraError, match="was started without a clock"):
            struck(ClockStep(), deployment)
        with pytest.raises(ServersRun, match="runs without libfaketime"):
            ClockStep().prepare(deployment)
    finally:
        process.kill_process(node, running)


class _Only:
    """A topology of one server."""

    def __init__(self, server: BareServer) -> None:
        self._server = server

    def servers(self, node: Any) -> Sequence[BareServer]:
        return [self._server]
