# SPDX-License-Identifier: Apache-2.0
"""The fault that docs/faults.md teaches to write: it works as it stands there."""

import re
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import Fault, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Completed

DOC = Path(__file__).parents[2] / "docs" / "faults.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC.read_text(), re.DOTALL)


@pytest.fixture
def fault() -> Fault:
    names: dict[str, Any] = {}
    (code,) = blocks("python")
    assert len(code.splitlines()) <= 40
    exec(code, names)
    made: Fault = names["SlowUplink"]()
    return made


def test_it_is_injected_seen_and_healed(fault: Fault) -> None:
    root = ["noqueue"]

    def run(argv: list[str]) -> Completed:
        assert argv[:3] == ["tc", "qdisc", "show"]
        return Completed(argv, 0, f"qdisc {root[0]}".encode(), b"", 1.0)

    def lease(inject: list[list[str]], undo: list[list[str]], *, ttl_s: float) -> Any:
        assert all(argv[:6] == ["tc", "qdisc", "replace", "dev", "eth0", "root"] for argv in (*inject, *undo))
        root[0] = inject[0][6]
        return SimpleNamespace(heal=lambda: root.__setitem__(0, undo[0][6]))

    node: Any = SimpleNamespace(name="n1", run=run, lease=lease)
    deployment: Any = SimpleNamespace(node=lambda name: node)
    injection = fault.aim(ClusterView.assumed(["n1", "n2"], "n1"), Target(["n1"]), Random(1))["n1"]
    assert injection.detail == {"rate": "1mbit"}
    assert not injection.seen(deployment).seen
    held = injection.inject(deployment, 60)
    assert injection.seen(deployment).what == "qdisc tbf"
    assert not injection.healed(deployment).seen
    assert held is not None
    held.heal()
    assert injection.healed(deployment).seen
    assert [effect.kind for effect in injection.effects] == ["slow"]


def test_every_fault_of_ours_is_told() -> None:
    from harness.parts import registry

    text = "\n".join(page.read_text() for page in (DOC, *sorted(DOC.with_suffix("").glob("*.md"))))
    for name in registry.names(registry.NEMESES):
        assert f"`{name}`" in text
        row = next(line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert f"`{registry.find(registry.NEMESES, name).cls.default_target}`" in row or "aims itself" in row
