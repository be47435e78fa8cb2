# SPDX-License-Identifier: Apache-2.0
"""Clock faults without machines: what is drawn, what servers are started with, and the files of a clock."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import DATA, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError
from infra.machines.node import RemoteNode
from infra.machines.primitives import clock
from infra.machines.remote.process import ProcessRemote
from infra.options import OptionError, parse
from infra.systems.api import Launch
from nemesis.clock import (
    ClockDrift,
    ClockStep,
    ClockStrobe,
    DriftOptions,
    MovedClock,
    StepOptions,
    StrobeOptions,
    preload_of,
    with_clock,
)
from nemesis.patience import eventually

VIEW = ClusterView(["n1", "n2"], {"n1": ("namesrv", "broker"), "n2": ()}, {"n1": "broker"})
LIBRARY = "/usr/lib/x/faketime/libfaketimeMT.so.1"


def course_of(fault: Any, seed: int = 1, kind: str | None = None) -> clock.Course:
    (injection,) = fault.aim(VIEW, Target(["n1"], kind), Random(seed)).values()
    assert isinstance(injection, MovedClock)
    return injection._course


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ClockStep(StepOptions(by="forward", offset=1.5)), "course 1500000 0"),
        (ClockStep(StepOptions(by="back", offset=60.0)), "course -60000000 0"),
        (ClockDrift(DriftOptions(rate=-0.05)), "drift -50000"),
        (ClockStrobe(StrobeOptions(ahead=0.5, behind=1.0, stay=0.25)), "course 500000 250 -1000000 250"),
    ],
)
def test_what_the_node_is_told(fault: Any, words: str) -> None:
    assert " ".join(course_of(fault).words()) == words


@pytest.mark.parametrize("seed", range(20))
def test_steps_there_and_back_are_all_steps(seed: int) -> None:
    steps = course_of(ClockStep(StepOptions(by="both", offset=7.0, gap=2.0)), seed).steps
    places = [0.0, *(place for place, _ in steps)]
    assert all(a != b for a, b in pairwise(places))
    assert set(places) == {-7.0, 0.0, 7.0}
    assert all(1.0 <= stays <= 3.0 for _, stays in steps)
    assert steps == course_of(ClockStep(StepOptions(by="both", offset=7.0, gap=2.0)), seed).steps


@pytest.mark.parametrize(
    ("owner", "given", "said"),
    [
        (DriftOptions, {"rate": 0.001}, "too small to be seen"),
        (DriftOptions, {"rate": -1.0}, "-0.9"),
        (StrobeOptions, {"ahead": "50ms"}, "cannot be seen"),
        (StepOptions, {"by": "sideways"}, "forward or back or both is right"),
        (StepOptions, {"slew": "1m"}, "20"),
    ],
)
def test_options_that_cannot_be(owner: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(owner, given, "here")


@pytest.mark.parametrize(
    ("kind", "servers"), [(None, ("namesrv", "broker")), (DATA, ("broker",)), ("namesrv", ("namesrv",))]
)
def test_a_role_is_one_clock_and_a_node_all_of_them(kind: str | None, servers: tuple[str, ...]) -> None:
    (injection,) = ClockStep().aim(VIEW, Target(["n1"], kind), Random(1)).values()
    assert [(e.kind, e.node, e.servers) for e in injection.effects] == [("slow", "n1", servers)]
    assert tuple(injection.detail) == servers


def test_a_node_without_servers_is_no_target() -> None:
    with pytest.raises(NoTarget):
        ClockStep().aim(VIEW, Target(["n2"]), Random(1))


def test_the_server_alone_gets_the_library() -> None:
    given = Launch(env={"A": "b"}, wrapper=["env", "X=1", "nice"])
    assert preload_of(given) is None
    made = with_clock(given, clock.variables(LIBRARY, "/clock/broker"))
    assert made.env == {"A": "b"}
    assert list(made.wrapper[:4]) == ["env", "X=1", "nice", "env"]
    assert preload_of(made) == {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": "/clock/broker/offset",
        "FAKETIME_CACHE_DURATION": "0",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }


def test_several_faults_of_clocks_are_one_launch() -> None:
    seldom = clock.variables(LIBRARY, "/clock/broker")
    once = with_clock(Launch(), seldom)
    assert with_clock(once, seldom) == once
    often = with_clock(once, clock.variables(LIBRARY, "/clock/broker", cached=False))
    assert list(often.wrapper).count("env") == 1
    assert with_clock(often, seldom) == often, "a strobe needs its offset at once, in either order"


def test_a_users_own_preload_stays() -> None:
    given = Launch(env={"LD_PRELOAD": "/own.so"})
    made = with_clock(given, clock.variables(LIBRARY, "/clock/broker"))
    assert (preload_of(made) or {})["LD_PRELOAD"] == f"{LIBRARY}:/own.so"


def test_only_a_quick_strobe_reads_often() -> None:
    assert ClockStep().reads_seldom
    assert ClockStrobe(StrobeOptions(stay=2.0)).reads_seldom
    assert not ClockStrobe(StrobeOptions(stay=1.9)).reads_seldom


def test_a_node_that_cannot_says_what_is_missing() -> None:
    silent: Any = SimpleNamespace(name="n1", run=lambda argv, **_: SimpleNamespace(text="", code=0))
    deployment: Any = SimpleNamespace(nodes=[silent])
    assert ClockStep().available(deployment) == ("n1 has no libfaketimeMT.so.1: install the package faketime there")


# The files of a clock, on this machine.


@pytest.fixture
def here() -> Iterator[RemoteNode]:
    node = RemoteNode("n1", "127.0.0.1", ProcessRemote("n1"))
    yield node
    node.close()


@pytest.fixture
def folder(here: RemoteNode, tmp_path: Path) -> str:
    clock.make_ready(here, str(tmp_path))
    return str(tmp_path)


def offset(folder: str) -> float:
    return float((Path(folder) / "offset").read_text())


def left(folder: str) -> list[str]:
    return [path.name for of in ("parts", "loops") for path in (Path(folder) / of).iterdir()]


def test_a_clock_begins_at_nothing_and_keeps_what_it_has(here: RemoteNode, folder: str) -> None:
    assert (Path(folder) / "offset").read_text() == "+0.000000\n"
    held = clock.hold(here, folder, clock.Course([(-0.25, 0.0)]), 60)
    assert (Path(folder) / "offset").read_text() == "-0.250000\n"
    clock.make_ready(here, folder)
    assert offset(folder) == -0.25
    held.lease.heal()
    assert offset(folder) == 0
    assert left(folder) == []


def test_parts_add_up_and_go_alone(here: RemoteNode, folder: str) -> None:
    one = clock.hold(here, folder, clock.Course([(60.0, 0.0)]), 60)
    two = clock.hold(here, folder, clock.Course([(-61.5, 0.0)]), 60)
    assert offset(folder) == -1.5
    assert clock.state(here, folder, two.part) == clock.State(-1.5, -61.5, False)
    one.lease.heal()
    assert offset(folder) == -61.5
    assert clock.state(here, folder, one.part) == clock.State(-61.5, None, False)
    two.lease.heal()
    assert offset(folder) == 0


def test_a_loop_follows_its_course_and_ends(here: RemoteNode, folder: str) -> None:
    held = clock.hold(here, folder, clock.Course([(1.0, 0.05), (-2.0, 0.05)]), 60)
    assert clock.state(here, folder, held.part).moving
    seen: set[float] = set()
    assert eventually(lambda: seen.add(offset(folder)) or seen == {1.0, -2.0}, 20)
    held.lease.heal()
    held.lease.heal()
    assert clock.state(here, folder, held.part) == clock.State(0.0, None, False)
    assert left(folder) == []


def test_a_drift_grows(here: RemoteNode, folder: str) -> None:
    held = clock.hold(here, folder, clock.Course(rate=-2.0), 60)
    assert eventually(lambda: offset(folder) < -0.9, 20)
    held.lease.heal()
    assert offset(folder) == 0


def test_a_slow_return_passes_through_the_middle(here: RemoteNode, folder: str) -> None:
    held = clock.hold(here, folder, clock.Course([(8.0, 0.0)]), 1, slew_s=1.0)
    seen: set[float] = set()
    assert eventually(lambda: seen.add(offset(folder)) or 0.0 in seen, 20)
    assert any(0 < value < 8 for value in seen)
    assert all(value in (8, 6, 4, 2, 0) for value in seen)
    held.lease.heal()
    assert left(folder) == []


def test_a_loop_whose_guard_was_killed_ends_in_time_or_with_the_heal(here: RemoteNode, folder: str) -> None:
    for heals in (True, False):
        # As the lease's commands, but nobody ends the loop of 1 s.
        inject = clock._argv("hold", folder, "part", "60" if heals else "1", *clock.Course(rate=1.0).words())
        here.run(inject)
        assert clock.state(here, folder, "part").moving
        if heals:
            here.run(clock._argv("end", folder, "part", "0"))
        assert eventually(lambda: left(folder) == [], 20)
        assert offset(folder) == 0


def test_a_clock_whose_files_were_wiped_is_healed(here: RemoteNode, folder: str) -> None:
    held = clock.hold(here, folder, clock.Course(rate=1.0), 60)

    def wiped() -> bool:
        # The loop that moves the clock may write a file while the folder is removed: then once more.
        shutil.rmtree(folder, ignore_errors=True)
        return not Path(folder).exists()

    assert eventually(wiped, 10)
    held.lease.heal()
    assert clock.state(here, folder, held.part) == clock.State(0.0, None, False)


def test_a_clock_that_no_server_has(here: RemoteNode, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="no server has this clock"):
        clock.hold(here, str(tmp_path / "none"), clock.Course([(1.0, 0.0)]), 60)
    here.run(clock._argv("end", str(tmp_path / "none"), "part", "0"))
    assert not (tmp_path / "none").exists()


def test_a_log_tells_its_clock(here: RemoteNode, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert clock.logged_offset(here, str(log), 60) is None
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 90))
    log.write_text(f"2001-01-01 00:00:00.000 INFO old\n{stamp}.250 INFO main - x\n\tat some.frame\n")
    ahead = clock.logged_offset(here, str(log), 60)
    assert ahead is not None
    assert 88 < ahead < 91
    assert clock.logged_offset(here, str(log), -60) is None, "it is too old"
    log.write_text("no stamp\n")
    assert clock.logged_offset(here, str(log), 60) is None
