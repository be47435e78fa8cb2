# SPDX-License-Identifier: Apache-2.0
"""Frame faults: their options, whom they aim at, and what they say."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.primitives.frames import Count, Report
from infra.options import OptionError, parse
from nemesis.frames import AtFrame, FrameFault, FrameOptions

VIEW = ClusterView(
    ["n1", "n2", "n3"],
    {"n1": ("controller", "broker"), "n2": ("broker",), "n3": ("namesrv",)},
    {"n1": "broker", "n2": "broker"},
    {"a": ["n1", "n2"]},
)


def aimed(target: list[str], **options: Any) -> dict[str, AtFrame]:
    fault = FrameFault(FrameOptions(**{"code": 1013, **options}))
    found = fault.aim(VIEW, Target(target), Random(1))
    assert all(isinstance(one, AtFrame) for one in found.values())
    return dict(found)  # type: ignore[arg-type]


def test_a_code_is_needed() -> None:
    with pytest.raises(OptionError, match="code is not given"):
        parse(FrameOptions, {}, "frame-fault")


def test_the_server_with_data_is_killed_unless_another_is_named() -> None:
    killed = aimed(["n1"], act="kill")["n1"]
    assert killed.kind == "broker"
    assert [(e.kind, e.node, e.servers) for e in killed.effects] == [("down", "n1", ("broker",))]
    assert aimed(["n1"], act="kill", kill="controller")["n1"].kind == "controller"


def test_other_acts_make_the_node_slow() -> None:
    for act in ("delay", "hold", "drop", "close", "repeat"):
        assert [(e.kind, e.node) for e in aimed(["n2"], act=act)["n2"].effects] == [("slow", "n2")]


def test_nobody_to_kill_is_told() -> None:
    with pytest.raises(NoTarget, match="n2: no controller is there"):
        aimed(["n2"], act="kill", kill="controller")


def test_every_strike_has_a_name_of_its_own() -> None:
    fault = FrameFault(FrameOptions(code=1))
    rng = Random(3)
    names = [fault.aim(VIEW, Target(["n1"]), rng)["n1"].name for _ in range(50)]  # type: ignore[attr-defined]
    assert len(set(names)) == 50


def test_the_evidence_has_what_passed_since_the_beginning() -> None:
    one = aimed(["n1"])["n1"]
    one.before = Report([Count(9878, "request", 1013, "server", 2)], [])
    counts = [Count(9878, "request", 1013, "server", 3), Count(9878, "request", 904, "server", 12)]
    now = Report([*counts, Count(9878, "response", 904, "opener", 12)], [(one.name, 1, 1), ("another", 2, 1)])
    assert one._describe(now) == "drop request 1013: 1 times; requests meanwhile: 904 x 12, 1013 x 1"
