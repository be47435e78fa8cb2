# SPDX-License-Identifier: Apache-2.0
"""Faults of power and disks without nodes: whom they hit, what they impair, and what they refuse."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError
from infra.machines.primitives import volume
from infra.machines.primitives.volume import Speed, Speeds
from infra.options import OptionError, parse
from nemesis.disk import DiskError, DiskFault, DiskFull, DiskReadOnly, DiskStall
from nemesis.power import PowerFailure
from nemesis.slow_disk import DiskSlow, SlowOptions

VIEW = ClusterView(
    ["n1", "n2", "n3"],
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ()},
    main={"n1": "broker", "n2": "broker"},
)


def test_power_fails_everywhere_at_one_instant() -> None:
    """One injection for all nodes: injections of their own would come one after another."""
    aimed = PowerFailure().aim(VIEW, Target(["n1", "n2", "n3"], "broker"), Random(1))
    assert list(aimed) == ["n1"]
    cut = aimed["n1"]
    assert [(effect.node, effect.kind, effect.servers) for effect in cut.effects] == [
        (node, kind, ()) for node in ("n1", "n2") for kind in ("down", "unsynced-lost")
    ], "a machine without power has no server that goes on, whichever was the target"
    assert cut.describe({"n2": "master"}) == "n1 n2 (master)"
    assert cut.detail == {"nodes": ["n1", "n2"], "changed": {}}


@pytest.mark.parametrize("fault", [PowerFailure(), DiskFull(), DiskStall(), DiskReadOnly(), DiskError(), DiskSlow()])
def test_a_node_without_servers_is_no_target(fault: Any) -> None:
    with pytest.raises(NoTarget, match="no server runs on n3"):
        fault.aim(VIEW, Target(["n3"]), Random(1))


@pytest.mark.parametrize(
    ("fault", "options", "kinds"),
    [
        (DiskFull, {}, ["disk-full"]),
        (DiskFull, {"end": "power"}, ["disk-full", "unsynced-lost"]),
        (DiskStall, {"end": "kill"}, ["slow", "down"]),
        (DiskReadOnly, {}, ["disk-dead", "unsynced-lost"]),
        (DiskError, {"end": "power"}, ["disk-dead", "unsynced-lost"]),
    ],
)
def test_what_is_lost_depends_on_the_end(fault: type[DiskFault], options: dict[str, str], kinds: list[str]) -> None:
    aimed = fault(parse(fault.Options, options, "options")).aim(VIEW, Target(["n1", "n2"]), Random(1))
    assert list(aimed) == ["n1", "n2"]
    assert [effect.kind for effect in aimed["n2"].effects] == kinds


@pytest.mark.parametrize("fault", [DiskReadOnly, DiskError])
def test_a_dead_disk_does_not_become_well_by_itself(fault: type[DiskFault]) -> None:
    with pytest.raises(OptionError, match="end"):
        parse(fault.Options, {"end": "free"}, "options")


def test_a_slow_disk_is_slow_and_loses_nothing() -> None:
    aimed = DiskSlow(parse(SlowOptions, {"write_rate": "1MiB"}, "options")).aim(VIEW, Target(["n1", "n2"]), Random(1))
    assert list(aimed) == ["n1", "n2"]
    assert aimed["n2"].detail == {"write_iops": "50 a second", "write_rate": "1.00 MiB a second"}
    assert [(effect.kind, effect.node) for effect in aimed["n2"].effects] == [("slow", "n2")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write_iops": "0"}, "one of them must limit something"),
        ({"write_rate": "1KiB"}, "write_rate is 1024; 0 or at least 16KiB is right"),
        ({"read_iops": "-1"}, "read_iops is -1; 0 to 5000 is right"),
    ],
)
def test_limits_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(SlowOptions, {name: int(v) if v.lstrip("-").isdigit() else v for name, v in options.items()}, "options")


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        (Speed(50, 1.0), True),
        (Speed(50, 0.5), False),  # the limit did not hold
        (Speed(0, 10.0), True),  # others use all there is
    ],
)
def test_a_slow_disk_is_seen_by_the_time_that_accesses_take(
    monkeypatch: pytest.MonkeyPatch, now: Speed, seen: bool
) -> None:
    injection = DiskSlow().aim(VIEW, Target(["n1"]), Random(1))["n1"]
    speeds: list[Speed] = [Speed(50, 0.02), now]
    monkeypatch.setattr(volume, "speeds", lambda hit, limits: Speeds("loop7", {"write_iops": speeds.pop(0)}, {}))
    monkeypatch.setattr(volume, "slow_down", lambda *given: SimpleNamespace())
    deployment: Any = SimpleNamespace(cluster=SimpleNamespace(host=lambda name: None))
    assert injection.inject(deployment, 60) is not None
    found = injection.seen(deployment)
    assert found.seen == seen
    assert f"loop7: {now.done:.0f} writes in {now.seconds:.2f} s, limit 50 a second; before in" in found.what


def test_the_speed_before_is_the_best_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes the first measurement late."""
    injection = DiskSlow().aim(VIEW, Target(["n1"]), Random(1))["n1"]
    speeds = [Speed(50, 1.1), Speed(50, 0.5), Speed(50, 0.9), Speed(50, 1.0)]
    monkeypatch.setattr(volume, "speeds", lambda hit, limits: Speeds("loop7", {"write_iops": speeds.pop(0)}, {}))
    monkeypatch.setattr(volume, "slow_down", lambda *given: SimpleNamespace())
    deployment: Any = SimpleNamespace(cluster=SimpleNamespace(host=lambda name: None))
    assert injection.inject(deployment, 60) is not None
    found = injection.seen(deployment)
    assert found.seen
    assert found.what.endswith("before in 0.500 s")


def test_a_limit_that_the_disk_never_reaches_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    injection = DiskSlow().aim(VIEW, Target(["n1"]), Random(1))["n1"]
    same = Speeds("loop7", {"write_iops": Speed(50, 1.0)}, {})
    monkeypatch.setattr(volume, "speeds", lambda hit, limits: same)
    monkeypatch.setattr(volume, "slow_down", lambda *given: SimpleNamespace())
    deployment: Any = SimpleNamespace(cluster=SimpleNamespace(host=lambda name: None))
    assert injection.inject(deployment, 60) is not None
    assert not injection.seen(deployment).seen


def test_a_machine_without_a_host_says_why() -> None:
    """The plan is refused before anything starts."""

    def host(name: str) -> Any:
        raise InfraError(f"{name}: its container is not on this machine")

    deployment: Any = SimpleNamespace(nodes=[SimpleNamespace(name="n1")], cluster=SimpleNamespace(host=host))
    for fault in (PowerFailure(), DiskSlow()):
        assert fault.available(deployment) == "n1: its container is not on this machine"
